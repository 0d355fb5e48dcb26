"""A checkpoint: it scores as the model did, and damage of any kind is named."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from train_project import are_equal, make_model, token_rows, weights_of

from rewardctl.data.tokenizer import TextEncoder
from rewardctl.errors import DataError, RunError
from rewardctl.training.checkpoint import (
    Checkpoint,
    InputFacts,
    ScoreFacts,
    find_checkpoint,
    load_checkpoint,
    probe_inputs,
    restore_folder,
    save_checkpoint,
    verify_files,
)
from rewardctl.training.packing import score_items

FACTS = ScoreFacts(0.5, 2.0, 64, "validation")


def save(folder: Path, *, inputs: InputFacts | None = None, **network: Any) -> Checkpoint:
    model = make_model(shaken=True, **network).eval()
    checkpoint = Checkpoint(model, inputs or InputFacts("tokens"), None, {"loss": "x"}, FACTS)
    save_checkpoint(folder, checkpoint, data={"rows": 3}, metrics={"optimizer steps": 7})
    return checkpoint


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def seal_again(folder: Path) -> None:
    """Put the true sizes and hashes of all files into the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in manifest["files"]:
        content = (folder / name).read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        manifest["files"][name] = {"size": len(content), "sha256": sha256}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def change_json(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    seal_again(path.parent)


def error_of(folder: Path) -> str:
    with pytest.raises(DataError) as error:
        load_checkpoint(folder)
    return str(error.value)


# ---------------------------------------------------------------- whole


def test_its_files(tmp_path: Path) -> None:
    save(tmp_path / "c")
    assert names_in(tmp_path) == ["c"]
    assert names_in(tmp_path / "c") == [
        "README.md",
        "config.json",
        "manifest.json",
        "model.safetensors",
        "probe.json",
    ]
    manifest = json.loads((tmp_path / "c" / "manifest.json").read_text())
    assert sorted(manifest["files"]) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "probe.json",
    ]
    assert manifest["data"] == {"rows": 3}


@pytest.mark.parametrize(
    "network",
    [
        {},
        {"pooling": "cls", "qk_norm": True, "rope_theta": 50.0, "dropout": 0.5},
        {"timestep_aware": True, "pooling": "last"},
        {"vocab_size": None, "in_channels": 3},
    ],
    ids=str,
)
def test_the_model_comes_back_bit_for_bit(tmp_path: Path, network: dict[str, Any]) -> None:
    kind = "latents" if "in_channels" in network else "tokens"
    saved = save(tmp_path / "c", inputs=InputFacts(kind, None, "keep_tail"), **network)
    loaded = load_checkpoint(tmp_path / "c")
    assert are_equal(weights_of(loaded.model), weights_of(saved.model))
    assert loaded.model.network_config() == saved.model.network_config()
    assert not loaded.model.training
    assert loaded.inputs == InputFacts(kind, None, "keep_tail")
    assert loaded.scores == FACTS
    assert loaded.loss == {"loss": "x"}


def test_a_text_model_brings_its_tokenizer(tmp_path: Path) -> None:
    encoder = TextEncoder.train_bpe(["the cat sat on the mat"] * 3, 270)
    model = make_model(shaken=True, vocab_size=encoder.vocab_size)
    save_checkpoint(tmp_path / "c", Checkpoint(model, InputFacts("text", "join"), encoder))
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded.encoder is not None
    assert loaded.encoder.to_json() == encoder.to_json()
    assert loaded.inputs.template == "join"


def test_the_probe_holds_the_scores_of_eight_inputs(tmp_path: Path) -> None:
    saved = save(tmp_path / "c")
    probe = json.loads((tmp_path / "c" / "probe.json").read_text())
    items, timesteps = probe_inputs(saved, seed=probe["seed"])
    assert len(items) == len(probe["scores"]) == 8
    assert timesteps is None
    assert len(set(probe["scores"])) == 8
    assert score_items(saved.model, items).tolist() == probe["scores"]


