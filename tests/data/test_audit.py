"""What the audit finds, counts and shows."""

import json
from pathlib import Path
from typing import Any

import pytest

from rewardctl.config.training_schema import DataFile
from rewardctl.data.audit import AuditedRows, AuditReport, audit
from rewardctl.data.encode import encode_rows
from rewardctl.data.preferences import BadPreference, PreferenceRow, read_preferences


def part(tmp_path: Path, *records: Any, name: str = "train", **encoding: Any) -> AuditedRows:
    path = tmp_path / f"{name}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = list(read_preferences([DataFile(path=path)]))
    rows = [row for row in found if isinstance(row, PreferenceRow)]
    bad = [row for row in found if isinstance(row, BadPreference)]
    if not encoding:
        return AuditedRows(name, path.name, rows, bad)
    encoded, problems = encode_rows(rows, input="tokens", **encoding)
    return AuditedRows(name, path.name, rows, bad, encoded, problems)


def found(report: AuditReport, kind: str) -> list[str]:
    return [str(problem) for problem in report.problems if problem.kind == kind]


def tokens(chosen: list[int], rejected: list[int], **labels: Any) -> dict[str, Any]:
    return {"chosen": chosen, "rejected": rejected, **labels}


def text(chosen: str, rejected: str, prompt: str = "p", **labels: Any) -> dict[str, Any]:
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected, **labels}


def test_sound_data_have_no_problems(tmp_path: Path) -> None:
    report = audit(part(tmp_path, tokens([1], [2]), tokens([3], [4]), seq_length=4))
    assert report.problems == []
    assert not report.failed(strict=True)


# Errors


def test_lines_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    report = audit(part(tmp_path, tokens([1], [2]), tokens([1], [])))
    assert report.failed()
    (line,) = found(report, "unreadable")
    assert line.startswith("train.jsonl:2: error: column 'rejected': expected content, found []")


def test_nothing_left_to_train_on_is_an_error(tmp_path: Path) -> None:
    report = audit(part(tmp_path, tokens([1], [1]), tokens([2], [2]), seq_length=4))
    assert found(report, "nothing_left") == [
        "train.jsonl: error: nothing left to train on: of 2 rows none can be used"
    ]
    assert len(report.left_out) == 2


def test_equal_sides_of_an_unknown_model_leave_nothing_too(tmp_path: Path) -> None:
    report = audit(part(tmp_path, {"chosen_image": "a.png", "rejected_image": "a.png"}))
    assert found(report, "identical") == ["train.jsonl:1: left out: the sides are equal"]
    assert len(found(report, "nothing_left")) == 1


def test_ties_alone_are_nothing_to_learn_from(tmp_path: Path) -> None:
    report = audit(part(tmp_path, *[tokens([n], [9], preference=0.5) for n in (1, 2)]))
    assert found(report, "nothing_left") == [
        "train.jsonl: error: nothing to train on: each of 2 rows is a tie"
    ]


def test_a_timestep_that_the_model_needs_is_an_error(tmp_path: Path) -> None:
    rows = part(tmp_path, tokens([1], [2], timestep=0.5), tokens([1], [3]))
    report = audit(rows, timestep_aware=True)
    assert found(report, "timestep_missing") == [
        "train.jsonl:2: error: no 'timestep', which model.timestep_aware needs; add it, in [0, 1]"
    ]


# Warnings


def test_contradictions_name_both_lines(tmp_path: Path) -> None:
    report = audit(part(tmp_path, text("a", "b"), text("a", "b", "q"), text("b", "a")))
    assert found(report, "contradiction") == [
        "train.jsonl:3: warning: contradicts train.jsonl:1: "
        "the same two answers, the other way round"
    ]


def test_a_preference_below_one_half_is_its_swap(tmp_path: Path) -> None:
    report = audit(part(tmp_path, text("a", "b"), text("b", "a", preference=0.25)))
    assert found(report, "contradiction") == []


def test_ranked_candidates_contradict_pairs(tmp_path: Path) -> None:
    kwise = {"prompt": "p", "candidates": ["a", "b", "c"], "scores": [1, 2, 0]}
    rows = part(tmp_path, text("a", "b"), {**kwise, "direction": "higher_is_better"})
    assert len(found(audit(rows), "contradiction")) == 1


def test_one_prompt_in_train_and_validation(tmp_path: Path) -> None:
    train = part(tmp_path, text("a", "b", "one"), text("a", "b", "two"))
    validation = part(tmp_path, *[text(c, "z", "two") for c in "xy"], name="validation")
    assert found(audit(train, validation), "prompt_in_both") == [
        "validation.jsonl:1: warning: the prompt of 2 validation rows stands in train too "
        "(train.jsonl:2)"
    ]


def test_rows_without_prompts_share_none(tmp_path: Path) -> None:
    train = part(tmp_path, tokens([1], [2]))
    validation = part(tmp_path, tokens([1], [2]), name="validation")
    assert found(audit(train, validation), "prompt_in_both") == []


def test_length_bias_gives_the_share_and_z(tmp_path: Path) -> None:
    # 36 of 48 longer: (36 - 24) / sqrt(48 / 4) = 3.46; two pairs of equal lengths do not count.
    rows = [text("aaa", "b")] * 36 + [text("a", "bbb")] * 12 + [text("aa", "bb")] * 2
    report = audit(part(tmp_path, *rows))
    assert found(report, "length_bias") == [
        'train.jsonl: warning: "longer wins" alone is right on 75.0% of 48 pairs (z = 3.5); '
        "compare the model's accuracy with that, not with one half"
    ]
    assert report.counts["train"]["longer_chosen"] == {"pairs": 48, "share": 0.75, "z": 3.46}


