"""Groups by (dataset, unique_id), indexed in a first pass, held against plain grouping."""

import pytest
from hypothesis import given, settings, strategies as st
from probes import CALLS, ScoreProject

from rewardctl.data.groups import (
    Group,
    GroupIndex,
    GroupIndexBuilder,
    check_same_group,
    group_digest,
)
from rewardctl.errors import DataError

Named = list[tuple[str, str]]


def index_of(names: Named) -> GroupIndex:
    """Row n stands at byte 10 n."""
    builder = GroupIndexBuilder()
    for row, (dataset, unique_id) in enumerate(names):
        builder.add(dataset, unique_id, row, 10 * row)
    return builder.build()


def test_no_rows_are_no_groups() -> None:
    index = index_of([])
    assert len(index) == 0
    assert index.largest() is None
    assert list(index.first_in(0, 100)) == []


def test_interleaved_members_come_in_input_order() -> None:
    index = index_of([("x", "g"), ("x", "h"), ("x", "g"), ("x", "h"), ("x", "g")])
    assert list(index.first_in(0, 5)) == [
        Group([0, 2, 4], [0, 20, 40]),
        Group([1, 3], [10, 30]),
    ]


def test_one_id_in_two_datasets_is_two_groups() -> None:
    assert len(index_of([("x", "g"), ("y", "g")])) == 2


def test_dataset_and_id_are_told_apart_where_they_meet() -> None:
    assert len({group_digest("ab", "c"), group_digest("a", "bc"), group_digest("", "abc")}) == 3
    assert group_digest("1:a", "") != group_digest("", "1:a")


def test_half_a_surrogate_pair_has_a_digest() -> None:
    assert len(group_digest("x", "\ud83d")) == 16


def test_a_group_belongs_to_the_window_of_its_first_member() -> None:
    index = index_of([("x", "g"), ("x", "h"), ("x", "g"), ("x", "i")])
    windows = [[g.rows for g in index.first_in(start, start + 2)] for start in (0, 2)]
    assert windows == [[[0, 2], [1]], [[3]]]


def test_the_largest_group_is_the_earliest_of_several() -> None:
    largest = index_of([("x", "i"), ("x", "g"), ("x", "h"), ("x", "h"), ("x", "g")]).largest()
    assert largest is not None
    assert largest.rows == [1, 4]


def test_rows_that_belong_to_no_group_may_lie_between() -> None:
    builder = GroupIndexBuilder()
    for row, offset in ((5, 70), (9, 130)):
        builder.add("x", "g", row, offset)
    assert list(builder.build().first_in(0, 10)) == [Group([5, 9], [70, 130])]


def test_members_that_name_another_group_are_noticed() -> None:
    check_same_group([("x", "g"), ("x", "g")], [3, 8])
    check_same_group([], [])
    wanted = (
        r"rows 3 and 8 were indexed as one group, but name \('x', 'g'\) and \('x', 'h'\); "
        "did the input change while it was scored"
    )
    with pytest.raises(DataError, match=wanted):
        check_same_group([("x", "g"), ("x", "g"), ("x", "h")], [3, 5, 8])


names_strategy = st.lists(
    st.tuples(st.sampled_from(["x", "y", ""]), st.sampled_from(["g", "h", "", "1"])), max_size=40
)


@settings(deadline=None, max_examples=200)
@given(names_strategy, st.integers(1, 9))
def test_any_index_is_as_grouping_by_a_dict(names: Named, window: int) -> None:
    expected: dict[tuple[str, str], list[int]] = {}
    for row, name in enumerate(names):
        expected.setdefault(name, []).append(row)
    index = index_of(names)
    assert len(index) == len(expected)
    found = [
        group
        for start in range(0, len(names), window)
        for group in index.first_in(start, start + window)
    ]
    assert [group.rows for group in found] == list(expected.values())
    assert all(group.offsets == [10 * row for row in group.rows] for group in found)
    if names:
        largest = index.largest()
        assert largest is not None
        assert largest.rows == max(expected.values(), key=len)


GROUPWISE = [{"name": "a", "reward_model": "AboveLowest"}]


def test_groups_are_scored_whole_across_windows_and_files(project: ScoreProject) -> None:
    names = [("x", "g"), ("y", "g"), ("x", 7), ("x", "g"), ("y", "g"), ("x", "7"), ("x", "g")]
    rows = [
        {"prompt": str(n), "dataset": dataset, "unique_id": group}
        for n, (dataset, group) in enumerate(names)
    ]
    project.write(rows, GROUPWISE, score={"window": 2})
    project.score()
    assert CALLS == [
        ("AboveLowest", ("1", "4")),
        ("AboveLowest", ("0", "3", "6")),
        ("AboveLowest", ("2", "5")),
    ]
    assert project.column("a") == [0.375, 0.25, 0.25, 3.375, 3.25, 3.25, 6.375]


def test_a_row_without_a_group_fails_alone_and_only_in_groupwise_streams(
    project: ScoreProject,
) -> None:
    rows = [{"prompt": "1", "unique_id": "g"}, {"prompt": "2"}, {"prompt": "3", "unique_id": "g"}]
    project.write(rows, [*GROUPWISE, {"name": "b", "reward_model": "Number"}])
    project.score(max_errors="1")
    assert project.column("a", "status") == ["ok", "missing_field", "ok"]
    assert project.column("b", "status") == ["ok", "ok", "ok"]
    assert project.column("a", "errors")[1] == (
        "groupwise stream 'a' needs unique_id (the id of the row's group), which is missing"
    )


@pytest.mark.parametrize(
    ("data", "dataset"), [("{folder}/rows.jsonl", "rows"), ("named={folder}/rows.jsonl", "named")]
)
def test_a_group_over_the_limit_is_found_before_a_model_loads(
    project: ScoreProject, data: str, dataset: str
) -> None:
    rows = [{"prompt": "1", "unique_id": "small"}] + [{"prompt": "1", "unique_id": "big"}] * 3
    project.write(rows, [{**GROUPWISE[0], "device": "cuda:99"}], score={"max_group_size": 2})
    with pytest.raises(DataError) as refusal:
        project.score(data=(data.format(folder=project.folder),))
    text = str(refusal.value)
    assert f"dataset '{dataset}'" in text
    assert "group 'big' has 3 rows, more than score.max_group_size (2)" in text
    assert refusal.value.exit_code == 3


def test_a_group_at_the_limit_is_scored(project: ScoreProject) -> None:
    rows = [{"prompt": "1", "unique_id": "g"}] * 2
    project.write(rows, GROUPWISE, score={"max_group_size": 2})
    assert project.score()["counts"]["ok"] == 2


def test_groups_that_no_groupwise_stream_applies_to_may_be_large(project: ScoreProject) -> None:
    rows = [{"prompt": "1", "unique_id": "g", "dataset": "y"}] * 3
    streams = [
        {**GROUPWISE[0], "applicable_datasets": ["x"]},
        {"name": "b", "reward_model": "Number"},
    ]
    project.write(rows, streams, score={"max_group_size": 2})
    project.score()
    assert project.column("a", "applicable") == [False] * 3
