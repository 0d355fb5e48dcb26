"""Help, and the check of configs, work where nothing heavy can be imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from rewardctl.cli import app

HEAVY = ("torch", "accelerate", "transformers", "PIL", "numpy")
CONFIGS = Path(__file__).parents[1] / "configs"


def commands() -> list[list[str]]:
    """Every command and group of commands, as the words that name it."""
    found: list[list[str]] = [[]]

    def walk(group: object, words: list[str]) -> None:
        for name, command in getattr(group, "commands", {}).items():
            found.append([*words, name])
            walk(command, [*words, name])

    walk(get_command(app), [])
    return found


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages that raise when they are imported."""
    folder = tmp_path_factory.mktemp("stand-ins")
    for name in HEAVY:
        (folder / name).mkdir()
        text = f"raise ImportError('{name} was imported')\n"
        (folder / name / "__init__.py").write_text(text, encoding="utf-8")
    return folder


def run(stand_ins: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rewardctl", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(stand_ins)},
        check=False,
    )


@pytest.mark.parametrize("name", HEAVY)
def test_a_stand_in_is_what_would_be_imported(stand_ins: Path, name: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", f"import {name}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(stand_ins)},
        check=False,
    )
    assert f"{name} was imported" in process.stderr


@pytest.mark.parametrize("words", commands(), ids=lambda words: " ".join(words) or "rewardctl")
def test_help_needs_nothing_heavy(stand_ins: Path, words: list[str]) -> None:
    process = run(stand_ins, *words, "--help")
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("Usage: ")


def test_the_check_of_all_shipped_configs_needs_nothing_heavy(stand_ins: Path) -> None:
    files = sorted(map(str, CONFIGS.rglob("*.yaml")))
    process = run(stand_ins, "validate-config", *files)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout == f"0 errors, 0 warnings in {len(files)} files\n"


@pytest.mark.parametrize("words", [["ls", "rewards"], ["env"], ["schema"], ["--version"]])
def test_what_tells_about_the_installation_needs_nothing_heavy(
    stand_ins: Path, words: list[str]
) -> None:
    process = run(stand_ins, *words)
    assert process.returncode == 0, process.stderr


def test_rows_are_checked_without_anything_heavy(stand_ins: Path, tmp_path: Path) -> None:
    config, rows = tmp_path / "c.yaml", tmp_path / "rows.jsonl"
    config.write_text("rewards: {name: a, reward_model: length}\n", encoding="utf-8")
    rows.write_text('{"response": "x"}\n', encoding="utf-8")
    process = run(stand_ins, "validate-config", str(config), "--check-data", str(rows))
    assert (process.returncode, process.stderr) == (0, "")
