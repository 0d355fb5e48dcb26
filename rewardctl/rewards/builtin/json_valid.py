"""Whether the response is JSON."""

import json
import re
from typing import TYPE_CHECKING, Any, Never

from pydantic import BaseModel, ConfigDict, Field

from rewardctl.config.schema import RewardArguments
from rewardctl.rewards.abc import PointwiseRewardModel, RewardModelOutput

if TYPE_CHECKING:
    from accelerate import Accelerator

# Far below Python's own recursion limit, so that the caller's depth does not show in the score.
MAX_NESTING = 256
FENCE = re.compile(r"\s*```(?:json|JSON)?[ \t\r]*\n(?P<body>.*?)```\s*", re.DOTALL)
# A string, closed or cut off by the end of the text, or one bracket.
TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


class JsonValidOptions(BaseModel):
    """What counts as valid beyond being JSON."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    fenced: bool = False  # True: the response may also be one ```json block with nothing around it
    # Not empty: only an object that has all of these at its top level is valid.
    required_keys: list[str] = Field(default_factory=list)


class JsonValidReward(PointwiseRewardModel):
    """1.0 where the whole response is one JSON value (RFC 8259), else 0.0.

    White space around the value is allowed, text is not. NaN, Infinity, trailing commas, comments
    and single quotes are not JSON. Duplicate keys are. Nesting over 256 levels counts as not valid.
    """

    required_fields = ("response",)
    thread_safe = True
    default_batch_size = 1024
    Options = JsonValidOptions
    score_range = (0.0, 1.0)

    def __init__(self, config: RewardArguments, accelerator: "Accelerator") -> None:
        super().__init__(config, accelerator)
        self.options: JsonValidOptions = config.options

    def __call__(self, *, response: list[str], **_: Any) -> RewardModelOutput:
        """Scores: 1.0 or 0.0."""
        return RewardModelOutput([float(self._is_valid(text)) for text in response])

    def _is_valid(self, text: str) -> bool:
        if self.options.fenced and (fence := FENCE.fullmatch(text)):
            text = fence["body"]
        if _nesting(text) > MAX_NESTING:
            return False
        try:
            # Numbers stay text: Python refuses to convert very long ones.
            value = json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str)
        except ValueError:
            return False
        wanted = self.options.required_keys
        return not wanted or (isinstance(value, dict) and all(key in value for key in wanted))


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is not JSON")


def _nesting(text: str) -> int:
    depth = deepest = 0
    for token in TOKEN.finditer(text):
        if token[0] in ("[", "{"):
            depth += 1
            deepest = max(deepest, depth)
        elif token[0] in ("]", "}"):
            depth -= 1
    return deepest
