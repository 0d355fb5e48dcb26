"""Preference rows as the sample rows that the scoring loop takes: each side is one, with its labels
beside it. Reading preference rows is in data/preferences.py.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from rewardctl.data.groups import Group
from rewardctl.data.preference_sides import PAIR
from rewardctl.data.preferences import BadPreference, PreferenceRow
from rewardctl.data.row_stream import InputRow, Position
from rewardctl.data.samples import BaseSample
from rewardctl.errors import RowError, UsageError, quote
from rewardctl.evaluation.stored import LABEL_COLUMNS, excerpt
from rewardctl.runs.policy import FailureLog, MaxErrors
from rewardctl.runs.render import ROW_KEYS

Preferences = Iterable[PreferenceRow | BadPreference]
OWN_COLUMNS = ("dataset", "unique_id", "id")  # of an output row, that may be clustered by
MEND_AND_REPEAT = "mend the rows, or allow more with --max-errors"


def extra_columns(cluster: str) -> tuple[str, ...]:
    """What stands in a row of `scores.jsonl` beside what `score` writes.

    Raises:
        UsageError: the cluster column has a name that means something else there.
    """
    if cluster in (*ROW_KEYS, "excerpt") and cluster not in OWN_COLUMNS:
        raise UsageError(
            f"eval.cluster {quote(cluster)}: an output row has a {cluster!r} of its own; rename "
            "the column with eval.data: {path: …, columns: {theirs: ours}}, or cluster by dataset"
        )
    if cluster in OWN_COLUMNS or cluster in LABEL_COLUMNS:
        return LABEL_COLUMNS
    return (*LABEL_COLUMNS, cluster)


@dataclass
class SideCounts:
    """What a first pass over the preference rows found."""

    pair_of: "array[int]" = field(default_factory=lambda: array("q"))  # by number of the side
    bad: list[BadPreference] = field(default_factory=list)


def count_sides(preferences: Preferences, declared: frozenset[str]) -> SideCounts:
    """Count all sides, which row each is of, and the rows that cannot be used."""
    counts = SideCounts()
    for number, row in enumerate(preferences):
        row = _declared(row, declared)
        sides = 1 if isinstance(row, BadPreference) else len(row.sides)
        counts.pair_of.extend([number] * sides)
        if isinstance(row, BadPreference):
            counts.bad.append(row)
    return counts


def hold_limit(counts: SideCounts, limit: MaxErrors) -> None:
    """Stop for unreadable rows before any model is loaded.

    Raises:
        PolicyStop: there are too many.
    """
    failures = FailureLog(limit, next_step=MEND_AND_REPEAT)
    for row, bad in enumerate(counts.bad):
        failures.note(row, str(bad))
        failures.settle(row, bad.source)
    done = counts.pair_of[-1] + 1 if counts.pair_of else 0
    failures.check(done=done, at_end=True)


def _declared(
    row: PreferenceRow | BadPreference, declared: frozenset[str]
) -> PreferenceRow | BadPreference:
    if isinstance(row, BadPreference) or not declared or row.dataset in declared:
        return row
    message = (
        f"dataset {quote(row.dataset)} is not declared; declared under data.datasets: "
        f"{', '.join(sorted(declared))}; name one with --data NAME=PATH or in the row"
    )
    return BadPreference(row.place, message, row.source, row.line)


class SideRows:
    """The sides of preference rows, numbered; a row is never cut between two windows."""

    stream_sha256 = None
    are_at_hand = True

    def __init__(
        self,
        read: Callable[[], Preferences],
        *,
        cluster: str,
        declared: frozenset[str],
        keep_first: int,
    ) -> None:
        self.position = Position()
        self.first: list[tuple[BaseSample, ...]] = []  # sides of the first `keep_first` rows
        self._cluster = cluster
        self._declared = declared
        self._keep_first = keep_first
        self._rows = enumerate(read())
        self._groups: list[Group] = []  # of the rows taken last

    def take(self, rows: int) -> list[InputRow]:
        """The sides of the next preference rows, `rows` or as many more as the last one has."""
        taken: list[InputRow] = []
        self._groups = []
        start = self.position.row
        while len(taken) < rows:
            found = next(self._rows, None)
            if found is None:
                break
            number, row = found
            sides = self._sides(number, _declared(row, self._declared), start + len(taken))
            self._groups.append(Group([s.row for s in sides], [0] * len(sides)))
            taken += sides
        self.position = Position(start + len(taken))
        return taken

    def first_in(self, start: int, end: int) -> Iterator[Group]:
        """The rows taken last as groups: what is compared with each other is one."""
        for group in self._groups:
            assert start <= group.rows[0] < end
            yield group

    def read_row(self, row: int, offset: int) -> InputRow:
        """Never asked for: a group's members stand in one window."""
        raise AssertionError(f"side {row} at {offset} was asked for out of its window")

    def _sides(self, number: int, row: PreferenceRow | BadPreference, first: int) -> list[InputRow]:
        if isinstance(row, BadPreference):
            fault = RowError("bad_row", row.message)
            return [InputRow(first, row.source, row.line, {"pair": number}, fault)]
        # A groupwise stream compares a row's sides, whatever their unique_id.
        group = row.unique_id or row.place
        samples = tuple(
            replace(side, unique_id=group, applicable_rewards=set(), extra_kwargs={})
            for side in row.sides
        )
        if len(self.first) < self._keep_first:
            self.first.append(samples)
        return [
            InputRow(first + place, row.source, row.line, record, sample)
            for place, (record, sample) in enumerate(
                zip(self._records(number, row), samples, strict=True)
            )
        ]

    def _records(self, number: int, row: PreferenceRow) -> Iterator[dict[str, Any]]:
        """What is written of each side beside its scores."""
        common = {
            self._cluster: row.column(self._cluster),
            "pair": number,
            "preference": row.preference if row.ranks is None else None,
            "margin": row.margin,
            "timestep": row.timestep,
            "subset": row.record.get("subset"),
        }
        label = "score" if row.record.get("ranking") is None else "rank"
        for place, sample in enumerate(row.sides):
            if row.ranks is None:
                own: dict[str, Any] = {"side": PAIR[place]}
            else:
                own = {"side": place, label: row.ranks[place]}
            text = sample.response
            yield {
                **common,
                **own,
                "length": None if text is None else len(text),
                "excerpt": {"prompt": excerpt(sample.prompt), "response": excerpt(text)},
            }


class PairFailures(FailureLog):
    """Failures counted by preference row: that is the input row of `eval`.

    Args:
        pair_of: number of the preference row of each side.
    """

    def __init__(self, limit: MaxErrors, pair_of: "array[int]") -> None:
        super().__init__(limit, next_step=MEND_AND_REPEAT)
        self.n_sides = len(pair_of)
        self._pair_of = pair_of
        self._settled = -1

    def note(self, row: int, text: str) -> None:
        """A side failed."""
        if self._pair_of[row] > self._settled:
            super().note(self._pair_of[row], text)

    def settle(self, row: int, source: str) -> None:
        """A failed side was written out; sides of one row come one after the other."""
        pair = self._pair_of[row]
        if pair != self._settled:
            self._settled = pair
            super().settle(pair, source)

    def check(self, *, done: int, at_end: bool = False) -> None:
        """Hold the limit; `done` counts sides.

        Raises:
            PolicyStop: too many rows failed.
        """
        super().check(done=self._pair_of[done - 1] + 1 if done else 0, at_end=at_end)
