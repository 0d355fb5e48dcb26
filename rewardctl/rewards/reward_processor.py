"""Runs calls of reward streams: gather, lock, call, check. The command line and Python use this one
path.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rewardctl.config.schema import MediaConfig, RewardArguments
from rewardctl.data.samples import BaseSample
from rewardctl.errors import ConfigError, ContractError, DataError, RowError, RowErrors, quote
from rewardctl.rewards.abc import (
    BaseRewardModel,
    GroupwiseRewardModel,
    input_fields,
)
from rewardctl.rewards.inputs import Media, gather
from rewardctl.rewards.loader import DEFAULT_BATCH_SIZE, LoadedStream
from rewardctl.rewards.plan import (
    Call,
    PlannedStream,
    StreamPlan,
    incomplete_group,
    mark_applicable,
    plan_groupwise,
    plan_pointwise,
)
from rewardctl.rewards.scores import CallResult, read_scores

if TYPE_CHECKING:
    import torch
    from accelerate import Accelerator

Split = Literal["all", "pointwise", "groupwise"]


@dataclass(frozen=True)
class Stream(PlannedStream):
    """A reward stream ready to be called; streams that share a model share its lock."""

    model: BaseRewardModel
    lock: AbstractContextManager[Any]


class RewardProcessor:
    """Scores samples with several reward streams.

    Args:
        reward_models: stream name -> model; one model may serve several streams.
        reward_args: the same names -> RewardArguments (weight, batch size, datasets).
        media: how references to media are decoded.
    """

    def __init__(
        self,
        accelerator: "Accelerator",
        reward_models: Mapping[str, BaseRewardModel],
        reward_args: Mapping[str, RewardArguments],
        *,
        media: MediaConfig | None = None,
    ) -> None:
        if list(reward_models) != list(reward_args):
            raise ConfigError(
                f"reward_models has the names {list(reward_models)}, reward_args "
                f"{list(reward_args)}; "
                "give both the same names in the same order"
            )
        self.accelerator = accelerator
        self.media = media or MediaConfig()
        self.streams: dict[str, Stream] = {}
        for name, model in reward_models.items():
            args = reward_args[name]
            self.streams[name] = Stream(
                args=args,
                fields=input_fields(model),
                is_groupwise=isinstance(model, GroupwiseRewardModel),
                batch_size=args.batch_size or model.default_batch_size or DEFAULT_BATCH_SIZE,
                model=model,
                lock=nullcontext() if model.thread_safe else model.call_lock,
            )

    @classmethod
    def from_streams(
        cls,
        accelerator: "Accelerator",
        loaded: Sequence[LoadedStream],
        *,
        media: MediaConfig | None = None,
    ) -> "RewardProcessor":
        """A processor over what `load_reward_models` built."""
        models = {stream.args.name: stream.model for stream in loaded}
        return cls(accelerator, models, {s.args.name: s.args for s in loaded}, media=media)

    def run_call(
        self,
        call: Call,
        samples: Sequence[BaseSample],
        *,
        media: Media | None = None,
        repeat_rows: bool = False,
    ) -> CallResult:
        """Run one call, on the calling thread, and check what it returned.

        Args:
            samples: of the call's rows, in order.
            media: their media, decoded ahead; None: decode here.
            repeat_rows: repeat a pointwise call that raises row by row, once.

        Raises:
            ContractError: a wrong count, shape or type of scores; the stream is named.
        """
        stream = self.streams[call.stream]
        inputs, faults = gather(stream.model, call.fields, samples, media, self.media)
        n = len(samples)
        if faults and stream.is_groupwise:
            return CallResult([None] * n, incomplete_group(range(n), faults))
        if not faults:
            return self._call(stream, inputs, n, repeat_rows=repeat_rows)
        places = [place for place in range(n) if place not in faults]
        result = CallResult([None] * n, faults)
        if not places:
            return result
        partial = self._call(stream, inputs, len(places), repeat_rows=repeat_rows)
        for index, place in enumerate(places):
            result.scores[place] = partial.scores[index]
            if index in partial.faults:
                result.faults[place] = partial.faults[index]
        return result

    def _call(
        self, stream: Stream, inputs: Mapping[str, list[Any]], n: int, *, repeat_rows: bool
    ) -> CallResult:
        """One call of `n` rows; again without the rows that the model names, or row by row."""
        answer = self._guarded(stream, inputs, n)
        if isinstance(answer, RowErrors) and not stream.is_groupwise:
            return self._without(stream, inputs, n, answer)
        if isinstance(answer, RowError) and repeat_rows and not stream.is_groupwise and n > 1:
            return self._row_by_row(stream, inputs, n)
        if isinstance(answer, RowError):
            return CallResult([None] * n, dict.fromkeys(range(n), answer))
        return answer

    def _without(
        self, stream: Stream, inputs: Mapping[str, list[Any]], n: int, refused: RowErrors
    ) -> CallResult:
        result = CallResult([None] * n, refused.faults)
        kept = [place for place in range(n) if place not in refused.faults]
        if not kept:
            return result
        rest = {name: [column[p] for p in kept] for name, column in inputs.items()}
        answer = self._guarded(stream, rest, len(kept))
        for index, place in enumerate(kept):
            if isinstance(answer, RowError):
                result.faults[place] = answer
                continue
            result.scores[place] = answer.scores[index]
            if index in answer.faults:
                result.faults[place] = answer.faults[index]
        return result

    def _guarded(
        self, stream: Stream, inputs: Mapping[str, list[Any]], n: int
    ) -> CallResult | RowError:
        """One call of the model; what it raises becomes the fault of every row."""
        import torch

        kwargs = {name: column for name, column in inputs.items() if stream.fields.passes(name)}
        try:
            with stream.lock, torch.no_grad():
                output = stream.model(**kwargs)
        except ContractError as error:
            raise ContractError(f"stream {stream.name!r}: {error}") from error
        except RowError as error:
            return error
        except Exception as error:
            fault = RowError("model_error", f"{type(error).__name__}: {error}"[:500])
            fault.__cause__ = error
            return fault
        try:
            return read_scores(output, n)
        except ContractError as error:
            raise ContractError(f"stream {stream.name!r}: {error}") from error

    def _row_by_row(self, stream: Stream, inputs: Mapping[str, list[Any]], n: int) -> CallResult:
        result = CallResult([None] * n)
        for index in range(n):
            single = {name: column[index : index + 1] for name, column in inputs.items()}
            one = self._guarded(stream, single, 1)
            if isinstance(one, RowError):
                result.faults[index] = one
                continue
            result.scores[index] = one.scores[0]
            if one.faults:
                result.faults[index] = one.faults[0]
        return result

    def plan(self, stream: Stream, samples: Mapping[int, BaseSample]) -> StreamPlan:
        """The calls of one stream over samples that `mark_applicable` has seen, all in one
        window.
        """
        rows = [row for row, s in samples.items() if stream.name in s.applicable_rewards]
        if not stream.is_groupwise:
            return plan_pointwise(stream, rows, samples)
        groups: dict[tuple[str | None, str], list[int]] = {}
        for row in rows:
            unique_id = samples[row].unique_id
            if unique_id is None:
                raise RowError("missing_field", f"sample {row}: {no_group(stream.name)}")
            groups.setdefault((samples[row].source, unique_id), []).append(row)
        return plan_groupwise(stream, groups.values(), samples)

    def compute_rewards(
        self, samples: Sequence[BaseSample], store_to_samples: bool = True, split: Split = "all"
    ) -> "dict[str, torch.Tensor]":
        """Score `samples` with every stream of the split, calls one after another.

        Returns:
            Stream name -> float32 (n,), NaN where the stream does not apply (see
            `applicable_rewards`). With `store_to_samples`, each sample's `extra_kwargs["rewards"]`
            gets stream -> scalar tensor for the streams that apply to it.

        Raises:
            DataError: the first sample that could not be scored.
            ContractError: a model broke the contract.
        """
        streams = self.streams_of(split)
        numbered = dict(enumerate(samples))
        mark_applicable([s.args for s in self.streams.values()], samples)
        rewards = {stream.name: self.score_stream(stream, numbered) for stream in streams}
        return store_rewards(rewards, samples, store_to_samples=store_to_samples)

    def score_stream(self, stream: Stream, samples: Mapping[int, BaseSample]) -> list[float | None]:
        """One stream's scores of marked samples (rows 0 to n - 1), None where it does not apply.

        Raises:
            DataError: the first sample that could not be scored.
        """
        plan = self.plan(stream, samples)
        raise_first_fault(stream.name, plan.faults)
        column: dict[int, float] = {}
        for call in plan.calls:
            self.run_for(call, samples, column)
        return [column.get(row) for row in range(len(samples))]

    def run_for(
        self, call: Call, samples: Mapping[int, BaseSample], column: dict[int, float]
    ) -> None:
        """Run a call and write its scores to their rows of `column`; the first fault raises."""
        try:
            result = self.run_call(call, [samples[row] for row in call.rows])
        except ContractError as error:
            raise ContractError(f"{error} (samples {_span(call.rows)})") from error
        raise_first_fault(call.stream, {call.rows[p]: f for p, f in result.faults.items()})
        for row, score in zip(call.rows, result.scores, strict=True):
            assert score is not None
            column[row] = score

    def streams_of(self, split: Split) -> list[Stream]:
        """The streams that a split names."""
        if split not in ("all", "pointwise", "groupwise"):
            raise ConfigError(f"split {quote(split)}: expected all, pointwise or groupwise")
        wanted = {"pointwise": False, "groupwise": True}
        return [
            s for s in self.streams.values() if wanted.get(split, s.is_groupwise) == s.is_groupwise
        ]


def no_group(stream: str) -> str:
    """Why a row without a group cannot be scored by a groupwise stream."""
    return (
        f"groupwise stream {stream!r} needs unique_id (the id of the row's group), which is missing"
    )


def raise_first_fault(stream: str, faults: Mapping[int, RowError]) -> None:
    """Raise the fault of the earliest sample, with stream and sample named.

    Raises:
        DataError: there is a fault.
    """
    if faults:
        row = min(faults)
        fault = faults[row]
        raise DataError(f"stream {stream!r}, sample {row}: {fault.status}: {fault}") from fault


def store_rewards(
    rewards: Mapping[str, Sequence[float | None]],
    samples: Sequence[BaseSample],
    *,
    store_to_samples: bool,
) -> "dict[str, torch.Tensor]":
    """Columns of scores as float32 tensors (n,), NaN for None, and stored in the samples if
    wanted.
    """
    import torch

    tensors = {
        name: torch.tensor([float("nan") if s is None else s for s in column], dtype=torch.float32)
        for name, column in rewards.items()
    }
    if store_to_samples:
        for row, sample in enumerate(samples):
            stored = sample.extra_kwargs.setdefault("rewards", {})
            stored.update({n: t[row] for n, t in tensors.items() if n in sample.applicable_rewards})
    return tensors


def _span(rows: Iterable[int]) -> str:
    numbers = list(rows)
    return ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
