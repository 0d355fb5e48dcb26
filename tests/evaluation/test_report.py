"""The report: which pairs enter which figure, and why a figure is null."""

import json
import math
from typing import Any

import pytest

Stored = Any  # StoredFile of conftest.py


def test_ties_are_counted_and_both_accuracies_given(stored: Stored) -> None:
    for scores in ([2.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [2.0, 2.0]):
        stored.add(scores)
    figures = stored.figures()
    assert figures["n_pairs"] == 6
    assert figures["accuracy"]["value"] == pytest.approx(3.5 / 6)
    assert figures["accuracy_strict"]["value"] == pytest.approx(2 / 6)
    assert (figures["n_tied_pred"], figures["n_tied_label"]) == (3, 0)


def test_figures_are_means_over_pairs(stored: Stored) -> None:
    for scores in ([2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 1.0]):
        stored.add(scores)
    figures = stored.figures()
    assert figures["accuracy"]["value"] == 0.8
    assert figures["score_gap"]["value"] == 1.4
    log_loss = (4 * math.log1p(math.exp(-2)) + math.log1p(math.exp(1))) / 5
    assert figures["log_loss"]["value"] == pytest.approx(log_loss, rel=1e-14)


def test_a_tied_label_enters_no_figure_and_is_counted(stored: Stored) -> None:
    stored.add([1.0, 0.0])
    stored.add([9.0, 0.0], preference=0.5)
    figures = stored.figures()
    assert (figures["n_pairs"], figures["n_tied_label"]) == (1, 1)
    assert figures["score_gap"]["value"] == 1.0


def test_a_preference_below_a_half_counts_as_its_swap(stored: Stored) -> None:
    stored.add([0.0, 2.0], preference=0.25)
    figures = stored.figures()
    assert (figures["accuracy"]["value"], figures["score_gap"]["value"]) == (1.0, 2.0)
    expected = 0.75 * math.log1p(math.exp(-2)) + 0.25 * math.log1p(math.exp(2))
    assert figures["log_loss"]["value"] == pytest.approx(expected)


def test_pairs_without_two_scores_are_left_out_and_counted(stored: Stored) -> None:
    stored.add([1.0, 0.0])
    stored.add([None, None])
    stored.add([1.0, "model_error"])
    stored.add_unread()
    figures = stored.figures()
    assert (figures["n_pairs"], figures["n_not_applicable"], figures["n_failed"]) == (1, 1, 2)
    assert figures["accuracy"]["value"] == 1.0
    assert stored.report()["n_rows"] == 4


def test_a_stream_without_a_pair_says_so(stored: Stored) -> None:
    stored.add([None, None], prompt="p")
    figures = stored.figures()
    assert figures["n_pairs"] == 0
    assert figures["accuracy"]["value"] is None
    assert figures["reasons"]["accuracy"].startswith("no pair has an untied label")
    assert figures["score_gap_statistics"] is None


def test_ranked_candidates_give_pairs_and_rank_figures(stored: Stored) -> None:
    # Labels 3 > 2 = 2, scores 1, 0, 2: of two untied pairs one is right; the best is not first.
    stored.add([1.0, 0.0, 2.0], labels=[3.0, 2.0, 2.0])
    figures = stored.figures()
    assert (figures["n_pairs"], figures["n_tied_label"]) == (2, 1)
    assert figures["accuracy"]["value"] == 0.5
    assert figures["kendall_tau_b"]["value"] == 0.0
    assert figures["best_of_n"]["value"] == 0.0
    assert figures["ranking"] == {
        "n_rows": 1,
        "n_left_out": 0,
        "n_undefined": 0,
        "best_of_n_by_chance": pytest.approx(1 / 3),
    }


def test_rows_whose_ranking_is_undefined_or_not_whole_are_counted(stored: Stored) -> None:
    stored.add([1.0, 2.0, 3.0], labels=[1.0, 2.0, 3.0])
    stored.add([1.0, 1.0, 1.0], labels=[1.0, 2.0, 3.0])
    stored.add([1.0, "nonfinite", 3.0], labels=[1.0, 2.0, 3.0])
    figures = stored.figures()
    assert figures["kendall_tau_b"]["value"] == 1.0
    assert figures["spearman"]["value"] == 1.0
    assert figures["ranking"]["n_undefined"] == 1
    assert figures["ranking"]["n_left_out"] == 1
    assert figures["best_of_n"]["value"] == pytest.approx((1 + 1 / 3) / 2)
    # The third row still has the pair of its first and last candidate.
    assert (figures["n_pairs"], figures["n_failed"]) == (7, 2)


def test_human_scores_are_compared_over_all_rows_but_ranks_are_not(stored: Stored) -> None:
    stored.add([1.0, 2.0], labels=[10.0, 20.0], kind="score")
    stored.add([4.0, 3.0], labels=[30.0, 40.0], kind="score")
    # Scores 1 2 4 3 beside 10 20 30 40: 1 - 6 * 2 / (4 * 15)
    figures = stored.figures()
    assert figures["rank_agreement"] == {"spearman": pytest.approx(0.8), "n_candidates": 4}


def test_ranks_of_different_rows_are_not_compared(stored: Stored) -> None:
    stored.add([1.0, 2.0], labels=[1.0, 2.0])
    figures = stored.figures()
    assert figures["rank_agreement"] is None
    assert figures["reasons"]["rank_agreement"] == "no candidate has a human score and a score"


def test_tables_have_macro_and_micro_means(stored: Stored) -> None:
    for dataset, scores in (("a", [1.0, 0.0]), ("a", [1.0, 0.0]), ("b", [0.0, 1.0])):
        stored.add(scores, dataset=dataset, subset=f"of {dataset}")
    figures = stored.figures()
    for table in ("datasets", "subsets"):
        assert figures[table]["macro_accuracy"] == 0.5
        assert figures[table]["micro_accuracy"] == pytest.approx(2 / 3)
    assert figures["datasets"]["table"]["a"] == {
        "n_pairs": 2,
        "accuracy": {"value": 1.0, "low": None, "high": None, "n_clusters": None},
        "accuracy_strict": 1.0,
        "n_tied_pred": 0,
        "log_loss": pytest.approx(math.log1p(math.exp(-1))),
        "score_gap": 1.0,
    }


def test_timesteps_are_binned_with_one_in_the_last(stored: Stored) -> None:
    for timestep, scores in ((0.05, [1.0, 0.0]), (0.95, [0.0, 1.0]), (1, [1.0, 0.0])):
        stored.add(scores, timestep=timestep)
    table = stored.figures()["timesteps"]
    assert [(e["low"], e["n_pairs"], e["accuracy"]["value"]) for e in table] == [
        (0.0, 1, 1.0),
        (0.9, 2, 0.5),
    ]


def test_length_says_what_a_ruler_would(stored: Stored) -> None:
    stored.add([1.0, 0.0], lengths=[20, 10])
    stored.add([0.0, 1.0], lengths=[100, 95])
    stored.add([1.0, 0.0], lengths=[7, 7])
    stored.add([1.0, 0.0], lengths=[None, 3])
    found = stored.figures()["length"]
    assert found["n_pairs"] == 3
    assert found["baseline_accuracy"] == pytest.approx(2.5 / 3)
    assert found["near_equal"] == {"n_pairs": 2, "accuracy": 0.5}
    # Gaps 1, -1, 1 beside length gaps 10, 5, 0: ranks 2.5 1 2.5 beside 3 2 1
    assert found["correlation"] == pytest.approx(0.0)


def test_lengths_that_never_differ_have_no_correlation(stored: Stored) -> None:
    stored.add([1.0, 0.0], lengths=[5, 5])
    stored.add([0.0, 1.0], lengths=[4, 4])
    figures = stored.figures()
    assert figures["length"]["correlation"] is None
    assert figures["reasons"]["length.correlation"].startswith("all score gaps, or all length")


def test_what_a_column_is_missing_for_is_null_with_the_reason(stored: Stored) -> None:
    stored.add([1.0, 0.0])
    stored.add([0.0, 1.0])
    figures = stored.figures()
    assert figures["accuracy"] == {"value": 0.5, "low": None, "high": None, "n_clusters": None}
    assert [figures[name] for name in ("subsets", "timesteps", "length", "swap_probe")] == [
        None
    ] * 4
    assert figures["reasons"] == {
        "intervals": "no row has the cluster column 'prompt'",
        "temperature": "no finite one: the scores do not agree with the labels",
        "kendall_tau_b": "no row has ranked candidates",
        "spearman": "no row has ranked candidates",
        "best_of_n": "no row has ranked candidates",
        "ranking": "no row has ranked candidates",
        "rank_agreement": "no candidate has a human score and a score",
        "subsets": "no row has a column 'subset'",
        "timesteps": "no pair has a timestep",
        "length": "no pair has sides with a length in characters",
        "score_by_length": "no scored side has a length in characters",
        "worst_pairs.texts": "no text of a prompt or response is stored in these rows",
        "swap_probe": "stored scores: there is no model to ask",
        "batch_probe": "stored scores: there is no model to ask",
    }


def test_intervals_are_over_clusters(stored: Stored) -> None:
    for prompt in range(25):
        stored.add([1.0, 0.0], prompt=f"p{prompt}")
        stored.add([0.0, 1.0], prompt=f"p{prompt}")
    figures = stored.figures()
    # Each prompt is right once and wrong once.
    assert figures["accuracy"] == {"value": 0.5, "low": 0.5, "high": 0.5, "n_clusters": 25}


def test_rows_without_the_cluster_column_are_clusters_of_their_own(stored: Stored) -> None:
    stored.add([1.0, 0.0], topic="x")
    stored.add([1.0, 0.0], topic="x")
    stored.add([1.0, 0.0])
    found = stored.figures(cluster="topic")["accuracy"]
    assert (found["n_clusters"], found["unreliable"]) == (2, True)


def test_one_cluster_gives_no_interval(stored: Stored) -> None:
    stored.add([1.0, 0.0], prompt="p")
    figures = stored.figures()
    assert figures["accuracy"]["low"] is None
    assert figures["reasons"]["intervals"] == "all pairs are of one 'prompt'"


def test_the_order_of_rows_changes_no_bit_of_the_figures(stored: Stored, new_stored: Any) -> None:
    rows = [([n * 0.37 % 1.1, n * 0.61 % 0.9], f"p{n % 9}", n % 7) for n in range(60)]
    back = new_stored("back")
    for scores, prompt, length in rows:
        stored.add(scores, prompt=prompt, lengths=[length, 3])
    for scores, prompt, length in reversed(rows):
        back.add(scores, prompt=prompt, lengths=[length, 3])
    first, second = stored.figures(), back.figures()
    # The same pairs are worst; where they stand in the file is another place.
    worst = [[pair["score_gap"] for pair in f.pop("worst_pairs")] for f in (first, second)]
    assert worst[0] == worst[1]
    assert json.dumps(first) == json.dumps(second)


def test_streams_are_compared_on_the_pairs_that_both_scored(stored: Stored) -> None:
    stored.add({"a": [1.0, 0.0], "b": [0.0, 1.0]}, prompt="1")
    stored.add({"a": [1.0, 0.0], "b": [1.0, 0.0]}, prompt="2")
    stored.add({"a": [1.0, 0.0], "b": [None, None]}, prompt="3")
    (found,) = stored.report()["comparisons"]
    assert (found["a"], found["b"], found["n_pairs"]) == ("a", "b", 2)
    assert (found["accuracy_a"], found["accuracy_b"]) == (1.0, 0.5)
    assert (found["n_a_better"], found["n_b_better"]) == (1, 0)
    # Two clusters with differences 1 and 0: both ends are drawn.
    assert found["difference"] == {
        "value": 0.5,
        "low": 0.0,
        "high": 1.0,
        "n_clusters": 2,
        "unreliable": True,
    }


def test_every_convention_is_named(stored: Stored) -> None:
    stored.add([1.0, 0.0])
    conventions = stored.report()["conventions"]
    assert conventions["accuracy"] == "mean over pairs; equal scores count half"
    assert "n_tied_label" in conventions["n_pairs"]


def test_tables_have_intervals_over_the_clusters_of_their_own_pairs(stored: Stored) -> None:
    for prompt in range(20):
        stored.add([1.0, 0.0], prompt=f"p{prompt}", subset="many")
        stored.add([0.0, 1.0], prompt=f"p{prompt}", subset="many")
    for prompt, scores in enumerate(([1.0, 0.0], [0.0, 1.0])):
        stored.add(scores, prompt=f"p{prompt}", subset="two", timestep=0.5)
    stored.add([1.0, 0.0], prompt="p0", subset="one")
    figures = stored.figures()
    table = {name: entry["accuracy"] for name, entry in figures["subsets"]["table"].items()}
    # Each prompt of "many" is right once and wrong once; of the two of "two" both may be drawn
    # twice, which happens in a quarter of the draws each.
    few = {"value": 0.5, "low": 0.0, "high": 1.0, "n_clusters": 2, "unreliable": True}
    assert table == {
        "many": {"value": 0.5, "low": 0.5, "high": 0.5, "n_clusters": 20},
        "one": {"value": 1.0, "low": None, "high": None, "n_clusters": 1, "unreliable": True},
        "two": few,
    }
    assert figures["timesteps"][0]["accuracy"] == few
    assert figures["datasets"]["table"]["d"]["accuracy"] == figures["accuracy"]
    assert figures["subsets"]["macro_accuracy"] == pytest.approx(2 / 3)


def test_chosen_and_rejected_scores_are_counted_in_the_same_bins(stored: Stored) -> None:
    stored.add([0.0, 20.0])
    stored.add([19.5, 10.5])
    stored.add([3.0, 3.0], preference=0.5)  # a tied label: neither side is better
    stored.add([2.5, 0.5], preference=0.0)  # the second side is the better one
    histogram = stored.figures()["score_histogram"]
    assert histogram["edges"] == pytest.approx([float(edge) for edge in range(21)])
    bins = {name: dict(enumerate(histogram[name])) for name in ("chosen", "rejected")}
    counts = {name: {b: n for b, n in found.items() if n} for name, found in bins.items()}
    assert counts == {"chosen": {0: 2, 19: 1}, "rejected": {2: 1, 10: 1, 19: 1}}


def test_a_stream_without_a_pair_has_no_plots(stored: Stored) -> None:
    stored.add([None, None], lengths=[1, 2])
    figures = stored.figures()
    assert figures["score_histogram"] is None
    assert figures["score_by_length"] is None
    assert figures["worst_pairs"] == []


def test_scores_stand_beside_lengths_in_order_of_length(stored: Stored) -> None:
    stored.add([1.0, 2.0], lengths=[30, 10])
    stored.add([4.0, "model_error"], lengths=[20, 5])
    stored.add([5.0, 6.0], lengths=[None, 10])
    assert stored.figures()["score_by_length"] == {
        "n_sides": 4,
        "lengths": [10.0, 10.0, 20.0, 30.0],
        "scores": [2.0, 6.0, 4.0, 1.0],
    }


def test_of_many_sides_500_are_drawn_evenly(stored: Stored) -> None:
    for n in range(499):
        stored.add([float(2 * n), float(2 * n + 1)], lengths=[2 * n, 2 * n + 1])
    stored.add([998.0, None], lengths=[998, None])
    # 999 sides of lengths 0, 1, ... 998: every second one.
    found = stored.figures()["score_by_length"]
    assert found["n_sides"] == 999
    assert found["lengths"] == found["scores"] == [2.0 * n for n in range(500)]


def test_the_ten_lowest_gaps_are_the_worst_pairs(stored: Stored) -> None:
    for n in range(12):
        stored.add([0.0, float(n % 11)], texts=[f"c{n}", f"r{n}"], question=f"q{n}")
    stored.add([5.0, 1.0], texts=["c", "r"], question="q")
    worst = stored.figures()["worst_pairs"]
    assert [pair["score_gap"] for pair in worst] == [-float(n) for n in range(10, 0, -1)]
    assert worst[0] == {
        "place": "pairs.jsonl:11",
        "score_gap": -10.0,
        "prompt": "q10",
        "chosen": {"side": "chosen", "score": 0.0, "response": "c10"},
        "rejected": {"side": "rejected", "score": 10.0, "response": "r10"},
    }


def test_of_equal_gaps_the_first_rows_are_shown(stored: Stored) -> None:
    for _ in range(12):
        stored.add([0.0, 1.0])
    places = [pair["place"] for pair in stored.figures()["worst_pairs"]]
    assert places == [f"pairs.jsonl:{line}" for line in range(1, 11)]


def test_right_and_tied_pairs_are_none_of_the_worst(stored: Stored) -> None:
    stored.add([1.0, 0.0])
    stored.add([1.0, 1.0])
    stored.add([0.0, 9.0], preference=0.5)
    assert stored.figures()["worst_pairs"] == []


def test_the_better_side_is_the_chosen_one_of_a_worst_pair(stored: Stored) -> None:
    stored.add([3.0, 1.0], preference=0.2, texts=["first", "second"])
    stored.add([1.0, 0.0, 4.0], labels=[1.0, 2.0, 0.0], texts=["x", "y", "z"])
    worst = stored.figures()["worst_pairs"]
    sides = [(pair["chosen"]["side"], pair["rejected"]["side"]) for pair in worst]
    # Gaps -4 and -3 of the candidates, -2 of the pair, -1 of the candidates.
    assert sides == [(1, 2), (0, 2), ("rejected", "chosen"), (1, 0)]
    assert worst[2]["chosen"] == {"side": "rejected", "score": 1.0, "response": "second"}
    assert worst[2]["prompt"] is None
