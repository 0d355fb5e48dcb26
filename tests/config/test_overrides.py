"""`--set PLACE=VALUE` in its three spellings, and what is said when it does not fit."""

from pathlib import Path
from typing import Any

import pytest

from rewardctl.config.findings import Finding
from rewardctl.config.load import check_config
from rewardctl.config.schema import Config

TEXT = """\
data: {datasets: [{name: maths, path: m.jsonl}, {name: code.v2, path: c.jsonl}]}
rewards:
  - name: len
    reward_model: length
    weight: {maths: 1, code.v2: 2}
  - name: my.reps
    reward_model: repetition
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def config_of(path: Path, *overrides: str) -> Config:
    config, findings = check_config(path, overrides)
    assert config is not None, [str(f) for f in findings]
    return config


def finding_of(path: Path, *overrides: str) -> Finding:
    config, findings = check_config(path, overrides)
    assert config is None
    assert len(findings) == 1, [str(f) for f in findings]
    return findings[0]


@pytest.mark.parametrize(
    "place", ["rewards.1.weight", "rewards[1].weight", "rewards.my.reps.weight"]
)
def test_a_stream_is_addressed_by_index_or_name(path: Path, place: str) -> None:
    assert config_of(path, f"{place}=0.5").rewards[1].weight == 0.5


def test_an_entry_of_a_mapping_may_hold_dots(path: Path) -> None:
    config = config_of(path, "rewards.len.weight.code.v2=3")
    assert config.rewards[0].weight == {"maths": 1.0, "code.v2": 3.0}


def test_a_dataset_is_addressed_by_name(path: Path) -> None:
    config = config_of(path, "data.datasets.code.v2.path=d.jsonl")
    assert config.data.datasets[1].path == path.parent / "d.jsonl"


def test_a_stream_written_as_one_mapping_is_addressed_alike(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("rewards: {name: a, reward_model: length}\n", encoding="utf-8")
    assert config_of(path, "rewards.0.weight=2").rewards[0].weight == 2
    assert config_of(path, "rewards.a.weight=3").rewards[0].weight == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("{min: 1, max: 2}", {"min": 1, "max": 2}),
        ("[a, no]", ["a", "no"]),
        ("no", "no"),
        ("true", True),
        ("'5'", "5"),
        ("null", None),
        ("", None),
        ("#fff", "#fff"),
        ("a=b", "a=b"),
    ],
)
def test_the_value_is_read_as_yaml_1_2(path: Path, text: str, value: Any) -> None:
    config = config_of(path, "rewards.0.reward_model=x:Y", f"rewards.0.options.k={text}")
    assert config.rewards[0].options == {"k": value}


def test_a_section_that_is_not_there_is_made(path: Path) -> None:
    config = config_of(
        path, "train.data=x.jsonl", "train.early_stopping.patience=7", "train.validation=v"
    )
    assert config.train is not None
    assert config.train.early_stopping is not None
    assert config.train.early_stopping.patience == 7


def test_later_overrides_win(path: Path) -> None:
    assert config_of(path, "score.window=1", "score.window=2").score.window == 2


def test_a_bad_value_is_said_of_the_option_and_not_of_the_file(path: Path) -> None:
    assert str(finding_of(path, "rewards.0.batch_size=many")) == (
        "--set rewards.0.batch_size: RC204 error: rewards[0].batch_size: expected a whole number, "
        "got 'many'"
    )


def test_an_override_mends_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("rewards: [{name: a, reward_model: length, weight: heavy}]\n", encoding="utf-8")
    assert config_of(path, "rewards.0.weight=1").rewards[0].weight == 1


def test_an_unknown_key_is_said_of_the_option(path: Path) -> None:
    finding = finding_of(path, "scor.window=3")
    assert (finding.path, finding.line) == ("--set scor.window", None)
    assert finding.hint == "did you mean 'score'?"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rewards.2.weight=1", "rewards has no entry 2; it has 2, counted from 0, named len, "),
        (
            "rewards.lem.weight=1",
            "rewards has no entry 'lem'; it has 2, counted from 0, named len, ",
        ),
        ("rewards.weight=1", "rewards has no entry 'weight'"),
        ("rewards.0.batch_size.x=1", "rewards[0].batch_size"),
        ("rewards.0.name.x=1", "rewards[0].name is 'len', and holds no keys"),
        ("novalue", "expected PLACE=VALUE, got 'novalue'"),
        ("=3", "expected PLACE=VALUE, got ''"),
        ("a..b=3", "expected PLACE=VALUE, got 'a..b'"),
        ("rewards.0.options={a: 1, a: 2}", "its value: key 'a' stands twice"),
        ("rewards.0.options={a", "its value: not YAML: "),
        ("rewards.0.options=!!python/name:os.system x", "its value: tag '!!python/name:os.system'"),
    ],
)
def test_an_override_that_does_not_fit_is_refused(path: Path, override: str, message: str) -> None:
    finding = finding_of(path, override)
    assert message in finding.message
    assert finding.path.startswith("--set")


def test_a_near_stream_name_is_hinted(path: Path) -> None:
    assert "did you mean 'len'?" in finding_of(path, "rewards.lem.weight=1").message


def test_the_value_of_an_override_is_not_repeated_in_its_place(path: Path) -> None:
    finding = finding_of(path, "rewards.0.optoins={key: hush-hush}")
    assert "hush" not in str(finding)
