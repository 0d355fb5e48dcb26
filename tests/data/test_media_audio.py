"""Audio files: channels first, full scale, the file's own rate; broken files."""

import io
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from rewardctl.config.schema import MediaConfig
from rewardctl.data import media_audio
from rewardctl.data.media import decode
from rewardctl.data.media_ref import MediaRoot, parse_media
from rewardctl.errors import RowError

RATE = 44100


def decoded(path: Path) -> tuple[np.ndarray, int]:
    samples, rate = decode("audio", parse_media(path.name, MediaRoot(path.parent)), MediaConfig())
    assert samples.dtype == np.float32
    assert samples.flags.c_contiguous
    assert samples.flags.writeable
    return samples, rate


def refusal(path: Path) -> str:
    with pytest.raises(RowError) as caught:
        decoded(path)
    assert caught.value.status == "decode_error"
    assert str(caught.value).startswith(f"{path.name!r}: ")
    return str(caught.value)


def outcome(path: Path) -> np.ndarray | str:
    """The samples, or the error's text."""
    try:
        return decoded(path)[0]
    except RowError as error:
        return str(error)


def tone(channels: int = 2, length: int = 22050) -> np.ndarray:
    """Half-scale sines (T, C), the second channel half as loud."""
    wave = 0.5 * np.sin(2 * np.pi * 441 * np.arange(length) / RATE)  # 100 samples a period
    return np.stack([wave / 2**c for c in range(channels)], axis=1)


def write(path: Path, samples: np.ndarray, subtype: str | None = None, rate: int = RATE) -> Path:
    soundfile.write(path, samples, rate, subtype=subtype)
    return path


@pytest.mark.parametrize("channels", [1, 2, 6])
def test_channels_come_first_and_time_second(tmp_path, channels):
    samples, rate = decoded(write(tmp_path / "a.wav", tone(channels)))
    assert (samples.shape, rate) == ((channels, 22050), RATE)
    assert np.abs(samples - tone(channels).T).max() < 1 / 32768  # a step of 16 bits
    peaks = np.abs(samples).max(axis=1)
    assert peaks == pytest.approx([0.5 / 2**c for c in range(channels)], abs=1e-3)


@pytest.mark.parametrize(
    ("name", "subtype", "step"),
    [
        ("a.wav", "PCM_U8", 1 / 127),
        ("a.wav", "PCM_16", 1 / 32767),
        ("a.wav", "PCM_24", 1e-6),
        ("a.wav", "PCM_32", 1e-7),
        ("a.wav", "FLOAT", 1e-7),
        ("a.wav", "DOUBLE", 1e-7),
        ("a.flac", "PCM_24", 1e-6),
        ("a.aiff", "PCM_16", 1 / 32767),
    ],
)
def test_all_widths_come_at_full_scale(tmp_path, name, subtype, step):
    samples, _ = decoded(write(tmp_path / name, tone(), subtype))
    assert np.abs(samples - tone().T).max() <= step


@pytest.mark.parametrize("name", ["a.ogg", "a.mp3"])
def test_lossy_files_decode(tmp_path, name):
    samples, rate = decoded(write(tmp_path / name, tone(1)))
    assert (samples.shape, rate) == ((1, 22050), RATE)
    assert np.abs(samples).max() == pytest.approx(0.5, abs=0.05)


def test_the_rate_is_the_files_own(tmp_path):
    assert decoded(write(tmp_path / "a.wav", tone(), rate=16000))[1] == 16000


def test_content_in_the_row_is_decoded():
    content = io.BytesIO()
    soundfile.write(content, tone(), RATE, format="FLAC")
    uri = "data:audio/flac," + "".join(f"%{byte:02x}" for byte in content.getvalue())
    samples, _ = decode("audio", parse_media(uri, MediaRoot(Path("/"))), MediaConfig())
    assert samples.shape == (2, 22050)


def test_an_overshoot_is_clipped(tmp_path):
    loud = np.array([0.5, 1.25, -1.5, -1.0])
    samples, _ = decoded(write(tmp_path / "a.wav", loud, "FLOAT"))
    assert samples.tolist() == [[0.5, 1.0, -1.0, -1.0]]


