"""The list of pairs that a trainer takes from Python: read, changed, split, saved.

How rows of a file are spelled is in preferences.py, what a pair is in preference_pair.py.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from rewardctl.config.schema import MediaConfig
from rewardctl.config.training_schema import DataFile
from rewardctl.data.encoded import EncodedRow
from rewardctl.data.media import decode
from rewardctl.data.media_ref import MediaRef
from rewardctl.data.preference_pair import (
    PairChoice,
    Preference,
    PreferencePair,
    RankedSamples,
    StepwisePreference,
    item_array,
)
from rewardctl.data.preferences import (
    BadPreference,
    PreferenceRow,
    read_json_preferences,
    read_preferences,
)
from rewardctl.data.samples import BaseSample
from rewardctl.data.split import held_out
from rewardctl.data.tokenizer import TextEncoder, join_prompt
from rewardctl.errors import DataError, quote

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Preference",
    "PreferenceDataset",
    "PreferencePair",
    "RankedSamples",
    "StepwisePreference",
    "item_array",
]

Direction = Literal["higher_is_better", "lower_is_better"]

# Columns of a row that a pair keeps in its metadata, and that `save` writes as columns again.
_COLUMNS = ("id", "unique_id", "dataset", "preference", "weight")
_MAX_SHOWN = 10  # unusable rows that an error lists


class PreferenceDataset:
    """A list of pairs, read from files or made in Python."""

    def __init__(self, pairs: Iterable[Preference] = ()) -> None:
        self._pairs: list[Preference] = list(pairs)
        # Where each pair stood in a file, for messages; "" where it stood in none.
        self._places: list[str] = [""] * len(self._pairs)

    @classmethod
    def from_jsonl(
        cls,
        path: str | Path,
        *,
        columns: Mapping[str, str] | None = None,
        direction: Direction | None = None,
    ) -> PreferenceDataset:
        """The pairs of a JSONL file (also .gz) in any format that `rewardctl train` reads.

        K-wise rows become all their pairs, with the difference as margin.

        Args:
            columns: Renames columns: the file's name to ours.
            direction: What `ranking` or `scores` of K-wise rows mean.

        Raises:
            DataError: missing, without rows, or with rows that cannot be used, which are named.
        """
        file = DataFile(path=Path(path), columns=dict(columns or {}), direction=direction)
        return cls._from_rows(read_preferences([file]))

    @classmethod
    def from_json(
        cls,
        path: str | Path,
        *,
        columns: Mapping[str, str] | None = None,
        direction: Direction | None = None,
    ) -> PreferenceDataset:
        """The pairs of a JSON file that holds one list of rows; else as `from_jsonl`."""
        file = DataFile(path=Path(path), columns=dict(columns or {}), direction=direction)
        return cls._from_rows(read_json_preferences(file))

    @classmethod
    def load(cls, path: str | Path) -> PreferenceDataset:
        """What `save` wrote."""
        return cls.from_jsonl(path)

    @classmethod
    def _from_rows(cls, rows: Iterable[PreferenceRow | BadPreference]) -> PreferenceDataset:
        dataset = cls()
        problems: list[str] = []
        for row in rows:
            if isinstance(row, BadPreference):
                problems.append(str(row))
                continue
            try:
                pairs = _pairs_of_row(row)
            except DataError as error:
                problems.append(f"{row.place}: {error}")
                continue
            dataset._pairs += pairs
            dataset._places += [row.place] * len(pairs)
        if problems:
            rest = len(problems) - _MAX_SHOWN
            shown = problems[:_MAX_SHOWN] + ([f"and {rest:,} more"] if rest > 0 else [])
            raise DataError("\n".join(shown))
        return dataset

    def __len__(self) -> int:
        return len(self._pairs)

    @overload
    def __getitem__(self, place: int) -> Preference: ...
    @overload
    def __getitem__(self, place: slice) -> PreferenceDataset: ...
    def __getitem__(self, place: int | slice) -> Preference | PreferenceDataset:
        if isinstance(place, slice):
            return self._take(range(len(self))[place])
        return self._pairs[place]

    def __iter__(self) -> Iterator[Preference]:
        return iter(self._pairs)

    def add_pair(
        self,
        chosen: Any,
        rejected: Any = None,
        prompt: str | None = None,
        margin: float | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Append a pair: a PreferencePair or StepwisePreference, or what makes a PreferencePair."""
        if not isinstance(chosen, PreferencePair | StepwisePreference):
            chosen = PreferencePair(chosen, rejected, prompt, margin, metadata or {})
        self._pairs.append(chosen)
        self._places.append("")

    def add_ranked(
        self,
        samples: RankedSamples | Sequence[Any],
        prompt: str | None = None,
        scores: Sequence[float] = (),
        which: PairChoice = "all",
    ) -> None:
        """Append the pairs of ranked samples: a RankedSamples, or what makes one."""
        if not isinstance(samples, RankedSamples):
            samples = RankedSamples(samples, prompt, scores)
        for pair in samples.to_pairs(which):
            self.add_pair(pair)

    def filter(self, keep: Callable[[Preference], bool]) -> PreferenceDataset:
        """A new dataset of the pairs for which `keep` is true, in order."""
        return self._take(place for place, pair in enumerate(self._pairs) if keep(pair))

    def shuffle(self, seed: int = 0) -> PreferenceDataset:
        """Reorder this dataset by a seed; returns it."""
        places = list(range(len(self)))
        random.Random(seed).shuffle(places)
        shuffled = self._take(places)
        self._pairs, self._places = shuffled._pairs, shuffled._places
        return self

    def split(
        self, ratio: float = 0.9, seed: int = 0
    ) -> tuple[PreferenceDataset, PreferenceDataset]:
        """Two new datasets: about `ratio` of the pairs, and the rest; no prompt is in both.

        Pairs without a prompt each go their own way.
        """
        if not 0 < ratio < 1:
            raise DataError(f"expected a ratio between 0 and 1, found {quote(ratio)}")
        values = [
            ("pair", place) if pair.prompt is None else ("prompt", str(pair.prompt))
            for place, pair in enumerate(self._pairs)
        ]
        is_out = held_out(values, 1 - ratio, seed)
        first = self._take(place for place, out in enumerate(is_out) if not out)
        return first, self._take(place for place, out in enumerate(is_out) if out)

    def save(self, path: str | Path) -> None:
        """Write a JSONL file that `load` and `rewardctl train` read.

        Latents go into a folder beside it, one .safetensors file a side.
        """
        path = Path(path)
        folder = path.with_name(f"{path.name.partition('.')[0]}.latents")
        lines = [
            json.dumps(_row_of_pair(pair, place, folder), ensure_ascii=False, allow_nan=False)
            for place, pair in enumerate(self._pairs)
        ]
        partial = path.with_name(path.name + ".partial")
        partial.write_text("".join(line + "\n" for line in lines), "utf-8")
        os.replace(partial, path)

    def to_rows(self, *, encoder: TextEncoder | None = None) -> list[EncodedRow]:
        """The pairs as a trainer takes them.

        Args:
            encoder: For sides that are text; they are joined to the prompt and encoded.

        Raises:
            DataError: a side is empty, of a wrong kind, or text without an encoder.
        """
        places = [place or f"pair {number}" for number, place in enumerate(self._places)]
        texts = [text for pair in self._pairs for text in _texts(pair)]
        ids: dict[str, NDArray[np.int32]] = {}
        if texts:
            if encoder is None:
                place = next(p for p, x in zip(places, self._pairs, strict=True) if any(_texts(x)))
                raise DataError(f"{place}: text needs an encoder; pass one, or give token ids")
            distinct = list(dict.fromkeys(texts))
            ids = dict(zip(distinct, encoder.encode_batch(distinct), strict=True))
        return [_encoded(pair, place, ids) for place, pair in zip(places, self._pairs, strict=True)]

    def _take(self, places: Iterable[int]) -> PreferenceDataset:
        taken = PreferenceDataset()
        for place in places:
            taken._pairs.append(self._pairs[place])
            taken._places.append(self._places[place])
        return taken


