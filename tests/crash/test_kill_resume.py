"""kill -9 at any moment, then --resume: the finished file is that of a run nobody disturbed."""

import json
import random
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from crash_job import SEED, WORKERS, Job, logged_calls
from crash_runs import (
    ForkServer,
    beside,
    calls_in_journal,
    finish,
    meta_of,
    names_in,
    rows_of,
    started,
    wait_until,
)

ATTEMPTS = 400


@dataclass
class Killed:
    """What happened to a run that was killed again and again until it was done."""

    kills: int = 0
    clean_calls: int = 0


def run_with_kills(
    server: ForkServer, job: Job, name: str, rng: random.Random, *, step: int
) -> Killed:
    """Resume until done, each attempt killed after up to `step` more bytes of journal."""
    out, history = job.folder / f"{name}.jsonl", Killed()
    journal = beside(out, ".partial.journal")
    for attempt in range(ATTEMPTS):
        log = job.folder / f"{name}.{attempt}.log"
        size = journal.stat().st_size if journal.exists() else 0
        known = calls_in_journal(journal) if journal.exists() else set()
        ended = server.score(
            *job.arguments,
            *("-o", out, "--resume"),
            cwd=job.folder,
            env={"CRASH_LOG": str(log)},
            kill_at=(journal, size + rng.randint(1, step)),
            kill_after_s=rng.choice((0.0, rng.random() * 0.01)),
        )
        calls = logged_calls(log)
        log.unlink(missing_ok=True)
        assert known.isdisjoint(calls), "a journalled call was run again"
        history.clean_calls += sum(not job.fails(call) for call in calls)
        if not ended.killed:
            assert ended.code == 0, ended.err
            return history
        history.kills += 1
    raise AssertionError(f"no progress: {ATTEMPTS} attempts, and still not done")


def check_killed_run(job: Job, name: str, history: Killed) -> None:
    out = job.folder / f"{name}.jsonl"
    assert out.read_bytes() == job.expected
    assert meta_of(out)["counts"] == job.counts
    assert [n for n in names_in(job.folder) if n.startswith(f"{name}.jsonl.")] == [
        f"{name}.jsonl.meta.json"
    ]
    # A kill costs the calls that were in flight, and no other.
    assert job.clean_calls <= history.clean_calls <= job.clean_calls + WORKERS * history.kills


def kill_again_and_again(server: ForkServer, job: Job, *, kills: int, seed: int) -> None:
    """Whole runs, one after another, until that many kills have hit."""
    print(f"seed {seed}")
    rng, done, number = random.Random(seed), 0, 0
    while done < kills:
        name = f"killed-{seed}-{number}"
        history = run_with_kills(server, job, name, rng, step=rng.choice((1_000, 4_000, 16_000)))
        check_killed_run(job, name, history)
        done, number = done + history.kills, number + 1
    print(f"{done} kills in {number} runs")


def test_undisturbed_run_has_what_the_kill_tests_need(job: Job) -> None:
    rows = [json.loads(line) for line in job.expected.splitlines()]
    assert job.counts == {"rows": 300, "ok": 294, "failed": 6, "nothing_applicable": 0}
    assert [row["row"] for row in rows] == list(range(300))
    assert rows[30]["status"]["linear7"] == "nonfinite"
    assert set(rows[205]["status"].values()) == {"bad_row"}


def test_linear_scores_depend_on_the_company_of_a_row(job: Job, server: ForkServer) -> None:
    out = job.folder / "alone.jsonl"
    ended = server.score(
        *job.arguments, "--set", "rewards.linear7.batch_size=1", "-o", out, cwd=job.folder
    )
    assert ended.code == 0, ended.err
    rows = [json.loads(line) for line in job.expected.splitlines()]
    in_company = [row["scores"]["linear7"] for row in rows]
    alone = [row["scores"]["linear7"] for row in rows_of(out)]
    assert alone != in_company
    scored = [row for row, score in enumerate(alone) if score is not None]
    # float32 sums of some hundred terms
    assert [alone[row] for row in scored] == pytest.approx(
        [in_company[row] for row in scored], rel=1e-4, abs=1e-4
    )


def test_runs_killed_at_random_moments_end_as_if_undisturbed(job: Job, server: ForkServer) -> None:
    kill_again_and_again(server, job, kills=150, seed=SEED)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_kills_leave_no_trace(job: Job, server: ForkServer) -> None:
    kill_again_and_again(server, job, kills=1_000, seed=int(time.time()))


def test_processes_of_their_own_killed_twice_end_as_if_undisturbed(job: Job) -> None:
    out = job.folder / "process.jsonl"
    journal = beside(out, ".partial.journal")
    for size in (20_000, 60_000):
        with started(*job.arguments, "-o", out, "--resume", cwd=job.folder) as process:
            wait_until(lambda size=size: journal_size(journal) > size, process)
            process.kill()
            assert finish(process).code == -9
        assert not out.exists()
    with started(*job.arguments, "-o", out, "--resume", cwd=job.folder) as process:
        ended = finish(process)
    assert ended.code == 0, ended.err
    assert out.read_bytes() == job.expected


def journal_size(journal: Path) -> int:
    return journal.stat().st_size if journal.exists() else 0


def test_resume_of_a_complete_output_runs_no_call(job: Job, server: ForkServer) -> None:
    out, log = job.folder / "undisturbed.jsonl", job.folder / "complete.log"
    ended = server.score(
        *job.arguments, "-o", out, "--resume", cwd=job.folder, env={"CRASH_LOG": str(log)}
    )
    assert ended.code == 0, ended.err
    assert not log.exists()
    assert out.read_bytes() == job.expected
