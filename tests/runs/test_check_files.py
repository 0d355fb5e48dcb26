"""`--check-files`: what a config names and nothing stands at."""

from pathlib import Path

from rewardctl.config.findings import Finding
from rewardctl.runs.validate import validate

TEXT = """\
data:
  datasets:
    - {name: d, path: rows.jsonl}
    - {name: shards, path: shards/*.jsonl}
rewards:
  - {name: a, reward_model: length, model_path: ./weights}
  - {name: b, reward_model: length, model_path: org/model}
python_path: [lib]
model: {init_from: ck}
train: {data: t.jsonl, validation: [v.jsonl]}
eval: {data: e.jsonl}
"""


def findings(tmp_path: Path) -> list[Finding]:
    path = tmp_path / "c.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return validate([str(path)], with_files=True).findings


def test_everything_that_is_missing_is_named(tmp_path: Path) -> None:
    assert [(f.code, f.place) for f in findings(tmp_path)] == [
        ("RC402", "data.datasets[0].path"),
        ("RC402", "data.datasets[1].path"),
        ("RC403", "rewards[0].model_path"),
        ("RC404", "python_path[0]"),
        ("RC403", "model.init_from"),
        ("RC402", "train.data"),
        ("RC402", "train.validation[0]"),
        ("RC402", "eval.data"),
    ]


def test_the_message_has_the_path_that_was_looked_at(tmp_path: Path) -> None:
    first = findings(tmp_path)[0]
    assert first.message == f"data.datasets[0].path: nothing stands at '{tmp_path}/rows.jsonl'"


def test_nothing_is_said_where_all_is_there(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    for name in ("rows", "shards/1", "t", "v", "e"):
        (tmp_path / f"{name}.jsonl").touch()
    for name in ("weights", "lib", "ck"):
        (tmp_path / name).mkdir()
    assert findings(tmp_path) == []


def test_files_are_not_looked_for_unasked(tmp_path: Path) -> None:
    findings(tmp_path)
    assert validate([str(tmp_path / "c.yaml")]).findings == []
