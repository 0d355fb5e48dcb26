"""Videos: all frames in order, picked by time, within limits; broken and hostile files."""

import struct
import sys
import zlib
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from rewardctl.config.schema import MediaConfig
from rewardctl.data import media_video
from rewardctl.data.media import decode
from rewardctl.data.media_ref import MediaRoot, parse_video
from rewardctl.errors import RowError

PLAIN = MediaConfig()
# Codecs are lossy: a grey comes back within a few levels.
NEAR = 6


def decoded(
    folder: Path, value: str | list[str], settings: MediaConfig = PLAIN
) -> list[Image.Image]:
    frames = decode("video", parse_video(value, MediaRoot(folder)), settings)
    assert {frame.mode for frame in frames} == {"RGB"}
    return frames


def refusal(folder: Path, value: str | list[str], settings: MediaConfig = PLAIN) -> str:
    with pytest.raises(RowError) as caught:
        decoded(folder, value, settings)
    assert caught.value.status == "decode_error"
    return str(caught.value)


def greys(count: int, size: tuple[int, int] = (64, 48)) -> list[Image.Image]:
    """Frames whose level says their place: 10, 20, 30, ..."""
    return [Image.new("RGB", size, (10 * (n + 1),) * 3) for n in range(count)]


def levels(frames: Sequence[Image.Image]) -> list[int]:
    """Each frame's place, read from its level."""
    return [round(frame.getpixel((1, 1))[0] / 10) for frame in frames]


def write_video(
    path: Path,
    frames: Sequence[Image.Image],
    *,
    codec: str = "libx264",
    rate: int = 10,
    pixels: str = "yuv420p",
    rotation: int | None = None,
    options: dict[str, str] | None = None,
    times: Sequence[int] | None = None,
) -> Path:
    """A video; `times` in milliseconds for one with uneven timestamps."""
    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.width, stream.height = frames[0].size
        stream.pix_fmt = pixels
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        if rotation is not None:
            stream.set_display_rotation(rotation)
        for index, image in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(np.asarray(image), format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times[index], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def write_animation(path: Path, frames: Sequence[Image.Image], **options: object) -> Path:
    frames[0].save(path, save_all=True, append_images=frames[1:], **options)
    return path


# Frames


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.mp4", "libx264"),
        ("a.mov", "libx264"),
        ("a.mkv", "libx264"),
        ("a.webm", "libvpx-vp9"),
        ("a.avi", "mpeg4"),
        ("a.ts", "libx264"),
    ],
)
def test_a_file_gives_all_its_frames_in_order(tmp_path, name, codec):
    write_video(tmp_path / name, greys(8), codec=codec)
    frames = decoded(tmp_path, name)
    assert levels(frames) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {frame.size for frame in frames} == {(64, 48)}
    assert abs(frames[4].getpixel((30, 30))[1] - 50) < NEAR


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.png"])
def test_an_animation_gives_all_its_frames_in_order_without_the_video_extra(
    tmp_path, name, monkeypatch
):
    monkeypatch.setitem(sys.modules, "av", None)
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    write_animation(tmp_path / name, frames, duration=100, lossless=True)
    colours = [frame.getpixel((4, 4)) for frame in decoded(tmp_path, name)]
    assert colours == [(255, 0, 0), (0, 255, 0), (0, 0, 255)]


def test_frames_of_an_animation_do_not_share_pixels(tmp_path):
    write_animation(tmp_path / "a.gif", greys(3, (8, 8)))
    frames = decoded(tmp_path, "a.gif")
    frames[0].paste((0, 0, 0), (0, 0, 8, 8))
    assert levels(frames) == [0, 2, 3]


def test_a_transparent_animation_lies_on_the_background(tmp_path):
    frames = [Image.new("RGBA", (8, 8), (200, 0, 0, 0)), Image.new("RGBA", (8, 8), (0, 90, 0, 255))]
    write_animation(tmp_path / "a.webp", frames, lossless=True)
    first, second = decoded(tmp_path, "a.webp", MediaConfig(background="blue"))
    assert (first.getpixel((4, 4)), second.getpixel((4, 4))) == ((0, 0, 255), (0, 90, 0))


