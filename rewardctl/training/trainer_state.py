"""What training needs besides the model to go on bit-equal: safetensors and JSON, nothing
pickled.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from rewardctl.errors import DataError
from rewardctl.training.checkpoint import read_json
from rewardctl.training.losses import RowLosses

FOLDER = "trainer_state"


@dataclass
class Sums:
    """Running sums since the last line of the log."""

    loss: float = 0.0  # Σ weight · loss
    weight: float = 0.0
    correct: float = 0.0
    judged: int = 0  # rows that accuracy counts
    gap: float = 0.0
    rows: int = 0

    def add(self, losses: RowLosses) -> None:
        """Take in some rows."""
        loss, weight = losses.loss.detach().double().cpu(), losses.weight.double().cpu()
        correct = losses.correct.double().cpu()
        judged = ~torch.isnan(correct)
        self.loss += float((weight * loss).sum())
        self.weight += float(weight.sum())
        self.correct += float(correct[judged].sum())
        self.judged += int(judged.sum())
        self.gap += float(losses.gap.double().sum())
        self.rows += len(loss)


@dataclass
class TrainProgress:
    """Where a run stands."""

    warmup_steps: int = 0
    step: int = 0  # optimizer steps done
    epoch: int = 0
    position: int = 0  # rows of this epoch that were seen
    best: float | None = None  # best value of the watched metric, for best/
    reference: float | None = None  # what an evaluation must better by min_delta
    patience_used: int = 0  # evaluations without that
    stopped_early: bool = False
    dead_steps: int = 0  # steps in a row whose scores do not differ
    history: dict[str, list[float]] = field(
        default_factory=lambda: {
            "train_loss": [],
            "train_accuracy": [],
            "val_loss": [],
            "val_accuracy": [],
        }
    )
    sums: Sums = field(default_factory=Sums)

    @classmethod
    def restore(cls, stored: dict[str, Any]) -> "TrainProgress":
        """From `asdict`."""
        return cls(**{**stored, "sums": Sums(**stored["sums"])})


def write_state(
    folder: Path,
    *,
    weights: dict[str, torch.Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: dict[str, torch.Tensor] | None,
    progress: TrainProgress,
    settings: dict[str, Any],
) -> None:
    """Write trainer_state/ into a checkpoint's folder: moments, averages, RNGs and progress.

    Args:
        weights: the raw ones; `model` may hold averaged weights at that moment.
    """
    home = folder / FOLDER
    home.mkdir()
    tensors: dict[str, torch.Tensor] = {"rng.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors["rng.cuda"] = torch.cuda.get_rng_state()
    for name, parameter in model.named_parameters():
        tensors[f"model.{name}"] = weights[name]
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{key}.{name}"] = value
    for name, average in (ema or {}).items():
        tensors[f"ema.{name}"] = average
    save_file(
        {name: t.cpu().contiguous().clone() for name, t in tensors.items()},
        home / "state.safetensors",
    )
    content = {"progress": asdict(progress), "settings": settings}
    text = json.dumps(content, indent=1, allow_nan=False)
    (home / "state.json").write_text(text + "\n", "utf-8")


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings that a checkpoint was trained with."""
    settings: dict[str, Any] = read_json(folder / FOLDER / "state.json")["settings"]
    return settings


def read_state(
    folder: Path,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: dict[str, torch.Tensor] | None,
) -> TrainProgress:
    """Put a checkpoint's state back into model, optimizer, averages and RNGs.

    Raises:
        DataError: the state is missing, damaged or of another model.
    """
    path = folder / FOLDER / "state.safetensors"
    content = read_json(folder / FOLDER / "state.json")
    try:
        tensors = load_file(path)
        for name, parameter in model.named_parameters():
            parameter.data.copy_(tensors[f"model.{name}"])
            optimizer.state[parameter] = {
                key: tensors[f"optimizer.{key}.{name}"].to(
                    "cpu" if key == "step" else parameter.device
                )
                for key in ("step", "exp_avg", "exp_avg_sq")
            }
        for name in ema or {}:
            assert ema is not None
            ema[name].copy_(tensors[f"ema.{name}"])
        torch.set_rng_state(tensors["rng.cpu"])
        if "rng.cuda" in tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(tensors["rng.cuda"])
    except (OSError, SafetensorError, KeyError, RuntimeError) as error:
        raise DataError(f"{path}: cannot go on from this state: {error}") from error
    return TrainProgress.restore(content["progress"])
