"""`validate-data`, and the data of `train` before its first step: read, split, encoded, audited."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewardctl.config.training_schema import DataFile, ModelConfig, TrainConfig, ValidationSplit
from rewardctl.data.audit import AuditedRows, AuditReport, audit
from rewardctl.data.encode import Problem, encode_rows, row_texts
from rewardctl.data.encoded import EncodedRow
from rewardctl.data.preferences import BadPreference, PreferenceRow, read_preferences
from rewardctl.data.split import held_out
from rewardctl.data.tokenizer import TextEncoder
from rewardctl.errors import ConfigError, DataError, UsageError, quote
from rewardctl.runs.validate import checked_config

if TYPE_CHECKING:
    from rewardctl.training.losses import LossConfig

_CONFIG_SUFFIXES = {".yaml", ".yml"}
_ANY_LENGTH = 2**62


@dataclass(frozen=True)
class PreparedData:
    """What a training run learns from and is judged on."""

    train: list[EncodedRow]
    validation: list[EncodedRow] | None
    encoder: TextEncoder | None  # for text
    report: AuditReport  # with errors, nothing may be trained
    has_prompts: bool  # whether texts were joined to prompts


@dataclass(frozen=True)
class DataValidation:
    """The outcome of `validate-data`."""

    report: AuditReport
    strict: bool

    @property
    def exit_code(self) -> int:
        """0 fine, 1 refused."""
        return int(self.report.failed(strict=self.strict))

    @property
    def text(self) -> str:
        """For a terminal: a line a problem, the counts last."""
        return self.report.text()

    @property
    def json(self) -> str:
        """One JSON object."""
        return json.dumps(self.report.to_json() | {"strict": self.strict}, indent=2)


@dataclass(frozen=True)
class _Read:
    """The lines of some files."""

    source: str
    rows: list[PreferenceRow]
    bad: list[BadPreference]


def validate_data(
    target: str, overrides: Sequence[str] = (), *, strict: bool = False
) -> DataValidation:
    """Audit the data of a config, or a preference file by itself.

    Args:
        target: A .yaml or .yml file whose `train:` and `model:` are used; else preference rows,
            a path, a glob or `-`, of which the model is not known.
        strict: Warnings count as errors.

    Raises:
        ConfigError: the config has errors, or no `train:`.
        DataError: a file is missing, unreadable or without rows.
        UsageError: overrides for a preference file.
    """
    if Path(target).suffix.lower() not in _CONFIG_SUFFIXES:
        if overrides:
            raise UsageError(f"--set is for a config, but {target} is read as preference rows")
        return DataValidation(_audit_file(target), strict)
    config, _ = checked_config(Path(target), overrides, sections=("model", "train"))
    if config.train is None:
        raise ConfigError(f"{target}: expected a train: section, whose data are audited")
    model, encoder = _with_checkpoint(config.model)
    return DataValidation(prepare_data(config.train, model, encoder=encoder).report, strict)


def prepare_data(
    train: TrainConfig, model: ModelConfig, *, encoder: TextEncoder | None = None
) -> PreparedData:
    """The data of a training run, encoded, with their audit; errors are in the report.

    Args:
        train: With absolute paths.
        model: With the sizes of the checkpoint that training starts from, if there is one.
        encoder: Of that checkpoint; None: as `model.tokenizer` says.

    Raises:
        DataError: a file is missing, unreadable or without rows, or a split that cannot be.
    """
    read = _read(train.data)
    held: _Read | None = None
    if isinstance(train.validation, ValidationSplit):
        read, held = _split(read, train.validation, train.seed)
    elif train.validation is not None:
        held = _read(train.validation)
    if model.input == "text" and encoder is None:
        encoder = _build_encoder(model, read.rows)
    audited = _encode("train", read, train, model, encoder)
    audited_held = None if held is None else _encode("validation", held, train, model, encoder)
    report = audit(
        audited,
        audited_held,
        margin_mode=train.margin_mode if train.loss == "bradley_terry" else "ignore",
        timestep_aware=model.timestep_aware,
    )
    return PreparedData(
        list(audited.encoded or ()),
        None if audited_held is None else list(audited_held.encoded or ()),
        encoder if model.input == "text" else None,
        report,
        model.input == "text" and any(row.prompt for row in read.rows),
    )


def _read(files: Sequence[DataFile]) -> _Read:
    rows: list[PreferenceRow] = []
    bad: list[BadPreference] = []
    for row in read_preferences(files):
        if isinstance(row, BadPreference):
            bad.append(row)
        else:
            rows.append(row)
    return _Read(", ".join(file.path.name for file in files), rows, bad)


def _split(read: _Read, split: ValidationSplit, seed: int) -> tuple[_Read, _Read]:
    """Rows to train on, with the lines that cannot be read, and rows held out."""
    values = [_split_value(row, split.by, place) for place, row in enumerate(read.rows)]
    if read.rows and not any(isinstance(value, str) for value in values):
        columns = sorted({name for row in read.rows for name in row.record})
        raise DataError(
            f"{read.source}: train.validation splits by {quote(split.by)}, which no row has; "
            f"set train.validation.by to a column of the rows: {', '.join(columns)}"
        )
    try:
        is_out = held_out(values, split.split, seed)
    except DataError as error:
        raise DataError(
            f"{read.source}: train.validation splits by {quote(split.by)}: {error}"
        ) from error
    kept = [row for row, out in zip(read.rows, is_out, strict=True) if not out]
    out = [row for row, out in zip(read.rows, is_out, strict=True) if out]
    source = f"{read.source} (split by {split.by})"
    return _Read(read.source, kept, read.bad), _Read(source, out, [])


def _split_value(row: PreferenceRow, column: str, place: int) -> str | int:
    """The value as text; a row without one stands alone."""
    value = row.column(column)
    return place if value is None else json.dumps(value, sort_keys=True)


def _build_encoder(model: ModelConfig, rows: Sequence[PreferenceRow]) -> TextEncoder:
    if model.tokenizer == "bytes":
        return TextEncoder.byte_encoder()
    if model.tokenizer in (None, "bpe"):
        return TextEncoder.train_bpe(row_texts(rows), model.vocab_size or 4096)
    return TextEncoder.load(Path(model.tokenizer))


def _encode(
    name: str, read: _Read, train: TrainConfig, model: ModelConfig, encoder: TextEncoder | None
) -> AuditedRows:
    encoded, problems = encode_rows(
        read.rows,
        input=model.input,
        encoder=encoder,
        seq_length=model.seq_length,
        overlong=train.overlong,
        vocab_size=encoder.vocab_size if encoder and model.input == "text" else model.vocab_size,
        in_channels=model.in_channels,
    )
    problems += _loss_problems(encoded, train)
    return AuditedRows(name, read.source, read.rows, read.bad, encoded, problems)


def loss_config(train: TrainConfig) -> "LossConfig":
    """The loss that the config's section describes."""
    from rewardctl.training.losses import LossConfig

    return LossConfig(
        loss=train.loss,
        margin_mode=train.margin_mode,
        label_smoothing=train.label_smoothing,
        center_coefficient=train.center_coefficient,
        tie_strength=train.tie_strength if train.loss == "rao_kupper" else None,
        kwise_pairs=train.kwise_pairs,
    )


