"""`group_diversity`: how different a response is from the others of its group."""

import pytest

from rewardctl.data.samples import BaseSample
from rewardctl.errors import ConfigError
from rewardctl.testing import check_contract


def scores(model, *texts):
    return model(response=list(texts)).rewards


def test_keeps_the_contract(build):
    texts = ("a b c d", "a b x y", "q r s", "", "a b c d", "one", "a b c q r")
    samples = [
        BaseSample(response=text, unique_id=str(row % 2), source="s")
        for row, text in enumerate(texts)
    ]
    check_contract(build("group_diversity"), samples)


def test_scores_are_one_minus_the_mean_jaccard_of_bigrams(build):
    # Bigrams: A {ab, bc}, B {ab, bd}, C {xy}. J(A,B) = 1/3, J(A,C) = J(B,C) = 0.
    # A and B: 1 - (1/3 + 0) / 2 = 5/6; C: 1.
    assert scores(build("group_diversity"), "a b c", "a b d", "x y") == pytest.approx(
        [5 / 6, 5 / 6, 1.0]
    )


def test_repeated_bigrams_count_once(build):
    # {ab, ba} and {ab}: J = 1/2.
    assert scores(build("group_diversity"), "a b a b", "a b") == [0.5, 0.5]


def test_equal_responses_score_zero(build):
    assert scores(build("group_diversity"), "A b C", "a  b c", "a b c\n") == [0.0, 0.0, 0.0]


def test_a_group_of_one_scores_zero(build):
    assert scores(build("group_diversity"), "anything at all") == [0.0]


def test_short_and_empty_responses_are_compared_whole(build):
    # One word is one n-gram; the two empty ones are alike: (1 + 0 + 0) / 3 shared.
    model = build("group_diversity")
    assert scores(model, "yes", "no", "", "") == pytest.approx([1.0, 1.0, 2 / 3, 2 / 3])


def test_n_sets_the_words_of_an_ngram(build):
    # Single words: {a, b} and {b, c} share 1 of 3.
    assert scores(build("group_diversity", n=1), "a b", "b c") == pytest.approx([2 / 3, 2 / 3])


def test_the_order_of_many_members_does_not_show(build):
    model = build("group_diversity")
    texts = [f"a b c w{k % 7} w{k % 5} w{k}" for k in range(60)]
    assert scores(model, *texts)[::-1] == scores(model, *texts[::-1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 0}, "options.n: .*greater than or equal to 1"),
        ({"size": 2}, "options of group_diversity are n"),
    ],
)
def test_unusable_options_are_named(build, options, words):
    with pytest.raises(ConfigError, match=words):
        build("group_diversity", **options)