def test_the_stand_in_image_of_an_animated_png_is_no_frame(tmp_path):
    stand_in = Image.new("RGB", (8, 8), "black")
    write_animation(tmp_path / "a.png", [stand_in, *greys(2, (8, 8))], default_image=True)
    assert levels(decoded(tmp_path, "a.png")) == [1, 2]


def test_a_clip_that_stands_still_is_a_gif_of_one_frame(tmp_path):
    write_animation(tmp_path / "a.gif", [greys(1)[0]] * 3)
    assert levels(decoded(tmp_path, "a.gif")) == [1]


def test_a_list_of_frame_files_is_a_video(tmp_path):
    for place, frame in enumerate(greys(3)):
        frame.save(tmp_path / f"{place}.png")
    assert levels(decoded(tmp_path, ["2.png", "0.png", "1.png", "0.png"])) == [3, 1, 2, 1]


@pytest.mark.parametrize("turn", [90, 180, -90])
def test_the_rotation_of_the_file_is_applied(tmp_path, turn):
    # Shown, the left half is bright and the right half dark.
    shown = Image.new("RGB", (64, 48), (20, 20, 20))
    shown.paste((220, 220, 220), (0, 0, 32, 48))
    stored = shown.rotate(-turn, expand=True)  # turning it back shows it
    write_video(tmp_path / "a.mp4", [stored] * 2, rotation=turn)
    frame = decoded(tmp_path, "a.mp4")[0]
    assert frame.size == (64, 48)
    assert abs(frame.getpixel((8, 24))[0] - 220) < NEAR
    assert abs(frame.getpixel((56, 24))[0] - 20) < NEAR


def test_transparency_of_a_video_lies_on_the_background(tmp_path):
    path = tmp_path / "a.mov"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("qtrle", rate=10)
        stream.width, stream.height, stream.pix_fmt = 16, 16, "argb"
        pixels = np.zeros((16, 16, 4), dtype=np.uint8)
        pixels[:8] = (255, 200, 0, 0)  # opaque red above, nothing below
        frame = av.VideoFrame.from_ndarray(pixels, format="argb")
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    (frame,) = decoded(tmp_path, "a.mov")
    assert (frame.getpixel((4, 4)), frame.getpixel((4, 12))) == ((200, 0, 0), (255, 255, 255))


# Picking by time


def test_video_fps_thins_a_file(tmp_path):
    write_video(tmp_path / "a.mp4", greys(20), rate=10)
    assert levels(decoded(tmp_path, "a.mp4", MediaConfig(video_fps=2))) == [1, 6, 11, 16]


def test_video_fps_follows_uneven_timestamps_of_a_file(tmp_path):
    times = [0, 100, 200, 1000, 1100, 2500]
    write_video(tmp_path / "a.mkv", greys(6), times=times)
    assert levels(decoded(tmp_path, "a.mkv", MediaConfig(video_fps=1))) == [1, 4, 6]


def test_video_fps_thins_an_animation_by_its_durations(tmp_path):
    durations = [100, 900, 100, 100, 100]  # so the frames start at 0, 0.1, 1.0, 1.1, 1.2 s
    write_animation(tmp_path / "a.gif", greys(5, (8, 8)), duration=durations)
    assert levels(decoded(tmp_path, "a.gif", MediaConfig(video_fps=1))) == [1, 3]


# Limits


@pytest.mark.parametrize("name", ["a.mp4", "a.gif"])
def test_more_frames_than_the_limit_are_refused_and_never_cut(tmp_path, name):
    write = write_video if name == "a.mp4" else write_animation
    write(tmp_path / name, greys(5))
    assert refusal(tmp_path, name, MediaConfig(max_frames=4)) == (
        f"{name!r}: 5 frames of 64 x 48 or more exceed media.max_frames (4) or "
        "16 x media.max_pixels (800,000,000); shorten it, set media.video_fps or raise the limit"
    )
    assert len(decoded(tmp_path, name, MediaConfig(max_frames=5))) == 5


