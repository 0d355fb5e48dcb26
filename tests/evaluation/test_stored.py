"""Reading stored scores: both kinds of files, and what is no such file."""

from typing import Any

import pytest

from rewardctl.errors import DataError, UsageError
from rewardctl.evaluation.compare import compare_runs
from rewardctl.evaluation.stored import excerpt

Stored = Any  # StoredFile of conftest.py


def scored(score: float | None, group: str | None = "g", **columns: Any) -> dict[str, Any]:
    """A row as `score` writes it."""
    status = "ok" if score is not None else "model_error"
    return {
        "scores": {"s": score},
        "status": {"s": status},
        "unique_id": group,
        "dataset": "d",
        **columns,
    }


def test_rows_of_a_group_with_different_labels_are_its_pairs(stored: Stored) -> None:
    stored.add_raw(
        scored(1.0, "g", human=5),
        scored(3.0, "h", human=1),
        scored(0.0, "g", human=2.5),
        scored(2.0, "h", human=1),
    )
    figures = stored.figures(label="human")
    assert (figures["n_pairs"], figures["n_tied_label"]) == (1, 1)
    assert figures["accuracy"]["value"] == 1.0
    assert figures["rank_agreement"]["n_candidates"] == 4


def test_an_output_of_score_needs_a_label(stored: Stored) -> None:
    stored.add_raw(scored(1.0))
    with pytest.raises(UsageError, match=r"scores.jsonl:1: .* no column 'side'.*--label COLUMN"):
        stored.read()


def test_a_label_for_what_eval_wrote_is_refused(stored: Stored) -> None:
    stored.add([1.0, 0.0])
    with pytest.raises(UsageError, match="eval wrote this file with its labels"):
        stored.read(label="human")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"x": 1}, ":1: expected a row that eval or score wrote, found no column 'scores'"),
        ({"scores": {"s": 1.0}}, "found no column 'status'"),
        (scored(1.0, None, human=1), "expected a column 'unique_id'"),
        (scored(1.0), "expected a number in column 'human', found no such column"),
        (scored(1.0, human="good"), "expected a number in column 'human', found 'good'"),
        (scored(1.0, human=True), "found True"),
    ],
)
def test_the_missing_column_is_named(row: dict[str, Any], message: str, stored: Stored) -> None:
    stored.add_raw(row)
    with pytest.raises(DataError) as caught:
        stored.read(label="human")
    assert message in str(caught.value)


def test_rows_of_other_streams_are_refused(stored: Stored) -> None:
    stored.add([1.0, 0.0])
    stored.add({"t": [1.0, 0.0]})
    with pytest.raises(DataError, match=":3: expected scores of s, found t"):
        stored.read()


def test_a_cut_file_is_refused(stored: Stored) -> None:
    stored.add([1.0, 0.0])
    stored.add_raw({**scored(1.0), "side": "chosen", "pair": 1, "preference": 1.0, "line": 2})
    with pytest.raises(DataError, match=r"expected the sides of one row .* found \['chosen'\]"):
        stored.read()


def test_no_rows_are_refused(stored: Stored) -> None:
    with pytest.raises(DataError, match="expected stored scores, found no rows"):
        stored.read()


def test_a_bad_line_is_named(stored: Stored) -> None:
    stored.path.write_text("{\n")
    from rewardctl.evaluation.stored import read_stored

    with pytest.raises(DataError, match=r"scores.jsonl:1: not JSON"):
        read_stored(stored.path, cluster="prompt")


def test_runs_are_compared_on_the_rows_that_both_have(stored: Stored, new_stored: Any) -> None:
    for scores in ([1.0, 0.0], [1.0, 0.0], [0.0, 1.0]):
        stored.add(scores)
    other = new_stored("other")
    other.add([0.0, 1.0])
    other.add([1.0, 0.0])
    found = compare_runs(stored.read(), "s", other.read(), "s")
    assert (found["n_pairs"], found["accuracy_a"], found["accuracy_b"]) == (2, 1.0, 0.5)


def test_runs_without_a_common_row_are_refused(stored: Stored, new_stored: Any) -> None:
    stored.add([1.0, 0.0])
    other = new_stored("other")
    other.add([None, None])
    with pytest.raises(DataError, match="no pair in common"):
        compare_runs(stored.read(), "s", other.read(), "s")


def test_worst_pairs_of_a_group_show_the_columns_that_score_copied(stored: Stored) -> None:
    long = "ä" * 201
    stored.add_raw(
        scored(1.0, human=5, source="rows.jsonl", line=3, prompt="q", response=long),
        scored(0.0, "h", human=0, source="rows.jsonl", line=4, prompt="x", response="x"),
        scored(3.0, human=1, source="rows.jsonl", line=9, prompt="q", response="b"),
    )
    assert stored.figures(label="human")["worst_pairs"] == [
        {
            "place": "rows.jsonl:3, rows.jsonl:9",
            "score_gap": -2.0,
            "prompt": "q",
            "chosen": {"side": None, "score": 1.0, "response": "ä" * 199 + "…"},
            "rejected": {"side": None, "score": 3.0, "response": "b"},
        }
    ]


def test_a_text_of_200_characters_is_kept_whole() -> None:
    assert excerpt("x" * 200) == "x" * 200
    assert excerpt("x" * 201) == "x" * 199 + "…"
    assert excerpt("") == ""
    assert excerpt(None) is None
