"""`rewardctl train`, from a config to a run's folder: data, model, training, in that order."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from rewardctl.config.schema import Config
from rewardctl.config.secret import masked_dump
from rewardctl.config.training_schema import DataFile, ModelConfig, TrainConfig, ValidationSplit
from rewardctl.data.audit import AuditReport
from rewardctl.data.tokenizer import TEMPLATE, TextEncoder
from rewardctl.errors import ConfigError, DataError, RewardctlError, UsageError
from rewardctl.runs.fingerprint import machine_facts
from rewardctl.runs.interrupt import stop_on_signals
from rewardctl.runs.meta import versions
from rewardctl.runs.output import OutputPaths, only_writer, write_json
from rewardctl.runs.validate import expand
from rewardctl.runs.validate_data import PreparedData, loss_config, prepare_data
from rewardctl.training.checkpoint import Checkpoint, InputFacts, load_checkpoint, sha256
from rewardctl.training.generator import load_generator
from rewardctl.training.reward_model import PRESETS, RewardModel, create_reward_model
from rewardctl.training.run_folder import RunFolder
from rewardctl.training.settings import EarlyStop, TrainSettings
from rewardctl.training.trainer import RewardModelTrainer

GRACE_S = 120.0  # for the step in flight, and its checkpoint, after a signal
# Keys of `model:` that a checkpoint to start from has decided already.
NETWORK_KEYS = (
    "vocab_size",
    "in_channels",
    "seq_length",
    "hidden_size",
    "depth",
    "num_heads",
    "mlp_ratio",
    "timestep_aware",
    "pooling",
    "qk_norm",
    "rope_theta",
    "dropout",
)


@dataclass(frozen=True)
class TrainRequest:
    """What a user asks of `train`."""

    config: Config
    output_dir: Path | None = None  # over the config's
    resume: bool = False
    overwrite: bool = False
    strict: bool = False  # warnings of the audit stop the run


def train(
    request: TrainRequest,
    *,
    on_audit: Callable[[AuditReport], None] = lambda report: None,
    on_log: Callable[[dict[str, Any]], None] = lambda line: None,
    on_note: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Train a reward model from preferences.

    Args:
        on_audit: called with the audit of the data, before training.
        on_log: called with each line of metrics.jsonl.
        on_note: called with what else a reader of the log should know.

    Returns:
        What train.meta.json holds.

    Raises:
        ConfigError, UsageError: the config or the folder does not allow it.
        DataError: the data cannot be learnt from; the audit is in the text.
        RunError: a loss is not finite, or a file cannot be written.
        Interrupted: a signal came; a checkpoint was saved.
    """
    section = request.config.train
    if section is None:
        raise ConfigError("no train: section in the config; it names the data and how to learn")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but train runs in one process; start it "
            "without torchrun"
        )
    output_dir = request.output_dir or section.output_dir
    if output_dir is None:
        raise ConfigError("no folder for the run: set train.output_dir, or give --output-dir")
    start = load_start(request.config.model)
    model_config = request.config.model
    if start is not None:
        model_config = _completed(model_config, start)
    data = prepare_data(section, model_config, encoder=start.encoder if start else None)
    on_audit(data.report)
    if data.report.failed(strict=request.strict):
        raise DataError(data.report.text())
    folder = RunFolder(Path(output_dir))
    folder.make()
    with only_writer(OutputPaths(folder.meta)):
        folder.open(resume=request.resume, overwrite=request.overwrite)
        model = build_model(model_config, data.encoder, start, seed=section.seed, on_note=on_note)
        return _run(request, section, model, model_config, data, folder, on_log, on_note)


def _run(
    request: TrainRequest,
    section: TrainConfig,
    model: RewardModel,
    model_config: ModelConfig,
    data: PreparedData,
    folder: RunFolder,
    on_log: Callable[[dict[str, Any]], None],
    on_note: Callable[[str], None],
) -> dict[str, Any]:
    began = time.monotonic()
    settings = settings_of(section)
    facts = data_facts(section, data)
    meta: dict[str, Any] = {
        "config": masked_dump(request.config),
        "data": facts,
        "audit": data.report.to_json(),
        "machine": machine_facts(),
        "versions": versions(),
    }

    def write_meta(status: str, exit_code: int | None, **more: Any) -> dict[str, Any]:
        ended = {"status": status, "exit_code": exit_code, **more}
        content = {**ended, "seconds": round(time.monotonic() - began, 3), **meta}
        write_json(folder.meta, content, indent=1)
        return content

    track = open_tracker(section, folder.path)

    def log(line: dict[str, Any]) -> None:
        track(line)
        on_log(line)

    def last_words(exit_code: int) -> None:
        write_meta("interrupted", exit_code)

    with stop_on_signals(last_words, grace_s=GRACE_S) as stop:
        trainer = RewardModelTrainer(
            model,
            data.train,
            data.validation,
            lr=section.lr,
            batch_size=section.batch_size,
            weight_decay=section.weight_decay,
            warmup_ratio=section.warmup_ratio,
            grad_clip=section.grad_clip,
            settings=settings,
            output_dir=folder.path,
            inputs=InputFacts(
                model_config.input,
                TEMPLATE if data.has_prompts else None,
                section.overlong,
            ),
            encoder=data.encoder,
            facts=facts,
            on_log=log,
            stop_requested=lambda: stop.signum is not None,
        )
        has_begun = False

        def on_begin() -> None:
            nonlocal has_begun
            has_begun = True
            write_meta("running", None)
            for note in trainer.notes:
                on_note(note)

        try:
            trainer.train(resume=request.resume, on_begin=on_begin)
            stop.check()
        except RewardctlError as error:
            if not has_begun:  # the record of the run that stands there is left as it is
                raise
            status = "interrupted" if stop.signum is not None else "failed"
            write_meta(status, error.exit_code, error=str(error), steps=trainer.progress.step)
            raise
    return write_meta(
        "complete",
        0,
        steps=trainer.progress.step,
        new_steps=trainer.new_steps,
        stopped_early=trainer.progress.stopped_early,
        warnings=trainer.warnings,
        history=trainer.progress.history,
        output_dir=str(folder.path),
    )


