"""`check_contract` passes models that keep the contract and names the promise that others break."""

import re
import threading

import pytest
from accelerate import Accelerator
from PIL import Image
from pydantic import BaseModel

from rewardctl.config.schema import RewardArguments
from rewardctl.data.samples import BaseSample
from rewardctl.errors import UsageError
from rewardctl.rewards.abc import GroupwiseRewardModel, PointwiseRewardModel, RewardModelOutput
from rewardctl.testing import check_contract

TEXTS = ("a", "bbb", "cc", "ddddd", "eeee")
SAMPLES = [BaseSample(response=text) for text in TEXTS]  # of lengths 1, 3, 2, 5, 4
GROUPS = [  # interleaved: x has lengths 1, 2, 4 and y has 3, 5
    BaseSample(response=text, unique_id=group, source="s")
    for text, group in zip(TEXTS, "xyxyx", strict=True)
]


class Length(PointwiseRewardModel):
    """Keeps every promise; the broken ones below change one thing."""

    required_fields = ("response",)
    thread_safe = True

    def __call__(self, *, response, **_):
        return RewardModelOutput([float(len(text)) for text in response])


class LengthInGroup(GroupwiseRewardModel):
    """Length minus the mean length of the group."""

    required_fields = ("response",)

    def __call__(self, *, response, **_):
        mean = sum(map(len, response)) / len(response)
        return [len(text) - mean for text in response]


def test_a_pointwise_model_that_keeps_the_contract_passes():
    check_contract(Length, SAMPLES)


def test_a_groupwise_model_that_keeps_the_contract_passes():
    check_contract(LengthInGroup, GROUPS)


def test_an_instance_is_checked_as_it_is():
    model = Length(RewardArguments(name="n", reward_model="r"), Accelerator(cpu=True))
    check_contract(model, SAMPLES)


def test_a_class_is_built_with_its_default_options():
    class Options(BaseModel):
        factor: float = 2.0

    class Scaled(Length):
        def __call__(self, *, response, **_):
            return [self.config.options.factor * len(text) for text in response]

    Scaled.Options = Options
    check_contract(Scaled, SAMPLES)


def test_one_sample_is_enough_to_check():
    check_contract(Length, SAMPLES[:1])


def test_the_samples_are_left_unmarked():
    check_contract(Length, SAMPLES)
    assert [sample.applicable_rewards for sample in SAMPLES] == [set()] * 5


@pytest.mark.parametrize(("samples", "sizes"), [([], (1,)), (SAMPLES, ()), (SAMPLES, (0, 2))])
def test_nothing_to_check_is_refused(samples, sizes):
    with pytest.raises(UsageError, match="expected at least one sample and batch sizes of 1 or"):
        check_contract(Length, samples, batch_sizes=sizes)


class Sorted(Length):
    def __call__(self, *, response, **_):
        return sorted(float(len(text)) for text in response)


class Centred(Length):
    def __call__(self, *, response, **_):
        longest = max(map(len, response))
        return [len(text) / longest for text in response]


class OneForAll(Length):
    def __call__(self, *, response, **_):
        return [1.0]


class NotANumber(Length):
    def __call__(self, *, response, **_):
        return [float("nan") if text == "cc" else 1.0 for text in response]


class FailsAlone(Length):
    def __call__(self, *, response, **_):
        if len(response) == 1:
            raise IndexError("squeezed away")
        return [1.0] * len(response)


class FailsInTail(Length):
    def __call__(self, *, response, **_):
        if response == ["ddddd", "eeee"]:
            raise ValueError("short last call")
        return [1.0] * len(response)


