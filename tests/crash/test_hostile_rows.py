"""Rows that cannot be read or may not be scored, through the command: named by file and line, and
with --max-errors one row of the output among scored ones.
"""

import json
from pathlib import Path

import pytest
from crash_runs import ForkServer, meta_of, names_in, rows_of, write_jsonl

GOOD = {"prompt": "p", "response": "four"}
POINTWISE = "rewards:\n  - {name: length, reward_model: 'crash_rewards:LengthReward'}\n"
GROUPED = POINTWISE + "  - {name: spread, reward_model: 'crash_rewards:GroupReward'}\n"

BAD_LINES: dict[str, tuple[bytes, str]] = {
    "over-long line": (
        b'{"response": "' + b"x" * 2**24 + b'"}',
        "the line is longer than 16 MiB",
    ),
    "over-long line without an end of text": (
        b'{"response": "' + b"x" * (2**24 + 100),
        "the line is longer than 16 MiB",
    ),
    "65 levels": (
        b'{"response": "a", "deep": ' + b"[" * 64 + b"]" * 64 + b"}",
        "nested deeper than 64 levels",
    ),
    "100,000 levels": (
        b'{"response": "a", "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "nested deeper than 64 levels",
    ),
    "100,000 open brackets": (b"[" * 100_000, "nested deeper than 64 levels"),
    "NaN": (b'{"response": "a", "score": NaN}', "NaN is not JSON"),
    "-Infinity": (b'{"response": "a", "score": -Infinity}', "-Infinity is not JSON"),
    "1e999": (b'{"response": "a", "score": 1e999}', "number '1e999' is too large"),
    "20,000 digits": (b'{"response": "a", "n": ' + b"7" * 20_000 + b"}", "too many digits"),
    "bad UTF-8": (b'{"response": "caf\xe9"}', "is not UTF-8"),
    "UTF-16": ('{"response": "a"}'.encode("utf-16-le"), "not JSON"),
    "key twice": (b'{"response": "a", "response": "b"}', "stands 2 times"),
    "cut off": (b'{"response": "a', "not JSON at column"),
    "list": (b'["a"]', "expected one JSON object"),
    "two objects": (b'{"response": "a"} {"response": "b"}', "not JSON at column"),
    "wrong type": (b'{"response": 7}', "column 'response': expected text"),
    "metadata that is not JSON": (
        b'{"response": "a", "metadata": "not: json"}',
        "column 'metadata': expected an object or JSON text",
    ),
    "metadata clash": (
        b'{"response": "a", "metadata": {"k": 1}, "k": 2}',
        "stand in 'metadata' and as columns",
    ),
    "preference row": (
        b'{"prompt": "p", "chosen": "a", "rejected": "b"}',
        "found a preference row (column 'chosen'); use rewardctl eval",
    ),
    "candidates": (b'{"prompt": "p", "candidates": ["a", "b"]}', "use rewardctl eval"),
    "unique_id list": (b'{"response": "a", "unique_id": ["g"]}', "'unique_id': expected text"),
    "unique_id float": (b'{"response": "a", "unique_id": 1.5}', "'unique_id': expected text"),
    "unique_id bool": (b'{"response": "a", "unique_id": true}', "'unique_id': expected text"),
}


def arrange(folder: Path, bad: bytes, config: str = POINTWISE) -> tuple[str, ...]:
    write_jsonl(folder / "hostile.jsonl", [GOOD, bad, GOOD])
    (folder / "config.yaml").write_text(config)
    return ("config.yaml", "--data", "hostile.jsonl", "-o", "out.jsonl")


@pytest.mark.parametrize("name", BAD_LINES)
def test_bad_row_stops_the_run_by_file_and_line(
    name: str, tmp_path: Path, server: ForkServer
) -> None:
    bad, reason = BAD_LINES[name]
    ended = server.score(*arrange(tmp_path, bad), cwd=tmp_path)
    assert ended.code == 1
    assert "hostile.jsonl:2: bad_row: " in ended.err
    assert reason in ended.err
    assert "Traceback" not in ended.err
    assert len(ended.err) < 2000
    assert "out.jsonl" not in names_in(tmp_path)


