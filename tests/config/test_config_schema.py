"""Keys, types and ranges of the config, and what the findings say about them."""

from collections.abc import Callable

import pytest

from rewardctl.config.findings import Finding
from rewardctl.config.schema import MediaConfig, RewardArguments, parse_bytes

Check = Callable[..., list[Finding]]

STREAM = "rewards:\n  - name: a\n    reward_model: length\n"


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, [str(f) for f in findings]
    return findings[0]


def test_the_smallest_config_is_valid(check: Check) -> None:
    assert check(STREAM) == []


def test_one_mapping_is_a_list_of_one(check: Check) -> None:
    assert check("rewards: {name: a, reward_model: length}\n") == []


def test_a_stream_written_as_one_mapping_has_the_place_of_a_list_of_one(check: Check) -> None:
    finding = only(check("rewards:\n  name: a\n  reward_model: length\n  weight: heavy\n"))
    assert (finding.line, finding.column, finding.place) == (4, 11, "rewards[0].weight")


def test_an_unknown_key_has_its_line_and_a_near_name(check: Check) -> None:
    finding = only(check(STREAM + "    batchsize: 4\n"))
    assert str(finding) == (
        "c.yaml:4:5: RC203 error: unknown key 'batchsize' in rewards[0] "
        "(did you mean 'batch_size'?)"
    )


def test_text_for_a_number_is_refused_at_its_full_place(check: Check) -> None:
    finding = only(check(STREAM + "    weight: heavy\n"))
    assert str(finding) == (
        "c.yaml:4:13: RC204 error: rewards[0].weight: expected a number, or a mapping of dataset "
        "to number, got 'heavy'"
    )


def test_a_quoted_number_gets_the_hint_to_drop_the_quotes(check: Check) -> None:
    assert only(check(STREAM + "    batch_size: '16'\n")).hint == "drop the quotes"


def test_a_number_with_separators_gets_the_plain_spelling(check: Check) -> None:
    assert only(check(STREAM + "    batch_size: 1_000\n")).hint == "write 1000"


def test_a_key_of_the_reward_model_belongs_under_options(check: Check) -> None:
    hint = only(check(STREAM + "    checkpoint_dtype: x\n")).hint
    assert hint == "what the reward model alone understands goes under options:"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("model_name_or_path", "model_path"),
        ("reward_fn", "reward_model"),
        ("reward_weight", "weight"),
        ("datasets", "applicable_datasets"),
        ("torch_dtype", "dtype"),
        ("per_device_eval_batch_size", "batch_size"),
        ("extra_kwargs", "options"),
    ],
)
def test_names_of_other_tools_are_known_in_a_stream(check: Check, key: str, meant: str) -> None:
    assert only(check(STREAM + f"    {key}: x\n")).hint == f"did you mean {meant!r}?"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("learning_rate", "lr"),
        ("num_train_epochs", "epochs"),
        ("per_device_train_batch_size", "batch_size"),
        ("micro_batch_size", "batch_size"),
        ("max_grad_norm", "grad_clip"),
        ("lr_scheduler_type", "schedule"),
        ("warmup_steps", "warmup_ratio"),
        ("logging_steps", "log_every"),
        ("save_total_limit", "keep_last"),
        ("center_rewards_coefficient", "center_coefficient"),
        ("val_set_size", "validation"),
        ("bf16", "mixed_precision"),
    ],
)
def test_names_of_other_tools_are_known_in_train(check: Check, key: str, meant: str) -> None:
    finding = only(check(f"train:\n  data: x.jsonl\n  {key}: 1\n"))
    assert (finding.line, finding.hint) == (3, f"did you mean {meant!r}?")


@pytest.mark.parametrize(
    ("key", "meant"), [("max_length", "seq_length"), ("cutoff_len", "seq_length")]
)
def test_names_of_other_tools_are_known_in_model(check: Check, key: str, meant: str) -> None:
    assert only(check(f"model: {{{key}: 8}}\n")).hint == f"did you mean {meant!r}?"


def test_a_key_of_another_section_is_sent_there(check: Check) -> None:
    assert only(check("lr: 1e-4\n")).hint == "'lr' belongs under train:"


def test_another_tools_key_at_the_top_is_sent_to_its_section(check: Check) -> None:
    assert only(check("learning_rate: 1e-4\n")).hint == "did you mean 'lr' under train:?"


def test_a_key_like_no_other_gets_the_list(check: Check) -> None:
    hint = only(check("score: {qqqq: 1}\n")).hint
    assert hint == "known are aggregate, on_failure, window, max_group_size"


