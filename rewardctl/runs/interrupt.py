"""SIGINT and SIGTERM: the first asks a run to end well, the second ends it at once."""

import os
import signal
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
            f"{signal.Signals(signum).name}: stopped; what was scored is kept, go on with --resume"
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
def stop_on_signals(last_words: Callable[[], None]) -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a StopRequest while the block runs.

    After the first signal the block has GRACE_S seconds to notice it; then `last_words` is called
    and the process exits. A second signal does that at once. Outside the main thread signals are
    left as they are.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    timers: list[threading.Timer] = []

    def leave(signum: int) -> None:
        try:
            last_words()
        finally:
            os._exit(128 + signum)

    def on_signal(signum: int, _: FrameType | None) -> None:
        if request.signum is not None:
            leave(signum)
        request.signum = signum
        timer = threading.Timer(GRACE_S, leave, [signum])
        timer.daemon = True
        timer.start()
        timers.append(timer)

    before = {s: signal.signal(s, on_signal) for s in SIGNALS}
    try:
        yield request
    finally:
        for timer in timers:
            timer.cancel()
        for signum, handler in before.items():
            signal.signal(signum, handler)
