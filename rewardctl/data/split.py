"""Holding out a share of rows, whole values of a column at a time."""

import hashlib
from collections import Counter
from collections.abc import Hashable, Sequence

from rewardctl.errors import DataError


def held_out(values: Sequence[Hashable], share: float, seed: int) -> list[bool]:
    """Which rows are held out: all or none of those with one value, about `share` of all rows.

    Which values those are depends on the values, their counts and the seed, not on the row order.

    Args:
        values: One a row.
        share: Between 0 and 1.

    Raises:
        DataError: there is only one value, so one side would be empty.
    """
    counts = Counter(values)
    if len(counts) < 2:
        raise DataError(f"expected rows of at least two values to split, found {len(counts)}")
    # Hashed, not shuffled: with more rows of new values, most old ones stay on their side.
    order = sorted(counts, key=lambda value: _digest(value, seed))
    wanted = share * len(values)
    chosen: set[Hashable] = set()
    taken = 0
    for value in order:
        is_nearer = abs(taken + counts[value] - wanted) < abs(taken - wanted)
        if is_nearer and len(chosen) < len(counts) - 1:
            chosen.add(value)
            taken += counts[value]
    if not chosen:  # each value has more than twice the share
        chosen = {min(order, key=lambda value: counts[value])}
    return [value in chosen for value in values]


def _digest(value: Hashable, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\0{value!r}".encode("utf-8", "backslashreplace")).digest()