def test_no_training_row_is_stored(tmp_path: Path) -> None:
    """Probes are drawn from a seed, not from rows: two saves of one model are the same bytes."""
    save(tmp_path / "a")
    save(tmp_path / "b")
    for name in names_in(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_saving_does_not_change_the_model(tmp_path: Path) -> None:
    model = make_model(shaken=True).train()
    model.body_dtype = torch.bfloat16
    before, state = weights_of(model), torch.get_rng_state()
    save_checkpoint(tmp_path / "c", Checkpoint(model, InputFacts("tokens")))
    assert are_equal(weights_of(model), before)
    assert model.training
    assert model.body_dtype == torch.bfloat16
    assert torch.equal(torch.get_rng_state(), state)
    load_checkpoint(tmp_path / "c")  # the probe was in float32


def test_saving_replaces_what_stands_there(tmp_path: Path) -> None:
    save(tmp_path / "c", pooling="cls")
    saved = save(tmp_path / "c")
    assert names_in(tmp_path) == ["c"]
    assert load_checkpoint(tmp_path / "c").model.network_config() == saved.model.network_config()


def test_what_a_kill_left_aside_is_no_hindrance(tmp_path: Path) -> None:
    for name in (".c.writing", ".c.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_text("half")
    save(tmp_path / "c")
    assert names_in(tmp_path) == ["c"]
    assert "half" not in names_in(tmp_path / "c")


def test_the_model_card_says_what_it_is(tmp_path: Path) -> None:
    save(tmp_path / "c")
    card = (tmp_path / "c" / "README.md").read_text()
    assert "- input: tokens, up to 12 positions (overlong: error)" in card
    assert "- network: 1 blocks, 16 wide, 2 heads, mean pooling" in card
    assert "- optimizer steps: 7" in card
    assert "reward_model: trained" in card


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file/c: the checkpoint cannot be written: Not a dir"):
        save(tmp_path / "file" / "c")


def test_a_failed_save_leaves_the_old_one(tmp_path: Path) -> None:
    save(tmp_path / "c")
    before = (tmp_path / "c" / "manifest.json").read_bytes()

    def fail(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError) as error:
        save_checkpoint(
            tmp_path / "c",
            Checkpoint(make_model(), InputFacts("tokens")),
            write_more=fail,
        )
    assert str(error.value) == (
        f"{tmp_path / 'c'}: the checkpoint cannot be written: No space left on device; make room, "
        "then go on with --resume"
    )
    assert names_in(tmp_path) == ["c"]
    assert (tmp_path / "c" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("renames", [0, 1])
def test_a_replacement_cut_at_a_rename_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    save(tmp_path / "best", pooling="cls")
    before = (tmp_path / "best" / "manifest.json").read_bytes()
    done, rename = 0, os.rename

    class Killed(BaseException):
        pass

    def cut(*paths: Any) -> None:
        nonlocal done
        if done == renames:
            raise Killed
        done += 1
        rename(*paths)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "rename", cut)
        save(tmp_path / "best")
    restore_folder(tmp_path / "best")
    assert (tmp_path / "best" / "manifest.json").read_bytes() == before
    assert load_checkpoint(tmp_path / "best").model.pooling == "cls"


# ---------------------------------------------------------------- found


def test_a_runs_folder_means_best_else_final(tmp_path: Path) -> None:
    save(tmp_path / "final")
    assert find_checkpoint(tmp_path) == tmp_path / "final"
    save(tmp_path / "best")
    assert find_checkpoint(tmp_path) == tmp_path / "best"
    assert find_checkpoint(tmp_path / "final") == tmp_path / "final"


def test_a_run_whose_best_was_cut_between_its_renames_has_a_best(tmp_path: Path) -> None:
    save(tmp_path / "final")
    save(tmp_path / "best", pooling="cls")
    os.rename(tmp_path / "best", tmp_path / ".best.old")
    assert load_checkpoint(tmp_path).model.pooling == "cls"


def test_a_folder_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    assert error_of(tmp_path / "c") == (
        f"{tmp_path / 'c'}: holds no checkpoint; expected the folder of a checkpoint (config.json, "
        "model.safetensors) or of a training run (best/ or final/)"
    )
    assert error_of(tmp_path / "none").startswith(f"{tmp_path / 'none'}: is not there; expected")


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


def test_probes_of_latents_and_timesteps_have_the_models_shape() -> None:
    model = make_model(vocab_size=None, in_channels=3, timestep_aware=True, seq_length=5)
    items, timesteps = probe_inputs(Checkpoint(model, InputFacts("latents")), seed=0)
    assert all(item.dtype == np.float32 and item.shape[1] == 3 for item in items)
    assert all(1 <= len(item) <= 5 for item in items)
    assert timesteps is not None
    assert len(timesteps) == 8
    assert all(0 <= t <= 1 for t in timesteps)


def test_scores_of_rows_are_those_of_the_saved_model(tmp_path: Path) -> None:
    saved = save(tmp_path)
    items = [item for row in token_rows(5) for item in row.items]
    loaded = load_checkpoint(tmp_path).model
    assert torch.equal(score_items(loaded, items), score_items(saved.model, items))
