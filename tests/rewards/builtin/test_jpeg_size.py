"""`jpeg_size`: kB of the image as a JPEG, in either direction."""

import io

import pytest
from PIL import Image

from rewardctl.data.samples import BaseSample
from rewardctl.errors import ConfigError
from rewardctl.testing import check_contract

FLAT = Image.new("RGB", (64, 64), (200, 30, 30))
NOISE = Image.effect_noise((64, 64), 80).convert("RGB")


def scores(model, *images):
    return model(image=list(images)).rewards


def encoded_kb(image, **settings):
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **settings)
    return len(buffer.getvalue()) / 1000


def test_keeps_the_contract(build):
    ramp = Image.linear_gradient("L").convert("RGB")
    samples = [BaseSample(image=image) for image in (FLAT, NOISE, ramp, FLAT.resize((9, 200)))]
    check_contract(build("jpeg_size"), samples)


def test_compressibility_prefers_the_smaller_file(build):
    flat, noise = scores(build("jpeg_size"), FLAT, NOISE)
    assert noise < flat < 0


def test_incompressibility_is_its_negative(build):
    model = build("jpeg_size", direction="incompressibility")
    assert scores(model, FLAT, NOISE) == [-s for s in scores(build("jpeg_size"), FLAT, NOISE)]


def test_the_score_is_the_size_in_kb_at_quality_95(build):
    # As in Black et al. 2023: bytes of a JPEG of quality 95 divided by 1,000.
    model = build("jpeg_size", direction="incompressibility")
    assert scores(model, NOISE) == [encoded_kb(NOISE, quality=95)]


def test_quality_and_subsampling_reach_the_encoder(build):
    model = build("jpeg_size", direction="incompressibility", quality=50, subsampling="4:4:4")
    assert scores(model, NOISE) == [encoded_kb(NOISE, quality=50, subsampling=0)]
    assert scores(model, NOISE) != [encoded_kb(NOISE, quality=50)]


def test_metadata_of_the_image_does_not_count(build):
    noted = FLAT.copy()
    noted.info = {"comment": b"x" * 5000, "icc_profile": b"x" * 5000, "dpi": (300, 300)}
    plain, with_notes = scores(build("jpeg_size"), FLAT, noted)
    assert plain == with_notes
    assert set(noted.info) == {"comment", "icc_profile", "dpi"}


def test_the_encoder_is_recorded(build):
    provenance = build("jpeg_size", quality=80).provenance
    assert provenance["pillow"] == Image.__version__
    assert provenance["libjpeg"].startswith("libjpeg")
    assert (provenance["quality"], provenance["subsampling"]) == ("80", "4:2:0")


def test_one_pixel_has_a_size(build):
    assert scores(build("jpeg_size"), Image.new("RGB", (1, 1)))[0] < 0


def test_range_follows_the_direction(build):
    assert build("jpeg_size").score_range == (None, 0.0)
    assert build("jpeg_size", direction="incompressibility").score_range == (0.0, None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quality": 101}, "options.quality: .*less than or equal to 100"),
        ({"direction": "up"}, "options.direction: .*'compressibility' or 'incompressibility'"),
        ({"subsampling": "4:1:1"}, "options.subsampling: .*'4:4:4', '4:2:2' or '4:2:0'"),
        ({"level": 3}, "options of jpeg_size are direction, quality, subsampling"),
    ],
)
def test_unusable_options_are_named(build, options, words):
    with pytest.raises(ConfigError, match=words):
        build("jpeg_size", **options)
