"""What streams, datasets and weights mean together."""

from collections.abc import Callable

import pytest

from rewardctl.config.findings import Finding

Check = Callable[..., list[Finding]]

TWO = "data: {datasets: [{name: maths, path: m}, {name: code, path: c}]}\n"


def stream(keys: str, name: str = "a") -> str:
    return f"  - {{name: {name}, reward_model: length, {keys}}}\n"


def rewards(*streams: str) -> str:
    return "rewards:\n" + "".join(streams)


def codes(findings: list[Finding]) -> list[str]:
    return [f.code for f in findings]


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, [str(f) for f in findings]
    return findings[0]


def test_a_misspelt_dataset_in_a_weight_mapping_and_the_one_without_weight_are_named(
    check: Check,
) -> None:
    found = check(
        rewards(stream("applicable_datasets: [shapes, text], weight: {shapes: 1.0, txet: 0.5}"))
    )
    messages = {f.code: f for f in found}
    assert codes(found) == ["RC303", "RC302"]
    assert messages["RC303"].message == "stream 'a': weight has no number for dataset text"
    assert messages["RC302"].message == (
        "stream 'a': weight names 'txet', which is not in applicable_datasets"
    )
    assert messages["RC302"].hint == ("did you mean 'text'? in applicable_datasets: shapes, text")


def test_an_undeclared_dataset_is_refused_with_the_declared_ones(check: Check) -> None:
    found = check(TWO + rewards(stream("applicable_datasets: [code, math]"), stream("", "b")))
    finding = only(found)
    assert (finding.code, finding.place) == ("RC302", "rewards[0].applicable_datasets[1]")
    assert finding.message == "stream 'a' applies to 'math', which is not declared"
    assert finding.hint == "did you mean 'maths'? declared under data.datasets: maths, code"


def test_a_weight_mapping_without_applicable_datasets_names_every_declared_one(
    check: Check,
) -> None:
    finding = only(check(TWO + rewards(stream("weight: {maths: 1}"))))
    assert (finding.code, finding.message) == (
        "RC303",
        "stream 'a': weight has no number for dataset code",
    )


def test_a_weight_for_a_declared_dataset_outside_applicable_ones_is_refused(check: Check) -> None:
    keys = "applicable_datasets: [maths], weight: {maths: 1, code: 2}"
    finding = only(check(TWO + rewards(stream(keys), stream("", "b"))))
    assert (finding.code, finding.place) == ("RC303", "rewards[0].weight.code")


def test_a_weight_mapping_needs_names_where_nothing_is_declared(check: Check) -> None:
    finding = only(check(rewards(stream("weight: {maths: 1}"))))
    assert finding.code == "RC303"
    assert "needs applicable_datasets where no datasets are declared" in finding.message


def test_a_complete_weight_mapping_is_fine(check: Check) -> None:
    assert check(TWO + rewards(stream("weight: {maths: 1, code: 0}"))) == []


def test_stream_names_are_unique(check: Check) -> None:
    finding = only(check(rewards(stream(""), stream("weight: 2"))))
    assert (finding.code, finding.line) == ("RC301", 3)
    assert finding.message == "rewards[1].name is 'a', and so is rewards[0].name"


def test_eval_rewards_have_names_of_their_own(check: Check) -> None:
    assert check(rewards(stream("")) + "eval_rewards:\n" + stream("")) == []


def test_dataset_names_are_unique(check: Check) -> None:
    text = "data: {datasets: [{name: a, path: x}, {name: a, path: y}]}\n"
    assert only(check(text)).code == "RC301"


def test_a_stream_for_no_dataset_never_fires(check: Check) -> None:
    finding = only(check(rewards(stream("applicable_datasets: []"))))
    assert (finding.code, finding.severity) == ("RC304", "warning")
    assert "never fires" in finding.message


def test_a_dataset_named_twice_is_a_warning(check: Check) -> None:
    finding = only(check(rewards(stream("applicable_datasets: [x, x]"))))
    assert (finding.code, finding.severity) == ("RC301", "warning")


def test_a_dataset_without_any_stream_is_refused(check: Check) -> None:
    finding = only(check(TWO + rewards(stream("applicable_datasets: [code]"))))
    assert (finding.code, finding.place) == ("RC305", "data.datasets[0].name")
    assert finding.message == "no stream of rewards: applies to dataset 'maths'"


