"""What is known of registered reward models."""

import pytest

from rewardctl.rewards.catalog import list_rewards
from rewardctl.rewards.class_source import SourceFinder
from rewardctl.rewards.registry import BUILTIN


def test_every_registered_reward_model_is_listed() -> None:
    names = [entry.name for entry in list_rewards()]
    assert set(BUILTIN) <= set(names)
    assert names == sorted(names)


def test_an_entry_says_what_its_class_says() -> None:
    entry = next(entry for entry in list_rewards() if entry.name == "group_diversity")
    assert entry.kind == "groupwise"
    assert entry.required_fields == ["response"]
    assert (entry.lowest, entry.highest) == (0.0, 1.0)
    assert (entry.extra, entry.installed) == (None, True)
    assert entry.options == ["n"]


def test_a_reward_model_whose_package_is_nowhere_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SourceFinder, "find", lambda finder, module: None)
    installed = {entry.name: entry.installed for entry in list_rewards()}
    assert (installed["ocr"], installed["length"]) == (False, True)
