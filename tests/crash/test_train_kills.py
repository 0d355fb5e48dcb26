"""Training that is killed, asked to stop, or has no room, and then --resume: the run that ends is
that of one nobody disturbed.
"""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from crash_runs import ENV, TIMEOUT_S, ForkServer, names_in, wait_until, write_jsonl
from train_project import MODEL, token_records

SEED = 20250117
# Everything that a run carries on is in use: dropout, averages, early stopping, sums over steps.
CONFIG = {
    "model": MODEL | {"dropout": 0.5},
    "train": {
        "data": "pairs.jsonl",
        "validation": "held.jsonl",
        "epochs": 3,
        "batch_size": 4,
        "lr": 0.01,
        "schedule": "cosine",
        "log_every": 3,
        "eval_every": 4,
        "save_every": 5,
        "keep_last": 2,
        "ema_decay": 0.8,
        "early_stopping": {"patience": 50},
    },
}
STEPS = 24  # 30 rows, 8 steps an epoch


@dataclass(frozen=True)
class TrainJob:
    """Data and config, and what an undisturbed run made of them."""

    folder: Path
    expected: dict[str, bytes]
    history: dict[str, Any]


def results_of(run: Path) -> dict[str, bytes]:
    """All files that a run leaves, but the record of when it ran."""
    paths = (path for path in run.rglob("*") if path.is_file() and path.name != "train.meta.json")
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in sorted(paths)}


def meta_of_run(run: Path) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads((run / "train.meta.json").read_text("utf-8"))
    return meta


@pytest.fixture(scope="module")
def trains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    running = ForkServer(tmp_path_factory.mktemp("train-server"), script="train_server.py")
    yield running
    running.close()