def test_a_dataset_without_any_stream_is_fine_without_feedback(check: Check) -> None:
    text = TWO + "execution: {feedback: none}\neval_rewards:\n"
    assert check(text + stream("applicable_datasets: [code]")) == []


def test_datasets_without_rewards_are_fine(check: Check) -> None:
    assert check(TWO) == []


def test_rewards_without_feedback_are_sent_to_eval_rewards(check: Check) -> None:
    finding = only(check("execution: {feedback: none}\n" + rewards(stream(""))))
    assert (finding.code, finding.line) == ("RC306", 2)
    assert finding.hint is not None
    assert "eval_rewards:" in finding.hint


def test_workers_without_async_have_no_effect(check: Check) -> None:
    finding = only(check(rewards(stream("num_workers: 2"))))
    assert (finding.code, finding.severity) == ("RC312", "warning")
    assert finding.message == "stream 'a': num_workers: 2 has no effect without async_reward"


@pytest.mark.parametrize(
    ("score", "rule"),
    [
        ("aggregate: weighted_mean", "aggregate: weighted_mean"),
        ("on_failure: renormalize", "on_failure: renormalize"),
    ],
)
def test_a_negative_weight_is_for_a_plain_sum_only(check: Check, score: str, rule: str) -> None:
    finding = only(check(f"score: {{{score}}}\n" + rewards(stream("weight: -0.5"))))
    assert (finding.code, finding.place) == ("RC307", "rewards[0].weight")
    assert finding.message == f"stream 'a': weight -0.5 is negative under {rule}"


def test_a_negative_weight_in_a_mapping_is_found(check: Check) -> None:
    keys = "applicable_datasets: [x, y], weight: {x: 1, y: -1}"
    found = check("score: {aggregate: weighted_mean}\n" + rewards(stream(keys)))
    assert only(found).place == "rewards[0].weight.y"


def test_a_negative_weight_is_legal_in_a_sum(check: Check) -> None:
    assert check(rewards(stream("weight: -1"))) == []


def test_a_mean_of_weights_that_are_all_0_is_refused(check: Check) -> None:
    text = "score: {aggregate: weighted_mean}\n" + rewards(
        stream("weight: 0"), stream("weight: 0", "b")
    )
    finding = only(check(text))
    assert (finding.code, finding.place) == ("RC307", "score.aggregate")


def test_a_mean_is_refused_for_the_dataset_whose_weights_are_0(check: Check) -> None:
    text = "score: {aggregate: weighted_mean}\n" + TWO
    finding = only(check(text + rewards(stream("weight: {maths: 0, code: 1}"))))
    assert (
        finding.message == "aggregate: weighted_mean where all weights of rewards are 0, for maths"
    )


def test_a_mean_with_one_weight_over_0_is_fine(check: Check) -> None:
    text = "score: {aggregate: weighted_mean}\n"
    assert check(text + rewards(stream("weight: 0"), stream("weight: 1", "b"))) == []


def test_meaning_is_checked_beside_a_misspelt_key(check: Check) -> None:
    found = check(TWO + rewards(stream("wieght: 2, applicable_datasets: [math, code]")))
    assert codes(found) == ["RC305", "RC203", "RC302"]


def test_a_misspelt_key_has_no_findings_for_its_default(check: Check) -> None:
    """The weight mapping is fine once `applicable_dataset` is spelt right."""
    found = check(rewards(stream("applicable_dataset: [x], weight: {x: 1}")))
    assert codes(found) == ["RC203"]


def test_a_bad_stream_hides_nothing_in_the_others(check: Check) -> None:
    found = check("rewards:\n  - {reward_model: length}\n" + stream("weight: {x: 1}"))
    assert codes(found) == ["RC202", "RC303"]


def test_eval_rewards_are_held_to_the_same_signs(check: Check) -> None:
    text = "score: {aggregate: weighted_mean}\n"
    text += "eval_rewards: [{name: e, reward_model: length, weight: -1}]\n"
    finding = only(check(text + rewards(stream("weight: 1"))))
    assert (finding.code, finding.place) == ("RC307", "eval_rewards[0].weight")
