"""Whether the response gives the reference answer: as text, or as a number."""

import re
from collections import deque
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from rewardctl.config.schema import RewardArguments
from rewardctl.errors import RowError, quote
from rewardctl.rewards.abc import PointwiseRewardModel, RewardModelOutput
from rewardctl.rewards.builtin import metadata_value

if TYPE_CHECKING:
    from accelerate import Accelerator

# Longer numbers, or larger exponents, are not read: one line could otherwise ask for gigabytes.
MAX_DIGITS = 400
MAX_EXPONENT_DIGITS = 3
DECIMAL = (
    r"(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<![\w.])\.\d+)"  # 1,234.5 or 1234.5 or .5
    r"(?:[eE][+-]?\d+)?"
)
# A sign counts only where nothing stands before it that it could be subtracted from: "5-3" ends in
# 3. Digits inside a word (H2O) or further parts of a version (1.2.3) are no numbers.
NUMBER = re.compile(
    r"(?<!\w)(?<!\w\.)(?P<sign>(?<![\w)\]}%])[-+])?[$€£¥]?"
    r"(?:(?P<whole>\d+)[ ](?=\d+/\d))?"
    rf"(?<!\w)(?<!\w\.)(?P<top>{DECIMAL})(?:[ ]?/[ ]?(?P<bottom>{DECIMAL}))?(?:[ ]?(?P<percent>%))?"
)
PLAIN = (
    (re.compile("\u2212"), "-"),  # the minus sign
    (re.compile(r"\\([%$])"), r"\1"),
    (re.compile(r"\{,\}"), ","),  # 1{,}000
    (re.compile(r"\\[,!; ]"), ""),  # thin spaces
    (re.compile(r"(?<=\d)\s*\\[dt]?frac"), r" \\frac"),  # 1\frac{1}{2} is 1 1/2
    (re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"\1/\2"),
    (re.compile(r"(?<=\d)\s*(?:\\times|\\cdot|×|\*)\s*10\^\{?(-?\d+)\}?"), r"e\1"),
)


