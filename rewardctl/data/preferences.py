"""Preference rows: which files are read, and how a row's labels and sides become a PreferenceRow.

How a side is spelled is in preference_sides.py, what a model takes of a row in encode.py.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rewardctl.config.hints import did_you_mean, shortened
from rewardctl.config.training_schema import DataFile
from rewardctl.data.inputs import Input, resolve_inputs
from rewardctl.data.jsonl import open_input, parse_json, parse_row, read_lines
from rewardctl.data.media_ref import MediaRoot
from rewardctl.data.preference_labels import COLUMNS as LABEL_COLUMNS, read_labels
from rewardctl.data.preference_sides import (
    COLUMNS,
    CONTENT,
    PAIR,
    Part,
    Sides,
    read_candidates,
    read_pair,
    refuse_prompt_tokens,
)
from rewardctl.data.samples import BaseSample, sample_from_row
from rewardctl.errors import DataError, RowError, UsageError, quote

# No part of a sample: no reward model is to find a label in its metadata.
_APART = LABEL_COLUMNS | {"candidates", "messages", "prompt"}


@dataclass(frozen=True, slots=True, eq=False)
class PreferenceRow:
    """Two sides or K candidates for one prompt, and which of them are better."""

    place: str  # file:line, for messages
    source: str  # name of the file
    line: int  # physical line, from 1
    sides: tuple[BaseSample, ...]  # chosen, rejected; or the candidates in the row's order
    ranks: tuple[float, ...] | None  # None: a pair; else higher is better, equal is a tie
    margin: float | None  # strength of the label, >= 0; None: the neutral one
    preference: float  # probability that the first side is better; 0.5 is a tie
    weight: float  # > 0
    timestep: float | None  # in [0, 1]
    record: dict[str, Any]  # the JSON object, columns renamed

    @property
    def prompt(self) -> str | None:
        """The prompt as text."""
        return self.sides[0].prompt

    @property
    def unique_id(self) -> str | None:
        """The row's group."""
        return self.sides[0].unique_id

    @property
    def id(self) -> str | int | None:
        """The row's own name."""
        return self.sides[0].id

    @property
    def dataset(self) -> str:
        """The name of its dataset."""
        return self.sides[0].source or ""

    def column(self, name: str) -> Any:
        """What the row says under a column: a prompt as text, wherever it stood."""
        return self.prompt if name == "prompt" else self.record.get(name)


@dataclass(frozen=True, slots=True)
class BadPreference:
    """A line that is no preference row, and why."""

    place: str  # file:line
    message: str
    source: str
    line: int

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


def read_preferences(
    files: Sequence[DataFile],
    *,
    folder: Path | None = None,
    allow_media: Sequence[Path] = (),
) -> Iterator[PreferenceRow | BadPreference]:
    """The rows of some files, in order.

    Args:
        files: Paths may be globs, or `-` for standard input.
        folder: What relative paths start from; None: the working directory.
        allow_media: Folders besides a file's own that media may lie in.

    Raises:
        DataError: a file is missing, unreadable or without rows.
        UsageError: a file is given twice.
    """
    for file, source in _sources(files, folder or Path.cwd(), allow_media):
        yield from _read_rows(source, file, _lines(source))


def read_json_preferences(file: DataFile) -> Iterator[PreferenceRow | BadPreference]:
    """The rows of a JSON file that holds one list of them.

    Raises:
        DataError: missing, unreadable, no list, or an empty one.
    """
    ((_, source),) = _sources([file], Path.cwd(), ())
    assert source.path is not None
    with open_input(source.path) as handle:
        content = handle.read()
    try:
        records = parse_json(content.decode("utf-8-sig"))
    except (RowError, UnicodeDecodeError) as error:
        raise DataError(f"{source.name}: expected JSON: {error}") from error
    if type(records) is not list or not records:
        raise DataError(f"{source.name}: expected a list of rows, found {quote(records)}")
    if not all(type(record) is dict for record in records):
        number = next(n for n, record in enumerate(records, 1) if type(record) is not dict)
        found = quote(records[number - 1])
        raise DataError(f"{source.name}, row {number}: expected an object, found {found}")
    yield from _read_rows(
        source,
        file,
        (
            _Record(f"{source.name}, row {number}", number, record)
            for number, record in enumerate(records, start=1)
        ),
    )


def _sources(
    files: Sequence[DataFile], folder: Path, allow_media: Sequence[Path]
) -> list[tuple[DataFile, Input]]:
    found: list[tuple[DataFile, Input]] = []
    for file in files:
        path = "-" if str(file.path) == "-" else str(folder / file.path)
        declared = [(file.name, Path(path))] if file.name else []
        arguments = [] if file.name else [path]
        found += [
            (file, source)
            for source in resolve_inputs(
                arguments, declared=declared, media_root=None, allow_media=allow_media
            )
        ]
    paths = Counter(os.path.realpath(source.path) for _, source in found if source.path)
    for path, uses in paths.items():
        if uses > 1:
            raise UsageError(f"{path} is read {uses} times; give each file once")
    names = Counter(source.path.name for _, source in found if source.path)
    return [
        (file, replace(source, name=str(source.path)))
        if source.path and names[source.path.name] > 1
        else (file, source)
        for file, source in found
    ]


class _Record(NamedTuple):
    """One row before it is read."""

    place: str
    line: int
    content: bytes | dict[str, Any]  # a line, or what was parsed already


