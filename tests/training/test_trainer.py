"""The trainer: a step's loss, the order of rows, what is logged, and what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from train_project import (
    lines_of,
    make_model,
    make_trainer,
    single_losses,
    token_rows,
)

from rewardctl.data.encoded import EncodedRow
from rewardctl.errors import DataError, RunError, UsageError
from rewardctl.training import RewardModelTrainer
from rewardctl.training.losses import LossConfig
from rewardctl.training.settings import TrainSettings

LN2 = math.log(2)


def ranked_row(place: str, *ranks: float) -> EncodedRow:
    items = tuple(np.array([3 + n, 4], dtype=np.int32) for n in range(len(ranks)))
    return EncodedRow(place, items, ranks=ranks)


# ---------------------------------------------------------------- one step


@pytest.mark.parametrize("micro_batch_tokens", [None, 1, 20, 60])
def test_a_steps_loss_is_the_weighted_mean_of_its_rows_losses(
    micro_batch_tokens: int | None,
) -> None:
    rows = [
        EncodedRow(row.place, row.items, weight=weight, margin=margin)
        for row, weight, margin in zip(
            token_rows(6), (1, 2, 0.5, 3, 1, 8), (None, 2, 0.5, 0, 1, 3), strict=True
        )
    ]
    rows.append(EncodedRow("k:1", ranked_row("k:1", 3, 1, 2).items, ranks=(3, 1, 2), weight=2.0))
    model = make_model(shaken=True)
    alone = single_losses(model, rows)
    assert max(alone) - min(alone) > 0.1
    expected = sum(row.weight * loss for row, loss in zip(rows, alone, strict=True)) / 17.5
    trainer = make_trainer(
        rows, model=model, batch_size=7, epochs=1, micro_batch_tokens=micro_batch_tokens
    )
    # float32 sums in another order
    assert trainer.train()["train_loss"] == pytest.approx([expected], rel=1e-5)


def test_cutting_a_step_for_memory_does_not_change_its_gradient() -> None:
    found = []
    for micro_batch_tokens in (None, 1, 30):
        model = make_model(shaken=True)
        make_trainer(
            token_rows(8),
            model=model,
            batch_size=8,
            epochs=1,
            grad_clip=None,
            micro_batch_tokens=micro_batch_tokens,
        ).train()
        found.append({n: p.grad for n, p in model.named_parameters()})
    for other in found[1:]:
        for name, gradient in found[0].items():
            # float32 sums in another order
            torch.testing.assert_close(other[name], gradient, rtol=1e-4, atol=1e-6)


def test_gradients_are_clipped_and_their_norm_before_that_is_logged() -> None:
    row = token_rows(1)
    free, clipped = (
        make_trainer(row, model=make_model(shaken=True), grad_clip=c, epochs=1, batch_size=1)
        for c in (None, 1e-3)
    )
    free.train()
    clipped.train()
    assert free.lines[0]["grad_norm"] == clipped.lines[0]["grad_norm"] > 1e-2
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in clipped.model.parameters()))
    assert norm == pytest.approx(1e-3, rel=1e-3)


def test_a_model_learns_what_is_plain_to_see() -> None:
    history = make_trainer(token_rows(32), token_rows(16, seed=1), epochs=10).train()
    assert history["val_accuracy"][-1] == 1.0
    assert history["val_loss"][-1] < 0.1


@pytest.mark.parametrize("loss", ["bradley_terry", "rao_kupper", "plackett_luce"])
def test_every_loss_learns_from_pairs_and_ranked_rows_together(loss: Any) -> None:
    rows = token_rows(6) + [ranked_row(f"k:{n}", 3, 2, 1, 0) for n in range(6)]
    history = make_trainer(rows, epochs=20, loss=LossConfig(loss=loss)).train()
    assert history["train_loss"][-1] < 0.7 * history["train_loss"][0]
    assert history["train_accuracy"][-1] > 0.9


def test_latents_and_timesteps_are_trained_on() -> None:
    draw = np.random.default_rng(0)
    rows = [
        EncodedRow(
            f"l:{n}",
            tuple(s + draw.standard_normal((1 + n % 3, 2)).astype(np.float32) / 4 for s in (1, -1)),
            timestep=n / 7,
        )
        for n in range(8)
    ]
    model = make_model(vocab_size=None, in_channels=2, timestep_aware=True)
    history = make_trainer(rows, rows, model=model, epochs=15).train()
    assert history["val_accuracy"][-1] == 1.0


# ---------------------------------------------------------------- order


class Recorded(RewardModelTrainer):
    """Notes the places of each step's rows."""

    def _step(self, rows: Any) -> None:
        self.steps = [*getattr(self, "steps", []), [row.place for row in rows]]
        super()._step(rows)


