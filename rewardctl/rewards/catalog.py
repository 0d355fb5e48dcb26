"""What is known of each registered reward model without building it."""

from dataclasses import dataclass

from rewardctl.errors import ConfigError
from rewardctl.rewards.abc import BaseRewardModel, GroupwiseRewardModel, input_fields
from rewardctl.rewards.class_source import SourceFinder
from rewardctl.rewards.registry import import_class, registered_names


@dataclass(frozen=True)
class RewardEntry:
    """One registered reward model."""

    name: str
    kind: str  # pointwise | groupwise
    summary: str  # first line of its docstring
    required_fields: list[str]
    optional_fields: list[str]
    options: list[str]
    lowest: float | None  # of its scores; None: no bound known
    highest: float | None
    extra: str | None  # that installs its packages; None: it needs none
    installed: bool  # whether they are there


def list_rewards() -> list[RewardEntry]:
    """All registered reward models, by name."""
    finder = SourceFinder()
    return [_entry(name, import_class(name), finder) for name in registered_names()]


def _entry(name: str, reward_class: type[BaseRewardModel], finder: SourceFinder) -> RewardEntry:
    try:
        fields = input_fields(reward_class)
        required, optional = list(fields.required), list(fields.optional)
    except ConfigError:
        required, optional = [], []  # a checkpoint names them
    lowest, highest = reward_class.score_range or (None, None)
    return RewardEntry(
        name=name,
        kind="groupwise" if issubclass(reward_class, GroupwiseRewardModel) else "pointwise",
        summary=(reward_class.__doc__ or "").strip().partition("\n")[0],
        required_fields=required,
        optional_fields=optional,
        options=list(reward_class.Options.model_fields) if reward_class.Options else [],
        lowest=lowest,
        highest=highest,
        extra=reward_class.extra,
        installed=all(finder.find(module) for module in reward_class.requires),
    )
