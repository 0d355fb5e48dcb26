"""The sides of a preference row: how `chosen`, `rejected` and candidates are spelled, and prompts
that stand inside of them. Labels and files are in preferences.py.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, NoReturn

from rewardctl.data.media_ref import MediaRoot
from rewardctl.data.samples import MEDIA_KINDS, TURN_BREAK, chat_text, sample_from_row
from rewardctl.errors import RowError, quote

PAIR = ("chosen", "rejected")
CONTENT: tuple[str, ...] = ("response", "tokens", *MEDIA_KINDS)  # what a side may consist of
_SIDE_FIELDS = frozenset({*CONTENT, "prompt"})

# Column → (side, field); field None: the value says by its type what it is.
COLUMNS: dict[str, tuple[str, str | None]] = {
    **{side: (side, None) for side in PAIR},
    **{f"{side}_{field}": (side, field) for side in PAIR for field in CONTENT},
    # Rows that TRL's reward trainer tokenized, in its versions.
    **{f"{side}_ids": (side, "tokens") for side in PAIR},
    **{f"{side}_input_ids": (side, "tokens") for side in PAIR},
    **{f"input_ids_{side}": (side, "tokens") for side in PAIR},
}
# Whose tokens do a tokenized row's sides hold? TRL has had it both ways.
_PROMPT_TOKENS = ("prompt_ids", "prompt_input_ids", "input_ids_prompt")

_FORMS = (
    "text, a list of chat messages, a list of token ids, latents as a list of lists of numbers, "
    "or an object of sample fields"
)
# Where a new turn begins in a transcript (hh-rlhf).
_TURN = re.compile(r"\n\n(?:Human|Assistant):\s*")


class Part(NamedTuple):
    """What one column says of a side."""

    column: str
    field: str | None  # None: the value says it by its type
    value: Any


class Sides(NamedTuple):
    """Sides as read: the prompt they share, and the sample fields of each."""

    prompt: str | None
    fields: tuple[dict[str, Any], ...]


def read_pair(parts: Mapping[str, Sequence[Part]], prompt: Any, root: MediaRoot) -> Sides:
    """The two sides of a pair, chosen first, and their prompt.

    Args:
        parts: For each of `PAIR` at least one part.
        prompt: The row's own, as it came: text, chat messages or None.

    Raises:
        RowError: a side that cannot be read, is empty, or is of another kind than the other.
    """
    raw = [_merge(side, parts[side]) for side in PAIR]
    bodies = [each.get("response") for each in raw]
    shared: str | None = None
    if not any("prompt" in each for each in raw):
        shared = _split_prompt(prompt, bodies)
    if shared is not None:
        for each, body in zip(raw, bodies, strict=True):
            each["response"] = body
    else:
        shared = _prompt_text(prompt, is_chat=all(type(body) is list for body in bodies))
    return Sides(shared, _read_all(PAIR, raw, root))


def read_candidates(candidates: Any, prompt: Any, root: MediaRoot) -> Sides:
    """The candidates of a K-wise row, in their order, and their prompt.

    Raises:
        RowError: as for a pair, or fewer than two candidates.
    """
    if type(candidates) is not list or len(candidates) < 2:
        _refuse("candidates", "a list of at least two candidates", candidates)
    names = [f"candidates[{number}]" for number in range(len(candidates))]
    raw = [
        _merge(name, [Part(name, None, value)])
        for name, value in zip(names, candidates, strict=True)
    ]
    is_chat = all(type(each.get("response")) is list for each in raw)
    return Sides(_prompt_text(prompt, is_chat=is_chat), _read_all(names, raw, root))


def shared_kinds(fields: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The kinds of content that all of some sides have."""
    kinds = [frozenset(name for name in each if name != "prompt") for each in fields]
    return frozenset.intersection(*kinds)


