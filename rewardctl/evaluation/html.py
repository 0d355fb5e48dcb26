"""Static pages: the report of an evaluation, and the distributions of an output of `score`.

One file each, with plots inside and nothing from a network. What rows and configs say is escaped.
"""

import json
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rewardctl import __version__
from rewardctl.data.journal import io_failure
from rewardctl.data.jsonl import open_input, read_lines
from rewardctl.errors import DataError, RunError
from rewardctl.evaluation import metrics
from rewardctl.evaluation.page_templates import EVALUATION, SCORES
from rewardctl.evaluation.plots import (
    histogram_plot,
    reliability_plot,
    scatter_plot,
    two_histograms_plot,
)

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def write_page(report: Mapping[str, Any], path: Path) -> None:
    """Write the report of an evaluation as `report.html`.

    Raises:
        RunError: jinja2 is missing, or the file cannot be written.
    """
    _write(path, EVALUATION, report=report)


def write_score_report(scores: Path, meta: Mapping[str, Any], page: Path) -> None:
    """Write a page about an output of `score`: distributions by dataset, failures.

    Args:
        scores: OUT.
        meta: The content of OUT.meta.json.

    Raises:
        DataError: `scores` holds no rows of `score`.
        RunError: jinja2 is missing, or the file cannot be written.
    """
    _write(page, SCORES, meta=meta, streams=_distributions(scores), scores=str(scores))


def _distributions(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Stream -> dataset -> figures and histogram of its scores."""
    columns: dict[str, dict[str, array[float]]] = {}
    with open_input(path) as handle:
        for line in read_lines(handle):
            try:
                row = json.loads(line.raw)
                for stream, score in row["scores"].items():
                    if score is not None:
                        by_dataset = columns.setdefault(stream, {})
                        by_dataset.setdefault(str(row["dataset"]), array("d")).append(score)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DataError(
                    f"{path}:{line.number}: expected a row that score wrote, found another "
                    f"({type(error).__name__}: {error})"
                ) from error
    return {
        stream: {name: _distribution(found) for name, found in sorted(by_dataset.items())}
        for stream, by_dataset in columns.items()
    }


def _distribution(found: "array[float]") -> dict[str, Any]:
    scores = np.frombuffer(found, dtype=np.float64)
    return {
        "n": len(scores),
        "mean": metrics.mean(scores),
        "statistics": metrics.gap_statistics(scores),
        "histogram": metrics.gap_histogram(scores),
    }


def _write(path: Path, template: str, **values: Any) -> None:
    page = _environment().from_string(template).render(version=__version__, **values)
    try:
        path.write_text(page + "\n", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise io_failure(path, error) from error


def _environment() -> "Environment":
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise RunError('the HTML report needs jinja2: pip install "rewardctl[report]"') from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters.update(
        number=_number,
        interval=_interval,
        reliability=_reliability,
        histogram=_histogram,
        two_histograms=_two_histograms,
        scatter=_scatter,
    )
    return environment


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _interval(figure: Mapping[str, Any] | None) -> str:
    """A figure with its interval."""
    if figure is None:
        return "–"
    text = _number(figure["value"])
    if figure["low"] is not None:
        # No line break within the brackets.
        text += f" [{_number(figure['low'])},\u00a0{_number(figure['high'])}]"
    return text + (" (unreliable)" if figure.get("unreliable") else "")


def _reliability(table: list[dict[str, Any]]) -> "Markup":
    from markupsafe import Markup

    return Markup(reliability_plot(table))


def _histogram(histogram: dict[str, list[Any]] | None, label: str) -> "Markup":
    from markupsafe import Markup

    return Markup("" if histogram is None else histogram_plot(histogram, label))


def _two_histograms(histogram: dict[str, list[Any]] | None) -> "Markup":
    from markupsafe import Markup

    return Markup("" if histogram is None else two_histograms_plot(histogram))


def _scatter(points: dict[str, Any] | None) -> "Markup":
    from markupsafe import Markup

    return Markup("" if points is None else scatter_plot(points["lengths"], points["scores"]))
