"""OUT, OUT.partial and the journal: cut, locked, renamed, and found again."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from probes import CALLS, Killed, ScoreProject, killed_at

from rewardctl.data.journal import encode_record
from rewardctl.errors import PolicyStop, RunError, UsageError
from rewardctl.runs.output import (
    FileOutput,
    OutputPaths,
    StdoutOutput,
    only_writer,
    read_meta,
    recover,
    write_json,
)

FACTS = {"position": [1, 0, 9, 1], "stream_sha256": None, "statistics": {}, "by_source": {}}


@pytest.fixture
def unfinished(project: ScoreProject, quick_runs: None) -> ScoreProject:
    """Seven rows in windows of three, rendered, but not yet under their final name."""
    rows = [{"prompt": str(n), "unique_id": f"g{n % 2}"} for n in range(7)]
    streams = [
        {"name": "each", "reward_model": "Number", "batch_size": 2},
        {"name": "together", "reward_model": "AboveLowest"},
    ]
    project.write(rows, streams, score={"window": 3})
    project.score_unfinished()
    return project


def starts_of_records(journal: bytes) -> list[int]:
    return [0, *(n + 1 for n, byte in enumerate(journal) if byte == ord("\n"))]


def restore(project: ScoreProject, journal: bytes, partial: bytes) -> None:
    for path in project.folder.glob("out.jsonl*"):
        path.unlink()
    project.journal.write_bytes(journal)
    project.partial.write_bytes(partial)


def test_a_journal_cut_in_its_last_record_leads_to_the_same_bytes(
    unfinished: ScoreProject,
) -> None:
    journal, partial = unfinished.journal.read_bytes(), unfinished.partial.read_bytes()
    for size in range(starts_of_records(journal)[-2], len(journal)):
        restore(unfinished, journal[:size], partial)
        unfinished.score(resume=True)
        assert unfinished.out.read_bytes() == partial, f"cut to {size} bytes"


def test_a_journal_cut_at_the_end_of_any_record_leads_to_the_same_bytes(
    unfinished: ScoreProject,
) -> None:
    journal, partial = unfinished.journal.read_bytes(), unfinished.partial.read_bytes()
    for size in starts_of_records(journal):
        restore(unfinished, journal[:size], partial)
        unfinished.score(resume=True)
        assert unfinished.out.read_bytes() == partial, f"cut to {size} bytes"


def test_rows_cut_anywhere_in_the_last_window_lead_to_the_same_bytes(
    unfinished: ScoreProject,
) -> None:
    journal, partial = unfinished.journal.read_bytes(), unfinished.partial.read_bytes()
    lines = partial.splitlines(keepends=True)
    for size in range(len(b"".join(lines[:6])), len(partial)):
        restore(unfinished, journal, partial[:size])
        unfinished.score(resume=True)
        assert unfinished.out.read_bytes() == partial, f"cut to {size} bytes"


def test_both_files_cut_lead_to_the_same_bytes(unfinished: ScoreProject) -> None:
    journal, partial = unfinished.journal.read_bytes(), unfinished.partial.read_bytes()
    for cut_journal in range(0, len(journal), 211):
        for cut_partial in range(0, len(partial), 431):
            restore(unfinished, journal[:cut_journal], partial[:cut_partial])
            unfinished.score(resume=True)
            assert unfinished.out.read_bytes() == partial, (cut_journal, cut_partial)


def test_a_changed_byte_in_rendered_rows_leads_back_to_the_window_before(
    unfinished: ScoreProject,
) -> None:
    partial = unfinished.partial.read_bytes()
    damaged = bytearray(partial)
    damaged[-20] ^= 1
    unfinished.partial.write_bytes(bytes(damaged))
    unfinished.score(resume=True)
    assert unfinished.out.read_bytes() == partial


def test_resume_runs_only_the_calls_that_the_journal_does_not_have(
    unfinished: ScoreProject,
) -> None:
    journal = unfinished.journal.read_bytes()
    # The last records are: the call of row 6 by `each`, and its window.
    os.truncate(unfinished.journal, starts_of_records(journal)[-3])
    CALLS.clear()
    unfinished.score(resume=True)
    assert CALLS == [("Number", ("6",))]


def test_resume_with_all_windows_rendered_calls_no_model(unfinished: ScoreProject) -> None:
    CALLS.clear()
    unfinished.score(resume=True)
    assert CALLS == []


def test_failed_members_of_a_group_in_a_rendered_window_stay_known(
    project: ScoreProject,
) -> None:
    rows = [
        {"prompt": "1", "unique_id": "g"},
        {"unique_id": "g"},
        {"prompt": "2", "unique_id": "g"},
    ]
    project.write(rows, [{"name": "a", "reward_model": "AboveLowest"}], score={"window": 1})
    project.score_unfinished(max_errors="3")
    whole = project.partial.read_bytes()
    os.truncate(project.partial, len(whole.splitlines(keepends=True)[0]))
    project.score(max_errors="3", resume=True)
    assert project.out.read_bytes() == whole
    assert project.column("a", "status") == [
        "group_incomplete",
        "missing_field",
        "group_incomplete",
    ]


def test_finish_killed_before_any_rename_or_removal_is_ended_by_resume(
    project: ScoreProject,
) -> None:
    project.write([{"prompt": "1"}, {"prompt": "2"}], [{"name": "a", "reward_model": "Number"}])
    with killed_at() as steps:
        project.score()
    whole = project.out.read_bytes()
    for number in range(len(steps)):
        for path in project.folder.glob("out.jsonl*"):
            path.unlink()
        with killed_at(number), pytest.raises(Killed):
            project.score()
        project.score(resume=True)
        assert project.out.read_bytes() == whole, f"killed before step {number} of {steps}"
        assert project.files() == ["out.jsonl", "out.jsonl.meta.json"]


def test_overwriting_killed_before_any_rename_or_removal_is_ended_by_resume(
    project: ScoreProject,
) -> None:
    streams = [{"name": "a", "reward_model": "Number"}]
    project.write([{"prompt": "1"}], streams)
    project.score()
    before = project.out.read_bytes()
    with killed_at() as steps:
        project.score(overwrite=True)
    for number in range(len(steps)):
        with killed_at(number), pytest.raises(Killed):
            project.score(overwrite=True)
        assert project.out.read_bytes() == before
        project.score(resume=True)
        assert project.files() == ["out.jsonl", "out.jsonl.meta.json"]


def test_the_old_output_stays_until_a_failing_run_is_mended(project: ScoreProject) -> None:
    streams = [{"name": "a", "reward_model": "Number"}]
    project.write([{"prompt": "1"}], streams)
    project.score()
    before = project.out.read_bytes()
    project.write([{"prompt": "1"}, {"prompt": "nan"}], streams)
    with pytest.raises(PolicyStop):
        project.score(overwrite=True)
    assert project.out.read_bytes() == before
    meta = json.loads((project.folder / "out.jsonl.partial.meta.json").read_text())
    assert (meta["status"], meta["exit_code"]) == ("stopped", 1)


def test_nothing_lies_beside_a_finished_output_but_its_meta_file(project: ScoreProject) -> None:
    project.write([{"prompt": "1"}], [{"name": "a", "reward_model": "Number"}])
    project.score()
    assert project.files() == ["out.jsonl", "out.jsonl.meta.json"]


def test_a_second_writer_is_refused(project: ScoreProject) -> None:
    project.write([{"prompt": "1"}], [{"name": "a", "reward_model": "Number"}])
    with (
        FileLock(project.folder / "out.jsonl.partial.lock"),
        pytest.raises(RunError, match=r"out\.jsonl: another run is writing it \(lock .*\); wait"),
    ):
        project.score()
    assert not project.out.exists()


def test_a_writer_in_another_process_is_noticed(tmp_path: Path) -> None:
    paths = OutputPaths(tmp_path / "out.jsonl")
    hold = (
        "import sys; from pathlib import Path; from rewardctl.runs.output import *\n"
        "with only_writer(OutputPaths(Path(sys.argv[1]))): print('held', flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(paths.out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match="another run is writing it"), only_writer(paths):
            pass
        holder.communicate(b"\n")
    with only_writer(paths):
        assert list(tmp_path.iterdir()) == [tmp_path / "out.jsonl.partial.lock"]
    assert list(tmp_path.iterdir()) == []


def test_wildcards_in_the_name_of_an_output_match_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "outX.jsonl.partial").touch()
    (tmp_path / "out?.jsonl.partial").touch()
    (tmp_path / "out?.jsonl.partial.lock").touch()
    found = OutputPaths(tmp_path / "out?.jsonl").working_files()
    assert found == [tmp_path / "out?.jsonl.partial"]


def test_nothing_is_recovered_without_a_whole_first_record(tmp_path: Path) -> None:
    paths = OutputPaths(tmp_path / "out.jsonl")
    assert recover(paths) is None
    paths.partial.touch()
    assert recover(paths) is None
    paths.journal.write_bytes(encode_record({"kind": "start", "machine": 1})[:-3])
    assert recover(paths) is None


def test_the_last_record_of_a_window_counts(tmp_path: Path) -> None:
    """A window that was rendered again after a cut stands twice in the journal."""
    paths = OutputPaths(tmp_path / "out.jsonl")
    first = FileOutput(paths, start={"machine": 1}, recovered=None)
    first.add_window(b"row 0\n", {"window": 0, **FACTS})
    first.add_window(b"row one\n", {"window": 1, **FACTS})
    first.close()
    os.truncate(paths.partial, 9)
    recovered = recover(paths)
    assert recovered is not None
    assert recovered.window is not None
    assert recovered.window.window == 0
    second = FileOutput(paths, start={}, recovered=recovered)
    second.add_window(b"row 1\n", {"window": 1, **FACTS})
    second.close()
    again = recover(paths)
    assert again is not None
    assert again.start == {"machine": 1}
    assert again.window is not None
    assert (again.window.window, again.window.start, again.window.end) == (1, 6, 12)
    assert paths.partial.read_bytes() == b"row 0\nrow 1\n"


def test_rows_to_standard_output_leave_no_file(
    project: ScoreProject, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    project.write([{"prompt": "1"}], [{"name": "a", "reward_model": "Number"}])
    project.score(out=None)
    row = json.loads(capfdbinary.readouterr().out)
    assert row["scores"] == {"a": 1.0}
    assert project.files() == []


def test_a_full_standard_output_is_a_run_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        """Standard output on a disk without room."""

        buffer = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115

    with Full.buffer:
        monkeypatch.setattr(sys, "stdout", Full)
        with pytest.raises(RunError, match="standard output: cannot write: No space left"):
            StdoutOutput().add_window(b"row\n", {})


def test_a_meta_file_replaced_in_a_missing_folder_is_a_run_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"meta\.json: cannot write: No such file.*--resume"):
        write_json(tmp_path / "nowhere" / "meta.json", {})


@pytest.mark.parametrize("content", ["{", "[1]", None])
def test_a_meta_file_that_cannot_be_read_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "out.jsonl.meta.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=r"out\.jsonl\.meta\.json: .*meta file.*--overwrite"):
        read_meta(path)