def refuse_prompt_tokens(columns: Iterable[str]) -> None:
    """Refuse a tokenized row whose prompt stands apart.

    Raises:
        RowError: it does.
    """
    for column in _PROMPT_TOKENS:
        if column in columns:
            raise RowError(
                "bad_row",
                f"column {column!r}: expected tokenized sides that begin with the prompt's tokens, "
                "found the prompt's tokens apart; join them to both sides and drop the column",
            )


def _merge(side: str, parts: Sequence[Part]) -> dict[str, Any]:
    """What all columns say of a side: field → value as it came."""
    raw: dict[str, Any] = {}
    for column, field, value in parts:
        if field is None and type(value) is dict:
            named = _object_fields(column, value)
        else:
            named = {field or _field_of(column, value): value}
        for name in named.keys() & raw.keys():
            raise RowError(
                "bad_row",
                f"column {column!r}: {name!r} of {side} stands twice in the row; keep one",
            )
        raw |= named
    if not raw.keys() - {"prompt"}:
        _refuse(side, f"an object with at least one of {', '.join(CONTENT)}", parts[0].value)
    return raw


def _object_fields(column: str, value: dict[str, Any]) -> dict[str, Any]:
    unknown = [name for name in value if name not in _SIDE_FIELDS]
    if unknown:
        raise RowError(
            "bad_row",
            f"column {column!r}: {quote(unknown[0])} is no field of a side; "
            f"a side has {', '.join(sorted(_SIDE_FIELDS))}; move other columns to the row",
        )
    return {name: field for name, field in value.items() if field is not None}


def _field_of(column: str, value: Any) -> str:
    if type(value) is str:
        return "response"
    if type(value) is list:
        if not value:
            _refuse_empty(column, value)
        kinds = set(map(type, value))
        if kinds == {dict}:
            return "response"
        if kinds == {list}:
            return "latents"
        if kinds <= {int, bool}:
            return "tokens"
    return _refuse(column, _FORMS, value)


def _read_all(
    names: Sequence[str], raw: Sequence[dict[str, Any]], root: MediaRoot
) -> tuple[dict[str, Any], ...]:
    fields = tuple(_read(name, each, root) for name, each in zip(names, raw, strict=True))
    if not shared_kinds(fields):
        raise RowError(
            "bad_row",
            "expected sides of one kind, found "
            + ", ".join(
                f"{name} with {'/'.join(each)}" for name, each in zip(names, fields, strict=True)
            )
            + "; a pair compares like with like",
        )
    return fields


def _read(side: str, raw: dict[str, Any], root: MediaRoot) -> dict[str, Any]:
    """The fields of a side as a sample holds them."""
    response = raw.get("response")
    if type(response) is str and len(raw) == 1:
        fields = raw
    else:
        fields = _sample_fields(side, raw, root)
        response = fields.get("response")
    if response is not None and not response.strip():
        _refuse_empty(side, response)
    tokens = fields.get("tokens")
    if tokens is not None and not tokens:
        _refuse_empty(side, [])
    return fields


def _sample_fields(side: str, raw: dict[str, Any], root: MediaRoot) -> dict[str, Any]:
    inline = raw.get("latents")
    is_inline = type(inline) is list
    columns = {name: value for name, value in raw.items() if name != "latents" or not is_inline}
    try:
        sample = sample_from_row(columns, default_dataset="", declared=None, media_root=root)
    except RowError as error:
        raise RowError(error.status, f"{side}: {error}") from error
    fields = {name: getattr(sample, name) for name in columns}
    if type(inline) is list:
        fields["latents"] = _inline_latents(side, inline)
    return fields


