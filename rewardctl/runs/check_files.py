"""Whether the files and folders stand there that a config names. They are not opened."""

import glob
import os
from pathlib import Path

from rewardctl.config.findings import Finding
from rewardctl.config.positions import Place, render
from rewardctl.config.report import Report
from rewardctl.config.resolve import absolute
from rewardctl.config.schema import ConfigFile

_LOCAL = (".", "/", "~")  # how a model_path starts that is no hub's name


def check_files(config: ConfigFile, report: Report, folder: Path) -> list[Finding]:
    """Findings about what is missing.

    Args:
        folder: What relative paths start from.
    """
    before = len(report.findings)
    for place, file in _data_paths(config):
        _check(file, place, "RC402", report, folder)
    for place, model in _model_paths(config):
        _check(model, place, "RC403", report, folder)
    for index, path in enumerate(config.python_path):
        _check(path, ("python_path", index), "RC404", report, folder)
    return report.findings[before:]


def _data_paths(config: ConfigFile) -> list[tuple[Place, Path]]:
    paths: list[tuple[Place, Path]] = [
        (("data", "datasets", i, "path"), dataset.path)
        for i, dataset in enumerate(config.data.datasets)
    ]
    if config.train is not None:
        paths += [(("train", "data", i, "path"), f.path) for i, f in enumerate(config.train.data)]
        if isinstance(config.train.validation, list):
            files = config.train.validation
            paths += [(("train", "validation", i, "path"), f.path) for i, f in enumerate(files)]
    paths += [(("eval", "data", i, "path"), f.path) for i, f in enumerate(config.eval.data or [])]
    return paths


def _model_paths(config: ConfigFile) -> list[tuple[Place, str]]:
    paths: list[tuple[Place, str]] = []
    for section in ("rewards", "eval_rewards"):
        for index, stream in enumerate(getattr(config, section) or []):
            if stream.model_path is not None and stream.model_path.startswith(_LOCAL):
                paths.append(((section, index, "model_path"), stream.model_path))
    if config.model.init_from is not None:
        paths.append((("model", "init_from"), config.model.init_from))
    if config.model.tokenizer not in (None, "bpe", "bytes"):
        paths.append((("model", "tokenizer"), config.model.tokenizer))
    return paths


def _check(path: Path | str, place: Place, code: str, report: Report, folder: Path) -> None:
    target = absolute(path, folder)
    text = str(target)
    if not os.path.lexists(target) and not (
        glob.has_magic(text) and glob.glob(text, recursive=True)
    ):
        message = f"{render(report.document.real_place(place))}: nothing stands at {text!r}"
        report.add(code, message, place, hint="paths are relative to the config's folder")
