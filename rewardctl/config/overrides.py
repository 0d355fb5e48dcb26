"""`--set PLACE=VALUE`: one value of a config replaced from the command line."""

import re
from collections.abc import Sequence
from typing import Any

from rewardctl.config.findings import Finding
from rewardctl.config.hints import did_you_mean, shortened
from rewardctl.config.positions import Document, Mark, Place, named
from rewardctl.config.yaml_loader import parse_text
from rewardctl.errors import quote

_PLACE = re.compile(r"[^.\[\]=]+(\.[^.\[\]=]+|\[\d{1,6}\])*")
_STEP = re.compile(r"[^.\[\]]+")


class _NoPlace(Exception):
    """The config has no such place; what is wrong, and the next step."""


def apply_overrides(document: Document, overrides: Sequence[str]) -> list[Finding]:
    """Set each `PLACE=VALUE` in the document, in order; findings for those that cannot be set.

    PLACE is written `rewards.0.weight`, `rewards[0].weight` or `rewards.NAME.weight`. VALUE is
    YAML.    What a check finds later about such a value is said of the `--set`, not of the file.
    """
    findings: list[Finding] = []
    for override in overrides:
        findings += _apply(document, override)
    return findings


def _apply(document: Document, override: str) -> list[Finding]:
    written, separator, text = override.partition("=")
    written = written.strip()
    origin = f"--set {written}"
    if not separator or not _PLACE.fullmatch(written):
        hint = "write --set rewards.0.weight=0.5"
        found = f"expected PLACE=VALUE, got {quote(override if not separator else written)}"
        return [Finding("RC207", "error", found, "--set", hint=hint)]
    value, findings = _parse_value(text, origin)
    if findings:
        return findings
    if document.tree is None:
        document.tree = {}
    try:
        place = _find(document.tree, [_step(s) for s in _STEP.findall(written)])
        changed = _put(document, place, value)
    except _NoPlace as error:
        return [Finding("RC207", "error", str(error), origin)]
    _mark(document, changed, Mark(origin))
    return []


def _parse_value(text: str, origin: str) -> tuple[Any, list[Finding]]:
    if text.lstrip().startswith("#"):  # a colour, and no comment: there is no line to comment on
        return text.strip(), []
    parsed, findings = parse_text(text, origin)
    errors = [
        Finding("RC207", "error", f"its value: {f.message}", origin, hint=f.hint)
        for f in findings
        if f.is_error
    ]
    return (parsed.tree if parsed else None), errors


def _step(text: str) -> str | int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 6 else text


def _find(tree: Any, steps: list[str | int]) -> Place:
    """The place that the steps lead to; keys that are not there yet are made by `_put`."""
    node: Any = tree
    place: Place = ()
    while steps:
        if isinstance(node, list):
            taken, node, place = _list_step(node, place, steps)
        else:
            taken = _key_length(node, steps)
            key = ".".join(map(str, steps[:taken]))
            place = (*place, key)
            node = node.get(key) if isinstance(node, dict) else None
        steps = steps[taken:]
    return place


def _list_step(node: list[Any], place: Place, steps: list[str | int]) -> tuple[int, Any, Place]:
    """Steps taken, the entry and its place, in a list addressed by index or by an entry's name."""
    step = steps[0]
    if isinstance(step, int) and step < len(node):
        return 1, node[step], (*place, step)
    for index, entry in enumerate(node):
        length = _name_length(entry, steps)
        if length:
            return length, entry, (*place, index)
    names = [e["name"] for e in node if isinstance(e, dict) and isinstance(e.get("name"), str)]
    near = did_you_mean(str(step), names)
    raise _NoPlace(
        f"{named(place)} has no entry {quote(step)}; it has {len(node)}, counted from 0"
        + (f", named {shortened(names)}" if names else "")
        + (f"; did you mean {near!r}?" if near else "")
    )


def _name_length(entry: Any, steps: list[str | int]) -> int:
    """How many steps make up the name of this entry, which may hold dots; 0: none."""
    name = entry.get("name") if isinstance(entry, dict) else None
    for length in range(len(steps), 0, -1):
        if name == ".".join(map(str, steps[:length])):
            return length
    return 0


def _key_length(node: Any, steps: list[str | int]) -> int:
    """How many steps make up a key of this mapping, which may hold dots; 1 for one not there."""
    for length in range(len(steps), 0, -1):
        if isinstance(node, dict) and ".".join(map(str, steps[:length])) in node:
            return length
    return 1


def _put(document: Document, place: Place, value: Any) -> Place:
    """Set the value, make the mappings on the way, and return the first place that is new."""
    if not place:
        raise _NoPlace("the whole config cannot be set")
    node, changed = document.tree, place
    for depth, step in enumerate(place[:-1]):
        if isinstance(node, dict) and node.get(str(step)) is None:
            node[str(step)] = {}
            changed = min(changed, place[: depth + 1], key=len)
        node = node[step]
        if not isinstance(node, (dict, list)):
            raise _NoPlace(f"{named(place[: depth + 1])} is {quote(node)}, and holds no keys")
    node[place[-1]] = value
    return changed


def _mark(document: Document, place: Place, mark: Mark) -> None:
    for table in (document.keys, document.values):
        for below in [p for p in table if p[: len(place)] == place]:
            del table[below]
        table[place] = mark
