"""The memory budget of decoding ahead, its end, and that no order of calls blocks it."""

import signal
import subprocess
import sys
import threading
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rewardctl.config.schema import MediaConfig
from rewardctl.data import media_pool
from rewardctl.data.media_pool import MediaPool
from rewardctl.data.media_ref import MediaRef, MediaRoot, parse_media
from rewardctl.errors import RunError

ROOT = MediaRoot(Path("/media"))
SIZE = 100  # bytes of each decoded file of `Decoder`
WAIT_S = 60  # until a test that hangs is ended


class Decoder:
    """Stands for `decode`: a file named 7 is 25 floats of 7."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.begun = threading.Semaphore(0)
        self.decoded = threading.Semaphore(0)
        self.gate = threading.Event()  # decodes wait for it
        self.gate.set()

    def __call__(self, kind: str, ref: MediaRef, settings: MediaConfig) -> Any:
        self.begun.release()
        assert self.gate.wait(WAIT_S)
        self.names.append(ref.name)
        self.decoded.release()
        return np.full(SIZE // 4, float(ref.name), dtype=np.float32)

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.decoded.acquire(timeout=WAIT_S)


@pytest.fixture
def decoder(monkeypatch):
    stand_in = Decoder()
    monkeypatch.setattr(media_pool, "decode", stand_in)
    return stand_in


def uses(*names: str) -> list[tuple[Hashable, str, MediaRef]]:
    """Uses whose tokens are their places."""
    return [(place, "latents", parse_media(name, ROOT)) for place, name in enumerate(names)]


def budget(files: int) -> MediaConfig:
    return MediaConfig(max_memory=files * SIZE)


def values(media: dict[Hashable, Any]) -> list[float]:
    return [float(array[0]) for array in media.values()]


def take(pool: MediaPool, call: Hashable) -> list[float]:
    media = pool.acquire(call)
    found = values(media)
    pool.release(call)
    return found


# The budget


def test_decoding_ahead_stays_within_the_budget(decoder):
    pool = MediaPool(budget(3), threads=1)
    for call in range(20):
        pool.expect([call], uses(str(call)))
    for call in range(20):
        assert take(pool, call) == [call]
    assert pool.peak_bytes <= 3 * SIZE
    assert (pool.decodes, pool.held_bytes) == (20, 0)
    pool.close()


def test_what_running_calls_have_counts_towards_the_budget(decoder):
    pool = MediaPool(budget(2), threads=1)
    pool.expect(["a"], uses("1"))
    pool.expect(["b"], uses("1"))
    pool.acquire("a")
    assert pool.held_bytes == 2 * SIZE  # the held file and the call's copy
    pool.acquire("b")
    assert pool.held_bytes == 2 * SIZE
    pool.release("a")
    assert pool.held_bytes == SIZE
    pool.release("b")
    assert (pool.held_bytes, pool.peak_bytes) == (0, 2 * SIZE)
    pool.close()


def test_a_call_larger_than_the_budget_still_runs(decoder):
    pool = MediaPool(budget(2), threads=1)
    pool.expect(["small"], uses("1"))
    pool.expect(["large"], uses(*"23456"))
    pool.expect(["after"], uses("7"))
    assert take(pool, "small") == [1]
    assert take(pool, "large") == [2, 3, 4, 5, 6]
    assert take(pool, "after") == [7]
    assert pool.held_bytes == 0
    pool.close()


def test_for_a_call_without_room_held_files_are_dropped_the_last_needed_first(decoder):
    pool = MediaPool(budget(3), threads=1)
    pool.expect(["ahead"], uses("1", "2", "3"))
    pool.expect(["now"], uses("4"))
    pool.expect(["soon"], uses("1"))
    pool.expect(["later"], uses("2"))
    pool.expect(["last"], uses("3"))
    assert take(pool, "ahead") == [1, 2, 3]  # its three files stay held for the others
    assert pool.held_bytes == 3 * SIZE
    assert take(pool, "now") == [4]
    assert [take(pool, call) for call in ("soon", "later", "last")] == [[1], [2], [3]]
    assert decoder.names == ["1", "2", "3", "4", "3"]
    assert pool.held_bytes == 0
    pool.close()


def test_files_that_a_waiting_call_needs_are_not_dropped(decoder):
    pool = MediaPool(budget(1), threads=1)
    pool.expect(["a"], uses(*"12345"))
    assert take(pool, "a") == [1, 2, 3, 4, 5]
    assert pool.decodes == 5
    pool.close()


def test_a_dropped_file_is_decoded_ahead_again_when_there_is_room(decoder):
    pool = MediaPool(budget(2), threads=1)
    pool.expect(["ahead"], uses("1", "2"))
    pool.expect(["now"], uses("3"))
    pool.expect(["then"], uses("1", "2"))
    assert take(pool, "ahead") == [1, 2]
    assert take(pool, "now") == [3]
    assert take(pool, "then") == [1, 2]
    assert (pool.decodes, pool.held_bytes) == (4, 0)
    assert pool.peak_bytes == 4 * SIZE  # both held, and the first call's copies
    pool.close()


def test_a_thread_with_a_running_call_can_acquire_another_whatever_the_budget(decoder):
    pool = MediaPool(budget(1), threads=1)
    for call in range(4):
        pool.expect([call], uses(str(call), "9"))
    found = {call: values(pool.acquire(call)) for call in (2, 0, 3, 1)}
    assert found == {call: [call, 9] for call in range(4)}
    for call in range(4):
        pool.release(call)
    assert pool.held_bytes == 0
    pool.close()


# Ends


def test_a_call_that_is_released_without_being_acquired_is_cancelled(decoder):
    pool = MediaPool(MediaConfig(), threads=1)
    decoder.gate.clear()
    pool.expect(["first"], uses("9"))
    pool.expect(["a"], uses("1", "1", "2"))
    pool.expect(["b"], uses("2"))
    pool.release("a")
    decoder.gate.set()
    assert [take(pool, call) for call in ("first", "b")] == [[9], [2]]
    assert (decoder.names, pool.held_bytes) == (["9", "2"], 0)
    pool.close()


def test_a_call_cancelled_during_its_decode_leaves_nothing_held(decoder):
    decoder.gate.clear()
    pool = MediaPool(MediaConfig(), threads=1)
    pool.expect(["a"], uses("1"))
    pool.expect(["b"], uses("2"))
    pool.release("a")
    decoder.gate.set()
    assert take(pool, "b") == [2]
    pool.close()
    assert pool.held_bytes == 0


def test_closing_ends_the_threads_and_drops_what_is_held(decoder):
    before = threading.active_count()
    pool = MediaPool(MediaConfig(), threads=2)
    for call in range(8):
        pool.expect([call], uses(str(call)))
    decoder.wait_for(8)
    pool.close()
    pool.close()
    assert threading.active_count() == before
    assert pool.held_bytes == 0


def test_closing_does_not_wait_for_a_decode_that_hangs_and_wakes_who_does(decoder, monkeypatch):
    monkeypatch.setattr(media_pool, "CLOSE_S", 0.0)
    decoder.gate.clear()
    pool = MediaPool(MediaConfig(), threads=1)
    pool.expect(["a"], uses("1"))
    assert decoder.begun.acquire(timeout=WAIT_S)  # by the background thread
    errors: list[Exception] = []

    def acquire() -> None:
        try:
            pool.acquire("a")
        except RunError as error:
            errors.append(error)

    waiting = threading.Thread(target=acquire, daemon=True)
    waiting.start()
    pool.close()
    waiting.join(WAIT_S)
    assert [str(error) for error in errors] == [
        "the media pool was closed while a call waited for its media"
    ]
    pool.release("a")
    decoder.gate.set()
    for thread in pool._threads:
        thread.join(WAIT_S)
    assert pool.held_bytes == 0


def test_a_closed_pool_gives_nothing_more(decoder):
    pool = MediaPool(MediaConfig(), threads=1)
    pool.expect(["a"], uses("1"))
    pool.close()
    with pytest.raises(RunError, match="closed"):
        pool.acquire("a")


INTERRUPTED = """
import threading
from pathlib import Path
from rewardctl.config.schema import MediaConfig
from rewardctl.data import media_pool
from rewardctl.data.media_ref import MediaRoot, parse_media

