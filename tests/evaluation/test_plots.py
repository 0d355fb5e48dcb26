"""Plots: where things are drawn. Within 320 x 220 pixels the axes run from 40 to 280, 180 to 40."""

import re

import pytest

from rewardctl.evaluation.plots import scatter_plot, two_histograms_plot


def circles(plot: str) -> list[tuple[str, ...]]:
    return re.findall(r'<circle cx="([^"]+)" cy="([^"]+)"', plot)


def test_dots_stand_where_their_numbers_are() -> None:
    plot = scatter_plot([10.0, 20.0, 15.0], [-1.0, 3.0, 1.0])
    assert circles(plot) == [("40.0", "180.0"), ("280.0", "40.0"), ("160.0", "110.0")]
    assert "score, from -1 to 3" in plot
    assert ">10</text>" in plot
    assert ">20</text>" in plot


@pytest.mark.parametrize("scores", [[2.0, 2.0], [2.0]])
def test_dots_without_a_range_stand_in_the_middle(scores: list[float]) -> None:
    assert circles(scatter_plot([7.0] * len(scores), scores)) == [("160.0", "110.0")] * len(scores)


def test_a_range_beyond_float64_is_drawn() -> None:
    assert [y for _, y in circles(scatter_plot([1.0, 2.0], [-1.7e308, 1.7e308]))] == [
        "180.0",
        "40.0",
    ]


def test_both_histograms_have_one_scale() -> None:
    plot = two_histograms_plot({"edges": [0.0, 1.0, 2.0], "chosen": [4, 0], "rejected": [1, 2]})
    bars = re.findall(r'<rect x="([^"]+)" y="[^"]+" width="119.0" height="([^"]+)"', plot)
    assert bars == [("40.0", "140.0"), ("160.0", "0.0"), ("40.0", "35.0"), ("160.0", "70.0")]
    assert "chosen</text>" in plot
    assert "rejected</text>" in plot
