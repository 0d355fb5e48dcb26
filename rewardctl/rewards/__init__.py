"""The reward contract and what runs it; a name is imported when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewardctl.config.schema import RewardArguments as RewardArguments
    from rewardctl.rewards.abc import (
        BaseRewardModel as BaseRewardModel,
        GroupwiseRewardModel as GroupwiseRewardModel,
        PointwiseRewardModel as PointwiseRewardModel,
        RewardModelOutput as RewardModelOutput,
    )
    from rewardctl.rewards.loader import load_reward_model as load_reward_model
    from rewardctl.rewards.registry import register_reward_model as register_reward_model
    from rewardctl.rewards.reward_buffer import RewardBuffer as RewardBuffer
    from rewardctl.rewards.reward_processor import RewardProcessor as RewardProcessor

_HOMES = {
    "BaseRewardModel": "rewardctl.rewards.abc",
    "GroupwiseRewardModel": "rewardctl.rewards.abc",
    "PointwiseRewardModel": "rewardctl.rewards.abc",
    "RewardArguments": "rewardctl.config.schema",
    "RewardBuffer": "rewardctl.rewards.reward_buffer",
    "RewardModelOutput": "rewardctl.rewards.abc",
    "RewardProcessor": "rewardctl.rewards.reward_processor",
    "load_reward_model": "rewardctl.rewards.loader",
    "register_reward_model": "rewardctl.rewards.registry",
}
__all__ = tuple(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
