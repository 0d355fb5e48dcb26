"""`sharpness`: the variance of the Laplacian."""

import pytest
from PIL import Image, ImageColor, ImageFilter

from rewardctl.data.samples import BaseSample
from rewardctl.errors import ConfigError
from rewardctl.testing import check_contract


def score(model, image):
    return model(image=[image]).rewards[0]


def dot(colour, size=(3, 3)):
    """Black, with the middle pixel of that colour."""
    image = Image.new("RGB", size)
    image.putpixel((size[0] // 2, size[1] // 2), ImageColor.getrgb(colour))
    return image


def test_keeps_the_contract(build):
    images = [dot("white"), dot("red"), dot("white", (9, 5)), Image.new("RGB", (4, 4), "blue")]
    check_contract(build("sharpness"), [BaseSample(image=image) for image in images])


def test_a_single_white_pixel_by_hand(build):
    # Middle: -4 * 255 = -1020. Each pixel beside it sees it twice, once mirrored at the edge: 510.
    # Corners: 0. Mean (-1020 + 4 * 510) / 9 = 340/3, mean square (1020^2 + 4 * 510^2) / 9 = 231200.
    expected = 231_200 - (340 / 3) ** 2
    assert score(build("sharpness"), dot("white")) == pytest.approx(expected)


def test_colours_count_by_their_luma(build):
    # ITU-R 601: red is 0.299 * 255 = 76.2, rounded to 76 grey levels.
    white = score(build("sharpness"), dot("white"))
    assert score(build("sharpness"), dot("red")) == pytest.approx(white * (76 / 255) ** 2)


def test_a_flat_image_scores_zero(build):
    assert score(build("sharpness"), Image.new("RGB", (32, 16), (9, 120, 30))) == 0.0


def test_one_pixel_scores_zero(build):
    assert score(build("sharpness"), Image.new("RGB", (1, 1), "white")) == 0.0


def test_a_single_row_is_mirrored_too(build):
    # 0 255 0: middle 2 * 255 - 4 * 255 + 0 = -510 (the row mirrors into itself above and below, so
    # the second differences across it are 0); ends 2 * 255 = 510. Mean 170, mean square 510^2.
    assert score(build("sharpness"), dot("white", (3, 1))) == pytest.approx(510**2 - 170**2)


def test_blur_lowers_the_score(build, draw_text):
    image = draw_text("SHARP")
    blurred = image.filter(ImageFilter.GaussianBlur(2))
    assert score(build("sharpness"), blurred) < 0.2 * score(build("sharpness"), image)


def test_options_are_refused_by_name(build):
    with pytest.raises(ConfigError, match=r"options.kernel: Extra inputs are not permitted"):
        build("sharpness", kernel=3)