def test_a_missing_key_is_named(check: Check) -> None:
    finding = only(check("rewards:\n  - reward_model: length\n"))
    assert (finding.code, finding.line) == ("RC202", 2)
    assert finding.message == "missing key 'name' in rewards[0]"


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("name: a b", "RC205", "expected 1 to 64 letters, digits, '_', '.' or '-', got 'a b'"),
        ("name: 5", "RC204", "expected text, got 5"),
        ("model_path: true", "RC204", "expected text, got true"),
        ("dtype: float64", "RC205", "expected one of float32, fp32, float16, fp16"),
        ("device: gpu", "RC205", "expected auto, cpu, cuda, cuda:N or mps, got 'gpu'"),
        ("device: cuda:x", "RC205", "expected auto, cpu, cuda, cuda:N or mps"),
        ("batch_size: 0", "RC205", "expected at least 1, got 0"),
        ("batch_size: 2.5", "RC204", "expected a whole number, got 2.5"),
        ("batch_size: true", "RC204", "expected a whole number, got true"),
        ("applicable_datasets: x", "RC204", "expected a list, got 'x'"),
        ("applicable_datasets: [1]", "RC204", "expected text, got 1"),
        ("weight: true", "RC204", "expected a number, or a mapping of dataset to number, got true"),
        (
            "weight: [1]",
            "RC204",
            "expected a number, or a mapping of dataset to number, got a list",
        ),
        ("weight: {x: heavy}", "RC204", "rewards[0].weight.x: expected a number, got 'heavy'"),
        ("weight: {mapping: x}", "RC204", "rewards[0].weight.mapping: expected a number, got 'x'"),
        ("async_reward: yes", "RC204", "expected true or false, got 'yes'"),
        ("async_reward: 1", "RC204", "expected true or false, got 1"),
        ("num_workers: 0", "RC205", "expected at least 1, got 0"),
        ("options: x", "RC204", "expected a mapping of option to value, got 'x'"),
    ],
)
def test_a_bad_value_of_a_stream_is_refused(
    check: Check, line: str, code: str, message: str
) -> None:
    keys = {"name": "name: a", "reward_model": "reward_model: length"}
    keys[line.partition(":")[0]] = line
    found = only(check("rewards:\n  -\n" + "".join(f"    {each}\n" for each in keys.values())))
    assert found.code == code
    assert message in found.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("score: {aggregate: sum}", "expected 'weighted_sum' or 'weighted_mean', got 'sum'"),
        ("score: {window: 0}", "score.window: expected at least 1, got 0"),
        ("execution: {feedback: off}", "expected 'runtime_reward' or 'none', got 'off'"),
        ("data: {datasets: [{name: a}]}", "missing key 'path' in data.datasets[0]"),
        ("data: {datasets: [{name: a, path: ''}]}", "expected a path, got ''"),
        ("python_path: src", "python_path: expected a list, got 'src'"),
        ("media: {max_memory: 2 gigs}", "expected a count of bytes, or text as 2GiB or 512MB"),
        ("media: {max_memory: 0}", "media.max_memory: expected at least 1, got 0"),
        ("media: {background: '#zzz'}", "expected the name of a colour, #rrggbb or rgb(r, g, b)"),
        ("media: {video_fps: 0}", "media.video_fps: expected more than 0, got 0"),
        ("rewards: 3", "rewards: expected a list, got 3"),
        ("rewards: [3]", "rewards[0]: expected a mapping, got 3"),
        ("score: 3", "score: expected a mapping, got 3"),
        ("score:", "score: expected a mapping, got null"),
    ],
)
def test_a_bad_value_of_a_section_is_refused(check: Check, text: str, message: str) -> None:
    assert message in only(check(text + "\n")).message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr: 0", "train.lr: expected more than 0, got 0"),
        ("lr: .inf", "expected a finite number at train.lr, got .inf"),
        ("epochs: 1.5", "train.epochs: expected a whole number, got 1.5"),
        ("label_smoothing: 0.5", "train.label_smoothing: expected less than 0.5, got 0.5"),
        ("warmup_ratio: 2", "train.warmup_ratio: expected at most 1, got 2"),
        ("schedule: cosin", "expected 'constant', 'cosine' or 'linear', got 'cosin'"),
        ("mixed_precision: false", "expected 'no' or 'bf16', got false"),
        ("validation: {split: 1.0}", "train.validation.split: expected less than 1, got 1"),
        ("validation: {by: x}", "missing key 'split' in train.validation"),
        ("validation: 3", "expected a path, a mapping {path, name, columns, direction}, or a list"),
        ("early_stopping: {metric: loss}", "expected 'val_loss' or 'val_accuracy', got 'loss'"),
        ("ema_decay: 1", "train.ema_decay: expected less than 1, got 1"),
    ],
)
def test_a_bad_value_of_train_is_refused(check: Check, text: str, message: str) -> None:
    assert message in only(check(f"train:\n  data: x.jsonl\n  {text}\n")).message


