"""Rewards that hold a run where no call is in flight: while their module is imported, and while the
process ends. CRASH_MOMENT says where, CRASH_FLAGS is the folder of the flag files.
"""

import atexit
import os
import time
from contextlib import suppress

from crash_rewards import GATE_TIMEOUT_S, LengthReward, flag

MOMENT = os.environ["CRASH_MOMENT"]


class Wait:
    """Announces that the moment has come, and waits until the gate is open."""

    def __init__(self) -> None:
        # Kept here, since modules are empty when the last objects go.
        self.arrived, self.open = flag("arrived"), flag("open")
        self.now, self.sleep, self.touch = time.monotonic, time.sleep, type(self.arrived).touch
        self.exists = os.path.exists

    def __call__(self) -> None:
        deadline = self.now() + GATE_TIMEOUT_S
        self.touch(self.arrived)
        while not self.exists(self.open):
            if self.now() > deadline:
                raise TimeoutError
            self.sleep(0.005)


class WaitAsItGoes(Wait):
    """Waits in its destructor, from which no exception gets out."""

    def __del__(self) -> None:
        self()


match MOMENT:
    case "import":
        Wait()()
    case "import that makes another error of it":
        try:
            Wait()()
        except KeyboardInterrupt:
            raise RecursionError("maximum recursion depth exceeded") from None
    case "import that swallows it":
        with suppress(KeyboardInterrupt):
            Wait()()
    case "import, in a destructor":
        WaitAsItGoes()
    case "atexit":
        atexit.register(Wait())
    case "very end":
        kept = WaitAsItGoes()  # until the interpreter takes modules apart


class MomentReward(LengthReward):
    """Scores as LengthReward does, at once."""
