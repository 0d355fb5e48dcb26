"""How many rows may fail, read from the command line and held during a run."""

import pytest
from probes import CALLS, ScoreProject

from rewardctl.errors import ContractError, PolicyStop, UsageError
from rewardctl.runs.policy import FailureLog, MaxErrors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", MaxErrors(rows=0)),
        ("20", MaxErrors(rows=20)),
        ("0%", MaxErrors(rows=None, percent=0.0)),
        ("2.5%", MaxErrors(rows=None, percent=2.5)),
        ("100%", MaxErrors(rows=None, percent=100.0)),
    ],
)
def test_a_limit_is_a_number_of_rows_or_a_share(text: str, expected: MaxErrors) -> None:
    assert MaxErrors.parse(text) == expected
    assert MaxErrors.parse(str(expected)) == expected


@pytest.mark.parametrize("text", ["", "-1", "1.5", "two", "101%", "-1%", "%", "5 %", "1e3", "nan%"])
def test_any_other_limit_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--max-errors '.*': expected a number of rows, as in 20"):
        MaxErrors.parse(text)


@pytest.mark.parametrize(
    ("text", "allows"), [("0", False), ("0%", False), ("1", True), ("0.1%", True)]
)
def test_a_limit_of_nothing_allows_nothing(text: str, allows: bool) -> None:
    assert MaxErrors.parse(text).allows_some is allows


@pytest.mark.parametrize(("failed", "exceeded"), [(2, False), (3, True)])
def test_a_number_is_judged_at_once(failed: int, exceeded: bool) -> None:
    limit = MaxErrors(rows=2)
    assert limit.is_exceeded(failed=failed, done=0, at_end=False) is exceeded


@pytest.mark.parametrize(
    ("failed", "done", "at_end", "exceeded"),
    [
        (999, 999, False, False),  # too early to say
        (101, 1000, False, True),
        (100, 1000, False, False),
        (1, 10, True, False),
        (2, 10, True, True),
        (1, 9, True, True),
    ],
)
def test_a_share_is_judged_at_the_end_and_after_a_thousand_rows(
    failed: int, done: int, at_end: bool, exceeded: bool
) -> None:
    limit = MaxErrors(rows=None, percent=10.0)
    assert limit.is_exceeded(failed=failed, done=done, at_end=at_end) is exceeded


def test_a_row_with_two_failed_cells_counts_once() -> None:
    log = FailureLog(MaxErrors(rows=1))
    log.note(3, "rows.jsonl:4: stream 'a': nonfinite: x")
    log.note(3, "rows.jsonl:4: stream 'b': nonfinite: x")
    assert log.failed == 1
    log.settle(3, "rows.jsonl")
    assert (log.failed, log.rendered, log.by_source) == (1, 1, {"rows.jsonl": 1})


def test_failures_of_rendered_rows_go_on_counting() -> None:
    log = FailureLog(MaxErrors(rows=5))
    log.rendered = 5
    log.check(done=10)
    log.note(11, "rows.jsonl:12: bad_row: x")
    with pytest.raises(PolicyStop):
        log.check(done=10)


def test_a_stop_names_the_limit_the_first_rows_and_the_next_step() -> None:
    log = FailureLog(MaxErrors(rows=1))
    for row in range(7):
        log.note(row, f"rows.jsonl:{row + 1}: bad_row: x")
    with pytest.raises(PolicyStop) as stop:
        log.check(done=0)
    assert str(stop.value).splitlines() == [
        "stopped: 7 rows failed, --max-errors allows 1",
        *(f"  rows.jsonl:{line}: bad_row: x" for line in range(1, 6)),
        "mend the rows, or allow more with --max-errors and go on with --resume",
    ]
    assert stop.value.exit_code == 1


def test_a_row_that_fails_in_every_stream_is_one_example() -> None:
    log = FailureLog(MaxErrors(rows=9))
    for row in range(2):
        for stream in "abcdef":
            log.note(row, f"rows.jsonl:{row + 1}: stream '{stream}': decode_error: x")
    assert log.examples == [
        "rows.jsonl:1: stream 'a': decode_error: x",
        "rows.jsonl:2: stream 'a': decode_error: x",
    ]


def test_one_failed_row_is_counted_in_the_singular() -> None:
    log = FailureLog(MaxErrors())
    log.note(0, "rows.jsonl:1: bad_row: x")
    with pytest.raises(PolicyStop, match=r"^stopped: 1 row failed, --max-errors allows 0\n"):
        log.check(done=0)


