"""The report of an evaluation: what is measured of each stream, as JSON-ready mappings.

How each figure is meant stands in the report itself, under `conventions`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rewardctl import __version__
from rewardctl.evaluation import bootstrap, calibration, metrics
from rewardctl.evaluation.compare import compare
from rewardctl.evaluation.pairs import (
    WORST,
    LabelledPairs,
    Numbers,
    ScoredPairs,
    labelled_pairs,
    row_clusters,
    scored_pairs,
    worst_pairs,
)
from rewardctl.evaluation.rank_figures import human_agreement, rank_figures
from rewardctl.evaluation.stored import EXCERPT, StoredScores
from rewardctl.evaluation.tables import (
    POINTS,
    by_column,
    by_timestep,
    length_figures,
    score_by_length,
    score_histogram,
)

CONVENTIONS = {
    "n_pairs": "pairs with an untied label whose sides the stream has both scored; a row of K "
    "candidates gives K (K - 1) / 2 pairs, its tied ones counted in n_tied_label; row weights are "
    "not used",
    "accuracy": "mean over pairs; equal scores count half",
    "accuracy_strict": "mean over pairs; equal scores count as wrong",
    "n_tied_pred": "pairs of n_pairs whose sides have equal scores",
    "n_tied_label": "pairs with a tied label (preference 0.5, or equal labels), in no other figure",
    "preference": "a preference below 0.5 counts as its swap",
    "log_loss": "cross-entropy in nats of sigmoid(gap) and the label's preference",
    "brier": "mean of (sigmoid(gap) - preference)^2, one term a pair, from 0 to 1",
    "ece": f"of the predicted side, with confidence sigmoid(|gap|), in {calibration.BINS} equal "
    "bins from 0.5 to 1; each bin counts by its pairs",
    "temperature": "the T that minimises the log-loss of gap / T on these very pairs",
    "score_gap": "score of the better side minus score of the other",
    "means": "micro: over pairs; macro: of the tables' own figures, each entry alike",
    "kendall_tau_b": "mean over rows of candidates; rows with all scores or labels equal are "
    "undefined, counted and left out",
    "spearman": "of average ranks; mean over rows as for kendall_tau_b",
    "best_of_n": "chance that the highest score's candidate is among the best labelled; equal "
    "highest scores are drawn from evenly",
    "rank_agreement": "Spearman over all candidates with human scores, rows pooled",
    "length": "in characters of the response; baseline: the longer side is better, equal lengths "
    "half; near_equal: lengths within 10 % of the longer; correlation: Spearman of score gap and "
    "length gap",
    "score_histogram": "scores of the better (chosen) and the other (rejected) sides of n_pairs, "
    "once for each pair, in the same bins",
    "score_by_length": f"all scored sides, or {POINTS} drawn evenly in order of length",
    "worst_pairs": f"up to {WORST} of n_pairs with a score gap below 0, lowest first; chosen is "
    f"the better side by its label, texts are cut at {EXCERPT} characters",
    "intervals": f"95 % percentile bootstrap of whole clusters, {bootstrap.DRAWS} draws, seed 0; "
    f"unreliable: under {bootstrap.FEW_CLUSTERS} clusters; a row without the cluster column is a "
    "cluster of its own",
}


def evaluate(
    stored: StoredScores,
    *,
    cluster: str,
    probes: Mapping[str, Mapping[str, Any]] | None = None,
    comparisons: Sequence[tuple[str, str]] | None = None,
    data: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Measure all streams.

    Args:
        cluster: the column that `stored` was read with.
        probes: stream -> what was asked of its model besides; None: there is no model.
        comparisons: streams to compare with each other; None: the first with each of the others.
        data: facts of the files that were scored; None where they are not known.
    """
    pairs = labelled_pairs(stored)
    clusters = row_clusters(stored)
    scored = {name: scored_pairs(stored, pairs, name) for name in stored.streams}
    streams = {}
    for name in stored.streams:
        figures = _Figures(stored, pairs, scored[name], clusters, name, cluster)
        streams[name] = figures.report((probes or {}).get(name))
    if comparisons is None:
        comparisons = [(stored.streams[0], other) for other in stored.streams[1:]]
    return {
        "version": __version__,
        "scores": str(stored.path),
        "data": data,
        "n_rows": len(stored.rows) + stored.n_unread,
        "cluster": {
            "column": cluster,
            "n_clusters": None if clusters is None else len(set(clusters.tolist())),
        },
        "streams": streams,
        "comparisons": [
            {"a": a, "b": b, **compare(scored[a], scored[b], clusters)} for a, b in comparisons
        ],
        "conventions": CONVENTIONS,
    }


