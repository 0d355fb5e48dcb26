"""The weighted aggregate of one row's scores."""

import math
from collections.abc import Sequence

from rewardctl.config.schema import ScoreConfig


def aggregate(
    scores: Sequence[float | None], weights: Sequence[float], rule: ScoreConfig
) -> tuple[float | None, float]:
    """Weighted sum or mean over the applicable streams of one row.

    Sums run over the applicable streams (app), or those of them with a score (ok):
    weighted_sum = Σ_app w·s and weighted_mean = Σ_app w·s / Σ_app w. Where an applicable stream
    failed the value is None, or under `renormalize` (Σ_ok w·s)·(Σ_app w)/(Σ_ok w) for the sum and
    Σ_ok w·s/Σ_ok w for the mean.

    Args:
        scores: of the applicable streams, in order; None where the stream failed.
        weights: of the same streams.

    Returns:
        (value, Σ w of the streams that entered). The value is None too when nothing applies, a
        divisor is not > 0, or the result is not finite.
    """
    all_ok = None not in scores
    if not (all_ok or rule.on_failure == "renormalize"):
        return None, 0.0
    products = [s * w for s, w in zip(scores, weights, strict=True) if s is not None]
    if not products:
        return None, 0.0
    used = weights if all_ok else [w for s, w in zip(scores, weights, strict=True) if s is not None]
    weight_sum = math.fsum(used)
    try:
        total = math.fsum(products)
    except (OverflowError, ValueError):  # sums beyond the range of float64, or inf - inf
        return None, weight_sum
    if rule.aggregate == "weighted_mean":
        value = total / weight_sum if weight_sum > 0 else None
    elif all_ok:
        value = total
    else:
        value = total * math.fsum(weights) / weight_sum if weight_sum > 0 else None
    if value is not None and not math.isfinite(value):
        value = None
    return value, weight_sum
