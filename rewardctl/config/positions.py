"""Where the keys and values of a config stand, looked up by their place."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rewardctl.config.findings import Finding, Severity

Place = tuple[str | int, ...]  # ("rewards", 1, "weight")


@dataclass(frozen=True)
class Mark:
    """A position in a file, from 1; without a line the whole file, or a `--set`."""

    path: str
    line: int | None = None
    column: int | None = None


@dataclass
class Document:
    """A config as plain data, with the position of everything in it."""

    path: str  # as the user wrote it
    tree: Any  # dict, list, str, int, float, bool, None
    keys: dict[Place, Mark] = field(default_factory=dict)
    values: dict[Place, Mark] = field(default_factory=dict)

    def real_place(self, place: Sequence[str | int]) -> Place:
        """`place` without the steps that the file does not have: tags of unions, keys left out."""
        node, steps = self.tree, []
        for step in place:
            is_there = (isinstance(node, dict) and step in node) or (
                isinstance(node, list) and isinstance(step, int) and 0 <= step < len(node)
            )
            if is_there:
                node = node[step]
                steps.append(step)
        return tuple(steps)

    def wrap(self, key: str) -> None:
        """Make a list of one of the mapping under a top-level key."""
        self.tree[key] = [self.tree[key]]
        for table in (self.keys, self.values):
            for place in [p for p in table if p[:1] == (key,)]:
                if len(place) > 1:
                    table[(key, 0, *place[1:])] = table.pop(place)
        self.values[(key, 0)] = self.values[(key,)]

    def value_at(self, place: Place) -> Any:
        """The value at a place that is there."""
        node = self.tree
        for step in place:
            node = node[step]
        return node

    def finding(
        self,
        code: str,
        message: str,
        place: Sequence[str | int],
        *,
        severity: Severity = "error",
        hint: str | None = None,
        at_key: bool = False,
    ) -> Finding:
        """A finding at `place`, or at the nearest place above it that the file has.

        Args:
            at_key: It concerns the key, not its value.
        """
        real = self.real_place(place)
        mark = self._mark(real, at_key=at_key or isinstance(self.value_at(real), (dict, list)))
        return Finding(
            code, severity, message, mark.path, mark.line, mark.column, render(real), hint
        )

    def _mark(self, place: Place, *, at_key: bool) -> Mark:
        tables = (self.keys, self.values) if at_key else (self.values, self.keys)
        for length in range(len(place), -1, -1):
            for table in tables:
                if place[:length] in table:
                    return table[place[:length]]
        return Mark(self.path)


def render(place: Sequence[str | int]) -> str:
    """A place as people write it: `rewards[1].weight`; the top level is the empty text."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def named(place: Sequence[str | int]) -> str:
    """A place for the middle of a sentence; the top level in words."""
    return render(place) or "the top level"


def inside(place: Sequence[str | int]) -> str:
    """Where a key stands, in words: `in rewards[1]`, or `at the top level`."""
    return f"in {render(place)}" if place else "at the top level"
