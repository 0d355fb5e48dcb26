"""The folder of a training run: which checkpoints are there, and the lines of metrics.jsonl."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from rewardctl.data.journal import io_failure
from rewardctl.errors import UsageError
from rewardctl.training.checkpoint import restore_folder

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_RUN = re.compile(r"\.?(checkpoint-\d+|best|final)(\.old|\.writing)?|metrics\.jsonl")
_BESIDE = re.compile(r"train\.meta\.json|tensorboard")


class RunFolder:
    """Files of one run under `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / "metrics.jsonl"
        self.meta = path / "train.meta.json"
        self.best = path / "best"
        self.final = path / "final"

    def checkpoint(self, step: int) -> Path:
        """Where the checkpoint of a step lies."""
        return self.path / f"checkpoint-{step:06d}"

    def checkpoints(self) -> list[tuple[int, Path]]:
        """(step, folder) of the complete checkpoints, the newest last."""
        if not self.path.is_dir():
            return []
        found = [(_CHECKPOINT.fullmatch(p.name), p) for p in self.path.iterdir() if p.is_dir()]
        return sorted((int(match[1]), path) for match, path in found if match)

    def make(self) -> None:
        """Make the folder, if it is not there.

        Raises:
            RunError: it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise io_failure(self.path, error) from error

    def open(self, *, resume: bool, overwrite: bool) -> None:
        """Make the folder, and hold that a run in it is gone on with or replaced on purpose.

        Raises:
            UsageError: there is a run and neither is asked for.
            RunError: the folder cannot be made.
        """
        self.make()
        there = list(self.path.iterdir())
        run = [path for path in there if _RUN.fullmatch(path.name)]
        if run and not (resume or overwrite):
            raise UsageError(
                f"{self.path}: holds a training run; go on with --resume, replace it with "
                "--overwrite, or choose another output_dir"
            )
        if overwrite:
            for path in [*run, *(path for path in there if _BESIDE.fullmatch(path.name))]:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in (self.best, self.final):
            restore_folder(path)

    def keep_last(self, count: int) -> None:
        """Delete all but the newest checkpoints."""
        for _, path in self.checkpoints()[:-count]:
            shutil.rmtree(path)

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Add one line to metrics.jsonl.

        Raises:
            RunError: it cannot be written.
        """
        try:
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:
            raise io_failure(self.metrics, error) from error

    def drop_metrics_after(self, step: int) -> None:
        """Delete the lines of later steps, and a line that was cut."""
        if not self.metrics.exists():
            return
        kept = 0
        for line in self.metrics.read_bytes().splitlines(keepends=True):
            try:
                if json.loads(line)["step"] > step or not line.endswith(b"\n"):
                    break
            except ValueError:
                break
            kept += len(line)
        try:
            os.truncate(self.metrics, kept)
        except OSError as error:
            raise io_failure(self.metrics, error) from error
