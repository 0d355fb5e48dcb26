"""Whether the response matches a regular expression."""

import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from rewardctl.config.schema import RewardArguments
from rewardctl.rewards.abc import PointwiseRewardModel, RewardModelOutput

if TYPE_CHECKING:
    from accelerate import Accelerator


class RegexMatchOptions(BaseModel):
    """What to look for, and where."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    # Python's `re` syntax. Flags are written inline: (?i) ignores case, (?s) lets . match newlines.
    pattern: str
    # anywhere in the response | the whole response
    match: Literal["search", "fullmatch"] = "search"
    invert: bool = False  # True: 1.0 where the pattern is absent

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return pattern


class RegexMatchReward(PointwiseRewardModel):
    """1.0 where the response matches `pattern`, 0.0 where it does not.

    Python's engine backtracks: a pattern with nested repeats, as (a+)+, can take very long on a
    long response.
    """

    required_fields = ("response",)
    # Not only safe: matching holds the interpreter's lock, so more workers bring no speed.
    thread_safe = True
    default_batch_size = 1024
    Options = RegexMatchOptions
    score_range = (0.0, 1.0)

    def __init__(self, config: RewardArguments, accelerator: "Accelerator") -> None:
        super().__init__(config, accelerator)
        self.options: RegexMatchOptions = config.options
        pattern = re.compile(self.options.pattern)
        self._find = pattern.fullmatch if self.options.match == "fullmatch" else pattern.search

    def __call__(self, *, response: list[str], **_: Any) -> RewardModelOutput:
        """Scores: 1.0 or 0.0."""
        return RewardModelOutput([float(self._matches(text)) for text in response])

    def _matches(self, text: str) -> bool:
        return (self._find(text) is not None) != self.options.invert
