"""Media decoded ahead of the calls that use them: each file once, within a memory budget.

How a file is decoded is in media.py; what a call does with its media is not known here.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from rewardctl.config.schema import MediaConfig
from rewardctl.data.media import decode
from rewardctl.data.media_image import keep_freed_images
from rewardctl.data.media_ref import MediaRef
from rewardctl.data.shared_image import share
from rewardctl.errors import RowError, RunError

MediaUse = tuple[Hashable, str, MediaRef | list[MediaRef]]  # token, kind, file or frames

KEPT_IMAGES = 32  # freed ones; the images of a call and of the decodes meanwhile
MOST_THREADS = 8  # more would only wait for the interpreter
CLOSE_S = 2.0  # how long close() waits for decodes that are under way


@dataclass(slots=True, eq=False)
class _File:
    """One file that announced calls still use."""

    key: Hashable
    kind: str
    ref: MediaRef | list[MediaRef]
    state: Literal["waiting", "decoding", "ready"] = "waiting"
    value: Any = None  # once ready: decoded, or the RowError that came instead
    failure: BaseException | None = None  # once ready: what is no fault of the file
    size: int = 0  # bytes of `value`
    reserved: int = 0  # bytes that its decode is expected to take
    calls: dict[int, None] = field(default_factory=dict)  # numbers of its calls, ascending
    pins: int = 0  # calls that wait for it in acquire(): it is not dropped
    is_shared: bool = False  # a call holds its pixels: it is not given away


@dataclass(slots=True, eq=False)
class _Call:
    number: int  # in announced order
    uses: list[tuple[Hashable, _File]]
    files: list[_File]  # of the uses, each once
    repeated: set[_File]  # with several uses
    missing: set[_File] = field(default_factory=set)  # in acquire(): not decoded yet
    size: int = 0  # bytes of the media that it was given
    is_given: bool = False


class MediaPool:
    """Decodes the media of announced calls in background threads, in the order of the calls.

    A file is held from its decode to the last announced call that uses it. While held media,
    those of running calls included, exceed `media.max_memory`, nothing is decoded ahead. A call
    that is acquired never waits for memory, only for decodes: what is missing is decoded next,
    and for that held files which no call is waiting for are dropped, and decoded again when
    their call comes. So no order of calls can block.

    Safe to use from several threads. `threads` is the number of background threads, at least 1: by
    default one more than there are cores, since each waits for the interpreter now and then.
    """

    def __init__(self, settings: MediaConfig, *, threads: int | None = None) -> None:
        self.decodes = 0  # files decoded, each time counted
        self.held_bytes = 0  # decoded media, here and with running calls
        self.peak_bytes = 0
        self._settings = settings
        self._thread_count = threads or min(MOST_THREADS, 1 + (os.cpu_count() or 1))
        self._threads: list[threading.Thread] = []
        self._kept_before = 0
        self._lock = threading.Lock()
        self._work_came = threading.Condition(self._lock)
        self._call_came = threading.Condition(self._lock)  # all of its media, that is
        self._calls: dict[Hashable, _Call] = {}
        self._files: dict[Hashable, _File] = {}
        self._held: dict[_File, None] = {}
        self._queue: list[tuple[int, int, _File]] = []  # heap: next call, order of entry
        self._urgent: deque[_File] = deque()  # a call is waiting for them
        self._waiting: list[_Call] = []  # in acquire()
        self._numbers = count()
        self._reserved = 0
        self._largest: Counter[str] = Counter()  # bytes by kind, the estimate for the next
        self._is_closed = False

    def expect(self, calls: Sequence[Hashable], uses: Sequence[MediaUse]) -> None:
        """Announce calls with the same media; calls are announced in the order they start in."""
        keyed = [(token, kind, ref, _key(kind, ref)) for token, kind, ref in uses]
        with self._lock:
            numbers = {next(self._numbers): call for call in calls}
            first = min(numbers)
            used: list[tuple[Hashable, _File]] = []
            for token, kind, ref, key in keyed:
                file = self._files.get(key)
                if file is None:
                    file = self._files[key] = _File(key, kind, ref)
                    heapq.heappush(self._queue, (first, next(self._numbers), file))
                file.calls.update(dict.fromkeys(numbers))
                used.append((token, file))
            counts = Counter([file for _, file in used])
            files, repeated = list(counts), {file for file in counts if counts[file] > 1}
            for number, call in numbers.items():
                assert call not in self._calls, f"call {call!r} is announced twice"
                self._calls[call] = _Call(number, used, files, repeated)
            self._work_came.notify_all()
            if uses and not self._threads and not self._is_closed:
                self._start_threads()

    def __contains__(self, call: Hashable) -> bool:
        """Whether a call was announced and not released."""
        return call in self._calls

    def acquire(self, call: Hashable) -> dict[Hashable, Any]:
        """The call's media by token, each the call's own: decoded, or the RowError instead.

        Blocks until they are decoded. `release` must follow, also when this raises.

        Raises:
            RunError: the pool was closed.
        """
        with self._lock:
            entry = self._calls[call]
            self._wait(entry)
            given = self._hand_over(entry)
        return {
            token: _copy(kind, value) if is_shared else value
            for token, kind, value, is_shared in given
        }

    def release(self, call: Hashable) -> None:
        """The call's media are no longer used; for a call that was not acquired: nor will be."""
        with self._lock:
            entry = self._calls.pop(call)
            self._count_bytes(-entry.size)
            if not entry.is_given:
                for file in entry.files:
                    del file.calls[entry.number]
                    self._drop_unused(file)
            self._work_came.notify_all()

    def close(self) -> None:
        """Stop decoding, without waiting long; calls that wait in `acquire` raise."""
        with self._lock:
            self._is_closed = True
            for file in list(self._held):
                self._let_go(file)
            self._files.clear()
            self._queue.clear()
            self._urgent.clear()
            self._work_came.notify_all()
            self._call_came.notify_all()
        deadline = time.monotonic() + CLOSE_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._threads:
            keep_freed_images(self._kept_before)

    def _start_threads(self) -> None:
        self._kept_before = keep_freed_images(KEPT_IMAGES)
        for _ in range(self._thread_count):
            # Daemons: a decode that hangs must not keep the process from ending.
            thread = threading.Thread(target=self._decode_ahead, name="media", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _decode_ahead(self) -> None:
        file: _File | None = None
        while True:
            with self._lock:
                if file is not None:
                    self._end(file)
                file = self._next_file()
            if file is None:
                return
            self._decode(file)

    def _next_file(self) -> _File | None:
        """Waits for a file to decode, and begins it; None when the pool is closed."""
        while not self._is_closed:
            file = self._pop_file()
            if file is not None:
                self._begin(file)
                return file
            self._work_came.wait()
        return None

    def _pop_file(self) -> _File | None:
        """The next file to decode: what calls wait for first, then in order while there is room."""
        while self._urgent:
            file = self._urgent.popleft()
            if file.state == "waiting" and file.pins:
                return file
        while self._queue:
            file = self._queue[0][-1]
            if file.state != "waiting" or not file.calls:
                heapq.heappop(self._queue)
            elif self._missing_bytes(file) > 0 and self.held_bytes + self._reserved > 0:
                return None
            else:
                heapq.heappop(self._queue)
                return file
        return None

    def _wait(self, entry: _Call) -> None:
        """Waits until all files of a call are decoded."""
        entry.missing = {file for file in entry.files if file.state != "ready"}
        if entry.missing:
            for file in entry.files:
                file.pins += 1
            self._urgent.extend(file for file in entry.files if file.state == "waiting")
            self._work_came.notify_all()
            self._waiting.append(entry)
            try:
                while entry.missing and not self._is_closed:
                    self._call_came.wait()
            finally:
                self._waiting.remove(entry)
                for file in entry.files:
                    file.pins -= 1
        if self._is_closed:
            raise RunError("the media pool was closed while a call waited for its media")
        for file in entry.files:
            if file.failure is not None:
                raise file.failure

    def _begin(self, file: _File) -> None:
        """Mark a file as being decoded, making room if a call waits for it."""
        missing = self._missing_bytes(file) if file.pins else 0
        if missing > 0:
            idle = [held for held in self._held if held.size and not held.pins]
            # The one that is needed last goes first.
            for held in sorted(idle, key=_next_call, reverse=True):
                if missing <= 0:
                    break
                missing -= held.size
                self._let_go(held)
                self._wait_again(held)
        file.state = "decoding"
        file.reserved = self._largest[file.kind]
        self._reserved += file.reserved

    def _decode(self, file: _File) -> None:
        """Decodes a file that has been begun; without the lock."""
        try:
            file.value = decode(file.kind, file.ref, self._settings)
        except RowError as error:
            # Anew: the traceback would hold all that the decoder had in memory.
            file.value = RowError(error.status, str(error))
        except BaseException as error:
            file.failure = error  # raised in the calls that use the file

    def _end(self, file: _File) -> None:
        self.decodes += 1
        self._reserved -= file.reserved
        file.state = "ready"
        file.size = _size(file.value)
        self._largest[file.kind] = max(self._largest[file.kind], file.size)
        self._held[file] = None
        self._count_bytes(file.size)
        self._drop_unused(file)
        for entry in self._waiting:
            entry.missing.discard(file)
            if not entry.missing:
                self._call_came.notify_all()
        self._work_came.notify_all()

    def _hand_over(self, entry: _Call) -> list[tuple[Hashable, str, Any, bool]]:
        """Token, kind and value of the call's media, and whether others have the value too."""
        for file in entry.files:
            del file.calls[entry.number]
            if file.calls or file in entry.repeated:
                file.is_shared = True
        given = [(token, f.kind, f.value, f.is_shared) for token, f in entry.uses]
        for file in entry.files:
            if not file.calls:
                self._drop_unused(file)
        entry.is_given = True
        entry.size = sum([file.size for _, file in entry.uses])
        self._count_bytes(entry.size)
        return given

    def _drop_unused(self, file: _File) -> None:
        if file.calls or file.state == "decoding":
            return
        self._let_go(file)
        if self._files.get(file.key) is file:
            del self._files[file.key]

    def _let_go(self, file: _File) -> None:
        """No longer hold the decoded file."""
        if file in self._held:
            del self._held[file]
            self._count_bytes(-file.size)
            file.value = None

    def _wait_again(self, file: _File) -> None:
        file.state = "waiting"
        if file.calls:
            heapq.heappush(self._queue, (_next_call(file), next(self._numbers), file))

    def _missing_bytes(self, file: _File) -> int:
        """By how much the budget would be exceeded if the file were decoded now."""
        expected = self.held_bytes + self._reserved + self._largest[file.kind]
        return expected - self._settings.max_memory

    def _count_bytes(self, change: int) -> None:
        self.held_bytes += change
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)


def _key(kind: str, ref: MediaRef | list[MediaRef]) -> Hashable:
    return kind, tuple(frame.key for frame in ref) if isinstance(ref, list) else ref.key


def _next_call(file: _File) -> int:
    return next(iter(file.calls))


def _size(value: Any) -> int:
    """Bytes of decoded media; Pillow keeps RGB in four bytes a pixel."""
    if isinstance(value, list):
        return sum(_size(frame) for frame in value)
    if isinstance(value, tuple):
        return int(value[0].nbytes)
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    return 4 * value.width * value.height if hasattr(value, "width") else 0


def _copy(kind: str, value: Any) -> Any:
    """Media that may be changed without changing `value`; an image copies when it is changed."""
    if isinstance(value, RowError) or value is None:
        return value
    if kind == "image":
        return share(value)
    if kind == "video":
        return [_copy("image", frame) for frame in value]
    if kind == "audio":
        return value[0].copy(), *value[1:]
    return value.copy()
