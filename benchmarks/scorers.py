"""Reward models that cost next to nothing: what is measured is the framework around them."""

import time
from typing import Any

from rewardctl.rewards import GroupwiseRewardModel, PointwiseRewardModel

CALL_S = 0.08  # of the model that sleeps


class InstantText(PointwiseRewardModel):
    """A constant for each prompt and response."""

    required_fields = ("prompt", "response")
    thread_safe = True

    def __call__(self, prompt: list[str], response: list[str], **_: Any) -> list[float]:
        """Scores of no meaning."""
        return [0.5] * len(response)


class InstantGroup(GroupwiseRewardModel):
    """A constant for each member of a group."""

    required_fields = ("response",)
    thread_safe = True

    def __call__(self, response: list[str], **_: Any) -> list[float]:
        """Scores of no meaning."""
        return [0.5] * len(response)


class InstantImage(PointwiseRewardModel):
    """The width of each image: known without a look at its pixels."""

    required_fields = ("image",)
    thread_safe = True

    def __call__(self, image: list[Any], **_: Any) -> list[float]:
        """Scores in pixels."""
        return [float(picture.width) for picture in image]


class SleepingText(PointwiseRewardModel):
    """Waits as a remote model does, on no core."""

    required_fields = ("response",)
    thread_safe = True

    def __call__(self, response: list[str], **_: Any) -> list[float]:
        """Scores of no meaning."""
        time.sleep(CALL_S)
        return [0.5] * len(response)
