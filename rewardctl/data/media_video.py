"""Videos as lists of PIL RGB frames: files (PyAV), animations (Pillow), lists of frame files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from rewardctl.config.schema import MediaConfig
from rewardctl.data.media_file import decode_error, decoder_errors, open_media
from rewardctl.data.media_image import (
    ANIMATED_FORMATS,
    check_pixels,
    decode_image,
    open_image,
    to_rgb,
)
from rewardctl.data.media_ref import MediaRef
from rewardctl.errors import RowError

if TYPE_CHECKING:
    from PIL import Image

EXPECTED = "a video (MP4, MOV, WebM, MKV, AVI, MPEG, FLV, OGG; animated GIF, WebP, PNG or AVIF)"
# Playlists and concatenations, which open other files and URLs, are not among them.
CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,ogg,asf"
HEAD_BYTES = 256
DEFAULT_DURATION_MS = 100  # of an animation's frame that has none, as browsers do

Frame = TypeVar("Frame")


def decode_video(ref: MediaRef | list[MediaRef], settings: MediaConfig) -> list[Image.Image]:
    """All frames, or `media.video_fps` a second picked by timestamp, as PIL RGB.

    A list of frame files has no times: all of it is taken.
    """
    if isinstance(ref, list):
        return _decode_frame_files(ref, settings)
    label = ref.label
    with open_media(ref) as file, decoder_errors(label, EXPECTED):
        head = file.read(HEAD_BYTES)
        file.seek(0)
        if _is_image(head):
            return _decode_animation(file, label, settings)
        return _decode_container(file, head, label, settings)


def pick_by_time(frames: Iterable[tuple[float, Frame]], fps: float | None) -> Iterator[Frame]:
    """Of (seconds, frame) the first frame at or after each multiple of 1/fps since the first one.

    A frame is picked once at most, so a slower video keeps all its frames. None picks all.
    """
    start, due = None, 0
    for seconds, frame in frames:
        start = seconds if start is None else start
        # Times are rounded to the container's time base; a hair before the mark is on it.
        ticks = 0.0 if fps is None else (seconds - start) * fps + 1e-6
        if fps is None or ticks >= due:
            yield frame
            due = math.floor(ticks) + 1


def _collect(frames: Iterable[Image.Image], label: str, settings: MediaConfig) -> list[Image.Image]:
    """The frames as a list, as long as they stay within the limits and of one size."""
    clip: list[Image.Image] = []
    for frame in frames:
        clip.append(frame)
        size = f"{frame.width} x {frame.height}"
        if frame.size != clip[0].size:
            first = f"the first {clip[0].width} x {clip[0].height}"
            found = f"frame {len(clip)} is {size}, {first}"
            raise decode_error(label, f"expected frames of one size, found that {found}")
        pixels = len(clip) * frame.width * frame.height
        if len(clip) > settings.max_frames or pixels > 16 * settings.max_pixels:
            raise _over_limit(label, f"{len(clip):,} frames of {size} or more", settings)
    if not clip:
        raise decode_error(label, "holds no frames")
    return clip


def _over_limit(label: str, found: str, settings: MediaConfig) -> RowError:
    return decode_error(
        label,
        f"{found} exceed media.max_frames ({settings.max_frames:,}) or 16 x media.max_pixels "
        f"({16 * settings.max_pixels:,}); shorten it, set media.video_fps or raise the limit",
    )


def _decode_frame_files(refs: list[MediaRef], settings: MediaConfig) -> list[Image.Image]:
    label = f"the list of frames from {refs[0].label} on"
    if len(refs) > settings.max_frames:
        raise _over_limit(label, f"{len(refs):,} frames", settings)
    return _collect((decode_image(ref, settings) for ref in refs), label, settings)


def _is_image(head: bytes) -> bool:
    return (
        head.startswith((b"GIF8", b"\x89PNG", b"\xff\xd8\xff", b"BM", b"II*\0", b"MM\0*"))
        or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")
        or head[4:12] in (b"ftypavif", b"ftypavis")
    )


def _decode_animation(file: BinaryIO, label: str, settings: MediaConfig) -> list[Image.Image]:
    image = open_image(file, label, settings)
    is_animated = image.format in ANIMATED_FORMATS and getattr(image, "is_animated", False)
    # Writers of GIF merge equal frames, so a clip that stands still is a GIF of one frame.
    if not is_animated and image.format != "GIF":
        found = f"is a still {image.format} image"
        raise decode_error(label, f"{found}, expected {EXPECTED}; use `image` or a list of frames")
    if image.format == "GIF":
        _check_gif_end(file, label)
    frames = pick_by_time(_animation_frames(image, label, settings), settings.video_fps)
    # Seeking to the next frame draws over this one, so each is copied.
    return _collect((to_rgb(frame.copy(), label, settings) for frame in frames), label, settings)


def _animation_frames(
    image: Any, label: str, settings: MediaConfig
) -> Iterator[tuple[float, Image.Image]]:
    """The image at each of its frames, with the frame's start in seconds."""
    first = 1 if getattr(image, "default_image", False) else 0  # an APNG's stand-in for old readers
    # A GIF knows its number of frames only after a walk over all of it.
    known = image.format != "GIF"
    seconds = 0.0
    for index in range(first, image.n_frames) if known else count():
        try:
            image.seek(index)
        except EOFError:
            if known:
                raise
            return
        check_pixels(image.size, label, settings)
        image.load()
        yield seconds, image
        seconds += (image.info.get("duration") or DEFAULT_DURATION_MS) / 1000


