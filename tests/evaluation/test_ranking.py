"""Agreement of rankings, against values worked out by hand and plain definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rewardctl.evaluation import ranking
from rewardctl.evaluation.metrics import Floats

SMALL = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=12)


def floats(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def plain_tau_b(first: list[int], second: list[int]) -> float | None:
    """Kendall's definition, pair by pair."""
    agree = ties_first = ties_second = 0
    pairs = [(i, j) for i in range(len(first)) for j in range(i)]
    for i, j in pairs:
        product = (first[i] - first[j]) * (second[i] - second[j])
        agree += (product > 0) - (product < 0)
        ties_first += first[i] == first[j]
        ties_second += second[i] == second[j]
    below = (len(pairs) - ties_first) * (len(pairs) - ties_second)
    return agree / math.sqrt(below) if below else None


def plain_spearman(first: list[int], second: list[int]) -> float | None:
    """Pearson's correlation of ranks that ties share."""

    def ranks(values: list[int]) -> list[float]:
        return [sum(v < x for v in values) + (values.count(x) + 1) / 2 for x in values]

    a, b = ranks(first), ranks(second)
    center = (len(a) + 1) / 2
    above = sum((x - center) * (y - center) for x, y in zip(a, b, strict=True))
    below = sum((x - center) ** 2 for x in a) * sum((y - center) ** 2 for y in b)
    return above / math.sqrt(below) if below else None


def test_tau_b_of_one_swap_among_four() -> None:
    # 5 pairs agree, 1 does not: (5 - 1) / 6
    assert ranking.kendall_tau_b(floats(1, 2, 3, 4), floats(1, 2, 4, 3)) == pytest.approx(2 / 3)


def test_tau_b_with_a_tie() -> None:
    # Of three pairs, one is tied in the first: 2 / sqrt(2 * 3)
    assert ranking.kendall_tau_b(floats(1, 1, 2), floats(1, 2, 3)) == pytest.approx(2 / 6**0.5)


def test_spearman_of_one_swap_among_four() -> None:
    # 1 - 6 * (1 + 1) / (4 * 15)
    assert ranking.spearman(floats(1, 2, 3, 4), floats(1, 2, 4, 3)) == pytest.approx(0.8)


@pytest.mark.parametrize("measure", [ranking.kendall_tau_b, ranking.spearman])
def test_equal_scores_leave_a_correlation_undefined(measure: object) -> None:
    assert measure(floats(1, 1, 1), floats(1, 2, 3)) is None  # type: ignore[operator]
    assert measure(floats(1, 2, 3), floats(2, 2, 2)) is None  # type: ignore[operator]


@given(SMALL)
def test_both_agree_with_their_definitions(pairs: list[tuple[int, int]]) -> None:
    first, second = [list(values) for values in zip(*pairs, strict=True)]
    for measure, plain in (
        (ranking.kendall_tau_b, plain_tau_b),
        (ranking.spearman, plain_spearman),
    ):
        expected = plain(first, second)
        found = measure(np.array(first, float), np.array(second, float))
        assert found == (None if expected is None else pytest.approx(expected, abs=1e-12))


def test_tau_b_of_more_than_one_block_is_that_of_a_reversed_order() -> None:
    many = np.arange(1300.0)
    assert ranking.kendall_tau_b(many, many[::-1].copy()) == -1.0


def test_best_of_n_is_the_chance_of_the_best_among_the_highest_scores() -> None:
    labels = floats(3, 1, 3)
    assert ranking.best_of_n(floats(1, 0, 0), labels) == 1.0
    assert ranking.best_of_n(floats(0, 1, 0), labels) == 0.0
    assert ranking.best_of_n(floats(1, 1, 0), labels) == 0.5
    assert ranking.best_of_n_by_chance(labels) == pytest.approx(2 / 3)


def test_scores_whose_difference_overflows_are_compared() -> None:
    assert ranking.kendall_tau_b(floats(-1.7e308, 1.7e308), floats(0, 1)) == 1.0
