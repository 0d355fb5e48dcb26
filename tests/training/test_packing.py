"""Items as one stream: how they are put together, cut, sorted, and their scores put back."""

import numpy as np
import pytest
import torch
from train_project import make_model

from rewardctl.training.packing import by_length, cut_by_tokens, pack, score_items


def tokens(*ids: int) -> np.ndarray:
    return np.array(ids, dtype=np.int32)


def test_tokens_lie_behind_one_another_as_int64() -> None:
    flat, lengths = pack([tokens(1, 2, 3), tokens(4)])
    assert flat.dtype == torch.int64
    assert flat.tolist() == [1, 2, 3, 4]
    assert lengths == [3, 1]


def test_latents_stay_float32_with_their_channels() -> None:
    flat, lengths = pack([np.ones((2, 3), np.float32), np.zeros((1, 3), np.float32)])
    assert flat.dtype == torch.float32
    assert flat.tolist() == [[1.0] * 3, [1.0] * 3, [0.0] * 3]
    assert lengths == [2, 1]


def test_the_longest_comes_first_and_equal_ones_keep_their_order() -> None:
    assert by_length([tokens(1), tokens(1, 2), tokens(3), tokens(1, 2, 3)]) == [3, 1, 0, 2]


@pytest.mark.parametrize(
    ("lengths", "limit", "parts"),
    [
        ([3, 2, 4], None, [[3, 2, 4]]),
        ([3, 2, 4], 5, [[3, 2], [4]]),
        ([3, 2, 4], 4, [[3], [2], [4]]),
        ([9, 1, 1], 2, [[9], [1, 1]]),  # one that is too long goes alone
        ([1, 1, 9], 2, [[1, 1], [9]]),
        ([2, 2, 2], 4, [[2, 2], [2]]),
        ([5], 1, [[5]]),
        ([], 4, []),
        ([], None, []),
    ],
)
def test_neighbours_are_cut_where_the_limit_is_reached(
    lengths: list[int], limit: int | None, parts: list[list[int]]
) -> None:
    assert [lengths[part] for part in cut_by_tokens(lengths, limit)] == parts


ITEMS = [tokens(*range(1, n + 1)) for n in (3, 7, 1, 7, 2)]


@pytest.mark.parametrize("limit", [1, 8, 14, 4096])
def test_scores_come_in_the_order_of_the_items_whatever_the_cut(limit: int) -> None:
    model = make_model(shaken=True).eval()
    alone = [model(torch.from_numpy(item)[None].long()).item() for item in ITEMS]
    assert len(set(alone)) == 4  # two items are equal
    # Another order of sums in float32 is all that differs.
    assert score_items(model, ITEMS, max_tokens=limit).tolist() == pytest.approx(alone, abs=1e-5)


def test_each_item_keeps_its_timestep() -> None:
    model = make_model(shaken=True, timestep_aware=True).eval()
    times = [0.0, 0.25, 0.5, 0.75, 1.0]
    alone = [
        model(torch.from_numpy(item)[None].long(), torch.tensor([time])).item()
        for item, time in zip(ITEMS, times, strict=True)
    ]
    assert score_items(model, ITEMS, times, max_tokens=8).tolist() == pytest.approx(alone, abs=1e-5)


def test_scores_carry_no_gradient() -> None:
    assert not score_items(make_model(shaken=True).eval(), ITEMS).requires_grad
