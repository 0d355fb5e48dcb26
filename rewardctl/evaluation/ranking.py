"""Agreement of two rankings of the same things, ties allowed: Kendall, Spearman, best of N."""

import numpy as np
from numpy.typing import NDArray

from rewardctl.evaluation.metrics import Floats

_BLOCK = 512  # rows of a comparison table held at one time


def kendall_tau_b(first: Floats, second: Floats) -> float | None:
    """Kendall's tau-b (Kendall 1945); None where one side has no two different values."""
    agree = first_untied = second_untied = 0
    for start in range(0, len(first), _BLOCK):
        block = slice(start, start + _BLOCK)
        a = _signs(first, block)
        b = _signs(second, block)
        agree += int((a * b).sum(dtype=np.int64))
        first_untied += int(np.count_nonzero(a))
        second_untied += int(np.count_nonzero(b))
    if not first_untied or not second_untied:
        return None
    # Every pair was seen from both of its ends, which the ratio does not notice.
    return agree / float(np.sqrt(float(first_untied) * float(second_untied)))


def _signs(values: Floats, block: slice) -> NDArray[np.int8]:
    """-1, 0, 1 for each of the block against all: compared, as a difference may overflow."""
    part = values[block, None]
    return (part > values).astype(np.int8) - (part < values).astype(np.int8)


def average_ranks(values: Floats) -> Floats:
    """Ranks from 1, lowest first; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared = ends - (counts - 1) / 2
    ranks: Floats = shared[inverse.reshape(-1)]
    return ranks


def spearman(first: Floats, second: Floats) -> float | None:
    """Spearman's rho: the correlation of average ranks; None where one side is constant."""
    a, b = average_ranks(first), average_ranks(second)
    # Ranks are whole or half numbers around (n + 1) / 2: these sums are exact below 10^5 values.
    center = (len(a) + 1) / 2
    a, b = a - center, b - center
    scale = float(np.sqrt(float(a @ a) * float(b @ b)))
    if scale == 0.0:
        return None
    return float(min(1.0, max(-1.0, float(a @ b) / scale)))


def best_of_n(scores: Floats, labels: Floats) -> float:
    """The chance that the highest score's candidate is one of the best labelled.

    Equal highest scores are drawn from evenly, so the order of the candidates is nothing.
    """
    top = scores == scores.max()
    return float((labels[top] == labels.max()).mean())


def best_of_n_by_chance(labels: Floats) -> float:
    """What a candidate drawn evenly gets."""
    return float((labels == labels.max()).mean())
