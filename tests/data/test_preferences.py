"""Files of preference rows and the labels of a row."""

import gzip
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rewardctl.config.training_schema import DataFile
from rewardctl.data.preferences import (
    BadPreference,
    PreferenceRow,
    read_json_preferences,
    read_preferences,
)
from rewardctl.errors import DataError, UsageError

PAIR = {"chosen": [3, 4], "rejected": [5]}
KWISE = {"prompt": "p", "candidates": ["a", "b", "c"]}


def write(path: Path, *rows: Any) -> DataFile:
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
    return DataFile(path=path)


def pair(tmp_path: Path, row: Any, **file: Any) -> PreferenceRow:
    write(tmp_path / "pairs.jsonl", row)
    (found,) = read_preferences([DataFile(path=tmp_path / "pairs.jsonl", **file)])
    assert isinstance(found, PreferenceRow), str(found)
    return found


def refusal(tmp_path: Path, row: Any, **file: Any) -> str:
    write(tmp_path / "pairs.jsonl", PAIR if "candidates" not in row else KWISE_ROW, row)
    _, found = read_preferences([DataFile(path=tmp_path / "pairs.jsonl", **file)])
    assert isinstance(found, BadPreference)
    assert str(found).startswith("pairs.jsonl:2: ")
    return found.message


KWISE_ROW = {**KWISE, "scores": [1, 2, 3], "direction": "higher_is_better"}

# Labels


def test_labels_that_are_absent_are_neutral(tmp_path: Path) -> None:
    row = pair(tmp_path, {**PAIR, "margin": None})
    assert (row.ranks, row.margin, row.preference, row.weight, row.timestep) == (
        None,
        None,
        1.0,
        1.0,
        None,
    )


def test_labels_are_floats(tmp_path: Path) -> None:
    row = pair(tmp_path, {**PAIR, "margin": 2, "preference": 0, "weight": 3, "timestep": 1})
    labels = (row.margin, row.preference, row.weight, row.timestep)
    assert labels == (2.0, 0.0, 3.0, 1.0)
    assert set(map(type, labels)) == {float}


def test_the_timestep_is_that_of_both_samples(tmp_path: Path) -> None:
    row = pair(tmp_path, {**PAIR, "timestep": 0.25})
    assert [side.timestep for side in row.sides] == [0.25, 0.25]


def test_names_of_the_row(tmp_path: Path) -> None:
    row = pair(tmp_path, {**PAIR, "id": 7, "unique_id": 12, "dataset": "hard", "level": "x"})
    assert (row.id, row.unique_id, row.dataset, row.column("level")) == (7, "12", "hard", "x")
    assert (row.place, row.source, row.line) == ("pairs.jsonl:1", "pairs.jsonl", 1)


def test_a_margin_of_the_row_precedes_its_scores(tmp_path: Path) -> None:
    row = pair(tmp_path, {**PAIR, "margin": 1, "score_chosen": 9, "score_rejected": 2})
    assert row.margin == 1.0


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            {"margin": -1},
            "column 'margin': expected a number >= 0, found -1.0; swap chosen and rejected?",
        ),
        ({"margin": "wide"}, "column 'margin': expected a finite number, found 'wide'; correct it"),
        ({"margin": True}, "column 'margin': expected a finite number, found True; correct it"),
        (
            {"preference": 1.5},
            "column 'preference': expected a probability from 0 to 1, found 1.5; 0.5 is a tie",
        ),
        (
            {"weight": 0},
            "column 'weight': expected a number > 0, found 0.0; leave the row out instead?",
        ),
        ({"weight": 10**400}, "column 'weight': expected a finite number, found 1000000"),
        (
            {"timestep": 500},
            "column 'timestep': expected a number in [0, 1], found 500.0; divide by 1000?",
        ),
        (
            {"timestep": -0.1},
            "column 'timestep': expected a number in [0, 1], found -0.1; 0 is the clean sample",
        ),
        (
            {"score_chosen": 2, "score_rejected": 3},
            "score_chosen is 2.0, below score_rejected 3.0; swap chosen and rejected?",
        ),
        (
            {"score_chosen": "2", "score_rejected": 3},
            "column 'score_chosen': expected a finite number, found '2'; correct it",
        ),
    ],
)
def test_a_label_that_cannot_be_is_refused(tmp_path: Path, labels: Any, message: str) -> None:
    assert refusal(tmp_path, {**PAIR, **labels}).startswith(message)


def test_margin_nan_is_refused_with_its_line(tmp_path: Path) -> None:
    file = write(tmp_path / "p.jsonl", PAIR, '{"chosen": [1], "rejected": [2], "margin": NaN}')
    _, bad = read_preferences([file])
    assert str(bad) == "p.jsonl:2: NaN is not JSON; write null, or leave the column out"


# K-wise


def test_scores_are_ranks_that_are_higher_for_the_better(tmp_path: Path) -> None:
    row = pair(tmp_path, {**KWISE, "scores": [0.5, 2, 2]}, direction="higher_is_better")
    assert row.ranks == (0.5, 2.0, 2.0)
    assert [side.response for side in row.sides] == ["a", "b", "c"]


