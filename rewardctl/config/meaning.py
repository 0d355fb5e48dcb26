"""What the keys of a config mean together: datasets, streams, weights, execution.

Shapes are in schema.py, the sections for training in training_meaning.py, and what needs the reward
classes in rewards/check.py.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rewardctl.config.hints import did_you_mean, shortened
from rewardctl.config.positions import Place, render
from rewardctl.config.report import Report
from rewardctl.config.schema import ConfigFile, RewardArguments
from rewardctl.errors import quote


@dataclass(frozen=True)
class _Datasets:
    """The declared datasets."""

    names: list[str]
    are_certain: bool  # False: the schema check refused some; nothing is said about the names


def check_meaning(config: ConfigFile, report: Report) -> None:
    """Report what the sections for scoring say that cannot be meant."""
    names = [dataset.name for dataset in config.data.datasets]
    places: list[Place] = [("data", "datasets", i, "name") for i in range(len(names))]
    _check_unique(names, places, report)
    datasets = _Datasets(names, not any(map(report.is_doubtful, places or [("data",)])))
    for section in ("rewards", "eval_rewards"):
        streams = _streams(config, section)
        names = [stream.name for stream in streams]
        _check_unique(names, [(section, i, "name") for i in range(len(names))], report)
        for index, stream in enumerate(streams):
            place = (section, index)
            _check_applicable(stream, place, datasets, report)
            _check_weight(stream, place, datasets, report)
            _check_workers(stream, place, report)
    _check_execution(config, report)
    if datasets.are_certain and not _doubts(config, "rewards", "applicable_datasets", report):
        _check_coverage(config, datasets.names, report)
    for section in ("rewards", "eval_rewards"):
        if config.score.aggregate == "weighted_mean" or config.score.on_failure == "renormalize":
            _check_signs(config, section, report)
        if config.score.aggregate == "weighted_mean" and datasets.are_certain:
            _check_zeros(config, section, datasets.names, report)


def _streams(config: ConfigFile, section: str) -> Sequence[RewardArguments]:
    streams: Sequence[RewardArguments] | None = getattr(config, section)
    return streams or ()


def _doubts(config: ConfigFile, section: str, key: str, report: Report) -> bool:
    """Whether the schema check refused this key in any stream of a section."""
    streams = _streams(config, section)
    return any(report.is_doubtful((section, i, key)) for i in range(len(streams)))


def _check_unique(names: Sequence[str], places: Sequence[Place], report: Report) -> None:
    first: dict[str, Place] = {}
    for name, place in zip(names, places, strict=True):
        if name in first:
            report.add(
                "RC301",
                f"{render(place)} is {quote(name)}, and so is {render(first[name])}",
                place,
                reads=[first[name]],
                hint="give each its own name",
            )
        first.setdefault(name, place)


def _check_applicable(
    stream: RewardArguments, place: Place, datasets: _Datasets, report: Report
) -> None:
    key = (*place, "applicable_datasets")
    names = stream.applicable_datasets
    if names is None:
        return
    if not names:
        message = f"stream {stream.name!r} never fires: its applicable_datasets are empty"
        report.add("RC304", message, key, severity="warning")
    known = datasets.names if datasets.are_certain else []
    for index, name in enumerate(names):
        if name in names[:index]:
            message = f"stream {stream.name!r}: dataset {quote(name)} stands twice"
            report.add("RC301", message, (*key, index), severity="warning")
        elif known and name not in known:
            message = f"stream {stream.name!r} applies to {quote(name)}, which is not declared"
            hint = _dataset_hint(name, known, "declared under data.datasets")
            report.add("RC302", message, (*key, index), hint=hint)


def _check_weight(
    stream: RewardArguments, place: Place, datasets: _Datasets, report: Report
) -> None:
    """A weight mapping names just the datasets that its stream applies to: no weight is guessed."""
    key = (*place, "weight")
    applicable = stream.applicable_datasets
    reads = [(*place, "applicable_datasets")]
    if not isinstance(stream.weight, dict) or not datasets.are_certain:
        return
    if applicable is None and not datasets.names:
        report.add(
            "RC303",
            f"stream {stream.name!r}: a weight mapping needs applicable_datasets "
            "where no datasets are declared",
            key,
            reads=reads,
            hint=f"add applicable_datasets: [{shortened(stream.weight)}], or declare data.datasets",
        )
        return
    wanted = datasets.names if applicable is None else applicable
    source = "declared" if applicable is None else "in applicable_datasets"
    for name in stream.weight:
        if name not in wanted:
            message = f"stream {stream.name!r}: weight names {quote(name)}, which is not {source}"
            hint = _dataset_hint(name, wanted, source)
            code = "RC303" if name in datasets.names else "RC302"
            report.add(code, message, (*key, name), reads=reads, hint=hint, at_key=True)
    missing = [name for name in dict.fromkeys(wanted) if name not in stream.weight]
    if missing:
        report.add(
            "RC303",
            f"stream {stream.name!r}: weight has no number for dataset {shortened(missing)}",
            key,
            reads=reads,
            hint="name every applicable dataset; a weight is never guessed",
        )


def _dataset_hint(name: str, known: Sequence[str], where: str) -> str:
    near = did_you_mean(name, known)
    return (f"did you mean {near!r}? " if near else "") + f"{where}: {shortened(known)}"


def _check_workers(stream: RewardArguments, place: Place, report: Report) -> None:
    if stream.num_workers > 1 and not stream.async_reward:
        report.add(
            "RC312",
            f"stream {stream.name!r}: num_workers: {stream.num_workers} has no effect "
            "without async_reward",
            (*place, "num_workers"),
            reads=[(*place, "async_reward")],
            severity="warning",
            hint="add async_reward: true, or drop num_workers",
        )


def _check_execution(config: ConfigFile, report: Report) -> None:
    if config.execution.feedback == "none" and config.rewards:
        report.add(
            "RC306",
            "rewards: with execution.feedback: none, which scores nothing",
            ("rewards",),
            reads=[("execution",)],
            hint="move the streams to eval_rewards:, or set feedback: runtime_reward",
            at_key=True,
        )


def _check_coverage(config: ConfigFile, declared: Sequence[str], report: Report) -> None:
    """Under runtime_reward a declared dataset has a stream, or its rows would have no feedback."""
    if config.execution.feedback == "none" or "rewards" not in config.model_fields_set:
        return
    covered = {name for stream in config.rewards for name in stream.applicable_datasets or ()}
    if any(stream.applicable_datasets is None for stream in config.rewards):
        return
    for index, name in enumerate(declared):
        if name not in covered:
            report.add(
                "RC305",
                f"no stream of rewards: applies to dataset {quote(name)}",
                ("data", "datasets", index, "name"),
                reads=[("execution",)],
                hint="name it in a stream's applicable_datasets, or set execution.feedback: none",
            )


def _check_signs(config: ConfigFile, section: str, report: Report) -> None:
    """Weights below 0 are for plain sums."""
    key = "aggregate" if config.score.aggregate == "weighted_mean" else "on_failure"
    rule = f"{key}: {getattr(config.score, key)}"
    for index, stream in enumerate(_streams(config, section)):
        place: Place = (section, index, "weight")
        weights = stream.weight if isinstance(stream.weight, dict) else {None: stream.weight}
        for name, weight in weights.items():
            if weight < 0:
                report.add(
                    "RC307",
                    f"stream {stream.name!r}: weight {weight:g} is negative under {rule}",
                    place if name is None else (*place, name),
                    reads=[("score", key)],
                    hint="use weighted_sum with on_failure: no_aggregate, or a weight >= 0",
                )


def _check_zeros(config: ConfigFile, section: str, declared: Sequence[str], report: Report) -> None:
    """A mean divides by the sum of the weights."""
    if any(_doubts(config, section, key, report) for key in ("weight", "applicable_datasets")):
        return
    streams = _streams(config, section)
    zero = [name for name in _dataset_names(streams, declared) if _all_zero(streams, name)]
    if zero:
        listed = shortened([name or "(any other)" for name in zero])
        report.add(
            "RC307",
            f"aggregate: weighted_mean where all weights of {section} are 0, for {listed}",
            ("score", "aggregate"),
            hint="give a stream a weight over 0, or use weighted_sum",
        )


def _dataset_names(
    streams: Sequence[RewardArguments], declared: Sequence[str]
) -> Iterable[str | None]:
    """Every dataset that rows may come from; None stands for all that are not named."""
    if declared:
        return declared
    named = (name for stream in streams for name in stream.applicable_datasets or ())
    return [*dict.fromkeys(named), None]


def _all_zero(streams: Sequence[RewardArguments], dataset: str | None) -> bool:
    weights = [
        stream.weight.get(dataset or "", 1.0) if isinstance(stream.weight, dict) else stream.weight
        for stream in streams
        if stream.applies_to(dataset)
    ]
    return bool(weights) and not any(weights)
