"""What is asked of a model besides its scores: the same sides alone, and the two sides swapped."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rewardctl.data.samples import BaseSample
from rewardctl.errors import RewardctlError
from rewardctl.evaluation import metrics
from rewardctl.evaluation.metrics import Floats
from rewardctl.evaluation.stored import StoredScores
from rewardctl.rewards.plan import StreamPlan, plan_groupwise, plan_pointwise
from rewardctl.rewards.reward_processor import RewardProcessor, Stream

PROBED_ROWS = 8
FLOAT32_TOLERANCE = 1e-5  # times max(1, |score|)
LOW_TOLERANCE = 5e-3  # of 16-bit types, times max(1, |score|, std of the scores)


def probe_streams(
    processor: RewardProcessor, rows: Sequence[Sequence[BaseSample]], stored: StoredScores
) -> dict[str, dict[str, Any]]:
    """Both probes of all streams, on the first rows of `stored`.

    Args:
        rows: the sides of the first readable rows.
    """
    found = {}
    for name, stream in processor.streams.items():
        reasons: dict[str, str] = {}
        probe = _Probe(processor, stream, rows, stored.scores[name], reasons)
        found[name] = {
            "batch_probe": probe.guarded("batch_probe"),
            "swap_probe": probe.guarded("swap_probe"),
            "reasons": reasons,
        }
    return found


class _Probe:
    """One stream and the sides it is asked about again."""

    def __init__(
        self,
        processor: RewardProcessor,
        stream: Stream,
        rows: Sequence[Sequence[BaseSample]],
        scores: Floats,
        reasons: dict[str, str],
    ) -> None:
        self._processor = processor
        self._stream = stream
        self._samples = dict(enumerate(s for row in rows for s in row))
        self._starts = np.cumsum([0, *map(len, rows)])
        self._scores = scores
        self._reasons = reasons

    def guarded(self, name: str) -> dict[str, Any] | None:
        """One probe; what keeps it from being taken is a reason, the scores are there already."""
        try:
            return self._swap() if name == "swap_probe" else self._batch()
        except RewardctlError as error:
            self._reasons[name] = f"the model failed when it was asked again: {error}"
            return None

    def _batch(self) -> dict[str, Any] | None:
        """Each side in a call of its own, beside its score in the run."""
        if self._stream.is_groupwise:
            self._reasons["batch_probe"] = "a groupwise stream scores whole groups"
            return None
        single = replace(self._stream, batch_size=1)
        sides = [side for side in self._samples if self._is_scored(side)]
        again = self._run(plan_pointwise(single, sides, self._samples))
        if not again:
            self._reasons["batch_probe"] = "none of the first rows has a score"
            return None
        before = self._scores[list(again)]
        change = np.abs(before - np.array(list(again.values())))
        limits = self._tolerance(before)
        return {
            "n_sides": len(again),
            "batch_size": self._stream.batch_size,
            "max_difference": float(change.max()),
            "within_tolerance": bool((change <= limits).all()),
        }

    def _tolerance(self, scores: Floats) -> Floats:
        scale = np.maximum(1.0, np.abs(scores))
        if self._stream.args.dtype == "float32":
            return FLOAT32_TOLERANCE * scale
        return LOW_TOLERANCE * np.maximum(scale, float(scores.std()))

    def _swap(self) -> dict[str, Any] | None:
        """Pairs with their sides in the other order: accuracy must become its complement."""
        groups = [
            [int(start) + 1, int(start)]
            for start, end in zip(self._starts[:-1], self._starts[1:], strict=True)
            if end - start == 2 and self._is_scored(start) and self._is_scored(start + 1)
        ]
        if self._stream.is_groupwise:
            plan = plan_groupwise(self._stream, groups, self._samples)
        else:
            plan = plan_pointwise(self._stream, [s for g in groups for s in g], self._samples)
        again = self._run(plan)
        groups = [group for group in groups if all(side in again for side in group)]
        if not groups:
            self._reasons["swap_probe"] = "none of the first rows is a pair with two scores"
            return None
        gap = np.array([self._scores[a] - self._scores[b] for b, a in groups])
        swapped = np.array([again[b] - again[a] for b, a in groups])
        right = metrics.mean(metrics.correct_with_half_ties(gap))
        left = metrics.mean(metrics.correct_with_half_ties(swapped))
        return {
            "n_pairs": len(groups),
            "accuracy": right,
            "accuracy_swapped": left,
            "adds_up_to_1": bool((np.sign(gap) == -np.sign(swapped)).all()),
            "max_difference": float(np.abs(gap + swapped).max()),
        }

    def _is_scored(self, side: int) -> bool:
        return bool(np.isfinite(self._scores[side]))

    def _run(self, plan: StreamPlan) -> dict[int, float]:
        scores: dict[int, float] = {}
        for call in plan.calls:
            result = self._processor.run_call(call, [self._samples[row] for row in call.rows])
            scores.update(
                (row, score)
                for row, score in zip(call.rows, result.scores, strict=True)
                if score is not None
            )
        return scores
