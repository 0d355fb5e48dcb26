"""Scoring with the packed network against plain padded batches, in CPU time of one thread.

The plain scorer pads to 256 tokens, 32 rows a batch, in float32 without masks. Ids are in memory;
reading, tokenizing and writing are not measured.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from measure import ROUNDS, arguments, in_turns, median, median_ratio, one_thread, show

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    Items = list[NDArray[np.int32]]

TARGETS = {
    "nano": {"fp32": ">=1.9", "bf16": ">=3.5"},
    "small": {"fp32": ">=2.2", "bf16": ">=4.7"},
}
PLAIN_BATCH_SIZE = 32


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, nano=512, small=96, rounds=ROUNDS)
    one_thread()
    for size in TARGETS:
        measure(size, rows=getattr(options, size), rounds=options.rounds)


def measure(size: str, *, rows: int, rounds: int) -> None:
    """Figures of one size."""
    import torch
    from network_inputs import SIZES, VOCAB_SIZE, random_items, shaken
    from plain_network import PlainNetwork

    from rewardctl.training.reward_model import create_reward_model

    torch.manual_seed(0)
    items = random_items(rows, seed=0)
    plain = shaken(PlainNetwork(vocab_size=VOCAB_SIZE, **SIZES[size])).eval()
    variants: dict[str, Callable[[], float]] = {"plain": partial(score_padded, plain, items)}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        model = shaken(create_reward_model(size, vocab_size=VOCAB_SIZE)).for_scoring(dtype)
        variants[name] = partial(score_packed, model, items)
    in_turns(variants, 1)  # the first call of each makes its buffers
    seconds = in_turns(variants, rounds)
    for name in variants:
        show(f"{size}_{name}_rows_per_cpu_second", rows / median(seconds[name]), "rows/s")
    for name, target in TARGETS[size].items():
        show(
            f"{size}_{name}_over_plain", median_ratio(seconds["plain"], seconds[name]), "x", target
        )


def score_padded(network: "nn.Module", items: "Items") -> float:
    """CPU seconds of plain batches, in the order given."""
    import torch
    from network_inputs import padded

    started = time.process_time()
    with torch.inference_mode():
        for start in range(0, len(items), PLAIN_BATCH_SIZE):
            network(padded(items[start : start + PLAIN_BATCH_SIZE]))
    return time.process_time() - started


def score_packed(model: Any, items: "Items") -> float:
    """CPU seconds of packed batches, sorted by length and put back in order."""
    from rewardctl.training.packing import score_items

    started = time.process_time()
    score_items(model, items)
    return time.process_time() - started


if __name__ == "__main__":
    main()
