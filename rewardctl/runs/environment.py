"""Versions and devices for bug reports. torch is imported only when devices are asked for."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from rewardctl import __version__

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def describe_environment(*, devices: bool) -> dict[str, Any]:
    """Versions of Python, rewardctl and what it may use; None for a package that is not there.

    Args:
        devices: Ask torch for accelerators too, which takes seconds.
    """
    facts: dict[str, Any] = {
        "rewardctl": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "packages": {name: _version(name) for name in _packages()},
    }
    if devices:
        facts["devices"] = _devices()
    return facts


def _packages() -> list[str]:
    """Names of the required and the optional packages, without tools for development."""
    try:
        lines = requires("rewardctl") or []
    except PackageNotFoundError:
        return []
    is_dev = re.compile(r"""extra\s*==\s*['"]dev['"]""")
    names = {match[0] for line in lines if not is_dev.search(line) and (match := _NAME.match(line))}
    return sorted(names - {"rewardctl"}, key=str.lower)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices() -> dict[str, Any]:
    import torch

    return {
        "cuda": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "mps": torch.backends.mps.is_available(),
        "threads": torch.get_num_threads(),
    }
