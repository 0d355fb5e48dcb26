"""Media from Python in their canonical forms, and those as tensors."""

import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rewardctl.config.schema import MediaConfig
from rewardctl.data.convert import (
    as_audio,
    as_image,
    as_video,
    audio_tensor,
    image_tensor,
    stack_or_list,
    video_tensor,
)
from rewardctl.data.media_ref import MediaRoot, parse_media
from rewardctl.errors import RowError

PLAIN = MediaConfig()
# Two rows, three columns, each pixel another colour.
PIXELS = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 10


def refusal(function, *arguments) -> str:
    with pytest.raises(RowError) as caught:
        function(*arguments)
    assert caught.value.status == "decode_error"
    return str(caught.value)


def pixels_of(value: object, settings: MediaConfig = PLAIN) -> np.ndarray:
    image = as_image(value, settings)
    assert image.mode == "RGB"
    return np.asarray(image)


# Images


def test_uint8_arrays_and_tensors_keep_their_values():
    assert np.array_equal(pixels_of(PIXELS), PIXELS)
    assert np.array_equal(pixels_of(torch.from_numpy(PIXELS).permute(2, 0, 1)), PIXELS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.bfloat16])
def test_float_tensors_are_zero_to_one(dtype):
    tensor = torch.tensor([0.0, 0.25, 1.0], dtype=dtype).expand(3, 1, 3)
    assert pixels_of(tensor)[0, :, 0].tolist() == [0, 64, 255]  # 0.25 * 255 = 63.75


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_float_arrays_are_zero_to_one(dtype):
    array = np.broadcast_to(np.array([0.0, 0.25, 1.0], dtype=dtype)[None, :, None], (1, 3, 3))
    assert pixels_of(array)[0, :, 0].tolist() == [0, 64, 255]


def test_a_nearly_black_image_is_not_taken_for_zero_to_one():
    assert pixels_of(np.ones((2, 2, 3), dtype=np.uint8)).max() == 1


@pytest.mark.parametrize("values", [(-1.0, 1.0), (0.0, 1.001), (0.0, 255.0), (0.0, np.nan)])
def test_floats_of_another_range_are_refused_with_the_range(values):
    array = np.zeros((2, 2, 3), dtype=np.float32)
    array[0, 0, 0], array[1, 1, 2] = values
    text = refusal(as_image, array, PLAIN)
    low, high = array.min(), array.max()
    assert text == (
        "an array of shape (2, 2, 3) and dtype float32: expected pixels in uint8 (0..255) or "
        f"float in [0, 1], found values from {low:g} to {high:g}; scale them"
    )


def test_other_integers_are_refused_since_their_range_is_unknown():
    text = refusal(as_image, torch.zeros(3, 2, 2, dtype=torch.int64), PLAIN)
    assert text == (
        "a tensor of shape (3, 2, 2) and dtype torch.int64: expected pixels in uint8 (0..255) or "
        "float in [0, 1]; convert them"
    )


def test_one_channel_and_none_are_grey_and_four_have_alpha():
    grey = PIXELS[:, :, 0]
    for value in (grey, grey[:, :, None], torch.from_numpy(grey), torch.from_numpy(grey)[None]):
        assert np.array_equal(pixels_of(value), np.stack([grey] * 3, axis=2))
    clear = np.zeros((2, 2, 4), dtype=np.uint8)
    assert pixels_of(clear, MediaConfig(background="red"))[0, 0].tolist() == [255, 0, 0]
    assert pixels_of(torch.zeros(4, 2, 2)).min() == 255


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((3, 8, 8), dtype=np.uint8),  # channels first, as no array is
        torch.zeros(8, 8, 3),  # channels last, as no tensor is
        torch.zeros(1, 3, 8, 8),
        np.zeros(5, dtype=np.uint8),
        np.zeros((0, 4, 3), dtype=np.uint8),
    ],
)
def test_other_shapes_are_refused_and_axes_are_not_guessed(value):
    text = refusal(as_image, value, PLAIN)
    assert f"of shape {tuple(value.shape)} and dtype " in text
    assert text.endswith(
        "expected an image, (C, H, W) in a tensor, (H, W, C) in an array, with 1, 3 or 4 channels"
    )


def test_pil_images_of_any_mode_become_rgb():
    assert pixels_of(Image.new("RGBA", (2, 2), (9, 9, 9, 0)))[0, 0].tolist() == [255, 255, 255]
    assert pixels_of(Image.new("L", (2, 2), 7))[0, 0].tolist() == [7, 7, 7]
    assert pixels_of(Image.new("I;16", (2, 2), 65535))[0, 0].tolist() == [255, 255, 255]


def test_a_pil_image_of_32_bits_is_refused():
    assert refusal(as_image, Image.new("F", (2, 2)), PLAIN) == (
        "a PIL image of mode F: expected pixels of 8 or 16 bits, "
        "found 32-bit pixels (mode F), whose range is not known"
    )


