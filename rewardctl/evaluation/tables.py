"""Figures by dataset, subset, timestep and length of the answers, and spreads of scores."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rewardctl.evaluation import bootstrap, metrics, ranking
from rewardctl.evaluation.pairs import Numbers, ScoredPairs
from rewardctl.evaluation.stored import State, StoredScores

TIMESTEP_BINS = 10  # of equal width from 0 to 1
NEAR_EQUAL = 0.1  # of the longer
POINTS = 500  # at most, of scores against lengths


def _entry(
    scored: ScoredPairs, members: NDArray[np.bool_], clusters: Numbers | None
) -> dict[str, Any]:
    gap, preference = scored.gap[members], scored.preference[members]
    correct = metrics.correct_with_half_ties(gap)
    interval = None
    if clusters is not None:
        of_pair = clusters[scored.row[members]]
        interval = bootstrap.cluster_intervals({"accuracy": correct}, of_pair).get("accuracy")
    return {
        "n_pairs": len(gap),
        "accuracy": bootstrap.figure(metrics.mean(correct), interval),
        "accuracy_strict": metrics.mean(metrics.correct_strict(gap)),
        "n_tied_pred": int((gap == 0).sum()),
        "log_loss": metrics.mean(metrics.log_losses(gap, preference)),
        "score_gap": metrics.mean(gap),
    }


def by_column(
    stored: StoredScores,
    scored: ScoredPairs,
    column: Literal["dataset", "subset"],
    clusters: Numbers | None,
    reasons: dict[str, str],
) -> dict[str, Any] | None:
    """The table of one column, names in order, with macro and micro means of the accuracy."""
    names = [getattr(row, column) for row in stored.rows]
    if all(name is None for name in names):
        reasons[f"{column}s"] = f"no row has a column {column!r}"
        return None
    of_pair = np.array([str(names[row]) for row in scored.row], dtype=object)
    table = {}
    for name in sorted(set(of_pair)):
        table[name] = _entry(scored, of_pair == name, clusters)
    return {
        "macro_accuracy": metrics.mean(entry["accuracy"]["value"] for entry in table.values()),
        "micro_accuracy": metrics.mean(metrics.correct_with_half_ties(scored.gap)),
        "table": table,
    }


def by_timestep(
    stored: StoredScores, scored: ScoredPairs, clusters: Numbers | None, reasons: dict[str, str]
) -> list[dict[str, Any]] | None:
    """The table of timesteps from 0 to 1, bins without a pair left out."""
    known = [stored.rows[row].timestep for row in scored.row]
    times = np.array([np.nan if t is None else t for t in known], dtype=np.float64)
    if np.isnan(times).all():
        reasons["timesteps"] = "no pair has a timestep"
        return None
    if times[~np.isnan(times)].min() < 0 or times[~np.isnan(times)].max() > 1:
        reasons["timesteps"] = "a timestep lies outside 0..1"
        return None
    table = []
    for index in range(TIMESTEP_BINS):
        low, high = index / TIMESTEP_BINS, (index + 1) / TIMESTEP_BINS
        is_last = index == TIMESTEP_BINS - 1
        members = (times >= low) & ((times < high) | (is_last & (times == 1.0)))
        if members.any():
            entry = _entry(scored, members, clusters)
            table.append({"low": low, "high": high, **entry})
    return table


def length_figures(
    stored: StoredScores, scored: ScoredPairs, reasons: dict[str, str]
) -> dict[str, Any] | None:
    """What the length of the answers alone would say about these pairs."""
    better, worse = stored.lengths[scored.better], stored.lengths[scored.worse]
    known = ~np.isnan(better) & ~np.isnan(worse)
    if not known.any():
        reasons["length"] = "no pair has sides with a length in characters"
        return None
    better, worse, gap = better[known], worse[known], scored.gap[known]
    longer = np.maximum(better, worse)
    near = np.abs(better - worse) <= NEAR_EQUAL * longer
    rule = metrics.correct_with_half_ties(better - worse)
    correlation = ranking.spearman(gap, better - worse)
    if correlation is None:
        reasons["length.correlation"] = "all score gaps, or all length gaps, are equal"
    return {
        "n_pairs": int(known.sum()),
        "baseline_accuracy": metrics.mean(rule),
        "near_equal": {
            "n_pairs": int(near.sum()),
            "accuracy": metrics.mean(metrics.correct_with_half_ties(gap[near])),
        },
        "correlation": correlation,
    }


def score_histogram(
    stored: StoredScores, scored: ScoredPairs, stream: str
) -> dict[str, list[Any]] | None:
    """Counts of the scores of better and of other sides, once a pair, in the same bins."""
    chosen = stored.scores[stream][scored.better]
    rejected = stored.scores[stream][scored.worse]
    both = metrics.gap_histogram(np.concatenate([chosen, rejected]))
    if both is None:
        return None
    return {
        "edges": both["edges"],
        "chosen": np.histogram(chosen, bins=both["edges"])[0].tolist(),
        "rejected": np.histogram(rejected, bins=both["edges"])[0].tolist(),
    }


def score_by_length(
    stored: StoredScores, stream: str, reasons: dict[str, str]
) -> dict[str, Any] | None:
    """Lengths and scores of all scored sides, or of POINTS drawn evenly in order of length."""
    scores, lengths = stored.scores[stream], stored.lengths
    is_known = (stored.states[stream] == State.SCORED) & np.isfinite(scores) & ~np.isnan(lengths)
    sides = np.flatnonzero(is_known)
    if not len(sides):
        reasons["score_by_length"] = "no scored side has a length in characters"
        return None
    sides = sides[np.lexsort((scores[sides], lengths[sides]))]
    places = np.linspace(0, len(sides) - 1, min(len(sides), POINTS)).round().astype(np.int64)
    drawn = sides[places]
    return {
        "n_sides": len(sides),
        "lengths": lengths[drawn].tolist(),
        "scores": scores[drawn].tolist(),
    }
