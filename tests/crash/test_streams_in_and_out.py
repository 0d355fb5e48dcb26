"""Standard input, pipes and .gz as inputs; standard output as output."""

import gzip
import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from crash_runs import (
    ENV,
    TIMEOUT_S,
    Ended,
    ForkServer,
    beside,
    command,
    finish,
    names_in,
    rows_of,
    score_process,
    wait_until,
    write_jsonl,
)

from rewardctl.data.journal import encode_record, read_records

POINTWISE = """
score: {window: 4}
rewards:
  - {name: company, reward_model: "crash_rewards:CompanyReward", batch_size: 3}
"""
GROUPED = """
score: {window: 4}
rewards:
  - {name: company, reward_model: "crash_rewards:CompanyReward", batch_size: 3}
  - {name: spread, reward_model: "crash_rewards:GroupReward"}
"""
ROWS = [{"id": n, "response": f"answer {n}", "unique_id": f"g{n % 5}"} for n in range(40)]
ESCAPE = "\x1b"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = write_jsonl(tmp_path / "rows.jsonl", [ROWS[0], b"", *ROWS[1:]])
    with gzip.open(tmp_path / "packed.jsonl.gz", "wb") as packed:
        packed.write(rows.read_bytes())
    (tmp_path / "pointwise.yaml").write_text(POINTWISE)
    (tmp_path / "grouped.yaml").write_text(GROUPED)
    return tmp_path


def killed(server: ForkServer, folder: Path, *arguments: str, stdin: Path | str) -> None:
    """A run killed while its third window or a later one is scored."""
    partial = beside(folder / "out.jsonl", ".partial")
    two_windows = 2 * 4 * 230  # bytes: a window has four rows
    ended = server.score(
        *arguments, "-o", "out.jsonl", cwd=folder, stdin=stdin, kill_at=(partial, two_windows)
    )
    assert ended.killed, ended.err


def resumed(server: ForkServer, folder: Path, *arguments: str, stdin: Path | str) -> Ended:
    return server.score(*arguments, "-o", "out.jsonl", "--resume", cwd=folder, stdin=stdin)


def undisturbed(server: ForkServer, folder: Path, *arguments: str, stdin: Path | str) -> bytes:
    out = folder / "undisturbed.jsonl"
    ended = server.score(*arguments, "-o", out.name, cwd=folder, stdin=stdin)
    assert ended.code == 0, ended.err
    return out.read_bytes()


def slow(config: str) -> tuple[str, ...]:
    """Arguments that give a kill time to land inside the run."""
    return (config, "--set", "rewards.company.options={pause_ms: 5}")


def test_stdin_is_resumed_with_the_same_stdin(folder: Path, server: ForkServer) -> None:
    arguments, rows = (*slow("pointwise.yaml"), "--data", "-"), folder / "rows.jsonl"
    expected = undisturbed(server, folder, *arguments, stdin=rows)
    killed(server, folder, *arguments, stdin=rows)
    ended = resumed(server, folder, *arguments, stdin=rows)
    assert ended.code == 0, ended.err
    assert (folder / "out.jsonl").read_bytes() == expected
    assert rows_of(folder / "out.jsonl")[1]["source"] == "stdin"
    assert rows_of(folder / "out.jsonl")[1]["line"] == 3


def with_other_prefix(rows: bytes) -> bytes:
    return rows.replace(b"answer 1", b"answer X", 1)


def with_other_line_ends(rows: bytes) -> bytes:
    return rows.replace(b"\n", b"\r\n", 1)


def cut_short(rows: bytes) -> bytes:
    return rows[: rows.index(b"answer 2")]