@pytest.fixture(scope="module")
def train_job(trains: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> TrainJob:
    folder = tmp_path_factory.mktemp("train-job")
    write_jsonl(folder / "pairs.jsonl", token_records(30))
    write_jsonl(folder / "held.jsonl", token_records(8, seed=1))
    (folder / "config.yaml").write_text(json.dumps(CONFIG))
    ended = trains.run("train", "config.yaml", "--output-dir", "undisturbed", cwd=folder)
    assert ended.code == 0, ended.err
    run = folder / "undisturbed"
    meta = meta_of_run(run)
    assert meta["steps"] == STEPS
    return TrainJob(folder, results_of(run), meta["history"])


def check(job: TrainJob, run: Path) -> None:
    """The run ended as the undisturbed one, and nothing is left aside."""
    assert meta_of_run(run)["status"] == "complete"
    assert meta_of_run(run)["history"] == job.history
    found = results_of(run)
    assert found["metrics.jsonl"] == job.expected["metrics.jsonl"]
    assert found["final/model.safetensors"] == job.expected["final/model.safetensors"]
    assert found == job.expected
    assert sorted(names_in(run)) == names_in(job.folder / "undisturbed")


def train_with_kills(server: ForkServer, job: TrainJob, run: Path, rng: random.Random) -> int:
    """Resume until done; each attempt is killed when the log has grown, or amid a file."""
    for kills in range(60):
        log = run / "metrics.jsonl"
        size = log.stat().st_size if log.exists() else 0
        done = server.run(
            "train",
            "config.yaml",
            *("--output-dir", run, "--resume"),
            cwd=job.folder,
            kill_at=(log, size + rng.randint(1, 800)),
            kill_after_s=rng.random() * 0.03,
        )
        if not done.killed:
            assert done.code == 0, done.err
            return kills
    raise AssertionError("no progress in 60 attempts")


def test_runs_killed_at_random_steps_end_bit_equal(train_job: TrainJob, trains: ForkServer) -> None:
    print(f"seed {SEED}")
    rng, kills, number = random.Random(SEED), 0, 0
    while kills < 6:
        run = train_job.folder / f"killed-{number}"
        kills += train_with_kills(trains, train_job, run, rng)
        check(train_job, run)
        number += 1


@pytest.mark.parametrize(
    "file",
    [
        ".checkpoint-000005.writing/model.safetensors",
        ".checkpoint-000015.writing/trainer_state/state.safetensors",
        ".best.old/manifest.json",
        ".final.writing/model.safetensors",
    ],
)
def test_a_kill_amid_a_file_leaves_no_trace(
    train_job: TrainJob, trains: ForkServer, file: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = trains.run(
        "train", "config.yaml", "--output-dir", run, cwd=train_job.folder, kill_at=(run / file, 0)
    )
    # A file may come and go between two looks; then the run just ended.
    assert done.killed or done.code == 0, done.err
    ended = trains.run(
        "train", "config.yaml", "--output-dir", run, "--resume", cwd=train_job.folder
    )
    assert ended.code == 0, ended.err
    check(train_job, run)


def test_sigterm_saves_and_the_run_goes_on_bit_equal(
    train_job: TrainJob, trains: ForkServer, tmp_path: Path
) -> None:
    """Steps without end in a process of its own; without warmup and schedule, they do not depend on
    the run's length.
    """
    run, whole = tmp_path / "run", tmp_path / "whole"
    settings = ("--set", "train.warmup_ratio=0", "--set", "train.schedule=constant")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "rewardctl", "train", "config.yaml", "--output-dir", str(run)),
            *(*settings, "--set", "train.epochs=100000"),
        ],
        cwd=train_job.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=ENV,
    )
    try:
        wait_until((run / "metrics.jsonl").exists, process)
        process.terminate()
        err = process.communicate(timeout=TIMEOUT_S)[1].decode()
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 143, err
    assert "go on with --resume" in err
    meta = meta_of_run(run)
    step = meta["steps"]
    assert (meta["status"], meta["exit_code"]) == ("interrupted", 143)
    assert (run / f"checkpoint-{step:06d}").is_dir()
    assert not (run / "final").exists()
    length = ("--set", f"train.epochs={step // 8 + 2}")
    for folder in (run, whole):
        ended = trains.run(
            "train",
            "config.yaml",
            *("--output-dir", folder, "--resume", *settings, *length),
            cwd=train_job.folder,
        )
        assert ended.code == 0, ended.err
    for name in ("metrics.jsonl", "best/model.safetensors", "final/model.safetensors"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()
    assert meta_of_run(run)["history"] == meta_of_run(whole)["history"]


@pytest.mark.parametrize("limit", [10_000, 40_000])
def test_a_full_disk_exits_4_and_resume_finishes(
    train_job: TrainJob, trains: ForkServer, limit: int, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    full = trains.run(
        "train", "config.yaml", "--output-dir", run, cwd=train_job.folder, max_file_bytes=limit
    )
    assert full.code == 4, full.err
    message = full.err.splitlines()[-1]
    assert message.startswith(f"rewardctl: error: {run}")
    assert "cannot" in message
    assert "File too large" in message
    assert message.endswith("--resume")
    assert "Traceback" not in full.err
    resumed = trains.run(
        "train", "config.yaml", "--output-dir", run, "--resume", cwd=train_job.folder
    )
    assert resumed.code == 0, resumed.err
    check(train_job, run)


def test_a_log_that_finds_no_room_exits_4_and_resume_finishes(
    train_job: TrainJob, trains: ForkServer, tmp_path: Path
) -> None:
    """A line of the log is cut, and no checkpoint was written yet."""
    run = tmp_path / "run"
    late = ("--set", "train.save_every=1000", "--set", "train.eval_every=1000")
    often = ("--set", "train.log_every=1")
    full = trains.run(
        "train",
        "config.yaml",
        *("--output-dir", run, *late, *often),
        cwd=train_job.folder,
        max_file_bytes=4_500,
    )
    assert full.code == 4, full.err
    assert f"{run}/metrics.jsonl: cannot write: File too large" in full.err
    resumed = trains.run(
        "train", "config.yaml", "--output-dir", run, "--resume", cwd=train_job.folder
    )
    assert resumed.code == 0, resumed.err
    check(train_job, run)
