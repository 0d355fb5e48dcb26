"""One sample: what a reward model may be asked about, and how a row of JSON becomes one.

Lines and files are in jsonl.py and inputs.py; media are only named here, media_ref.py finds them.
"""

import json
import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from rewardctl.data.jsonl import parse_json
from rewardctl.data.media_ref import (
    MediaRoot,
    parse_media,
    parse_media_list,
    parse_video,
    parse_video_list,
)
from rewardctl.errors import RowError, quote

FIELDS: tuple[str, ...] = (
    "prompt",
    "response",
    "image",
    "video",
    "audio",
    "condition_images",
    "condition_videos",
    "tokens",
    "latents",
    "timestep",
    "metadata",
    "unique_id",
    "id",
    "dataset",
    "source",
)
MEDIA_KINDS: dict[str, str] = {
    "image": "image",
    "video": "video",
    "audio": "audio",
    "condition_images": "image",
    "condition_videos": "video",
    "latents": "latents",
}
TURN_BREAK = "\n\n"  # between the messages of a chat that is read as text

_PREFERENCE_COLUMNS = (
    "chosen",
    "rejected",
    "candidates",
    *(f"{side}_{name}" for side in ("chosen", "rejected") for name in ("response", "tokens")),
    *(f"{side}_{name}" for side in ("chosen", "rejected") for name in MEDIA_KINDS),
)
_JOINT_COLUMNS = frozenset({"metadata", "dataset", "source"})  # read together with others
_MAX_TOKEN = 2**63 - 1  # of an int64 tensor
_dump = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(slots=True, eq=False)
class BaseSample:
    """What is known of one thing to score; a field that is None is absent.

    A subclass may add fields. A name that is no field is looked up in `extra_kwargs`.
    """

    # Fields that a subclass needs to be built again elsewhere; they travel with a reward's own.
    reconstruction_required_fields: ClassVar[tuple[str, ...]] = ()
    # Fields equal for all samples of a batch: for the collator alone.
    _shared_fields: ClassVar[frozenset[str]] = frozenset()

    prompt: str | None = None
    response: str | None = None
    # Media: a MediaRef when read from a row; from Python whatever the reward models take.
    image: Any = None
    video: Any = None
    audio: Any = None
    audio_sample_rate: int | None = None  # Hz
    condition_images: Any = None
    condition_videos: Any = None
    tokens: Sequence[int] | None = None  # an array when read from a row
    latents: Any = None
    timestep: float | None = None
    metadata: str | None = None  # JSON text
    unique_id: str | None = None  # the group, within its dataset
    id: str | int | None = None  # the row's own name
    source: str | None = None  # the dataset's name
    source_id: int | None = None
    applicable_rewards: set[str] = field(default_factory=set)
    extra_kwargs: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        # Past __getattr__, for an instance whose fields are not set yet (copy, pickle).
        extra_kwargs = object.__getattribute__(self, "extra_kwargs")
        try:
            return extra_kwargs[name]
        except KeyError:
            raise AttributeError(
                f"{type(self).__name__!r} has no field {name!r}, nor has its extra_kwargs"
            ) from None


def sample_from_row(
    row: dict[str, Any],
    *,
    default_dataset: str,
    declared: frozenset[str] | None,
    media_root: MediaRoot,
) -> BaseSample:
    """The sample that a row of JSON describes; a known column that is null is absent.

    Args:
        row: From `jsonl.parse_row`.
        default_dataset: Dataset of a row that names none.
        declared: Dataset names that the config declares; None allows any.
        media_root: Where relative media paths start, and what they may reach.

    Raises:
        RowError: `bad_row`; for a media column also what `media_ref` raises.
    """
    columns: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    for column, value in row.items():
        read = _READERS.get(column)
        if read is not None:
            if value is not None:
                columns[column] = read(column, value, media_root)
        elif column not in _JOINT_COLUMNS:
            unknown[column] = value
    dataset = _row_dataset(row, default_dataset)
    if declared is not None and dataset not in declared:
        raise RowError(
            "bad_row",
            f"dataset {quote(dataset)} is not declared; declared under data.datasets: "
            f"{', '.join(sorted(declared))}; name one with --data NAME=PATH or in the row",
        )
    if type(row.get("prompt")) is list and type(row.get("response")) is list:
        # Prompt and response of one chat: joined, they read as the whole chat would.
        columns["prompt"] += TURN_BREAK
    return BaseSample(source=dataset, metadata=_metadata(row.get("metadata"), unknown), **columns)


def group_key(row: dict[str, Any], *, default_dataset: str) -> tuple[str, str | None]:
    """(dataset, unique_id) of a row, without building its sample; None is a row of no group.

    Raises:
        RowError: `bad_row`; dataset or unique_id is of a wrong type.
    """
    unique_id = row.get("unique_id")
    if unique_id is not None:
        unique_id = _read_unique_id("unique_id", unique_id)
    return _row_dataset(row, default_dataset), unique_id


