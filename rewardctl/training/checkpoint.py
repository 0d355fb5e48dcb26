"""A checkpoint: a folder that rebuilds a trained model, prepares its inputs and proves itself on
load.

Written aside and renamed, so that a folder under its final name is whole. Nothing is unpickled.
What goes on training keeps beside the model is in trainer_state.py.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode

from rewardctl import __version__
from rewardctl.data.encoded import EncodedRow
from rewardctl.data.tokenizer import TextEncoder
from rewardctl.errors import DataError, RunError
from rewardctl.training.packing import score_items
from rewardctl.training.reward_model import RewardModel

FORMAT_VERSION = 1
TIMESTEP_SCALE = 1000  # of the sinusoids; timesteps themselves are in [0, 1]
SCORED_ITEMS = 1024  # whose mean and deviation a checkpoint stores
PROBES = 8
PROBE_TOLERANCE = 1e-3
PROBE_TEXTS = (
    "Yes.",
    "No, that is not what was asked.",
    "The capital of France is Paris.",
    "1 + 1 = 2, and 2 + 2 = 4.",
    "def add(a, b):\n    return a + b",
    "Grüße aus Köln, 東京 and São Paulo.",
    "It depends: on the one hand it is cheap, on the other hand it breaks.",
    "word " * 40,
)


@dataclass(frozen=True)
class InputFacts:
    """How a model's inputs are prepared."""

    kind: str  # text | tokens | latents
    template: str | None = None  # how prompt and response become one text
    overlong: str = "error"  # error | keep_head | keep_tail | drop


@dataclass(frozen=True)
class ScoreFacts:
    """Distribution of the model's scores, for `normalize`."""

    mean: float
    std: float
    n: int
    source: str  # the data they were taken on


@dataclass
class Checkpoint:
    """A model with all that is needed to score with it."""

    model: RewardModel
    inputs: InputFacts
    encoder: TextEncoder | None = None  # for text
    loss: Mapping[str, Any] | None = None  # the loss it was trained with; holds tie_strength
    scores: ScoreFacts | None = None


def save_checkpoint(
    folder: Path,
    checkpoint: Checkpoint,
    *,
    data: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    write_more: Callable[[Path], None] | None = None,
) -> None:
    """Write a checkpoint under `folder`, replacing what stands there, whole or not at all.

    Args:
        data: facts of the training data (hashes, counts) for the manifest and the model card.
        metrics: figures for the model card.
        write_more: writes further files into the folder before it is sealed.

    Raises:
        RunError: it cannot be written.
    """
    aside = folder.with_name(f".{folder.name}.writing")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        _write_files(aside, checkpoint, data or {}, metrics or {})
        if write_more is not None:
            write_more(aside)
        _write_manifest(aside, data or {})
        for path in sorted(aside.rglob("*")):
            _sync(path)
        _replace_folder(aside, folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        reason = getattr(error, "strerror", None) or error
        raise RunError(
            f"{folder}: the checkpoint cannot be written: {reason}; make room, then go on with "
            "--resume"
        ) from error


def _write_files(
    folder: Path, checkpoint: Checkpoint, data: Mapping[str, Any], metrics: Mapping[str, Any]
) -> None:
    model = checkpoint.model
    state = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "format_version": FORMAT_VERSION,
        "rewardctl": __version__,
        "network": model.network_config(),
        "input": asdict(checkpoint.inputs),
        "timestep_scale": TIMESTEP_SCALE,
        "loss": checkpoint.loss,
        "score": asdict(checkpoint.scores) if checkpoint.scores else None,
    }
    _write_json(folder / "config.json", config)
    if checkpoint.encoder is not None:
        checkpoint.encoder.save(folder / "tokenizer.json")
    seed = 0
    items, timesteps = probe_inputs(checkpoint, seed=seed)
    scores = _evaluation_scores(model, items, timesteps)
    _write_json(folder / "probe.json", {"seed": seed, "scores": scores})
    (folder / "README.md").write_text(model_card(checkpoint, data, metrics), "utf-8")


