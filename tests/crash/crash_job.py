"""A scoring job for the kill tests: all kinds of streams over 300 rows, windows of 16."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

from crash_runs import ForkServer, meta_of, write_jsonl

SEED = 20250117
WORKERS = 4  # calls that can be in flight: one sync, two of `company`, one of `spread_beta`
CONFIG = """
score: {window: 16, on_failure: renormalize}
rewards:
  - name: linear7
    reward_model: crash_rewards:LinearReward
    batch_size: 7
    weight: {alpha: 1.0, beta: 0.25}
    applicable_datasets: [alpha, beta]
    options: {tag: linear7, pause_ms: 2}
  - name: linear3
    reward_model: crash_rewards:LinearReward
    batch_size: 3
    applicable_datasets: [alpha]
    options: {tag: linear3, pause_ms: 1}
  - name: company
    reward_model: crash_rewards:CompanyReward
    batch_size: 3
    async_reward: true
    num_workers: 2
    options: {tag: company, pause_ms: 4}
  - name: spread
    reward_model: crash_rewards:GroupReward
    options: {tag: spread, pause_ms: 1}
  - name: spread_beta
    reward_model: crash_rewards:GroupReward
    async_reward: true
    applicable_datasets: [beta]
    options: {tag: spread_beta, pause_ms: 2}
"""
WORDS = ("red", "green", "café", "blue", "one", "two", "three", "star", "moon", "river", "stone")
LoggedCall = tuple[str, tuple[int, ...]]  # stream and rows


@dataclass(frozen=True)
class Job:
    """A scoring job, and what an undisturbed run made of it."""

    folder: Path
    arguments: tuple[str, ...]
    expected: bytes
    counts: dict[str, int]
    clean_calls: int  # without a failed cell
    failing: frozenset[int]  # rows that the linear streams give NaN

    def fails(self, call: LoggedCall) -> bool:
        """Whether a call has a failed cell, so that a resumed run may run it again."""
        return call[0].startswith("linear") and not self.failing.isdisjoint(call[1])


def make_rows(rng: random.Random) -> tuple[list[list[dict[str, object] | bytes]], frozenset[int]]:
    """Three files of 300 rows in all: groups that interleave across windows and files, a few rows
    whose score is NaN, blank lines, and one broken line.
    """
    files: list[list[dict[str, object] | bytes]] = []
    failing, row = set(), 0
    for size in (110, 90, 100):
        lines: list[dict[str, object] | bytes] = []
        for _ in range(size):
            words = rng.choices(WORDS, k=rng.randint(1, 9))
            if row % 61 == 30:
                words.append("nan")
                failing.add(row)
            fields = {"prompt": rng.choice(WORDS), "response": " ".join(words)}
            lines.append({**fields, "id": row, "unique_id": f"g{row % 37}"})
            if row % 50 == 49:
                lines += [b"", b"  "]
            row += 1
        files.append(lines)
    files[2][5] = b'{"prompt": "cut off'
    return files, frozenset(failing)


def make_job(folder: Path, server: ForkServer) -> Job:
    """Write the job's files, and run it once undisturbed."""
    files, failing = make_rows(random.Random(SEED))
    for name, lines in zip(("alpha-0", "alpha-1", "beta"), files, strict=True):
        write_jsonl(folder / f"{name}.jsonl", lines)
    (folder / "config.yaml").write_text(CONFIG)
    data = ("--data", "alpha-*.jsonl", "--data", "beta.jsonl")
    arguments = ("config.yaml", *data, "--max-errors", "20", "--include", "prompt")
    out, log = folder / "undisturbed.jsonl", folder / "undisturbed.log"
    ended = server.score(*arguments, "-o", out, cwd=folder, env={"CRASH_LOG": str(log)})
    assert ended.code == 0, ended.err
    calls = logged_calls(log)
    assert len(calls) == len(set(calls))
    job = Job(folder, arguments, out.read_bytes(), meta_of(out)["counts"], 0, failing)
    clean = sum(not job.fails(call) for call in calls)
    return Job(folder, arguments, job.expected, job.counts, clean, failing)


def logged_calls(log: Path) -> list[LoggedCall]:
    """The calls that ended, in order."""
    if not log.exists():
        return []
    entries = [json.loads(line) for line in log.read_bytes().splitlines()]
    return [(tag, tuple(rows)) for tag, rows in entries]
