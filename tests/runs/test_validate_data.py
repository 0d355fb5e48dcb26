"""`validate-data`, and what `train` gets of its data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardctl.config.training_schema import ModelConfig, TrainConfig
from rewardctl.data.tokenizer import TextEncoder
from rewardctl.errors import ConfigError, DataError, UsageError
from rewardctl.runs.validate_data import prepare_data, validate_data

TOKENS = {"input": "tokens", "vocab_size": 32, "seq_length": 4}
PAIRS = [{"chosen": [1], "rejected": [2]}, {"chosen": [3], "rejected": [4]}]


def rows(tmp_path: Path, *records: Any, name: str = "pairs.jsonl") -> str:
    (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(tmp_path / name)


def config(tmp_path: Path, *, model: Any = TOKENS, **train: Any) -> str:
    sections = {"model": model, "train": {"data": "pairs.jsonl", **train}}
    (tmp_path / "config.yaml").write_text(json.dumps(sections))
    return str(tmp_path / "config.yaml")


def lines(tmp_path: Path, *, strict: bool = False, **settings: Any) -> tuple[int, list[str]]:
    outcome = validate_data(config(tmp_path, **settings), strict=strict)
    return outcome.exit_code, outcome.text.split("\n")


# A config


def test_sound_data_pass(tmp_path: Path) -> None:
    rows(tmp_path, *PAIRS)
    assert lines(tmp_path) == (
        0,
        [
            "train: pairs.jsonl: 2 rows read, 2 used, positions median 1, max 1",
            "0 errors, 0 left out, 0 warnings, 0 notes",
        ],
    )


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ({"chosen": [3, 4], "rejected": []}, "pairs.jsonl:3: error: column 'rejected': expected"),
        ({"chosen": [32], "rejected": [1]}, "pairs.jsonl:3: error: chosen: token 32 at position 0"),
        (
            {"chosen": [1] * 5, "rejected": [1]},
            "pairs.jsonl:3: error: chosen has 5 positions, over",
        ),
        (
            {**PAIRS[0], "margin": "wide"},
            "pairs.jsonl:3: error: column 'margin': expected a finite",
        ),
        (
            {**PAIRS[0], "timestep": 500},
            "pairs.jsonl:3: error: column 'timestep': expected a number",
        ),
        ({"prompt": "", "chosen": "a", "rejected": "b"}, "pairs.jsonl:3: error: mixed kinds: the"),
    ],
)
def test_a_bad_row_is_named_and_refused(tmp_path: Path, record: Any, line: str) -> None:
    rows(tmp_path, *PAIRS, record)
    exit_code, found = lines(tmp_path)
    assert exit_code == 1
    assert found[0].startswith(line)


def test_a_pair_equal_after_the_cut_is_left_out_by_line(tmp_path: Path) -> None:
    same = {"chosen": [5, 5, 5, 5, 9], "rejected": [5, 5, 5, 5, 8]}
    rows(tmp_path, PAIRS[0], same, PAIRS[1])
    exit_code, found = lines(tmp_path, overlong="keep_head")
    assert exit_code == 0
    assert found[0].startswith("pairs.jsonl:2: left out: chosen and rejected are equal in the 4")
    assert "3 rows read, 2 used, 1 left out (identical_after_truncation)" in found[1]


def test_strict_makes_warnings_count(tmp_path: Path) -> None:
    rows(tmp_path, *PAIRS, {**PAIRS[0], "preference": 0.5})
    assert lines(tmp_path)[0] == 0
    assert lines(tmp_path, strict=True)[0] == 1


def test_rows_that_the_loss_cannot_use_are_errors(tmp_path: Path) -> None:
    rows(tmp_path, PAIRS[0], {**PAIRS[1], "preference": 0.7})
    exit_code, found = lines(tmp_path, loss="rao_kupper")
    assert exit_code == 1
    assert found[0].startswith("pairs.jsonl:2: error: 'preference' must be 0, 0.5 or 1")


def test_margins_are_judged_by_the_margin_mode(tmp_path: Path) -> None:
    rows(tmp_path, *[{**pair, "margin": 9} for pair in PAIRS])
    assert "meant margin_mode: subtract?" in lines(tmp_path)[1][0]
    assert lines(tmp_path, margin_mode="subtract")[1][-1].startswith("0 errors, 0 left out, 0 w")


def test_overrides_apply_to_the_config(tmp_path: Path) -> None:
    rows(tmp_path, {"chosen": [1] * 9, "rejected": [2]})
    path = config(tmp_path)
    assert validate_data(path).exit_code == 1
    assert validate_data(path, ["model.seq_length=9"]).exit_code == 0


def test_a_config_without_train_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("model: {input: text}\n")
    with pytest.raises(ConfigError, match="expected a train: section, whose data are audited"):
        validate_data(str(tmp_path / "c.yaml"))


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    rows(tmp_path)
    with pytest.raises(DataError, match=r"pairs\.jsonl: .* found no rows"):
        validate_data(config(tmp_path))


def test_json_is_one_object_that_says_whether_all_is_well(tmp_path: Path) -> None:
    rows(tmp_path, *PAIRS)
    report = json.loads(validate_data(config(tmp_path)).json)
    assert (report["ok"], report["strict"], report["counts"]["train"]["rows"]) == (True, False, 2)


# A file by itself


def test_a_preference_file_needs_no_config(tmp_path: Path) -> None:
    path = rows(tmp_path, PAIRS[0], {"chosen": [5], "rejected": [5]}, {"chosen": [1]})
    outcome = validate_data(path)
    assert outcome.exit_code == 1
    assert [line.partition(", found")[0] for line in outcome.text.split("\n")] == [
        "pairs.jsonl:3: error: no 'rejected'",
        "pairs.jsonl:2: left out: the sides are equal",
        "train: pairs.jsonl: 3 rows read, 1 used, 1 left out (identical)",
        "1 error, 1 left out, 0 warnings, 0 notes",
    ]


def test_image_pairs_are_read_without_opening_images(tmp_path: Path) -> None:
    path = rows(tmp_path, {"prompt": "p", "chosen_image": "a.png", "rejected_image": "b.png"})
    assert validate_data(path).exit_code == 0


def test_latents_of_a_file_are_decoded(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[np.inf]]))
    path = rows(tmp_path, {"chosen_latents": "a.npy", "rejected": [[1]]})
    assert "'a.npy': holds NaN or infinity" in validate_data(path).text


def test_overrides_need_a_config(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--set is for a config, but .* is read as preference"):
        validate_data(rows(tmp_path, *PAIRS), ["train.lr=1"])


# What training gets


def prepared(tmp_path: Path, *records: Any, model: Any = TOKENS, **train: Any) -> Any:
    data = [{"path": rows(tmp_path, *records)}]
    return prepare_data(
        TrainConfig.model_validate({"data": data, **train}), ModelConfig.model_validate(model)
    )


def prompts(count: int) -> list[Any]:
    return [
        {"prompt": f"p{place % 5}", "chosen": [place % 7 + 1], "rejected": [9], "half": place % 2}
        for place in range(count)
    ]


def test_validation_is_held_out_by_prompt(tmp_path: Path) -> None:
    found = prepared(tmp_path, *prompts(20), validation={"split": 0.2})
    assert (len(found.train), len(found.validation)) == (16, 4)
    assert found.report.counts["validation"]["source"] == "pairs.jsonl (split by prompt)"
    assert not [problem for problem in found.report.problems if problem.kind == "prompt_in_both"]


def test_validation_is_held_out_by_any_column(tmp_path: Path) -> None:
    found = prepared(tmp_path, *prompts(20), validation={"split": 0.5, "by": "half"})
    halves = {int(row.place.partition(":")[2]) % 2 for row in found.train}
    assert (len(found.train), len(halves)) == (10, 1)


def test_a_split_by_a_column_of_no_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        prepared(tmp_path, *PAIRS, validation={"split": 0.5})
    assert str(caught.value) == (
        "pairs.jsonl: train.validation splits by 'prompt', which no row has; "
        "set train.validation.by to a column of the rows: chosen, rejected"
    )


def test_a_split_by_a_single_value_is_refused(tmp_path: Path) -> None:
    same = [{**pair, "prompt": "p"} for pair in PAIRS]
    with pytest.raises(DataError, match="splits by 'prompt': expected rows of at least two values"):
        prepared(tmp_path, *same, validation={"split": 0.5})


def test_validation_files_are_read_and_audited(tmp_path: Path) -> None:
    held = rows(tmp_path, {"chosen": [1], "rejected": [1]}, PAIRS[1], name="held.jsonl")
    found = prepared(tmp_path, *PAIRS, validation=[{"path": held}])
    assert [row.place for row in found.validation] == ["held.jsonl:2"]
    assert [problem.place for problem in found.report.left_out] == ["held.jsonl:1"]


def test_no_validation_is_none(tmp_path: Path) -> None:
    assert prepared(tmp_path, *PAIRS).validation is None


TEXTS = [{"prompt": "Hi", "chosen": "a b a b", "rejected": f"b a {n}"} for n in range(4)]


def test_text_trains_a_tokenizer_on_the_rows_kept(tmp_path: Path) -> None:
    found = prepared(tmp_path, *TEXTS, model={"input": "text", "vocab_size": 300})
    assert 256 < found.encoder.vocab_size <= 300
    assert len(found.train) == 4


def test_text_as_bytes_or_with_a_given_tokenizer(tmp_path: Path) -> None:
    plain = prepared(tmp_path, *TEXTS, model={"input": "text", "tokenizer": "bytes"})
    TextEncoder.byte_encoder().save(tmp_path / "t.json")
    model = {"input": "text", "tokenizer": str(tmp_path / "t.json")}
    given = prepared(tmp_path, *TEXTS, model=model)
    assert plain.train[0].items[0].tolist() == list(b"Hi\na b a b")
    assert given.train[0].items[0].tolist() == list(b"Hi\na b a b")


def test_a_checkpoints_sizes_and_tokenizer_are_used(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    network = {"vocab_size": 256, "in_channels": None, "seq_length": 6, "timestep_aware": False}
    stored = {"network": network, "input": {"kind": "text"}}
    (folder / "config.json").write_text(json.dumps(stored))
    TextEncoder.byte_encoder().save(folder / "tokenizer.json")
    rows(tmp_path, *TEXTS)
    outcome = validate_data(config(tmp_path, model={"init_from": "checkpoint"}))
    assert "chosen has 10 positions, over model.seq_length 6" in outcome.text
