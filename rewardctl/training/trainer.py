"""Trains a reward model on preference rows: steps, logging, validation, checkpoints, in that
order.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rewardctl.data.encoded import EncodedRow
from rewardctl.errors import DataError, RunError, UsageError
from rewardctl.training import trainer_state
from rewardctl.training.checkpoint import (
    Checkpoint,
    InputFacts,
    digest,
    load_weights,
    save_checkpoint,
    score_facts,
    verify_files,
)
from rewardctl.training.losses import (
    LossConfig,
    RowLosses,
    check_rows,
    has_pair,
    row_losses,
    step_loss,
    step_weight,
)
from rewardctl.training.packing import by_length, cut_by_tokens, pack, score_items
from rewardctl.training.reward_model import RewardModel
from rewardctl.training.run_folder import RunFolder
from rewardctl.training.schedule import learning_rate
from rewardctl.training.settings import FREE_SETTINGS, EarlyStop, TrainSettings
from rewardctl.training.trainer_state import Sums, TrainProgress
from rewardctl.training.weights import WeightAverage, build_adamw

if TYPE_CHECKING:
    from rewardctl.data.preference_dataset import PreferenceDataset
    from rewardctl.data.tokenizer import TextEncoder

DEAD_AFTER_STEPS = 50
DEAD_STEPS = 20
DEAD_SPREAD = 1e-6
BODY_DTYPES = {"no": torch.float32, "bf16": torch.bfloat16}


class RewardModelTrainer:
    """Trains `model` on a PreferenceDataset, or on encoded rows.

    Args:
        dataset: what is learnt from.
        val_dataset: what `validate` and best/ are judged on.
        device: auto (CUDA if there is one), cpu, cuda, cuda:N or mps.
        settings: further settings; the named arguments win over it.
        output_dir: folder of the run; None writes nothing.
        inputs, encoder: how inputs are prepared, for checkpoints; None: tokens or latents as they
        are.
        facts: of the data, for manifests and model cards.
        on_log: called with each line of metrics.jsonl.

    Raises:
        DataError: a row does not fit the model or the loss; nothing to train on.
    """

    def __init__(
        self,
        model: RewardModel,
        dataset: "PreferenceDataset | Sequence[EncodedRow]",
        val_dataset: "PreferenceDataset | Sequence[EncodedRow] | None" = None,
        lr: float = 1e-4,
        batch_size: int = 32,
        weight_decay: float = 0.01,
        warmup_ratio: float = 0.1,
        grad_clip: float | None = 1.0,
        device: str = "auto",
        *,
        settings: TrainSettings | None = None,
        output_dir: Path | str | None = None,
        inputs: InputFacts | None = None,
        encoder: "TextEncoder | None" = None,
        facts: dict[str, Any] | None = None,
        on_log: Callable[[dict[str, Any]], None] = lambda line: None,
        stop_requested: Callable[[], bool] = lambda: False,
    ) -> None:
        base = asdict(settings or TrainSettings())
        base |= {"lr": lr, "batch_size": batch_size, "weight_decay": weight_decay}
        base |= {"warmup_ratio": warmup_ratio, "grad_clip": grad_clip}
        base["loss"] = settings.loss if settings else LossConfig()
        base["early_stopping"] = settings.early_stopping if settings else None
        self.settings = TrainSettings(**base)
        self.device = torch.device(_device(device))
        self.model = model.to(self.device)
        self.model.body_dtype = BODY_DTYPES[self.settings.mixed_precision]
        self.rows = _as_rows(dataset, encoder)
        self.val_rows = None if val_dataset is None else _as_rows(val_dataset, encoder)
        for rows in (self.rows, self.val_rows or ()):
            check_rows(rows, self.settings.loss)
        self.rows = [row for row in self.rows if has_pair(row, self.settings.loss)]
        if self.val_rows is not None:
            self.val_rows = [row for row in self.val_rows if has_pair(row, self.settings.loss)]
        if not self.rows:
            raise DataError("no preference rows to train on")
        kind = "tokens" if model.network_config()["vocab_size"] is not None else "latents"
        self.inputs = inputs or InputFacts("text" if encoder else kind)
        self.encoder = encoder
        self.facts = facts or {}
        self.folder = RunFolder(Path(output_dir)) if output_dir is not None else None
        self.on_log = on_log
        self.stop_requested = stop_requested
        self.progress = TrainProgress()
        self.warnings: list[str] = []
        self.notes: list[str] = []  # about what a resumed run goes on with
        self.new_steps = 0  # of the last `train`
        self._forget_steps()

    # ---------------------------------------------------------------- one run

    def train(
        self,
        epochs: int | None = None,
        log_every: int | None = None,
        eval_every: int | None = None,
        *,
        resume: bool = False,
        on_begin: Callable[[], None] = lambda: None,
    ) -> dict[str, list[float]]:
        """Train to the end and return the history. A second call is a run of its own, from the
        weights as they are.

        Args:
            epochs, log_every, eval_every: override the settings (3, 10 and 100).
            resume: go on from the newest checkpoint of `output_dir`.
            on_begin: called when nothing stands in the way of the first step.

        Returns:
            `train_loss` and `train_accuracy`, a value for each log line, `val_loss` and
            `val_accuracy`, one for each validation.

        Raises:
            RunError: a loss is not finite (its rows are named), or a checkpoint cannot be written.
            UsageError: `resume` under other settings or without an output_dir; no step to make.
        """
        changes = {"epochs": epochs, "log_every": log_every, "eval_every": eval_every}
        given: dict[str, Any] = {n: value for n, value in changes.items() if value is not None}
        if "epochs" in given:
            given["max_steps"] = None
        kept = {n: getattr(self.settings, n) for n in self.settings.__dataclass_fields__}
        self.settings = TrainSettings(**{**kept, **given})
        devices = [self.device] if self.device.type == "cuda" else []
        was_training = self.model.training
        with torch.random.fork_rng(devices):
            torch.manual_seed(self.settings.seed)
            try:
                self._begin(resume=resume)
                on_begin()
                self._run()
            finally:
                self.model.train(was_training)
        return self.progress.history

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of one pass; the last short batch is one."""
        return math.ceil(len(self.rows) / self.settings.batch_size)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        if self.settings.max_steps is not None:
            return self.settings.max_steps
        return (self.settings.epochs or 0) * self.steps_per_epoch

    def _begin(self, *, resume: bool) -> None:
        if self.total_steps < 1:
            raise UsageError("zero optimizer steps: give epochs or max_steps of at least 1")
        if resume and self.folder is None:
            raise UsageError("nothing to resume from: give the trainer the output_dir of the run")
        self._forget_steps()
        newest = []
        if self.folder is not None:
            self.folder.open(resume=resume, overwrite=False)
            newest = self.folder.checkpoints()[-1:] if resume else []
            if not newest:  # a run that was stopped before its first checkpoint starts anew
                self.folder.drop_metrics_after(0)
        if newest:
            self._restore(newest[0][1])
            return
        warmup = int(self.settings.warmup_ratio * self.total_steps)
        self.progress = TrainProgress(warmup_steps=warmup)
        if self.val_rows:
            self._judge(self.val_rows[: self.settings.batch_size])  # fails now rather than late

    def _forget_steps(self) -> None:
        """The optimizer and the average as before the first step."""
        settings = self.settings
        self.optimizer = build_adamw(self.model, lr=settings.lr, weight_decay=settings.weight_decay)
        self.average = WeightAverage(self.model, settings.ema_decay)

    def _restore(self, checkpoint: Path) -> None:
        assert self.folder is not None
        verify_files(checkpoint)
        before, now = trainer_state.read_settings(checkpoint), self._stored_settings()
        changed = [
            f"{key}: was {before.get(key)!r}, now {now.get(key)!r}"
            for key in sorted({*before, *now})
            if key not in FREE_SETTINGS and before.get(key) != now.get(key)
        ]
        if changed:
            raise UsageError(
                f"{self.folder.path}: cannot be gone on with, since this changed:\n  "
                + "\n  ".join(changed)
                + "\nundo the change, or start anew with --overwrite"
            )
        load_weights(self.model, checkpoint / "model.safetensors")
        self.progress = trainer_state.read_state(
            checkpoint, model=self.model, optimizer=self.optimizer, ema=self.average.weights
        )
        if now["early_stopping"] != before["early_stopping"]:
            self.progress.stopped_early = False
        self.folder.drop_metrics_after(self.progress.step)
        if now["total_steps"] != before["total_steps"]:
            self.notes.append(
                f"going on from step {self.progress.step} of a run planned for "
                f"{before['total_steps']} steps, now for {now['total_steps']}: warmup stays "
                f"{self.progress.warmup_steps} steps, the schedule runs to the new end"
            )

    def _stored_settings(self) -> dict[str, Any]:
        """What a resumed run is held to."""
        return {
            **asdict(self.settings),
            "inputs": asdict(self.inputs),
            "network": self.model.network_config(),
            "rows": len(self.rows),
            "tokenizer": None if self.encoder is None else digest(self.encoder.to_json()),
            "total_steps": self.total_steps,
            "data": self.facts.get("sha256"),
        }

    def _run(self) -> None:
        begun_at = self.progress.step
        while self.progress.step < self.total_steps and not self.progress.stopped_early:
            self._step(self._next_rows())
            is_last = self.progress.step == self.total_steps
            self._report(is_last=is_last)
            if self.stop_requested():
                self._save()
                return
        self.new_steps = self.progress.step - begun_at
        if self.folder is not None:  # with nothing to do too: a kill may have come before it
            self.folder.keep_last(self.settings.keep_last)
            self._save_model(self.folder.final)

    def _report(self, *, is_last: bool) -> None:
        """After an update: log, validate, save, each when it is due and all of them at the end."""
        step, settings = self.progress.step, self.settings
        is_logged = is_last or step % settings.log_every == 0
        if is_logged:
            self._log()
        if self.val_rows and (is_last or step % settings.eval_every == 0):
            self._validate_and_keep_best()
            if self.progress.stopped_early and not is_logged:
                self._log()
        if is_last or self.progress.stopped_early or step % settings.save_every == 0:
            self._save()

    def _next_rows(self) -> list[EncodedRow]:
        """The rows of the next step: a seeded permutation of each epoch, whatever came before."""
        progress, size = self.progress, self.settings.batch_size
        order = self._order(progress.epoch)
        chosen = order[progress.position : progress.position + size]
        progress.position += len(chosen)
        if progress.position >= len(self.rows):
            progress.epoch, progress.position = progress.epoch + 1, 0
        return [self.rows[row] for row in chosen]

    def _order(self, epoch: int) -> "np.ndarray[Any, Any]":
        return np.random.default_rng([self.settings.seed, epoch]).permutation(len(self.rows))

    # ---------------------------------------------------------------- one step

    def _step(self, rows: Sequence[EncodedRow]) -> None:
        settings, progress = self.settings, self.progress
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        total_weight = step_weight(rows, settings.loss)
        spread: list[torch.Tensor] = []
        loss_sum = 0.0
        for part in cut_by_tokens([row.tokens for row in rows], settings.micro_batch_tokens):
            scores = self._scores(rows[part])
            losses = row_losses(scores, rows[part], settings.loss)
            loss = step_loss(losses, total_weight)
            self._hold_finite(losses, rows[part])
            torch.autograd.backward(loss)
            progress.sums.add(losses)
            loss_sum += loss.item()
            spread.append(scores.detach())
        limit = math.inf if settings.grad_clip is None else settings.grad_clip
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.grad_norm = float(norm)
        if not math.isfinite(self.grad_norm):
            places = ", ".join(row.place for row in rows[:8])
            raise RunError(
                f"step {progress.step + 1}: the gradient is not finite; lower lr, or look at the "
                f"rows of this step ({places}{', …' if len(rows) > 8 else ''})"
            )
        self.lr = learning_rate(
            progress.step,
            lr=settings.lr,
            warmup_steps=progress.warmup_steps,
            total_steps=self.total_steps,
            schedule=settings.schedule,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        self.optimizer.step()
        self.average.update()
        progress.step += 1
        self._watch_head(loss_sum, torch.cat(spread))

    def _scores(self, rows: Sequence[EncodedRow]) -> torch.Tensor:
        """Scores of all items of the rows, in order; one packed forward pass, longest first."""
        items = [item for row in rows for item in row.items]
        order = by_length(items)
        flat, lengths = pack([items[place] for place in order], self.device)
        scores = self.model.score_packed(flat, lengths, self._timesteps(rows, order))
        back = torch.empty(len(order), dtype=torch.long)
        back[order] = torch.arange(len(order))
        return scores[back.to(scores.device)]

    def _timesteps(self, rows: Sequence[EncodedRow], order: Sequence[int]) -> torch.Tensor | None:
        if not self.model.timestep_aware:
            return None
        each = [row.known_timestep for row in rows for _ in row.items]
        return torch.tensor([each[p] for p in order], dtype=torch.float32, device=self.device)

    def _hold_finite(self, losses: RowLosses, rows: Sequence[EncodedRow]) -> None:
        finite = torch.isfinite(losses.loss.detach()).tolist()
        bad = [row.place for row, is_finite in zip(rows, finite, strict=True) if not is_finite]
        if bad:
            raise RunError(
                f"step {self.progress.step + 1}: the loss is not finite for {', '.join(bad[:8])}; "
                "lower lr, or look at these rows"
            )

    def _watch_head(self, loss: float, scores: torch.Tensor) -> None:
        """Say so when the model gives every input the same score for many steps."""
        progress = self.progress
        if progress.step <= max(DEAD_AFTER_STEPS, progress.warmup_steps):
            return
        is_dead = (
            float(scores.max() - scores.min()) < DEAD_SPREAD and abs(loss - math.log(2)) < 1e-3
        )
        progress.dead_steps = progress.dead_steps + 1 if is_dead else 0
        if progress.dead_steps == DEAD_STEPS:
            self.warnings.append(
                f"step {progress.step}: all scores have been the same for {DEAD_STEPS} steps and "
                "the "
                "loss is ln 2: the model learns nothing; raise lr, or look at the data"
            )

    # ---------------------------------------------------------------- figures

    def _log(self) -> None:
        sums, history = self.progress.sums, self.progress.history
        if not sums.rows:
            return
        loss = sums.loss / sums.weight
        accuracy = sums.correct / sums.judged if sums.judged else None
        history["train_loss"].append(loss)
        if accuracy is not None:
            history["train_accuracy"].append(accuracy)
        self._write(
            {
                "step": self.progress.step,
                "epoch": self.progress.epoch + self.progress.position / len(self.rows),
                "loss": loss,
                "accuracy": accuracy,
                "score_gap": sums.gap / sums.rows,
                "lr": self.lr,
                "grad_norm": self.grad_norm,
                "rows": sums.rows,
            }
        )
        self.progress.sums = Sums()

    def validate(self) -> dict[str, float]:
        """`loss` and `accuracy` on `val_dataset`, means over its rows; {} without one.

        With EMA the averaged weights are judged.
        """
        if not self.val_rows:
            return {}
        with self.average.in_use():
            return self._judge(self.val_rows)

    def _judge(self, rows: Sequence[EncodedRow]) -> dict[str, float]:
        was_training = self.model.training
        self.model.eval()
        try:
            items = [item for row in rows for item in row.items]
            times = None
            if self.model.timestep_aware:
                times = [row.known_timestep for row in rows for _ in row.items]
            losses = row_losses(score_items(self.model, items, times), rows, self.settings.loss)
        finally:
            self.model.train(was_training)
        sums = Sums()
        sums.add(losses)
        accuracy = sums.correct / sums.judged if sums.judged else math.nan
        return {"loss": sums.loss / sums.weight, "accuracy": accuracy}

    def _validate_and_keep_best(self) -> None:
        figures, progress = self.validate(), self.progress
        if not math.isfinite(figures["loss"]):
            raise RunError(
                f"step {progress.step}: the validation loss is not finite; lower lr, and go "
                "on from the last checkpoint or start anew with --overwrite"
            )
        progress.history["val_loss"].append(figures["loss"])
        if not math.isnan(figures["accuracy"]):
            progress.history["val_accuracy"].append(figures["accuracy"])
        line: dict[str, Any] = {"step": progress.step, "val_loss": figures["loss"]}
        line["val_accuracy"] = None if math.isnan(figures["accuracy"]) else figures["accuracy"]
        self._write({**line, "n_pairs": len(self.val_rows or ())})
        early = self.settings.early_stopping or EarlyStop()
        value = figures[early.metric.removeprefix("val_")]
        value = value if early.metric == "val_loss" else -value
        if progress.best is None or value < progress.best:
            progress.best = value
            if self.folder is not None:
                self._save_model(self.folder.best)
        if progress.reference is None or value < progress.reference - early.min_delta:
            progress.reference, progress.patience_used = value, 0
        else:
            progress.patience_used += 1
        if self.settings.early_stopping and progress.patience_used >= early.patience:
            progress.stopped_early = True

    def _write(self, line: dict[str, Any]) -> None:
        if self.folder is not None:
            self.folder.append_metrics(line)
        self.on_log(line)

    # ---------------------------------------------------------------- checkpoints

    def _save(self) -> None:
        """A checkpoint of this step, unless it is there already."""
        if self.folder is None or self.folder.checkpoint(self.progress.step).exists():
            return
        self._save_model(self.folder.checkpoint(self.progress.step), with_state=True)
        self.folder.keep_last(self.settings.keep_last)

    def _scored_rows(self) -> tuple[Sequence[EncodedRow], str]:
        """The rows whose scores a checkpoint describes, and what they are."""
        return (self.val_rows, "validation") if self.val_rows else (self.rows, "training")

    def _save_model(self, path: Path, *, with_state: bool = False) -> None:
        raw = {name: p.detach().clone() for name, p in self.model.named_parameters()}

        def write_state(folder: Path) -> None:
            trainer_state.write_state(
                folder,
                weights=raw,
                model=self.model,
                optimizer=self.optimizer,
                ema=self.average.weights,
                progress=self.progress,
                settings=self._stored_settings(),
            )

        with self.average.in_use():
            save_checkpoint(
                path,
                Checkpoint(
                    self.model,
                    self.inputs,
                    self.encoder,
                    loss=asdict(self.settings.loss),
                    scores=score_facts(self.model, *self._scored_rows()),
                ),
                data=self.facts,
                metrics={"optimizer steps": self.progress.step},
                write_more=write_state if with_state else None,
            )


def _device(device: str) -> str:
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _as_rows(
    dataset: "PreferenceDataset | Sequence[EncodedRow]", encoder: "TextEncoder | None"
) -> list[EncodedRow]:
    if hasattr(dataset, "to_rows"):
        rows: list[EncodedRow] = dataset.to_rows(encoder=encoder)
        return rows
    return list(dataset)