def test_a_run_stops_at_the_row_after_the_last_allowed(project: ScoreProject) -> None:
    rows = [{"prompt": "nan" if n % 2 else "1"} for n in range(8)]
    project.write(rows, [{"name": "a", "reward_model": "Number", "batch_size": 1}])
    assert project.score(max_errors="4")["counts"]["failed"] == 4
    with pytest.raises(PolicyStop, match="4 rows failed, --max-errors allows 3"):
        project.score(max_errors="3", overwrite=True)


def test_a_share_that_is_kept_everywhere_stops_no_run(
    project: ScoreProject, quick_runs: None
) -> None:
    rows = [{"prompt": "nan" if n % 100 < 9 else "1"} for n in range(3000)]
    project.write(rows, [{"name": "a", "reward_model": "Number"}], score={"window": 1000})
    assert project.score(max_errors="10%")["counts"]["failed"] == 270


def test_a_share_is_judged_again_at_the_end(project: ScoreProject) -> None:
    project.write([{"prompt": "nan"}, {"prompt": "1"}], [{"name": "a", "reward_model": "Number"}])
    with pytest.raises(PolicyStop, match="1 row failed, --max-errors allows 49%"):
        project.score(max_errors="49%")
    assert not project.out.exists()
    meta = project.score(max_errors="50%", resume=True)
    assert (meta["status"], meta["exit_code"], meta["counts"]["failed"]) == ("complete", 0, 1)
    assert project.column("a") == [None, 1.0]


def test_the_count_of_failures_goes_on_from_rendered_rows(project: ScoreProject) -> None:
    rows = [{"prompt": p} for p in ("nan", "1", "nan", "1")]
    project.write(rows, [{"name": "a", "reward_model": "Number"}], score={"window": 2})
    with pytest.raises(PolicyStop, match="2 rows failed, --max-errors allows 1"):
        project.score(max_errors="1")
    with pytest.raises(PolicyStop, match="2 rows failed, --max-errors allows 1"):
        project.score(max_errors="1", resume=True)
    assert project.score(max_errors="2", resume=True)["counts"]["failed"] == 2


@pytest.mark.parametrize("pace", [{}, {"async_reward": True}])
def test_a_broken_contract_stops_a_run_whatever_the_limit(
    project: ScoreProject, pace: dict[str, bool]
) -> None:
    rows = [{"prompt": "1"}] * 3
    project.write(rows, [{"name": "a", "reward_model": "OneForAll", "batch_size": 3, **pace}])
    wanted = (
        r"^stream 'a': returned 1 score for 3 inputs; .* "
        r"\(rows rows\.jsonl:1, rows\.jsonl:2, rows\.jsonl:3\)$"
    )
    with pytest.raises(ContractError, match=wanted) as refusal:
        project.score(max_errors="100%")
    assert refusal.value.exit_code == 4
    assert not project.out.exists()


def test_one_number_for_one_row_is_no_broken_contract(project: ScoreProject) -> None:
    rows = [{"prompt": "1"}] * 3
    project.write(rows, [{"name": "a", "reward_model": "OneForAll", "batch_size": 1}])
    project.score()
    assert project.column("a") == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("use_eval_rewards", "rows", "sizes"),
    [(False, 17, [4, 4, 4, 4, 1]), (True, 9, [2, 2, 2, 2, 1])],
)
def test_each_list_of_streams_has_its_own_batch_size(
    project: ScoreProject, use_eval_rewards: bool, rows: int, sizes: list[int]
) -> None:
    stream = {"name": "a", "reward_model": "Number", "batch_size": 4}
    other = {**stream, "reward_model": "probes:Number", "batch_size": 2}
    project.write([{"prompt": "1"}] * rows, [stream], eval_rewards=[other])
    project.score(use_eval_rewards=use_eval_rewards)
    assert [len(prompts) for _, prompts in CALLS] == sizes


def test_a_call_that_raises_fails_one_row_where_some_may_fail(project: ScoreProject) -> None:
    rows = [{"prompt": p} for p in ("1", "boom", "2")]
    project.write(rows, [{"name": "a", "reward_model": "Number"}])
    project.score(max_errors="1")
    assert project.column("a", "status") == ["ok", "model_error", "ok"]
    assert project.column("a", "errors")[1] == (
        "ValueError: could not convert string to float: 'boom'"
    )


def test_a_call_that_raises_is_made_once_where_none_may_fail(project: ScoreProject) -> None:
    rows = [{"prompt": p} for p in ("1", "boom", "2")]
    project.write(rows, [{"name": "a", "reward_model": "Number"}])
    with pytest.raises(PolicyStop, match=r"rows\.jsonl:1: stream 'a': model_error: ValueError"):
        project.score()
    assert CALLS == [("Number", ("1", "boom", "2"))]
