"""The rewards from Python: of samples that are there, and of samples that are still being made.

python examples/use_from_python.py
"""

import json
from pathlib import Path

from accelerate import Accelerator

from rewardctl.data.samples import BaseSample
from rewardctl.rewards import RewardArguments, RewardBuffer, RewardProcessor, load_reward_model

ROWS = Path(__file__).parent / "data" / "llmbar-natural" / "instructions.jsonl"
STREAMS = [
    RewardArguments(name="fresh_words", reward_model="repetition", batch_size=2, async_reward=True),
    RewardArguments(name="unlike_its_rival", reward_model="group_diversity"),
]


def read_samples(count: int) -> list[BaseSample]:
    """The first `count` rows; `unique_id` holds the two outputs of an instruction together."""
    rows = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()[:count]]
    return [
        BaseSample(
            prompt=row["prompt"],
            response=row["response"],
            unique_id=row["unique_id"],
            source="instructions",
        )
        for row in rows
    ]


def main() -> None:
    """Score six samples both ways."""
    accelerator = Accelerator()
    models = {stream.name: load_reward_model(stream, accelerator) for stream in STREAMS}
    processor = RewardProcessor(accelerator, models, {stream.name: stream for stream in STREAMS})

    samples = read_samples(6)
    rewards = processor.compute_rewards(samples)
    for name, scores in rewards.items():
        print(name, [round(score, 3) for score in scores.tolist()])
    print("stored in the first sample:", samples[0].extra_kwargs["rewards"])

    # In a training loop: add what the generator has made, and go on generating. A call of the
    # async stream starts as soon as two samples are there.
    buffer = RewardBuffer(processor, group_size=2)
    try:
        for start in (0, 2, 4):
            buffer.add_samples(read_samples(6)[start : start + 2])
        buffered = buffer.finalize()
    finally:
        buffer.shutdown()
    same = all(buffered[name].equal(scores) for name, scores in rewards.items())
    print("the buffer gives the same rewards:", same)


if __name__ == "__main__":
    main()
