"""Which files a command reads: `--data` and declared datasets, turned into inputs.

Reading a file is in jsonl.py.
"""

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rewardctl.data.jsonl import open_input, read_lines
from rewardctl.data.media_ref import MediaRoot
from rewardctl.errors import DataError, UsageError, quote

_STDIN = "-"
_NAMED = re.compile(r"([A-Za-z0-9_.-]{1,64})=(.*)", re.DOTALL)
_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Input:
    """One file, or standard input, whose rows a command reads."""

    path: Path | None  # None is standard input
    name: str  # what messages and the output call it
    dataset: str  # of rows that name none
    media_root: MediaRoot


class _Source(NamedTuple):
    path: Path | None
    given: str  # the path as the user wrote it
    dataset: str


def resolve_inputs(
    arguments: Sequence[str],
    *,
    declared: Sequence[tuple[str, Path]],
    media_root: Path | None,
    allow_media: Sequence[Path],
) -> list[Input]:
    """The inputs that `--data` names, in order; without any, the declared datasets.

    Args:
        arguments: `[NAME=]PATH` each; PATH may be a glob, or `-` for standard input.
        declared: Name and path of each dataset under `data.datasets`.
        media_root: Folder of relative media paths; None is the folder of each file.
        allow_media: Folders outside it that media may lie in.

    Raises:
        UsageError: no data, an undeclared NAME, or a file given twice.
        DataError: a file is missing, unreadable or without rows, or a glob matches nothing.
    """
    sources = list(_sources(arguments, declared))
    if not sources:
        raise UsageError("no data to read; give --data PATH, or list files under data.datasets")
    _refuse_repeats(sources)
    for source in sources:
        if source.path is not None:
            _check_rows(source.path)
    uses = Counter(source.path.name for source in sources if source.path is not None)
    return [_input(source, uses, media_root, tuple(allow_media)) for source in sources]


def _input(
    source: _Source, uses: Counter[str], media_root: Path | None, allow: tuple[Path, ...]
) -> Input:
    if source.path is None:
        name, folder = "stdin", Path.cwd()
    else:
        name = source.path.name if uses[source.path.name] == 1 else source.given
        folder = source.path.parent
    return Input(source.path, name, source.dataset, MediaRoot(media_root or folder, allow))


def _sources(arguments: Sequence[str], declared: Sequence[tuple[str, Path]]) -> Iterator[_Source]:
    if not arguments:
        for name, path in declared:
            yield from _expand(str(path), name)
        return
    names = [name for name, _ in declared]
    only = names[0] if len(names) == 1 else None
    for argument in arguments:
        dataset, target = _split_name(argument)
        if dataset is not None and names and dataset not in names:
            raise UsageError(
                f"--data {argument}: dataset {quote(dataset)} is not declared; "
                f"use a name declared under data.datasets: {', '.join(names)}"
            )
        yield from _expand(target, dataset or only)


def _split_name(argument: str) -> tuple[str | None, str]:
    named = _NAMED.fullmatch(argument)
    if named is None or os.path.lexists(argument):
        name, target = None, argument
    else:
        name, target = named.groups()
    if not target:
        raise UsageError(f"--data {quote(argument)}: expected [NAME=]PATH, found no path")
    return name, target


def _expand(target: str, dataset: str | None) -> Iterator[_Source]:
    """The files that one path, glob or `-` stands for; `dataset` None takes the path's own name."""
    if target == _STDIN:
        yield _Source(None, target, dataset or "stdin")
    elif _WILDCARD.search(target) and not os.path.lexists(target):
        paths = [path for path in glob.glob(target, recursive=True) if not os.path.isdir(path)]
        if not paths:
            raise DataError(f"--data {target}: no file matches this glob; check the pattern")
        for path in sorted(paths, key=os.fsencode):
            yield _Source(Path(path), path, dataset or _glob_dataset(target))
    else:
        yield _Source(Path(target), target, dataset or _file_dataset(Path(target)))


def _file_dataset(path: Path) -> str:
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def _glob_dataset(pattern: str) -> str:
    """One name for all shards: what stands before the first wildcard, else the folder's name."""
    folder, _, prefix = _WILDCARD.split(pattern, maxsplit=1)[0].rpartition("/")
    if pattern.startswith("/"):
        folder = folder or "/"
    parent = Path(folder).absolute()
    return prefix.rstrip("-_.") or os.path.basename(os.path.realpath(parent)) or str(parent)


def _refuse_repeats(sources: Sequence[_Source]) -> None:
    first: dict[str, str] = {}
    for path, given, _ in sources:
        key = _STDIN if path is None else os.path.realpath(path)
        if key in first:
            also = f" (as {first[key]})" if first[key] != given else ""
            raise UsageError(
                f"{given} is read twice{also}; give each file once, "
                "rows of one file may name different datasets"
            )
        first[key] = given


def _check_rows(path: Path) -> None:
    """Refuse a file that cannot be read or holds no row, before any model is loaded."""
    if path.is_fifo() or path.is_char_device():
        return  # what is read here would be lost to the reader of the rows
    with open_input(path) as handle:
        if next(read_lines(handle), None) is None:
            raise DataError(f"{path}: expected one JSON object a line, found no rows")
