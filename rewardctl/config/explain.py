"""Schema errors in the user's words: pydantic's errors with place, expected and found."""

import re
from collections.abc import Collection
from typing import Any

from pydantic_core import ErrorDetails

from rewardctl.config import schema, training_schema
from rewardctl.config.findings import Finding
from rewardctl.config.hints import did_you_mean, key_hint
from rewardctl.config.positions import Document, Place, inside, named
from rewardctl.config.scalars import BadScalar, resolve_plain
from rewardctl.config.section import Section
from rewardctl.errors import quote

# The section of each place, without indexes.
SECTION_AT: dict[Place, type[Section]] = {
    (): schema.ConfigFile,
    ("data",): schema.DataConfig,
    ("data", "datasets"): schema.Dataset,
    ("rewards",): schema.RewardArguments,
    ("eval_rewards",): schema.RewardArguments,
    ("execution",): schema.ExecutionConfig,
    ("score",): schema.ScoreConfig,
    ("media",): schema.MediaConfig,
    ("model",): training_schema.ModelConfig,
    ("train",): training_schema.TrainConfig,
    ("train", "data"): training_schema.DataFile,
    ("train", "validation", "<files>"): training_schema.DataFile,
    ("train", "validation", "<split>"): training_schema.ValidationSplit,
    ("train", "early_stopping"): training_schema.EarlyStopping,
    ("eval",): training_schema.EvalConfig,
    ("eval", "data"): training_schema.DataFile,
}
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least {}"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
}
_PATTERNS = {
    "name": "1 to 64 letters, digits, '_', '.' or '-'",
    "device": "auto, cpu, cuda, cuda:N or mps",
    "background": "the name of a colour, #rrggbb or rgb(r, g, b)",
}
_OLD_BOOLS = frozenset({"yes", "no", "on", "off", "y", "n"})


def explain(error: ErrorDetails, document: Document) -> Finding:
    """The finding for one error of pydantic."""
    place, kind = error["loc"], error["type"]
    if kind == "missing":
        where = inside(document.real_place(place[:-1]))
        return document.finding("RC202", f"missing key {place[-1]!r} {where}", place)
    if kind == "extra_forbidden":
        return _unknown_key(place, document)
    code, rule, hint = expectation(error)
    real = document.real_place(place)
    message = f"{named(real)}: {rule}, got {shown(error['input'])}"
    return document.finding(code, message, place, hint=hint)


def known_keys(place: Place) -> Collection[str]:
    """The keys of the section that the last step of `place` stands in."""
    section = SECTION_AT[tuple(s for s in place[:-1] if isinstance(s, str))]
    return section.model_fields


def _unknown_key(place: Place, document: Document) -> Finding:
    key, known = str(place[-1]), known_keys(place)
    is_stream = place[0] in ("rewards", "eval_rewards") and len(place) > 1
    others = {
        str(path[0]): section.model_fields
        for path, section in SECTION_AT.items()
        if len(path) == 1 and section is not schema.RewardArguments and path[0] != place[0]
    }
    hint = key_hint(key, known, {} if is_stream else others)
    if is_stream and hint.startswith("known are"):
        hint = "what the reward model alone understands goes under options:"
    where = inside(document.real_place(place[:-1]))
    return document.finding(
        "RC203", f"unknown key {quote(key)} {where}", place, hint=hint, at_key=True
    )


def expectation(error: ErrorDetails) -> tuple[str, str, str | None]:
    """Code, what was expected (as "expected a number"), and the next step."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "value_error":
        return "RC205", str(context["error"]), None
    code, expected, hint = "RC205", error["msg"], None
    if kind in _EXPECTED or kind == "wrong_type":
        code = "RC204"
        expected = _EXPECTED.get(kind) or context.get("expected", error["msg"])
        hint = _type_hint(expected, value)
    elif kind in _BOUNDS:
        name, phrase = _BOUNDS[kind]
        expected = phrase.format(f"{context[name]:g}")
    elif kind == "literal_error":
        expected = context["expected"]
        choices = re.findall(r"'([^']*)'", expected)
        near = did_you_mean(value, choices) if isinstance(value, str) else None
        hint = f"did you mean {near!r}?" if near else None
    elif kind == "string_pattern_mismatch":
        expected = _PATTERNS.get(str(error["loc"][-1]), expected)
    elif kind == "finite_number":
        code, expected = "RC206", "a finite number"
    elif kind in ("string_too_short", "too_short"):
        expected = "something that is not empty"
    return code, f"expected {expected}", hint


def _type_hint(expected: str, value: Any) -> str | None:
    if value is None:
        return "leave the key out for its default"
    if isinstance(value, str):
        return _text_hint(expected, value)
    if expected == "text" and isinstance(value, (int, float)):
        return "put it in quotes"
    if expected == "a whole number" and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    return None


def _text_hint(expected: str, text: str) -> str | None:
    if expected == "true or false" and text.lower() in _OLD_BOOLS:
        return "YAML 1.2 writes true or false"
    if expected == "a list":
        return f"write [{text}]" if len(text) <= 40 and text.isprintable() else None
    if "number" in expected:
        if _is_number(text):
            return "drop the quotes"
        if _is_number(text.replace("_", "").replace(",", "")):
            return f"write {text.replace('_', '').replace(',', '')}"
    return None


def _is_number(text: str) -> bool:
    try:
        value = resolve_plain(text)
    except BadScalar:
        return False
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """A value as YAML people know it, cut short."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return quote(value)
