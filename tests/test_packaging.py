"""What is packed and pinned, and what the Makefile calls: wheel, extras, constraints, pip lines."""

import email
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from importlib.metadata import entry_points, packages_distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rewardctl.rewards.abc import BaseRewardModel
from rewardctl.rewards.registry import BUILTIN, import_class

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINS = {
    canonicalize_name(name): pin
    for name, _, pin in (line.partition("==") for line in CONSTRAINTS if line[0] != "#")
}
PACKED = ("pyproject.toml", "README.md", "LICENSE")
REWARD_CLASSES = [import_class(name) for name in BUILTIN]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built without network from a copy, so that the tree gets no build files."""
    tree = tmp_path_factory.mktemp("tree")
    for name in PACKED:
        shutil.copy(ROOT / name, tree)
    shutil.copytree(
        ROOT / "rewardctl", tree / "rewardctl", ignore=shutil.ignore_patterns("__pycache__")
    )
    build = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"
    (tree / "dist").mkdir()
    done = subprocess.run([sys.executable, "-c", build], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = (tree / "dist").glob("rewardctl-*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    """The wheel's METADATA."""
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def requirements_of(lines: list[str]) -> list[Requirement]:
    """Requirements on other projects."""
    requirements = [Requirement(line) for line in lines]
    return [requirement for requirement in requirements if requirement.name != PROJECT["name"]]


def all_requirements() -> list[Requirement]:
    """Those of core and of all extras."""
    extras = [line for lines in EXTRAS.values() for line in lines]
    return requirements_of([*PROJECT["dependencies"], *extras])


def test_wheel_holds_the_licence_text(wheel: zipfile.ZipFile) -> None:
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/licenses/LICENSE"))
    text = wheel.read(name).decode()
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_wheel_holds_every_module_and_nothing_beside_the_package(wheel: zipfile.ZipFile) -> None:
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "rewardctl").rglob("*.py")}
    assert packed == modules | {"rewardctl/py.typed"}


def test_wheel_metadata_names_licence_python_and_extras(metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra", [])) == set(EXTRAS)
    assert metadata["Version"] == version("rewardctl")


def test_console_script_resolves() -> None:
    (script,) = entry_points(group="console_scripts", name="rewardctl")
    assert callable(script.load())


def test_version_option_gives_the_version_of_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rewardctl", "--version"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == version("rewardctl")


@pytest.mark.parametrize(
    "reward_class", [c for c in REWARD_CLASSES if c.requires or c.extra], ids=lambda c: c.__name__
)
def test_extra_of_a_reward_model_installs_what_it_requires(
    reward_class: type[BaseRewardModel],
) -> None:
    assert reward_class.extra in EXTRAS
    installed = {canonicalize_name(r.name) for r in requirements_of(EXTRAS[reward_class.extra])}
    providers = packages_distributions()
    for module in reward_class.requires:
        assert installed & {canonicalize_name(name) for name in providers[module]}, module


def test_reward_models_with_learned_weights_name_their_extras() -> None:
    assert {c.extra for c in REWARD_CLASSES if c.extra} == {"ocr", "text", "safety"}


def test_extra_all_is_every_extra_but_dev() -> None:
    (everything,) = (Requirement(line) for line in EXTRAS["all"])
    assert everything.name == "rewardctl"
    assert everything.extras == set(EXTRAS) - {"all", "dev"}


@pytest.mark.parametrize("requirement", all_requirements(), ids=lambda r: r.name)
def test_constraints_pin_each_direct_dependency_inside_its_range(requirement: Requirement) -> None:
    pin = PINS[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(Version(pin))


def test_constraints_keep_torch_exact_and_off_its_companions() -> None:
    # torchvision and torchaudio drag in another build of torch.
    assert "torch==2.13.0" in CONSTRAINTS
    assert not {"torchvision", "torchaudio", "triton"} & set(PINS)


def test_constraints_are_pins_only() -> None:
    for line in CONSTRAINTS:
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)


def make(tmp_path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run make in a folder that holds no virtual environment."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return subprocess.run(["make", *arguments], cwd=tmp_path, capture_output=True, text=True)


@pytest.mark.parametrize("target", ["quickstart", "test", "lint"])
def test_make_gives_pip_args_and_constraints_to_every_pip_call(tmp_path: Path, target: str) -> None:
    done = make(tmp_path, "--dry-run", target, "PIP_ARGS=--no-index")
    pip_lines = [line for line in done.stdout.splitlines() if "pip install" in line]
    assert pip_lines
    assert all("--no-index" in line and "-c constraints.txt" in line for line in pip_lines)


def test_make_gives_pytest_args_to_pytest(tmp_path: Path) -> None:
    done = make(tmp_path, "--dry-run", "test", "PYTEST_ARGS=-k one")
    assert "-m pytest -k one" in done.stdout


def test_make_refuses_an_older_python_by_name(tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1 && exit 0\nexit 1\n')
    old.chmod(0o755)
    done = make(tmp_path, "quickstart", f"PYTHON={old}")
    assert done.returncode != 0
    assert "rewardctl needs Python 3.11 or newer, found: Python 3.9.1" in done.stderr
    assert "make PYTHON=python3.12 quickstart" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_ci_script_can_be_run() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", script]).returncode == 0
