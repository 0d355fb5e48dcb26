"""`repetition`: the share of distinct n-grams."""

import pytest

from rewardctl.data.samples import BaseSample
from rewardctl.errors import ConfigError
from rewardctl.testing import check_contract


def scores(model, *texts):
    return model(response=list(texts)).rewards


def test_keeps_the_contract(build):
    samples = [BaseSample(response=text) for text in ("a b c d", "a a a a", "", "x", "x y x y x")]
    check_contract(build("repetition", n=2), samples)


def test_counts_distinct_word_trigrams(build):
    # "a b a b a b": aba bab aba bab = 4 trigrams, 2 distinct. "go" five times: 3 alike.
    model = build("repetition")
    assert scores(model, "a b a b a b", "go go go go go", "one two three four") == pytest.approx(
        [2 / 4, 1 / 3, 1.0]
    )


def test_case_and_white_space_do_not_hide_a_repetition(build):
    assert scores(build("repetition", n=1), "Yes  yes\nYES no") == [0.5]


def test_a_response_too_short_to_repeat_scores_one(build):
    assert scores(build("repetition"), "", "   ", "go", "go go") == [1.0] * 4


def test_characters_serve_languages_without_spaces(build):
    # 哈 four times: bigrams 哈哈 x 3, one distinct. Spaces do not count: "ab ab" is ab ba ab.
    model = build("repetition", n=2, unit="characters")
    assert scores(model, "哈哈哈哈", "ab ab") == pytest.approx([1 / 3, 2 / 3])


def test_a_huge_looping_response_scores_near_zero(build):
    # 300,000 words, 299,998 trigrams, 3 distinct.
    assert scores(build("repetition"), "a b c " * 100_000) == [3 / 299_998]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 0}, "options.n: .*greater than or equal to 1, got 0"),
        ({"n": "3"}, "options.n: .*valid integer"),
        ({"unit": "tokens"}, "options.unit: .*'words' or 'characters'"),
        ({"ngram": 3}, "options of repetition are n, unit"),
    ],
)
def test_unusable_options_are_named(build, options, words):
    with pytest.raises(ConfigError, match=words):
        build("repetition", **options)
