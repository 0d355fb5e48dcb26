"""What commands share: options, lines on stderr, tables, and progress over rows."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rewardctl.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

ProgressKind = Literal["auto", "bar", "plain", "none"]
PLAIN_EVERY_S = 30.0

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PLACE=VALUE",
        help="Replace one value, as rewards.0.weight=0.5 or rewards.NAME.weight=0.5. Repeatable.",
    ),
]
MaxErrorsOption = Annotated[
    str,
    typer.Option("--max-errors", metavar="N|P%", help="Failed rows that do not stop the run."),
]
AllowMediaOption = Annotated[
    list[Path] | None,
    typer.Option("--allow-media", metavar="DIR", help="More folders media may lie in."),
]
AllowImportOption = Annotated[
    list[str] | None,
    typer.Option("--allow-import", metavar="PREFIX", help="Only import classes below these."),
]
ProgressOption = Annotated[ProgressKind, typer.Option(help="How progress is shown.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def say(line: str) -> None:
    """One line on stderr, never wrapped."""
    typer.echo(printable(line), err=True)


def stderr_console() -> "Console":
    """Tables go to stderr; where nobody watches, lines are not wrapped at 80 columns."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False)
    if console.is_terminal:
        return console
    return Console(stderr=True, highlight=False, markup=False, width=160)


class _Silent:
    """No progress."""

    def update(self, done: float, failed: int, total: int | None) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing was shown."""


class _Bar(_Silent):
    """A bar on a terminal."""

    def __init__(self) -> None:
        from tqdm import tqdm

        self._bar: tqdm[Any] = tqdm(unit=" rows", file=sys.stderr, dynamic_ncols=True, leave=False)

    def update(self, done: float, failed: int, total: int | None) -> None:
        """Move the bar."""
        self._bar.total = total
        if failed:
            self._bar.set_postfix(failed=failed, refresh=False)
        self._bar.update(int(done) - self._bar.n)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()


class _Lines(_Silent):
    """A plain line now and then, for logs."""

    def __init__(self) -> None:
        self._started = self._shown = time.monotonic()
        self._first: float | None = None

    def update(self, done: float, failed: int, total: int | None) -> None:
        """Print a line every PLAIN_EVERY_S seconds."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._started = done, now
        if now - self._shown < PLAIN_EVERY_S:
            return
        self._shown = now
        pace = (done - self._first) / max(now - self._started, 1e-9)
        line = f"scored {int(done)}"
        if total:
            line += f"/{total} ({done / total:.0%})"
        line += f" rows, {pace:.1f} rows/s, {failed} failed"
        if total and pace > 0:
            line += f", {(total - done) / pace:.0f} s left"
        say(line)


def row_progress(kind: ProgressKind) -> _Silent:
    """Progress over rows: a bar on a terminal, plain lines elsewhere, or none."""
    if kind == "auto":
        kind = "bar" if sys.stderr.isatty() else "plain"
    return {"bar": _Bar, "plain": _Lines, "none": _Silent}[kind]()
