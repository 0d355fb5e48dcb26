"""The labels of a preference row: how strongly which side is better. Sides are in
preference_sides.py.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from rewardctl.errors import RowError, quote

COLUMNS = frozenset(
    {
        "direction",
        "margin",
        "preference",
        "ranking",
        "score_chosen",
        "score_rejected",
        "scores",
        "timestep",
        "weight",
    }
)
_DIRECTIONS = ("higher_is_better", "lower_is_better")


class Labels(NamedTuple):
    """What a row says of its sides."""

    ranks: tuple[float, ...] | None  # None: a pair; else higher is better, equal is a tie
    margin: float | None  # strength of the label, >= 0; None: the neutral one
    preference: float  # probability that the first side is better; 0.5 is a tie
    weight: float  # > 0
    timestep: float | None  # in [0, 1]


def read_labels(record: dict[str, Any], sides: int, direction: str | None) -> Labels:
    """The labels of a row; with `candidates` it is a K-wise one.

    Args:
        direction: What `ranking` or `scores` mean where the row does not say it.

    Raises:
        RowError: `bad_row`; a label of a wrong type or range, or one that is missing.
    """
    is_pair = record.get("candidates") is None
    return Labels(
        ranks=None if is_pair else _ranks(record, sides, direction),
        margin=_margin(record, is_pair=is_pair),
        preference=_preference(record, is_pair=is_pair),
        weight=_number(record, "weight", _weight_problem) or 1.0,
        timestep=_number(record, "timestep", _timestep_problem),
    )


def _ranks(record: dict[str, Any], candidates: int, direction: str | None) -> tuple[float, ...]:
    """One number a candidate, higher is better."""
    given = [name for name in ("ranking", "scores") if record.get(name) is not None]
    if len(given) != 1:
        found = "both" if given else f"column(s) {quote(sorted(record))}"
        raise RowError(
            "bad_row",
            f"expected 'ranking' or 'scores' beside 'candidates', one of them, found {found}",
        )
    numbers = record[given[0]]
    if type(numbers) is not list or len(numbers) != candidates:
        found = f"{len(numbers)} of them" if type(numbers) is list else quote(numbers)
        raise RowError(
            "bad_row",
            f"column {given[0]!r}: expected one number for each of {candidates} candidates, "
            f"found {found}; equal numbers are ties",
        )
    values = [_finite(f"{given[0]}[{place}]", value) for place, value in enumerate(numbers)]
    sign = 1.0 if _direction(record, given[0], direction) == _DIRECTIONS[0] else -1.0
    return tuple(sign * value for value in values)


def _direction(record: dict[str, Any], column: str, given: str | None) -> str:
    own = record.get("direction")
    choices = " or ".join(_DIRECTIONS)
    if own is None and given is None:
        raise RowError(
            "bad_row",
            f"'{column}' has no direction: say direction: {choices} in the row, "
            "or beside the file's path",
        )
    if own is not None and own not in _DIRECTIONS:
        raise RowError("bad_row", f"column 'direction': expected {choices}, found {quote(own)}")
    if own is not None and given is not None and own != given:
        raise RowError(
            "bad_row", f"column 'direction' is {own}, but the file is declared {given}; keep one"
        )
    return str(own or given)


def _margin(record: dict[str, Any], *, is_pair: bool) -> float | None:
    margin = _number(record, "margin", _margin_problem)
    if not is_pair:
        _refuse_pair_label("margin", margin)
        return None
    scores = record.get("score_chosen"), record.get("score_rejected")
    if margin is not None or None in scores:
        return margin
    chosen, rejected = map(_finite, ("score_chosen", "score_rejected"), scores)
    if chosen < rejected:
        raise RowError(
            "bad_row",
            f"score_chosen is {chosen}, below score_rejected {rejected}; swap chosen and rejected?",
        )
    return chosen - rejected


def _preference(record: dict[str, Any], *, is_pair: bool) -> float:
    preference = _number(record, "preference", _preference_problem)
    if not is_pair:
        _refuse_pair_label("preference", preference)
    return 1.0 if preference is None else preference


def _refuse_pair_label(column: str, value: float | None) -> None:
    if value is not None:
        raise RowError(
            "bad_row", f"column {column!r} belongs to pairs, found it beside 'candidates'; drop it"
        )


def _number(
    record: dict[str, Any], column: str, problem: Callable[[float], str | None]
) -> float | None:
    """A number column; `problem` says what was expected of a number that cannot be."""
    value = record.get(column)
    if value is None:
        return None
    number = _finite(column, value)
    expected = problem(number)
    if expected:
        raise RowError("bad_row", f"column {column!r}: expected {expected}")
    return number


def _finite(column: str, value: object) -> float:
    if type(value) is float or type(value) is int:
        try:
            return float(value)
        except OverflowError:
            pass
    raise RowError(
        "bad_row", f"column {column!r}: expected a finite number, found {quote(value)}; correct it"
    )


def _margin_problem(margin: float) -> str | None:
    return None if margin >= 0 else f"a number >= 0, found {margin}; swap chosen and rejected?"


def _preference_problem(preference: float) -> str | None:
    if 0 <= preference <= 1:
        return None
    return f"a probability from 0 to 1, found {preference}; 0.5 is a tie"


def _weight_problem(weight: float) -> str | None:
    return None if weight > 0 else f"a number > 0, found {weight}; leave the row out instead?"


def _timestep_problem(timestep: float) -> str | None:
    if 0 <= timestep <= 1:
        return None
    hint = "divide by 1000?" if timestep > 1 else "0 is the clean sample"
    return f"a number in [0, 1], found {timestep}; {hint}"
