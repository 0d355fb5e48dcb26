"""How a training run learns: the settings that a run is made of. What they do is in trainer.py."""

from dataclasses import dataclass, field

from rewardctl.errors import UsageError
from rewardctl.training.losses import LossConfig

# What `resume` may change; everything else is part of the run.
FREE_SETTINGS = frozenset(
    {
        "epochs",
        "max_steps",
        "total_steps",
        "log_every",
        "eval_every",
        "save_every",
        "keep_last",
        "early_stopping",
    }
)


@dataclass(frozen=True)
class EarlyStop:
    """Stop after `patience` evaluations that do not better the metric by more than `min_delta`."""

    metric: str = "val_loss"  # or val_accuracy
    patience: int = 3
    min_delta: float = 0.0


@dataclass(frozen=True)
class TrainSettings:
    """How a run learns. What `resume` must find unchanged, but for FREE_SETTINGS.

    Raises:
        UsageError: a number of rows, steps or checkpoints is below 1.
    """

    lr: float = 1e-4
    batch_size: int = 32  # rows of one optimizer step
    weight_decay: float = 0.01  # on matrices only
    warmup_ratio: float = 0.1  # share of optimizer steps
    grad_clip: float | None = 1.0
    schedule: str = "constant"  # constant | cosine | linear
    loss: LossConfig = field(default_factory=LossConfig)
    mixed_precision: str = "no"  # no | bf16
    micro_batch_tokens: int | None = None
    ema_decay: float | None = None
    early_stopping: EarlyStop | None = None
    seed: int = 0
    epochs: int | None = 3
    max_steps: int | None = None
    log_every: int = 10
    eval_every: int = 100
    save_every: int = 100
    keep_last: int = 2

    def __post_init__(self) -> None:
        """Check the counts."""
        for name in ("batch_size", "log_every", "eval_every", "save_every", "keep_last"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}: expected at least 1, got {getattr(self, name)}")
