"""Typos never pass: each key of a valid config changed by one edit, each value by its type."""

import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rewardctl.config.draft import check_schema
from rewardctl.config.explain import SECTION_AT
from rewardctl.config.hints import did_you_mean
from rewardctl.config.load import check_config
from rewardctl.config.positions import Document
from rewardctl.config.yaml_loader import parse_text

# Every key of a stream, of train and of model; one a line, so that a line names a key.
VALID = """\
data:
  datasets:
    - name: maths
      path: maths.jsonl
rewards:
  - name: one
    reward_model: length
    model_path: org/model
    dtype: float32
    device: auto
    batch_size: 16
    applicable_datasets: [maths]
    weight: {maths: 1.0}
    async_reward: true
    num_workers: 2
    options: {unit: words}
execution:
  acquisition: dataset
  feedback: runtime_reward
score:
  aggregate: weighted_sum
  on_failure: no_aggregate
  window: 4096
  max_group_size: 1024
python_path: [.]
model:
  size: small
  input: text
  vocab_size: 4096
  seq_length: 256
  pooling: mean
  qk_norm: false
  rope_theta: 10000.0
  dropout: 0.1
  mlp_ratio: 4.0
  timestep_aware: false
  tokenizer: bpe
  init_from: runs/a
  init_head: fresh
train:
  data: train.jsonl.gz
  validation: {split: 0.1}
  output_dir: runs/b
  epochs: 3
  batch_size: 32
  lr: 1.0e-4
  weight_decay: 0.01
  warmup_ratio: 0.1
  schedule: constant
  grad_clip: 1.0
  loss: bradley_terry
  margin_mode: scale
  label_smoothing: 0.0
  center_coefficient: 0.0
  kwise_pairs: all
  overlong: error
  mixed_precision: "no"
  log_every: 10
  eval_every: 100
  save_every: 100
  keep_last: 2
  early_stopping: {metric: val_loss}
  report_to: none
  seed: 0
eval:
  output_dir: runs/eval
  cluster: prompt
media:
  background: white
  max_pixels: 50000000
  max_frames: 256
  max_memory: 2GiB
"""
LINES = VALID.splitlines()
KEYED = [
    (number, line.lstrip(" -").partition(":")[0])
    for number, line in enumerate(LINES, 1)
    if line.lstrip(" -").partition(":")[1]
]


def findings(text: str) -> list[tuple[int | None, str, str | None]]:
    """Line, code and hint of each finding of schema and syntax."""
    document, found = parse_text(text, "c.yaml")
    assert document is not None
    return [(f.line, f.code, f.hint) for f in [*found, *check_schema(document).findings]]


def edits(key: str) -> st.SearchStrategy[str]:
    """Everything that one edit makes of a key."""
    letter = st.sampled_from(string.ascii_lowercase + "_")
    at = st.integers(0, len(key) - 1)
    return st.one_of(
        st.builds(lambda i: key[:i] + key[i + 1 :], at),
        st.builds(lambda i, c: key[:i] + c + key[i + 1 :], at, letter),
        st.builds(lambda i, c: key[:i] + c + key[i:], at, letter),
        st.builds(lambda i: key[:i] + key[i : i + 2][::-1] + key[i + 2 :], at),
    ).filter(lambda edited: edited not in ("", key))


def test_the_config_that_is_changed_here_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(VALID, encoding="utf-8")
    assert check_config(path)[1] == []


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_key_with_one_edit_is_flagged_on_its_line(data: st.DataObject) -> None:
    number, key = data.draw(st.sampled_from(KEYED))
    edited = data.draw(edits(key))
    line = LINES[number - 1].replace(key, edited, 1)
    text = "\n".join([*LINES[: number - 1], line, *LINES[number:]])
    assert number in [found for found, code, _ in findings(text) if code in ("RC203", "RC108")]


def test_a_key_with_one_letter_changed_gets_the_right_hint() -> None:
    """At least 95 of 100 typos are hinted right; a very short key may be nearer to another."""
    tried = right = 0
    for section in SECTION_AT.values():
        keys = list(section.model_fields)
        for key in keys:
            for at in range(len(key)):
                typos = (
                    key[:at] + key[at + 1 :],
                    key[:at] + "z" + key[at + 1 :],
                    key[:at] + "q" + key[at:],
                )
                for typo in typos:
                    if typo and typo not in keys:
                        tried += 1
                        right += did_you_mean(typo, keys) == key
    assert tried > 1000
    assert right >= 0.95 * tried


WRONG: dict[type, list[Any]] = {
    str: [5, 1.5, True, ["x"], {"x": 1}],
    int: ["x", 1.5, True, [1], {"x": 1}],
    float: ["x", True, [1.0], None],
    bool: ["x", 1, 0.5, [True], {"x": 1}, None],
    list: ["x", 5, True],
    dict: [True, []],
}
# Where another type is legal too: a number or a mapping, a path or a list, a text or a number.
ALSO_LEGAL = {("rewards", 0, "weight"), ("train", "data"), ("media", "max_memory")}
NULLABLE = {("train", "grad_clip"), ("train",)}


def leaves(node: Any, place: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Any]]:
    """Every place of a tree with its value, but for the inside of what users name themselves."""
    found = [(place, node)] if place else []
    if place[-1:] in (("options",), ("weight",)):
        return found
    children = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    for step, child in children:
        found += leaves(child, (*place, step))
    return found


def tree() -> Any:
    document, _ = parse_text(VALID, "c.yaml")
    assert document is not None
    return document.tree


@pytest.mark.parametrize(
    ("place", "value"),
    [(p, v) for p, v in leaves(tree()) if p not in ALSO_LEGAL],
    ids=lambda each: ".".join(map(str, each)) if isinstance(each, tuple) else None,
)
def test_a_value_of_another_type_is_flagged(place: tuple[str | int, ...], value: Any) -> None:
    for wrong in WRONG[type(value)]:
        if (wrong is None and place in NULLABLE) or place == ("rewards",):
            continue
        changed = tree()
        node = changed
        for step in place[:-1]:
            node = node[step]
        node[place[-1]] = wrong
        assert check_schema(Document("c.yaml", changed)).findings, f"{place} = {wrong!r}"
