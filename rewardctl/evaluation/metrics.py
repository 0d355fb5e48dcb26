"""Figures over pairs, from score gaps. All in float64; means are exact sums, so order is nothing.

A gap is the score of the side that the label calls better minus the score of the other. Intervals
are in bootstrap.py, calibration in calibration.py, rows of more than two in ranking.py.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
QUARTILES = (0.25, 0.5, 0.75)
HISTOGRAM_BINS = 20


def mean(values: Iterable[float]) -> float | None:
    """The mean, the same for any order of the values; None of no values, or of one not finite."""
    numbers = [float(value) for value in values]
    if not numbers or not all(map(math.isfinite, numbers)):
        return None
    try:
        return math.fsum(numbers) / len(numbers)
    except OverflowError:  # the sum is beyond float64, the mean is not
        return math.fsum(number / len(numbers) for number in numbers)


def correct_with_half_ties(gap: Floats) -> Floats:
    """1 where the better side scores higher, 0.5 where both score the same, 0 where it is lower."""
    # A tie counts half: a model that scores every side alike must look like chance.
    return np.where(gap == 0, 0.5, (gap > 0).astype(np.float64))


def correct_strict(gap: Floats) -> Floats:
    """1 where the better side scores higher; a tie is wrong."""
    return (gap > 0).astype(np.float64)


def sigmoid(gap: Floats) -> Floats:
    """The probability that a Bradley-Terry model gives the better side; no overflow."""
    return np.exp(-np.logaddexp(0.0, -gap))


def log_losses(gap: Floats, preference: Floats) -> Floats:
    """Cross-entropy of each pair in nats, in log space.

    Args:
        preference: probability of the label that the better side is better, in (0.5, 1].
    """
    wrong = np.where(preference == 1.0, 0.0, np.logaddexp(0.0, gap))  # 0 times inf is no loss
    return preference * np.logaddexp(0.0, -gap) + (1.0 - preference) * wrong


def brier_scores(gap: Floats, preference: Floats) -> Floats:
    """Squared distance of the Bradley-Terry probability from the label's, for each pair."""
    return (sigmoid(gap) - preference) ** 2


def gap_statistics(gap: Floats) -> dict[str, float | None] | None:
    """Spread of the gaps; `std` is of the sample (n - 1), quartiles are linearly interpolated."""
    if not len(gap) or not np.isfinite(gap).all():
        return None
    q25, median, q75 = (float(q) for q in np.quantile(gap, QUARTILES))
    center = mean(gap)
    assert center is not None
    variance = None
    if len(gap) > 1:
        with np.errstate(over="ignore"):
            squares = (gap - center) ** 2
        if np.isfinite(squares).all():
            variance = math.fsum(squares / (len(gap) - 1))
    return {
        "std": None if variance is None else math.sqrt(variance),
        "min": float(gap.min()),
        "q25": q25,
        "median": median,
        "q75": q75,
        "max": float(gap.max()),
    }


def gap_histogram(gap: Floats) -> dict[str, list[Any]] | None:
    """Counts of gaps in equal bins from the lowest to the highest, with the edges of the bins."""
    with np.errstate(over="ignore"):
        if not len(gap) or not np.isfinite(gap).all() or not np.isfinite(np.ptp(gap)):
            return None
    counts, edges = np.histogram(gap, bins=HISTOGRAM_BINS)
    return {"edges": edges.tolist(), "counts": counts.tolist()}
