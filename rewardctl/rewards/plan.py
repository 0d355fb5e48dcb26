"""Which rows go into which call. A pure function of streams and samples: never of time or
workers.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from rewardctl.config.schema import RewardArguments
from rewardctl.data.samples import BaseSample
from rewardctl.errors import RowError
from rewardctl.rewards.abc import InputFields


@dataclass(frozen=True, slots=True)
class Call:
    """One invocation of a reward model: rows in the order it is given them, and the fields they
    carry.
    """

    stream: str
    number: int  # within its stream and window
    rows: tuple[int, ...]
    fields: tuple[str, ...]


@dataclass(frozen=True)
class PlannedStream:
    """What a plan needs to know of a stream."""

    args: RewardArguments
    fields: InputFields
    is_groupwise: bool  # its calls are whole groups
    batch_size: int  # most rows of a pointwise call

    @property
    def name(self) -> str:
        """Its name in the config and in every output row."""
        return self.args.name


@dataclass(slots=True)
class StreamPlan:
    """The calls of one stream over some rows, and the rows that failed before any call."""

    calls: list[Call] = field(default_factory=list)
    faults: dict[int, RowError] = field(default_factory=dict)


def mark_applicable(streams: Iterable[RewardArguments], samples: Iterable[BaseSample]) -> None:
    """Store in each sample the names of the streams that apply to its dataset.

    Raises:
        RowError: a sample names no dataset (`source`) where a stream applies to some datasets only.
    """
    arguments = list(streams)
    by_dataset: dict[str | None, frozenset[str]] = {}
    for sample in samples:
        names = by_dataset.get(sample.source)
        if names is None:
            names = by_dataset[sample.source] = _applicable_names(arguments, sample.source)
        sample.applicable_rewards = set(names)


def _applicable_names(streams: Sequence[RewardArguments], dataset: str | None) -> frozenset[str]:
    if dataset is None:
        for stream in streams:
            if stream.applicable_datasets is not None or isinstance(stream.weight, dict):
                raise RowError(
                    "bad_row",
                    f"the sample names no dataset, but stream {stream.name!r} depends on it; "
                    "set the sample's `source`",
                )
    return frozenset(s.name for s in streams if s.applies_to(dataset))


def plan_pointwise(
    stream: PlannedStream, rows: Sequence[int], samples: Mapping[int, BaseSample]
) -> StreamPlan:
    """Cut `rows` (applicable, in order) into calls of its batch size, the last one short.

    A row without a required field leaves its call one shorter; no later row takes its place. Rows
    of a call that carry different optional fields are split into calls by that pattern, in order of
    first appearance.
    """
    plan, fields = StreamPlan(), stream.fields
    for start in range(0, len(rows), stream.batch_size):
        patterns: dict[tuple[str, ...], list[int]] = {}
        for row in rows[start : start + stream.batch_size]:
            sample = samples[row]
            missing = _missing_field(fields, sample)
            if missing is not None:
                plan.faults[row] = _missing_fault(missing, sample)
                continue
            patterns.setdefault(_present(fields, sample), []).append(row)
        for present, members in patterns.items():
            number = len(plan.calls)
            plan.calls.append(Call(stream.name, number, tuple(members), fields.required + present))
    return plan


def plan_groupwise(
    stream: PlannedStream,
    groups: Iterable[Sequence[int]],
    samples: Mapping[int, BaseSample | RowError],
) -> StreamPlan:
    """One call for each group (rows in order). A group with a failed member is not called.

    A member that failed before keeps its own status; the others become `group_incomplete`. An
    optional field is passed only if all members carry it.
    """
    plan, fields = StreamPlan(), stream.fields
    for number, rows in enumerate(groups):
        faults: dict[int, RowError] = {}
        members: list[BaseSample] = []
        for row in rows:
            sample = samples[row]
            if isinstance(sample, RowError):
                faults[row] = sample
                continue
            missing = _missing_field(fields, sample)
            if missing is not None:
                faults[row] = _missing_fault(missing, sample)
            members.append(sample)
        if faults:
            plan.faults |= incomplete_group(rows, faults)
            continue
        present = tuple(f for f in fields.optional if all(_has(m, f) for m in members))
        plan.calls.append(Call(stream.name, number, tuple(rows), fields.required + present))
    return plan


def incomplete_group(
    rows: Sequence[int], faults: Mapping[int, RowError], *, names: Mapping[int, str] | None = None
) -> dict[int, RowError]:
    """The faults of a group's failed members, and `group_incomplete` for the others."""
    first = next(iter(faults))
    named = f" ({names[first]})" if names else ""
    why = f"another member of its group{named} has no score: {faults[first].status}"
    return {row: faults.get(row) or RowError("group_incomplete", why) for row in rows}


def _has(sample: BaseSample, name: str) -> bool:
    return getattr(sample, name, None) is not None


def _missing_field(fields: InputFields, sample: BaseSample) -> str | None:
    for name in fields.required:
        if getattr(sample, name, None) is None:
            return name
    return None


def _present(fields: InputFields, sample: BaseSample) -> tuple[str, ...]:
    return tuple(f for f in fields.optional if _has(sample, f)) if fields.optional else ()


def _missing_fault(name: str, sample: BaseSample) -> RowError:
    near = get_close_matches(name, _other_columns(sample), n=1)
    hint = f"; the row has {near[0]!r}: rename it?" if near else ""
    return RowError("missing_field", f"required field {name!r} is missing{hint}")


def _other_columns(sample: BaseSample) -> list[str]:
    """Columns that became metadata: where a misspelt field name ends up."""
    try:
        metadata = json.loads(sample.metadata or "{}")
    except ValueError:
        return []
    return [str(key) for key in metadata] if isinstance(metadata, dict) else []
