"""`rewardctl score`, from a request to the finished output: what is read, checked and run in which
order.
"""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rewardctl.config.schema import Config, RewardArguments
from rewardctl.data.groups import GroupIndex
from rewardctl.data.inputs import Input, resolve_inputs
from rewardctl.data.row_stream import Position, RowStream, can_seek
from rewardctl.errors import ConfigError, DataError, RewardctlError, UsageError
from rewardctl.rewards.abc import BaseRewardModel, GroupwiseRewardModel
from rewardctl.rewards.loader import extend_python_path, load_reward_models, resolve_stream
from rewardctl.rewards.reward_processor import RewardProcessor
from rewardctl.runs import indexing
from rewardctl.runs.fingerprint import fingerprint, machine_facts
from rewardctl.runs.interrupt import StopRequest, stop_on_signals
from rewardctl.runs.loop import KnownCalls, ScoreLoop
from rewardctl.runs.meta import MetaWriter
from rewardctl.runs.output import (
    FileOutput,
    Output,
    OutputPaths,
    StdoutOutput,
    journalled_calls,
    only_writer,
)
from rewardctl.runs.policy import FailureLog, MaxErrors
from rewardctl.runs.previous import PreviousRows
from rewardctl.runs.render import RowRenderer
from rewardctl.runs.start import Start, find_start
from rewardctl.runs.statistics import RunStatistics, StreamStatistics
from rewardctl.runs.window import GroupCells, WindowPlanner, read_call_record

if TYPE_CHECKING:
    from accelerate import Accelerator

Progress = Callable[[float, int, int | None], None]  # rows done, rows failed, rows in all if known


@dataclass(frozen=True)
class ScoreRequest:
    """What a user asks of `score`."""

    config: Config
    out: Path | None  # None is standard output
    data: tuple[str, ...] = ()
    resume: bool = False
    overwrite: bool = False
    retry_errors: bool = False
    max_errors: MaxErrors = field(default_factory=MaxErrors)
    limit: int | None = None  # rows
    include: tuple[str, ...] = ()
    use_eval_rewards: bool = False
    media_root: Path | None = None
    allow_media: tuple[Path, ...] = ()
    allow_import: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """A request with its streams, classes and inputs found; no model is loaded yet."""

    request: ScoreRequest
    streams: list[RewardArguments]
    classes: list[type[BaseRewardModel]]
    inputs: list[Input]
    renderer: RowRenderer

    @property
    def groupwise(self) -> list[RewardArguments]:
        """The streams whose calls are whole groups."""
        pairs = zip(self.streams, self.classes, strict=True)
        return [args for args, c in pairs if issubclass(c, GroupwiseRewardModel)]

    def open_rows(self, spools: dict[int, Path]) -> RowStream:
        """The rows of the request from the start."""
        declared = [d.name for d in self.request.config.data.datasets]
        return RowStream(
            self.inputs,
            declared=frozenset(declared) if declared else None,
            limit=self.request.limit,
            stdin=indexing.read_stdin,
            spools=spools,
            kept=self.request.include,
        )


def prepare(request: ScoreRequest) -> Prepared:
    """Find what a request names.

    Raises:
        ConfigError, UsageError, DataError: a stream, class, option or input is not there.
    """
    config = request.config
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but score runs in one process; "
            "start it without torchrun, or give each process its own --data and output"
        )
    resolved = resolve_streams(
        config, use_eval_rewards=request.use_eval_rewards, allow_import=request.allow_import
    )
    inputs = resolve_inputs(
        request.data,
        declared=[(d.name, Path(d.path)) for d in config.data.datasets],
        media_root=request.media_root,
        allow_media=request.allow_media,
    )
    arguments = [args for args, _ in resolved]
    renderer = RowRenderer(arguments, config.score, request.include)
    return Prepared(request, arguments, [c for _, c in resolved], inputs, renderer)


def resolve_streams(
    config: Config, *, use_eval_rewards: bool, allow_import: Sequence[str]
) -> list[tuple[RewardArguments, type[BaseRewardModel]]]:
    """The streams of a config with their classes.

    Args:
        use_eval_rewards: take `eval_rewards:`, where there is such a list.

    Raises:
        ConfigError: there is no stream, or a class or its options are not there.
    """
    extend_python_path([Path(folder) for folder in config.python_path])
    streams = config.rewards
    if use_eval_rewards and config.eval_rewards is not None:
        streams = config.eval_rewards
    if not streams:
        raise ConfigError("no reward streams: list them under rewards:, or give --reward NAME")
    return [resolve_stream(args, allow_import=allow_import) for args in streams]


