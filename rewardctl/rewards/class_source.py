"""What a dotted reward class is, read from files: where its module lies, what its tree says.

Nothing is imported, nor is `find_spec` asked, which would run the code of parent packages.
"""

import ast
import importlib.metadata
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

MAX_SOURCE_BYTES = 4 * 1024 * 1024
_KINDS = {"PointwiseRewardModel": False, "GroupwiseRewardModel": True}


@dataclass(frozen=True)
class ClassFacts:
    """What the source of a class shows; None where it does not tell."""

    is_bound: bool | None = None  # whether the module binds the name at all
    is_groupwise: bool | None = None
    thread_safe: bool | None = None
    required_fields: tuple[str, ...] | None = None
    sets_fields: bool = False  # whether its code sets required_fields on an instance
    syntax_error: str | None = None  # of the module


class SourceFinder:
    """Finds modules and reads classes for one check; what was looked up is kept."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        """`folders` are searched after `sys.path`, as at a run."""
        self.folders = list(folders)
        self._files: dict[str, Path | None] = {}
        self._facts: dict[tuple[Path, str], ClassFacts] = {}

    def find(self, module: str) -> Path | None:
        """The file of a module (the folder of a namespace package), as import would find it."""
        if module not in self._files:
            self._files[module] = self._search(module.split("."))
        return self._files[module]

    def read(self, path: Path, class_name: str) -> ClassFacts:
        """What the module at `path` shows of a class."""
        key = (path, class_name)
        if key not in self._facts:
            self._facts[key] = read_class(path, class_name)
        return self._facts[key]

    def _search(self, parts: Sequence[str]) -> Path | None:
        if not all(part.isidentifier() for part in parts):
            return None
        for base in (*map(Path, sys.path), *self.folders):
            if (found := _module_in(base, parts)) is not None:
                return found
        return next(
            filter(None, (_module_in(base, parts) for base in self._editable_folders)), None
        )

    @cached_property
    def _editable_folders(self) -> list[Path]:
        return list(_editable_folders())


def _module_in(base: Path, parts: Sequence[str]) -> Path | None:
    path = base.joinpath(*parts)
    names = [path / "__init__.py", path.with_name(path.name + ".py")]
    names += [path.with_name(path.name + suffix) for suffix in EXTENSION_SUFFIXES]
    for name in names:
        if name.is_file():
            return name
    return path if path.is_dir() else None


def _editable_folders() -> Iterator[Path]:
    """Source folders of packages installed in place, which are not always on `sys.path`."""
    for distribution in importlib.metadata.distributions():
        try:
            origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        except (OSError, ValueError):
            continue
        if origin.get("dir_info", {}).get("editable"):
            folder = Path(unquote(urlparse(origin.get("url", "")).path))
            yield from (folder, folder / "src")


def read_class(path: Path, class_name: str) -> ClassFacts:
    """What the module at `path` shows of a class. A compiled module shows nothing."""
    if path.is_dir():
        return ClassFacts(is_bound=False)
    if path.suffix != ".py" or path.stat().st_size > MAX_SOURCE_BYTES:
        return ClassFacts()
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        said = getattr(error, "msg", None) or str(error)
        return ClassFacts(syntax_error=f"line {line}: {said}" if line else said)
    bound = _bound_names(tree.body)
    if class_name not in bound:
        return ClassFacts(is_bound=None if {"*", "__getattr__"} & bound.keys() else False)
    node = bound[class_name]
    return _class_facts(node) if isinstance(node, ast.ClassDef) else ClassFacts(is_bound=True)


def _bound_names(body: Sequence[ast.stmt]) -> dict[str, ast.stmt]:
    """The names that the statements of a module bind, and what binds each last."""
    bound: dict[str, ast.stmt] = {}
    for statement in body:
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
            bound[statement.name] = statement
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                bound[(alias.asname or alias.name).partition(".")[0]] = statement
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    bound[node.id] = statement
        else:
            for block in ("body", "orelse", "finalbody"):
                bound.update(_bound_names(getattr(statement, block, [])))
            for handler in getattr(statement, "handlers", []):
                bound.update(_bound_names(handler.body))
    return bound


def _class_facts(node: ast.ClassDef) -> ClassFacts:
    attributes = _class_attributes(node)
    kinds = [_KINDS.get(_last_name(base)) for base in node.bases]
    has_known_bases = bool(kinds) and None not in kinds
    thread_safe = _literal(attributes.get("thread_safe"))
    if _sets_on_self(node, "thread_safe"):
        thread_safe = None
    elif "thread_safe" not in attributes and has_known_bases and not node.decorator_list:
        thread_safe = False  # the contract's default
    fields = _literal(attributes.get("required_fields"))
    sets_fields = _sets_on_self(node, "required_fields")
    shows_fields = isinstance(fields, (tuple, list)) and not sets_fields
    return ClassFacts(
        is_bound=True,
        is_groupwise=any(kinds) if has_known_bases else None,
        thread_safe=thread_safe if isinstance(thread_safe, bool) else None,
        required_fields=tuple(map(str, fields)) if shows_fields else None,
        sets_fields=sets_fields,
    )


def _class_attributes(node: ast.ClassDef) -> dict[str, ast.expr]:
    attributes: dict[str, ast.expr] = {}
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    attributes[target.id] = statement.value
        elif (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.value is not None
        ):
            attributes[statement.target.id] = statement.value
    return attributes


def _last_name(base: ast.expr) -> str:
    if isinstance(base, ast.Attribute):
        return base.attr
    return base.id if isinstance(base, ast.Name) else ""


def _literal(node: ast.expr | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _sets_on_self(node: ast.ClassDef, attribute: str) -> bool:
    return any(
        isinstance(inner, ast.Attribute)
        and inner.attr == attribute
        and isinstance(inner.ctx, ast.Store)
        for inner in ast.walk(node)
    )
