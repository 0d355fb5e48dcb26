"""Streams against the registry and the classes: names, options, packages, workers."""

from pathlib import Path

import pytest

from rewardctl.config.findings import Finding
from rewardctl.rewards.class_source import SourceFinder
from rewardctl.runs.validate import validate


def findings(tmp_path: Path, stream: str, more: str = "") -> list[Finding]:
    path = tmp_path / "c.yaml"
    path.write_text(f"rewards:\n  - {{name: a, {stream}}}\n{more}", encoding="utf-8")
    return validate([str(path)]).findings


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, [str(f) for f in found]
    return found[0]


def test_a_registered_name_in_any_case_is_known(tmp_path: Path) -> None:
    assert findings(tmp_path, "reward_model: Length") == []


def test_an_unknown_name_gets_a_near_one_and_the_list(tmp_path: Path) -> None:
    finding = only(findings(tmp_path, "reward_model: lenght"))
    assert (finding.code, finding.line, finding.column) == ("RC308", 2, 29)
    assert "stream 'a': unknown reward_model 'lenght': did you mean 'length'?" in finding.message
    assert "registered are " in finding.message


def test_an_unknown_option_is_hinted(tmp_path: Path) -> None:
    finding = only(findings(tmp_path, "reward_model: length, options: {mim: 3}"))
    assert (finding.code, finding.place) == ("RC310", "rewards[0].options.mim")
    assert finding.message == "stream 'a': length has no option 'mim'"
    assert finding.hint == "did you mean 'min'?"


def test_an_option_for_a_model_without_options_is_refused(tmp_path: Path) -> None:
    finding = only(findings(tmp_path, "reward_model: sharpness, options: {size: 3}"))
    assert (finding.message, finding.hint) == (
        "stream 'a': sharpness has no option 'size'",
        "drop size",
    )


def test_an_option_of_the_wrong_type_is_refused(tmp_path: Path) -> None:
    finding = only(findings(tmp_path, "reward_model: length, options: {min: many}"))
    assert finding.message == "stream 'a': options.min: expected a whole number, got 'many'"


def test_a_missing_option_is_named(tmp_path: Path) -> None:
    finding = only(findings(tmp_path, "reward_model: regex_match"))
    assert finding.message == "stream 'a': regex_match needs the option 'pattern'"
    assert finding.hint == "add pattern: under options:"


def test_an_option_that_the_class_itself_refuses_says_why(tmp_path: Path) -> None:
    finding = only(findings(tmp_path, "reward_model: regex_match, options: {pattern: '('}"))
    assert "options.pattern: not a regular expression: " in finding.message


def test_options_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    finding = only(findings(tmp_path, "reward_model: length, options: {min: 3, max: 2}"))
    assert "min is 3 and max is 2" in finding.message


def test_an_option_from_the_environment_is_not_judged_by_its_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHORTEST", "words")
    assert findings(tmp_path, "reward_model: length, options: {unit: '${env:SHORTEST}'}") == []


def test_an_unknown_option_is_found_whatever_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHORTEST", "words")
    found = findings(tmp_path, "reward_model: length, options: {unti: '${env:SHORTEST}'}")
    assert only(found).hint == "did you mean 'unit'?"


def test_an_option_beside_the_streams_keys_is_sent_under_options(tmp_path: Path) -> None:
    finding = only(findings(tmp_path, "reward_model: length, min: 3"))
    assert (finding.code, finding.hint) == ("RC203", "'min' goes under options:")


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = SourceFinder.find

    def without_rapidocr(finder: SourceFinder, module: str) -> Path | None:
        return None if module == "rapidocr" else real(finder, module)

    monkeypatch.setattr(SourceFinder, "find", without_rapidocr)
    finding = only(findings(tmp_path, "reward_model: ocr"))
    assert finding.code == "RC311"
    assert finding.message == (
        "stream 'a': reward model ocr needs the package rapidocr, which is not installed"
    )
    assert finding.hint == "pip install 'rewardctl[ocr]'"


def test_workers_on_a_class_that_is_not_thread_safe_are_refused(tmp_path: Path) -> None:
    finding = only(findings(tmp_path, "reward_model: ocr, async_reward: true, num_workers: 2"))
    assert (finding.code, finding.place) == ("RC312", "rewards[0].num_workers")
    assert finding.message == "stream 'a': num_workers: 2, but ocr is not declared thread_safe"


