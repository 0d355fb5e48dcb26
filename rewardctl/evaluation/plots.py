"""Small plots as SVG text, drawn from numbers alone: nothing that a row says gets into them."""

from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT, EDGE = 320, 220, 36  # pixels; EDGE is room for axes and their numbers
_BAR, _LINE, _GRID = "#4477aa", "#aa3377", "#cccccc"


def reliability_plot(table: Sequence[dict[str, Any]]) -> str:
    """Accuracy over confidence, both from 0.5 (accuracy from 0) to 1; dots grow with the pairs."""
    low = float(table[0]["low"])
    total = max(1, sum(entry["n"] for entry in table))
    parts = [_frame(f"{low:g}", "1", "0", "1", "confidence", "accuracy")]
    parts.append(_line(_across(0.0), _up(low), _across(1.0), _up(1.0), _GRID, is_dashed=True))
    for entry in table:
        if entry["n"]:
            x = (entry["confidence"] - low) / (1.0 - low)
            radius = 3 + 9 * (entry["n"] / total) ** 0.5
            parts.append(
                f'<circle cx="{_across(x):.1f}" cy="{_up(entry["accuracy"]):.1f}" '
                f'r="{radius:.1f}" fill="{_BAR}" fill-opacity="0.7"/>'
            )
    return _svg("Reliability: accuracy over confidence", parts)


def histogram_plot(histogram: dict[str, list[Any]], label: str) -> str:
    """Bars of counts; a line at 0 where the range holds it.

    Args:
        label: of the x axis; a word of ours, not of a row.
    """
    edges, counts = histogram["edges"], histogram["counts"]
    low, high, most = edges[0], edges[-1], max(counts)
    parts = [_frame(f"{low:.3g}", f"{high:.3g}", "0", str(most), label, "count")]
    width = (WIDTH - 2 * EDGE) / len(counts)
    for index, count in enumerate(counts):
        top = _up(count / most)
        parts.append(
            f'<rect x="{EDGE + index * width:.1f}" y="{top:.1f}" width="{max(1.0, width - 1):.1f}" '
            f'height="{_up(0.0) - top:.1f}" fill="{_BAR}"/>'
        )
    if low <= 0 <= high:
        x = _across(-low / (high - low))
        parts.append(_line(x, _up(0.0), x, _up(1.0), _LINE, is_dashed=False))
    return _svg(f"Histogram of {label}", parts)


def _across(share: float) -> float:
    return EDGE + share * (WIDTH - 2 * EDGE)


def _up(share: float) -> float:
    return HEIGHT - EDGE - share * (HEIGHT - 2 * EDGE)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, is_dashed: bool) -> str:
    dashes = ' stroke-dasharray="4 3"' if is_dashed else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}" stroke-width="1.5"{dashes}/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _frame(left: str, right: str, bottom: str, top: str, across: str, up: str) -> str:
    return "".join(
        [
            _line(_across(0), _up(0), _across(1), _up(0), _GRID, is_dashed=False),
            _line(_across(0), _up(0), _across(0), _up(1), _GRID, is_dashed=False),
            _text(_across(0), HEIGHT - EDGE + 14, left),
            _text(_across(1), HEIGHT - EDGE + 14, right),
            _text(_across(0.5), HEIGHT - 6, across),
            _text(EDGE - 4, _up(0) + 4, bottom, "end"),
            _text(EDGE - 4, _up(1) + 4, top, "end"),
            _text(EDGE, EDGE - 12, up),
        ]
    )


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="11" fill="currentColor"><title>{title}</title>'
        + "".join(parts)
        + "</svg>"
    )
