"""One still image as PIL RGB: formats, pixel limit, orientation, transparency, modes."""

from __future__ import annotations

import struct
import warnings
from functools import cache
from typing import TYPE_CHECKING, BinaryIO

from rewardctl.config.schema import MediaConfig
from rewardctl.data.media_file import decode_error, decoder_errors, open_media
from rewardctl.data.media_ref import MediaRef
from rewardctl.errors import ConfigError, quote

if TYPE_CHECKING:
    from PIL import Image

# Not EPS, which starts Ghostscript, nor JPEG 2000, whose decoder fills in what was cut off.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF")
ANIMATED_FORMATS = ("GIF", "PNG", "WEBP", "AVIF")  # the further images of an MPO are no frames
ORIENTATION_TAG = 0x0112
BLOCK_BYTES = 1 << 20  # given to the decoder at once: after each block it waits for the interpreter
# What Pillow's EXIF reader raises on broken tags.
EXIF_ERRORS = (ArithmeticError, LookupError, OSError, SyntaxError, TypeError, ValueError)


def decode_image(ref: MediaRef, settings: MediaConfig) -> Image.Image:
    """A still image file as PIL RGB."""
    label = ref.label
    with open_media(ref) as file, decoder_errors(label, "an image"):
        image = open_image(file, label, settings)
        refuse_frames(image, label)
        return to_rgb(image, label, settings)


def open_image(file: BinaryIO, label: str, settings: MediaConfig) -> Image.Image:
    """An image of a known format and a size within the limit, its pixels not yet decoded."""
    from PIL import Image, ImageFile, UnidentifiedImageError

    # A reward class that sets this for itself must not make us score half a picture.
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        image = Image.open(file, formats=_known_formats())
    except UnidentifiedImageError as error:
        file.seek(0)
        found = f"found a file that starts with {file.read(12)!r}"
        raise decode_error(label, f"expected an image ({', '.join(FORMATS)}), {found}") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        limits = f"media.max_pixels is {settings.max_pixels:,}, and cannot raise Pillow's own limit"
        raise decode_error(label, f"{error} {limits}") from error
    image.decodermaxblock = BLOCK_BYTES
    check_pixels(image.size, label, settings)
    return image


def check_pixels(size: tuple[int, int], label: str, settings: MediaConfig) -> None:
    """Refuses a picture of more than `media.max_pixels`."""
    width, height = size
    if width * height > settings.max_pixels:
        raise decode_error(
            label,
            f"{width} x {height} is {width * height:,} pixels, more than media.max_pixels "
            f"({settings.max_pixels:,}); shrink it or raise the limit",
        )


def refuse_frames(image: Image.Image, label: str) -> None:
    """Refuses animations and multi-page files where one picture is wanted."""
    if image.format in ANIMATED_FORMATS and getattr(image, "is_animated", False):
        found = f"is an animated {image.format}"
        raise decode_error(label, f"{found}, expected a still image; use `video` for it")
    if image.format == "TIFF" and getattr(image, "n_frames", 1) > 1:
        raise decode_error(label, "is a TIFF of several pages, expected one image; save one page")


def to_rgb(image: Image.Image, label: str, settings: MediaConfig) -> Image.Image:
    """Any PIL image as RGB, upright, transparent parts on `media.background`.

    An image that is all that already is returned itself, not a copy.
    """
    image.load()
    method = _orientation(image)
    rgb = _flatten(image, label, settings)
    if method is None:
        return rgb
    upright = rgb.transpose(method)
    upright.info.clear()  # the tag has been obeyed: a reader must not obey it again
    return upright


def keep_freed_images(images: int) -> int:
    """Let Pillow keep the memory of so many freed images for the next ones, in all the process.

    Memory given back to the system must be mapped anew, page by page, for the next image, which
    takes a quarter of the time of a JPEG. Of each image at most 16 MiB are kept, and they are used
    before more is asked for, so that the highest use of memory stays what it was.

    Returns:
        How many were kept before.
    """
    from PIL import Image

    core = Image.core  # type: ignore[attr-defined]
    before: int = core.get_blocks_max()
    core.set_blocks_max(images)
    return before


def background_colour(settings: MediaConfig) -> tuple[int, ...]:
    """`media.background` as red, green and blue, 0..255."""
    from PIL import ImageColor

    try:
        return ImageColor.getrgb(settings.background)[:3]
    except ValueError as error:
        found = quote(settings.background)
        expected = "expected a colour such as 'white' or '#808080'"
        raise ConfigError(f"media.background: {expected}, found {found}") from error


@cache
def _known_formats() -> tuple[str, ...]:
    from PIL import Image

    Image.init()
    # Appended, so that a filter of the user's own for this warning stays in force.
    warnings.filterwarnings("error", category=Image.DecompressionBombWarning, append=True)
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _orientation(image: Image.Image) -> Image.Transpose | None:
    """What turns the stored pixels upright (Exif 2.32, Orientation); None where they are."""
    from PIL.Image import Transpose

    # Where Pillow finds the tag of a JPEG.
    if image.format == "JPEG" and "exif" not in image.info and "xmp" not in image.info:
        return None
    try:
        tag = image.getexif().get(ORIENTATION_TAG)
    # Broken EXIF says nothing of the pixels, which have decoded.
    except (*EXIF_ERRORS, struct.error, UserWarning):
        return None
    if not isinstance(tag, int):
        return None
    return {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }.get(tag)


def _flatten(image: Image.Image, label: str, settings: MediaConfig) -> Image.Image:
    """RGB without transparency."""
    from PIL import Image

    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image = _eight_bit(image, label)
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    rgba = image.convert("RGBA")
    canvas = Image.new("RGB", image.size, background_colour(settings))
    canvas.paste(rgba, mask=rgba)
    return canvas


def _eight_bit(image: Image.Image, label: str) -> Image.Image:
    """16-bit grey as L or LA: Pillow's own conversion would cut all above 255."""
    import numpy as np
    from PIL import Image

    # Pillow widens the 16 bits of PGM (older releases those of PNG too) to 32-bit integers.
    widened = image.mode == "I" and image.format in ("PPM", "PNG")
    if not (widened or image.mode.startswith("I;16")):
        found = f"found 32-bit pixels (mode {image.mode}), whose range is not known"
        raise decode_error(label, f"expected pixels of 8 or 16 bits, {found}")
    deep = np.asarray(image).astype(np.uint32)
    grey = Image.fromarray(((deep * 255 + 32767) // 65535).astype(np.uint8))
    transparent = image.info.get("transparency")
    if not isinstance(transparent, int):
        return grey
    alpha = Image.fromarray(np.where(deep == transparent, 0, 255).astype(np.uint8))
    return Image.merge("LA", (grey, alpha))
