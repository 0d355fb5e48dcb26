"""Items of different lengths as one stream without padding, and their scores in the order given."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from rewardctl.training.reward_model import RewardModel

SCORING_TOKENS = 4096  # of one forward pass: larger ones leave the processor's cache


def pack(
    items: Sequence["np.ndarray[Any, Any]"], device: torch.device | str = "cpu"
) -> tuple[torch.Tensor, list[int]]:
    """Items behind one another, and their lengths.

    Args:
        items: int32 (length,) tokens, or float32 (length, channels) latents.

    Returns:
        int64 (total,) or float32 (total, channels), and a length for each item.
    """
    flat = torch.from_numpy(np.concatenate(items))
    if not flat.is_floating_point():
        flat = flat.long()
    return flat.to(device), [len(item) for item in items]


def by_length(items: Sequence["np.ndarray[Any, Any]"]) -> list[int]:
    """Places of the items from the longest to the shortest, equal ones in the order given."""
    return sorted(range(len(items)), key=lambda place: -len(items[place]))


def cut_by_tokens(lengths: Sequence[int], max_tokens: int | None) -> Iterator[slice]:
    """Runs of neighbours with at most `max_tokens` positions together, at least one item each."""
    start = total = 0
    for place, length in enumerate(lengths):
        if max_tokens is not None and place > start and total + length > max_tokens:
            yield slice(start, place)
            start, total = place, 0
        total += length
    if lengths:
        yield slice(start, len(lengths))


@torch.no_grad()
def score_items(
    model: "RewardModel",
    items: Sequence["np.ndarray[Any, Any]"],
    timesteps: Sequence[float] | None = None,
    *,
    max_tokens: int = SCORING_TOKENS,
) -> torch.Tensor:
    """Scores of items by a model in evaluation mode: sorted by length, packed, and put back in
    order.

    Args:
        timesteps: one for each item, for a timestep-aware model.

    Returns:
        float32 (n,) on the CPU.
    """
    device = next(model.parameters()).device
    order = by_length(items)
    scores = torch.empty(len(items), dtype=torch.float32)
    for part in cut_by_tokens([len(items[place]) for place in order], max_tokens):
        places = order[part]
        flat, lengths = pack([items[place] for place in places], device)
        t = None
        if timesteps is not None:
            t = torch.tensor([timesteps[p] for p in places], dtype=torch.float32, device=device)
        scores[places] = model.score_packed(flat, lengths, t).cpu()
    return scores
