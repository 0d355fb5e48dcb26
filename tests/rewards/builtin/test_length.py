"""`length`: plain lengths, and the fit to a window."""

import pytest

from rewardctl.data.samples import BaseSample
from rewardctl.errors import ConfigError
from rewardctl.testing import check_contract


def scores(model, *texts):
    return model(response=list(texts)).rewards


def test_keeps_the_contract(build):
    samples = [BaseSample(response=text) for text in ("a", "", "abc", "ab cd", "äöü" * 9)]
    check_contract(build("length"), samples)
    check_contract(build("length", min=2, max=4), samples)


def test_counts_characters(build):
    # An emoji is one code point, "é" written with a combining accent is two.
    assert scores(build("length"), "", "four", "日本", "😀", "e\u0301") == [0.0, 4.0, 2.0, 1.0, 2.0]


def test_counts_words_between_white_space(build):
    model = build("length", unit="words")
    assert scores(model, "", "  ", "one", "one\ttwo\n\nthree ") == [0.0, 0.0, 1.0, 3.0]


def test_window_is_one_inside_and_falls_off_in_straight_lines(build):
    model = build("length", min=4, max=10)
    # Below: 0/4, 1/4, 2/4. Inside: 4 to 10. Above: 2 - 11/10, 2 - 15/10, 2 - 20/10, never under 0.
    lengths = [0, 1, 2, 4, 7, 10, 11, 15, 20, 1000]
    expected = [0.0, 0.25, 0.5, 1.0, 1.0, 1.0, 0.9, 0.5, 0.0, 0.0]
    assert scores(model, *("x" * n for n in lengths)) == pytest.approx(expected)


def test_one_end_of_the_window_is_enough(build):
    assert scores(build("length", min=2), "", "a", "ab", "a" * 99) == [0.0, 0.5, 1.0, 1.0]
    assert scores(build("length", max=2), "", "ab", "abc", "a" * 99) == [1.0, 1.0, 0.5, 0.0]


def test_range_follows_the_window(build):
    assert build("length").score_range == (0.0, None)
    assert build("length", max=5).score_range == (0.0, 1.0)


def test_a_huge_response_is_counted(build):
    assert scores(build("length"), "x" * 1_000_000) == [1_000_000.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min": 5, "max": 4}, "min is 5 and max is 4, expected min <= max"),
        ({"max": 0}, "options.max: .*greater than or equal to 1"),
        ({"min": 2.5}, "options.min: .*valid integer"),
        ({"unit": "tokens"}, "options.unit: .*'characters' or 'words'"),
        ({"maximum": 3}, "options.maximum: .*options of length are unit, min, max"),
    ],
)
def test_unusable_options_are_named(build, options, words):
    with pytest.raises(ConfigError, match=words):
        build("length", **options)
