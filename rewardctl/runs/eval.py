"""`rewardctl eval`, from a request to the report: sides of preference rows are scored, or stored
scores are read; both are measured from the same kind of file.
"""

import math
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rewardctl.config.schema import Config
from rewardctl.errors import PolicyStop, UsageError, quote
from rewardctl.evaluation.compare import compare_runs
from rewardctl.evaluation.html import write_page
from rewardctl.evaluation.report import evaluate as measure
from rewardctl.evaluation.stored import StoredScores, read_stored
from rewardctl.runs.eval_scoring import SCORES, ScoringRequest, score_sides
from rewardctl.runs.output import write_json
from rewardctl.runs.policy import MaxErrors
from rewardctl.runs.score import Progress

if TYPE_CHECKING:
    from accelerate import Accelerator

REPORT, PAGE = "report.json", "report.html"
LIMITED = ("accuracy", "accuracy_strict", "kendall_tau_b", "spearman", "best_of_n")


@dataclass(frozen=True)
class EvalRequest:
    """What a user asks of `eval`."""

    config: Config
    data: tuple[str, ...] = ()  # [NAME=]PATH each; empty: eval.data
    scores: Path | None = None  # stored scores; None: the streams of the config are run
    label: str | None = None  # column of `scores`, where `score` wrote them
    output_dir: Path | None = None  # None: eval.output_dir
    max_errors: MaxErrors = field(default_factory=MaxErrors)
    compare: tuple[str, str] | None = None  # streams, or scores of another run
    overwrite: bool = False
    allow_media: tuple[Path, ...] = ()
    allow_import: tuple[str, ...] = ()

    @property
    def cluster(self) -> str:
        """The column that intervals are clustered by."""
        return self.config.eval.cluster


def evaluate(
    request: EvalRequest,
    *,
    on_progress: Progress = lambda done, failed, total: None,
    accelerator: "Accelerator | None" = None,
) -> dict[str, Any]:
    """Score the sides of preference rows, or read stored scores, and measure them.

    Returns:
        The report; it is written too where there is an output folder.

    Raises:
        RewardctlError: as `errors.py` tells; of a run that did not end nothing is kept.
    """
    folder = request.output_dir or request.config.eval.output_dir
    with ExitStack() as stack:
        if folder is None:
            working = Path(stack.enter_context(TemporaryDirectory(prefix="rewardctl-")))
        else:
            working = folder
            _refuse_old_report(folder, request)
        _check_comparison(request)
        found: dict[str, Any] = {"data": None, "probes": None}
        path = request.scores
        if path is None:
            path = working / SCORES
            found = score_sides(
                ScoringRequest(
                    config=request.config,
                    data=request.data,
                    out=path,
                    max_errors=request.max_errors,
                    allow_media=request.allow_media,
                    allow_import=request.allow_import,
                ),
                on_progress=on_progress,
                accelerator=accelerator,
            )
        stored = read_stored(path, cluster=request.cluster, label=request.label)
        report = measure(
            stored,
            cluster=request.cluster,
            probes=found["probes"],
            comparisons=None if request.compare is None else [],
            data=found["data"],
        )
        if request.compare is not None:
            report["comparisons"] = [_comparison(request.compare, stored, request)]
    is_kept = folder is not None or request.scores is not None
    report = {
        **report,
        "scores": str(path) if is_kept else None,
        "output_dir": str(folder) if folder else None,
    }
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / REPORT, report, indent=1)
        write_page(report, folder / PAGE)
    return report


def _refuse_old_report(folder: Path, request: EvalRequest) -> None:
    """Hold that nothing is replaced that was not meant to be."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: expected a folder to write the report in, found a file")
    stored = request.scores.resolve() if request.scores else None
    for name in (REPORT, SCORES):
        path = folder / name
        if path.exists() and path.resolve() != stored and not request.overwrite:
            raise UsageError(
                f"{path} exists; choose another --output-dir, or replace it with --overwrite"
            )


def _check_comparison(request: EvalRequest) -> None:
    """Hold, before anything is scored, that `--compare` names what will be there."""
    if request.scores is None:
        config = request.config
        streams = config.rewards if config.eval_rewards is None else config.eval_rewards
        names = [args.name for args in streams]
        for name in request.compare or ():
            if name not in names:
                _find_scores(name, names)


def _find_scores(name: str, streams: list[str]) -> tuple[Path, str]:
    """The file and the stream (or nothing) that FILE, FOLDER or FILE#STREAM stands for."""
    target, _, stream = name.partition("#")
    path = Path(target) / SCORES if Path(target).is_dir() else Path(target)
    if not path.is_file():
        raise UsageError(
            f"--compare {quote(name)}: expected a stream ({', '.join(streams)}), or the "
            "scores.jsonl of another run, as FILE or FILE#STREAM; found neither"
        )
    return path, stream


def _comparison(
    names: tuple[str, str], stored: StoredScores, request: EvalRequest
) -> dict[str, Any]:
    (a, stream_a), (b, stream_b) = (_side_of_comparison(n, stored, request) for n in names)
    return {"a": names[0], "b": names[1], **compare_runs(a, stream_a, b, stream_b)}


def _side_of_comparison(
    name: str, stored: StoredScores, request: EvalRequest
) -> tuple[StoredScores, str]:
    """A stream of this evaluation, or FILE or FILE#STREAM of another."""
    if name in stored.streams:
        return stored, name
    path, stream = _find_scores(name, stored.streams)
    other = read_stored(path, cluster=request.cluster, label=request.label)
    if not stream and len(other.streams) == 1:
        stream = other.streams[0]
    if stream not in other.streams:
        raise UsageError(
            f"--compare {quote(name)}: {path} holds {', '.join(other.streams)}; name one of them "
            "as FILE#STREAM"
        )
    return other, stream


def parse_limits(texts: tuple[str, ...]) -> dict[str, float]:
    """The lowest values of `--fail-under FIGURE=VALUE`.

    Raises:
        UsageError: no such figure, or no number.
    """
    limits = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if name not in LIMITED or not math.isfinite(limit):
            raise UsageError(
                f"--fail-under {quote(text)}: expected FIGURE=NUMBER, as in accuracy=0.7; figures "
                f"are {', '.join(LIMITED)}"
            )
        limits[name] = limit
    return limits


def hold_limits(report: dict[str, Any], limits: dict[str, float]) -> None:
    """Hold every stream of a report to the lowest values it may have.

    Raises:
        PolicyStop: a figure is lower, or is not there.
    """
    missed = []
    for stream, figures in report["streams"].items():
        for name, limit in limits.items():
            value = (figures[name] or {}).get("value")
            if value is None:
                missed.append(f"stream {stream!r} has no {name}, wanted at least {limit:g}")
            elif value < limit:
                missed.append(f"stream {stream!r}: {name} is {value:.6g}, under {limit:g}")
    if missed:
        raise PolicyStop("--fail-under: " + "; ".join(missed))
