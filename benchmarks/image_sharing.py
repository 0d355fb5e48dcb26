"""Images under 1, 2 and 4 instant streams: decodes an image, and speed beside plain Pillow.

Plain Pillow decodes the same files in as many threads as there are cores, and does nothing else,
not even a copy of the pixels: this machine's decode limit. Every run is a process of its own.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from measure import (
    arguments,
    cpu_accelerator,
    in_turns,
    median,
    median_ratio,
    one_thread,
    show,
    write_config,
)

STREAMS = (1, 2, 4)
IMAGE_ROUNDS = 9  # more than elsewhere: chance has a say in each process (see the README)
DIFFERENT = 64  # images
TARGET_SHARE = 0.9  # of the decode limit
ROWS, WARM_UP = "rows.jsonl", "warm-up.jsonl"


def write_images(folder: Path, images: int, side: int) -> list[Path]:
    """JPEG files of `side` x `side` with the detail of a photo: smooth shapes and some grain.

    Only the first few differ; the others are further names of them, which no reader can know.
    """
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(0)
    paths = [folder / f"{number:05}.jpg" for number in range(images)]
    for path in paths[:DIFFERENT]:
        coarse = random.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC))
        grain = random.normal(0, 6, smooth.shape)
        picture = Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8))
        picture.save(path, quality=90)
    for number, path in enumerate(paths[DIFFERENT:]):
        os.link(paths[number % DIFFERENT], path)
    return paths


def decode_all(paths: list[Path], threads: int) -> float:
    """Seconds that plain Pillow takes for the files."""
    from PIL import Image

    def decode(path: Path) -> int:
        with Image.open(path) as image:
            image.load()
            return image.width

    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(decode, paths):
            pass
    return time.perf_counter() - started


def limit_process(paths: list[Path]) -> float:
    """Seconds of plain Pillow in a process that does nothing else."""
    threads = os.cpu_count() or 1
    decode_all(paths[:DIFFERENT], threads)  # imports
    return decode_all(paths, threads)


def score_process(folder: Path, count: int) -> tuple[float, int]:
    """Seconds of `score` with so many streams, and the decodes."""
    from rewardctl.config.load import load_config
    from rewardctl.data.media_pool import MediaPool
    from rewardctl.runs import loop
    from rewardctl.runs.score import ScoreRequest, score

    pools: list[MediaPool] = []

    class NotedPool(MediaPool):
        """A pool that can be asked afterwards."""

        def __init__(self, *settings: object, **more: object) -> None:
            super().__init__(*settings, **more)  # type: ignore[arg-type]
            pools.append(self)

    loop.MediaPool = NotedPool  # type: ignore[misc]
    accelerator = cpu_accelerator()
    streams = [{"name": f"s{n}", "reward_model": "scorers:InstantImage"} for n in range(count)]
    config = load_config(write_config(folder / "config.yaml", streams))
    seconds = 0.0
    for data in (WARM_UP, ROWS):
        request = ScoreRequest(
            config=config, out=folder / "out.jsonl", data=(str(folder / data),), overwrite=True
        )
        started = time.perf_counter()
        score(request, accelerator=accelerator)
        seconds = time.perf_counter() - started
    return seconds, pools[-1].decodes


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, images=6_000, side=512, rounds=IMAGE_ROUNDS)
    one_thread()
    with tempfile.TemporaryDirectory(prefix="rewardctl-benchmark-") as name:
        folder = Path(name)
        paths = write_images(folder, options.images, options.side)
        rows = [json.dumps({"image": path.name}) + "\n" for path in paths]
        (folder / ROWS).write_text("".join(rows), encoding="utf-8")
        (folder / WARM_UP).write_text("".join(rows[:DIFFERENT]), encoding="utf-8")
        variants: dict[str, Callable[[], float]] = {}
        decodes = dict.fromkeys(STREAMS, 0)  # the most of any round
        with ProcessPoolExecutor(
            1, mp_context=get_context("spawn"), max_tasks_per_child=1
        ) as processes:

            def run_with(count: int) -> float:
                seconds, decoded = processes.submit(score_process, folder, count).result()
                decodes[count] = max(decodes[count], decoded)
                return seconds

            def limit() -> float:
                return processes.submit(limit_process, paths).result()

            for count in STREAMS:  # each beside a limit of its own: the machine changes
                variants[f"{count}"] = partial(run_with, count)
                variants[f"limit_{count}"] = limit
            seconds = in_turns(variants, options.rounds)
    limits = [each for count in STREAMS for each in seconds[f"limit_{count}"]]
    show("limit_images_per_second", options.images / median(limits), "images/s")
    for count in STREAMS:
        show(f"streams_{count}_decodes_per_image", decodes[count] / options.images, "decodes", "=1")
        share = median_ratio(seconds[f"limit_{count}"], seconds[f"{count}"])
        show(f"streams_{count}_share_of_decode_limit", share, "ratio", f">={TARGET_SHARE}")


if __name__ == "__main__":
    main()
