"""The scoring half of `eval`: preference rows through the loop of `score`, into `scores.jsonl`."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewardctl.config.schema import Config, RewardArguments
from rewardctl.config.training_schema import DataFile
from rewardctl.data.preferences import read_preferences
from rewardctl.errors import DataError, RewardctlError, UsageError
from rewardctl.evaluation.stored import read_stored
from rewardctl.rewards.abc import BaseRewardModel
from rewardctl.rewards.reward_processor import RewardProcessor
from rewardctl.runs.eval_probes import PROBED_ROWS, probe_streams
from rewardctl.runs.eval_rows import (
    PairFailures,
    Preferences,
    SideCounts,
    SideRows,
    count_sides,
    extra_columns,
    hold_limit,
)
from rewardctl.runs.fingerprint import file_facts, fingerprint
from rewardctl.runs.interrupt import Interrupted, stop_on_signals
from rewardctl.runs.loop import ScoreLoop
from rewardctl.runs.meta import MetaWriter
from rewardctl.runs.output import FileOutput, OutputPaths, only_writer
from rewardctl.runs.policy import MaxErrors
from rewardctl.runs.render import RowRenderer
from rewardctl.runs.score import (
    Prepared,
    Progress,
    ScoreRequest,
    load_processor,
    resolve_streams,
    without_collecting,
)
from rewardctl.runs.start import Start
from rewardctl.runs.statistics import RunStatistics, StreamStatistics
from rewardctl.runs.window import GroupCells, WindowPlanner

if TYPE_CHECKING:
    from accelerate import Accelerator

SCORES = "scores.jsonl"
_NAMED = re.compile(r"([A-Za-z0-9_.-]{1,64})=(.+)", re.DOTALL)


@dataclass(frozen=True)
class ScoringRequest:
    """Which rows are scored, by what, and where to."""

    config: Config
    data: tuple[str, ...]  # [NAME=]PATH each; empty: eval.data
    out: Path
    max_errors: MaxErrors
    allow_media: tuple[Path, ...]
    allow_import: tuple[str, ...]


def score_sides(
    request: ScoringRequest,
    *,
    on_progress: Progress,
    accelerator: "Accelerator | None",
) -> dict[str, Any]:
    """Write the scores of all sides to `request.out`.

    Returns:
        `data`: facts of the files; `probes`: what else the models were asked.

    Raises:
        RewardctlError: as `errors.py` tells; then nothing is left of the run.
    """
    return _Scoring(request, on_progress, accelerator).run()


def data_files(request: ScoringRequest) -> list[DataFile]:
    """The files of preference rows: those of `--data`, else those of `eval.data`.

    Raises:
        UsageError: there are none.
    """
    if request.data:
        return [_data_file(argument) for argument in request.data]
    if not request.config.eval.data:
        raise UsageError("no data to read; give --data PATH, or list files under eval.data")
    return list(request.config.eval.data)


def _data_file(argument: str) -> DataFile:
    named = None if os.path.lexists(argument) else _NAMED.fullmatch(argument)
    if named is None:
        return DataFile(path=Path(argument))
    return DataFile(path=Path(named[2]), name=named[1])


class _Scoring:
    """One run of the streams over preference rows, its parts in the order they are needed."""

    def __init__(
        self,
        request: ScoringRequest,
        on_progress: Progress,
        accelerator: "Accelerator | None",
    ) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UsageError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but eval runs in one process; start "
                "it without torchrun"
            )
        config = request.config
        self.request = request
        self.paths = OutputPaths(request.out)
        self.on_progress = on_progress
        self.accelerator = accelerator
        self.files = data_files(request)
        self.include = extra_columns(config.eval.cluster)
        self.declared = frozenset(d.name for d in config.data.datasets)
        resolved = resolve_streams(config, use_eval_rewards=True, allow_import=request.allow_import)
        self.streams: list[RewardArguments] = [args for args, _ in resolved]
        self.classes: list[type[BaseRewardModel]] = [found for _, found in resolved]

    def run(self) -> dict[str, Any]:
        """Count the sides, score them, ask again."""
        read = self._reader()
        counts = count_sides(read(), self.declared)
        if not counts.pair_of:
            names = ", ".join(str(file.path) for file in self.files)
            raise DataError(f"{names}: no rows to evaluate; expected one JSON object a line")
        hold_limit(counts, self.request.max_errors)
        self.paths.out.parent.mkdir(parents=True, exist_ok=True)
        with only_writer(self.paths):
            for left in self.paths.working_files():  # by a run that was killed
                left.unlink()
            return {"data": self._data_facts(), "probes": self._score(read, counts)}

    def _reader(self) -> Callable[[], Preferences]:
        """What reads the rows, as often as it is called."""

        def read() -> Preferences:
            return read_preferences(self.files, allow_media=self.request.allow_media)

        if not any(_can_be_read_only_once(Path(file.path)) for file in self.files):
            return read
        kept = list(read())
        return lambda: kept

    def _data_facts(self) -> list[dict[str, Any]]:
        """Size and hash of each file that is named by its path."""
        paths = [Path(file.path) for file in self.files]
        return [
            {"path": str(path), **(file_facts(path) if path.is_file() else {})} for path in paths
        ]

    def _score(self, read: Callable[[], Preferences], counts: SideCounts) -> dict[str, Any]:
        config = self.request.config
        prepared = self._prepared()
        statistics = RunStatistics({args.name: StreamStatistics() for args in self.streams})
        failures = PairFailures(self.request.max_errors, counts.pair_of)
        facts = fingerprint(
            config, self.streams, self.classes, [], include=self.include, limit=None
        )
        start = Start.anew({**facts, "inputs": self._data_facts()})
        meta = MetaWriter(prepared, self.paths, start, statistics, failures)
        processor = load_processor(prepared, meta, self.accelerator)
        rows = SideRows(
            read,
            cluster=config.eval.cluster,
            declared=self.declared,
            keep_first=PROBED_ROWS,
        )
        output = FileOutput(self.paths, start=meta.journal_start(), recovered=None)
        with _nothing_kept_of_a_failure(output):
            self._run_loop(prepared, processor, rows, output, failures, statistics)
            meta.all_rendered = True
            output.finish(meta.content("complete"))
        stored = read_stored(self.paths.out, cluster=config.eval.cluster)
        return probe_streams(processor, rows.first, stored)

    def _prepared(self) -> Prepared:
        request = ScoreRequest(
            self.request.config, out=self.paths.out, allow_import=self.request.allow_import
        )
        renderer = RowRenderer(self.streams, self.request.config.score, self.include)
        return Prepared(request, self.streams, self.classes, [], renderer)

    def _run_loop(
        self,
        prepared: Prepared,
        processor: RewardProcessor,
        rows: SideRows,
        output: FileOutput,
        failures: PairFailures,
        statistics: RunStatistics,
    ) -> None:
        config, total = self.request.config, failures.n_sides
        is_grouped = bool(prepared.groupwise)
        names = [args.name for args in prepared.groupwise]
        planner = WindowPlanner(
            list(processor.streams.values()),
            rows,
            window_size=config.score.window,
            groups=rows if is_grouped else None,
        )
        with stop_on_signals(lambda _: output.discard()) as stop, without_collecting():
            ScoreLoop(
                processor,
                planner,
                prepared.renderer,
                output,
                failures=failures,
                statistics=statistics,
                stop=stop,
                media=config.media,
                group_cells=GroupCells(names, total) if is_grouped else None,
                secrets=config.secrets,
                known={},
                previous=None,
                on_progress=lambda done: self.on_progress(done, failures.failed, total),
            ).run()
        failures.check(done=statistics.rows, at_end=True)


def _can_be_read_only_once(path: Path) -> bool:
    """Standard input or a pipe; a path that is not there is an error of its own, or a glob."""
    return str(path) == "-" or path.is_fifo() or path.is_char_device()


@contextmanager
def _nothing_kept_of_a_failure(output: FileOutput) -> Iterator[None]:
    """Delete the working files of a run that does not end."""
    with closing(output):
        try:
            yield
        except Interrupted as error:
            output.discard()
            stopped = RewardctlError("stopped by a signal; nothing is kept, start eval again")
            stopped.exit_code = error.exit_code
            raise stopped from error
        except BaseException:
            with suppress(RewardctlError, OSError):
                output.discard()
            raise