media_pool.CLOSE_S = 0.1
def hang(*_):
    print("begun", flush=True)
    threading.Event().wait()
media_pool.decode = hang
pool = media_pool.MediaPool(MediaConfig(), threads=1)
pool.expect(["a"], [(0, "image", parse_media("a.png", MediaRoot(Path("/"))))])
try:
    pool.acquire("a")
except KeyboardInterrupt:
    pool.close()
    print("interrupted", flush=True)
"""


def test_an_interrupt_ends_a_wait_for_media_and_the_process():
    command = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "interrupted\n"
        assert process.wait(WAIT_S) == 0


# Any order

FILES = 6


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]]]:
    """Calls as lists of files, and for each consumer the calls it takes in its order."""
    calls = draw(st.lists(st.lists(st.integers(0, FILES - 1), max_size=4), min_size=1, max_size=12))
    order = draw(st.permutations(range(len(calls))))
    consumers = draw(st.integers(1, 3))
    return calls, [list(order[place::consumers]) for place in range(consumers)]


@pytest.fixture
def quick_switches():
    """Threads change places far more often, so that more interleavings are seen."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@settings(max_examples=300, deadline=None)
@given(
    plan=plans(),
    threads=st.integers(1, 3),
    files_in_budget=st.sampled_from([0, 1, 2, 3, 1000]),
    held_calls=st.integers(1, 3),
)
@pytest.mark.usefixtures("quick_switches")
def test_every_acquire_returns_its_media_whatever_the_order(
    plan, threads, files_in_budget, held_calls
):
    calls, consumers = plan
    decoder = Decoder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(media_pool, "decode", decoder)
        pool = MediaPool(MediaConfig(max_memory=max(1, files_in_budget * SIZE)), threads=threads)
        for number, files in enumerate(calls):
            pool.expect([number], uses(*map(str, files)))

        def consume(order: list[int]) -> dict[int, list[float]]:
            """Takes calls, spoils what it got, and keeps up to `held_calls` of them running."""
            found, running = {}, []
            for number in order:
                media = pool.acquire(number)
                found[number] = values(media)
                for array in media.values():
                    array[:] = -1
                running.append(number)
                if len(running) == held_calls:
                    pool.release(running.pop(0))
            for number in running:
                pool.release(number)
            return found

        with ThreadPoolExecutor(len(consumers)) as executor:
            futures = [executor.submit(consume, order) for order in consumers]
            found = {}
            for future in futures:
                found |= future.result(timeout=WAIT_S)
        assert (pool._files, pool._calls) == ({}, {})
        pool.close()
    assert found == dict(enumerate([[float(file) for file in files] for files in calls]))
    assert pool.held_bytes == 0
    distinct = {file for files in calls for file in files}
    if files_in_budget == 1000:
        assert pool.decodes == len(distinct)
        assert sorted(decoder.names) == sorted(map(str, distinct))
    else:
        assert pool.decodes >= len(distinct)
