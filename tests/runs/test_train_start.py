"""A training run that starts from a checkpoint: what is taken, kept and refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from train_project import (
    MODEL,
    NETWORK,
    TrainProject,
    make_model,
    token_records,
    token_rows,
    weights_of,
)

from rewardctl.errors import ConfigError, DataError
from rewardctl.runs.train import TrainRequest, train
from rewardctl.runs.validate import checked_config
from rewardctl.training.checkpoint import Checkpoint, InputFacts, load_checkpoint, save_checkpoint
from rewardctl.training.packing import score_items
from rewardctl.training.trainer import RewardModelTrainer

HELD = token_records(6, seed=1)


@pytest.fixture
def project(tmp_path: Path) -> TrainProject:
    return TrainProject(tmp_path)


def request(project: TrainProject, **options: Any) -> TrainRequest:
    config, _ = checked_config(project.config, (), sections=("model", "train", "media"))
    return TrainRequest(config, **options)


def run(project: TrainProject, **options: Any) -> dict[str, Any]:
    return train(request(project, **options))


# ---------------------------------------------------------------- starting from a checkpoint


@pytest.fixture
def start(project: TrainProject) -> Checkpoint:
    """A checkpoint at start/, whose scores are not 0."""
    checkpoint = Checkpoint(make_model(shaken=True).eval(), InputFacts("tokens"))
    save_checkpoint(project.folder / "start", checkpoint)
    return checkpoint


@pytest.fixture
def started(project: TrainProject, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`started(init_head="fresh")`: the weights that a run has before its first step."""
    seen: list[dict[str, torch.Tensor]] = []

    class Watched(RewardModelTrainer):
        def train(self, *args: Any, **kwargs: Any) -> dict[str, list[float]]:
            seen.append(weights_of(self.model))
            return super().train(*args, **kwargs)

    def start_run(seed: int = 0, **model: Any) -> dict[str, torch.Tensor]:
        project.write(model={"input": "tokens", "init_from": "start", **model}, seed=seed)
        run(project, overwrite=True)
        return seen[-1]

    monkeypatch.setattr("rewardctl.runs.train.RewardModelTrainer", Watched)
    return start_run


ITEMS = [item for row in token_rows(4, seed=3) for item in row.items]


def test_before_the_first_step_it_scores_as_the_checkpoint(
    started: Callable[..., Any], start: Checkpoint
) -> None:
    model = make_model().eval()
    model.load_state_dict(started())
    assert torch.equal(score_items(model, ITEMS), score_items(start.model, ITEMS))


def test_training_goes_on_from_the_checkpoint(project: TrainProject, start: Checkpoint) -> None:
    project.write(model={"input": "tokens", "init_from": "start"}, lr=1e-12, weight_decay=0.0)
    run(project)
    model = load_checkpoint(project.run).model
    assert model.network_config() == start.model.network_config()
    assert score_items(model, ITEMS).tolist() == pytest.approx(
        score_items(start.model, ITEMS).tolist(), abs=1e-6
    )


def test_a_fresh_head_keeps_all_but_the_head(
    started: Callable[..., Any], start: Checkpoint
) -> None:
    fresh, before = started(init_head="fresh"), weights_of(start.model)
    changed = {name for name in before if not torch.equal(fresh[name], before[name])}
    assert changed == {name for name in before if name.startswith("head.")}
    assert (fresh["head.3.weight"] == 0).all()
    again = started(seed=1, init_head="fresh")
    assert not torch.equal(fresh["head.0.weight"], again["head.0.weight"])


@pytest.mark.parametrize(
    ("key", "value", "stored"),
    [
        ("depth", 2, "1"),
        ("pooling", "cls", "'mean'"),
        ("seq_length", 99, "12"),
        ("vocab_size", 17, "16"),
        ("input", "text", "'tokens'"),
        ("timestep_aware", True, "False"),
        ("dropout", 0.9, "0.0"),
    ],
)
def test_a_key_that_contradicts_the_checkpoint_is_refused(
    project: TrainProject, start: Checkpoint, key: str, value: Any, stored: str
) -> None:
    model: dict[str, Any] = {"input": "tokens", "init_from": "start", key: value}
    if key == "depth":
        model |= {"hidden_size": 16, "num_heads": 2}
    project.write(model=model)
    with pytest.raises(ConfigError) as error:
        run(project)
    assert str(error.value) == (
        f"model.{key} is {value!r}, but the checkpoint {project.folder / 'start'} has {stored}; "
        "drop the key"
    )
    assert not project.run.exists()


