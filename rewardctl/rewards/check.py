"""Checks of reward streams against the registry and the classes, before anything heavy is imported.

Registered classes are light and are looked at; a dotted class is only read, never run.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rewardctl.config.explain import expectation, shown
from rewardctl.config.findings import Finding
from rewardctl.config.hints import did_you_mean, shortened
from rewardctl.config.positions import Place, render
from rewardctl.config.report import Report
from rewardctl.config.resolve import absolute
from rewardctl.config.schema import ConfigFile, RewardArguments
from rewardctl.errors import ConfigError, quote
from rewardctl.rewards.abc import BaseRewardModel, GroupwiseRewardModel, input_fields
from rewardctl.rewards.class_source import ClassFacts, SourceFinder
from rewardctl.rewards.registry import (
    BUILTIN,
    import_class,
    registered_names,
    split_dotted,
    unknown_name,
)

_STREAM_KEY = re.compile(r"(rewards|eval_rewards)(?:\[(\d+)\])?\.([^.\[\]]+)")


@dataclass(frozen=True)
class StreamFacts:
    """What is known of a stream's reward model without running code of the config."""

    is_groupwise: bool | None  # None: not known
    thread_safe: bool | None
    required_fields: tuple[str, ...] | None


def check_streams(
    config: ConfigFile, report: Report, *, folder: Path, look_up_dotted: bool = True
) -> list[Finding]:
    """Findings about the streams' reward models: unknown ones, their options, packages and workers.

    Args:
        folder: What a relative `python_path` starts from.
        look_up_dotted: Look for the files of dotted classes; a run imports them instead.
    """
    before = len(report.findings)
    finder = SourceFinder([absolute(path, folder) for path in config.python_path])
    for section in ("rewards", "eval_rewards"):
        for index, stream in enumerate(getattr(config, section) or []):
            place: Place = (section, index)
            if report.is_doubtful((*place, "reward_model")):
                continue
            if stream.reward_model.lower() in registered_names():
                _check_registered(stream, place, report, finder)
            elif split_dotted(stream.reward_model) is None:
                message = f"stream {stream.name!r}: {unknown_name(stream.reward_model)}"
                report.add("RC308", message, (*place, "reward_model"))
                continue
            elif look_up_dotted:
                _check_dotted(stream, place, report, finder)
            _check_calls(stream, place, report, stream_facts(stream, finder))
    return report.findings[before:]


def stream_facts(stream: RewardArguments, finder: SourceFinder) -> StreamFacts:
    """What is known of the reward model of a stream; of a dotted class, what its source shows."""
    name = stream.reward_model.lower()
    dotted = split_dotted(BUILTIN.get(name, stream.reward_model))
    path = finder.find(dotted[0]) if dotted else None
    source = finder.read(path, dotted[1]) if dotted and path else ClassFacts()
    if name not in registered_names():
        return StreamFacts(source.is_groupwise, source.thread_safe, source.required_fields)
    reward_class = import_class(name)
    # The constructor of some classes sets other fields where the options ask for it.
    depends = source.sets_fields and stream.extra_kwargs
    return StreamFacts(
        is_groupwise=issubclass(reward_class, GroupwiseRewardModel),
        thread_safe=reward_class.thread_safe,
        required_fields=None if depends else _required_fields(reward_class),
    )


def _required_fields(reward_class: type[BaseRewardModel]) -> tuple[str, ...] | None:
    try:
        return input_fields(reward_class).required
    except ConfigError:
        return None  # the model's config.json names its fields


def _check_registered(
    stream: RewardArguments, place: Place, report: Report, finder: SourceFinder
) -> None:
    reward_class = import_class(stream.reward_model)
    for module in reward_class.requires:
        if finder.find(module) is None:
            report.add(
                "RC311",
                f"stream {stream.name!r}: reward model {stream.reward_model} needs the package "
                f"{module}, which is not installed",
                (*place, "reward_model"),
                hint=f"pip install 'rewardctl[{reward_class.extra}]'",
            )
    _check_options(stream, place, report, reward_class.Options)


