"""Whether the probability that a score gap stands for is the share of pairs that are right."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rewardctl.evaluation.metrics import Floats, log_losses, mean, sigmoid

BINS = 10  # of equal width from 0.5 to 1, the last one closed


@dataclass(frozen=True)
class Calibration:
    """The reliability table and its summary."""

    ece: float | None
    table: list[dict[str, Any]]  # one entry a bin: low, high, n, confidence, accuracy


def calibrate(gap: Floats, preference: Floats) -> Calibration:
    """Expected calibration error of the predicted side (Guo et al. 2017, equation 3).

    The confidence of a pair is sigmoid(|gap|); its accuracy is the label's probability of the side
    that scores higher, 0.5 for equal scores.
    """
    confidence = sigmoid(np.abs(gap))
    hit = np.where(gap > 0, preference, np.where(gap < 0, 1.0 - preference, 0.5))
    edges = np.linspace(0.5, 1.0, BINS + 1)
    places = np.minimum(np.searchsorted(edges, confidence, side="right") - 1, BINS - 1)
    table: list[dict[str, Any]] = []
    distances = []
    for index in range(BINS):
        members = places == index
        n = int(members.sum())
        expected, observed = mean(confidence[members]), mean(hit[members])
        if expected is not None and observed is not None:
            distances.append(n * abs(expected - observed))
        table.append(
            {
                "low": round(float(edges[index]), 2),
                "high": round(float(edges[index + 1]), 2),
                "n": n,
                "confidence": expected,
                "accuracy": observed,
            }
        )
    ece = math.fsum(distances) / len(gap) if len(gap) else None
    return Calibration(ece, table)


@dataclass(frozen=True)
class Temperature:
    """The number that gaps are best divided by; None with the reason where there is none."""

    value: float | None
    log_loss: float | None = None  # of gap / value
    reason: str | None = None


def fit_temperature(gap: Floats, preference: Floats) -> Temperature:
    """The temperature with the least log-loss over these very pairs.

    The log-loss is convex in 1 / T, so the zero of its slope is found by bisection.
    """
    if not len(gap):
        return Temperature(None, reason="no pairs")
    if not np.isfinite(gap).all() or not gap.any():
        return Temperature(None, reason="the gaps are all 0, or not all finite")
    if not ((gap < 0) | ((gap > 0) & (preference < 1))).any():
        return Temperature(None, reason="none above 0: no pair is wrong")
    scale = float(np.abs(gap).max())
    unit = gap / scale
    if _slope(unit, preference, 0.0) >= 0:
        return Temperature(None, reason="no finite one: the scores do not agree with the labels")
    high = 1.0
    while _slope(unit, preference, high) < 0:
        high *= 2
    low = 0.0
    while low < (middle := (low + high) / 2) < high:  # until float64 holds nothing between
        if _slope(unit, preference, middle) < 0:
            low = middle
        else:
            high = middle
    best = (low + high) / 2
    return Temperature(scale / best, mean(log_losses(unit * best, preference)))


def _slope(unit: Floats, preference: Floats, inverse: float) -> float:
    """Derivative of the summed log-loss by 1 / T.

    The probabilities of the other side are used: near 1 they hold what 1 - sigmoid would round.
    """
    pull = (1.0 - preference) * sigmoid(unit * inverse) - preference * sigmoid(-unit * inverse)
    return math.fsum(pull * unit)
