"""The data that ship: licences, rows and pictures are there and fit each other."""

import gzip
import hashlib
import json
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image, ImageChops, ImageStat

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FOLDERS = sorted(path for path in (EXAMPLES / "data").iterdir() if path.is_dir())
ROW_FILES = sorted([*EXAMPLES.rglob("*.jsonl"), *EXAMPLES.rglob("*.jsonl.gz")])
UKP = EXAMPLES / "data" / "ukp-convarg"
PAIR_FILES = [UKP / "train.jsonl.gz", UKP / "validation.jsonl.gz"]
CONFIGS = sorted(EXAMPLES.rglob("*.yaml"))


def name_of(path: Path) -> str:
    """A path for the name of a test."""
    return path.relative_to(EXAMPLES).as_posix()


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file, compressed or not."""
    stored = path.read_bytes()
    text = (gzip.decompress(stored) if path.suffix == ".gz" else stored).decode("utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def media_of(row: dict[str, Any]) -> list[str]:
    """The files that a row names."""
    media = [row["image"]] if "image" in row else []
    return [path for path in media + row.get("video", []) if not path.startswith("data:")]


def test_the_four_sets_are_the_ones_that_may_be_shipped() -> None:
    assert [folder.name for folder in FOLDERS] == [
        "llmbar-natural",
        "ocr-prompts",
        "ukp-convarg",
        "videoalign-examples",
    ]


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_each_set_says_where_it_is_from_and_what_was_changed(folder: Path) -> None:
    readme = (folder / "README.md").read_text(encoding="utf-8")
    for part in ("https://github.com/", "Licence:", "Citation:", "Changes:", "Fields:"):
        assert part in readme


@pytest.mark.parametrize(
    ("folder", "terms"),
    [
        ("llmbar-natural", "Copyright (c) 2023 Princeton Natural Language Processing"),
        ("ocr-prompts", "Permission is hereby granted, free of charge"),
        ("ukp-convarg", "https://creativecommons.org/licenses/by/4.0/legalcode"),
        ("videoalign-examples", "Copyright (c) 2025 Kling Team, Kuaishou Technology"),
    ],
)
def test_each_set_carries_its_licence(folder: str, terms: str) -> None:
    assert terms in (EXAMPLES / "data" / folder / "LICENSE").read_text(encoding="utf-8")


def test_the_data_stay_small() -> None:
    sizes = [path.stat().st_size for path in EXAMPLES.rglob("*") if path.is_file()]
    assert sum(sizes) < 1_500_000


@pytest.mark.parametrize("path", ROW_FILES, ids=name_of)
def test_rows_have_a_prompt_and_a_name_of_their_own(path: Path) -> None:
    rows = rows_of(path)
    assert rows
    assert all(row["prompt"] for row in rows)
    assert len({row["id"] for row in rows}) == len(rows)


@pytest.mark.parametrize("path", ROW_FILES, ids=name_of)
def test_all_media_that_rows_name_are_there_and_none_is_left_over(path: Path) -> None:
    named = {path.parent / file for row in rows_of(path) for file in media_of(row)}
    there = {*path.parent.rglob("*.png"), *path.parent.rglob("*.jpg")}
    assert named == there


@pytest.mark.parametrize("folder", ["ukp-convarg", "llmbar-natural"])
def test_a_group_is_one_preferred_response_and_one_that_is_not(folder: str) -> None:
    (path,) = (EXAMPLES / "data" / folder).glob("*.jsonl")
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(path):
        groups.setdefault(row["unique_id"], []).append(row)
    for group in groups.values():
        assert sorted(row["preferred"] for row in group) == [0, 1]
        assert len({row["prompt"] for row in group}) == 1


def test_the_signs_hold_right_and_wrong_texts() -> None:
    rows = rows_of(EXAMPLES / "data" / "ocr-prompts" / "signs.jsonl")
    kinds = Counter(
        "two lines" if "\n" in row["drawn"] else row["drawn"].lower() in row["prompt"].lower()
        for row in rows
    )
    assert kinds == {True: 7, False: 6, "two lines": 1}
    assert sum("“" in row["prompt"] for row in rows) == 1


@pytest.mark.parametrize("path", PAIR_FILES, ids=name_of)
def test_the_pairs_are_the_ones_whose_sums_the_readme_gives(path: Path) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert f"| `{path.name}` | {digest} |" in (UKP / "README.md").read_text(encoding="utf-8")


def test_no_debate_is_both_learnt_from_and_judged_on() -> None:
    train, validation = ({row["group"] for row in rows_of(path)} for path in PAIR_FILES)
    assert (len(train), len(validation)) == (11, 2)
    assert not train & validation


@pytest.mark.parametrize("path", PAIR_FILES, ids=name_of)
def test_longer_wins_as_often_as_the_readme_says(path: Path) -> None:
    gaps = [len(row["chosen"]) - len(row["rejected"]) for row in rows_of(path)]
    share = sum((gap > 0) + 0.5 * (gap == 0) for gap in gaps) / len(gaps)
    assert f"{share:.1%}".replace("%", " %") in (UKP / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("config", CONFIGS, ids=name_of)
def test_every_declared_file_has_rows(config: Path) -> None:
    sections = yaml.safe_load(config.read_text(encoding="utf-8"))
    files = list(sections.get("data", {}).get("datasets", []))
    if "train" in sections:
        files += [sections["train"]["data"], sections["train"]["validation"]]
        files += [sections["eval"]["data"]]
    assert files
    for file in files:
        assert rows_of(config.parent / file["path"])


def test_the_script_draws_the_signs_that_are_shipped(tmp_path: Path) -> None:
    script = runpy.run_path(str(EXAMPLES / "render_ocr_images.py"))
    drawn = script["render_signs"](tmp_path)
    assert len(drawn) == 14
    for path in drawn:
        with (
            Image.open(path) as fresh,
            Image.open(EXAMPLES / "data" / "ocr-prompts" / path.relative_to(tmp_path)) as shipped,
        ):
            difference = ImageStat.Stat(ImageChops.difference(fresh, shipped)).mean
        # Another FreeType may smooth the letters' edges otherwise; another text differs by 5 and
        # more grey levels.
        assert max(difference) < 1.0
