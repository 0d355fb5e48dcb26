"""Decoding ahead: each file once, own copies for all its users, errors stored."""

import gc
import threading
import weakref
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rewardctl.config.schema import MediaConfig
from rewardctl.data import media_pool
from rewardctl.data.media_pool import MediaPool
from rewardctl.data.media_ref import MediaRef, MediaRoot, parse_media, parse_video
from rewardctl.errors import ConfigError, RowError

ROOT = MediaRoot(Path("/media"))
WAIT_S = 60  # until a test that hangs is ended


class Decoder:
    """Stands for `decode`: a file named 7 is an array of 7; "bad" cannot be decoded."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.decoded = threading.Semaphore(0)
        self.gate = threading.Event()  # decodes wait for it
        self.gate.set()

    def __call__(self, kind: str, ref: MediaRef, settings: MediaConfig) -> Any:
        assert self.gate.wait(WAIT_S)
        self.names.append(ref.name)
        self.decoded.release()
        if ref.name == "bad":
            raise RowError("decode_error", f"{ref.name}: cannot be decoded")
        return np.full(25, float(ref.name), dtype=np.float32)

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


def values(media: dict[Hashable, Any]) -> list[float]:
    return [float(array[0]) for array in media.values()]


def take(pool: MediaPool, call: Hashable) -> list[float]:
    media = pool.acquire(call)
    found = values(media)
    pool.release(call)
    return found


# Real files


def test_memory_of_freed_images_is_kept_for_the_next_ones_until_the_pool_is_closed(tmp_path):
    for place in range(3):
        Image.new("RGB", (64, 64), (place, 0, 0)).save(tmp_path / f"{place}.png")
    root = MediaRoot(tmp_path)
    before, kept = Image.core.get_blocks_max(), Image.core.get_stats()["blocks_cached"]
    pool = MediaPool(MediaConfig(), threads=1)
    for place in range(3):
        pool.expect([place], [(0, "image", parse_media(f"{place}.png", root))])
    for place in range(3):
        assert pool.acquire(place)[0].getpixel((0, 0)) == (place, 0, 0)
        pool.release(place)
    assert Image.core.get_stats()["blocks_cached"] > kept
    pool.close()
    assert Image.core.get_blocks_max() == before
    assert Image.core.get_stats()["blocks_cached"] <= before


def test_images_are_decoded_once_for_two_streams_in_two_threads(tmp_path):
    for place in range(12):
        Image.new("RGB", (32, 32), (place, 0, 0)).save(tmp_path / f"{place}.png")
    root = MediaRoot(tmp_path)
    refs = [parse_media(f"{place}.png", root) for place in range(12)]
    pool = MediaPool(MediaConfig(), threads=2)
    for start in range(0, 12, 4):
        for stream in "ab":
            batch = [(place, "image", refs[place]) for place in range(start, start + 4)]
            pool.expect([(stream, start)], batch)

    def run(stream: str) -> list[int]:
        reds = []
        for start in range(0, 12, 4):
            media = pool.acquire((stream, start))
            reds += [image.getpixel((0, 0))[0] for image in media.values()]
            for image in media.values():
                image.paste((99, 99, 99), (0, 0, 32, 32))  # its own: nobody else sees this
            pool.release((stream, start))
        return reds

    with ThreadPoolExecutor(2) as executor:
        assert list(executor.map(run, "ab")) == [list(range(12))] * 2
    pool.close()
    assert pool.decodes == 12
    assert pool.held_bytes == 0
    assert pool.peak_bytes >= 4 * 32 * 32 * 4


def test_all_kinds_are_held_and_copied(tmp_path):
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "0.png")
    np.save(tmp_path / "a.npy", np.zeros(3))
    import soundfile

    soundfile.write(tmp_path / "a.wav", np.zeros(5), 8000)
    root = MediaRoot(tmp_path)
    batch = [
        ("image", "image", parse_media("0.png", root)),
        ("video", "video", parse_video("a.gif", root)),
        ("frames", "video", parse_video(["0.png", "0.png"], root)),
        ("audio", "audio", parse_media("a.wav", root)),
        ("latents", "latents", parse_media("a.npy", root)),
        ("animated", "image", parse_media("a.gif", root)),
    ]
    pool = MediaPool(MediaConfig(), threads=1)
    pool.expect(["a"], batch)
    pool.expect(["b"], batch)
    first = pool.acquire("a")
    # 64 bytes an image of 4 x 4, five of them; 5 samples and 3 latents of 4 bytes; held and given.
    assert pool.held_bytes == 2 * (64 * 5 + 4 * 5 + 4 * 3)
    first["image"].paste((9, 9, 9), (0, 0, 4, 4))
    first["video"][1].paste((9, 9, 9), (0, 0, 4, 4))
    first["frames"].pop()
    first["audio"][0][:] = 1.0
    first["latents"][:] = 1.0
    second = pool.acquire("b")
    assert second["image"].getpixel((0, 0)) == (255, 0, 0)
    assert [frame.getpixel((0, 0)) for frame in second["video"]] == [(255, 0, 0), (0, 0, 255)]
    assert len(second["frames"]) == 2
    assert (second["audio"][0].sum(), second["audio"][1]) == (0.0, 8000)
    assert second["latents"].sum() == 0.0
    assert "animated GIF" in str(second["animated"])
    pool.release("a")
    pool.release("b")
    assert (pool.decodes, pool.held_bytes) == (6, 0)
    pool.close()


# Once


def test_files_are_decoded_ahead_in_the_order_of_the_calls(decoder):
    decoder.gate.clear()
    pool = MediaPool(MediaConfig(), threads=1)
    for call in range(4):
        pool.expect([call], uses(str(2 * call), str(2 * call + 1), "0"))
    decoder.gate.set()
    decoder.wait_for(8)
    assert decoder.names == [str(n) for n in range(8)]
    assert [take(pool, call) for call in range(4)] == [[0, 1, 0], [2, 3, 0], [4, 5, 0], [6, 7, 0]]
    assert pool.decodes == 8
    pool.close()


def test_calls_may_come_in_another_order_than_announced(decoder):
    pool = MediaPool(MediaConfig(), threads=1)
    for call in range(6):
        pool.expect([call], uses(str(call), str(call + 1)))
    assert [take(pool, call) for call in (5, 0, 3, 1, 4, 2)] == [
        [5, 6],
        [0, 1],
        [3, 4],
        [1, 2],
        [4, 5],
        [2, 3],
    ]
    assert (pool.decodes, pool.held_bytes) == (7, 0)
    pool.close()


def test_a_file_that_is_announced_again_after_its_last_use_is_decoded_again(decoder):
    pool = MediaPool(MediaConfig(), threads=1)
    for call in range(2):
        pool.expect([call], uses("1"))
        assert take(pool, call) == [1]
    assert pool.decodes == 2
    pool.close()


def test_a_call_announced_while_its_file_is_held_shares_the_decode(decoder):
    pool = MediaPool(MediaConfig(), threads=1)
    pool.expect(["a"], uses("1"))
    pool.expect(["b"], uses("1"))
    assert take(pool, "a") == [1]
    pool.expect(["c"], uses("1"))
    assert take(pool, "b") == [1]
    assert take(pool, "c") == [1]
    assert (pool.decodes, pool.held_bytes) == (1, 0)
    pool.close()


def test_a_call_without_media_starts_no_thread(decoder):
    before = threading.active_count()
    pool = MediaPool(MediaConfig(), threads=2)
    pool.expect(["a"], [])
    assert pool.acquire("a") == {}
    pool.release("a")
    assert threading.active_count() == before
    pool.close()


# Own copies


def test_each_use_has_its_own_and_an_only_user_gets_the_original(decoder, monkeypatch):
    copies = []
    copy = media_pool._copy
    monkeypatch.setattr(media_pool, "_copy", lambda *given: copies.append(1) or copy(*given))
    pool = MediaPool(MediaConfig(), threads=1)
    pool.expect(["a"], uses("1", "1"))
    pool.expect(["b"], uses("1", "1", "2"))
    arrays = [*pool.acquire("a").values(), *pool.acquire("b").values()]
    assert len(copies) == 4  # four uses of 1; the only one of 2 needs no copy
    for array in arrays:
        assert array[0] in (1, 2)
        array[:] = 0
    pool.release("a")
    pool.release("b")
    assert pool.held_bytes == 0
    pool.close()


def test_calls_announced_together_have_each_its_own(decoder):
    pool = MediaPool(MediaConfig(), threads=1)
    pool.expect(["a", "b", "c"], uses("1", "2"))
    first = list(pool.acquire("a").values())
    for array in first:
        array[:] = 0
    pool.release("a")
    pool.release("b")  # never acquired
    assert [array[0] for array in pool.acquire("c").values()] == [1, 2]
    pool.release("c")
    assert (pool.decodes, pool.held_bytes) == (2, 0)
    pool.close()


def test_the_last_call_copies_too_while_another_still_reads(decoder, monkeypatch):
    reading, go_on = threading.Event(), threading.Event()
    copy = media_pool._copy

    def slow_copy(kind: str, value: Any) -> Any:
        if threading.current_thread() is reader:
            reading.set()
            assert go_on.wait(WAIT_S)
        return copy(kind, value)

    monkeypatch.setattr(media_pool, "_copy", slow_copy)
    pool = MediaPool(MediaConfig(), threads=1)
    pool.expect(["a"], uses("1"))
    pool.expect(["b"], uses("1"))
    first: list[Any] = []
    reader = threading.Thread(target=lambda: first.append(pool.acquire("a")[0]), daemon=True)
    reader.start()
    assert reading.wait(WAIT_S)
    pool.acquire("b")[0][:] = 0
    go_on.set()
    reader.join(WAIT_S)
    assert first[0][0] == 1
    pool.release("a")
    pool.release("b")
    assert pool.held_bytes == 0
    pool.close()


# Errors


def test_a_decode_error_is_given_to_every_user_and_decoded_once(decoder):
    pool = MediaPool(MediaConfig(), threads=1)
    pool.expect(["a"], uses("bad", "1"))
    pool.expect(["b"], uses("bad"))
    for call in "ab":
        error = pool.acquire(call)[0]
        assert (type(error), str(error)) == (RowError, "bad: cannot be decoded")
        assert error.status == "decode_error"
        pool.release(call)
    assert (pool.decodes, pool.held_bytes) == (2, 0)
    pool.close()


def test_a_stored_error_does_not_hold_what_the_decoder_had_in_memory(decoder, monkeypatch):
    dropped = []

    def fail(kind: str, ref: MediaRef, settings: MediaConfig) -> Any:
        frames = np.zeros(1000)
        dropped.append(weakref.ref(frames))
        raise RowError("decode_error", "too many frames") from ValueError("cause")

    monkeypatch.setattr(media_pool, "decode", fail)
    pool = MediaPool(MediaConfig(), threads=1)
    pool.expect(["a"], uses("1"))
    media = pool.acquire("a")
    gc.collect()
    assert isinstance(media[0], RowError)
    assert dropped[0]() is None
    pool.close()


def test_what_is_no_fault_of_the_file_is_raised_in_the_call(decoder, monkeypatch):
    def fail(kind: str, ref: MediaRef, settings: MediaConfig) -> Any:
        raise ConfigError("media.background: expected a colour")

    monkeypatch.setattr(media_pool, "decode", fail)
    pool = MediaPool(MediaConfig(), threads=1)
    pool.expect(["a"], uses("1"))
    pool.expect(["b"], uses("1"))
    for call in "ab":
        with pytest.raises(ConfigError, match="expected a colour"):
            pool.acquire(call)
        pool.release(call)
    assert pool.held_bytes == 0
    pool.close()
