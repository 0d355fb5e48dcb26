"""Media that Python users put on a sample as the canonical forms, and those as tensors.

A range is known from the type: uint8 is 0..255, floats are [0, 1] (audio [-1, 1]), never guessed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from rewardctl.config.schema import MediaConfig
from rewardctl.data.media import decode
from rewardctl.data.media_audio import full_scale
from rewardctl.data.media_file import decode_error, decoder_errors
from rewardctl.data.media_image import refuse_frames, to_rgb
from rewardctl.data.media_ref import MediaRef, MediaRoot, parse_media
from rewardctl.errors import RowError, quote

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from PIL import Image

IMAGE_FORMS = "a PIL image, a tensor (C, H, W), an array (H, W, C) or a path"
VIDEO_FORMS = "a list of images, a tensor (T, C, H, W), an array (T, H, W, C) or a path"
AUDIO_FORMS = "an array or tensor (C, T) or (T,), or a path"
MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # by number of channels


def as_image(value: object, settings: MediaConfig) -> Image.Image:
    """One image as PIL RGB; a PIL image that is so already is returned itself.

    Paths are relative to the working directory and may lie anywhere.
    """
    ref = _as_ref(value)
    if ref is not None:
        return decode("image", ref, settings)
    if _is_pil(value):
        label = f"a PIL image of mode {value.mode}"
        with decoder_errors(label, "an image"):
            refuse_frames(value, label)
            return to_rgb(value, label, settings)
    pixels = _as_array(value, IMAGE_FORMS)
    if _is_tensor(value) and pixels.ndim == 3:
        pixels = pixels.transpose(1, 2, 0)
    return _image_of_pixels(pixels, _describe(value), settings)


def as_video(value: object, settings: MediaConfig) -> list[Image.Image]:
    """One video as a list of PIL RGB frames; those of a list are what `as_image` takes."""
    ref = _as_ref(value)
    if ref is not None:
        return decode("video", ref, settings)
    if isinstance(value, list | tuple):
        if not value:
            raise RowError("decode_error", f"expected {VIDEO_FORMS}, found an empty list")
        refs = [part for part in value if isinstance(part, MediaRef)]
        if len(refs) == len(value):
            return decode("video", refs, settings)
        return [as_image(part, settings) for part in value]
    frames = _as_array(value, VIDEO_FORMS)
    if frames.ndim != 4 or not len(frames):
        raise decode_error(_describe(value), f"expected {VIDEO_FORMS}")
    if _is_tensor(value):
        frames = frames.transpose(0, 2, 3, 1)
    return [_image_of_pixels(frame, _describe(value), settings) for frame in frames]


def as_audio(value: object, rate: int | None) -> NDArray[np.float32]:
    """Audio as float32 (C, T) in [-1, 1], a new array; `rate` is what the caller has it for, in Hz.

    A file's own rate must be `rate`, where that is given: nothing is resampled.
    """
    if rate is not None and rate <= 0:
        raise RowError("decode_error", f"audio_sample_rate: expected a rate in Hz, found {rate}")
    ref = _as_ref(value)
    if ref is not None:
        samples, found = decode("audio", ref, MediaConfig())
        if rate not in (None, found):
            raise decode_error(ref.label, f"is at {found} Hz, but audio_sample_rate says {rate}")
        return samples
    array, label = _as_array(value, AUDIO_FORMS), _describe(value)
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or array.size == 0:
        raise decode_error(label, f"expected {AUDIO_FORMS}")
    return full_scale(_as_float_samples(array, label), label)


def image_tensor(image: Image.Image) -> torch.Tensor:
    """PIL RGB as float32 (C, H, W) in [0, 1]."""
    import numpy as np
    import torch

    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
    return pixels.to(torch.float32).div_(255)


def video_tensor(frames: Sequence[Image.Image]) -> torch.Tensor:
    """PIL RGB frames of one size as float32 (T, C, H, W) in [0, 1]."""
    import torch

    sizes = {frame.size for frame in frames}
    if len(sizes) != 1:
        found = ", ".join(f"{width} x {height}" for width, height in sorted(sizes)) or "none"
        raise RowError("decode_error", f"expected frames of one size, found {found}")
    width, height = sizes.pop()
    clip = torch.empty((len(frames), 3, height, width), dtype=torch.float32)
    for row, frame in zip(clip, frames, strict=True):
        row.copy_(image_tensor(frame))
    return clip


def audio_tensor(samples: NDArray[np.float32]) -> torch.Tensor:
    """Samples float32 (C, T) as a tensor that shares their memory."""
    import torch

    return torch.from_numpy(samples)


def stack_or_list(tensors: Sequence[torch.Tensor]) -> torch.Tensor | list[torch.Tensor]:
    """One tensor (N, ...) where all sizes agree, else the list; of none, an empty list."""
    import torch

    if tensors and all(tensor.shape == tensors[0].shape for tensor in tensors):
        return torch.stack(list(tensors))
    return list(tensors)


def _as_ref(value: object) -> MediaRef | None:
    """Paths and references as a reference, anything else as None."""
    if isinstance(value, MediaRef):
        return value
    if isinstance(value, str | Path):
        return parse_media(str(value), MediaRoot(Path.cwd(), allow=(Path("/"),)))
    return None


def _is_pil(value: object) -> TypeGuard[Image.Image]:
    from PIL import Image

    return isinstance(value, Image.Image)


def _is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    # Who has a tensor has imported torch; others need not wait for it.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _as_array(value: object, expected: str) -> NDArray[Any]:
    import numpy as np

    if _is_tensor(value):
        tensor = value.detach().cpu()
        # NumPy has no bfloat16.
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    if isinstance(value, np.ndarray):
        return value
    raise RowError("decode_error", f"expected {expected}, found {quote(value)}")


def _describe(value: Any) -> str:
    kind = "a tensor" if _is_tensor(value) else "an array"
    return f"{kind} of shape {tuple(value.shape)} and dtype {value.dtype}"


def _image_of_pixels(pixels: NDArray[Any], label: str, settings: MediaConfig) -> Image.Image:
    """Pixels (H, W) or (H, W, C) as PIL RGB."""
    import numpy as np
    from PIL import Image

    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.ndim not in (2, 3) or channels not in MODES or not pixels.size:
        forms = "(C, H, W) in a tensor, (H, W, C) in an array, with 1, 3 or 4 channels"
        raise decode_error(label, f"expected an image, {forms}")
    if pixels.dtype != np.uint8:
        pixels = _eight_bit(pixels, label)
    if pixels.ndim == 3 and channels == 1:
        pixels = pixels[:, :, 0]
    return to_rgb(Image.fromarray(np.ascontiguousarray(pixels)), label, settings)


def _eight_bit(pixels: NDArray[Any], label: str) -> NDArray[np.uint8]:
    """Float pixels in [0, 1] as uint8, rounded to the nearest."""
    import numpy as np

    expected = "expected pixels in uint8 (0..255) or float in [0, 1]"
    if pixels.dtype.kind != "f":
        raise decode_error(label, f"{expected}; convert them")
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= 0.0 and high <= 1.0):  # NaN is neither
        raise decode_error(label, f"{expected}, found values from {low:g} to {high:g}; scale them")
    rounded: NDArray[np.uint8] = np.rint(pixels.astype(np.float32) * 255.0).astype(np.uint8)
    return rounded


def _as_float_samples(array: NDArray[Any], label: str) -> NDArray[Any]:
    """Integer PCM as floats, full scale being that of the type; floats as they are."""
    import numpy as np

    if array.dtype.kind == "f":
        return array
    if array.dtype not in (np.int16, np.int32):
        raise decode_error(label, "expected audio in float [-1, 1], int16 or int32; convert it")
    return array / -float(np.iinfo(array.dtype).min)
