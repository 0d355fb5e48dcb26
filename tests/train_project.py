"""Tiny models, rows that can be learnt, and folders to train in, for the tests of training."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rewardctl.data.encoded import EncodedRow
from rewardctl.training.losses import LossConfig, row_losses
from rewardctl.training.packing import score_items
from rewardctl.training.reward_model import RewardModel
from rewardctl.training.settings import TrainSettings
from rewardctl.training.trainer import RewardModelTrainer

NETWORK: dict[str, Any] = {
    "vocab_size": 16,
    "seq_length": 12,
    "hidden_size": 16,
    "depth": 1,
    "num_heads": 2,
    "dropout": 0.0,
}
MODEL: dict[str, Any] = {"input": "tokens", **NETWORK}  # the same network, as a config names it


def make_model(*, shaken: bool = False, **network: Any) -> RewardModel:
    """A tiny network; `shaken` moves all weights, so that scores are not all 0."""
    torch.manual_seed(0)
    model = RewardModel(**{**NETWORK, **network})
    if shaken:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn(parameter.shape))
    return model


def token_rows(count: int, *, seed: int = 0, name: str = "p.jsonl", **fields: Any) -> list[Any]:
    """Pairs of token lists of different lengths; what is chosen begins with a 1, else with a 2."""
    draw = np.random.default_rng(seed)
    rows = []
    for line in range(1, count + 1):
        rest = [draw.integers(3, 16, draw.integers(1, 9)).astype(np.int32) for _ in range(2)]
        items = tuple(np.concatenate([np.int32([b]), r]) for b, r in zip((1, 2), rest, strict=True))
        rows.append(EncodedRow(f"{name}:{line}", items, **fields))
    return rows


def token_records(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """`token_rows`, as a file holds them."""
    return [
        {"prompt": f"{seed}/{row.place}"}
        | dict(zip(("chosen", "rejected"), (i.tolist() for i in row.items), strict=True))
        for row in token_rows(count, seed=seed)
    ]


def make_trainer(
    rows: Sequence[EncodedRow],
    val_rows: Sequence[EncodedRow] | None = None,
    *,
    model: RewardModel | None = None,
    output_dir: Path | None = None,
    lr: float = 1e-2,
    batch_size: int = 4,
    weight_decay: float = 0.01,
    warmup_ratio: float = 0.1,
    grad_clip: float | None = 1.0,
    **settings: Any,
) -> RewardModelTrainer:
    """A trainer of a tiny model on the CPU."""
    lines: list[dict[str, Any]] = []
    trainer = RewardModelTrainer(
        model or make_model(),
        rows,
        val_rows,
        lr=lr,
        batch_size=batch_size,
        weight_decay=weight_decay,
        warmup_ratio=warmup_ratio,
        grad_clip=grad_clip,
        device="cpu",
        settings=TrainSettings(**settings),
        output_dir=output_dir,
        on_log=lines.append,
    )
    trainer.lines = lines  # type: ignore[attr-defined]
    return trainer


def single_losses(
    model: RewardModel, rows: Sequence[EncodedRow], loss: LossConfig | None = None
) -> list[float]:
    """Each row scored and judged by itself."""
    model.eval()
    found = []
    for row in rows:
        scores = score_items(model, row.items, None)
        found.append(float(row_losses(scores, [row], loss or LossConfig()).loss))
    return found


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A copy of all weights."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def are_equal(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    """Whether two sets of weights are the same, bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def write_rows(path: Path, records: Sequence[Any]) -> Path:
    """JSONL."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@dataclass
class TrainProject:
    """A folder with preference rows and a config to train by."""

    folder: Path

    @property
    def run(self) -> Path:
        """Where the run's files go."""
        return self.folder / "run"

    @property
    def config(self) -> Path:
        """The YAML."""
        return self.folder / "c.yaml"

    def write(
        self,
        *,
        records: Sequence[Any] | None = None,
        validation: Sequence[Any] | None = None,
        model: Mapping[str, Any] = MODEL,
        **train: Any,
    ) -> None:
        """Rows and a config; of 16 token pairs in steps of 4 where nothing else is said."""
        write_rows(self.folder / "pairs.jsonl", token_records(16) if records is None else records)
        section = {"data": "pairs.jsonl", "output_dir": "run", "epochs": 1, "batch_size": 4}
        section |= {"lr": 0.01, "log_every": 1}
        if validation is not None:
            write_rows(self.folder / "held.jsonl", validation)
            section["validation"] = "held.jsonl"
        self.config.write_text(json.dumps({"model": dict(model), "train": section | train}))
