"""`json_valid`: 1.0 where the response is JSON."""

import pytest

from rewardctl.data.samples import BaseSample
from rewardctl.errors import ConfigError
from rewardctl.testing import check_contract


def score(model, text):
    return model(response=[text]).rewards[0]


def test_keeps_the_contract(build):
    samples = [BaseSample(response=text) for text in ("{}", "", "[1]", "no", '{"a": 1}')]
    check_contract(build("json_valid"), samples)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        ' \n[1, 2.5e3, -0, true, null, "é\\u00e9"]\t',
        '"text"',
        "1e999",
        "9" * 10_000,  # more digits than Python turns into an int
        '{"a": 1, "a": 2}',
        "[" * 256 + "]" * 256,
        '"' + "[" * 300 + '"',  # brackets in a string are no nesting
        '"\\ud800"',
        "[" + "1," * 200_000 + "1]",
    ],
)
def test_json_scores_one(build, text):
    assert score(build("json_valid"), text) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "NaN",
        "[1, Infinity]",
        "[1,]",
        "{'a': 1}",
        '{"a": 1} // why',
        'Here it is: {"a": 1}',
        '{"a": 1}{"b": 2}',
        "[" * 257 + "]" * 257,
        "[" * 100_000,
        '\\"' * 100_000,
        '"line\nbreak"',
        "\ufeff{}",
        "01",
        "```json\n{}\n```",
    ],
)
def test_anything_else_scores_zero(build, text):
    assert score(build("json_valid"), text) == 0.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('```json\n{"a": 1}\n```', 1.0),
        ('\n```\r\n{"a": "```"}```  ', 1.0),
        ("{}", 1.0),
        ('Here:\n```json\n{"a": 1}\n```', 0.0),
        ("```json\n{}\n```\n```json\n{}\n```", 0.0),
        ("```python\n{}\n```", 0.0),
        ("```json\n```", 0.0),
        ("```json\n{}", 0.0),
        ("```json\n" + " " * 200_000, 0.0),
    ],
)
def test_fenced_accepts_one_block_and_nothing_around_it(build, text, expected):
    assert score(build("json_valid", fenced=True), text) == expected


def test_required_keys_must_all_be_at_the_top_of_an_object(build):
    model = build("json_valid", required_keys=["name", "age"])
    texts = ['{"name": null, "age": 3}', '{"name": "a"}', '[{"name": 1, "age": 2}]', '"name age"']
    assert model(response=texts).rewards == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"required_keys": "name"}, "options.required_keys: .*valid list"),
        ({"required_keys": [1]}, "options.required_keys.0: .*valid string"),
        ({"fenced": 1}, "options.fenced: .*valid boolean"),
        ({"schema": {}}, "options of json_valid are fenced, required_keys"),
    ],
)
def test_unusable_options_are_named(build, options, words):
    with pytest.raises(ConfigError, match=words):
        build("json_valid", **options)
