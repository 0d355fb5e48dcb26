"""The schema check, and a draft of the config for further checks when it finds errors."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rewardctl.config.explain import explain, known_keys
from rewardctl.config.findings import Finding
from rewardctl.config.hints import meant_key
from rewardctl.config.positions import Document, Place
from rewardctl.config.schema import ConfigFile

MAX_REPAIRS = 200  # with more errors the file is hardly a config, and repairs take long

# What a draft holds where a required key is missing or bad; no check looks at these places.
_STAND_INS = {"reward_model": "length", "path": ".", "split": 0.5}


@dataclass(frozen=True)
class Draft:
    """A config that has the right shape, though not all of it may be what the file says."""

    config: ConfigFile | None  # None: too little of the file can be used
    findings: list[Finding] = field(default_factory=list)
    doubtful: frozenset[Place] = frozenset()  # where the draft differs from the file


def check_schema(document: Document) -> Draft:
    """Check keys, types and ranges of a document whose top level is a mapping."""
    try:
        return Draft(ConfigFile.model_validate(document.tree))
    except ValidationError as error:
        errors = error.errors(include_url=False)
    findings = [explain(error, document) for error in errors]
    if len(errors) > MAX_REPAIRS:
        return Draft(None, findings)
    doubtful = frozenset(place for error in errors for place in _doubtful(error))
    try:
        config = ConfigFile.model_validate(_repaired(document, errors))
    except ValidationError:
        return Draft(None, findings)
    return Draft(config, findings, doubtful)


def _without_tags(place: Sequence[str | int]) -> Place:
    """A place without the tags of unions."""
    return tuple(s for s in place if not (isinstance(s, str) and s.startswith("<")))


def _doubtful(error: ErrorDetails) -> Iterator[Place]:
    """What a draft does not know: the place, or the key that an unknown one was meant to be."""
    place = error["loc"]
    if error["type"] != "extra_forbidden":
        yield _without_tags(place)
        return
    meant = meant_key(str(place[-1]), known_keys(place))
    if meant is not None:
        yield _without_tags((*place[:-1], meant))


def _repaired(document: Document, errors: Sequence[ErrorDetails]) -> Any:
    """A copy of the tree without what is wrong, and with stand-ins for what is required."""
    tree = copy.deepcopy(document.tree)
    for number, error in enumerate(errors):
        is_missing = error["type"] == "missing"
        place = document.real_place(error["loc"][:-1] if is_missing else error["loc"])
        if is_missing:
            place = (*place, error["loc"][-1])
        else:
            # An entry of a list cannot be left out without moving the others: the list goes.
            while place and not isinstance(place[-1], str):
                place = place[:-1]
        _repair(tree, place, number)
    return tree


def _repair(tree: Any, place: Place, number: int) -> None:
    node = tree
    for step in place[:-1]:
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            return  # gone with another repair
    if not place or not isinstance(node, dict):
        return
    key = str(place[-1])
    if key == "name":
        node[key] = f"stand-in-{number}"
    elif key in _STAND_INS:
        node[key] = _STAND_INS[key]
    elif place == ("train", "data"):
        node[key] = "."
    else:
        node.pop(key, None)
