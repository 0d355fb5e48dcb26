"""Stored scores with labels: the `scores.jsonl` of `eval`, or an output of `score` with a label.

Everything that is measured is measured from here, so that a run and `--scores` take one road.
"""

import json
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from rewardctl.data.jsonl import open_input, parse_row, read_lines
from rewardctl.errors import DataError, RowError, UsageError, quote
from rewardctl.evaluation.metrics import Floats

# What `eval` writes of a preference row beside what `score` writes of a sample row.
LABEL_COLUMNS = (
    "pair",
    "side",
    "preference",
    "margin",
    "rank",
    "score",
    "timestep",
    "length",
    "subset",
    "excerpt",
)
EXCERPT = 200  # characters of a text that are kept to be shown


def excerpt(text: str | None) -> str | None:
    """The start of a text, of at most EXCERPT characters; an ellipsis ends one that was cut."""
    if text is None or len(text) <= EXCERPT:
        return text
    return text[: EXCERPT - 1] + "…"


class State(IntEnum):
    """Why a side has a score of a stream, or has none."""

    SCORED = 0
    NOT_APPLICABLE = 1
    FAILED = 2


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """A preference row, or a group of labelled samples; its sides stand next to each other."""

    key: tuple[str, int | str]  # file and line of a preference row; dataset and id of a group
    start: int  # number of its first side
    end: int
    is_ranked: bool  # K candidates with labels, not chosen and rejected
    has_human_scores: bool  # its labels can be compared with those of other rows
    preference: float  # probability that the first of two sides is better
    dataset: str | None
    subset: str | None
    cluster: str | None  # None where the row lacks the column
    timestep: float | None


@dataclass
class StoredScores:
    """Rows with their sides; what is known of each side stands in arrays (n_sides,)."""

    path: Path
    rows: list[JudgedRow]
    n_unread: int  # preference rows that could not be read
    scores: dict[str, Floats]  # stream -> scores, NaN where there is none
    states: dict[str, NDArray[np.int8]]  # stream -> State
    labels: Floats  # higher is better; chosen is 1, rejected 0
    lengths: Floats  # characters, NaN where unknown
    lines: NDArray[np.int64]  # where each side stands in the file, from 1

    @property
    def streams(self) -> list[str]:
        """Names of the streams."""
        return list(self.scores)


class _Line(NamedTuple):
    place: str  # file:line
    record: dict[str, Any]
    number: int  # from 1


def read_stored(path: Path, *, cluster: str, label: str | None = None) -> StoredScores:
    """Read stored scores.

    Args:
        cluster: the column that intervals are clustered by.
        label: column of a `score` output that says how good a row is, higher is better; None for
            what `eval` wrote.

    Raises:
        DataError: a row is not what `eval` or `score` writes; the missing column is named.
        UsageError: `label` is missing, or given for a file that holds its labels already.
    """
    reader = _Reader(path, cluster)
    by_group: dict[tuple[str, str], list[_Line]] = {}
    pair: list[_Line] = []
    for line in _records(path):
        place, record, _ = line
        reader.hold_streams(place, record)
        _hold_label_option(place, record, label)
        if label is None:
            if record["side"] is None:
                reader.n_unread += 1
                continue
            if pair and pair[0].record.get("pair") != record.get("pair"):
                reader.add_preference_row(pair)
                pair = []
            pair.append(line)
        elif record.get("unique_id") is None and "bad_row" in record["status"].values():
            reader.n_unread += 1
        else:
            by_group.setdefault(_group_of(place, record), []).append(line)
    if pair:
        reader.add_preference_row(pair)
    for key, members in by_group.items():
        reader.add_group(key, members, str(label))
    return reader.finish()


def read_sides(stored: StoredScores, sides: Collection[int]) -> dict[int, dict[str, Any]]:
    """What stands in the file of a few sides, by their numbers; texts are not kept in memory.

    Raises:
        DataError: a row is no JSON object any more.
    """
    wanted = {int(stored.lines[side]): side for side in sides}
    if not wanted:
        return {}
    found = _records(stored.path, only=wanted.keys())
    return {wanted[line.number]: line.record for line in found}


def _records(path: Path, *, only: Collection[int] | None = None) -> Iterator[_Line]:
    with open_input(path) as handle:
        for line in read_lines(handle):
            if only is not None and line.number not in only:
                continue
            place = f"{path}:{line.number}"
            try:
                yield _Line(place, parse_row(line.raw), line.number)
            except RowError as error:
                raise DataError(f"{place}: {error}") from error


def _hold_label_option(place: str, record: dict[str, Any], label: str | None) -> None:
    if label is None and "side" not in record:
        raise UsageError(
            f"{place}: expected a row that eval wrote, found no column 'side'; for an output of "
            "score give --label COLUMN, a numeric column copied by its --include (higher is better)"
        )
    if label is not None and "side" in record:
        raise UsageError(f"{place}: eval wrote this file with its labels; leave out --label")


