"""Strict YAML: text to plain data with positions, scalars as in the YAML 1.2 core schema.

Duplicate keys, foreign tags, recursive aliases and documents that grow without bound are refused.
What keys mean is not known here.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from rewardctl.config.findings import Finding, Severity
from rewardctl.config.nodes import ListNode, MapNode, Node, Refused, ScalarNode, compose
from rewardctl.config.positions import Document, Mark, Place, inside, named, render
from rewardctl.config.scalars import BadScalar, has_leading_zero, resolve_plain, resolve_tagged
from rewardctl.errors import quote

MAX_FILE_BYTES = 1024 * 1024

_CORE = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset({"str", "int", "float", "bool", "null"})
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SYNTAX_HINTS = {
    "mapping values are not allowed": "put text with ': ' in quotes, and check the indentation",
    "could not find expected ':'": "check the indentation, and the quotes of the line above",
    "did not find expected key": "check the indentation of this line and the one above",
    "found unexpected end of stream": "a quote or bracket is never closed",
}


def parse_bytes(content: bytes, path: str) -> tuple[Document | None, list[Finding]]:
    """The config in the bytes of a file; None when the text as a whole cannot be read.

    Args:
        path: What findings call it.
    """
    if len(content) > MAX_FILE_BYTES:
        limit = f"larger than {MAX_FILE_BYTES // 1024} KiB, expected a config"
        return None, [Finding("RC106", "error", limit, path)]
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        found = f"byte 0x{content[error.start]:02x} is not UTF-8"
        hint = "save the file as UTF-8"
        return None, [Finding("RC102", "error", found, path, line, column, hint=hint)]
    return parse_text(text, path)


def parse_text(text: str, path: str) -> tuple[Document | None, list[Finding]]:
    """The config in a text; None when it cannot be read as a whole."""
    control = _UNPRINTABLE.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        column = control.start() - text.rfind("\n", 0, control.start())
        found = f"control character {control[0]!r}"
        return None, [Finding("RC102", "error", found, path, line, column)]
    try:
        root = compose(text, path)
    except Refused as refused:
        mark = refused.mark
        finding = Finding(
            refused.code,
            "error",
            refused.message,
            path,
            mark.line,
            mark.column,
            hint=refused.hint,
        )
        return None, [finding]
    except yaml.YAMLError as error:
        return None, [_syntax_finding(error, text, path)]
    if root is None:
        return Document(path, None, values={(): Mark(path, 1, 1)}), []
    return _Expansion(path).expand_document(root)


def _syntax_finding(error: yaml.YAMLError, text: str, path: str) -> Finding:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    context, problem = getattr(error, "context", None), getattr(error, "problem", None)
    said = ", ".join(part for part in (context, problem) if part) or str(error)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    lines = text.splitlines()
    source = lines[line - 1] if line <= len(lines) else ""
    hint = next((h for part, h in _SYNTAX_HINTS.items() if part in said), None)
    if "\t" in source[: len(source) - len(source.lstrip())] or source[column - 1 :][:1] == "\t":
        hint = "YAML is not indented with tabs; use spaces"
    return Finding("RC101", "error", f"not YAML: {said}", path, line, column, hint=hint)


class _Expansion:
    """Turns nodes into plain data, and collects positions and findings on the way."""

    def __init__(self, path: str) -> None:
        self.document = Document(path, None)
        self.findings: dict[tuple[str, Mark], Finding] = {}  # an alias repeats none

    def expand_document(self, root: Node) -> tuple[Document, list[Finding]]:
        self.document.tree = self.value(root, ())
        return self.document, list(self.findings.values())

    def value(self, node: Node, place: Place) -> Any:
        self.document.values[place] = node.mark
        if isinstance(node, ScalarNode):
            return self.scalar(node, place)
        self.check_tag(node, "seq" if isinstance(node, ListNode) else "map", place)
        if isinstance(node, ListNode):
            return [self.value(item, (*place, i)) for i, item in enumerate(node.items)]
        mapping: dict[str, Any] = {}
        for key, key_mark, child in self.members(node, place):
            inner = (*place, key)
            self.document.keys[inner] = key_mark
            mapping[key] = self.value(child, inner)
        return mapping

    def scalar(self, node: ScalarNode, place: Place) -> Any:
        tag = (node.tag or "").removeprefix(_CORE)
        try:
            if tag in _SCALAR_TAGS:
                value = resolve_tagged(node.text, tag)
            elif node.tag is None and node.is_plain:
                value = resolve_plain(node.text)
            else:
                if node.tag not in (None, "!"):
                    self.refuse_tag(node, place)
                value = node.text
        except BadScalar as error:
            self.report("RC110", str(error), node.mark, place)
            return None
        if isinstance(value, float) and not math.isfinite(value):
            found = f"expected a finite number at {named(place)}, got {node.text[:40]}"
            self.report("RC206", found, node.mark, place)
        elif type(value) is int and node.is_plain and has_leading_zero(node.text):
            found = f"{node.text[:40]} is read as {value}, other tools may take it for octal"
            hint = "drop the leading zero, or quote it for text"
            self.report("RC110", found, node.mark, place, severity="warning", hint=hint)
        return value

    def members(self, node: MapNode, place: Place) -> list[tuple[str, Mark, Node]]:
        """The pairs of a mapping, merge keys followed; its own keys win, then earlier merges."""
        own: dict[str, tuple[str, Mark, Node]] = {}
        merged: list[MapNode] = []
        merge_mark: Mark | None = None
        for key_node, child in node.pairs:
            if _is_merge(key_node):
                if merge_mark is not None:
                    self.report_twice("<<", merge_mark, key_node.mark, place)
                merge_mark = merge_mark or key_node.mark
                merged += self.merge_targets(child, place)
                continue
            key = self.key(key_node, place)
            if key is None:
                continue
            if key in own:
                self.report_twice(key, own[key][1], key_node.mark, place)
            else:
                own[key] = (key, key_node.mark, child)
        for target in merged:
            for member in self.members(target, place):
                own.setdefault(member[0], member)
        return list(own.values())

    def key(self, node: Node, place: Place) -> str | None:
        """The text of a key; None, and a finding, for any other."""
        if isinstance(node, ScalarNode):
            value = self.scalar(node, place)
            if isinstance(value, str):
                return value
            found = f"key {node.text[:40]} is {_kind(value)}"
        else:
            found = f"a {'list' if isinstance(node, ListNode) else 'mapping'} as key"
        message = f"{found} {inside(place)}, expected text"
        self.report("RC108", message, node.mark, place, hint="put it in quotes")
        return None

    def merge_targets(self, node: Node, place: Place) -> Iterator[MapNode]:
        for target in node.items if isinstance(node, ListNode) else [node]:
            if isinstance(target, MapNode):
                yield target
            else:
                hint = "write <<: *name, or <<: [*first, *second]"
                found = f"<< {inside(place)} names no mapping"
                self.report("RC109", found, target.mark, place, hint=hint)

    def report_twice(self, key: str, first: Mark, second: Mark, place: Place) -> None:
        hint = "write <<: [*first, *second]" if key == "<<" else "keep one"
        self.report(
            "RC103",
            f"key {quote(key)} stands twice {inside(place)}: "
            f"line {first.line} and line {second.line}",
            second,
            (*place, key),
            hint=hint,
        )

    def check_tag(self, node: ListNode | MapNode, kind: str, place: Place) -> None:
        if node.tag not in (None, "!", _CORE + kind):
            self.refuse_tag(node, place)

    def refuse_tag(self, node: Node, place: Place) -> None:
        tag = str(node.tag)
        is_python = tag.startswith(_CORE + "python")
        self.report(
            "RC501" if is_python else "RC104",
            f"tag {quote(tag.replace(_CORE, '!!'))} at {named(place)}, "
            + ("a config builds no Python objects" if is_python else "expected plain YAML"),
            node.mark,
            place,
            hint="remove the tag",
        )

    def report(
        self,
        code: str,
        message: str,
        mark: Mark,
        place: Place,
        *,
        severity: Severity = "error",
        hint: str | None = None,
    ) -> None:
        self.findings.setdefault(
            (code, mark),
            Finding(
                code, severity, message, mark.path, mark.line, mark.column, render(place), hint
            ),
        )


def _is_merge(node: Node) -> bool:
    return isinstance(node, ScalarNode) and (
        (node.is_plain and node.tag is None and node.text == "<<") or node.tag == _CORE + "merge"
    )


def _kind(value: Any) -> str:
    kinds = {type(None): "null", bool: "a bool", int: "a number", float: "a number"}
    return kinds[type(value)]
