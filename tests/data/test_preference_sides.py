"""How the sides of a preference row are spelled: each format from a small file of that shape."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from rewardctl.config.training_schema import DataFile
from rewardctl.data.media_ref import MediaRef
from rewardctl.data.preferences import BadPreference, PreferenceRow, read_preferences
from rewardctl.data.tokenizer import join_prompt


def read(tmp_path: Path, *rows: Any, **file: Any) -> list[PreferenceRow | BadPreference]:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return list(read_preferences([DataFile(path=path, **file)]))


def pair(tmp_path: Path, row: Any, **file: Any) -> PreferenceRow:
    (found,) = read(tmp_path, row, **file)
    assert isinstance(found, PreferenceRow), str(found)
    return found


def refusal(tmp_path: Path, row: Any, **file: Any) -> str:
    (found,) = read(tmp_path, row, **file)
    assert isinstance(found, BadPreference)
    assert str(found) == f"pairs.jsonl:1: {found.message}"
    return found.message


def responses(row: PreferenceRow) -> list[str | None]:
    return [side.response for side in row.sides]


def joined(row: PreferenceRow) -> list[str]:
    return [join_prompt(side.prompt, side.response or "") for side in row.sides]


USER = {"role": "user", "content": "What colour is the sky?"}
BLUE = {"role": "assistant", "content": "It is blue."}
GREEN = {"role": "assistant", "content": "It is green."}


# TRL: explicit, implicit, chat, tokenized


def test_explicit_prompt_stays_as_it_is(tmp_path: Path) -> None:
    row = pair(tmp_path, {"prompt": "The sky is", "chosen": " blue.", "rejected": " green."})
    assert (row.prompt, responses(row)) == ("The sky is", [" blue.", " green."])


def test_implicit_prompt_is_what_both_texts_begin_with(tmp_path: Path) -> None:
    row = pair(tmp_path, {"chosen": "The sky is blue.", "rejected": "The sky is black."})
    assert (row.prompt, responses(row)) == ("The sky is ", ["blue.", "black."])


def test_implicit_and_explicit_prompts_join_to_the_same_texts(tmp_path: Path) -> None:
    implicit = pair(tmp_path, {"chosen": "The sky is blue.", "rejected": "The sky is black."})
    explicit = pair(tmp_path, {"prompt": "The sky is", "chosen": " blue.", "rejected": " black."})
    assert joined(implicit) == joined(explicit) == ["The sky is blue.", "The sky is black."]


def test_texts_without_a_common_word_have_no_prompt(tmp_path: Path) -> None:
    row = pair(tmp_path, {"chosen": "Yes, it is.", "rejected": "Yesterday it was."})
    assert (row.prompt, responses(row)) == (None, ["Yes, it is.", "Yesterday it was."])


def test_a_text_that_is_the_start_of_the_other_keeps_its_last_word(tmp_path: Path) -> None:
    row = pair(tmp_path, {"chosen": "one two ", "rejected": "one two three"})
    assert (row.prompt, responses(row)) == ("one ", ["two ", "two three"])


def test_equal_texts_are_a_pair_not_an_empty_one(tmp_path: Path) -> None:
    row = pair(tmp_path, {"chosen": "one two", "rejected": "one two"})
    assert (row.prompt, responses(row)) == ("one ", ["two", "two"])


def test_an_empty_prompt_says_that_there_is_none(tmp_path: Path) -> None:
    row = pair(tmp_path, {"prompt": "", "chosen": "a b", "rejected": "a c"})
    assert (row.prompt, responses(row)) == ("", ["a b", "a c"])


def test_explicit_chat_is_text_with_a_blank_line_after_the_prompt(tmp_path: Path) -> None:
    row = pair(tmp_path, {"prompt": [USER], "chosen": [BLUE], "rejected": [GREEN]})
    assert row.prompt == "user: What colour is the sky?\n\n"
    assert responses(row) == ["assistant: It is blue.", "assistant: It is green."]


def test_implicit_chat_reads_as_explicit_chat(tmp_path: Path) -> None:
    implicit = pair(tmp_path, {"chosen": [USER, BLUE], "rejected": [USER, GREEN]})
    explicit = pair(tmp_path, {"prompt": [USER], "chosen": [BLUE], "rejected": [GREEN]})
    assert (implicit.prompt, responses(implicit)) == (explicit.prompt, responses(explicit))


def test_chats_that_repeat_the_prompt_hold_it_once(tmp_path: Path) -> None:
    row = pair(tmp_path, {"prompt": [USER], "chosen": [USER, BLUE], "rejected": [USER, GREEN]})
    assert joined(row)[0] == "user: What colour is the sky?\n\nassistant: It is blue."


def test_equal_chats_keep_a_message_each(tmp_path: Path) -> None:
    row = pair(tmp_path, {"chosen": [USER, BLUE], "rejected": [USER, BLUE]})
    assert responses(row) == ["assistant: It is blue."] * 2


@pytest.mark.parametrize(
    ("chosen", "rejected"),
    [
        ("chosen", "rejected"),
        ("chosen_ids", "rejected_ids"),
        ("chosen_input_ids", "rejected_input_ids"),
        ("input_ids_chosen", "input_ids_rejected"),
        ("chosen_tokens", "rejected_tokens"),
    ],
)
@pytest.mark.parametrize("margin", [None, 0.5])
def test_tokenized_rows_of_each_version(
    tmp_path: Path, chosen: str, rejected: str, margin: float | None
) -> None:
    row = pair(tmp_path, {chosen: [3, 4, 5], rejected: [6], "margin": margin})
    assert [list(side.tokens or ()) for side in row.sides] == [[3, 4, 5], [6]]
    assert row.margin == margin


def test_prompt_tokens_apart_are_refused(tmp_path: Path) -> None:
    row = {"prompt_input_ids": [1], "chosen_input_ids": [2], "rejected_input_ids": [3]}
    assert refusal(tmp_path, row) == (
        "column 'prompt_input_ids': expected tokenized sides that begin with the prompt's tokens, "
        "found the prompt's tokens apart; join them to both sides and drop the column"
    )


def test_a_prompt_of_tokens_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, {"prompt": [1, 2], "chosen": [3], "rejected": [4]}) == (
        "column 'prompt': expected text or chat messages, found [1, 2]; "
        "put the prompt's tokens at the start of both sides"
    )


# Data sets


def test_hh_transcripts_split_at_the_last_shared_turn(tmp_path: Path) -> None:
    start = "\n\nHuman: Is it late?\n\nAssistant: It is nine.\n\nHuman: So?\n\nAssistant:"
    row = pair(tmp_path, {"chosen": f"{start} I would go.", "rejected": f"{start} I would stay."})
    assert row.prompt == f"{start} "
    assert responses(row) == ["I would go.", "I would stay."]
    assert joined(row)[1] == f"{start} I would stay."


def test_hh_transcripts_may_differ_before_the_last_turn(tmp_path: Path) -> None:
    row = pair(
        tmp_path,
        {
            "chosen": "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Bye\n\nAssistant: Bye!",
            "rejected": "\n\nHuman: Hi\n\nAssistant: Hm\n\nHuman: Bye\n\nAssistant: Ok",
        },
    )
    assert row.prompt == "\n\nHuman: Hi\n\nAssistant: "
    assert responses(row)[1] == "Hm\n\nHuman: Bye\n\nAssistant: Ok"


def test_hh_transcript_with_an_empty_last_turn_is_an_empty_side(tmp_path: Path) -> None:
    start = "\n\nHuman: Is it late?\n\nAssistant:"
    assert refusal(tmp_path, {"chosen": f"{start} Yes.", "rejected": start}) == (
        "column 'rejected': expected content, found '', an empty side; "
        "complete the row or leave it out"
    )


def test_ultrafeedback_binarized(tmp_path: Path) -> None:
    row = pair(
        tmp_path,
        {
            "prompt": USER["content"],
            "prompt_id": "f0",
            "chosen": [USER, BLUE],
            "rejected": [USER, GREEN],
            "messages": [USER, BLUE],
            "score_chosen": 8.5,
            "score_rejected": 6,
        },
    )
    assert joined(row)[0] == "user: What colour is the sky?\n\nassistant: It is blue."
    assert row.margin == 2.5
    assert row.sides[0].metadata == '{"prompt_id": "f0"}'


def test_rewardbench_keeps_its_subset_in_the_record(tmp_path: Path) -> None:
    row = pair(
        tmp_path,
        {
            "id": 30,
            "prompt": "Add 1 and 1.",
            "chosen": "2",
            "chosen_model": "a",
            "rejected": "3",
            "rejected_model": "b",
            "subset": "math-prm",
        },
    )
    assert (row.id, row.prompt, responses(row)) == (30, "Add 1 and 1.", ["2", "3"])
    assert (row.column("subset"), row.column("chosen_model")) == ("math-prm", "a")


def test_no_label_reaches_a_samples_metadata(tmp_path: Path) -> None:
    row = pair(
        tmp_path,
        {"chosen": "a", "rejected": "b", "chosen_model": "m", "margin": 1, "topic": "sky"},
    )
    assert [side.metadata for side in row.sides] == ['{"topic": "sky"}'] * 2


# Our own spellings


def test_flat_fields_are_image_pairs(tmp_path: Path) -> None:
    row = pair(tmp_path, {"prompt": "a cat", "chosen_image": "a.png", "rejected_image": "b.png"})
    images = [side.image for side in row.sides]
    assert [image.path for image in images] == ["a.png", "b.png"]
    assert images[0].root.folder == tmp_path
    assert [side.prompt for side in row.sides] == ["a cat", "a cat"]


def test_objects_name_the_fields_of_a_side(tmp_path: Path) -> None:
    row = pair(
        tmp_path,
        {"chosen": {"image": "a.png", "response": "A cat."}, "rejected": {"image": "b.png"}},
    )
    chosen, rejected = row.sides
    assert (chosen.image.path, chosen.response) == ("a.png", "A cat.")
    assert (rejected.image.path, rejected.response) == ("b.png", None)


def test_a_side_may_have_a_prompt_of_its_own(tmp_path: Path) -> None:
    row = pair(
        tmp_path,
        {
            "chosen": {"prompt": "one", "response": "a"},
            "rejected": {"prompt": "two", "response": "b"},
        },
    )
    assert [side.prompt for side in row.sides] == ["one", "two"]


def test_fields_of_the_row_belong_to_both_sides(tmp_path: Path) -> None:
    row = pair(tmp_path, {"image": "cat.png", "chosen": "A cat.", "rejected": "A dog."})
    assert [side.image.path for side in row.sides] == ["cat.png", "cat.png"]


def test_latents_by_path_of_each_kind(tmp_path: Path) -> None:
    latents = np.ones((2, 3), dtype=np.float32)
    np.save(tmp_path / "a.npy", latents)
    np.savez(tmp_path / "a.npz", latents)
    save_file({"latents": latents}, tmp_path / "a.safetensors")
    for name in ("a.npy", "a.npz", "a.safetensors"):
        row = pair(tmp_path, {"chosen": {"latents": name}, "rejected_latents": "a.npy"})
        assert isinstance(row.sides[0].latents, MediaRef)
        assert row.sides[0].latents.path == name


def test_latents_inline_are_float32_positions_by_channels(tmp_path: Path) -> None:
    row = pair(tmp_path, {"chosen": [[1, 2], [3, 4.5], [0, 0]], "rejected": [[0.5, 1]]})
    chosen = row.sides[0].latents
    assert (chosen.dtype, chosen.shape) == (np.dtype("float32"), (3, 2))
    assert chosen.tolist() == [[1.0, 2.0], [3.0, 4.5], [0.0, 0.0]]


def test_candidates_are_written_like_sides(tmp_path: Path) -> None:
    row = pair(
        tmp_path,
        {
            "prompt": [USER],
            "candidates": [[BLUE], [GREEN], [USER]],
            "ranking": [1, 2, 2],
            "direction": "lower_is_better",
        },
    )
    assert row.ranks == (-1.0, -2.0, -2.0)
    assert row.prompt == "user: What colour is the sky?\n\n"
    assert responses(row)[:2] == ["assistant: It is blue.", "assistant: It is green."]


# What cannot be


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"chosen": "", "rejected": "b"}, "column 'chosen': expected content, found '', an empty"),
        ({"chosen": "a", "rejected": " \n"}, "column 'rejected': expected content, found ' \\n'"),
        ({"chosen": [], "rejected": [1]}, "column 'chosen': expected content, found []"),
        ({"chosen_ids": [], "rejected_ids": [1]}, "column 'chosen': expected content, found []"),
        (
            {"chosen": [True, 1], "rejected": [1]},
            "chosen: column 'tokens': expected a list of integers, found [True, 1]",
        ),
        ({"chosen": [-1], "rejected": [1]}, "chosen: column 'tokens': expected token ids from 0"),
        (
            {"chosen": [[1, 2], [3]], "rejected": [[1, 2]]},
            "ragged latents: position 0 has 2 channels",
        ),
        (
            {"chosen": [[1, "x"]], "rejected": [[1, 2]]},
            "column 'chosen[0]': expected latents as one list of numbers a position",
        ),
        ({"chosen": [[1e39]], "rejected": [[1]]}, "latents beyond the range of float32"),
        ({"chosen": [[]], "rejected": [[1]]}, "column 'chosen[0]': expected latents"),
        ({"chosen": 5, "rejected": "b"}, "column 'chosen': expected text, a list of chat messages"),
        ({"chosen": ["a"], "rejected": ["b"]}, "column 'chosen': expected text, a list of chat"),
        (
            {"chosen": [{"role": "user"}], "rejected": "b"},
            "chosen: column 'response[0]': expected a message with text as 'role' and 'content'",
        ),
        (
            {"chosen": {"image": "a", "colour": 1}, "rejected": "b"},
            "column 'chosen': 'colour' is no field of a side; a side has audio, condition_images",
        ),
        (
            {"chosen": {}, "rejected": "b"},
            "column 'chosen': expected an object with at least one of",
        ),
        (
            {"chosen": "a", "chosen_response": "b", "rejected": "c"},
            "column 'chosen_response': 'response' of chosen stands twice in the row; keep one",
        ),
        (
            {"chosen": "a", "rejected": [1]},
            "expected sides of one kind, found chosen with response, rejected with tokens; "
            "a pair compares like with like",
        ),
        (
            {"response": "r", "chosen": "a", "rejected": "b"},
            "column 'response' stands in the row and in its sides; keep one",
        ),
        ({"prompt": 5, "chosen": "a", "rejected": "b"}, "column 'prompt': expected text or a list"),
        ({"chosen": "a"}, "no 'rejected', found the columns chosen; rename columns with"),
        ({"chosen": "a", "rejectd": "b"}, "did you mean 'rejectd'?"),
        ({"prompt": "p"}, "no 'chosen' or 'candidates', found the columns prompt; rename"),
        (
            {"chosen": "a", "rejected": "b", "candidates": ["a", "b"]},
            "a row has 'chosen' or 'candidates', not both; make it two rows",
        ),
        ({"candidates": ["a"], "scores": [1]}, "'candidates': expected a list of at least two"),
    ],
)
def test_a_side_that_cannot_be_read_is_named(tmp_path: Path, row: Any, message: str) -> None:
    assert message in refusal(tmp_path, row)


def test_kinds_may_not_be_mixed_in_a_file(tmp_path: Path) -> None:
    rows = read(tmp_path, {"chosen": [1], "rejected": [2]}, {"chosen": "a", "rejected": "b"})
    assert isinstance(rows[0], PreferenceRow)
    assert str(rows[1]) == (
        "pairs.jsonl:2: mixed kinds: the file's rows before this one hold tokens, "
        "this one response; put each kind in a file of its own"
    )


def test_rows_with_more_than_the_shared_kind_are_not_mixed(tmp_path: Path) -> None:
    rows = read(
        tmp_path,
        {"chosen": {"image": "a", "response": "a"}, "rejected": {"image": "b", "response": "b"}},
        {"chosen_image": "a", "rejected_image": "b"},
    )
    assert all(isinstance(row, PreferenceRow) for row in rows)
