"""The command line: options, printing and exit codes. Nothing else but __main__ prints or exits.

What a command does stands in runs/; it is imported inside the command, so that help stays quick.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from rewardctl import __version__
from rewardctl.cli_eval import evaluate
from rewardctl.cli_score import score
from rewardctl.cli_terminal import DebugOption, JsonOption, SetOption
from rewardctl.cli_train import train, validate_data
from rewardctl.errors import RewardctlError, printable
from rewardctl.runs.interrupt import CommandSignals, Interrupted

if TYPE_CHECKING:
    from rewardctl.rewards.catalog import RewardEntry

EXIT_USAGE = 2
EXIT_FAILED = 4
EXIT_READER_GONE = 141  # 128 + SIGPIPE

# Click's own base class of usage errors, which Typer keeps in different places.
_ClickError: Any = typer.BadParameter.__mro__[2]


class _PastTyper(Exception):
    """Carries its cause past Typer, which would make a bare exit code of it."""


@contextmanager
def _past_typer() -> Iterator[None]:
    try:
        yield
    except (BrokenPipeError, EOFError, KeyboardInterrupt) as error:
        raise _PastTyper from error


class _Commands(TyperGroup):
    """The commands, with their errors as they were raised."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _past_typer():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _past_typer():
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Commands,
    help="Score, train and evaluate with rewards.",
    epilog="Exit codes: 0 done, 1 the check said no, 2 usage or config, 3 data, 4 the run failed.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
listing = typer.Typer(help="List what there is.", rich_markup_mode=None)
app.command()(score)
app.command()(train)
app.command("validate-data")(validate_data)
app.command("eval")(evaluate)
app.add_typer(listing, name="ls")


class OutputFormat(StrEnum):
    """How findings are printed."""

    text = "text"
    json = "json"
    github = "github"


def main(arguments: Sequence[str] | None = None, signals: CommandSignals | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: Without the program's name; None: those of the process.
        signals: Where they were taken over; None: they are as Python has them.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(given)
    except BrokenPipeError:  # whoever read our output has stopped
        _drop_output()
        return EXIT_READER_GONE
    except (Exception, KeyboardInterrupt) as error:
        came = signals.signum if signals else None
        if isinstance(error, KeyboardInterrupt):
            came = came or signal.SIGINT
        # A signal counts, whatever the code that it interrupted made of the exception.
        if came and not isinstance(error, Interrupted):
            error = Interrupted(came).with_traceback(error.__traceback__)
        return _report(error, debug="--debug" in given)


def _run(arguments: list[str]) -> int:
    try:
        result = app(arguments, prog_name="rewardctl", standalone_mode=False)
    except _PastTyper as carrier:
        raise carrier.__cause__ or carrier from None
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _report(error: Exception | KeyboardInterrupt, *, debug: bool) -> int:
    """Show an error on stderr and return its exit code."""
    if debug:
        traceback.print_exception(error)
    if isinstance(error, _ClickError):
        message, code = f"{error.format_message()} (--help shows what there is)", EXIT_USAGE
    elif isinstance(error, RewardctlError):
        message, code = str(error), error.exit_code
    else:
        message = f"unexpected {type(error).__name__}: {error}"
        message += "" if debug else " (--debug shows the traceback)"
        code = EXIT_FAILED
    print(f"rewardctl: error: {printable(message)}", file=sys.stderr)
    return code


def _drop_output() -> None:
    """Point stdout to nowhere, or Python would complain once more while it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _show_version(*, wanted: bool) -> None:
    if wanted:
        print(f"rewardctl {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Score, train and evaluate with rewards."""
    _show_version(wanted=version)
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), file=sys.stderr)
        raise typer.Exit(EXIT_USAGE)


@app.command("validate-config")
def validate_config(
    config: Annotated[
        list[str], typer.Argument(metavar="CONFIG", help="YAML files, or quoted globs.")
    ],
    output: Annotated[
        OutputFormat, typer.Option("--format", help="How findings are printed.")
    ] = OutputFormat.text,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,
    check_files: Annotated[
        bool, typer.Option("--check-files", help="Look whether the named files are there.")
    ] = False,
    check_data: Annotated[
        str | None,
        typer.Option(
            "--check-data", metavar="[NAME=]FILE", help="Look whether these rows fit the streams."
        ),
    ] = None,
    overrides: SetOption = None,
    debug: DebugOption = False,
) -> int:
    """Check configs: keys, types, meaning. Imports no torch and none of the config's code.

    Exit codes: 0 fine, 1 findings (under --strict warnings too), 2 a file that cannot be read.
    """
    from rewardctl.config import findings
    from rewardctl.runs.validate import UNREADABLE, validate

    result = validate(config, overrides or (), with_files=check_files, rows=check_data)
    formats = {
        OutputFormat.text: findings.format_text,
        OutputFormat.json: findings.format_json,
        OutputFormat.github: findings.format_github,
    }
    print(formats[output](result.findings, result.files))
    for finding in result.findings:
        if finding.code == UNREADABLE:
            message = printable(f"{finding.path}: {finding.message}")
            print(f"rewardctl: error: {message}", file=sys.stderr)
    return result.exit_code(strict=strict)


@app.command()
def schema(debug: DebugOption = False) -> None:
    """Print the JSON Schema of the config, for editors."""
    from rewardctl.config.json_schema import json_schema

    _print_json(json_schema())


@app.command()
def env(
    devices: Annotated[
        bool, typer.Option("--devices", help="Ask torch for accelerators too (slow).")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Print versions, for bug reports."""
    from rewardctl.runs.environment import describe_environment

    facts = describe_environment(devices=devices)
    if as_json:
        _print_json(facts)
        return
    packages = facts.pop("packages")
    found = facts.pop("devices", {})
    for name, value in {**facts, **found, **packages}.items():
        print(f"{name}: {'not installed' if value is None else value}")


@listing.command("rewards")
def list_rewards(as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """List the registered reward models: kind, fields, range of scores, packages."""
    from dataclasses import asdict

    from rewardctl.rewards import catalog

    entries = catalog.list_rewards()
    if as_json:
        _print_json([asdict(entry) for entry in entries])
        return
    head = ("name", "kind", "requires", "optional", "scores", "options", "extra")
    rows = [head, *map(_reward_row, entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())


def _reward_row(entry: "RewardEntry") -> tuple[str, ...]:
    low = "-inf" if entry.lowest is None else f"{entry.lowest:g}"
    high = "inf" if entry.highest is None else f"{entry.highest:g}"
    missing = "" if entry.installed else " (not installed)"
    return (
        entry.name,
        entry.kind,
        ",".join(entry.required_fields) or "-",
        ",".join(entry.optional_fields) or "-",
        f"{low}..{high}",
        ",".join(entry.options) or "-",
        f"{entry.extra or '-'}{missing}",
    )
