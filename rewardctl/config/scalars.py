"""Scalars of the YAML 1.2 core schema: which text is null, a bool, a number or just text."""

import re
from typing import Any

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9A-Fa-f]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
_NAN = frozenset({".nan", ".NaN", ".NAN"})
MAX_DIGITS = 400  # longer than any float; Python itself refuses 4,300 digits and more

# YAML 1.1 reads these as octal and in base 60, YAML 1.2 does not.
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")


class BadScalar(ValueError):
    """A scalar that its tag does not allow, or that is too long to be a number."""


def resolve_plain(text: str) -> Any:
    """The value of a plain (unquoted) scalar.

    Raises:
        BadScalar: a number of more than MAX_DIGITS characters.
    """
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    first = text[0]
    if not (first.isdigit() or first in "+-."):
        return text
    if text in _NAN:
        return float("nan")
    if _INFINITY.fullmatch(text):
        return float("-inf") if first == "-" else float("inf")
    return _number(text)


def _number(text: str) -> Any:
    for pattern, base in ((_INT, 10), (_OCTAL, 8), (_HEX, 16)):
        if pattern.fullmatch(text):
            _check_length(text)
            return int(text, base)
    if _FLOAT.fullmatch(text):
        _check_length(text)
        return float(text)
    return text


def _check_length(text: str) -> None:
    if len(text) > MAX_DIGITS:
        raise BadScalar(f"a number of {len(text)} characters, expected at most {MAX_DIGITS}")


def resolve_tagged(text: str, tag: str) -> Any:
    """The value of a scalar with one of the core tags, as `!!str 5`.

    Raises:
        BadScalar: the text is no value of that type.
    """
    if tag == "str":
        return text
    value = resolve_plain(text)
    if tag == "float" and type(value) is int:
        return float(value)
    kinds = {"null": type(None), "bool": bool, "int": int, "float": float}
    if type(value) is not kinds[tag]:
        raise BadScalar(f"{text[:80]!r} is no value of !!{tag}")
    return value


def has_leading_zero(text: str) -> bool:
    """Whether a plain scalar is an int that YAML 1.1 would read as octal."""
    return _LEADING_ZERO.fullmatch(text) is not None