class ReferenceMatchOptions(BaseModel):
    """Where the reference stands and how it is compared."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    # Metadata key of the reference: a text, a number, or a list of those, any of which may match.
    key: str = "answer"
    # auto: numeric where the reference is one number, else exact
    mode: Literal["auto", "exact", "numeric"] = "auto"
    tolerance: float = Field(default=0.0, ge=0.0)  # numeric: largest difference, absolute
    ignore_case: bool = False  # exact


class ReferenceMatchReward(PointwiseRewardModel):
    r"""1.0 where the response's final answer is the reference, else 0.0.

    The final answer, of responses and references alike, is what stands in the last \boxed{}; else
    what follows "####", as in GSM8K, on the last line that is not blank; else the whole text.

    exact: equal texts, once white space is trimmed and runs of it are one space.
    numeric: the last number of the final answer against the last number of the reference. Numbers
    may have a sign, commas between thousands, a decimal point, an exponent (1.5e3, 1.5 \times
    10^3); 3/4, \frac{3}{4} and 1 3/4 are fractions. Values are compared exactly: 0.75 = 3/4 =
    .750. Where one side alone has a percent sign, p% equals both p and p/100. A final answer
    without a number scores 0.0, a reference without one is an error.
    """

    required_fields = ("response", "metadata")
    thread_safe = True
    default_batch_size = 1024
    Options = ReferenceMatchOptions
    score_range = (0.0, 1.0)

    def __init__(self, config: RewardArguments, accelerator: "Accelerator") -> None:
        super().__init__(config, accelerator)
        self.options: ReferenceMatchOptions = config.options

    def __call__(self, *, response: list[str], metadata: list[str], **_: Any) -> RewardModelOutput:
        """Scores: 1.0 or 0.0."""
        return RewardModelOutput(
            [float(self._matches(*row)) for row in zip(response, metadata, strict=True)]
        )

    def _matches(self, response: str, metadata: str) -> bool:
        answer = final_answer(response)
        # All of them first: an unusable reference is an error, also behind one that matches.
        equal = [self._equal(answer, text) for text in self._references(metadata)]
        return any(equal)

    def _references(self, metadata: str) -> list[str]:
        key = self.options.key
        value = metadata_value(metadata, key)
        references = value if isinstance(value, list) else [value]
        if not references or not all(
            isinstance(one, str | int | float) and not isinstance(one, bool) for one in references
        ):
            raise RowError(
                "model_error",
                f"metadata key {quote(key)}: expected a text, a number or a list of those, "
                f"got {quote(value)}",
            )
        return [final_answer(str(one)) for one in references]

    def _equal(self, answer: str, reference: str) -> bool:
        if self.options.mode == "exact" or (
            self.options.mode == "auto" and not is_number(reference)
        ):
            return self._same_text(answer, reference)
        wanted = last_number(reference)
        if wanted is None:
            raise RowError(
                "model_error",
                f"metadata key {quote(self.options.key)}: no number in the reference "
                f"{quote(reference)}; use mode: exact or auto",
            )
        found = last_number(answer)
        return found is not None and found.equals(wanted, tolerance=self.options.tolerance)

    def _same_text(self, answer: str, reference: str) -> bool:
        texts = [" ".join(text.split()) for text in (answer, reference)]
        if self.options.ignore_case:
            texts = [text.casefold() for text in texts]
        return texts[0] == texts[1]


class Number(NamedTuple):
    """A number as written: `is_percent` says whether a percent sign followed its value."""

    value: Fraction
    is_percent: bool

    def equals(self, other: "Number", *, tolerance: float) -> bool:
        """Equal values; where one alone has a percent sign, that one may also be a hundredth."""
        if abs(self.value - other.value) <= tolerance:
            return True
        if self.is_percent == other.is_percent:
            return False
        own, others = (one.value / 100 if one.is_percent else one.value for one in (self, other))
        return abs(own - others) <= tolerance


def final_answer(text: str) -> str:
    r"""What stands in the last \boxed{}, else after #### on the last line, else the whole text."""
    start = text.rfind("\\boxed{")
    if start >= 0 and (boxed := _braced(text[start + len("\\boxed{") :])) is not None:
        return boxed
    lines = text.rstrip().splitlines()
    if lines and "####" in lines[-1]:
        return lines[-1].rpartition("####")[2]
    return text


def _braced(text: str) -> str | None:
    """The text up to the brace that closes the one just before it; None where nothing does."""
    depth = 1
    for position, sign in enumerate(text):
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return text[:position]
    return None


def last_number(text: str) -> Number | None:
    """The last number of a text; None where there is none, or where it cannot be read."""
    matches = deque(NUMBER.finditer(_plain(text)), maxlen=1)
    return _read(matches[0]) if matches else None


def is_number(text: str) -> bool:
    """Whether a text is one number and nothing else (a closing full stop or dollar signs apart)."""
    match = NUMBER.fullmatch(_plain(text).strip().strip("$").removesuffix("."))
    return match is not None and _read(match) is not None


def _plain(text: str) -> str:
    for pattern, plain in PLAIN:
        text = pattern.sub(plain, text)
    return text


def _read(match: "re.Match[str]") -> Number | None:
    whole, top, bottom = (
        _value(match[part] or default)
        for part, default in (("whole", "0"), ("top", "0"), ("bottom", "1"))
    )
    if whole is None or top is None or not bottom:
        return None
    value = whole + top / bottom
    return Number(-value if match["sign"] == "-" else value, match["percent"] is not None)


def _value(text: str) -> Fraction | None:
    digits, _, exponent = text.replace(",", "").lower().partition("e")
    if len(digits) > MAX_DIGITS or len(exponent.lstrip("+-")) > MAX_EXPONENT_DIGITS:
        return None
    return Fraction(digits) * Fraction(10) ** int(exponent or 0)
