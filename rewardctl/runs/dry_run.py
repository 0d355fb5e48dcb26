"""`score --dry-run`: the plan of a run, with the rows that would fail; no model is loaded."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rewardctl.data.row_stream import can_seek
from rewardctl.errors import RowError
from rewardctl.rewards.abc import GroupwiseRewardModel, input_fields
from rewardctl.rewards.loader import DEFAULT_BATCH_SIZE
from rewardctl.rewards.plan import PlannedStream
from rewardctl.runs import indexing
from rewardctl.runs.score import Prepared, ScoreRequest, no_rows, prepare
from rewardctl.runs.window import Window, WindowPlanner

EXAMPLES = 5


def dry_run(request: ScoreRequest) -> dict[str, Any]:
    """Read all rows and plan their calls.

    Returns:
        `rows`, `datasets` (rows of each), `streams` (rows, calls and settings of each), `inputs`,
        `failing_rows` (those known to fail before any call) and `examples` of them.
    """
    prepared = prepare(request)
    streams = [
        PlannedStream(
            args=args,
            fields=input_fields(reward_class),
            is_groupwise=issubclass(reward_class, GroupwiseRewardModel),
            batch_size=args.batch_size or DEFAULT_BATCH_SIZE,
        )
        for args, reward_class in zip(prepared.streams, prepared.classes, strict=True)
    ]
    with ExitStack() as stack:
        spools: dict[int, Path] = {}
        if prepared.groupwise:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="rewardctl-")))
            for index, source in enumerate(prepared.inputs):
                if not can_seek(source):
                    spools[index] = folder / str(index)
                    indexing.spool_input(source, spools[index])
        return _read_plan(prepared, streams, spools)


def _read_plan(
    prepared: Prepared, streams: list[PlannedStream], spools: dict[int, Path]
) -> dict[str, Any]:
    score_config = prepared.request.config.score
    rows = prepared.open_rows(spools)
    groups = None
    if prepared.groupwise:
        groups, _ = indexing.index_groups(
            rows, prepared.groupwise, max_group_size=score_config.max_group_size
        )
    planner = WindowPlanner(streams, rows, window_size=score_config.window, groups=groups)
    tally = _Tally(streams)
    while (window := planner.open_next()) is not None:
        tally.add(window)
    rows.close()
    if not tally.rows:
        raise no_rows(prepared)
    return tally.report(prepared)


class _Tally:
    """Counts over all windows of a plan."""

    def __init__(self, streams: list[PlannedStream]) -> None:
        self.rows = 0
        self._streams = streams
        self._datasets: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._cells: Counter[str] = Counter()
        self._failing: set[int] = set()
        self._examples: list[str] = []

    def add(self, window: Window) -> None:
        """Count one window."""
        self.rows += len(window.rows)
        for row in window.rows:
            if isinstance(row.sample, RowError):
                self._fail(row.row, f"{row.place}: {row.sample.status}: {row.sample}")
            else:
                self._datasets[str(row.sample.source)] += 1
        for stream, number, fault in window.faults:
            where = f"{window.place(number)}: stream {stream!r}"
            self._fail(number, f"{where}: {fault.status}: {fault}")
        for call in window.calls:
            self._calls[call.stream] += 1
            self._cells[call.stream] += len(call.rows)

    def _fail(self, row: int, text: str) -> None:
        self._failing.add(row)
        if len(self._examples) < EXAMPLES:
            self._examples.append(text)

    def report(self, prepared: Prepared) -> dict[str, Any]:
        """The finished counts."""
        return {
            "rows": self.rows,
            "datasets": dict(sorted(self._datasets.items())),
            "streams": {s.name: self._stream(s) for s in self._streams},
            "inputs": [
                {"name": i.name, "path": str(i.path) if i.path else "-", "dataset": i.dataset}
                for i in prepared.inputs
            ],
            "failing_rows": len(self._failing),
            "examples": self._examples,
        }

    def _stream(self, stream: PlannedStream) -> dict[str, Any]:
        args = stream.args
        return {
            "reward_model": args.reward_model,
            "kind": "groupwise" if stream.is_groupwise else "pointwise",
            "required_fields": list(stream.fields.required),
            "rows": self._cells[stream.name],
            "calls": self._calls[stream.name],
            "batch_size": None if stream.is_groupwise else stream.batch_size,
            "weight": args.weight,
            "applicable_datasets": args.applicable_datasets,
            "device": args.device,
            "dtype": args.dtype,
            "workers": args.num_workers if args.async_reward else None,
        }