def test_workers_on_a_thread_safe_class_are_fine(tmp_path: Path) -> None:
    assert findings(tmp_path, "reward_model: length, async_reward: true, num_workers: 2") == []


def test_a_batch_size_of_a_groupwise_model_has_no_effect(tmp_path: Path) -> None:
    finding = only(findings(tmp_path, "reward_model: group_diversity, batch_size: 4"))
    assert (finding.code, finding.severity) == ("RC313", "warning")
    assert "batch_size has no effect, group_diversity scores whole groups" in finding.message


def test_a_groupwise_model_without_batch_size_is_fine(tmp_path: Path) -> None:
    assert findings(tmp_path, "reward_model: group_diversity") == []


SENTINEL = "open(__file__ + '.ran', 'w')\nraise RuntimeError('ran')\n"
CLASSES = (
    "from rewardctl.rewards import GroupwiseRewardModel, PointwiseRewardModel\n"
    "class Safe(PointwiseRewardModel):\n    thread_safe = True\n"
    "class Unsafe(PointwiseRewardModel): ...\n"
    "class Derived(Safe): ...\n"
    "class Groups(GroupwiseRewardModel): ...\n"
)


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SENTINEL + CLASSES, encoding="utf-8")
    return path


@pytest.mark.parametrize("spelling", ["'mine:Safe'", "mine.Safe"])
def test_a_class_beside_the_config_is_found_and_not_run(
    tmp_path: Path, module: Path, spelling: str
) -> None:
    assert findings(tmp_path, f"reward_model: {spelling}, async_reward: true, num_workers: 2") == []
    assert not Path(f"{module}.ran").exists()


def test_a_folder_of_python_path_is_relative_to_the_config(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "theirs.py").write_text("class X: ...\n", encoding="utf-8")
    assert findings(tmp_path, "reward_model: 'theirs:X'", "python_path: [lib]\n") == []


def test_a_module_that_is_not_there_is_refused(tmp_path: Path) -> None:
    finding = only(findings(tmp_path, "reward_model: 'nothere:X'"))
    assert (finding.code, finding.severity) == ("RC308", "error")
    assert "no module 'nothere' in python_path or the installed packages" in finding.message
    assert finding.hint is not None
    assert repr(str(tmp_path)) in finding.hint


def test_a_class_that_is_not_in_the_tree_is_a_warning(tmp_path: Path, module: Path) -> None:
    finding = only(findings(tmp_path, "reward_model: 'mine:Nope'"))
    assert (finding.code, finding.severity) == ("RC309", "warning")
    assert finding.message.endswith(f"{module} does not seem to define 'Nope'")


def test_a_module_that_is_not_python_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("class (\n", encoding="utf-8")
    finding = only(findings(tmp_path, "reward_model: 'broken:X'"))
    assert "broken.py is not Python: line 1: " in finding.message


def test_workers_on_a_dotted_class_are_refused_where_its_tree_shows_it(
    tmp_path: Path, module: Path
) -> None:
    workers = "async_reward: true, num_workers: 2"
    finding = only(findings(tmp_path, f"reward_model: 'mine:Unsafe', {workers}"))
    assert finding.message.endswith("but mine:Unsafe is not declared thread_safe")


def test_workers_on_a_dotted_class_with_other_bases_are_left_to_the_run(
    tmp_path: Path, module: Path
) -> None:
    stream = "reward_model: 'mine:Derived', async_reward: true, num_workers: 2"
    assert findings(tmp_path, stream) == []


def test_a_batch_size_of_a_dotted_groupwise_class_is_noticed(tmp_path: Path, module: Path) -> None:
    assert only(findings(tmp_path, "reward_model: 'mine:Groups', batch_size: 4")).code == "RC313"


@pytest.mark.parametrize("name", ["os.system", "subprocess:Popen", "builtins.eval"])
def test_a_path_into_the_standard_library_runs_nothing(tmp_path: Path, name: str) -> None:
    found = findings(tmp_path, f"reward_model: '{name}'")
    assert all(f.code in ("RC308", "RC309") for f in found)


def test_an_unknown_reward_model_is_reported_beside_other_errors(tmp_path: Path) -> None:
    found = findings(tmp_path, "reward_model: lenght, weight: heavy", "oops: 1\n")
    assert [f.code for f in found] == ["RC308", "RC204", "RC203"]
