"""The weighted aggregate of one row, by hand and against exact fractions."""

from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

from rewardctl.config.schema import ScoreConfig
from rewardctl.rewards.aggregate import aggregate

SUM = ScoreConfig()
MEAN = ScoreConfig(aggregate="weighted_mean")
SUM_OF_REST = ScoreConfig(on_failure="renormalize")
MEAN_OF_REST = ScoreConfig(aggregate="weighted_mean", on_failure="renormalize")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (SUM, (2.0 * 0.5 - 1.0 * 2.0, 2.5)),
        (SUM_OF_REST, (2.0 * 0.5 - 1.0 * 2.0, 2.5)),
        (MEAN, (-1.0 / 2.5, 2.5)),
        (MEAN_OF_REST, (-1.0 / 2.5, 2.5)),
    ],
)
def test_all_scores_enter_with_their_weights(
    rule: ScoreConfig, expected: tuple[float, float]
) -> None:
    assert aggregate([2.0, -1.0], [0.5, 2.0], rule) == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (SUM, (None, 0.0)),
        (MEAN, (None, 0.0)),
        # Σ_ok w·s = 3·1 = 3; Σ_app w = 4; Σ_ok w = 1.
        (SUM_OF_REST, (12.0, 1.0)),
        (MEAN_OF_REST, (3.0, 1.0)),
    ],
)
def test_a_failed_stream_takes_the_aggregate_or_its_weight_goes_to_the_others(
    rule: ScoreConfig, expected: tuple[float | None, float]
) -> None:
    assert aggregate([3.0, None], [1.0, 3.0], rule) == expected


@pytest.mark.parametrize("rule", [SUM, MEAN, SUM_OF_REST, MEAN_OF_REST])
def test_nothing_applicable_and_nothing_scored_are_null(rule: ScoreConfig) -> None:
    assert aggregate([], [], rule) == (None, 0.0)
    assert aggregate([None, None], [1.0, 1.0], rule) == (None, 0.0)


def test_a_score_of_zero_enters() -> None:
    assert aggregate([0.0], [1.0], SUM) == (0.0, 1.0)
    assert aggregate([0.0, 1.0], [1.0, 1.0], MEAN) == (0.5, 2.0)


def test_a_negative_weight_is_legal_in_a_sum() -> None:
    assert aggregate([2.0, 3.0], [1.0, -1.0], SUM) == (-1.0, 0.0)


def test_a_weight_of_zero_alone_is_a_sum_but_no_mean() -> None:
    assert aggregate([5.0], [0.0], SUM) == (0.0, 0.0)
    assert aggregate([5.0], [0.0], MEAN) == (None, 0.0)


@pytest.mark.parametrize("rule", [SUM_OF_REST, MEAN_OF_REST])
def test_a_rest_of_no_weight_is_null(rule: ScoreConfig) -> None:
    assert aggregate([5.0, None], [0.0, 1.0], rule) == (None, 0.0)


def test_sums_lose_nothing_on_the_way() -> None:
    # Added one by one, 1.0 would be lost beside 1e100.
    assert aggregate([1e100, 1.0, -1e100], [1.0, 1.0, 1.0], SUM) == (1.0, 3.0)
    assert aggregate([0.1] * 10, [1.0] * 10, SUM)[0] == 1.0


@pytest.mark.parametrize(
    ("scores", "weights"),
    [
        ([1e308, 1e308], [1.0, 1.0]),
        ([1e308], [10.0]),
        ([1e308, -1e308], [10.0, 10.0]),
    ],
)
@pytest.mark.parametrize("rule", [SUM, MEAN])
def test_a_sum_over_the_range_is_null(
    scores: list[float], weights: list[float], rule: ScoreConfig
) -> None:
    assert aggregate(scores, weights, rule)[0] is None


dyadic = st.integers(-1000, 1000).map(lambda n: n / 16)
weight = st.integers(0, 64).map(lambda n: n / 16)
rules = st.sampled_from([SUM, MEAN, SUM_OF_REST, MEAN_OF_REST])


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.none() | dyadic, weight), max_size=6), rules)
def test_the_aggregate_is_that_of_exact_fractions(
    cells: list[tuple[float | None, float]], rule: ScoreConfig
) -> None:
    """Multiples of 1/16 are exact in float64, so that only the quotient may be rounded."""
    ok = [(Fraction(s), Fraction(w)) for s, w in cells if s is not None]
    total, ok_weight = sum(s * w for s, w in ok), sum(w for _, w in ok)
    all_weight = sum(Fraction(w) for _, w in cells)
    expected: tuple[float | None, float] = (None, 0.0)
    if ok and (len(ok) == len(cells) or rule.on_failure == "renormalize"):
        value: Fraction | None = Fraction(total)
        if rule.aggregate == "weighted_mean":
            value = total / ok_weight if ok_weight else None
        elif len(ok) < len(cells):
            value = total * all_weight / ok_weight if ok_weight else None
        expected = (None if value is None else float(value), float(ok_weight))
    found = aggregate([s for s, _ in cells], [w for _, w in cells], rule)
    assert found == expected
