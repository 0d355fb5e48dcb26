"""Which rows go into which call: cut, split by fields, grouped, and failed before any call."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rewardctl.config.schema import RewardArguments
from rewardctl.data.samples import BaseSample
from rewardctl.errors import RowError
from rewardctl.rewards.abc import InputFields
from rewardctl.rewards.plan import (
    PlannedStream,
    StreamPlan,
    incomplete_group,
    mark_applicable,
    plan_groupwise,
    plan_pointwise,
)

FIELDS = InputFields(("prompt",), ("response", "image"), None)


def samples_of(texts: Sequence[str]) -> dict[int, BaseSample]:
    """A sample a text: `p`, `r` and `i` in it say which fields it has."""
    return {
        row: BaseSample(
            prompt="p" if "p" in text else None,
            response="r" if "r" in text else None,
            image="i" if "i" in text else None,
        )
        for row, text in enumerate(texts)
    }


def stream(name: str, **arguments: Any) -> RewardArguments:
    return RewardArguments(name=name, reward_model="length", **arguments)


def planned(batch_size: int, *, is_groupwise: bool = False) -> PlannedStream:
    return PlannedStream(stream("a"), FIELDS, is_groupwise=is_groupwise, batch_size=batch_size)


def pointwise(texts: Sequence[str], batch_size: int) -> StreamPlan:
    samples = samples_of(texts)
    return plan_pointwise(planned(batch_size), list(samples), samples)


def test_rows_are_cut_in_order_and_the_last_call_is_short() -> None:
    plan = pointwise(["p"] * 5, 2)
    assert [call.rows for call in plan.calls] == [(0, 1), (2, 3), (4,)]
    assert [call.number for call in plan.calls] == [0, 1, 2]
    assert {call.stream for call in plan.calls} == {"a"}


def test_no_rows_make_no_call() -> None:
    assert pointwise([], 2) == StreamPlan()


def test_a_row_without_a_required_field_leaves_its_call_one_shorter() -> None:
    plan = pointwise(["p", "", "p", "p"], 2)
    assert [call.rows for call in plan.calls] == [(0,), (2, 3)]
    assert plan.faults[1].status == "missing_field"
    assert str(plan.faults[1]) == "required field 'prompt' is missing"


def test_a_batch_of_which_nothing_is_left_makes_no_call() -> None:
    plan = pointwise(["", "", "p"], 2)
    assert [(call.number, call.rows) for call in plan.calls] == [(0, (2,))]
    assert sorted(plan.faults) == [0, 1]


def test_a_near_column_is_named_for_a_missing_field() -> None:
    samples = {0: BaseSample(metadata='{"promt": "x", "other": 1}')}
    plan = plan_pointwise(planned(1), [0], samples)
    assert str(plan.faults[0]) == (
        "required field 'prompt' is missing; the row has 'promt': rename it?"
    )


@pytest.mark.parametrize("metadata", ["not json", "[1]", '"promt"', None])
def test_metadata_of_any_kind_names_no_column(metadata: str | None) -> None:
    plan = plan_pointwise(planned(1), [0], {0: BaseSample(metadata=metadata)})
    assert str(plan.faults[0]) == "required field 'prompt' is missing"


def test_a_batch_is_cut_first_and_split_by_optional_fields_then() -> None:
    plan = pointwise(["p", "pr", "p", "pri", "pr"], 4)
    assert [(call.rows, call.fields) for call in plan.calls] == [
        ((0, 2), ("prompt",)),
        ((1,), ("prompt", "response")),
        ((3,), ("prompt", "response", "image")),
        ((4,), ("prompt", "response")),
    ]
    assert [call.number for call in plan.calls] == [0, 1, 2, 3]


def test_an_empty_text_is_a_field_that_is_there() -> None:
    plan = plan_pointwise(planned(1), [0], {0: BaseSample(prompt="", response="")})
    assert plan.calls[0].fields == ("prompt", "response")


def groupwise(
    texts: Sequence[str], groups: list[list[int]], failed: Sequence[int] = ()
) -> StreamPlan:
    samples: dict[int, BaseSample | RowError] = {**samples_of(texts)}
    samples |= {row: RowError("bad_row", "x") for row in failed}
    return plan_groupwise(planned(16, is_groupwise=True), groups, samples)


def test_a_group_is_one_call_of_any_size() -> None:
    plan = groupwise(["p"] * 6, [[0, 2, 4, 5], [1], [3]])
    assert [call.rows for call in plan.calls] == [(0, 2, 4, 5), (1,), (3,)]


def test_a_group_gets_an_optional_field_only_if_all_members_carry_it() -> None:
    plan = groupwise(["pr", "pri", "pri", "pi"], [[0, 1], [2], [3, 2]])
    assert [call.fields for call in plan.calls] == [
        ("prompt", "response"),
        ("prompt", "response", "image"),
        ("prompt", "image"),
    ]


def test_a_group_with_a_member_without_a_required_field_is_not_called() -> None:
    plan = groupwise(["p", "", "p", "p"], [[0, 1, 2], [3]])
    assert [(call.number, call.rows) for call in plan.calls] == [(1, (3,))]
    assert {row: fault.status for row, fault in plan.faults.items()} == {
        0: "group_incomplete",
        1: "missing_field",
        2: "group_incomplete",
    }
    assert str(plan.faults[0]) == "another member of its group has no score: missing_field"


def test_a_member_that_failed_before_keeps_its_status() -> None:
    plan = groupwise(["p", "p", "p"], [[0, 1, 2]], failed=[2])
    assert [plan.faults[row].status for row in range(3)] == [
        "group_incomplete",
        "group_incomplete",
        "bad_row",
    ]
    assert plan.calls == []


def test_several_failed_members_each_keep_their_own_status() -> None:
    faults = {1: RowError("decode_error", "x"), 2: RowError("bad_row", "y")}
    found = incomplete_group([0, 1, 2, 3], faults)
    assert found[1] is faults[1]
    assert found[2] is faults[2]
    assert str(found[0]) == "another member of its group has no score: decode_error"


def test_applicability_is_stored_by_dataset() -> None:
    streams = [
        stream("all"),
        stream("some", applicable_datasets=["x", "y"]),
        stream("none", applicable_datasets=[]),
    ]
    samples = [BaseSample(source=name) for name in ("x", "z", "y")]
    samples[0].applicable_rewards = {"stale"}
    mark_applicable(streams, samples)
    assert [s.applicable_rewards for s in samples] == [{"all", "some"}, {"all"}, {"all", "some"}]


@pytest.mark.parametrize("arguments", [{"applicable_datasets": ["x"]}, {"weight": {"x": 1.0}}])
def test_a_sample_of_no_dataset_is_refused_where_the_dataset_decides(
    arguments: dict[str, Any],
) -> None:
    wanted = "the sample names no dataset, but stream 'b' depends on it; set the sample's `source`"
    with pytest.raises(RowError, match=wanted):
        mark_applicable([stream("a"), stream("b", **arguments)], [BaseSample()])


def test_a_sample_of_no_dataset_is_scored_where_no_stream_asks_for_one() -> None:
    sample = BaseSample()
    mark_applicable([stream("a")], [sample])
    assert sample.applicable_rewards == {"a"}


kinds = st.lists(st.sampled_from(["p", "pr", "pi", "pri", "", "r"]), max_size=20)


@settings(deadline=None, max_examples=200)
@given(kinds, st.integers(1, 7))
def test_any_plan_covers_each_row_once_within_its_batch(texts: list[str], batch_size: int) -> None:
    plan = pointwise(texts, batch_size)
    called = [row for call in plan.calls for row in call.rows]
    assert sorted([*called, *plan.faults]) == list(range(len(texts)))
    assert set(plan.faults) == {row for row, text in enumerate(texts) if "p" not in text}
    for call in plan.calls:
        assert 1 <= len(call.rows) <= batch_size
        assert list(call.rows) == sorted(call.rows)
        assert len({row // batch_size for row in call.rows}) == 1
        kind = ["prompt", *(n for n in FIELDS.optional if n[0] in texts[call.rows[0]])]
        assert list(call.fields) == kind
        assert len({frozenset(texts[row]) for row in call.rows}) == 1
    batches = [call.rows[0] // batch_size for call in plan.calls]
    assert batches == sorted(batches)
    # Rows of one batch and one kind are not spread over two calls.
    assert len({(b, c.fields) for b, c in zip(batches, plan.calls, strict=True)}) == len(batches)


@settings(deadline=None, max_examples=100)
@given(kinds, st.lists(st.integers(0, 3), min_size=20, max_size=20))
def test_any_group_is_called_whole_or_not_at_all(texts: list[str], names: list[int]) -> None:
    groups: dict[int, list[int]] = {}
    for row in range(len(texts)):
        groups.setdefault(names[row], []).append(row)
    plan = groupwise(texts, list(groups.values()))
    whole = [tuple(rows) for rows in groups.values() if all("p" in texts[r] for r in rows)]
    assert [call.rows for call in plan.calls] == whole
    broken = {r for rows in groups.values() if tuple(rows) not in whole for r in rows}
    assert set(plan.faults) == broken
    for row in broken:
        expected = "group_incomplete" if "p" in texts[row] else "missing_field"
        assert plan.faults[row].status == expected
