"""Every config that ships is valid, strictly, with all that its reward models say."""

from pathlib import Path

import pytest

from rewardctl.config.yaml_loader import parse_bytes
from rewardctl.runs.validate import validate

FOLDER = Path(__file__).parents[2] / "configs"
CONFIGS = sorted(FOLDER.rglob("*.y*ml"))


def test_all_of_them_are_found() -> None:
    names = [path.relative_to(FOLDER).as_posix() for path in CONFIGS]
    assert names == ["answers.yaml", "images.yaml", "text.yaml"]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_shipped_config_has_no_findings(path: Path) -> None:
    assert validate([str(path)]).findings == []


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_shipped_config_says_what_it_is_for(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_the_hook_for_pre_commit_runs_the_check() -> None:
    path = FOLDER.parent / ".pre-commit-hooks.yaml"
    document, findings = parse_bytes(path.read_bytes(), path.name)
    assert document is not None
    assert findings == []
    assert [hook["entry"] for hook in document.tree] == ["rewardctl validate-config"]
