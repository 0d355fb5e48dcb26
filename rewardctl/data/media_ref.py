"""References to media as rows write them. Parsing them opens nothing and looks nothing up."""

import binascii
import hashlib
import re
from base64 import b64decode
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote_to_bytes

from rewardctl.errors import RowError, quote

FORMS = 'a path, {"path": ...}, {"bytes": base64} or a data: URI'
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class MediaRoot:
    """The folder that media paths are relative to, and the other folders they may lie in."""

    folder: Path
    allow: tuple[Path, ...] = ()  # "/" covers all


@dataclass(frozen=True)
class MediaRef:
    """One media file, by path or by content; parsing it has touched no file."""

    root: MediaRoot
    path: str | None  # None: `content` holds the file
    content: bytes | None
    name: str  # the path as the row gave it, or "<bytes>"

    @cached_property
    def key(self) -> Hashable:
        """Equal for references to the same file; for content a digest, computed once."""
        if self.content is None:
            return str(self.root.folder), self.path
        return hashlib.blake2b(self.content, digest_size=16).digest()

    @property
    def label(self) -> str:
        """The name for messages, quoted; of a long path the end, which says the file's name."""
        return quote(self.name if len(self.name) <= 70 else "..." + self.name[-67:])

    @property
    def is_url(self) -> bool:
        """Whether the path is a URL, which no decoder fetches."""
        return self.path is not None and URL.match(self.path) is not None


def parse_media(value: object, root: MediaRoot) -> MediaRef:
    """One media field of a row as a reference.

    A URL is a reference too: only decoding refuses it, so a run without media can use the row.

    Raises:
        RowError: `bad_row` for any other type, or for text that is not base64.
    """
    if isinstance(value, str):
        if value.startswith("data:"):
            return MediaRef(root, None, _data_uri(value), "<bytes>")
        return MediaRef(root, value, None, value)
    if isinstance(value, dict):
        return _parse_object(value, root)
    raise RowError("bad_row", f"expected {FORMS}, found {quote(value)}")


def parse_media_list(value: object, root: MediaRoot) -> list[MediaRef]:
    """A list of media files, as in `condition_images`; it may be empty."""
    return [parse_media(part, root) for part in _as_list(value, "a list of media files")]


def parse_video(value: object, root: MediaRoot) -> MediaRef | list[MediaRef]:
    """A video: a file, or the list of its frames' files."""
    if not isinstance(value, list):
        return parse_media(value, root)
    if not value:
        raise RowError("bad_row", "expected a video file or a list of frames, found an empty list")
    return parse_media_list(value, root)


def parse_video_list(value: object, root: MediaRoot) -> list[MediaRef | list[MediaRef]]:
    """A list of videos, as in `condition_videos`: files or lists of frames; it may be empty."""
    return [parse_video(part, root) for part in _as_list(value, "a list of videos")]


def _as_list(value: object, expected: str) -> list[object]:
    if not isinstance(value, list):
        raise RowError("bad_row", f"expected {expected}, found {quote(value)}")
    return value


def _parse_object(fields: dict[object, object], root: MediaRoot) -> MediaRef:
    """`{"path", "bytes"}` as the `datasets` library writes it: either may be null."""
    unknown = [key for key in fields if key not in ("path", "bytes")]
    if unknown:
        raise RowError(
            "bad_row", f"unknown key {quote(unknown[0])} in a media object; expected {FORMS}"
        )
    path, encoded = fields.get("path"), fields.get("bytes")
    if path is not None and not isinstance(path, str):
        raise RowError("bad_row", f'"path" of a media object: expected text, found {quote(path)}')
    if encoded is not None:
        if not isinstance(encoded, str):
            raise RowError(
                "bad_row", f'"bytes" of a media object: expected base64, found {quote(encoded)}'
            )
        return MediaRef(root, None, _base64(encoded), path or "<bytes>")
    if path is None:
        raise RowError("bad_row", f'a media object without "path" and "bytes"; expected {FORMS}')
    return parse_media(path, root)


def _data_uri(uri: str) -> bytes:
    """The content of `data:[type][;base64],...` (RFC 2397)."""
    header, comma, body = uri.partition(",")
    if not comma:
        raise RowError(
            "bad_row", f"expected 'data:TYPE;base64,...', found {quote(uri)} without a comma"
        )
    return _base64(body) if header.endswith(";base64") else unquote_to_bytes(body)


def _base64(text: str) -> bytes:
    try:
        # Command-line tools break base64 into lines; the breaks carry nothing.
        return b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RowError("bad_row", f"expected base64, found {quote(text)} ({error})") from error