def test_more_frame_files_than_the_limit_are_refused_unopened(tmp_path):
    assert refusal(tmp_path, ["none.png"] * 5, MediaConfig(max_frames=4)).startswith(
        "the list of frames from 'none.png' on: 5 frames exceed media.max_frames (4) or 16 x "
    )


@pytest.mark.parametrize("name", ["a.mp4", "a.gif"])
def test_more_pixels_over_the_clip_than_the_limit_are_refused(tmp_path, name):
    write = write_video if name == "a.mp4" else write_animation
    write(tmp_path / name, greys(20))  # 20 x 3,072 pixels = 61,440 = 16 x 3,840
    assert len(decoded(tmp_path, name, MediaConfig(max_pixels=3840))) == 20
    text = refusal(tmp_path, name, MediaConfig(max_pixels=3839))
    assert "exceed media.max_frames (256) or 16 x media.max_pixels (61,424)" in text


@pytest.mark.parametrize("name", ["a.mp4", "a.gif"])
def test_too_large_frames_are_refused(tmp_path, name):
    write = write_video if name == "a.mp4" else write_animation
    write(tmp_path / name, greys(2))
    text = refusal(tmp_path, name, MediaConfig(max_pixels=3000))
    assert "64 x 48 is 3,072 pixels, more than media.max_pixels (3,000)" in text


def test_picked_frames_count_towards_the_limit_not_passed_ones(tmp_path):
    write_video(tmp_path / "a.mp4", greys(20), rate=10)
    assert len(decoded(tmp_path, "a.mp4", MediaConfig(max_frames=4, video_fps=2))) == 4


def test_a_gif_of_5000_frames_is_refused_without_walking_over_it(tmp_path, monkeypatch):
    frames = [Image.new("L", (1, 1), 255 * (n % 2)) for n in range(5000)]
    write_animation(tmp_path / "a.gif", frames)
    seen = []
    monkeypatch.setattr(media_video, "check_pixels", lambda *_: seen.append(1))
    assert "257 frames of 1 x 1 or more exceed" in refusal(tmp_path, "a.gif")
    assert len(seen) == 257


# What is no video


def test_a_still_image_is_refused_as_a_video(tmp_path):
    for name in ("a.png", "a.jpg", "a.webp", "a.bmp"):
        greys(1)[0].save(tmp_path / name)
        text = refusal(tmp_path, name)
        assert text.startswith(f"{name!r}: is a still ")
        assert text.endswith("use `image` or a list of frames")


@pytest.mark.parametrize("content", [b"this is text", bytes(1000), b"\x00\x00\x00\x18ftypmp42"])
def test_what_is_no_video_is_refused(tmp_path, content):
    (tmp_path / "a.mp4").write_bytes(content)
    assert refusal(tmp_path, "a.mp4").startswith("'a.mp4': expected a video (MP4, MOV, WebM, ")


