"""Small reward classes whose scores can be worked out by hand, and a folder to score with them."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from accelerate import Accelerator

from rewardctl.config.load import load_config
from rewardctl.config.schema import Config
from rewardctl.rewards.abc import GroupwiseRewardModel, PointwiseRewardModel, RewardModelOutput
from rewardctl.runs.policy import MaxErrors
from rewardctl.runs.score import ScoreRequest, score

# What the probes were called with, in order: (class name, prompts). Cleared for each test.
CALLS: list[tuple[str, tuple[str, ...]]] = []
# Prompts that Mendable refuses. Cleared for each test.
REFUSED: set[str] = set()


def numbers(prompts: list[str]) -> list[float]:
    """The number that each prompt is; `nan` and `inf` are numbers too."""
    return [float(prompt) for prompt in prompts]


class Number(PointwiseRewardModel):
    """The prompt as a number; a prompt that is none makes the whole call raise."""

    thread_safe = True

    def __call__(self, prompt: list[str]) -> list[float]:
        CALLS.append(("Number", tuple(prompt)))
        return numbers(prompt)


class PromptAndResponse(PointwiseRewardModel):
    """The prompt as a number, and 100 for each letter of the required response."""

    thread_safe = True

    def __call__(self, prompt: list[str], response: list[str]) -> list[float]:
        CALLS.append(("PromptAndResponse", tuple(prompt)))
        return [float(p) + 100 * len(r) for p, r in zip(prompt, response, strict=True)]


class Mendable(PointwiseRewardModel):
    """The prompt as a number, NaN while the prompt is in REFUSED."""

    def __call__(self, prompt: list[str]) -> list[float]:
        CALLS.append(("Mendable", tuple(prompt)))
        return [float("nan") if p in REFUSED else float(p) for p in prompt]


class AboveLowest(GroupwiseRewardModel):
    """How far a prompt's number lies above the lowest of its group, and an eighth of the size."""

    thread_safe = True

    def __call__(self, prompt: list[str]) -> RewardModelOutput:
        CALLS.append(("AboveLowest", tuple(prompt)))
        found = numbers(prompt)
        return RewardModelOutput([x - min(found) + len(found) / 8 for x in found])


class OneForAll(PointwiseRewardModel):
    """Breaks the contract: one number, however many inputs."""

    def __call__(self, prompt: list[str]) -> list[float]:
        return [1.0]


class Overlap:
    """Notices two calls at one time: the first waits a moment for a second to come."""

    def __init__(self) -> None:
        self.most = 0
        self._running = 0
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        with self._changed:
            self._running += 1
            self.most = max(self.most, self._running)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most > 1, timeout=0.02)

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._running -= 1


class Killed(BaseException):
    """Ends a run as a kill would: nothing catches it."""


@contextmanager
def killed_at(number: int | None = None, *, rename_of: str = "") -> Iterator[list[str]]:
    """Raise Killed in place of a rename or removal: the `number`th, or the rename of a file.

    Yields what was renamed and removed so far. The block need not be killed.
    """
    rename, remove, done = os.replace, os.unlink, []

    def note(name: str) -> None:
        if len(done) == number:
            raise Killed
        done.append(name)

    def replace(source: Path, target: Path) -> None:
        if Path(source).name == rename_of:
            raise Killed
        note(Path(source).name)
        rename(source, target)

    def unlink(path: Path, **places: Any) -> None:
        if not str(path).endswith(".lock"):
            note(Path(path).name)
        remove(path, **places)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace)
        patch.setattr(os, "unlink", unlink)
        yield done


@dataclass
class ScoreProject:
    """A folder with a config, rows and an output."""

    folder: Path
    accelerator: Accelerator
    config: Config | None = None  # once it is read

    @property
    def out(self) -> Path:
        """The output file."""
        return self.folder / "out.jsonl"

    @property
    def partial(self) -> Path:
        """The rendered rows of a run that has not ended."""
        return self.folder / "out.jsonl.partial"

    @property
    def journal(self) -> Path:
        """The journal of a run that has not ended."""
        return self.folder / "out.jsonl.partial.journal"

    def write(self, rows: list[Any], streams: list[dict[str, Any]], **sections: Any) -> None:
        """Write rows (texts as they are) and a config; a stream's class is one of this file."""
        lines = [r if isinstance(r, str) else json.dumps(r) for r in rows]
        (self.folder / "rows.jsonl").write_text("".join(line + "\n" for line in lines))
        config = {
            "rewards": [{**s, "reward_model": f"probes:{s['reward_model']}"} for s in streams],
            "python_path": [str(Path(__file__).parent)],
            **sections,
        }
        (self.folder / "config.yaml").write_text(json.dumps(config))
        self.config = None

    def score(self, *, max_errors: str = "0", **request: Any) -> dict[str, Any]:
        """Score the rows; what the meta file holds."""
        if self.config is None:
            self.config = load_config(self.folder / "config.yaml")
        asked = {"out": self.out, "data": (str(self.folder / "rows.jsonl"),), **request}
        return score(
            ScoreRequest(self.config, max_errors=MaxErrors.parse(max_errors), **asked),
            accelerator=self.accelerator,
        )

    def score_unfinished(self, **request: Any) -> None:
        """Score all rows, and be killed before any file gets its final name."""
        with killed_at(rename_of="out.jsonl.partial.meta.json"), pytest.raises(Killed):
            self.score(**request)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the finished output."""
        return [json.loads(line) for line in self.out.read_text().splitlines()]

    def column(self, stream: str, key: str = "scores") -> list[Any]:
        """One stream's part of all rows."""
        return [row[key][stream] for row in self.rows()]

    def files(self) -> list[str]:
        """Names of the output and what lies beside it."""
        return sorted(path.name for path in self.folder.glob("out.jsonl*"))
