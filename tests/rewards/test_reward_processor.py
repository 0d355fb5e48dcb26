"""Calls of reward streams: gathered, locked, checked and put into their places."""

import math
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from probes import CALLS, AboveLowest, Number, OneForAll, Overlap, PromptAndResponse

from rewardctl.config.schema import RewardArguments
from rewardctl.data.samples import BaseSample
from rewardctl.errors import ConfigError, ContractError, DataError, RowError, RowErrors
from rewardctl.rewards.abc import BaseRewardModel, PointwiseRewardModel
from rewardctl.rewards.loader import load_reward_models
from rewardctl.rewards.plan import Call
from rewardctl.rewards.reward_processor import RewardProcessor

pytestmark = pytest.mark.usefixtures("calls")


def args(name: str = "a", **arguments: Any) -> RewardArguments:
    return RewardArguments(**{"name": name, "reward_model": "probes:Number", **arguments})


def processor(
    accelerator: Accelerator, *streams: tuple[type[BaseRewardModel], dict[str, Any]]
) -> RewardProcessor:
    """Streams named a, b, … of classes, each with a model of its own."""
    arguments = {n: args(n, **extra) for n, (_, extra) in zip("abcd", streams, strict=False)}
    models = {n: c(arguments[n], accelerator) for n, (c, _) in zip("abcd", streams, strict=False)}
    return RewardProcessor(accelerator, models, arguments)


def samples_of(prompts: Sequence[str], *, source: str = "x", group: str = "g") -> list[BaseSample]:
    return [BaseSample(prompt=p, source=source, unique_id=group) for p in prompts]


def test_scores_come_back_in_the_order_of_the_samples(accelerator: Accelerator) -> None:
    scorer = processor(accelerator, (Number, {"batch_size": 2}))
    rewards = scorer.compute_rewards(samples_of(["4", "0", "-1", "2", "9"]))
    assert list(rewards) == ["a"]
    assert rewards["a"].dtype == torch.float32
    assert rewards["a"].tolist() == [4.0, 0.0, -1.0, 2.0, 9.0]
    assert CALLS == [("Number", ("4", "0")), ("Number", ("-1", "2")), ("Number", ("9",))]


def test_no_samples_make_no_call(accelerator: Accelerator) -> None:
    scorer = processor(accelerator, (Number, {}), (AboveLowest, {}))
    rewards = scorer.compute_rewards([])
    assert {name: tensor.shape for name, tensor in rewards.items()} == {"a": (0,), "b": (0,)}
    assert CALLS == []


def test_outside_its_datasets_a_stream_is_not_called_and_its_place_is_nan(
    accelerator: Accelerator,
) -> None:
    scorer = processor(
        accelerator,
        (Number, {"applicable_datasets": ["x"]}),
        (PromptAndResponse, {"applicable_datasets": []}),
    )
    samples = [BaseSample(prompt=p, source=s) for p, s in (("1", "y"), ("2", "x"), ("boom", "y"))]
    rewards = scorer.compute_rewards(samples)
    assert CALLS == [("Number", ("2",))]
    assert [math.isnan(r) for r in rewards["a"].tolist()] == [True, False, True]
    assert all(math.isnan(r) for r in rewards["b"].tolist())
    assert [s.applicable_rewards for s in samples] == [set(), {"a"}, set()]
    assert [s.extra_kwargs["rewards"] for s in samples] == [{}, {"a": 2.0}, {}]


def test_a_score_of_zero_is_stored_as_zero(accelerator: Accelerator) -> None:
    sample = samples_of(["0"])[0]
    processor(accelerator, (Number, {})).compute_rewards([sample])
    assert sample.extra_kwargs["rewards"]["a"].item() == 0.0


def test_rewards_are_not_stored_where_that_is_not_wanted(accelerator: Accelerator) -> None:
    sample = samples_of(["1"])[0]
    processor(accelerator, (Number, {})).compute_rewards([sample], store_to_samples=False)
    assert sample.extra_kwargs == {}