def nothing(rows: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("change", [with_other_prefix, with_other_line_ends, cut_short, nothing])
def test_stdin_with_another_start_is_refused(change: Any, folder: Path, server: ForkServer) -> None:
    arguments, rows = (*slow("pointwise.yaml"), "--data", "-"), folder / "rows.jsonl"
    expected = undisturbed(server, folder, *arguments, stdin=rows)
    killed(server, folder, *arguments, stdin=rows)
    other = folder / "other.jsonl"
    other.write_bytes(change(rows.read_bytes()))
    refused = resumed(server, folder, *arguments, stdin=other)
    assert refused.code == 3, refused.err
    assert "stdin: its first" in refused.err
    assert "give the same input to --resume" in refused.err
    assert not (folder / "out.jsonl").exists()
    ended = resumed(server, folder, *arguments, stdin=rows)
    assert ended.code == 0, ended.err
    assert (folder / "out.jsonl").read_bytes() == expected


def test_calls_of_another_stdin_are_not_taken_for_this_one(
    folder: Path, server: ForkServer
) -> None:
    """Killed in its first window, of which the journal has calls but no word on the input."""
    arguments = ("pointwise.yaml", "--set", "score.window=1000", "--data", "-")
    other = write_jsonl(folder / "other.jsonl", [{**r, "response": f"not {r['id']}"} for r in ROWS])
    expected = undisturbed(server, folder, *arguments, stdin=other)
    pause = ("--set", "rewards.company.options={pause_ms: 5}")
    ended = server.score(
        *(*arguments, *pause, "-o", "out.jsonl"),
        cwd=folder,
        stdin=folder / "rows.jsonl",
        env={"CRASH_LOG": str(folder / "calls.log")},
        kill_at=(folder / "calls.log", 100),
    )
    assert ended.killed, ended.err
    ended = resumed(server, folder, *arguments, *pause, stdin=other)
    assert ended.code == 3 or (folder / "out.jsonl").read_bytes() == expected


def test_calls_behind_an_equal_start_are_not_taken_for_this_stdin(
    folder: Path, server: ForkServer
) -> None:
    """The rendered rows are the same, those of the next window are not."""
    arguments, rows = (*slow("pointwise.yaml"), "--data", "-"), folder / "rows.jsonl"
    journal = beside(folder / "out.jsonl", ".partial.journal")
    killed(server, folder, *arguments, stdin=rows)
    records = [record for record, _ in read_records(journal)]
    last = max(n for n, record in enumerate(records) if record["kind"] == "window")
    rendered = records[last]["position"][0]
    other = write_jsonl(
        folder / "other.jsonl",
        [ROWS[0], b"", *ROWS[1:rendered], *({**r, "response": "x"} for r in ROWS[rendered:])],
    )
    # A call of the next window, as it would stand there had the kill come a moment later.
    scores = [0.25, 0.25, 0.25]
    call = {"kind": "call", "window": records[last]["window"] + 1, "stream": "company", "call": 0}
    call |= {"rows": [rendered, rendered + 1, rendered + 2], "scores": scores, "faults": {}}
    sample = next(record for record in records if record["kind"] == "call")
    kept = b"".join(map(encode_record, records[: last + 1]))
    journal.write_bytes(kept + encode_record({**sample, **call}))
    expected = undisturbed(server, folder, *arguments, stdin=other)
    ended = resumed(server, folder, *arguments, stdin=other)
    assert ended.code == 3 or (folder / "out.jsonl").read_bytes() == expected


def test_gz_is_resumed(folder: Path, server: ForkServer) -> None:
    arguments = (*slow("pointwise.yaml"), "--data", "packed.jsonl.gz")
    expected = undisturbed(server, folder, *arguments, stdin=os.devnull)
    killed(server, folder, *arguments, stdin=os.devnull)
    ended = resumed(server, folder, *arguments, stdin=os.devnull)
    assert ended.code == 0, ended.err
    assert (folder / "out.jsonl").read_bytes() == expected


def test_file_then_stdin_is_resumed_in_the_second(folder: Path, server: ForkServer) -> None:
    write_jsonl(folder / "first.jsonl", ROWS[:3])
    arguments = (*slow("pointwise.yaml"), "--data", "first.jsonl", "--data", "-")
    rows = folder / "rows.jsonl"
    expected = undisturbed(server, folder, *arguments, stdin=rows)
    killed(server, folder, *arguments, stdin=rows)
    ended = resumed(server, folder, *arguments, stdin=rows)
    assert ended.code == 0, ended.err
    assert (folder / "out.jsonl").read_bytes() == expected


@pytest.mark.parametrize("data", ["rows=-", "packed.jsonl.gz"])
def test_groups_are_scored_from_a_copy_that_outlives_a_kill(
    data: str, folder: Path, server: ForkServer
) -> None:
    arguments, rows = (*slow("grouped.yaml"), "--data", data), folder / "rows.jsonl"
    spool = beside(folder / "out.jsonl", ".partial.input")
    expected = undisturbed(server, folder, *arguments, stdin=rows)
    killed(server, folder, *arguments, stdin=rows)
    assert spool.read_bytes() == rows.read_bytes()
    ended = resumed(server, folder, *arguments, stdin=os.devnull)
    assert ended.code == 0, ended.err
    assert (folder / "out.jsonl").read_bytes() == expected
    assert not spool.exists()


@pytest.mark.parametrize("damage", ["gone", "cut"])
@pytest.mark.parametrize("applicable", ["[rows]", "[]"])
def test_lost_copy_and_another_stdin_are_refused(
    applicable: str, damage: str, folder: Path, server: ForkServer
) -> None:
    """Rows were scored of the first stdin; no other may take its place."""
    applies = ("--set", f"rewards.spread.applicable_datasets={applicable}")
    arguments, rows = (*slow("grouped.yaml"), *applies, "--data", "rows=-"), folder / "rows.jsonl"
    killed(server, folder, *arguments, stdin=rows)
    spool = beside(folder / "out.jsonl", ".partial.input")
    if damage == "gone":
        spool.unlink()
    else:
        os.truncate(spool, 100)
    ended = resumed(server, folder, *arguments, stdin=os.devnull)
    assert not (folder / "out.jsonl").exists()
    assert ended.code in (2, 3), ended.err
    assert beside(folder / "out.jsonl", ".partial.journal").exists()


def test_kill_while_stdin_is_copied(folder: Path, server: ForkServer) -> None:
    arguments = ("grouped.yaml", "--data", "rows=-")
    expected = undisturbed(server, folder, *arguments, stdin=folder / "rows.jsonl")
    process = subprocess.Popen(
        command(*arguments, "-o", "out.jsonl"),
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENV,
    )
    assert process.stdin is not None
    process.stdin.write((folder / "rows.jsonl").read_bytes()[:500])
    process.stdin.flush()
    wait_until(beside(folder / "out.jsonl", ".partial.input").exists, process)
    process.kill()
    assert finish(process).code == -signal.SIGKILL
    ended = resumed(server, folder, *arguments, stdin=folder / "rows.jsonl")
    assert ended.code == 0, ended.err
    assert (folder / "out.jsonl").read_bytes() == expected


@pytest.mark.parametrize("config", ["pointwise.yaml", "grouped.yaml"])
def test_fifo_is_read_like_a_pipe(config: str, folder: Path, server: ForkServer) -> None:
    fifo, rows = folder / "pipe.jsonl", (folder / "rows.jsonl").read_bytes()
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(rows,))
    writer.start()
    ended = server.score(config, "--data", "rows=pipe.jsonl", "-o", "out.jsonl", cwd=folder)
    writer.join(TIMEOUT_S)
    assert ended.code == 0, ended.err
    plain = server.score(config, "--data", "rows.jsonl", "-o", "plain.jsonl", cwd=folder)
    assert plain.code == 0, plain.err
    got, want = rows_of(folder / "out.jsonl"), rows_of(folder / "plain.jsonl")
    assert [row["scores"] for row in got] == [row["scores"] for row in want]


