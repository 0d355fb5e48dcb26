"""Audio files as float32 arrays (C, T) in [-1, 1], at the file's own rate."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from rewardctl.data.media_file import ARRAY_BYTES, decode_error, decoder_errors, open_media
from rewardctl.data.media_ref import MediaRef

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXPECTED = "audio (WAV, FLAC, OGG, Opus, MP3, AIFF)"
# By what lossy decoders and mixes exceed full scale, 6 dB; above, samples have another range.
OVERSHOOT = 2.0
# Writers that cannot seek back to fill in the size leave one at least as large as this.
UNKNOWN_SIZE = 0x7FFFF000


class _LenientFile:
    """A file whose seeks to where nothing is are not obeyed.

    Damaged headers ask for them, and soundfile would print each error as a traceback.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.tell = file.tell
        self.read = file.read

    def seek(self, offset: int, whence: int = 0) -> None:
        with suppress(OSError, ValueError, OverflowError):
            self._file.seek(offset, whence)


def decode_audio(ref: MediaRef) -> tuple[NDArray[np.float32], int]:
    """Samples float32 (C, T) in [-1, 1], channels in the file's order, and the rate in Hz."""
    label = ref.label
    try:
        import soundfile
    except (ImportError, OSError) as error:  # the package, or the library under it
        needs = "audio needs the package soundfile: pip install 'rewardctl[audio]'"
        raise decode_error(label, needs) from error
    with open_media(ref) as file, decoder_errors(label, EXPECTED):
        try:
            with soundfile.SoundFile(_LenientFile(file)) as sound:
                return _read(sound, file, label), int(sound.samplerate)
        except soundfile.LibsndfileError as error:
            raise ValueError(error.error_string) from error  # its own text holds a descriptor


def full_scale(samples: NDArray[Any], label: str) -> NDArray[np.float32]:
    """Float samples (C, T) as float32 in [-1, 1], contiguous; an overshoot is clipped.

    The array is a new one, which its reader may change.
    """
    import numpy as np

    array = np.array(samples, dtype=np.float32, order="C")
    peak = float(np.abs(array).max(initial=0.0))
    if not peak <= OVERSHOOT:  # NaN is not either
        found = f"found a peak of {peak:g}"
        raise decode_error(label, f"expected float samples in [-1, 1], {found}; scale them")
    return np.clip(array, -1.0, 1.0, out=array) if peak > 1.0 else array


def _read(sound: Any, file: BinaryIO, label: str) -> NDArray[np.float32]:
    if sound.frames * sound.channels * 4 > ARRAY_BYTES:
        limit = f"{ARRAY_BYTES:,} bytes of samples"
        raise decode_error(label, f"decodes to more than {limit}; cut it into parts")
    samples = sound.read(dtype="float32", always_2d=True)
    if len(samples) == 0:
        raise decode_error(label, "holds no samples (length 0)")
    if _is_cut_off(sound, file, len(samples)):
        raise decode_error(label, "holds fewer samples than its header says; is it cut off?")
    return full_scale(samples.T, label)


def _is_cut_off(sound: Any, file: BinaryIO, length: int) -> bool:
    """Whether the header promises more than is there; that of OGG promises nothing."""
    # libsndfile takes a short data chunk as it is, and only notes it.
    note = r"^\s*(?:data|SSND)\s*: (\d+) \(should be (\d+)\)"
    chunk = re.search(note, sound.extra_info, re.MULTILINE)
    if chunk is not None:
        return int(chunk[2]) < int(chunk[1]) < UNKNOWN_SIZE
    if sound.format == "MP3":
        file.seek(0)
        # Without one of these the length is a guess from the first frame's bit rate.
        if not re.search(b"Xing|Info|VBRI", file.read(4096)):
            return False
    return length < int(sound.frames)
