"""Names of reward models and where their classes live. Nothing is imported before a class is asked
for.
"""

import importlib
import sys
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

from rewardctl.errors import ConfigError, quote

if TYPE_CHECKING:
    from rewardctl.rewards.abc import BaseRewardModel

# The only line that a new reward model needs outside its own file: lower-case name ->
# "module:Class".
BUILTIN: dict[str, str] = {
    "length": "rewardctl.rewards.builtin.length:LengthReward",
    "regex_match": "rewardctl.rewards.builtin.regex_match:RegexMatchReward",
    "repetition": "rewardctl.rewards.builtin.repetition:RepetitionReward",
    "reference_match": "rewardctl.rewards.builtin.reference_match:ReferenceMatchReward",
    "json_valid": "rewardctl.rewards.builtin.json_valid:JsonValidReward",
    "jpeg_size": "rewardctl.rewards.builtin.jpeg_size:JpegSizeReward",
    "sharpness": "rewardctl.rewards.builtin.sharpness:SharpnessReward",
    "group_diversity": "rewardctl.rewards.builtin.group_diversity:GroupDiversityReward",
    "ocr": "rewardctl.rewards.builtin.ocr:OcrReward",
    "text_similarity": "rewardctl.rewards.builtin.text_similarity:TextSimilarityReward",
    "trained": "rewardctl.rewards.builtin.trained:TrainedReward",
    "image_safety": "rewardctl.rewards.builtin.image_safety:ImageSafetyReward",
}
_registered: dict[str, type["BaseRewardModel"]] = {}

RewardClass = TypeVar("RewardClass", bound="type[BaseRewardModel]")


def registered_names() -> list[str]:
    """All names that a config may use for `reward_model`, sorted."""
    return sorted({*BUILTIN, *_registered})


def register_reward_model(name: str) -> Callable[[RewardClass], RewardClass]:
    """Class decorator: make a reward model known under `name` (any case) in this process.

    Raises:
        ConfigError: another class has the name already.
    """

    def register(reward_class: RewardClass) -> RewardClass:
        key = name.lower()
        taken = _registered.get(key)
        if key in BUILTIN or (
            taken is not None and taken.__qualname__ != reward_class.__qualname__
        ):
            raise ConfigError(f"reward model name {quote(name)} is taken; choose another")
        _registered[key] = reward_class
        return reward_class

    return register


def split_dotted(reward_model: str) -> tuple[str, str] | None:
    """("package.module", "Class") of a dotted path in either spelling; None for a plain name."""
    separator = ":" if ":" in reward_model else "."
    module, _, class_name = reward_model.rpartition(separator)
    return (module, class_name) if module and class_name else None


def unknown_name(reward_model: str) -> str:
    """The message for a name that nothing goes by."""
    near = get_close_matches(reward_model.lower(), registered_names(), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return (
        f"unknown reward_model {quote(reward_model)}: {hint}registered are "
        f"{', '.join(registered_names())}; a class of your own is written package.module:Class"
    )


def import_class(reward_model: str) -> type["BaseRewardModel"]:
    """The class that a config's `reward_model` names: registry first, dotted path next.

    Raises:
        ConfigError: nothing goes by that name, its module cannot be imported, or it is no reward
            model.
    """
    name = reward_model.lower()
    if name in _registered:
        return _registered[name]
    target = BUILTIN.get(name, reward_model)
    dotted = split_dotted(target)
    if dotted is None:
        raise ConfigError(unknown_name(reward_model))
    module_name, class_name = dotted
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ConfigError(
                f"reward_model {quote(reward_model)}: no module {error.name!r} in python_path or "
                "the "
                f"installed packages; searched {', '.join(map(quote, sys.path[-3:]))} last"
            ) from error
        raise ConfigError(
            f"reward_model {quote(reward_model)}: its module needs {error.name!r}, which is not "
            "installed"
        ) from error
    except AttributeError as error:
        raise ConfigError(
            f"reward_model {quote(reward_model)}: module {module_name!r} has no class "
            f"{class_name!r}"
        ) from error
    return _reward_class(found, reward_model)


def _reward_class(found: object, reward_model: str) -> type["BaseRewardModel"]:
    from rewardctl.rewards.abc import GroupwiseRewardModel, PointwiseRewardModel

    if isinstance(found, type) and issubclass(found, (PointwiseRewardModel, GroupwiseRewardModel)):
        return found
    raise ConfigError(
        f"reward_model {quote(reward_model)} is {quote(found)}, expected a subclass of "
        "PointwiseRewardModel or GroupwiseRewardModel (from rewardctl.rewards import ...)"
    )
