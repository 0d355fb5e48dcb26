"""Whether rows fit the streams of a config: each is read as `score` reads it, none is scored."""

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rewardctl.config.findings import Finding
from rewardctl.config.hints import did_you_mean, shortened
from rewardctl.config.positions import Place
from rewardctl.config.report import Report
from rewardctl.config.resolve import absolute
from rewardctl.config.schema import ConfigFile, RewardArguments
from rewardctl.data.inputs import resolve_inputs
from rewardctl.data.row_stream import InputRow, RowStream
from rewardctl.data.samples import BaseSample
from rewardctl.errors import RowError, quote
from rewardctl.rewards.check import stream_facts
from rewardctl.rewards.class_source import SourceFinder

MAX_SHOWN = 20  # rows of one problem that get a finding of their own
_ROWS_AT_A_TIME = 1024


@dataclass(frozen=True)
class _Place:
    path: str
    line: int


@dataclass
class _Rows:
    """Rows with one problem: how many, and the first of them."""

    count: int = 0
    places: list[_Place] = field(default_factory=list)  # MAX_SHOWN at most
    details: list[str] = field(default_factory=list)  # what is wrong, or the first row's columns

    def add(self, place: _Place) -> bool:
        """Count a row; whether it is among those to be shown."""
        self.count += 1
        if self.count <= MAX_SHOWN:
            self.places.append(place)
        return self.count <= MAX_SHOWN


@dataclass
class _Seen:
    """What was found in the rows."""

    bad: _Rows = field(default_factory=_Rows)
    # By stream and field.
    missing: dict[tuple[str, str], _Rows] = field(default_factory=lambda: defaultdict(_Rows))
    datasets: dict[str, _Place] = field(default_factory=dict)  # first row of each


@dataclass(frozen=True)
class _Stream:
    args: RewardArguments
    fields: tuple[str, ...]  # that each of its rows needs


def check_data(config: ConfigFile, report: Report, folder: Path, rows: str) -> list[Finding]:
    """Findings about rows that cannot be read, fields that streams require, and datasets.

    Args:
        folder: What relative paths of the config start from.
        rows: `[NAME=]PATH`; PATH may be a glob or `-`.

    Raises:
        UsageError: NAME is not declared.
        DataError: there is no such file, or it cannot be read to its end.
    """
    section = "rewards" if config.rewards else "eval_rewards"
    finder = SourceFinder([absolute(path, folder) for path in config.python_path])
    streams = [_stream(args, finder) for args in getattr(config, section) or []]
    seen = _Seen()
    for place, row in _read_rows(config, folder, rows):
        _note(seen, place, row, streams)
    return [
        *_bad_rows(seen.bad),
        *_missing_fields(seen.missing),
        *_dataset_findings(config, section, seen, report),
    ]


def _stream(args: RewardArguments, finder: SourceFinder) -> _Stream:
    facts = stream_facts(args, finder)
    fields = facts.required_fields or ()
    if facts.is_groupwise and "unique_id" not in fields:
        fields = (*fields, "unique_id")
    return _Stream(args, fields)


def _read_rows(config: ConfigFile, folder: Path, rows: str) -> Iterator[tuple[_Place, InputRow]]:
    declared = [(d.name, absolute(d.path, folder)) for d in config.data.datasets]
    inputs = resolve_inputs([rows], declared=declared, media_root=None, allow_media=())
    paths = {each.name: str(each.path or each.name) for each in inputs}
    names = frozenset(name for name, _ in declared) or None
    stream = RowStream(inputs, declared=names, limit=None, stdin=lambda: sys.stdin.buffer)
    while taken := stream.take(_ROWS_AT_A_TIME):
        for row in taken:
            yield _Place(paths[row.source], row.line), row


def _note(seen: _Seen, place: _Place, row: InputRow, streams: list[_Stream]) -> None:
    if isinstance(row.sample, RowError):
        if seen.bad.add(place):
            seen.bad.details.append(str(row.sample))
        return
    dataset = row.sample.source or ""
    seen.datasets.setdefault(dataset, place)
    for stream in streams:
        if stream.args.applies_to(dataset):
            for name in stream.fields:
                if _is_absent(row.sample, name):
                    missing = seen.missing[stream.args.name, name]
                    missing.add(place)
                    missing.details = missing.details or list(row.record or {})


def _is_absent(sample: BaseSample, name: str) -> bool:
    return getattr(sample, name, None) is None


def _bad_rows(bad: _Rows) -> Iterator[Finding]:
    for place, message in zip(bad.places, bad.details, strict=True):
        yield Finding("RC321", "error", message, place.path, place.line)
    if bad.count > MAX_SHOWN:
        last, rest = bad.places[-1], bad.count - MAX_SHOWN
        message = f"{rest:,} more rows after this one cannot be read"
        yield Finding("RC321", "error", message, last.path, last.line)


def _missing_fields(missing: dict[tuple[str, str], _Rows]) -> Iterator[Finding]:
    for (stream, name), rows in missing.items():
        first = rows.places[0]
        near = did_you_mean(name, rows.details)
        listed = ", ".join(str(place.line) for place in rows.places)
        rest = rows.count - len(rows.places)
        yield Finding(
            "RC322",
            "error",
            f"no {name!r}, which stream {stream!r} requires, in line {listed}"
            + (f" and {rest:,} more" if rest else ""),
            first.path,
            first.line,
            hint=f"did you mean the column {near!r}?" if near else None,
        )


def _dataset_findings(
    config: ConfigFile, section: str, seen: _Seen, report: Report
) -> Iterator[Finding]:
    streams: list[RewardArguments] = getattr(config, section) or []
    for name, place in _named_datasets(config, section, streams):
        if name not in seen.datasets:
            message = f"no row is of dataset {quote(name)}"
            hint = f"the rows are of {shortened(seen.datasets)}"
            yield report.document.finding("RC323", message, place, severity="warning", hint=hint)
    for name, first in seen.datasets.items():
        if not any(stream.applies_to(name) for stream in streams):
            message = f"no stream applies to dataset {quote(name)}"
            yield Finding("RC323", "warning", message, first.path, first.line)


def _named_datasets(
    config: ConfigFile, section: str, streams: list[RewardArguments]
) -> Iterator[tuple[str, Place]]:
    for index, dataset in enumerate(config.data.datasets):
        yield dataset.name, ("data", "datasets", index, "name")
    if not config.data.datasets:
        for index, stream in enumerate(streams):
            for number, name in enumerate(stream.applicable_datasets or ()):
                yield name, (section, index, "applicable_datasets", number)
