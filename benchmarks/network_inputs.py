"""Networks and inputs that the speed of training and scoring is measured on."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from numpy.typing import NDArray

VOCAB_SIZE = 8192
SEQ_LENGTH = 256  # what the plain network pads to
SIZES: dict[str, dict[str, int]] = {
    "nano": {"hidden_size": 128, "depth": 2, "num_heads": 4},
    "small": {"hidden_size": 384, "depth": 6, "num_heads": 6},
}


def random_items(n: int, seed: int) -> "list[NDArray[np.int32]]":
    """Token ids as of prompts with responses: log-normal, 50 to 256 tokens, median 118, p90 183."""
    generator = np.random.default_rng(seed)
    lengths = np.exp(generator.normal(np.log(118), 0.342, n)).round()
    return [
        generator.integers(0, VOCAB_SIZE, int(length)).astype(np.int32)
        for length in lengths.clip(50, SEQ_LENGTH)
    ]


def padded(items: "list[NDArray[np.int32]]") -> torch.Tensor:
    """int64 (n, SEQ_LENGTH), zeros behind the items."""
    batch = torch.zeros(len(items), SEQ_LENGTH, dtype=torch.long)
    for row, ids in zip(batch, items, strict=True):
        row[: len(ids)] = torch.from_numpy(ids)
    return batch


def shaken(network: Any) -> Any:
    """The network with weights as after training: an untrained one's gates are closed."""
    assert isinstance(network, nn.Module)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.02 * torch.randn(weight.shape, generator=generator))
    return network
