"""Validation of a run: its mean, averaged weights, early stopping, and which model is kept."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from train_project import (
    are_equal,
    make_model,
    make_trainer,
    single_losses,
    token_rows,
    weights_of,
)

from rewardctl.data.encoded import EncodedRow
from rewardctl.errors import DataError
from rewardctl.training import RewardModelTrainer
from rewardctl.training.checkpoint import load_checkpoint
from rewardctl.training.settings import EarlyStop, TrainSettings

LN2 = math.log(2)


# ---------------------------------------------------------------- validation


def test_validation_is_a_mean_over_pairs_whatever_the_batch_size() -> None:
    rows = token_rows(7, seed=1)
    for batch_size in (1, 2, 3, 100):
        model = make_model(shaken=True)
        expected = sum(single_losses(model, rows)) / 7
        trainer = make_trainer(token_rows(4), rows, model=model, batch_size=batch_size)
        assert trainer.validate()["loss"] == pytest.approx(expected, rel=1e-5)


def test_validation_does_not_change_training() -> None:
    found = []
    for val_rows in (None, token_rows(5, seed=1)):
        model = make_model(dropout=0.5)
        make_trainer(
            token_rows(8), val_rows, model=model, epochs=4, eval_every=1, ema_decay=0.9
        ).train()
        found.append(weights_of(model))
    assert are_equal(*found)


def test_without_a_validation_set_there_are_no_figures() -> None:
    trainer = make_trainer(token_rows(4), epochs=1)
    assert trainer.validate() == {}
    history = trainer.train()
    assert (history["val_loss"], history["val_accuracy"]) == ([], [])


def test_validation_leaves_the_mode_as_it_was() -> None:
    trainer = make_trainer(token_rows(4), token_rows(2))
    for training in (True, False):
        trainer.model.train(training)
        trainer.validate()
        assert trainer.model.training is training


def test_a_validation_row_that_does_not_fit_fails_before_the_first_step() -> None:
    foreign = EncodedRow("v.jsonl:3", (np.int32([1, 99]), np.int32([2])))
    trainer = make_trainer(token_rows(4), [foreign], epochs=1)
    with pytest.raises(DataError, match="token 99"):
        trainer.train()
    assert trainer.progress.step == 0


# ---------------------------------------------------------------- averaged weights


def test_averaged_weights_are_validated_and_saved(tmp_path: Path) -> None:
    held = token_rows(6, seed=1)
    model = make_model()
    trainer = make_trainer(
        token_rows(12), held, model=model, epochs=4, ema_decay=0.9, output_dir=tmp_path
    )
    history = trainer.train()
    for folder in ("best", "final", "checkpoint-000012"):
        saved = load_file(tmp_path / folder / "model.safetensors")
        assert are_equal(saved, dict(trainer.average.weights or {}))
        assert not are_equal(saved, weights_of(model))
    averaged = load_checkpoint(tmp_path / "best").model
    assert history["val_loss"] == pytest.approx([sum(single_losses(averaged, held)) / 6], rel=1e-5)
    assert trainer.validate()["loss"] == history["val_loss"][-1]
    assert sum(single_losses(model, held)) / 6 != pytest.approx(history["val_loss"][-1], rel=1e-3)


# ---------------------------------------------------------------- early stopping and best/


class Scripted(RewardModelTrainer):
    """Validation says what the test says."""

    values: Iterator[float]

    def validate(self) -> dict[str, float]:
        value = next(self.values)
        return {"loss": value, "accuracy": value}


def scripted(
    values: list[float], output_dir: Path | None = None, **early: Any
) -> RewardModelTrainer:
    trainer = Scripted(
        make_model(),
        token_rows(4),
        token_rows(2, seed=1),
        batch_size=4,
        device="cpu",
        output_dir=output_dir,
        settings=TrainSettings(
            epochs=len(values), eval_every=1, log_every=1, early_stopping=EarlyStop(**early)
        ),
    )
    trainer.values = iter(values)
    trainer.train()
    return trainer


def test_training_stops_after_patience_evaluations_without_a_gain() -> None:
    trainer = scripted([0.7, 0.5, 0.6, 0.5, 0.4, 0.3], patience=2)
    assert trainer.progress.step == 4
    assert trainer.progress.stopped_early
    assert trainer.progress.history["val_loss"] == [0.7, 0.5, 0.6, 0.5]


def test_a_gain_starts_patience_anew() -> None:
    trainer = scripted([0.7, 0.8, 0.6, 0.7, 0.5, 0.6], patience=2)
    assert trainer.progress.step == 6
    assert not trainer.progress.stopped_early


def test_small_gains_add_up_against_min_delta() -> None:
    """0.7 to 0.55 in steps of 0.05 is one gain of more than 0.1, at the third."""
    trainer = scripted([0.7, 0.65, 0.6, 0.55, 0.5, 0.5], patience=3, min_delta=0.1)
    assert trainer.progress.step == 6


def test_accuracy_is_better_when_it_is_higher() -> None:
    trainer = scripted([0.5, 0.6, 0.5, 0.4, 0.9], patience=2, metric="val_accuracy")
    assert trainer.progress.step == 4


def test_best_is_kept_when_training_goes_on_to_worse(tmp_path: Path) -> None:
    scripted([0.7, 0.5, 0.6, 0.9], output_dir=tmp_path, patience=9)
    card = (tmp_path / "best" / "README.md").read_text()
    assert "- optimizer steps: 2" in card
    assert "- optimizer steps: 4" in (tmp_path / "final" / "README.md").read_text()


def test_best_takes_a_gain_below_min_delta(tmp_path: Path) -> None:
    scripted([0.7, 0.69, 0.8], output_dir=tmp_path, patience=9, min_delta=0.1)
    assert "- optimizer steps: 2" in (tmp_path / "best" / "README.md").read_text()


def test_an_early_stop_logs_and_saves(tmp_path: Path) -> None:
    trainer = scripted([0.5, 0.6, 0.4], output_dir=tmp_path, patience=1)
    assert trainer.progress.step == 2
    assert (tmp_path / "checkpoint-000002").is_dir()
    assert (tmp_path / "final").is_dir()
