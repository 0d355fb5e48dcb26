"""A window of rows: what it holds, which calls it needs, and the cells that come of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rewardctl.data.groups import Group, check_same_group
from rewardctl.data.row_stream import InputRow, Position
from rewardctl.data.samples import BaseSample
from rewardctl.errors import STATUSES, RowError
from rewardctl.rewards.plan import (
    Call,
    PlannedStream,
    StreamPlan,
    mark_applicable,
    plan_groupwise,
    plan_pointwise,
)
from rewardctl.rewards.reward_processor import no_group
from rewardctl.rewards.scores import CallResult
from rewardctl.runs.render import Cell


class RowSource(Protocol):
    """Numbered rows, read on and on."""

    @property
    def position(self) -> Position:
        """Where the next row is read."""

    @property
    def are_at_hand(self) -> bool:
        """Whether all rows lie in files, so that none is waited for."""

    @property
    def stream_sha256(self) -> str | None:
        """SHA-256 of what was taken from an input that can be read only once."""

    def take(self, rows: int) -> list[InputRow]:
        """The next rows, as many as asked or somewhat more; none at the end."""

    def read_row(self, row: int, offset: int) -> InputRow:
        """A single row by its byte offset."""


class Groups(Protocol):
    """Which rows form which group."""

    def first_in(self, start: int, end: int) -> Iterator[Group]:
        """The groups whose first member is one of the rows `start` to `end` - 1, in that order."""


@dataclass
class Window:
    """Rows planned together, with the cells known so far."""

    number: int
    rows: list[InputRow]
    end: Position
    stream_sha256: str | None
    # Its rows, and the members of its groups that stand elsewhere.
    samples: dict[int, BaseSample | RowError]
    calls: list[Call] = field(default_factory=list)  # in the order they are started
    faults: list[tuple[str, int, RowError]] = field(default_factory=list)  # before any call
    cells: dict[str, list[Cell]] = field(default_factory=dict)  # of pointwise streams, by row
    pending: int = 0  # calls not finished
    total_calls: int = 0

    @property
    def start(self) -> int:
        """Number of its first row."""
        return self.rows[0].row

    def place(self, row: int) -> str:
        """file:line of a row, for messages."""
        index = row - self.start
        return self.rows[index].place if 0 <= index < len(self.rows) else f"row {row}"


class GroupCells:
    """Cells of groupwise streams for all rows: a group's call may end before its last row is read.

    9 bytes a row and stream.
    """

    def __init__(self, streams: Iterable[str], rows: int) -> None:
        import numpy as np

        self._scores: dict[str, np.ndarray[Any, Any]] = {
            name: np.zeros(rows, dtype=np.float64) for name in streams
        }
        self._known = {name: np.zeros(rows, dtype=np.bool_) for name in self._scores}
        self.faults: dict[tuple[str, int], RowError] = {}

    def set(self, stream: str, row: int, cell: Cell) -> None:
        """Note one cell."""
        if isinstance(cell, RowError):
            self.faults[stream, row] = cell
        elif cell is not None:
            self.faults.pop((stream, row), None)
            self._scores[stream][row] = cell
            self._known[stream][row] = True

    def take(self, stream: str, start: int, end: int) -> list[Cell]:
        """The cells of the rows `start` to `end` - 1; their faults are forgotten."""
        scores = self._scores[stream][start:end].tolist()
        known = self._known[stream][start:end].tolist()
        cells: list[Cell] = [s if k else None for s, k in zip(scores, known, strict=True)]
        if self.faults:
            for index in range(end - start):
                fault = self.faults.pop((stream, start + index), None)
                cells[index] = fault or cells[index]
        return cells


class WindowPlanner:
    """Reads windows and plans their calls: a pure function of the input and the streams."""

    def __init__(
        self,
        streams: Sequence[PlannedStream],
        rows: RowSource,
        *,
        window_size: int,
        groups: Groups | None,
    ) -> None:
        self.rows = rows
        self._window_size = window_size
        self._groups = groups
        self._streams = list(streams)
        self._order = {stream.name: index for index, stream in enumerate(self._streams)}

    def open_next(self) -> Window | None:
        """The next window, planned; None at the end of the input."""
        number = self.rows.position.row // self._window_size
        rows = self.rows.take(self._window_size)
        if not rows:
            return None
        samples: dict[int, BaseSample | RowError] = {r.row: r.sample for r in rows}
        good = {r: s for r, s in samples.items() if not isinstance(s, RowError)}
        mark_applicable([s.args for s in self._streams], good.values())
        window = Window(number, rows, self.rows.position, self.rows.stream_sha256, samples)
        groups = list(self._open_groups(window))
        for stream in self._streams:
            plan = self._plan(stream, window, good, groups)
            window.calls += plan.calls
            window.faults += [(stream.name, row, fault) for row, fault in plan.faults.items()]
            if not stream.is_groupwise:
                window.cells[stream.name] = [None] * len(rows)
        window.calls.sort(key=lambda call: (call.rows[-1], self._order[call.stream], call.number))
        window.pending = window.total_calls = len(window.calls)
        return window

    def _plan(
        self,
        stream: PlannedStream,
        window: Window,
        good: dict[int, BaseSample],
        groups: list[list[int]],
    ) -> StreamPlan:
        name = stream.name
        applicable = [row for row, s in good.items() if name in s.applicable_rewards]
        if not stream.is_groupwise:
            return plan_pointwise(stream, applicable, good)
        mine = [g for g in groups if _applies(name, g, window.samples)]
        plan = plan_groupwise(stream, mine, window.samples)
        for row in applicable:
            if good[row].unique_id is None:
                plan.faults[row] = RowError("missing_field", no_group(name))
        return plan

    def _open_groups(self, window: Window) -> Iterator[list[int]]:
        """Groups whose first member is in the window; members elsewhere are read by seeking."""
        if self._groups is None:
            return
        start, end = window.start, window.start + len(window.rows)
        for group in self._groups.first_in(start, end):
            self._read_members(group, window)
            yield group.rows

    def _read_members(self, group: Group, window: Window) -> None:
        names = []
        for row, offset in zip(group.rows, group.offsets, strict=True):
            if row not in window.samples:
                sample = self.rows.read_row(row, offset).sample
                window.samples[row] = sample
                if not isinstance(sample, RowError):
                    mark_applicable([s.args for s in self._streams], [sample])
            member = window.samples[row]
            if not isinstance(member, RowError):
                names.append((row, (str(member.source), str(member.unique_id))))
        check_same_group([name for _, name in names], [row for row, _ in names])


def _applies(stream: str, rows: list[int], samples: dict[int, BaseSample | RowError]) -> bool:
    """Whether a groupwise stream applies to a group: its members are of one dataset."""
    members = (samples[row] for row in rows)
    return any(not isinstance(m, RowError) and stream in m.applicable_rewards for m in members)


def call_record(window: Window, call: Call, result: CallResult, seconds: float) -> dict[str, Any]:
    """A finished call for the journal."""
    faults = {str(place): [fault.status, str(fault)] for place, fault in result.faults.items()}
    return {
        "window": window.number,
        "stream_sha256": window.stream_sha256,
        "stream": call.stream,
        "call": call.number,
        "rows": call.rows,
        "scores": result.scores,
        "faults": faults,
        "seconds": round(seconds, 6),
    }


def read_call_record(record: dict[str, Any]) -> CallResult:
    """The result that `call_record` stored."""
    faults = {}
    for place, (status, message) in record["faults"].items():
        assert status in STATUSES
        faults[int(place)] = RowError(status, message)
    return CallResult(record["scores"], faults)
