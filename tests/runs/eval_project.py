"""A folder to evaluate in, with preference rows whose figures can be worked out by hand."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from rewardctl.config.load import load_config
from rewardctl.runs.eval import EvalRequest, evaluate
from rewardctl.runs.policy import MaxErrors

PAIRS = [
    {"prompt": "1", "chosen": "aa", "rejected": "b"},
    {"prompt": "2", "chosen": "b", "rejected": "a"},
    {"prompt": "3", "chosen": "a", "rejected": "a"},
]
BAD = {"prompt": "4", "chosen": "a"}


@dataclass
class Project:
    """A folder with preference rows and a config."""

    folder: Path
    accelerator: Accelerator

    @property
    def out(self) -> Path:
        """Where the report goes."""
        return self.folder / "ev"

    def write(self, rows: list[Any], *streams: dict[str, Any], **sections: Any) -> None:
        """Rows (texts as they are) and a config of streams of eval_models.py."""
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (self.folder / "pairs.jsonl").write_text("".join(line + "\n" for line in lines))
        config = {
            "rewards": [
                {"name": "s", "device": "cpu", **s, "reward_model": f"eval_models:{s['is']}"}
                for s in streams
            ],
            "python_path": [str(Path(__file__).parent)],
            "eval": {"data": "pairs.jsonl", "output_dir": "ev"},
            **sections,
        }
        for stream in config["rewards"]:
            del stream["is"]
        (self.folder / "c.yaml").write_text(json.dumps(config))

    def eval(self, *, max_errors: str = "0", **request: Any) -> dict[str, Any]:
        """Run it; the report."""
        return evaluate(
            EvalRequest(
                load_config(self.folder / "c.yaml"),
                max_errors=MaxErrors.parse(max_errors),
                **request,
            ),
            accelerator=self.accelerator,
        )

    def rows(self) -> list[dict[str, Any]]:
        """The stored scores."""
        return [json.loads(line) for line in (self.out / "scores.jsonl").read_text().splitlines()]
