"""The shape of a configuration as pydantic models: keys, types, ranges and defaults.

The sections that `train` and `eval` read are in training_schema.py; what keys mean together is in
meaning.py. No file is read here.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    field_validator,
)

from rewardctl.config.section import FilePath, Section, one_or_many, wrong_type
from rewardctl.config.training_schema import EvalConfig, ModelConfig, TrainConfig

STREAM_NAME = r"^[A-Za-z0-9_.-]{1,64}$"
DTYPES = {
    "float32": "float32",
    "fp32": "float32",
    "float16": "float16",
    "fp16": "float16",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
}
BYTE_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


# Tags of unions show up in pydantic's places; angle brackets keep them apart from keys of the file.
def _weight_kind(value: Any) -> str | None:
    if isinstance(value, dict):
        return "<mapping>"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return "<number>" if is_number else None


Weight = Annotated[
    Annotated[float, Tag("<number>")] | Annotated[dict[str, float], Tag("<mapping>")],
    Discriminator(
        _weight_kind,
        custom_error_type="wrong_type",
        custom_error_message="a number, or a mapping of dataset to number",
    ),
]


class RewardArguments(Section):
    """One reward stream: a named, weighted use of a reward model.

    `options` holds what the reward model alone understands. Once the model's class is known, they
    are an instance of its `Options`. They can be read as `extra_kwargs[...]` and as attributes too.
    """

    name: str = Field(
        pattern=STREAM_NAME,
        description="Unique name of the stream: letters, digits, '_', '.', '-', at most 64.",
    )
    reward_model: str = Field(
        min_length=1,
        description="A registered name (any case; see `rewardctl ls rewards`), or "
        "package.module:Class of your own.",
    )
    model_path: str | None = Field(
        default=None, description="Folder or file beside the config, or a model's name on a hub."
    )
    dtype: str = Field(
        default="float32",
        description="Number type the model computes in: float32 (fp32), float16 (fp16) or "
        "bfloat16 (bf16).",
        json_schema_extra={"enum": list(DTYPES)},
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|mps|cuda|cuda:[0-9]{1,4})$",
        description="auto (the accelerator's), cpu, cuda, cuda:N or mps.",
    )
    batch_size: int | None = Field(
        default=None,
        ge=1,
        description="Rows of one call; default: the class's default_batch_size, else 16. "
        "Groupwise models take whole groups instead.",
    )
    applicable_datasets: list[str] | None = Field(
        default=None,
        description="Names of the datasets whose rows are scored; default: all. [] never fires.",
    )
    weight: Weight = Field(
        default=1.0,
        description="Weight in the aggregate: one number, or a mapping of dataset to number that "
        "names every applicable dataset.",
    )
    async_reward: bool = Field(
        default=False, description="Score in worker threads while other streams go on."
    )
    num_workers: int = Field(
        default=1,
        ge=1,
        description="Threads of an async stream; more than 1 needs a thread-safe class.",
    )
    options: Any = Field(
        default_factory=dict,
        repr=False,  # may hold secrets
        description="What this reward model alone understands.",
        json_schema_extra={"type": "object", "default": {}},
    )

    @field_validator("dtype")
    @classmethod
    def _known_dtype(cls, dtype: str) -> str:
        if dtype not in DTYPES:
            raise ValueError(f"expected one of {', '.join(DTYPES)}")
        return DTYPES[dtype]

    @field_validator("options", mode="before")
    @classmethod
    def _options_mapping(cls, options: Any) -> Any:
        if options is None:
            return {}
        if not isinstance(options, (dict, BaseModel)):
            raise wrong_type("a mapping of option to value")
        return options

    @property
    def extra_kwargs(self) -> dict[str, Any]:
        """The options as a plain dict."""
        if isinstance(self.options, BaseModel):
            return self.options.model_dump()
        return dict(self.options)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name != "options":
            options = self.extra_kwargs
            if name in options:
                return options[name]
        return super().__getattr__(name)  # type: ignore[misc]

    def weight_for(self, dataset: str) -> float:
        """The weight for rows of `dataset`; a KeyError where a mapping does not name it."""
        return self.weight[dataset] if isinstance(self.weight, dict) else self.weight

    def applies_to(self, dataset: str | None) -> bool:
        """Whether rows of `dataset` are scored by this stream."""
        return self.applicable_datasets is None or dataset in self.applicable_datasets


Streams = Annotated[
    list[RewardArguments],
    BeforeValidator(one_or_many, json_schema_input_type=RewardArguments | list[RewardArguments]),
]


class Dataset(Section):
    """A named source of rows."""

    name: str = Field(
        min_length=1, description="What `applicable_datasets` and weight mappings call it."
    )
    path: FilePath = Field(description="JSONL file (also .gz) or a quoted glob, beside the config.")


class DataConfig(Section):
    """The datasets that streams and weights may name."""

    datasets: list[Dataset] = Field(
        default_factory=list, description="Declared datasets; rows of any other name are refused."
    )


class ExecutionConfig(Section):
    """Where rows come from, and whether they are scored."""

    acquisition: Literal["dataset", "generation"] = Field(
        default="dataset", description="Rows are read from a dataset, or generated."
    )
    feedback: Literal["runtime_reward", "none"] = Field(
        default="runtime_reward",
        description="Whether `rewards` score the rows; with none only `eval_rewards` may stand.",
    )


class ScoreConfig(Section):
    """How cells become an aggregate, and how the input is cut."""

    aggregate: Literal["weighted_sum", "weighted_mean"] = Field(
        default="weighted_sum", description="Over the applicable streams of a row."
    )
    on_failure: Literal["no_aggregate", "renormalize"] = Field(
        default="no_aggregate",
        description="With a failed stream: no aggregate, or one from the streams that did score.",
    )
    window: int = Field(default=4096, ge=1, description="Rows planned together.")
    max_group_size: int = Field(
        default=1024, ge=1, description="Most rows that one unique_id may have."
    )


def parse_bytes(value: Any) -> int:
    """A count of bytes from an int or a text as 2GiB or 512MB."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = (
        re.fullmatch(r"(\d{1,15})(?:\.(\d{1,6}))?\s*([A-Za-z]+)", value)
        if isinstance(value, str)
        else None
    )
    unit = BYTE_UNITS.get(match[3].upper()) if match else None
    if match is None or unit is None:
        raise wrong_type("a count of bytes, or text as 2GiB or 512MB")
    return int(float(f"{match[1]}.{match[2] or 0}") * unit)


