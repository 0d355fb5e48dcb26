"""The trainable reward model and its training; names are imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewardctl.data.preference_dataset import (
        PreferenceDataset as PreferenceDataset,
        PreferencePair as PreferencePair,
        RankedSamples as RankedSamples,
        StepwisePreference as StepwisePreference,
    )
    from rewardctl.training.collate import collate_preference_pairs as collate_preference_pairs
    from rewardctl.training.reward_model import (
        RewardModel as RewardModel,
        create_reward_model as create_reward_model,
    )
    from rewardctl.training.trainer import RewardModelTrainer as RewardModelTrainer

_HOMES = {
    "PreferenceDataset": "rewardctl.data.preference_dataset",
    "PreferencePair": "rewardctl.data.preference_dataset",
    "RankedSamples": "rewardctl.data.preference_dataset",
    "StepwisePreference": "rewardctl.data.preference_dataset",
    "RewardModel": "rewardctl.training.reward_model",
    "RewardModelTrainer": "rewardctl.training.trainer",
    "collate_preference_pairs": "rewardctl.training.collate",
    "create_reward_model": "rewardctl.training.reward_model",
}
__all__ = tuple(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
