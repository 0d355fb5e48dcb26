"""Starting the blocks of a reward model from a DiT generator's weights; the rest stays as it is.

Checkpoints of this package are not read here: they hold whole models.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rewardctl.errors import ConfigError, DataError, quote
from rewardctl.training.reward_model import RewardModel

RopeLayout = Literal["interleaved", "half"]
ALIASES = {".mlp.fc1.": ".mlp.0.", ".mlp.fc2.": ".mlp.2."}
BLOCK = re.compile(r"blocks\.(\d+)\.")
MAX_SHOWN = 12  # names in one line of the summary


@dataclass(frozen=True)
class GeneratorWeights:
    """What was taken from a generator's file, what was not, and what the model keeps."""

    path: Path
    rope: RopeLayout
    taken: tuple[str, ...]  # names in the model
    left: dict[str, str]  # name in the file -> why it was not taken
    fresh: tuple[str, ...]  # weights of the model that nothing was taken for

    def summary(self) -> list[str]:
        """Lines for the log."""
        lines = [
            f"init_from {self.path}: {len(self.taken)} tensors of the blocks taken, rotary layout "
            f"{self.rope}"
        ]
        for reason in dict.fromkeys(self.left.values()):
            names = [name for name, why in self.left.items() if why == reason]
            lines.append(f"not taken, {reason}: {_listed(names)}")
        lines.append(f"of the model, as initialised: {_listed(self.fresh)}")
        lines.append(
            "weights do not tell these: the blocks are run with SiLU in the MLP, LayerNorm of "
            "epsilon 1e-6, and the model's num_heads and rope_theta"
        )
        return lines


def load_generator(
    model: RewardModel, path: Path, *, rope: RopeLayout = "interleaved"
) -> GeneratorWeights:
    """Copy `blocks.*` of a generator into the model, in place.

    Args:
        model: just built.
        path: a .safetensors file. `mlp.fc1` and `mlp.fc2` are read as `mlp.0` and `mlp.2`.
        rope: which channels of a head the generator turns together: neighbours (interleaved, as
            this model does), or i and i + head_dim/2 (half), whose rows are put in our order.

    Raises:
        DataError: the file cannot be read, or nothing in it fits.
        ConfigError: the generator's blocks have another width.
    """
    targets = {
        name: weight for name, weight in model.named_parameters() if name.startswith("blocks.")
    }
    taken: list[str] = []
    left: dict[str, str] = {}
    with _opened(path) as file:
        _check_width(file, path, model)
        for name in file.keys():  # noqa: SIM118, it is no mapping
            ours = _our_name(name)
            reason = _reason_to_leave(ours, file.get_slice(name), targets, model)
            if reason is None:
                _copy(file.get_tensor(name), targets[ours], ours, model, rope, path)
                taken.append(ours)
            else:
                left[name] = reason
    if not taken:
        raise DataError(
            f"init_from {path}: no tensor fits this model's blocks; expected names like "
            f"blocks.0.attn.qkv.weight, got {_listed(list(left))}"
        )
    fresh = tuple(name for name, _ in model.named_parameters() if name not in taken)
    return GeneratorWeights(path, rope, tuple(taken), left, fresh)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file, closed at the end; what is wrong with it in words."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(f"init_from {path}: no such file") from error
    except (SafetensorError, OSError) as error:
        raise DataError(
            f"init_from {path}: expected a .safetensors file, got an error: {error}"
        ) from error


def _our_name(name: str) -> str:
    for alias, ours in ALIASES.items():
        name = name.replace(alias, ours)
    return name


def _check_width(file: Any, path: Path, model: RewardModel) -> None:
    """Blocks of another width fit nowhere; say which one they have."""
    hidden_size = model.network_config()["hidden_size"]
    for name in file.keys():  # noqa: SIM118, it is no mapping
        if BLOCK.match(name) and name.endswith(".attn.qkv.weight"):
            width = file.get_slice(name).get_shape()[-1]
            if width != hidden_size:
                raise ConfigError(
                    f"init_from {path}: its blocks are {width} wide ({name}), but hidden_size is "
                    f"{hidden_size}; set hidden_size, depth and num_heads to the generator's"
                )


def _reason_to_leave(
    name: str, stored: Any, targets: dict[str, torch.nn.Parameter], model: RewardModel
) -> str | None:
    """Why a tensor of the file is not taken; None: it is."""
    block = BLOCK.match(name)
    if block is None:
        return "not part of the blocks"
    depth = len(model.blocks)
    if int(block[1]) >= depth:
        return f"the model has depth {depth}"
    if name not in targets:
        if name.endswith(".adaLN_modulation.1.weight"):
            return "the model is not timestep_aware, so only the constants (biases) act"
        if ".q_norm." in name or ".k_norm." in name:
            return "the model has qk_norm off"
        return "the model has no such weight"
    shape = tuple(stored.get_shape())
    if shape != tuple(targets[name].shape):
        return f"of shape {shape}, where the model has {tuple(targets[name].shape)}"
    if not stored.get_dtype().startswith(("F", "BF")):
        return f"of type {stored.get_dtype()}, which is no floating point"
    return None


@torch.no_grad()
def _copy(
    tensor: Tensor,
    target: torch.nn.Parameter,
    name: str,
    model: RewardModel,
    rope: RopeLayout,
    path: Path,
) -> None:
    if not torch.isfinite(tensor.float()).all():
        raise DataError(f"init_from {path}: {quote(name)} holds numbers that are not finite")
    config = model.network_config()
    head_dim = config["hidden_size"] // config["num_heads"]
    if rope == "half" and ".attn.qkv." in name:
        q, k, v = tensor.chunk(3)
        tensor = torch.cat([_interleaved(q, head_dim), _interleaved(k, head_dim), v])
    elif rope == "half" and (".q_norm." in name or ".k_norm." in name):
        tensor = _interleaved(tensor, head_dim)
    target.copy_(tensor)


def _interleaved(rows: Tensor, head_dim: int) -> Tensor:
    """Rows of each head, from halves (pair i in rows i and i + head_dim/2) to neighbours.

    Queries and keys in the same new order have the same products.
    """
    halves = rows.view(-1, 2, head_dim // 2, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape)


def _listed(names: list[str] | tuple[str, ...]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + more
