"""A journal or an OUT.partial that was cut, damaged or added to: resumed all the same."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_job import Job, logged_calls
from crash_runs import ForkServer, beside, calls_in_journal

from rewardctl.data.journal import decode_record, read_records


def killed_run(server: ForkServer, job: Job, out: Path, size: int) -> Path:
    """A run killed when its journal has `size` bytes; the journal."""
    journal = beside(out, ".partial.journal")
    ended = server.score(
        *job.arguments, "-o", out, "--resume", cwd=job.folder, kill_at=(journal, size)
    )
    assert ended.killed, ended.err
    return journal


def whole_size(journal: Path) -> int:
    """Bytes of a journal up to its first record that is not whole."""
    return max((end for _, end in read_records(journal)), default=0)


def resume_to_the_end(server: ForkServer, job: Job, out: Path) -> None:
    ended = server.score(*job.arguments, "-o", out, "--resume", cwd=job.folder)
    assert ended.code == 0, ended.err
    assert out.read_bytes() == job.expected


@pytest.mark.parametrize("cut", [1, 7, 40], ids=lambda n: f"{n} bytes short")
def test_torn_journal_and_two_more_kills(
    cut: int, job: Job, server: ForkServer, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    journal = killed_run(server, job, out, 30_000)
    os.truncate(journal, whole_size(journal) - cut)
    sizes = [whole_size(journal)]
    for _ in range(2):
        killed_run(server, job, out, journal.stat().st_size + 5_000)
        sizes.append(whole_size(journal))
        *whole, last = journal.read_bytes().splitlines(keepends=True)
        assert None not in map(decode_record, whole), "a record was glued to a torn one"
        assert decode_record(last) is not None or not last.endswith(b"\n")
    assert sizes[0] < sizes[1] < sizes[2]
    resume_to_the_end(server, job, out)


def append(path: Path, tail: bytes) -> None:
    with path.open("ab") as file:
        file.write(tail)


def flip(path: Path, at: float) -> None:
    """Damage one byte, at this share of the file."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * at)] ^= 0x55
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "zeros behind the journal": lambda journal, partial: append(journal, bytes(5000)),
    "text behind the journal": lambda journal, partial: append(journal, b"00000000 {}\nhello\n"),
    "half a record behind the journal": lambda journal, partial: append(
        journal, journal.read_bytes()[:30]
    ),
    "a flipped byte in the journal": lambda journal, partial: flip(journal, 0.5),
    "no journal": lambda journal, partial: journal.unlink(),
    "an empty journal": lambda journal, partial: os.truncate(journal, 0),
    "half of the first record": lambda journal, partial: os.truncate(journal, 100),
    "rows behind those of the journal": lambda journal, partial: append(
        partial, partial.read_bytes()[:2000]
    ),
    "a shorter OUT.partial": lambda journal, partial: os.truncate(
        partial, partial.stat().st_size - 1
    ),
    "half of OUT.partial": lambda journal, partial: os.truncate(
        partial, partial.stat().st_size // 2
    ),
    "an empty OUT.partial": lambda journal, partial: os.truncate(partial, 0),
    "no OUT.partial": lambda journal, partial: partial.unlink(),
    "a flipped byte near the end of OUT.partial": lambda journal, partial: flip(partial, 0.999),
    "a flipped byte early in OUT.partial": lambda journal, partial: flip(partial, 0.1),
    "no meta file": lambda journal, partial: beside(partial, ".meta.json").unlink(),
    "half a meta file aside": lambda journal, partial: append(
        beside(partial, ".meta.json.tmp"), b'{"status": "run'
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_mended_by_resume(
    damage: str, job: Job, server: ForkServer, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    journal = killed_run(server, job, out, 30_000)
    DAMAGES[damage](journal, beside(out, ".partial"))
    resume_to_the_end(server, job, out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "out.jsonl.meta.json"]


def test_lost_rows_are_rendered_from_journalled_calls(
    job: Job, server: ForkServer, tmp_path: Path
) -> None:
    out, log = tmp_path / "out.jsonl", tmp_path / "calls.log"
    journal = killed_run(server, job, out, 30_000)
    os.truncate(beside(out, ".partial"), 0)
    known = calls_in_journal(journal)
    ended = server.score(
        *job.arguments, "-o", out, "--resume", cwd=job.folder, env={"CRASH_LOG": str(log)}
    )
    assert ended.code == 0, ended.err
    assert out.read_bytes() == job.expected
    assert known.isdisjoint(logged_calls(log))
