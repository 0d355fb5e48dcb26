"""`reference_match`: the response's final answer against the reference in the metadata."""

import json

import pytest

from rewardctl.data.samples import BaseSample
from rewardctl.errors import ConfigError, RowError
from rewardctl.testing import check_contract


def score(model, response, answer, *, key="answer"):
    metadata = json.dumps({key: answer}, ensure_ascii=False)
    return model(response=[response], metadata=[metadata]).rewards[0]


def test_keeps_the_contract(build):
    pairs = [("42", "42"), ("41", "42"), ("yes", "yes"), ("", "no"), ("1/2", "0.5")]
    samples = [
        BaseSample(response=response, metadata=json.dumps({"answer": answer}))
        for response, answer in pairs
    ]
    check_contract(build("reference_match"), samples)


@pytest.mark.parametrize(
    ("response", "answer", "expected"),
    [
        ("So the answer is 42.", "42", 1.0),
        ("First 42, then 43", "42", 0.0),  # the last number counts
        ("It costs $1,234.50", "1234.5", 1.0),
        ("1,234,567", 1234567, 1.0),
        ("1234,567", "1234567", 0.0),  # no thousands: two numbers
        ("x = -3", "-3", 1.0),
        ("x = \u22123", "-3", 1.0),  # the minus sign
        ("5-3", "3", 1.0),  # a difference, not a negative number
        ("- 42", "42", 1.0),  # a bullet
        ("-$5", "-5", 1.0),
        (".75", "0.75", 1.0),
        ("3/4", 0.75, 1.0),
        (r"\frac{3}{4}", "3/4", 1.0),
        (r"-\dfrac{3}{4}", "-0.75", 1.0),
        ("1 3/4 cups", "1.75", 1.0),
        (r"1\frac{3}{4}", "7/4", 1.0),
        ("3 / 0", "0", 0.0),
        ("1.5e3", "1500", 1.0),
        (r"1.5 \times 10^{3}", "1500", 1.0),
        ("1e99999", "1", 0.0),  # too large to read: no number
        ("0.3333", "1/3", 0.0),  # values are exact
        ("0.1", 0.1, 1.0),
        ("1" * 50 + "2", "1" * 50 + "3", 0.0),  # equal as float64
        ("about H2O", "2", 0.0),  # no number
        ("so...5", "5", 1.0),
        ("v1.2.3", "3", 0.0),
        ("４２", "42", 1.0),  # full-width digits
        ("", "0", 0.0),
        ("no number", "0", 0.0),
        ("x" * 1_000_000 + " 7", "7", 1.0),
    ],
)
def test_numbers_are_compared_by_value(build, response, answer, expected):
    assert score(build("reference_match"), response, answer) == expected


@pytest.mark.parametrize(
    ("response", "answer", "expected"),
    [
        ("50%", "50", 1.0),
        ("50 %", "0.5", 1.0),
        ("0.5", "50%", 1.0),
        ("50", "50%", 1.0),
        (r"50\%", "50%", 1.0),
        ("5000%", "50%", 0.0),  # both are percents: 50 is not meant
        ("0.5%", "0.5%", 1.0),
    ],
)
def test_one_percent_sign_may_mean_a_hundredth(build, response, answer, expected):
    assert score(build("reference_match"), response, answer) == expected


def test_the_final_answer_is_boxed_or_behind_four_hashes(build):
    model = build("reference_match")
    assert score(model, r"Not 7 but \boxed{8}, as 8 > 7", "8") == 1.0
    assert score(model, r"\boxed{1} then \boxed{\frac{1}{2}} of 9", "0.5") == 1.0
    assert score(model, "6 * 12 = 72\n#### 72\n", "72") == 1.0
    assert score(model, "#### Step 2\nThe answer is 5", "5") == 1.0  # a heading, not the mark
    assert score(model, r"an open \boxed{3 and 4", "4") == 1.0
    # The answer column of GSM8K holds the whole solution.
    assert score(model, "It is 72", "48/2 = <<48/2=24>>24\n#### 72") == 1.0


