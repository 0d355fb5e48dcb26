"""Paths and globs to findings and an exit code; the config of a run."""

from pathlib import Path

import pytest

from rewardctl.errors import ConfigError, UsageError
from rewardctl.runs.validate import checked_config, checked_rewards, expand, validate

GOOD = "rewards: {name: a, reward_model: length}\n"
WARNED = "rewards: {name: a, reward_model: length, num_workers: 2}\n"
BAD = "rewards: {name: a, reward_model: lenght}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("good", GOOD), ("warned", WARNED), ("bad", BAD)):
        Path(f"{name}.yaml").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "code", "strict_code"),
    [
        ("good.yaml", 0, 0),
        ("warned.yaml", 0, 1),
        ("bad.yaml", 1, 1),
        ("none.yaml", 2, 2),
        (".", 2, 2),
    ],
)
def test_exit_codes(path: str, code: int, strict_code: int) -> None:
    result = validate([path])
    assert result.exit_code(strict=False) == code
    assert result.exit_code(strict=True) == strict_code


def test_several_files_are_reported_in_the_order_given() -> None:
    result = validate(["warned.yaml", "bad.yaml", "good.yaml"])
    assert result.files == ["warned.yaml", "bad.yaml", "good.yaml"]
    assert [f.path for f in result.findings] == ["warned.yaml", "bad.yaml"]


def test_a_glob_is_expanded_in_order_of_names() -> None:
    assert validate(["*.yaml"]).files == ["bad.yaml", "good.yaml", "warned.yaml"]


def test_two_stars_reach_into_folders(folder: Path) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "x.yaml").write_text(GOOD, encoding="utf-8")
    assert "deep/er/x.yaml" in expand("**/*.yaml")


def test_a_file_given_twice_is_checked_once() -> None:
    result = validate(["bad.yaml", "bad.yaml", "b*.yaml"])
    assert (result.files, len(result.findings)) == (["bad.yaml"], 1)


def test_a_file_whose_name_looks_like_a_glob_is_itself(folder: Path) -> None:
    (folder / "a[1].yaml").write_text(GOOD, encoding="utf-8")
    assert expand("a[1].yaml") == ["a[1].yaml"]


def test_a_glob_that_matches_nothing_is_an_error() -> None:
    result = validate(["*.yml"])
    assert result.exit_code(strict=False) == 2
    assert str(result.findings[0]) == "*.yml: RC401 error: no file matches this glob"


def test_an_unreadable_file_hides_nothing_in_the_others() -> None:
    result = validate(["none.yaml", "bad.yaml"])
    assert [f.code for f in result.findings] == ["RC401", "RC308"]


def test_overrides_reach_every_file() -> None:
    result = validate(["good.yaml", "bad.yaml"], ["rewards.0.reward_model=repetition"])
    assert result.findings == []


def test_the_output_is_the_same_twice() -> None:
    assert validate(["*.yaml"]) == validate(["*.yaml"])


def test_standard_input_serves_one_config_only() -> None:
    with pytest.raises(UsageError, match="standard input is read once; give one config"):
        validate(["good.yaml", "bad.yaml"], rows="-")


def test_the_config_of_a_run_comes_with_its_warnings() -> None:
    config, warnings = checked_config(Path("warned.yaml"))
    assert config.rewards[0].name == "a"
    assert [f.code for f in warnings] == ["RC312"]


def test_a_run_is_refused_with_what_its_reward_models_say() -> None:
    Path("c.yaml").write_text(
        "rewards: {name: a, reward_model: length, options: {x: 1}, wieght: 1}\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError) as caught:
        checked_config(Path("c.yaml"))
    assert "length has no option 'x'" in str(caught.value)
    assert "unknown key 'wieght'" in str(caught.value)


def test_a_run_leaves_the_search_for_a_class_to_its_import() -> None:
    Path("c.yaml").write_text("rewards: {name: a, reward_model: 'nothere:X'}\n", encoding="utf-8")
    assert checked_config(Path("c.yaml"))[1] == []


def test_a_run_reads_its_own_sections() -> None:
    Path("c.yaml").write_text(GOOD + "train: {x: 1}\n", encoding="utf-8")
    assert checked_config(Path("c.yaml"), sections={"rewards"})[0].train is None


def test_rewards_by_name_are_checked_alike() -> None:
    assert [s.name for s in checked_rewards(["length", "repetition"])[0].rewards] == [
        "length",
        "repetition",
    ]
    with pytest.raises(ConfigError, match=r"--reward lenght: RC308 error: .*did you mean 'length'"):
        checked_rewards(["lenght"])
