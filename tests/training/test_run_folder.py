"""The folder of a run: what is ours in it, which checkpoints are kept, the lines of its log."""

import json
from pathlib import Path

import pytest

from rewardctl.errors import RunError, UsageError
from rewardctl.training.run_folder import RunFolder


def make_run(path: Path, *names: str) -> RunFolder:
    for name in names:
        (path / name).mkdir(parents=True)
        (path / name / "config.json").write_text("{}")
    return RunFolder(path)


def names_in(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def test_checkpoints_are_named_by_step() -> None:
    assert RunFolder(Path("run")).checkpoint(100) == Path("run/checkpoint-000100")


def test_checkpoints_come_in_the_order_of_their_steps(tmp_path: Path) -> None:
    run = make_run(tmp_path, "checkpoint-1000000", "checkpoint-000020", "checkpoint-000003")
    assert [step for step, _ in run.checkpoints()] == [3, 20, 1_000_000]


def test_what_is_being_written_is_no_checkpoint(tmp_path: Path) -> None:
    run = make_run(tmp_path, ".checkpoint-000020.writing", ".checkpoint-000010.old", "best")
    (tmp_path / "checkpoint-000030").write_text("a file")
    assert run.checkpoints() == []


def test_a_folder_that_is_not_there_has_no_checkpoints(tmp_path: Path) -> None:
    assert RunFolder(tmp_path / "none").checkpoints() == []


def test_the_newest_are_kept(tmp_path: Path) -> None:
    run = make_run(tmp_path, *(f"checkpoint-{n:06d}" for n in (10, 20, 30)), "best")
    run.keep_last(2)
    assert names_in(tmp_path) == ["best", "checkpoint-000020", "checkpoint-000030"]
    run.keep_last(5)
    assert len(run.checkpoints()) == 2


def test_a_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    RunFolder(tmp_path / "a" / "b").open(resume=False, overwrite=False)
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize(
    "name", ["checkpoint-000010", "best", "final", ".best.old", ".checkpoint-000010.writing"]
)
def test_a_run_is_refused(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path, name)
    with pytest.raises(UsageError) as error:
        run.open(resume=False, overwrite=False)
    assert str(error.value) == (
        f"{tmp_path}: holds a training run; go on with --resume, replace it with --overwrite, or "
        "choose another output_dir"
    )
    assert names_in(tmp_path) == [name]


def test_a_log_alone_is_a_run(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(UsageError, match="holds a training run"):
        RunFolder(tmp_path).open(resume=False, overwrite=False)


def test_overwrite_deletes_the_run_and_nothing_else(tmp_path: Path) -> None:
    run = make_run(tmp_path, "checkpoint-000010", "best", "final", ".best.old", "my-notes")
    for name in ("metrics.jsonl", "train.meta.json", "best.txt", "final-report.html"):
        (tmp_path / name).write_text("")
    run.open(resume=False, overwrite=True)
    assert names_in(tmp_path) == ["best.txt", "final-report.html", "my-notes"]


def test_files_of_others_are_no_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder(tmp_path).open(resume=False, overwrite=False)
    assert names_in(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("name", ["best", "final"])
def test_a_replacement_cut_between_its_renames_is_undone(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path, f".{name}.old")
    run.open(resume=True, overwrite=False)
    assert names_in(tmp_path) == [name]


def test_what_was_replaced_does_not_come_back(tmp_path: Path) -> None:
    run = make_run(tmp_path, ".best.old", "best")
    (tmp_path / "best" / "new").write_text("")
    run.open(resume=True, overwrite=False)
    assert (tmp_path / "best" / "new").exists()


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(RunError, match=f"{tmp_path / 'run'}: cannot write: File exists"):
        RunFolder(tmp_path / "run").open(resume=False, overwrite=False)


LINES = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}, {"step": 2, "val_loss": 0.3}]


def test_lines_of_later_steps_are_dropped(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for line in [*LINES, {"step": 3, "loss": 0.3}]:
        run.append_metrics(line)
    run.drop_metrics_after(2)
    assert [json.loads(line) for line in run.metrics.read_text().splitlines()] == LINES


@pytest.mark.parametrize("cut", ['{"step": 2, "lo', '{"step": 2}', '{"step"'])
def test_a_line_that_was_cut_is_dropped(tmp_path: Path, cut: str) -> None:
    run = RunFolder(tmp_path)
    run.append_metrics(LINES[0])
    whole = run.metrics.read_bytes()
    with run.metrics.open("a") as file:
        file.write(cut)
    run.drop_metrics_after(9)
    assert run.metrics.read_bytes() == whole


def test_dropping_from_no_log_is_nothing(tmp_path: Path) -> None:
    RunFolder(tmp_path).drop_metrics_after(0)
    assert names_in(tmp_path) == []


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(RunError, match=r"metrics\.jsonl: cannot write: Is a directory"):
        RunFolder(tmp_path).append_metrics(LINES[0])
