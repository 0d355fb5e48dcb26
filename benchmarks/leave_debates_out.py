"""How well does the shipped text model judge debates it has not seen? One training for each debate.

A debate is left out, a model is trained on the others with the settings of examples/train_ukp.yaml,
and its last state is judged on the debate, beside "the longer one is better" on the same pairs.
The step count is fixed and nothing is picked by the debate that is judged, but for the settings
themselves: they were chosen on the two debates of the validation file.
"""

import argparse
import gzip
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import one_thread, show

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
    show_summary(results)


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
    streams = evaluate(EvalRequest(config, overwrite=True))["streams"]
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
        "eval.data.path": judged,
        "eval.output_dir": model.with_name("report"),
        "train.output_dir": model,
        f"rewards.{MODEL}.model_path": model,
    }
    if steps is not None:
        changes["train.max_steps"] = str(steps)
    return load_config(CONFIG, overrides=[f"{place}={value}" for place, value in changes.items()])


def print_line(*cells: str) -> None:
    """One line of the table, on stderr; figures go to stdout."""
    widths = (40, 6, 7, 7, 7, 9, 6, 7, 7, 6)
    aligned = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]
    print(f"{cells[0]:<{widths[0]}}" + "".join(aligned[1:]), file=sys.stderr, flush=True)


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


def show_summary(results: list[DebateResult]) -> None:
    """Debates won, shares of all pairs, and means over debates."""
    pairs = sum(r.pairs for r in results)
    show("debates", len(results), "debates")
    show("model_over_length", sum(r.gain > 0 for r in results), "debates")
    show("pairs", pairs, "pairs")
    show("model_accuracy_of_all_pairs", sum(r.pairs * r.accuracy for r in results) / pairs, "share")
    show(
        "length_accuracy_of_all_pairs", sum(r.pairs * r.baseline for r in results) / pairs, "share"
    )
    show_mean("model_mean_accuracy", [r.accuracy for r in results])
    show_mean("length_mean_accuracy", [r.baseline for r in results])
    show_mean("difference_mean", [r.gain for r in results])
    show_mean("model_mean_log_loss", [r.log_loss for r in results])
    near = [(r.near_accuracy, r.near_baseline) for r in results]
    told = [(model, length) for model, length in near if model is not None and length is not None]
    show("near_equal_pairs", sum(r.near_pairs for r in results), "pairs")
    if told:
        show_mean("near_equal_model_mean_accuracy", [model for model, _ in told])
        show_mean("near_equal_length_mean_accuracy", [length for _, length in told])
        show_mean("near_equal_difference_mean", [model - length for model, length in told])


def show_mean(name: str, values: list[float]) -> None:
    """A mean over debates, each debate alike, and its interval by debate where there is one."""
    import numpy as np

    from rewardctl.evaluation.bootstrap import FEW_CLUSTERS, cluster_intervals

    figures = np.array(values, dtype=np.float64)
    show(name, float(figures.mean()), "mean_of_debates")
    interval = cluster_intervals({name: figures}, np.arange(len(figures)))[name]
    if interval.low is None or interval.high is None:
        return
    # So few clusters make the interval too narrow.
    unit = "unreliable_95%" if interval.n_clusters < FEW_CLUSTERS else "95%"
    show(f"{name}_low", interval.low, unit)
    show(f"{name}_high", interval.high, unit)


if __name__ == "__main__":
    main()
