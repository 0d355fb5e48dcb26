"""The `train` command: what is printed where, with which exit code, and what it leaves to score."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from train_project import MODEL, TrainProject, lines_of, token_records, write_rows

from rewardctl.cli import main

Captured = pytest.CaptureFixture[str]
TEXT = {key: value for key, value in MODEL.items() if key not in ("input", "vocab_size")}
TEXT |= {"vocab_size": 270, "seq_length": 48}
ANSWERS = [
    {"prompt": f"Is {n} odd?", "chosen": f"yes, {n} is", "rejected": f"no {n}"} for n in range(12)
]
# Warnings that these rows are meant to cause not: no answer is always the longer one.
FAIR = [row | {"rejected": row["rejected"] + " of all" * (n % 2)} for n, row in enumerate(ANSWERS)]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainProject:
    monkeypatch.chdir(tmp_path)
    return TrainProject(tmp_path)


def train(*arguments: str) -> int:
    return main(["train", "c.yaml", *arguments])


def score(
    project: TrainProject, rows: list[dict[str, Any]], model_path: str = "run"
) -> list[float]:
    """Scores of rows by what was trained, through the command line."""
    stream = {"name": "r", "reward_model": "trained", "model_path": model_path, "device": "cpu"}
    (project.folder / "s.yaml").write_text(json.dumps({"rewards": [stream]}))
    write_rows(project.folder / "rows.jsonl", rows)
    code = main(["score", "s.yaml", "--data", "rows.jsonl", "-o", "out.jsonl", "--overwrite"])
    assert code == 0
    return [line["scores"]["r"] for line in lines_of(project.folder / "out.jsonl")]


# ---------------------------------------------------------------- end to end


def test_text_is_trained_with_a_bpe_and_scored(project: TrainProject) -> None:
    project.write(records=FAIR, validation=FAIR[:4], model=TEXT, epochs=15)
    assert train() == 0
    sides = [
        {"prompt": row["prompt"], "response": row[side]}
        for row in FAIR
        for side in ("chosen", "rejected")
    ]
    found = score(project, sides)
    assert all(a > b for a, b in zip(found[::2], found[1::2], strict=True))


def test_tokens_are_trained_and_scored(project: TrainProject) -> None:
    project.write(epochs=10)
    assert train() == 0
    good, bad = score(project, [{"tokens": [1, 9, 9]}, {"tokens": [2, 9, 9]}])
    assert good > bad


def test_latents_are_trained_by_path_and_scored(project: TrainProject) -> None:
    draw = np.random.default_rng(0)
    for n in range(8):
        for name, sign in (("c", 1), ("r", -1)):
            latents = sign + draw.standard_normal((2 + n % 3, 2)) / 4
            np.save(project.folder / f"{name}{n}.npy", latents.astype(np.float32))
    records = [
        {"chosen": {"latents": f"c{n}.npy"}, "rejected": {"latents": f"r{n}.npy"}, "timestep": 0.5}
        for n in range(8)
    ]
    model = {key: value for key, value in MODEL.items() if key != "vocab_size"}
    model |= {"input": "latents", "in_channels": 2, "timestep_aware": True}
    project.write(records=records, model=model, epochs=15)
    assert train() == 0
    rows = [{"latents": f"{name}0.npy", "timestep": 0.5} for name in ("c", "r")]
    good, bad = score(project, rows)
    assert good > bad


def ranked(n: int, *scores: float) -> dict[str, Any]:
    """Candidates that begin with 1, 7 and 2."""
    candidates = [[first, 3 + n % 12] for first in (1, 7, 2)]
    row = {"prompt": str(n), "candidates": candidates, "scores": scores}
    return row | {"direction": "higher_is_better"}


@pytest.mark.parametrize("loss", ["bradley_terry", "rao_kupper", "plackett_luce"])
def test_ranked_candidates_are_learnt_under_every_loss(project: TrainProject, loss: str) -> None:
    project.write(records=[ranked(n, 3, 2, 1) for n in range(8)], loss=loss, epochs=25)
    assert train() == 0
    best, middle, worst = score(project, [{"tokens": [first, 5]} for first in (1, 7, 2)])
    assert best > middle > worst


def test_ties_are_learnt_under_rao_kupper(project: TrainProject) -> None:
    """1 beats 2; 7 and 8 are equally good, where a fresh model knows nothing of either."""
    pairs = [{"prompt": f"a{n}", "chosen": [1, 3 + n], "rejected": [2, 3 + n]} for n in range(8)]
    ties = [
        {"prompt": f"b{n}", "chosen": [7, 3 + n], "rejected": [8, 3 + n], "preference": 0.5}
        for n in range(8)
    ]
    project.write(records=pairs + ties, loss="rao_kupper", tie_strength=3.0, epochs=20)
    assert train() == 0
    won, lost, one, other = score(project, [{"tokens": [first, 5]} for first in (1, 2, 7, 8)])
    assert won - lost > 1
    assert abs(one - other) < 0.5
    config = json.loads((project.run / "final" / "config.json").read_text())
    assert config["loss"]["tie_strength"] == 3.0


def test_all_candidates_tied_is_no_reason_to_stop(project: TrainProject) -> None:
    records = [ranked(n, 3, 2, 1) for n in range(4)] + [ranked(9, 2, 2, 2)]
    project.write(records=records, batch_size=1)
    assert train() == 0


# ---------------------------------------------------------------- what is printed


def test_json_stands_alone_on_stdout(project: TrainProject, capsys: Captured) -> None:
    project.write(validation=token_records(4, seed=1))
    assert train("--json") == 0
    meta = json.loads(capsys.readouterr().out)
    assert meta == json.loads((project.run / "train.meta.json").read_text())
    assert meta["steps"] == 4


def test_without_json_stdout_is_empty_and_stderr_tells_the_run(
    project: TrainProject, capsys: Captured
) -> None:
    project.write(validation=token_records(4, seed=1), log_every=2)
    assert train() == 0
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert "train: pairs.jsonl: 16 rows read, 16 used" in err
    assert [line.split(":")[0] for line in lines if line.startswith("step ")] == [
        "step 2",
        "step 4",
        "step 4",
    ]
    assert lines[-2].startswith("4 steps, train_loss 0.")
    assert lines[-1] == f"model: {project.run}"


def test_a_dead_head_is_said_at_the_end(project: TrainProject, capsys: Captured) -> None:
    project.write(lr=1e-12, weight_decay=0.0, epochs=None, max_steps=80, log_every=100)
    assert train() == 0
    err = capsys.readouterr().err
    assert "rewardctl: warning: step 70: all scores have been the same for 20 steps" in err


def test_set_overrides_the_config(project: TrainProject) -> None:
    project.write()
    assert train("--set", "train.epochs=2", "--set", "train.batch_size=8") == 0
    assert lines_of(project.run / "metrics.jsonl")[-1]["step"] == 4


def test_output_dir_overrides_the_config(project: TrainProject, capsys: Captured) -> None:
    project.write()
    assert train("--output-dir", "elsewhere") == 0
    assert not project.run.exists()
    assert capsys.readouterr().err.splitlines()[-1] == "model: elsewhere"


# ---------------------------------------------------------------- exit codes


def test_errors_of_the_audit_exit_3_before_the_first_step(
    project: TrainProject, capsys: Captured
) -> None:
    project.write(records=[*token_records(3), {"chosen": [1]}, {"chosen": [99], "rejected": [1]}])
    assert train() == 3
    err = capsys.readouterr().err
    assert "pairs.jsonl:4: error: no 'rejected'" in err
    assert "pairs.jsonl:5: error: chosen: token 99" in err
    assert "step 1" not in err
    assert not project.run.exists()


def test_warnings_exit_3_under_strict(project: TrainProject, capsys: Captured) -> None:
    tied = {"prompt": "t", "chosen": [1], "rejected": [2], "preference": 0.5}
    project.write(records=[*token_records(3), tied])
    assert train("--strict") == 3
    assert "warning" in capsys.readouterr().err


def test_a_missing_file_exits_3(project: TrainProject, capsys: Captured) -> None:
    project.write(data="none.jsonl")
    assert train() == 3
    assert "none.jsonl" in capsys.readouterr().err


def test_a_config_error_exits_2(project: TrainProject, capsys: Captured) -> None:
    project.write(learning_rate=0.1)
    assert train() == 2
    assert "lr" in capsys.readouterr().err


def test_a_run_in_the_folder_exits_2(project: TrainProject, capsys: Captured) -> None:
    project.write()
    assert train() == 0
    assert train() == 2
    assert "holds a training run; go on with --resume" in capsys.readouterr().err
    assert train("--overwrite") == 0


def test_resume_with_overwrite_exits_2(project: TrainProject, capsys: Captured) -> None:
    project.write()
    assert train("--resume", "--overwrite") == 2
    assert "--resume goes on, --overwrite starts anew: give one" in capsys.readouterr().err


def test_resume_under_other_settings_exits_2_and_names_them(
    project: TrainProject, capsys: Captured
) -> None:
    project.write()
    assert train() == 0
    assert train("--resume", "--set", "train.lr=0.5", "--set", "train.seed=4") == 2
    err = capsys.readouterr().err
    assert "lr: was 0.01, now 0.5" in err
    assert "seed: was 0, now 4" in err


def test_resume_with_more_epochs_goes_on_and_says_so(
    project: TrainProject, capsys: Captured
) -> None:
    project.write(epochs=1, schedule="cosine")
    assert train() == 0
    capsys.readouterr()
    assert train("--resume", "--set", "train.epochs=2") == 0
    err = capsys.readouterr().err
    assert "step 5:" in err
    assert "step 4:" not in err
    assert "step 4" in err  # warmup is kept, the cosine runs to the new end


def test_resume_with_nothing_left_exits_0_and_says_so(
    project: TrainProject, capsys: Captured
) -> None:
    project.write()
    assert train() == 0
    assert train("--resume") == 0
    assert "nothing left to do: the run ended at step 4" in capsys.readouterr().err


def test_resume_after_an_early_stop_exits_0_and_says_so(
    project: TrainProject, capsys: Captured
) -> None:
    early = {"patience": 1, "min_delta": 10.0}
    project.write(validation=token_records(4, seed=1), epochs=5, eval_every=1, early_stopping=early)
    assert train() == 0
    assert "stopped early" in capsys.readouterr().err
    assert train("--resume") == 0
    assert "nothing left to do: the run ended at step 2" in capsys.readouterr().err


def test_a_loss_that_is_not_finite_exits_4(project: TrainProject, capsys: Captured) -> None:
    records = [*token_records(7), {"chosen": [1], "rejected": [2], "margin": 3e38}]
    project.write(records=records, lr=100.0, epochs=50)
    assert train() == 4
    assert "the loss is not finite for pairs.jsonl:8" in capsys.readouterr().err


def test_a_damaged_checkpoint_exits_3(project: TrainProject, capsys: Captured) -> None:
    project.write()
    assert train() == 0
    weights = project.run / "checkpoint-000004" / "model.safetensors"
    os.truncate(weights, 100)
    assert train("--resume", "--set", "train.epochs=2") == 3
    assert f"{weights}: has 100 bytes" in capsys.readouterr().err


def test_a_starting_point_that_is_contradicted_exits_2(
    project: TrainProject, capsys: Captured
) -> None:
    project.write()
    assert train("--output-dir", "first") == 0
    project.write(model={"input": "tokens", "init_from": "first", "pooling": "last"})
    assert train() == 2
    assert "model.pooling is 'last', but the checkpoint" in capsys.readouterr().err


def test_a_fresh_head_is_said(project: TrainProject, capsys: Captured) -> None:
    project.write()
    assert train("--output-dir", "first") == 0
    project.write(model={"input": "tokens", "init_from": "first", "init_head": "fresh"})
    capsys.readouterr()
    assert train() == 0
    assert "first: all weights but the head, which starts anew" in capsys.readouterr().err


def test_the_module_trains_as_a_process(project: TrainProject) -> None:
    project.write(records=FAIR, model=TEXT)
    done = subprocess.run(
        [sys.executable, "-m", "rewardctl", "train", "c.yaml", "--json"],
        cwd=project.folder,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["status"] == "complete"
    assert "\x1b" not in done.stderr.decode()
