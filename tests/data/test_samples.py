"""From a row of JSON to a sample."""

import copy
import json
import math
import pickle
from array import array
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from rewardctl.data.jsonl import parse_row
from rewardctl.data.media_ref import MediaRoot, parse_media, parse_video
from rewardctl.data.samples import (
    FIELDS,
    MEDIA_KINDS,
    BaseSample,
    chat_text,
    group_key,
    sample_from_row,
)
from rewardctl.errors import RowError

ROOT = MediaRoot(Path("rows"), ())


def sample(row: dict[str, Any], *, declared: frozenset[str] | None = None) -> BaseSample:
    return sample_from_row(row, default_dataset="rows", declared=declared, media_root=ROOT)


def refusal(row: dict[str, Any], *, declared: frozenset[str] | None = None) -> str:
    with pytest.raises(RowError) as caught:
        sample(row, declared=declared)
    assert caught.value.status == "bad_row"
    return str(caught.value)


# The sample itself


def test_sample_of_nothing_has_every_field_absent() -> None:
    empty = BaseSample()
    assert empty.applicable_rewards == set()
    assert empty.extra_kwargs == {}
    others = {field.name for field in fields(empty)} - {"applicable_rewards", "extra_kwargs"}
    assert {getattr(empty, name) for name in others} == {None}


def test_samples_share_no_state() -> None:
    first, second = BaseSample(), BaseSample()
    first.applicable_rewards.add("clip")
    first.extra_kwargs["seed"] = 1
    assert (second.applicable_rewards, second.extra_kwargs) == (set(), {})


def test_undeclared_attribute_is_looked_up_in_extra_kwargs() -> None:
    assert BaseSample(extra_kwargs={"seed": 7}).seed == 7


def test_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError) as caught:
        BaseSample().seed  # noqa: B018
    assert str(caught.value) == "'BaseSample' has no field 'seed', nor has its extra_kwargs"


def test_samples_are_equal_by_identity_alone() -> None:
    first, second = BaseSample(prompt="p"), BaseSample(prompt="p")
    assert first != second
    assert len({first, second}) == 2


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_samples_can_be_copied_and_pickled(duplicate: Any) -> None:
    twin = duplicate(BaseSample(prompt="p", extra_kwargs={"seed": 7}))
    assert (twin.prompt, twin.seed, twin.response) == ("p", 7, None)


@dataclass(slots=True, eq=False)
class LatentSample(BaseSample):
    reconstruction_required_fields = ("height",)
    height: int = 0


@dataclass
class PlainSample(BaseSample):
    height: int = 0


@pytest.mark.parametrize("sample_class", [LatentSample, PlainSample])
def test_subclass_may_add_fields(sample_class: type[LatentSample] | type[PlainSample]) -> None:
    tall = sample_class(prompt="p", height=512, extra_kwargs={"seed": 7})
    assert (tall.prompt, tall.height, tall.seed) == ("p", 512, 7)
    with pytest.raises(AttributeError, match="has no field 'width'"):
        tall.width  # noqa: B018


def test_class_variables_are_no_fields() -> None:
    assert BaseSample.reconstruction_required_fields == ()
    assert BaseSample._shared_fields == frozenset()
    assert LatentSample.reconstruction_required_fields == ("height",)


# Columns


def test_text_row_becomes_a_sample() -> None:
    read = sample({"prompt": "p", "response": "r", "unique_id": "g7", "id": "n1", "timestep": 0.5})
    assert (read.prompt, read.response, read.unique_id, read.id) == ("p", "r", "g7", "n1")
    assert (read.timestep, read.source, read.metadata) == (0.5, "rows", None)
    assert (read.applicable_rewards, read.extra_kwargs) == (set(), {})


def test_every_column_is_read_and_none_becomes_metadata() -> None:
    row = {
        "prompt": "p",
        "response": "r",
        "image": "a.png",
        "video": "a.mp4",
        "audio": "a.wav",
        "condition_images": ["a.png"],
        "condition_videos": ["a.mp4"],
        "tokens": [1],
        "latents": "a.safetensors",
        "timestep": 1,
        "metadata": "{}",
        "unique_id": 1,
        "id": 1,
        "dataset": "d",
        "source": "d",
    }
    assert tuple(row) == FIELDS
    read = sample(row)
    assert all(getattr(read, name) is not None for name in FIELDS if name != "dataset")
    assert read.metadata == "{}"


