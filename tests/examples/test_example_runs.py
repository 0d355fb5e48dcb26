"""Every example runs as its text says, and gives the scores that can be worked out by hand."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "examples").rglob("*.yaml"))


def run_python(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run this interpreter from the repository's root."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True
    )


def rewardctl(*arguments: str | Path) -> str:
    """What `rewardctl` says on stderr; it must end well."""
    done = run_python("-m", "rewardctl", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def score(config: str, out: Path, *options: str) -> list[dict[str, Any]]:
    """The output rows of `rewardctl score` over a config's declared datasets."""
    rewardctl("score", config, "-o", out, *options)
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quickstart's model after a tenth of its steps."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    steps = ("--set", "train.max_steps=20", "--set", "train.eval_every=20")
    rewardctl("train", "examples/train_ukp.yaml", "--output-dir", folder, *steps)
    return folder


@pytest.fixture(scope="module")
def quickstart(model: Path) -> dict[str, dict[str, Any]]:
    out = model.with_name("out.jsonl")
    place = f"rewards.convincing.model_path={model}"
    rows = score("examples/quickstart.yaml", out, "--set", place)
    return {row["id"]: row for row in rows}


@pytest.fixture(scope="module")
def report(model: Path) -> dict[str, Any]:
    """The quickstart's report about that model."""
    folder = model.with_name("eval")
    place = f"rewards.convincing.model_path={model}"
    rewardctl("eval", "examples/train_ukp.yaml", "--output-dir", folder, "--set", place)
    found: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def custom(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    out = tmp_path_factory.mktemp("custom") / "out.jsonl"
    return {row["id"]: row for row in score("examples/custom_reward/config.yaml", out)}


def scores_of(rows: dict[str, dict[str, Any]], stream: str) -> dict[str, float]:
    """One stream's scores by row id, where it applies."""
    return {i: row["scores"][stream] for i, row in rows.items() if row["applicable"][stream]}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_config_is_valid(config: Path) -> None:
    done = run_python("-m", "rewardctl", "validate-config", config)
    assert done.returncode == 0, done.stdout + done.stderr


def test_quickstart_scores_every_row_of_every_set(quickstart: dict[str, dict[str, Any]]) -> None:
    counts = dict.fromkeys(("arguments", "instructions", "signs"), 0)
    for row in quickstart.values():
        counts[row["dataset"]] += 1
        assert set(row["status"].values()) == {"ok", "not_applicable"}
    assert counts == {"arguments": 48, "instructions": 20, "signs": 14}


def test_quickstart_streams_apply_to_their_own_sets(
    quickstart: dict[str, dict[str, Any]],
) -> None:
    streams = {
        dataset: {
            name
            for row in quickstart.values()
            if row["dataset"] == dataset
            for name, applies in row["applicable"].items()
            if applies
        }
        for dataset in ("arguments", "instructions", "signs")
    }
    assert streams == {
        "arguments": {
            "convincing",
            "fitting_length",
            "fresh_words",
            "no_shouting",
            "unlike_its_rival",
        },
        "instructions": {"fitting_length", "fresh_words", "right_answer"},
        "signs": {"wanted_text", "small_file"},
    }


def test_quickstart_aggregate_is_the_weighted_sum_of_what_applies(
    quickstart: dict[str, dict[str, Any]],
) -> None:
    for row in quickstart.values():
        applying = [name for name, applies in row["applicable"].items() if applies]
        expected = sum(row["weights"][name] * row["scores"][name] for name in applying)
        assert row["aggregate"] == pytest.approx(expected, abs=1e-12)  # order of additions


def test_quickstart_audits_the_pairs_it_learns_from() -> None:
    done = run_python("-m", "rewardctl", "validate-data", "examples/train_ukp.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"longer wins" alone is right on 76.2% of 7,917 pairs' in done.stdout
    assert "7,928 rows read, 7,928 used" in done.stdout


def test_quickstart_judges_the_model_beside_length_on_the_same_pairs(
    report: dict[str, Any],
) -> None:
    model, length = report["streams"]["convincing"], report["streams"]["longer"]
    assert model["n_pairs"] == length["n_pairs"] == 1391
    # 1129 of the 1391 validation pairs have the longer side chosen, 4 have equal lengths.
    assert length["accuracy"]["value"] == pytest.approx((1129 + 4 / 2) / 1391)
    assert model["length"]["near_equal"]["n_pairs"] == 125
    assert model["accuracy"]["n_clusters"] == 2


def test_quickstart_right_answers_are_the_preferred_ones(
    quickstart: dict[str, dict[str, Any]],
) -> None:
    rows = (ROOT / "examples/data/llmbar-natural/instructions.jsonl").read_text(encoding="utf-8")
    preferred = {row["id"]: row["preferred"] for row in map(json.loads, rows.splitlines())}
    assert scores_of(quickstart, "right_answer") == preferred


def test_quickstart_reads_the_signs(quickstart: dict[str, dict[str, Any]]) -> None:
    # 1 - edits / letters of the wanted text, spaces left out; all other signs are right.
    wrong = {
        "ocr-0052-b": 1 - 3 / 15,  # Fresh Bakd Daliy: one letter missing, two exchanged
        "ocr-0077-b": 1 - 1 / 10,  # DO NOT TOBCH
        "ocr-0172-a": 1 - 2 / 15,  # Ink Draems Studio
        "ocr-0247-a": 1 - 5 / 17,  # Hidden (Water) Spring
        "ocr-0264-a": 1 - 4 / 14,  # Next (Exit) 2 Miles
        "ocr-0270-a": 1 - 4 / 15,  # Finish (Line) Ahead
    }
    wanted_text = scores_of(quickstart, "wanted_text")
    assert len(wanted_text) == 14
    for row, found in wanted_text.items():
        assert found == pytest.approx(wrong.get(row, 1.0)), row


def test_custom_reward_counts_words(custom: dict[str, dict[str, Any]]) -> None:
    # row-1: red, wall, with, white, clock; all but "with" are in "A white clock on a red wall."
    assert scores_of(custom, "prompt_words") == pytest.approx(
        {
            "row-1": 4 / 5,
            "row-2": 1 / 5,
            "row-3": 4 / 5,
            "row-4": 1 / 5,
            "row-5": 4 / 5,
            "row-6": 2 / 3,
        }
    )


def test_class_written_for_flow_factory_runs(custom: dict[str, dict[str, Any]]) -> None:
    colour = scores_of(custom, "colour")
    assert colour["row-5"] == 1.0  # blue asked for, blue all over
    # Red asked for, blue all over: the distance is 255 * sqrt(2), the widest 255 * sqrt(3).
    assert colour["row-2"] == pytest.approx(1 - (2 / 3) ** 0.5, abs=1e-6)  # float32 in the class


def test_groupwise_custom_reward_ranks_the_clips_of_a_pair(
    custom: dict[str, dict[str, Any]],
) -> None:
    motion = scores_of(custom, "motion")
    assert len(motion) == 6
    for pair in ("example_1", "example_2", "example_3"):
        assert {motion[f"{pair}-A"], motion[f"{pair}-B"]} == {0.0, 1.0}


def test_use_from_python_gives_one_answer_both_ways() -> None:
    done = run_python("examples/use_from_python.py")
    assert done.returncode == 0, done.stderr
    assert "the buffer gives the same rewards: True" in done.stdout
    assert done.stdout.startswith("fresh_words [")


def test_render_script_runs_from_the_command_line(tmp_path: Path) -> None:
    done = run_python("examples/render_ocr_images.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(list(tmp_path.rglob("*.png"))) == 14
