"""What the keys of `model:` and `train:` mean together: input kind, sizes, loss, run length."""

from rewardctl.config.report import Report
from rewardctl.config.schema import ConfigFile
from rewardctl.config.section import Section
from rewardctl.config.training_schema import ModelConfig, TrainConfig
from rewardctl.errors import quote

DIMENSIONS = ("hidden_size", "depth", "num_heads")


def check_training(config: ConfigFile, report: Report) -> None:
    """Report what the sections for training say that cannot be meant."""
    _check_input(config.model, report)
    _check_size(config.model, report)
    _check_init(config.model, report)
    if config.train is not None:
        _check_needed(config, report)
        _check_loss(config.train, report)
        _check_length(config.train, report)


def _check_needed(config: ConfigFile, report: Report) -> None:
    """Keys that `train` cannot do without, once there is a `train:`; `eval` needs no `model:`."""
    model = config.model
    if model.init_from is not None:
        return
    for kind, key, meaning in (
        ("tokens", "vocab_size", "the number of token ids"),
        ("latents", "in_channels", "the channels of a position"),
    ):
        if model.input == kind and getattr(model, key) is None:
            report.add(
                "RC314",
                f"model.input: {kind} needs model.{key}, {meaning}",
                ("model",),
                reads=[("model", "input"), ("model", key)],
                at_key=True,
            )


def _given(section: Section, key: str) -> bool:
    return key in section.model_fields_set and getattr(section, key) is not None


def _check_input(model: ModelConfig, report: Report) -> None:
    foreign = {
        "text": {"in_channels": "input: latents"},
        "tokens": {"in_channels": "input: latents", "tokenizer": "input: text"},
        "latents": {"vocab_size": "input: tokens or text", "tokenizer": "input: text"},
    }[model.input]
    for key, owner in foreign.items():
        if _given(model, key):
            report.add(
                "RC314",
                f"model.{key} belongs to {owner}, but model.input is {model.input}",
                ("model", key),
                reads=[("model", "input")],
                hint=f"drop {key}, or change input",
            )
    if (
        model.input == "text"
        and model.tokenizer not in (None, "bpe")
        and _given(model, "vocab_size")
    ):
        report.add(
            "RC314",
            "model.vocab_size is the size of a trained BPE, but model.tokenizer is "
            f"{quote(model.tokenizer)}",
            ("model", "vocab_size"),
            reads=[("model", "tokenizer"), ("model", "input")],
            hint="drop vocab_size: the tokenizer has its own",
        )


def _check_size(model: ModelConfig, report: Report) -> None:
    given = [key for key in DIMENSIONS if getattr(model, key) is not None]
    reads = [("model", key) for key in (*DIMENSIONS, "size")]
    if given and model.size is not None:
        report.add(
            "RC315",
            f"model.{given[0]} together with model.size: {model.size}",
            ("model", given[0]),
            reads=reads,
            hint="give a size, or hidden_size, depth and num_heads",
        )
    elif given and len(given) < len(DIMENSIONS):
        missing = [key for key in DIMENSIONS if key not in given]
        report.add(
            "RC315",
            f"model.{given[0]} without {' and '.join(missing)}",
            ("model", given[0]),
            reads=reads,
            hint="without a size, all of hidden_size, depth and num_heads are needed",
        )
    if model.hidden_size is not None and model.num_heads is not None:
        width, rest = divmod(model.hidden_size, model.num_heads)
        if rest or width % 2:
            report.add(
                "RC315",
                f"model.hidden_size: {model.hidden_size} over num_heads: {model.num_heads} is no "
                "even number",
                ("model", "hidden_size"),
                reads=reads,
                hint="rotary positions turn pairs of channels of each head",
            )


def _check_init(model: ModelConfig, report: Report) -> None:
    if model.init_from is not None:
        return
    for key in ("init_head", "init_from_rope"):
        if _given(model, key):
            report.add(
                "RC317",
                f"model.{key} without model.init_from",
                ("model", key),
                reads=[("model", "init_from")],
                hint="name the weights to start from",
            )


def _check_loss(train: TrainConfig, report: Report) -> None:
    refused: dict[str, tuple[str, ...]] = {
        "bradley_terry": ("tie_strength",),
        "rao_kupper": ("margin_mode", "label_smoothing"),
        "plackett_luce": ("margin_mode", "label_smoothing", "tie_strength", "kwise_pairs"),
    }
    for key in refused[train.loss]:
        is_off = key == "label_smoothing" and train.label_smoothing == 0
        if _given(train, key) and not is_off:
            report.add(
                "RC316",
                f"train.{key} is not for train.loss: {train.loss}",
                ("train", key),
                reads=[("train", "loss")],
                hint=f"drop {key}, or use another loss",
            )


def _check_length(train: TrainConfig, report: Report) -> None:
    if train.epochs is not None and train.max_steps is not None:
        report.add(
            "RC316",
            f"train.epochs: {train.epochs} together with train.max_steps: {train.max_steps}",
            ("train", "max_steps"),
            reads=[("train", "epochs")],
            hint="give one of them",
        )
    if train.early_stopping is not None and train.validation is None:
        report.add(
            "RC317",
            "train.early_stopping without train.validation",
            ("train", "early_stopping"),
            reads=[("train", "validation")],
            hint="add validation: a path, or {split: 0.1}",
            at_key=True,
        )
