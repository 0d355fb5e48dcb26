"""What `score` costs a row around reward models that cost nothing: two text streams, journal on.

The bare loop beside it reads the same rows with `json`, and writes rows of the same shape.
"""

import json
import os
import tempfile
import time
from pathlib import Path

from measure import (
    ROUNDS,
    arguments,
    cpu_accelerator,
    in_turns,
    median,
    median_ratio,
    one_thread,
    show,
    write_config,
)

TARGET_ROWS = 20_000  # a second of one core


def write_rows(path: Path, rows: int) -> None:
    """Rows of about 300 bytes with prompt, response, group and metadata."""
    with path.open("w", encoding="utf-8") as file:
        for row in range(rows):
            record = {
                "prompt": f"What is the capital of country number {row}?",
                "response": "The capital of that country is the city of " + "x" * 90 + str(row),
                "unique_id": f"g{row // 4}",
                "metadata": json.dumps({"k": row, "source": "synthetic"}),
            }
            file.write(json.dumps(record) + "\n")


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rows=100_000, rounds=ROUNDS)
    one_thread()
    from rewardctl.config.load import load_config
    from rewardctl.runs.score import ScoreRequest, score

    accelerator = cpu_accelerator()
    with tempfile.TemporaryDirectory(prefix="rewardctl-benchmark-") as name:
        folder = Path(name)
        data, out = folder / "rows.jsonl", folder / "out.jsonl"
        write_rows(data, options.rows)
        streams = [
            {"name": stream, "reward_model": "scorers:InstantText", "batch_size": 512}
            for stream in ("a", "b")
        ]
        config = load_config(write_config(folder / "config.yaml", streams))
        request = ScoreRequest(config=config, out=out, data=(str(data),), overwrite=True)

        def run_score() -> float:
            started = time.process_time()
            score(request, accelerator=accelerator)
            return time.process_time() - started

        def run_bare_loop() -> float:
            started = time.process_time()
            read_and_write(data, out)
            return time.process_time() - started

        read_and_write(data, out)
        expected = out.read_bytes()
        score(request, accelerator=accelerator)  # imports, and the first fault of every page
        if out.read_bytes() != expected:
            raise SystemExit("the bare loop does not write what score writes")
        seconds = in_turns({"score": run_score, "bare": run_bare_loop}, options.rounds)
    rows_per_second = options.rows / median(seconds["score"])
    show("score_rows_per_cpu_second", rows_per_second, "rows/s", f">={TARGET_ROWS}")
    show("score_cpu_per_row", 1e6 / rows_per_second, "us", f"<={1e6 / TARGET_ROWS:g}")
    show("bare_loop_cpu_per_row", 1e6 * median(seconds["bare"]) / options.rows, "us")
    show("score_over_bare_loop", median_ratio(seconds["score"], seconds["bare"]), "x")


def read_and_write(data: Path, out: Path) -> None:
    """Read rows and write scored rows with nothing around `json`: what no framework can save."""
    with data.open("rb") as rows, out.open("wb") as scored:
        for number, line in enumerate(rows):
            record = json.loads(line)
            scores = {"a": 0.5, "b": 0.5}
            row = {
                "row": number,
                "source": data.name,
                "line": number + 1,
                "id": record.get("id"),
                "unique_id": record.get("unique_id"),
                "dataset": data.stem,
                "scores": scores,
                "applicable": dict.fromkeys(scores, True),
                "status": dict.fromkeys(scores, "ok"),
                "weights": dict.fromkeys(scores, 1.0),
                "errors": dict.fromkeys(scores),
                "aggregate": sum(scores.values()),
                "weight_sum": 2.0,
            }
            scored.write(json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        scored.flush()
        os.fsync(scored.fileno())


if __name__ == "__main__":
    main()
