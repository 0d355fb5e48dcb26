"""The `eval` command: its options and its tables."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewardctl.cli_terminal import (
    AllowImportOption,
    AllowMediaOption,
    DebugOption,
    MaxErrorsOption,
    ProgressOption,
    SetOption,
    row_progress,
    say,
    stderr_console,
)
from rewardctl.errors import UsageError, quote

if TYPE_CHECKING:
    from rewardctl.config.schema import Config

EVAL_SECTIONS = (
    "data",
    "rewards",
    "eval_rewards",
    "execution",
    "score",
    "python_path",
    "media",
    "eval",
)


def evaluate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CONFIG]", help="YAML with reward streams; or --checkpoint."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="[NAME=]PATH",
            help="JSONL of preference rows (also .gz), quoted glob, or -. Repeatable. Without it "
            "eval.data is read.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="Evaluate a checkpoint of train."),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            "--scores", metavar="FILE", help="Measure stored scores of eval or score; no model."
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            metavar="COLUMN",
            help="For an output of score: numeric column, higher is better; rows of one "
            "unique_id are compared.",
        ),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", "-o", metavar="DIR", help="Folder of scores and report."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an old report.")] = False,
    max_errors: MaxErrorsOption = "0",
    fail_under: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-under",
            metavar="FIGURE=VALUE",
            help="Exit with 1 if a stream is lower, as in accuracy=0.7. Repeatable.",
        ),
    ] = None,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--compare",
            metavar="A B",
            help="Streams to compare; or FILE#STREAM, scores of another run.",
        ),
    ] = None,
    overrides: SetOption = None,
    allow_media: AllowMediaOption = None,
    allow_import: AllowImportOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON on stdout.")] = False,
    progress: ProgressOption = "auto",
    debug: DebugOption = False,
) -> None:
    """Measure how good reward streams are on preference rows.

    Exit codes: 0 done, 1 too many rows failed or --fail-under, 2 usage or config, 3 input, 4 run
    failed, 130/143 signal, 141 the reader of stdout is gone.
    """
    from rewardctl.runs.eval import EvalRequest, evaluate as run_eval, hold_limits, parse_limits
    from rewardctl.runs.policy import MaxErrors

    limits = parse_limits(tuple(fail_under or ()))
    if scores is not None and (data or checkpoint):
        raise UsageError("--scores stands for a model and its data: leave out --data, --checkpoint")
    if label is not None and scores is None:
        raise UsageError("--label names a column of --scores FILE; give that too")
    request = EvalRequest(
        config=_read_config(arguments or [], checkpoint, overrides or [], only_eval=bool(scores)),
        data=tuple(data or ()),
        scores=scores,
        label=label,
        output_dir=output_dir,
        max_errors=MaxErrors.parse(max_errors),
        compare=compare,
        overwrite=overwrite,
        allow_media=tuple(allow_media or ()),
        allow_import=tuple(allow_import or ()),
    )
    shown = row_progress(progress)
    try:
        report = run_eval(request, on_progress=shown.update)
    finally:
        shown.close()
    if as_json:
        typer.echo(json.dumps(report))
    _show(report)
    hold_limits(report, limits)


def _read_config(
    arguments: list[str], checkpoint: Path | None, overrides: list[str], *, only_eval: bool
) -> "Config":
    from rewardctl.runs.validate import checked_config, checked_rewards

    extra = arguments[1:] if checkpoint is None else arguments
    if extra:
        raise UsageError(
            f"unexpected argument {quote(extra[0])}: "
            + (
                "--checkpoint stands for the CONFIG; give one or the other, and --set for the rest"
                if checkpoint is not None
                else "quote the glob or repeat --data"
            )
        )
    if checkpoint is not None:
        path = json.dumps(str(checkpoint.absolute()))
        overrides = [f"rewards.0.model_path={path}", *overrides]
        config, warnings = checked_rewards(["trained"], overrides)
    elif arguments:
        sections = ("eval",) if only_eval else EVAL_SECTIONS
        config, warnings = checked_config(Path(arguments[0]), overrides, sections=sections)
    elif only_eval:
        config, warnings = checked_rewards([], overrides)
    else:
        raise UsageError("nothing to evaluate: give a CONFIG, --checkpoint DIR or --scores FILE")
    for warning in warnings:
        say(str(warning))
    return config


def _show(report: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("stream")
    for name in ("pairs", "accuracy", "95 %", "strict", "tied", "log-loss", "brier", "ece", "gap"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, figures in report["streams"].items():
        table.add_row(
            Text(name),
            str(figures["n_pairs"]),
            _number(figures["accuracy"]["value"]),
            _interval(figures["accuracy"]),
            _number(figures["accuracy_strict"]["value"]),
            str(figures["n_tied_pred"]),
            *(_number(figures[key]["value"]) for key in ("log_loss", "brier")),
            _number(figures["ece"]),
            _number(figures["score_gap"]["value"]),
        )
    stderr_console().print(table)
    for name, figures in report["streams"].items():
        for line in _notes(figures):
            say(f"{name}: {line}")
    for found in report["comparisons"]:
        say(
            f"accuracy of {found['a']} minus {found['b']}: {_signed(found['difference']['value'])} "
            f"{_interval(found['difference'])} on {found['n_pairs']} pairs"
        )
    if report["output_dir"] is not None:
        say(f"report: {Path(report['output_dir']) / 'report.html'} (and report.json)")


def _notes(figures: dict[str, Any]) -> list[str]:
    """What a reader of the table should know of a stream."""
    notes = []
    if "intervals" in figures["reasons"]:
        notes.append(f"no intervals: {figures['reasons']['intervals']}")
    if figures["ranking"] is not None:
        tau, rho, best = (figures[n]["value"] for n in ("kendall_tau_b", "spearman", "best_of_n"))
        chance = _number(figures["ranking"]["best_of_n_by_chance"])
        notes.append(
            f"{figures['ranking']['n_rows']} ranked rows: Kendall tau-b {_number(tau)}, Spearman "
            f"{_number(rho)}, best of N {_number(best)} (by chance {chance})"
        )
    if figures["length"] is not None:
        rule = _number(figures["length"]["baseline_accuracy"])
        notes.append(f"'the longer answer is better' has accuracy {rule} on these pairs")
    for key, words in (("n_tied_label", "tied labels"), ("n_not_applicable", "not applicable")):
        if figures[key]:
            notes.append(f"left out: {figures[key]} pairs, {words}")
    if figures["n_failed"]:
        notes.append(f"left out: {figures['n_failed']} failed pairs")
    probe = figures["batch_probe"]
    if probe is not None and not probe["within_tolerance"]:
        notes.append(
            f"warning: scores depend on the batch, by up to {_number(probe['max_difference'])} "
            "between batch_size 1 and the run's"
        )
    probe = figures["swap_probe"]
    if probe is not None and not probe["adds_up_to_1"]:
        notes.append("warning: scores depend on which side comes first")
    return notes


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4g}"


def _interval(figure: dict[str, Any]) -> str:
    if figure["low"] is None:
        return "-"
    mark = " unreliable" if figure.get("unreliable") else ""
    return f"[{_number(figure['low'])}, {_number(figure['high'])}]{mark}"
