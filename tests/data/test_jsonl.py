"""Reading JSONL lines and parsing one line strictly."""

import gzip
import io
import json
import math
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from rewardctl.data.jsonl import MAX_LINE_BYTES, open_input, parse_row, read_lines
from rewardctl.errors import DataError, RowError

BOM = b"\xef\xbb\xbf"


def lines_of(content: bytes) -> list[tuple[int, bytes]]:
    return [(line.number, line.raw) for line in read_lines(io.BytesIO(content))]


def refusal(raw: bytes) -> str:
    with pytest.raises(RowError) as caught:
        parse_row(raw)
    assert caught.value.status == "bad_row"
    return str(caught.value)


def parses_or_is_refused(raw: bytes) -> bool:
    try:
        return type(parse_row(raw)) is dict
    except RowError as error:
        return error.status == "bad_row"


# Lines


def test_byte_order_mark_and_crlf_are_no_part_of_a_line() -> None:
    content = BOM + '{"prompt": "café"}\r\n{"prompt": "two"}\r\n'.encode()
    assert [parse_row(raw)["prompt"] for _, raw in lines_of(content)] == ["café", "two"]


def test_blank_lines_are_passed_over_and_counted() -> None:
    assert lines_of(b'\n{"a": 1}\n\n  \t\r\n{"a": 2}\n\n') == [(2, b'{"a": 1}'), (5, b'{"a": 2}')]


def test_last_line_needs_no_line_end() -> None:
    assert lines_of(b'{"a": 1}\n{"a": 2}') == [(1, b'{"a": 1}'), (2, b'{"a": 2}')]


@pytest.mark.parametrize("content", [b"", b"\n", b" \r\n\n", BOM, BOM + b"\n"])
def test_content_without_rows_yields_no_line(content: bytes) -> None:
    assert lines_of(content) == []


def test_offsets_say_where_a_line_stands() -> None:
    content = BOM + b'{"a": 1}\r\n\n{"b": 2}'
    first, second = read_lines(io.BytesIO(content))
    assert (first.offset, first.end) == (3, 13)
    assert (second.offset, second.end) == (14, 22)


@given(st.lists(st.sampled_from([b"{}", b'{"a": 1}', b"", b"  ", b"x\r", b"\r"])), st.booleans())
def test_reading_can_go_on_after_any_line(pieces: list[bytes], has_bom: bool) -> None:
    content = (BOM if has_bom else b"") + b"\n".join(pieces)
    lines = list(read_lines(io.BytesIO(content)))
    for position, line in enumerate(lines):
        assert content[line.offset : line.end].rstrip(b"\r\n") == line.raw
        rest = list(read_lines(io.BytesIO(content), offset=line.end, number=line.number))
        assert rest == lines[position + 1 :]


@given(st.lists(st.sampled_from([b"{}", b'{"a": 1}', b"", b"  "])), st.booleans())
def test_single_line_is_read_again_by_its_offset(pieces: list[bytes], has_bom: bool) -> None:
    content = (BOM if has_bom else b"") + b"\n".join(pieces)
    for line in read_lines(io.BytesIO(content)):
        handle = io.BytesIO(content)
        assert next(read_lines(handle, offset=line.offset, number=line.number - 1)) == line


def test_handle_that_cannot_seek_is_read_from_where_it_stands() -> None:
    reading, writing = os.pipe()
    os.write(writing, b'{"b": 2}\n')
    os.close(writing)
    with open(reading, "rb") as handle:
        (line,) = read_lines(handle, offset=9, number=1)
    assert line == (2, 9, 18, b'{"b": 2}')


def test_line_at_the_limit_is_read() -> None:
    raw = b'{"a": "' + b"x" * (MAX_LINE_BYTES - 9) + b'"}'
    ((_, read),) = lines_of(BOM + raw + b"\r\n")
    assert len(read) == MAX_LINE_BYTES
    assert len(parse_row(read)["a"]) == MAX_LINE_BYTES - 9


def test_line_over_the_limit_is_refused_and_the_next_is_read() -> None:
    long = b'{"a": "' + b"x" * (MAX_LINE_BYTES - 8) + b'"}'
    first, second = read_lines(io.BytesIO(long + b'\n{"a": 2}\n'))
    assert "longer than 16 MiB" in refusal(first.raw)
    assert (first.number, first.offset, first.end) == (1, 0, MAX_LINE_BYTES + 2)
    assert second == (2, MAX_LINE_BYTES + 2, MAX_LINE_BYTES + 11, b'{"a": 2}')


