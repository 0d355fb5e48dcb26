"""Dotted classes found among files, and read without being run."""

import sys
from pathlib import Path

import pytest

from rewardctl.rewards.class_source import SourceFinder, read_class

HEAD = "from rewardctl.rewards import GroupwiseRewardModel, PointwiseRewardModel\n"


def source(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(HEAD + text, encoding="utf-8")
    return path


def test_a_module_is_found_in_a_folder(tmp_path: Path) -> None:
    path = source(tmp_path, "")
    assert SourceFinder([tmp_path]).find("mine") == path


def test_a_module_of_a_package_is_found_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("raise RuntimeError('ran')\n", encoding="utf-8")
    (tmp_path / "pkg" / "inner.py").write_text("raise RuntimeError('ran')\n", encoding="utf-8")
    assert SourceFinder([tmp_path]).find("pkg.inner") == tmp_path / "pkg" / "inner.py"
    assert "pkg" not in sys.modules


def test_installed_modules_are_found_first(tmp_path: Path) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "__init__.py").write_text("", encoding="utf-8")
    found = SourceFinder([tmp_path]).find("json")
    assert found is not None
    assert tmp_path not in found.parents


def test_a_package_without_init_is_its_folder(tmp_path: Path) -> None:
    (tmp_path / "space").mkdir()
    assert SourceFinder([tmp_path]).find("space") == tmp_path / "space"


def test_a_package_installed_in_place_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, site = tmp_path / "project", tmp_path / "site"
    (project / "src" / "inplace").mkdir(parents=True)
    (project / "src" / "inplace" / "__init__.py").write_text("", encoding="utf-8")
    info = site / "inplace-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: inplace\nVersion: 1\n")
    (info / "direct_url.json").write_text(
        f'{{"url": "{project.as_uri()}", "dir_info": {{"editable": true}}}}'
    )
    monkeypatch.syspath_prepend(site)
    assert SourceFinder().find("inplace") == project / "src" / "inplace" / "__init__.py"


@pytest.mark.parametrize("module", ["nothere", "nothere.at.all", "../etc", "a b", ""])
def test_a_module_that_is_nowhere_is_not_found(tmp_path: Path, module: str) -> None:
    assert SourceFinder([tmp_path]).find(module) is None


@pytest.mark.parametrize(
    "text",
    [
        "class Mine(PointwiseRewardModel): ...\n",
        "from other import Mine\n",
        "from other import Theirs as Mine\n",
        "Mine = make()\n",
        "Mine: type = make()\n",
        "try:\n    from fast import Mine\nexcept ImportError:\n    from slow import Mine\n",
        "if True:\n    class Mine: ...\n",
    ],
)
def test_a_bound_name_is_seen(tmp_path: Path, text: str) -> None:
    assert read_class(source(tmp_path, text), "Mine").is_bound is True


def test_a_name_that_is_not_bound_is_seen(tmp_path: Path) -> None:
    text = "class Other: ...\ndef f():\n    Mine = 1\n"
    assert read_class(source(tmp_path, text), "Mine").is_bound is False


@pytest.mark.parametrize("text", ["from other import *\n", "def __getattr__(name): ...\n"])
def test_a_name_may_be_bound_where_the_tree_does_not_show_it(tmp_path: Path, text: str) -> None:
    assert read_class(source(tmp_path, text), "Mine").is_bound is None


def test_a_compiled_module_shows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mine.so"
    path.write_bytes(b"\x7fELF")
    assert read_class(path, "Mine").is_bound is None


@pytest.mark.parametrize("text", ["class (", "\0", "(" * 100_000])
def test_a_file_that_is_not_python_is_told(tmp_path: Path, text: str) -> None:
    assert read_class(source(tmp_path, text), "Mine").syntax_error is not None


@pytest.mark.parametrize(
    ("text", "thread_safe"),
    [
        ("class Mine(PointwiseRewardModel): ...\n", False),
        ("class Mine(PointwiseRewardModel):\n    thread_safe = False\n", False),
        ("class Mine(PointwiseRewardModel):\n    thread_safe: bool = True\n", True),
        ("class Mine(Base):\n    thread_safe = False\n", False),
        ("class Mine(Base): ...\n", None),
        ("class Mine(Mixin, PointwiseRewardModel): ...\n", None),
        ("class Mine(PointwiseRewardModel):\n    thread_safe = bool(1)\n", None),
        (
            "class Mine(PointwiseRewardModel):\n"
            "    def __init__(self):\n        self.thread_safe = True\n",
            None,
        ),
        ("@decorated\nclass Mine(PointwiseRewardModel): ...\n", None),
        ("Mine = make()\n", None),
    ],
)
def test_thread_safe_is_known_where_the_tree_shows_it(
    tmp_path: Path, text: str, thread_safe: bool | None
) -> None:
    assert read_class(source(tmp_path, text), "Mine").thread_safe is thread_safe


@pytest.mark.parametrize(
    ("bases", "is_groupwise"),
    [
        ("PointwiseRewardModel", False),
        ("GroupwiseRewardModel", True),
        ("rewardctl.rewards.GroupwiseRewardModel", True),
        ("Base", None),
    ],
)
def test_the_kind_is_known_from_its_base(
    tmp_path: Path, bases: str, is_groupwise: bool | None
) -> None:
    facts = read_class(source(tmp_path, f"class Mine({bases}): ...\n"), "Mine")
    assert facts.is_groupwise is is_groupwise


def test_required_fields_are_known_where_they_are_literal(tmp_path: Path) -> None:
    text = "class Mine(Base):\n    required_fields = ('image', 'prompt')\n"
    assert read_class(source(tmp_path, text), "Mine").required_fields == ("image", "prompt")


def test_required_fields_that_the_constructor_sets_are_not_known(tmp_path: Path) -> None:
    text = (
        "class Mine(Base):\n    required_fields = ('image',)\n"
        "    def __init__(self):\n        self.required_fields = ('video',)\n"
    )
    facts = read_class(source(tmp_path, text), "Mine")
    assert (facts.required_fields, facts.sets_fields) == (None, True)