def test_sound_without_pictures_is_refused(tmp_path):
    with av.open(str(tmp_path / "a.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), "f4"), format="fltp", layout="mono")
        frame.sample_rate = 44100
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert refusal(tmp_path, "a.mp4") == "'a.mp4': holds no video stream"


def test_frames_of_different_sizes_are_refused(tmp_path):
    greys(1, (8, 8))[0].save(tmp_path / "0.png")
    greys(1, (8, 4))[0].save(tmp_path / "1.png")
    assert refusal(tmp_path, ["0.png", "1.png"]) == (
        "the list of frames from '0.png' on: expected frames of one size, "
        "found that frame 2 is 8 x 4, the first 8 x 8"
    )


def test_a_broken_frame_of_a_list_is_named(tmp_path):
    greys(1)[0].save(tmp_path / "0.png")
    (tmp_path / "1.png").write_text("text")
    assert refusal(tmp_path, ["0.png", "1.png"]).startswith("'1.png': expected an image")


@pytest.mark.parametrize("playlist", ["a.m3u8", "a.txt"])
def test_a_playlist_does_not_open_other_files(tmp_path, playlist):
    target = write_video(tmp_path / "secret.mp4", greys(2))
    texts = {
        "a.m3u8": f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9.0,\nfile://{target}\n#EXT-X-ENDLIST\n",
        "a.txt": f"ffconcat version 1.0\nfile {target}\n",
    }
    (tmp_path / playlist).write_text(texts[playlist])
    assert refusal(tmp_path, playlist).startswith(f"{playlist!r}: expected a video")


def test_the_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    write_video(tmp_path / "a.mp4", greys(2))
    monkeypatch.setitem(sys.modules, "av", None)
    assert refusal(tmp_path, "a.mp4") == (
        "'a.mp4': videos need the package av: pip install 'rewardctl[video]'"
    )


# Broken files


def noise(count: int) -> list[Image.Image]:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 48, 64, 3), dtype=np.uint8)
    return [Image.fromarray(frame) for frame in pixels]


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("a.mp4", "libx264", {"movflags": "faststart"}),
        ("a.mp4", "libx264", {}),
        ("a.mkv", "libx264", {}),
        ("a.webm", "libvpx-vp9", {}),
        ("a.avi", "mpeg4", {}),
        ("a.gif", "", {}),
        ("a.webp", "", {}),
        ("a.png", "", {}),
    ],
)
def test_a_cut_file_is_refused_and_never_taken_for_a_shorter_one(tmp_path, name, codec, options):
    whole = tmp_path / name
    if codec:
        write_video(whole, noise(6), codec=codec, options=options)
    else:
        write_animation(whole, noise(6))
    content = whole.read_bytes()
    cut = tmp_path / f"cut-{name}"
    for length in {1, 20, 100} | {len(content) * n // 60 for n in range(5, 60)}:
        cut.write_bytes(content[:length])
        assert refusal(tmp_path, cut.name).startswith(f"{cut.name!r}: ")


def test_a_file_cut_exactly_between_two_frames_is_refused(tmp_path):
    content = write_video(
        tmp_path / "a.mp4", noise(6), options={"movflags": "faststart"}
    ).read_bytes()
    with av.open(str(tmp_path / "a.mp4")) as container:
        third = container.streams.video[0].index_entries[3].pos
    (tmp_path / "cut.mp4").write_bytes(content[:third])
    assert refusal(tmp_path, "cut.mp4") == (
        "'cut.mp4': ends before its container says so; is it cut off?"
    )


def test_a_gif_cut_exactly_between_two_frames_is_refused(tmp_path):
    one = write_animation(tmp_path / "one.gif", noise(1)).read_bytes()
    (tmp_path / "cut.gif").write_bytes(one[:-1])
    assert refusal(tmp_path, "cut.gif") == (
        "'cut.gif': expected the end of a GIF, found none; is it cut off?"
    )


def test_a_damaged_frame_is_refused(tmp_path):
    content = bytearray(write_video(tmp_path / "a.ts", noise(6), codec="libx264").read_bytes())
    (tmp_path / "a.ts").write_bytes(content[: len(content) * 9 // 10])
    assert refusal(tmp_path, "a.ts").startswith("'a.ts': ")
    assert "damaged" in refusal(tmp_path, "a.ts")


def test_a_live_stream_of_unknown_length_is_read(tmp_path):
    write_video(tmp_path / "a.mkv", greys(4), options={"live": "1"})
    assert levels(decoded(tmp_path, "a.mkv")) == [1, 2, 3, 4]


def test_an_animated_png_that_promises_more_frames_than_it_has_is_refused(tmp_path):
    content = write_animation(tmp_path / "a.png", greys(3, (8, 8))).read_bytes()
    start = content.index(b"acTL")
    body = struct.pack(">II", 9, 0)
    crc = struct.pack(">I", zlib.crc32(b"acTL" + body))
    (tmp_path / "a.png").write_bytes(content[: start + 4] + body + crc + content[start + 16 :])
    assert "does not decode: " in refusal(tmp_path, "a.png")
