"""From a file, or from names of reward models, to a Config; sections, folders and errors."""

import os
from pathlib import Path

import pytest

from rewardctl.config.load import check_config, config_from_rewards, load_config
from rewardctl.errors import ConfigError

TRAIN_ERROR = "train: {learning_rate: 1}\n"
STREAM = "rewards: {name: a, reward_model: length}\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_valid_file_is_a_config_without_findings(tmp_path: Path) -> None:
    config, findings = check_config(write(tmp_path, STREAM))
    assert findings == []
    assert config is not None
    assert config.rewards[0].name == "a"
    assert config.folder == tmp_path


def test_the_error_of_a_run_lists_every_finding_with_its_position(tmp_path: Path) -> None:
    path = write(
        tmp_path, "rewards:\n  - name: a\n    reward_model: length\n    weigth: 1\nscor: 1\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    lines = str(caught.value).split("\n")
    assert lines[0] == f"{path}: 2 errors, 0 warnings in 1 file"
    assert lines[1].startswith(f"{path}:4:5: RC203 error: unknown key 'weigth'")
    assert lines[2].startswith(f"{path}:5:1: RC203 error: unknown key 'scor'")


def test_a_single_finding_is_the_whole_error(tmp_path: Path) -> None:
    path = write(tmp_path, "scor: 1\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}:1:1: RC203 error: ")


def test_a_command_reads_its_own_sections_only(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, STREAM + TRAIN_ERROR), sections={"rewards"})
    assert config.train is None


def test_errors_of_its_own_sections_stop_a_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown key 'learning_rate' in train"):
        load_config(write(tmp_path, STREAM + TRAIN_ERROR), sections={"train"})


@pytest.mark.parametrize("text", ["oops: 1\n", "train: {lr: 1, lr: 2}\n", "train: [\n"])
def test_syntax_and_unknown_sections_stop_every_command(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load_config(write(tmp_path, STREAM + text), sections={"rewards"})


def test_a_bad_number_of_another_section_stops_nobody(tmp_path: Path) -> None:
    path = write(tmp_path, STREAM + "train: {lr: .nan}\n")
    assert load_config(path, sections={"rewards"}).rewards[0].name == "a"


def test_paths_start_from_the_folder_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "elsewhere").mkdir()
    path = write(
        tmp_path / "conf",
        "data: {datasets: [{name: d, path: ../rows.jsonl}]}\n"
        "python_path: [., lib]\n" + STREAM + "train: {data: [t.jsonl], output_dir: runs/x}\n"
        "model: {tokenizer: tok.json}\n"
        "eval: {data: {path: e.jsonl}, output_dir: /abs}\n",
    )
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = load_config(Path(os.path.relpath(path)))
    assert config.data.datasets[0].path == tmp_path / "rows.jsonl"
    assert config.python_path == [tmp_path / "conf", tmp_path / "conf" / "lib"]
    assert config.train is not None
    assert config.train.data[0].path == tmp_path / "conf" / "t.jsonl"
    assert config.train.output_dir == tmp_path / "conf" / "runs" / "x"
    assert config.model.tokenizer == str(tmp_path / "conf" / "tok.json")
    assert config.eval.data is not None
    assert config.eval.data[0].path == tmp_path / "conf" / "e.jsonl"
    assert config.eval.output_dir == Path("/abs")


def test_the_default_python_path_is_the_folder_of_the_config(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, STREAM)).python_path == [tmp_path]


def test_a_model_path_is_a_path_where_something_stands(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    text = "rewards:\n"
    text += "  - {name: a, reward_model: length, model_path: weights}\n"
    text += "  - {name: b, reward_model: length, model_path: org/model}\n"
    streams = load_config(write(tmp_path, text)).rewards
    assert streams[0].model_path == str(tmp_path / "weights")
    assert streams[1].model_path == "org/model"


def test_defaults_that_depend_on_other_keys_are_filled(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "train: {data: x}\n"))
    assert config.train is not None
    assert config.train.epochs == 3
    assert (config.model.size, config.model.tokenizer, config.model.vocab_size) == (
        "small",
        "bpe",
        4096,
    )
    assert config.model.model_fields_set == set()


def test_max_steps_has_no_epochs(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "train: {data: x, max_steps: 5}\n"))
    assert config.train is not None
    assert (config.train.epochs, config.train.max_steps) == (None, 5)


def test_a_checkpoint_to_start_from_decides_what_is_left_out(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "model: {init_from: ck}\ntrain: {data: x}\n"))
    assert config.model.init_from == str(tmp_path / "ck")
    assert (config.model.size, config.model.tokenizer, config.model.vocab_size) == (
        None,
        None,
        None,
    )


def test_names_of_reward_models_are_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = config_from_rewards(["length", "my.mod:Model"], ["rewards.length.weight=2"])
    assert [(s.name, s.reward_model) for s in config.rewards] == [
        ("length", "length"),
        ("my.mod.Model", "my.mod:Model"),
    ]
    assert config.rewards[0].weight == 2
    assert config.folder == tmp_path


def test_a_reward_model_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        config_from_rewards(["length", "length"])
    assert str(caught.value).startswith(
        "--reward length: RC301 error: rewards[1].name is 'length', and so is rewards[0].name"
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.yaml: RC401 error: there is no such file"):
        load_config(tmp_path / "nope.yaml")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="RC401 error: is a folder, expected a YAML file"):
        load_config(tmp_path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ConfigError, match="is no regular file, expected a YAML file"):
        load_config(tmp_path / "pipe.yaml")


def test_a_path_that_no_system_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="RC401 error: "):
        load_config(Path("a\0b.yaml"))


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigError, match="RC102 error: byte 0xff is not UTF-8"):
        load_config(path)


def test_the_same_file_gives_the_same_findings_twice(tmp_path: Path) -> None:
    path = write(tmp_path, "b: 1\na: 1\nrewards: [{nam: x, weight: heavy}]\n")
    assert check_config(path)[1] == check_config(path)[1]


def test_a_model_path_that_is_written_as_a_path_starts_from_the_configs_folder(
    tmp_path: Path,
) -> None:
    """It need not be there yet: training may make it."""
    (tmp_path / "conf").mkdir()
    config = tmp_path / "conf" / "c.yaml"
    config.write_text(
        "rewards:\n"
        "  - {name: a, reward_model: length, model_path: ../runs/model}\n"
        "  - {name: b, reward_model: length, model_path: org/model}\n"
    )
    paths = [stream.model_path for stream in load_config(config).rewards]
    assert paths == [str(tmp_path / "runs" / "model"), "org/model"]
