"""From what a reward model returned to float64 scores, checked against the contract."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rewardctl.errors import ContractError, RowError, quote

NEXT = "return one number for each input, in order, of shape (n,) or (n, 1)"


@dataclass(slots=True)
class CallResult:
    """Scores of one call, one place an input: float64, or None where `faults` says why there is
    none.
    """

    scores: list[float | None]
    faults: dict[int, RowError] = field(default_factory=dict)  # by place in the call


def read_scores(output: Any, n: int) -> CallResult:
    """The `n` scores of a RewardModelOutput, tensor, array or list; non-finite ones become faults.

    Low-precision tensors are widened exactly: bfloat16 and float16 values are float64 values.

    Raises:
        ContractError: a wrong count, a scalar for a list, a wrong shape, or entries that are no
            numbers.
    """
    returned = getattr(output, "rewards", output)
    values = _as_numbers(returned, n)
    if len(values) != n:
        raise ContractError(
            f"returned {_count(len(values), 'score')} for {_count(n, 'input')}; {NEXT}"
        )
    if math.isfinite(sum(values)):  # so each of them is
        return CallResult([*values])
    result = CallResult([])
    for place, value in enumerate(values):
        if math.isfinite(value):
            result.scores.append(value)
        else:
            result.scores.append(None)
            result.faults[place] = RowError("nonfinite", f"the model returned {value}")
    return result


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _as_numbers(returned: Any, n: int) -> list[float]:
    if isinstance(returned, (list, tuple)):
        return _numbers(returned)
    shape = getattr(returned, "shape", None)
    if shape is None or not hasattr(returned, "tolist"):
        kind = "a scalar" if isinstance(returned, (int, float)) else f"{type(returned).__name__}"
        raise ContractError(f"returned {kind} ({quote(returned)}) for {_count(n, 'input')}; {NEXT}")
    shape = tuple(shape)
    if len(shape) == 0 or len(shape) > 2 or (len(shape) == 2 and shape[1] != 1):
        what = "a scalar" if not shape else f"shape {shape}"
        raise ContractError(f"returned {what} for {_count(n, 'input')}; {NEXT}")
    if hasattr(returned, "detach"):
        returned = returned.detach().cpu()
    return _numbers(returned.reshape(-1).tolist())


def _numbers(entries: Sequence[Any]) -> list[float]:
    if {*map(type, entries)} == {float}:  # nearly always
        return list(entries)
    return [_number(entry, place) for place, entry in enumerate(entries)]


def _number(entry: Any, place: int) -> float:
    if isinstance(entry, (list, tuple)) and len(entry) == 1:
        entry = entry[0]
    if type(entry) is float:
        return entry
    if isinstance(entry, (int, float)) and abs(entry) < 10**308:
        return float(entry)
    if getattr(entry, "shape", None) in ((), (1,)) and hasattr(entry, "item"):
        number = entry.item()
        if isinstance(number, (int, float)):
            return float(number)
    raise ContractError(
        f"entry {place} of what it returned is {quote(entry)}, not a number; {NEXT}"
    )
