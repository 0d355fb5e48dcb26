"""What a call is given: keyword lists of one length, media in the form that the model asked for."""

import wave
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from PIL import Image
from probes import CALLS

from rewardctl.config.schema import MediaConfig, RewardArguments
from rewardctl.data.media_ref import MediaRef, MediaRoot, parse_media, parse_media_list
from rewardctl.data.samples import BaseSample
from rewardctl.errors import RowError
from rewardctl.rewards.abc import GroupwiseRewardModel, PointwiseRewardModel
from rewardctl.rewards.inputs import gather, media_uses
from rewardctl.rewards.plan import Call
from rewardctl.rewards.reward_processor import RewardProcessor

SETTINGS = MediaConfig()


class AsImages(PointwiseRewardModel):
    """Takes media as PIL images and NumPy arrays."""

    required_fields = ("prompt",)

    def __call__(self, **inputs: Any) -> list[float]:
        return [0.0]


class AsTensors(AsImages):
    """Takes media as tensors."""

    use_tensor_inputs = True


@pytest.fixture
def as_images(accelerator: Accelerator) -> AsImages:
    return AsImages(RewardArguments(name="a", reward_model="x:Y"), accelerator)


@pytest.fixture
def as_tensors(accelerator: Accelerator) -> AsTensors:
    return AsTensors(RewardArguments(name="a", reward_model="x:Y"), accelerator)


