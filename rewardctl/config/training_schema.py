"""The shape of the sections that `train` and `eval` read: `model:`, `train:` and `eval:`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from rewardctl.config.section import FilePath, Section, one_or_many, wrong_type


class DataFile(Section):
    """A file of preference rows, and how its columns are read."""

    path: FilePath = Field(description="JSONL file (also .gz) or a quoted glob, beside the config.")
    name: str | None = Field(default=None, min_length=1, description="Dataset name of its rows.")
    columns: dict[str, str] = Field(
        default_factory=dict, description="Renames columns: the file's name to ours."
    )
    direction: Literal["higher_is_better", "lower_is_better"] | None = Field(
        default=None,
        description="What `ranking` or `scores` of K-wise rows mean; required for these.",
    )


_FILES = "a path, a mapping {path, name, columns, direction}, or a list of either"


def _as_file(value: Any) -> Any:
    if isinstance(value, str) and value:
        return {"path": value}
    if not isinstance(value, (dict, DataFile)):
        raise wrong_type("a path or a mapping {path, name, columns, direction}")
    return value


def _as_files(value: Any) -> Any:
    if isinstance(value, str) and value:
        return [value]
    if not isinstance(value, (dict, list, DataFile)):
        raise wrong_type(_FILES)
    return one_or_many(value)


_File = Annotated[DataFile, BeforeValidator(_as_file, json_schema_input_type=str | DataFile)]
DataFiles = Annotated[
    list[_File],
    Field(min_length=1),
    BeforeValidator(_as_files, json_schema_input_type=str | DataFile | list[str | DataFile]),
]


class ValidationSplit(Section):
    """A share of the training rows, held out whole by the values of a column."""

    split: float = Field(gt=0, lt=1, description="Share of the rows.")
    by: str = Field(
        default="prompt",
        min_length=1,
        description="Column whose equal values stay on one side of the split.",
    )


def _validation_kind(value: Any) -> str:
    is_split = isinstance(value, ValidationSplit) or (
        isinstance(value, dict) and ("split" in value or "by" in value)
    )
    return "<split>" if is_split else "<files>"


Validation = Annotated[
    Annotated[ValidationSplit, Tag("<split>")] | Annotated[DataFiles, Tag("<files>")],
    Discriminator(_validation_kind),
]


class EarlyStopping(Section):
    """Stops training once validation no longer gets better."""

    metric: Literal["val_loss", "val_accuracy"] = Field(
        default="val_loss", description="The figure that is watched."
    )
    patience: int = Field(
        default=3, ge=1, description="Evaluations without a gain before the stop."
    )
    min_delta: float = Field(
        default=0.0, ge=0, description="Smallest change that counts as a gain."
    )


class ModelConfig(Section):
    """The network that `train` builds, and how inputs are prepared for it."""

    size: Literal["nano", "small", "base", "large"] | None = Field(
        default=None,
        description="Preset of hidden_size, depth and num_heads, default small; or give these.",
    )
    hidden_size: int | None = Field(default=None, ge=2, description="Width of the blocks.")
    depth: int | None = Field(default=None, ge=1, description="Number of blocks.")
    num_heads: int | None = Field(default=None, ge=1, description="Attention heads of a block.")
    input: Literal["text", "tokens", "latents"] = Field(
        default="text", description="What a side of a pair is."
    )
    vocab_size: int | None = Field(
        default=None,
        ge=2,
        description="Number of token ids (tokens); size of the trained BPE, default 4096 (text).",
    )
    in_channels: int | None = Field(default=None, ge=1, description="Channels of latents.")
    seq_length: int = Field(default=256, ge=1, description="Most positions of one input.")
    pooling: Literal["mean", "cls", "last"] = Field(
        default="mean", description="How positions become one vector."
    )
    qk_norm: bool = Field(default=False, description="LayerNorm on queries and keys.")
    rope_theta: float = Field(default=10000.0, gt=0, description="Base of the rotary positions.")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="Rate in the scoring head.")
    mlp_ratio: float = Field(default=4.0, gt=0, description="Width of the MLP over hidden_size.")
    timestep_aware: bool = Field(
        default=False, description="Condition on the row's timestep, in [0, 1]."
    )
    tokenizer: str | None = Field(
        default=None,
        min_length=1,
        description="bpe (trained on train.data, the default), bytes, or a tokenizer.json.",
    )
    init_from: str | None = Field(
        default=None,
        min_length=1,
        description="A checkpoint of rewardctl, or a generator's .safetensors, to start from.",
    )
    init_head: Literal["fresh"] | None = Field(
        default=None, description="fresh: take all but the scoring head from init_from."
    )
    init_from_rope: Literal["interleaved", "half"] | None = Field(
        default=None, description="Layout of rotary positions in a generator's weights."
    )


class TrainConfig(Section):
    """What `train` reads, how it learns and what it writes."""

    data: DataFiles = Field(description=f"Preference rows: {_FILES}.")
    validation: Validation | None = Field(
        default=None, description="Files as under data, or {split: 0.1, by: prompt}."
    )
    output_dir: FilePath | None = Field(
        default=None, description="Folder of the run; --output-dir overrides."
    )
    epochs: int | None = Field(
        default=None, ge=1, description="Passes over the data, default 3. Give it or max_steps."
    )
    max_steps: int | None = Field(default=None, ge=1, description="Optimizer steps.")
    batch_size: int = Field(
        default=32, ge=1, description="Rows of one optimizer step, over all processes."
    )
    lr: float = Field(default=1e-4, gt=0, description="Learning rate after warmup.")
    weight_decay: float = Field(default=0.01, ge=0, description="On matrices only.")
    warmup_ratio: float = Field(default=0.1, ge=0, le=1, description="Share of steps with warmup.")
    schedule: Literal["constant", "cosine", "linear"] = Field(
        default="constant", description="Learning rate after warmup."
    )
    grad_clip: float | None = Field(
        default=1.0, gt=0, description="Largest norm of the gradient; null: no limit."
    )
    loss: Literal["bradley_terry", "rao_kupper", "plackett_luce"] = Field(
        default="bradley_terry", description="Model of preferences."
    )
    margin_mode: Literal["scale", "subtract", "ignore"] = Field(
        default="scale", description="How a row's margin enters bradley_terry."
    )
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=0.5, description="Share of labels taken as swapped (bradley_terry)."
    )
    center_coefficient: float = Field(
        default=0.0, ge=0, description="Pulls scores towards 0: times (chosen + rejected)^2."
    )
    tie_strength: float = Field(
        default=2.0, ge=1, description="The k of rao_kupper; 1 only without tied rows."
    )
    kwise_pairs: Literal["all", "adjacent", "best_worst"] = Field(
        default="all", description="Which pairs of a K-wise row are learnt from."
    )
    overlong: Literal["error", "keep_head", "keep_tail", "drop"] = Field(
        default="error", description="What happens to inputs over model.seq_length."
    )
    mixed_precision: Literal["no", "bf16"] = Field(
        default="no", description="Number type of the body; head and loss stay float32."
    )
    micro_batch_tokens: int | None = Field(
        default=None, ge=1, description="Cuts a step for memory, never changes it."
    )
    log_every: int = Field(default=10, ge=1, description="Optimizer steps between log lines.")
    eval_every: int = Field(default=100, ge=1, description="Optimizer steps between validations.")
    save_every: int = Field(default=100, ge=1, description="Optimizer steps between checkpoints.")
    keep_last: int = Field(default=2, ge=1, description="Checkpoints that are kept.")
    ema_decay: float | None = Field(
        default=None, gt=0, lt=1, description="Decay of averaged weights; null: none are kept."
    )
    early_stopping: EarlyStopping | None = Field(
        default=None, description="Needs validation; counts evaluations."
    )
    report_to: Literal["none", "tensorboard"] = Field(
        default="none", description="Where metrics go besides metrics.jsonl."
    )
    seed: int = Field(default=0, ge=0, lt=2**32, description="Of weights, order and dropout.")


class EvalConfig(Section):
    """What `eval` reads and writes."""

    data: DataFiles | None = Field(
        default=None, description=f"{_FILES}; --data overrides.".capitalize()
    )
    output_dir: FilePath | None = Field(default=None, description="Folder of the report.")
    cluster: str = Field(
        default="prompt", min_length=1, description="Column that intervals are clustered by."
    )