def test_null_of_a_known_column_counts_as_absent() -> None:
    read = sample(dict.fromkeys(FIELDS))
    assert read.source == "rows"
    assert all(getattr(read, name) is None for name in FIELDS if name not in ("dataset", "source"))


def test_empty_row_is_a_sample() -> None:
    assert sample({}).source == "rows"


def test_media_are_named_and_not_opened() -> None:
    row = {"image": "a.png", "video": ["1.png", "2.png"], "audio": {"path": "a.wav"}}
    read = sample({**row, "latents": "a.safetensors"})
    assert read.image == parse_media("a.png", ROOT)
    assert read.video == parse_video(["1.png", "2.png"], ROOT)
    assert read.audio == parse_media({"path": "a.wav"}, ROOT)
    assert read.latents == parse_media("a.safetensors", ROOT)


def test_condition_media_are_lists() -> None:
    read = sample({"condition_images": ["a.png"], "condition_videos": ["a.mp4", ["1.png"]]})
    assert read.condition_images == [parse_media("a.png", ROOT)]
    assert read.condition_videos == [parse_video("a.mp4", ROOT), parse_video(["1.png"], ROOT)]


def test_media_columns_have_a_kind_each() -> None:
    assert MEDIA_KINDS == {
        "image": "image",
        "video": "video",
        "audio": "audio",
        "condition_images": "image",
        "condition_videos": "video",
        "latents": "latents",
    }


@pytest.mark.parametrize("column", MEDIA_KINDS)
def test_media_of_a_wrong_type_name_their_column(column: str) -> None:
    message = refusal({column: 5})
    assert message.startswith(f"column '{column}': expected ")
    assert "found 5" in message


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("prompt", 5, "text or a list of chat messages, found 5"),
        ("response", {"a": 1}, "text or a list of chat messages, found {'a': 1}"),
        ("tokens", "1 2", "a list of integers, found '1 2'"),
        ("tokens", [1, True], "a list of integers, found [1, True]"),
        ("tokens", [1, 2.0], "a list of integers, found [1, 2.0]"),
        ("tokens", [3, -1], "token ids from 0 to 9223372036854775807, found -1"),
        ("tokens", [2**63], "token ids from 0 to 9223372036854775807, found 9223372036854775808"),
        ("timestep", "0.5", "a finite number, found '0.5'"),
        ("timestep", True, "a finite number, found True"),
        ("timestep", math.inf, "a finite number, found inf"),
        ("unique_id", 1.0, "text or an integer, found 1.0"),
        ("unique_id", True, "text or an integer, found True"),
        ("id", ["n1"], "text or an integer, found ['n1']"),
        ("id", False, "text or an integer, found False"),
        ("metadata", 5, "an object or JSON text, found 5"),
        ("metadata", [1], "an object or JSON text, found [1]"),
        ("dataset", 5, "the name of a dataset, found 5"),
        ("dataset", "", "the name of a dataset, found ''"),
        ("source", ["d"], "the name of a dataset, found ['d']"),
    ],
)
def test_wrong_type_names_column_and_value(column: str, value: object, expected: str) -> None:
    message = refusal({column: value})
    assert message == f"column '{column}': expected {expected}; correct it or leave it out"


def test_timestep_beyond_float_is_refused() -> None:
    assert "expected a finite number" in refusal({"timestep": 10**400})


def test_whole_timestep_becomes_a_float() -> None:
    timestep = sample({"timestep": 1}).timestep
    assert (timestep, type(timestep)) == (1.0, float)


@pytest.mark.parametrize(
    "tokens", [[], [0, 2**16 - 1], [2**16, 2**32 - 1], [7, 2**32], [2**63 - 1]]
)
def test_tokens_are_kept_as_they_are(tokens: list[int]) -> None:
    read = sample({"tokens": tokens}).tokens
    assert read is not None
    assert list(read) == tokens


def test_a_token_takes_two_bytes_until_one_needs_more() -> None:
    read = [sample({"tokens": [1, n]}).tokens for n in (2**16 - 1, 2**16, 2**32 - 1, 2**32)]
    assert [ids.itemsize for ids in read if isinstance(ids, array)] == [2, 4, 4, 8]


def test_unique_id_is_compared_as_text_and_id_is_kept() -> None:
    read = sample({"unique_id": 7, "id": 7})
    assert (read.unique_id, read.id) == ("7", 7)


