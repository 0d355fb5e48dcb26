"""Files of a scoring run: OUT.partial and its journal while it runs, OUT and OUT.meta.json in the
end.

Everything that a kill may cut short is found again here. What the records mean to the plan is not
known here.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from rewardctl.data.journal import AppendFile, Journal, io_failure, read_records
from rewardctl.errors import RunError, UsageError

# Of our own files only: what users lay beside them, as a copy, is theirs. In the order of removal
# the rows set aside for a retry go before the journal, which tells whether they still count.
WORKING_ENDINGS = r"(\.before-retry|\.input[0-9]*|\.journal|\.meta\.json(\.tmp)?)?"


@dataclass(frozen=True)
class OutputPaths:
    """Where the files of one output lie."""

    out: Path

    def _beside(self, ending: str) -> Path:
        return self.out.with_name(self.out.name + ending)

    @property
    def partial(self) -> Path:
        """The rendered rows of a run that has not ended."""
        return self._beside(".partial")

    @property
    def journal(self) -> Path:
        """Finished calls and windows of a run that has not ended."""
        return self._beside(".partial.journal")

    @property
    def partial_meta(self) -> Path:
        """The meta file of a run that has not ended."""
        return self._beside(".partial.meta.json")

    @property
    def meta(self) -> Path:
        """The meta file of a complete output."""
        return self._beside(".meta.json")

    @property
    def before_retry(self) -> Path:
        """Rendered rows whose failed cells a retry is replacing."""
        return self._beside(".partial.before-retry")

    def spool(self, index: int) -> Path:
        """A copy of an input that cannot seek."""
        return self._beside(f".partial.input{index or ''}")

    def working_files(self) -> list[Path]:
        """All that lies beside OUT only while a run is unfinished, the lock left out."""
        own = re.compile(re.escape(self.partial.name) + WORKING_ENDINGS)
        return sorted(p for p in self.out.parent.iterdir() if own.fullmatch(p.name))


@contextmanager
def only_writer(paths: OutputPaths) -> Iterator[None]:
    """Hold the output for this process.

    Raises:
        RunError: another process holds it, or the folder cannot be written.
    """
    if not paths.out.parent.is_dir():  # filelock would make it
        raise UsageError(
            f"{paths.out}: its folder {paths.out.parent} does not exist; make it, or correct -o"
        )
    lock_path = paths.partial.with_name(paths.partial.name + ".lock")
    lock = FileLock(lock_path)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise RunError(
            f"{paths.out}: another run is writing it (lock {lock_path}); wait for it, or choose "
            "another output"
        ) from error
    except OSError as error:
        raise io_failure(lock_path, error) from error
    try:
        yield
    finally:
        lock_path.unlink(missing_ok=True)  # while it is held: the next run makes its own
        lock.release()


@dataclass(frozen=True)
class WindowRecord:
    """The journal's word that a window is rendered, and where that left the run."""

    window: int
    position: list[int]  # of the input behind it: row, input, offset, line
    start: int  # first byte of its block in OUT.partial
    end: int  # byte behind its block
    sha256: str  # of its block
    stream_sha256: str | None  # of what was taken from an input that can be read only once
    statistics: dict[str, Any]
    by_source: dict[str, int]


@dataclass
class Recovered:
    """What a stopped run left."""

    start: dict[str, Any]  # the journal's first record
    window: WindowRecord | None  # the last rendered window; None if there is none
    journal_size: int  # bytes of it that are whole records


def recover(paths: OutputPaths) -> Recovered | None:
    """Read what a stopped run left; None if there is nothing to go on from.

    A window counts only if its block stands whole in OUT.partial; a cut file leads back to the
    window before it.
    """
    if not paths.journal.exists():
        return None
    start: dict[str, Any] | None = None
    windows: list[WindowRecord] = []
    size = 0
    for record, end in read_records(paths.journal):
        kind = record.pop("kind")
        if kind == "start":
            start = record
        elif kind == "window":
            window = WindowRecord(**record)
            while windows and windows[-1].window >= window.window:
                windows.pop()
            windows.append(window)
        size = end
    if start is None or (windows and not paths.partial.exists()):
        return None
    last: WindowRecord | None = None
    if windows:
        with paths.partial.open("rb") as file:
            for window in windows:
                if not _block_is_whole(file.fileno(), window):
                    break
                last = window
    return Recovered(start, last, size)


def journal_start(paths: OutputPaths) -> dict[str, Any] | None:
    """The first record of the journal; None if there is none."""
    if not paths.journal.exists():
        return None
    record, _ = next(read_records(paths.journal), (None, 0))
    return record


def journalled_calls(paths: OutputPaths) -> Iterator[dict[str, Any]]:
    """The finished calls in a journal, in the order they ended; a later one replaces an earlier."""
    for record, _ in read_records(paths.journal):
        if record.pop("kind") == "call":
            yield record


