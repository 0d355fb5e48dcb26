"""An append-only file of checked records: what is known of a run that has not ended.

A record is one line: 8 hexadecimal digits of CRC-32, a space, a JSON object. A torn or damaged
record ends what can be read; nothing after it is trusted.
"""

import json
import os
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rewardctl.errors import RunError

SYNC_EVERY_S = 1.0
HEAD_BYTES = len(b'{"crc": "00000000", ')

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def encode_record(record: dict[str, Any]) -> bytes:
    """One line of a journal; `record` is not empty."""
    rest = _encode(record)[1:].encode("utf-8", "backslashreplace")
    return b'{"crc": "%08x", %s\n' % (zlib.crc32(rest), rest)


def decode_record(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None if it is torn or damaged."""
    head, rest = line[:HEAD_BYTES], line[HEAD_BYTES:-1]
    if not line.endswith(b"\n") or head != b'{"crc": "%08x", ' % zlib.crc32(rest):
        return None
    record: dict[str, Any] = json.loads(b"{" + rest)
    return record


def read_records(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """The whole records of a journal from its start, each with the offset of its end."""
    end = 0
    with path.open("rb") as file:
        for line in file:
            record = decode_record(line)
            if record is None:
                return
            end += len(line)
            yield record, end


class AppendFile:
    """A file that is only appended to, without a buffer in this process: a kill loses no whole
    write.

    Raises:
        RunError: the disk is full, a size limit is reached, or another I/O error.
    """

    def __init__(self, path: Path, *, size: int = 0) -> None:
        """Open `path`, cut it to `size` bytes, and append from there."""
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.ftruncate(self._fd, size)
            os.lseek(self._fd, size, os.SEEK_SET)
        except OSError as error:
            raise io_failure(path, error) from error
        self.size = size

    def write(self, block: bytes) -> None:
        """Append all of `block`."""
        view = memoryview(block)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            raise io_failure(self.path, error) from error
        self.size += len(block)

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`."""
        return os.pread(self._fd, end - start, start)

    def sync(self) -> None:
        """Have the system put all written bytes on the disk."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise io_failure(self.path, error) from error

    def close(self) -> None:
        """Sync as far as that goes, and close; a second call does nothing."""
        if self._fd >= 0:
            with suppress(OSError):  # whoever needs the bytes on the disk calls sync
                os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1


class Journal:
    """Appends records from any thread, whole and in one order, and syncs about every second."""

    def __init__(self, path: Path, *, size: int = 0) -> None:
        self._file = AppendFile(path, size=size)
        self._lock = threading.Lock()
        self._synced = time.monotonic()

    def append(self, record: dict[str, Any], *, sync: bool = False) -> None:
        """Write one record; `sync` puts it and all before it on the disk now."""
        line = encode_record(record)
        with self._lock:
            self._file.write(line)
            now = time.monotonic()
            if sync or now - self._synced >= SYNC_EVERY_S:
                self._file.sync()
                self._synced = now

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        with self._lock:
            self._file.close()


def io_failure(path: Path, error: OSError) -> RunError:
    """What to tell the user when a write fails."""
    return RunError(
        f"{path}: cannot write: {error.strerror or error}; make room or choose another place, then "
        "go on with --resume"
    )
