"""Rows of all inputs as one numbered sequence, left and entered again at any row."""

import gzip
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from rewardctl.data.inputs import Input
from rewardctl.data.media_ref import MediaRoot
from rewardctl.data.row_stream import InputRow, Position, RowStream, can_seek, is_stream
from rewardctl.errors import DataError, RowError


def no_stdin() -> BinaryIO:
    raise AssertionError("standard input was read")


def file_input(folder: Path, name: str, content: bytes) -> Input:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return Input(path, name, path.name.split(".")[0], MediaRoot(folder))


def stdin_input() -> Input:
    return Input(None, "stdin", "stdin", MediaRoot(Path()))


def stream(
    *inputs: Input,
    limit: int | None = None,
    declared: frozenset[str] | None = None,
    stdin: Callable[[], BinaryIO] = no_stdin,
    spools: dict[int, Path] | None = None,
    kept: Sequence[str] | None = None,
) -> RowStream:
    return RowStream(inputs, declared=declared, limit=limit, stdin=stdin, spools=spools, kept=kept)


def lines(*prompts: str) -> bytes:
    return b"".join(json.dumps({"prompt": p}).encode() + b"\n" for p in prompts)


def prompts_of(rows: list[InputRow]) -> list[str | None]:
    return [None if isinstance(r.sample, RowError) else r.sample.prompt for r in rows]


def test_of_a_good_row_only_what_is_asked_for_is_kept(tmp_path: Path) -> None:
    good = {"prompt": "p", "a": 1, "b": 2}
    bad = {"prompt": 3, "a": 1}
    content = b"".join(json.dumps(row).encode() + b"\n" for row in (good, bad))
    source = file_input(tmp_path, "rows.jsonl", content)
    records = {
        kept: [row.record for row in stream(source, kept=kept).take(10)]
        for kept in (None, (), ("b", "c"))
    }
    assert records == {None: [good, bad], (): [{}, bad], ("b", "c"): [{"b": 2}, bad]}


def test_rows_of_all_inputs_are_one_sequence(tmp_path: Path) -> None:
    rows = stream(
        file_input(tmp_path, "one.jsonl", lines("a", "b")),
        file_input(tmp_path, "two.jsonl.gz", lines("c")),
    )
    found = rows.take(10)
    assert prompts_of(found) == ["a", "b", "c"]
    assert [(r.row, r.source, r.line) for r in found] == [
        (0, "one.jsonl", 1),
        (1, "one.jsonl", 2),
        (2, "two.jsonl.gz", 1),
    ]
    assert [r.place for r in found][1:] == ["one.jsonl:2", "two.jsonl.gz:1"]
    assert [r.sample.source for r in found if not isinstance(r.sample, RowError)] == [
        "one",
        "one",
        "two",
    ]
    assert rows.take(10) == []


def test_blank_lines_are_no_rows_but_lines(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf\r\n" + lines("a").replace(b"\n", b"\r\n") + b"  \n\n" + lines("b")
    found = stream(file_input(tmp_path, "rows.jsonl", content)).take(10)
    assert [(r.row, r.line) for r in found] == [(0, 2), (1, 5)]
    assert prompts_of(found) == ["a", "b"]


def test_a_line_that_cannot_be_read_is_a_row_with_its_reason(tmp_path: Path) -> None:
    content = lines("a") + b'{"prompt": 1}\nnot json\n' + lines("b")
    found = stream(file_input(tmp_path, "rows.jsonl", content)).take(10)
    assert prompts_of(found) == ["a", None, None, "b"]
    faults = [r.sample for r in found if isinstance(r.sample, RowError)]
    assert [fault.status for fault in faults] == ["bad_row", "bad_row"]
    assert [r.record for r in found][1:3] == [{"prompt": 1}, None]


def test_an_undeclared_dataset_is_a_bad_row(tmp_path: Path) -> None:
    content = b'{"dataset": "x"}\n{"dataset": "y"}\n'
    source = file_input(tmp_path, "rows.jsonl", content)
    found = stream(source, declared=frozenset({"x"})).take(10)
    assert isinstance(found[1].sample, RowError)
    assert not isinstance(found[0].sample, RowError)
    assert "dataset 'y' is not declared; declared under data.datasets: x" in str(found[1].sample)


@pytest.mark.parametrize("limit", [0, 1, 3, 9])
def test_a_limit_counts_over_all_inputs(tmp_path: Path, limit: int) -> None:
    inputs = (
        file_input(tmp_path, "one.jsonl", lines("a", "b")),
        file_input(tmp_path, "two.jsonl", lines("c", "d")),
    )
    rows = stream(*inputs, limit=limit)
    assert prompts_of(rows.take(1) + rows.take(9)) == ["a", "b", "c", "d"][:limit]
    assert len(list(stream(*inputs, limit=limit).scan())) == min(limit, 4)
    assert stream(*inputs, limit=limit).count_rows() == min(limit, 4)


def test_what_can_be_read_again_is_known(tmp_path: Path) -> None:
    plain = file_input(tmp_path, "rows.jsonl", lines("a"))
    packed = file_input(tmp_path, "rows.jsonl.gz", lines("a"))
    assert (is_stream(plain), can_seek(plain)) == (False, True)
    assert (is_stream(packed), can_seek(packed)) == (False, False)
    assert (is_stream(stdin_input()), can_seek(stdin_input())) == (True, False)


def test_rows_are_counted_where_that_is_quick(tmp_path: Path) -> None:
    plain = file_input(tmp_path, "rows.jsonl", lines("a", "b"))
    packed = file_input(tmp_path, "rows.jsonl.gz", lines("a"))
    assert stream(plain).count_rows() == 2
    assert stream(plain, packed).count_rows() is None
    assert stream(stdin_input()).count_rows() is None


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.lists(st.sampled_from(["row", "blank", "bad"]), max_size=6), min_size=1, max_size=3
    ),
    st.integers(1, 5),
    st.booleans(),
)
def test_a_sequence_entered_again_anywhere_goes_on_as_before(
    tmp_path: Path, files: list[list[str]], step: int, is_packed: bool
) -> None:
    text = {"row": lines("a"), "blank": b" \n", "bad": b"{\n"}
    ending = ".jsonl.gz" if is_packed else ".jsonl"
    inputs = [
        file_input(tmp_path, f"{n}{ending}", b"".join(text[kind] for kind in kinds))
        for n, kinds in enumerate(files)
    ]
    whole = [(r.row, r.source, r.line) for r in stream(*inputs).take(100)]
    expected = [
        (f"{n}{ending}", line)
        for n, kinds in enumerate(files)
        for line, kind in enumerate(kinds, 1)
        if kind != "blank"
    ]
    assert [(source, line) for _, source, line in whole] == expected
    rows = stream(*inputs)
    while rows.take(step):
        again = stream(*inputs)
        again.start_at(rows.position)
        left = [(r.row, r.source, r.line) for r in again.take(100)]
        assert left == whole[rows.position.row :]


