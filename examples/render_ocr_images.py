"""Draws the pictures of data/ocr-prompts from its rows: a sign with what `drawn` says.

    python examples/render_ocr_images.py [FOLDER]

Uses Pillow's own font alone, so the same Pillow draws the same pixels on any machine.
"""

import json
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
ROWS = Path(__file__).parent / "data" / "ocr-prompts" / "signs.jsonl"
SIZE = (480, 240)  # pixels: width, height
MARGIN = 24  # pixels between the edge and the sign, and between the sign and its text
LARGEST_FONT = 56
COLOURS = [  # wall, sign, letters
    ("#27496d", "#f4f1de", "#1b1b1b"),
    ("#6b705c", "#ffffff", "#7f1d1d"),
    ("#3d405b", "#fefae0", "#14532d"),
    ("#8d6b4f", "#1f2937", "#f9fafb"),
]


def draw_sign(text: str, *, colours: tuple[str, str, str]) -> Image.Image:
    """A sign of one colour with `text` in its middle, as large as fits."""
    wall, panel, letters = colours
    picture = Image.new("RGB", SIZE, wall)
    draw = ImageDraw.Draw(picture)
    width, height = SIZE
    draw.rounded_rectangle((MARGIN, MARGIN, width - MARGIN, height - MARGIN), radius=16, fill=panel)
    draw.multiline_text(
        (width / 2, height / 2),
        text,
        font=fitting_font(draw, text),
        fill=letters,
        anchor="mm",
        align="center",
    )
    return picture


def fitting_font(draw: ImageDraw.ImageDraw, text: str) -> Font:
    """The largest size of Pillow's font at which `text` stays inside the sign."""
    for size in range(LARGEST_FONT, 8, -2):
        font = ImageFont.load_default(size=size)
        left, top, right, bottom = draw.multiline_textbbox((0, 0), text, font=font)
        if right - left <= SIZE[0] - 4 * MARGIN and bottom - top <= SIZE[1] - 4 * MARGIN:
            return font
    raise ValueError(f"{text!r} does not fit on a sign of {SIZE} pixels; shorten it")


def render_signs(folder: Path) -> list[Path]:
    """Draw the picture of each row under `folder`, at the path that the row names."""
    paths = []
    for number, line in enumerate(ROWS.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        path = folder / row["image"]
        path.parent.mkdir(parents=True, exist_ok=True)
        sign = draw_sign(row["drawn"], colours=COLOURS[number % len(COLOURS)])
        sign.save(path, optimize=True)
        paths.append(path)
    return paths


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROWS.parent
    for drawn_path in render_signs(target):
        print(drawn_path)
