"""A groupwise reward model of one's own: clips of one prompt are compared with each other."""

from itertools import pairwise
from typing import Any

from PIL import Image, ImageChops, ImageStat

from rewardctl.rewards import GroupwiseRewardModel, RewardModelOutput


class MotionRankReward(GroupwiseRewardModel):
    """Share of the other clips of the group that move less, a tie counting half.

    0 to 1, higher moves more. A group of one has nobody to be compared with and scores 0.5.
    """

    required_fields = ("video",)
    score_range = (0.0, 1.0)

    def __call__(self, video: list[list[Image.Image]], **kwargs: Any) -> RewardModelOutput:
        motions = [motion(frames) for frames in video]
        if len(motions) == 1:
            return RewardModelOutput(rewards=[0.5])
        return RewardModelOutput(rewards=[rank(own, motions) for own in motions])


def motion(frames: list[Image.Image]) -> float:
    """Mean difference between neighbouring frames, in grey levels (0 to 255)."""
    grey = [frame.convert("L") for frame in frames]
    steps = [
        ImageStat.Stat(ImageChops.difference(before, after)).mean[0]
        for before, after in pairwise(grey)
    ]
    return sum(steps) / len(steps) if steps else 0.0


def rank(own: float, motions: list[float]) -> float:
    """Where `own`, one of `motions`, stands among the others."""
    below = sum(other < own for other in motions)
    tied = sum(other == own for other in motions) - 1
    return (below + 0.5 * tied) / (len(motions) - 1)
