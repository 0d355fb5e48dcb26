"""Versions for bug reports."""

import platform

from rewardctl import __version__
from rewardctl.runs.environment import describe_environment


def test_versions_are_those_of_what_runs() -> None:
    facts = describe_environment(devices=False)
    assert (facts["rewardctl"], facts["python"]) == (__version__, platform.python_version())
    assert {"torch", "typer", "pydantic"} <= facts["packages"].keys()
    assert "pytest" not in facts["packages"]
    assert "devices" not in facts


def test_devices_are_asked_for_on_demand() -> None:
    devices = describe_environment(devices=True)["devices"]
    assert isinstance(devices["cuda"], list)
    assert isinstance(devices["mps"], bool)
