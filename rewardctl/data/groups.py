"""Which rows form which group, indexed in a first pass over the input: under 100 bytes a row."""

import hashlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rewardctl.errors import DataError

if TYPE_CHECKING:
    import numpy as np


def group_digest(dataset: str, unique_id: str) -> bytes:
    """16 bytes that stand for a group; exact ids are compared when its members are read."""
    name = f"{len(dataset)}:{dataset}{unique_id}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(name, digest_size=16).digest()


@dataclass(frozen=True)
class Group:
    """The members of one group, in input order."""

    rows: list[int]
    offsets: list[int]  # byte offset of each row's line in its own input


class GroupIndexBuilder:
    """Takes the grouped rows of the input, in order."""

    def __init__(self) -> None:
        self._digests = bytearray()
        self._rows = array("q")
        self._offsets = array("q")

    def add(self, dataset: str, unique_id: str, row: int, offset: int) -> None:
        """Note one row."""
        self._digests += group_digest(dataset, unique_id)
        self._rows.append(row)
        self._offsets.append(offset)

    def build(self) -> "GroupIndex":
        """The finished index; the builder is empty afterwards."""
        import numpy as np

        digests = np.frombuffer(self._digests, dtype=np.uint64).reshape(-1, 2)
        rows = np.frombuffer(self._rows, dtype=np.int64)
        offsets = np.frombuffer(self._offsets, dtype=np.int64)
        self._digests = bytearray()
        # Stable sorts: members of a group stay in input order.
        order = np.lexsort((digests[:, 1], digests[:, 0]))
        same = np.all(digests[order[1:]] == digests[order[:-1]], axis=1)
        starts = (
            np.flatnonzero(np.concatenate(([True], ~same))) if len(order) else np.array([], int)
        )
        by_first_row = np.argsort(rows[order[starts]], kind="stable")
        return GroupIndex(rows, offsets, order, starts, by_first_row)


class GroupIndex:
    """Groups by the row of their first member."""

    def __init__(
        self,
        rows: "np.ndarray[Any, Any]",
        offsets: "np.ndarray[Any, Any]",
        order: "np.ndarray[Any, Any]",
        starts: "np.ndarray[Any, Any]",
        by_first_row: "np.ndarray[Any, Any]",
    ) -> None:
        import numpy as np

        self._rows, self._offsets, self._order = rows, offsets, order
        self._starts = starts
        self._ends = np.append(starts[1:], len(order))
        self._by_first_row = by_first_row
        self._first_rows = rows[order[starts]][by_first_row]

    def __len__(self) -> int:
        return len(self._starts)

    def largest(self) -> Group | None:
        """The group with most members; the earliest of several."""
        if not len(self):
            return None
        sizes = (self._ends - self._starts)[self._by_first_row]
        return self._group(int(self._by_first_row[int(sizes.argmax())]))

    def first_in(self, start: int, end: int) -> Iterator[Group]:
        """The groups whose first member is one of the rows `start` to `end` - 1, in that order."""
        import numpy as np

        low, high = np.searchsorted(self._first_rows, [start, end])
        for group in self._by_first_row[low:high]:
            yield self._group(int(group))

    def _group(self, group: int) -> Group:
        entries = self._order[self._starts[group] : self._ends[group]]
        return Group(self._rows[entries].tolist(), self._offsets[entries].tolist())


def check_same_group(found: list[tuple[str, str]], rows: list[int]) -> None:
    """Hold that all members of an indexed group name the same dataset and id.

    Raises:
        DataError: they do not: the input changed since it was indexed, or two ids share a digest.
    """
    for row, name in zip(rows, found, strict=True):
        if name != found[0]:
            raise DataError(
                f"rows {rows[0]} and {row} were indexed as one group, but name {found[0]} and "
                f"{name}; did the input change while it was scored?"
            )
