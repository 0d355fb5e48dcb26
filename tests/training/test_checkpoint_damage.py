"""A checkpoint that was damaged or changed: what is wrong is named, and nothing is scored."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from saved_checkpoint import change_json, error_of, save, seal_again
from train_project import make_model

from rewardctl.data.tokenizer import TextEncoder
from rewardctl.training.checkpoint import (
    Checkpoint,
    InputFacts,
    load_checkpoint,
    save_checkpoint,
    verify_files,
)

# ---------------------------------------------------------------- damaged

FILES = ["README.md", "config.json", "model.safetensors", "probe.json"]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    save(tmp_path)
    (tmp_path / name).unlink()
    if name == "config.json":  # what a checkpoint is known by
        assert "holds no checkpoint" in error_of(tmp_path)
    else:
        assert error_of(tmp_path) == (
            f"{tmp_path / name}: is missing; the checkpoint is damaged: copy it again, or delete "
            "it to use the one before"
        )


@pytest.mark.parametrize("name", FILES)
def test_a_cut_file_is_named(tmp_path: Path, name: str) -> None:
    save(tmp_path)
    size = (tmp_path / name).stat().st_size
    os.truncate(tmp_path / name, size - 1)
    expected = (
        f"{tmp_path / name}: has {size - 1} bytes, expected {size}; the checkpoint is damaged"
    )
    assert error_of(tmp_path).startswith(expected)


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_named(tmp_path: Path, name: str) -> None:
    save(tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / name).write_bytes(content)
    expected = f"{tmp_path / name}: was changed: its sha256 is not the manifest's"
    assert error_of(tmp_path).startswith(expected)


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"\xff\xfe"])
def test_a_damaged_manifest_is_named(tmp_path: Path, content: bytes | None) -> None:
    save(tmp_path)
    (tmp_path / "manifest.json").unlink()
    if content is not None:
        (tmp_path / "manifest.json").write_bytes(content)
    assert error_of(tmp_path).startswith(f"{tmp_path / 'manifest.json'}: ")


def test_a_copy_elsewhere_is_whole(tmp_path: Path) -> None:
    save(tmp_path / "c")
    os.rename(tmp_path / "c", tmp_path / "moved")
    verify_files(tmp_path / "moved")
    load_checkpoint(tmp_path / "moved")


# ---------------------------------------------------------------- changed, with fitting hashes


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    seal_again(folder)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda t: t.pop("head.3.weight"), "missing tensors: head.3.weight;"),
        (lambda t: t.update(extra=torch.zeros(1)), "unknown tensors: extra;"),
        (
            lambda t: t.update({"head.3.weight": torch.zeros(1, 9)}),
            "tensors of another shape: head.3.weight (1, 9) for (1, 8);",
        ),
        (
            lambda t: t.update({"head.9.weight": t.pop("head.3.weight")}),
            "missing tensors: head.3.weight; unknown tensors: head.9.weight;",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], Any], problem: str
) -> None:
    save(tmp_path)
    change_tensors(tmp_path, change)
    assert error_of(tmp_path) == (
        f"{tmp_path / 'model.safetensors'}: {problem} the weights do not fit config.json. A new "
        "scoring head is started only by model.init_head: fresh"
    )


def test_many_tensors_are_named_up_to_eight(tmp_path: Path) -> None:
    save(tmp_path)
    change_tensors(tmp_path, lambda t: t.clear() or t.update(x=torch.zeros(1)))
    message = error_of(tmp_path)
    assert message.count("blocks.0") <= 8
    assert ", …; unknown tensors: x;" in message


def test_weights_that_are_no_safetensors_are_named(tmp_path: Path) -> None:
    save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"PK\x03\x04 a pickle in a zip")
    seal_again(tmp_path)
    assert error_of(tmp_path).startswith(
        f"{tmp_path / 'model.safetensors'}: cannot read the weights: "
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [("rope_theta", 10.0), ("pooling", "last"), ("num_heads", 1), ("seq_length", 3)],
)
def test_a_changed_network_is_caught_by_the_probe(tmp_path: Path, key: str, value: Any) -> None:
    save(tmp_path)
    change_json(tmp_path / "config.json", lambda c: c["network"].update({key: value}))
    message = error_of(tmp_path)
    assert message.startswith(f"{tmp_path}: probe ")
    assert message.endswith(
        "when the checkpoint was written; its config, tokenizer or weights were changed"
    )


def test_changed_weights_are_caught_by_the_probe(tmp_path: Path) -> None:
    save(tmp_path)
    change_tensors(tmp_path, lambda t: t["head.3.bias"].add_(0.01))
    assert "probe 0 scores" in error_of(tmp_path)


def test_weights_that_are_not_numbers_are_caught_by_the_probe(tmp_path: Path) -> None:
    save(tmp_path)
    change_tensors(tmp_path, lambda t: t["head.3.bias"].fill_(float("nan")))
    assert "probe 0 scores nan" in error_of(tmp_path)


def test_another_tokenizer_is_caught_by_the_probe(tmp_path: Path) -> None:
    encoder = TextEncoder.byte_encoder()
    model = make_model(shaken=True, vocab_size=encoder.vocab_size)
    save_checkpoint(tmp_path, Checkpoint(model, InputFacts("text"), encoder))

    def swap(tokenizer: dict[str, Any]) -> None:
        vocab = tokenizer["model"]["vocab"]
        vocab["a"], vocab["e"] = vocab["e"], vocab["a"]

    change_json(tmp_path / "tokenizer.json", swap)
    assert f"{tmp_path}: probe " in error_of(tmp_path)


def test_a_network_that_cannot_be_is_an_error_in_words(tmp_path: Path) -> None:
    save(tmp_path)
    change_json(tmp_path / "config.json", lambda c: c["network"].update(layers=3))
    assert error_of(tmp_path).startswith(f"{tmp_path / 'config.json'}: ")


def test_a_config_without_a_network_is_an_error_in_words(tmp_path: Path) -> None:
    save(tmp_path)
    change_json(tmp_path / "config.json", lambda c: c.pop("network"))
    assert error_of(tmp_path).startswith(f"{tmp_path / 'config.json'}: ")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    save(tmp_path)
    change_json(tmp_path / "config.json", lambda c: c.update(format_version=2))
    assert error_of(tmp_path) == (
        f"{tmp_path}/config.json: format_version is 2, this version reads 1; use the version of "
        "rewardctl that wrote it"
    )