def test_a_size_that_contradicts_the_checkpoint_is_refused(
    project: TrainProject, start: Checkpoint
) -> None:
    project.write(model={"input": "tokens", "init_from": "start", "size": "large"})
    with pytest.raises(ConfigError, match=r"model\.size"):
        run(project)


def test_keys_that_say_what_the_checkpoint_says_are_fine(
    project: TrainProject, start: Checkpoint
) -> None:
    project.write(model={"input": "tokens", **NETWORK, "init_from": "start"})
    assert run(project)["status"] == "complete"


def test_a_text_checkpoint_brings_its_tokenizer(project: TrainProject) -> None:
    records = [{"chosen": f"yes yes {n}", "rejected": f"no {n}"} for n in range(8)]
    text = {key: value for key, value in MODEL.items() if key not in ("input", "vocab_size")}
    project.write(records=records, model=text | {"vocab_size": 264, "seq_length": 40})
    run(project, output_dir=project.folder / "first")
    others = [{"chosen": f"maybe maybe {n}", "rejected": f"oui {n}"} for n in range(8)]
    project.write(records=others, model={"init_from": "first"})
    run(project)
    first, second = (load_checkpoint(project.folder / n).encoder for n in ("first", "run"))
    assert first is not None
    assert second is not None
    assert first.to_json() == second.to_json()


def test_a_start_that_is_not_there_is_named(project: TrainProject) -> None:
    project.write(model={"input": "tokens", "init_from": "none"})
    with pytest.raises(DataError, match=r"none: is not there; expected the folder of a checkpoint"):
        run(project)


def test_the_audit_sees_the_checkpoints_sizes(project: TrainProject, start: Checkpoint) -> None:
    project.write(
        records=[*token_records(3), {"chosen": [16], "rejected": [1]}],
        model={"input": "tokens", "init_from": "start"},
    )
    with pytest.raises(DataError, match="token 16 at position 0"):
        run(project)


def test_a_run_resumes_without_its_start(project: TrainProject, start: Checkpoint) -> None:
    """What is resumed is the run's own checkpoint; the start only names the network."""
    project.write(model={"input": "tokens", "init_from": "start"}, epochs=2)
    run(project, output_dir=project.folder / "whole")
    project.write(model={"input": "tokens", "init_from": "start"}, epochs=1)
    run(project)
    project.write(model={"input": "tokens", "init_from": "start"}, epochs=2)
    run(project, resume=True)
    # warmup is int(0.1 * steps) = 0 in both
    one, other = (project.folder / n / "final" / "model.safetensors" for n in ("whole", "run"))
    assert one.read_bytes() == other.read_bytes()


# ---------------------------------------------------------------- starting from a generator


def test_blocks_of_a_generator_are_taken_and_told(project: TrainProject) -> None:
    torch.manual_seed(5)
    blocks = {
        name: torch.randn_like(weight)
        for name, weight in make_model().state_dict().items()
        if name.startswith("blocks.")
    }
    save_file(blocks, project.folder / "generator.safetensors")
    notes: list[str] = []
    project.write(model={**MODEL, "init_from": "generator.safetensors"})
    train(request(project), on_note=notes.append)
    assert f"{len(blocks)} tensors of the blocks taken" in notes[0]
    assert "as initialised: " in notes[0]


def test_metrics_go_to_tensorboard_too(project: TrainProject) -> None:
    project.write(report_to="tensorboard")
    run(project)
    events = list((project.run / "tensorboard").glob("events.out.tfevents.*"))
    assert len(events) == 1
    assert b"grad_norm" in events[0].read_bytes()
