"""SIGINT and SIGTERM: the first asks a run to end well, the second ends it at once.

A command has CommandSignals from its first line to its last; its loops have stop_on_signals.
"""

import atexit
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rewardctl.errors import RewardctlError

GRACE_S = 10.0  # for calls in flight after the first signal
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(RewardctlError):
    """A signal ended the command.

    Args:
        is_kept: The run had begun, and what was finished of it is kept.
    """

    def __init__(self, signum: int, *, is_kept: bool = False) -> None:
        kept = "; what was finished is kept, go on with --resume" if is_kept else ""
        super().__init__(f"{signal.Signals(signum).name}: stopped{kept}")
        self.exit_code = 128 + signum


class CommandSignals:
    """What a signal does to a command outside stop_on_signals: while it imports, reads its config,
    loads models, prints its summary and ends.

    The first raises KeyboardInterrupt, and is remembered: what is imported just then may swallow
    the exception or make another of it. The second, or any once the work is over, ends the process
    at once.
    """

    def __init__(self) -> None:
        self.signum: int | None = None  # of the signal that came
        self.is_over = False

    def take_over(self) -> None:
        """Handle the signals from now on."""
        for signum in _heeded():
            signal.signal(signum, self)
        sys.unraisablehook = self._unraisable
        # Python itself puts the default handlers back at the end, and would be killed by a signal
        # with its work done. What is registered first is called last.
        atexit.register(_ignore_signals)

    def __call__(self, signum: int, _: FrameType | None) -> None:
        if self.is_over or self.signum is not None:
            os._exit(128 + signum)
        self.signum = signum
        raise KeyboardInterrupt

    def _unraisable(self, lost: "sys.UnraisableHookArgs") -> None:
        """Say nothing of a KeyboardInterrupt that a destructor swallowed: it is remembered."""
        if not (lost.exc_type is KeyboardInterrupt and self.signum is not None):
            sys.__unraisablehook__(lost)


class StopRequest:
    """Whether a signal has asked the run to end."""

    def __init__(self) -> None:
        self.signum: int | None = None

    def check(self) -> None:
        """Called between calls.

        Raises:
            Interrupted: a signal came.
        """
        if self.signum is not None:
            raise Interrupted(self.signum, is_kept=True)


@contextmanager
def stop_on_signals(
    last_words: Callable[[int], None], *, grace_s: float = GRACE_S
) -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a StopRequest while the block runs.

    After the first signal the block has `grace_s` seconds to notice it; then `last_words` is called
    with the exit code and the process exits. A second signal does that at once. Outside the main
    thread signals are left as they are, and so is one that the process was started to ignore.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    # Handlers in Python wait until native code in the main thread returns, which a call that hangs
    # never does. The number of a signal is written to `inbox` at once, and read by a thread.
    outbox, inbox = socket.socketpair()
    inbox.setblocking(False)
    watcher = threading.Thread(
        target=_watch, args=(outbox, request, last_words, grace_s), name="signals", daemon=True
    )
    watcher.start()

    def note(signum: int, _: FrameType | None) -> None:
        request.signum = request.signum or signum  # before the next line of Python runs

    before = {s: signal.signal(s, note) for s in _heeded()}
    for handler in before.values():
        if isinstance(handler, CommandSignals):
            request.signum = request.signum or handler.signum
    fd_before = signal.set_wakeup_fd(inbox.fileno(), warn_on_full_buffer=False)
    try:
        yield request
    finally:
        signal.set_wakeup_fd(fd_before)
        for signum, handler in before.items():
            signal.signal(signum, handler)
        inbox.close()
        watcher.join()
        outbox.close()


def _heeded() -> list[signal.Signals]:
    """The signals that the process was not started to ignore, as a shell does for `command &`."""
    return [signum for signum in SIGNALS if signal.getsignal(signum) != signal.SIG_IGN]


def _ignore_signals() -> None:
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


def _watch(
    outbox: socket.socket,
    request: StopRequest,
    last_words: Callable[[int], None],
    grace_s: float,
) -> None:
    """Note the first signal; end the process at the second, or when the grace is over."""
    while (first := _next_signal(outbox)) not in SIGNALS:
        if first is None:
            return
    assert first is not None
    request.signum = first
    outbox.settimeout(grace_s)
    try:
        while (received := _next_signal(outbox)) not in SIGNALS:
            if received is None:
                return
    except TimeoutError:
        received = first
    try:
        last_words(128 + received)
    finally:
        os._exit(128 + received)


def _next_signal(outbox: socket.socket) -> int | None:
    """The next signal's number; None when the block has ended."""
    number = outbox.recv(1)
    return number[0] if number else None
