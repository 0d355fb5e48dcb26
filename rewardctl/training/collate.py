"""Pairs as padded tensors of one batch. The trainer packs instead, and does not use this."""

from collections.abc import Sequence
from typing import Any

import torch

from rewardctl.data.preference_dataset import PreferencePair, StepwisePreference, item_array
from rewardctl.errors import DataError

NEUTRAL_MARGIN = 1.0  # a factor of the score gap, which it leaves as it is


def collate_preference_pairs(
    pairs: Sequence[PreferencePair | StepwisePreference],
) -> dict[str, torch.Tensor]:
    """A batch of pairs, each side padded at its end with zeros to the longest of that side.

    Returns:
        `chosen`, `rejected`: int64 (n, length) tokens, or float32 (n, length, channels) latents.
        `chosen_mask`, `rejected_mask`: bool (n, length), True where there is content.
        `margin`: float32 (n,); 1.0, the neutral factor, where a pair has none.
        `t`: float32 (n,), only where the pairs have timesteps.

    Raises:
        DataError: no pairs, text, sides of different kinds, or timesteps in some pairs only.
    """
    if not pairs:
        raise DataError("expected pairs to collate, found none")
    batch: dict[str, torch.Tensor] = {}
    for side in ("chosen", "rejected"):
        items = [
            item_array(getattr(pair, side), f"pair {place}: {side}")
            for place, pair in enumerate(pairs)
        ]
        batch[side], batch[f"{side}_mask"] = _pad(items, side)
    margins = [NEUTRAL_MARGIN if pair.margin is None else float(pair.margin) for pair in pairs]
    batch["margin"] = torch.tensor(margins, dtype=torch.float32)
    times = [pair.timestep for pair in pairs if isinstance(pair, StepwisePreference)]
    if times and len(times) < len(pairs):
        raise DataError(
            f"expected a timestep in all {len(pairs)} pairs or in none, found {len(times)}; "
            "make batches of StepwisePreference apart"
        )
    if times:
        batch["t"] = torch.tensor(times, dtype=torch.float32)
    return batch


def _pad(items: Sequence[Any], side: str) -> tuple[torch.Tensor, torch.Tensor]:
    widths = {item.shape[1:] for item in items}
    if len(widths) > 1:
        raise DataError(
            f"{side}: expected items of one kind and number of channels, "
            f"found {', '.join(sorted(str(item.shape) for item in items)[:8])}"
        )
    lengths = [len(item) for item in items]
    dtype = torch.float32 if items[0].dtype.kind == "f" else torch.int64
    padded = torch.zeros((len(items), max(lengths), *widths.pop()), dtype=dtype)
    for row, item in zip(padded, items, strict=True):
        row[: len(item)] = torch.from_numpy(item)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return padded, mask