def test_stored_rewards_of_two_splits_stand_beside_each_other(accelerator: Accelerator) -> None:
    scorer = processor(accelerator, (Number, {}), (AboveLowest, {}))
    samples = samples_of(["1", "3"])
    assert list(scorer.compute_rewards(samples, split="pointwise")) == ["a"]
    assert list(scorer.compute_rewards(samples, split="groupwise")) == ["b"]
    assert list(scorer.compute_rewards(samples, split="all")) == ["a", "b"]
    # Two members: a quarter, and how far above the lowest.
    assert samples[1].extra_kwargs["rewards"] == {"a": 3.0, "b": 2.25}


def test_an_unknown_split_is_refused(accelerator: Accelerator) -> None:
    scorer = processor(accelerator, (Number, {}))
    with pytest.raises(ConfigError, match="split 'some': expected all, pointwise or groupwise"):
        scorer.compute_rewards([], split="some")  # type: ignore[arg-type]


def test_a_group_is_the_id_within_its_dataset(accelerator: Accelerator) -> None:
    scorer = processor(accelerator, (AboveLowest, {}))
    names = [("x", "g"), ("y", "g"), ("x", "h"), ("x", "g"), ("y", "g"), ("x", "g")]
    samples = [
        BaseSample(prompt=str(n), source=source, unique_id=group)
        for n, (source, group) in enumerate(names)
    ]
    rewards = scorer.compute_rewards(samples)
    assert CALLS == [
        ("AboveLowest", ("0", "3", "5")),
        ("AboveLowest", ("1", "4")),
        ("AboveLowest", ("2",)),
    ]
    assert rewards["a"].tolist() == [0.375, 0.25, 0.125, 3.375, 3.25, 5.375]


def test_a_sample_without_a_group_is_refused_by_a_groupwise_stream(
    accelerator: Accelerator,
) -> None:
    scorer = processor(accelerator, (AboveLowest, {}))
    samples = [*samples_of(["1"]), BaseSample(prompt="2", source="x")]
    with pytest.raises(DataError, match="sample 1: groupwise stream 'a' needs unique_id"):
        scorer.compute_rewards(samples)


def test_names_of_models_and_arguments_must_agree(accelerator: Accelerator) -> None:
    model = Number(args(), accelerator)
    wanted = r"reward_models has the names \['a'\], reward_args \['b'\]; give both the same names"
    with pytest.raises(ConfigError, match=wanted):
        RewardProcessor(accelerator, {"a": model}, {"b": args("b")})


def test_one_number_for_three_rows_is_refused_and_for_one_is_legal(
    accelerator: Accelerator,
) -> None:
    samples = samples_of(["1", "2", "3"])
    wanted = r"^stream 'a': returned 1 score for 3 inputs; return one .* \(samples 0, 1, 2\)$"
    with pytest.raises(ContractError, match=wanted):
        processor(accelerator, (OneForAll, {"batch_size": 3})).compute_rewards(samples)
    rewards = processor(accelerator, (OneForAll, {"batch_size": 1})).compute_rewards(samples)
    assert rewards["a"].tolist() == [1.0, 1.0, 1.0]


def test_each_stream_keeps_its_own_batch_size_over_one_shared_model(
    accelerator: Accelerator,
) -> None:
    rewards = args(batch_size=4)
    eval_rewards = args(batch_size=2)
    loaded = load_reward_models([rewards, eval_rewards], accelerator)
    assert loaded[0].model is loaded[1].model
    sizes = []
    for stream, count in ((loaded[0], 17), (loaded[1], 9)):
        CALLS.clear()
        scorer = RewardProcessor.from_streams(accelerator, [stream])
        scorer.compute_rewards(samples_of(["1"] * count))
        sizes.append([len(prompts) for _, prompts in CALLS])
    assert sizes == [[4, 4, 4, 4, 1], [2, 2, 2, 2, 1]]


