"""From streams to models: found, checked, and built once for each identity."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from accelerate import Accelerator
from pydantic import BaseModel, ConfigDict

from rewardctl.config.schema import RewardArguments
from rewardctl.errors import ConfigError, ContractError
from rewardctl.rewards.abc import PointwiseRewardModel
from rewardctl.rewards.loader import (
    ModelLoadCoordinator,
    ModelRole,
    extend_python_path,
    load_reward_model,
    load_reward_models,
    resolve_stream,
    stream_identity,
)
from rewardctl.rewards.registry import register_reward_model
from rewardctl.rewards.reward_processor import RewardProcessor


class CountingCoordinator(ModelLoadCoordinator):
    """Notes what it was entered for."""

    def __init__(self, accelerator: Accelerator) -> None:
        super().__init__(accelerator)
        self.entered: list[ModelRole] = []

    @contextmanager
    def load_scope(self, role: ModelRole) -> Iterator[None]:
        self.entered.append(role)
        with super().load_scope(role):
            yield


class Bounds(BaseModel):
    """The options of Bounded."""

    model_config = ConfigDict(extra="forbid")
    low: int = 0
    high: int = 1


class Bounded(PointwiseRewardModel):
    """Has options and a batch size of its own."""

    Options: ClassVar[type[BaseModel]] = Bounds
    default_batch_size = 64

    def __call__(self, prompt: list[str]) -> list[float]:
        return [0.0] * len(prompt)


class Failing(PointwiseRewardModel):
    """Cannot be built; how, its options say."""

    def __init__(self, config: RewardArguments, accelerator: Accelerator) -> None:
        super().__init__(config, accelerator)
        if config.options["how"] == "prepare":
            accelerator.prepare(self)
        if config.options["how"] == "config":
            raise ConfigError("no weights in the folder")
        raise OSError("disk on fire")

    def __call__(self, prompt: list[str]) -> list[float]:
        return [0.0] * len(prompt)


class OwnBatchSize(PointwiseRewardModel):
    """Learns its batch size when it is built, as from a checkpoint."""

    def __init__(self, config: RewardArguments, accelerator: Accelerator) -> None:
        super().__init__(config, accelerator)
        self.default_batch_size = 3

    def __call__(self, prompt: list[str]) -> list[float]:
        return [0.0] * len(prompt)


for reward_class in (Bounded, Failing, OwnBatchSize):
    register_reward_model(f"loader_test_{reward_class.__name__}")(reward_class)


def stream(reward_model: str = "probes:Number", **arguments: Any) -> RewardArguments:
    if ":" not in reward_model:
        reward_model = f"loader_test_{reward_model}"
    return RewardArguments(**{"name": "a", "reward_model": reward_model, **arguments})


def test_streams_of_one_identity_share_one_model_built_once(accelerator: Accelerator) -> None:
    coordinator = CountingCoordinator(accelerator)
    rewards = [
        stream(name="first", batch_size=4, weight=2.0),
        stream(name="second", applicable_datasets=["x"], async_reward=True),
        stream(name="other", dtype="float16"),
    ]
    eval_rewards = [stream(name="first", batch_size=2), stream(name="renamed", dtype="fp16")]
    loaded = load_reward_models([*rewards, *eval_rewards], accelerator, coordinator=coordinator)
    first, second, other, eval_first, renamed = (s.model for s in loaded)
    assert first is second is eval_first
    assert other is renamed
    assert first is not other
    assert coordinator.entered == [ModelRole.REWARD, ModelRole.REWARD]
    assert [s.args.batch_size for s in loaded] == [4, 16, 16, 2, 16]


@pytest.mark.parametrize(
    "changes",
    [
        {"reward_model": "probes:Mendable"},
        {"model_path": "org/model"},
        {"dtype": "bfloat16"},
        {"device": "cpu"},
        {"options": {"low": 2}},
    ],
)
def test_class_path_dtype_device_and_options_make_the_identity(changes: dict[str, Any]) -> None:
    args, reward_class = resolve_stream(stream())
    other, other_class = resolve_stream(stream(**changes))
    assert stream_identity(args, reward_class) != stream_identity(other, other_class)


def test_an_option_at_its_default_is_the_same_model(accelerator: Accelerator) -> None:
    streams = [
        stream("Bounded", name="a"),
        stream("Bounded", name="b", options={"low": 0}),
        stream("Bounded", name="c", options={"high": 1, "low": 0}),
        stream("Bounded", name="d", options={"high": 2}),
    ]
    a, b, c, d = (s.model for s in load_reward_models(streams, accelerator))
    assert a is b is c
    assert d is not a


def test_both_spellings_of_a_class_are_one_model(accelerator: Accelerator) -> None:
    streams = [stream("probes:Number"), stream("probes:Number", name="b")]
    streams[1] = streams[1].model_copy(update={"reward_model": "probes.Number"})
    a, b = (s.model for s in load_reward_models(streams, accelerator))
    assert a is b


def test_options_are_typed_by_the_class() -> None:
    args, _ = resolve_stream(stream("Bounded", options={"low": "3"}))
    assert args.options == Bounds(low=3)
    assert args.extra_kwargs == {"low": 3, "high": 1}
    assert args.low == 3


def test_options_that_the_class_does_not_know_are_named_with_those_it_does() -> None:
    wanted = (
        r"stream 'a': options\.lo: Extra inputs are not permitted, got 1; "
        r"options of loader_test_Bounded are low, high"
    )
    with pytest.raises(ConfigError, match=wanted):
        resolve_stream(stream("Bounded", options={"lo": 1}))


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        ({}, 16),
        ({"batch_size": 5}, 5),
        ({"reward_model": "Bounded"}, 64),
        ({"reward_model": "Bounded", "batch_size": 5}, 5),
        ({"reward_model": "OwnBatchSize"}, 3),
        ({"reward_model": "OwnBatchSize", "batch_size": 5}, 5),
    ],
)
def test_the_batch_size_is_the_stream_s_or_the_model_s_or_sixteen(
    accelerator: Accelerator, arguments: dict[str, Any], size: int
) -> None:
    loaded = load_reward_models([stream(**arguments)], accelerator)
    processor = RewardProcessor.from_streams(accelerator, loaded)
    assert processor.streams["a"].batch_size == size


def test_an_import_outside_the_allowed_prefixes_is_refused() -> None:
    wanted = (
        "stream 'a': reward_model 'probes:Number' is outside --allow-import other., more.; "
        "add --allow-import for its package"
    )
    with pytest.raises(ConfigError, match=wanted):
        resolve_stream(stream(), allow_import=["other.", "more."])
    resolve_stream(stream(), allow_import=["other.", "probes"])
    resolve_stream(stream("Bounded"), allow_import=["other."])  # a registered name is no import


def test_a_class_that_cannot_be_found_names_the_stream() -> None:
    with pytest.raises(ConfigError, match="stream 'a': reward_model 'probes:Nowhere': module"):
        resolve_stream(stream("probes:Nowhere"))


def test_a_module_that_raises_names_stream_and_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raises_on_import.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    wanted = "stream 'a': importing 'raises_on_import:X' failed with ZeroDivisionError: division"
    with pytest.raises(ConfigError, match=wanted):
        resolve_stream(stream("raises_on_import:X"))


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("disk", "stream 'a': loader_test_Failing could not be built: OSError: disk on fire"),
        ("config", "stream 'a': no weights in the folder"),
    ],
)
def test_a_model_that_cannot_be_built_names_its_stream(
    accelerator: Accelerator, how: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{text}$"):
        load_reward_model(stream("Failing", options={"how": how}), accelerator)


def test_prepare_in_a_constructor_is_an_error(accelerator: Accelerator) -> None:
    with pytest.raises(ConfigError, match=r"stream 'a': accelerator\.prepare\(\) was called while"):
        load_reward_model(stream("Failing", options={"how": "prepare"}), accelerator)


def test_prepare_is_itself_again_after_the_scope(accelerator: Accelerator) -> None:
    before = accelerator.prepare
    coordinator = ModelLoadCoordinator(accelerator)
    with (
        coordinator.load_scope(ModelRole.REWARD),
        pytest.raises(ContractError, match="a reward model is a full replica on each rank"),
    ):
        accelerator.prepare(object())
    assert accelerator.prepare == before
    assert "prepare" not in vars(accelerator)


def test_a_scope_in_a_scope_leaves_prepare_refused(accelerator: Accelerator) -> None:
    coordinator = ModelLoadCoordinator(accelerator)
    with coordinator.load_scope(ModelRole.REWARD):
        with coordinator.load_scope(ModelRole.REWARD):
            pass
        with pytest.raises(ContractError):
            accelerator.prepare(object())
    assert "prepare" not in vars(accelerator)


def test_workers_need_a_class_that_bears_them(accelerator: Accelerator) -> None:
    wanted = (
        "stream 'a': num_workers is 2, but probes:Mendable does not say thread_safe = True; "
        "set num_workers: 1"
    )
    with pytest.raises(ConfigError, match=wanted):
        load_reward_model(stream("probes:Mendable", async_reward=True, num_workers=2), accelerator)
    load_reward_model(stream(async_reward=True, num_workers=2), accelerator)


def test_folders_go_to_the_end_of_the_path_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["first"])
    extend_python_path([tmp_path, tmp_path])
    extend_python_path([tmp_path])
    assert sys.path == ["first", str(tmp_path)]