def _inline_latents(side: str, rows: list[Any]) -> Any:
    """Latents written in the row, as float32 (length, channels)."""
    import numpy as np

    if not rows:
        _refuse_empty(side, rows)
    wanted = "latents as one list of numbers a position"
    for position, numbers in enumerate(rows):
        if type(numbers) is not list or not numbers:
            _refuse(f"{side}[{position}]", wanted, numbers)
        if len(numbers) != len(rows[0]):
            raise RowError(
                "bad_row",
                f"column {side!r}: ragged latents: position 0 has {len(rows[0])} channels, "
                f"position {position} has {len(numbers)}; give each position as many",
            )
    if not set(map(type, chain.from_iterable(rows))) <= {int, float}:
        position = next(p for p, row in enumerate(rows) if not set(map(type, row)) <= {int, float})
        _refuse(f"{side}[{position}]", wanted, rows[position])
    try:
        with np.errstate(over="ignore"):
            latents = np.array(rows, dtype=np.float64).astype(np.float32)
    except OverflowError:
        latents = np.array([np.inf])
    if not np.isfinite(latents).all():
        raise RowError(
            "bad_row", f"column {side!r}: latents beyond the range of float32; scale them"
        )
    return latents


def _prompt_text(prompt: Any, *, is_chat: bool) -> str | None:
    """A row's own prompt as text; `is_chat`: the sides go on with the chat."""
    if type(prompt) is not list:
        if prompt is not None and type(prompt) is not str:
            _refuse("prompt", "text or a list of chat messages", prompt)
        return prompt
    if prompt and set(map(type, prompt)) <= {int, bool}:
        raise RowError(
            "bad_row",
            f"column 'prompt': expected text or chat messages, found {quote(prompt)}; "
            "put the prompt's tokens at the start of both sides",
        )
    return chat_text(prompt, column="prompt") + (TURN_BREAK if is_chat else "")


def _split_prompt(prompt: Any, bodies: list[Any]) -> str | None:
    """The prompt that two sides begin with; `bodies` is changed to what follows it.

    None where there is none, or the row's own prompt says what it is.
    """
    if all(type(body) is list for body in bodies):
        turns = _shared_turns(prompt, *bodies)
        if turns == 0:
            return None
        for name, body in zip(PAIR, bodies, strict=True):
            chat_text(body, column=name)  # so that a bad message is named by its place in the side
        text = chat_text(bodies[0][:turns], column=PAIR[0]) + TURN_BREAK
        bodies[:] = [
            chat_text(body[turns:], column=name) for name, body in zip(PAIR, bodies, strict=True)
        ]
        return text
    if prompt is None and all(type(body) is str for body in bodies):
        end = _prompt_end(*bodies)
        text = bodies[0][:end]
        bodies[:] = [body[end:] for body in bodies]
        return text or None
    return None


def _shared_turns(prompt: Any, chosen: list[Any], rejected: list[Any]) -> int:
    """How many messages at the start of both chats are their prompt."""
    turns = 0
    while turns < min(len(chosen), len(rejected)) - 1 and chosen[turns] == rejected[turns]:
        turns += 1
    if prompt is None:
        return turns
    if type(prompt) is list:
        return len(prompt) if 0 < len(prompt) <= turns and chosen[: len(prompt)] == prompt else 0
    # UltraFeedback repeats as `prompt` a message that both chats begin with.
    contents = (message.get("content") for message in chosen[:turns] if type(message) is dict)
    return turns if prompt in contents else 0


def _prompt_end(chosen: str, rejected: str) -> int:
    """Where the prompt ends that two texts begin with: at a turn of a transcript, else a space."""
    pairs = enumerate(zip(chosen, rejected, strict=False))
    shared = chosen[
        : next((at for at, (a, b) in pairs if a != b), len(min(chosen, rejected, key=len)))
    ]
    turns = list(_TURN.finditer(shared))
    if turns:
        return turns[-1].end()
    while shared:
        if not shared[-1].isspace():
            shared = shared[: len(shared) - len(shared.rsplit(None, 1)[-1])]
        if chosen[len(shared) :].strip() and rejected[len(shared) :].strip():
            break
        shared = shared.rstrip()
    return len(shared)


def _refuse(column: str, expected: str, value: object) -> NoReturn:
    raise RowError(
        "bad_row", f"column {column!r}: expected {expected}, found {quote(value)}; correct it"
    )


def _refuse_empty(side: str, value: object) -> NoReturn:
    raise RowError(
        "bad_row",
        f"column {side!r}: expected content, found {quote(value)}, an empty side; "
        "complete the row or leave it out",
    )
