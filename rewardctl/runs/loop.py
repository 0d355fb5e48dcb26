"""The scoring loop: windows opened, their calls run, their rows rendered in input order."""

import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any

from rewardctl.config.schema import MediaConfig
from rewardctl.config.secret import masked
from rewardctl.data.media_pool import MediaPool
from rewardctl.data.row_stream import InputRow
from rewardctl.data.samples import BaseSample
from rewardctl.errors import ContractError, RowError
from rewardctl.rewards.inputs import media_uses
from rewardctl.rewards.plan import Call
from rewardctl.rewards.reward_buffer import Lane
from rewardctl.rewards.reward_processor import RewardProcessor
from rewardctl.rewards.scores import CallResult
from rewardctl.runs.interrupt import StopRequest
from rewardctl.runs.output import Output
from rewardctl.runs.policy import FailureLog
from rewardctl.runs.previous import PreviousRows
from rewardctl.runs.render import Cell, RowRenderer
from rewardctl.runs.statistics import RunStatistics
from rewardctl.runs.window import (
    GroupCells,
    Window,
    WindowPlanner,
    call_record,
    read_call_record,
)

PENDING_WINDOWS = 1  # may wait for their last async calls while the next one's calls run
POLL_S = 0.5
NO_CALL = -1  # the number of what failed before any call

Finished = tuple[CallResult, float]
KnownCalls = dict[tuple[int, str, int], dict[str, Any]]


