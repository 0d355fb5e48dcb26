"""From preference rows to the numbers a model takes: encoding, the over-length policy, and which
rows cannot or need not be learnt from. Reading rows is in preferences.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rewardctl.config.schema import MediaConfig
from rewardctl.data.encoded import EncodedRow
from rewardctl.data.media import decode
from rewardctl.data.media_ref import MediaRef
from rewardctl.data.preferences import PreferenceRow
from rewardctl.data.samples import BaseSample
from rewardctl.data.tokenizer import TextEncoder, is_unicode, join_prompt
from rewardctl.errors import DataError, RowError, quote

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

InputKind = Literal["text", "tokens", "latents"]
Overlong = Literal["error", "keep_head", "keep_tail", "drop"]
Severity = Literal["error", "left_out", "warning", "note"]

_FIELD: dict[InputKind, str] = {"text": "response", "tokens": "tokens", "latents": "latents"}
_MAX_ID = 2**31 - 1  # of int32


@dataclass(frozen=True, slots=True)
class Problem:
    """Something about a row, or about the data, that its user should know."""

    severity: Severity  # left_out: the row is not learnt from; note: it is, changed
    kind: str  # as over_length: what is counted together
    place: str  # file:line, or the file
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.severity.replace('_', ' ')}: {self.message}"


def encode_rows(
    rows: Sequence[PreferenceRow],
    *,
    input: InputKind,
    encoder: TextEncoder | None = None,
    seq_length: int,
    overlong: Overlong = "error",
    vocab_size: int | None = None,
    in_channels: int | None = None,
) -> tuple[list[EncodedRow], list[Problem]]:
    """The rows that can be learnt from, in order, and what was found in the others.

    Args:
        encoder: For text; it encodes prompt and response as one text.
        seq_length: Most positions of one side.
        overlong: What happens to a row with a longer side.
        vocab_size: Token ids lie below it.
        in_channels: Channels of latents.
    """
    limits = _Limits(input, seq_length, overlong, vocab_size, in_channels)
    problems: list[Problem] = []
    encoded: list[EncodedRow] = []
    for row, items in zip(rows, _all_items(rows, input, encoder), strict=True):
        found = items if isinstance(items, Problem) else _fit(row, items, limits, problems)
        if isinstance(found, Problem):
            problems.append(found)
        else:
            encoded.append(_encoded(row, found))
    return encoded, problems


def row_texts(rows: Sequence[PreferenceRow]) -> Iterator[str]:
    """What a text model reads of each side, one text a side; sides without text are left out."""
    for row in rows:
        for side in row.sides:
            if side.response is not None:
                yield join_prompt(side.prompt, side.response)


def shorten(item: NDArray[Any], seq_length: int, overlong: Overlong) -> NDArray[Any] | None:
    """An item of at most `seq_length` positions; None where the policy keeps no part of it."""
    if len(item) <= seq_length:
        return item
    if overlong == "keep_head":
        return item[:seq_length]
    if overlong == "keep_tail":
        return item[-seq_length:]
    return None


def token_array(tokens: Any, name: str) -> NDArray[np.int32]:
    """Token ids as int32 (length,).

    Args:
        tokens: A list, an array or a tensor.
        name: What messages call them.

    Raises:
        DataError: no ids, or something that is no list of ids of int32.
    """
    import numpy as np

    if isinstance(tokens, list | tuple):
        if not set(map(type, tokens)) <= {int}:
            raise DataError(f"{name}: expected integers as token ids, found {quote(tokens)}")
        if tokens and not 0 <= min(tokens) <= max(tokens) <= _MAX_ID:
            raise DataError(f"{name}: expected ids from 0 to {_MAX_ID}, found {quote(tokens)}")
    array = np.asarray(tokens)
    if array.size == 0:
        raise DataError(f"{name}: expected token ids, found none")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"{name}: expected token ids as integers (length,), "
            f"found {array.dtype} of shape {array.shape}"
        )
    if not 0 <= array.min() <= array.max() <= _MAX_ID:
        raise DataError(f"{name}: expected ids from 0 to {_MAX_ID}, found {quote(array.tolist())}")
    return array.astype(np.int32)


@dataclass(frozen=True)
class _Limits:
    input: InputKind
    seq_length: int
    overlong: Overlong
    vocab_size: int | None
    in_channels: int | None


@dataclass
class _Latents:
    """Latents by file, each decoded once."""

    decoded: dict[Hashable, NDArray[np.float32] | RowError] = field(default_factory=dict)

    def read(self, latents: Any) -> NDArray[np.float32]:
        if not isinstance(latents, MediaRef):
            inline: NDArray[np.float32] = latents
            return inline
        key = latents.key
        if key not in self.decoded:
            try:
                self.decoded[key] = decode("latents", latents, MediaConfig())
            except RowError as error:
                self.decoded[key] = error
        found = self.decoded[key]
        if isinstance(found, RowError):
            raise found
        return found


def _encoded(row: PreferenceRow, items: tuple[NDArray[Any], ...]) -> EncodedRow:
    return EncodedRow(
        place=row.place,
        items=items,
        ranks=row.ranks,
        margin=row.margin,
        preference=row.preference,
        weight=row.weight,
        timestep=row.timestep,
    )


def side_names(row: PreferenceRow) -> list[str]:
    """What messages call the sides of a row."""
    if row.ranks is None:
        return ["chosen", "rejected"]
    return [f"candidates[{number}]" for number in range(len(row.sides))]


def _all_items(
    rows: Sequence[PreferenceRow], input: InputKind, encoder: TextEncoder | None
) -> Iterator[tuple[NDArray[Any], ...] | Problem]:
    """The encoded sides of each row, whatever their length, or why there are none."""
    ids = _encode_texts(rows, encoder) if input == "text" else {}
    latents = _Latents()
    for row in rows:
        items: list[NDArray[Any]] = []
        try:
            for name, side in zip(side_names(row), row.sides, strict=True):
                items.append(_item(name, side, input, ids, latents))
        except RowError as error:
            yield Problem("error", "unreadable", row.place, str(error))
        except DataError as error:
            yield Problem("error", "wrong_kind", row.place, str(error))
        else:
            yield tuple(items)


def _encode_texts(
    rows: Sequence[PreferenceRow], encoder: TextEncoder | None
) -> dict[str, NDArray[np.int32]]:
    """Each distinct text and its ids: in a pair file most arguments stand in many pairs."""
    if encoder is None:
        raise DataError("text needs an encoder; pass one, or give token ids")
    texts = [text for text in dict.fromkeys(row_texts(rows)) if is_unicode(text)]
    return dict(zip(texts, encoder.encode_batch(texts), strict=True))


def _item(
    name: str,
    side: BaseSample,
    input: InputKind,
    ids: dict[str, NDArray[np.int32]],
    latents: _Latents,
) -> NDArray[Any]:
    value = getattr(side, _FIELD[input])
    if value is None:
        raise DataError(_missing_input(name, side, input))
    if input == "text":
        text = join_prompt(side.prompt, value)
        if text not in ids:
            raise DataError(f"{name}: expected Unicode text, found a lone surrogate in it")
        if not len(ids[text]):
            raise DataError(f"{name}: the tokenizer has no token for {quote(text)}")
        return ids[text]
    return token_array(value, name) if input == "tokens" else latents.read(value)


def _missing_input(name: str, side: BaseSample, input: InputKind) -> str:
    held = [kind for kind, column in _FIELD.items() if getattr(side, column) is not None]
    message = f"{name}: expected {input}, as model.input says, found {' and '.join(held) or 'none'}"
    if input == "latents" and "text" in held:
        return (
            f"{message}; a path of latents goes under {name}_latents, "
            "or rename with columns: {chosen: chosen_latents, rejected: rejected_latents}"
        )
    return f"{message}; set model.input to what the rows hold"


def _fit(
    row: PreferenceRow,
    items: tuple[NDArray[Any], ...],
    limits: _Limits,
    problems: list[Problem],
) -> tuple[NDArray[Any], ...] | Problem:
    """The items within the limits, or why the row is not learnt from; truncation is noted."""
    names = side_names(row)
    for name, item in zip(names, items, strict=True):
        problem = _range_problem(name, item, limits)
        if problem:
            return Problem("error", "out_of_range", row.place, problem)
    if _are_identical(items):
        return Problem("left_out", "identical", row.place, f"{' and '.join(names[:2])} are equal")
    lengths = [len(item) for item in items]
    if max(lengths) <= limits.seq_length:
        return items
    longest = lengths.index(max(lengths))
    over = f"{names[longest]} has {max(lengths)} positions, over model.seq_length"
    over = f"{over} {limits.seq_length}"
    if limits.overlong == "error":
        advice = "set train.overlong to keep_head, keep_tail or drop, or raise model.seq_length"
        return Problem("error", "over_length", row.place, f"{over}; {advice}")
    shortened = [shorten(item, limits.seq_length, limits.overlong) for item in items]
    kept = tuple(item for item in shortened if item is not None)
    if len(kept) < len(items):
        return Problem("left_out", "over_length", row.place, f"{over} (train.overlong: drop)")
    if _are_identical(kept):
        return Problem(
            "left_out",
            "identical_after_truncation",
            row.place,
            f"{' and '.join(names[:2])} are equal in the {limits.seq_length} positions kept "
            f"({limits.overlong})",
        )
    problems.append(Problem("note", "truncated", row.place, f"{over} ({limits.overlong})"))
    return kept


def _range_problem(name: str, item: NDArray[Any], limits: _Limits) -> str | None:
    if limits.input == "latents":
        if item.ndim != 2:
            return f"{name}: expected latents (length, channels), found shape {item.shape}"
        if limits.in_channels is not None and item.shape[1] != limits.in_channels:
            return (
                f"{name}: expected latents of {limits.in_channels} channels (model.in_channels), "
                f"found shape {item.shape}"
            )
        return None
    if limits.vocab_size is None or item.max() < limits.vocab_size:
        return None
    position = int((item >= limits.vocab_size).argmax())
    return (
        f"{name}: token {item[position]} at position {position} is outside "
        f"[0, {limits.vocab_size}); raise model.vocab_size, or correct the row"
    )


def _are_identical(items: Sequence[NDArray[Any]]) -> bool:
    first = items[0]
    return all(
        item is first or (item.shape == first.shape and bool((item == first).all()))
        for item in items[1:]
    )
