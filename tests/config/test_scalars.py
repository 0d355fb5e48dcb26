"""YAML 1.2 core scalars: the tables of section 10.3.2 of the YAML 1.2.2 specification."""

import math

import pytest

from rewardctl.config.scalars import (
    MAX_DIGITS,
    BadScalar,
    has_leading_zero,
    resolve_plain,
    resolve_tagged,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1e-4", 0.0001),
        ("5e-1", 0.5),
        ("1E-2", 0.01),
        (".5", 0.5),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("+12e03", 12000.0),
        ("-2E+05", -200000.0),
    ],
)
def test_a_number_with_point_or_exponent_is_a_float(text: str, value: float) -> None:
    resolved = resolve_plain(text)
    assert type(resolved) is float
    assert resolved == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("-19", -19), ("+3", 3), ("0x1F", 31), ("0o17", 15), ("012", 12), ("-0", 0)],
)
def test_digits_are_a_whole_number(text: str, value: int) -> None:
    resolved = resolve_plain(text)
    assert type(resolved) is int
    assert resolved == value


@pytest.mark.parametrize("text", ["no", "yes", "on", "off", "y", "n", "No", "ON", "tRUE"])
def test_old_booleans_are_text(text: str) -> None:
    assert resolve_plain(text) == text


@pytest.mark.parametrize("text", ["true", "True", "TRUE"])
def test_true_is_a_bool(text: str) -> None:
    assert resolve_plain(text) is True


@pytest.mark.parametrize("text", ["false", "False", "FALSE"])
def test_false_is_a_bool(text: str) -> None:
    assert resolve_plain(text) is False


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_null_is_none(text: str) -> None:
    assert resolve_plain(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "2020-01-01",
        "12:30:45",
        "1_000",
        "1,000",
        "0b101",
        "0o8",
        "0xG",
        "1e",
        "+",
        "-",
        ".",
        "1.2.3",
    ],
)
def test_dates_base_60_and_odd_numbers_are_text(text: str) -> None:
    assert resolve_plain(text) == text


@pytest.mark.parametrize(
    ("text", "value"), [(".inf", math.inf), ("-.INF", -math.inf), ("+.Inf", math.inf)]
)
def test_infinity_is_a_float(text: str, value: float) -> None:
    assert resolve_plain(text) == value


def test_nan_is_a_float() -> None:
    assert math.isnan(resolve_plain(".nan"))


def test_a_number_of_many_digits_is_refused() -> None:
    with pytest.raises(BadScalar, match="a number of 5000 characters, expected at most 400"):
        resolve_plain("9" * 5000)


def test_the_longest_allowed_number_is_read() -> None:
    assert resolve_plain("1" * MAX_DIGITS) == int("1" * MAX_DIGITS)


def test_a_tag_decides_the_type() -> None:
    assert resolve_tagged("5", "str") == "5"
    assert resolve_tagged("5", "float") == 5.0


def test_a_tag_that_the_text_does_not_fit_is_refused() -> None:
    with pytest.raises(BadScalar, match="'five' is no value of !!int"):
        resolve_tagged("five", "int")


@pytest.mark.parametrize(
    ("text", "is_old_octal"),
    [("012", True), ("-07", True), ("0", False), ("0.5", False), ("10", False)],
)
def test_leading_zeros_are_noticed(text: str, is_old_octal: bool) -> None:
    assert has_leading_zero(text) is is_old_octal
