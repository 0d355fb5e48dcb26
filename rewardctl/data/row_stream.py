"""The rows of all inputs as one numbered sequence that can be left and entered again at any row."""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rewardctl.data.inputs import Input
from rewardctl.data.jsonl import Line, open_input, parse_row, read_lines
from rewardctl.data.samples import BaseSample, sample_from_row
from rewardctl.errors import DataError, RowError


class InputRow(NamedTuple):
    """One non-blank line of the input, read as a sample or with the reason why it cannot be."""

    row: int  # over all inputs, from 0
    source: str  # name of its input
    line: int  # physical line in that input, from 1; 0 where only its offset was known
    record: dict[str, Any] | None  # the JSON object, or what is kept of it; None if there is none
    sample: BaseSample | RowError

    @property
    def place(self) -> str:
        """file:line, for messages."""
        return f"{self.source}:{self.line}" if self.line else f"{self.source}, row {self.row}"


class Position(NamedTuple):
    """A place between two rows."""

    row: int = 0  # rows before it, over all inputs
    input: int = 0  # index of the input
    offset: int = 0  # bytes of that input before it
    line: int = 0  # lines of that input before it


def is_stream(source: Input) -> bool:
    """Whether an input can be read only once, from its start: standard input or a pipe."""
    return source.path is None or not source.path.is_file()


def can_seek(source: Input) -> bool:
    """Whether rows of an input can be read again by their offset."""
    return not is_stream(source) and source.path.suffix.lower() != ".gz"  # type: ignore[union-attr]


