"""Where a scoring run begins: anew, or where it was stopped. Retries are in test_previous.py."""

import io
import json
import os
import signal
from pathlib import Path

import probes
import pytest
import torch
from probes import CALLS, REFUSED, Killed, ScoreProject, killed_at

from rewardctl.errors import DataError, PolicyStop, UsageError
from rewardctl.runs import indexing
from rewardctl.runs.interrupt import Interrupted

NUMBER = [{"name": "a", "reward_model": "Number", "batch_size": 2}]
MENDABLE = [{"name": "a", "reward_model": "Mendable", "batch_size": 2}]


def prompts(*texts: str) -> list[dict[str, str]]:
    return [{"prompt": text} for text in texts]


def test_an_output_that_exists_is_refused(project: ScoreProject) -> None:
    project.write(prompts("1"), NUMBER)
    project.score()
    before = project.out.read_bytes()
    wanted = r"out\.jsonl exists; go on with --resume, or start anew with --overwrite"
    with pytest.raises(UsageError, match=wanted):
        project.score()
    assert project.out.read_bytes() == before


def test_an_unfinished_output_is_refused(project: ScoreProject) -> None:
    project.write(prompts("1"), NUMBER)
    project.score_unfinished()
    with pytest.raises(UsageError, match=r"out\.jsonl\.partial exists; go on with --resume"):
        project.score()


def test_a_folder_in_the_place_of_the_output_is_refused(project: ScoreProject) -> None:
    project.write(prompts("1"), NUMBER)
    project.out.mkdir()
    with pytest.raises(UsageError, match=r"out\.jsonl: expected a file to write, found something"):
        project.score(overwrite=True)


def test_two_runs_with_overwrite_leave_the_rows_of_one(project: ScoreProject) -> None:
    project.write(prompts("1", "2", "3"), NUMBER)
    project.score()
    project.score(overwrite=True)
    assert project.column("a") == [1.0, 2.0, 3.0]


def test_overwrite_forgets_an_unfinished_run(project: ScoreProject) -> None:
    project.write(prompts("1", "2"), NUMBER)
    project.score_unfinished()
    project.write(prompts("5"), NUMBER)
    project.score(overwrite=True)
    assert project.column("a") == [5.0]


def test_resume_with_nothing_there_starts(project: ScoreProject) -> None:
    project.write(prompts("1", "2"), NUMBER)
    assert project.score(resume=True)["counts"]["rows"] == 2


def test_resume_of_a_complete_output_returns_its_meta_file(project: ScoreProject) -> None:
    project.write(prompts("1"), NUMBER)
    meta = project.score()
    CALLS.clear()
    assert project.score(resume=True) == json.loads(json.dumps(meta))
    assert CALLS == []
    assert project.files() == ["out.jsonl", "out.jsonl.meta.json"]


@pytest.mark.parametrize("is_finished", [True, False])
def test_resume_under_another_config_is_refused_and_names_the_difference(
    project: ScoreProject, is_finished: bool
) -> None:
    project.write(prompts("1"), NUMBER)
    if is_finished:
        project.score()
    else:
        project.score_unfinished()
    project.write(prompts("1"), [{**NUMBER[0], "weight": 0.5}])
    wanted = (
        r"out\.jsonl: was made from something else, .*\n"
        r"  streams\[0\]\.weight: was 1\.0, now 0\.5\n"
        r"undo the change, choose another output, or start anew with --overwrite"
    )
    with pytest.raises(UsageError, match=wanted):
        project.score(resume=True)


def test_resume_with_other_rows_is_refused(project: ScoreProject) -> None:
    project.write(prompts("1", "2"), NUMBER)
    project.score_unfinished()
    project.write(prompts("1", "3"), NUMBER)
    with pytest.raises(UsageError, match=r"\n  inputs\[0\]\.sha256: was .*, now "):
        project.score(resume=True)


def test_at_most_twelve_differences_are_shown(project: ScoreProject) -> None:
    project.write(prompts("1"), NUMBER)
    project.score_unfinished()
    streams = [{**NUMBER[0], "name": f"s{n}"} for n in range(4)]
    project.write(prompts("1"), streams)
    with pytest.raises(UsageError, match=r"\n  … and \d+ more\nundo the change") as refusal:
        project.score(resume=True)
    assert str(refusal.value).count("\n  ") == 12 + 1


def test_workers_may_differ_on_resume(project: ScoreProject) -> None:
    project.write(prompts("1", "2", "3"), NUMBER, score={"window": 2})
    project.score_unfinished()
    whole = project.partial.read_bytes()
    os.truncate(project.partial, 0)
    project.write(
        prompts("1", "2", "3"),
        [{**NUMBER[0], "async_reward": True, "num_workers": 2}],
        score={"window": 2},
    )
    project.score(resume=True)
    assert project.out.read_bytes() == whole


def test_a_call_with_a_failed_cell_runs_again_whole(project: ScoreProject) -> None:
    REFUSED.add("2")
    project.write(prompts("1", "2", "3", "4"), MENDABLE)
    with pytest.raises(PolicyStop):
        project.score()
    REFUSED.clear()
    CALLS.clear()
    project.score(resume=True)
    # The stop came before rows 3 and 4 were called.
    assert CALLS == [("Mendable", ("1", "2")), ("Mendable", ("3", "4"))]
    assert project.column("a") == [1.0, 2.0, 3.0, 4.0]