def _block_is_whole(fd: int, window: WindowRecord) -> bool:
    block = os.pread(fd, window.end - window.start, window.start)
    return hashlib.sha256(block).hexdigest() == window.sha256


class Output(Protocol):
    """Where a run's calls and rows go."""

    def add_call(self, record: dict[str, Any]) -> None:
        """Note a finished call; from any thread."""

    def add_window(self, block: bytes, facts: dict[str, Any]) -> None:
        """Write the rows of a window behind those before it."""

    def write_meta(self, meta: dict[str, Any]) -> None:
        """Replace the meta file of the running run."""

    def finish(self, meta: dict[str, Any]) -> None:
        """The run is complete."""

    def discard(self) -> None:
        """The run had nothing to do: leave nothing behind."""

    def close(self) -> None:
        """The run has ended, complete or not."""


class StdoutOutput:
    """Rows go to standard output as their windows end; nothing is kept to go on from."""

    def add_call(self, record: dict[str, Any]) -> None:
        """Not kept."""

    def add_window(self, block: bytes, facts: dict[str, Any]) -> None:
        """Write the rows of a window."""
        try:
            sys.stdout.buffer.write(block)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise RunError(f"standard output: cannot write: {error.strerror}") from error

    def write_meta(self, meta: dict[str, Any]) -> None:
        """Not kept."""

    def finish(self, meta: dict[str, Any]) -> None:
        """Nothing is left to do."""

    def discard(self) -> None:
        """Nothing was kept."""

    def close(self) -> None:
        """Nothing is left to do."""


class FileOutput:
    """OUT.partial with its journal; the caller holds `only_writer`.

    Args:
        start: facts for the journal's first record, of a new run.
        recovered: what to go on from; None starts anew.
    """

    def __init__(
        self, paths: OutputPaths, *, start: dict[str, Any], recovered: Recovered | None
    ) -> None:
        self.paths = paths
        if recovered is None:
            # First the journal, which says whether this is a retry.
            self._journal = Journal(paths.journal)
            self._journal.append({"kind": "start", **start}, sync=True)
            self._partial = AppendFile(paths.partial)
        else:
            rendered = recovered.window.end if recovered.window else 0
            self._partial = AppendFile(paths.partial, size=rendered)
            self._journal = Journal(paths.journal, size=recovered.journal_size)

    def add_call(self, record: dict[str, Any]) -> None:
        """Append a finished call to the journal."""
        self._journal.append({"kind": "call", **record})

    def add_window(self, block: bytes, facts: dict[str, Any]) -> None:
        """Append rows to OUT.partial, then say in the journal that they stand there."""
        start = self._partial.size
        self._partial.write(block)
        self._partial.sync()
        self._journal.append(
            {
                "kind": "window",
                "start": start,
                "end": self._partial.size,
                "sha256": hashlib.sha256(block).hexdigest(),
                **facts,
            },
            sync=True,
        )

    def write_meta(self, meta: dict[str, Any]) -> None:
        """Replace OUT.partial.meta.json."""
        write_json(self.paths.partial_meta, meta)

    def finish(self, meta: dict[str, Any]) -> None:
        """Meta and rows under their final names, then the journal away: any cut leads back here."""
        self.close()
        write_json(self.paths.partial_meta, meta, indent=1)
        os.replace(self.paths.partial_meta, self.paths.meta)
        os.replace(self.paths.partial, self.paths.out)
        sync_folder(self.paths.out.parent)
        self._clean_up()

    def discard(self) -> None:
        """Delete all working files."""
        self.close()
        self._clean_up()

    def _clean_up(self) -> None:
        for path in self.paths.working_files():
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close both files; a second call does nothing."""
        self._journal.close()
        self._partial.close()


def write_json(path: Path, content: dict[str, Any], *, indent: int | None = None) -> None:
    """Replace a JSON file whole: written aside, synced, renamed.

    Raises:
        RunError: it cannot be written.
    """
    aside = path.with_name(path.name + ".tmp")
    text = json.dumps(content, ensure_ascii=False, indent=indent, allow_nan=False) + "\n"
    try:
        with aside.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        raise io_failure(path, error) from error


def sync_folder(folder: Path) -> None:
    """Have renames in a folder survive a power cut."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_meta(path: Path) -> dict[str, Any]:
    """A meta file written before.

    Raises:
        UsageError: it is missing or damaged.
    """
    try:
        meta = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path}: expected the meta file of this output, found none that can be read "
            f"({error}); "
            "score anew with --overwrite"
        ) from error
    if not isinstance(meta, dict):
        raise UsageError(f"{path}: not a meta file; score anew with --overwrite")
    return meta