@pytest.fixture
def root(tmp_path: Path) -> MediaRoot:
    """A folder with a red image of 2 by 3, a blue one of 1 by 1, and half an image."""
    Image.new("RGB", (2, 3), (255, 0, 0)).save(tmp_path / "red.png")
    Image.new("RGB", (1, 1), (0, 0, 255)).save(tmp_path / "blue.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "red.png").read_bytes()[:40])
    return MediaRoot(tmp_path)


def image(name: str, root: MediaRoot) -> MediaRef:
    return parse_media(name, root)


def test_fields_become_lists_in_the_order_of_the_samples(as_images: AsImages) -> None:
    samples = [BaseSample(prompt=str(n), tokens=[n], timestep=n / 2) for n in range(3)]
    columns, faults = gather(as_images, ["prompt", "tokens", "timestep"], samples, None, SETTINGS)
    assert columns == {
        "prompt": ["0", "1", "2"],
        "tokens": [[0], [1], [2]],
        "timestep": [0.0, 0.5, 1.0],
    }
    assert faults == {}


def test_tokens_that_were_read_from_a_row_arrive_as_lists(as_images: AsImages) -> None:
    samples = [BaseSample(tokens=array("I", [3, 1])), BaseSample(tokens=[2])]
    columns, _ = gather(as_images, ["tokens"], samples, None, SETTINGS)
    assert columns == {"tokens": [[3, 1], [2]]}


def test_tokens_arrive_as_they_were_read_where_a_model_asks_for_it(as_images: AsImages) -> None:
    as_images.use_token_arrays = True
    read = array("I", [3, 1])
    columns, _ = gather(as_images, ["tokens"], [BaseSample(tokens=read)], None, SETTINGS)
    assert columns["tokens"][0] is read


def test_a_field_of_the_user_s_own_is_found_in_extra_kwargs(as_images: AsImages) -> None:
    sample = BaseSample(extra_kwargs={"difficulty": 3})
    columns, _ = gather(as_images, ["difficulty"], [sample], None, SETTINGS)
    assert columns == {"difficulty": [3]}


def test_an_image_file_is_decoded(as_images: AsImages, root: MediaRoot) -> None:
    columns, _ = gather(
        as_images, ["image"], [BaseSample(image=image("red.png", root))], None, SETTINGS
    )
    (found,) = columns["image"]
    assert (found.mode, found.size, found.getpixel((0, 0))) == ("RGB", (2, 3), (255, 0, 0))


def test_an_image_as_tensor_is_channels_first_in_the_unit_range(
    as_tensors: AsTensors, root: MediaRoot
) -> None:
    columns, _ = gather(
        as_tensors, ["image"], [BaseSample(image=image("red.png", root))], None, SETTINGS
    )
    (found,) = columns["image"]
    assert (found.dtype, tuple(found.shape)) == (torch.float32, (3, 3, 2))
    assert found[:, 0, 0].tolist() == [1.0, 0.0, 0.0]


def test_a_sample_that_cannot_be_decoded_is_left_out_of_all_lists(
    as_images: AsImages, root: MediaRoot
) -> None:
    names = ["red.png", "cut.png", "blue.png", "nowhere.png"]
    samples = [BaseSample(prompt=n, image=image(n, root)) for n in names]
    columns, faults = gather(as_images, ["prompt", "image"], samples, None, SETTINGS)
    assert columns["prompt"] == ["red.png", "blue.png"]
    assert [found.size for found in columns["image"]] == [(2, 3), (1, 1)]
    assert {place: fault.status for place, fault in faults.items()} == {
        1: "decode_error",
        3: "decode_error",
    }


def test_media_decoded_ahead_are_taken_by_their_place(as_images: AsImages, root: MediaRoot) -> None:
    samples = [
        BaseSample(image=image("red.png", root)),
        BaseSample(image=Image.new("RGB", (1, 1))),
        BaseSample(image=image("blue.png", root)),
    ]
    uses = media_uses(["prompt", "image"], samples)
    assert [(token, kind, ref.name) for token, kind, ref in uses] == [
        ((0, "image", 0), "image", "red.png"),
        ((2, "image", 0), "image", "blue.png"),
    ]
    ready = {(0, "image", 0): "decoded", (2, "image", 0): RowError("decode_error", "cut")}
    columns, faults = gather(as_images, ["image"], samples, ready, SETTINGS)
    assert columns["image"][0] == "decoded"
    assert columns["image"][1].size == (1, 1)
    assert [(place, str(fault)) for place, fault in faults.items()] == [(2, "cut")]


def test_conditions_are_lists_of_images_one_a_sample(as_images: AsImages, root: MediaRoot) -> None:
    samples = [
        BaseSample(condition_images=parse_media_list(["red.png", "blue.png"], root)),
        BaseSample(condition_images=[]),
    ]
    assert [token for token, _, _ in media_uses(["condition_images"], samples)] == [
        (0, "condition_images", 0),
        (0, "condition_images", 1),
    ]
    columns, _ = gather(as_images, ["condition_images"], samples, None, SETTINGS)
    assert [[i.size for i in found] for found in columns["condition_images"]] == [
        [(2, 3), (1, 1)],
        [],
    ]


def test_conditions_of_one_size_are_stacked_and_others_are_a_list(
    as_tensors: AsTensors, root: MediaRoot
) -> None:
    samples = [
        BaseSample(condition_images=parse_media_list(["red.png", "red.png"], root)),
        BaseSample(condition_images=parse_media_list(["red.png", "blue.png"], root)),
    ]
    columns, _ = gather(as_tensors, ["condition_images"], samples, None, SETTINGS)
    stacked, listed = columns["condition_images"]
    assert tuple(stacked.shape) == (2, 3, 3, 2)
    assert [tuple(t.shape) for t in listed] == [(3, 3, 2), (3, 1, 1)]


def test_a_video_of_frame_files_is_one_use(as_images: AsImages, root: MediaRoot) -> None:
    frames = parse_media_list(["red.png", "red.png"], root)
    assert [(t, k, len(r)) for t, k, r in media_uses(["video"], [BaseSample(video=frames)])] == [
        ((0, "video", 0), "video", 2)
    ]
    columns, _ = gather(as_images, ["video"], [BaseSample(video=frames)], None, SETTINGS)
    assert [frame.size for frame in columns["video"][0]] == [(2, 3), (2, 3)]


def test_a_video_as_tensor_is_frames_first(as_tensors: AsTensors, root: MediaRoot) -> None:
    frames = parse_media_list(["red.png", "red.png"], root)
    columns, _ = gather(as_tensors, ["video"], [BaseSample(video=frames)], None, SETTINGS)
    assert tuple(columns["video"][0].shape) == (2, 3, 3, 2)


def test_audio_comes_with_its_rate(
    as_images: AsImages, as_tensors: AsTensors, tmp_path: Path
) -> None:
    with wave.open(str(tmp_path / "tone.wav"), "wb") as file:
        file.setparams((2, 2, 8000, 0, "NONE", ""))
        file.writeframes(np.array([16384, 0, 0, -16384], "<i2").tobytes())
    sample = BaseSample(audio=parse_media("tone.wav", MediaRoot(tmp_path)))
    columns, _ = gather(as_images, ["audio"], [sample], None, SETTINGS)
    assert columns["audio_sample_rate"] == [8000]
    assert columns["audio"][0].dtype == np.float32
    assert columns["audio"][0].tolist() == [[0.5, 0.0], [0.0, -0.5]]
    columns, _ = gather(as_tensors, ["audio"], [sample], None, SETTINGS)
    assert columns["audio"][0].tolist() == [[0.5, 0.0], [0.0, -0.5]]


def test_audio_from_python_needs_its_rate(as_images: AsImages) -> None:
    samples = [
        BaseSample(audio=np.zeros((1, 4), np.float32)),
        BaseSample(audio=np.ones((1, 4), np.float32), audio_sample_rate=16000),
    ]
    columns, faults = gather(as_images, ["audio"], samples, None, SETTINGS)
    assert columns["audio_sample_rate"] == [16000]
    assert columns["audio"][0].shape == (1, 4)
    assert (faults[0].status, str(faults[0])) == (
        "missing_field",
        "audio is given without audio_sample_rate; set it too",
    )


def test_media_from_python_take_the_form_of_decoded_files(as_images: AsImages) -> None:
    grey = np.full((1, 1), 7, np.uint8)
    sample = BaseSample(
        image=grey, video=[Image.fromarray(grey)], latents=[[1, 2]], condition_images=[grey]
    )
    columns, faults = gather(
        as_images, ["image", "video", "latents", "condition_images"], [sample], None, SETTINGS
    )
    assert faults == {}
    for found in (columns["image"][0], columns["video"][0][0], columns["condition_images"][0][0]):
        assert (found.mode, found.getpixel((0, 0))) == ("RGB", (7, 7, 7))
    assert columns["latents"][0].dtype == np.float32
    assert columns["latents"][0].tolist() == [[1.0, 2.0]]


def test_latents_as_tensor(as_tensors: AsTensors) -> None:
    sample = BaseSample(latents=torch.ones(2, 3))
    columns, _ = gather(as_tensors, ["latents"], [sample], None, SETTINGS)
    assert torch.equal(columns["latents"][0], torch.ones(2, 3))


class CountsImages(PointwiseRewardModel):
    """The width of each image; a width of one makes the call raise."""

    def __call__(self, image: list[Image.Image]) -> list[float]:
        CALLS.append(("CountsImages", tuple(str(i.width) for i in image)))
        if any(i.width == 1 for i in image):
            raise ValueError("too small")
        return [float(i.width) for i in image]


class GroupOfImages(GroupwiseRewardModel):
    """The number of images of the group."""

    def __call__(self, image: list[Image.Image]) -> list[float]:
        CALLS.append(("GroupOfImages", tuple(str(i.width) for i in image)))
        return [float(len(image))] * len(image)


def run(
    accelerator: Accelerator,
    reward_class: type[PointwiseRewardModel | GroupwiseRewardModel],
    names: list[str],
    root: MediaRoot,
) -> tuple[list[float | None], dict[int, str]]:
    """Scores of one call over images, and the statuses of its failed places."""
    args = RewardArguments(name="a", reward_model="x:Y")
    scorer = RewardProcessor(accelerator, {"a": reward_class(args, accelerator)}, {"a": args})
    samples = [BaseSample(image=image(name, root)) for name in names]
    call = Call("a", 0, tuple(range(len(names))), ("image",))
    result = scorer.run_call(call, samples, repeat_rows=True)
    return result.scores, {place: fault.status for place, fault in result.faults.items()}


@pytest.mark.usefixtures("calls")
class TestBrokenMedia:
    """Calls with images that cannot be decoded."""

    def test_the_others_are_scored_in_their_places(
        self, accelerator: Accelerator, root: MediaRoot
    ) -> None:
        scores, faults = run(accelerator, CountsImages, ["red.png", "cut.png", "red.png"], root)
        assert scores == [2.0, None, 2.0]
        assert faults == {1: "decode_error"}
        assert CALLS == [("CountsImages", ("2", "2"))]

    def test_a_call_of_which_nothing_is_left_is_not_made(
        self, accelerator: Accelerator, root: MediaRoot
    ) -> None:
        scores, faults = run(accelerator, CountsImages, ["cut.png", "nowhere.png"], root)
        assert scores == [None, None]
        assert faults == {0: "decode_error", 1: "decode_error"}
        assert CALLS == []

    def test_one_row_that_is_left_is_not_called_twice(
        self, accelerator: Accelerator, root: MediaRoot
    ) -> None:
        scores, faults = run(accelerator, CountsImages, ["cut.png", "blue.png"], root)
        assert scores == [None, None]
        assert faults == {0: "decode_error", 1: "model_error"}
        assert CALLS == [("CountsImages", ("1",))]

    def test_a_group_with_a_broken_member_is_not_called(
        self, accelerator: Accelerator, root: MediaRoot
    ) -> None:
        scores, faults = run(accelerator, GroupOfImages, ["red.png", "cut.png"], root)
        assert scores == [None, None]
        assert faults == {0: "group_incomplete", 1: "decode_error"}
        assert CALLS == []