def test_float_samples_of_another_range_are_refused(tmp_path):
    path = write(tmp_path / "a.wav", tone() * 32768, "FLOAT")
    assert refusal(path) == (
        "'a.wav': expected float samples in [-1, 1], found a peak of 16384; scale them"
    )


def test_not_a_number_is_refused(tmp_path):
    path = write(tmp_path / "a.wav", np.array([0.0, np.nan]), "FLOAT")
    assert "expected float samples in [-1, 1], found a peak of nan" in refusal(path)


def test_a_file_without_samples_is_refused(tmp_path):
    path = write(tmp_path / "a.wav", np.zeros((0, 2)))
    assert refusal(path) == "'a.wav': holds no samples (length 0)"


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.mp3", "a.aiff"])
def test_a_cut_file_is_refused_and_never_taken_for_a_shorter_one(tmp_path, name):
    content = write(tmp_path / name, tone()).read_bytes()
    cut = tmp_path / f"cut-{name}"
    for length in {1, 20, 100} | {len(content) * n // 40 for n in range(2, 40)}:
        cut.write_bytes(content[:length])
        refusal(cut)


def test_a_cut_wav_says_so(tmp_path):
    content = write(tmp_path / "a.wav", tone()).read_bytes()
    (tmp_path / "cut.wav").write_bytes(content[: len(content) // 2])
    assert refusal(tmp_path / "cut.wav") == (
        "'cut.wav': holds fewer samples than its header says; is it cut off?"
    )


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF - 44])
def test_a_wav_whose_writer_could_not_know_the_length_is_read(tmp_path, size):
    content = bytearray(write(tmp_path / "a.wav", tone()).read_bytes())
    assert content[36:40] == b"data"
    content[4:8] = content[40:44] = struct.pack("<I", size)
    (tmp_path / "a.wav").write_bytes(content)
    assert decoded(tmp_path / "a.wav")[0].shape == (2, 22050)


def test_an_mp3_whose_length_is_a_guess_is_read(tmp_path):
    varied = np.random.default_rng(0).normal(0, 0.1, 3 * RATE) * (np.arange(3 * RATE) > RATE)
    content = write(tmp_path / "a.mp3", varied).read_bytes()
    assert b"Xing" in content[:400] or b"Info" in content[:400]
    second = content.index(content[:2], 4)  # past the frame that holds the length
    (tmp_path / "a.mp3").write_bytes(content[second:])
    assert decoded(tmp_path / "a.mp3")[0].shape[1] == pytest.approx(3 * RATE, abs=4000)


def test_what_is_no_audio_is_refused_alike_on_each_run(tmp_path):
    (tmp_path / "a.wav").write_text("this is text")
    texts = {refusal(tmp_path / "a.wav") for _ in range(3)}
    (text,) = texts
    assert text.startswith("'a.wav': expected audio (WAV, FLAC, OGG, Opus, MP3, AIFF), but it ")


def test_a_damaged_header_is_refused_without_a_traceback(tmp_path, capfd):
    content = bytearray(write(tmp_path / "a.wav", tone()).read_bytes())
    for place in range(4, 60):
        for byte in (0x00, 0x7F, 0x80, 0xFF):
            damaged = content.copy()
            damaged[place] = byte
            (tmp_path / "a.wav").write_bytes(damaged)
            outcome(tmp_path / "a.wav")
    assert capfd.readouterr() == ("", "")


def test_more_samples_than_the_limit_are_refused_before_decoding(tmp_path, monkeypatch):
    monkeypatch.setattr(media_audio, "ARRAY_BYTES", 2 * 22050 * 4 - 1)
    text = refusal(write(tmp_path / "a.flac", tone()))
    assert "decodes to more than 176,399 bytes of samples; cut it into parts" in text


def test_the_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    path = write(tmp_path / "a.wav", tone())
    monkeypatch.setitem(sys.modules, "soundfile", None)
    assert refusal(path) == (
        "'a.wav': audio needs the package soundfile: pip install 'rewardctl[audio]'"
    )
