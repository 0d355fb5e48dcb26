"""What a stopped run is held to, and what may change."""

from pathlib import Path
from typing import Any

import pytest
from probes import Number, ScoreProject

from rewardctl.config.schema import Config, RewardArguments
from rewardctl.data.inputs import Input
from rewardctl.data.media_ref import MediaRoot
from rewardctl.errors import UsageError
from rewardctl.runs.fingerprint import EDGE_BYTES, differences, digest_of, file_facts, fingerprint


def facts_of(folder: Path, **changes: Any) -> dict[str, Any]:
    """The fingerprint of one stream over one file, with some arguments of the stream changed."""
    rows = folder / "rows.jsonl"
    if not rows.exists():
        rows.write_text("{}\n")
    args = RewardArguments(**{"name": "a", "reward_model": "probes:Number", **changes})
    config = Config(folder=folder, rewards=[args])
    source = Input(rows, "rows.jsonl", "rows", MediaRoot(folder))
    return fingerprint(config, [args], [Number], [source], include=(), limit=None)


def test_the_same_request_has_the_same_fingerprint(tmp_path: Path) -> None:
    assert differences(facts_of(tmp_path), facts_of(tmp_path)) == []
    assert digest_of(facts_of(tmp_path)) == digest_of(facts_of(tmp_path))


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"name": "b"}, "streams[0].name: was a, now b"),
        ({"weight": 2.0}, "streams[0].weight: was 1.0, now 2.0"),
        ({"batch_size": 8}, "streams[0].batch_size: was absent, now 8"),
        ({"dtype": "bf16"}, "streams[0].dtype: was float32, now bfloat16"),
        ({"device": "cpu"}, "streams[0].device: was auto, now cpu"),
        ({"options": {"min": 3}}, "streams[0].options.min: was absent, now 3"),
        ({"model_path": "org/m"}, "streams[0].model_path: was absent, now org/m"),
    ],
)
def test_what_scores_depend_on_is_named(
    tmp_path: Path, changes: dict[str, Any], difference: str
) -> None:
    assert differences(facts_of(tmp_path), facts_of(tmp_path, **changes)) == [difference]


def test_no_datasets_and_all_datasets_are_two_things(tmp_path: Path) -> None:
    never = facts_of(tmp_path, applicable_datasets=[])
    assert len(differences(never, facts_of(tmp_path))) == 1
    assert digest_of(never) != digest_of(facts_of(tmp_path))


def test_the_pace_is_left_out(tmp_path: Path) -> None:
    assert (
        differences(facts_of(tmp_path), facts_of(tmp_path, async_reward=True, num_workers=3)) == []
    )


def test_files_of_a_model_are_part_of_it(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(b"1")
    before = facts_of(tmp_path, model_path=str(model))
    (model / "weights").write_bytes(b"2")
    (model / "more").touch()
    found = differences(before, facts_of(tmp_path, model_path=str(model)))
    places = {line.split(": was")[0].removeprefix(f"models.{model}.") for line in found}
    assert places == {"weights.sha256", "more.sha256", "more.size"}


def test_a_file_is_known_by_its_size_and_its_edges(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def facts(content: bytes) -> dict[str, Any]:
        path.write_bytes(content)
        return file_facts(path)

    small, large = b"abc", bytes(2 * EDGE_BYTES + 10)
    assert facts(small)["size"] == 3
    assert facts(small) != facts(b"abd")
    assert facts(large) != facts(b"1" + large[1:])
    assert facts(large) != facts(large[:-1] + b"1")
    assert facts(large) != facts(large + b"\0")
    middle = EDGE_BYTES + 5
    assert facts(large) == facts(large[:middle] + b"1" + large[middle + 1 :])


def test_a_file_of_less_than_two_edges_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = bytearray(EDGE_BYTES + 100)
    path.write_bytes(content)
    before = file_facts(path)
    for place in (0, EDGE_BYTES - 1, EDGE_BYTES, EDGE_BYTES + 99):
        content[place] = 1
        path.write_bytes(content)
        assert file_facts(path) != before
        content[place] = 0


@pytest.mark.parametrize(
    ("request_changes", "named"),
    [
        ({"include": ("prompt",)}, r"include\[0\]: was absent, now prompt"),
        ({"limit": 1}, "limit: was absent, now 1"),
        ({"media_root": Path("/")}, r"inputs\[0\]\.media_root: was .*, now /"),
    ],
)
def test_what_the_request_changes_is_named(
    project: ScoreProject, request_changes: dict[str, Any], named: str
) -> None:
    project.write([{"prompt": "1"}, {"prompt": "2"}], [{"name": "a", "reward_model": "Number"}])
    project.score_unfinished()
    with pytest.raises(UsageError, match=named):
        project.score(resume=True, **request_changes)


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        ({"score": {"aggregate": "weighted_mean"}}, r"score\.aggregate: was weighted_sum, now w"),
        ({"score": {"window": 9}}, r"score\.window: was 4096, now 9"),
        ({"media": {"background": "black"}}, r"media\.background: was white, now black"),
        (
            {"data": {"datasets": [{"name": "rows", "path": "rows.jsonl"}]}},
            r"datasets\[0\]: was absent, now rows",
        ),
    ],
)
def test_what_the_config_changes_is_named(
    project: ScoreProject, sections: dict[str, Any], named: str
) -> None:
    streams = [{"name": "a", "reward_model": "Number"}]
    project.write([{"prompt": "1"}], streams)
    project.score_unfinished()
    project.write([{"prompt": "1"}], streams, **sections)
    with pytest.raises(UsageError, match=named):
        project.score(resume=True)


def test_memory_for_media_may_change(project: ScoreProject) -> None:
    streams = [{"name": "a", "reward_model": "Number"}]
    project.write([{"prompt": "1"}], streams)
    project.score_unfinished()
    project.write([{"prompt": "1"}], streams, media={"max_memory": "1GiB"})
    project.score(resume=True)
    assert project.column("a") == [1.0]
