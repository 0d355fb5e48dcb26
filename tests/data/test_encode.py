"""From preference rows to numbers."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardctl.config.training_schema import DataFile
from rewardctl.data.encode import Problem, encode_rows, row_texts, token_array
from rewardctl.data.encoded import EncodedRow
from rewardctl.data.preferences import PreferenceRow, read_preferences
from rewardctl.data.tokenizer import TextEncoder
from rewardctl.errors import DataError


def rows(tmp_path: Path, *records: Any) -> list[PreferenceRow]:
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = list(read_preferences([DataFile(path=path)]))
    assert all(isinstance(row, PreferenceRow) for row in found), [str(row) for row in found]
    return [row for row in found if isinstance(row, PreferenceRow)]


def encode(
    tmp_path: Path, *records: Any, input: Any = "tokens", seq_length: int = 4, **settings: Any
) -> tuple[list[EncodedRow], list[Problem]]:
    return encode_rows(rows(tmp_path, *records), input=input, seq_length=seq_length, **settings)


def only_problem(tmp_path: Path, record: Any, **settings: Any) -> str:
    encoded, (problem,) = encode(tmp_path, record, **settings)
    assert encoded == []
    return str(problem)


def items(row: EncodedRow) -> list[list[Any]]:
    return [item.tolist() for item in row.items]


def test_labels_and_place_come_along(tmp_path: Path) -> None:
    record = {"chosen": [1], "rejected": [2, 3], "margin": 2, "preference": 0.75, "weight": 3}
    ((row,), problems) = encode(tmp_path, {**record, "timestep": 0.5})
    assert problems == []
    assert items(row) == [[1], [2, 3]]
    assert [item.dtype for item in row.items] == [np.int32, np.int32]
    labels = (row.place, row.ranks, row.margin, row.preference, row.weight, row.timestep)
    assert labels == ("p.jsonl:1", None, 2.0, 0.75, 3.0, 0.5)
    assert row.tokens == 3


def test_candidates_keep_their_order_and_ranks(tmp_path: Path) -> None:
    record = {"candidates": [[1], [2], [3]], "ranking": [2, 1, 2], "direction": "lower_is_better"}
    ((row,), _) = encode(tmp_path, record)
    assert (items(row), row.ranks) == ([[1], [2], [3]], (-2.0, -1.0, -2.0))


# Text


def test_prompt_and_response_are_encoded_as_one_text(tmp_path: Path) -> None:
    record = {"prompt": "Hi", "chosen": "a", "rejected": "b"}
    ((row,), _) = encode(tmp_path, record, input="text", encoder=TextEncoder.byte_encoder())
    assert items(row) == [list(b"Hi\na"), list(b"Hi\nb")]


def test_explicit_and_implicit_prompts_give_the_same_tokens(tmp_path: Path) -> None:
    user, blue, red = (
        {"role": role, "content": content}
        for role, content in (("user", "Sky?"), ("assistant", "Blue."), ("assistant", "Red."))
    )
    encoded, _ = encode(
        tmp_path,
        {"prompt": "The sky is", "chosen": " blue.", "rejected": " red."},
        {"chosen": "The sky is blue.", "rejected": "The sky is red."},
        {"prompt": [user], "chosen": [blue], "rejected": [red]},
        {"chosen": [user, blue], "rejected": [user, red]},
        input="text",
        encoder=TextEncoder.byte_encoder(),
        seq_length=99,
    )
    assert items(encoded[0]) == items(encoded[1])
    assert items(encoded[2]) == items(encoded[3])


def test_texts_to_train_a_tokenizer_on_are_the_encoded_ones(tmp_path: Path) -> None:
    record = {"prompt": "Hi", "chosen": "a", "rejected": "b"}
    assert list(row_texts(rows(tmp_path, record))) == ["Hi\na", "Hi\nb"]


def test_text_needs_an_encoder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="text needs an encoder; pass one, or give token ids"):
        encode(tmp_path, {"chosen": "a", "rejected": "b"}, input="text")


def test_half_a_surrogate_pair_fails_its_row_alone(tmp_path: Path) -> None:
    encoded, (problem,) = encode(
        tmp_path,
        {"prompt": "p", "chosen": "\ud800", "rejected": "b"},
        {"prompt": "p", "chosen": "a", "rejected": "b"},
        input="text",
        encoder=TextEncoder.byte_encoder(),
    )
    assert [row.place for row in encoded] == ["p.jsonl:2"]
    assert str(problem) == (
        "p.jsonl:1: error: chosen: expected Unicode text, found a lone surrogate in it"
    )


def test_text_without_a_token_is_an_error(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    encoder = TextEncoder(Tokenizer(models.BPE()))
    record = {"prompt": "", "chosen": "a", "rejected": "b"}
    assert only_problem(tmp_path, record, input="text", encoder=encoder) == (
        "p.jsonl:1: error: chosen: the tokenizer has no token for 'a'"
    )


# Tokens


def test_a_token_outside_the_vocabulary_is_named(tmp_path: Path) -> None:
    record = {"chosen": [1, 2], "rejected": [3, 32, 40]}
    assert only_problem(tmp_path, record, vocab_size=32) == (
        "p.jsonl:1: error: rejected: token 32 at position 1 is outside [0, 32); "
        "raise model.vocab_size, or correct the row"
    )


def test_the_last_token_of_the_vocabulary_is_in_it(tmp_path: Path) -> None:
    ((row,), _) = encode(tmp_path, {"chosen": [31], "rejected": [0]}, vocab_size=32)
    assert items(row) == [[31], [0]]


def test_ids_beyond_int32_are_an_error(tmp_path: Path) -> None:
    record = {"chosen": [2**31], "rejected": [0]}
    assert "chosen: expected ids from 0 to 2147483647, found [2147483648]" in only_problem(
        tmp_path, record
    )


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], "x: expected token ids, found none"),
        ([True], "x: expected integers as token ids, found [True]"),
        (np.array([-1]), "x: expected ids from 0 to 2147483647, found [-1]"),
        (
            np.array([[1]]),
            "x: expected token ids as integers (length,), found int64 of shape (1, 1)",
        ),
        (
            np.array([0.5]),
            "x: expected token ids as integers (length,), found float64 of shape (1,)",
        ),
    ],
)
def test_what_is_no_list_of_ids_is_refused(tokens: Any, message: str) -> None:
    with pytest.raises(DataError) as caught:
        token_array(tokens, "x")
    assert str(caught.value) == message


# Latents


def test_latents_by_path_and_inline(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[1, 2], [3, 4]], dtype=np.float16))
    record = {"chosen_latents": "a.npy", "rejected": [[5, 6]]}
    ((row,), _) = encode(tmp_path, record, input="latents", in_channels=2)
    assert items(row) == [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]]
    assert [item.dtype for item in row.items] == [np.float32, np.float32]


def test_latents_with_nan_are_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[np.nan, 2]]))
    record = {"chosen_latents": "a.npy", "rejected": [[5, 6]]}
    assert only_problem(tmp_path, record, input="latents") == (
        "p.jsonl:1: error: 'a.npy': holds NaN or infinity (as float32)"
    )


def test_latents_of_other_channels_or_shape_are_an_error(tmp_path: Path) -> None:
    record = {"chosen": [[5, 6]], "rejected": [[5, 6], [7, 8]]}
    assert only_problem(tmp_path, record, input="latents", in_channels=3) == (
        "p.jsonl:1: error: chosen: expected latents of 3 channels (model.in_channels), "
        "found shape (1, 2)"
    )
    np.save(tmp_path / "a.npy", np.ones((2, 2, 2)))
    record = {"chosen_latents": "a.npy", "rejected": [[5, 6]]}  # type: ignore[dict-item]
    assert only_problem(tmp_path, record, input="latents") == (
        "p.jsonl:1: error: chosen: expected latents (length, channels), found shape (2, 2, 2)"
    )


def test_a_missing_latents_file_is_an_error_of_each_row(tmp_path: Path) -> None:
    record = {"chosen_latents": "gone.npy", "rejected": [[5, 6]]}
    encoded, problems = encode(tmp_path, record, record, input="latents")
    assert encoded == []
    assert [problem.place for problem in problems] == ["p.jsonl:1", "p.jsonl:2"]
    assert "'gone.npy': no such file" in problems[1].message


# Kinds


def test_rows_of_another_kind_than_the_models_are_errors(tmp_path: Path) -> None:
    assert only_problem(tmp_path, {"prompt": "", "chosen": "a", "rejected": "b"}) == (
        "p.jsonl:1: error: chosen: expected tokens, as model.input says, found text; "
        "set model.input to what the rows hold"
    )


def test_a_path_written_as_text_is_pointed_to_latents(tmp_path: Path) -> None:
    record = {"prompt": "", "chosen": "a.npy", "rejected": "b.npy"}
    assert "a path of latents goes under chosen_latents" in only_problem(
        tmp_path, record, input="latents"
    )


# Over-length, and what is equal


LONG = {"chosen": [1, 2, 3, 4, 5], "rejected": [6]}


def test_overlong_rows_are_errors_by_default(tmp_path: Path) -> None:
    assert only_problem(tmp_path, LONG) == (
        "p.jsonl:1: error: chosen has 5 positions, over model.seq_length 4; "
        "set train.overlong to keep_head, keep_tail or drop, or raise model.seq_length"
    )


@pytest.mark.parametrize(
    ("overlong", "kept"), [("keep_head", [1, 2, 3, 4]), ("keep_tail", [2, 3, 4, 5])]
)
def test_overlong_sides_are_cut_and_noted(tmp_path: Path, overlong: str, kept: list[int]) -> None:
    ((row,), (note,)) = encode(tmp_path, LONG, overlong=overlong)
    assert items(row) == [kept, [6]]
    assert (note.severity, note.kind, note.place) == ("note", "truncated", "p.jsonl:1")


def test_truncation_acts_on_the_joined_text(tmp_path: Path) -> None:
    record = {"prompt": "abc", "chosen": "dx", "rejected": "dy"}
    ((row,), _) = encode(
        tmp_path,
        record,
        input="text",
        encoder=TextEncoder.byte_encoder(),
        overlong="keep_tail",
    )
    assert items(row) == [list(b"c\ndx"), list(b"c\ndy")]


def test_overlong_latents_are_cut_by_position(tmp_path: Path) -> None:
    record = {"chosen": [[1], [2], [3]], "rejected": [[4]]}
    ((row,), _) = encode(tmp_path, record, input="latents", seq_length=2, overlong="keep_tail")
    assert items(row) == [[[2.0], [3.0]], [[4.0]]]


def test_overlong_rows_are_dropped_by_policy(tmp_path: Path) -> None:
    encoded, (problem,) = encode(tmp_path, LONG, overlong="drop")
    assert encoded == []
    assert (problem.severity, problem.kind) == ("left_out", "over_length")


def test_equal_sides_are_left_out_by_line(tmp_path: Path) -> None:
    encoded, (problem,) = encode(
        tmp_path, {"chosen": [1], "rejected": [2]}, {"chosen": [3, 4], "rejected": [3, 4]}
    )
    assert len(encoded) == 1
    assert str(problem) == "p.jsonl:2: left out: chosen and rejected are equal"


def test_sides_equal_after_the_cut_are_left_out(tmp_path: Path) -> None:
    record = {"chosen": [5, 5, 5, 5, 9], "rejected": [5, 5, 5, 5, 8]}
    assert only_problem(tmp_path, record, overlong="keep_head") == (
        "p.jsonl:1: left out: chosen and rejected are equal in the 4 positions kept (keep_head)"
    )
    ((row,), _) = encode(tmp_path, record, overlong="keep_tail")
    assert items(row) == [[5, 5, 5, 9], [5, 5, 5, 8]]


def test_candidates_are_left_out_only_when_all_are_equal(tmp_path: Path) -> None:
    ranked = {"scores": [1, 2, 3], "direction": "higher_is_better"}
    encoded, problems = encode(
        tmp_path,
        {"candidates": [[1], [1], [2]], **ranked},
        {"candidates": [[1], [1], [1]], **ranked},
    )
    assert [row.place for row in encoded] == ["p.jsonl:1"]
    assert Counter(problem.kind for problem in problems) == {"identical": 1}
