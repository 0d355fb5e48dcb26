"""The pages: one file, nothing from a network, what rows say escaped."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rewardctl.errors import DataError, RunError
from rewardctl.evaluation.html import write_page, write_score_report

Stored = Any  # StoredFile of conftest.py
HOSTILE = "<script>alert(1)</script>&\"'"


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words = ""
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [str(v) for k, v in attrs if k in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        self.words += data


def test_the_report_is_one_page_with_its_plots(stored: Stored, tmp_path: Path) -> None:
    for n in range(4):
        stored.add([1.0 + n, 0.0], prompt=f"p{n}", subset="easy", timestep=0.5, lengths=[2, 3])
    stored.add([1.0, 2.0, 0.0], labels=[1.0, 2.0, 3.0], prompt="k")
    write_page(stored.report(), tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert page.tags.count("svg") == 4  # two histograms, reliability, score over length
    assert not page.links
    assert "script" not in page.tags
    for word in ("Kendall tau-b", "easy", "0.5 to 0.6", "equal scores count half"):
        assert word in page.words


def test_what_a_row_says_is_text(stored: Stored, tmp_path: Path) -> None:
    stored.add([1.0, 0.0], dataset=HOSTILE, subset=HOSTILE)
    write_page(stored.report(cluster=HOSTILE), tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert "script" not in page.tags
    assert HOSTILE in page.words


def test_the_worst_pairs_are_shown_with_their_texts_as_text(stored: Stored, tmp_path: Path) -> None:
    stored.add([1.5, 4.0], texts=[f"good {HOSTILE}", f"bad {HOSTILE}"], question=HOSTILE)
    stored.add([1.0, 9.0, 2.0], labels=[3.0, 2.0, 1.0])
    write_page(stored.report(), tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert not {"script", "img"} & set(page.tags)
    assert "Pairs ranked worst" in page.words
    assert page.words.count(HOSTILE) == 3
    for words in ("pairs.jsonl:1-2.5", f"1.5good {HOSTILE}", f"4bad {HOSTILE}", "9 (candidate 1)–"):
        assert words in page.words.replace("\n", "")


def test_accuracy_by_subset_is_shown_with_its_interval(stored: Stored, tmp_path: Path) -> None:
    for n in range(2):
        stored.add([float(n), 0.5], prompt=f"p{n}", subset="easy", timestep=0.5)
    write_page(stored.report(), tmp_path / "report.html")
    # In the first table, by dataset, by subset and by timestep.
    assert Page(tmp_path / "report.html").words.count("0.5 [0,\u00a01] (unreliable)") == 5


def test_the_count_of_clusters_stands_apart_from_their_name(stored: Stored, tmp_path: Path) -> None:
    stored.add([1.0, 0.0], prompt="p")
    write_page(stored.report(), tmp_path / "report.html")
    assert "clustered by\nprompt (1 clusters)." in Page(tmp_path / "report.html").words


def test_a_stream_without_pairs_has_a_page(stored: Stored, tmp_path: Path) -> None:
    stored.add([None, "model_error"])
    write_page(stored.report(), tmp_path / "report.html")
    assert "no pair has an untied label" in Page(tmp_path / "report.html").words


def test_a_page_that_cannot_be_written_is_an_error(stored: Stored, tmp_path: Path) -> None:
    stored.add([1.0, 0.0])
    with pytest.raises(RunError, match=r"none.report\.html"):
        write_page(stored.report(), tmp_path / "none" / "report.html")


META = {
    "counts": {"rows": 3, "ok": 2, "failed": 1, "nothing_applicable": 0},
    "streams": {"s": {"failed": 1, "failed_by_status": {"model_error": 1}}},
    "failures": {"examples": [HOSTILE], "by_source": {"rows.jsonl": 1}},
}


def test_scores_are_shown_by_dataset_with_their_failures(tmp_path: Path) -> None:
    rows = [("a", 1.0), ("a", 3.0), (HOSTILE, 5.0), ("a", None)]
    scores, page = tmp_path / "out.jsonl", tmp_path / "out.html"
    scores.write_text(
        "".join(json.dumps({"dataset": d, "scores": {"s": x}}) + "\n" for d, x in rows)
    )
    write_score_report(scores, META, page)
    found = Page(page)
    assert "script" not in found.tags
    assert found.words.count(HOSTILE) == 3  # in the table, under its plot, among the failures
    assert found.tags.count("svg") == 2
    assert "model_error 1" in found.words


def test_a_file_that_score_did_not_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"scores": [1]}\n')
    with pytest.raises(DataError, match=r"x\.jsonl:1: expected a row that score wrote"):
        write_score_report(tmp_path / "x.jsonl", META, tmp_path / "x.html")