def probe_inputs(
    checkpoint: Checkpoint, *, seed: int
) -> tuple[list["np.ndarray[Any, Any]"], list[float] | None]:
    """Synthetic inputs that a checkpoint is known by: fixed sentences, or random ones from
    `seed`.
    """
    network = checkpoint.model.network_config()
    draw = np.random.default_rng(seed)
    longest = int(network["seq_length"])
    lengths = [min(longest, 1 + int(n)) for n in draw.integers(0, 32, PROBES)]
    if checkpoint.encoder is not None:
        items = [ids[:longest] for ids in checkpoint.encoder.encode_batch(list(PROBE_TEXTS))]
    elif network["vocab_size"] is not None:
        items = [draw.integers(0, network["vocab_size"], n).astype(np.int32) for n in lengths]
    else:
        shape = int(network["in_channels"])
        items = [draw.standard_normal((n, shape)).astype(np.float32) for n in lengths]
    timesteps = [round(float(t), 6) for t in draw.random(PROBES)]
    return items, timesteps if network["timestep_aware"] else None


def _evaluation_scores(
    model: RewardModel, items: list["np.ndarray[Any, Any]"], timesteps: list[float] | None
) -> list[float]:
    """Scores in evaluation mode and float32, whatever the model computes in otherwise."""
    was_training, dtype = model.training, model.body_dtype
    model.eval()
    model.body_dtype = torch.float32
    try:
        return [float(score) for score in score_items(model, items, timesteps)]
    finally:
        model.train(was_training)
        model.body_dtype = dtype


def score_facts(model: RewardModel, rows: Sequence[EncodedRow], source: str) -> ScoreFacts:
    """Mean and deviation of the scores of the first items of some rows.

    Raises:
        RunError: a score is not finite.
    """
    pairs = [(item, row) for row in rows for item in row.items][:SCORED_ITEMS]
    times = [row.known_timestep for _, row in pairs] if model.timestep_aware else None
    scores = torch.tensor(_evaluation_scores(model, [item for item, _ in pairs], times)).double()
    if not bool(torch.isfinite(scores).all()):
        raise RunError(
            "scores are not finite, so no checkpoint is written; lower lr, and go on from the last "
            "one"
        )
    mean, deviation = float(scores.mean()), float(scores.std(correction=0))
    return ScoreFacts(mean, deviation, len(pairs), source)


def _write_manifest(folder: Path, data: Mapping[str, Any]) -> None:
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    _write_json(folder / "manifest.json", {"files": files, "data": data})


