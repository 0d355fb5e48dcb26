"""Latents files (.npy, .npz, .safetensors) as float32 arrays. Nothing is ever unpickled."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from rewardctl.data.media_file import ARRAY_BYTES, decode_error, decoder_errors, read_media
from rewardctl.data.media_ref import MediaRef

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXPECTED = "latents (.npy, or .npz or .safetensors with exactly one array)"


def decode_latents(ref: MediaRef) -> NDArray[np.float32]:
    """The one array of the file, float32, in the file's shape, all finite."""
    import numpy as np

    label = ref.label
    content = read_media(ref)
    with decoder_errors(label, EXPECTED):
        if content.startswith(b"\x93NUMPY"):
            array = np.load(io.BytesIO(content), allow_pickle=False)
        elif content.startswith(b"PK"):
            array = _load_npz(content, label)
        elif content[8:9] == b"{":
            array = _load_safetensors(content, label)
        else:
            found = f"found a file that starts with {content[:12]!r}"
            raise decode_error(label, f"expected {EXPECTED}, {found}")
    return _finite_floats(array, label)


def _load_npz(content: bytes, label: str) -> Any:
    import numpy as np

    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        members = archive.zip.infolist()
        names = ", ".join(member.filename for member in members[:8])
        if not all(member.filename.endswith(".npy") for member in members):
            found = f"found a zip of {names}"
            raise decode_error(label, f"expected {EXPECTED}, {found}; a .pt file is not unpickled")
        if len(members) != 1:
            found = f"found {len(members)} ({names})"
            raise decode_error(label, f"expected exactly one array in the .npz, {found}")
        if members[0].file_size > ARRAY_BYTES:
            raise decode_error(label, f"its array is larger than {ARRAY_BYTES:,} bytes, the limit")
        return archive[archive.files[0]]


def _load_safetensors(content: bytes, label: str) -> Any:
    import torch
    from safetensors.torch import load

    tensors = load(content)
    if len(tensors) != 1:
        found = f"found {len(tensors)} ({', '.join(sorted(tensors)[:8])})"
        raise decode_error(label, f"expected exactly one tensor in the .safetensors, {found}")
    (tensor,) = tensors.values()
    # NumPy has no bfloat16; float32 holds each of its values exactly.
    return (tensor.to(torch.float32) if tensor.is_floating_point() else tensor).numpy()


def _finite_floats(array: Any, label: str) -> NDArray[np.float32]:
    import numpy as np

    if array.dtype.kind not in "fiu":
        raise decode_error(label, f"expected an array of numbers, found dtype {array.dtype}")
    if array.size == 0:
        raise decode_error(label, f"expected latents, found an empty array, shape {array.shape}")
    with np.errstate(over="ignore"):
        floats = np.array(array, dtype=np.float32, order="C")
    if not np.isfinite(floats).all():
        raise decode_error(label, "holds NaN or infinity (as float32)")
    return floats
