"""Reading JSONL: opening a file, walking its lines, parsing one line strictly.

What a row means is in samples.py, which files are read in inputs.py.
"""

import gzip
import io
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn, cast

from rewardctl.errors import DataError, RowError, quote

MAX_LINE_BYTES = 16 * 1024 * 1024  # without the line end
MAX_NESTING = 64

# Stands for a line too long to keep: no line holds a line feed, so no line equals it.
OVERLONG = b"\n"

_BOM = b"\xef\xbb\xbf"
_READ_BYTES = MAX_LINE_BYTES + len(_BOM) + len(b"\r\n") + 1  # only a line over the limit fills it
_SKIP_BYTES = 1024 * 1024


class Line(NamedTuple):
    """One line that is not blank."""

    number: int  # physical line, from 1
    offset: int  # byte in the file where `raw` starts
    end: int  # byte where the next line starts
    raw: bytes  # without byte-order mark and line end; OVERLONG for a line over MAX_LINE_BYTES


def open_input(path: Path) -> BinaryIO:
    """Open a JSONL file for reading; `.gz` is unpacked on the way.

    Raises:
        DataError: missing, a folder, not readable, or `.gz` without gzip content.
    """
    if path.is_dir():
        raise DataError(f"{path}: expected a file, found a folder; quote a glob to read all in it")
    try:
        if path.suffix.lower() != ".gz":
            return path.open("rb")
        unpacked = io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(path, "rb")))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; check the path") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {_reason(error)}") from error
    try:
        unpacked.peek(1)
    except (OSError, EOFError, zlib.error) as error:
        unpacked.close()
        raise DataError(
            f"{path}: expected gzip, as its name says: {_reason(error)}; "
            "unpack it, rename it or make it anew"
        ) from error
    return unpacked


def read_lines(handle: BinaryIO, *, offset: int = 0, number: int = 0) -> Iterator[Line]:
    """The lines of `handle` that are not blank, in order; memory stays bounded for any line.

    Args:
        handle: From `open_input`, or a stream.
        offset: Byte to start at. A handle that cannot seek must stand there already; so must any
            handle at 0.
        number: Lines before `offset`.

    Raises:
        DataError: reading fails on the way, as in a gzip file that was cut.
    """
    try:
        if offset and handle.seekable():
            handle.seek(offset)
        while piece := handle.readline(_READ_BYTES):
            number += 1
            end = offset + len(piece)
            if offset == 0 and piece.startswith(_BOM):
                piece = piece[len(_BOM) :]
                offset = len(_BOM)
            raw = piece.rstrip(b"\r\n")
            if len(raw) > MAX_LINE_BYTES or end - offset >= _READ_BYTES:
                end += 0 if piece.endswith(b"\n") else _skip_line(handle)
                yield Line(number, offset, end, OVERLONG)
            elif raw and not raw.isspace():
                yield Line(number, offset, end, raw)
            offset = end
    except (OSError, EOFError, zlib.error) as error:
        name = getattr(handle, "name", "input")
        raise DataError(f"{name}: reading failed after line {number}: {_reason(error)}") from error


def _skip_line(handle: BinaryIO) -> int:
    """Pass over the rest of a line; its length in bytes."""
    length = 0
    while piece := handle.readline(_SKIP_BYTES):
        length += len(piece)
        if piece.endswith(b"\n"):
            break
    return length


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def parse_row(raw: bytes) -> dict[str, Any]:
    """The JSON object of one line.

    Raises:
        RowError: `bad_row`; not UTF-8, not strict JSON, not an object, too long or too deep.
    """
    if len(raw) > MAX_LINE_BYTES or raw == OVERLONG:
        raise RowError("bad_row", "the line is longer than 16 MiB; put large content into files")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise RowError(
            "bad_row",
            f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not UTF-8; "
            "save the file as UTF-8",
        ) from None
    row = parse_json(text)
    if type(row) is not dict:
        raise RowError(
            "bad_row", f"expected one JSON object, found {quote(row)}; write one object a line"
        )
    return row


def parse_json(text: str) -> Any:
    """The value of a JSON text, read strictly: finite numbers, no key twice, 64 levels at most.

    Raises:
        RowError: `bad_row`, with the column where there is one.
    """
    try:
        value, end = _decoder.raw_decode(text) if text.startswith("{") else (None, -1)
        if end != len(text):  # no object, or something behind it, were it white space
            value = _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise RowError(
            "bad_row",
            f"not JSON at column {error.pos + 1}: {error.msg}, "
            f"found {quote(text[error.pos : error.pos + 80])}; write it with a JSON library",
        ) from None
    except RecursionError:
        _refuse_nesting()
    except ValueError:
        # Python's own limit: the text of an int of thousands of digits takes quadratic time.
        raise RowError(
            "bad_row", "a number has too many digits to be read; write it as text"
        ) from None
    # Counted in texts as well, so most rows pass here and the rest are looked at closely.
    if text.count("{") + text.count("[") > MAX_NESTING and _is_too_deep(value):
        _refuse_nesting()
    return value


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_NESTING):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True


def _refuse_nesting() -> NoReturn:
    raise RowError("bad_row", f"nested deeper than {MAX_NESTING} levels; flatten the row")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        key, count = Counter(key for key, _ in pairs).most_common(1)[0]
        raise RowError("bad_row", f"key {quote(key)} stands {count} times in an object; keep one")
    return members


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise RowError("bad_row", f"number {quote(digits)} is too large; write it as text")
    return number


def _refuse_constant(literal: str) -> NoReturn:
    raise RowError("bad_row", f"{literal} is not JSON; write null, or leave the column out")


_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_finite, parse_constant=_refuse_constant
)
