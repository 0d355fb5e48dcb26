"""Everything the README shows is run: its files in one folder, its commands in their order."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the README has its reader save, and a second declared dataset."""
    folder = tmp_path_factory.mktemp("readme")
    for _, name, text in BLOCK.findall(README):
        if name:
            (folder / name).write_text(text, "utf-8")
    return folder


def commands() -> list[str]:
    return [
        line
        for kind, _, text in BLOCK.findall(README)
        if kind == "bash"
        for line in text.splitlines()
    ]


def test_every_shown_command_works(folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    assert len(commands()) >= 15
    for command in commands():
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    shown = next(text for kind, _, text in BLOCK.findall(README) if kind == "json")
    written = (folder / "scores.jsonl").read_text("utf-8").splitlines()
    row = json.loads(written[2])
    assert row == json.loads(shown)
    assert (
        json.loads((folder / "polite.jsonl").read_text("utf-8").splitlines()[2])["aggregate"] == 1.0
    )
    flow = [
        json.loads(x)["aggregate"] for x in (folder / "flow.jsonl").read_text("utf-8").splitlines()
    ]
    assert flow == [20.0, 20.0, 9.0]  # characters of the prompts


def test_the_config_with_every_key_is_valid(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rewardctl", "validate-config", "all_keys.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_make_targets_and_hook_that_the_readme_names_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"make (\w+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert "rewardctl-validate-config" in (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8")


def test_the_table_of_reward_models_is_complete() -> None:
    from rewardctl.rewards.registry import BUILTIN, import_class

    for name in BUILTIN:
        row = re.search(rf"^\| `{name}` \|.*\|$", README, re.MULTILINE)
        assert row, name
        options = import_class(name).Options
        for option in options.model_fields if options else ():
            assert f"`{option}`" in row[0], f"{name}: {option}"
