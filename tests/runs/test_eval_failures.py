"""What `eval` refuses, what it counts, and what a run that does not end leaves."""

import json
import signal
from pathlib import Path

import eval_models
import pytest
from accelerate import Accelerator
from eval_project import BAD, PAIRS, Project

from rewardctl.errors import (
    ConfigError,
    ContractError,
    DataError,
    PolicyStop,
    RewardctlError,
    UsageError,
)
from rewardctl.runs.eval import hold_limits, parse_limits
from rewardctl.runs.interrupt import Interrupted
from rewardctl.runs.loop import ScoreLoop


@pytest.fixture
def project(tmp_path: Path, accelerator: Accelerator) -> Project:
    eval_models.CALLS.clear()
    return Project(tmp_path, accelerator)


def test_a_bad_row_stops_before_a_model_is_called(project: Project) -> None:
    project.write([PAIRS[0], BAD], {"is": "LetterA"})
    with pytest.raises(PolicyStop) as caught:
        project.eval()
    assert "pairs.jsonl:2: no 'rejected'" in str(caught.value)
    assert "--resume" not in str(caught.value)
    assert eval_models.CALLS == []
    assert not project.out.exists()


def test_a_bad_row_within_the_limit_is_a_failed_pair(project: Project) -> None:
    project.write([PAIRS[0], BAD, PAIRS[1]], {"is": "LetterA"})
    figures = project.eval(max_errors="1")["streams"]["s"]
    assert (figures["n_pairs"], figures["n_failed"]) == (2, 1)
    assert figures["swap_probe"]["n_pairs"] == 2
    assert [row["line"] for row in project.rows()] == [1, 1, 2, 3, 3]


def test_failures_are_counted_by_preference_row(project: Project) -> None:
    both = {"prompt": "x", "chosen": "refused", "rejected": "refused"}
    project.write([PAIRS[0], both], {"is": "LetterA", "batch_size": 1})
    assert project.eval(max_errors="1")["streams"]["s"]["n_failed"] == 1
    with pytest.raises(PolicyStop, match=r"1 row failed(?s:.*)pairs.jsonl:2: stream 's'"):
        project.eval(overwrite=True)


def test_a_share_of_failures_is_one_of_preference_rows(project: Project) -> None:
    project.write([PAIRS[0], BAD, PAIRS[1], PAIRS[2]], {"is": "LetterA"})
    assert project.eval(max_errors="25%")["n_rows"] == 4
    with pytest.raises(PolicyStop):
        project.eval(max_errors="24%", overwrite=True)


def test_a_failing_run_leaves_the_old_report(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"})
    project.eval()
    before = {path.name: path.read_bytes() for path in project.out.iterdir()}
    project.write([*PAIRS, {"chosen": "refused", "rejected": "a"}], {"is": "LetterA"})
    with pytest.raises(PolicyStop):
        project.eval(overwrite=True)
    assert {path.name: path.read_bytes() for path in project.out.iterdir()} == before


def test_an_old_report_is_replaced_only_when_asked(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"})
    project.eval()
    with pytest.raises(UsageError, match=r"report\.json exists; .*--overwrite"):
        project.eval()
    assert project.eval(overwrite=True)["n_rows"] == 3


def test_no_rows_are_refused(project: Project) -> None:
    project.write([], {"is": "LetterA"})
    with pytest.raises(DataError, match=r"pairs\.jsonl: .*no rows"):
        project.eval()


def test_no_data_is_a_usage_error(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"}, eval={})
    with pytest.raises(UsageError, match=r"give --data PATH, or list files under eval\.data"):
        project.eval()


def test_no_streams_are_a_config_error(project: Project) -> None:
    project.write(PAIRS)
    with pytest.raises(ConfigError, match="no reward streams"):
        project.eval()


def test_an_undeclared_dataset_is_refused(project: Project) -> None:
    declared = {"datasets": [{"name": "known", "path": "pairs.jsonl"}]}
    project.write(PAIRS, {"is": "LetterA"}, data=declared)
    with pytest.raises(PolicyStop, match=r"pairs\.jsonl:1: dataset 'pairs' is not declared"):
        project.eval()


def test_a_cluster_column_with_another_meaning_is_refused(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"}, eval={"data": "pairs.jsonl", "cluster": "line"})
    with pytest.raises(UsageError, match=r"eval\.cluster 'line': an output row has a 'line'"):
        project.eval()


def test_a_broken_contract_leaves_nothing(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"})
    config = json.loads((project.folder / "c.yaml").read_text())
    config["rewards"][0]["reward_model"] = "probes:OneForAll"
    config["python_path"].append(str(Path(__file__).parents[1]))
    (project.folder / "c.yaml").write_text(json.dumps(config))
    with pytest.raises(ContractError, match="stream 's'"):
        project.eval()
    assert list(project.out.iterdir()) == []


def test_a_signal_leaves_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: ScoreLoop) -> None:
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(ScoreLoop, "run", stop)
    project.write(PAIRS, {"is": "LetterA"})
    with pytest.raises(RewardctlError, match="nothing is kept, start eval again") as caught:
        project.eval()
    assert caught.value.exit_code == 128 + signal.SIGTERM
    assert list(project.out.iterdir()) == []


def test_what_a_killed_run_left_is_in_nobodys_way(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"})
    project.out.mkdir()
    (project.out / "scores.jsonl.partial").write_text("cut")
    assert project.eval()["n_rows"] == 3
    assert not (project.out / "scores.jsonl.partial").exists()


def test_a_file_in_the_folders_place_is_refused(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"})
    project.out.write_text("")
    with pytest.raises(UsageError, match="expected a folder to write the report in, found a file"):
        project.eval()


def test_one_process_at_a_time(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    project.write(PAIRS, {"is": "LetterA"})
    with pytest.raises(UsageError, match="WORLD_SIZE is 2, but eval runs in one process"):
        project.eval()


def test_a_probe_that_fails_does_not_undo_the_scores(project: Project) -> None:
    project.write(PAIRS, {"is": "OnlyWhole", "batch_size": 4})
    figures = project.eval()["streams"]["s"]
    assert figures["n_pairs"] == 3
    assert figures["batch_probe"] is None
    assert figures["reasons"]["batch_probe"].startswith(
        "the model failed when it was asked again: stream 's': returned 2 scores for 1 input"
    )


def test_what_cannot_be_compared_is_said_before_anything_is_scored(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"})
    with pytest.raises(UsageError, match=r"--compare 'nobody': expected a stream \(s\)"):
        project.eval(compare=("s", "nobody"))
    assert eval_models.CALLS == []


def test_limits_hold_every_stream(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"})
    report = project.eval()
    hold_limits(report, parse_limits(("accuracy=0.5",)))
    with pytest.raises(PolicyStop, match=r"stream 's': accuracy is 0\.5, under 0\.7"):
        hold_limits(report, parse_limits(("accuracy=0.7",)))
    with pytest.raises(PolicyStop, match="stream 's' has no spearman, wanted at least 0"):
        hold_limits(report, parse_limits(("spearman=0",)))


@pytest.mark.parametrize("text", ["accuracy", "accuracy=high", "brier=0.1", "accuracy=nan"])
def test_a_limit_that_cannot_be_held_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected FIGURE=NUMBER, as in accuracy=0\.7"):
        parse_limits((text,))
