"""What `score` with a `trained` stream takes over its model's own time, in CPU time of one thread.

The model's own time is measured twice: inside the run, as what its calls took (`_over_model_calls`,
which noise hardly moves, since both sides have the same), and in turns with the run, on the same
items encoded and in memory (`_over_model`). Beyond the model lie start-up, reading, checking,
tokenizing (text rows), gathering, the journal and writing. The model is nano in float32: a larger
one hides more.
"""

import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rewardctl.data.tokenizer import TextEncoder

    Items = list[NDArray[np.int32]]

TARGETS = {"tokens": 1.02, "text": 1.08}
ARGUMENTS = Path(__file__).parents[1] / "examples" / "data" / "ukp-convarg" / "arguments.jsonl"


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rows=7_000, rounds=ROUNDS)
    one_thread()
    accelerator = cpu_accelerator()
    for kind in TARGETS:
        with tempfile.TemporaryDirectory(prefix="rewardctl-benchmark-") as name:
            measure(kind, Path(name), options.rows, options.rounds, accelerator)


def measure(kind: str, folder: Path, rows: int, rounds: int, accelerator: Any) -> None:
    """Figures of one kind of rows."""
    from network_inputs import VOCAB_SIZE, random_items, shaken

    from rewardctl.config.load import load_config
    from rewardctl.runs.score import ScoreRequest, score
    from rewardctl.training import packing
    from rewardctl.training.checkpoint import (
        Checkpoint,
        InputFacts,
        load_checkpoint,
        save_checkpoint,
    )
    from rewardctl.training.reward_model import create_reward_model

    score_items = packing.score_items
    items = random_items(rows, seed=0)
    records: list[dict[str, Any]] = [{"tokens": ids.tolist()} for ids in items]
    encoder = None
    if kind == "text":
        encoder, texts = texts_of_lengths([len(ids) for ids in items])
        items = encoder.encode_batch(texts)
        records = [{"response": text} for text in texts]
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    model = shaken(create_reward_model("nano", vocab_size=VOCAB_SIZE))
    inputs = InputFacts(kind, None, "keep_head")
    save_checkpoint(folder / "checkpoint", Checkpoint(model, inputs, encoder))
    stream = {"name": "s", "reward_model": "trained", "model_path": str(folder / "checkpoint")}
    config = load_config(write_config(folder / "config.yaml", [stream]))
    request = ScoreRequest(
        config=config, out=folder / "out.jsonl", data=(str(data),), overwrite=True
    )
    loaded = load_checkpoint(folder / "checkpoint").model.for_scoring()
    length = int(loaded.network_config()["seq_length"])
    own = [item[:length] for item in items]
    inside: list[float] = []  # CPU seconds of the model's calls in a run

    def timed_score_items(*given: Any) -> Any:
        started = time.process_time()
        scores = score_items(*given)
        inside[-1] += time.process_time() - started
        return scores

    def run_score() -> None:
        inside.append(0.0)
        score(request, accelerator=accelerator)

    packing.score_items = timed_score_items
    variants: dict[str, Callable[[], float]] = {
        "score": partial(cpu_seconds, run_score),
        "model": partial(cpu_seconds, lambda: score_items(loaded, own)),
    }
    in_turns(variants, 1)
    inside.clear()
    seconds = in_turns(variants, rounds)
    packing.score_items = score_items
    beyond = [total - model for total, model in zip(seconds["score"], inside, strict=True)]
    show(f"{kind}_beyond_model_cpu_per_row", 1e6 * median(beyond) / rows, "us")
    for name in variants:
        show(f"{kind}_{name}_cpu_per_row", 1e6 * median(seconds[name]) / rows, "us")
    target = f"<={TARGETS[kind]}"
    show(f"{kind}_over_model_calls", median_ratio(seconds["score"], inside), "x", target)
    show(f"{kind}_over_model", median_ratio(seconds["score"], seconds["model"]), "x", target)


def texts_of_lengths(lengths: list[int]) -> "tuple[TextEncoder, list[str]]":
    """An encoder of real arguments, and texts of their words with about so many tokens each."""
    import random

    from network_inputs import VOCAB_SIZE

    from rewardctl.data.tokenizer import TextEncoder

    rows = [json.loads(line) for line in ARGUMENTS.read_text("utf-8").splitlines()]
    text = " ".join(row["response"] for row in rows)
    encoder = TextEncoder.train_bpe([text], VOCAB_SIZE)
    words = text.split()
    tokens_per_word = len(encoder.encode_batch([text])[0]) / len(words)
    rng = random.Random(0)
    texts = []
    for length in lengths:
        count = max(1, round(length / tokens_per_word))
        start = rng.randrange(max(1, len(words) - count))
        texts.append(" ".join(words[start : start + count]))
    return encoder, texts


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of the process that the work takes."""
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
