"""Two streams, or two runs, on the pairs that both have scored."""

from typing import Any

import numpy as np

from rewardctl.errors import DataError
from rewardctl.evaluation import bootstrap, metrics
from rewardctl.evaluation.pairs import (
    Numbers,
    ScoredPairs,
    labelled_pairs,
    row_clusters,
    scored_pairs,
)
from rewardctl.evaluation.stored import StoredScores


def compare(a: ScoredPairs, b: ScoredPairs, clusters: Numbers | None) -> dict[str, Any]:
    """Accuracy of both (ties half) and the difference a - b, with an interval over clusters.

    Args:
        a, b: of the same labelled pairs.
        clusters: (n_rows,) the number of each row's cluster.
    """
    _, in_a, in_b = np.intersect1d(a.number, b.number, assume_unique=True, return_indices=True)
    right_a = metrics.correct_with_half_ties(a.gap[in_a])
    right_b = metrics.correct_with_half_ties(b.gap[in_b])
    difference = right_a - right_b
    interval = None
    if clusters is not None:
        found = bootstrap.cluster_intervals({"difference": difference}, clusters[a.row[in_a]])
        interval = found.get("difference")
    return {
        "n_pairs": len(difference),
        "accuracy_a": metrics.mean(right_a),
        "accuracy_b": metrics.mean(right_b),
        "difference": bootstrap.figure(metrics.mean(difference), interval),
        "n_a_better": int((difference > 0).sum()),
        "n_b_better": int((difference < 0).sum()),
    }


def compare_runs(a: StoredScores, stream_a: str, b: StoredScores, stream_b: str) -> dict[str, Any]:
    """`compare` for streams of two runs over the same rows, found by file and line.

    Raises:
        DataError: no pair was scored by both.
    """
    pairs = labelled_pairs(a)
    rows = {row.key: row for row in b.rows}
    first = scored_pairs(a, pairs, stream_a)
    other = scored_pairs(b, labelled_pairs(b), stream_b)
    gaps = {
        (int(better), int(worse)): float(gap)
        for better, worse, gap in zip(other.better, other.worse, other.gap, strict=True)
    }
    numbers, found = [], []
    for place, (better, worse, number) in enumerate(
        zip(first.better.tolist(), first.worse.tolist(), first.row.tolist(), strict=True)
    ):
        row = a.rows[number]
        match = rows.get(row.key)
        if match is None or match.end - match.start != row.end - row.start:
            continue
        shift = match.start - row.start
        gap = gaps.get((better + shift, worse + shift))
        if gap is not None:
            numbers.append(place)
            found.append(gap)
    if not found:
        raise DataError(
            f"--compare: {a.path} and {b.path} have no pair in common; rows are matched by file "
            "name and line, and by dataset and unique_id under --label"
        )
    kept = np.array(numbers, dtype=np.int64)
    same_b = ScoredPairs(
        number=first.number[kept],
        better=first.better[kept],
        worse=first.worse[kept],
        row=first.row[kept],
        preference=first.preference[kept],
        gap=np.array(found, dtype=np.float64),
        n_tied_label=0,
        n_failed=0,
        n_not_applicable=0,
    )
    return compare(first, same_b, row_clusters(a))
