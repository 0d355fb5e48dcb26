"""The learning rate of each step, worked out by hand."""

import math

import pytest

from rewardctl.training.schedule import learning_rate


def rates(schedule: str, *, warmup: int, total: int, lr: float = 1.0) -> list[float]:
    return [
        learning_rate(step, lr=lr, warmup_steps=warmup, total_steps=total, schedule=schedule)
        for step in range(total)
    ]


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_warmup_rises_in_equal_steps_to_lr(schedule: str) -> None:
    # lr * (step + 1) / warmup: the first step is not 0, the last one of the warmup is lr.
    assert rates(schedule, warmup=4, total=8, lr=2.0)[:4] == [0.5, 1.0, 1.5, 2.0]


def test_constant_stays_at_lr() -> None:
    assert rates("constant", warmup=1, total=4, lr=3.0) == [3.0, 3.0, 3.0, 3.0]


def test_linear_falls_along_a_line() -> None:
    assert rates("linear", warmup=2, total=6) == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]


def test_cosine_falls_along_half_a_wave() -> None:
    # (1 + cos(pi * done)) / 2 at done = 0, 1/4, 1/2, 3/4
    root = math.sqrt(0.5)
    assert rates("cosine", warmup=0, total=4) == pytest.approx(
        [1.0, (1 + root) / 2, 0.5, (1 - root) / 2]
    )


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_without_warmup_the_first_step_has_the_full_rate(schedule: str) -> None:
    assert rates(schedule, warmup=0, total=3)[0] == 1.0


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_warmup_may_be_the_whole_run(schedule: str) -> None:
    assert rates(schedule, warmup=2, total=2) == [0.5, 1.0]