def recorded_steps(count: int, batch_size: int, **settings: Any) -> list[list[str]]:
    trainer = Recorded(
        make_model(),
        token_rows(count),
        batch_size=batch_size,
        device="cpu",
        settings=TrainSettings(**settings),
    )
    trainer.train()
    return trainer.steps


def test_each_epoch_sees_every_row_once_and_the_last_short_batch_is_kept() -> None:
    steps = recorded_steps(10, 4, epochs=2)
    assert [len(step) for step in steps] == [4, 4, 2, 4, 4, 2]
    places = {f"p.jsonl:{line}" for line in range(1, 11)}
    first, second = ([p for step in steps[start : start + 3] for p in step] for start in (0, 3))
    assert set(first) == set(second) == places
    assert first != second
    assert first != sorted(first)


def recorded_places(batch_size: int, *, seed: int) -> list[str]:
    steps = recorded_steps(10, batch_size, epochs=2, seed=seed)
    return [place for step in steps for place in step]


def test_the_order_follows_the_seed_alone() -> None:
    flat = [recorded_places(size, seed=7) for size in (1, 3, 10)]
    assert flat[0] == flat[1] == flat[2]
    assert recorded_places(3, seed=8) != flat[0]


def test_max_steps_ends_amid_an_epoch() -> None:
    assert len(recorded_steps(10, 4, epochs=None, max_steps=4)) == 4


def test_more_steps_than_one_epoch_has_go_on_in_the_next() -> None:
    assert [len(s) for s in recorded_steps(3, 8, epochs=None, max_steps=3)] == [3, 3, 3]


# ---------------------------------------------------------------- log and history


def test_log_lines_hold_what_is_promised_and_history_follows_them() -> None:
    trainer = make_trainer(
        token_rows(10), token_rows(6, seed=1), epochs=2, log_every=2, eval_every=4
    )
    history = trainer.train()
    train = [line for line in trainer.lines if "loss" in line]
    held = [line for line in trainer.lines if "val_loss" in line]
    keys = ["step", "epoch", "loss", "accuracy", "score_gap", "lr", "grad_norm", "rows"]
    assert all(list(line) == keys for line in train)
    assert all(list(line) == ["step", "val_loss", "val_accuracy", "n_pairs"] for line in held)
    assert [(line["step"], line["rows"], line["epoch"]) for line in train] == [
        (2, 8, 0.8),
        (4, 6, 1.4),
        (6, 6, 2.0),
    ]
    assert [(line["step"], line["n_pairs"]) for line in held] == [(4, 6), (6, 6)]
    assert history == {
        "train_loss": [line["loss"] for line in train],
        "train_accuracy": [line["accuracy"] for line in train],
        "val_loss": [line["val_loss"] for line in held],
        "val_accuracy": [line["val_accuracy"] for line in held],
    }


def test_a_log_line_is_a_mean_over_rows_not_over_steps() -> None:
    """Steps of 4 and 1 rows: with lr too small to learn, all rows count alike."""
    model, rows = make_model(shaken=True), token_rows(5)
    expected = sum(single_losses(model, rows)) / 5
    trainer = make_trainer(rows, model=model, epochs=1, lr=1e-12, weight_decay=0.0)
    assert trainer.train()["train_loss"] == pytest.approx([expected], rel=1e-5)


def test_the_last_step_logs_validates_and_saves_whatever_the_cadence(tmp_path: Path) -> None:
    trainer = make_trainer(
        token_rows(12), token_rows(2, seed=1), epochs=1, output_dir=tmp_path, log_every=2
    )
    trainer.train()
    assert [list(line)[:2] for line in trainer.lines] == [
        ["step", "epoch"],
        ["step", "epoch"],
        ["step", "val_loss"],
    ]
    assert [line["step"] for line in trainer.lines] == [2, 3, 3]
    assert lines_of(tmp_path / "metrics.jsonl") == trainer.lines
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["best", "checkpoint-000003", "final", "metrics.jsonl"]