@pytest.mark.parametrize("name", BAD_LINES)
def test_bad_row_is_one_output_row_when_one_may_fail(
    name: str, tmp_path: Path, server: ForkServer
) -> None:
    bad, reason = BAD_LINES[name]
    ended = server.score(*arrange(tmp_path, bad), "--max-errors", "1", cwd=tmp_path)
    assert ended.code == 0, ended.err
    before, row, after = rows_of(tmp_path / "out.jsonl")
    assert (row["row"], row["line"]) == (1, 2)
    assert row["status"] == {"length": "bad_row"}
    assert row["applicable"] == row["scores"] == row["weights"] == {"length": None}
    assert row["aggregate"] is None
    assert reason in row["errors"]["length"]
    assert before["scores"] == after["scores"] == {"length": 4.0}
    counts = meta_of(tmp_path / "out.jsonl")["counts"]
    assert counts == {"rows": 3, "ok": 2, "failed": 1, "nothing_applicable": 0}


def test_bad_row_is_no_member_of_a_group(tmp_path: Path, server: ForkServer) -> None:
    good = {**GOOD, "id": 0, "unique_id": "g"}
    (tmp_path / "config.yaml").write_text(GROUPED)
    lines = [good, b'{"response": "a", "unique_id": ["g"]}', b'{"unique_id": "g"', good]
    write_jsonl(tmp_path / "hostile.jsonl", lines)
    arguments = ("config.yaml", "--data", "hostile.jsonl", "-o", "out.jsonl", "--max-errors", "2")
    ended = server.score(*arguments, cwd=tmp_path)
    assert ended.code == 0, ended.err
    status = [row["status"]["spread"] for row in rows_of(tmp_path / "out.jsonl")]
    assert status == ["ok", "bad_row", "bad_row", "ok"]


def test_bad_member_leaves_its_group_incomplete(tmp_path: Path, server: ForkServer) -> None:
    """The id can be read, the response cannot: the group is known to lack one."""
    good = {**GOOD, "id": 0, "unique_id": "g"}
    (tmp_path / "config.yaml").write_text(GROUPED)
    write_jsonl(tmp_path / "hostile.jsonl", [good, {**good, "response": 7}, good])
    arguments = ("config.yaml", "--data", "hostile.jsonl", "-o", "out.jsonl", "--max-errors", "3")
    ended = server.score(*arguments, cwd=tmp_path)
    assert ended.code == 0, ended.err
    rows = rows_of(tmp_path / "out.jsonl")
    assert [row["status"]["spread"] for row in rows] == [
        *("group_incomplete", "bad_row", "group_incomplete")
    ]
    assert [row["status"]["length"] for row in rows] == ["ok", "bad_row", "ok"]


