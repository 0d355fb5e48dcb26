"""The command line: what is printed where, and with which exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rewardctl import __version__, cli
from rewardctl.errors import (
    ConfigError,
    DataError,
    PolicyStop,
    RewardctlError,
    RunError,
    UsageError,
)

GOOD = "rewards: {name: a, reward_model: length}\n"
BAD = "rewards:\n  - name: a\n    reward_model: length\n    weight: heavy\n"

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(GOOD, encoding="utf-8")
    Path("bad.yaml").write_text(BAD, encoding="utf-8")


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "rewardctl", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        check=False,
    )


def raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def validate(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("rewardctl.runs.validate.validate", validate)


def test_a_valid_config_ends_with_0(capsys: Captured) -> None:
    assert cli.main(["validate-config", "good.yaml"]) == 0
    assert capsys.readouterr().out == "0 errors, 0 warnings in 1 file\n"


def test_findings_end_with_1_and_stand_on_stdout(capsys: Captured) -> None:
    assert cli.main(["validate-config", "bad.yaml"]) == 1
    out, err = capsys.readouterr()
    assert out == (
        "bad.yaml:4:13: RC204 error: rewards[0].weight: expected a number, or a mapping of dataset "
        "to number, got 'heavy'\n1 error, 0 warnings in 1 file\n"
    )
    assert err == ""


@pytest.mark.parametrize(
    ("path", "message"),
    [("none.yaml", "there is no such file"), (".", "is a folder, expected a YAML file")],
)
def test_a_config_that_cannot_be_read_ends_with_2(
    path: str, message: str, capsys: Captured
) -> None:
    assert cli.main(["validate-config", path]) == 2
    assert capsys.readouterr().err == f"rewardctl: error: {path}: {message}\n"


def test_strict_counts_warnings() -> None:
    Path("warned.yaml").write_text(GOOD.replace("}", ", num_workers: 2}"), encoding="utf-8")
    assert cli.main(["validate-config", "warned.yaml"]) == 0
    assert cli.main(["validate-config", "--strict", "warned.yaml"]) == 1


def test_json_is_one_object_on_stdout(capsys: Captured) -> None:
    assert cli.main(["validate-config", "--format", "json", "bad.yaml", "good.yaml"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["files"] == ["bad.yaml", "good.yaml"]
    assert report["findings"][0]["place"] == "rewards[0].weight"


def test_github_writes_workflow_commands(capsys: Captured) -> None:
    assert cli.main(["validate-config", "--format", "github", "bad.yaml"]) == 1
    assert capsys.readouterr().out.startswith("::error file=bad.yaml,line=4,col=13,title=RC204 ")


@pytest.mark.parametrize(
    "override",
    [
        ["--set", "rewards.0.weight=1"],
        ["--set=rewards[0].weight=1"],
        ["--set", "rewards.a.weight=1"],
    ],
)
def test_set_is_read_in_both_spellings(override: list[str]) -> None:
    assert cli.main(["validate-config", "bad.yaml", *override]) == 0


def test_set_may_be_repeated() -> None:
    overrides = ["--set", "rewards.0.weight=1", "--set", "rewards.0.batch_size=0"]
    assert cli.main(["validate-config", "bad.yaml", *overrides]) == 1


def test_check_files_and_check_data_are_passed_on(capsys: Captured) -> None:
    Path("rows.jsonl").write_text('{"prompt": "x"}\n', encoding="utf-8")
    Path("c.yaml").write_text(GOOD + "python_path: [lib]\n", encoding="utf-8")
    arguments = ["validate-config", "c.yaml", "--check-files", "--check-data", "rows.jsonl"]
    assert cli.main(arguments) == 1
    out = capsys.readouterr().out
    assert "RC404" in out
    assert "RC322" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["validate-config"], "Missing argument 'CONFIG'"),
        (["validate-config", "--nope", "x"], "No such option"),
        (["validate-config", "--format", "xml", "x"], "'xml' is not one of"),
        (["ls"], "Missing command"),
    ],
)
def test_a_wrong_command_line_ends_with_2(
    arguments: list[str], message: str, capsys: Captured
) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rewardctl: error: ")
    assert message in err


def test_without_a_command_help_goes_to_stderr(capsys: Captured) -> None:
    assert cli.main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "validate-config" in err


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["validate-config", "--help"], ["schema", "--help"], ["ls", "rewards", "--help"]],
)
def test_help_ends_with_0(arguments: list[str], capsys: Captured) -> None:
    assert cli.main(arguments) == 0
    assert "Usage: rewardctl" in capsys.readouterr().out


def test_the_version_is_printed(capsys: Captured) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"rewardctl {__version__}\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (ConfigError("x"), 2),
        (DataError("x"), 3),
        (PolicyStop("x"), 1),
        (RunError("x"), 4),
    ],
)
def test_an_error_is_one_message_and_its_exit_code(
    error: RewardctlError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    raising(error, monkeypatch)
    assert cli.main(["validate-config", "good.yaml"]) == code
    assert capsys.readouterr().err == "rewardctl: error: x\n"


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    raising(DataError("x"), monkeypatch)
    assert cli.main(["validate-config", "good.yaml", "--debug"]) == 3
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert err.endswith("rewardctl: error: x\n")


def test_an_unexpected_error_asks_for_debug(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    raising(KeyError("x"), monkeypatch)
    assert cli.main(["validate-config", "good.yaml"]) == 4
    assert capsys.readouterr().err == (
        "rewardctl: error: unexpected KeyError: 'x' (--debug shows the traceback)\n"
    )


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(KeyboardInterrupt(), monkeypatch)
    assert cli.main(["validate-config", "good.yaml"]) == 130


def test_an_end_of_file_is_an_error_as_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a cut pickle, say; the command line's library would end silently, as by Ctrl-C."""
    raising(EOFError("ran out of input"), monkeypatch)
    assert cli.main(["validate-config", "good.yaml"]) == 4
    assert "unexpected EOFError: ran out of input" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["schema"], ["--help"], ["schema", "--help"]])