def _loss_problems(rows: Sequence[EncodedRow], train: TrainConfig) -> list[Problem]:
    from rewardctl.training.losses import row_problems

    config = loss_config(train)
    return [
        Problem("error", "loss", row.place, text.removeprefix(f"{row.place}: "))
        for row in rows
        for text in row_problems([row], config)
    ]


def _audit_file(target: str) -> AuditReport:
    """The audit of what needs no model: not lengths, token ranges, or timesteps."""
    read = _read([DataFile(path=Path(target))])
    encoded: list[EncodedRow] | None = None
    problems: list[Problem] = []
    if read.rows and all(side.latents is not None for side in read.rows[0].sides):
        encoded, problems = encode_rows(read.rows, input="latents", seq_length=_ANY_LENGTH)
    return audit(AuditedRows("train", read.source, read.rows, read.bad, encoded, problems))


def _with_checkpoint(model: ModelConfig) -> tuple[ModelConfig, TextEncoder | None]:
    """The model as `init_from` completes it, where that is a checkpoint of ours."""
    if model.init_from is None or Path(model.init_from).suffix == ".safetensors":
        return model, None
    from rewardctl.training.checkpoint import find_checkpoint, read_json

    folder = find_checkpoint(Path(model.init_from))
    stored = read_json(folder / "config.json")
    kind = stored["input"]["kind"]
    keys = ("vocab_size", "in_channels", "seq_length", "timestep_aware")
    sizes: dict[str, Any] = {key: stored["network"][key] for key in keys}
    encoder = TextEncoder.load(folder / "tokenizer.json") if kind == "text" else None
    return model.model_copy(update={"input": kind, **sizes}), encoder
