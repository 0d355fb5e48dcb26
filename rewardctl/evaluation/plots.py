"""Small plots as SVG text, drawn from numbers alone: nothing that a row says gets into them."""

from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT, EDGE = 320, 220, 40  # pixels; EDGE is room for axes and their numbers
_BAR, _LINE, _GRID = "#4477aa", "#cc6677", "#cccccc"


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
    parts += _bars(counts, most, _BAR)
    if low <= 0 <= high:
        x = _across(-low / (high - low))
        parts.append(_line(x, _up(0.0), x, _up(1.0), _LINE, is_dashed=False))
    return _svg(f"Histogram of {label}", parts)


def two_histograms_plot(histogram: dict[str, list[Any]]) -> str:
    """Bars of the scores of chosen and of rejected sides over each other; where both are, mixed."""
    edges, chosen, rejected = (histogram[name] for name in ("edges", "chosen", "rejected"))
    most = max(*chosen, *rejected)
    parts = [_frame(f"{edges[0]:.3g}", f"{edges[-1]:.3g}", "0", str(most), "score", "count")]
    parts += _bars(chosen, most, _BAR) + _bars(rejected, most, _LINE)
    for place, (name, colour) in enumerate((("chosen", _BAR), ("rejected", _LINE))):
        x = WIDTH - EDGE - 130 + 65 * place
        parts.append(f'<rect x="{x}" y="6" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(x + 14, 15, name, "start"))
    return _svg("Scores of chosen and rejected sides", parts)


def scatter_plot(lengths: Sequence[float], scores: Sequence[float]) -> str:
    """A dot for each side: its score over its length in characters."""
    low, high = min(scores), max(scores)
    first, last = min(lengths), max(lengths)
    # Numbers of any length fit above the plot; beside the axis they would be cut.
    up = f"score, from {low:.4g} to {high:.4g}"
    parts = [_frame(f"{first:.0f}", f"{last:.0f}", "", "", "length in characters", up)]
    for length, score in zip(lengths, scores, strict=True):
        x, y = _across(_share(length, first, last)), _up(_share(score, low, high))
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{_BAR}" fill-opacity="0.5"/>')
    return _svg("Score over length", parts)


def _share(value: float, low: float, high: float) -> float:
    """Where a value stands from low to high, from 0 to 1; halves, since the range may overflow."""
    return 0.5 if low == high else (value / 2 - low / 2) / (high / 2 - low / 2)


def _bars(counts: Sequence[int], most: int, colour: str) -> list[str]:
    width = (WIDTH - 2 * EDGE) / len(counts)
    bars = []
    for index, count in enumerate(counts):
        top = _up(count / most)
        bars.append(
            f'<rect x="{EDGE + index * width:.1f}" y="{top:.1f}" width="{max(1.0, width - 1):.1f}" '
            f'height="{_up(0.0) - top:.1f}" fill="{colour}" fill-opacity="0.6"/>'
        )
    return bars


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
            _text(8, EDGE - 14, up, "start"),
        ]
    )


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="11" fill="currentColor"><title>{title}</title>'
        + "".join(parts)
        + "</svg>"
    )
