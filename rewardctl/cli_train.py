"""The `train` and `validate-data` commands: options, progress and what is said at the end."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewardctl.cli_terminal import DebugOption, SetOption, say
from rewardctl.errors import UsageError, printable

if TYPE_CHECKING:
    from rewardctl.data.audit import AuditReport

TRAIN_SECTIONS = ("model", "train", "media")


def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML with model: and train:.")],
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", help="Folder of the run, over train.output_dir.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run that stands in the folder.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Warnings about the data stop the run.")
    ] = False,
    overrides: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Summary as JSON on stdout.")] = False,
    debug: DebugOption = False,
) -> None:
    """Train a reward model from preference data.

    Exit codes: 0 done, 2 usage or config, 3 data, 4 run failed, 130/143 signal (a checkpoint is
    saved; go on with --resume).
    """
    from rewardctl.runs.train import TrainRequest, train as run_train
    from rewardctl.runs.validate import checked_config

    if resume and overwrite:
        raise UsageError("--resume goes on, --overwrite starts anew: give one")
    checked, warnings = checked_config(config, overrides or (), sections=TRAIN_SECTIONS)
    for warning in warnings:
        say(str(warning))
    request = TrainRequest(checked, output_dir, resume, overwrite, strict)
    shown = _Bar() if sys.stderr.isatty() else _Lines()
    try:
        meta = run_train(request, on_audit=_show_audit, on_log=shown.update, on_note=say)
    finally:
        shown.close()
    for warning in meta["warnings"]:
        say(f"rewardctl: warning: {warning}")
    if as_json:
        typer.echo(json.dumps(meta))
    _show_end(meta)


def validate_data(
    target: Annotated[
        str, typer.Argument(metavar="CONFIG|FILE", help="YAML with train:, or preference rows.")
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,
    overrides: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    debug: DebugOption = False,
) -> int:
    """Audit preference data before training: unreadable rows, ties, contradictions, length bias.

    Exit codes: 0 fine, 1 the data have errors (under --strict warnings too), 2 usage, 3 no data.
    """
    from rewardctl.runs.validate_data import validate_data as run_validation

    result = run_validation(target, overrides or (), strict=strict)
    typer.echo(result.json if as_json else printable(result.text))
    return result.exit_code


def _show_audit(report: "AuditReport") -> None:
    if not report.errors:  # with errors, the text is in the error that follows
        say(report.text())


def _show_end(meta: dict[str, Any]) -> None:
    history = meta["history"]
    if not meta["new_steps"]:
        say(f"nothing left to do: the run ended at step {meta['steps']}")
    figures = [f"{meta['steps']} steps"]
    for name in ("train_loss", "val_loss", "val_accuracy"):
        if history[name]:
            figures.append(f"{name} {history[name][-1]:.4f}")
    if meta["stopped_early"]:
        figures.append("stopped early")
    say(f"{', '.join(figures)}; {meta['seconds']:.1f} s")
    say(f"model: {meta['output_dir']}")


class _Lines:
    """A plain line for each line of metrics.jsonl."""

    def update(self, line: dict[str, Any]) -> None:
        """Show one line."""
        say(_figures(line))

    def close(self) -> None:
        """Nothing is open."""


class _Bar(_Lines):
    """Lines above a counter of steps, on a terminal."""

    def __init__(self) -> None:
        from tqdm import tqdm

        self._bar: tqdm[Any] = tqdm(unit=" steps", file=sys.stderr, dynamic_ncols=True, leave=False)

    def update(self, line: dict[str, Any]) -> None:
        """Show one line and move the bar."""
        self._bar.write(_figures(line), file=sys.stderr)
        self._bar.update(line["step"] - self._bar.n)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()


def _figures(line: dict[str, Any]) -> str:
    parts = (f"{k} {v:.4g}" for k, v in line.items() if k not in ("step", "rows") and v is not None)
    return f"step {line['step']}: {', '.join(parts)}"
