"""How well does the shipped text model judge debates it has not seen? One training for each debate.

A debate is left out, a model is trained on the others with the settings of examples/train_ukp.yaml,
and its last state is judged on the debate, beside "the longer one is better" on the same pairs.
The step count is fixed and nothing is picked by the debate that is judged.
"""

import argparse
import gzip
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import one_thread

if TYPE_CHECKING:
    from rewardctl.config.schema import Config

EXAMPLES = Path(__file__).parents[1] / "examples"
CONFIG = EXAMPLES / "train_ukp.yaml"
DATA = EXAMPLES / "data" / "ukp-convarg"
FILES = ("train.jsonl.gz", "validation.jsonl.gz")
MODEL, LENGTH = "convincing", "longer"  # streams of the config


@dataclass(frozen=True)
class DebateResult:
    """Accuracy on one debate that was not trained on."""

    debate: str
    pairs: int
    accuracy: float
    baseline: float  # of "longer is better" on the same pairs
    log_loss: float
    near_pairs: int  # whose lengths are within 10 % of the longer
    near_accuracy: float | None  # None: no such pairs
    near_baseline: float | None
    seconds: float  # of the training

    @property
    def gain(self) -> float:
        """Accuracy over the baseline's."""
        return self.accuracy - self.baseline


def main() -> None:
    """Train, judge and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", type=int, help="the first N debates; default all")
    parser.add_argument("--steps", type=int, help="optimizer steps, default the config's")
    options = parser.parse_args()
    one_thread()

    rows = read_rows()
    debates = sorted({row["group"] for row in rows})[: options.only]
    print_line(
        "debate", "pairs", "model", "length", "diff", "log loss", "near", "model", "length", "s"
    )
    results = []
    with tempfile.TemporaryDirectory(prefix="rewardctl-") as folder:
        for debate in debates:
            results.append(leave_out(debate, rows, Path(folder), steps=options.steps))
            print_result(results[-1])
    print_summary(results)


def read_rows() -> list[dict[str, Any]]:
    """The rows of both shipped files."""
    rows = []
    for name in FILES:
        with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
            rows += [json.loads(line) for line in file]
    return rows


def leave_out(
    debate: str, rows: list[dict[str, Any]], folder: Path, *, steps: int | None
) -> DebateResult:
    """Train without a debate and judge on it."""
    from rewardctl.runs.eval import EvalRequest, evaluate
    from rewardctl.runs.train import TrainRequest, train

    judged = folder / "judged.jsonl"
    learnt = folder / "learnt.jsonl"
    write_rows(judged, [row for row in rows if row["group"] == debate])
    write_rows(learnt, [row for row in rows if row["group"] != debate])
    config = config_for(learnt, judged, folder / "model", steps=steps)
    meta = train(TrainRequest(config, overwrite=True))
    streams = evaluate(EvalRequest(config))["streams"]
    model, length = streams[MODEL], streams[LENGTH]
    near, near_length = (s["length"]["near_equal"] for s in (model, length))
    return DebateResult(
        debate=debate,
        pairs=model["n_pairs"],
        accuracy=model["accuracy"]["value"],
        baseline=length["accuracy"]["value"],
        log_loss=model["log_loss"]["value"],
        near_pairs=near["n_pairs"],
        near_accuracy=near["accuracy"],
        near_baseline=near_length["accuracy"],
        seconds=meta["seconds"],
    )


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """One JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def config_for(learnt: Path, judged: Path, model: Path, *, steps: int | None) -> "Config":
    """The example's config over other files: no validation, so no state is picked by it."""
    from rewardctl.config.load import load_config

    changes = {
        "train.data.path": learnt,
        "train.validation": "null",
        "train.early_stopping": "null",
        "eval.data.path": judged,
        "train.output_dir": model,
        f"rewards.{MODEL}.model_path": model,
    }
    if steps is not None:
        changes["train.max_steps"] = str(steps)
    return load_config(CONFIG, overrides=[f"{place}={value}" for place, value in changes.items()])


def print_line(*cells: str) -> None:
    """One line of the table."""
    widths = (40, 6, 7, 7, 7, 9, 6, 7, 7, 6)
    first, *rest = (
        f"{cell:<{width}}" if place == 0 else f"{cell:>{width}}"
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    print(first + "".join(rest), flush=True)


def print_result(result: DebateResult) -> None:
    """One debate."""
    near = [
        "-" if value is None else f"{value:.3f}"
        for value in (result.near_accuracy, result.near_baseline)
    ]
    print_line(
        result.debate[:39],
        str(result.pairs),
        f"{result.accuracy:.3f}",
        f"{result.baseline:.3f}",
        f"{result.gain:+.3f}",
        f"{result.log_loss:.3f}",
        str(result.near_pairs),
        *near,
        f"{result.seconds:.0f}",
    )


def print_summary(results: list[DebateResult]) -> None:
    """Debates won, and means over debates with intervals by debate."""
    import numpy as np

    from rewardctl.evaluation.bootstrap import FEW_CLUSTERS, cluster_intervals

    near = [r for r in results if r.near_accuracy is not None and r.near_baseline is not None]
    print(f"model over length in {sum(r.gain > 0 for r in results)} of {len(results)} debates")
    means = {
        "mean over debates, model": [r.accuracy for r in results],
        "mean over debates, length": [r.baseline for r in results],
        "mean over debates, difference": [r.gain for r in results],
        "near-equal lengths, model": [r.near_accuracy for r in near],
        "near-equal lengths, length": [r.near_baseline for r in near],
    }
    for name, values in means.items():
        figures = np.array(values, dtype=np.float64)
        if not len(figures):
            continue
        interval = cluster_intervals({name: figures}, np.arange(len(figures)))[name]
        bounds = "" if interval.low is None else f" [{interval.low:+.3f}, {interval.high:+.3f}]"
        note = " unreliable" if interval.n_clusters < FEW_CLUSTERS else ""
        print(f"{name}: {figures.mean():+.3f}{bounds}, {interval.n_clusters} clusters{note}")
    pairs = sum(r.pairs for r in results)
    micro = sum(r.pairs * r.accuracy for r in results) / pairs
    micro_length = sum(r.pairs * r.baseline for r in results) / pairs
    print(f"all {pairs} pairs: model {micro:.3f}, length {micro_length:.3f}")


if __name__ == "__main__":
    main()