def test_carriage_returns_do_not_hide_that_a_line_is_too_long() -> None:
    long = b"x" * MAX_LINE_BYTES + b"\r" * 20
    first, second = read_lines(io.BytesIO(long + b"x\n{}"))
    assert "longer than 16 MiB" in refusal(first.raw)
    assert (second.number, second.raw) == (2, b"{}")


def test_parse_row_refuses_bytes_over_the_limit() -> None:
    assert "longer than 16 MiB" in refusal(b" " * (MAX_LINE_BYTES + 1))


class LongLine(io.RawIOBase):
    """200 MB without a line end, then one short line."""

    def __init__(self) -> None:
        self.left = 200_000_000
        self.tail = b"\n{}"

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        if self.left:
            count = min(len(view), self.left)
            view[:count] = b"x" * count
            self.left -= count
            return count
        count = len(self.tail)
        view[:count] = self.tail
        self.tail = b""
        return count


def test_memory_is_bounded_for_a_line_of_200_mb() -> None:
    handle = io.BufferedReader(LongLine(), buffer_size=1 << 20)
    tracemalloc.start()
    try:
        first, second = read_lines(handle)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "longer than 16 MiB" in refusal(first.raw)
    assert (second.number, second.offset, second.raw) == (2, 200_000_001, b"{}")
    assert peak < 4 * MAX_LINE_BYTES


# Files


def test_plain_and_gzip_files_are_read_alike(tmp_path: Path) -> None:
    content = b'{"a": 1}\n{"a": 2}\n'
    (tmp_path / "rows.jsonl").write_bytes(content)
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(content))
    read = []
    for name in ("rows.jsonl", "rows.jsonl.gz"):
        with open_input(tmp_path / name) as handle:
            read.append(list(read_lines(handle)))
    assert read[0] == read[1]
    assert [line.raw for line in read[0]] == [b'{"a": 1}', b'{"a": 2}']


def test_gzip_file_can_be_read_from_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n{"a": 2}\n'))
    with open_input(path) as handle:
        assert next(read_lines(handle, offset=9, number=1)).raw == b'{"a": 2}'


def test_missing_file_is_named(tmp_path: Path) -> None:
    for name in ("rows.jsonl", "rows.jsonl.gz"):
        with pytest.raises(DataError) as caught:
            open_input(tmp_path / name)
        assert str(caught.value) == f"{tmp_path / name}: no such file; check the path"
        assert caught.value.exit_code == 3


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected a file, found a folder"):
        open_input(tmp_path)


def test_path_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file/rows.jsonl: cannot be read: Not a directory"):
        open_input(tmp_path / "file" / "rows.jsonl")
    with pytest.raises(DataError, match="cannot be read: embedded null byte"):
        open_input(Path("rows\0.jsonl"))


def test_plain_file_named_gz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(b'{"a": 1}\n')
    with pytest.raises(DataError) as caught:
        open_input(path)
    assert str(caught.value).startswith(f"{path}: expected gzip, as its name says: Not a gzipped")


def test_cut_gzip_file_is_named_with_the_last_good_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    rows = "".join(f'{{"a": "{os.urandom(30).hex()}"}}\n' for _ in range(1000))
    path.write_bytes(gzip.compress(rows.encode())[:-1000])
    with open_input(path) as handle, pytest.raises(DataError) as caught:
        list(read_lines(handle))
    assert f"{path}: reading failed after line" in str(caught.value)
    assert "Compressed file ended" in str(caught.value)


# Rows


def test_row_is_a_mapping_in_the_order_of_its_line() -> None:
    row = parse_row(b' {"b": 1, "a": [true, null, 2.5, -3], "c": {"d": "\\u00e9"}} ')
    assert row == {"b": 1, "a": [True, None, 2.5, -3], "c": {"d": "é"}}
    assert list(row) == ["b", "a", "c"]


@pytest.mark.parametrize("raw", [b' {"a": 1}', b'\t{"a": 1}', b'{"a": 1} \t', b'{"a": 1}\r'])
def test_white_space_around_a_row_is_no_part_of_it(raw: bytes) -> None:
    assert parse_row(raw) == {"a": 1}


