"""A checked config made ready for a run: absolute paths, dependent defaults, `${env:NAME}` read."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from rewardctl.config.schema import Config, ConfigFile, RewardArguments
from rewardctl.config.secret import resolve_env, secret_texts
from rewardctl.config.section import Section
from rewardctl.config.training_schema import DataFile, EvalConfig, ModelConfig, TrainConfig

AnySection = TypeVar("AnySection", bound=Section)


def resolve(config: ConfigFile, folder: Path, environ: Mapping[str, str]) -> Config:
    """The config for a run.

    Args:
        folder: What relative paths start from; absolute.
    """
    sections: dict[str, Any] = {name: getattr(config, name) for name in ConfigFile.model_fields}
    datasets = [
        _replaced(dataset, path=absolute(dataset.path, folder)) for dataset in config.data.datasets
    ]
    sections["data"] = _replaced(config.data, datasets=datasets)
    secrets: set[str] = set()
    for name in ("rewards", "eval_rewards"):
        if sections[name] is not None:
            secrets.update(*(secret_texts(stream.options, environ) for stream in sections[name]))
            sections[name] = [_stream(stream, folder, environ) for stream in sections[name]]
    sections["python_path"] = [absolute(path, folder) for path in config.python_path]
    sections["model"] = _model(config.model, folder)
    if config.train is not None:
        sections["train"] = _train(config.train, folder)
    sections["eval"] = _eval(config.eval, folder)
    # Longest first, so that no secret is masked in part by another.
    ordered = tuple(sorted(secrets, key=lambda text: (-len(text), text)))
    resolved = Config(folder=folder, secrets=ordered, **sections)
    resolved.__pydantic_fields_set__ = set(config.model_fields_set)
    return resolved


def absolute(path: Path | str, folder: Path) -> Path:
    """`path` against `folder`, `~` and `..` resolved, links kept."""
    return Path(os.path.abspath(folder / Path(path).expanduser()))


def _replaced(section: AnySection, **values: object) -> AnySection:
    """A copy with other values; which keys the user gave stays as it was."""
    given = set(section.model_fields_set)
    copy = section.model_copy(update=values)
    copy.__pydantic_fields_set__ = given
    return copy


def _stream(stream: RewardArguments, folder: Path, environ: Mapping[str, str]) -> RewardArguments:
    model_path = stream.model_path
    if model_path is not None:  # org/name may be the name of a model instead
        path = absolute(model_path, folder)
        if model_path.startswith((".", "/", "~")) or os.path.lexists(path):
            model_path = str(path)
    return _replaced(stream, model_path=model_path, options=resolve_env(stream.options, environ))


def _files(files: list[DataFile], folder: Path) -> list[DataFile]:
    return [_replaced(file, path=absolute(file.path, folder)) for file in files]


def _model(model: ModelConfig, folder: Path) -> ModelConfig:
    """With init_from, what the file leaves out is the checkpoint's; else defaults fill it."""
    values: dict[str, object] = {}
    if model.init_from is not None:
        values["init_from"] = str(absolute(model.init_from, folder))
    elif model.size is None and model.hidden_size is None:
        values["size"] = "small"
    if model.tokenizer not in (None, "bpe", "bytes"):
        values["tokenizer"] = str(absolute(model.tokenizer, folder))
    elif model.input == "text" and model.init_from is None:
        values["tokenizer"] = model.tokenizer or "bpe"
        if values["tokenizer"] == "bpe":
            values["vocab_size"] = model.vocab_size or 4096
    return _replaced(model, **values)


def _train(train: TrainConfig, folder: Path) -> TrainConfig:
    values: dict[str, object] = {"data": _files(train.data, folder)}
    if isinstance(train.validation, list):
        values["validation"] = _files(train.validation, folder)
    if train.output_dir is not None:
        values["output_dir"] = absolute(train.output_dir, folder)
    if train.epochs is None and train.max_steps is None:
        values["epochs"] = 3
    return _replaced(train, **values)


def _eval(section: EvalConfig, folder: Path) -> EvalConfig:
    values: dict[str, object] = {}
    if section.data is not None:
        values["data"] = _files(section.data, folder)
    if section.output_dir is not None:
        values["output_dir"] = absolute(section.output_dir, folder)
    return _replaced(section, **values)
