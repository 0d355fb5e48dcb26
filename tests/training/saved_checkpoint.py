"""A small checkpoint on the disk, and ways to change it, for the tests of checkpoints."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from train_project import make_model

from rewardctl.errors import DataError
from rewardctl.training.checkpoint import (
    Checkpoint,
    InputFacts,
    ScoreFacts,
    load_checkpoint,
    save_checkpoint,
)

FACTS = ScoreFacts(0.5, 2.0, 64, "validation")


def save(folder: Path, *, inputs: InputFacts | None = None, **network: Any) -> Checkpoint:
    model = make_model(shaken=True, **network).eval()
    checkpoint = Checkpoint(model, inputs or InputFacts("tokens"), None, {"loss": "x"}, FACTS)
    save_checkpoint(folder, checkpoint, data={"rows": 3}, metrics={"optimizer steps": 7})
    return checkpoint


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def seal_again(folder: Path) -> None:
    """Put the true sizes and hashes of all files into the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in manifest["files"]:
        content = (folder / name).read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        manifest["files"][name] = {"size": len(content), "sha256": sha256}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def change_json(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    seal_again(path.parent)


def error_of(folder: Path) -> str:
    with pytest.raises(DataError) as error:
        load_checkpoint(folder)
    return str(error.value)