def _group_of(place: str, record: dict[str, Any]) -> tuple[str, str]:
    if record.get("unique_id") is None:
        raise DataError(
            f"{place}: expected a column 'unique_id' that says which rows are compared with each "
            "other, found none; score rows that have it"
        )
    return str(record.get("dataset")), str(record["unique_id"])


@dataclass
class _Reader:
    """Gathers rows into the arrays of StoredScores."""

    path: Path
    cluster: str
    n_unread: int = 0
    rows: list[JudgedRow] = field(default_factory=list)
    scores: dict[str, list[float]] = field(default_factory=dict)
    states: dict[str, list[int]] = field(default_factory=dict)
    labels: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def hold_streams(self, place: str, record: dict[str, Any]) -> None:
        """Hold that the row has scores and statuses of the same streams as the rows before it."""
        for name in ("scores", "status"):
            if not isinstance(record.get(name), dict):
                raise DataError(
                    f"{place}: expected a row that eval or score wrote, found no column {name!r}; "
                    "give the scores.jsonl of eval, or an output of score with --label COLUMN"
                )
        if not self.scores:
            self.scores = {name: [] for name in record["scores"]}
            self.states = {name: [] for name in record["scores"]}
        if list(self.scores) != list(record["scores"]):
            raise DataError(
                f"{place}: expected scores of {', '.join(self.scores)}, found "
                f"{', '.join(record['scores'])}; give rows of one run"
            )

    def add_preference_row(self, sides: list[_Line]) -> None:
        """The sides of one row of preferences, in order."""
        place, first, _ = sides[0]
        names = [line.record["side"] for line in sides]
        is_ranked = type(first["side"]) is int
        if names != (list(range(len(sides))) if is_ranked else ["chosen", "rejected"]):
            raise DataError(
                f"{place}: expected the sides of one row next to each other and in order, found "
                f"{quote(names)}; was the file cut or sorted? run eval again"
            )
        kind = "rank" if first.get("rank") is not None else "score"
        for line, chosen in zip(sides, (1.0, 0.0, *[0.0] * len(sides)), strict=False):
            self._add_side(line, _number(line.place, line.record, kind) if is_ranked else chosen)
        preference = 1.0 if is_ranked else _number(place, first, "preference")
        key = (str(first["source"]), int(first["line"]))
        human = is_ranked and kind == "score"
        self._add_row(first, key, len(sides), preference, is_ranked=is_ranked, human=human)

    def add_group(
        self,
        key: tuple[str, str],
        members: list[_Line],
        label: str,
    ) -> None:
        """Samples of one group, labelled by a column."""
        for line in members:
            self._add_side(line, _number(line.place, line.record, label))
        self._add_row(members[0].record, key, len(members), 1.0, is_ranked=True, human=True)

    def _add_side(self, line: _Line, label: float) -> None:
        record = line.record
        self.labels.append(label)
        self.lines.append(line.number)
        length = record.get("length")
        self.lengths.append(float(length) if _is_number(length) else math.nan)
        for name in self.scores:
            score, status = record["scores"][name], record["status"].get(name)
            is_scored = status == "ok" and _is_number(score)
            state = State.NOT_APPLICABLE if status == "not_applicable" else State.FAILED
            self.states[name].append(State.SCORED if is_scored else state)
            self.scores[name].append(float(score) if is_scored else math.nan)

    def _add_row(
        self,
        record: dict[str, Any],
        key: tuple[str, int | str],
        sides: int,
        preference: float,
        *,
        is_ranked: bool,
        human: bool,
    ) -> None:
        end = len(self.labels)
        timestep, cluster = record.get("timestep"), record.get(self.cluster)
        self.rows.append(
            JudgedRow(
                key=key,
                start=end - sides,
                end=end,
                is_ranked=is_ranked,
                has_human_scores=human,
                preference=preference,
                dataset=record.get("dataset"),
                subset=None if record.get("subset") is None else str(record["subset"]),
                cluster=None if cluster is None else json.dumps(cluster, sort_keys=True),
                timestep=float(timestep) if _is_number(timestep) else None,
            )
        )

    def finish(self) -> StoredScores:
        """All of it."""
        if not self.rows and not self.n_unread:
            raise DataError(f"{self.path}: expected stored scores, found no rows")
        return StoredScores(
            path=self.path,
            rows=self.rows,
            n_unread=self.n_unread,
            scores={name: np.array(found, dtype=np.float64) for name, found in self.scores.items()},
            states={name: np.array(found, dtype=np.int8) for name, found in self.states.items()},
            labels=np.array(self.labels, dtype=np.float64),
            lengths=np.array(self.lengths, dtype=np.float64),
            lines=np.array(self.lines, dtype=np.int64),
        )


def _is_number(value: object) -> TypeGuard[float]:
    return type(value) is float or type(value) is int


def _number(place: str, record: dict[str, Any], column: str) -> float:
    value = record.get(column)
    if not _is_number(value):
        found = "no such column" if column not in record else quote(value)
        raise DataError(f"{place}: expected a number in column {column!r}, found {found}")
    return float(value)
