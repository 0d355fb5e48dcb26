"""Each benchmark runs and prints its figures; how large they are is not a test's business."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
TINY = {
    "async_lanes.py": ["--calls", "1", "--rounds", "1"],
    "command_start.py": ["--rounds", "1"],
    "image_sharing.py": ["--images", "3", "--side", "16", "--rounds", "1"],
    "leave_debates_out.py": ["--only", "1", "--steps", "1"],
    "score_memory.py": ["--rows", "600"],
    "score_overhead.py": ["--rows", "600", "--rounds", "1"],
    "score_speed.py": ["--nano", "4", "--small", "2", "--rounds", "1"],
    "train_speed.py": ["--nano", "2", "--small", "1", "--steps", "1", "--rounds", "1"],
    "trained_stream.py": ["--rows", "4", "--rounds", "1"],
}
FIGURES = {
    "async_lanes.py": ["workers_1_share_of_ideal", "workers_8_share_of_ideal"],
    "command_start.py": ["help_over_import_typer", "validate_over_import_torch"],
    "image_sharing.py": ["streams_1_share_of_decode_limit", "streams_4_decodes_per_image"],
    "leave_debates_out.py": ["model_mean_accuracy", "length_mean_accuracy"],
    "score_memory.py": ["pointwise_growth", "groupwise_more_per_row"],
    "score_overhead.py": ["score_rows_per_cpu_second", "score_over_bare_loop"],
    "score_speed.py": ["nano_fp32_over_plain", "small_bf16_over_plain"],
    "train_speed.py": ["nano_fp32_over_plain", "small_computed_over_real"],
    "trained_stream.py": ["tokens_over_model_calls", "text_over_model"],
}


@cache
def figures(script: str) -> dict[str, float]:
    """What a benchmark prints at a tiny size: name -> value."""
    done = subprocess.run(
        [sys.executable, FOLDER / script, *TINY[script]],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parts = [line.split() for line in done.stdout.splitlines()]
    assert all(len(part) == 4 for part in parts), done.stdout
    return {name: float(value) for name, value, _unit, _target in parts}


@pytest.mark.parametrize("script", sorted(TINY))
def test_prints_its_figures(script: str) -> None:
    assert set(FIGURES[script]) <= figures(script).keys()


def test_image_benchmark_counts_one_decode_an_image_for_any_number_of_streams() -> None:
    shown = figures("image_sharing.py")
    assert [shown[f"streams_{n}_decodes_per_image"] for n in (1, 2, 4)] == [1.0, 1.0, 1.0]


def test_every_script_is_run_here_and_told_of_in_the_readme() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    scripts = {p.name for p in FOLDER.glob("*.py") if "__main__" in p.read_text(encoding="utf-8")}
    assert scripts == set(TINY)
    assert [name for name in sorted(scripts) if name not in text] == []
