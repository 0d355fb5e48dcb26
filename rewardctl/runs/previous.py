"""An earlier output whose failed cells are scored again while the others are kept."""

import json
from collections.abc import Generator, Sequence
from pathlib import Path

from rewardctl.errors import RowError, UsageError
from rewardctl.rewards.plan import Call
from rewardctl.runs.render import Cell, read_cells


class PreviousRows:
    """Reads an earlier output twice: once for its failed cells, then row by row beside the new
    run.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._path = path
        self._names = list(names)
        self._failed: dict[str, set[int]] = {name: set() for name in names}
        for row, cells in self._read():
            for name, cell in zip(self._names, cells, strict=True):
                if isinstance(cell, RowError):
                    self._failed[name].add(row)
        self._rows = self._read()

    def _read(self) -> Generator[tuple[int, list[Cell]], None, None]:
        with self._path.open("rb") as file:
            for row, line in enumerate(file):
                try:
                    yield row, read_cells(json.loads(line), self._names)
                except (ValueError, KeyError, TypeError) as error:
                    raise UsageError(
                        f"{self._path}:{row + 1}: expected a row that score wrote for streams "
                        f"{', '.join(self._names)}, found another; score anew with --overwrite"
                    ) from error

    def close(self) -> None:
        """Close the file."""
        self._rows.close()

    @property
    def failed_cells(self) -> int:
        """How many cells have no score although they should."""
        return sum(map(len, self._failed.values()))

    def needs(self, call: Call) -> bool:
        """Whether a call has a failed cell, so that it is run again, whole."""
        failed = self._failed[call.stream]
        return bool(failed) and not failed.isdisjoint(call.rows)

    def is_failed(self, row: int, stream: str) -> bool:
        """Whether a cell failed in the earlier output."""
        return row in self._failed[stream]

    def merge(self, row: int, fresh: Sequence[Cell]) -> list[Cell]:
        """The earlier cells of `row`, the failed ones replaced; rows are asked for in order."""
        for number, kept in self._rows:
            if number == row:
                return [
                    new if isinstance(old, RowError) else old
                    for old, new in zip(kept, fresh, strict=True)
                ]
        raise UsageError(f"{self._path}: has no row {row}; score anew with --overwrite")