class HashedInput:
    """A stream that can be read once, with a running SHA-256 of what was taken from it."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle
        self.sha256 = hashlib.sha256()

    def readline(self, size: int = -1) -> bytes:
        """The next line, at most `size` bytes of it."""
        line = self._handle.readline(size)
        self.sha256.update(line)
        return line

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")


class RowStream:
    """Reads the inputs one after another.

    Args:
        declared: the dataset names a row may use; None: any.
        limit: rows to read at most.
        stdin: where `-` reads from.
        spools: files that stand for inputs that cannot seek, by index.
        kept: columns that are kept in `record` of a row that is a sample; None: all.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        *,
        declared: frozenset[str] | None,
        limit: int | None,
        stdin: Callable[[], BinaryIO],
        spools: dict[int, Path] | None = None,
        kept: Sequence[str] | None = None,
    ) -> None:
        self._inputs = inputs
        self._declared = declared
        self._limit = limit
        self._stdin = stdin
        self._spools = spools or {}
        self._kept = kept
        self._handles: dict[int, BinaryIO] = {}
        self._starts: list[int] = []  # first row of each input reached so far
        self._hashed: HashedInput | None = None
        self._taken: hashlib._Hash | None = None
        self.start_at(Position())

    def start_at(self, position: Position, *, stream_sha256: str | None = None) -> None:
        """Go on from `position`.

        The rows before it in an input that can be read only once are read again, and must have the
        SHA-256 `stream_sha256`.
        """
        self.position = position
        self._lines = self._read_from(position, stream_sha256)

    def _read_from(
        self, position: Position, stream_sha256: str | None = None
    ) -> Generator[tuple[int, Line], None, None]:
        for index in range(position.input, len(self._inputs)):
            at_entry = index == position.input
            offset, number = (position.offset, position.line) if at_entry else (0, 0)
            if index not in self._spools and is_stream(self._inputs[index]):
                yield from ((index, x) for x in self._read_stream(index, offset, stream_sha256))
                continue
            with self._open(index) as handle:
                for line in read_lines(handle, offset=offset, number=number):
                    yield index, line

    def _open(self, index: int) -> BinaryIO:
        if index in self._spools:
            return self._spools[index].open("rb")
        path = self._inputs[index].path
        return self._stdin() if path is None else open_input(path)

    def _read_stream(self, index: int, offset: int, sha256: str | None) -> Iterator[Line]:
        handle = self._open(index)
        with nullcontext() if self._inputs[index].path is None else handle:
            self._hashed = HashedInput(handle)
            passed = offset == 0
            for line in read_lines(self._hashed):  # type: ignore[arg-type]
                if line.end > offset:
                    if not passed:
                        break
                    yield line
                elif line.end == offset:
                    passed = self._hashed.sha256.hexdigest() == sha256
        if not passed:
            raise DataError(
                f"{self._inputs[index].name}: its first {offset} bytes are not those that were "
                "scored before; give the same input to --resume, or start anew with --overwrite"
            )

    @property
    def are_at_hand(self) -> bool:
        """Whether all rows lie in files, so that none is waited for."""
        sources = enumerate(self._inputs)
        return not any(is_stream(s) and index not in self._spools for index, s in sources)

    @property
    def stream_sha256(self) -> str | None:
        """SHA-256 of what was taken from an input that can be read only once; None without one."""
        return self._taken.hexdigest() if self._taken else None

    def take(self, rows: int) -> list[InputRow]:
        """The next rows, fewer at the end of the input or at the limit."""
        taken: list[InputRow] = []
        row = self.position.row
        end = row + rows if self._limit is None else min(row + rows, self._limit)
        for index, line in islice(self._lines, max(0, end - row)):
            taken.append(self._parse(row, index, line))
            row += 1
            if self._hashed is not None:  # blank lines behind the last row are not part of it
                self._taken = self._hashed.sha256.copy()
        if taken:
            self.position = Position(row, index, line.end, line.number)
        return taken

    def _parse(self, row: int, index: int, line: Line) -> InputRow:
        source = self._inputs[index]
        record: dict[str, Any] | None = None
        try:
            record = parse_row(line.raw)
            sample: BaseSample | RowError = sample_from_row(
                record,
                default_dataset=source.dataset,
                declared=self._declared,
                media_root=source.media_root,
            )
            if self._kept is not None:
                record = {name: record[name] for name in self._kept if name in record}
        except RowError as error:
            sample = error
        return InputRow(row, source.name, line.number, record, sample)

    def scan(self) -> Iterator[tuple[int, int, Line]]:
        """All lines from the start as (row, input index, line), unparsed; notes where inputs
        start.
        """
        self._starts = []
        for row, (index, line) in enumerate(self._read_from(Position())):
            if self._limit is not None and row >= self._limit:
                return
            while len(self._starts) <= index:
                self._starts.append(row)
            yield row, index, line

    def count_rows(self) -> int | None:
        """Lines of all inputs, blank ones too; None if that cannot be counted at the speed of
        reading.
        """
        lines = 0
        for index, source in enumerate(self._inputs):
            if index not in self._spools and not can_seek(source):
                return None
            with self._open(index) as handle:
                lines += sum(
                    block.count(b"\n") for block in iter(partial(handle.read, 1 << 20), b"")
                )
        return lines if self._limit is None else min(lines, self._limit)

    def read_row(self, row: int, offset: int) -> InputRow:
        """A row of a seekable input by its byte offset; `scan` must have been run.

        Raises:
            DataError: there is no line any more.
        """
        index = self.input_at(row)
        if index not in self._handles:
            self._handles[index] = self._open(index)
        handle = self._handles[index]
        handle.seek(offset)
        line = next(read_lines(handle, offset=offset, number=-1), None)
        if line is None:
            raise DataError(f"{self._inputs[index].name}: row {row} is gone; did the file change?")
        return self._parse(row, index, line)

    def input_at(self, row: int) -> int:
        """The index of the input that a row stands in; `scan` must have been run."""
        return bisect_right(self._starts, row) - 1

    def default_dataset(self, index: int) -> str:
        """The dataset of an input's rows that name none."""
        return self._inputs[index].dataset

    def close(self) -> None:
        """Close all files."""
        self._lines.close()
        for handle in self._handles.values():
            handle.close()
        self._handles.clear()
