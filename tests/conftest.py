"""What tests of several folders share: one thread, one accelerator, a folder to score in."""

import importlib.metadata
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from hypothesis import HealthCheck, settings

sys.path.append(str(Path(__file__).parent))

import probes

# How fast examples come says more about the machine than about the code.
settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Torch on one thread, so that sums come in one order."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def accelerator() -> Accelerator:
    """The accelerator of all tests, on CPU."""
    return Accelerator(cpu=True)


@pytest.fixture
def calls() -> Iterator[list[tuple[str, tuple[str, ...]]]]:
    """What the probes were called with in this test."""
    probes.CALLS.clear()
    probes.REFUSED.clear()
    yield probes.CALLS
    probes.CALLS.clear()
    probes.REFUSED.clear()


@pytest.fixture
def project(tmp_path: Path, accelerator: Accelerator, calls: object) -> probes.ScoreProject:
    """A folder of its own to score in."""
    return probes.ScoreProject(tmp_path, accelerator)


@pytest.fixture
def quick_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of runs in one test need not wait for the disk, nor read package facts anew."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(importlib.metadata, "version", cache(importlib.metadata.version))