def _check_options(
    stream: RewardArguments, place: Place, report: Report, options_class: type[BaseModel] | None
) -> None:
    options = (*place, "options")
    if options_class is None:
        for name in stream.options:
            message = f"stream {stream.name!r}: {stream.reward_model} takes no options"
            report.add("RC310", message, (*options, name), hint=f"drop {name}", at_key=True)
        return
    try:
        options_class.model_validate(stream.options)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            is_about_keys = each["type"] in ("extra_forbidden", "missing")
            # What a variable holds is known at the run.
            if is_about_keys or "${env:" not in str(each["input"]):
                _add_option(stream, options, each, report, options_class)


def _add_option(
    stream: RewardArguments,
    options: Place,
    error: ErrorDetails,
    report: Report,
    options_class: type[BaseModel],
) -> None:
    loc, known = error["loc"], list(options_class.model_fields)
    name = str(loc[0]) if loc else ""
    start = f"stream {stream.name!r}: "
    if error["type"] == "extra_forbidden":
        near = did_you_mean(name, known)
        message = f"{start}{stream.reward_model} has no option {quote(name)}"
        listed = f"its options are {shortened(known)}" if known else f"drop {name}"
        hint = f"did you mean {near!r}?" if near else listed
    elif error["type"] == "missing":
        message = f"{start}{stream.reward_model} needs the option {name!r}"
        hint = f"add {name}: under options:"
    else:
        _, rule, type_hint = expectation(error)
        got = shown(error["input"])
        message = f"{start}{render(('options', *loc))}: {rule}, got {got}"
        hint = type_hint or f"options of {stream.reward_model} are {shortened(known)}"
    is_key = error["type"] == "extra_forbidden"
    report.add("RC310", message, (*options, *loc), hint=hint, at_key=is_key)


def _check_dotted(
    stream: RewardArguments, place: Place, report: Report, finder: SourceFinder
) -> None:
    module, class_name = split_dotted(stream.reward_model) or ("", "")
    key = (*place, "reward_model")
    start = f"stream {stream.name!r}: reward_model {quote(stream.reward_model)}"
    path = finder.find(module)
    if path is None:
        searched = ", ".join(quote(str(folder)) for folder in finder.folders) or "none given"
        message = f"{start}: no module {quote(module)} in python_path or the installed packages"
        hint = f"python_path: {searched}; registered are {shortened(registered_names())}"
        report.add("RC308", message, key, reads=[("python_path",)], hint=hint)
        return
    facts = finder.read(path, class_name)
    if facts.syntax_error is not None:
        report.add("RC308", f"{start}: {path.name} is not Python: {facts.syntax_error}", key)
    elif facts.is_bound is False:
        message = f"{start}: {path} does not seem to define {quote(class_name)}"
        report.add("RC309", message, key, severity="warning", hint="check the name of the class")


def _check_calls(stream: RewardArguments, place: Place, report: Report, facts: StreamFacts) -> None:
    if stream.async_reward and stream.num_workers > 1 and facts.thread_safe is False:
        report.add(
            "RC312",
            f"stream {stream.name!r}: num_workers: {stream.num_workers}, but {stream.reward_model} "
            "is not declared thread_safe",
            (*place, "num_workers"),
            hint="set num_workers: 1, or thread_safe = True on the class if its calls may overlap",
        )
    if facts.is_groupwise and stream.batch_size is not None:
        report.add(
            "RC313",
            f"stream {stream.name!r}: batch_size has no effect, {stream.reward_model} scores whole "
            "groups",
            (*place, "batch_size"),
            severity="warning",
            hint="drop batch_size",
        )


def with_option_hints(findings: Sequence[Finding], config: ConfigFile) -> list[Finding]:
    """The findings, the hint sharper where a stream's unknown key is an option."""
    return [_with_option_hint(finding, config) for finding in findings]


def _with_option_hint(finding: Finding, config: ConfigFile) -> Finding:
    match = _STREAM_KEY.fullmatch(finding.place) if finding.code == "RC203" else None
    if match is None:
        return finding
    streams: Sequence[Any] = getattr(config, match[1]) or []
    index, key = int(match[2] or 0), match[3]
    if index >= len(streams) or streams[index].reward_model.lower() not in registered_names():
        return finding
    options_class = import_class(streams[index].reward_model).Options
    if options_class is None or key not in options_class.model_fields:
        return finding
    return replace(finding, hint=f"{key!r} goes under options:")
