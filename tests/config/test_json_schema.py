"""The JSON Schema that editors use."""

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rewardctl.config.json_schema import json_schema
from rewardctl.config.yaml_loader import parse_bytes, parse_text

CONFIGS = sorted((Path(__file__).parents[2] / "configs").rglob("*.yaml"))


def errors(text: str) -> list[str]:
    document, _ = parse_text(text, "c.yaml")
    assert document is not None
    return [
        error.message for error in Draft202012Validator(json_schema()).iter_errors(document.tree)
    ]


def test_it_is_a_schema_of_the_draft_that_it_names() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_configs_fit(path: Path) -> None:
    document, _ = parse_bytes(path.read_bytes(), path.name)
    assert document is not None
    Draft202012Validator(json_schema()).validate(document.tree)


@pytest.mark.parametrize(
    "text",
    [
        "rewards: {name: a, reward_model: length}",
        "rewards: [{name: a, reward_model: length, weight: 1}]",
        "rewards: [{name: a, reward_model: length, weight: {x: 1.5}}]",
        "rewards: [{name: a, reward_model: length, dtype: bf16, options: {min: 3}}]",
        "eval_rewards: {name: a, reward_model: length}",
        "train: {data: x.jsonl, validation: {split: 0.1}}",
        "train: {data: [x.jsonl, {path: y.jsonl}], validation: v.jsonl, grad_clip: null}",
        "media: {max_memory: 2GiB}",
        "media: {max_memory: 1024}",
    ],
)
def test_every_form_fits(text: str) -> None:
    assert errors(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "rewards: [{name: a}]",
        "rewards: [{name: a, reward_model: length, wieght: 1}]",
        "rewards: [{name: a, reward_model: length, weight: heavy}]",
        "score: {aggregate: sum}",
        "train: {data: 3}",
        "folder: /tmp",
    ],
)
def test_what_the_check_refuses_does_not_fit(text: str) -> None:
    assert errors(text) != []


def test_every_key_has_a_description() -> None:
    def sections(schema: dict[str, Any]) -> list[dict[str, Any]]:
        return [schema, *schema["$defs"].values()]

    missing = [
        key
        for section in sections(json_schema())
        for key, described in section["properties"].items()
        if not described.get("description")
    ]
    assert missing == []


def test_defaults_are_shown() -> None:
    stream = json_schema()["$defs"]["RewardArguments"]["properties"]
    assert (stream["dtype"]["default"], stream["weight"]["default"]) == ("float32", 1.0)
    assert json_schema()["$defs"]["MediaConfig"]["properties"]["max_memory"]["default"] == "2GiB"
