"""Still images: colours, orientation, and files that are broken or hostile."""

import io
import resource
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile, PngImagePlugin

from rewardctl.config.schema import MediaConfig
from rewardctl.data.media import decode
from rewardctl.data.media_ref import MediaRoot, parse_media
from rewardctl.errors import ConfigError, RowError

PLAIN = MediaConfig()


def decoded(path: Path, settings: MediaConfig = PLAIN) -> Image.Image:
    image = decode("image", parse_media(path.name, MediaRoot(path.parent)), settings)
    assert image.mode == "RGB"
    return image


def refusal(path: Path, settings: MediaConfig = PLAIN) -> str:
    with pytest.raises(RowError) as caught:
        decoded(path, settings)
    assert caught.value.status == "decode_error"
    text = str(caught.value)
    assert text.startswith(f"{path.name!r}: ")
    return text


def outcome(path: Path) -> Image.Image | str:
    """The image, or the error's text."""
    try:
        return decoded(path)
    except RowError as error:
        return str(error)


def save(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


def noise(width: int = 64, height: int = 48) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def png_chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(width: int, height: int, *chunks: bytes, depth: int = 8, colour: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    head = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header)
    return head + b"".join(chunks) + png_chunk(b"IEND", b"")


def colour_of(image: Image.Image) -> tuple[int, ...]:
    """The one colour of an image."""
    ((_, colour),) = image.getcolors()
    return colour


# Colours


def test_transparent_parts_lie_on_white(tmp_path):
    logo = Image.new("RGBA", (2, 1))
    logo.putpixel((0, 0), (200, 0, 0, 255))
    logo.putpixel((1, 0), (0, 0, 0, 0))  # black underneath, which must not show
    image = decoded(save(logo, tmp_path / "logo.png"))
    assert [image.getpixel((x, 0)) for x in (0, 1)] == [(200, 0, 0), (255, 255, 255)]


def test_half_transparent_parts_mix_with_the_background(tmp_path):
    path = save(Image.new("RGBA", (2, 2), (255, 0, 0, 51)), tmp_path / "a.png")  # alpha 0.2
    assert colour_of(decoded(path, MediaConfig(background="black"))) == (51, 0, 0)
    assert colour_of(decoded(path, MediaConfig(background="#0000ff"))) == (51, 0, 204)
    assert colour_of(decoded(path)) == (255, 204, 204)


def test_an_unknown_background_is_a_config_error(tmp_path):
    path = save(Image.new("RGBA", (2, 2)), tmp_path / "a.png")
    with pytest.raises(
        ConfigError, match=r"media.background: expected a colour .* found 'whitish'"
    ):
        decoded(path, MediaConfig(background="whitish"))


def test_transparent_palettes_and_greys_lie_on_the_background(tmp_path):
    palette = Image.new("P", (2, 1))
    palette.putpalette([9, 9, 9, 0, 128, 0])
    palette.putpixel((1, 0), 1)
    path = save(palette, tmp_path / "p.png", transparency=0)
    assert [decoded(path).getpixel((x, 0)) for x in (0, 1)] == [(255, 255, 255), (0, 128, 0)]
    path = save(palette, tmp_path / "pa.png", transparency=bytes([255, 0]))
    assert [decoded(path).getpixel((x, 0)) for x in (0, 1)] == [(9, 9, 9), (255, 255, 255)]
    grey_alpha = Image.merge("LA", (Image.new("L", (2, 2), 100), Image.new("L", (2, 2), 0)))
    assert colour_of(decoded(save(grey_alpha, tmp_path / "la.png"))) == (255, 255, 255)


def test_a_transparent_colour_of_rgb_and_grey_lies_on_the_background(tmp_path):
    path = save(Image.new("RGB", (2, 2), (1, 2, 3)), tmp_path / "a.png", transparency=(1, 2, 3))
    assert colour_of(decoded(path)) == (255, 255, 255)
    path = save(Image.new("L", (2, 2), 7), tmp_path / "b.png", transparency=7)
    assert colour_of(decoded(path)) == (255, 255, 255)


def test_a_palette_becomes_its_colours(tmp_path):
    image = Image.new("P", (2, 2), 1)
    image.putpalette([0, 0, 0, 10, 200, 30])
    assert colour_of(decoded(save(image, tmp_path / "p.png"))) == (10, 200, 30)
    assert colour_of(decoded(save(image, tmp_path / "p.gif"))) == (10, 200, 30)


def test_grey_and_one_bit_become_rgb(tmp_path):
    assert colour_of(decoded(save(Image.new("L", (2, 2), 128), tmp_path / "g.png"))) == (128,) * 3
    assert colour_of(decoded(save(Image.new("1", (2, 2), 1), tmp_path / "w.png"))) == (255,) * 3
    assert colour_of(decoded(save(Image.new("1", (2, 2), 0), tmp_path / "b.png"))) == (0,) * 3


def test_cmyk_is_not_inverted(tmp_path):
    cyan = Image.new("CMYK", (16, 16), (255, 0, 0, 0))
    red, green, blue = decoded(save(cyan, tmp_path / "c.jpg", quality=100)).getpixel((8, 8))
    assert (red < 3, green > 252, blue > 252) == (True, True, True)  # JPEG noise
    assert colour_of(decoded(save(cyan, tmp_path / "c.tiff"))) == (0, 255, 255)


@pytest.mark.parametrize("name", ["deep.png", "deep.tiff", "deep.pgm"])
def test_16_bit_grey_keeps_its_range(tmp_path, name):
    # 257 * v is v of 255; 32768 / 257 = 127.5, to the nearest 128.
    deep = np.array([[0, 257 * 100, 32768, 65535]], dtype=np.uint16)
    image = decoded(save(Image.fromarray(deep), tmp_path / name))
    assert [image.getpixel((x, 0))[0] for x in range(4)] == [0, 100, 128, 255]


def test_a_transparent_16_bit_grey_lies_on_the_background(tmp_path):
    pixels = zlib.compress(b"\0" + struct.pack(">HH", 257 * 100, 5000))
    transparent = png_chunk(b"tRNS", struct.pack(">H", 5000))
    content = png(2, 1, transparent, png_chunk(b"IDAT", pixels), depth=16)
    (tmp_path / "t.png").write_bytes(content)
    image = decoded(tmp_path / "t.png")
    assert [image.getpixel((x, 0)) for x in (0, 1)] == [(100, 100, 100), (255, 255, 255)]


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_32_bit_pixels_are_refused_since_their_range_is_unknown(tmp_path, dtype):
    path = save(Image.fromarray(np.ones((2, 2), dtype=dtype)), tmp_path / "i.tiff")
    assert "expected pixels of 8 or 16 bits, found 32-bit pixels (mode " in refusal(path)


def test_lab_becomes_rgb(tmp_path):
    path = save(Image.new("LAB", (2, 2), (255, 128, 128)), tmp_path / "lab.tiff")
    assert min(colour_of(decoded(path))) > 252  # L = 100, a = b = 0


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.tiff", "a.ppm", "a.webp"])
def test_lossless_files_of_all_formats_give_their_pixels(tmp_path, name):
    image = noise()
    options = {"lossless": True} if name == "a.webp" else {}
    path = save(image, tmp_path / name, **options)
    assert np.array_equal(np.asarray(decoded(path)), np.asarray(image))


def test_the_format_is_known_by_content_not_by_name(tmp_path):
    image = noise()
    image.save(tmp_path / "a.jpg", format="PNG")
    assert np.array_equal(np.asarray(decoded(tmp_path / "a.jpg")), np.asarray(image))


def test_content_in_the_row_is_decoded(tmp_path):
    content = io.BytesIO()
    noise().save(content, format="PNG")
    ref = parse_media("data:image/png," + "".join(f"%{b:02x}" for b in content.getvalue()), None)
    assert np.array_equal(np.asarray(decode("image", ref, PLAIN)), np.asarray(noise()))


# Orientation

# The picture that a viewer shows: quarters red, green, blue, white from the top left, row by row.
UPRIGHT = [[(255, 0, 0), (0, 255, 0)], [(0, 0, 255), (255, 255, 255)]]
# How it is stored under each tag: Exif 2.32, Orientation, tells where row 0 and column 0 are shown.
STORED = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],  # row 0 top, column 0 right
    3: lambda a: a[::-1, ::-1],  # bottom, right
    4: lambda a: a[::-1],  # bottom, left
    5: lambda a: a.transpose(1, 0, 2),  # left, top
    6: lambda a: a.transpose(1, 0, 2)[::-1],  # right, top
    7: lambda a: a.transpose(1, 0, 2)[::-1, ::-1],  # right, bottom
    8: lambda a: a.transpose(1, 0, 2)[:, ::-1],  # left, bottom
}


