"""A planted preference: how near does a trained model come to the best accuracy there can be?

Sides are sequences of 16 token ids, judged at a timestep t, as partial states of a discrete
diffusion model would be. One token counts while t is near 0, another while t is near 1, and the
first side is preferred with probability sigmoid(gap). As the labels are drawn, no model can be
right more often than the mean of max(p, 1 - p).

python examples/planted.py [--pairs 6000] [--steps 400] [--out runs/planted]
"""

import argparse
import json
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rewardctl.config.load import load_config
from rewardctl.runs.eval import EvalRequest, evaluate
from rewardctl.runs.train import TrainRequest, train

VOCAB_SIZE = 8
LENGTH = 16
EARLY, LATE = 1, 2  # the tokens that count at t = 0 and at t = 1
STRENGTH = 1.0  # log-odds that one such token is worth
VALIDATION_RATIO = 0.25


@dataclass(frozen=True)
class PlantedPair:
    """Two sides and the chance that the first is preferred."""

    sides: tuple[list[int], list[int]]
    timestep: float  # in [0, 1]
    is_first_better: bool  # drawn with probability `chance`

    @property
    def chance(self) -> float:
        """P(first is better), at the pair's timestep."""
        return self.chance_at(self.timestep)

    def chance_at(self, timestep: float) -> float:
        """P(first is better) as it would be at a timestep."""
        gap = worth(self.sides[0], timestep) - worth(self.sides[1], timestep)
        return 1 / (1 + math.exp(-gap))


def worth(tokens: list[int], timestep: float) -> float:
    """The planted reward of a side."""
    early, late = tokens.count(EARLY), tokens.count(LATE)
    return STRENGTH * ((1 - timestep) * early + timestep * late)


def draw_pair(rng: random.Random) -> PlantedPair:
    """Two random sides at a random timestep, and a label by its chance."""
    first, second = ([rng.randrange(VOCAB_SIZE) for _ in range(LENGTH)] for _ in range(2))
    pair = PlantedPair((first, second), timestep=rng.random(), is_first_better=True)
    return PlantedPair(pair.sides, pair.timestep, is_first_better=rng.random() < pair.chance)


def best_accuracy(pairs: list[PlantedPair]) -> float:
    """What the planted reward itself reaches, on average over the draw of the labels."""
    return sum(max(pair.chance, 1 - pair.chance) for pair in pairs) / len(pairs)


def drawn_accuracy(pairs: list[PlantedPair]) -> float:
    """What the planted reward reaches on the labels as they were drawn; a tie counts half."""
    right = 0.0
    for pair in pairs:
        right += 0.5 if pair.chance == 0.5 else (pair.chance > 0.5) == pair.is_first_better
    return right / len(pairs)


def timeless_accuracy(pairs: list[PlantedPair]) -> float:
    """What the planted reward reaches when it takes every timestep for 0.5: t not looked at."""
    chances = []
    for pair in pairs:
        blind = pair.chance_at(0.5)
        right = 0.5 if blind == 0.5 else pair.chance if blind > 0.5 else 1 - pair.chance
        chances.append(right)
    return sum(chances) / len(chances)


def write_pairs(path: Path, pairs: list[PlantedPair]) -> None:
    """The pairs as preference rows."""
    with path.open("w", encoding="utf-8") as file:
        for number, pair in enumerate(pairs):
            first, second = pair.sides if pair.is_first_better else reversed(pair.sides)
            row = {"id": number, "chosen": first, "rejected": second, "timestep": pair.timestep}
            file.write(json.dumps(row) + "\n")


def write_config(folder: Path, *, steps: int, lr: float) -> Path:
    """A config to train and judge by; `rewardctl train` and `rewardctl eval` take it too."""
    content: dict[str, Any] = {
        "model": {
            "input": "tokens",
            "vocab_size": VOCAB_SIZE,
            "seq_length": LENGTH,
            "size": "nano",
            "timestep_aware": True,
        },
        "train": {
            "data": "train.jsonl",
            "validation": "validation.jsonl",
            "output_dir": "model",
            "max_steps": steps,
            "batch_size": 64,
            "lr": lr,
            "schedule": "cosine",
        },
        "rewards": {"name": "planted", "reward_model": "trained", "model_path": "model"},
        "eval": {"data": "validation.jsonl", "output_dir": "eval", "cluster": "id"},
    }
    path = folder / "planted.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def main() -> None:
    """Draw, train, judge and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=6000, help="default 6000, a quarter held out")
    parser.add_argument("--steps", type=int, default=400, help="optimizer steps, default 400")
    parser.add_argument("--lr", type=float, default=1e-3, help="default 0.001")
    parser.add_argument("--out", type=Path, default=Path("runs/planted"), help="folder of the run")
    options = parser.parse_args()

    rng = random.Random(0)
    pairs = [draw_pair(rng) for _ in range(options.pairs)]
    held_out = round(VALIDATION_RATIO * len(pairs))
    validation = pairs[:held_out]
    options.out.mkdir(parents=True, exist_ok=True)
    write_pairs(options.out / "validation.jsonl", validation)
    write_pairs(options.out / "train.jsonl", pairs[held_out:])
    config = write_config(options.out, steps=options.steps, lr=options.lr)

    meta = train(TrainRequest(load_config(config), overwrite=True))
    # Read anew: `model` is a folder beside the config only now.
    report = evaluate(EvalRequest(load_config(config), overwrite=True))
    stream = report["streams"]["planted"]
    reached = stream["accuracy"]
    print(f"pairs judged           {stream['n_pairs']}")
    print(f"reached                {reached['value']:.4f}", end=" ")
    print(
        f"[{reached['low']:.4f}, {reached['high']:.4f}], log loss {stream['log_loss']['value']:.4f}"
    )
    print(f"best possible          {best_accuracy(validation):.4f}")
    print(f"best on these labels   {drawn_accuracy(validation):.4f}")
    print(f"best without timestep  {timeless_accuracy(validation):.4f}")
    print(f"training               {meta['steps']} steps, {meta['seconds']:.1f} s")


if __name__ == "__main__":
    main()
