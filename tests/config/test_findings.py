"""Findings as text, JSON and GitHub annotations."""

import json
import re
from pathlib import Path

from rewardctl.config.findings import (
    CODES,
    Finding,
    format_github,
    format_json,
    format_text,
    in_order,
)

ERROR = Finding(
    "RC203",
    "error",
    "unknown key 'batchsize' in rewards[1]",
    "cfg.yaml",
    14,
    5,
    "rewards[1].batchsize",
    "did you mean 'batch_size'?",
)
WARNING = Finding("RC304", "warning", "stream 'a' never fires", "cfg.yaml", 2, 3, "rewards[0]")


def test_text_is_one_greppable_line_each_and_a_count() -> None:
    assert format_text([ERROR, WARNING], ["cfg.yaml"]).split("\n") == [
        "cfg.yaml:14:5: RC203 error: unknown key 'batchsize' in rewards[1] "
        "(did you mean 'batch_size'?)",
        "cfg.yaml:2:3: RC304 warning: stream 'a' never fires",
        "1 error, 1 warning in 1 file",
    ]


def test_text_without_findings_is_the_count() -> None:
    assert format_text([], ["a.yaml", "b.yaml"]) == "0 errors, 0 warnings in 2 files"


def test_a_finding_about_a_file_has_no_position() -> None:
    finding = Finding("RC401", "error", "there is no such file", "cfg.yaml")
    assert str(finding) == "cfg.yaml: RC401 error: there is no such file"


def test_control_characters_stay_on_the_line() -> None:
    finding = Finding("RC401", "error", "there is no such file", "a\n\x1b[31m\u202e.yaml")
    assert str(finding).isprintable()
    assert str(finding).startswith("a\\n\\x1b[31m\\u202e.yaml: ")


def test_json_is_one_object_with_all_that_is_known() -> None:
    report = json.loads(format_json([ERROR, WARNING], ["cfg.yaml"]))
    assert report["schema_version"] == 1
    assert report["files"] == ["cfg.yaml"]
    assert report["summary"] == {"files": 1, "errors": 1, "warnings": 1}
    assert report["findings"][0] == {
        "code": "RC203",
        "severity": "error",
        "message": "unknown key 'batchsize' in rewards[1]",
        "path": "cfg.yaml",
        "line": 14,
        "column": 5,
        "place": "rewards[1].batchsize",
        "hint": "did you mean 'batch_size'?",
    }


def test_github_annotates_file_and_line() -> None:
    assert format_github([ERROR, WARNING], ["cfg.yaml"]).split("\n") == [
        "::error file=cfg.yaml,line=14,col=5,title=RC203 an unknown key::"
        "unknown key 'batchsize' in rewards[1] (did you mean 'batch_size'?)",
        "::warning file=cfg.yaml,line=2,col=3,title=RC304 a stream that never fires::"
        "stream 'a' never fires",
        "1 error, 1 warning in 1 file",
    ]


def test_github_escapes_properties_and_data() -> None:
    """Properties escape %, CR, LF, colon and comma; data escapes %, CR and LF."""
    finding = Finding("RC203", "error", "50%,\r\n::warning::x", "a,b:c%\n.yaml", 1, 1)
    line = format_github([finding], ["x"]).split("\n")[0]
    assert line == (
        "::error file=a%2Cb%3Ac%25%0A.yaml,line=1,col=1,title=RC203 an unknown key::"
        "50%25,%0D%0A::warning::x"
    )


def test_github_shows_an_option_without_a_file() -> None:
    finding = Finding("RC207", "error", "bad", "--set a.b")
    line = format_github([finding], ["x"]).split("\n")[0]
    assert line == f"::error title=RC207 {CODES['RC207']}::--set a.b: bad".replace(",", "%2C", 1)


def test_findings_are_ordered_by_file_and_position_and_not_repeated() -> None:
    first = Finding("RC401", "error", "x", "b.yaml")
    assert in_order([ERROR, first, WARNING, ERROR], ["b.yaml", "cfg.yaml"]) == [
        first,
        WARNING,
        ERROR,
    ]


def test_every_code_used_in_the_package_is_in_the_table() -> None:
    package = Path(__file__).parents[2] / "rewardctl"
    used = {
        code
        for path in package.rglob("*.py")
        for code in re.findall(r'"(RC\d{3})"', path.read_text(encoding="utf-8"))
    }
    assert used == CODES.keys()
