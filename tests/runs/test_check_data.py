"""`--check-data`: rows against the streams of a config."""

import json
from pathlib import Path
from typing import Any

import pytest

from rewardctl.config.findings import Finding
from rewardctl.errors import DataError
from rewardctl.runs.check_data import MAX_SHOWN
from rewardctl.runs.validate import validate

DECLARED = """\
data:
  datasets:
    - {name: a, path: a.jsonl}
    - {name: b, path: b.jsonl}
rewards:
  - {name: len, reward_model: length, applicable_datasets: [a]}
  - {name: sharp, reward_model: sharpness, applicable_datasets: [b]}
"""
OPEN = "rewards: {name: len, reward_model: length}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def findings(config: str, rows: list[Any], name: str = "rows.jsonl") -> list[Finding]:
    Path("c.yaml").write_text(config, encoding="utf-8")
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    Path("rows.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return validate(["c.yaml"], rows=name).findings


def test_rows_that_fit_have_no_findings() -> None:
    rows = [{"response": "x", "dataset": "a"}, {"image": "x.png", "dataset": "b"}]
    assert findings(DECLARED, rows) == []


def test_a_missing_field_names_line_stream_and_a_near_column() -> None:
    rows = [{"response": "x", "dataset": "a"}, "", {"reponse": "x", "dataset": "a"}]
    found = [f for f in findings(DECLARED, rows) if f.is_error]
    assert [str(f) for f in found] == [
        "rows.jsonl:3: RC322 error: no 'response', which stream 'len' requires, in line 3 "
        "(did you mean the column 'reponse'?)"
    ]


def test_a_field_is_required_in_the_streams_own_datasets_only() -> None:
    rows = [{"image": "x.png", "dataset": "b"}]
    assert [f.code for f in findings(DECLARED, rows)] == ["RC323"]


def test_rows_with_one_problem_are_one_finding() -> None:
    rows = [{"prompt": "x"}] * (MAX_SHOWN + 5)
    finding = findings(OPEN, rows)[0]
    assert finding.line == 1
    assert finding.message.endswith("in line " + ", ".join(map(str, range(1, 21))) + " and 5 more")


def test_an_undeclared_dataset_lists_the_declared() -> None:
    found = [f for f in findings(DECLARED, [{"response": "x", "dataset": "z"}]) if f.is_error]
    assert [(f.code, f.line) for f in found] == [("RC321", 1)]
    assert "dataset 'z' is not declared" in found[0].message


def test_rows_that_cannot_be_read_have_their_lines() -> None:
    found = findings(OPEN, ["{", {"response": "x"}, {"response": 3}])
    assert [(f.code, f.line) for f in found] == [("RC321", 1), ("RC321", 3)]


def test_very_many_bad_rows_are_counted() -> None:
    found = findings(OPEN, ["{"] * (MAX_SHOWN + 3))
    assert len(found) == MAX_SHOWN + 1
    assert found[-1].message == "3 more rows after this one cannot be read"


def test_a_declared_dataset_that_no_row_has_is_a_warning() -> None:
    finding = findings(DECLARED, [{"response": "x", "dataset": "a"}])[0]
    assert (finding.code, finding.severity, finding.path, finding.line) == (
        "RC323",
        "warning",
        "c.yaml",
        4,
    )
    assert finding.message == "no row is of dataset 'b'"


def test_a_named_dataset_that_no_row_has_is_a_warning_where_none_is_declared() -> None:
    config = "rewards: {name: len, reward_model: length, applicable_datasets: [a, z]}\n"
    finding = findings(config, [{"response": "x", "dataset": "a"}])[0]
    assert (finding.code, finding.message) == ("RC323", "no row is of dataset 'z'")


def test_a_dataset_that_no_stream_applies_to_is_a_warning() -> None:
    config = "rewards: {name: len, reward_model: length, applicable_datasets: [a]}\n"
    rows = [{"response": "x", "dataset": "a"}, {"response": "x", "dataset": "q"}]
    finding = findings(config, rows)[0]
    assert (finding.code, finding.severity, finding.line) == ("RC323", "warning", 2)
    assert finding.message == "no stream applies to dataset 'q'"


def test_a_groupwise_stream_needs_a_unique_id() -> None:
    config = "rewards: {name: div, reward_model: group_diversity}\n"
    assert (
        "no 'unique_id', which stream 'div' requires"
        in findings(config, [{"response": "x"}])[0].message
    )


def test_the_data_may_be_given_a_dataset() -> None:
    rows = [{"response": "x"}]
    assert [f.code for f in findings(DECLARED, rows, "a=rows.jsonl")] == ["RC323"]


def test_fields_that_options_decide_are_left_to_the_run() -> None:
    config = "rewards: {name: ocr, reward_model: ocr, options: {target_key: t}}\n"
    assert findings(config, [{"image": "x.png", "t": "x"}]) == []


def test_a_dotted_class_is_asked_through_its_source() -> None:
    Path("mine.py").write_text(
        "from rewardctl.rewards import PointwiseRewardModel\n"
        "class Mine(PointwiseRewardModel):\n    required_fields = ('video',)\n",
        encoding="utf-8",
    )
    config = "rewards: {name: m, reward_model: 'mine:Mine'}\n"
    assert "no 'video', which stream 'm' requires" in findings(config, [{"prompt": "x"}])[0].message


def test_eval_rewards_are_checked_where_there_are_no_rewards() -> None:
    assert findings("eval_" + OPEN, [{"prompt": "x"}])[0].code == "RC322"


def test_a_missing_file_is_an_error_of_its_own() -> None:
    Path("c.yaml").write_text(OPEN, encoding="utf-8")
    with pytest.raises(DataError, match="nope"):
        validate(["c.yaml"], rows="nope.jsonl")
