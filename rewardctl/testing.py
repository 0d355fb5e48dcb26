"""`check_contract`: whether a reward model keeps the promises of the reward contract. For tests of
the built-in models and of users' own classes.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Any

from rewardctl.config.schema import MediaConfig, RewardArguments
from rewardctl.data.samples import BaseSample
from rewardctl.errors import RewardctlError, UsageError, quote
from rewardctl.rewards.abc import BaseRewardModel, GroupwiseRewardModel, input_fields
from rewardctl.rewards.inputs import gather
from rewardctl.rewards.reward_processor import RewardProcessor

STREAM = "checked"
MAX_SHOWN = 5  # samples that a message names


def check_contract(
    model: BaseRewardModel | type[BaseRewardModel],
    samples: Sequence[BaseSample],
    *,
    batch_sizes: Sequence[int] = (1, 2, 3, 7),
    tolerance: float = 1e-5,
) -> None:
    """Score `samples` in several ways and compare: every way must give the same scores.

    A pointwise model is called with one sample, in calls of each batch size (a shorter last call
    included), in other orders and twice; a groupwise one with each group alone, all groups, other
    orders of the members, and a group of one. All scores are finite, as many as inputs, and within
    `score_range`; no input is changed; a `thread_safe` model scores the same from several threads.

    Args:
        model: an instance, or a class that is built with default options on the CPU.
        samples: some with different scores, so that a mixed-up order shows; with `unique_id` for a
            groupwise model.
        tolerance: largest difference of two scores, relative to max(1, |score|).

    Raises:
        AssertionError: a promise is broken; the text names it, the samples (by position) and both
            numbers.
        UsageError: there are no samples, or a batch size is below 1.
    """
    if not samples or not batch_sizes or min(batch_sizes) < 1:
        raise UsageError(
            f"check_contract: expected at least one sample and batch sizes of 1 or more, found "
            f"{len(samples)} samples and batch_sizes {quote(batch_sizes)}"
        )
    samples = [copy(sample) for sample in samples]  # the processor marks the samples it is given
    scorer = _Scorer(_build(model) if isinstance(model, type) else model, tolerance)
    units = _units(scorer.model, samples)
    grouped = isinstance(scorer.model, GroupwiseRewardModel)
    _check_inputs_kept(
        scorer, samples, units[0] if grouped else range(min(len(samples), max(batch_sizes)))
    )
    alone = _score_alone(scorer, samples, units)
    _check_range(scorer, alone)
    if grouped:
        together = scorer.score(samples, "all groups in one run")
        scorer.compare("beside other groups", together, "in its group alone", alone)
        scorer.score(samples[:1], "a group of one")
    else:
        for size in batch_sizes:
            scorer.compare(
                f"in calls of {size}", scorer.score(samples, batch_size=size), "alone", alone
            )
    _check_orders(scorer, samples, alone, batch_size=max(batch_sizes))
    again = _score_alone(scorer, samples, units)
    scorer.compare("the second time", again, "the first time", alone)
    if scorer.model.thread_safe:
        with ThreadPoolExecutor(max_workers=4) as pool:
            found = _score_alone(scorer, samples, units, pool=pool)
        scorer.compare("from several threads (thread_safe)", found, "from one thread", alone)


@dataclass(frozen=True)
class _Scorer:
    """Scores with the processor that every command uses; a failure becomes an AssertionError."""

    model: BaseRewardModel
    tolerance: float

    def score(
        self, samples: Sequence[BaseSample], where: str = "", *, batch_size: int = 1
    ) -> list[float]:
        """One score for each sample, in order."""
        args = RewardArguments(name=STREAM, reward_model="checked", batch_size=batch_size)
        processor = RewardProcessor(self.model.accelerator, {STREAM: self.model}, {STREAM: args})
        where = where or f"calls of {batch_size}"
        try:
            rewards = processor.compute_rewards(samples, store_to_samples=False)
        except RewardctlError as error:
            raise AssertionError(f"{self.name}, {where}: {error}") from error
        scores: list[float] = rewards[STREAM].tolist()
        return scores

    @property
    def name(self) -> str:
        """The class that is checked."""
        return type(self.model).__qualname__

    def compare(self, way: str, found: list[float], usual: str, expected: list[float]) -> None:
        """Fail where two ways of scoring the same samples differ."""
        wrong = [
            f"sample {row} scores {found[row]:.9g} {way}, but {expected[row]:.9g} {usual}"
            for row in range(len(expected))
            if abs(found[row] - expected[row]) > self.tolerance * max(1.0, abs(expected[row]))
        ]
        if wrong:
            raise AssertionError(
                f"{self.name} must score the same however it is called: {_list(wrong)}"
            )


def _build(reward_class: type[BaseRewardModel]) -> BaseRewardModel:
    from accelerate import Accelerator

    options: Any = {} if reward_class.Options is None else reward_class.Options()
    args = RewardArguments(name=STREAM, reward_model=reward_class.__qualname__, options=options)
    return reward_class(args, Accelerator(cpu=True))


def _units(model: BaseRewardModel, samples: Sequence[BaseSample]) -> list[list[int]]:
    """The rows of each smallest call: a sample, or a complete group."""
    if not isinstance(model, GroupwiseRewardModel):
        return [[row] for row in range(len(samples))]
    groups: dict[tuple[str | None, str | None], list[int]] = {}
    for row, sample in enumerate(samples):
        groups.setdefault((sample.source, sample.unique_id), []).append(row)
    return list(groups.values())


def _score_alone(
    scorer: _Scorer,
    samples: Sequence[BaseSample],
    units: list[list[int]],
    *,
    pool: ThreadPoolExecutor | None = None,
) -> list[float]:
    """Each unit in a run of its own."""

    def score_unit(rows: list[int]) -> list[float]:
        return scorer.score([samples[row] for row in rows], f"a run of samples {rows} alone")

    scores = [0.0] * len(samples)
    for rows, found in zip(units, (pool.map if pool else map)(score_unit, units), strict=True):
        for row, score in zip(rows, found, strict=True):
            scores[row] = score
    return scores


def _check_orders(
    scorer: _Scorer, samples: Sequence[BaseSample], alone: list[float], *, batch_size: int
) -> None:
    rows = list(range(len(samples)))
    orders = {"in reverse order": rows[::-1]}
    if len(rows) > 2:  # of two rows there is no other order
        orders["with odd positions first"] = rows[1::2] + rows[::2]
    for way, order in orders.items():
        moved = scorer.score([samples[row] for row in order], way, batch_size=batch_size)
        found = dict(zip(order, moved, strict=True))
        scorer.compare(way, [found[row] for row in rows], "in the given order", alone)


def _check_range(scorer: _Scorer, scores: list[float]) -> None:
    lowest, highest = scorer.model.score_range or (None, None)
    outside = [
        f"sample {row} scores {score:.9g}"
        for row, score in enumerate(scores)
        if (lowest is not None and score < lowest - scorer.tolerance * max(1.0, abs(lowest)))
        or (highest is not None and score > highest + scorer.tolerance * max(1.0, abs(highest)))
    ]
    if outside:
        raise AssertionError(
            f"{scorer.name} says score_range = ({lowest}, {highest}): {_list(outside)}"
        )


def _check_inputs_kept(scorer: _Scorer, samples: Sequence[BaseSample], rows: Sequence[int]) -> None:
    """One call with inputs of our own, which are compared before and after."""
    import torch

    fields = input_fields(scorer.model)
    chosen = [samples[row] for row in rows]
    carried = tuple(
        name for name in fields.optional if all(getattr(s, name) is not None for s in chosen)
    )
    columns, faults = gather(scorer.model, fields.required + carried, chosen, None, MediaConfig())
    rows = [row for place, row in enumerate(rows) if place not in faults]
    inputs = {name: column for name, column in columns.items() if fields.passes(name)}
    before = {name: [_content(value) for value in column] for name, column in inputs.items()}
    # Not the place to report a call that fails: those that follow name the samples.
    with torch.no_grad(), suppress(Exception):
        scorer.model(**inputs)
    changed = [
        f"{name} of sample {rows[place]}"
        for name, contents in before.items()
        for place, content in enumerate(contents)
        if len(inputs[name]) != len(contents) or _content(inputs[name][place]) != content
    ]
    if changed:
        raise AssertionError(
            f"{scorer.name} must leave its inputs as they are: changed {_list(changed)}"
        )


def _content(value: Any) -> Any:
    """What can be compared of an input, with nothing shared with it."""
    if isinstance(value, list | tuple):
        return [_content(entry) for entry in value]
    if hasattr(value, "tobytes"):  # a PIL image or an array
        return (value.tobytes(), getattr(value, "shape", None), getattr(value, "size", None))
    if hasattr(value, "detach"):
        return _content(value.detach().cpu().numpy())
    return value


def _list(findings: list[str]) -> str:
    more = len(findings) - MAX_SHOWN
    return "; ".join(findings[:MAX_SHOWN]) + (f"; and {more} more" if more > 0 else "")