def test_the_logged_rate_warms_up_and_falls() -> None:
    trainer = make_trainer(
        token_rows(20), epochs=2, log_every=1, lr=1.0, warmup_ratio=0.25, schedule="linear"
    )
    trainer.train()
    # 10 steps: int(2.5) of warmup, then 8 to 0
    expected = [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    assert [line["lr"] for line in trainer.lines] == pytest.approx(expected)


def test_a_tie_of_scores_counts_half() -> None:
    """A fresh model scores everything 0: it must look like chance."""
    trainer = make_trainer(token_rows(4), token_rows(4, seed=1), lr=1e-12)
    assert trainer.validate() == {"loss": pytest.approx(LN2), "accuracy": 0.5}


def test_rows_whose_label_is_a_tie_are_left_out_of_accuracy() -> None:
    decided, tied = token_rows(1), token_rows(3, seed=5, preference=0.5)
    trainer = make_trainer(decided + tied, epochs=1)
    assert trainer.train()["train_accuracy"] == [0.5]


def test_accuracy_of_tied_labels_alone_is_null() -> None:
    trainer = make_trainer(token_rows(4, preference=0.5), epochs=1)
    assert trainer.train()["train_accuracy"] == []
    assert trainer.lines[0]["accuracy"] is None


# ---------------------------------------------------------------- what is refused or warned of


def test_zero_steps_are_an_error() -> None:
    with pytest.raises(UsageError) as error:
        make_trainer(token_rows(4)).train(epochs=0)
    assert str(error.value) == "zero optimizer steps: give epochs or max_steps of at least 1"


def test_no_rows_are_an_error() -> None:
    with pytest.raises(DataError, match="no preference rows to train on"):
        make_trainer([])


def test_rows_the_loss_cannot_learn_from_are_named() -> None:
    rows = [*token_rows(2), *token_rows(1, name="bad.jsonl", margin=-1.0)]
    with pytest.raises(DataError, match=r"bad\.jsonl:1: 'margin' must be 0 or more"):
        make_trainer(rows)
    with pytest.raises(DataError, match=r"bad\.jsonl:1"):
        make_trainer(token_rows(2), rows)


def test_a_row_without_a_timestep_is_named() -> None:
    rows = [*token_rows(3, timestep=0.5), *token_rows(1, name="without.jsonl")]
    trainer = make_trainer(rows, model=make_model(timestep_aware=True), epochs=1)
    with pytest.raises(DataError) as error:
        trainer.train()
    assert str(error.value) == (
        "without.jsonl:1: the model is timestep-aware, but the row has no timestep"
    )


def test_a_loss_that_is_not_finite_names_its_rows() -> None:
    rows = token_rows(3)
    rows.append(EncodedRow("huge.jsonl:9", rows[0].items, weight=1.0, margin=3e38))
    trainer = make_trainer(rows, model=make_model(shaken=True), epochs=1)
    for parameter in trainer.model.head.parameters():
        parameter.data.mul_(30)  # now margin * gap is beyond float32
    with pytest.raises(RunError) as error:
        trainer.train()
    assert str(error.value) == (
        "step 1: the loss is not finite for huge.jsonl:9; lower lr, or look at these rows"
    )


@pytest.mark.parametrize("due", ["log_every", "eval_every", "save_every"])
def test_weights_that_left_the_numbers_stop_the_run_in_words(due: str, tmp_path: Path) -> None:
    cadence = {"log_every": 50, "eval_every": 50, "save_every": 50, due: 1}
    trainer = make_trainer(
        token_rows(8),
        token_rows(2, seed=1),
        lr=1e30,
        grad_clip=None,
        epochs=3,
        output_dir=tmp_path,
        **cadence,
    )
    with pytest.raises(RunError, match="not finite"):
        trainer.train()


def test_a_row_whose_candidates_are_all_tied_may_be_alone_in_a_step() -> None:
    rows = [*token_rows(3), ranked_row("tied.jsonl:1", 1, 1)]
    history = make_trainer(rows, epochs=1, batch_size=1).train()
    assert len(history["train_loss"]) == 1


def test_a_row_whose_candidates_are_all_tied_may_be_alone_in_a_micro_batch() -> None:
    rows = [*token_rows(3), ranked_row("tied.jsonl:1", 1, 1)]
    history = make_trainer(rows, epochs=1, batch_size=4, micro_batch_tokens=1).train()
    assert history["train_loss"] == pytest.approx([LN2])


def test_validation_may_begin_with_rows_whose_candidates_are_all_tied() -> None:
    held = [*(ranked_row(f"tied.jsonl:{n}", 1, 1) for n in range(4)), *token_rows(2)]
    history = make_trainer(token_rows(4), held, epochs=1).train()
    assert len(history["val_loss"]) == 1


def test_a_model_that_scores_everything_alike_is_warned_of() -> None:
    trainer = make_trainer(token_rows(4), lr=1e-12, weight_decay=0.0, epochs=None, max_steps=90)
    trainer.train()
    assert trainer.warnings == [
        "step 70: all scores have been the same for 20 steps and the loss is ln 2: the model "
        "learns nothing; raise lr, or look at the data"
    ]


def test_a_dead_head_is_looked_for_only_after_warmup() -> None:
    trainer = make_trainer(
        token_rows(4), lr=1e-12, weight_decay=0.0, epochs=None, max_steps=89, warmup_ratio=0.8
    )
    trainer.train()  # int(0.8 * 89) = 71 steps of warmup, and 18 more
    assert trainer.warnings == []


def test_a_model_that_learns_is_not_warned_of() -> None:
    trainer = make_trainer(token_rows(4), epochs=None, max_steps=80)
    trainer.train()
    assert trainer.warnings == []
