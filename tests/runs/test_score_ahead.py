"""The next window is opened while one is scored, unless its rows have to be waited for."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from accelerate import Accelerator
from PIL import Image

from rewardctl.config.load import load_config
from rewardctl.data import media_pool
from rewardctl.rewards import PointwiseRewardModel
from rewardctl.runs.score import ScoreRequest, score

WAIT_S = 60  # until a test that hangs is ended
CONFIG = """
score: {window: 2}
rewards:
  - {name: s, reward_model: "test_score_ahead:Waiting", batch_size: 2}
"""
PYTHON_PATH = f"python_path: [{json.dumps(str(Path(__file__).parent))}]\n"

# What the first call waits for; set by each test.
LET_GO = threading.Event()
CALLED = threading.Event()


class Waiting(PointwiseRewardModel):
    """The red of each image; its first call waits for something that others do."""

    required_fields = ("image",)

    def __call__(self, image: list[Image.Image]) -> list[float]:
        CALLED.set()
        assert LET_GO.wait(WAIT_S)
        return [float(picture.getpixel((0, 0))[0]) for picture in image]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for place in range(4):
        Image.new("RGB", (4, 4), (place, 0, 0)).save(tmp_path / f"{place}.png")
    (tmp_path / "config.yaml").write_text(CONFIG + PYTHON_PATH)
    LET_GO.clear()
    CALLED.clear()
    return tmp_path


def lines(*places: int) -> str:
    return "".join(json.dumps({"image": f"{place}.png"}) + "\n" for place in places)


def scores(folder: Path, data: Path) -> list[float]:
    config = load_config(folder / "config.yaml")
    request = ScoreRequest(config, out=folder / "out.jsonl", data=(str(data),), media_root=folder)
    score(request, accelerator=Accelerator(cpu=True))
    rows = (folder / "out.jsonl").read_text().splitlines()
    return [json.loads(row)["scores"]["s"] for row in rows]


def test_media_of_the_next_window_are_decoded_during_the_calls_of_one(folder, monkeypatch):
    decode = media_pool.decode

    def noting_decode(kind: str, ref: Any, settings: Any) -> Any:
        if ref.name == "3.png":
            LET_GO.set()
        return decode(kind, ref, settings)

    monkeypatch.setattr(media_pool, "decode", noting_decode)
    (folder / "rows.jsonl").write_text(lines(0, 1, 2, 3))
    assert scores(folder, folder / "rows.jsonl") == [0, 1, 2, 3]


def test_rows_of_a_pipe_are_scored_before_the_next_ones_come(folder):
    fifo = folder / "pipe.jsonl"
    os.mkfifo(fifo)

    def write() -> None:
        with fifo.open("w") as pipe:
            pipe.write(lines(0, 1))
            pipe.flush()
            assert CALLED.wait(WAIT_S)
            LET_GO.set()
            pipe.write(lines(2, 3))

    writer = threading.Thread(target=write)
    writer.start()
    assert scores(folder, fifo) == [0, 1, 2, 3]
    writer.join(WAIT_S)
