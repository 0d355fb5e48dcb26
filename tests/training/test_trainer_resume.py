"""A run that is gone on with: bit-equal to one nobody stopped, and refused where it is another."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from train_project import are_equal, lines_of, make_model, make_trainer, token_rows, weights_of

from rewardctl.data.encoded import EncodedRow
from rewardctl.errors import DataError, UsageError
from rewardctl.training.checkpoint import InputFacts
from rewardctl.training.losses import LossConfig
from rewardctl.training.settings import EarlyStop
from rewardctl.training.trainer import RewardModelTrainer

# Everything that a run carries from step to step is in use: 14 rows in steps of 4 end an epoch
# amid nothing that is due, dropout draws random numbers, and sums run over several steps.
SETTINGS: dict[str, Any] = {
    "epochs": 5,
    "log_every": 3,
    "eval_every": 4,
    "save_every": 1,
    "keep_last": 100,
    "ema_decay": 0.8,
    "schedule": "cosine",
    "early_stopping": EarlyStop(patience=50),
}


def resumable(
    folder: Path, rows: list[EncodedRow] | None = None, **changes: Any
) -> RewardModelTrainer:
    return make_trainer(
        token_rows(14) if rows is None else rows,
        token_rows(6, seed=1),
        model=make_model(dropout=0.5),
        output_dir=folder,
        **{**SETTINGS, **changes},
    )


@dataclass(frozen=True)
class Undisturbed:
    """What a run to the end made."""

    folder: Path
    trainer: RewardModelTrainer


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    trainer = resumable(folder)
    trainer.train()
    return Undisturbed(folder, trainer)


def stopped_after(undisturbed: Undisturbed, folder: Path, step: int) -> Path:
    """What lies there when a kill came after the checkpoint of a step: later lines and a best/ that
    may be of a later step.
    """
    shutil.copytree(undisturbed.folder, folder, dirs_exist_ok=True)
    shutil.rmtree(folder / "final")
    for path in folder.glob("checkpoint-*"):
        if int(path.name.removeprefix("checkpoint-")) > step:
            shutil.rmtree(path)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("step", [1, 3, 4, 7, 8, 13, 19, 20])
def test_a_resumed_run_ends_bit_equal(undisturbed: Undisturbed, tmp_path: Path, step: int) -> None:
    trainer = resumable(stopped_after(undisturbed, tmp_path, step))
    history = trainer.train(resume=True)
    assert trainer.new_steps == 20 - step
    assert history == undisturbed.trainer.progress.history
    assert are_equal(weights_of(trainer.model), weights_of(undisturbed.trainer.model))
    assert files_of(tmp_path) == files_of(undisturbed.folder)


def test_the_resumed_trainer_knows_its_log_and_its_best(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    trainer = resumable(stopped_after(undisturbed, tmp_path, 13))
    trainer.train(resume=True)
    assert trainer.progress == undisturbed.trainer.progress


def test_a_request_to_stop_saves_at_any_step(undisturbed: Undisturbed, tmp_path: Path) -> None:
    trainer = resumable(tmp_path, save_every=50)
    trainer.stop_requested = lambda: trainer.progress.step == 6
    trainer.train()
    assert [path.name for path in tmp_path.glob("c*")] == ["checkpoint-000006"]
    assert not (tmp_path / "final").exists()
    resumable(tmp_path, save_every=50).train(resume=True)
    for name in ("metrics.jsonl", "best/model.safetensors", "final/model.safetensors"):
        assert (tmp_path / name).read_bytes() == (undisturbed.folder / name).read_bytes()


def test_a_run_stopped_before_its_first_checkpoint_starts_anew(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    folder = stopped_after(undisturbed, tmp_path, 0)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "lo')
    resumable(folder).train(resume=True)
    assert files_of(tmp_path) == files_of(undisturbed.folder)


def test_resume_where_nothing_is_starts(undisturbed: Undisturbed, tmp_path: Path) -> None:
    resumable(tmp_path / "new").train(resume=True)
    assert files_of(tmp_path / "new") == files_of(undisturbed.folder)


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    resumable(tmp_path, save_every=3, keep_last=2).train()
    names = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    assert names == ["checkpoint-000018", "checkpoint-000020"]


def test_a_kill_before_an_old_checkpoint_was_deleted_leaves_none_too_many(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    resumable(tmp_path, save_every=6, keep_last=2).train()
    shutil.copytree(undisturbed.folder / "checkpoint-000012", tmp_path / "checkpoint-000012")
    resumable(tmp_path, save_every=6, keep_last=2).train(resume=True)
    names = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    assert names == ["checkpoint-000018", "checkpoint-000020"]


# ---------------------------------------------------------------- nothing left, or more


def test_nothing_is_left_of_a_run_that_ended(undisturbed: Undisturbed, tmp_path: Path) -> None:
    shutil.copytree(undisturbed.folder, tmp_path, dirs_exist_ok=True)
    trainer = resumable(tmp_path)
    assert trainer.train(resume=True) == undisturbed.trainer.progress.history
    assert trainer.new_steps == 0
    assert files_of(tmp_path) == files_of(undisturbed.folder)


def early(folder: Path, **changes: Any) -> RewardModelTrainer:
    """Stops at the second evaluation: no gain is 10 or more."""
    settings = {"early_stopping": EarlyStop(patience=1, min_delta=10.0), "eval_every": 1}
    return resumable(folder, **{**settings, **changes})


def test_nothing_is_left_of_a_run_that_stopped_early(tmp_path: Path) -> None:
    early(tmp_path).train()
    before = files_of(tmp_path)
    trainer = early(tmp_path)
    trainer.train(resume=True)
    assert trainer.new_steps == 0
    assert trainer.progress.step == 2
    assert trainer.progress.stopped_early
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("change", [None, EarlyStop(patience=3, min_delta=10.0)])
def test_a_run_that_stopped_early_goes_on_under_another_rule(
    tmp_path: Path, change: EarlyStop | None
) -> None:
    early(tmp_path).train()
    trainer = early(tmp_path, early_stopping=change)
    trainer.train(resume=True)
    assert trainer.progress.step == (20 if change is None else 4)


def test_final_is_written_when_a_kill_came_just_before_it(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    stopped_after(undisturbed, tmp_path, 20)
    resumable(tmp_path).train(resume=True)
    assert files_of(tmp_path / "final") == files_of(undisturbed.folder / "final")


def test_final_is_of_the_last_step_when_a_kill_came_before_it_was_replaced(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """The run was made longer, and killed between its last checkpoint and the new final/."""
    shutil.copytree(undisturbed.folder, tmp_path, dirs_exist_ok=True)
    resumable(tmp_path, epochs=6).train(resume=True)
    shutil.rmtree(tmp_path / "final")
    shutil.copytree(undisturbed.folder / "final", tmp_path / "final")
    resumable(tmp_path, epochs=6).train(resume=True)
    last = tmp_path / "checkpoint-000024"
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "final" / name).read_bytes() == (last / name).read_bytes()


def test_more_epochs_go_on_from_the_last_step(undisturbed: Undisturbed, tmp_path: Path) -> None:
    shutil.copytree(undisturbed.folder, tmp_path, dirs_exist_ok=True)
    trainer = resumable(tmp_path, epochs=6)
    trainer.train(resume=True)
    assert trainer.new_steps == 4
    rates = {
        line["step"]: line["lr"] for line in lines_of(tmp_path / "metrics.jsonl") if "lr" in line
    }
    # Warmup stays 2 of 20 steps; the cosine now ends at 24: step 24 is 21/22 of the way.
    assert rates[24] == pytest.approx(0.01 * (1 + np.cos(np.pi * 21 / 22)) / 2)


@pytest.mark.parametrize(
    "change",
    [
        {"log_every": 7},
        {"eval_every": 9},
        {"save_every": 5},
        {"keep_last": 1},
        {"early_stopping": None},
        {"epochs": None, "max_steps": 17},
    ],
    ids=str,
)
def test_what_does_not_touch_the_steps_may_change(
    undisturbed: Undisturbed, tmp_path: Path, change: dict[str, Any]
) -> None:
    folder = stopped_after(undisturbed, tmp_path, 13)
    trainer = resumable(folder, **change)
    trainer.train(resume=True)
    assert trainer.progress.step == (17 if "max_steps" in change else 20)


def test_a_shorter_run_has_nothing_left(undisturbed: Undisturbed, tmp_path: Path) -> None:
    folder = stopped_after(undisturbed, tmp_path, 13)
    trainer = resumable(folder, epochs=2)
    trainer.train(resume=True)
    assert (trainer.progress.step, trainer.new_steps) == (13, 0)


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"lr": 0.02}, "lr: was 0.01, now 0.02"),
        ({"batch_size": 2}, "batch_size: was 4, now 2"),
        ({"weight_decay": 0.0}, "weight_decay: was 0.01, now 0.0"),
        ({"warmup_ratio": 0.0}, "warmup_ratio: was 0.1, now 0.0"),
        ({"grad_clip": None}, "grad_clip: was 1.0, now None"),
        ({"schedule": "linear"}, "schedule: was 'cosine', now 'linear'"),
        ({"seed": 1}, "seed: was 0, now 1"),
        ({"ema_decay": 0.9}, "ema_decay: was 0.8, now 0.9"),
        ({"ema_decay": None}, "ema_decay: was 0.8, now None"),
        ({"mixed_precision": "bf16"}, "mixed_precision: was 'no', now 'bf16'"),
        ({"micro_batch_tokens": 64}, "micro_batch_tokens: was None, now 64"),
    ],
    ids=str,
)
def test_another_setting_is_refused_and_named(
    undisturbed: Undisturbed, tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    folder = stopped_after(undisturbed, tmp_path, 13)
    before = files_of(folder)
    with pytest.raises(UsageError) as error:
        resumable(folder, **change).train(resume=True)
    assert str(error.value) == (
        f"{folder}: cannot be gone on with, since this changed:\n  {named}\nundo the change, or "
        "start anew with --overwrite"
    )
    assert files_of(folder) == before


def test_all_that_changed_is_named(undisturbed: Undisturbed, tmp_path: Path) -> None:
    folder = stopped_after(undisturbed, tmp_path, 13)
    trainer = make_trainer(
        token_rows(15),
        model=make_model(depth=2, pooling="cls"),
        output_dir=folder,
        **{**SETTINGS, "loss": LossConfig(loss="rao_kupper"), "seed": 3},
    )
    trainer.inputs = InputFacts("tokens", None, "keep_head")
    trainer.facts = {"sha256": {"p.jsonl": "0a"}}
    with pytest.raises(UsageError) as error:
        trainer.train(resume=True)
    named = [line.split(":")[0].strip() for line in str(error.value).splitlines()[1:-1]]
    assert named == ["data", "inputs", "loss", "network", "rows", "seed"]


def test_a_damaged_checkpoint_is_named_and_the_one_before_serves(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    folder = stopped_after(undisturbed, tmp_path, 13)
    path = folder / "checkpoint-000013" / "trainer_state" / "state.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        resumable(folder).train(resume=True)
    assert str(error.value) == (
        f"{path}: was changed: its sha256 is not the manifest's; the checkpoint is damaged: copy "
        "it again, or delete it to use the one before"
    )
    shutil.rmtree(folder / "checkpoint-000013")
    resumable(folder).train(resume=True)
    assert files_of(tmp_path) == files_of(undisturbed.folder)


@pytest.mark.parametrize("name", ["state.json", "state.safetensors"])
def test_a_state_that_is_missing_is_named(
    undisturbed: Undisturbed, tmp_path: Path, name: str
) -> None:
    folder = stopped_after(undisturbed, tmp_path, 13)
    path = folder / "checkpoint-000013" / "trainer_state" / name
    path.unlink()
    with pytest.raises(DataError) as error:
        resumable(folder).train(resume=True)
    assert str(error.value).startswith(f"{path}: is missing; the checkpoint is damaged")


def forget_state(folder: Path) -> None:
    """As in final/: a whole checkpoint without what training needs."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {n: f for n, f in manifest["files"].items() if "trainer" not in n}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    shutil.rmtree(folder / "trainer_state")


def test_a_checkpoint_without_a_state_cannot_be_gone_on_with(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    folder = stopped_after(undisturbed, tmp_path, 13)
    forget_state(folder / "checkpoint-000013")
    with pytest.raises(DataError, match=r"state\.json: cannot read this file of a checkpoint"):
        resumable(folder).train(resume=True)


# ---------------------------------------------------------------- the log


def cut_metrics(folder: Path, change: Callable[[bytes], bytes]) -> None:
    path = folder / "metrics.jsonl"
    path.write_bytes(change(path.read_bytes()))


def test_lines_of_steps_that_are_done_again_do_not_stand_twice(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    folder = stopped_after(undisturbed, tmp_path, 4)
    cut_metrics(folder, lambda content: content[:-30])
    resumable(folder).train(resume=True)
    steps = [line["step"] for line in lines_of(folder / "metrics.jsonl")]
    assert steps == [3, 4, 6, 8, 9, 12, 12, 15, 16, 18, 20, 20]


def test_a_trainer_state_is_not_pickled(undisturbed: Undisturbed) -> None:
    suffixes = {path.suffix for path in undisturbed.folder.rglob("*") if path.is_file()}
    assert suffixes == {".jsonl", ".json", ".safetensors", ".md"}
