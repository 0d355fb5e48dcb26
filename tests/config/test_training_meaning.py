"""What the keys of `model:` and `train:` mean together."""

from collections.abc import Callable

import pytest

from rewardctl.config.findings import Finding

Check = Callable[..., list[Finding]]


def messages(check: Check, *, model: str = "", train: str = "") -> list[str]:
    text = f"model: {{{model}}}\n" + (f"train: {{data: x.jsonl, {train}}}\n" if train else "")
    return [f"{f.code} {f.message}" for f in check(text)]


@pytest.mark.parametrize(
    "model",
    [
        "",
        "input: text, vocab_size: 100",
        "input: text, tokenizer: bytes",
        "input: text, tokenizer: my/tokenizer.json",
        "input: tokens, vocab_size: 32",
        "input: latents, in_channels: 4",
        "size: nano, seq_length: 64, pooling: last, timestep_aware: true",
        "hidden_size: 32, depth: 1, num_heads: 2",
        "init_from: runs/a, init_head: fresh",
        "input: tokens, init_from: runs/a",
    ],
)
def test_models_that_can_be_built(check: Check, model: str) -> None:
    assert messages(check, model=model, train="epochs: 1") == []


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("input: text, in_channels: 4", "RC314 model.in_channels belongs to input: latents"),
        ("input: tokens, vocab_size: 9, in_channels: 4", "RC314 model.in_channels belongs to"),
        ("input: latents, in_channels: 4, vocab_size: 9", "RC314 model.vocab_size belongs to"),
        ("input: tokens, vocab_size: 9, tokenizer: bpe", "RC314 model.tokenizer belongs to"),
        ("tokenizer: bytes, vocab_size: 9", "RC314 model.vocab_size is the size of a trained BPE"),
        ("input: tokens", "RC314 model.input: tokens needs model.vocab_size"),
        ("input: latents", "RC314 model.input: latents needs model.in_channels"),
        ("size: base, depth: 3", "RC315 model.depth together with model.size: base"),
        ("depth: 3", "RC315 model.depth without hidden_size and num_heads"),
        (
            "hidden_size: 30, depth: 1, num_heads: 4",
            "RC315 model.hidden_size: 30 over num_heads: 4",
        ),
        ("hidden_size: 9, depth: 1, num_heads: 3", "RC315 model.hidden_size: 9 over num_heads: 3"),
        ("init_head: fresh", "RC317 model.init_head without model.init_from"),
        ("init_from_rope: half", "RC317 model.init_from_rope without model.init_from"),
    ],
)
def test_models_that_cannot_be_meant(check: Check, model: str, message: str) -> None:
    found = messages(check, model=model, train="epochs: 1")
    assert len(found) == 1
    assert found[0].startswith(message)


def test_a_model_for_eval_alone_needs_no_sizes(check: Check) -> None:
    assert messages(check, model="input: tokens") == []


@pytest.mark.parametrize(
    "train",
    [
        "loss: bradley_terry, margin_mode: subtract, label_smoothing: 0.1, kwise_pairs: adjacent",
        "loss: rao_kupper, tie_strength: 3, center_coefficient: 0.01",
        "loss: plackett_luce, label_smoothing: 0",
        "max_steps: 10",
        "epochs: 1",
        "validation: {split: 0.1}, early_stopping: {patience: 2}",
    ],
)
def test_runs_that_can_be_made(check: Check, train: str) -> None:
    assert messages(check, train=train) == []


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("loss: rao_kupper, label_smoothing: 0.1", "RC316 train.label_smoothing is not for"),
        ("loss: plackett_luce, label_smoothing: 0.1", "RC316 train.label_smoothing is not for"),
        ("loss: plackett_luce, kwise_pairs: all", "RC316 train.kwise_pairs is not for"),
        ("loss: rao_kupper, margin_mode: scale", "RC316 train.margin_mode is not for"),
        ("tie_strength: 2", "RC316 train.tie_strength is not for train.loss: bradley_terry"),
        ("epochs: 1, max_steps: 2", "RC316 train.epochs: 1 together with train.max_steps: 2"),
        ("early_stopping: {}", "RC317 train.early_stopping without train.validation"),
    ],
)
def test_runs_that_contradict_themselves(check: Check, train: str, message: str) -> None:
    found = messages(check, train=train)
    assert len(found) == 1
    assert found[0].startswith(message)
