"""Figures over score gaps."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rewardctl.evaluation import metrics

GAPS = st.lists(st.floats(-50, 50), min_size=1, max_size=30)


def floats(*values: float) -> metrics.Floats:
    return np.array(values, dtype=np.float64)


def test_a_tie_counts_half_in_one_accuracy_and_as_wrong_in_the_other() -> None:
    gap = floats(2.0, 0.0, -1.0)
    assert metrics.correct_with_half_ties(gap).tolist() == [1.0, 0.5, 0.0]
    assert metrics.correct_strict(gap).tolist() == [1.0, 0.0, 0.0]


def test_a_gap_of_nothing_has_the_log_loss_of_a_coin() -> None:
    assert metrics.log_losses(floats(0.0), floats(1.0))[0] == pytest.approx(math.log(2), abs=1e-15)


@pytest.mark.parametrize(
    ("gap", "probability"),
    [(6.0, 0.997527), (6.5, 0.998499), (7.0, 0.999089), (7.5, 0.999447), (8.0, 0.999665)],
)
def test_close_scores_keep_different_probabilities(gap: float, probability: float) -> None:
    assert math.exp(-metrics.log_losses(floats(gap), floats(1.0))[0]) == pytest.approx(
        probability, abs=5e-7
    )


def test_a_soft_label_weighs_both_outcomes() -> None:
    # sigmoid(ln 3) = 3/4: 0.8 * -ln(3/4) + 0.2 * -ln(1/4)
    expected = 0.8 * math.log(4 / 3) + 0.2 * math.log(4)
    loss = metrics.log_losses(floats(math.log(3)), floats(0.8))[0]
    assert loss == pytest.approx(expected, rel=1e-14)


def test_brier_is_the_squared_distance_from_the_label() -> None:
    # (3/4 - 1)^2 and (1/4 - 1)^2
    scores = metrics.brier_scores(floats(math.log(3), -math.log(3)), floats(1.0, 1.0))
    assert scores.tolist() == pytest.approx([1 / 16, 9 / 16], rel=1e-14)


def test_huge_gaps_do_not_overflow() -> None:
    gap, sure = floats(1e308, -1e308, math.inf), floats(1.0, 1.0, 1.0)
    assert metrics.log_losses(gap, sure).tolist() == [0.0, 1e308, 0.0]
    assert metrics.sigmoid(gap).tolist() == [1.0, 0.0, 1.0]
    assert metrics.mean(floats(1.7e308, 1.7e308)) == 1.7e308


def test_a_mean_of_nothing_or_of_what_is_not_finite_is_none() -> None:
    assert metrics.mean([]) is None
    assert metrics.mean([1.0, math.inf]) is None


def test_the_mean_of_ones_is_one_for_any_count() -> None:
    assert all(metrics.mean([1.0] * n) == 1.0 for n in (1, 3, 7, 49, 1000))


@given(GAPS, st.floats(-1e6, 1e6))
def test_shifting_all_scores_changes_no_accuracy(gaps: list[float], shift: float) -> None:
    chosen = np.round(np.array(gaps)) + shift
    rejected = np.full(len(gaps), shift)
    shifted = metrics.correct_with_half_ties(chosen - rejected)
    assert shifted.tolist() == metrics.correct_with_half_ties(np.round(np.array(gaps))).tolist()


@given(GAPS)
def test_swapping_sides_turns_accuracy_into_its_complement(gaps: list[float]) -> None:
    gap = np.array(gaps)
    there = metrics.mean(metrics.correct_with_half_ties(gap))
    back = metrics.mean(metrics.correct_with_half_ties(-gap))
    assert there is not None
    assert back == pytest.approx(1 - there, abs=1e-12)


@given(GAPS)
def test_order_does_not_change_a_mean_by_a_bit(gaps: list[float]) -> None:
    assert metrics.mean(gaps) == metrics.mean(sorted(gaps))


def test_gap_statistics_of_five_gaps() -> None:
    # mean 1.4, squares 4 * 0.36 + 5.76 = 7.2, over n - 1: 1.8
    assert metrics.gap_statistics(floats(2, 2, 2, 2, -1)) == {
        "std": pytest.approx(math.sqrt(1.8)),
        "min": -1.0,
        "q25": 2.0,
        "median": 2.0,
        "q75": 2.0,
        "max": 2.0,
    }


def test_one_gap_has_no_spread_and_no_gap_has_no_statistics() -> None:
    one = metrics.gap_statistics(floats(3))
    assert one is not None
    assert one["std"] is None
    assert metrics.gap_statistics(floats()) is None


def test_a_histogram_counts_every_gap_once() -> None:
    found = metrics.gap_histogram(floats(0, 1, 1, 2))
    assert found is not None
    assert sum(found["counts"]) == 4
    assert (found["edges"][0], found["edges"][-1]) == (0.0, 2.0)
    assert metrics.gap_histogram(floats(-1.7e308, 1.7e308)) is None
