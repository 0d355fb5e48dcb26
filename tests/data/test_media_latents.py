"""Latents files: one array, as float32, never unpickled."""

import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from rewardctl.config.schema import MediaConfig
from rewardctl.data import media_file, media_latents
from rewardctl.data.media import decode
from rewardctl.data.media_ref import MediaRoot, parse_media
from rewardctl.errors import RowError

VALUES = np.array([[0.0, -1.5, 2.25], [3.0, 1e-3, 65504.0]], dtype=np.float32)


def decoded(path: Path) -> np.ndarray:
    latents = decode("latents", parse_media(path.name, MediaRoot(path.parent)), MediaConfig())
    assert latents.dtype == np.float32
    assert latents.flags.c_contiguous
    assert latents.flags.writeable
    return latents


def refusal(path: Path) -> str:
    with pytest.raises(RowError) as caught:
        decoded(path)
    assert caught.value.status == "decode_error"
    assert str(caught.value).startswith(f"{path.name!r}: ")
    return str(caught.value)


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 2, 3), (1, 1, 6, 1)])
def test_the_shape_is_kept(tmp_path, shape):
    np.save(tmp_path / "a.npy", VALUES.reshape(shape))
    assert np.array_equal(decoded(tmp_path / "a.npy"), VALUES.reshape(shape))


def test_all_three_formats_give_the_array(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    np.savez(tmp_path / "b.npz", latents=VALUES)
    np.savez_compressed(tmp_path / "c.npz", VALUES)
    save_file({"latents": torch.from_numpy(VALUES)}, tmp_path / "d.safetensors")
    for name in ("a.npy", "b.npz", "c.npz", "d.safetensors"):
        assert np.array_equal(decoded(tmp_path / name), VALUES)


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4", "i1", "u1", "<i8"])
def test_number_types_become_float32(tmp_path, dtype):
    np.save(tmp_path / "a.npy", np.array([0, 1, 100]).astype(dtype))
    assert decoded(tmp_path / "a.npy").tolist() == [0.0, 1.0, 100.0]


def test_bfloat16_is_widened_exactly(tmp_path):
    tensor = torch.tensor([1.0, -3.140625, 2.0**-100], dtype=torch.bfloat16)
    save_file({"x": tensor}, tmp_path / "a.safetensors")
    assert decoded(tmp_path / "a.safetensors").tolist() == [1.0, -3.140625, 2.0**-100]


def test_fortran_order_is_turned(tmp_path):
    np.save(tmp_path / "a.npy", np.asfortranarray(VALUES))
    assert np.array_equal(decoded(tmp_path / "a.npy"), VALUES)


def test_content_in_the_row_is_decoded(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    uri = "data:," + "".join(f"%{byte:02x}" for byte in (tmp_path / "a.npy").read_bytes())
    ref = parse_media(uri, MediaRoot(Path("/")))
    assert np.array_equal(decode("latents", ref, MediaConfig()), VALUES)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_what_is_not_finite_as_float32_is_refused(tmp_path, value):
    np.save(tmp_path / "a.npy", np.array([0.0, value]))
    assert refusal(tmp_path / "a.npy") == "'a.npy': holds NaN or infinity (as float32)"


def test_several_arrays_are_refused_with_their_names(tmp_path):
    np.savez(tmp_path / "a.npz", x=VALUES, y=VALUES)
    assert refusal(tmp_path / "a.npz") == (
        "'a.npz': expected exactly one array in the .npz, found 2 (x.npy, y.npy)"
    )
    tensors = {name: torch.zeros(2) for name in ("x", "y")}
    save_file(tensors, tmp_path / "a.safetensors")
    assert refusal(tmp_path / "a.safetensors") == (
        "'a.safetensors': expected exactly one tensor in the .safetensors, found 2 (x, y)"
    )


def test_no_array_is_refused(tmp_path):
    save_file({}, tmp_path / "a.safetensors")
    assert "found 0 ()" in refusal(tmp_path / "a.safetensors")
    np.save(tmp_path / "a.npy", np.zeros((4, 0)))
    assert refusal(tmp_path / "a.npy") == (
        "'a.npy': expected latents, found an empty array, shape (4, 0)"
    )


@pytest.mark.parametrize("array", [np.array([True]), np.array(["x"]), np.array([1j])])
def test_other_types_are_refused(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    assert "expected an array of numbers, found dtype " in refusal(tmp_path / "a.npy")


class Sentinel:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_nothing_is_unpickled(tmp_path):
    trap = tmp_path / "ran"
    np.save(tmp_path / "a.npy", np.array([Sentinel(trap)], dtype=object))
    np.savez(tmp_path / "b.npz", np.array([Sentinel(trap)], dtype=object))
    (tmp_path / "c.npy").write_bytes(pickle.dumps(Sentinel(trap)))
    for name in ("a.npy", "b.npz", "c.npy"):
        assert "expected latents (.npy, " in refusal(tmp_path / name)
    assert not trap.exists()


def test_a_torch_file_is_refused_with_the_reason(tmp_path):
    torch.save(torch.zeros(2), tmp_path / "a.pt")
    assert refusal(tmp_path / "a.pt").endswith("a .pt file is not unpickled")


def test_a_cut_file_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    np.savez(tmp_path / "a.npz", VALUES)
    save_file({"x": torch.from_numpy(VALUES)}, tmp_path / "a.safetensors")
    for name in ("a.npy", "a.npz", "a.safetensors"):
        content = (tmp_path / name).read_bytes()
        for length in range(1, len(content), 7):
            (tmp_path / "cut").write_bytes(content[:length])
            refusal(tmp_path / "cut")


def test_a_header_that_promises_more_than_there_is_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    content = (tmp_path / "a.npy").read_bytes()
    huge = content.replace(b"(2, 3), }" + b" " * 9, b"(99999999999999,), }"[:18])
    assert huge != content
    (tmp_path / "a.npy").write_bytes(huge)
    assert "does not decode" in refusal(tmp_path / "a.npy")


def test_a_zip_that_inflates_without_end_is_refused_before_it_does(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(10_000_000))
    assert (tmp_path / "a.npz").stat().st_size < 20_000
    monkeypatch.setattr(media_latents, "ARRAY_BYTES", 9_999_999)
    assert refusal(tmp_path / "a.npz") == (
        "'a.npz': its array is larger than 9,999,999 bytes, the limit"
    )


def test_a_file_over_the_limit_is_refused(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", VALUES)
    monkeypatch.setattr(media_file, "ARRAY_BYTES", 100)
    assert refusal(tmp_path / "a.npy") == (
        "'a.npy': is larger than 100 bytes, the most that is read"
    )


def test_a_text_file_is_refused(tmp_path):
    (tmp_path / "a.npy").write_text("0.1 0.2 0.3")
    assert refusal(tmp_path / "a.npy") == (
        "'a.npy': expected latents (.npy, or .npz or .safetensors with exactly one array), "
        "found a file that starts with b'0.1 0.2 0.3'"
    )