def load_processor(
    prepared: Prepared, meta: MetaWriter, accelerator: "Accelerator | None"
) -> RewardProcessor:
    """The models of a request behind one processor; `meta` learns what they say of themselves."""
    accelerator = accelerator or make_accelerator(prepared.streams)
    loaded = load_reward_models(
        prepared.streams, accelerator, allow_import=prepared.request.allow_import
    )
    meta.machine = machine_facts()
    meta.provenance = {s.args.name: dict(getattr(s.model, "provenance", {})) for s in loaded}
    return RewardProcessor.from_streams(accelerator, loaded, media=prepared.request.config.media)


def score(
    request: ScoreRequest,
    *,
    on_progress: Progress = lambda done, failed, total: None,
    accelerator: "Accelerator | None" = None,
) -> dict[str, Any]:
    """Score the rows of a request and write the output.

    Returns:
        What the meta file holds: counts, statistics, warnings, timings.

    Raises:
        RewardctlError: as `errors.py` tells; what was finished is kept for `resume`.
    """
    prepared = prepare(request)
    with ExitStack() as stack:
        if request.out is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="rewardctl-")))
            paths = OutputPaths(folder / "stdout")
            start = Start.anew()
        else:
            paths = OutputPaths(request.out)
            refuse_input_as_output(prepared.inputs, request.out)
            stack.enter_context(only_writer(paths))
            facts = fingerprint(
                request.config,
                prepared.streams,
                prepared.classes,
                prepared.inputs,
                include=request.include,
                limit=request.limit,
            )
            start = find_start(
                paths,
                facts,
                resume=request.resume,
                overwrite=request.overwrite,
                retry_errors=request.retry_errors,
            )
            if start.complete is not None:
                return start.complete
        return _Run(prepared, paths, start, on_progress, accelerator).run()


def refuse_input_as_output(inputs: list[Input], out: Path) -> None:
    """Hold that the output does not replace an input.

    Raises:
        UsageError: it would.
    """
    for source in inputs:
        if source.path is not None and source.path.resolve() == out.resolve():
            raise UsageError(f"{out}: is an input too; choose another output")


