"""From what a reward model returned to float64 scores: exact counts, shapes and values."""

from typing import Any

import numpy as np
import pytest
import torch

from rewardctl.errors import ContractError
from rewardctl.rewards.abc import RewardModelOutput
from rewardctl.rewards.scores import read_scores

NEXT = r"; return one number for each input, in order, of shape \(n,\) or \(n, 1\)"


@pytest.mark.parametrize(
    "returned",
    [
        [0.5, 2],
        (0.5, 2.0),
        [[0.5], [2.0]],
        [torch.tensor(0.5), torch.tensor([2.0])],
        [np.float32(0.5), np.int64(2)],
        torch.tensor([0.5, 2.0]),
        torch.tensor([[0.5], [2.0]]),
        torch.tensor([0.5, 2.0], requires_grad=True),
        torch.tensor([0.5, 2.0], dtype=torch.float64),
        np.array([0.5, 2.0]),
        np.array([[0.5], [2.0]], dtype=np.float16),
        RewardModelOutput([0.5, 2.0]),
        RewardModelOutput(torch.tensor([0.5, 2.0]), extra_info={"why": 1}),
    ],
)
def test_one_number_an_input_is_read(returned: Any) -> None:
    result = read_scores(returned, 2)
    assert result.scores == [0.5, 2.0]
    assert {type(score) for score in result.scores} == {float}
    assert result.faults == {}


def test_whole_numbers_become_floats() -> None:
    for returned in (torch.tensor([3]), np.array([3]), [3]):
        scores = read_scores(returned, 1).scores
        assert scores == [3.0]
        assert type(scores[0]) is float


@pytest.mark.parametrize(
    ("returned", "n", "counts"),
    [
        ([1.0], 3, "1 score for 3 inputs"),
        ([], 1, "0 scores for 1 input"),
        ([1.0, 2.0], 1, "2 scores for 1 input"),
        (torch.zeros(3), 2, "3 scores for 2 inputs"),
        (torch.zeros(1, 1), 2, "1 score for 2 inputs"),
        (np.zeros((0,)), 2, "0 scores for 2 inputs"),
    ],
)
def test_a_wrong_count_is_refused_with_both_counts(returned: Any, n: int, counts: str) -> None:
    with pytest.raises(ContractError, match=f"returned {counts}{NEXT}"):
        read_scores(returned, n)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(
    "returned", [1.0, 1, torch.tensor(1.0), np.array(1.0), np.float64(1.0), np.float32(1.0)]
)
def test_a_scalar_is_refused_even_for_one_input(returned: Any, n: int) -> None:
    with pytest.raises(ContractError, match=rf"returned a scalar.* for {n} inputs?{NEXT}"):
        read_scores(returned, n)


@pytest.mark.parametrize(
    ("returned", "shape"),
    [
        (torch.zeros(1, 2), r"\(1, 2\)"),
        (torch.zeros(2, 2), r"\(2, 2\)"),
        (np.zeros((2, 1, 1)), r"\(2, 1, 1\)"),
        (torch.zeros(2, 0), r"\(2, 0\)"),
    ],
)
def test_another_shape_is_refused_and_named(returned: Any, shape: str) -> None:
    with pytest.raises(ContractError, match=f"returned shape {shape} for 2 inputs{NEXT}"):
        read_scores(returned, 2)


@pytest.mark.parametrize(
    ("returned", "kind"),
    [(None, "NoneType"), ("12", "str"), ({0: 1.0}, "dict"), ({1.0, 2.0}, "set"), (b"12", "bytes")],
)
def test_another_type_is_refused_and_named(returned: Any, kind: str) -> None:
    with pytest.raises(ContractError, match=rf"returned {kind} \(.*\) for 2 inputs{NEXT}"):
        read_scores(returned, 2)


@pytest.mark.parametrize(
    "entry", ["1", None, [1.0, 2.0], [], [[1.0]], 1j, torch.zeros(2), {"score": 1.0}]
)
def test_an_entry_that_is_no_number_is_refused_with_its_place(entry: Any) -> None:
    with pytest.raises(
        ContractError, match=f"entry 1 of what it returned is .*, not a number{NEXT}"
    ):
        read_scores([1.0, entry], 2)


def test_texts_in_an_array_are_no_numbers() -> None:
    with pytest.raises(ContractError, match="entry 0 of what it returned is '1', not a number"):
        read_scores(np.array(["1", "2"]), 2)


def test_a_whole_number_over_the_range_of_floats_is_no_score() -> None:
    with pytest.raises(ContractError, match=f"entry 0 of what it returned is 1000.*{NEXT}"):
        read_scores([10**400], 1)


def test_low_precision_is_widened_exactly() -> None:
    # 1 + 2**-7 has bfloat16's last bit set, 1 + 2**-10 float16's: a rounding would show.
    for dtype, value in ((torch.bfloat16, 1 + 2**-7), (torch.float16, 1 + 2**-10)):
        assert read_scores(torch.tensor([value], dtype=dtype), 1).scores == [value]


def test_near_scores_in_bfloat16_stay_apart() -> None:
    expected = [6.0, 6.5, 7.0, 7.5, 8.0]
    assert read_scores(torch.tensor(expected, dtype=torch.bfloat16), 5).scores == expected


def test_a_float32_keeps_its_own_value() -> None:
    assert read_scores(torch.tensor([0.1]), 1).scores == [0.10000000149011612]


@pytest.mark.parametrize("kind", [list, torch.tensor, np.array])
def test_scores_that_are_not_finite_fail_alone(kind: Any) -> None:
    result = read_scores(kind([1.0, float("nan"), float("inf"), -float("inf")]), 4)
    assert result.scores == [1.0, None, None, None]
    assert {place: f.status for place, f in result.faults.items()} == dict.fromkeys(
        (1, 2, 3), "nonfinite"
    )
    assert [str(f) for f in result.faults.values()] == [
        "the model returned nan",
        "the model returned inf",
        "the model returned -inf",
    ]