@pytest.mark.parametrize(
    ("raw", "column"), [(b'{"a": 1}{"a": 2}', 9), (b' {"a": 1} x', 11), (b'{"a": 1},', 9)]
)
def test_what_stands_behind_a_row_is_placed_by_column(raw: bytes, column: int) -> None:
    with pytest.raises(RowError, match=rf"not JSON at column {column}: Extra data"):
        parse_row(raw)


def test_broken_json_is_placed_by_column() -> None:
    assert refusal(b'{"prompt": "one" "x": 1}') == (
        "not JSON at column 18: Expecting ',' delimiter, found '\"x\": 1}'; "
        "write it with a JSON library"
    )
    assert refusal(b'{"prompt": "tw').startswith("not JSON at column 12: Unterminated string")


def test_byte_that_is_not_utf8_is_placed() -> None:
    assert refusal(b'{"prompt": "caf\xe9"}') == (
        "byte 16 of the line (0xe9) is not UTF-8; save the file as UTF-8"
    )


@pytest.mark.parametrize("raw", [b'{"a": 1, "a": 1}', b'{"b": [{"a": 1, "c": 2, "a": 3}]}'])
def test_duplicate_key_is_refused(raw: bytes) -> None:
    assert refusal(raw) == "key 'a' stands 2 times in an object; keep one"


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_non_finite_literal_is_refused(literal: str) -> None:
    message = refusal(f'{{"timestep": {literal}}}'.encode())
    assert message == f"{literal} is not JSON; write null, or leave the column out"


@pytest.mark.parametrize("digits", ["1e999", "-1e999", "1" + "0" * 400 + ".0"])
def test_number_beyond_float_is_refused(digits: str) -> None:
    assert "is too large; write it as text" in refusal(f'{{"a": {digits}}}'.encode())


def test_integer_of_5000_digits_is_refused() -> None:
    assert refusal(b'{"a": ' + b"1" * 5000 + b"}") == (
        "a number has too many digits to be read; write it as text"
    )


def test_nesting_up_to_64_is_read() -> None:
    assert parse_row(b'{"a":' + b"[" * 63 + b"]" * 63 + b"}")["a"][0][0] is not None


@pytest.mark.parametrize("depth", [64, 500, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_deeper_nesting_is_refused(depth: int, opening: bytes, closing: bytes) -> None:
    raw = b'{"a":' + opening * depth + b"1" + closing * depth + b"}"
    assert refusal(raw) == "nested deeper than 64 levels; flatten the row"


def test_brackets_in_texts_are_no_nesting() -> None:
    row = {"prompt": "[{" * 500, "tags": [{"n": n} for n in range(100)]}
    assert parse_row(json.dumps(row).encode()) == row


@pytest.mark.parametrize(
    ("raw", "found"), [(b"[1, 2]", "[1, 2]"), (b'"x"', "'x'"), (b"5", "5"), (b"null", "None")]
)
def test_line_that_is_no_object_is_refused(raw: bytes, found: str) -> None:
    assert refusal(raw) == f"expected one JSON object, found {found}; write one object a line"


def test_lone_surrogate_escape_is_kept() -> None:
    assert parse_row(b'{"prompt": "\\ud800"}') == {"prompt": "\ud800"}


@given(st.binary(max_size=200))
def test_any_bytes_give_a_row_or_a_row_error(raw: bytes) -> None:
    assert parses_or_is_refused(raw)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
JSON_VALUES = st.recursive(
    SCALARS.filter(lambda value: value not in (math.inf, -math.inf)),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(), parts, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON_VALUES, max_size=4), st.booleans())
def test_every_json_object_comes_back(row: dict[str, object], ensure_ascii: bool) -> None:
    raw = json.dumps(row, ensure_ascii=ensure_ascii).encode()
    assert parse_row(raw) == row


@given(
    st.dictionaries(st.text(), JSON_VALUES, max_size=4),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=5),
    st.integers(0, 500),
)
def test_damaged_rows_give_a_row_or_a_row_error(
    row: dict[str, object], changes: list[tuple[int, int]], length: int
) -> None:
    raw = bytearray(json.dumps(row).encode())
    for position, byte in changes:
        raw[position % len(raw)] = byte
    assert parses_or_is_refused(bytes(raw[:length]))
