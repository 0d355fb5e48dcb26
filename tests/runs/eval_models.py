"""Reward classes for the tests of eval: what they say of a text can be worked out by hand."""

from rewardctl.rewards.abc import GroupwiseRewardModel, PointwiseRewardModel

CALLS: list[list[str]] = []  # responses of each call; cleared by the tests that look at it


class LetterA(PointwiseRewardModel):
    """The number of letters "a" in the response; refuses "refused"."""

    def __call__(self, response: list[str]) -> list[float]:
        CALLS.append(list(response))
        if "refused" in response:
            raise ValueError("the model does not like this one")
        return [float(text.count("a")) for text in response]


class CallSize(PointwiseRewardModel):
    """The number of rows of the call, and an eighth for each letter: depends on the batch."""

    def __call__(self, response: list[str]) -> list[float]:
        return [len(response) + len(text) / 8 for text in response]


class Placed(GroupwiseRewardModel):
    """The group's size, less the place in it: depends on the order."""

    def __call__(self, response: list[str]) -> list[float]:
        CALLS.append(list(response))
        return [float(len(response) - place) for place in range(len(response))]


class Tokens(PointwiseRewardModel):
    """The sum of the tokens, and the timestep where there is one."""

    def __call__(self, tokens: list[list[int]], timestep: list[float] | None = None) -> list[float]:
        times = timestep or [0.0] * len(tokens)
        return [sum(row) + time for row, time in zip(tokens, times, strict=True)]


class OnlyWhole(PointwiseRewardModel):
    """Breaks the contract for a single row, as a model that squeezes does."""

    def __call__(self, response: list[str]) -> list[float]:
        return [float(len(text)) for text in response] + [0.0] * (len(response) == 1)
