"""Figures of rows with K labelled candidates."""

from typing import Any

import numpy as np

from rewardctl.evaluation import bootstrap, metrics, ranking
from rewardctl.evaluation.pairs import Numbers
from rewardctl.evaluation.stored import JudgedRow, State, StoredScores

RANK_FIGURES = ("kendall_tau_b", "spearman", "best_of_n")


def rank_figures(
    stored: StoredScores, stream: str, clusters: Numbers | None, reasons: dict[str, str]
) -> dict[str, Any]:
    """Means over rows whose candidates the stream has all scored; why there are none is noted."""
    ranked = [n for n, row in enumerate(stored.rows) if row.is_ranked and row.end > row.start + 1]
    used = [n for n in ranked if _is_scored(stored, stored.rows[n], stream)]
    if not used:
        why = "none is scored whole" if ranked else "no row has ranked candidates"
        reasons.update(dict.fromkeys((*RANK_FIGURES, "ranking"), why))
        return {**dict.fromkeys(RANK_FIGURES), "ranking": None}
    values: dict[str, list[float]] = {name: [] for name in RANK_FIGURES}
    rows: dict[str, list[int]] = {name: [] for name in RANK_FIGURES}
    by_chance = []
    for number in used:
        row = stored.rows[number]
        scores = stored.scores[stream][row.start : row.end]
        labels = stored.labels[row.start : row.end]
        by_chance.append(ranking.best_of_n_by_chance(labels))
        figures = (
            ranking.kendall_tau_b(scores, labels),
            ranking.spearman(scores, labels),
            ranking.best_of_n(scores, labels),
        )
        for name, value in zip(RANK_FIGURES, figures, strict=True):
            if value is not None:
                values[name].append(value)
                rows[name].append(number)
    found: dict[str, Any] = {}
    for name in RANK_FIGURES:
        interval = None
        if clusters is not None:
            numbers = np.array(values[name], dtype=np.float64)
            places = clusters[np.array(rows[name], dtype=np.int64)]
            interval = bootstrap.cluster_intervals({name: numbers}, places).get(name)
        found[name] = bootstrap.figure(metrics.mean(values[name]), interval)
    found["ranking"] = {
        "n_rows": len(used),
        "n_left_out": len(ranked) - len(used),
        "n_undefined": len(used) - len(values["kendall_tau_b"]),
        "best_of_n_by_chance": metrics.mean(by_chance),
    }
    return found


def human_agreement(
    stored: StoredScores, stream: str, reasons: dict[str, str]
) -> dict[str, Any] | None:
    """How the scores of all candidates with human scores rank beside these."""
    sides = [
        side
        for row in stored.rows
        if row.has_human_scores
        for side in range(row.start, row.end)
        if stored.states[stream][side] == State.SCORED
    ]
    if not sides:
        reasons["rank_agreement"] = "no candidate has a human score and a score"
        return None
    rho = ranking.spearman(stored.scores[stream][sides], stored.labels[sides])
    if rho is None:
        reasons["rank_agreement"] = "all scores, or all human scores, are equal"
    return {"spearman": rho, "n_candidates": len(sides)}


def _is_scored(stored: StoredScores, row: JudgedRow, stream: str) -> bool:
    return bool((stored.states[stream][row.start : row.end] == State.SCORED).all())
