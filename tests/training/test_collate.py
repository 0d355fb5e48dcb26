"""Pairs as padded batches."""

import pytest
import torch

from rewardctl.data.preference_dataset import PreferencePair, StepwisePreference
from rewardctl.errors import DataError
from rewardctl.training.collate import collate_preference_pairs


def test_tokens_are_padded_at_the_end_and_masked() -> None:
    batch = collate_preference_pairs(
        [PreferencePair([1, 2, 3], [4]), PreferencePair([5], torch.tensor([6, 7]))]
    )
    assert set(batch) == {"chosen", "rejected", "chosen_mask", "rejected_mask", "margin"}
    assert batch["chosen"].tolist() == [[1, 2, 3], [5, 0, 0]]
    assert batch["rejected"].tolist() == [[4, 0], [6, 7]]
    assert batch["chosen_mask"].tolist() == [[True, True, True], [True, False, False]]
    assert batch["rejected_mask"].tolist() == [[True, False], [True, True]]
    assert (batch["chosen"].dtype, batch["chosen_mask"].dtype) == (torch.int64, torch.bool)


def test_latents_are_padded_float32() -> None:
    batch = collate_preference_pairs(
        [PreferencePair([[1.0, 2.0]], [[0.0, 0.0]]), PreferencePair(torch.ones(2, 2), [[3, 4.0]])]
    )
    assert batch["chosen"].tolist() == [[[1, 2], [0, 0]], [[1, 1], [1, 1]]]
    assert batch["chosen"].dtype == torch.float32
    assert batch["chosen_mask"].tolist() == [[True, False], [True, True]]


def test_masks_are_there_without_padding_too() -> None:
    batch = collate_preference_pairs([PreferencePair([1], [2])])
    assert (batch["chosen_mask"].tolist(), batch["rejected_mask"].tolist()) == ([[True]], [[True]])


def test_a_missing_margin_is_the_neutral_one_in_its_place() -> None:
    batch = collate_preference_pairs([PreferencePair([1], [2], margin=m) for m in (0.5, None, 2.0)])
    assert batch["margin"].tolist() == [0.5, 1.0, 2.0]
    assert (batch["margin"].dtype, batch["margin"].shape) == (torch.float32, (3,))


def test_timesteps_are_t() -> None:
    batch = collate_preference_pairs([StepwisePreference([1], [2], t) for t in (0.25, 1)])
    assert batch["t"].tolist() == [0.25, 1.0]
    assert batch["t"].dtype == torch.float32


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "expected pairs to collate, found none"),
        (
            [PreferencePair([1], [2]), StepwisePreference([1], [2], 0.5)],
            "expected a timestep in all 2 pairs or in none, found 1; "
            "make batches of StepwisePreference apart",
        ),
        (
            [PreferencePair([[1.0]], [[1.0]]), PreferencePair([[1.0, 2.0]], [[1.0]])],
            "chosen: expected items of one kind and number of channels, found (1, 1), (1, 2)",
        ),
        ([PreferencePair([1], [])], "pair 0: rejected: expected token ids, found none"),
        (
            [PreferencePair("a", "b")],
            "pair 0: chosen: expected token ids or latents, found text; encode it first",
        ),
    ],
)
def test_what_makes_no_batch_is_refused(pairs: list[PreferencePair], message: str) -> None:
    with pytest.raises(DataError) as caught:
        collate_preference_pairs(pairs)
    assert str(caught.value) == message
