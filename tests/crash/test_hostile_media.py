"""Image files that are cut, hostile or out of bounds, through the command."""

import os
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from crash_runs import ForkServer, rows_of, write_jsonl
from PIL import Image

CONFIG = """
rewards:
  - name: red
    reward_model: crash_rewards:RedReward
    batch_size: 3
"""
MODES = {
    "sync": "",
    "async, 1 worker": "    async_reward: true\n",
    "async, 2 workers": "    async_reward: true\n    num_workers: 2\n",
}
ARGUMENTS = ("config.yaml", "--data", "rows.jsonl", "-o", "out.jsonl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of media below one with a secret picture."""
    media = tmp_path / "job"
    media.mkdir()
    Image.new("RGB", (8, 8), (255, 0, 0)).save(media / "red.png")
    Image.new("RGB", (8, 8), (0, 255, 0)).save(media / "green.png")
    Image.new("RGB", (8, 8), (255, 255, 255)).save(tmp_path / "secret.png")
    (media / "config.yaml").write_text(CONFIG)
    return media


def write_rows(folder: Path, image: Any) -> None:
    """Three rows, the second with the image in question."""
    rows = [{"image": "red.png"}, {"image": image}, {"image": "green.png"}]
    write_jsonl(folder / "rows.jsonl", rows)


def cut_jpeg(folder: Path) -> str:
    noise = random.Random(0).randbytes(64 * 64 * 3)
    Image.frombytes("RGB", (64, 64), noise).save(folder / "whole.jpg", quality=90)
    content = (folder / "whole.jpg").read_bytes()
    (folder / "bad.jpg").write_bytes(content[: len(content) // 2])
    return "bad.jpg"


def fifo(folder: Path) -> str:
    os.mkfifo(folder / "bad.fifo")
    return "bad.fifo"


def link_out(folder: Path) -> str:
    (folder / "bad.png").symlink_to(folder.parent / "secret.png")
    return "bad.png"


def linked_folder_out(folder: Path) -> str:
    (folder / "pictures").symlink_to(folder.parent)
    return "pictures/secret.png"


def dots_out(folder: Path) -> str:
    return "../secret.png"


def absolute_out(folder: Path) -> str:
    return str(folder.parent / "secret.png")


def animated_gif(folder: Path) -> str:
    frames = [Image.new("RGB", (4, 4), color) for color in ("red", "green", "blue")]
    frames[0].save(folder / "bad.gif", save_all=True, append_images=frames[1:], duration=50)
    return "bad.gif"


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def bomb(folder: Path) -> str:
    """A few hundred bytes that claim 30,000 x 30,000 pixels."""
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    chunks = png_chunk(b"IHDR", header) + png_chunk(b"IDAT", zlib.compress(bytes(10_000)))
    (folder / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunks + png_chunk(b"IEND", b""))
    return "bad.png"


def text(folder: Path) -> str:
    (folder / "bad.png").write_text("no picture")
    return "bad.png"


def empty(folder: Path) -> str:
    (folder / "bad.png").touch()
    return "bad.png"


def missing(folder: Path) -> str:
    return "bad.png"


def device(folder: Path) -> str:
    return "/dev/zero"


def url(folder: Path) -> str:
    return "https://example.org/a.png"


def broken_base64(folder: Path) -> dict[str, str]:
    return {"bytes": "aGVsbG8="}


HOSTILE = {
    cut_jpeg: "'bad.jpg'",
    fifo: "'bad.fifo': is a FIFO",
    link_out: "allow its folder with --allow-media",
    linked_folder_out: "allow its folder with --allow-media",
    dots_out: "allow its folder with --allow-media",
    absolute_out: "allow its folder with --allow-media",
    animated_gif: "'bad.gif': is an animated GIF",
    bomb: "'bad.png'",
    text: "'bad.png': expected an image",
    empty: "'bad.png': is empty",
    missing: "'bad.png': no such file",
    device: "'/dev/zero': leads to",
    url: "URLs are refused",
    broken_base64: "expected an image",
}
NAMES = [make.__name__ for make in HOSTILE]


@pytest.mark.parametrize(("make", "reason"), HOSTILE.items(), ids=NAMES)
def test_hostile_image_stops_the_run_by_file_and_line(
    make: Any, reason: str, folder: Path, server: ForkServer
) -> None:
    write_rows(folder, make(folder))
    ended = server.score(*ARGUMENTS, cwd=folder)
    assert ended.code == 1
    assert "rows.jsonl:2: stream 'red': decode_error: " in ended.err
    assert reason in ended.err
    assert "Traceback" not in ended.err
    assert not (folder / "out.jsonl").exists()


@pytest.mark.parametrize(("make", "reason"), HOSTILE.items(), ids=NAMES)
def test_hostile_image_fails_alone_when_one_may_fail(
    make: Any, reason: str, folder: Path, server: ForkServer
) -> None:
    write_rows(folder, make(folder))
    ended = server.score(*ARGUMENTS, "--max-errors", "1", cwd=folder)
    assert ended.code == 0, ended.err
    before, row, after = rows_of(folder / "out.jsonl")
    assert row["status"] == {"red": "decode_error"}
    assert (row["scores"], row["applicable"]) == ({"red": None}, {"red": True})
    assert reason in row["errors"]["red"]
    assert (before["scores"], after["scores"]) == ({"red": 1.0}, {"red": 0.0})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("allowed", ["0", "1"])
def test_cut_jpeg_is_the_same_for_any_workers(
    mode: str, allowed: str, folder: Path, server: ForkServer
) -> None:
    (folder / "config.yaml").write_text(CONFIG + MODES[mode])
    write_rows(folder, cut_jpeg(folder))
    ended = server.score(*ARGUMENTS, "--max-errors", allowed, cwd=folder)
    if allowed == "0":
        assert ended.code == 1
        assert "rows.jsonl:2: stream 'red': decode_error: 'bad.jpg'" in ended.err
        return
    assert ended.code == 0, ended.err
    scores = [row["scores"]["red"] for row in rows_of(folder / "out.jsonl")]
    assert scores == [1.0, None, 0.0]


@pytest.mark.parametrize("make", [link_out, linked_folder_out, dots_out, absolute_out])
@pytest.mark.parametrize("allow", ["..", "/"])
def test_media_outside_the_folder_are_scored_once_allowed(
    make: Any, allow: str, folder: Path, server: ForkServer
) -> None:
    write_rows(folder, make(folder))
    ended = server.score(*ARGUMENTS, "--allow-media", allow, cwd=folder)
    assert ended.code == 0, ended.err
    scores = [row["scores"]["red"] for row in rows_of(folder / "out.jsonl")]
    assert scores == [1.0, 1.0, 0.0]


def test_device_stays_refused_where_all_folders_are_allowed(
    folder: Path, server: ForkServer
) -> None:
    write_rows(folder, "/dev/zero")
    ended = server.score(*ARGUMENTS, "--allow-media", "/", cwd=folder)
    assert ended.code == 1
    assert "'/dev/zero': is a device, expected a regular file" in ended.err