def test_a_failed_cell_in_a_rendered_window_is_left_by_resume(project: ScoreProject) -> None:
    REFUSED.update({"2", "4"})
    project.write(prompts("1", "2", "3", "4"), MENDABLE, score={"window": 2})
    with pytest.raises(PolicyStop):
        project.score(max_errors="1")
    REFUSED.clear()
    CALLS.clear()
    project.score(max_errors="1", resume=True)
    assert CALLS == [("Mendable", ("3", "4"))]
    assert project.column("a") == [1.0, None, 3.0, 4.0]


def test_a_signal_between_calls_is_gone_on_from(
    project: ScoreProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(prompts("1", "2", "3"), [{**NUMBER[0], "batch_size": 1}])

    def score_and_signal(texts: list[str]) -> list[float]:
        if texts == ["2"]:
            signal.raise_signal(signal.SIGTERM)
        return [float(text) for text in texts]

    with monkeypatch.context() as patch:
        patch.setattr(probes, "numbers", score_and_signal)
        with pytest.raises(
            Interrupted, match="SIGTERM: stopped; what was finished is kept"
        ) as stop:
            project.score()
    assert stop.value.exit_code == 143
    CALLS.clear()
    project.score(resume=True)
    assert CALLS == [("Number", ("3",))]
    assert project.column("a") == [1.0, 2.0, 3.0]


def give_stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(indexing, "read_stdin", lambda: io.BytesIO(content))


ROWS = b'{"prompt": "1", "unique_id": "g"}\n{"prompt": "3", "unique_id": "g"}\n'


@pytest.mark.parametrize("ending", [b"", b"\n  \n\n"])
def test_standard_input_is_read_again_on_resume(
    project: ScoreProject, monkeypatch: pytest.MonkeyPatch, ending: bytes
) -> None:
    project.write([], NUMBER)
    give_stdin(monkeypatch, ROWS + ending)
    project.score_unfinished(data=("-",))
    project.score(data=("-",), resume=True)
    assert project.column("a") == [1.0, 3.0]


def test_another_standard_input_is_refused_on_resume(
    project: ScoreProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write([], NUMBER)
    give_stdin(monkeypatch, ROWS)
    project.score_unfinished(data=("-",))
    give_stdin(monkeypatch, ROWS.replace(b"1", b"2"))
    wanted = "stdin: its first 68 bytes are not those that were scored before; give the same input"
    with pytest.raises(DataError, match=wanted):
        project.score(data=("-",), resume=True)


def test_a_copied_input_is_not_asked_for_again(
    project: ScoreProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write([], [{"name": "a", "reward_model": "AboveLowest"}])
    give_stdin(monkeypatch, ROWS)
    with monkeypatch.context() as patch:
        patch.setattr(probes, "numbers", kill)
        with pytest.raises(Killed):
            project.score(data=("-",))
    assert (project.folder / "out.jsonl.partial.input").read_bytes() == ROWS
    give_stdin(monkeypatch, b"nothing")
    project.score(data=("-",), resume=True)
    assert project.column("a") == [0.25, 2.25]
    assert project.files() == ["out.jsonl", "out.jsonl.meta.json"]


def test_a_copied_input_is_not_asked_for_by_the_last_rename(
    project: ScoreProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write([], [{"name": "a", "reward_model": "AboveLowest"}])
    give_stdin(monkeypatch, ROWS)
    with killed_at(rename_of=project.partial.name), pytest.raises(Killed):
        project.score(data=("-",))
    monkeypatch.setattr(indexing, "read_stdin", lambda: pytest.fail("standard input was read"))
    project.score(data=("-",), resume=True)
    assert project.column("a") == [0.25, 2.25]


def kill(prompts: list[str]) -> None:
    raise Killed


def test_a_copy_that_nobody_vouches_for_is_made_anew(
    project: ScoreProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write([], [{"name": "a", "reward_model": "AboveLowest"}])
    give_stdin(monkeypatch, ROWS)
    (project.folder / "out.jsonl.partial.input").write_bytes(ROWS[:20])
    project.score(data=("-",), resume=True)
    assert project.column("a") == [0.25, 2.25]


def test_an_empty_stream_is_an_error_of_the_data(
    project: ScoreProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write([], NUMBER)
    give_stdin(monkeypatch, b"\n")
    with pytest.raises(DataError, match="stdin: no rows to score; expected one JSON object a line"):
        project.score(data=("-",))
    assert not project.out.exists()


def test_a_changed_number_of_threads_is_a_warning_on_resume(project: ScoreProject) -> None:
    project.write(prompts("1"), NUMBER)
    project.score_unfinished()
    torch.set_num_threads(2)
    try:
        warnings = project.score(resume=True)["warnings"]
    finally:
        torch.set_num_threads(1)
    assert warnings == [
        "threads was 1 before the stop and is 2 now: scores of the two parts may differ in their "
        "last digits"
    ]


def test_a_missing_meta_file_of_a_complete_output_is_named(project: ScoreProject) -> None:
    project.write(prompts("1"), NUMBER)
    project.score()
    Path(f"{project.out}.meta.json").unlink()
    with pytest.raises(UsageError, match=r"out\.jsonl\.meta\.json: expected the meta file of this"):
        project.score(resume=True)
