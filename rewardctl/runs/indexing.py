"""The first pass over the input that groupwise streams need: inputs made seekable, groups
indexed.
"""

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from rewardctl.config.schema import RewardArguments
from rewardctl.data.groups import GroupIndex, GroupIndexBuilder
from rewardctl.data.inputs import Input
from rewardctl.data.journal import io_failure
from rewardctl.data.jsonl import open_input, parse_row
from rewardctl.data.row_stream import RowStream
from rewardctl.data.samples import group_key
from rewardctl.errors import DataError, RowError

COPY_BYTES = 1 << 20


def read_stdin() -> BinaryIO:
    """Standard input as bytes."""
    return sys.stdin.buffer


def spool_input(source: Input, path: Path) -> dict[str, Any]:
    """Copy an input that cannot seek to `path`, and return the facts that vouch for the copy.

    Raises:
        RunError: the copy cannot be written.
        DataError: the input cannot be read.
    """
    digest, lines = hashlib.sha256(), 0
    try:
        handle = read_stdin() if source.path is None else open_input(source.path)
        with path.open("wb") as copy:
            while block := handle.read(COPY_BYTES):
                copy.write(block)
                digest.update(block)
                lines += block.count(b"\n")
            copy.flush()
            os.fsync(copy.fileno())
    except (EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise io_failure(path, error) from error
        raise DataError(f"{source.name}: reading failed: {error}") from error
    return {"lines": lines, "sha256": digest.hexdigest()}


def spool_is_whole(path: Path, facts: dict[str, Any] | None) -> bool:
    """Whether an earlier copy is the one that `facts` vouch for."""
    if facts is None or not path.exists():
        return False
    with path.open("rb") as copy:
        return hashlib.file_digest(copy, "sha256").hexdigest() == str(facts["sha256"])


def index_groups(
    rows: RowStream, streams: Sequence[RewardArguments], *, max_group_size: int
) -> tuple[GroupIndex, int]:
    """Index the groups of all rows that a groupwise stream applies to.

    Args:
        streams: the groupwise ones.

    Returns:
        The index, and the number of rows of the input.

    Raises:
        DataError: a group is larger than `max_group_size`.
    """
    builder, count = GroupIndexBuilder(), 0
    applies: dict[str, bool] = {}
    for row, index, line in rows.scan():
        count = row + 1
        try:
            record = parse_row(line.raw)
            dataset, unique_id = group_key(record, default_dataset=rows.default_dataset(index))
        except RowError:
            continue  # it has its own status when its window is read
        if dataset not in applies:
            applies[dataset] = any(s.applies_to(dataset) for s in streams)
        if unique_id is not None and applies[dataset]:
            builder.add(dataset, unique_id, row, line.offset)
    groups = builder.build()
    largest = groups.largest()
    if largest is not None and len(largest.rows) > max_group_size:
        member = rows.read_row(largest.rows[0], largest.offsets[0])
        if isinstance(member.sample, RowError):
            default = rows.default_dataset(rows.input_at(member.row))
            dataset, unique_id = group_key(member.record or {}, default_dataset=default)
        else:
            dataset, unique_id = str(member.sample.source), member.sample.unique_id
        raise DataError(
            f"dataset {dataset!r}: group {unique_id!r} has {len(largest.rows)} rows, more than "
            f"score.max_group_size ({max_group_size}); raise score.max_group_size, or mend "
            "unique_id"
        )
    return groups, count
