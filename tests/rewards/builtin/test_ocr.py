"""`ocr`: the wanted text, what is read in rendered images, and how the two are compared."""

import json

import pytest
from PIL import Image

from rewardctl.data.samples import BaseSample
from rewardctl.errors import ConfigError, RowError
from rewardctl.rewards.builtin.ocr import levenshtein, normalise, quoted_texts, text_score
from rewardctl.testing import check_contract


@pytest.fixture(scope="module")
def model(build):
    return build("ocr")


def test_keeps_the_contract(model, draw_text):
    samples = [
        BaseSample(image=draw_text("OPEN"), prompt='a sign "OPEN"'),
        BaseSample(image=draw_text("OPAN"), prompt='a sign "OPEN"'),
    ]
    check_contract(model, samples, batch_sizes=(2,))


@pytest.mark.parametrize(
    ("drawn", "prompt", "expected"),
    [
        ("Spring 2024", 'A runway showing "SPRING 2024", at dusk', 1.0),
        ("WELCOME to\nthe JUNGLE", "a gate with “Welcome to the Jungle”", 1.0),
        ("CLOSED\nOPEN", 'one door says "Open", the other "Closed"', 1.0),
        ("Don't stop", "the farmer’s sign ‘Don’t stop’ isn't old", 1.0),
        ("OPAN", 'a sign "OPEN"', 0.75),  # one letter of four
        ("", 'a sign "OPEN"', 0.0),
    ],
)
def test_rendered_text_is_read(model, draw_text, drawn, prompt, expected):
    assert model(image=[draw_text(drawn, size=(360, 128))], prompt=[prompt]).rewards == [expected]


def test_a_metadata_key_replaces_the_prompt(build, draw_text):
    model = build("ocr", target_key="target_text")
    assert model.required_fields == ("image", "metadata")
    metadata = [json.dumps({"target_text": "OPEN"}), json.dumps({"target_text": ["8", "am"]})]
    images = [draw_text("OPEN"), draw_text("8 am")]
    assert model(image=images, metadata=metadata).rewards == [1.0, 1.0]


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ('{"text": "A"}', "metadata key 'target' is missing"),
        ('{"target": 7}', "metadata key 'target': expected a text or a list of texts, got 7"),
        ('{"target": " "}', "metadata key 'target': the wanted text is empty"),
    ],
)
def test_unusable_metadata_is_an_error_of_the_row(build, draw_text, metadata, words):
    with pytest.raises(RowError, match=words):
        build("ocr", target_key="target")(image=[draw_text("A")], metadata=[metadata])


def test_an_image_that_cannot_be_read_is_an_error_with_its_size(model):
    with pytest.raises(
        RowError, match=r"cannot read an image of 3000 x 10 pixels: .*resize_w or resize_h"
    ):
        model(image=[Image.new("RGB", (3000, 10))], prompt=['"A"'])


def test_one_pixel_holds_no_text(model):
    assert model(image=[Image.new("RGB", (1, 1))], prompt=['"A"']).rewards == [0.0]


def test_loading_and_reading_print_nothing(build, capfd):
    build("ocr")(image=[Image.new("RGB", (64, 64), "white")], prompt=['"A"'])
    assert capfd.readouterr() == ("", "")


def test_the_reader_is_recorded(model):
    assert set(model.provenance) == {"rapidocr", "onnxruntime"}


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ('a sign "OPEN"', ["open"]),
        ('"A", then “B”, then «C», „D“, 「E」', ["a", "b", "c", "d", "e"]),
        ('写着"你好"的牌子', ["你好"]),
        ('"" and " " and "A"', ["a"]),
        ('a 12" pizza named "HOT"', ["hot"]),
        ("""she's got "Rock 'n' Roll" here""", ["rock'n'roll"]),
        ("reads 'don't walk' in the dogs' park", ["don'twalk"]),
        ("the farmer’s ‘Fresh Eggs’ aren’t", ["fresheggs"]),
        ("'' and 'OPEN'", ["open"]),
        ('"two\nlines"', ["twolines"]),
    ],
)
def test_quoted_texts_are_wanted(prompt, expected):
    assert quoted_texts(prompt) == expected


@pytest.mark.parametrize(
    "prompt", ["", "a cat", "don't, they're dogs'", 'an open "quote', '""', 'a 12" by 14" sign']
)
def test_a_prompt_without_quoted_text_is_an_error_of_its_row(prompt):
    with pytest.raises(RowError, match=r"no text in quotation marks in the prompt .*target_key"):
        quoted_texts(prompt)


def test_comparison_ignores_case_space_and_typography():
    assert normalise("  E = mc²\n“Don’t” STRASSE–x ﬁ") == 'e=mc2"don\'t"strasse-xfi'
    assert normalise("straße") == normalise("STRASSE")


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        ("big OPEN sign", ["open"], 1.0),  # part of what is found
        ("opan", ["open"], 0.75),
        ("", ["open"], 0.0),
        ("something else entirely", ["open"], 0.0),  # never below 0
        ("closed open", ["open", "closed"], 1.0),  # each is there, in another order
        ("clos3d open", ["open", "closed"], 0.9),  # 1 of 10 letters, in the order that fits
        ("open", ["open", "closed"], 0.4),  # 6 of 10 letters are missing
        ("e d c b x", ["a", "b", "c", "d", "e"], 0.2),  # five keep their order: 4 of 5 differ
    ],
)
def test_score_is_the_share_of_wanted_letters(found, wanted, expected):
    assert text_score(found, wanted) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ("kitten", "sitting", 3),  # k>s, e>i, +g
        ("flaw", "lawn", 2),  # -f, +n
        ("", "abc", 3),
        ("abc", "", 3),
        ("same", "same", 0),
        ("日本語", "日本", 1),
        ("x" * 3000, "y" * 2000, 3000),
    ],
)
def test_levenshtein_counts_edits(first, second, distance):
    assert levenshtein(first, second) == distance


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threads": 0}, "options.threads: .*greater than or equal to 1"),
        ({"target_key": 3}, "options.target_key: .*valid string"),
        ({"lang": "en"}, "options of ocr are target_key, threads"),
    ],
)
def test_unusable_options_are_named(build, options, words):
    with pytest.raises(ConfigError, match=words):
        build("ocr", **options)
