"""A training run from a config: what it learns from, starts from, writes and refuses."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from train_project import (
    MODEL,
    TrainProject,
    are_equal,
    lines_of,
    token_records,
    weights_of,
)

from rewardctl.data.tokenizer import TextEncoder
from rewardctl.errors import ConfigError, DataError, RunError, UsageError
from rewardctl.runs.output import OutputPaths, only_writer
from rewardctl.runs.train import TrainRequest, train
from rewardctl.runs.validate import checked_config
from rewardctl.training.checkpoint import load_checkpoint
from rewardctl.training.packing import score_items

HELD = token_records(6, seed=1)


@pytest.fixture
def project(tmp_path: Path) -> TrainProject:
    return TrainProject(tmp_path)


def request(project: TrainProject, **options: Any) -> TrainRequest:
    config, _ = checked_config(project.config, (), sections=("model", "train", "media"))
    return TrainRequest(config, **options)


def run(project: TrainProject, **options: Any) -> dict[str, Any]:
    return train(request(project, **options))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------- what is written


def test_the_folder_of_a_run(project: TrainProject) -> None:
    project.write(validation=HELD, epochs=2, eval_every=3, save_every=3)
    meta = run(project)
    assert names_in(project.run) == [
        "best",
        "checkpoint-000006",
        "checkpoint-000008",
        "final",
        "metrics.jsonl",
        "train.meta.json",
    ]
    assert meta == json.loads((project.run / "train.meta.json").read_text())
    assert (meta["status"], meta["exit_code"]) == ("complete", 0)
    assert (meta["steps"], meta["new_steps"], meta["stopped_early"]) == (8, 8, False)
    assert meta["warnings"] == []
    held = [
        line["val_loss"] for line in lines_of(project.run / "metrics.jsonl") if "val_loss" in line
    ]
    assert meta["history"]["val_loss"] == held


def test_the_manifest_holds_hashes_and_counts_of_the_data(project: TrainProject) -> None:
    project.write(validation=HELD)
    run(project)
    manifest = json.loads((project.run / "final" / "manifest.json").read_text())
    assert manifest["data"] == {
        "rows": 16,
        "validation_rows": 6,
        "sha256": {
            name: hashlib.sha256((project.folder / name).read_bytes()).hexdigest()
            for name in ("pairs.jsonl", "held.jsonl")
        },
    }


def test_two_runs_of_one_config_are_the_same_bytes(project: TrainProject) -> None:
    project.write(validation=HELD, model=MODEL | {"dropout": 0.3})
    run(project, output_dir=project.folder / "a")
    torch.manual_seed(77)
    run(project, output_dir=project.folder / "b")
    for name in ("metrics.jsonl", "final/model.safetensors", "best/model.safetensors"):
        assert (project.folder / "a" / name).read_bytes() == (
            project.folder / "b" / name
        ).read_bytes()


def test_another_seed_is_another_model(project: TrainProject) -> None:
    project.write(seed=0)
    run(project, output_dir=project.folder / "a")
    project.write(seed=1)
    run(project, output_dir=project.folder / "b")
    one, other = (load_checkpoint(project.folder / n).model for n in ("a", "b"))
    assert not are_equal(weights_of(one), weights_of(other))


def test_the_settings_of_the_config_reach_the_trainer(project: TrainProject) -> None:
    settings = {
        "weight_decay": 0.5,
        "warmup_ratio": 0.25,
        "schedule": "linear",
        "grad_clip": 0.5,
        "loss": "rao_kupper",
        "tie_strength": 3.0,
        "center_coefficient": 0.01,
        "mixed_precision": "bf16",
        "micro_batch_tokens": 64,
        "ema_decay": 0.5,
        "early_stopping": {"metric": "val_accuracy", "patience": 7},
        "seed": 5,
        "log_every": 2,
        "eval_every": 3,
        "save_every": 4,
        "keep_last": 5,
    }
    project.write(validation=HELD, **settings)
    run(project)
    path = project.run / "checkpoint-000004" / "trainer_state" / "state.json"
    stored = json.loads(path.read_text())["settings"]
    loss = {key: stored["loss"][key] for key in ("loss", "tie_strength", "center_coefficient")}
    found = {key: stored[key] for key in settings if key in stored} | loss
    assert found == settings | {
        "early_stopping": {"metric": "val_accuracy", "patience": 7, "min_delta": 0.0}
    }


def test_max_steps_is_the_length_of_the_run(project: TrainProject) -> None:
    project.write(epochs=None, max_steps=3)
    assert run(project)["steps"] == 3


# ---------------------------------------------------------------- kinds of input


def test_a_bpe_is_trained_on_the_data_and_stored(project: TrainProject) -> None:
    records = [
        {"prompt": f"say {n}", "chosen": f"yes yes {n}", "rejected": f"no {n}"} for n in range(8)
    ]
    text = {key: value for key, value in MODEL.items() if key not in ("input", "vocab_size")}
    project.write(records=records, model=text | {"vocab_size": 270, "seq_length": 40})
    run(project)
    checkpoint = load_checkpoint(project.run)
    assert checkpoint.encoder is not None
    assert checkpoint.inputs.kind == "text"
    vocab_size = checkpoint.encoder.vocab_size
    assert 256 < vocab_size <= 270
    assert checkpoint.model.vocab_size == vocab_size
    assert len(checkpoint.encoder.encode_batch(["yes yes"])[0]) < len("yes yes")


def test_latents_are_read_by_path_and_timesteps_count(project: TrainProject) -> None:
    draw = np.random.default_rng(0)
    records = []
    for n in range(8):
        for name, sign in (("c", 1), ("r", -1)):
            latents = sign + draw.standard_normal((3, 2)) / 4
            np.save(project.folder / f"{name}{n}.npy", latents.astype(np.float32))
        records.append(
            {"chosen_latents": f"c{n}.npy", "rejected_latents": f"r{n}.npy", "timestep": n / 8}
        )
    model = {key: value for key, value in MODEL.items() if key != "vocab_size"}
    model |= {"input": "latents", "in_channels": 2, "timestep_aware": True}
    project.write(records=records, model=model, epochs=15)
    assert run(project)["history"]["train_accuracy"][-1] == 1.0
    assert load_checkpoint(project.run).model.timestep_aware


def test_ranked_rows_and_their_direction(project: TrainProject) -> None:
    records = [
        {"prompt": str(n), "candidates": [[2, 3 + n], [1, 3 + n], [7, 3 + n]], "ranking": [3, 1, 2]}
        for n in range(8)
    ]
    project.write(
        records=records,
        data=[{"path": "pairs.jsonl", "direction": "lower_is_better"}],
        epochs=20,
        loss="plackett_luce",
    )
    run(project)
    model = load_checkpoint(project.run).model
    worst, best, middle = score_items(model, [np.int32([f, 5]) for f in (2, 1, 7)]).tolist()
    assert best > middle > worst


def test_a_split_holds_rows_out(project: TrainProject) -> None:
    project.write(validation=None, records=token_records(40))
    section = json.loads(project.config.read_text())
    section["train"]["validation"] = {"split": 0.25, "by": "prompt"}
    project.config.write_text(json.dumps(section))
    meta = run(project)
    assert meta["data"]["rows"] + meta["data"]["validation_rows"] == 40
    assert meta["data"]["validation_rows"] == 10
    lines = lines_of(project.run / "metrics.jsonl")
    assert [line["n_pairs"] for line in lines if "val_loss" in line] == [10]


# ---------------------------------------------------------------- what is refused


def test_a_config_without_train_is_refused(project: TrainProject) -> None:
    project.config.write_text(json.dumps({"model": MODEL}))
    with pytest.raises(ConfigError, match="no train: section in the config"):
        run(project)


def test_a_run_without_a_folder_is_refused(project: TrainProject) -> None:
    project.write(output_dir=None)
    with pytest.raises(ConfigError, match=r"set train\.output_dir, or give --output-dir"):
        run(project)
    run(project, output_dir=project.folder / "given")
    assert (project.folder / "given" / "final").is_dir()


def test_errors_of_the_audit_stop_before_anything_is_written(project: TrainProject) -> None:
    project.write(records=[*token_records(3), {"chosen": [99], "rejected": [1]}])
    with pytest.raises(DataError, match=r"pairs\.jsonl:4: error: chosen: token 99 at position 0"):
        run(project)
    assert not project.run.exists()


def test_warnings_stop_a_strict_run(project: TrainProject) -> None:
    tied = {"prompt": "t", "chosen": [1], "rejected": [2], "preference": 0.5}
    project.write(records=[*token_records(3), tied])
    with pytest.raises(DataError, match="warning"):
        run(project, strict=True)
    assert not project.run.exists()
    assert run(project)["status"] == "complete"


def test_the_audit_is_shown_before_the_first_step(project: TrainProject) -> None:
    project.write()
    events: list[str] = []
    train(
        request(project),
        on_audit=lambda report: events.append(f"{report.counts['train']['usable']} rows"),
        on_log=lambda line: events.append(f"step {line['step']}"),
    )
    assert events == ["16 rows", "step 1", "step 2", "step 3", "step 4"]


def test_more_than_one_process_is_refused(
    project: TrainProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write()
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="train runs in one process; start it without torchrun"):
        run(project)


def test_a_run_in_the_folder_is_refused_resumed_or_replaced(project: TrainProject) -> None:
    project.write()
    run(project)
    before = (project.run / "metrics.jsonl").read_bytes()
    with pytest.raises(UsageError, match="holds a training run; go on with --resume"):
        run(project)
    assert run(project, resume=True)["new_steps"] == 0
    assert (project.run / "metrics.jsonl").read_bytes() == before
    project.write(seed=1)
    assert run(project, overwrite=True)["new_steps"] == 4
    assert (project.run / "metrics.jsonl").read_bytes() != before


def test_a_run_that_is_being_written_is_left_alone(project: TrainProject) -> None:
    project.write()
    run(project)
    before = names_in(project.run)
    with only_writer(OutputPaths(project.run / "train.meta.json")):
        for options in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(RunError, match="another run is writing it"):
                run(project, **options)
        assert [name for name in names_in(project.run) if not name.endswith(".lock")] == before


def test_a_run_is_not_resumed_on_other_rows(project: TrainProject) -> None:
    project.write()
    run(project)
    project.write(records=token_records(16, seed=9), epochs=2)
    with pytest.raises(UsageError, match=r"data: was \{'pairs\.jsonl': .*\}, now"):
        run(project, resume=True)


def test_a_run_is_not_resumed_on_other_rows_of_a_glob(project: TrainProject) -> None:
    project.write(data="pair*.jsonl")
    run(project)
    project.write(records=token_records(16, seed=9), data="pair*.jsonl", epochs=2)
    with pytest.raises(UsageError, match="data: was"):
        run(project, resume=True)


def test_a_run_is_not_resumed_with_another_tokenizer(project: TrainProject) -> None:
    def write(text: str) -> None:
        encoder = TextEncoder.train_bpe([text] * 3, 258)
        encoder.save(project.folder / "tokenizer.json")
        assert encoder.vocab_size == 258

    records = [{"chosen": f"yes {n}", "rejected": f"no {n}"} for n in range(8)]
    text = {key: value for key, value in MODEL.items() if key not in ("input", "vocab_size")}
    settings = {"records": records, "model": text | {"tokenizer": "tokenizer.json"}}
    write("abcabc")
    project.write(**settings)
    run(project)
    write("xyzxyz")
    project.write(**settings, epochs=2)
    with pytest.raises(UsageError, match="tokenizer"):
        run(project, resume=True)


def test_a_refused_resume_leaves_the_runs_record_as_it_was(project: TrainProject) -> None:
    project.write()
    run(project)
    before = (project.run / "train.meta.json").read_bytes()
    project.write(lr=0.5)
    with pytest.raises(UsageError, match=r"lr: was 0\.01, now 0\.5"):
        run(project, resume=True)
    assert (project.run / "train.meta.json").read_bytes() == before


def test_a_run_that_failed_says_so_in_its_record(project: TrainProject) -> None:
    records = [*token_records(7), {"chosen": [1], "rejected": [2], "margin": 3e38}]
    project.write(records=records, lr=100.0, epochs=50)
    with pytest.raises(RunError, match=r"the loss is not finite for pairs\.jsonl:8"):
        run(project)
    meta = json.loads((project.run / "train.meta.json").read_text())
    assert (meta["status"], meta["exit_code"]) == ("failed", 4)
    assert "pairs.jsonl:8" in meta["error"]
