"""Text as token ids."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rewardctl.data.tokenizer import TextEncoder, join_prompt
from rewardctl.errors import ConfigError, DataError

TEXTS = ["low lower lowest", "new newer newest", "wide wider widest", "low new wide"] * 3


@pytest.mark.parametrize(
    ("prompt", "response", "text"),
    [
        ("Is it late?", "Yes.", "Is it late?\nYes."),
        ("The sky is", " blue.", "The sky is blue."),
        ("The sky is ", "blue.", "The sky is blue."),
        ("user: hi\n\n", "assistant: ho", "user: hi\n\nassistant: ho"),
        (None, "Yes.", "Yes."),
        ("", "Yes.", "Yes."),
        ("Is it late?", "", "Is it late?\n"),
    ],
)
def test_one_newline_joins_where_there_is_no_white_space(
    prompt: str | None, response: str, text: str
) -> None:
    assert join_prompt(prompt, response) == text


@given(st.text())
def test_byte_ids_are_the_bytes_of_utf8(text: str) -> None:
    (ids,) = TextEncoder.byte_encoder().encode_batch([text])
    assert ids.tolist() == list(text.encode())
    assert ids.dtype == "int32"


def test_byte_encoder_has_256_ids() -> None:
    assert TextEncoder.byte_encoder().vocab_size == 256


def test_trained_bpe_merges_what_stands_often_in_distinct_texts() -> None:
    encoder = TextEncoder.train_bpe(TEXTS, 259)
    assert encoder.vocab_size == 259
    assert len(encoder.encode_batch(["widest"])[0]) < len("widest")


def test_bpe_of_little_text_is_smaller_than_asked_for() -> None:
    assert TextEncoder.train_bpe(["ab"], 4096).vocab_size == 256


def test_bpe_ignores_how_often_a_text_is_repeated() -> None:
    once, often = (TextEncoder.train_bpe(texts, 280) for texts in (TEXTS[:4], TEXTS))
    assert once.to_json() == often.to_json()


def test_bpe_is_the_same_in_another_process() -> None:
    code = (
        "import json, sys; from rewardctl.data.tokenizer import TextEncoder;"
        "print(TextEncoder.train_bpe(json.loads(sys.argv[1]), 280).to_json())"
    )
    argv = [sys.executable, "-c", code, json.dumps(TEXTS)]
    other = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert other.stdout.strip() == TextEncoder.train_bpe(TEXTS, 280).to_json()


def test_bpe_below_the_bytes_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        TextEncoder.train_bpe(TEXTS, 100)
    assert str(caught.value) == (
        "model.vocab_size: a byte-level BPE has at least 256 ids, got 100; "
        "raise it, or set model.tokenizer to bytes"
    )


def test_saved_encoder_encodes_alike(tmp_path: Path) -> None:
    encoder = TextEncoder.train_bpe(TEXTS, 280)
    encoder.save(tmp_path / "tokenizer.json")
    loaded = TextEncoder.load(tmp_path / "tokenizer.json")
    texts = ["lowest newest", "Grüße, 東京", ""]
    assert [ids.tolist() for ids in loaded.encode_batch(texts)] == [
        ids.tolist() for ids in encoder.encode_batch(texts)
    ]
    assert loaded.to_json() == encoder.to_json()


def test_truncation_padding_and_special_tokens_of_a_tokenizer_are_off(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({"[CLS]": 0, "a": 1, "b": 2}, unk_token="[CLS]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", 0)]
    )
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    encoder = TextEncoder.load(tmp_path / "tokenizer.json")
    assert [ids.tolist() for ids in encoder.encode_batch(["a b a b", "b"])] == [[1, 2, 1, 2], [2]]
    assert encoder.vocab_size == 3


def test_a_text_is_encoded_alike_whatever_stands_beside_it() -> None:
    encoder = TextEncoder.train_bpe(TEXTS, 280)
    batch = encoder.encode_batch(["low", "a much longer text than the others", ""])
    alone = [encoder.encode_batch([text])[0] for text in ("low", "")]
    assert (batch[0].tolist(), batch[2].tolist()) == (alone[0].tolist(), alone[1].tolist())


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(DataError, match=r"found a lone surrogate in 'a\\ud800'"):
        TextEncoder.byte_encoder().encode_batch(["a\ud800"])


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.json: no such file; expected a tokenizer\.json"):
        TextEncoder.load(tmp_path / "t.json")


@pytest.mark.parametrize("content", ["{}", "no json", "\x00"])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(DataError, match=r"t\.json: expected a tokenizer\.json"):
        TextEncoder.load(tmp_path / "t.json")