def test_undeclared_dataset_is_a_bad_row(tmp_path: Path, server: ForkServer) -> None:
    config = "data: {datasets: [{name: known, path: hostile.jsonl}]}\n" + POINTWISE
    arguments = arrange(tmp_path, b'{"response": "a", "dataset": "other"}', config)
    ended = server.score(*arguments, cwd=tmp_path)
    assert ended.code == 1
    assert "hostile.jsonl:2: bad_row: dataset 'other' is not declared" in ended.err
    assert "declared under data.datasets: known; name one with --data NAME=PATH" in ended.err
    ended = server.score(*arguments, "--overwrite", "--max-errors", "1", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert rows_of(tmp_path / "out.jsonl")[1]["status"] == {"length": "bad_row"}


def test_one_row_of_16_mib_is_scored(tmp_path: Path, server: ForkServer) -> None:
    text = b'{"response": "' + b"x" * (2**24 - 16) + b'"}'
    assert len(text) == 2**24
    ended = server.score(*arrange(tmp_path, text), cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert rows_of(tmp_path / "out.jsonl")[1]["scores"] == {"length": float(2**24 - 16)}


def test_byte_order_mark_and_crlf(tmp_path: Path, server: ForkServer) -> None:
    (tmp_path / "config.yaml").write_text(POINTWISE)
    (tmp_path / "hostile.jsonl").write_bytes(
        b"\xef\xbb\xbf" + '{"response": "café"}\r\n\r\n{"response": "two"}\r\n'.encode()
    )
    arguments = ("config.yaml", "--data", "hostile.jsonl", "-o", "out.jsonl")
    ended = server.score(*arguments, cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert [row["scores"]["length"] for row in rows_of(tmp_path / "out.jsonl")] == [4.0, 3.0]
    written = (tmp_path / "out.jsonl").read_bytes()
    assert b"\r" not in written
    assert not written.startswith(b"\xef\xbb\xbf")


def test_blank_lines_count_as_lines_and_not_as_rows(tmp_path: Path, server: ForkServer) -> None:
    (tmp_path / "config.yaml").write_text(POINTWISE)
    write_jsonl(tmp_path / "hostile.jsonl", [b"", b" \t ", GOOD, b"", GOOD, b"broken", b""])
    arguments = ("config.yaml", "--data", "hostile.jsonl", "-o", "out.jsonl")
    ended = server.score(*arguments, cwd=tmp_path)
    assert ended.code == 1
    assert "hostile.jsonl:6: bad_row" in ended.err
    ended = server.score(*arguments, "--resume", "--max-errors", "1", cwd=tmp_path)
    assert ended.code == 0, ended.err
    places = [(row["row"], row["line"]) for row in rows_of(tmp_path / "out.jsonl")]
    assert places == [(0, 3), (1, 5), (2, 6)]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_file_without_rows_is_refused(content: bytes, tmp_path: Path, server: ForkServer) -> None:
    (tmp_path / "config.yaml").write_text(POINTWISE)
    (tmp_path / "hostile.jsonl").write_bytes(content)
    arguments = ("config.yaml", "--data", "hostile.jsonl", "-o", "out.jsonl")
    ended = server.score(*arguments, cwd=tmp_path)
    assert ended.code == 3, ended.err
    assert "hostile.jsonl: expected one JSON object a line, found no rows" in ended.err
    assert names_in(tmp_path) == ["config.yaml", "hostile.jsonl"]


def test_escape_sequences_of_a_row_do_not_reach_the_terminal(
    tmp_path: Path, server: ForkServer
) -> None:
    row = {"response": 1, "dataset": "a\x1b[2Jb", "id": "\x1b]0;title\x07"}
    ended = server.score(*arrange(tmp_path, json.dumps(row).encode()), cwd=tmp_path)
    assert ended.code == 1
    assert "\x1b" not in ended.err
    named = {"response": "\x1b[31mred", "dataset": "\x1b[2J", "chosen": "\x1b[2J"}
    (tmp_path / "again").mkdir()
    arguments = arrange(tmp_path / "again", json.dumps(named).encode())
    ended = server.score(*arguments, "--max-errors", "1", cwd=tmp_path / "again")
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.err


def test_half_of_a_surrogate_pair_is_scored_and_written_as_json(
    tmp_path: Path, server: ForkServer
) -> None:
    row = b'{"response": "ab\\ud83d", "id": "\\ud83d", "unique_id": "\\udc00"}'
    arguments = arrange(tmp_path, row)
    ended = server.score(*arguments, "--include", "response", cwd=tmp_path)
    assert ended.code == 0, ended.err
    written = rows_of(tmp_path / "out.jsonl")[1]
    assert written["response"] == "ab\ud83d"
    assert written["scores"] == {"length": 3.0}