class Counting(Length):
    calls = 0

    def __call__(self, *, response, **_):
        Counting.calls += 1
        return [float(len(text) + Counting.calls // 19) for text in response]


class OverOne(Length):
    score_range = (0.0, 1.0)

    def __call__(self, *, response, **_):
        return [len(text) / 4 for text in response]


class OneThreadOnly(Length):
    def __call__(self, *, response, **_):
        at_home = threading.current_thread() is threading.main_thread()
        return [len(text) * float(at_home) for text in response]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        # Lengths 1 3 | 2 5 | 4 are sorted already in calls of 2; 1 3 2 are not in calls of 3.
        (Sorted, "sample 1 scores 2 in calls of 3, but 3 alone"),
        # Alone each is the longest: 1.0. Beside "bbb", "a" scores 1/3.
        (Centred, "sample 0 scores 0.333333343 in calls of 2, but 1 alone"),
        (OneForAll, ", calls of 2: .*returned 1 score for 2 inputs"),
        (NotANumber, r"a run of samples \[2\] alone: .*sample 0: nonfinite: .*nan"),
        (FailsAlone, r"a run of samples \[0\] alone: .*IndexError: squeezed away"),
        (FailsInTail, ", calls of 3: .*ValueError: short last call"),
        (OverOne, r"says score_range = \(0.0, 1.0\): sample 3 scores 1.25"),
        (OneThreadOnly, r"scores 0 from several threads \(thread_safe\), but 1 from one thread"),
    ],
)
def test_a_broken_promise_is_named_with_samples_and_numbers(broken, words):
    with pytest.raises(AssertionError, match=words):
        check_contract(broken, SAMPLES)


def test_a_model_that_remembers_its_calls_is_found():
    # Calls: 1 for the inputs, 5 alone, 5 + 3 + 2 + 1 by size, 2 in other orders. From the last of
    # these, number 19, on each score is one higher.
    with pytest.raises(
        AssertionError,
        match=r"sample 0 scores 2 with odd positions first, but 1 in the given order",
    ):
        check_contract(Counting, SAMPLES)


def test_many_differences_are_counted_not_listed():
    with pytest.raises(AssertionError, match=r"; and 2 more$"):
        check_contract(OneThreadOnly, [BaseSample(response="abc")] * 7)


def test_differences_within_the_tolerance_pass():
    class Nearly(Length):
        def __call__(self, *, response, **_):
            return [len(text) + 1e-4 * len(response) for text in response]

    check_contract(Nearly, SAMPLES, tolerance=1e-3)
    with pytest.raises(
        AssertionError, match=r"sample 0 scores 1\.00020003 in calls of 2, but 1\.00010002 alone"
    ):
        check_contract(Nearly, SAMPLES)


def test_a_changed_list_is_found():
    class Pops(Length):
        def __call__(self, *, response, **_):
            return [float(len(response.pop(0))) for _ in range(len(response))]

    with pytest.raises(AssertionError, match="must leave its inputs as they are: changed response"):
        check_contract(Pops, SAMPLES)


def test_changed_tokens_are_found():
    class Appends(Length):
        required_fields = ("tokens",)

        def __call__(self, *, tokens, **_):
            for one in tokens:
                one[0] = 7
            return [1.0] * len(tokens)

    with pytest.raises(AssertionError, match=r"changed tokens of sample 1$"):
        check_contract(Appends, [BaseSample(tokens=[7]), BaseSample(tokens=[1, 2])])


class FirstOfGroup(GroupwiseRewardModel):
    required_fields = ("response",)

    def __call__(self, *, response, **_):
        return [1.0] + [0.0] * (len(response) - 1)


class NoGroupOfOne(LengthInGroup):
    def __call__(self, *, response, **_):
        others = len(response) - 1
        return [sum(map(len, response)) / others for _ in response]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (FirstOfGroup, "sample 0 scores 0 in reverse order, but 1 in the given order"),
        (NoGroupOfOne, ", a group of one: .*ZeroDivisionError"),
    ],
)
def test_a_broken_promise_of_a_groupwise_model_is_named(broken, words):
    with pytest.raises(AssertionError, match=words):
        check_contract(broken, GROUPS)


def test_a_groupwise_model_needs_groups():
    with pytest.raises(AssertionError, match="needs unique_id"):
        check_contract(LengthInGroup, SAMPLES)


def test_a_changed_image_is_found():
    class Draws(Length):
        required_fields = ("image",)

        def __call__(self, *, image, **_):
            for picture in image:
                picture.putpixel((0, 0), (1, 2, 3))
            return [1.0] * len(image)

    images = [BaseSample(image=Image.new("RGB", (4, 4), colour)) for colour in ("red", "blue")]
    with pytest.raises(AssertionError, match=re.escape("changed image of sample 0; image of")):
        check_contract(Draws, images)
