"""--retry-errors: failed cells are scored again, and nothing else of the output changes."""

from pathlib import Path
from typing import Any

import pytest
from crash_job import logged_calls
from crash_runs import Ended, ForkServer, beside, names_in, rows_of, write_jsonl

FLAKY_ROWS = (2, 17, 18, 33)
ROWS = [
    {
        "id": n,
        "response": f"answer {n}" + " flaky" * (n in FLAKY_ROWS),
        "unique_id": f"g{n % 7}",
    }
    for n in range(40)
]
CONFIG = """
score: {window: 8}
rewards:
  - {name: flaky, reward_model: "crash_rewards:FlakyReward", batch_size: 3, options: {tag: flaky}}
  - name: together
    reward_model: crash_rewards:FlakyGroupReward
    weight: 0.5
    options: {tag: together}
  - {name: company, reward_model: "crash_rewards:CompanyReward", batch_size: 4,
     options: {tag: company}}
"""
ARGUMENTS = ("config.yaml", "--data", "rows.jsonl", "-o", "out.jsonl")
# Groups g2 (rows 2, 9, …), g3 (17 = 3 mod 7), g4 (18) and g5 (33) hold a flaky row.
FAILED_GROUPS = {2, 3, 4, 5}
FAILED_ROWS = [n for n in range(40) if n % 7 in FAILED_GROUPS]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def score(server: ForkServer, folder: Path, *options: str, **how: Any) -> Ended:
    env = {"CRASH_FLAGS": str(folder), "CRASH_LOG": str(folder / "calls.log")}
    return server.score(*ARGUMENTS, *options, cwd=folder, env=env, **how)


@pytest.fixture
def failed(folder: Path, server: ForkServer) -> bytes:
    """An output with failed cells, made before the service was repaired."""
    ended = score(server, folder, "--max-errors", str(len(FAILED_ROWS)))
    assert ended.code == 0, ended.err
    (folder / "calls.log").unlink()
    return (folder / "out.jsonl").read_bytes()


def test_only_failed_cells_are_replaced(folder: Path, failed: bytes, server: ForkServer) -> None:
    before = rows_of(folder / "out.jsonl")
    (folder / "repaired").touch()
    ended = score(server, folder, "--retry-errors")
    assert ended.code == 0, ended.err
    after = rows_of(folder / "out.jsonl")
    lines = list(
        zip(failed.splitlines(), (folder / "out.jsonl").read_bytes().splitlines(), strict=True)
    )
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        is_failed = number in FAILED_ROWS
        assert (lines[number][0] == lines[number][1]) is not is_failed
        assert set(new["status"].values()) == {"ok"}
        for stream, status in old["status"].items():
            if status == "ok":
                assert new["scores"][stream] == old["scores"][stream]
            else:
                # What the repaired models give is 100 more.
                assert new["scores"][stream] > 100
        unchanged = ("row", "source", "line", "id", "unique_id", "dataset", "applicable", "weights")
        assert [new[key] for key in unchanged] == [old[key] for key in unchanged]
        scores = new["scores"]
        total = scores["flaky"] + 0.5 * scores["together"] + scores["company"]
        assert new["aggregate"] == pytest.approx(total, rel=1e-15)
    assert names_in(folder) == [
        *("calls.log", "config.yaml", "out.jsonl", "out.jsonl.meta.json", "repaired", "rows.jsonl")
    ]


def test_only_calls_with_a_failed_cell_run_again_and_whole(
    folder: Path, failed: bytes, server: ForkServer
) -> None:
    (folder / "repaired").touch()
    assert score(server, folder, "--retry-errors").code == 0
    calls = logged_calls(folder / "calls.log")
    # Windows of 8 rows in calls of 3: a row's call is its window's part of three.
    flaky = [(0, 1, 2), (16, 17, 18), (32, 33, 34)]
    groups = [tuple(range(group, 40, 7)) for group in sorted(FAILED_GROUPS)]
    assert sorted(calls) == sorted(
        [("flaky", rows) for rows in flaky] + [("together", rows) for rows in groups]
    )


def test_retry_that_fails_again_keeps_the_output(
    folder: Path, failed: bytes, server: ForkServer
) -> None:
    ended = score(server, folder, "--retry-errors")
    assert ended.code == 1
    assert "--max-errors allows 0" in ended.err
    assert (folder / "out.jsonl").read_bytes() == failed
    (folder / "repaired").touch()
    ended = score(server, folder, "--retry-errors")
    assert ended.code == 0, ended.err
    assert {s for row in rows_of(folder / "out.jsonl") for s in row["status"].values()} == {"ok"}


