"""How different a response is from the other responses of its group."""

import math
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from rewardctl.config.schema import RewardArguments
from rewardctl.rewards.abc import GroupwiseRewardModel, RewardModelOutput

if TYPE_CHECKING:
    from accelerate import Accelerator

NGram = tuple[str, ...]


class GroupDiversityOptions(BaseModel):
    """What is compared."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    n: int = Field(default=2, ge=1, le=100)  # words of one n-gram


class GroupDiversityReward(GroupwiseRewardModel):
    """1 - mean Jaccard similarity of a response's word n-grams to each other member's: in [0, 1].

    0.0: all others have the same n-grams; 1.0: no n-gram is shared. A group of one has nothing to
    differ from: 0.0. Case is ignored, words are split at white space. A response of fewer than n
    words is one n-gram; two empty responses are alike (similarity 1).
    """

    required_fields = ("response",)
    thread_safe = True
    Options = GroupDiversityOptions
    score_range = (0.0, 1.0)

    def __init__(self, config: RewardArguments, accelerator: "Accelerator") -> None:
        super().__init__(config, accelerator)
        self.options: GroupDiversityOptions = config.options

    def __call__(self, *, response: list[str], **_: Any) -> RewardModelOutput:
        """Scores of one complete group."""
        members = [word_ngrams(text, n=self.options.n) for text in response]
        if len(members) == 1:
            return RewardModelOutput([0.0])
        similarities: list[list[float]] = [[] for _ in members]
        for i, first in enumerate(members):
            for j in range(i + 1, len(members)):
                similarity = jaccard(first, members[j])
                similarities[i].append(similarity)
                similarities[j].append(similarity)
        # fsum is exact, so the order of the members does not show in the last digit.
        others = len(members) - 1
        return RewardModelOutput([1.0 - math.fsum(row) / others for row in similarities])


def word_ngrams(text: str, *, n: int) -> frozenset[NGram]:
    """The distinct word n-grams of a text; a text of fewer words is one shorter n-gram."""
    words = text.casefold().split()
    if 0 < len(words) < n:
        return frozenset([tuple(words)])
    return frozenset(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


def jaccard(first: frozenset[NGram], second: frozenset[NGram]) -> float:
    """Shared members divided by all members; 1.0 for two empty sets."""
    shared = len(first & second)
    total = len(first) + len(second) - shared
    return shared / total if total else 1.0
