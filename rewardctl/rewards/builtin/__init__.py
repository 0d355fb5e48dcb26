"""The reward models that ship, one file each, and how they read a row's metadata; nothing heavy."""

import json
from difflib import get_close_matches
from typing import Any, Never

from rewardctl.errors import RowError, quote


def metadata_value(metadata: str | None, key: str) -> Any:
    """What a row's metadata, one JSON-encoded object, holds under `key`; never None.

    Raises:
        RowError: the metadata is no such object, or has no such key.
    """
    place = f"metadata key {quote(key)}"
    if metadata is None:
        raise RowError("model_error", f"{place} is needed, but the row has no metadata")
    if not isinstance(metadata, str):
        raise RowError(
            "model_error",
            f"{place}: expected metadata as one JSON text, got {quote(metadata)}; use json.dumps",
        )
    try:
        fields = json.loads(metadata, parse_constant=_refuse_constant)
    except ValueError as error:
        raise RowError(
            "model_error", f"{place}: metadata is not JSON ({error}), got {quote(metadata)}"
        ) from error
    if not isinstance(fields, dict):
        raise RowError(
            "model_error", f"{place}: expected metadata to be a JSON object, got {quote(metadata)}"
        )
    if fields.get(key) is None:
        near = get_close_matches(key, fields, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        found = "is null" if key in fields else f"is missing; the row has {quote(list(fields))}"
        raise RowError("model_error", f"{place} {found}{hint}")
    return fields[key]


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def metadata_texts(metadata: str | None, key: str) -> list[str]:
    """The text, or list of texts, that a row's metadata holds under `key`; at least one.

    Raises:
        RowError: it holds something else.
    """
    value = metadata_value(metadata, key)
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RowError(
            "model_error",
            f"metadata key {quote(key)}: expected a text or a list of texts, got {quote(value)}",
        )
    return texts
