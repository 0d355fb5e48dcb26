"""How every benchmark here measures and prints: variants in turns, medians of rounds, ratios.

What is measured stands in the scripts; the reward models that they call are in `scorers.py`.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelerate import Accelerator

HERE = Path(__file__).parent
ROUNDS = 5  # of the variants, one after another
NO_TARGET = "-"


def arguments(description: str | None, **sizes: int) -> argparse.Namespace:
    """The options of a benchmark: a whole number for each size, with its default."""
    parser = argparse.ArgumentParser(description=description)
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    return parser.parse_args()


def show(name: str, value: float, unit: str, target: str = NO_TARGET) -> None:
    """Print one figure as `name value unit target`."""
    print(f"{name} {value:.4g} {unit} {target}", flush=True)


def in_turns(variants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What each variant returned in each round; every round runs all of them, one after another.

    So a slow moment of the machine falls on all variants alike, and ratios within a round hold.
    """
    figures: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, measure in variants.items():
            figures[name].append(measure())
    return figures


def median(figures: Sequence[float]) -> float:
    """The middle figure, which one disturbed round does not move."""
    return statistics.median(figures)


def median_ratio(upper: Sequence[float], lower: Sequence[float]) -> float:
    """The median of the ratios round by round."""
    return median([a / b for a, b in zip(upper, lower, strict=True)])


def one_thread() -> None:
    """Start this process anew with one thread for BLAS and OpenMP, which read that at start."""
    if os.environ.get("OMP_NUM_THREADS") != "1":
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        raise SystemExit(subprocess.call([sys.executable, *sys.argv], env=environment))


def cpu_accelerator() -> "Accelerator":
    """An accelerator on the CPU; torch and accelerate are imported here, outside any timing."""
    from accelerate import Accelerator

    return Accelerator(cpu=True)


def write_config(path: Path, streams: Sequence[Mapping[str, Any]], **sections: Any) -> Path:
    """A config of streams over the reward models of `scorers.py`."""
    import yaml

    content = {"python_path": [str(HERE)], "rewards": [dict(s) for s in streams], **sections}
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path
