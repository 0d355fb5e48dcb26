"""Places that cannot be written: a full disk, a device, a folder; what is said and kept."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from crash_job import Job
from crash_runs import ENV, TIMEOUT_S, ForkServer, command, names_in, write_jsonl

ROWS = [{"id": n, "response": f"answer {n}", "unique_id": f"g{n % 2}"} for n in range(40)]
GROUPED = """
rewards:
  - {name: spread, reward_model: "crash_rewards:GroupReward"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "config.yaml").write_text(GROUPED)
    return tmp_path


@pytest.mark.parametrize("limit", [1_000, 10_000, 40_000, 100_000])
def test_full_disk_stops_the_run_and_resume_finishes_it(
    limit: int, job: Job, server: ForkServer, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    full = server.score(*job.arguments, "-o", out, cwd=job.folder, max_file_bytes=limit)
    assert full.code == 4
    message = full.err.splitlines()[-1]
    assert message.startswith(f"rewardctl: error: {out}.partial")
    assert "cannot write: File too large" in message
    assert message.endswith("go on with --resume")
    assert not out.exists()
    ended = server.score(*job.arguments, "-o", out, "--resume", cwd=job.folder)
    assert ended.code == 0, ended.err
    assert out.read_bytes() == job.expected
    assert names_in(tmp_path) == ["out.jsonl", "out.jsonl.meta.json"]


def test_full_disk_at_the_copy_of_stdin(folder: Path, server: ForkServer) -> None:
    arguments = ("config.yaml", "--data", "rows=-", "-o", "out.jsonl", "--resume")
    rows = folder / "rows.jsonl"
    full = server.score(*arguments, cwd=folder, stdin=rows, max_file_bytes=500)
    assert full.code == 4
    assert "out.jsonl.partial.input: cannot write: File too large" in full.err
    assert "--resume" in full.err
    ended = server.score(*arguments, cwd=folder, stdin=rows)
    assert ended.code == 0, ended.err
    assert len((folder / "out.jsonl").read_bytes().splitlines()) == 40


def test_full_standard_output_is_one_clear_error(folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("config.yaml", "--data", "rows.jsonl", "-o", "-"),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            env=ENV,
            timeout=TIMEOUT_S,
        )
    assert done.returncode == 4
    assert done.stderr.decode().splitlines() == [
        "rewardctl: error: standard output: cannot write: No space left on device"
    ]


def test_full_standard_output_for_the_summary_keeps_the_scores(folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("config.yaml", "--data", "rows.jsonl", "-o", "out.jsonl", "--json"),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            env=ENV,
            timeout=TIMEOUT_S,
        )
    error = done.stderr.decode()
    assert done.returncode == 4, error
    assert "No space left on device" in error
    assert "Traceback" not in error
    assert "Exception ignored" not in error
    assert len((folder / "out.jsonl").read_bytes().splitlines()) == 40


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        ("/dev/full", "/dev/full: expected a file to write"),
        ("a_folder", "a_folder: expected a file to write"),
        ("missing/out.jsonl", "missing/out.jsonl: "),
        ("rows.jsonl/out.jsonl", "rows.jsonl/out.jsonl: "),
    ],
)
def test_output_that_is_no_file_is_refused(
    out: str, expected: str, folder: Path, server: ForkServer
) -> None:
    (folder / "a_folder").mkdir()
    before, devices = names_in(folder), set(os.listdir("/dev"))
    ended = server.score("config.yaml", "--data", "rows.jsonl", "-o", out, cwd=folder)
    assert ended.code == 2, ended.err
    assert expected in ended.err
    assert "Traceback" not in ended.err
    assert names_in(folder) == before
    assert not [n for n in set(os.listdir("/dev")) - devices if n.startswith("full")]


def test_output_over_an_input_is_refused(folder: Path, server: ForkServer) -> None:
    rows = (folder / "rows.jsonl").read_bytes()
    arguments = ("config.yaml", "--data", "rows.jsonl", "-o", "rows.jsonl")
    assert server.score(*arguments, cwd=folder).code == 2
    overwritten = server.score(*arguments, "--overwrite", cwd=folder)
    assert overwritten.code == 2, overwritten.err
    assert (folder / "rows.jsonl").read_bytes() == rows


def test_files_of_others_beside_the_output_stay(folder: Path, server: ForkServer) -> None:
    """A copy of an unfinished output that someone laid aside is not ours to delete."""
    aside = folder / "out.jsonl.partial.copy"
    aside.write_text("mine\n")
    arguments = ("config.yaml", "--data", "rows.jsonl", "-o", "out.jsonl")
    ended = server.score(*arguments, cwd=folder)
    assert ended.code == 0, ended.err
    assert aside.read_text() == "mine\n"
    assert server.score(*arguments, "--overwrite", cwd=folder).code == 0
    assert aside.read_text() == "mine\n"


def test_summary_json_says_where_the_scores_are(folder: Path, server: ForkServer) -> None:
    ended = server.score(
        "config.yaml", "--data", "rows.jsonl", "-o", "out.jsonl", "--json", cwd=folder
    )
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["output"] == "out.jsonl"
