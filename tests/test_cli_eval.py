"""The `eval` command: what is printed where, and with which exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from rewardctl.cli_eval import evaluate
from rewardctl.errors import ConfigError, PolicyStop, UsageError

Captured = pytest.CaptureFixture[str]

PAIRS = [
    {"prompt": "1", "chosen": "long", "rejected": "x"},
    {"prompt": "2", "chosen": "x", "rejected": "long"},
    {"prompt": "3", "chosen": "long", "rejected": "x"},
    {"prompt": "4", "chosen": "x", "rejected": "y"},
]
CONFIG = """\
rewards:
  - {name: length, reward_model: length, device: cpu}
eval: {data: pairs.jsonl}
"""
TWO = """\
  - {name: a, reward_model: length, device: cpu}
  - {name: b, reward_model: length, device: cpu}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(CONFIG)
    Path("pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))


def run(*arguments: str) -> None:
    """The command in this process; what it raises is for cli.py."""
    app = typer.Typer()
    app.command()(evaluate)
    app(list(arguments), standalone_mode=False)


def test_json_stands_alone_on_stdout(capsys: Captured) -> None:
    run("c.yaml", "--json")
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["streams"]["length"]["accuracy"]["value"] == 0.625
    assert "\x1b" not in out
    assert err.splitlines()[0].split()[:3] == ["stream", "pairs", "accuracy"]


def test_the_table_goes_to_stderr(capsys: Captured) -> None:
    run("c.yaml")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[1].split()[:3] == ["length", "4", "0.625"]
    assert "'the longer answer is better' has accuracy 0.625" in err


def test_scores_are_measured_again_without_a_model(capsys: Captured) -> None:
    run("c.yaml", "--output-dir", "ev")
    assert f"report: {Path('ev') / 'report.html'} (and report.json)" in capsys.readouterr().err
    run("--scores", "ev/scores.jsonl", "--json")
    assert json.loads(capsys.readouterr().out)["streams"]["length"]["n_pairs"] == 4


def test_an_output_of_score_is_measured_by_a_label(capsys: Captured) -> None:
    rows = [("g", 5, 1.0), ("g", 2, 0.0), ("g", 2, 3.0)]
    Path("out.jsonl").write_text(
        "".join(
            json.dumps({"scores": {"s": x}, "status": {"s": "ok"}, "unique_id": g, "human": y})
            + "\n"
            for g, y, x in rows
        )
    )
    run("--scores", "out.jsonl", "--label", "human", "--json")
    figures = json.loads(capsys.readouterr().out)["streams"]["s"]
    assert (figures["n_pairs"], figures["accuracy"]["value"]) == (2, 0.5)


def test_set_reaches_the_config(capsys: Captured) -> None:
    run("c.yaml", "--set", "eval.cluster=subset", "--json")
    assert json.loads(capsys.readouterr().out)["cluster"]["column"] == "subset"


def test_two_streams_are_compared(capsys: Captured) -> None:
    Path("c.yaml").write_text(CONFIG + "eval_rewards:\n" + TWO)
    run("c.yaml", "--compare", "b", "a", "--json")
    out, err = capsys.readouterr()
    (found,) = json.loads(out)["comparisons"]
    assert (found["a"], found["b"], found["difference"]["value"]) == ("b", "a", 0.0)
    assert "accuracy of b minus a: +0 [0, 0] unreliable on 4 pairs" in err


def test_a_checkpoint_stands_for_a_config() -> None:
    with pytest.raises(
        ConfigError, match=r"nowhere: is not there; expected the folder of a checkpoint"
    ):
        run("--checkpoint", "nowhere", "--data", "pairs.jsonl")


def test_too_low_a_figure_ends_with_1_after_the_report(capsys: Captured) -> None:
    with pytest.raises(PolicyStop, match=r"accuracy is 0\.625, under 0\.7") as caught:
        run("c.yaml", "--json", "--fail-under", "accuracy=0.7")
    assert caught.value.exit_code == 1
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to evaluate: give a CONFIG, --checkpoint DIR or --scores FILE"),
        (["c.yaml", "d.yaml"], "'d.yaml': quote the glob or repeat --data"),
        (["c.yaml", "--checkpoint", "run"], "--checkpoint stands for the CONFIG"),
        (["c.yaml", "--label", "human"], "--label names a column of --scores FILE"),
        (["--scores", "x.jsonl", "--data", "pairs.jsonl"], "--scores stands for a model"),
        (["c.yaml", "--fail-under", "beauty=1"], "figures are accuracy, accuracy_strict"),
        (["c.yaml", "--max-errors", "some"], "--max-errors 'some': expected a number of rows"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(*arguments)
    assert message in str(caught.value)


def test_the_command_is_registered_and_its_data_error_ends_with_3() -> None:
    Path("none.jsonl").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "rewardctl", "eval", "c.yaml", "--data", "none.jsonl"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "none.jsonl" in done.stderr
    assert "Traceback" not in done.stderr
