"""Scores samples while more are generated: async streams start as soon as a call is full."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from rewardctl.data.samples import BaseSample
from rewardctl.errors import DataError
from rewardctl.rewards.plan import mark_applicable
from rewardctl.rewards.reward_processor import (
    RewardProcessor,
    Split,
    Stream,
    raise_first_fault,
    store_rewards,
)

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


class Lane:
    """The worker threads of one async stream; on CUDA its calls run on a CUDA stream of its own."""

    def __init__(self, stream: Stream) -> None:
        self._pool = ThreadPoolExecutor(
            stream.args.num_workers, thread_name_prefix=f"reward-{stream.name}"
        )
        self._cuda = _cuda_stream(stream.model.device)

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Queue `work`; what it raises surfaces where the future is read."""
        if self._cuda is None:
            return self._pool.submit(work)
        import torch

        ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
        ready.record(torch.cuda.current_stream(self._cuda.device))
        return self._pool.submit(self._on_cuda, work, ready)

    def _on_cuda(self, work: Callable[[], T], ready: "torch.cuda.Event") -> T:
        import torch

        assert self._cuda is not None
        with torch.cuda.stream(self._cuda):
            self._cuda.wait_event(
                ready
            )  # inputs that were still being written when work was queued
            return work()

    def close(self) -> None:
        """Drop what is queued and wait for what runs."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _cuda_stream(device: "torch.device") -> "torch.cuda.Stream | None":
    import torch

    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


class RewardBuffer:
    """Collects samples and their rewards; `add_samples` as they come, then `finalize` once.

    A pointwise async stream's call starts when `batch_size` applicable samples are there. A
    groupwise async stream's call starts when its group has `group_size` members; without a
    `group_size` only `finalize` knows that a group is complete. Streams that are not async run in
    `finalize`. The rewards are those of `RewardProcessor.compute_rewards` over the same samples.
    """

    def __init__(self, processor: RewardProcessor, *, group_size: int | None = None) -> None:
        self.processor = processor
        self.group_size = group_size
        self._lanes = {
            name: Lane(s) for name, s in processor.streams.items() if s.args.async_reward
        }
        self.clear()

    def clear(self) -> None:
        """Forget all samples, once what is in flight has ended."""
        for future in getattr(self, "_futures", []):
            if not future.cancel():
                future.exception()
        self._samples: dict[int, BaseSample] = {}
        self._waiting: dict[str, dict[object, list[int]]] = {name: {} for name in self._lanes}
        self._complete: dict[str, set[object]] = {name: set() for name in self._lanes}
        self._columns: dict[str, dict[int, float]] = {name: {} for name in self._lanes}
        self._futures: list[Future[None]] = []

    def add_samples(self, samples: Iterable[BaseSample]) -> None:
        """Take samples, and start those async calls that they complete. Does not wait."""
        added = list(samples)
        mark_applicable([s.args for s in self.processor.streams.values()], added)
        for sample in added:
            row = len(self._samples)
            self._samples[row] = sample
            for name in self._lanes:
                if name in sample.applicable_rewards:
                    self._enqueue(self.processor.streams[name], row)

    def _enqueue(self, stream: Stream, row: int) -> None:
        sample = self._samples[row]
        key = (sample.source, sample.unique_id) if stream.is_groupwise else None
        if key in self._complete[stream.name]:
            raise DataError(
                f"stream {stream.name!r}: group {sample.unique_id!r} was complete with group_size "
                f"{self.group_size}, sample {row} is one more; group_size is the size of all"
            )
        rows = self._waiting[stream.name].setdefault(key, [])
        rows.append(row)
        full = self.group_size if stream.is_groupwise else stream.batch_size
        if full is not None and len(rows) == full:
            del self._waiting[stream.name][key]
            if stream.is_groupwise:
                self._complete[stream.name].add(key)
            self._start(stream, rows)

    def _start(self, stream: Stream, rows: list[int]) -> None:
        plan = self.processor.plan(stream, {row: self._samples[row] for row in rows})
        raise_first_fault(stream.name, plan.faults)
        for call in plan.calls:
            work = partial(self.processor.run_for, call, self._samples, self._columns[stream.name])
            self._futures.append(self._lanes[stream.name].submit(work))

    def finalize(
        self, store_to_samples: bool = True, split: Split = "all"
    ) -> "dict[str, torch.Tensor]":
        """Run what is left, wait, and return the rewards of all samples added; the buffer is then
        empty.

        Returns and raises as `RewardProcessor.compute_rewards`; a worker's error surfaces here.

        Raises:
            DataError: a group has not `group_size` members.
        """
        try:
            for name in self._lanes:
                self._flush(self.processor.streams[name])
            samples = list(self._samples.values())
            sync = [s for s in self.processor.streams_of(split) if s.name not in self._lanes]
            done = {s.name: self.processor.score_stream(s, self._samples) for s in sync}
            for future in self._futures:
                future.result()
            rows = range(len(samples))
            wanted = [s.name for s in self.processor.streams_of(split)]
            columns = {
                n: done[n] if n in done else [self._columns[n].get(r) for r in rows] for n in wanted
            }
            return store_rewards(columns, samples, store_to_samples=store_to_samples)
        finally:
            self.clear()

    def _flush(self, stream: Stream) -> None:
        waiting, self._waiting[stream.name] = self._waiting[stream.name], {}
        for rows in waiting.values():
            if stream.is_groupwise and self.group_size is not None:
                sample = self._samples[rows[0]]
                raise DataError(
                    f"stream {stream.name!r}: group {sample.unique_id!r} has {len(rows)} members, "
                    f"expected group_size {self.group_size}; add the others before finalize"
                )
            self._start(stream, rows)

    def shutdown(self) -> None:
        """Stop the worker threads; queued calls are dropped."""
        for lane in self._lanes.values():
            lane.close()