def chat_text(messages: list[Any], *, column: str) -> str:
    """A chat as text: `role: content` for each message, blank lines between.

    Raises:
        RowError: `bad_row`; no message, or one without text as role or content.
    """
    if not messages:
        _refuse(column, "text or at least one chat message", messages)
    turns = []
    for number, message in enumerate(messages):
        role, content = (
            (message.get("role"), message.get("content")) if type(message) is dict else (None, None)
        )
        if type(role) is not str or type(content) is not str:
            _refuse(f"{column}[{number}]", "a message with text as 'role' and 'content'", message)
        turns.append(f"{role}: {content}")
    return TURN_BREAK.join(turns)


def _row_dataset(row: dict[str, Any], default_dataset: str) -> str:
    dataset, alias = row.get("dataset"), row.get("source")
    if dataset is None and alias is None:
        return default_dataset
    for column, name in (("dataset", dataset), ("source", alias)):
        if name is not None and (type(name) is not str or not name):
            _refuse(column, "the name of a dataset", name)
    if dataset is not None and alias is not None and dataset != alias:
        raise RowError(
            "bad_row",
            f"'dataset' is {quote(dataset)} and its alias 'source' is {quote(alias)}; keep one",
        )
    name = alias if dataset is None else dataset
    return str(name)


def _metadata(metadata: Any, unknown: dict[str, Any]) -> str | None:
    """The row's metadata as one JSON text: a text as it came, unless columns join it."""
    if type(metadata) is str:
        known = _parse_metadata(metadata)
        if not unknown:
            return metadata
        if type(known) is not dict:
            raise RowError(
                "bad_row",
                f"column 'metadata': expected the JSON text of an object, as column(s) "
                f"{quote(list(unknown))} join it, found {quote(metadata)}; "
                "move them into it, or make it an object",
            )
    elif metadata is None:
        if not unknown:
            return None
        known = {}
    elif type(metadata) is dict:
        known = metadata
    else:
        _refuse("metadata", "an object or JSON text", metadata)
    clash = known.keys() & unknown.keys()
    if clash:
        raise RowError(
            "bad_row",
            f"key(s) {quote(sorted(clash))} stand in 'metadata' and as columns; keep one of each",
        )
    return _dump(known | unknown)


def _parse_metadata(text: str) -> Any:
    try:
        return parse_json(text)
    except RowError as error:
        raise RowError(
            "bad_row", f"column 'metadata': expected an object or JSON text: {error}"
        ) from None


def _refuse(column: str, expected: str, value: object) -> NoReturn:
    raise RowError(
        "bad_row",
        f"column {column!r}: expected {expected}, found {quote(value)}; correct it or leave it out",
    )


def _read_text(column: str, value: Any, _: MediaRoot) -> str:
    if type(value) is str:
        return value
    if type(value) is list:
        return chat_text(value, column=column)
    _refuse(column, "text or a list of chat messages", value)


def _read_tokens(column: str, value: Any, _: MediaRoot) -> "array[int]":
    """Token ids in 2 bytes each, or in 4 or 8 where one needs them; a list of them takes 40."""
    if type(value) is not list or list(map(type, value)).count(int) != len(value):
        _refuse(column, "a list of integers", value)
    try:
        return array("H", value)
    except OverflowError:  # of one over 65535, or below 0
        low, high = min(value), max(value)
    if not 0 <= low <= high <= _MAX_TOKEN:
        _refuse(column, f"token ids from 0 to {_MAX_TOKEN}", low if low < 0 else high)
    return array("I" if high < 2**32 else "Q", value)


def _read_timestep(column: str, value: Any, _: MediaRoot) -> float:
    if type(value) is float or type(value) is int:
        try:
            timestep = float(value)
        except OverflowError:
            timestep = math.inf
        if math.isfinite(timestep):
            return timestep
    _refuse(column, "a finite number", value)


def _read_unique_id(column: str, value: Any, _: MediaRoot | None = None) -> str:
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    _refuse(column, "text or an integer", value)


def _read_id(column: str, value: Any, _: MediaRoot) -> str | int:
    if type(value) is str or type(value) is int:
        return value
    _refuse(column, "text or an integer", value)


def _read_media(column: str, value: Any, media_root: MediaRoot) -> Any:
    try:
        return _MEDIA_PARSERS[column](value, media_root)
    except RowError as error:
        raise RowError(error.status, f"column {column!r}: {error}") from error


def _read_preference(column: str, value: Any, _: MediaRoot) -> NoReturn:
    raise RowError(
        "bad_row",
        f"expected a sample row, found a preference row (column {column!r}); use rewardctl eval",
    )


_MEDIA_PARSERS: dict[str, Callable[[Any, MediaRoot], Any]] = {
    "image": parse_media,
    "video": parse_video,
    "audio": parse_media,
    "condition_images": parse_media_list,
    "condition_videos": parse_video_list,
    "latents": parse_media,
}
_READERS: dict[str, Callable[[str, Any, MediaRoot], Any]] = {
    "prompt": _read_text,
    "response": _read_text,
    "tokens": _read_tokens,
    "timestep": _read_timestep,
    "unique_id": _read_unique_id,
    "id": _read_id,
    **dict.fromkeys(_MEDIA_PARSERS, _read_media),
    **dict.fromkeys(_PREFERENCE_COLUMNS, _read_preference),
}
