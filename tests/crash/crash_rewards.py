"""Reward classes of the crash tests: scores that tell in which company a row was scored, and calls
that leave a mark, wait, fail or hang on demand. What the environment says is no part of a run's
fingerprint: CRASH_LOG names the log of finished calls, CRASH_FLAGS the folder of flag files.
"""

import ctypes
import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from pydantic import BaseModel
from torch import nn

from rewardctl.rewards import (
    GroupwiseRewardModel,
    PointwiseRewardModel,
    RewardArguments,
    RewardModelOutput,
)
from rewardctl.runs import interrupt

FEATURES = 256
GATE_TIMEOUT_S = 600.0  # longer than any test waits for a run to end


class Pace(BaseModel):
    """Options of all classes here."""

    tag: str = "call"
    pause_ms: float = 0.0


def log_call(tag: str, ids: Sequence[object]) -> None:
    """Append one line for a finished call, in one write, so that a kill cannot tear two apart."""
    log = os.environ.get("CRASH_LOG")
    if log:
        fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(fd, (json.dumps([tag, list(ids)]) + "\n").encode())
        os.close(fd)


def flag(name: str) -> Path:
    """A flag file by which a test and a reward talk."""
    return Path(os.environ["CRASH_FLAGS"]) / name


def digest_share(*texts: object) -> float:
    """A number in [0, 1) that any change of the texts changes."""
    digest = hashlib.blake2b("\x1f".join(map(str, texts)).encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


class LinearReward(PointwiseRewardModel):
    """Two nn.Linear layers over counts of byte values.

    A matrix product rounds differently for different batch sizes: the last bits of a score tell in
    which company its row was scored. A response with the word `nan` gets NaN.
    """

    Options = Pace

    def __init__(self, config: RewardArguments, accelerator: Any) -> None:
        super().__init__(config, accelerator)
        generator = torch.Generator().manual_seed(7)
        self.model = nn.Sequential(nn.Linear(FEATURES, 96), nn.Tanh(), nn.Linear(96, 1))
        for parameter in self.model.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) / 4

    def __call__(
        self, *, prompt: list[str], response: list[str], id: list[Any]
    ) -> RewardModelOutput:
        time.sleep(self.config.options.pause_ms / 1000)
        counts = torch.zeros(len(prompt), FEATURES)  # float32 (n, FEATURES)
        for row, text in enumerate(p + r for p, r in zip(prompt, response, strict=True)):
            for value in text.encode():
                counts[row, value] += 1
        scores = self.model(counts / 3)[:, 0]
        for row, text in enumerate(response):
            if "nan" in text.split():
                scores[row] = float("nan")
        log_call(self.config.options.tag, id)
        return RewardModelOutput(scores)


class CompanyReward(PointwiseRewardModel):
    """A score that any other row in the call, or another order, would change."""

    Options = Pace
    thread_safe = True

    def __call__(self, *, response: list[str], id: list[Any]) -> RewardModelOutput:
        time.sleep(self.config.options.pause_ms / 1000)
        scores = [digest_share(row, *response) for row in range(len(response))]
        log_call(self.config.options.tag, id)
        return RewardModelOutput(scores)


class GroupReward(GroupwiseRewardModel):
    """A member's score depends on the whole group and its order."""

    Options = Pace

    def __call__(
        self, *, response: list[str], id: list[Any], unique_id: list[str]
    ) -> RewardModelOutput:
        assert len(set(unique_id)) == 1
        time.sleep(self.config.options.pause_ms / 1000)
        scores = [len(text) - digest_share(*response) for text in response]
        log_call(self.config.options.tag, id)
        return RewardModelOutput(scores)


class GatedReward(PointwiseRewardModel):
    """Announces the call of a row with the word `gate`, and waits there until the gate is open,
    with a heartbeat that tells how long its Python code has run on.
    """

    Options = Pace

    def __init__(self, config: RewardArguments, accelerator: Any) -> None:
        super().__init__(config, accelerator)
        interrupt.GRACE_S = float(os.environ.get("CRASH_GRACE_S", interrupt.GRACE_S))

    def __call__(self, *, response: list[str], id: list[Any]) -> RewardModelOutput:
        if any("gate" in text.split() for text in response):
            deadline = time.monotonic() + GATE_TIMEOUT_S
            with flag("heartbeat").open("ab", buffering=0) as heartbeat:
                flag("arrived").touch()
                while not flag("open").exists():
                    assert time.monotonic() < deadline, "nobody opened the gate"
                    heartbeat.write(b".")
                    time.sleep(0.005)
        log_call(self.config.options.tag, id)
        return RewardModelOutput([digest_share(row, *response) for row in range(len(response))])


class StuckReward(PointwiseRewardModel):
    """Never comes back from native code at a row with the word `gate`: no Python runs there."""

    Options = Pace

    def __call__(self, *, response: list[str], id: list[Any]) -> RewardModelOutput:
        if any("gate" in text.split() for text in response):
            flag("arrived").touch()
            lock = ctypes.create_string_buffer(64)  # a pthread mutex, zeroed is PTHREAD_MUTEX_INIT
            libc = ctypes.CDLL(None)
            libc.pthread_mutex_lock(lock)
            libc.pthread_mutex_lock(lock)
        log_call(self.config.options.tag, id)
        return RewardModelOutput([float(len(text)) for text in response])


def repaired_bonus(response: Sequence[str]) -> float:
    """0 before the repair, 100 after it; no flaky row gets a score before."""
    if flag("repaired").exists():
        return 100.0
    if any("flaky" in text.split() for text in response):
        raise RuntimeError("the service is down")
    return 0.0


class FlakyReward(PointwiseRewardModel):
    """Raises at a row with the word `flaky` until the flag file `repaired` is there; from then on
    all scores are 100 more.
    """

    Options = Pace

    def __call__(self, *, response: list[str], id: list[Any]) -> RewardModelOutput:
        time.sleep(self.config.options.pause_ms / 1000)
        log_call(self.config.options.tag, id)
        more = repaired_bonus(response)
        return RewardModelOutput([more + digest_share(text) for text in response])


class FlakyGroupReward(GroupwiseRewardModel):
    """As FlakyReward, for groups; a score depends on the whole group."""

    Options = Pace

    def __call__(self, *, response: list[str], id: list[Any]) -> RewardModelOutput:
        time.sleep(self.config.options.pause_ms / 1000)
        log_call(self.config.options.tag, id)
        more = repaired_bonus(response)
        return RewardModelOutput([more + len(text) + digest_share(*response) for text in response])


class LengthReward(PointwiseRewardModel):
    """Characters of the response."""

    def __call__(self, *, response: list[str]) -> RewardModelOutput:
        return RewardModelOutput([float(len(text)) for text in response])


class RedReward(PointwiseRewardModel):
    """Mean of the red channel in [0, 1]."""

    thread_safe = True

    def __call__(self, *, image: list[Image.Image]) -> RewardModelOutput:
        def red(picture: Image.Image) -> float:
            pixels = picture.getchannel("R").tobytes()
            return sum(pixels) / len(pixels) / 255

        return RewardModelOutput([red(picture) for picture in image])
