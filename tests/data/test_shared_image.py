"""Images over shared pixels: a write in one is not seen in the others."""

from collections.abc import Callable

import pytest
from PIL import Image, ImageDraw

from rewardctl.data.shared_image import SharedImage, share

RED, BLUE = (255, 0, 0), (0, 0, 255)


def set_pixel_by_access(image: Image.Image) -> None:
    pixels = image.load()
    assert pixels is not None
    pixels[1, 1] = BLUE
    assert pixels[1, 1] == BLUE


WRITES: dict[str, Callable[[Image.Image], object]] = {
    "load": set_pixel_by_access,
    "putpixel": lambda image: image.putpixel((1, 1), BLUE),
    "paste": lambda image: image.paste(BLUE, (1, 1, 2, 2)),
    "frombytes": lambda image: image.frombytes(bytes(BLUE) * 9),
    "draw": lambda image: ImageDraw.Draw(image).rectangle((1, 1, 2, 2), fill=BLUE),
    "putalpha": lambda image: image.putalpha(7),
    "thumbnail": lambda image: image.thumbnail((1, 1)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_write_changes_one_image_only(write: Callable[[Image.Image], object]) -> None:
    original = Image.new("RGB", (3, 3), RED)
    one, other = share(original), share(original)
    write(one)
    for untouched in (original, other):
        assert (untouched.mode, untouched.size) == ("RGB", (3, 3))
        assert untouched.tobytes() == bytes(RED) * 9
    assert one.tobytes() != bytes(RED) * 9 or one.size != (3, 3)


def test_a_shared_image_reads_like_any_image() -> None:
    image = share(Image.linear_gradient("L").convert("RGB"))
    assert isinstance(image, Image.Image)
    assert isinstance(image, SharedImage)
    assert image.getpixel((0, 200)) == image.load()[0, 200] == (200, 200, 200)
    assert image.resize((1, 256)).size == (1, 256)
    assert image.copy().tobytes() == image.tobytes()
