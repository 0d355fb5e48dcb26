"""How the tests of the config write a file and read what was found in it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rewardctl.config.findings import Finding
from rewardctl.config.load import check_config

Check = Callable[..., list[Finding]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Findings in a config of this text, whose path is `c.yaml`."""
    monkeypatch.chdir(tmp_path)

    def findings(text: str, overrides: Sequence[str] = ()) -> list[Finding]:
        Path("c.yaml").write_text(text, encoding="utf-8")
        return check_config(Path("c.yaml"), overrides)[1]

    return findings