@pytest.mark.parametrize("column", ["chosen", "rejected", "candidates", "chosen_image"])
def test_preference_row_is_sent_to_eval(column: str) -> None:
    assert refusal({"prompt": "p", column: ["a", "b"]}) == (
        f"expected a sample row, found a preference row (column '{column}'); use rewardctl eval"
    )


def test_lone_surrogates_pass() -> None:
    row = parse_row(rb'{"prompt": "\ud800", "unique_id": "\udfff", "kind": "\ud83d"}')
    read = sample(row)
    assert (read.prompt, read.unique_id) == ("\ud800", "\udfff")
    assert read.metadata == '{"kind": "\ud83d"}'


# Datasets


@pytest.mark.parametrize("column", ["dataset", "source"])
def test_row_names_its_dataset(column: str) -> None:
    assert sample({column: "text"}).source == "text"
    assert sample({"dataset": "text", "source": "text"}).source == "text"


def test_dataset_and_its_alias_must_agree() -> None:
    assert refusal({"dataset": "text", "source": "code"}) == (
        "'dataset' is 'text' and its alias 'source' is 'code'; keep one"
    )


def test_undeclared_dataset_is_refused_with_the_names() -> None:
    declared = frozenset({"text", "code"})
    for row in ({}, {"dataset": "rows"}):
        assert refusal(row, declared=declared) == (
            "dataset 'rows' is not declared; declared under data.datasets: code, text; "
            "name one with --data NAME=PATH or in the row"
        )
    assert sample({"dataset": "code"}, declared=declared).source == "code"


# Chats

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
ANSWER = [{"role": "assistant", "content": "Hello"}]


def test_chat_becomes_text() -> None:
    assert sample({"prompt": CHAT, "response": "Hello"}).prompt == "system: Be brief.\n\nuser: Hi"
    assert sample({"response": ANSWER}).response == "assistant: Hello"


def test_prompt_and_response_of_a_chat_join_as_the_whole_chat_reads() -> None:
    read = sample({"prompt": CHAT, "response": ANSWER})
    assert read.response == "assistant: Hello"
    assert f"{read.prompt}{read.response}" == chat_text(CHAT + ANSWER, column="prompt")


@pytest.mark.parametrize(
    "message",
    [
        "user: Hi",
        {"role": "user"},
        {"content": "Hi"},
        {"role": "user", "content": None},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": 1, "content": "Hi"},
    ],
)
def test_message_without_text_is_refused(message: object) -> None:
    assert refusal({"prompt": [*CHAT, message]}).startswith(
        "column 'prompt[2]': expected a message with text as 'role' and 'content', found "
    )


def test_empty_chat_is_refused() -> None:
    assert refusal({"response": []}) == (
        "column 'response': expected text or at least one chat message, found []; "
        "correct it or leave it out"
    )


# Metadata


def test_metadata_text_passes_byte_for_byte() -> None:
    text = '{ "b":1,\t"a" : [1.50, "\\u00e9é"] }'
    assert sample({"prompt": "p", "metadata": text}).metadata == text


@pytest.mark.parametrize("text", ["5", '"x"', "[1]", "null", "true"])
def test_metadata_text_may_be_any_json(text: str) -> None:
    assert sample({"metadata": text}).metadata == text


def test_metadata_object_is_dumped_as_it_reads() -> None:
    assert sample({"metadata": {"b": "é", "a": [1, None]}}).metadata == '{"b": "é", "a": [1, null]}'


def test_unknown_columns_are_the_metadata_in_order() -> None:
    row = {"b": 1, "prompt": "p", "a": {"c": "é"}, "t": None}
    assert sample(row).metadata == '{"b": 1, "a": {"c": "é"}, "t": null}'


@pytest.mark.parametrize("metadata", ['{"b":1}', {"b": 1}])
def test_unknown_columns_join_the_metadata(metadata: object) -> None:
    assert sample({"a": 2, "metadata": metadata}).metadata == '{"b": 1, "a": 2}'


@pytest.mark.parametrize("metadata", ['{"a": 1}', {"a": 1}])
def test_key_in_metadata_and_as_a_column_is_refused(metadata: object) -> None:
    assert refusal({"metadata": metadata, "a": 1, "b": 2}) == (
        "key(s) ['a'] stand in 'metadata' and as columns; keep one of each"
    )


