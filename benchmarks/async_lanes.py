"""Async lanes against a reward model that sleeps 80 ms a call: calls a second with 1 to 8 workers.

Ideal is that no worker ever waits: its calls x 80 ms. The whole of `score` is in the time.
"""

import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from measure import (
    ROUNDS,
    arguments,
    cpu_accelerator,
    in_turns,
    median,
    one_thread,
    show,
    write_config,
)
from scorers import CALL_S

WORKERS = (1, 2, 4, 8)
BATCH = 16
LINE = json.dumps({"response": "Paris"}) + "\n"
TARGET_SHARE = 0.9  # of ideal


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, calls=24, rounds=ROUNDS)
    one_thread()
    from rewardctl.config.load import load_config
    from rewardctl.runs.score import ScoreRequest, score

    accelerator = cpu_accelerator()
    with tempfile.TemporaryDirectory(prefix="rewardctl-benchmark-") as name:
        folder = Path(name)
        data = folder / "rows.jsonl"

        def run_with(workers: int) -> float:
            data.write_text(LINE * (workers * options.calls * BATCH), encoding="utf-8")
            stream = {
                "name": "remote",
                "reward_model": "scorers:SleepingText",
                "batch_size": BATCH,
                "async_reward": True,
                "num_workers": workers,
            }
            config = load_config(write_config(folder / "config.yaml", [stream]))
            request = ScoreRequest(
                config=config, out=folder / "out.jsonl", data=(str(data),), overwrite=True
            )
            started = time.perf_counter()
            score(request, accelerator=accelerator)
            return time.perf_counter() - started

        run_with(1)  # imports
        variants: dict[str, Callable[[], float]] = {str(w): partial(run_with, w) for w in WORKERS}
        seconds = in_turns(variants, options.rounds)
    for workers in WORKERS:
        spent = median(seconds[str(workers)])
        show(f"workers_{workers}_calls_per_second", workers * options.calls / spent, "calls/s")
        share = options.calls * CALL_S / spent
        show(f"workers_{workers}_share_of_ideal", share, "ratio", f">={TARGET_SHARE}")


if __name__ == "__main__":
    main()
