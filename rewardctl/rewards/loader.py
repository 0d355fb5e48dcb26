"""From reward streams to reward models: each distinct model is built once, whoever shares it."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

from pydantic import ValidationError

from rewardctl.config.schema import RewardArguments
from rewardctl.errors import ConfigError, ContractError, RewardctlError, quote
from rewardctl.rewards.abc import BaseRewardModel
from rewardctl.rewards.registry import import_class

if TYPE_CHECKING:
    from accelerate import Accelerator

DEFAULT_BATCH_SIZE = 16


class ModelRole(Enum):
    """What a model is loaded for."""

    REWARD = "reward"  # a full replica on each rank, never sharded


class ModelLoadCoordinator:
    """Frames the construction of models, so that what happens inside can be held to the role."""

    def __init__(self, accelerator: "Accelerator") -> None:
        self.accelerator = accelerator

    @contextmanager
    def load_scope(self, role: ModelRole) -> Iterator[None]:
        """Inside, a REWARD model is built as a full replica; `accelerator.prepare()` is an
        error.
        """

        def refuse(*_: Any, **__: Any) -> Never:
            raise ContractError(
                f"accelerator.prepare() was called while a {role.value} model was built; a "
                "reward model "
                "is a full replica on each rank: keep it out of prepare()"
            )

        own = vars(self.accelerator).get("prepare")
        self.accelerator.prepare = refuse
        try:
            yield
        finally:
            if own is None:
                del self.accelerator.prepare
            else:
                self.accelerator.prepare = own


@dataclass(frozen=True)
class LoadedStream:
    """A stream whose model is there; `args` has its batch size and typed options filled in."""

    args: RewardArguments
    model: BaseRewardModel


def extend_python_path(folders: Sequence[Path]) -> None:
    """Append folders to the end of `sys.path`, so that nothing installed is shadowed."""
    for folder in folders:
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


def resolve_stream(
    args: RewardArguments, *, allow_import: Sequence[str] = ()
) -> tuple[RewardArguments, type[BaseRewardModel]]:
    """Find a stream's class, and fill in what only the class knows: batch size and typed options.

    Args:
        allow_import: prefixes that dotted paths must start with; empty: any.

    Raises:
        ConfigError: no such class, options that it does not know, or workers that it cannot bear.
    """
    place = f"stream {args.name!r}"
    is_dotted = ":" in args.reward_model or "." in args.reward_model
    if is_dotted and allow_import and not args.reward_model.startswith(tuple(allow_import)):
        raise ConfigError(
            f"{place}: reward_model {quote(args.reward_model)} is outside --allow-import "
            f"{', '.join(allow_import)}; add --allow-import for its package"
        )
    try:
        reward_class = import_class(args.reward_model)
    except RewardctlError as error:
        raise ConfigError(f"{place}: {error}") from error
    except Exception as error:
        raise ConfigError(
            f"{place}: importing {quote(args.reward_model)} failed with "
            f"{type(error).__name__}: {error}"
        ) from error
    size = args.batch_size or reward_class.default_batch_size or DEFAULT_BATCH_SIZE
    typed = args.model_copy(
        update={"batch_size": size, "options": _typed_options(args, reward_class)}
    )
    return typed, reward_class


def _typed_options(args: RewardArguments, reward_class: type[BaseRewardModel]) -> Any:
    options = args.extra_kwargs
    if reward_class.Options is None:
        return options
    try:
        return reward_class.Options(**options)
    except ValidationError as error:
        problems = "; ".join(
            f"options.{'.'.join(map(str, e['loc']))}: {e['msg']}, got {quote(e['input'])}"
            for e in error.errors()
        )
        known = ", ".join(reward_class.Options.model_fields)
        raise ConfigError(
            f"stream {args.name!r}: {problems}; options of {args.reward_model} are {known}"
        ) from error


def stream_identity(args: RewardArguments, reward_class: type[BaseRewardModel]) -> str:
    """What decides whether two streams share one model: class, model_path, dtype, device and
    options.
    """
    return json.dumps(
        [
            f"{reward_class.__module__}:{reward_class.__qualname__}",
            args.model_path,
            args.dtype,
            args.device,
            args.extra_kwargs,
        ],
        sort_keys=True,
        default=repr,
    )


def load_reward_models(
    streams: Sequence[RewardArguments],
    accelerator: "Accelerator",
    *,
    coordinator: ModelLoadCoordinator | None = None,
    allow_import: Sequence[str] = (),
) -> list[LoadedStream]:
    """Build the models of `streams` (give `rewards` and `eval_rewards` together), one for each
    identity.

    Returns:
        One LoadedStream for each stream, in order.

    Raises:
        ConfigError: a class cannot be found or built, or does not fit its stream.
    """
    coordinator = coordinator or ModelLoadCoordinator(accelerator)
    resolved = [resolve_stream(args, allow_import=allow_import) for args in streams]
    models: dict[str, BaseRewardModel] = {}
    loaded = []
    for given, (args, reward_class) in zip(streams, resolved, strict=True):
        identity = stream_identity(args, reward_class)
        if identity not in models:
            with coordinator.load_scope(ModelRole.REWARD):
                models[identity] = _build(reward_class, args, accelerator)
        model = models[identity]
        if args.async_reward and args.num_workers > 1 and not model.thread_safe:
            raise ConfigError(
                f"stream {args.name!r}: num_workers is {args.num_workers}, but "
                f"{args.reward_model} does "
                "not say thread_safe = True; set num_workers: 1, or the attribute if its calls "
                "may overlap"
            )
        size = given.batch_size or model.default_batch_size or DEFAULT_BATCH_SIZE
        loaded.append(LoadedStream(args.model_copy(update={"batch_size": size}), model))
    return loaded


def _build(
    reward_class: type[BaseRewardModel], args: RewardArguments, accelerator: "Accelerator"
) -> BaseRewardModel:
    missing = [name for name in reward_class.requires if find_spec(name) is None]
    if missing:
        extra = reward_class.extra
        install = f"pip install 'rewardctl[{extra}]'" if extra else "install it"
        raise ConfigError(
            f"stream {args.name!r}: {args.reward_model} needs {', '.join(missing)}, which is not "
            f"installed; {install}"
        )
    try:
        return reward_class(args, accelerator)
    except RewardctlError as error:
        raise ConfigError(f"stream {args.name!r}: {error}") from error
    except Exception as error:
        raise ConfigError(
            f"stream {args.name!r}: {args.reward_model} could not be built: "
            f"{type(error).__name__}: {error}"
        ) from error


def load_reward_model(args: RewardArguments, accelerator: "Accelerator") -> BaseRewardModel:
    """Build the model of one stream."""
    return load_reward_models([args], accelerator)[0].model
