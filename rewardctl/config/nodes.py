"""YAML as a tree of nodes with positions, within limits. Values are not resolved here."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from rewardctl.config.positions import Mark

MAX_NESTING = 64
MAX_NODES = 10_000  # once aliases are expanded


@dataclass(frozen=True)
class ScalarNode:
    """One scalar as written; `is_plain` tells 5 from "5"."""

    text: str
    tag: str | None
    is_plain: bool
    mark: Mark
    size: int = 1
    height: int = 0


@dataclass(frozen=True)
class ListNode:
    """A sequence."""

    items: list["Node"]
    tag: str | None
    mark: Mark
    size: int  # nodes in it and below
    height: int  # levels below


@dataclass(frozen=True)
class MapNode:
    """A mapping, its pairs in order and with repeated keys."""

    pairs: list[tuple["Node", "Node"]]
    tag: str | None
    mark: Mark
    size: int
    height: int


Node = ScalarNode | ListNode | MapNode


class Refused(Exception):
    """The document as a whole cannot be read; what and where."""

    def __init__(self, code: str, message: str, mark: Mark, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.mark, self.hint = code, message, mark, hint


def compose(text: str, path: str) -> Node | None:
    """The only document of a YAML text; None when it has none.

    Raises:
        Refused: several documents, a bad alias, or more nodes or levels than the limits.
        yaml.YAMLError: it is not YAML.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return _Composer(yaml.parse(text, Loader=loader), path).document()


class _Composer:
    """Holds the stream of events, the anchors so far and the count of nodes."""

    def __init__(self, events: Iterator[Any], path: str) -> None:
        self.events = events
        self.path = path
        self.anchors: dict[str, Node | None] = {}  # None: its node is still open
        self.nodes = 0

    def document(self) -> Node | None:
        next(self.events)  # stream start
        if isinstance(next(self.events), yaml.StreamEndEvent):
            return None
        root = self.node(next(self.events), depth=0)
        next(self.events)  # document end
        event = next(self.events)
        if not isinstance(event, yaml.StreamEndEvent):
            raise Refused(
                "RC107",
                "a second document starts here, expected one",
                self.mark(event),
                "split the file at the line of dashes",
            )
        return root

    def mark(self, event: Any) -> Mark:
        start = event.start_mark
        return Mark(self.path, start.line + 1, start.column + 1)

    def node(self, event: Any, *, depth: int) -> Node:
        mark = self.mark(event)
        self.nodes += 1
        self.check(self.nodes, depth, mark)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, depth=depth)
        if event.anchor:
            self.anchors[event.anchor] = None
        node = self.content(event, mark, depth=depth)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def alias(self, event: Any, *, depth: int) -> Node:
        mark = self.mark(event)
        if event.anchor not in self.anchors:
            raise Refused("RC105", f"alias *{event.anchor} has no anchor &{event.anchor}", mark)
        node = self.anchors[event.anchor]
        if node is None:
            raise Refused("RC105", f"alias *{event.anchor} stands inside its own anchor", mark)
        self.check(node.size, depth + node.height, mark)
        return node

    def content(self, event: Any, mark: Mark, *, depth: int) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            return ScalarNode(event.value, event.tag, event.style in (None, ""), mark)
        children: list[Node] = []
        size, height = 1, 0
        while not isinstance(inner := next(self.events), yaml.CollectionEndEvent):
            child = self.node(inner, depth=depth + 1)
            children.append(child)
            size += child.size
            height = max(height, child.height + 1)
            self.check(size, depth, self.mark(inner))
        if isinstance(event, yaml.SequenceStartEvent):
            return ListNode(children, event.tag, mark, size, height)
        pairs = list(zip(children[::2], children[1::2], strict=True))
        return MapNode(pairs, event.tag, mark, size, height)

    def check(self, size: int, depth: int, mark: Mark) -> None:
        if size > MAX_NODES:
            raise Refused(
                "RC106",
                f"more than {MAX_NODES:,} values once aliases are expanded",
                mark,
                "a config is small: move data into files",
            )
        if depth > MAX_NESTING:
            raise Refused("RC106", f"nested deeper than {MAX_NESTING} levels", mark)