def digest(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def sha256(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", "utf-8")


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _replace_folder(new: Path, folder: Path) -> None:
    """Rename `new` to `folder`; a kill on the way leaves the old one under its name or beside
    it.
    """
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.rename(folder, old)
    os.rename(new, folder)
    _sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def restore_folder(folder: Path) -> None:
    """Undo a replacement that was cut between its two renames."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        os.rename(old, folder)


def find_checkpoint(path: Path) -> Path:
    """The checkpoint that a `model_path` means: itself, or of a run's folder best/, else final/.

    Raises:
        DataError: there is none.
    """
    if (path / "config.json").exists():
        return path
    # A replacement that is being made, or was cut, has the old folder beside the name.
    for name in ("best", ".best.old", "final", ".final.old"):
        if (path / name / "config.json").exists():
            return path / name
    what = "is not there" if not path.exists() else "holds no checkpoint"
    raise DataError(
        f"{path}: {what}; expected the folder of a checkpoint (config.json, model.safetensors) or "
        "of a training run (best/ or final/)"
    )


def load_checkpoint(path: Path, *, probe: bool = True) -> Checkpoint:
    """Rebuild a model strictly, in float32 and evaluation mode, and prove it on its probes.

    Raises:
        DataError: a file is missing, damaged or does not fit, or the probes score otherwise.
    """
    folder = find_checkpoint(path)
    verify_files(folder)
    config = read_json(folder / "config.json")
    if config.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{folder}/config.json: format_version is {config.get('format_version')!r}, this "
            f"version reads {FORMAT_VERSION}; use the version of rewardctl that wrote it"
        )
    try:
        with _WithoutInit():
            model = RewardModel(**config["network"])
        inputs = InputFacts(**config["input"])
        scores = ScoreFacts(**config["score"]) if config["score"] else None
        loss = config["loss"]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{folder / 'config.json'}: no model can be built from it: "
            f"{type(error).__name__}: {error}; copy the checkpoint again"
        ) from error
    load_weights(model, folder / "model.safetensors")
    model.eval()
    encoder = TextEncoder.load(folder / "tokenizer.json") if inputs.kind == "text" else None
    checkpoint = Checkpoint(model, inputs, encoder, loss, scores)
    if probe:
        _prove(folder, checkpoint)
    return checkpoint


class _WithoutInit(TorchFunctionMode):
    """Leaves the weights of models that are built as memory holds them: all are loaded next, and
    drawing them takes several times as long.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Do nothing for `torch.nn.init`."""
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a checkpoint.

    Raises:
        DataError: it is missing or no JSON object.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot read this file of a checkpoint: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a JSON object")
    return content


def verify_files(folder: Path) -> None:
    """Hold every file of a checkpoint to its manifest.

    Raises:
        DataError: a file is missing, cut or changed.
    """
    files = read_json(folder / "manifest.json").get("files", {})
    for name, facts in files.items():
        path = folder / name
        if not path.exists():
            problem = "is missing"
        elif path.stat().st_size != facts["size"]:
            problem = f"has {path.stat().st_size} bytes, expected {facts['size']}"
        elif sha256(path) != facts["sha256"]:
            problem = "was changed: its sha256 is not the manifest's"
        else:
            continue
        raise DataError(
            f"{path}: {problem}; the checkpoint is damaged: copy it again, or delete it to use the "
            "one before"
        )


def load_weights(model: RewardModel, path: Path) -> None:
    """Load all weights of a model, and nothing else.

    Raises:
        DataError: tensors are missing, not known or of another shape; they are named.
    """
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: cannot read the weights: {error}") from error
    own = model.state_dict()
    missing = sorted(set(own) - set(tensors))
    unknown = sorted(set(tensors) - set(own))
    misshapen = sorted(
        f"{n} {tuple(tensors[n].shape)} for {tuple(own[n].shape)}"
        for n in set(own) & set(tensors)
        if own[n].shape != tensors[n].shape
    )
    problems = [
        f"{what}: {', '.join(names[:8])}{', …' if len(names) > 8 else ''}"
        for what, names in (
            ("missing tensors", missing),
            ("unknown tensors", unknown),
            ("tensors of another shape", misshapen),
        )
        if names
    ]
    if problems:
        raise DataError(
            f"{path}: {'; '.join(problems)}; the weights do not fit config.json. A new scoring "
            "head "
            "is started only by model.init_head: fresh"
        )
    model.load_state_dict(tensors)


def _prove(folder: Path, checkpoint: Checkpoint) -> None:
    probe = read_json(folder / "probe.json")
    items, timesteps = probe_inputs(checkpoint, seed=probe["seed"])
    found = _evaluation_scores(checkpoint.model, items, timesteps)
    for place, (score, stored) in enumerate(zip(found, probe["scores"], strict=True)):
        if not abs(score - stored) <= PROBE_TOLERANCE * max(1.0, abs(stored)):
            raise DataError(
                f"{folder}: probe {place} scores {score:.6g}, but scored {stored:.6g} when the "
                "checkpoint was written; its config, tokenizer or weights were changed"
            )


def model_card(checkpoint: Checkpoint, data: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """The README.md of a checkpoint."""
    network = checkpoint.model.network_config()
    parameters = sum(p.numel() for p in checkpoint.model.parameters())
    lines = [
        "# Reward model",
        "",
        f"Trained with rewardctl {__version__}. Higher scores are better; differences of scores "
        "of one "
        "prompt are log-odds of preference, the level has no meaning.",
        "",
        "```yaml",
        "rewards:",
        "  - {name: reward, reward_model: trained, model_path: PATH_OF_THIS_FOLDER}",
        "```",
        "",
        f"- input: {checkpoint.inputs.kind}, up to {network['seq_length']} positions "
        f"(overlong: {checkpoint.inputs.overlong})",
        f"- network: {network['depth']} blocks, {network['hidden_size']} wide, "
        f"{network['num_heads']} heads, {network['pooling']} pooling, {parameters:,} parameters",
    ]
    lines += [f"- {name}: {value}" for name, value in {**metrics, **data}.items()]
    return "\n".join(lines) + "\n"
