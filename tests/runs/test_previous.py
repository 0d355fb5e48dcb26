"""An earlier output whose failed cells are scored again, alone and by a whole run."""

import json
from pathlib import Path
from typing import Any

import pytest
from probes import CALLS, REFUSED, Killed, ScoreProject, killed_at

from rewardctl.errors import PolicyStop, RowError, UsageError
from rewardctl.rewards.plan import Call
from rewardctl.runs.previous import PreviousRows

MENDABLE = [{"name": "a", "reward_model": "Mendable", "batch_size": 2}]


def prompts(*texts: str) -> list[dict[str, str]]:
    return [{"prompt": text} for text in texts]


def row(**cells: float | str | None) -> dict[str, Any]:
    """An output row: a score, a failure's status, or None where the stream does not apply."""
    is_failed = {name: isinstance(cell, str) for name, cell in cells.items()}
    return {
        "scores": {n: None if is_failed[n] else c for n, c in cells.items()},
        "status": {
            n: c if is_failed[n] else "not_applicable" if c is None else "ok"
            for n, c in cells.items()
        },
        "errors": {n: "why" if is_failed[n] else None for n in cells},
    }


def previous(folder: Path, *rows: dict[str, Any]) -> PreviousRows:
    path = folder / "out.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return PreviousRows(path, ["a", "b"])


def test_a_call_is_needed_if_one_of_its_rows_failed_in_its_stream(tmp_path: Path) -> None:
    rows = previous(tmp_path, row(a=1.0, b="nonfinite"), row(a=None, b=0.0))
    assert rows.failed_cells == 1
    assert rows.needs(Call("b", 0, (0, 1), ("prompt",)))
    assert not rows.needs(Call("b", 1, (1,), ("prompt",)))
    assert not rows.needs(Call("a", 0, (0,), ("prompt",)))
    assert rows.is_failed(0, "b")
    assert not rows.is_failed(1, "b")


def test_only_failed_cells_are_replaced(tmp_path: Path) -> None:
    rows = previous(tmp_path, row(a=1.0, b="timeout"), row(a=None, b=0.0))
    assert rows.merge(0, [9.0, 5.0]) == [1.0, 5.0]
    assert rows.merge(1, [9.0, None]) == [None, 0.0]


def test_a_cell_that_fails_again_carries_the_new_reason(tmp_path: Path) -> None:
    rows = previous(tmp_path, row(a="timeout", b=1.0))
    again = RowError("parse_error", "still no number")
    assert rows.merge(0, [again, None]) == [again, 1.0]


def test_rows_may_be_passed_over(tmp_path: Path) -> None:
    rows = previous(tmp_path, row(a=0.0, b=0.0), row(a=1.0, b=1.0), row(a=2.0, b=2.0))
    assert rows.merge(2, [None, None]) == [2.0, 2.0]


def test_a_row_that_is_not_there_is_named(tmp_path: Path) -> None:
    rows = previous(tmp_path, row(a=0.0, b=0.0))
    with pytest.raises(UsageError, match=r"out\.jsonl: has no row 1; score anew with --overwrite"):
        rows.merge(1, [None, None])


@pytest.mark.parametrize("second", ["not json", "[1]", '{"scores": {}}', '{"status": 1}'])
def test_a_line_of_another_kind_is_named(tmp_path: Path, second: str) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(json.dumps(row(a=1.0, b=1.0)) + "\n" + second + "\n")
    wanted = r"out\.jsonl:2: expected a row that score wrote for streams a, b, found another"
    with pytest.raises(UsageError, match=wanted):
        PreviousRows(path, ["a", "b"])


def test_retry_replaces_failed_cells_of_an_output_and_nothing_else(project: ScoreProject) -> None:
    rows = ["1", "2", "3", "4", "5", "6"]
    REFUSED.add("4")
    project.write(prompts(*rows), MENDABLE)
    project.score(max_errors="1")
    before = project.rows()
    REFUSED.clear()
    CALLS.clear()
    meta = project.score(retry_errors=True)
    assert CALLS == [("Mendable", ("3", "4"))]
    after = project.rows()
    assert [r for n, r in enumerate(after) if n != 3] == [r for n, r in enumerate(before) if n != 3]
    assert (after[3]["scores"], after[3]["status"], after[3]["errors"], after[3]["aggregate"]) == (
        {"a": 4.0},
        {"a": "ok"},
        {"a": None},
        4.0,
    )
    assert meta["counts"] == {"rows": 6, "ok": 6, "failed": 0, "nothing_applicable": 0}


def test_a_cell_that_was_fine_is_kept_when_its_call_runs_again(project: ScoreProject) -> None:
    REFUSED.add("1")
    project.write(prompts("1", "2"), MENDABLE)
    project.score(max_errors="1")
    REFUSED.clear()
    REFUSED.add("2")
    project.score(retry_errors=True)
    assert project.column("a") == [1.0, 2.0]


