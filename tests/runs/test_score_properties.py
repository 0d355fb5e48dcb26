"""`score` end to end over random inputs, held against an oracle that knows the documents alone."""

import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from accelerate import Accelerator
from hypothesis import HealthCheck, given, settings, strategies as st
from probes import CALLS, REFUSED, ScoreProject

DATASETS = ["a", "b", "c"]
ANY = "1000000"  # --max-errors that stops nothing
COMMON = settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=list(HealthCheck),
)

quarters = st.integers(-12, 12).map(lambda n: n / 4)
prompts = st.one_of(quarters.map(str), quarters.map(str), st.sampled_from(["nan", "inf", "boom"]))
good_rows = st.fixed_dictionaries(
    {"dataset": st.sampled_from(DATASETS)},
    optional={
        "prompt": prompts,
        "response": st.sampled_from(["", "x", "yes"]),
        "unique_id": st.sampled_from(["g", "h", 7, "7"]),
        "id": st.sampled_from([1, "row"]),
    },
)
bad_rows = st.sampled_from(
    [
        "not json",
        '{"prompt": 5, "unique_id": "g", "dataset": "a"}',
        '{"prompt": "1", "unique_id": 1.5, "dataset": "a"}',
        '{"prompt": "1", "unique_id": "g", "dataset": "undeclared"}',
    ]
)
row_lists = st.lists(st.one_of(*[good_rows] * 6, bad_rows), min_size=1, max_size=14)


@st.composite
def streams(draw: st.DrawFn, *, is_mean: bool, may_be_negative: bool) -> list[dict[str, Any]]:
    numbers = st.integers(-4 if may_be_negative else 1 if is_mean else 0, 8).map(lambda n: n / 4)
    found = []
    for index in range(draw(st.integers(1, 4))):
        applicable = draw(st.none() | st.lists(st.sampled_from(DATASETS), unique=True))
        named = DATASETS if applicable is None else applicable
        mapping = st.fixed_dictionaries(dict.fromkeys(named, numbers))
        found.append(
            {
                "name": f"s{index}",
                "reward_model": draw(
                    st.sampled_from(["Number", "PromptAndResponse", "AboveLowest"])
                ),
                "batch_size": draw(st.integers(1, 5)),
                "applicable_datasets": applicable,
                "weight": draw(st.one_of(numbers, mapping)),
            }
        )
    # Every declared dataset has a stream, or the config is refused.
    found[0] |= {"applicable_datasets": None, "weight": draw(numbers)}
    return found


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    aggregate = draw(st.sampled_from(["weighted_sum", "weighted_mean"]))
    on_failure = draw(st.sampled_from(["no_aggregate", "renormalize"]))
    is_mean = aggregate == "weighted_mean"
    negative = not is_mean and on_failure == "no_aggregate"
    return {
        "rows": draw(row_lists),
        "streams": draw(streams(is_mean=is_mean, may_be_negative=negative)),
        "rule": {"aggregate": aggregate, "on_failure": on_failure},
    }


def expected_rows(problem: dict[str, Any]) -> list[dict[str, Any]]:
    """Statuses, scores, weights and aggregates, a row at a time, groups by looking at all rows."""
    rows = [json.loads(r) if isinstance(r, str) and r[0] == "{" else r for r in problem["rows"]]
    is_bad = [isinstance(r, str) for r in problem["rows"]]
    names = [s["name"] for s in problem["streams"]]
    expected = []
    for number, row in enumerate(rows):
        if is_bad[number]:
            nothing = dict.fromkeys(names)
            statuses = dict.fromkeys(names, "bad_row")
            facts = {"scores": nothing, "applicable": nothing, "weights": nothing}
            expected.append({**facts, "status": statuses, "aggregate": None, "weight_sum": 0.0})
            continue
        cells = {
            s["name"]: cell_of(s, number, rows, is_bad)
            for s in problem["streams"]
            if s["applicable_datasets"] is None or row["dataset"] in s["applicable_datasets"]
        }
        weights = {s["name"]: weight_of(s, row) for s in problem["streams"]}
        weights = {name: weights[name] if name in cells else None for name in names}
        value, weight_sum = aggregate_of(cells, weights, problem["rule"])
        expected.append(
            {
                "scores": {n: cells[n][1] if n in cells else None for n in names},
                "applicable": {n: n in cells for n in names},
                "weights": weights,
                "status": {n: cells[n][0] if n in cells else "not_applicable" for n in names},
                "aggregate": value,
                "weight_sum": weight_sum,
            }
        )
    return expected


