"""`regex_match`: 1.0 where the pattern matches."""

import pytest

from rewardctl.data.samples import BaseSample
from rewardctl.errors import ConfigError
from rewardctl.testing import check_contract

FORMAT = r"(?s)<think>.*</think>\s*<answer>.*</answer>"


def scores(model, *texts):
    return model(response=list(texts)).rewards


def test_keeps_the_contract(build):
    samples = [BaseSample(response=text) for text in ("a", "b", "ab", "", "ba\n")]
    check_contract(build("regex_match", pattern="a"), samples)


def test_search_finds_the_pattern_anywhere(build):
    model = build("regex_match", pattern=r"\d+")
    assert scores(model, "", "no", "yes 42!", "٤") == [0.0, 0.0, 1.0, 1.0]


def test_fullmatch_wants_the_whole_response(build):
    model = build("regex_match", pattern=FORMAT, match="fullmatch")
    good = "<think>1\n2</think>\n<answer>3</answer>"
    assert scores(model, good, "Sure! " + good, good + "\n") == [1.0, 0.0, 0.0]


def test_invert_rewards_the_absence(build):
    model = build("regex_match", pattern="(?i)sorry", invert=True)
    assert scores(model, "Sorry, no.", "Here it is.", "") == [0.0, 1.0, 1.0]


def test_a_huge_response_is_searched(build):
    assert scores(build("regex_match", pattern="x$"), "y" * 1_000_000 + "x") == [1.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "options.pattern: Field required"),
        (
            {"pattern": "("},
            "options.pattern: .*not a regular expression: missing \\), unterminated",
        ),
        ({"pattern": "a{99999999999}"}, "not a regular expression"),
        ({"pattern": "a", "match": "prefix"}, "options.match: .*'search' or 'fullmatch'"),
        ({"patern": "a"}, "options of regex_match are pattern, match, invert"),
    ],
)
def test_unusable_options_are_named(build, options, words):
    with pytest.raises(ConfigError, match=words):
        build("regex_match", **options)