def _texts(pair: Preference) -> list[str]:
    """The sides that are text, joined to the prompt."""
    sides = (pair.chosen, pair.rejected)
    return [join_prompt(pair.prompt, side) for side in sides if isinstance(side, str)]


def _encoded(pair: Preference, place: str, ids: Mapping[str, NDArray[np.int32]]) -> EncodedRow:
    items = []
    for name in ("chosen", "rejected"):
        side = getattr(pair, name)
        if isinstance(side, str):
            if not side.strip():
                raise DataError(f"{place}: {name}: expected text, found {quote(side)}")
            items.append(ids[join_prompt(pair.prompt, side)])
        else:
            items.append(item_array(side, f"{place}: {name}"))
    if items[0].dtype != items[1].dtype:
        raise DataError(f"{place}: expected sides of one kind, found tokens and latents")
    return EncodedRow(
        place=place,
        items=tuple(items),
        margin=None if pair.margin is None else float(pair.margin),
        preference=float(pair.metadata.get("preference", 1.0)),
        weight=float(pair.metadata.get("weight", 1.0)),
        timestep=float(pair.timestep) if isinstance(pair, StepwisePreference) else None,
    )


def _pairs_of_row(row: PreferenceRow) -> list[Preference]:
    has_one_prompt = len({side.prompt for side in row.sides}) == 1
    prompt = (row.prompt or None) if has_one_prompt else None
    items = [_side_value(side, is_joined=not has_one_prompt) for side in row.sides]
    if row.ranks is None:
        pairs = [PreferencePair(items[0], items[1], prompt, row.margin)]
    else:
        pairs = RankedSamples(items, prompt, row.ranks).to_pairs()
    metadata = _metadata(row)
    if row.timestep is None:
        return [replace(pair, metadata=metadata) for pair in pairs]
    return [
        StepwisePreference(p.chosen, p.rejected, row.timestep, p.prompt, p.margin, metadata)
        for p in pairs
    ]