def _lines(source: Input) -> Iterator[_Record]:
    stdin = nullcontext(sys.stdin.buffer)
    with stdin if source.path is None else open_input(source.path) as handle:
        for line in read_lines(handle):
            yield _Record(f"{source.name}:{line.number}", line.number, line.raw)


def _read_rows(
    source: Input, file: DataFile, records: Iterable[_Record]
) -> Iterator[PreferenceRow | BadPreference]:
    kinds: frozenset[str] | None = None
    columns: set[str] = set()
    place = None
    for place, line, content in records:
        try:
            record = parse_row(content) if isinstance(content, bytes) else content
            if file.columns:
                columns |= record.keys()
                record = _rename(record, file.columns)
            row = preference_from_row(record, source, place, line, file.direction)
            kinds = _shared_kinds(kinds, row.sides)
        except RowError as error:
            yield BadPreference(place, str(error), source.name, line)
        else:
            yield row
    if place is None:  # of a pipe; a file without rows has been refused before
        raise DataError(f"{source.name}: expected one JSON object a line, found no rows")
    yield from _unused_renames(source, file.columns, columns)


def _unused_renames(
    source: Input, renames: Mapping[str, str], columns: set[str]
) -> Iterator[BadPreference]:
    for name in renames.keys() - columns:
        near = did_you_mean(name, columns)
        found = f"did you mean {near!r}?" if near else f"rows have {', '.join(sorted(columns))}"
        message = f"`columns:` renames {quote(name)}, which no row has; {found}"
        yield BadPreference(source.name, message, source.name, 0)


def _rename(record: dict[str, Any], columns: dict[str, str]) -> dict[str, Any]:
    renamed = {columns.get(name, name): value for name, value in record.items()}
    if len(renamed) != len(record):
        counts = Counter(columns.get(name, name) for name in record)
        twice = [name for name, count in counts.items() if count > 1]
        raise RowError(
            "bad_row",
            f"column {twice[0]!r} stands in the row and is also made by `columns:`; "
            "rename the other one too",
        )
    return renamed


def preference_from_row(
    record: dict[str, Any], source: Input, place: str, line: int, direction: str | None
) -> PreferenceRow:
    """The preference row that a JSON object describes; a known column that is null is absent.

    Args:
        record: From `jsonl.parse_row`.
        place: What messages call it; it stands in `line` of `source`.
        direction: What `ranking` or `scores` mean where the row does not say it.

    Raises:
        RowError: `bad_row` with column, what was expected and what was found.
    """
    parts: dict[str, list[Part]] = {side: [] for side in PAIR}
    common: dict[str, Any] = {}
    for column, value in record.items():
        if column in COLUMNS:
            if value is not None:
                side, field = COLUMNS[column]
                parts[side].append(Part(column, field, value))
        elif column not in _APART and not column.startswith(("chosen_", "rejected_")):
            common[column] = value
    sides = _read_sides(record, parts, source.media_root)
    labels = read_labels(record, len(sides.fields), direction)
    shared = sample_from_row(
        common, default_dataset=source.dataset, declared=None, media_root=source.media_root
    )
    return PreferenceRow(
        place=place,
        source=source.name,
        line=line,
        sides=tuple(
            _sample(shared, sides.prompt, labels.timestep, fields) for fields in sides.fields
        ),
        record=record,
        **labels._asdict(),
    )


def _read_sides(record: dict[str, Any], parts: dict[str, list[Part]], root: MediaRoot) -> Sides:
    candidates = record.get("candidates")
    given = [side for side in PAIR if parts[side]]
    if candidates is not None and given:
        raise RowError(
            "bad_row", f"a row has {given[0]!r} or 'candidates', not both; make it two rows"
        )
    if candidates is not None:
        return read_candidates(candidates, record.get("prompt"), root)
    if len(given) < len(PAIR):
        missing = PAIR[1] if given == [PAIR[0]] else PAIR[0]
        wanted = f"{missing!r}" if given else f"{missing!r} or 'candidates'"
        near = did_you_mean(missing, record)
        raise RowError(
            "bad_row",
            f"no {wanted}, found the columns {shortened(record)}; "
            + (f"did you mean {near!r}? " if near else "")
            + "rename columns with {path: ..., columns: {theirs: ours}}",
        )
    if any(part.field == "tokens" for part in parts[PAIR[0]]):
        refuse_prompt_tokens(record)
    return read_pair(parts, record.get("prompt"), root)


def _sample(
    shared: BaseSample, prompt: str | None, timestep: float | None, fields: dict[str, Any]
) -> BaseSample:
    for name in fields:
        if getattr(shared, name) is not None:
            raise RowError(
                "bad_row", f"column {name!r} stands in the row and in its sides; keep one"
            )
    values = {"prompt": prompt, "timestep": timestep, **fields}
    return replace(shared, applicable_rewards=set(), extra_kwargs={}, **values)


def _shared_kinds(known: frozenset[str] | None, sides: Sequence[BaseSample]) -> frozenset[str]:
    """The kinds of content that all sides of a file have so far."""
    kinds = frozenset(
        name for name in CONTENT if all(getattr(side, name) is not None for side in sides)
    )
    if known is None or kinds & known:
        return kinds if known is None else kinds & known
    raise RowError(
        "bad_row",
        f"mixed kinds: the file's rows before this one hold {'/'.join(sorted(known))}, "
        f"this one {'/'.join(sorted(kinds))}; put each kind in a file of its own",
    )