def test_lower_is_better_turns_the_numbers_round(tmp_path: Path) -> None:
    row = pair(tmp_path, {**KWISE, "ranking": [1, 2, 3], "direction": "lower_is_better"})
    assert row.ranks == (-1.0, -2.0, -3.0)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            {"ranking": [1, 2, 3]},
            "'ranking' has no direction: say direction: higher_is_better or lower_is_better "
            "in the row, or beside the file's path",
        ),
        (
            {"scores": [1, 2, 3], "direction": "up"},
            "column 'direction': expected higher_is_better or lower_is_better, found 'up'",
        ),
        (
            {"scores": [1, 2], "direction": "higher_is_better"},
            "column 'scores': expected one number for each of 3 candidates, found 2 of them; "
            "equal numbers are ties",
        ),
        ({"scores": 1}, "column 'scores': expected one number for each of 3 candidates, found 1;"),
        ({"scores": [1, None, 2]}, "column 'scores[1]': expected a finite number, found None"),
        ({}, "expected 'ranking' or 'scores' beside 'candidates', one of them, found column(s)"),
        ({"scores": [1, 2, 3], "ranking": [1, 2, 3]}, "expected 'ranking' or 'scores'"),
        (
            {"scores": [1, 2, 3], "direction": "higher_is_better", "margin": 1},
            "column 'margin' belongs to pairs, found it beside 'candidates'; drop it",
        ),
        (
            {"scores": [1, 2, 3], "direction": "higher_is_better", "preference": 1},
            "column 'preference' belongs to pairs",
        ),
    ],
)
def test_ranks_that_cannot_be_are_refused(tmp_path: Path, labels: Any, message: str) -> None:
    assert refusal(tmp_path, {**KWISE, **labels}).startswith(message)


def test_row_and_file_may_not_contradict_each_other_in_direction(tmp_path: Path) -> None:
    row = {**KWISE, "scores": [1, 2, 3], "direction": "lower_is_better"}
    assert refusal(tmp_path, row, direction="higher_is_better") == (
        "column 'direction' is lower_is_better, but the file is declared higher_is_better; keep one"
    )


# Files


def test_rows_of_several_files_and_globs_come_in_order(tmp_path: Path) -> None:
    for name in ("b-2", "b-1", "a"):
        write(tmp_path / f"{name}.jsonl", {**PAIR, "id": name})
    files = [DataFile(path=Path("a.jsonl")), DataFile(path=Path("b-*.jsonl"), name="shards")]
    rows = list(read_preferences(files, folder=tmp_path))
    assert [(row.source, row.dataset) for row in rows if isinstance(row, PreferenceRow)] == [
        ("a.jsonl", "a"),
        ("b-1.jsonl", "shards"),
        ("b-2.jsonl", "shards"),
    ]


def test_gzip_is_unpacked_and_lines_are_physical(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n" + json.dumps(PAIR).encode() + b"\n\n[]\n"))
    row, bad = read_preferences([DataFile(path=path)])
    assert (row.place, bad.place) == ("p.jsonl.gz:2", "p.jsonl.gz:4")
    assert isinstance(bad, BadPreference)
    assert "expected one JSON object, found []" in bad.message


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    files = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        files.append(write(tmp_path / folder / "p.jsonl", PAIR))
    places = [row.place for row in read_preferences(files)]
    assert places == [f"{tmp_path}/one/p.jsonl:1", f"{tmp_path}/two/p.jsonl:1"]


def test_a_file_given_twice_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "p.jsonl", PAIR)
    with pytest.raises(UsageError, match=r"p\.jsonl is read 2 times; give each file once"):
        list(read_preferences([file, file]))


def test_a_file_without_rows_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match=r"none\.jsonl: .* found no rows"):
        list(read_preferences([file]))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.jsonl: no such file"):
        list(read_preferences([DataFile(path=tmp_path / "gone.jsonl")]))


def test_rows_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO(json.dumps(PAIR).encode())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=content))
    (row,) = read_preferences([DataFile(path=Path("-"))])
    assert row.place == "stdin:1"


def test_standard_input_without_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
    with pytest.raises(DataError, match="stdin: expected one JSON object a line, found no rows"):
        list(read_preferences([DataFile(path=Path("-"))]))


# Renamed columns


def test_columns_rename_also_crosswise(tmp_path: Path) -> None:
    swap = {"chosen": "rejected", "rejected": "chosen"}
    row = pair(tmp_path, PAIR, columns=swap)
    assert [list(side.tokens or ()) for side in row.sides] == [[5], [3, 4]]
    assert row.record == {"rejected": [3, 4], "chosen": [5]}


def test_a_rename_onto_another_column_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, {**PAIR, "best": [1]}, columns={"best": "chosen"}) == (
        "column 'chosen' stands in the row and is also made by `columns:`; rename the other one too"
    )


def test_a_rename_that_no_row_has_is_an_error_of_the_file(tmp_path: Path) -> None:
    file = DataFile(path=tmp_path / "p.jsonl", columns={"strenth": "margin"})
    write(tmp_path / "p.jsonl", {**PAIR, "strength": 2})
    row, bad = read_preferences([file])
    assert isinstance(row, PreferenceRow)
    assert str(bad) == (
        "p.jsonl: `columns:` renames 'strenth', which no row has; did you mean 'strength'?"
    )


# A JSON file


def test_json_holds_one_list_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps([PAIR, {**PAIR, "margin": "x"}]))
    row, bad = read_json_preferences(DataFile(path=path))
    assert row.place == "p.json, row 1"
    assert str(bad).startswith("p.json, row 2: column 'margin'")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "p.json: expected a list of rows, found {}"),
        ("[]", "p.json: expected a list of rows, found []"),
        ("[[1]]", "p.json, row 1: expected an object, found [1]"),
        ("[1", "p.json: expected JSON: not JSON at column"),
    ],
)
def test_json_that_is_no_list_of_rows_is_refused(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "p.json"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        list(read_json_preferences(DataFile(path=path)))
    assert str(caught.value).startswith(message)
