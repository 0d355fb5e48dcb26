"""Rows out: one JSON line for each input row, from its cells."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any

from rewardctl.config.schema import RewardArguments, ScoreConfig
from rewardctl.data.row_stream import InputRow
from rewardctl.data.samples import BaseSample
from rewardctl.errors import RowError, UsageError
from rewardctl.rewards.aggregate import aggregate

# A score, why there is none, or None: the stream does not apply (or is not done yet).
Cell = float | RowError | None

ROW_KEYS = (
    "row",
    "source",
    "line",
    "id",
    "unique_id",
    "dataset",
    "scores",
    "applicable",
    "status",
    "weights",
    "errors",
    "aggregate",
    "weight_sum",
)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


_text = encode_basestring  # the JSON of a text, as `_encode` gives it
_number = float.__repr__  # the JSON of a finite float


def _name(value: str | int | None) -> str:
    """The JSON of a text, an integer or null."""
    if value is None:
        return "null"
    return _text(value) if isinstance(value, str) else int.__repr__(value)


@dataclass(frozen=True, slots=True)
class _Alike:
    """What the lines of one dataset have alike where no cell failed, as JSON."""

    dataset: str
    keys: list[str]  # of `scores`, each with its colon
    mappings: str  # from `applicable` to `errors`
    weights: list[float]  # numbers: of the streams that apply


class RowRenderer:
    """Renders output rows of one run.

    Args:
        include: input columns that are copied to the row's top level.

    Raises:
        UsageError: a column of `include` has a name that the row has already.
    """

    def __init__(
        self, streams: Sequence[RewardArguments], rule: ScoreConfig, include: Sequence[str]
    ) -> None:
        for name in include:
            if name in ROW_KEYS:
                raise UsageError(
                    f"--include {name}: the output row has {name!r} already; leave it out "
                    f"(taken are {', '.join(ROW_KEYS)})"
                )
        self._streams = streams
        self._names = [s.name for s in streams]
        self._rule = rule
        self._include = include
        self._alike_by_dataset: dict[str | None, _Alike] = {}
        self._by_dataset: dict[str | None, tuple[dict[str, bool], dict[str, float | None]]] = {}

    def render(self, row: InputRow, cells: Sequence[Cell]) -> bytes:
        """The line of one row; `cells` in the order of the streams."""
        if isinstance(row.sample, RowError):
            out = self._bad_row(row, row.sample)
        else:
            line = self._good_line(row, row.sample, cells)
            if line is not None:
                return line
            out = self._scored_row(row, cells)
        record = row.record or {}
        for name in self._include:
            out[name] = record.get(name)
        return _dump(out)

    def _scored_row(self, row: InputRow, cells: Sequence[Cell]) -> dict[str, Any]:
        sample = row.sample
        assert not isinstance(sample, RowError)
        applicable, weights = self._facts(sample.source)
        scores: dict[str, float | None] = {}
        status: dict[str, str] = {}
        errors: dict[str, str | None] = {}
        entered: list[float | None] = []
        used: list[float] = []
        for name, cell in zip(self._names, cells, strict=True):
            score = cell if type(cell) is float else None
            scores[name] = score
            errors[name] = str(cell) if isinstance(cell, RowError) else None
            weight = weights[name]
            if weight is None:
                status[name] = "not_applicable"
                continue
            assert cell is not None, f"row {row.row}: no cell of stream {name}"
            status[name] = cell.status if isinstance(cell, RowError) else "ok"
            entered.append(score)
            used.append(weight)
        value, weight_sum = aggregate(entered, used, self._rule)
        return {
            "row": row.row,
            "source": row.source,
            "line": row.line,
            "id": sample.id,
            "unique_id": sample.unique_id,
            "dataset": sample.source,
            "scores": scores,
            "applicable": applicable,
            "status": status,
            "weights": weights,
            "errors": errors,
            "aggregate": value,
            "weight_sum": weight_sum,
        }

    def _good_line(self, row: InputRow, sample: BaseSample, cells: Sequence[Cell]) -> bytes | None:
        """The line of `_scored_row` in less than half of its time, for nearly every row.

        None where a cell failed, the aggregate is null, columns are copied, or UTF-8 cannot hold
        the line.
        """
        scores = [cell for cell in cells if not isinstance(cell, RowError)]
        if self._include or len(scores) < len(cells):
            return None
        alike = self._alike(sample.source)
        entered = [score for score in scores if score is not None]
        assert len(entered) == len(alike.weights), f"row {row.row}: no cell of some stream"
        value, weight_sum = aggregate(entered, alike.weights, self._rule)
        if value is None:
            return None
        members = ", ".join(
            [
                key + ("null" if score is None else _number(score))
                for key, score in zip(alike.keys, scores, strict=True)
            ]
        )
        line = (
            f'{{"row": {row.row}, "source": {_text(row.source)}, "line": {row.line}, '
            f'"id": {_name(sample.id)}, "unique_id": {_name(sample.unique_id)}, '
            f'"dataset": {alike.dataset}, "scores": {{{members}}}, {alike.mappings}, '
            f'"aggregate": {_number(value)}, "weight_sum": {_number(weight_sum)}}}\n'
        )
        try:
            return line.encode()
        except UnicodeEncodeError:
            return None

    def _alike(self, dataset: str | None) -> _Alike:
        if dataset not in self._alike_by_dataset:
            applicable, weights = self._facts(dataset)
            mappings = {
                "applicable": applicable,
                "status": {n: "ok" if applicable[n] else "not_applicable" for n in self._names},
                "weights": weights,
                "errors": dict.fromkeys(self._names),
            }
            self._alike_by_dataset[dataset] = _Alike(
                _name(dataset),
                [f"{_text(name)}: " for name in self._names],
                _encode(mappings)[1:-1],
                [weight for weight in weights.values() if weight is not None],
            )
        return self._alike_by_dataset[dataset]

    def _facts(self, dataset: str | None) -> tuple[dict[str, bool], dict[str, float | None]]:
        """Which streams apply to a dataset, and with which weight."""
        if dataset not in self._by_dataset:
            applicable = {s.name: s.applies_to(dataset) for s in self._streams}
            weights = {
                s.name: float(s.weight_for(str(dataset))) if applicable[s.name] else None
                for s in self._streams
            }
            self._by_dataset[dataset] = applicable, weights
        return self._by_dataset[dataset]

    def _bad_row(self, row: InputRow, error: RowError) -> dict[str, Any]:
        record = row.record or {}
        unique_id = record.get("unique_id")
        nothing = dict.fromkeys(self._names)
        return {
            "row": row.row,
            "source": row.source,
            "line": row.line,
            "id": record["id"] if type(record.get("id")) in (str, int) else None,
            "unique_id": str(unique_id) if type(unique_id) in (str, int) else None,
            "dataset": record["dataset"] if type(record.get("dataset")) is str else None,
            "scores": nothing,
            "applicable": nothing,
            "status": dict.fromkeys(self._names, error.status),
            "weights": nothing,
            "errors": dict.fromkeys(self._names, str(error)),
            "aggregate": None,
            "weight_sum": 0.0,
        }


def _dump(out: dict[str, Any]) -> bytes:
    try:
        return _encode(out).encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair: JSON can escape it, UTF-8 cannot hold it
        return json.dumps(out, allow_nan=False).encode() + b"\n"


def read_cells(out: dict[str, Any], names: Sequence[str]) -> list[Cell]:
    """The cells of an output row that was written before."""
    cells: list[Cell] = []
    for name in names:
        status = out["status"][name]
        if status == "ok":
            cells.append(float(out["scores"][name]))
        elif status == "not_applicable":
            cells.append(None)
        else:
            cells.append(RowError(status, out["errors"][name]))
    return cells