@pytest.mark.parametrize("tag", STORED)
@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp", "a.tiff"])
def test_the_orientation_tag_is_applied(tmp_path, name, tag):
    upright = np.array(UPRIGHT, dtype=np.uint8).repeat(16, axis=0).repeat(24, axis=1)
    exif = Image.Exif()
    exif[0x0112] = tag
    stored = Image.fromarray(np.ascontiguousarray(STORED[tag](upright)))
    options = {"lossless": True} if name == "a.webp" else {"quality": 100, "subsampling": 0}
    image = decoded(save(stored, tmp_path / name, exif=exif, **options))
    assert image.size == (48, 32)
    # JPEG noise is within 3.
    assert np.abs(np.asarray(image).astype(int) - upright).max() <= 3


def test_an_applied_orientation_is_not_left_to_be_applied_again(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    image = decoded(save(noise(), tmp_path / "a.jpg", exif=exif))
    assert image.getexif().get(0x0112) is None


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data", "ignore:Truncated File Read")
@pytest.mark.parametrize(
    "exif", [b"Exif\0\0MM\0*", b"Exif\0\0garbage, garbage", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff"]
)
def test_broken_exif_leaves_the_picture_as_it_is(tmp_path, exif):
    plain, broken = io.BytesIO(), tmp_path / "a.jpg"
    noise().save(plain, format="JPEG")
    noise().save(broken, exif=exif)
    assert np.array_equal(np.asarray(decoded(broken)), np.asarray(Image.open(plain)))


def test_the_first_picture_of_a_phones_multi_picture_file_is_the_picture(tmp_path):
    path = tmp_path / "phone.jpg"
    first, second = (Image.new("RGB", (16, 16), colour) for colour in ("red", "blue"))
    first.save(path, format="MPO", save_all=True, append_images=[second])
    assert b"MPF\0" in path.read_bytes()
    red, green, blue = decoded(path).getpixel((8, 8))
    assert (red > 252, green < 3, blue < 3) == (True, True, True)  # JPEG noise


# Animations


@pytest.mark.parametrize("name", ["a.gif", "a.png", "a.webp"])
def test_an_animation_is_refused_as_an_image(tmp_path, name):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    path = save(frames[0], tmp_path / name, save_all=True, append_images=frames[1:])
    text = refusal(path)
    assert text.endswith("expected a still image; use `video` for it")
    assert "is an animated " in text


def test_a_still_gif_is_an_image(tmp_path):
    path = save(Image.new("RGB", (8, 8), "red"), tmp_path / "a.gif")
    assert colour_of(decoded(path)) == (255, 0, 0)


def test_a_tiff_of_several_pages_is_refused(tmp_path):
    path = save(noise(), tmp_path / "a.tiff", save_all=True, append_images=[noise()])
    assert "is a TIFF of several pages, expected one image" in refusal(path)


# Broken files


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.gif", "a.bmp", "a.tiff"])
def test_a_cut_file_is_refused_and_never_half_decoded(tmp_path, name):
    whole = save(noise(), tmp_path / name)
    content, pixels = whole.read_bytes(), np.asarray(decoded(whole))
    cut = tmp_path / f"cut-{name}"
    lengths = {len(content) * n // 40 for n in range(1, 40)} | {len(content) - n for n in (1, 2, 9)}
    for length in sorted(lengths | {1, 2, 10, 30}):
        cut.write_bytes(content[:length])
        result = outcome(cut)
        if isinstance(result, str):
            assert result.startswith(f"{cut.name!r}: expected an image")
        else:  # only what follows the pixels is gone
            assert length > len(content) * 0.98
            assert np.array_equal(np.asarray(result), pixels)


def test_a_truncated_image_is_refused_also_when_someone_told_pillow_to_load_such(
    tmp_path, monkeypatch
):
    content = save(noise(), tmp_path / "a.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(content[: len(content) // 2])
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    text = refusal(tmp_path / "cut.jpg")
    assert "does not decode: image file is truncated" in text
    assert text.endswith("is it cut off or damaged?")


def test_a_text_file_named_png_is_refused(tmp_path):
    (tmp_path / "a.png").write_text("this is text")
    assert refusal(tmp_path / "a.png") == (
        "'a.png': expected an image (JPEG, PNG, WEBP, GIF, BMP, TIFF, PPM, AVIF), "
        "found a file that starts with b'this is text'"
    )


@pytest.mark.parametrize("name", ["a.eps", "a.pdf", "a.ico", "a.jp2", "a.svg"])
def test_other_formats_are_refused_unopened(tmp_path, name):
    if name == "a.svg":
        (tmp_path / name).write_text("<svg/>")
    else:
        noise(32, 32).save(tmp_path / name)
    assert "expected an image (JPEG, PNG, " in refusal(tmp_path / name)


# Bombs


def test_too_many_pixels_are_refused_with_the_key(tmp_path):
    path = save(noise(64, 48), tmp_path / "a.png")
    assert refusal(path, MediaConfig(max_pixels=3071)) == (
        "'a.png': 64 x 48 is 3,072 pixels, more than media.max_pixels (3,071); "
        "shrink it or raise the limit"
    )
    assert decoded(path, MediaConfig(max_pixels=3072)).size == (64, 48)


BOMB = """
import resource, sys
from pathlib import Path
from rewardctl.config.schema import MediaConfig
from rewardctl.data.media import decode
from rewardctl.data.media_ref import MediaRoot, parse_media
from rewardctl.errors import RowError
folder, name = Path(sys.argv[1]), sys.argv[2]
def attempt(name):
    try:
        decode("image", parse_media(name, MediaRoot(folder)), MediaConfig())
    except RowError as error:
        return str(error)
attempt("small.png")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(attempt(name))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("side", [8000, 13000, 30000])
def test_a_bomb_is_refused_by_its_header_without_memory_and_without_a_warning(tmp_path, side):
    # One-bit rows of zeros, which deflate to next to nothing; 13,000 x 13,000 is 507 MB of RGB.
    row = zlib.compressobj(9)
    body = b"".join(row.compress(bytes(side // 8 + 2)) for _ in range(side)) + row.flush()
    content = png(side, side, png_chunk(b"IDAT", body), depth=1)
    assert len(content) < 200_000
    (tmp_path / "bomb.png").write_bytes(content)
    noise().save(tmp_path / "small.png")
    command = [sys.executable, "-c", BOMB, str(tmp_path), "bomb.png"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    text, grown = run.stdout.splitlines()
    assert "pixels" in text
    assert "media.max_pixels" in text
    assert run.stderr == ""
    assert int(grown) < 20_000  # KiB


def test_a_header_of_huge_size_is_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(png(2**31 - 1, 2**31 - 1, png_chunk(b"IDAT", b"")))
    assert "exceeds limit" in refusal(tmp_path / "a.png")
    (tmp_path / "a.gif").write_bytes(b"GIF89a" + struct.pack("<HH", 65535, 65535) + bytes(40))
    assert refusal(tmp_path / "a.gif")


def test_a_users_filter_for_pillows_warning_stays_in_force(tmp_path):
    side = 10_000  # 100 MP: Pillow warns, and does not refuse
    (tmp_path / "a.png").write_bytes(png(side, side, png_chunk(b"IDAT", b""), depth=1))
    with pytest.warns(Image.DecompressionBombWarning):
        assert "100,000,000 pixels, more than media.max_pixels" in refusal(tmp_path / "a.png")


@pytest.mark.parametrize("name", [b"zTXt", b"iCCP"])
def test_a_text_chunk_that_inflates_without_end_does_not_fill_memory(tmp_path, name):
    bomb = b"key\0\0" + zlib.compress(bytes(200_000_000), 9)
    pixels = png_chunk(b"IDAT", zlib.compress(bytes(2 * 2 * 2)))
    (tmp_path / "t.png").write_bytes(png(2, 2, png_chunk(name, bomb), pixels))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "Decompressed data too large" in refusal(tmp_path / "t.png")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 2 * PngImagePlugin.MAX_TEXT_MEMORY / 1024
