"""How much memory `score` takes for more rows, without and with a groupwise stream. Linux only.

Each variant runs in a process of its own: memory that one run gave back would hide in the next.
"""

import json
import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from measure import arguments, cpu_accelerator, one_thread, show, write_config

BASE_ROWS = 100_000  # by then every buffer has its size
GROUP_SIZE = 4
MIB = 2**20
MOST_GROWTH_MIB = 64
MOST_BYTES_A_ROW = 100  # more with a groupwise stream


def write_rows(path: Path, rows: int) -> None:
    """Short rows, in groups."""
    with path.open("w", encoding="utf-8") as file:
        for row in range(rows):
            record = {
                "prompt": f"What is the capital of country {row // GROUP_SIZE}?",
                "response": f"The capital is city number {row}.",
                "unique_id": f"g{row // GROUP_SIZE}",
            }
            file.write(json.dumps(record) + "\n")


def memory(key: str) -> int:
    """Bytes of this process's memory: `VmRSS` now, `VmHWM` at its highest."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {key}")


def run_score(folder: Path, data: Path, *, base_rows: int, groupwise: bool) -> tuple[int, int]:
    """Score once; (growth after the first `base_rows` rows, highest at all), in bytes."""
    from rewardctl.config.load import load_config
    from rewardctl.runs.score import ScoreRequest, score

    streams = [
        {"name": "text", "reward_model": "scorers:InstantText", "batch_size": 512},
        {"name": "more", "reward_model": "scorers:InstantText", "batch_size": 512},
    ]
    if groupwise:
        streams[1] = {"name": "group", "reward_model": "scorers:InstantGroup"}
    config = load_config(write_config(folder / "config.yaml", streams))
    request = ScoreRequest(
        config=config, out=folder / "out.jsonl", data=(str(data),), overwrite=True
    )
    base, highest = 0, 0

    def note(done: float, failed: int, total: int | None) -> None:
        nonlocal base, highest
        if done >= base_rows:
            now = memory("VmRSS")
            base = base or now
            highest = max(highest, now)

    score(request, on_progress=note, accelerator=cpu_accelerator())
    return highest - base, memory("VmHWM")


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rows=2_000_000)
    one_thread()
    base_rows = min(BASE_ROWS, options.rows // 2)
    growth, highest = {}, {}
    with tempfile.TemporaryDirectory(prefix="rewardctl-benchmark-") as name:
        folder = Path(name)
        data = folder / "rows.jsonl"
        write_rows(data, options.rows)
        for groupwise in (False, True):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                run = process.submit(
                    run_score, folder, data, base_rows=base_rows, groupwise=groupwise
                )
                growth[groupwise], highest[groupwise] = run.result()
    show("pointwise_growth", growth[False] / MIB, "MiB", f"<={MOST_GROWTH_MIB}")
    show("pointwise_highest", highest[False] / MIB, "MiB")
    show("groupwise_growth", growth[True] / MIB, "MiB")
    show("groupwise_highest", highest[True] / MIB, "MiB")
    more = (highest[True] - highest[False]) / options.rows
    show("groupwise_more_per_row", more, "bytes", f"<={MOST_BYTES_A_ROW}")


if __name__ == "__main__":
    main()