def open_tracker(section: TrainConfig, folder: Path) -> Callable[[dict[str, Any]], None]:
    """Where metrics go besides metrics.jsonl, as `report_to` says.

    Raises:
        ConfigError: its package is not installed.
    """
    if section.report_to == "none":
        return lambda line: None
    if find_spec("tensorboard") is None:
        raise ConfigError(
            "report_to: tensorboard needs a package; pip install 'rewardctl[tensorboard]'"
        )
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=folder)
    accelerator.init_trackers("tensorboard")

    def track(line: dict[str, Any]) -> None:
        values = {k: v for k, v in line.items() if k != "step" and v is not None}
        accelerator.log(values, step=line["step"])

    return track


def settings_of(section: TrainConfig) -> TrainSettings:
    """The trainer's settings from the config's section."""
    early = section.early_stopping
    return TrainSettings(
        schedule=section.schedule,
        loss=loss_config(section),
        mixed_precision=section.mixed_precision,
        micro_batch_tokens=section.micro_batch_tokens,
        ema_decay=section.ema_decay,
        early_stopping=EarlyStop(**early.model_dump()) if early else None,
        seed=section.seed,
        epochs=None if section.max_steps is not None else section.epochs,
        max_steps=section.max_steps,
        log_every=section.log_every,
        eval_every=section.eval_every,
        save_every=section.save_every,
        keep_last=section.keep_last,
    )


def data_facts(section: TrainConfig, data: PreparedData) -> dict[str, Any]:
    """Hashes and counts of the data, for manifests and model cards; no row of it."""
    files: list[DataFile] = list(section.data)
    if section.validation is not None and not isinstance(section.validation, ValidationSplit):
        files += section.validation
    paths = [Path(name) for f in files for name in expand(str(f.path))]
    hashes = {path.name: sha256(path) for path in paths if path.is_file()}
    validation = len(data.validation) if data.validation is not None else 0
    return {"rows": len(data.train), "validation_rows": validation, "sha256": hashes}


def build_model(
    config: ModelConfig,
    encoder: TextEncoder | None,
    start: Checkpoint | None,
    *,
    seed: int,
    on_note: Callable[[str], None],
) -> RewardModel:
    """The network of a run: fresh from `seed`, or with the weights that it starts from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if start is None:
            model = _fresh_model(config, encoder)
            if config.init_from is not None:
                rope = config.init_from_rope or "interleaved"
                taken = load_generator(model, Path(config.init_from), rope=rope)
                on_note("\n".join(taken.summary()))
            return model
        if config.init_head != "fresh":
            on_note(f"init_from {config.init_from}: all weights, the head too")
            return start.model
        on_note(f"init_from {config.init_from}: all weights but the head, which starts anew")
        fresh = RewardModel(**start.model.network_config())
        kept = {n: t for n, t in start.model.state_dict().items() if not n.startswith("head.")}
        fresh.load_state_dict(kept, strict=False)
        return fresh


def _fresh_model(config: ModelConfig, encoder: TextEncoder | None) -> RewardModel:
    wanted: dict[str, Any] = {
        "vocab_size": encoder.vocab_size if encoder is not None else config.vocab_size,
        "in_channels": config.in_channels,
        "seq_length": config.seq_length,
        "timestep_aware": config.timestep_aware,
        "pooling": config.pooling,
        "qk_norm": config.qk_norm,
        "rope_theta": config.rope_theta,
        "dropout": config.dropout,
        "mlp_ratio": config.mlp_ratio,
    }
    if config.size is not None:
        return create_reward_model(config.size, **wanted)
    width = {name: getattr(config, name) for name in ("hidden_size", "depth", "num_heads")}
    return RewardModel(**wanted, **width)


def load_start(config: ModelConfig) -> Checkpoint | None:
    """The checkpoint that `init_from` names, loaded strictly; None if it names none."""
    if config.init_from is None or config.init_from.endswith(".safetensors"):
        return None
    return load_checkpoint(Path(config.init_from))


def _completed(config: ModelConfig, start: Checkpoint) -> ModelConfig:
    """`model:` with what the checkpoint has decided.

    Raises:
        ConfigError: a key that was given says something else.
    """
    network = start.model.network_config()
    if config.size is not None:
        width = PRESETS[config.size]
        if any(network[key] != value for key, value in width.items()):
            raise ConfigError(
                f"model.size is {config.size!r}, but the checkpoint {config.init_from} has other "
                f"sizes ({', '.join(f'{k} {network[k]}' for k in width)}); drop the key"
            )
    stored = {key: network[key] for key in NETWORK_KEYS} | {"input": start.inputs.kind}
    given = config.model_dump(include=config.model_fields_set, exclude={"size"})
    for key in stored.keys() & given.keys():
        if given[key] is not None and given[key] != stored[key]:
            raise ConfigError(
                f"model.{key} is {given[key]!r}, but the checkpoint {config.init_from} has "
                f"{stored[key]!r}; drop the key"
            )
    return config.model_copy(update=stored)
