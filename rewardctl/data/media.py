"""Decoding a media file of any kind. How each kind is decoded is in `media_<kind>.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from rewardctl.config.schema import MediaConfig
from rewardctl.data.media_audio import decode_audio
from rewardctl.data.media_image import decode_image
from rewardctl.data.media_latents import decode_latents
from rewardctl.data.media_ref import MediaRef
from rewardctl.data.media_video import decode_video

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image


@overload
def decode(kind: Literal["image"], ref: MediaRef, settings: MediaConfig) -> Image.Image: ...
@overload
def decode(
    kind: Literal["video"], ref: MediaRef | list[MediaRef], settings: MediaConfig
) -> list[Image.Image]: ...
@overload
def decode(
    kind: Literal["audio"], ref: MediaRef, settings: MediaConfig
) -> tuple[NDArray[np.float32], int]: ...
@overload
def decode(
    kind: Literal["latents"], ref: MediaRef, settings: MediaConfig
) -> NDArray[np.float32]: ...
@overload
def decode(kind: str, ref: MediaRef | list[MediaRef], settings: MediaConfig) -> Any: ...
def decode(kind: str, ref: MediaRef | list[MediaRef], settings: MediaConfig) -> Any:
    """One file as PIL RGB, list of PIL RGB, (float32 (C, T), rate in Hz), or float32 array.

    Raises:
        RowError: `decode_error` for all that can be wrong with the file, naming it.
    """
    if kind == "video":
        return decode_video(ref, settings)
    assert not isinstance(ref, list), f"only a video is a list of files, not {kind}"
    if kind == "image":
        return decode_image(ref, settings)
    if kind == "audio":
        return decode_audio(ref)
    assert kind == "latents", f"no kind of media: {kind!r}"
    return decode_latents(ref)
