"""The learning rate of each optimizer step."""

import math


def learning_rate(
    step: int, *, lr: float, warmup_steps: int, total_steps: int, schedule: str
) -> float:
    """The rate of a step, counted from 0.

    Warmup rises as lr·(step + 1)/warmup_steps; after it the rate is constant, or falls to 0 at
    `total_steps` along a line or half a cosine.
    """
    if step < warmup_steps:
        return lr * (step + 1) / warmup_steps
    if schedule == "constant":
        return lr
    done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    if schedule == "linear":
        return lr * (1 - done)
    return lr * (1 + math.cos(math.pi * done)) / 2
