"""Counts and moments of a run, merged window by window."""

import json
import math
import statistics as direct

import pytest
from hypothesis import given, settings, strategies as st

from rewardctl.errors import RowError
from rewardctl.runs.statistics import RunStatistics, StreamStatistics

scores = st.floats(-1e6, 1e6)
cells = st.one_of(
    scores, scores, st.none(), st.sampled_from(["nonfinite", "bad_row", "model_error"])
)


def as_cells(found: list[float | str | None]) -> list[float | RowError | None]:
    return [RowError(c, "why") if isinstance(c, str) else c for c in found]  # type: ignore[arg-type]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.lists(cells, max_size=8), max_size=8))
def test_windows_merged_are_as_all_cells_at_once(windows: list[list[float | str | None]]) -> None:
    merged = StreamStatistics()
    for window in windows:
        merged.add_cells(as_cells(window))
        merged = StreamStatistics.restore(json.loads(json.dumps(merged.snapshot())))
    flat = [cell for window in windows for cell in window]
    numbers = [cell for cell in flat if isinstance(cell, float)]
    report = merged.report(1.0)
    assert report["ok"] == len(numbers)
    assert report["not_applicable"] == flat.count(None)
    words = [cell for cell in flat if isinstance(cell, str)]
    assert report["failed_by_status"] == {w: words.count(w) for w in sorted(set(words))}
    assert report["failed"] == len(words)
    assert report["applicable"] == len(numbers) + len(words) - words.count("bad_row")
    if not numbers:
        assert [report[k] for k in ("mean", "std", "min", "max")] == [None] * 4
        return
    # 8 merges of numbers up to 1e6, each off by a few of their last bits.
    assert report["mean"] == pytest.approx(math.fsum(numbers) / len(numbers), abs=1e-8, rel=1e-12)
    assert (report["min"], report["max"]) == (min(numbers), max(numbers))
    if len(numbers) > 1:
        assert report["std"] == pytest.approx(direct.stdev(numbers), abs=1e-5, rel=1e-9)
    else:
        assert report["std"] is None


def test_figures_of_three_scores() -> None:
    stream = StreamStatistics(seconds=0.5)
    stream.add_cells([1.0, 2.0])
    stream.add_cells([6.0, None, RowError("nonfinite", "x"), RowError("bad_row", "x")])
    # Squared distances from the mean 3: 4 + 1 + 9 = 14, over n - 1 = 2.
    assert stream.report(2.0) == {
        "applicable": 4,
        "ok": 3,
        "not_applicable": 1,
        "failed": 2,
        "failed_by_status": {"bad_row": 1, "nonfinite": 1},
        "mean": 3.0,
        "std": pytest.approx(math.sqrt(7)),
        "min": 1.0,
        "max": 6.0,
        "seconds": 0.5,
        "rows_per_second": 6.0,
        "share_of_time": 0.25,
    }


def test_figures_of_no_score_are_null() -> None:
    report = StreamStatistics().report(0.0)
    figures = ("mean", "std", "min", "max", "rows_per_second", "share_of_time")
    assert [report[name] for name in figures] == [None] * 6


def test_a_large_offset_costs_no_digits() -> None:
    stream = StreamStatistics()
    for score in (1e9 + 1, 1e9 + 2, 1e9 + 3):
        stream.add_cells([score])
    # A sum of squares would have lost the variance 1 in 1e18.
    assert stream.report(1.0)["std"] == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("large", [[1e308, 1e308], [1e200, -1e200, 0.0]])
def test_scores_near_the_end_of_the_range_are_counted(large: list[float]) -> None:
    stream = StreamStatistics()
    stream.add_cells(large)
    report = stream.report(1.0)
    assert (report["ok"], report["max"]) == (len(large), max(large))
    json.dumps([stream.snapshot(), report], allow_nan=False)


def test_a_run_is_restored_from_its_snapshot() -> None:
    run = RunStatistics({"a": StreamStatistics()}, rows=3, ok=1, failed=1, nothing_applicable=1)
    run.datasets["captions"] += 2
    run.streams["a"].add_cells([2.0, 4.0])
    restored = RunStatistics.restore(json.loads(json.dumps(run.snapshot())))
    assert restored == run
    restored.datasets["new"] += 1  # a Counter again, not a dict
    assert restored.datasets["new"] == 1
