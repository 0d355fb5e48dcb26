"""A run killed before each of its file operations, and in the middle of each write: whatever state
that leaves, the next run finishes it.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_runs import Ended, ForkServer, beside, names_in, write_jsonl

OPERATIONS = 200  # more than any run here makes
STREAMS = """
score: {window: 3}
rewards:
  - {name: company, reward_model: "crash_rewards:CompanyReward", batch_size: 2}
"""
GROUPED = """
score: {window: 3}
rewards:
  - {name: company, reward_model: "crash_rewards:CompanyReward", batch_size: 2}
  - {name: spread, reward_model: "crash_rewards:GroupReward"}
"""
FLAKY = """
score: {window: 3}
rewards:
  - {name: flaky, reward_model: "crash_rewards:FlakyReward", batch_size: 2}
  - {name: company, reward_model: "crash_rewards:CompanyReward", batch_size: 2}
"""
ROWS = [
    {"id": n, "response": f"answer {n}" + " flaky" * (n in (1, 5)), "unique_id": f"g{n % 3}"}
    for n in range(7)
]
Run = Callable[..., Ended]


def run_cut_everywhere(
    tmp_path: Path, prepare: Callable[[Path], None], run: Run, finish: Run
) -> Path:
    """Cut runs at operation 0, 1, … until one is not cut; finish each, and compare.

    Args:
        prepare: puts what a run needs into its folder.
        run: what is cut; takes the folder and `die_at`.
        finish: what makes it whole; takes the folder.

    Returns:
        The folder of the run that was not cut.
    """
    whole = tmp_path / "whole"
    whole.mkdir()
    prepare(whole)
    ended = run(whole, die_at=None)
    assert ended.code == 0, ended.err
    expected = (whole / "out.jsonl").read_bytes()
    left = names_in(whole)
    for operation in range(OPERATIONS):
        folder = tmp_path / f"cut{operation}"
        folder.mkdir()
        prepare(folder)
        ended = run(folder, die_at=operation)
        if ended.code == 0:
            assert operation > 12
            return folder
        assert ended.code == -9, ended.err
        state = names_in(folder)
        again = finish(folder)
        assert again.code == 0, f"cut {operation}, {state}: {again.err}"
        assert (folder / "out.jsonl").read_bytes() == expected, f"cut {operation}, {state}"
        assert names_in(folder) == left, f"cut {operation}, {state}"
    raise AssertionError("a run without an end")


def write_config(folder: Path, text: str) -> None:
    (folder / "config.yaml").write_text(text)
    write_jsonl(folder / "rows.jsonl", ROWS)


def test_run_over_a_file(tmp_path: Path, server: ForkServer) -> None:
    arguments = ("config.yaml", "--data", "rows.jsonl", "-o", "out.jsonl")
    run_cut_everywhere(
        tmp_path,
        lambda folder: write_config(folder, STREAMS),
        lambda folder, die_at: server.score(*arguments, cwd=folder, die_at=die_at),
        lambda folder: server.score(*arguments, "--resume", cwd=folder),
    )


def test_run_of_groups_over_stdin(tmp_path: Path, server: ForkServer) -> None:
    arguments = ("config.yaml", "--data", "rows=-", "-o", "out.jsonl")

    def finish(folder: Path) -> Ended:
        # Once rows were scored, the copy of stdin is whole, and stdin is not read again.
        is_begun = beside(folder / "out.jsonl", ".partial.journal").exists()
        stdin = os.devnull if is_begun else folder / "rows.jsonl"
        return server.score(*arguments, "--resume", cwd=folder, stdin=stdin)

    run_cut_everywhere(
        tmp_path,
        lambda folder: write_config(folder, GROUPED),
        lambda folder, die_at: server.score(
            *arguments, cwd=folder, stdin=folder / "rows.jsonl", die_at=die_at
        ),
        finish,
    )


@pytest.mark.parametrize("option", ["--resume", "--retry-errors"])
def test_retry_of_an_output(option: str, tmp_path: Path, server: ForkServer) -> None:
    arguments = ("config.yaml", "--data", "rows.jsonl", "-o", "out.jsonl")

    def prepare(folder: Path) -> None:
        write_config(folder, FLAKY)
        flags = {"CRASH_FLAGS": str(folder)}
        ended = server.score(*arguments, "--max-errors", "2", cwd=folder, env=flags)
        assert ended.code == 0, ended.err
        (folder / "repaired").touch()

    def run(folder: Path, die_at: int | None = None, option: str = "--retry-errors") -> Ended:
        flags = {"CRASH_FLAGS": str(folder)}
        return server.score(*arguments, option, cwd=folder, env=flags, die_at=die_at)

    def finish(folder: Path) -> Ended:
        # Before the retry has a journal there is nothing to resume.
        is_begun = beside(folder / "out.jsonl", ".partial").exists()
        return run(folder, option=option if is_begun else "--retry-errors")

    run_cut_everywhere(tmp_path, prepare, run, finish)


def test_retry_of_rendered_rows(tmp_path: Path, server: ForkServer) -> None:
    """Two of seven rows failed, which 10% forbids at the end: OUT.partial stays, all rendered."""
    arguments = ("config.yaml", "--data", "rows.jsonl", "-o", "out.jsonl", "--max-errors", "10%")

    def prepare(folder: Path) -> None:
        write_config(folder, FLAKY)
        ended = server.score(*arguments, cwd=folder, env={"CRASH_FLAGS": str(folder)})
        assert ended.code == 1, ended.err
        (folder / "repaired").touch()

    def run(folder: Path, die_at: int | None = None) -> Ended:
        flags = {"CRASH_FLAGS": str(folder)}
        return server.score(*arguments, "--retry-errors", cwd=folder, env=flags, die_at=die_at)

    run_cut_everywhere(tmp_path, prepare, run, run)
