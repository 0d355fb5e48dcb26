"""Opening a media file: in its folder, regular, and the very file that was checked.

Also how any kind of media fails to decode. What is inside is the business of the decoders.
"""

import io
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rewardctl.data.media_ref import MediaRef
from rewardctl.errors import RewardctlError, RowError, quote

WHOLE_BYTES = 1 << 20  # of a file that is read at once
ARRAY_BYTES = 1 << 30  # what one audio or latents file may decode to
# A folder needs to be passed through, not read.
FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO without a writer would block the open for ever, a terminal could become ours.
FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def decode_error(label: str, message: str) -> RowError:
    """The error of one file, named by its label."""
    return RowError("decode_error", f"{label}: {message}")


@contextmanager
def decoder_errors(label: str, expected: str) -> Iterator[None]:
    """Turns whatever a decoder raises inside into a `decode_error`."""
    try:
        yield
    except RewardctlError:
        raise
    # Hostile bytes make decoders raise almost anything: OSError, SyntaxError, struct.error, ...
    except Exception as error:
        # Addresses and descriptor numbers would make two runs' output differ.
        reason = (
            re.sub(r"<[^<>]*( at 0x|name=)[^<>]*>", "the file", str(error)) or type(error).__name__
        )
        message = (
            f"expected {expected}, but it does not decode: {reason}; is it cut off or damaged?"
        )
        raise decode_error(label, message) from error


def open_media(ref: MediaRef) -> BinaryIO:
    """The file as a seekable stream that is not empty.

    Raises:
        RowError: `decode_error` when it is missing, not regular, empty, a URL or outside its root.
    """
    if ref.content is not None:
        if not ref.content:
            raise decode_error(ref.label, "expected a file's content, found 0 bytes")
        return io.BytesIO(ref.content)
    descriptor = _open_directly(ref)
    if descriptor is None:
        folder, path = _resolve(ref)
        try:
            descriptor = _open_below(folder, path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise decode_error(ref.label, _missing(ref)) from error
        except OSError as error:
            raise decode_error(ref.label, f"cannot be opened: {error.strerror}") from error
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size > WHOLE_BYTES:
        return os.fdopen(descriptor, "rb")
    try:
        _check_regular(ref, status)
        # At once: a thread that reads lets go of the interpreter, and waits to get it back.
        return io.BytesIO(os.read(descriptor, status.st_size))
    except OSError as error:
        raise decode_error(ref.label, f"cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)


def read_media(ref: MediaRef) -> bytes:
    """The whole file, of at most `ARRAY_BYTES`."""
    with open_media(ref) as file:
        content = file.read(ARRAY_BYTES + 1)
    if len(content) > ARRAY_BYTES:
        raise decode_error(
            ref.label, f"is larger than {ARRAY_BYTES:,} bytes, the most that is read"
        )
    return content


def _open_directly(ref: MediaRef) -> int | None:
    """The file at a plain path below the root, with no symlink in it: nearly every file.

    None where more must be looked up, or something said.
    """
    path = ref.path
    if not path or ref.is_url or "\0" in path or {"", ".", ".."} & set(path.split("/")):
        return None
    try:
        return _open_below(ref.root.folder, path)
    except (OSError, ValueError):
        return None


def _resolve(ref: MediaRef) -> tuple[str, str]:
    """The folder that covers the file, and the file's path below it, both free of symlinks."""
    assert ref.path is not None
    if ref.is_url:
        raise decode_error(ref.label, "URLs are refused; download the file first and give its path")
    if not ref.path or "\0" in ref.path:
        raise decode_error(ref.label, "expected a path, found an empty one or a NUL character")
    try:
        resolved = os.path.realpath(os.path.join(ref.root.folder, ref.path))
    except (OSError, ValueError) as error:
        raise decode_error(ref.label, f"is not a path that can be looked up: {error}") from error
    for allowed in (ref.root.folder, *ref.root.allow):
        folder = os.path.realpath(allowed)
        prefix = folder.rstrip("/") + "/"
        if resolved.startswith(prefix):
            return folder, resolved[len(prefix) :]
        if resolved == folder:
            raise decode_error(ref.label, "is a folder, expected a file")
    raise decode_error(
        ref.label,
        f"leads to {quote(resolved)}, outside the media folder {quote(str(ref.root.folder))}; "
        "if that is meant, allow its folder with --allow-media DIR",
    )


def _open_below(folder: str | Path, path: str) -> int:
    """Opens step by step, following no symlink below the folder: one put there since the check
    cannot lead out.
    """
    first, *steps = path.split("/")
    opened = os.open(f"{folder}/{first}", FOLDER_FLAGS if steps else FILE_FLAGS)
    for place, step in enumerate(steps, 1):
        flags = FOLDER_FLAGS if place < len(steps) else FILE_FLAGS
        try:
            inner = os.open(step, flags, dir_fd=opened)
        finally:
            os.close(opened)
        opened = inner
    return opened


def _check_regular(ref: MediaRef, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise decode_error(ref.label, f"is {kind}, expected a regular file")
    if status.st_size == 0:
        raise decode_error(ref.label, "is empty (0 bytes)")


def _missing(ref: MediaRef) -> str:
    assert ref.path is not None
    place = f"no such file; paths are relative to {quote(str(ref.root.folder))}"
    if not os.path.isabs(ref.path) and os.path.exists(ref.path):
        return f"{place}, but it exists under the working directory: run with --media-root ."
    return f"{place} (--media-root changes that)"
