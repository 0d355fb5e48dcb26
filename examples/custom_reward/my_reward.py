"""A reward model of one's own in one file: how many of the prompt's words the response takes up."""

import re
from typing import Any

from pydantic import BaseModel, Field

from rewardctl.rewards import PointwiseRewardModel, RewardModelOutput

WORD = re.compile(r"\w+")


class PromptWordsReward(PointwiseRewardModel):
    """Share of the prompt's distinct longer words that occur in the response.

    0 to 1, higher is better.
    """

    required_fields = ("prompt", "response")
    score_range = (0.0, 1.0)

    class Options(BaseModel):
        """What `options:` of a stream may hold."""

        min_length: int = Field(default=4, ge=1)  # characters; shorter words do not count

    def __call__(self, prompt: list[str], response: list[str], **kwargs: Any) -> RewardModelOutput:
        shares = [self.share(asked, given) for asked, given in zip(prompt, response, strict=True)]
        return RewardModelOutput(rewards=shares)

    def share(self, prompt: str, response: str) -> float:
        """One score; a prompt without longer words is fully taken up."""
        wanted = {word for word in words(prompt) if len(word) >= self.config.options.min_length}
        return len(wanted & words(response)) / len(wanted) if wanted else 1.0


def words(text: str) -> set[str]:
    """The distinct words of a text, in lower case."""
    return set(WORD.findall(text.lower()))