def _side_value(side: BaseSample, *, is_joined: bool) -> Any:
    """What a pair holds of a side: token ids, latents, or text."""
    if side.tokens is not None:
        return list(side.tokens)
    if isinstance(side.latents, MediaRef):
        return decode("latents", side.latents, MediaConfig())
    if side.latents is not None:
        return side.latents
    if side.response is None:
        raise DataError(
            "expected sides of text, token ids or latents, found neither; "
            "pairs of images or videos are for rewardctl eval"
        )
    return join_prompt(side.prompt, side.response) if is_joined else side.response


def _metadata(row: PreferenceRow) -> dict[str, Any]:
    text = row.sides[0].metadata
    known = {} if text is None else json.loads(text)
    metadata = dict(known) if isinstance(known, dict) else {"metadata": known}
    columns = {name: row.record[name] for name in _COLUMNS if row.record.get(name) is not None}
    return metadata | columns


def _row_of_pair(pair: Preference, place: int, folder: Path) -> dict[str, Any]:
    # An empty prompt says that there is none; without it, one would be looked for in the texts.
    row: dict[str, Any] = {"prompt": pair.prompt or ""}
    for name in ("chosen", "rejected"):
        side = getattr(pair, name)
        if isinstance(side, str):
            row[name] = side
            continue
        array = item_array(side, f"pair {place}: {name}")
        if array.ndim == 1:
            row[name] = array.tolist()
        else:
            row[f"{name}_latents"] = _save_latents(array, folder, f"{place}-{name}")
    if pair.margin is not None:
        row["margin"] = float(pair.margin)
    if isinstance(pair, StepwisePreference):
        row["timestep"] = float(pair.timestep)
    row |= {name: pair.metadata[name] for name in _COLUMNS if name in pair.metadata}
    rest = {name: value for name, value in pair.metadata.items() if name not in _COLUMNS}
    return row | ({"metadata": rest} if rest else {})


def _save_latents(latents: NDArray[Any], folder: Path, name: str) -> str:
    """Write an array; its path as a row beside `folder` names it."""
    import numpy as np
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.safetensors"
    save_file({"latents": np.ascontiguousarray(latents)}, file)
    return f"{folder.name}/{file.name}"
