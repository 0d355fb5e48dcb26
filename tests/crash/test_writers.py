"""One writer at a time: a second run is refused, and a killed one blocks nobody."""

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from crash_runs import ForkServer, beside, finish, started, wait_until, write_jsonl

ROWS = [{"id": n, "response": f"answer {n}" + " gate" * (n == 5)} for n in range(12)]
CONFIG = """
score: {window: 4}
rewards:
  - {name: gated, reward_model: "crash_rewards:GatedReward", batch_size: 2}
"""
ARGUMENTS = ("config.yaml", "--data", "rows.jsonl", "-o", "out.jsonl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def test_second_writer_is_refused_and_the_first_unharmed(folder: Path, server: ForkServer) -> None:
    flags = {"CRASH_FLAGS": str(folder)}
    options: Sequence[tuple[str, ...]] = ((), ("--resume",), ("--overwrite",), ("--retry-errors",))
    with started(*ARGUMENTS, cwd=folder, env=flags) as first:
        wait_until((folder / "arrived").exists, first)
        for option in options:
            second = server.score(*ARGUMENTS, *option, cwd=folder, env=flags)
            assert second.code == 4, option
            assert "out.jsonl: another run is writing it" in second.err
            assert "wait for it, or choose another output" in second.err
        (folder / "open").touch()
        ended = finish(first)
    assert ended.code == 0, ended.err
    alone = server.score(*ARGUMENTS[:-1], "alone.jsonl", cwd=folder, env=flags)
    assert alone.code == 0, alone.err
    assert (folder / "out.jsonl").read_bytes() == (folder / "alone.jsonl").read_bytes()


def test_lock_of_a_killed_run_does_not_block(folder: Path, server: ForkServer) -> None:
    flags = {"CRASH_FLAGS": str(folder)}
    killed = server.score(*ARGUMENTS, cwd=folder, env=flags, kill_at=(folder / "arrived", 0))
    assert killed.code == -signal.SIGKILL
    assert beside(folder / "out.jsonl", ".partial.lock").exists()
    (folder / "open").touch()
    ended = server.score(*ARGUMENTS, "--resume", cwd=folder, env=flags)
    assert ended.code == 0, ended.err
    assert not beside(folder / "out.jsonl", ".partial.lock").exists()


def test_unfinished_output_needs_a_word_what_to_do(folder: Path, server: ForkServer) -> None:
    flags = {"CRASH_FLAGS": str(folder)}
    server.score(*ARGUMENTS, cwd=folder, env=flags, kill_at=(folder / "arrived", 0))
    (folder / "open").touch()
    refused = server.score(*ARGUMENTS, cwd=folder, env=flags)
    assert refused.code == 2
    assert "out.jsonl.partial exists; go on with --resume, or start anew with" in refused.err
    ended = server.score(*ARGUMENTS, "--overwrite", cwd=folder, env=flags)
    assert ended.code == 0, ended.err


def test_resume_of_another_job_is_refused_with_the_differences(
    folder: Path, server: ForkServer
) -> None:
    flags = {"CRASH_FLAGS": str(folder)}
    server.score(*ARGUMENTS, cwd=folder, env=flags, kill_at=(folder / "arrived", 0))
    journal = beside(folder / "out.jsonl", ".partial.journal").read_bytes()
    other = server.score(
        *ARGUMENTS, "--resume", "--set", "rewards.gated.batch_size=3", cwd=folder, env=flags
    )
    assert other.code == 2
    assert "streams[0].batch_size: was 2, now 3" in other.err
    assert beside(folder / "out.jsonl", ".partial.journal").read_bytes() == journal