class Failing(PointwiseRewardModel):
    """Raises for the prompt `boom`, alone or in company."""

    def __call__(self, prompt: list[str]) -> list[float]:
        CALLS.append(("Failing", tuple(prompt)))
        if "boom" in prompt:
            raise KeyError("boom")
        return [1.0] * len(prompt)


def test_the_first_failed_sample_raises_with_stream_and_sample(accelerator: Accelerator) -> None:
    scorer = processor(accelerator, (Failing, {"batch_size": 2}))
    with pytest.raises(DataError, match=r"^stream 'a', sample 2: model_error: KeyError: 'boom'$"):
        scorer.compute_rewards(samples_of(["1", "2", "boom", "3"]))
    scorer = processor(accelerator, (Number, {}))
    with pytest.raises(DataError, match="sample 1: nonfinite: the model returned inf"):
        scorer.compute_rewards(samples_of(["1", "inf"]))


def test_a_missing_field_raises_before_any_call(accelerator: Accelerator) -> None:
    scorer = processor(accelerator, (PromptAndResponse, {"batch_size": 1}))
    samples = [BaseSample(prompt="1", response="r"), BaseSample(prompt="1")]
    with pytest.raises(DataError, match="sample 1: missing_field: required field 'response' is m"):
        scorer.compute_rewards(samples)
    assert CALLS == []


def run(scorer: RewardProcessor, prompts: list[str], *, repeat_rows: bool) -> dict[int, str]:
    """The statuses of one call's failed places."""
    call = Call("a", 0, tuple(range(len(prompts))), ("prompt",))
    result = scorer.run_call(call, samples_of(prompts), repeat_rows=repeat_rows)
    assert [s is None for s in result.scores] == [n in result.faults for n in range(len(prompts))]
    return {place: fault.status for place, fault in result.faults.items()}


def test_what_a_call_raises_is_the_fault_of_all_its_rows(accelerator: Accelerator) -> None:
    scorer = processor(accelerator, (Failing, {}))
    assert run(scorer, ["1", "boom"], repeat_rows=False) == {0: "model_error", 1: "model_error"}


def test_a_call_that_raises_is_repeated_row_by_row_once(accelerator: Accelerator) -> None:
    scorer = processor(accelerator, (Failing, {}))
    assert run(scorer, ["1", "boom", "2"], repeat_rows=True) == {1: "model_error"}
    assert [prompts for _, prompts in CALLS] == [("1", "boom", "2"), ("1",), ("boom",), ("2",)]


def test_a_call_of_one_row_is_not_repeated(accelerator: Accelerator) -> None:
    scorer = processor(accelerator, (Failing, {}))
    assert run(scorer, ["boom"], repeat_rows=True) == {0: "model_error"}
    assert CALLS == [("Failing", ("boom",))]


def test_a_group_that_raises_is_not_repeated(accelerator: Accelerator) -> None:
    scorer = processor(accelerator, (AboveLowest, {}))
    assert run(scorer, ["1", "boom"], repeat_rows=True) == {0: "model_error", 1: "model_error"}
    assert CALLS == [("AboveLowest", ("1", "boom"))]


def test_a_nonfinite_score_fails_its_own_cell(accelerator: Accelerator) -> None:
    scorer = processor(accelerator, (Number, {}))
    assert run(scorer, ["1", "nan", "2"], repeat_rows=False) == {1: "nonfinite"}


class Fields(PointwiseRewardModel):
    """Notes the keywords of its calls."""

    def __call__(self, prompt: list[str], response: Any = None, **others: Any) -> list[float]:
        CALLS.append(("Fields", ("prompt", *(["response"] if response else []), *others)))
        return [float(p) for p in prompt]


def test_an_optional_field_is_passed_to_the_samples_that_carry_it(
    accelerator: Accelerator,
) -> None:
    samples = [BaseSample(prompt=str(n), response="r" if n % 2 else None) for n in range(4)]
    rewards = processor(accelerator, (Fields, {})).compute_rewards(samples)
    assert CALLS == [("Fields", ("prompt",)), ("Fields", ("prompt", "response"))]
    assert rewards["a"].tolist() == [0.0, 1.0, 2.0, 3.0]


