"""Secrets in options: references, plain text, masked dumps."""

import json
from pathlib import Path

import pytest

from rewardctl.config.load import check_config, load_config
from rewardctl.config.secret import MASK, masked_dump
from rewardctl.errors import ConfigError


def write(tmp_path: Path, options: str, more: str = "") -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"rewards:\n  - name: a\n    reward_model: my.mod:Model\n    options: {options}\n{more}",
        encoding="utf-8",
    )
    return path


def test_a_reference_is_resolved_for_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCORER_KEY", "hush-hush")
    config = load_config(write(tmp_path, "{headers: {auth: 'Bearer ${env:SCORER_KEY}'}, n: 3}"))
    assert config.rewards[0].options == {"headers": {"auth": "Bearer hush-hush"}, "n": 3}


def test_a_dump_masks_what_was_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCORER_KEY", "hush-hush")
    config = load_config(write(tmp_path, "{headers: ['Bearer ${env:SCORER_KEY}']}"))
    dump = masked_dump(config)
    assert dump["rewards"][0]["options"] == {"headers": [f"Bearer {MASK}"]}
    assert "hush" not in json.dumps(dump)
    assert "hush" not in repr(config)


def test_a_secret_inside_another_is_masked_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONG", "abcdef")
    monkeypatch.setenv("SHORT", "abc")
    config = load_config(write(tmp_path, "{x: '${env:SHORT}', y: '${env:LONG}'}"))
    assert masked_dump(config)["rewards"][0]["options"] == {"x": MASK, "y": MASK}


def test_a_variable_that_is_not_set_is_a_warning_of_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCORER_KEY", raising=False)
    config, findings = check_config(write(tmp_path, "{key: '${env:SCORER_KEY}'}"))
    assert config is not None
    assert [(f.code, f.severity, f.line) for f in findings] == [("RC502", "warning", 4)]
    assert "needs the environment variable SCORER_KEY" in findings[0].message


def test_a_variable_that_is_not_set_stops_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCORER_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"RC502 error.*SCORER_KEY, which is not set"):
        load_config(write(tmp_path, "{key: '${env:SCORER_KEY}'}"))


@pytest.mark.parametrize(
    "options",
    [
        "{api_key: abc}",
        "{hf_token: abc}",
        "{password: abc}",
        "{x: hf_abcdefghijklmnopqrstuvwx}",
        "{x: 'sk-abcdefghijklmnopqrstuvwx'}",
        "{x: ['https://user:hunter2@host/path']}",
    ],
)
def test_a_secret_in_plain_text_is_refused_and_not_repeated(tmp_path: Path, options: str) -> None:
    config, findings = check_config(write(tmp_path, options))
    assert config is None
    assert [f.code for f in findings] == ["RC503"]
    assert findings[0].hint is not None
    assert "${env:NAME}" in findings[0].hint
    assert not any(word in str(findings[0]) for word in ("abc", "hunter2"))


@pytest.mark.parametrize("options", ["{tokens: abc}", "{tokenizer: abc}", "{key: answer}"])
def test_other_options_are_no_secrets(tmp_path: Path, options: str) -> None:
    assert check_config(write(tmp_path, options))[1] == []


def test_a_reference_outside_options_is_refused(tmp_path: Path) -> None:
    _, findings = check_config(write(tmp_path, "{}", "eval: {output_dir: '${env:HOME}/x'}\n"))
    assert [(f.code, f.line) for f in findings] == [("RC504", 5)]


def test_a_reference_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    _, findings = check_config(write(tmp_path, "{x: '${env:a b}'}"))
    assert [f.code for f in findings] == ["RC504"]
