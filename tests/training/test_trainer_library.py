"""The trainer from Python: the user's random numbers, files and arguments; number types."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from train_project import (
    are_equal,
    make_model,
    make_trainer,
    token_rows,
    weights_of,
)

from rewardctl.errors import UsageError
from rewardctl.training import PreferenceDataset, PreferencePair, RewardModelTrainer


def test_the_users_random_numbers_go_on_as_if_nothing_was_trained() -> None:
    torch.manual_seed(5)
    trainer = make_trainer(token_rows(8), token_rows(2), model=make_model(dropout=0.5), epochs=2)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    state = np.random.get_state()[1].copy()
    trainer.train()
    assert torch.equal(torch.rand(3), expected)
    assert (np.random.get_state()[1] == state).all()


def test_training_does_not_depend_on_the_users_random_numbers() -> None:
    found = []
    for seed in (1, 2):
        model = make_model(dropout=0.5)
        torch.manual_seed(seed)
        make_trainer(token_rows(8), model=model, epochs=2).train()
        found.append(weights_of(model))
    assert are_equal(*found)


def test_a_second_run_is_as_one_of_a_new_trainer_on_the_weights_of_the_first() -> None:
    options = {"epochs": 2, "ema_decay": 0.5}
    first = make_model()
    trainer = make_trainer(token_rows(8), model=first, **options)
    trainer.train()
    other = make_model()
    other.load_state_dict(first.state_dict())
    trainer.train()
    fresh = make_trainer(token_rows(8), model=other, **options)
    fresh.train()
    assert are_equal(weights_of(first), weights_of(other))
    assert are_equal(trainer.average.weights or {}, fresh.average.weights or {})


@pytest.mark.parametrize("name", ["batch_size", "log_every", "eval_every", "save_every"])
def test_a_count_below_one_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as error:
        make_trainer(token_rows(4), epochs=1, **{name: 0}).train()
    assert str(error.value) == f"{name}: expected at least 1, got 0"


def test_a_count_below_one_is_refused_in_the_call_too() -> None:
    with pytest.raises(UsageError, match="log_every: expected at least 1, got 0"):
        make_trainer(token_rows(4)).train(log_every=0)


def test_resuming_without_an_output_dir_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing to resume from: give the trainer the output_dir"):
        make_trainer(token_rows(4)).train(resume=True)


def test_nothing_is_written_without_an_output_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_trainer(
        token_rows(8), token_rows(2), epochs=2, eval_every=1, save_every=1, ema_decay=0.5
    ).train()
    assert list(tmp_path.iterdir()) == []


def test_the_output_dir_is_made(tmp_path: Path) -> None:
    make_trainer(token_rows(4), epochs=1, log_every=1, output_dir=tmp_path / "a" / "run").train()
    assert (tmp_path / "a" / "run" / "final").is_dir()


def test_a_run_in_the_output_dir_is_refused(tmp_path: Path) -> None:
    make_trainer(token_rows(4), epochs=1, output_dir=tmp_path).train()
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(UsageError, match="holds a training run"):
        make_trainer(token_rows(4), epochs=1, output_dir=tmp_path).train()
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_the_mode_of_the_model_is_left_as_it_was() -> None:
    for training in (True, False):
        trainer = make_trainer(token_rows(4), token_rows(2), epochs=1)
        trainer.model.train(training)
        trainer.train()
        assert trainer.model.training is training


def test_arguments_of_train_win_over_the_settings() -> None:
    trainer = make_trainer(token_rows(4), token_rows(2), epochs=None, max_steps=9)
    trainer.train(epochs=2, log_every=1, eval_every=2)
    assert [line["step"] for line in trainer.lines if "loss" in line] == [1, 2]
    assert [line["step"] for line in trainer.lines if "val_loss" in line] == [2]


def test_a_dataset_of_pairs_is_trained_on() -> None:
    pairs = [PreferencePair([1, 3], [2, 3, 4]), PreferencePair([1, 5], [2, 6], margin=2.0)] * 4
    trainer = RewardModelTrainer(
        make_model(), PreferenceDataset(pairs), PreferenceDataset(pairs[:2]), lr=1e-2, device="cpu"
    )
    history = trainer.train(epochs=15, log_every=5, eval_every=5)
    assert history["val_accuracy"][-1] == 1.0
    assert set(trainer.validate()) == {"loss", "accuracy"}


def test_bfloat16_trains_close_to_float32() -> None:
    found = []
    for precision in ("no", "bf16"):
        model = make_model()
        trainer = make_trainer(
            token_rows(16), model=model, epochs=5, log_every=5, mixed_precision=precision
        )
        found.append(trainer.train()["train_loss"])
        assert all(p.dtype == torch.float32 for p in model.parameters())
    # 8 bits of mantissa in the body
    assert found[1] == pytest.approx(found[0], abs=0.05)
    assert found[1][-1] < 0.3


def test_lines_of_the_log_are_json(tmp_path: Path) -> None:
    make_trainer(token_rows(4), epochs=1, output_dir=tmp_path).train()
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda word: pytest.fail(word))
