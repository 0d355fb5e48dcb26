"""What a scoring run counts and measures, in a form that a stopped run can go on from."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rewardctl.errors import RowError


@dataclass
class StreamStatistics:
    """Cells by status, the distribution of the scores, and the time spent in calls of one
    stream.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    mean: float = 0.0
    squares: float = 0.0  # sum of squared distances from the mean
    low: float = math.inf
    high: float = -math.inf
    seconds: float = 0.0

    @property
    def ok(self) -> int:
        """Cells with a score."""
        return self.statuses["ok"]

    def add_cells(self, cells: Sequence[float | RowError | None]) -> None:
        """Count cells: scores, failures, and None where the stream does not apply.

        Moments are merged as in Chan, Golub and LeVeque (1979), equations 1.5a and b.
        """
        scores = [cell for cell in cells if type(cell) is float]
        if len(scores) < len(cells):
            self.statuses["not_applicable"] += sum(cell is None for cell in cells)
            self.statuses.update(cell.status for cell in cells if isinstance(cell, RowError))
        n, old = len(scores), self.ok
        if not n:
            return
        mean = math.fsum(s / n for s in scores)  # no sum that overflows where the mean does not
        squares = sum((s - mean) * (s - mean) for s in scores)
        gap, total = mean - self.mean, old + n
        self.mean += gap * (n / total)
        self.squares += squares + gap * gap * (old * n / total)
        self.low, self.high = min(self.low, *scores), max(self.high, *scores)
        self.statuses["ok"] = total

    def snapshot(self) -> dict[str, Any]:
        """All of it, for the journal."""
        return {
            "statuses": dict(self.statuses),
            "moments": [*map(_finite, (self.mean, self.squares)), self.low, self.high]
            if self.ok
            else None,
            "seconds": self.seconds,
        }

    @classmethod
    def restore(cls, snapshot: dict[str, Any]) -> "StreamStatistics":
        """What `snapshot` gave."""
        stored = cls(Counter(snapshot["statuses"]), seconds=snapshot["seconds"])
        if snapshot["moments"]:
            mean, squares, stored.low, stored.high = snapshot["moments"]
            stored.mean = math.nan if mean is None else mean
            stored.squares = math.nan if squares is None else squares
        return stored

    def report(self, total_seconds: float) -> dict[str, Any]:
        """The figures of the meta file; null where there is no score. `std` is of the sample (n -
        1).
        """
        failures = {k: n for k, n in self.statuses.items() if k not in ("ok", "not_applicable")}
        bad_rows = self.statuses["bad_row"]
        n, failed = self.ok, sum(failures.values())
        return {
            "applicable": n + failed - bad_rows,
            "ok": n,
            "not_applicable": self.statuses["not_applicable"],
            "failed": failed,
            "failed_by_status": dict(sorted(failures.items())),
            "mean": _finite(self.mean) if n else None,
            "std": _finite(math.sqrt(self.squares / (n - 1))) if n > 1 else None,
            "min": self.low if n else None,
            "max": self.high if n else None,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(n / self.seconds, 3) if self.seconds > 0 and n else None,
            "share_of_time": round(self.seconds / total_seconds, 4) if total_seconds > 0 else None,
        }


def _finite(value: float) -> float | None:
    """None for what is beyond float64, as the variance of huge scores is."""
    return value if math.isfinite(value) else None


@dataclass
class RunStatistics:
    """Counts of rows, which add up, and the statistics of each stream."""

    streams: dict[str, StreamStatistics]
    rows: int = 0
    ok: int = 0  # rows whose applicable streams all have a score
    failed: int = 0
    nothing_applicable: int = 0
    datasets: Counter[str] = field(default_factory=Counter)  # rows by dataset

    def snapshot(self) -> dict[str, Any]:
        """All of it, for the journal."""
        return {
            "counts": self.counts(),
            "datasets": dict(self.datasets),
            "streams": {name: s.snapshot() for name, s in self.streams.items()},
        }

    @classmethod
    def restore(cls, snapshot: dict[str, Any]) -> "RunStatistics":
        """What `snapshot` gave."""
        streams = {n: StreamStatistics.restore(s) for n, s in snapshot["streams"].items()}
        return cls(streams, **snapshot["counts"], datasets=Counter(snapshot["datasets"]))

    def counts(self) -> dict[str, int]:
        """rows = ok + failed + nothing_applicable."""
        return {
            "rows": self.rows,
            "ok": self.ok,
            "failed": self.failed,
            "nothing_applicable": self.nothing_applicable,
        }

    def report(self) -> dict[str, dict[str, Any]]:
        """The figures of each stream."""
        total = sum(s.seconds for s in self.streams.values())
        return {name: s.report(total) for name, s in self.streams.items()}