def test_a_reader_that_has_gone_ends_with_141_and_no_word(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        process = subprocess.run(
            [sys.executable, "-m", "rewardctl", *arguments],
            stdout=gone,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (process.returncode, process.stderr) == (141, b"")


@pytest.mark.parametrize(
    "environ",
    [{}, {"FORCE_COLOR": "1"}, {"GITHUB_ACTIONS": "true"}, {"COLUMNS": "40"}, {"TERM": "dumb"}],
)
def test_output_is_neither_coloured_nor_wrapped(environ: dict[str, str]) -> None:
    process = run("validate-config", "bad.yaml", "none.yaml", **environ)
    assert process.returncode == 2
    assert "\x1b" not in process.stdout + process.stderr
    assert len(process.stdout.splitlines()) == 3
    assert process.stderr == "rewardctl: error: none.yaml: there is no such file\n"


def test_names_beyond_the_terminals_encoding_are_escaped() -> None:
    Path("bad.yaml").write_text("rewards: {näme: x}\n", encoding="utf-8")
    process = run("validate-config", "bad.yaml", PYTHONIOENCODING="ascii")
    assert process.returncode == 1
    assert "unknown key 'n\\xe4me'" in process.stdout


def test_the_schema_is_json(capsys: Captured) -> None:
    assert cli.main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$schema"].endswith("2020-12/schema")


def test_reward_models_are_listed_as_a_table(capsys: Captured) -> None:
    assert cli.main(["ls", "rewards"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "name",
        "kind",
        "requires",
        "optional",
        "scores",
        "options",
        "extra",
    ]
    ocr = next(line for line in lines if line.startswith("ocr"))
    assert ocr.split()[1:5] == ["pointwise", "image,prompt", "-", "0..1"]


def test_reward_models_are_listed_as_json(capsys: Captured) -> None:
    assert cli.main(["ls", "rewards", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert {"name", "kind", "required_fields", "extra", "installed"} <= entries[0].keys()


def test_the_environment_is_ready_to_paste(capsys: Captured) -> None:
    assert cli.main(["env"]) == 0
    assert f"rewardctl: {__version__}\n" in capsys.readouterr().out


def test_the_environment_is_listed_as_json(capsys: Captured) -> None:
    assert cli.main(["env", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rewardctl"] == __version__
