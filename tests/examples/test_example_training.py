"""Models that examples and benchmarks train: they run, and what they print can be worked out."""

import random
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def planted() -> dict[str, Any]:
    """The names of examples/planted.py."""
    return runpy.run_path(str(ROOT / "examples" / "planted.py"))


def run_script(*arguments: str | Path) -> str:
    """What a script prints; it must end well."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_planted_worth_moves_from_one_token_to_the_other(planted: dict[str, Any]) -> None:
    early, late = planted["EARLY"], planted["LATE"]
    tokens = [early, early, early, late, 0, 5]
    worths = [planted["worth"](tokens, t) for t in (0.0, 0.25, 1.0)]
    assert worths == [3.0, 0.75 * 3 + 0.25 * 1, 1.0]


def test_planted_best_accuracies_are_those_of_the_chances(planted: dict[str, Any]) -> None:
    early, late = planted["EARLY"], planted["LATE"]
    make = planted["PlantedPair"]
    pairs = [
        make(([early], [0]), 0.0, True),  # chance 1 / (1 + 1/e): the likely label
        make(([early], [0]), 0.0, False),  # the same, and the unlikely label
        make(([0], [0]), 0.5, True),  # one half
        make(([early, early], [late, late, late]), 0.25, True),  # gap 1.5 - 0.75; at 0.5: -0.5
    ]
    one, other = 0.7310585786300049, 0.679178699175393  # sigmoid(1), sigmoid(0.75)
    assert planted["best_accuracy"](pairs) == pytest.approx((2 * one + 0.5 + other) / 4)
    assert planted["drawn_accuracy"](pairs) == (1 + 0 + 0.5 + 1) / 4
    assert planted["timeless_accuracy"](pairs) == pytest.approx((2 * one + 0.5 + 1 - other) / 4)


def test_planted_labels_are_drawn_by_their_chances(planted: dict[str, Any]) -> None:
    rng = random.Random(1)
    pairs = [planted["draw_pair"](rng) for _ in range(4000)]
    expected = sum(pair.chance for pair in pairs) / len(pairs)
    # Four standard errors of a share of 4000 labels are below 0.032.
    assert sum(p.is_first_better for p in pairs) / len(pairs) == pytest.approx(expected, abs=0.032)


def test_planted_prints_what_was_reached_beside_the_best(tmp_path: Path) -> None:
    out = tmp_path / "planted"
    printed = run_script(
        "examples/planted.py", "--pairs", "80", "--steps", "2", "--out", out
    ).splitlines()
    names = [line[:22].strip() for line in printed]
    assert names == [
        "pairs judged",
        "reached",
        "best possible",
        "best on these labels",
        "best without timestep",
        "training",
    ]
    assert printed[0].split()[-1] == "20"
    assert (out / "eval" / "report.json").is_file()


def test_leave_debates_out_judges_a_debate_that_was_not_learnt() -> None:
    printed = run_script("benchmarks/leave_debates_out.py", "--only", "1", "--steps", "1")
    figures = {line.split()[0]: line.split()[1] for line in printed.splitlines()}
    assert figures["debates"] == "1"
    assert figures["pairs"] == "820"  # of 1511a02ec5, the first by name
    assert float(figures["length_mean_accuracy"]) == pytest.approx(0.8128, abs=5e-5)
