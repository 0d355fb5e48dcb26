"""How little the response repeats itself: the share of its n-grams that are distinct."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rewardctl.config.schema import RewardArguments
from rewardctl.rewards.abc import PointwiseRewardModel, RewardModelOutput

if TYPE_CHECKING:
    from accelerate import Accelerator


class RepetitionOptions(BaseModel):
    """What is counted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    n: int = Field(default=3, ge=1, le=100)  # units of one n-gram
    # Split at white space | characters but white space, for languages that write no spaces.
    unit: Literal["words", "characters"] = "words"


class RepetitionReward(PointwiseRewardModel):
    """Distinct n-grams of the response divided by all of them: in (0, 1], 1.0 where none repeats.

    This is distinct-n of Li et al. 2016, "A Diversity-Promoting Objective Function for Neural
    Conversation Models", with the number of n-grams (not of tokens) below the line, so that 1.0 can
    be reached. Case is ignored. A response of fewer than n units repeats nothing: 1.0, the empty
    one too; add a `length` stream if short responses should not profit.
    """

    required_fields = ("response",)
    thread_safe = True
    default_batch_size = 1024
    Options = RepetitionOptions
    score_range = (0.0, 1.0)

    def __init__(self, config: RewardArguments, accelerator: "Accelerator") -> None:
        super().__init__(config, accelerator)
        self.options: RepetitionOptions = config.options

    def __call__(self, *, response: list[str], **_: Any) -> RewardModelOutput:
        """Scores: the share of distinct n-grams."""
        return RewardModelOutput([self._distinct_share(text) for text in response])

    def _distinct_share(self, text: str) -> float:
        words = text.casefold().split()
        units = list("".join(words)) if self.options.unit == "characters" else words
        n = self.options.n
        ngrams = [tuple(units[start : start + n]) for start in range(len(units) - n + 1)]
        return len(set(ngrams)) / len(ngrams) if ngrams else 1.0