def weight_of(stream: dict[str, Any], row: dict[str, Any]) -> float | None:
    weight = stream["weight"]
    return weight.get(row["dataset"]) if isinstance(weight, dict) else weight


def cell_of(
    stream: dict[str, Any], number: int, rows: list[Any], is_bad: list[bool]
) -> tuple[str, float | None]:
    row = rows[number]
    needed = ["prompt", "response"] if stream["reward_model"] == "PromptAndResponse" else ["prompt"]
    is_missing = any(name not in row for name in needed)
    if stream["reward_model"] != "AboveLowest":
        if is_missing:
            return "missing_field", None
        if row["prompt"] == "boom":
            return "model_error", None
        extra = 100 * len(row["response"]) if "response" in needed else 0
        return finite(float(row["prompt"]) + extra)
    if is_missing or "unique_id" not in row:
        return "missing_field", None
    members = [
        (r, bad)
        for r, bad in zip(rows, is_bad, strict=True)
        if isinstance(r, dict) and r["dataset"] == row["dataset"]
        if "unique_id" in r and str(r["unique_id"]) == str(row["unique_id"])
    ]
    if any(bad or "prompt" not in r for r, bad in members):
        return "group_incomplete", None
    texts = [r["prompt"] for r, _ in members]
    if "boom" in texts:
        return "model_error", None
    return finite(float(row["prompt"]) - min(map(float, texts)) + len(texts) / 8)


def finite(score: float) -> tuple[str, float | None]:
    return ("ok", score) if math.isfinite(score) else ("nonfinite", None)


def aggregate_of(
    cells: dict[str, tuple[str, float | None]],
    weights: dict[str, float | None],
    rule: dict[str, str],
) -> tuple[float | None, float]:
    """Exact: scores and weights are multiples of 1/8, so that only a quotient is rounded."""
    entered = [n for n, (status, _) in cells.items() if status == "ok"]
    if not entered or (len(entered) < len(cells) and rule["on_failure"] == "no_aggregate"):
        return None, 0.0
    ok_weight = sum(Fraction(weights[n]) for n in entered)
    total = sum(Fraction(weights[n]) * Fraction(cells[n][1]) for n in entered)
    if rule["aggregate"] == "weighted_mean":
        value = total / ok_weight if ok_weight > 0 else None
    elif len(entered) == len(cells):
        value = total
    else:
        all_weight = sum(Fraction(weights[n]) for n in cells)
        value = total * all_weight / ok_weight if ok_weight > 0 else None
    return None if value is None else float(value), float(ok_weight)


@pytest.fixture(scope="module")
def fresh(accelerator: Accelerator) -> Iterator[Any]:
    """Makes a new project for each random example."""
    with tempfile.TemporaryDirectory() as parent:

        def make() -> ScoreProject:
            CALLS.clear()
            return ScoreProject(Path(tempfile.mkdtemp(dir=parent)), accelerator)

        yield make


def write(project: ScoreProject, problem: dict[str, Any], *, window: int) -> None:
    datasets = [{"name": name, "path": f"{name}.jsonl"} for name in DATASETS]
    project.write(
        problem["rows"],
        problem["streams"],
        data={"datasets": datasets},
        score={**problem["rule"], "window": window},
    )


def score_it(project: ScoreProject) -> dict[str, Any]:
    # Several datasets are declared, so a row that names none would take the file's stem.
    return project.score(max_errors=ANY, overwrite=True)


@COMMON
@given(problems(), st.integers(1, 6))
def test_every_row_is_what_the_documents_say(
    fresh: Any, quick_runs: None, problem: dict[str, Any], window: int
) -> None:
    project = fresh()
    write(project, problem, window=window)
    score_it(project)
    rows = project.rows()
    keys = ("scores", "applicable", "weights", "status", "aggregate", "weight_sum")
    assert [{key: row[key] for key in keys} for row in rows] == expected_rows(problem)
    for number, row in enumerate(rows):
        assert (row["row"], row["line"]) == (number, number + 1)
        for name, status in row["status"].items():
            assert (row["errors"][name] is None) == (status in ("ok", "not_applicable"))