class MediaConfig(Section):
    """How media are decoded and how much memory decoded media may hold."""

    background: str = Field(
        default="white",
        pattern=r"^(#[0-9A-Fa-f]{3,8}|[A-Za-z]+|(rgb|hsl|hsv)a?\([0-9., %]+\))$",
        description="Colour under transparent pixels: a CSS name, #rrggbb or rgb(r, g, b).",
    )
    max_pixels: int = Field(default=50_000_000, ge=1, description="Most pixels of one image.")
    max_frames: int = Field(default=256, ge=1, description="Most frames of one video.")
    video_fps: float | None = Field(
        default=None, gt=0, description="Frames a second, picked by timestamp; null: all frames."
    )
    max_memory: Annotated[int, BeforeValidator(parse_bytes, json_schema_input_type=int | str)] = (
        Field(
            default="2GiB",
            validate_default=True,
            ge=1,
            description="Bytes of decoded media held at one time, as 2GiB, 512MB or a number.",
        )
    )


class ConfigFile(Section):
    """A rewardctl configuration. Paths are relative to its folder."""

    data: DataConfig = Field(default_factory=DataConfig, description="Declared datasets.")
    rewards: Streams = Field(
        default_factory=list,
        description="Reward streams: a list, or one mapping for a list of one.",
    )
    eval_rewards: Streams | None = Field(
        default=None, description="Streams that `eval` uses instead of `rewards`."
    )
    execution: ExecutionConfig = Field(
        default_factory=ExecutionConfig, description="Where rows come from, and who scores them."
    )
    score: ScoreConfig = Field(
        default_factory=ScoreConfig, description="How `score` aggregates and cuts the input."
    )
    python_path: list[FilePath] = Field(
        default_factory=lambda: [Path(".")],
        description="Folders appended to the end of sys.path for your own reward classes.",
        json_schema_extra={"default": ["."]},
    )
    model: ModelConfig = Field(
        default_factory=ModelConfig, description="The reward model that `train` builds."
    )
    train: TrainConfig | None = Field(default=None, description="What `train` does.")
    eval: EvalConfig = Field(
        default_factory=EvalConfig, description="Data, output and clustering of `eval`."
    )
    media: MediaConfig = Field(default_factory=MediaConfig, description="How media are decoded.")


SECTIONS: tuple[str, ...] = tuple(ConfigFile.model_fields)


class Config(ConfigFile):
    """A checked configuration: paths are absolute, `${env:NAME}` in options is resolved."""

    folder: Path  # of the file, or the working directory without one; absolute
    secrets: tuple[str, ...] = Field(default=(), repr=False, exclude=True)  # texts to mask in dumps