@pytest.mark.parametrize("text", ["", "hello", "{'a': 1}", '{"a": NaN}', "Infinity", '{"a": 1'])
def test_metadata_text_that_is_no_json_is_refused(text: str) -> None:
    assert refusal({"metadata": text}).startswith(
        "column 'metadata': expected an object or JSON text: "
    )


@pytest.mark.parametrize("text", ["1" * 5000, "[" * 100_000, '{"a": 1, "a": 2}', "1e999"])
def test_metadata_text_is_read_as_strictly_as_a_line(text: str) -> None:
    assert refusal({"metadata": text}).startswith(
        "column 'metadata': expected an object or JSON text: "
    )


def test_columns_cannot_join_a_metadata_text_that_is_no_object() -> None:
    assert refusal({"metadata": "[1]", "a": 1}) == (
        "column 'metadata': expected the JSON text of an object, as column(s) ['a'] join it, "
        "found '[1]'; move them into it, or make it an object"
    )


def test_row_is_not_changed() -> None:
    row = {"prompt": CHAT, "response": ANSWER, "metadata": {"a": 1}, "b": 2, "source": "d"}
    before = copy.deepcopy(row)
    sample(row)
    assert row == before


KEYS = st.sampled_from(["prompt", "id", "a", "b", "ä", "metadata2"])
VALUES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "c", "prompt"]), VALUES, max_size=3)
TEXTS = st.one_of(
    OBJECTS.map(json.dumps),
    OBJECTS.map(lambda value: json.dumps(value, ensure_ascii=False, indent=1)),
    st.sampled_from(["", "x", "[]", "[1]", "NaN", "null", '"a"', "{"]),
)


def expected_metadata(row: dict[str, Any]) -> str | None:
    """The metadata rule spelled out; ValueError where the row is to be refused."""
    unknown = [(key, value) for key, value in row.items() if key not in FIELDS]
    given_metadata = row.get("metadata")
    if given_metadata is None and not unknown:
        return None
    if isinstance(given_metadata, str):
        if "NaN" in given_metadata:
            raise ValueError("no JSON")
        value = json.loads(given_metadata)
        if not unknown:
            return given_metadata
        if not isinstance(value, dict):
            raise ValueError("no object")
    else:
        value = given_metadata or {}
    joined = list(value.items()) + unknown
    if len({key for key, _ in joined}) < len(joined):
        raise ValueError("clash")
    return json.dumps(dict(joined), ensure_ascii=False)


@given(st.dictionaries(KEYS, VALUES), st.none() | TEXTS | OBJECTS, st.booleans())
def test_metadata_rule_holds_for_all_rows(
    row: dict[str, Any], metadata: object, comes_first: bool
) -> None:
    row |= {"prompt": "p", "id": 1}
    row = {"metadata": metadata, **row} if comes_first else {**row, "metadata": metadata}
    try:
        expected = expected_metadata(row)
    except ValueError:
        assert "metadata" in refusal(row)
    else:
        assert sample(row).metadata == expected


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda parts: (
        st.lists(parts, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "path", "bytes"]), parts, max_size=2)
    ),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3), ANYTHING, max_size=5))
def test_any_row_gives_a_sample_or_a_bad_row(row: dict[str, Any]) -> None:
    assert is_read_or_refused(row)


def is_read_or_refused(row: dict[str, Any]) -> bool:
    try:
        return isinstance(sample(row), BaseSample)
    except RowError as error:
        return error.status == "bad_row"


# Groups


def test_group_is_dataset_and_unique_id() -> None:
    assert group_key({"unique_id": "g7"}, default_dataset="rows") == ("rows", "g7")
    assert group_key({"unique_id": 7, "source": "d"}, default_dataset="rows") == ("d", "7")
    assert group_key({"prompt": "p"}, default_dataset="rows") == ("rows", None)
    assert group_key({"unique_id": None}, default_dataset="rows") == ("rows", None)


@pytest.mark.parametrize("row", [{"unique_id": True}, {"unique_id": 1.5}, {"dataset": 5}])
def test_group_of_a_wrong_type_is_a_bad_row(row: dict[str, Any]) -> None:
    with pytest.raises(RowError, match="expected") as caught:
        group_key(row, default_dataset="rows")
    assert caught.value.status == "bad_row"


@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=4))
def test_group_key_agrees_with_the_sample(row: dict[str, Any]) -> None:
    try:
        read = sample(row)
    except RowError:
        return
    assert group_key(row, default_dataset="rows") == (read.source, read.unique_id)
