"""Pairs of sides that a label tells apart, and what one stream says about them."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardctl.evaluation.metrics import Floats
from rewardctl.evaluation.stored import State, StoredScores, excerpt, read_sides

Numbers = NDArray[np.int64]
TIE = 0.5  # the preference of a tied label
WORST = 10  # pairs that are shown


@dataclass(frozen=True)
class LabelledPairs:
    """All pairs of sides of the same row, in order; arrays (n,)."""

    better: Numbers  # number of the side that the label calls better; of a tie the first
    worse: Numbers
    row: Numbers
    preference: Floats  # in [0.5, 1]; 0.5 is a tie


def labelled_pairs(stored: StoredScores) -> LabelledPairs:
    """The pairs of all rows; a row of K candidates has K (K - 1) / 2 of them."""
    better: list[int] = []
    worse: list[int] = []
    rows: list[int] = []
    preferences: list[float] = []
    for number, row in enumerate(stored.rows):
        if not row.is_ranked:
            is_swapped = row.preference < TIE
            better.append(row.start + is_swapped)
            worse.append(row.end - 1 - is_swapped)
            rows.append(number)
            preferences.append(max(row.preference, 1.0 - row.preference))
            continue
        first, second = (places + row.start for places in _all_pairs(row.end - row.start))
        is_tied = stored.labels[first] == stored.labels[second]
        is_higher = stored.labels[first] >= stored.labels[second]
        better += np.where(is_higher, first, second).tolist()
        worse += np.where(is_higher, second, first).tolist()
        rows += [number] * len(first)
        preferences += np.where(is_tied, TIE, 1.0).tolist()
    return LabelledPairs(
        better=np.array(better, dtype=np.int64),
        worse=np.array(worse, dtype=np.int64),
        row=np.array(rows, dtype=np.int64),
        preference=np.array(preferences, dtype=np.float64),
    )


@lru_cache(maxsize=64)
def _all_pairs(size: int) -> tuple[Numbers, Numbers]:
    """Places of both members of each pair of `size` things."""
    first, second = np.triu_indices(size, k=1)
    return first, second


@dataclass(frozen=True)
class ScoredPairs:
    """The pairs with an untied label whose sides a stream has both scored; arrays (n,)."""

    number: Numbers  # among the labelled pairs
    better: Numbers
    worse: Numbers
    row: Numbers
    preference: Floats  # in (0.5, 1]
    gap: Floats  # score of the better side minus that of the other
    n_tied_label: int  # pairs with a tied label whose sides are both scored
    n_failed: int  # pairs left out for a failed side, and rows that could not be read
    n_not_applicable: int


def scored_pairs(stored: StoredScores, pairs: LabelledPairs, stream: str) -> ScoredPairs:
    """What a stream says about the pairs."""
    states, scores = stored.states[stream], stored.scores[stream]
    sides = np.stack([states[pairs.better], states[pairs.worse]])
    is_absent = (sides == State.NOT_APPLICABLE).any(axis=0)
    has_failed = (sides == State.FAILED).any(axis=0) & ~is_absent
    is_scored = ~is_absent & ~has_failed
    is_tied = pairs.preference == TIE
    used = np.flatnonzero(is_scored & ~is_tied)
    better, worse = pairs.better[used], pairs.worse[used]
    with np.errstate(over="ignore"):
        gap = scores[better] - scores[worse]
    return ScoredPairs(
        number=used,
        better=better,
        worse=worse,
        row=pairs.row[used],
        preference=pairs.preference[used],
        gap=gap,
        n_tied_label=int((is_scored & is_tied).sum()),
        n_failed=int(has_failed.sum()) + stored.n_unread,
        n_not_applicable=int(is_absent.sum()),
    )


def worst_pairs(
    stored: StoredScores, scored: ScoredPairs, stream: str, reasons: dict[str, str]
) -> list[dict[str, Any]]:
    """The pairs that a stream has most wrong, lowest gap first; of equal gaps the first rows."""
    order = np.lexsort((scored.number, scored.gap))[:WORST]
    worst = [pair for pair in order.tolist() if scored.gap[pair] < 0]
    sides = [(int(scored.better[pair]), int(scored.worse[pair])) for pair in worst]
    records = read_sides(stored, {side for both in sides for side in both})
    found: list[dict[str, Any]] = []
    for pair, (better, worse) in zip(worst, sides, strict=True):
        gap = float(scored.gap[pair])
        # Both sides of a preference row have one place; samples of a group have each their own.
        members = (records[better], records[worse])
        places = dict.fromkeys(f"{record.get('source')}:{record.get('line')}" for record in members)
        found.append(
            {
                "place": ", ".join(places),
                "score_gap": gap if np.isfinite(gap) else None,
                "prompt": _shown(records[better], "prompt"),
                "chosen": _side(stored, records[better], stream, better),
                "rejected": _side(stored, records[worse], stream, worse),
            }
        )
    texts = [(p["prompt"], p["chosen"]["response"], p["rejected"]["response"]) for p in found]
    if texts and all(text == (None, None, None) for text in texts):
        reasons["worst_pairs.texts"] = "no text of a prompt or response is stored in these rows"
    return found


def _side(stored: StoredScores, record: dict[str, Any], stream: str, side: int) -> dict[str, Any]:
    return {
        "side": record.get("side"),
        "score": float(stored.scores[stream][side]),
        "response": _shown(record, "response"),
    }


def _shown(record: dict[str, Any], name: str) -> str | None:
    """The start of a text: what `eval` kept of it, or a column that `score` copied."""
    kept = record.get("excerpt")
    text = kept.get(name) if isinstance(kept, dict) else record.get(name)
    return excerpt(text) if isinstance(text, str) else None


def row_clusters(stored: StoredScores) -> Numbers | None:
    """The number of each row's cluster, in the order of their names; None if no row has one.

    A row without the column is a cluster of its own.
    """
    if all(row.cluster is None for row in stored.rows):
        return None
    names = [
        (0, row.cluster) if row.cluster is not None else (1, f"{row.key[0]}\0{row.key[1]}")
        for row in stored.rows
    ]
    order = {name: number for number, name in enumerate(sorted(set(names)))}
    return np.array([order[name] for name in names], dtype=np.int64)