def test_shorter_may_win_too(tmp_path: Path) -> None:
    report = audit(part(tmp_path, *[tokens([1], [2, 3])] * 10))
    assert '"shorter wins" alone is right on 100.0% of 10' in found(report, "length_bias")[0]


def test_a_bias_that_chance_may_show_is_not_warned_of(tmp_path: Path) -> None:
    report = audit(part(tmp_path, *[text("aaa", "b")] * 5, *[text("a", "bbb")] * 3))
    assert found(report, "length_bias") == []


def test_ties_are_counted(tmp_path: Path) -> None:
    kwise = {"direction": "higher_is_better", "candidates": ["x", "y", "z"]}
    report = audit(
        part(
            tmp_path,
            text("a", "b"),
            text("c", "d", preference=0.5),
            {**kwise, "scores": [1, 1, 2]},
            {**kwise, "scores": [1, 1, 1]},
        )
    )
    assert found(report, "tie") == [
        "train.jsonl:2: warning: 'preference' is 0.5, a tie; accuracy leaves it out",
        "train.jsonl:3: warning: 2 of 3 candidates are tied; their pairs are skipped",
        "train.jsonl:4: warning: all candidates are tied; there is nothing to compare",
    ]


def test_margins_of_some_pairs_only(tmp_path: Path) -> None:
    rows = part(tmp_path, text("a", "b", margin=1), text("c", "d"), text("e", "f", margin=2))
    assert found(audit(rows), "margin_missing") == [
        "train.jsonl:2: warning: no margin, but 2 of 3 pairs have one; taken as 1"
    ]
    assert found(audit(rows, margin_mode="subtract"), "margin_missing") == [
        "train.jsonl:2: warning: no margin, but 2 of 3 pairs have one; taken as 0"
    ]
    assert found(audit(rows, margin_mode="ignore"), "margin_missing") == []


def test_no_margins_at_all_are_fine(tmp_path: Path) -> None:
    assert found(audit(part(tmp_path, text("a", "b"))), "margin_missing") == []


def test_margins_that_scale_can_hardly_mean(tmp_path: Path) -> None:
    rows = part(tmp_path, *[text("a", "b", margin=m) for m in (0, 5, 7.5)])
    assert found(audit(rows), "margin_scale") == [
        "train.jsonl:1: warning: margin 0 is a factor of the score gap and leaves nothing of it; "
        "meant margin_mode: subtract?",
        "train.jsonl:3: warning: margin 7.5 is a factor of the score gap and makes it large; "
        "meant margin_mode: subtract?",
    ]
    assert found(audit(rows, margin_mode="subtract"), "margin_scale") == []


def test_timesteps_that_the_model_ignores(tmp_path: Path) -> None:
    report = audit(part(tmp_path, tokens([1], [2], timestep=0.5)), timestep_aware=False)
    assert found(report, "timestep_ignored") == [
        "train.jsonl:1: warning: its timestep is ignored; set model.timestep_aware: true to use it"
    ]
    assert not report.failed()
    assert report.failed(strict=True)


def test_timesteps_of_an_unknown_model_are_not_judged(tmp_path: Path) -> None:
    assert audit(part(tmp_path, tokens([1], [2], timestep=0.5))).problems == []


# What is shown


def test_text_shows_ten_of_a_kind_and_counts_all(tmp_path: Path) -> None:
    rows = [tokens([1], [2]), *[tokens([1], [1])] * 12]
    lines = audit(part(tmp_path, *rows, seq_length=4)).text().split("\n")
    assert lines[0] == "train.jsonl:2: left out: chosen and rejected are equal"
    assert lines[9].startswith("train.jsonl:11: ")
    assert lines[10:] == [
        "and 2 more of this kind (left out: identical)",
        "train: train.jsonl: 13 rows read, 1 used, 12 left out (identical), "
        "positions median 1, max 1",
        "0 errors, 12 left out, 0 warnings, 0 notes",
    ]


def test_errors_come_first_and_control_characters_are_escaped(tmp_path: Path) -> None:
    report = audit(part(tmp_path, tokens([1], [1]), {"chosen\x1b[2J": 1}, seq_length=4))
    first = report.text().split("\n")[0]
    assert first.startswith("train.jsonl:2: error: ")
    assert "\x1b" not in report.text()


def test_json_holds_every_place_and_ten_messages(tmp_path: Path) -> None:
    rows = [tokens([1, 2], [2]), *[tokens([1], [1])] * 12]
    report = json.loads(json.dumps(audit(part(tmp_path, *rows, seq_length=4)).to_json()))
    assert report["ok"] is True
    (problem,) = report["problems"]
    assert (problem["severity"], problem["kind"], problem["count"]) == ("left_out", "identical", 12)
    assert problem["places"] == [f"train.jsonl:{line}" for line in range(2, 14)]
    assert len(problem["messages"]) == 10
    assert report["counts"] == {
        "train": {
            "source": "train.jsonl",
            "rows": 13,
            "usable": 1,
            "kwise": 0,
            "left_out": {"identical": 12},
            "truncated": 0,
            "longer_chosen": {"pairs": 1, "share": 1.0, "z": 1.0},
            "positions": {"median": 1.5, "max": 2, "sum": 3},
        }
    }


@pytest.mark.parametrize("overlong", ["keep_head", "drop"])
def test_what_the_length_limit_does_is_counted(tmp_path: Path, overlong: str) -> None:
    rows = [tokens([1, 2, 3], [4]), tokens([1], [2])]
    report = audit(part(tmp_path, *rows, seq_length=2, overlong=overlong))
    counts = report.counts["train"]
    expected = (2, 1, {}) if overlong == "keep_head" else (1, 0, {"over_length": 1})
    assert (counts["usable"], counts["truncated"], counts["left_out"]) == expected