def _check_gif_end(file: BinaryIO, label: str) -> None:
    """Pillow takes a GIF that is cut between two frames for a shorter one."""
    position = file.tell()
    file.seek(-1, 2)
    if file.read(1) != b";":
        raise decode_error(label, "expected the end of a GIF, found none; is it cut off?")
    file.seek(position)


def _decode_container(
    file: BinaryIO, head: bytes, label: str, settings: MediaConfig
) -> list[Image.Image]:
    try:
        import av
    except ImportError as error:
        needs = "videos need the package av: pip install 'rewardctl[video]'"
        raise decode_error(label, needs) from error
    options = {"format_whitelist": CONTAINERS, "protocol_whitelist": "none"}
    with av.open(file, container_options=options) as container:
        videos = container.streams.video
        streams = [s for s in videos if not s.disposition & s.disposition.attached_pic]
        if not streams:
            raise decode_error(label, "holds no video stream")
        stream = streams[0]
        codec = stream.codec_context
        check_pixels((codec.width, codec.height), label, settings)
        position = file.tell()
        if _declared_end(head, stream) > file.seek(0, 2):
            raise decode_error(label, "ends before its container says so; is it cut off?")
        file.seek(position)
        timed = _container_frames(container, stream, label, settings)
        frames = pick_by_time(timed, settings.video_fps)
        images = (_frame_image(frame, label, settings) for frame in frames)
        return _collect(images, label, settings)


def _container_frames(
    container: Any, stream: Any, label: str, settings: MediaConfig
) -> Iterator[tuple[float, Any]]:
    """The stream's frames in the order of showing, each with its time in seconds."""
    index = 0
    for packet in container.demux(stream):
        for frame in packet.decode():
            if packet.is_corrupt or frame.is_corrupt:
                raise decode_error(label, f"frame {index + 1} is damaged; is the file cut off?")
            check_pixels((frame.width, frame.height), label, settings)
            seconds = frame.time
            if seconds is None and stream.average_rate:
                seconds = index / float(stream.average_rate)
            if seconds is None and settings.video_fps is not None:
                raise decode_error(label, "holds no times, which media.video_fps needs; unset it")
            yield seconds or 0.0, frame
            index += 1


def _frame_image(frame: Any, label: str, settings: MediaConfig) -> Image.Image:
    from PIL import Image

    if any(component.is_alpha for component in frame.format.components):
        image = to_rgb(Image.fromarray(frame.to_ndarray(format="rgba")), label, settings)
    else:
        image = frame.to_image()
    turn = {
        90: Image.Transpose.ROTATE_90,  # counter-clockwise, as PyAV counts
        180: Image.Transpose.ROTATE_180,
        -180: Image.Transpose.ROTATE_180,
        -90: Image.Transpose.ROTATE_270,
    }.get(frame.rotation)
    return image if turn is None else image.transpose(turn)


def _declared_end(head: bytes, stream: Any) -> int:
    """Where the container says that its last byte lies; 0 where it does not.

    Demuxers take a file that is cut between two frames for a shorter one.
    """
    if head.startswith(b"RIFF"):
        return 8 + int.from_bytes(head[4:8], "little")
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return _matroska_end(head)
    entries = stream.index_entries  # MP4 and MOV list all their frames
    return int(entries[-1].pos + entries[-1].size) if len(entries) else 0


def _matroska_end(head: bytes) -> int:
    """End of the Segment (RFC 8794, RFC 9559); 0 for a live stream, whose size is unknown."""
    header_size, header_start = _vint(head, 4)
    segment = header_start + header_size
    if head[segment : segment + 4] != b"\x18\x53\x80\x67" or len(head) < segment + 12:
        return 0
    size, start = _vint(head, segment + 4)
    unknown = (1 << 7 * (start - segment - 4)) - 1
    return 0 if size == unknown else start + size


def _vint(head: bytes, at: int) -> tuple[int, int]:
    """A variable-size integer (RFC 8794, section 4), and where it ends."""
    width = 9 - head[at].bit_length()
    value = int.from_bytes(head[at : at + width], "big")
    return value & ((1 << 7 * width) - 1), at + width