@pytest.mark.parametrize("config", ["pointwise.yaml", "grouped.yaml"])
@pytest.mark.parametrize("stdin", [b"", b"\n \n"], ids=["empty", "blank"])
def test_stdin_without_rows_leaves_no_output(
    config: str, stdin: bytes, folder: Path, server: ForkServer
) -> None:
    (folder / "stdin").write_bytes(stdin)
    arguments = (config, "--data", "-", "-o", "out.jsonl")
    ended = server.score(*arguments, cwd=folder, stdin=folder / "stdin")
    assert ended.code == 3, ended.err
    assert "stdin: no rows to score; expected one JSON object a line" in ended.err
    assert not {"out.jsonl", "out.jsonl.meta.json"} & set(names_in(folder))


def test_head_ends_the_run_without_a_word(tmp_path: Path) -> None:
    rows = [{"id": n, "response": "x" * 2000} for n in range(500)]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    (tmp_path / "config.yaml").write_text(POINTWISE)
    arguments = ("config.yaml", "--data", "rows.jsonl", "-o", "-", "--include", "response")
    process = subprocess.Popen(
        command(*arguments),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENV,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert json.loads(process.stdout.readline())["row"] == 0
    process.stdout.close()
    error = process.stderr.read().decode()
    assert process.wait(TIMEOUT_S) == 141
    process.stderr.close()
    assert error == ""


def test_stdout_is_json_line_by_line_in_forced_colour_and_40_columns(folder: Path) -> None:
    forced = {"FORCE_COLOR": "1", "COLUMNS": "40", "GITHUB_ACTIONS": "true"}
    ended = score_process("grouped.yaml", "--data", "rows.jsonl", "-o", "-", cwd=folder, env=forced)
    assert ended.code == 0, ended.err
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert [row["id"] for row in rows] == list(range(40))
    assert ESCAPE.encode() not in ended.out


def test_stdout_has_the_bytes_of_a_file(folder: Path, server: ForkServer) -> None:
    rows = folder / "rows.jsonl"
    expected = undisturbed(server, folder, "grouped.yaml", "--data", "rows=-", stdin=rows)
    ended = server.score("grouped.yaml", "--data", "rows=-", "-o", "-", cwd=folder, stdin=rows)
    assert ended.code == 0, ended.err
    assert ended.out == expected
    assert ESCAPE not in ended.err


def test_json_summary_is_one_line_without_escapes(folder: Path, server: ForkServer) -> None:
    forced = {"FORCE_COLOR": "1", "COLUMNS": "40"}
    arguments = ("grouped.yaml", "--data", "rows.jsonl", "-o", "out.jsonl", "--json")
    ended = server.score(*arguments, cwd=folder, env=forced)
    assert ended.code == 0, ended.err
    summary = json.loads(ended.out)
    assert summary["counts"]["rows"] == 40
    assert ended.out.count(b"\n") == 1
    assert ESCAPE.encode() not in ended.out


def test_stderr_is_free_of_escapes_when_colour_is_not_forced(
    folder: Path, server: ForkServer
) -> None:
    for progress in ("auto", "plain", "none"):
        ended = server.score(
            *("grouped.yaml", "--data", "rows.jsonl", "-o", "out.jsonl", "--overwrite"),
            *("--progress", progress),
            cwd=folder,
        )
        assert ended.code == 0, ended.err
        assert ESCAPE not in ended.err
        assert "\r" not in ended.err


@pytest.mark.parametrize("option", ["--json", "--resume", "--overwrite", "--retry-errors"])
def test_options_that_need_a_file_are_refused_with_stdout(
    option: str, folder: Path, server: ForkServer
) -> None:
    ended = server.score("grouped.yaml", "--data", "rows.jsonl", "-o", "-", option, cwd=folder)
    assert ended.code == 2
    assert "-o - cannot be combined with" in ended.err
