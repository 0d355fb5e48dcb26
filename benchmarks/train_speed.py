"""Training steps of the packed network against a plain trainer, in CPU time of one thread.

The plain trainer makes two forward passes a step, padded to 256 tokens without masks, in float32
with AdamW in a loop. Ids are in memory; reading, logging and saving are not measured.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from measure import ROUNDS, arguments, in_turns, median, median_ratio, one_thread, show

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn
    from torch.optim import Optimizer

    Batch = list[NDArray[np.int32]]  # chosen, then rejected

TARGETS = {
    "nano": {"fp32": ">=2.0", "bf16": ">=2.7", "peak": ">=0.36"},
    "small": {"fp32": ">=2.2", "bf16": ">=4.0", "peak": ">=0.6"},
}
PEAK_SIDE = 2048  # of the matrices whose product tells the machine's peak


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, nano=32, small=16, steps=2, rounds=ROUNDS)
    one_thread()
    for size in TARGETS:
        measure(size, pairs=getattr(options, size), steps=options.steps, rounds=options.rounds)


def measure(size: str, *, pairs: int, steps: int, rounds: int) -> None:
    """Figures of one size, with so many pairs a step."""
    import torch
    from network_inputs import SIZES, VOCAB_SIZE, random_items, shaken
    from plain_network import PlainNetwork

    from rewardctl.training.reward_model import create_reward_model

    torch.manual_seed(0)
    batches = [random_items(2 * pairs, seed) for seed in range(steps)]
    plain = shaken(PlainNetwork(vocab_size=VOCAB_SIZE, **SIZES[size]))
    variants: dict[str, Callable[[], float]] = {
        "plain": partial(run, plain_scores, plain, {"foreach": False}, batches),
        "peak": seconds_of_peak,
    }
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        model = shaken(create_reward_model(size, vocab_size=VOCAB_SIZE))
        model.body_dtype = dtype
        variants[name] = partial(run, packed_scores, model, {"fused": True}, batches)
    in_turns(variants, 1)  # the first step of each makes its buffers
    seconds = in_turns(variants, rounds)
    for name in ("plain", "fp32", "bf16"):
        show(
            f"{size}_{name}_pairs_per_cpu_second", steps * pairs / median(seconds[name]), "pairs/s"
        )
    for name in ("fp32", "bf16"):
        ratio = median_ratio(seconds["plain"], seconds[name])
        show(f"{size}_{name}_over_plain", ratio, "x", TARGETS[size][name])
    useful = useful_flops(batches, **SIZES[size])
    share = useful / (2 * PEAK_SIDE**3) * median_ratio(seconds["peak"], seconds["fp32"])
    show(f"{size}_fp32_share_of_peak", share, "of_flops", TARGETS[size]["peak"])
    show(f"{size}_computed_over_real", computed_over_real(model, batches), "tokens", "<=1.02")


def run(
    scores_of: "Callable[[Any, Batch], Tensor]",
    network: "nn.Module",
    adamw: dict[str, bool],
    batches: "Iterable[Batch]",
) -> float:
    """CPU seconds of a step on each batch."""
    import torch

    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, weight_decay=0.01, **adamw)
    started = time.process_time()
    for batch in batches:
        step(scores_of(network, batch), network, optimizer)
    return time.process_time() - started


def step(scores: "Tensor", network: "nn.Module", optimizer: "Optimizer") -> None:
    """Learn from scores of the chosen sides, then of the rejected ones."""
    import torch
    import torch.nn.functional as F

    pairs = len(scores) // 2
    loss = F.softplus(scores[pairs:] - scores[:pairs]).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()


def plain_scores(network: "nn.Module", batch: "Batch") -> "Tensor":
    """Two padded passes."""
    import torch
    from network_inputs import padded

    pairs = len(batch) // 2
    return torch.cat([network(padded(batch[:pairs])), network(padded(batch[pairs:]))])


def packed_scores(model: Any, batch: "Batch") -> "Tensor":
    """One packed pass, sorted by length."""
    import torch

    from rewardctl.training.packing import by_length, pack

    order = by_length(batch)
    scores: Tensor = model.score_packed(*pack([batch[place] for place in order]))
    return scores[torch.argsort(torch.tensor(order))]


def seconds_of_peak() -> float:
    """CPU seconds of a float32 product of large matrices."""
    import torch

    a, b = torch.rand(2, PEAK_SIDE, PEAK_SIDE)
    started = time.process_time()
    torch.mm(a, b)
    return time.process_time() - started


def useful_flops(
    batches: "Iterable[Batch]", *, hidden_size: int, depth: int, num_heads: int
) -> float:
    """Of real tokens, forward and twice that backward: linear layers (24 h² a token and block with
    an MLP of 4 h) and attention (4 h for each pair of positions).
    """
    lengths = [len(ids) for batch in batches for ids in batch]
    forward = sum(24 * hidden_size**2 * n + 4 * hidden_size * n * n for n in lengths) * depth
    return 3 * forward


def computed_over_real(model: Any, batches: "Iterable[Batch]") -> float:
    """Positions that a block computes, over tokens."""
    import torch

    computed: list[int] = []
    hook = model.blocks[0].register_forward_pre_hook(lambda _, args: computed.append(len(args[0])))
    with torch.no_grad():
        for batch in batches:
            packed_scores(model, batch)
    hook.remove()
    return sum(computed) / sum(len(ids) for batch in batches for ids in batch)


if __name__ == "__main__":
    main()
