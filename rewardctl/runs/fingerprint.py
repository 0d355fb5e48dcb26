"""What must be the same for a stopped run to go on: streams, rules, input, models and code."""

import hashlib
import inspect
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rewardctl import __version__
from rewardctl.config.schema import Config, RewardArguments
from rewardctl.config.secret import masked
from rewardctl.data.inputs import Input
from rewardctl.data.row_stream import is_stream

EDGE_BYTES = 1 << 20  # of a file's start and of its end


def file_facts(path: Path) -> dict[str, Any]:
    """Size of a file, and SHA-256 of its first and last MiB."""
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(EDGE_BYTES))
        file.seek(max(EDGE_BYTES, size - EDGE_BYTES))
        digest.update(file.read(EDGE_BYTES))
    return {"size": size, "sha256": digest.hexdigest()}


def fingerprint(
    config: Config,
    streams: Sequence[RewardArguments],
    classes: Sequence[type],
    inputs: Sequence[Input],
    *,
    include: Sequence[str],
    limit: int | None,
) -> dict[str, Any]:
    """The facts of a scoring run that its output depends on.

    A stream's `async_reward` and `num_workers` are left out: they change the pace, not the scores.
    An input that can be read only once is known by its content, which the journal holds.
    """
    return {
        "version": __version__,
        "streams": [_stream_facts(args, config.secrets) for args in streams],
        "score": config.score.model_dump(mode="json"),
        "media": config.media.model_dump(mode="json", exclude={"max_memory"}),
        "datasets": [d.name for d in config.data.datasets],
        "include": list(include),
        "limit": limit,
        "inputs": [_input_facts(source) for source in inputs],
        "models": _model_facts(streams),
        "classes": {f"{c.__module__}.{c.__qualname__}": _class_facts(c) for c in classes},
    }


def _stream_facts(args: RewardArguments, secrets: tuple[str, ...]) -> dict[str, Any]:
    facts = args.model_dump(mode="json", exclude={"async_reward", "num_workers", "options"})
    options: dict[str, Any] = masked(
        json.loads(json.dumps(args.extra_kwargs, default=repr)), secrets
    )
    return {**facts, "options": options}


def _input_facts(source: Input) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": source.name,
        "dataset": source.dataset,
        "media_root": str(source.media_root.folder.resolve()),
    }
    if source.path is not None and not is_stream(source):
        facts |= {"path": str(source.path.resolve()), **file_facts(source.path)}
    return facts


def _model_facts(streams: Sequence[RewardArguments]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for args in streams:
        path = Path(args.model_path) if args.model_path else None
        if path is None or not path.exists():
            continue
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        facts[str(path)] = {os.path.relpath(f, path): file_facts(f) for f in files}
    return facts


def _class_facts(reward_class: type) -> str | None:
    """SHA-256 of the file a class stands in; None where it has none."""
    try:
        file = inspect.getsourcefile(reward_class)
    except TypeError:
        return None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None


def digest_of(facts: Mapping[str, Any]) -> str:
    """SHA-256 of a fingerprint."""
    return hashlib.sha256(repr(sorted(_flat(facts).items())).encode()).hexdigest()


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two fingerprints, a line each."""
    old, new = _flat(before), _flat(now)
    return [
        f"{key}: was {_show(old.get(key))}, now {_show(new.get(key))}"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]


def _show(value: Any) -> str:
    return "absent" if value is None else str(value)[:80]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping):
        parts = [(f"{prefix}.{k}" if prefix else str(k), v) for k, v in value.items()]
    elif isinstance(value, list) and value:
        parts = [(f"{prefix}[{i}]", v) for i, v in enumerate(value)]
    else:
        return {prefix: value}
    return {k: v for key, part in parts for k, v in _flat(part, key).items()}


def machine_facts() -> dict[str, Any]:
    """Where a run runs; a change is worth a warning, not a refusal."""
    import torch

    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": "cuda" if torch.cuda.is_available() else "cpu",
    }
