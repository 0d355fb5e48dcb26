"""Intervals by resampling whole clusters, such as all pairs of one prompt."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardctl.evaluation.metrics import Floats

DRAWS = 2000
LEVELS = (0.025, 0.975)
FEW_CLUSTERS = 20  # below, percentile intervals are known to be too narrow


@dataclass(frozen=True)
class Interval:
    """A 95 % percentile interval; of one cluster nothing can be said."""

    low: float | None
    high: float | None
    n_clusters: int


def cluster_intervals(
    figures: Mapping[str, Floats], clusters: NDArray[np.int64], *, seed: int = 0
) -> dict[str, Interval]:
    """Intervals of the means of some values, each (n,), over the same n things.

    Clusters are drawn with replacement, as many as there are; a draw's mean is over all members
    of the drawn clusters. All figures see the same draws. A figure that is not finite is left out.

    Args:
        clusters: (n,) the number of each thing's cluster; which number is nothing but an order.
    """
    if not len(clusters):
        return {}
    _, codes = np.unique(clusters, return_inverse=True)
    codes = codes.reshape(-1)
    count = int(codes.max()) + 1
    names = [name for name, values in figures.items() if np.isfinite(values).all()]
    if not names:
        return {}
    if count == 1:
        return {name: Interval(None, None, count) for name in names}
    sums = [_cluster_sums(figures[name], codes) for name in names]
    table = np.stack([*sums, np.bincount(codes).astype(np.float64)], axis=1)
    rng = np.random.default_rng(seed)
    draws = np.empty((DRAWS, len(names)))
    for draw in range(DRAWS):
        picked = np.bincount(rng.integers(0, count, size=count), minlength=count)
        drawn = picked.astype(np.float64) @ table
        draws[draw] = drawn[:-1] / drawn[-1]
    low, high = np.quantile(draws, LEVELS, axis=0)
    return {
        name: Interval(float(low[i]), float(high[i]), count)
        for i, name in enumerate(names)
        if np.isfinite(low[i]) and np.isfinite(high[i])
    }


def _cluster_sums(values: Floats, codes: NDArray[np.int64]) -> Floats:
    """The sum of each cluster, added from the lowest value up so that input order is nothing."""
    order = np.lexsort((values, codes))
    return np.bincount(codes[order], weights=values[order]).astype(np.float64)


def figure(value: float | None, interval: Interval | None) -> dict[str, Any]:
    """A figure of the report, with its interval where there is one."""
    if value is None or interval is None:
        return {"value": value, "low": None, "high": None, "n_clusters": None}
    found: dict[str, Any] = {
        "value": value,
        "low": interval.low,
        "high": interval.high,
        "n_clusters": interval.n_clusters,
    }
    if interval.n_clusters < FEW_CLUSTERS:
        found["unreliable"] = True
    return found
