"""Files of stored scores, made by hand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rewardctl.evaluation.report import evaluate
from rewardctl.evaluation.stored import StoredScores, read_stored

Scores = list[float | str | None]  # of the sides; None does not apply, text is a failure's status


class StoredFile:
    """Rows as `eval` writes them, of one stream `s` or more."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "scores.jsonl"
        self._rows: list[dict[str, Any]] = []
        self._pairs = 0

    def add(
        self, scores: Scores | dict[str, Scores], labels: list[float] | None = None, **columns: Any
    ) -> None:
        """A preference row; with `labels` one of ranked candidates."""
        streams = scores if isinstance(scores, dict) else {"s": scores}
        names = ["chosen", "rejected"] if labels is None else list(range(len(labels)))
        kind = columns.pop("kind", "rank")
        lengths = columns.pop("lengths", [None] * len(names))
        texts, question = columns.pop("texts", None), columns.pop("question", None)
        for place, side in enumerate(names):
            found = {name: values[place] for name, values in streams.items()}
            self._rows.append(
                {
                    "source": "pairs.jsonl",
                    "line": self._pairs + 1,
                    "dataset": "d",
                    "scores": {n: v if type(v) is float else None for n, v in found.items()},
                    "status": {n: status_of(v) for n, v in found.items()},
                    "pair": self._pairs,
                    "side": side,
                    "preference": 1.0 if labels is None else None,
                    "length": lengths[place],
                    **({} if labels is None else {kind: labels[place]}),
                    **({} if texts is None else {"excerpt": texts_of(question, texts[place])}),
                    **columns,
                }
            )
        self._pairs += 1

    def add_unread(self) -> None:
        """A preference row that could not be read."""
        self._rows.append(
            {"scores": {"s": None}, "status": {"s": "bad_row"}, "side": None, "pair": self._pairs}
        )
        self._pairs += 1

    def add_raw(self, *rows: dict[str, Any]) -> None:
        """Rows as they are."""
        self._rows += rows

    def read(self, *, cluster: str = "prompt", label: str | None = None) -> StoredScores:
        """The stored scores of what was added."""
        self.path.write_text("".join(json.dumps(row) + "\n" for row in self._rows))
        return read_stored(self.path, cluster=cluster, label=label)

    def report(self, *, cluster: str = "prompt", label: str | None = None) -> dict[str, Any]:
        """The report of what was added."""
        return evaluate(self.read(cluster=cluster, label=label), cluster=cluster)

    def figures(self, **options: Any) -> dict[str, Any]:
        """The report's figures of stream `s`."""
        figures: dict[str, Any] = self.report(**options)["streams"]["s"]
        return figures


def texts_of(prompt: str | None, response: str | None) -> dict[str, str | None]:
    return {"prompt": prompt, "response": response}


def status_of(value: float | str | None) -> str:
    if value is None:
        return "not_applicable"
    return value if isinstance(value, str) else "ok"


@pytest.fixture
def stored(tmp_path: Path) -> StoredFile:
    """A file without rows yet."""
    return StoredFile(tmp_path)


@pytest.fixture
def new_stored(tmp_path: Path) -> Callable[[str], StoredFile]:
    """Makes further files, by the name of their folder."""

    def make(name: str) -> StoredFile:
        (tmp_path / name).mkdir()
        return StoredFile(tmp_path / name)

    return make