def test_retry_of_cells_that_fail_again_is_stopped_and_keeps_the_output(
    project: ScoreProject,
) -> None:
    REFUSED.add("2")
    project.write(prompts("1", "2"), MENDABLE)
    project.score(max_errors="1")
    before = project.out.read_bytes()
    with pytest.raises(PolicyStop, match="1 row failed"):
        project.score(retry_errors=True)
    assert project.out.read_bytes() == before
    project.score(retry_errors=True, max_errors="1")
    assert project.out.read_bytes() == before


def test_retry_of_an_output_without_failures_returns(project: ScoreProject) -> None:
    project.write(prompts("1"), MENDABLE)
    project.score()
    CALLS.clear()
    assert project.score(retry_errors=True)["counts"]["failed"] == 0
    assert CALLS == []


def test_retry_without_an_output_is_refused(project: ScoreProject) -> None:
    project.write(prompts("1"), MENDABLE)
    with pytest.raises(UsageError, match=r"out\.jsonl: nothing to retry; there is no output yet"):
        project.score(retry_errors=True)


def test_retry_under_another_config_is_refused(project: ScoreProject) -> None:
    REFUSED.add("1")
    project.write(prompts("1"), MENDABLE)
    project.score(max_errors="1")
    project.write(prompts("1"), [{**MENDABLE[0], "batch_size": 3}])
    with pytest.raises(UsageError, match=r"streams\[0\]\.batch_size: was 2, now 3"):
        project.score(retry_errors=True)


def test_retry_of_a_run_stopped_in_the_middle_is_refused(project: ScoreProject) -> None:
    REFUSED.add("2")
    project.write(prompts("1", "2", "3"), MENDABLE)
    with pytest.raises(PolicyStop):
        project.score()
    wanted = r"partial: not all rows are scored yet; finish them with --resume first"
    with pytest.raises(UsageError, match=wanted):
        project.score(retry_errors=True)


def stopped_by_share(project: ScoreProject) -> None:
    """Four rows, one of them failed, all rendered, stopped at the end."""
    REFUSED.add("2")
    project.write(prompts("1", "2", "3", "4"), MENDABLE, score={"window": 3})
    with pytest.raises(PolicyStop, match="--max-errors allows 10%"):
        project.score(max_errors="10%")


def test_retry_goes_on_from_a_run_stopped_by_its_share(project: ScoreProject) -> None:
    stopped_by_share(project)
    REFUSED.clear()
    CALLS.clear()
    project.score(retry_errors=True)
    assert CALLS == [("Mendable", ("1", "2"))]
    assert project.column("a") == [1.0, 2.0, 3.0, 4.0]
    assert project.files() == ["out.jsonl", "out.jsonl.meta.json"]


def test_a_run_stopped_by_its_share_is_finished_by_a_higher_one(project: ScoreProject) -> None:
    stopped_by_share(project)
    CALLS.clear()
    project.score(resume=True, max_errors="25%")
    assert CALLS == []
    assert project.column("a") == [1.0, None, 3.0, 4.0]


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_retry_killed_before_any_rename_or_removal_is_ended_by_retry(
    project: ScoreProject, quick_runs: None, is_finished: bool
) -> None:
    def begin() -> None:
        for path in project.folder.glob("out.jsonl*"):
            path.unlink()
        stopped_by_share(project)
        if is_finished:
            project.score(resume=True, max_errors="25%")
        REFUSED.clear()

    begin()
    with killed_at() as steps:
        project.score(retry_errors=True)
    whole = project.out.read_bytes()
    for number in range(len(steps)):
        begin()
        with killed_at(number), pytest.raises(Killed):
            project.score(retry_errors=True)
        project.score(retry_errors=True)
        assert project.out.read_bytes() == whole, f"killed before step {number} of {steps}"
        assert project.files() == ["out.jsonl", "out.jsonl.meta.json"]


def test_a_retry_that_has_begun_is_ended_by_resume(project: ScoreProject, quick_runs: None) -> None:
    stopped_by_share(project)
    REFUSED.clear()
    with killed_at(rename_of=project.partial.name), pytest.raises(Killed):
        project.score(retry_errors=True)  # before the rows are set aside
    with killed_at(1), pytest.raises(Killed):
        project.score(retry_errors=True)  # just after that
    project.score(resume=True)
    assert project.column("a") == [1.0, 2.0, 3.0, 4.0]
    assert project.files() == ["out.jsonl", "out.jsonl.meta.json"]


def test_rows_set_aside_for_a_retry_are_not_forgotten(project: ScoreProject) -> None:
    stopped_by_share(project)
    REFUSED.clear()
    # What a kill just behind the rename leaves.
    project.partial.rename(project.partial.with_name("out.jsonl.partial.before-retry"))
    with pytest.raises(UsageError, match="go on with --resume, or start anew with --overwrite"):
        project.score()


def test_rows_set_aside_for_a_retry_are_held_to_their_config(project: ScoreProject) -> None:
    stopped_by_share(project)
    REFUSED.clear()
    with killed_at(1), pytest.raises(Killed):
        project.score(retry_errors=True)
    project.write(prompts("1", "2", "3", "4"), [{**MENDABLE[0], "weight": 2.0}])
    with pytest.raises(UsageError, match=r"streams\[0\]\.weight: was 1\.0, now 2\.0"):
        project.score(retry_errors=True)
