"""A checkpoint: it scores as the model did, and damage of any kind is named."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from saved_checkpoint import FACTS, error_of, names_in, save
from train_project import are_equal, make_model, token_rows, weights_of

from rewardctl.data.tokenizer import TextEncoder
from rewardctl.errors import RunError
from rewardctl.training.checkpoint import (
    Checkpoint,
    InputFacts,
    find_checkpoint,
    load_checkpoint,
    probe_inputs,
    restore_folder,
    save_checkpoint,
)
from rewardctl.training.packing import score_items

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

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", cut)
        with pytest.raises(Killed):
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
