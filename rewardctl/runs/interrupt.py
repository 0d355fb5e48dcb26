"""SIGINT and SIGTERM: the first asks a run to end well, the second ends it at once."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rewardctl.errors import RewardctlError

GRACE_S = 10.0  # for calls in flight after the first signal
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(RewardctlError):
    """A signal ended the run; what was finished is kept."""

    def __init__(self, signum: int) -> None:
        super().__init__(
            f"{signal.Signals(signum).name}: stopped; what was finished is kept, go on with "
            "--resume"
        )
        self.exit_code = 128 + signum


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
            raise Interrupted(self.signum)


@contextmanager
def stop_on_signals(
    last_words: Callable[[int], None], *, grace_s: float = GRACE_S
) -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a StopRequest while the block runs.

    After the first signal the block has `grace_s` seconds to notice it; then `last_words` is called
    with the exit code and the process exits. A second signal does that at once. Outside the main
    thread signals are left as they are.
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

    before = {s: signal.signal(s, note) for s in SIGNALS}
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
