"""Holding out a share of rows by the values of a column."""

import pytest
from hypothesis import given, strategies as st

from rewardctl.data.split import held_out
from rewardctl.errors import DataError

TENS = [f"prompt {row % 10}" for row in range(100)]  # ten rows of each of ten prompts


def test_the_share_is_met_where_the_values_allow_it() -> None:
    assert sum(held_out(TENS, 0.3, seed=0)) == 30


def test_the_seed_decides_and_repeats() -> None:
    assert held_out(TENS, 0.3, seed=0) == held_out(TENS, 0.3, seed=0)
    assert len({tuple(held_out(TENS, 0.3, seed=seed)) for seed in range(5)}) > 1


def test_the_order_of_rows_does_not_matter() -> None:
    values = TENS[37:] + TENS[:37]
    before = dict(zip(TENS, held_out(TENS, 0.3, seed=0), strict=True))
    assert dict(zip(values, held_out(values, 0.3, seed=0), strict=True)) == before


@given(
    st.lists(st.integers(0, 8), min_size=2).filter(lambda values: len(set(values)) > 1),
    st.floats(0.01, 0.99),
    st.integers(0, 3),
)
def test_values_are_whole_and_both_sides_have_rows(
    values: list[int], share: float, seed: int
) -> None:
    is_out = held_out(values, share, seed)
    out = {value for value, flag in zip(values, is_out, strict=True) if flag}
    kept = {value for value, flag in zip(values, is_out, strict=True) if not flag}
    assert out
    assert kept
    assert not out & kept


def test_values_larger_than_the_share_give_the_smallest() -> None:
    assert held_out(["a", "a", "a", "b", "b"], 0.01, seed=0) == [False] * 3 + [True] * 2


def test_a_single_value_cannot_be_split() -> None:
    with pytest.raises(DataError, match="expected rows of at least two values to split, found 1"):
        held_out(["a", "a"], 0.5, seed=0)