def test_a_row_is_read_again_by_its_offset(tmp_path: Path) -> None:
    rows = stream(
        file_input(tmp_path, "one.jsonl", b"\xef\xbb\xbf" + lines("a") + b"\n" + lines("b")),
        file_input(tmp_path, "two.jsonl", lines("c", "d")),
    )
    offsets = {row: line.offset for row, _, line in rows.scan()}
    found = [rows.read_row(row, offsets[row]) for row in (3, 0, 2, 1)]
    rows.close()
    assert prompts_of(found) == ["d", "a", "c", "b"]
    assert [r.place for r in found] == [
        "two.jsonl, row 3",
        "one.jsonl, row 0",
        "two.jsonl, row 2",
        "one.jsonl, row 1",
    ]


def test_a_row_of_a_file_that_was_cut_is_gone(tmp_path: Path) -> None:
    source = file_input(tmp_path, "rows.jsonl", lines("a", "b"))
    rows = stream(source)
    offsets = [line.offset for _, _, line in rows.scan()]
    (tmp_path / "rows.jsonl").write_bytes(lines("a"))
    with pytest.raises(DataError, match=r"rows\.jsonl: row 1 is gone; did the file change\?"):
        rows.read_row(1, offsets[1])
    rows.close()


def test_a_copy_stands_for_an_input_that_cannot_seek(tmp_path: Path) -> None:
    (tmp_path / "copy").write_bytes(lines("a", "b"))
    rows = stream(stdin_input(), spools={0: tmp_path / "copy"})
    assert rows.count_rows() == 2
    offsets = [line.offset for _, _, line in rows.scan()]
    assert prompts_of([rows.read_row(1, offsets[1])]) == ["b"]
    assert prompts_of(rows.take(5)) == ["a", "b"]
    assert rows.stream_sha256 is None
    rows.close()


def test_a_stream_is_hashed_up_to_the_last_row_taken() -> None:
    content = lines("a", "b") + b"\n" + lines("c")
    rows = stream(stdin_input(), stdin=lambda: io.BytesIO(content))
    rows.take(2)
    read = content[: rows.position.offset]
    assert rows.position == Position(2, 0, len(lines("a", "b")), 2)
    assert rows.stream_sha256 == hashlib.sha256(read).hexdigest()


@pytest.mark.parametrize("ending", [b"", b"\n", b" \n\n"])
@pytest.mark.parametrize("taken", [0, 1, 2, 3, 9])
def test_a_stream_is_entered_again_behind_the_same_bytes(ending: bytes, taken: int) -> None:
    content = lines("a", "b", "c") + ending
    rows = stream(stdin_input(), stdin=lambda: io.BytesIO(content))
    rows.take(taken)
    again = stream(stdin_input(), stdin=lambda: io.BytesIO(content))
    again.start_at(rows.position, stream_sha256=rows.stream_sha256)
    assert prompts_of(again.take(9)) == ["a", "b", "c"][taken:]


@pytest.mark.parametrize("content", [lines("a", "x", "c"), lines("a"), b""])
def test_a_stream_of_other_bytes_is_refused(content: bytes) -> None:
    rows = stream(stdin_input(), stdin=lambda: io.BytesIO(lines("a", "b", "c")))
    rows.take(2)
    again = stream(stdin_input(), stdin=lambda: io.BytesIO(content))
    again.start_at(rows.position, stream_sha256=rows.stream_sha256)
    wanted = (
        "stdin: its first 32 bytes are not those that were scored before; give the same input to "
        "--resume, or start anew with --overwrite"
    )
    with pytest.raises(DataError, match=wanted):
        again.take(1)
