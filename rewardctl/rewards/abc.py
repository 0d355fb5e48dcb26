"""The reward contract: what a reward model is, what it is given and what it returns. Calls nothing
itself.
"""

import inspect
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from rewardctl.config.schema import RewardArguments
from rewardctl.errors import ConfigError, quote

if TYPE_CHECKING:
    import numpy as np
    import torch
    from accelerate import Accelerator

# What a `__call__` may name. `audio_sample_rate` comes with `audio`.
MODEL_FIELDS: tuple[str, ...] = (
    "prompt",
    "response",
    "image",
    "video",
    "audio",
    "audio_sample_rate",
    "condition_images",
    "condition_videos",
    "tokens",
    "latents",
    "timestep",
    "metadata",
    "unique_id",
    "id",
    "source",
)


@dataclass
class RewardModelOutput:
    """What a call returns: exactly one finite score an input, in order; higher is better.

    `rewards`: tensor, array or list of shape (n,) or (n, 1). `extra_info` is the model's own.
    """

    rewards: "torch.Tensor | np.ndarray[Any, Any] | list[float]"
    extra_info: dict[str, Any] | None = None


class BaseRewardModel(ABC):
    """What pointwise and groupwise reward models share. Subclass one of those two.

    A call receives keyword lists of one length, one entry a sample: the required fields, and those
    optional fields that all its samples carry. Gradients are off. The instance may be shared by
    several streams, so it keeps no state by stream name; calls into it never overlap unless it says
    `thread_safe`.
    """

    # Fields that a row must have. None: the parameters of `__call__` without a default.
    required_fields: tuple[str, ...] | None = None
    # Fields that are passed when present. None: the other fields that `__call__` names.
    optional_fields: tuple[str, ...] | None = None
    use_tensor_inputs: bool = False  # media as tensors, else as PIL images and NumPy arrays
    use_token_arrays: bool = False  # tokens as they were read, in arrays, else as lists
    thread_safe: bool = False  # whether calls from several threads may overlap
    default_batch_size: int | None = None  # rows of a call where the config names none; None: 16
    Options: ClassVar[type[BaseModel] | None] = None  # the shape of `options:`
    requires: ClassVar[tuple[str, ...]] = ()  # modules of optional packages
    extra: ClassVar[str | None] = None  # the extra of rewardctl that installs them
    # Lowest and highest score, None where there is no bound.
    score_range: tuple[float | None, float | None] | None = None

    def __init__(self, config: RewardArguments, accelerator: "Accelerator") -> None:
        """Set `config`, `accelerator`, `device` (torch.device), `dtype` (torch.dtype) and `model`
        (None).

        Raises:
            ConfigError: the device is not on this machine.
        """
        import torch

        if self.Options is not None and not isinstance(config.options, self.Options):
            config = config.model_copy(update={"options": self.Options(**config.extra_kwargs)})
        self.config = config
        self.accelerator = accelerator
        self.dtype: torch.dtype = getattr(torch, config.dtype)
        self.device: torch.device = resolve_device(config.device, accelerator)
        self.model: Any = None
        self.call_lock = threading.Lock()  # held by every call, unless the class is thread_safe

    def to(self, device: "torch.device | str") -> "BaseRewardModel":
        """Move `self.model`, where it is set, and later inputs to `device`."""
        import torch

        self.device = torch.device(device)
        if self.model is not None:
            self.model = self.model.to(self.device)
        return self

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One finite score for each input, in order."""


class PointwiseRewardModel(BaseRewardModel):
    """Scores each sample for itself: 1 to `batch_size` samples a call, any of them in any
    company.
    """


class GroupwiseRewardModel(BaseRewardModel):
    """Scores the samples of one complete group together; `batch_size` does not apply."""


@dataclass(frozen=True)
class InputFields:
    """The fields that calls of one reward model carry."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    accepts: frozenset[str] | None  # parameter names of `__call__`; None: it takes any keyword

    def passes(self, field: str) -> bool:
        """Whether `__call__` can be given this field."""
        return self.accepts is None or field in self.accepts


def input_fields(model: "BaseRewardModel | type[BaseRewardModel]") -> InputFields:
    """The fields of a reward model, from its attributes and the signature of its `__call__`.

    Raises:
        ConfigError: it names no field at all, or requires one that its `__call__` cannot take.
    """
    owner = model if isinstance(model, type) else type(model)
    parameters = list(inspect.signature(owner.__call__).parameters.values())[1:]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    required = model.required_fields
    if required is None:
        required = tuple(p.name for p in named if p.default is p.empty)
    optional = model.optional_fields
    if optional is None:
        optional = tuple(p.name for p in named if p.name in MODEL_FIELDS)
    fields = InputFields(
        required=tuple(f for f in required if f != "audio_sample_rate"),
        optional=tuple(f for f in optional if f not in required and f != "audio_sample_rate"),
        accepts=None if takes_any else frozenset(p.name for p in named),
    )
    if not fields.required and not fields.optional:
        raise ConfigError(
            f"reward model {owner.__qualname__} names no input: set required_fields, or name "
            "fields "
            f"in __call__ (of {', '.join(MODEL_FIELDS)})"
        )
    for name in fields.required:
        if not fields.passes(name):
            raise ConfigError(
                f"reward model {owner.__qualname__} requires {name!r}, which its __call__ does "
                "not take; "
                "name it there or add **kwargs"
            )
    return fields


def resolve_device(device: str, accelerator: "Accelerator") -> "torch.device":
    """The torch device of a config's `device`: the accelerator's for auto (and for a bare cuda on
    CUDA).

    Raises:
        ConfigError: the device is unknown or not on this machine.
    """
    import torch

    own: torch.device = accelerator.device
    if device == "auto":
        return own
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(
            f"device {quote(device)}: expected auto, cpu, cuda, cuda:N or mps"
        ) from error
    if wanted.type == "cuda":
        if not torch.cuda.is_available() or (wanted.index or 0) >= torch.cuda.device_count():
            raise ConfigError(
                f"device {quote(device)}: this machine has {torch.cuda.device_count()} CUDA "
                "devices; "
                "use device: auto or cpu"
            )
        if wanted.index is None and own.type == "cuda":
            return own
    if wanted.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device 'mps': not on this machine; use device: auto or cpu")
    return wanted
