"""How long the command line takes to start: `--help` beside typer, `validate-config` beside torch.

CPU seconds of the started process and its children (user and system), which a busy machine hardly
moves.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from measure import ROUNDS, arguments, in_turns, median, median_ratio, one_thread, show

CONFIG = """\
rewards:
  - {name: length, reward_model: length, options: {min: 1, max: 400}}
  - {name: repetition, reward_model: repetition, weight: 0.5}
"""
MOST_HELP_OVER_TYPER = 2.0
MOST_VALIDATE_OVER_TORCH = 0.2


def cpu_seconds(*command: str) -> float:
    """CPU seconds of one run of this interpreter.

    Raises:
        SystemExit: the command failed.
    """
    before = os.times()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    after = os.times()
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=ROUNDS)
    one_thread()
    with tempfile.TemporaryDirectory(prefix="rewardctl-benchmark-") as name:
        config = Path(name) / "config.yaml"
        config.write_text(CONFIG, encoding="utf-8")
        commands = {
            "typer": ("-c", "import typer"),
            "help": ("-m", "rewardctl", "--help"),
            "torch": ("-c", "import torch"),
            "validate": ("-m", "rewardctl", "validate-config", str(config)),
        }
        variants: dict[str, Callable[[], float]] = {
            name: partial(cpu_seconds, *command) for name, command in commands.items()
        }
        in_turns(variants, 1)  # bytecode, and files into memory
        seconds = in_turns(variants, options.rounds)
    for name, figures in seconds.items():
        show(f"{name}_cpu", median(figures), "s")
    ratio = median_ratio(seconds["help"], seconds["typer"])
    show("help_over_import_typer", ratio, "x", f"<={MOST_HELP_OVER_TYPER:g}")
    ratio = median_ratio(seconds["validate"], seconds["torch"])
    show("validate_over_import_torch", ratio, "x", f"<={MOST_VALIDATE_OVER_TORCH:g}")


if __name__ == "__main__":
    main()