@pytest.mark.parametrize(
    "data",
    [
        "x.jsonl",
        "{path: x.jsonl, name: n, columns: {better: chosen}, direction: higher_is_better}",
        "[x.jsonl, {path: y.jsonl.gz}]",
    ],
)
def test_data_is_a_path_a_mapping_or_a_list(check: Check, data: str) -> None:
    assert check(f"train: {{data: {data}, validation: {data}}}\neval: {{data: {data}}}\n") == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("3", "train.data: expected a path, a mapping {path, name, columns, direction}, or a list"),
        ("[x, 3]", "train.data[1]: expected a path or a mapping {path, name, columns, direction}"),
        ("[]", "train.data: expected something that is not empty"),
        ("{pth: x}", "missing key 'path' in train.data"),
        ("{path: x, direction: up}", "expected 'higher_is_better' or 'lower_is_better', got 'up'"),
    ],
)
def test_other_data_is_refused_at_its_place(check: Check, data: str, message: str) -> None:
    assert any(message in f.message for f in check(f"train: {{data: {data}}}\n"))


def test_mixed_precision_no_is_text_without_quotes(check: Check) -> None:
    assert check("train: {data: x.jsonl, mixed_precision: no}\n") == []


def test_an_old_boolean_is_explained(check: Check) -> None:
    hint = only(check(STREAM + "    async_reward: on\n")).hint
    assert hint == "YAML 1.2 writes true or false"


def test_a_float_that_is_whole_gets_the_spelling(check: Check) -> None:
    assert only(check("train: {data: x, epochs: 3.0}\n")).hint == "write 3"


def test_text_for_a_list_gets_the_spelling(check: Check) -> None:
    assert only(check(STREAM + "    applicable_datasets: maths\n")).hint == "write [maths]"


def test_a_near_choice_is_hinted(check: Check) -> None:
    assert only(check("train: {data: x, schedule: cosin}\n")).hint == "did you mean 'cosine'?"


def test_all_findings_are_reported_in_order(check: Check) -> None:
    text = STREAM + "    weight: heavy\n    nme: x\nscore: {widow: 1}\nlearning_rate: 1\n"
    assert [(f.code, f.line) for f in check(text)] == [
        ("RC204", 4),
        ("RC203", 5),
        ("RC203", 6),
        ("RC203", 7),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the config is empty, expected a mapping with rewards:, train: or eval:"),
        ("{}", "the config is empty"),
        ("- a\n", "expected a mapping with rewards:, train: or eval:, got a list"),
        ("hello\n", "expected a mapping with rewards:, train: or eval:, got 'hello'"),
    ],
)
def test_a_file_without_sections_says_what_is_expected(
    check: Check, text: str, message: str
) -> None:
    finding = only(check(text))
    assert finding.code == "RC201"
    assert message in finding.message


def test_a_null_that_may_be_left_out_is_the_default(check: Check) -> None:
    text = STREAM + "    batch_size:\n    applicable_datasets: null\n    options:\ntrain:\n"
    assert check(text) == []


@pytest.mark.parametrize(
    ("written", "size"),
    [("2GiB", 2 * 2**30), ("512MB", 512_000_000), ("1.5 KiB", 1536), (4096, 4096), ("7b", 7)],
)
def test_sizes_in_bytes(written: str | int, size: int) -> None:
    assert parse_bytes(written) == size


def test_max_memory_is_a_number_of_bytes_by_default() -> None:
    assert MediaConfig().max_memory == 2 * 2**30


def test_dtype_aliases_are_resolved() -> None:
    assert RewardArguments(name="a", reward_model="length", dtype="bf16").dtype == "bfloat16"


def test_options_are_attributes_and_extra_kwargs() -> None:
    stream = RewardArguments(name="a", reward_model="x", options={"k": 1})
    assert (stream.extra_kwargs["k"], stream.k) == (1, 1)


def test_a_name_that_is_no_option_is_no_attribute() -> None:
    stream = RewardArguments(name="a", reward_model="x", options={"k": 1})
    with pytest.raises(AttributeError):
        _ = stream.other


def test_options_are_not_in_the_repr() -> None:
    stream = RewardArguments(name="a", reward_model="x", options={"key": "hush"})
    assert "hush" not in repr(stream)
