"""`eval` from preference rows to the report, on models that can be worked out by hand."""

import io
import json
from pathlib import Path

import eval_models
import pytest
from accelerate import Accelerator
from eval_project import PAIRS, Project

from rewardctl.errors import UsageError


@pytest.fixture
def project(tmp_path: Path, accelerator: Accelerator) -> Project:
    eval_models.CALLS.clear()
    return Project(tmp_path, accelerator)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 5])
def test_figures_do_not_depend_on_the_batch_size(batch_size: int, project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA", "batch_size": batch_size})
    figures = project.eval()["streams"]["s"]
    assert figures["accuracy"]["value"] == 0.5
    assert figures["score_gap"]["value"] == pytest.approx(1 / 3)
    assert figures["batch_probe"]["within_tolerance"] is True
    assert figures["swap_probe"]["adds_up_to_1"] is True


def test_each_side_is_a_row_with_its_labels(project: Project) -> None:
    pair = {
        "prompt": "p",
        "chosen": "aa",
        "rejected": "b",
        "margin": 2,
        "preference": 0.9,
        "timestep": 0.5,
        "subset": "easy",
        "id": "x",
        "unique_id": 7,
    }
    project.write([pair], {"is": "LetterA"})
    project.eval()
    first, second = project.rows()
    assert (first["scores"], second["scores"]) == ({"s": 2.0}, {"s": 0.0})
    assert (first["side"], second["side"]) == ("chosen", "rejected")
    assert (first["length"], second["length"]) == (2, 1)
    for row in (first, second):
        labels = {n: row[n] for n in ("margin", "preference", "timestep", "subset", "prompt")}
        assert labels == {
            "margin": 2.0,
            "preference": 0.9,
            "timestep": 0.5,
            "subset": "easy",
            "prompt": "p",
        }
        assert (row["line"], row["pair"], row["id"], row["unique_id"]) == (1, 0, "x", "7")


def test_the_folder_holds_report_page_and_scores(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"})
    report = project.eval()
    assert json.loads((project.out / "report.json").read_text()) == report
    assert sorted(path.name for path in project.out.iterdir()) == [
        "report.html",
        "report.json",
        "scores.jsonl",
        "scores.jsonl.meta.json",
    ]


def test_stored_scores_give_the_same_figures(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"})
    first = project.eval()["streams"]["s"]
    scores = project.out / "scores.jsonl"
    again = project.eval(scores=scores, output_dir=project.folder / "again")["streams"]["s"]
    for probe in ("batch_probe", "swap_probe"):
        assert first.pop(probe) is not None
        assert again.pop(probe) is None
        again["reasons"].pop(probe)
    assert again == first


def test_eval_rewards_come_before_rewards(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"}, eval_rewards={"name": "e", "reward_model": "length"})
    assert list(project.eval()["streams"]) == ["e"]


def test_a_groupwise_stream_compares_the_sides_of_a_row(project: Project) -> None:
    kwise = {"candidates": ["x", "y", "z"], "scores": [3, 2, 1], "direction": "higher_is_better"}
    # Windows of 3 rows would cut the second and third preference row.
    project.write([PAIRS[0], kwise, PAIRS[1]], {"is": "Placed"}, score={"window": 3})
    figures = project.eval()["streams"]["s"]
    assert eval_models.CALLS[:3] == [["aa", "b"], ["x", "y", "z"], ["b", "a"]]
    assert figures["n_pairs"] == 5
    assert figures["kendall_tau_b"]["value"] == 1.0
    assert figures["batch_probe"] is None
    assert figures["reasons"]["batch_probe"] == "a groupwise stream scores whole groups"
    # Whoever comes first wins: right as written, wrong when swapped.
    assert figures["swap_probe"] == {
        "n_pairs": 2,
        "accuracy": 1.0,
        "accuracy_swapped": 1.0,
        "adds_up_to_1": False,
        "max_difference": 2.0,
    }


def test_scores_that_depend_on_the_batch_are_noticed(project: Project) -> None:
    project.write(PAIRS, {"is": "CallSize", "batch_size": 4})
    probe = project.eval()["streams"]["s"]["batch_probe"]
    # Four sides were scored in a call of 4, two in a call of 2.
    assert probe == {
        "n_sides": 6,
        "batch_size": 4,
        "max_difference": 3.0,
        "within_tolerance": False,
    }


def test_lower_is_better_rankings_are_turned(project: Project) -> None:
    kwise = {
        "candidates": ["aaa", "aa", "b"],
        "ranking": [1, 2, 3],
        "direction": "lower_is_better",
    }
    project.write([kwise], {"is": "LetterA"})
    figures = project.eval()["streams"]["s"]
    assert figures["kendall_tau_b"]["value"] == 1.0
    assert figures["rank_agreement"] is None  # ranks of different rows cannot be compared
    assert [row["rank"] for row in project.rows()] == sorted(
        (row["rank"] for row in project.rows()), reverse=True
    )


def test_tokens_and_timesteps_reach_the_model(project: Project) -> None:
    project.write(
        [{"chosen": [3, 4], "rejected": [5], "timestep": 0.25}, {"chosen": [1], "rejected": [2]}],
        {"is": "Tokens"},
    )
    figures = project.eval()["streams"]["s"]
    assert [row["scores"]["s"] for row in project.rows()] == [7.25, 5.25, 1.0, 2.0]
    assert [entry["low"] for entry in figures["timesteps"]] == [0.2]
    assert figures["length"] is None
    assert figures["reasons"]["intervals"] == "no row has the cluster column 'prompt'"


def test_pairs_that_do_not_apply_are_counted(project: Project) -> None:
    rows = [{**PAIRS[0], "dataset": "other"}, {**PAIRS[1], "dataset": "mine"}]
    project.write(rows, {"is": "LetterA", "applicable_datasets": ["mine"]})
    figures = project.eval()["streams"]["s"]
    assert (figures["n_pairs"], figures["n_not_applicable"]) == (1, 1)


def test_without_a_folder_nothing_is_kept(project: Project, tmp_path: Path) -> None:
    project.write(PAIRS, {"is": "LetterA"}, eval={"data": "pairs.jsonl"})
    report = project.eval()
    assert (report["scores"], report["output_dir"]) == (None, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.yaml", "pairs.jsonl"]


def test_data_of_the_command_line_may_name_its_dataset(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"})
    report = project.eval(data=(f"mine={project.folder / 'pairs.jsonl'}",))
    assert list(report["streams"]["s"]["datasets"]["table"]) == ["mine"]


def test_the_dataset_may_be_the_cluster(project: Project) -> None:
    rows = [{**pair, "dataset": str(n)} for n, pair in enumerate(PAIRS)]
    project.write(rows, {"is": "LetterA"}, eval={"data": "pairs.jsonl", "cluster": "dataset"})
    assert project.eval()["cluster"] == {"column": "dataset", "n_clusters": 3}


def test_rows_that_can_be_read_only_once_are_kept(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(PAIRS, {"is": "LetterA"})
    content = (project.folder / "pairs.jsonl").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert project.eval(data=("-",))["streams"]["s"]["n_pairs"] == 3


def test_two_runs_are_compared_by_their_files(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"})
    project.eval()
    project.write(PAIRS, {"is": "CallSize", "name": "size"})
    report = project.eval(
        output_dir=project.folder / "second", compare=("size", f"{project.out}#s")
    )
    (found,) = report["comparisons"]
    assert (found["a"], found["n_pairs"]) == ("size", 3)
    # Lengths 2 > 1, 1 = 1, 1 = 1 beside letters 2 > 0, 0 < 1, 1 = 1
    assert (found["accuracy_a"], found["accuracy_b"]) == (pytest.approx(2 / 3), 0.5)


def test_a_run_of_several_streams_is_compared_by_name(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"})
    project.eval()
    with pytest.raises(UsageError, match=r"holds s; name one of them as FILE#STREAM"):
        project.eval(output_dir=project.folder / "x", compare=("s", f"{project.out}#t"))


def test_the_start_of_prompt_and_response_stands_in_the_stored_scores(project: Project) -> None:
    pair = {"prompt": "p" * 200, "chosen": "b" * 300, "rejected": "a"}
    project.write([pair], {"is": "LetterA"})
    (worst,) = project.eval()["streams"]["s"]["worst_pairs"]
    assert [row["excerpt"] for row in project.rows()] == [
        {"prompt": "p" * 200, "response": "b" * 199 + "…"},
        {"prompt": "p" * 200, "response": "a"},
    ]
    assert worst == {
        "place": "pairs.jsonl:1",
        "score_gap": -1.0,
        "prompt": "p" * 200,
        "chosen": {"side": "chosen", "score": 0.0, "response": "b" * 199 + "…"},
        "rejected": {"side": "rejected", "score": 1.0, "response": "a"},
    }
    assert "Pairs ranked worst" in (project.out / "report.html").read_text()


def test_a_cluster_column_named_as_the_excerpt_is_refused(project: Project) -> None:
    project.write(PAIRS, {"is": "LetterA"}, eval={"data": "pairs.jsonl", "cluster": "excerpt"})
    with pytest.raises(UsageError, match=r"an output row has a 'excerpt' of its own; rename"):
        project.eval()
