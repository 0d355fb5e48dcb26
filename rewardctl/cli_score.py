"""The `score` command: its options, its progress and its final table."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewardctl.cli_terminal import (
    AllowImportOption,
    AllowMediaOption,
    DebugOption,
    MaxErrorsOption,
    ProgressKind,
    ProgressOption,
    SetOption,
    row_progress,
    say,
    stderr_console,
)
from rewardctl.errors import UsageError, quote

if TYPE_CHECKING:
    from rewardctl.config.schema import Config
    from rewardctl.runs.score import ScoreRequest

SCORE_SECTIONS = ("data", "rewards", "eval_rewards", "execution", "score", "python_path", "media")
WORST_FILES = 5


def score(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CONFIG]", help="YAML with reward streams; or use --reward."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="[NAME=]PATH",
            help="JSONL (also .gz), quoted glob, or - for standard input. Repeatable. "
            "Without it the declared datasets are scored.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="OUT", help="JSONL to write, or - for stdout."),
    ] = None,
    reward: Annotated[
        list[str] | None,
        typer.Option("--reward", metavar="NAME", help="A stream without YAML. Repeatable."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a stopped run.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start anew; OUT stays until that is complete.")
    ] = False,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="Score only the failed cells again.")
    ] = False,
    max_errors: MaxErrorsOption = "0",
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="Score the first N rows only.")
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="COLUMN,…", help="Input columns to copy to the output."),
    ] = None,
    eval_rewards: Annotated[
        bool, typer.Option("--eval-rewards", help="Use the eval_rewards: list.")
    ] = False,
    overrides: SetOption = None,
    media_root: Annotated[
        Path | None,
        typer.Option("--media-root", help="Folder of media paths; default: the JSONL's folder."),
    ] = None,
    allow_media: AllowMediaOption = None,
    allow_import: AllowImportOption = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan; load no model, write nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Summary as JSON on stdout.")] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE.html", help="A page of distributions, failures."),
    ] = None,
    progress: ProgressOption = "auto",
    debug: DebugOption = False,
) -> None:
    """Score a JSONL dataset with several reward streams.

    Exit codes: 0 done, 1 too many rows failed, 2 usage or config, 3 input, 4 run failed, 130/143
    signal, 141 the reader of stdout is gone.
    """
    from rewardctl.runs.policy import MaxErrors
    from rewardctl.runs.score import ScoreRequest

    config = _read_config(arguments or [], reward or [], overrides or [])
    if output is None and not is_dry_run:
        raise UsageError("no output: give -o OUT.jsonl, or -o - for standard output")
    if output == "-" and (as_json or resume or retry_errors or overwrite or report):
        raise UsageError(
            "-o - cannot be combined with --json, --resume, --retry-errors, --overwrite or --report"
        )
    if overwrite and (resume or retry_errors):
        raise UsageError("--overwrite starts anew, --resume and --retry-errors go on: give one")
    request = ScoreRequest(
        config=config,
        out=None if output in (None, "-") else Path(str(output)),
        data=tuple(data or ()),
        resume=resume or retry_errors,
        overwrite=overwrite,
        retry_errors=retry_errors,
        max_errors=MaxErrors.parse(max_errors),
        limit=limit,
        include=tuple(name for text in include or () for name in text.split(",") if name),
        use_eval_rewards=eval_rewards,
        media_root=media_root,
        allow_media=tuple(allow_media or ()),
        allow_import=tuple(allow_import or ()),
    )
    if is_dry_run:
        _show_plan(request, as_json=as_json)
    else:
        _run(request, progress, as_json=as_json, report=report)


def _read_config(arguments: list[str], rewards: list[str], overrides: list[str]) -> "Config":
    from rewardctl.runs.validate import checked_config, checked_rewards

    extra = arguments if rewards else arguments[1:]
    if extra:
        raise UsageError(
            f"unexpected argument {quote(extra[0])}: "
            + (
                "--reward stands for the CONFIG; give one or the other"
                if extra[0].endswith((".yaml", ".yml"))
                else "quote the glob or repeat --data"
            )
        )
    if not rewards and not arguments:
        raise UsageError("no reward streams: give a CONFIG, or --reward NAME")
    if rewards:
        config, warnings = checked_rewards(rewards, overrides)
    else:
        config, warnings = checked_config(Path(arguments[0]), overrides, sections=SCORE_SECTIONS)
    for warning in warnings:
        say(str(warning))
    return config


def _run(
    request: "ScoreRequest", progress: ProgressKind, *, as_json: bool, report: Path | None
) -> None:
    from rewardctl.runs.score import score as run_score

    shown = row_progress(progress)
    try:
        meta = run_score(request, on_progress=shown.update)
    finally:
        shown.close()
    for warning in meta["warnings"]:
        say(f"rewardctl: warning: {warning}")
    if as_json:
        typer.echo(json.dumps(meta))
    _show_summary(meta)
    if report is not None and request.out is not None:
        from rewardctl.evaluation.html import write_score_report

        write_score_report(request.out, meta, report)
        say(f"report: {report}")


def _show_summary(meta: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("stream")
    for name in ("applicable", "ok", "failed", "mean", "std", "min", "max", "rows/s", "time"):
        table.add_column(name, justify="right", no_wrap=name != "failed")
    for name, figures in meta["streams"].items():
        by_status = ", ".join(f"{s} {n}" for s, n in figures["failed_by_status"].items())
        share = figures["share_of_time"]
        table.add_row(
            Text(name),
            str(figures["applicable"]),
            str(figures["ok"]),
            f"{figures['failed']}" + (f" ({by_status})" if by_status else ""),
            *(_number(figures[key]) for key in ("mean", "std", "min", "max", "rows_per_second")),
            "" if share is None else f"{share:.0%}",
        )
    stderr_console().print(table)
    counts, failures = meta["counts"], meta["failures"]
    say(
        f"{counts['rows']} rows: {counts['ok']} ok, {counts['failed']} failed, "
        f"{counts['nothing_applicable']} with no applicable stream; {meta['seconds']:.1f} s"
    )
    if counts["failed"]:
        worst = list(failures["by_source"].items())[:WORST_FILES]
        say("failed rows by file: " + ", ".join(f"{n} in {name}" for name, n in worst))
        for example in failures["examples"]:
            say(f"  {example}")
    if meta["output"] != "-":
        say(f"scores: {meta['output']}")
        say(f"facts:  {meta['output']}.meta.json")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _show_plan(request: "ScoreRequest", *, as_json: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from rewardctl.runs.dry_run import dry_run

    plan = dry_run(request)
    if as_json:
        typer.echo(json.dumps(plan))
        return
    table = Table(box=None, pad_edge=False)
    for name in ("stream", "reward model", "kind", "fields", "rows", "calls", "batch", "weight"):
        table.add_column(name)
    for name, facts in plan["streams"].items():
        cells = (
            facts["reward_model"],
            facts["kind"],
            ", ".join(facts["required_fields"]),
            str(facts["rows"]),
            str(facts["calls"]),
            str(facts["batch_size"] or "group"),
            str(facts["weight"]),
        )
        table.add_row(Text(name), *map(Text, cells))
    stderr_console().print(table)
    datasets = ", ".join(f"{name} {n}" for name, n in plan["datasets"].items())
    say(f"{plan['rows']} rows ({datasets}) in {', '.join(i['path'] for i in plan['inputs'])}")
    if plan["failing_rows"]:
        say(f"rows that would fail before any call: {plan['failing_rows']}")
        for example in plan["examples"]:
            say(f"  {example}")