def test_an_rgb_image_is_returned_itself():
    image = Image.new("RGB", (2, 2))
    assert as_image(image, PLAIN) is image


def test_a_pil_image_that_its_user_opened_is_put_upright_and_left_unchanged(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (4, 2)).save(tmp_path / "a.jpg", exif=exif)
    with Image.open(tmp_path / "a.jpg") as image:
        assert as_image(image, PLAIN).size == (2, 4)
        assert image.size == (4, 2)
        assert image.getexif()[0x0112] == 6


def test_a_broken_or_animated_pil_image_is_refused(tmp_path):
    Image.fromarray(PIXELS).resize((90, 90)).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(content[: len(content) // 2])
    with Image.open(tmp_path / "a.png") as image:
        assert "image file is truncated" in refusal(as_image, image, PLAIN)
    frames = [Image.new("RGB", (2, 2), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    with Image.open(tmp_path / "a.gif") as image:
        assert "is an animated GIF" in refusal(as_image, image, PLAIN)


def test_paths_are_relative_to_the_working_directory_and_may_lie_anywhere(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path / "here")
    for value in ("../a.png", Path("../a.png"), tmp_path / "a.png"):
        assert np.array_equal(pixels_of(value), PIXELS)
    assert refusal(as_image, "b.png", PLAIN).startswith("'b.png': no such file")


def test_a_reference_is_decoded_under_its_own_root(tmp_path):
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    inside = parse_media("a.png", MediaRoot(tmp_path))
    assert np.array_equal(pixels_of(inside), PIXELS)
    outside = parse_media("../a.png", MediaRoot(tmp_path / "sub"))
    assert "outside the media folder" in refusal(as_image, outside, PLAIN)


@pytest.mark.parametrize("value", [None, 3, [1, 2], {"path": "a.png"}])
def test_what_is_no_image_is_refused_with_the_forms_that_are_taken(value):
    assert refusal(as_image, value, PLAIN) == (
        "expected a PIL image, a tensor (C, H, W), an array (H, W, C) or a path, found "
        + repr(value)
    )


# Videos


def test_videos_come_from_tensors_arrays_and_lists(tmp_path):
    clip = np.stack([PIXELS, PIXELS + 1])
    Image.fromarray(PIXELS).save(tmp_path / "0.png")
    mixed = [tmp_path / "0.png", torch.from_numpy(PIXELS + 1).permute(2, 0, 1)]
    for value in (clip, torch.from_numpy(clip).permute(0, 3, 1, 2), list(clip), tuple(clip), mixed):
        frames = as_video(value, PLAIN)
        assert np.array_equal(np.stack([np.asarray(frame) for frame in frames]), clip)


def test_a_float_video_is_zero_to_one_frame_by_frame():
    bright, dark = torch.ones(3, 2, 2), torch.zeros(3, 2, 2)
    frames = as_video(torch.stack([bright, dark]), PLAIN)
    assert [frame.getpixel((0, 0))[0] for frame in frames] == [255, 0]
    text = refusal(as_video, torch.stack([bright, dark - 1]), PLAIN)
    assert "a tensor of shape (2, 3, 2, 2)" in text
    assert "found values from -1 to -1" in text


def test_a_video_file_and_frame_references_are_decoded(tmp_path):
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    for value in (tmp_path / "a.gif", str(tmp_path / "a.gif")):
        assert len(as_video(value, PLAIN)) == 2
    for place, frame in enumerate(frames):
        frame.save(tmp_path / f"{place}.png")
    refs = [parse_media(f"{place}.png", MediaRoot(tmp_path)) for place in (1, 0)]
    colours = [frame.getpixel((0, 0)) for frame in as_video(refs, PLAIN)]
    assert colours == [(0, 0, 255), (255, 0, 0)]


def test_what_is_no_video_is_refused():
    forms = "expected a list of images, a tensor (T, C, H, W), an array (T, H, W, C) or a path"
    assert refusal(as_video, [], PLAIN) == f"{forms}, found an empty list"
    assert refusal(as_video, 3, PLAIN) == f"{forms}, found 3"
    assert refusal(as_video, torch.zeros(3, 2, 2), PLAIN) == (
        f"a tensor of shape (3, 2, 2) and dtype torch.float32: {forms}"
    )


# Audio


def test_audio_of_one_axis_is_one_channel():
    wave_form = np.array([0.0, 0.5, -1.0])
    for value in (wave_form, torch.from_numpy(wave_form), wave_form[None]):
        samples = as_audio(value, 16000)
        assert (samples.dtype, samples.tolist()) == (np.float32, [[0.0, 0.5, -1.0]])


def test_audio_keeps_its_axes():
    assert as_audio(torch.zeros(2, 5), None).shape == (2, 5)
    assert as_audio(np.zeros((5, 2)), None).shape == (5, 2)


def test_integer_audio_is_scaled_by_its_type():
    assert as_audio(np.array([0, 16384, -32768], dtype=np.int16), 8000).tolist() == [[0, 0.5, -1]]
    assert as_audio(np.array([2**30, -(2**31)], dtype=np.int32), 8000).tolist() == [[0.5, -1]]


def test_audio_is_a_copy():
    value = np.zeros((1, 3), dtype=np.float32)
    as_audio(value, None)[0, 0] = 1.0
    assert value[0, 0] == 0.0


def test_audio_of_another_range_or_type_is_refused():
    assert refusal(as_audio, np.array([0.0, 16384.0]), 8000) == (
        "an array of shape (2,) and dtype float64: "
        "expected float samples in [-1, 1], found a peak of 16384; scale them"
    )
    assert "found a peak of nan" in refusal(as_audio, np.array([np.nan]), 8000)
    assert refusal(as_audio, np.zeros(3, dtype=np.int64), 8000) == (
        "an array of shape (3,) and dtype int64: "
        "expected audio in float [-1, 1], int16 or int32; convert it"
    )


def test_an_overshoot_of_audio_is_clipped():
    assert as_audio(np.array([1.5, -1.25, 0.5]), 8000).tolist() == [[1.0, -1.0, 0.5]]


@pytest.mark.parametrize("value", [np.zeros((1, 2, 3)), np.zeros(0), np.zeros((2, 0))])
def test_other_shapes_of_audio_are_refused(value):
    text = refusal(as_audio, value, 8000)
    assert text.endswith("expected an array or tensor (C, T) or (T,), or a path")


def write_wav(path: Path) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.array([0, 16384], dtype="<i2").tobytes())
    return path


def test_an_audio_file_must_be_at_the_rate_that_is_given(tmp_path):
    path = write_wav(tmp_path / "a.wav")
    for rate in (None, 8000):
        assert as_audio(path, rate).tolist() == [[0.0, 0.5]]
    assert refusal(as_audio, path, 16000).endswith(
        "a.wav': is at 8000 Hz, but audio_sample_rate says 16000"
    )


@pytest.mark.parametrize("rate", [0, -8000])
def test_a_rate_is_positive(rate):
    assert refusal(as_audio, np.zeros(3), rate) == (
        f"audio_sample_rate: expected a rate in Hz, found {rate}"
    )


# Tensors


def test_an_image_tensor_is_channels_first_in_zero_to_one():
    tensor = image_tensor(Image.fromarray(PIXELS))
    assert (tensor.dtype, tuple(tensor.shape)) == (torch.float32, (3, 2, 3))
    assert tensor.is_contiguous()
    assert tensor[1, 0, 2].item() == pytest.approx(PIXELS[0, 2, 1] / 255, abs=1e-7)
    assert image_tensor(Image.new("RGB", (1, 1), "white")).max().item() == 1.0


def test_an_image_tensor_and_its_image_are_the_same_picture():
    assert np.array_equal(pixels_of(image_tensor(Image.fromarray(PIXELS))), PIXELS)


def test_a_video_tensor_stacks_its_frames():
    frames = [Image.fromarray(PIXELS), Image.fromarray(PIXELS + 1)]
    clip = video_tensor(frames)
    assert (clip.dtype, tuple(clip.shape)) == (torch.float32, (2, 3, 2, 3))
    assert torch.equal(clip[1], image_tensor(frames[1]))


def test_frames_of_different_sizes_make_no_tensor():
    frames = [Image.new("RGB", (4, 2)), Image.new("RGB", (2, 4)), Image.new("RGB", (4, 2))]
    assert refusal(video_tensor, frames) == ("expected frames of one size, found 2 x 4, 4 x 2")
    assert refusal(video_tensor, []) == "expected frames of one size, found none"


def test_an_audio_tensor_has_the_samples():
    samples = np.array([[0.5, -0.25]], dtype=np.float32)
    tensor = audio_tensor(samples)
    assert (tensor.dtype, tensor.tolist()) == (torch.float32, [[0.5, -0.25]])


def test_equal_sizes_are_stacked_and_others_listed():
    stacked = stack_or_list([torch.zeros(3, 2, 2), torch.ones(3, 2, 2)])
    assert torch.equal(stacked, torch.stack([torch.zeros(3, 2, 2), torch.ones(3, 2, 2)]))
    listed = stack_or_list([torch.zeros(3, 2, 2), torch.ones(3, 2, 4)])
    assert [tuple(tensor.shape) for tensor in listed] == [(3, 2, 2), (3, 2, 4)]
    assert stack_or_list([]) == []
    assert tuple(stack_or_list([torch.zeros(3, 2, 2)]).shape) == (1, 3, 2, 2)
