"""Pairs, ranked samples and datasets of Python users."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rewardctl.data.preference_dataset import (
    PreferenceDataset,
    PreferencePair,
    RankedSamples,
    StepwisePreference,
    item_array,
)
from rewardctl.data.tokenizer import TextEncoder
from rewardctl.errors import DataError


def write(tmp_path: Path, *rows: Any) -> Path:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sides(dataset: PreferenceDataset) -> list[tuple[Any, Any]]:
    return [(pair.chosen, pair.rejected) for pair in dataset]


def numbered(count: int, prompts: int = 5) -> PreferenceDataset:
    return PreferenceDataset(
        PreferencePair([place + 1], [0], prompt=f"p{place % prompts}") for place in range(count)
    )


# Pairs and ranked samples


@pytest.mark.parametrize("margin", [-1, float("nan"), float("inf")])
def test_a_margin_that_cannot_be_is_refused(margin: float) -> None:
    with pytest.raises(DataError, match=r"expected a margin >= 0, found .*; swap chosen and"):
        PreferencePair([1], [2], margin=margin)


def test_a_timestep_of_thousands_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        StepwisePreference([1], [2], 500)
    assert str(caught.value) == "expected a timestep in [0, 1], found 500; divide by 1000?"


@pytest.mark.parametrize(
    ("which", "pairs"),
    [
        ("all", [("b", "a", 2.0), ("b", "c", 3.0), ("a", "c", 1.0)]),
        ("adjacent", [("b", "a", 2.0), ("a", "c", 1.0)]),
        ("best_worst", [("b", "c", 3.0)]),
    ],
)
def test_ranked_samples_make_pairs_whose_margin_is_the_difference(
    which: Any, pairs: list[Any]
) -> None:
    found = RankedSamples(["a", "b", "c"], "p", [1, 3, 0]).to_pairs(which)
    assert [(pair.chosen, pair.rejected, pair.margin) for pair in found] == pairs
    assert {pair.prompt for pair in found} == {"p"}


def test_tied_samples_make_no_pair() -> None:
    found = RankedSamples(["a", "b", "c"], None, [1, 1, 0]).to_pairs()
    assert [(pair.chosen, pair.rejected) for pair in found] == [("a", "c"), ("b", "c")]
    assert RankedSamples(["a", "b"], None, [1, 1]).to_pairs("best_worst") == []


@pytest.mark.parametrize(
    ("samples", "scores", "message"),
    [
        (["a"], [1], "at least two samples and a score for each, found 1 samples and 1 scores"),
        (["a", "b"], [1], "found 2 samples and 1 scores"),
        (["a", "b"], [1, float("nan")], r"expected finite scores, found \[1, nan\]"),
    ],
)
def test_ranked_samples_that_cannot_be_are_refused(
    samples: list[str], scores: list[float], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        RankedSamples(samples, None, scores)


def test_an_unknown_choice_of_pairs_is_refused() -> None:
    with pytest.raises(DataError, match="expected all, adjacent or best_worst, found 'some'"):
        RankedSamples(["a", "b"], None, [1, 2]).to_pairs("some")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tokens", [[1, 2], (1, 2), np.array([1, 2]), torch.tensor([1, 2]), torch.tensor([1, 2]).int()]
)
def test_tokens_of_any_form_are_int32(tokens: Any) -> None:
    array = item_array(tokens, "x")
    assert (array.dtype, array.tolist()) == (np.int32, [1, 2])


@pytest.mark.parametrize(
    "latents",
    [
        [[1, 2.5]],
        np.array([[1, 2.5]]),
        torch.tensor([[1, 2.5]], dtype=torch.bfloat16, requires_grad=True),
    ],
)
def test_latents_of_any_form_are_float32(latents: Any) -> None:
    array = item_array(latents, "x")
    assert (array.dtype, array.tolist()) == (np.float32, [[1.0, 2.5]])


@pytest.mark.parametrize(
    ("side", "message"),
    [
        ("text", "x: expected token ids or latents, found text; encode it first"),
        ([], "x: expected token ids, found none"),
        (torch.zeros(0, 3), "found float32 of shape (0, 3)"),
        (torch.zeros(3), "found float32 of shape (3,)"),
        ([[1, 2], [3]], "x: expected latents (length, channels), found ragged lists"),
        (np.array([[np.nan]]), "x: expected finite latents, found NaN or infinity"),
    ],
)
def test_a_side_that_is_neither_is_refused(side: Any, message: str) -> None:
    with pytest.raises(DataError) as caught:
        item_array(side, "x")
    assert message in str(caught.value)


# Reading


def test_pairs_of_a_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"chosen_ids": [1, 2], "rejected_ids": [3], "margin": 0.5, "level": "x", "id": 7},
        {"chosen": [4], "rejected": [5], "timestep": 0.5, "weight": 2, "preference": 0.75},
    )
    plain, stepwise = PreferenceDataset.from_jsonl(path)
    assert isinstance(plain, PreferencePair)
    assert (plain.chosen, plain.rejected, plain.prompt) == ([1, 2], [3], None)
    assert (plain.margin, plain.metadata) == (0.5, {"level": "x", "id": 7})
    assert isinstance(stepwise, StepwisePreference)
    assert (stepwise.timestep, stepwise.metadata) == (0.5, {"weight": 2, "preference": 0.75})


def test_candidates_of_a_file_become_their_pairs(tmp_path: Path) -> None:
    row = {"prompt": "p", "candidates": ["a", "b", "c"], "ranking": [1, 3, 2], "timestep": 0.25}
    dataset = PreferenceDataset.from_jsonl(write(tmp_path, row), direction="lower_is_better")
    assert sides(dataset) == [("a", "c"), ("a", "b"), ("c", "b")]
    assert [pair.margin for pair in dataset] == [1.0, 2.0, 1.0]
    assert {pair.timestep for pair in dataset if isinstance(pair, StepwisePreference)} == {0.25}


def test_latents_of_a_file_are_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((2, 3)))
    path = write(tmp_path, {"chosen_latents": "a.npy", "rejected": [[1, 2, 3]]})
    (pair,) = PreferenceDataset.from_jsonl(path)
    assert (pair.chosen.shape, pair.rejected.shape) == ((2, 3), (1, 3))


def test_sides_with_prompts_of_their_own_are_joined_to_them(tmp_path: Path) -> None:
    sides_ = ({"prompt": "one", "response": "a"}, {"prompt": "two", "response": "b"})
    path = write(tmp_path, {"chosen": sides_[0], "rejected": sides_[1]})
    (pair,) = PreferenceDataset.from_jsonl(path)
    assert (pair.chosen, pair.rejected, pair.prompt) == ("one\na", "two\nb", None)


def test_columns_are_renamed(tmp_path: Path) -> None:
    path = write(tmp_path, {"good": [1], "bad": [2]})
    columns = {"good": "chosen", "bad": "rejected"}
    assert sides(PreferenceDataset.from_jsonl(path, columns=columns)) == [([1], [2])]


def test_json_file_holds_a_list(tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    path.write_text('[{"chosen": [1], "rejected": [2]}]')
    assert sides(PreferenceDataset.from_json(path)) == [([1], [2])]


def test_rows_that_cannot_be_used_are_named_ten_of_them(tmp_path: Path) -> None:
    path = write(tmp_path, *[{"chosen": [1], "rejected": []}] * 12)
    with pytest.raises(DataError) as caught:
        PreferenceDataset.from_jsonl(path)
    lines = str(caught.value).split("\n")
    assert lines[0].startswith("pairs.jsonl:1: column 'rejected': expected content, found []")
    assert lines[10:] == ["and 2 more"]


def test_image_pairs_are_for_eval(tmp_path: Path) -> None:
    path = write(tmp_path, {"chosen_image": "a.png", "rejected_image": "b.png"})
    with pytest.raises(DataError) as caught:
        PreferenceDataset.from_jsonl(path)
    assert str(caught.value) == (
        "pairs.jsonl:1: expected sides of text, token ids or latents, found neither; "
        "pairs of images or videos are for rewardctl eval"
    )


# As a list


def test_pairs_are_added_whole_or_in_parts() -> None:
    dataset = PreferenceDataset()
    dataset.add_pair(PreferencePair([1], [2]))
    dataset.add_pair([3], [4], prompt="p", margin=2.0, metadata={"a": 1})
    dataset.add_ranked(RankedSamples([[5], [6]], None, [1, 0]))
    dataset.add_ranked([[7], [8], [9]], "q", [0, 1, 2], "best_worst")
    assert sides(dataset) == [([1], [2]), ([3], [4]), ([5], [6]), ([9], [7])]
    assert (dataset[1].prompt, dataset[1].margin, dataset[3].margin) == ("p", 2.0, 2.0)


def test_length_places_and_slices() -> None:
    dataset = numbered(4)
    assert len(dataset) == 4
    assert dataset[-1].chosen == [4]
    assert sides(dataset[1:3]) == [([2], [0]), ([3], [0])]


def test_filter_leaves_the_dataset_as_it_is() -> None:
    dataset = numbered(4)
    assert sides(dataset.filter(lambda pair: pair.chosen[0] > 2)) == [([3], [0]), ([4], [0])]
    assert len(dataset) == 4


def test_shuffle_reorders_by_the_seed() -> None:
    first, second = numbered(20), numbered(20)
    assert first.shuffle(seed=1) is first
    assert sides(first) == sides(second.shuffle(seed=1))
    assert sides(first) != sides(numbered(20))
    assert sorted(pair.chosen[0] for pair in first) == list(range(1, 21))


def test_split_keeps_the_pairs_of_a_prompt_together() -> None:
    first, second = numbered(100).split(0.8, seed=0)
    assert (len(first), len(second)) == (80, 20)
    assert not {pair.prompt for pair in first} & {pair.prompt for pair in second}


def test_split_takes_pairs_without_prompt_one_by_one() -> None:
    dataset = PreferenceDataset(PreferencePair([place], [0]) for place in range(1, 11))
    first, second = dataset.split(0.7)
    assert (len(first), len(second)) == (7, 3)


@pytest.mark.parametrize("ratio", [0, 1, 1.5])
def test_split_needs_a_share(ratio: float) -> None:
    with pytest.raises(DataError, match="expected a ratio between 0 and 1, found"):
        numbered(4).split(ratio)


# Saving


def test_saved_pairs_load_as_they_were(tmp_path: Path) -> None:
    dataset = PreferenceDataset(
        [
            PreferencePair([1, 2], torch.tensor([3]), prompt="p", margin=0.5, metadata={"a": [1]}),
            StepwisePreference(np.array([4]), [5], 0.25, metadata={"weight": 2.0, "id": "x"}),
        ]
    )
    dataset.save(tmp_path / "saved.jsonl")
    first, second = PreferenceDataset.load(tmp_path / "saved.jsonl")
    assert (first.chosen, first.rejected, first.prompt, first.margin, first.metadata) == (
        [1, 2],
        [3],
        "p",
        0.5,
        {"a": [1]},
    )
    assert isinstance(second, StepwisePreference)
    assert (second.chosen, second.timestep, second.prompt) == ([4], 0.25, None)
    assert second.metadata == {"weight": 2.0, "id": "x"}
    assert [path.name for path in tmp_path.iterdir()] == ["saved.jsonl"]


def test_saved_texts_are_not_taken_apart(tmp_path: Path) -> None:
    dataset = PreferenceDataset([PreferencePair("one two", "one three")])
    dataset.save(tmp_path / "saved.jsonl")
    (pair,) = PreferenceDataset.load(tmp_path / "saved.jsonl")
    assert (pair.chosen, pair.rejected, pair.prompt) == ("one two", "one three", None)


def test_saved_latents_are_safetensors_beside_the_file(tmp_path: Path) -> None:
    latents = torch.tensor([[0.1, 2.0], [3.0, 4.0]])
    PreferenceDataset([PreferencePair(latents, latents[:1])]).save(tmp_path / "saved.jsonl")
    (pair,) = PreferenceDataset.load(tmp_path / "saved.jsonl")
    assert np.array_equal(pair.chosen, latents.numpy())
    assert np.array_equal(pair.rejected, latents[:1].numpy())
    names = sorted(path.name for path in (tmp_path / "saved.latents").iterdir())
    assert names == ["0-chosen.safetensors", "0-rejected.safetensors"]


# For the trainer


def test_rows_for_the_trainer(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"chosen": [1, 2], "rejected": [3], "margin": 2},
        {"chosen": [4], "rejected": [5], "timestep": 1, "weight": 3, "preference": 0.5},
    )
    plain, stepwise = PreferenceDataset.from_jsonl(path).to_rows()
    assert [item.tolist() for item in plain.items] == [[1, 2], [3]]
    assert (plain.place, plain.margin, plain.timestep) == ("pairs.jsonl:1", 2.0, None)
    assert (stepwise.weight, stepwise.preference, stepwise.timestep) == (3.0, 0.5, 1.0)
    assert (stepwise.margin, stepwise.ranks) == (None, None)


def test_places_go_along_when_pairs_are_reordered(tmp_path: Path) -> None:
    path = write(tmp_path, *[{"chosen": [place], "rejected": [0]} for place in range(1, 9)])
    dataset = PreferenceDataset.from_jsonl(path).shuffle(seed=3)
    for row in dataset.to_rows():
        assert row.place == f"pairs.jsonl:{row.items[0][0]}"


def test_text_is_encoded_with_its_prompt() -> None:
    dataset = PreferenceDataset([PreferencePair("a", "b", prompt="Hi")])
    (row,) = dataset.to_rows(encoder=TextEncoder.byte_encoder())
    assert [item.tolist() for item in row.items] == [list(b"Hi\na"), list(b"Hi\nb")]


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (PreferencePair("a", "b"), "pair 0: text needs an encoder; pass one, or give token ids"),
        (PreferencePair([1], []), "pair 0: rejected: expected token ids, found none"),
        (
            PreferencePair([1], [[0.5]]),
            "pair 0: expected sides of one kind, found tokens and latents",
        ),
    ],
)
def test_pairs_that_cannot_be_trained_on_are_named(pair: PreferencePair, message: str) -> None:
    with pytest.raises(DataError) as caught:
        PreferenceDataset([pair]).to_rows()
    assert str(caught.value) == message


def test_empty_text_is_refused() -> None:
    with pytest.raises(DataError, match="pair 0: rejected: expected text, found ' '"):
        PreferenceDataset([PreferencePair("a", " ")]).to_rows(encoder=TextEncoder.byte_encoder())