class Gradient(PointwiseRewardModel):
    """Scores whether gradients are on."""

    def __call__(self, prompt: list[str]) -> list[float]:
        return [float(torch.is_grad_enabled())] * len(prompt)


def test_gradients_are_off_in_a_call_and_on_again_after_it(accelerator: Accelerator) -> None:
    rewards = processor(accelerator, (Gradient, {})).compute_rewards(samples_of(["1"]))
    assert rewards["a"].tolist() == [0.0]
    assert torch.is_grad_enabled()


class Watched(PointwiseRewardModel):
    """Counts how many of its calls run at one time."""

    def __init__(self, config: RewardArguments, accelerator: Accelerator) -> None:
        super().__init__(config, accelerator)
        self.overlap = Overlap()

    def __call__(self, prompt: list[str]) -> list[float]:
        with self.overlap:
            return [0.0] * len(prompt)


class FreelyWatched(Watched):
    """Bears calls from several threads."""

    thread_safe = True


def most_at_once(work: list[tuple[RewardProcessor, str]], model: Watched) -> int:
    """Most calls that ran at one time when each stream was called from its own thread."""

    def call(scorer: RewardProcessor, stream: str) -> None:
        scorer.run_call(Call(stream, 0, (0,), ("prompt",)), samples_of(["1"]))

    threads = [threading.Thread(target=call, args=pair) for pair in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return model.overlap.most


@pytest.mark.parametrize(("reward_class", "most"), [(Watched, 1), (FreelyWatched, 2)])
def test_calls_of_two_streams_into_one_model_overlap_only_if_it_is_thread_safe(
    accelerator: Accelerator, reward_class: type[Watched], most: int
) -> None:
    model = reward_class(args(), accelerator)
    scorer = RewardProcessor(accelerator, {"a": model, "b": model}, {"a": args(), "b": args("b")})
    assert most_at_once([(scorer, "a"), (scorer, "b")], model) == most


def test_calls_of_two_processors_into_one_model_do_not_overlap(accelerator: Accelerator) -> None:
    """As with `rewards` and `eval_rewards`, which share their models."""
    model = Watched(args(), accelerator)
    scorers = [RewardProcessor(accelerator, {"a": model}, {"a": args()}) for _ in range(2)]
    assert most_at_once([(scorer, "a") for scorer in scorers], model) == 1


class RefusesLong(PointwiseRewardModel):
    """Names the rows that it cannot score."""

    required_fields = ("prompt",)

    def __init__(self, config: RewardArguments, accelerator: Accelerator) -> None:
        super().__init__(config, accelerator)
        self.calls: list[list[str]] = []

    def __call__(self, prompt: list[str], **_: Any) -> list[float]:
        self.calls.append(list(prompt))
        faults = {p: RowError("parse_error", f"{t} is long") for p, t in enumerate(prompt) if t[1:]}
        if faults:
            raise RowErrors(faults)
        return [float(t) for t in prompt]


def test_rows_that_a_model_names_fail_alone_and_the_others_are_called_once_more(
    accelerator: Accelerator,
) -> None:
    args = RewardArguments(name="a", reward_model="x", batch_size=4)
    model = RefusesLong(args, accelerator)
    processor = RewardProcessor(accelerator, {"a": model}, {"a": args})
    call = Call("a", 0, (0, 1, 2), ("prompt",))
    result = processor.run_call(call, [BaseSample(prompt=p) for p in ("1", "22", "3")])
    assert result.scores == [1.0, None, 3.0]
    assert {p: (f.status, str(f)) for p, f in result.faults.items()} == {
        1: ("parse_error", "22 is long")
    }
    assert model.calls == [["1", "22", "3"], ["1", "3"]]