class _Run:
    """One run of `score`, its parts in the order they are needed."""

    def __init__(
        self,
        prepared: Prepared,
        paths: OutputPaths,
        start: Start,
        on_progress: Progress,
        accelerator: "Accelerator | None",
    ) -> None:
        self.prepared = prepared
        self.request = prepared.request
        self.paths = paths
        self.start = start
        self.on_progress = on_progress
        self.accelerator = accelerator
        self.failures = FailureLog(self.request.max_errors)
        names = [args.name for args in prepared.streams]
        self.statistics = RunStatistics({name: StreamStatistics() for name in names})
        window = start.recovered.window if start.recovered else None
        if window is not None:
            self.statistics = RunStatistics.restore(window.statistics)
            self.failures.rendered = self.statistics.failed
            self.failures.by_source = dict(window.by_source)
        self.position = Position(*window.position) if window else Position()
        self.stream_sha256 = window.stream_sha256 if window else None

    def run(self) -> dict[str, Any]:
        """Index, load, score and finish."""
        meta = MetaWriter(self.prepared, self.paths, self.start, self.statistics, self.failures)
        rows = self.prepared.open_rows(self._spool_inputs(meta))
        with closing(rows):
            groups, total = self._index_groups(rows)
            processor = load_processor(self.prepared, meta, self.accelerator)
            group_cells = None
            if groups is not None:
                group_cells = GroupCells([s.name for s in self.prepared.groupwise], total or 0)
            rows.start_at(self.position, stream_sha256=self.stream_sha256)
            planner = WindowPlanner(
                list(processor.streams.values()),
                rows,
                window_size=self.request.config.score.window,
                groups=groups,
            )
            output = self._open_output(meta)
            with closing(output), stop_on_signals(partial(meta.write_interrupted, output)) as stop:
                loop = self._loop(processor, planner, output, stop, group_cells, total)
                self._score(loop, output, meta)
            meta.stream_sha256 = rows.stream_sha256
        if self.statistics.rows == 0:
            output.discard()
            raise no_rows(self.prepared)
        if self.start.stream_sha256 not in (None, meta.stream_sha256):
            output.discard()
            raise DataError(
                "the input is not the one that was scored before; give --retry-errors the same "
                "input"
            )
        complete = meta.content("complete")
        output.finish(complete)
        return complete

    def _score(self, loop: ScoreLoop, output: Output, meta: MetaWriter) -> None:
        try:
            meta.write(output, "running")
            with without_collecting():
                loop.run()
            meta.all_rendered = True
            self.failures.check(done=self.statistics.rows, at_end=True)
        except RewardctlError as error:
            meta.write_ended(output, error)
            raise

    def _index_groups(self, rows: RowStream) -> tuple[GroupIndex | None, int | None]:
        """The groups, where a stream needs them, and the number of rows as far as it is known."""
        if not self.prepared.groupwise:
            return None, rows.count_rows()
        return indexing.index_groups(
            rows,
            self.prepared.groupwise,
            max_group_size=self.request.config.score.max_group_size,
        )

    def _spool_inputs(self, meta: MetaWriter) -> dict[int, Path]:
        """Copies of the inputs that cannot seek, where groups need to be read by offset."""
        spools: dict[int, Path] = {}
        if not self.prepared.groupwise:
            return spools
        for index, source in enumerate(self.prepared.inputs):
            if can_seek(source):
                continue
            path = self.paths.spool(index)
            vouched = self.start.spools.get(str(index))
            if not indexing.spool_is_whole(path, vouched):
                copied = indexing.spool_input(source, path)
                if vouched is not None and copied != vouched:
                    raise DataError(
                        f"{source.name}: its {copied['lines']} lines are not those that were "
                        "scored before; give the same input again, or start anew with --overwrite"
                    )
                vouched = copied
            meta.spools[str(index)] = vouched or {}
            meta.write_spools()
            spools[index] = path
        return spools

    def _open_output(self, meta: MetaWriter) -> Output:
        if self.request.out is None:
            return StdoutOutput()
        return FileOutput(self.paths, start=meta.journal_start(), recovered=self.start.recovered)

    def _loop(
        self,
        processor: RewardProcessor,
        planner: WindowPlanner,
        output: Output,
        stop: StopRequest,
        group_cells: GroupCells | None,
        total: int | None,
    ) -> ScoreLoop:
        previous = None
        if self.start.retry_of is not None:
            previous = PreviousRows(self.start.retry_of, list(processor.streams))
        return ScoreLoop(
            processor,
            planner,
            self.prepared.renderer,
            output,
            failures=self.failures,
            statistics=self.statistics,
            stop=stop,
            media=self.request.config.media,
            secrets=self.request.config.secrets,
            group_cells=group_cells,
            known=self._known_calls(processor, group_cells),
            previous=previous,
            on_progress=lambda done: self.on_progress(done, self.failures.failed, total),
        )

    def _known_calls(
        self, processor: RewardProcessor, group_cells: GroupCells | None
    ) -> KnownCalls:
        """Journalled calls of windows to come, and group cells of windows that are rendered."""
        known: KnownCalls = {}
        recovered = self.start.recovered
        if recovered is None:
            return known
        rendered = recovered.window.window if recovered.window else -1
        for record in journalled_calls(self.paths):
            name = record["stream"]
            if record["window"] > rendered:
                known[record["window"], name, record["call"]] = record
            elif group_cells is not None and processor.streams[name].is_groupwise:
                result = read_call_record(record)
                for place, row in enumerate(record["rows"]):
                    if row >= self.position.row:
                        cell = result.faults.get(place, result.scores[place])
                        group_cells.set(name, row, cell)
        return known


@contextmanager
def without_collecting() -> Iterator[None]:
    """Leave what is there now out of garbage collection while the block runs.

    A full collection walks all objects, torch's too: it cost a quarter of the time of a text row.
    """
    if gc.get_freeze_count():  # whoever froze them decides when they thaw
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def no_rows(prepared: Prepared) -> DataError:
    """The error for an input without a single row."""
    names = ", ".join(source.name for source in prepared.inputs)
    return DataError(f"{names}: no rows to score; expected one JSON object a line")


def make_accelerator(streams: list[RewardArguments]) -> "Accelerator":
    """The accelerator of a scoring run: on CPU where nothing else is there or all streams ask for
    it.
    """
    import torch
    from accelerate import Accelerator

    has_other = torch.cuda.is_available() or torch.backends.mps.is_available()
    only_cpu = all(args.device == "cpu" for args in streams)
    return Accelerator(cpu=only_cpu or not has_other)
