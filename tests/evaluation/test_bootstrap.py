"""Intervals over clusters, against distributions that are known exactly."""

import numpy as np
import pytest

from rewardctl.evaluation import bootstrap
from rewardctl.evaluation.metrics import Floats


def floats(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def interval(values: Floats, clusters: list[int]) -> bootstrap.Interval:
    return bootstrap.cluster_intervals({"x": values}, np.array(clusters))["x"]


def test_two_clusters_give_both_ends() -> None:
    # Drawing two of {0, 1}: mean 0 in 1 of 4 draws, 1 in 1 of 4; both beyond 2.5 %.
    assert interval(floats(0, 1), [0, 1]) == bootstrap.Interval(0.0, 1.0, 2)


def test_equal_values_leave_no_width() -> None:
    assert interval(floats(*[0.5] * 30), list(range(30))) == bootstrap.Interval(0.5, 0.5, 30)


def test_members_of_a_cluster_are_drawn_together() -> None:
    # Every cluster has mean 1/2, so every draw has: as single values they would spread.
    assert interval(floats(0, 1, 0, 1, 0, 1), [0, 0, 1, 1, 2, 2]) == bootstrap.Interval(0.5, 0.5, 3)


def test_a_binomial_share_has_its_binomial_quantiles() -> None:
    # 400 clusters, half are 1: a draw's mean has std 1/40; 95 % is 1.96 of it to both sides.
    found = interval(floats(*[0, 1] * 200), list(range(400)))
    assert (found.low, found.high) == (
        pytest.approx(0.5 - 1.96 / 40, abs=0.006),
        pytest.approx(0.5 + 1.96 / 40, abs=0.006),
    )


def test_one_cluster_says_nothing() -> None:
    assert interval(floats(0, 1), [7, 7]) == bootstrap.Interval(None, None, 1)


def test_the_order_of_things_changes_no_bit() -> None:
    rng = np.random.default_rng(1)
    values, clusters = rng.normal(size=200), rng.integers(0, 40, size=200)
    order = rng.permutation(200)
    assert interval(values, clusters.tolist()) == interval(values[order], clusters[order].tolist())


def test_what_is_not_finite_is_left_out() -> None:
    figures = {"x": floats(0, 1), "y": floats(0, np.inf)}
    assert list(bootstrap.cluster_intervals(figures, np.array([0, 1]))) == ["x"]
    assert bootstrap.cluster_intervals({"x": floats()}, np.array([], dtype=np.int64)) == {}


def test_few_clusters_are_marked() -> None:
    few = bootstrap.figure(0.5, bootstrap.Interval(0.4, 0.6, 19))
    assert few == {"value": 0.5, "low": 0.4, "high": 0.6, "n_clusters": 19, "unreliable": True}
    assert "unreliable" not in bootstrap.figure(0.5, bootstrap.Interval(0.4, 0.6, 20))
    nothing = {"value": None, "low": None, "high": None, "n_clusters": None}
    assert bootstrap.figure(None, None) == nothing
