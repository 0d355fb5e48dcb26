"""The length of the response, plain or held to a window."""

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rewardctl.config.schema import RewardArguments
from rewardctl.rewards.abc import PointwiseRewardModel, RewardModelOutput

if TYPE_CHECKING:
    from accelerate import Accelerator


class LengthOptions(BaseModel):
    """Without `min` and `max` the score is the length itself; with either, how well it fits."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    # Unicode code points | what stands between white space
    unit: Literal["characters", "words"] = "characters"
    min: int | None = Field(default=None, ge=1)  # shortest length that scores 1.0; None: no limit
    max: int | None = Field(default=None, ge=1)  # longest length that scores 1.0; None: no limit

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min is {self.min} and max is {self.max}, expected min <= max")
        return self


class LengthReward(PointwiseRewardModel):
    """Length of the response, in characters or words.

    Without a window the score is that length: >= 0, longer is better (a negative weight makes
    shorter better). With `min` or `max` it lies in [0, 1]: 1.0 within them, length/min below (0.0
    for an empty response), and above a straight fall from 1.0 at max to 0.0 at twice max: 2 -
    length/max.
    """

    required_fields = ("response",)
    thread_safe = True
    default_batch_size = 1024
    Options = LengthOptions
    score_range: tuple[float | None, float | None] | None = (0.0, None)

    def __init__(self, config: RewardArguments, accelerator: "Accelerator") -> None:
        super().__init__(config, accelerator)
        self.options: LengthOptions = config.options
        if self.options.min is not None or self.options.max is not None:
            self.score_range = (0.0, 1.0)

    def __call__(self, *, response: list[str], **_: Any) -> RewardModelOutput:
        """Scores: the length, or its fit to the window."""
        return RewardModelOutput([self._fit(self._measure(text)) for text in response])

    def _measure(self, text: str) -> int:
        return len(text.split()) if self.options.unit == "words" else len(text)

    def _fit(self, length: int) -> float:
        shortest, longest = self.options.min, self.options.max
        if shortest is None and longest is None:
            return float(length)
        if shortest is not None and length < shortest:
            return length / shortest
        if longest is not None and length > longest:
            return max(0.0, 2.0 - length / longest)
        return 1.0