class ScoreLoop:
    """Drives one run of `score` from where its row stream stands to the end of the input.

    Args:
        secrets: texts that no message may carry.
        known: journalled calls of windows that are not rendered yet.
        previous: rows of an earlier output whose failed cells alone are scored again.
        on_progress: called with rows done (finished windows, and the finished part of open ones).
    """

    def __init__(
        self,
        processor: RewardProcessor,
        planner: WindowPlanner,
        renderer: RowRenderer,
        output: Output,
        *,
        failures: FailureLog,
        statistics: RunStatistics,
        stop: StopRequest,
        media: MediaConfig,
        group_cells: GroupCells | None,
        secrets: tuple[str, ...],
        known: KnownCalls,
        previous: PreviousRows | None,
        on_progress: Callable[[float], None],
    ) -> None:
        self.statistics = statistics
        self._processor = processor
        self._planner = planner
        self._renderer = renderer
        self._output = output
        self._failures = failures
        self._stop = stop
        self._group_cells = group_cells
        self._secrets = secrets
        self._known = known
        self._previous = previous
        self._on_progress = on_progress
        self._pool = MediaPool(media)
        self._lanes = {n: Lane(s) for n, s in processor.streams.items() if s.args.async_reward}
        self._open: list[Window] = []  # run, but not rendered
        self._futures: dict[Future[Finished], tuple[Window, Call]] = {}
        self._ended: SimpleQueue[Future[Finished]] = SimpleQueue()

    def run(self) -> None:
        """Score all rows that are left.

        Raises:
            PolicyStop: too many rows failed.
            Interrupted: a signal came.
            ContractError: a model broke the contract.
            RunError: a file cannot be written.
        """
        try:
            window = self._open_next()
            while window is not None:
                # Opened a window ahead, so that its media are decoded while this one's calls run
                # and its rows are written; but nothing waits for a pipe that brings rows slowly.
                following = self._open_next() if self._planner.rows.are_at_hand else None
                self._run_sync(window)
                self._render_finished(keep_open=PENDING_WINDOWS)
                window = following or self._open_next()
            self._render_finished(keep_open=0)
        finally:
            for lane in self._lanes.values():
                lane.close()
            self._pool.close()
            if self._previous is not None:
                self._previous.close()

    def _open_next(self) -> Window | None:
        """Open the next window: announce the media of its calls, and start the async ones."""
        self._stop.check()
        window = self._planner.open_next()
        if window is None:
            return None
        window.calls = [call for call in window.calls if not self._restore(window, call)]
        for _, group in groupby(window.calls, key=_asked):
            alike = list(group)  # calls of several streams that are asked about the same
            uses = media_uses(alike[0].fields, _samples_of(window, alike[0]))
            if uses:
                self._pool.expect([_call_key(window, call) for call in alike], uses)
        for call in window.calls:
            if call.stream in self._lanes:
                future = self._lanes[call.stream].submit(partial(self._execute, window, call))
                self._futures[future] = window, call
                future.add_done_callback(self._ended.put)
        return window

    def _note_faults(self, window: Window) -> None:
        """Note what failed before any call."""
        for input_row in window.rows:
            if isinstance(input_row.sample, RowError):
                fault = input_row.sample
                text = f"{input_row.place}: {fault.status}: {fault}"
                self._failures.note(input_row.row, text)
        for stream, row, fault in window.faults:
            self._set_cell(window, stream, row, fault)
        self._journal_later_faults(window)
        self._check_limit()

    def _journal_later_faults(self, window: Window) -> None:
        """Keep the faults of a group's members that stand behind the window.

        When they are rendered, the group is not planned again; as a call that has no number of its
        own, they are found like the cells of other groups.
        """
        for name, stream in self._processor.streams.items():
            end = window.start + len(window.rows)
            later = [(row, f) for s, row, f in window.faults if s == name and row >= end]
            if stream.is_groupwise and later:
                call = Call(name, NO_CALL, tuple(row for row, _ in later), ())
                faults = {place: fault for place, (_, fault) in enumerate(later)}
                result = CallResult([None] * len(later), faults)
                self._output.add_call(call_record(window, call, result, 0.0))

    def _restore(self, window: Window, call: Call) -> bool:
        """Whether a call need not run: the journal has it whole, or a retry does not ask for it."""
        if self._previous is not None and not self._previous.needs(call):
            window.pending -= 1
            return True
        record = self._known.pop((window.number, call.stream, call.number), None)
        if record is None or record["faults"] or record["rows"] != list(call.rows):
            return False
        if record["stream_sha256"] != window.stream_sha256:
            return False  # of an input that can be read only once, these are other rows
        self._finish_call(window, call, (read_call_record(record), record["seconds"]))
        return True

    def _run_sync(self, window: Window) -> None:
        """Run the calls of a window that are not async."""
        self._open.append(window)
        self._note_faults(window)
        for call in window.calls:
            if call.stream not in self._lanes:
                self._stop.check()
                self._finish_call(window, call, self._execute(window, call))
                self._collect(block=False)
                self._report()

    def _execute(self, window: Window, call: Call) -> Finished:
        """Run one call and journal it; on a lane's thread for async streams."""
        self._stop.check()  # a lane goes on to the next call by itself
        samples = _samples_of(window, call)
        key = _call_key(window, call)
        has_media = key in self._pool
        media = None
        started = time.perf_counter()
        try:
            if has_media:
                media = self._pool.acquire(key)
                started = time.perf_counter()
            result = self._processor.run_call(
                call, samples, media=media, repeat_rows=self._failures.limit.allows_some
            )
        except ContractError as error:
            text = f"{error} (rows {_places(window, call.rows)})"
            raise ContractError(masked(text, self._secrets)) from error
        finally:
            if has_media:
                self._pool.release(key)
        seconds = time.perf_counter() - started
        for place, fault in result.faults.items():
            result.faults[place] = RowError(fault.status, masked(str(fault), self._secrets))
        self._output.add_call(call_record(window, call, result, seconds))
        return result, seconds

    def _finish_call(self, window: Window, call: Call, finished: Finished) -> None:
        """Put a call's cells in their places."""
        result, seconds = finished
        self.statistics.streams[call.stream].seconds += seconds
        window.pending -= 1
        if self._processor.streams[call.stream].is_groupwise or result.faults:
            for place, row in enumerate(call.rows):
                cell = result.faults.get(place, result.scores[place])
                self._set_cell(window, call.stream, row, cell)
        else:
            column, start = window.cells[call.stream], window.start
            for row, score in zip(call.rows, result.scores, strict=True):
                column[row - start] = score
        if result.faults:
            self._check_limit()

    def _set_cell(self, window: Window, stream: str, row: int, cell: Cell) -> None:
        if stream in window.cells:
            window.cells[stream][row - window.start] = cell
        else:
            assert self._group_cells is not None
            self._group_cells.set(stream, row, cell)
        if isinstance(cell, RowError) and self._is_asked(row, stream):
            where = f"{window.place(row)}: stream {stream!r}"
            self._failures.note(row, f"{where}: {cell.status}: {cell}")

    def _is_asked(self, row: int, stream: str) -> bool:
        return self._previous is None or self._previous.is_failed(row, stream)

    def _check_limit(self) -> None:
        self._failures.check(done=self.statistics.rows)

    def _collect(self, *, block: bool) -> None:
        """Take the results of async calls that have ended; with `block`, of at least one."""
        while self._futures:
            try:
                future = self._ended.get(block=block, timeout=POLL_S)
            except Empty:
                return
            window, call = self._futures.pop(future)
            self._finish_call(window, call, future.result())
            block = False

    def _render_finished(self, *, keep_open: int) -> None:
        """Render windows from the oldest on, waiting while more than `keep_open` are open."""
        while self._open:
            window = self._open[0]
            while window.pending and len(self._open) > keep_open:
                self._stop.check()
                self._collect(block=True)
                self._report()
            if window.pending:
                return
            self._render(window)
            self._open.pop(0)
            self._report()
            self._check_limit()

    def _render(self, window: Window) -> None:
        names = list(self._processor.streams)
        columns = [self._column(window, name) for name in names]
        settled: list[list[Cell]] = [list(cells) for cells in zip(*columns, strict=True)]
        for place, input_row in enumerate(window.rows):
            if self._previous is not None:
                settled[place] = self._previous.merge(input_row.row, settled[place])
            if isinstance(input_row.sample, RowError):
                settled[place] = [input_row.sample] * len(names)
        lines = map(self._renderer.render, window.rows, settled)
        block = b"".join(lines)
        self._count(window.rows, settled)
        for name, column in zip(names, zip(*settled, strict=True), strict=True):
            self.statistics.streams[name].add_cells(column)
        facts = {
            "window": window.number,
            "position": list(window.end),
            "stream_sha256": window.stream_sha256,
            "statistics": self.statistics.snapshot(),
            "by_source": self._failures.by_source,
        }
        self._output.add_window(block, facts)

    def _column(self, window: Window, stream: str) -> list[Cell]:
        if stream in window.cells:
            return window.cells[stream]
        assert self._group_cells is not None
        return self._group_cells.take(stream, window.start, window.start + len(window.rows))

    def _count(self, rows: list[InputRow], settled: list[list[Cell]]) -> None:
        counts = self.statistics
        samples = [r.sample for r in rows if not isinstance(r.sample, RowError)]
        counts.datasets.update([str(sample.source) for sample in samples])
        failed = nothing_applicable = 0
        for input_row, cells in zip(rows, settled, strict=True):
            if [cell for cell in cells if isinstance(cell, RowError)]:
                failed += 1
                self._failures.settle(input_row.row, input_row.source)
            elif cells.count(None) == len(cells):
                nothing_applicable += 1
        counts.rows += len(rows)
        counts.failed += failed
        counts.nothing_applicable += nothing_applicable
        counts.ok += len(rows) - failed - nothing_applicable

    def _report(self) -> None:
        done = float(self.statistics.rows)
        for window in self._open:
            total = max(1, window.total_calls)
            done += len(window.rows) * (total - window.pending) / total
        self._on_progress(done)


def _samples_of(window: Window, call: Call) -> list[BaseSample]:
    samples = [window.samples[row] for row in call.rows]
    return [s for s in samples if not isinstance(s, RowError)]


def _asked(call: Call) -> tuple[tuple[int, ...], tuple[str, ...]]:
    return call.rows, call.fields


def _call_key(window: Window, call: Call) -> Hashable:
    return window.number, call.stream, call.number


def _places(window: Window, rows: Iterable[int]) -> str:
    places = [window.place(row) for row in rows]
    return ", ".join(places[:8]) + (", …" if len(places) > 8 else "")