class _Figures:
    """The figures of one stream; those that cannot be given are null, with the reason."""

    def __init__(
        self,
        stored: StoredScores,
        pairs: LabelledPairs,
        scored: ScoredPairs,
        clusters: Numbers | None,
        name: str,
        cluster: str,
    ) -> None:
        self.stored, self.pairs, self.scored, self.clusters = stored, pairs, scored, clusters
        self.name = name
        self.cluster = cluster
        self.reasons: dict[str, str] = {}

    def report(self, probes: Mapping[str, Any] | None) -> dict[str, Any]:
        """All figures of the stream, pairs first."""
        found: dict[str, Any] = {
            "n_pairs": len(self.scored.gap),
            **self._means(),
            "n_tied_pred": int((self.scored.gap == 0).sum()),
            "n_tied_label": self.scored.n_tied_label,
            "n_failed": self.scored.n_failed,
            "n_not_applicable": self.scored.n_not_applicable,
            "score_gap_statistics": metrics.gap_statistics(self.scored.gap),
            "score_gap_histogram": metrics.gap_histogram(self.scored.gap),
            "score_histogram": score_histogram(self.stored, self.scored, self.name),
            **self._calibration(),
            **rank_figures(self.stored, self.name, self.clusters, self.reasons),
            "rank_agreement": human_agreement(self.stored, self.name, self.reasons),
            "datasets": self._by_column("dataset"),
            "subsets": self._by_column("subset"),
            "timesteps": by_timestep(self.stored, self.scored, self.clusters, self.reasons),
            "length": length_figures(self.stored, self.scored, self.reasons),
            "score_by_length": score_by_length(self.stored, self.name, self.reasons),
            "worst_pairs": worst_pairs(self.stored, self.scored, self.name, self.reasons),
        }
        for probe in ("swap_probe", "batch_probe"):
            found[probe] = (probes or {}).get(probe)
            if probes is None:
                self.reasons[probe] = "stored scores: there is no model to ask"
        for name, reason in (probes or {}).get("reasons", {}).items():
            self.reasons[name] = reason
        found["reasons"] = self.reasons
        return found

    def _by_column(self, column: Literal["dataset", "subset"]) -> dict[str, Any] | None:
        return by_column(self.stored, self.scored, column, self.clusters, self.reasons)

    def _means(self) -> dict[str, Any]:
        gap, preference = self.scored.gap, self.scored.preference
        values = {
            "accuracy": metrics.correct_with_half_ties(gap),
            "accuracy_strict": metrics.correct_strict(gap),
            "log_loss": metrics.log_losses(gap, preference),
            "brier": metrics.brier_scores(gap, preference),
            "score_gap": gap,
        }
        intervals: dict[str, bootstrap.Interval] = {}
        if self.clusters is None:
            self.reasons["intervals"] = f"no row has the cluster column {self.cluster!r}"
        else:
            intervals = bootstrap.cluster_intervals(values, self.clusters[self.scored.row])
            if any(found.n_clusters == 1 for found in intervals.values()):
                self.reasons["intervals"] = f"all pairs are of one {self.cluster!r}"
        if not len(gap):
            self.reasons["accuracy"] = "no pair has an untied label and a score of both sides"
        return {
            name: bootstrap.figure(metrics.mean(numbers), intervals.get(name))
            for name, numbers in values.items()
        }

    def _calibration(self) -> dict[str, Any]:
        gap, preference = self.scored.gap, self.scored.preference
        calibrated = calibration.calibrate(gap, preference)
        temperature = calibration.fit_temperature(gap, preference)
        if temperature.reason is not None:
            self.reasons["temperature"] = temperature.reason
        return {
            "ece": calibrated.ece,
            "ece_bins": calibration.BINS,
            "reliability": calibrated.table,
            "temperature": temperature.value,
            "log_loss_at_temperature": temperature.log_loss,
        }