def test_retry_of_a_whole_output_changes_nothing(folder: Path, server: ForkServer) -> None:
    (folder / "repaired").touch()
    assert score(server, folder).code == 0
    expected, names = (folder / "out.jsonl").read_bytes(), names_in(folder)
    (folder / "calls.log").unlink()
    ended = score(server, folder, "--retry-errors")
    assert ended.code == 0, ended.err
    assert (folder / "out.jsonl").read_bytes() == expected
    assert names_in(folder) == [name for name in names if name != "calls.log"]


def test_retry_without_an_output_is_refused(folder: Path, server: ForkServer) -> None:
    ended = score(server, folder, "--retry-errors")
    assert ended.code == 2
    assert "out.jsonl: nothing to retry; there is no output yet" in ended.err


def test_retry_of_an_unfinished_run_is_refused(folder: Path, server: ForkServer) -> None:
    ended = score(server, folder, "--max-errors", "1")
    assert ended.code == 1
    refused = score(server, folder, "--retry-errors")
    assert refused.code == 2
    assert "not all rows are scored yet; finish them with --resume first" in refused.err
    (folder / "repaired").touch()
    ended = score(server, folder, "--resume")
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("option", ["--resume", "--retry-errors"])
def test_killed_retry_is_finished(
    option: str, folder: Path, failed: bytes, server: ForkServer
) -> None:
    (folder / "repaired").touch()
    journal, kills = beside(folder / "out.jsonl", ".partial.journal"), 0
    ended = score(server, folder, "--retry-errors", kill_at=(journal, 1))
    while ended.killed:
        kills += 1
        assert (folder / "out.jsonl").read_bytes() == failed
        size = journal.stat().st_size + 1500
        ended = score(server, folder, option, kill_at=(journal, size))
    assert ended.code == 0, ended.err
    assert kills > 2
    got = (folder / "out.jsonl").read_bytes()
    (folder / "out.jsonl").unlink()
    (folder / "repaired").unlink()
    assert score(server, folder, "--max-errors", str(len(FAILED_ROWS))).code == 0
    (folder / "repaired").touch()
    assert score(server, folder, "--retry-errors").code == 0
    assert got == (folder / "out.jsonl").read_bytes()


def test_percentage_exceeded_at_the_end_is_finished_by_a_higher_one(
    folder: Path, failed: bytes, server: ForkServer
) -> None:
    (folder / "out.jsonl").unlink()
    (folder / "out.jsonl.meta.json").unlink()
    stopped = score(server, folder, "--max-errors", "50%")
    assert stopped.code == 1
    assert f"{len(FAILED_ROWS)} rows failed, --max-errors allows 50%" in stopped.err
    assert not (folder / "out.jsonl").exists()
    (folder / "calls.log").unlink()
    ended = score(server, folder, "--resume", "--max-errors", "60%")
    assert ended.code == 0, ended.err
    assert (folder / "out.jsonl").read_bytes() == failed
    assert not (folder / "calls.log").exists()


POINTWISE = """
score: {window: 8}
rewards:
  - {name: flaky, reward_model: "crash_rewards:FlakyReward", batch_size: 3, options: {tag: flaky}}
"""


@pytest.mark.parametrize("config", [CONFIG, POINTWISE], ids=["groups", "pointwise"])
def test_retry_over_another_stdin_is_refused(config: str, folder: Path, server: ForkServer) -> None:
    """The output is of one input; cells of another must not get in among them."""
    (folder / "config.yaml").write_text(config)
    arguments = ("config.yaml", "--data", "rows=-", "-o", "out.jsonl", "--max-errors", "100%")
    env, rows = {"CRASH_FLAGS": str(folder)}, folder / "rows.jsonl"
    first = server.score(*arguments, cwd=folder, env=env, stdin=rows)
    assert first.code == 0, first.err
    before = (folder / "out.jsonl").read_bytes()
    (folder / "repaired").touch()
    other = write_jsonl(folder / "other.jsonl", [{**row, "response": "another"} for row in ROWS])
    refused = server.score(*arguments, "--retry-errors", cwd=folder, env=env, stdin=other)
    assert (folder / "out.jsonl").read_bytes() == before
    assert refused.code in (2, 3), refused.err
    retried = server.score(*arguments, "--retry-errors", cwd=folder, env=env, stdin=rows)
    assert retried.code == 0, retried.err
    assert {s for row in rows_of(folder / "out.jsonl") for s in row["status"].values()} == {"ok"}
