"""Rewards computed while samples are still coming are those computed afterwards."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from hypothesis import HealthCheck, given, settings, strategies as st
from probes import CALLS, AboveLowest, Number, OneForAll, Overlap

from rewardctl.config.schema import RewardArguments
from rewardctl.data.samples import BaseSample
from rewardctl.errors import ContractError, DataError
from rewardctl.rewards.abc import BaseRewardModel, PointwiseRewardModel
from rewardctl.rewards.reward_buffer import RewardBuffer
from rewardctl.rewards.reward_processor import RewardProcessor

pytestmark = pytest.mark.usefixtures("calls")


def args(name: str, **arguments: Any) -> RewardArguments:
    return RewardArguments(**{"name": name, "reward_model": "probes:Number", **arguments})


def processor(
    accelerator: Accelerator, *streams: tuple[type[BaseRewardModel], dict[str, Any]]
) -> RewardProcessor:
    """Streams named a, b, … of classes, each with a model of its own."""
    arguments = {n: args(n, **extra) for n, (_, extra) in zip("abcd", streams, strict=False)}
    models = {n: c(arguments[n], accelerator) for n, (c, _) in zip("abcd", streams, strict=False)}
    return RewardProcessor(accelerator, models, arguments)


@pytest.fixture
def buffers() -> Iterator[Any]:
    """Makes buffers that are shut down after the test."""
    made: list[RewardBuffer] = []

    def make(scorer: RewardProcessor, **arguments: Any) -> RewardBuffer:
        made.append(RewardBuffer(scorer, **arguments))
        return made[-1]

    yield make
    for buffer in made:
        buffer.shutdown()


def samples_of(*prompts: str, group: str = "g") -> list[BaseSample]:
    return [BaseSample(prompt=p, source="x", unique_id=group) for p in prompts]


ASYNC = {"async_reward": True, "batch_size": 2}


class Announcing(PointwiseRewardModel):
    """Says that it was called, before it answers."""

    def __init__(self, config: RewardArguments, accelerator: Accelerator) -> None:
        super().__init__(config, accelerator)
        self.called = threading.Event()

    def __call__(self, prompt: list[str]) -> list[float]:
        self.called.set()
        return [float(p) for p in prompt]


def test_a_full_call_starts_before_finalize_and_the_rest_in_it(
    accelerator: Accelerator, buffers: Any
) -> None:
    scorer = processor(accelerator, (Announcing, ASYNC))
    model = scorer.streams["a"].model
    assert isinstance(model, Announcing)
    buffer = buffers(scorer)
    buffer.add_samples(samples_of("1"))
    assert not model.called.is_set()
    buffer.add_samples(samples_of("2", "3"))
    assert model.called.wait(30)
    assert buffer.finalize()["a"].tolist() == [1.0, 2.0, 3.0]


def test_a_stream_that_is_not_async_runs_in_finalize(
    accelerator: Accelerator, buffers: Any
) -> None:
    buffer = buffers(processor(accelerator, (Number, {"batch_size": 1})))
    buffer.add_samples(samples_of("1", "2"))
    assert CALLS == []
    assert buffer.finalize()["a"].tolist() == [1.0, 2.0]


def test_a_complete_group_starts_when_its_size_is_known(
    accelerator: Accelerator, buffers: Any
) -> None:
    buffer = buffers(processor(accelerator, (AboveLowest, ASYNC)), group_size=2)
    buffer.add_samples([*samples_of("1"), *samples_of("5", group="h"), *samples_of("3")])
    buffer.add_samples(samples_of("5", group="h"))
    rewards = buffer.finalize()
    assert rewards["a"].tolist() == [0.25, 0.25, 2.25, 0.25]
    assert [prompts for _, prompts in CALLS] == [("1", "3"), ("5", "5")]


def test_a_group_that_stays_short_is_refused(accelerator: Accelerator, buffers: Any) -> None:
    buffer = buffers(processor(accelerator, (AboveLowest, ASYNC)), group_size=3)
    buffer.add_samples(samples_of("1", "2"))
    wanted = "stream 'a': group 'g' has 2 members, expected group_size 3; add the others before"
    with pytest.raises(DataError, match=wanted):
        buffer.finalize()


def test_a_group_over_its_size_is_refused(accelerator: Accelerator, buffers: Any) -> None:
    """Or it would be scored as two groups, and not as compute_rewards scores it."""
    buffer = buffers(processor(accelerator, (AboveLowest, ASYNC)), group_size=2)
    with pytest.raises(DataError, match=r"group 'g'.*group_size 2"):  # noqa: PT012
        buffer.add_samples(samples_of("1", "2", "3", "4"))
        buffer.finalize()


def test_rewards_are_stored_and_split_as_by_the_processor(
    accelerator: Accelerator, buffers: Any
) -> None:
    scorer = processor(accelerator, (Number, ASYNC), (AboveLowest, ASYNC), (Number, {}))
    buffer = buffers(scorer)
    samples = samples_of("1", "3")
    buffer.add_samples(samples)
    assert list(buffer.finalize(split="pointwise")) == ["a", "c"]
    assert samples[1].extra_kwargs["rewards"] == {"a": 3.0, "c": 3.0}
    buffer.add_samples(samples)
    assert list(buffer.finalize(store_to_samples=False, split="groupwise")) == ["b"]
    assert "b" not in samples[1].extra_kwargs["rewards"]


def test_a_buffer_is_empty_after_finalize(accelerator: Accelerator, buffers: Any) -> None:
    buffer = buffers(processor(accelerator, (Number, ASYNC)))
    buffer.add_samples(samples_of("1", "2", "3"))
    buffer.finalize()
    assert buffer.finalize()["a"].tolist() == []
    buffer.add_samples(samples_of("7"))
    assert buffer.finalize()["a"].tolist() == [7.0]


def test_clear_forgets_all_samples(accelerator: Accelerator, buffers: Any) -> None:
    buffer = buffers(processor(accelerator, (Number, ASYNC)))
    buffer.add_samples(samples_of("1", "2", "boom", "boom"))
    buffer.clear()
    buffer.add_samples(samples_of("7"))
    assert buffer.finalize()["a"].tolist() == [7.0]


def test_what_a_worker_raises_surfaces_with_stream_and_sample(
    accelerator: Accelerator, buffers: Any
) -> None:
    buffer = buffers(processor(accelerator, (Number, ASYNC)))
    buffer.add_samples(samples_of("1", "2", "3", "boom"))
    wanted = "^stream 'a', sample 2: model_error: ValueError: could not convert string to float"
    with pytest.raises(DataError, match=wanted):
        buffer.finalize()
    buffer.add_samples(samples_of("7"))
    assert buffer.finalize()["a"].tolist() == [7.0]


def test_a_contract_broken_in_a_worker_surfaces(accelerator: Accelerator, buffers: Any) -> None:
    buffer = buffers(processor(accelerator, (OneForAll, ASYNC)))
    buffer.add_samples(samples_of("1", "2", "3"))
    with pytest.raises(ContractError, match=r"stream 'a': returned 1 score.*\(samples 0, 1\)"):
        buffer.finalize()


def test_a_missing_field_raises_when_its_call_would_start(
    accelerator: Accelerator, buffers: Any
) -> None:
    buffer = buffers(processor(accelerator, (Number, ASYNC)))
    buffer.add_samples([BaseSample(source="x")])
    with pytest.raises(DataError, match="stream 'a', sample 0: missing_field: required field 'pr"):
        buffer.finalize()


class Watched(PointwiseRewardModel):
    """Counts how many of its calls run at one time."""

    def __init__(self, config: RewardArguments, accelerator: Accelerator) -> None:
        super().__init__(config, accelerator)
        self.overlap = Overlap()

    def __call__(self, prompt: list[str]) -> list[float]:
        with self.overlap:
            return [float(p) for p in prompt]


def test_two_async_streams_over_one_model_take_turns(
    accelerator: Accelerator, buffers: Any
) -> None:
    model = Watched(args("a"), accelerator)
    arguments = {n: args(n, async_reward=True, batch_size=1) for n in ("a", "b")}
    buffer = buffers(RewardProcessor(accelerator, {"a": model, "b": model}, arguments))
    buffer.add_samples(samples_of("1", "2"))
    rewards = buffer.finalize()
    assert (rewards["a"].tolist(), rewards["b"].tolist()) == ([1.0, 2.0], [1.0, 2.0])
    assert model.overlap.most == 1


class Meeting(PointwiseRewardModel):
    """Two of its calls wait for each other: it ends only if they may overlap."""

    thread_safe = True

    def __init__(self, config: RewardArguments, accelerator: Accelerator) -> None:
        super().__init__(config, accelerator)
        self.barrier = threading.Barrier(2, timeout=30)

    def __call__(self, prompt: list[str]) -> list[float]:
        self.barrier.wait()
        return [float(p) for p in prompt]


def test_two_workers_of_a_thread_safe_model_run_at_one_time(
    accelerator: Accelerator, buffers: Any
) -> None:
    stream = {"async_reward": True, "num_workers": 2, "batch_size": 1}
    buffer = buffers(processor(accelerator, (Meeting, stream)))
    buffer.add_samples(samples_of("1", "2", "3", "4"))
    assert buffer.finalize()["a"].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_shutdown_ends_the_workers_and_drops_what_is_queued(accelerator: Accelerator) -> None:
    before = threading.active_count()
    buffer = RewardBuffer(processor(accelerator, (Number, ASYNC)))
    buffer.add_samples(samples_of("1", "2"))
    buffer.shutdown()
    assert threading.active_count() == before
    buffer.shutdown()


members = st.tuples(st.integers(-9, 9), st.sampled_from("xyz"), st.sampled_from("gh"))


@settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
@given(
    st.lists(members, max_size=20),
    st.lists(st.integers(0, 5), max_size=12),
    st.integers(1, 6),
    st.integers(1, 3),
)
def test_any_arrival_gives_the_rewards_of_compute_rewards(
    accelerator: Accelerator,
    rows: list[tuple[int, str, str]],
    arrivals: list[int],
    batch_size: int,
    num_workers: int,
) -> None:
    pace = {"async_reward": True, "num_workers": num_workers}
    scorer = processor(
        accelerator,
        (Number, {**pace, "batch_size": batch_size, "applicable_datasets": ["x", "y"]}),
        (AboveLowest, {**pace, "applicable_datasets": ["y", "z"]}),
        (Number, {"batch_size": 2}),
    )

    def make() -> list[BaseSample]:
        return [BaseSample(prompt=str(p), source=s, unique_id=g) for p, s, g in rows]

    expected = scorer.compute_rewards(make())
    buffer, samples = RewardBuffer(scorer), make()
    waiting = list(samples)
    for size in arrivals:
        buffer.add_samples(waiting[:size])
        waiting = waiting[size:]
    buffer.add_samples(waiting)
    found = buffer.finalize()
    buffer.shutdown()
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert torch.equal(found[name].nan_to_num(99.0), tensor.nan_to_num(99.0))
    for row, sample in enumerate(samples):
        stored = {n: tensor[row] for n, tensor in found.items() if n in sample.applicable_rewards}
        assert sample.extra_kwargs["rewards"] == stored
