"""Rows out: every mapping carries every stream, and absent, failed and low are three things."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from rewardctl.config.schema import RewardArguments, ScoreConfig
from rewardctl.data.media_ref import MediaRoot
from rewardctl.data.row_stream import InputRow
from rewardctl.data.samples import BaseSample, sample_from_row
from rewardctl.errors import RowError, UsageError
from rewardctl.rewards.aggregate import aggregate
from rewardctl.runs.render import Cell, RowRenderer, read_cells


def stream(name: str, **arguments: Any) -> RewardArguments:
    return RewardArguments(name=name, reward_model="length", **arguments)


def input_row(record: dict[str, Any]) -> InputRow:
    sample = sample_from_row(
        record, default_dataset="rows", declared=None, media_root=MediaRoot(Path("media"))
    )
    return InputRow(17, "rows.jsonl", 18, record, sample)


def render(
    record: dict[str, Any], streams: list[RewardArguments], *cells: Cell, include: str = ""
) -> dict[str, Any]:
    renderer = RowRenderer(streams, ScoreConfig(), include.split())
    line = renderer.render(input_row(record), cells)
    assert line.endswith(b"}\n")
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_a_row_has_all_its_keys_in_their_order() -> None:
    streams = [stream("clip"), stream("ocr", applicable_datasets=["signs"])]
    record = {"prompt": "x", "unique_id": "g7", "dataset": "alignment"}
    line = RowRenderer(streams, ScoreConfig(), []).render(input_row(record), [0.31, None])
    assert line == (
        b'{"row": 17, "source": "rows.jsonl", "line": 18, "id": null, "unique_id": "g7", '
        b'"dataset": "alignment", "scores": {"clip": 0.31, "ocr": null}, '
        b'"applicable": {"clip": true, "ocr": false}, '
        b'"status": {"clip": "ok", "ocr": "not_applicable"}, '
        b'"weights": {"clip": 1.0, "ocr": null}, "errors": {"clip": null, "ocr": null}, '
        b'"aggregate": 0.31, "weight_sum": 1.0}\n'
    )


finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=[]), max_size=6)  # half pairs too


@given(
    names=st.lists(texts.filter(bool), min_size=1, max_size=3, unique=True),
    ids=st.tuples(st.none() | texts | st.integers(), st.none() | texts),
    source=texts,
    scores=st.lists(finite, min_size=3, max_size=3),
    applies=st.lists(st.booleans(), min_size=3, max_size=3),
    weights=st.lists(st.floats(0, 100), min_size=3, max_size=3),
    mean=st.booleans(),
)
def test_a_line_without_failures_is_what_json_writes(
    names: list[str],
    ids: tuple[str | int | None, str | None],
    source: str,
    scores: list[float],
    applies: list[bool],
    weights: list[float],
    mean: bool,
) -> None:
    """Beside an oracle that encodes the whole row."""
    streams = [
        RewardArguments.model_construct(
            name=name,
            reward_model="length",
            weight=weight,
            applicable_datasets=None if is_applicable else ["other"],
        )
        for name, weight, is_applicable in zip(names, weights, applies, strict=False)
    ]
    rule = ScoreConfig(aggregate="weighted_mean" if mean else "weighted_sum")
    sample = BaseSample(id=ids[0], unique_id=ids[1], source=source)
    row = InputRow(3, source, 4, {}, sample)
    cells: list[Cell] = [
        score if is_applicable else None
        for score, is_applicable, _ in zip(scores, applies, names, strict=False)
    ]
    used = [s for s in streams if s.applies_to(source)]
    entered = [cell for cell in cells if cell is not None]
    value, weight_sum = aggregate(entered, [float(s.weight) for s in used], rule)
    expected = {
        "row": 3,
        "source": source,
        "line": 4,
        "id": ids[0],
        "unique_id": ids[1],
        "dataset": source,
        "scores": {s.name: cell for s, cell in zip(streams, cells, strict=True)},
        "applicable": {s.name: s in used for s in streams},
        "status": {s.name: "ok" if s in used else "not_applicable" for s in streams},
        "weights": {s.name: float(s.weight) if s in used else None for s in streams},
        "errors": {s.name: None for s in streams},
        "aggregate": value,
        "weight_sum": weight_sum,
    }
    try:
        line = json.dumps(expected, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        line = json.dumps(expected).encode()
    assert RowRenderer(streams, rule, []).render(row, cells) == line + b"\n"


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_no_line_holds_what_is_no_number_of_json(score: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        render({"prompt": "x"}, [stream("a", weight=0.0)], score)


def test_a_score_of_zero_is_a_score() -> None:
    found = render({"prompt": "x"}, [stream("a")], 0.0)
    assert (found["scores"], found["status"], found["aggregate"]) == ({"a": 0.0}, {"a": "ok"}, 0.0)


def test_a_failed_cell_is_null_and_applicable() -> None:
    cell = RowError("nonfinite", "the model returned nan")
    found = render({"prompt": "x"}, [stream("a"), stream("b")], cell, 2.0)
    assert found["scores"] == {"a": None, "b": 2.0}
    assert found["applicable"] == {"a": True, "b": True}
    assert found["status"] == {"a": "nonfinite", "b": "ok"}
    assert found["errors"] == {"a": "the model returned nan", "b": None}
    assert (found["aggregate"], found["weight_sum"]) == (None, 0.0)


def test_weights_are_those_of_the_row_s_dataset() -> None:
    weight = {"alignment": 0.5, "captions": 2}
    streams = [stream("a", weight=weight, applicable_datasets=list(weight))]
    renderer = RowRenderer(streams, ScoreConfig(), [])
    for dataset, expected in (("alignment", 0.5), ("captions", 2.0), ("other", None)):
        cell = None if expected is None else 3.0
        row = input_row({"dataset": dataset})
        found = json.loads(renderer.render(row, [cell]))
        assert found["weights"] == {"a": expected}
        assert found["aggregate"] == (None if expected is None else 3 * expected)


def test_a_row_that_nothing_applies_to_has_no_aggregate() -> None:
    found = render({"prompt": "x"}, [stream("a", applicable_datasets=[])], None)
    assert (found["applicable"], found["status"]) == ({"a": False}, {"a": "not_applicable"})
    assert (found["aggregate"], found["weight_sum"]) == (None, 0.0)


def test_scores_keep_every_digit() -> None:
    found = render({"prompt": "x"}, [stream("a")], 0.1 + 0.2)
    assert found["scores"] == {"a": 0.30000000000000004}


def test_an_unreadable_line_still_has_its_row() -> None:
    row = InputRow(3, "rows.jsonl", 4, None, RowError("bad_row", "not JSON at column 1"))
    found = json.loads(RowRenderer([stream("a"), stream("b")], ScoreConfig(), []).render(row, []))
    nothing = {"a": None, "b": None}
    assert found == {
        "row": 3,
        "source": "rows.jsonl",
        "line": 4,
        "id": None,
        "unique_id": None,
        "dataset": None,
        "scores": nothing,
        "applicable": nothing,
        "status": {"a": "bad_row", "b": "bad_row"},
        "weights": nothing,
        "errors": {"a": "not JSON at column 1", "b": "not JSON at column 1"},
        "aggregate": None,
        "weight_sum": 0.0,
    }


def test_a_bad_row_keeps_the_names_that_can_be_read() -> None:
    record = {"id": 5, "unique_id": 7, "dataset": "signs", "prompt": 1}
    row = InputRow(0, "rows.jsonl", 1, record, RowError("bad_row", "column 'prompt'"))
    found = json.loads(RowRenderer([stream("a")], ScoreConfig(), ["prompt"]).render(row, []))
    named = (found["id"], found["unique_id"], found["dataset"], found["prompt"])
    assert named == (5, "7", "signs", 1)


@pytest.mark.parametrize("name", [True, [1], 1.5])
def test_names_of_a_wrong_type_are_left_out_of_a_bad_row(name: object) -> None:
    record = {"id": name, "unique_id": name, "dataset": name}
    row = InputRow(0, "rows.jsonl", 1, record, RowError("bad_row", "x"))
    found = json.loads(RowRenderer([stream("a")], ScoreConfig(), []).render(row, []))
    assert (found["id"], found["unique_id"], found["dataset"]) == (None, None, None)


def test_included_columns_stand_at_the_end_and_are_null_where_missing() -> None:
    record = {"prompt": "ä", "label": 3}
    found = render(record, [stream("a")], 1.0, include="prompt label other")
    assert list(found)[-3:] == ["prompt", "label", "other"]
    assert (found["prompt"], found["label"], found["other"]) == ("ä", 3, None)


def test_an_included_column_named_as_a_key_of_the_row_is_refused() -> None:
    with pytest.raises(UsageError, match="--include scores: the output row has 'scores' already;"):
        RowRenderer([stream("a")], ScoreConfig(), ["prompt", "scores"])


def test_text_is_written_as_it_is_and_half_a_pair_is_escaped() -> None:
    renderer = RowRenderer([stream("a")], ScoreConfig(), ["prompt"])
    assert "日本".encode() in renderer.render(input_row({"prompt": "日本"}), [1.0])
    half = renderer.render(input_row({"prompt": "\ud83d"}), [1.0])
    assert b'"prompt": "\\ud83d"' in half
    assert json.loads(half)["prompt"] == "\ud83d"


def test_cells_are_read_back_from_a_row() -> None:
    streams = [stream("a"), stream("b"), stream("c", applicable_datasets=[])]
    failed = RowError("timeout", "after 3 tries")
    cells = read_cells(render({"prompt": "x"}, streams, 0.1, failed, None), ["a", "b", "c"])
    assert cells[0] == 0.1
    assert isinstance(cells[1], RowError)
    assert (cells[1].status, str(cells[1])) == ("timeout", "after 3 tries")
    assert cells[2] is None