@COMMON
@given(problems(), st.integers(1, 6))
def test_counts_add_up(fresh: Any, quick_runs: None, problem: dict[str, Any], window: int) -> None:
    project = fresh()
    write(project, problem, window=window)
    meta = score_it(project)
    expected = expected_rows(problem)
    wrong = [set(r["status"].values()) - {"ok", "not_applicable"} for r in expected]
    idle = [set(r["status"].values()) == {"not_applicable"} for r in expected]
    failed, nothing = sum(map(bool, wrong)), sum(idle)
    rows = len(expected)
    assert meta["counts"] == {
        "rows": rows,
        "ok": rows - failed - nothing,
        "failed": failed,
        "nothing_applicable": nothing,
    }
    for name, figures in meta["streams"].items():
        statuses = Counter(r["status"][name] for r in expected)
        applicable = rows - statuses["not_applicable"] - statuses["bad_row"]
        assert figures["applicable"] == applicable
        assert figures["ok"] == statuses["ok"]
        assert figures["not_applicable"] == statuses["not_applicable"]
        assert figures["failed"] == applicable - statuses["ok"] + statuses["bad_row"]


@COMMON
@given(problems(), st.integers(1, 20), st.integers(1, 20))
def test_the_size_of_windows_changes_no_byte(
    fresh: Any, quick_runs: None, problem: dict[str, Any], one: int, other: int
) -> None:
    outputs = []
    for window in (one, other):
        project = fresh()
        write(project, problem, window=window)
        score_it(project)
        outputs.append(project.out.read_bytes())
    assert outputs[0] == outputs[1]


@COMMON
@given(problems(), st.integers(1, 6), st.data())
def test_async_streams_write_the_same_bytes(
    fresh: Any, quick_runs: None, problem: dict[str, Any], window: int, data: st.DataObject
) -> None:
    project = fresh()
    write(project, problem, window=window)
    score_it(project)
    in_order = project.out.read_bytes()
    for stream in problem["streams"]:
        stream |= {"async_reward": data.draw(st.booleans())}
        stream |= {"num_workers": data.draw(st.integers(1, 3)) if stream["async_reward"] else 1}
    write(project, problem, window=window)
    score_it(project)
    assert project.out.read_bytes() == in_order


@COMMON
@given(problems(), st.integers(1, 6))
def test_no_call_is_empty_or_over_its_batch_size(
    fresh: Any, quick_runs: None, problem: dict[str, Any], window: int
) -> None:
    project = fresh()
    write(project, problem, window=window)
    score_it(project)
    for model in ("Number", "PromptAndResponse"):
        sizes = [len(prompts) for name, prompts in CALLS if name == model]
        most = [s["batch_size"] for s in problem["streams"] if s["reward_model"] == model]
        assert all(1 <= size <= max(most) for size in sizes)


@settings(COMMON, max_examples=200)
@given(problems(), st.integers(1, 5), st.tuples(st.integers(0, 100), st.integers(0, 100)))
def test_a_run_cut_anywhere_ends_as_one_never_cut(
    fresh: Any, quick_runs: None, problem: dict[str, Any], window: int, kept: tuple[int, int]
) -> None:
    project = fresh()
    write(project, problem, window=window)
    project.score_unfinished(max_errors=ANY)
    whole = project.partial.read_bytes()
    for path, percent in zip((project.journal, project.partial), kept, strict=True):
        os.truncate(path, path.stat().st_size * percent // 100)
    project.score(max_errors=ANY, resume=True)
    assert project.out.read_bytes() == whole
    assert project.files() == ["out.jsonl", "out.jsonl.meta.json"]


@settings(COMMON, max_examples=100)
@given(
    problems(),
    st.integers(1, 5),
    st.sets(quarters.map(str), max_size=40),
    st.tuples(st.integers(0, 100), st.integers(0, 100)),
)
def test_a_retry_cut_anywhere_ends_as_a_run_that_nothing_failed_in(
    fresh: Any,
    quick_runs: None,
    problem: dict[str, Any],
    window: int,
    refused: set[str],
    kept: tuple[int, int],
) -> None:
    for stream in problem["streams"]:
        if stream["reward_model"] == "Number":
            stream["reward_model"] = "Mendable"
    project = fresh()
    write(project, problem, window=window)
    score_it(project)
    whole = project.out.read_bytes()
    REFUSED.update(refused)
    score_it(project)
    REFUSED.clear()
    if b"nonfinite" in project.out.read_bytes():
        project.score_unfinished(max_errors=ANY, retry_errors=True)
        for path, percent in zip((project.journal, project.partial), kept, strict=True):
            os.truncate(path, path.stat().st_size * percent // 100)
    project.score(max_errors=ANY, retry_errors=True)
    assert project.out.read_bytes() == whole
    assert project.files() == ["out.jsonl", "out.jsonl.meta.json"]