def test_a_reference_that_is_no_number_is_compared_as_text(build):
    model = build("reference_match")
    assert score(model, " Paris\n", "Paris") == 1.0
    assert score(model, "New   York", "New York") == 1.0
    assert score(model, "paris", "Paris") == 0.0
    assert score(model, "It is Paris", "Paris") == 0.0
    assert score(model, r"It is \boxed{B}", "B") == 1.0
    assert score(model, "2024-05-06", "2024-05-06") == 1.0
    assert score(model, "6", "2024-05-06") == 0.0


def test_exact_compares_numbers_as_text(build):
    model = build("reference_match", mode="exact")
    assert score(model, "42.0", "42") == 0.0
    assert score(model, "42", 42) == 1.0


def test_ignore_case(build):
    assert score(build("reference_match", ignore_case=True), "STRASSE", "straße") == 1.0


def test_numeric_reads_the_last_number_of_the_reference(build):
    model = build("reference_match", mode="numeric")
    assert score(model, "I count 72", "72 apples") == 1.0


def test_tolerance_is_absolute(build):
    model = build("reference_match", tolerance=0.01)
    # 0.34 - 1/3 = 0.0067, 0.35 - 1/3 = 0.0167.
    assert score(model, "0.34", "1/3") == 1.0
    assert score(model, "0.35", "1/3") == 0.0


def test_any_reference_of_a_list_may_match(build):
    model = build("reference_match")
    assert score(model, "NYC", ["New York", "NYC"]) == 1.0
    assert score(model, "4", ["four", 4]) == 1.0
    assert score(model, "5", ["four", 4]) == 0.0


def test_key_names_the_reference(build):
    assert score(build("reference_match", key="gold"), "4", 4, key="gold") == 1.0


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ('{"anwser": 4}', "metadata key 'answer' is missing; the row has .*did you mean 'anwser'"),
        ("{}", r"metadata key 'answer' is missing; the row has \[\]"),
        ('{"answer": null}', "metadata key 'answer' is null"),
        ("[4]", "expected metadata to be a JSON object, got '\\[4\\]'"),
        ("answer", "metadata is not JSON .*got 'answer'"),
        ('{"answer": NaN}', "metadata is not JSON .*NaN"),
        ('{"answer": true}', "expected a text, a number or a list of those, got True"),
        ('{"answer": []}', r"expected a text, a number or a list of those, got \[\]"),
        ('{"answer": {"a": 1}}', "expected a text, a number or a list of those, got {'a': 1}"),
    ],
)
def test_unusable_metadata_is_an_error_of_the_row(build, metadata, words):
    with pytest.raises(RowError, match=words) as caught:
        build("reference_match")(response=["4"], metadata=[metadata])
    assert caught.value.status == "model_error"


def test_metadata_that_is_no_text_is_an_error(build):
    with pytest.raises(RowError, match=r"expected metadata as one JSON text, got {'answer': 4}"):
        build("reference_match")(response=["4"], metadata=[{"answer": 4}])


def test_numeric_refuses_a_reference_without_a_number(build):
    with pytest.raises(RowError, match=r"no number in the reference 'four'; use mode: exact or"):
        score(build("reference_match", mode="numeric"), "4", ["4", "four"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tolerance": -1.0}, "options.tolerance: .*greater than or equal to 0"),
        ({"tolerance": float("nan")}, "options.tolerance: .*finite number"),
        ({"mode": "fuzzy"}, "options.mode: .*'auto', 'exact' or 'numeric'"),
        ({"field": "a"}, "options of reference_match are key, mode, tolerance, ignore_case"),
    ],
)
def test_unusable_options_are_named(build, options, words):
    with pytest.raises(ConfigError, match=words):
        build("reference_match", **options)
