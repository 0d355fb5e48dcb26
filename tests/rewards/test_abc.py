"""The fields of a reward model, its device and its attributes."""

from typing import Any

import pytest
import torch
from accelerate import Accelerator

from rewardctl.config.schema import RewardArguments
from rewardctl.errors import ConfigError
from rewardctl.rewards.abc import (
    BaseRewardModel,
    GroupwiseRewardModel,
    PointwiseRewardModel,
    input_fields,
    resolve_device,
)


def args(**changes: Any) -> RewardArguments:
    return RewardArguments(**{"name": "a", "reward_model": "probes:Number", **changes})


class Named(PointwiseRewardModel):
    """Names its fields in its call."""

    def __call__(self, prompt: list[str], *, image: Any, response: Any = None, extra: Any = 1):
        return [0.0] * len(prompt)


def test_fields_are_those_that_the_call_names() -> None:
    fields = input_fields(Named)
    assert (fields.required, fields.optional) == (("prompt", "image"), ("response",))


def test_attributes_come_before_the_call() -> None:
    class Stated(Named):
        required_fields = ("prompt",)
        optional_fields = ("image",)

    fields = input_fields(Stated)
    assert (fields.required, fields.optional) == (("prompt",), ("image",))


def test_attributes_of_the_instance_come_before_those_of_the_class(
    accelerator: Accelerator,
) -> None:
    class Chosen(Named):
        def __init__(self, config: RewardArguments, accelerator: Accelerator) -> None:
            super().__init__(config, accelerator)
            self.required_fields = ("prompt", "image", "response")

    fields = input_fields(Chosen(args(), accelerator))
    assert (fields.required, fields.optional) == (("prompt", "image", "response"), ())


def test_a_call_that_takes_any_keyword_needs_its_fields_stated() -> None:
    class Open(PointwiseRewardModel):
        required_fields = ("prompt",)

        def __call__(self, **inputs: Any) -> list[float]:
            return [0.0]

    fields = input_fields(Open)
    assert (fields.required, fields.optional, fields.accepts) == (("prompt",), (), None)
    assert fields.passes("anything")

    class Silent(Open):
        required_fields = None

    with pytest.raises(ConfigError, match="Silent names no input: set required_fields, or name"):
        input_fields(Silent)


def test_a_required_field_that_the_call_does_not_take_is_refused() -> None:
    class Mismatched(PointwiseRewardModel):
        required_fields = ("prompt", "image")

        def __call__(self, prompt: list[str]) -> list[float]:
            return [0.0]

    wanted = "Mismatched requires 'image', which its __call__ does not take; name it there or add"
    with pytest.raises(ConfigError, match=wanted):
        input_fields(Mismatched)


@pytest.mark.parametrize("is_optional", [True, False])
def test_the_sample_rate_comes_with_audio_and_is_no_field_of_a_row(is_optional: bool) -> None:
    class Optional(PointwiseRewardModel):
        def __call__(self, prompt: Any, audio: Any = None, audio_sample_rate: Any = None) -> Any:
            return [0.0]

    class Required(PointwiseRewardModel):
        def __call__(self, audio: Any, audio_sample_rate: Any) -> Any:
            return [0.0]

    fields = input_fields(Optional if is_optional else Required)
    assert "audio_sample_rate" not in fields.required + fields.optional
    assert fields.passes("audio_sample_rate")


def test_a_model_knows_its_config_device_and_dtype(accelerator: Accelerator) -> None:
    model = Named(args(dtype="bf16", options={"min": 3}), accelerator)
    assert model.config.min == 3
    assert model.accelerator is accelerator
    assert (model.device, model.dtype, model.model) == (
        torch.device("cpu"),
        torch.bfloat16,
        None,
    )


def test_to_moves_the_model_and_what_comes_later(accelerator: Accelerator) -> None:
    model = Named(args(), accelerator)
    model.model = torch.nn.Linear(2, 1)
    assert model.to("meta") is model
    assert model.device == torch.device("meta")
    assert model.model.weight.device == torch.device("meta")


def test_a_class_without_a_call_is_abstract(accelerator: Accelerator) -> None:
    for kind in (BaseRewardModel, PointwiseRewardModel, GroupwiseRewardModel):
        with pytest.raises(TypeError, match="__call__"):
            kind(args(), accelerator)


def test_auto_is_the_accelerator_s_device(accelerator: Accelerator) -> None:
    assert resolve_device("auto", accelerator) == torch.device("cpu")
    assert resolve_device("cpu", accelerator) == torch.device("cpu")


def test_a_device_that_is_not_there_is_an_error(
    accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for device in ("cuda", "cuda:1"):
        wanted = f"device '{device}': this machine has 0 CUDA devices; use device: auto or cpu"
        with pytest.raises(ConfigError, match=wanted):
            resolve_device(device, accelerator)
    with pytest.raises(ConfigError, match="device 'mps': not on this machine; use device: auto"):
        resolve_device("mps", accelerator)
    with pytest.raises(ConfigError, match="device 'tpu': expected auto, cpu, cuda, cuda:N or mps"):
        resolve_device("tpu", accelerator)


def test_a_cuda_index_over_the_last_is_an_error(
    accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("cuda:1", accelerator) == torch.device("cuda:1")
    with pytest.raises(ConfigError, match="this machine has 2 CUDA devices"):
        resolve_device("cuda:2", accelerator)
