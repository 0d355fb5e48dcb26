"""What the keys of a config mean together: datasets, streams, weights, execution.

Shapes are in schema.py, the sections for training in training_meaning.py, and what needs the reward
classes in rewards/check.py.
"""

from collections.abc import Iterable, Sequence

from rewardctl.config.hints import did_you_mean, shortened
from rewardctl.config.positions import Place, render
from rewardctl.config.report import Report
from rewardctl.config.schema import ConfigFile, RewardArguments
from rewardctl.errors import quote


def check_meaning(config: ConfigFile, report: Report) -> None:
    """Report what the sections for scoring say that cannot be meant."""
    declared = [dataset.name for dataset in config.data.datasets]
    _check_unique(declared, [("data", "datasets", i, "name") for i in range(len(declared))], report)
    for section in ("rewards", "eval_rewards"):
        streams = getattr(config, section) or []
        names = [stream.name for stream in streams]
        _check_unique(names, [(section, i, "name") for i in range(len(names))], report)
        for index, stream in enumerate(streams):
            place = (section, index)
            _check_applicable(stream, place, declared, report)
            _check_weight(stream, place, declared, report)
            _check_workers(stream, place, report)
    _check_execution(config, report)
    _check_coverage(config, declared, report)
    _check_aggregate(config, declared, report)


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
    stream: RewardArguments, place: Place, declared: Sequence[str], report: Report
) -> None:
    key = (*place, "applicable_datasets")
    names = stream.applicable_datasets
    if names is None:
        return
    if not names:
        message = f"stream {stream.name!r} never fires: its applicable_datasets are empty"
        report.add("RC304", message, key, severity="warning")
    for index, name in enumerate(names):
        if name in names[:index]:
            message = f"stream {stream.name!r}: dataset {quote(name)} stands twice"
            report.add("RC301", message, (*key, index), severity="warning")
        elif declared and name not in declared:
            message = f"stream {stream.name!r} applies to {quote(name)}, which is not declared"
            report.add(
                "RC302",
                message,
                (*key, index),
                reads=[("data",)],
                hint=_dataset_hint(name, declared, "declared under data.datasets"),
            )


def _check_weight(
    stream: RewardArguments, place: Place, declared: Sequence[str], report: Report
) -> None:
    """A weight mapping names just the datasets that its stream applies to: no weight is guessed."""
    if not isinstance(stream.weight, dict):
        return
    key = (*place, "weight")
    applicable = stream.applicable_datasets
    reads = [(*place, "applicable_datasets"), ("data",)]
    if applicable is None and not declared:
        report.add(
            "RC303",
            f"stream {stream.name!r}: a weight mapping needs applicable_datasets "
            "where no datasets are declared",
            key,
            reads=reads,
            hint=f"add applicable_datasets: [{shortened(stream.weight)}], or declare data.datasets",
        )
        return
    wanted = list(declared if applicable is None else applicable)
    source = "declared" if applicable is None else "in applicable_datasets"
    for name in stream.weight:
        if name not in wanted:
            message = f"stream {stream.name!r}: weight names {quote(name)}, which is not {source}"
            hint = _dataset_hint(name, wanted, source)
            code = "RC302" if name not in declared else "RC303"
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
    for index, name in enumerate(declared):
        if not any(stream.applies_to(name) for stream in config.rewards):
            report.add(
                "RC305",
                f"no stream of rewards: applies to dataset {quote(name)}",
                ("data", "datasets", index, "name"),
                reads=[("rewards",), ("execution",)],
                hint="name it in a stream's applicable_datasets, or set execution.feedback: none",
            )


def _check_aggregate(config: ConfigFile, declared: Sequence[str], report: Report) -> None:
    score = config.score
    is_mean = score.aggregate == "weighted_mean"
    if is_mean or score.on_failure == "renormalize":
        key = "aggregate" if is_mean else "on_failure"
        for index in range(len(config.rewards)):
            _check_negative(config, index, key, report)
    if is_mean:
        zero = [name for name in _dataset_names(config, declared) if _all_zero(config, name)]
        if zero:
            listed = shortened(["any other dataset" if n is None else quote(n) for n in zero])
            report.add(
                "RC307",
                f"aggregate: weighted_mean where all weights are 0, for {listed}",
                ("score", "aggregate"),
                reads=[("rewards",), ("data",)],
                hint="give a stream a weight over 0, or use weighted_sum",
            )


def _check_negative(config: ConfigFile, index: int, key: str, report: Report) -> None:
    stream, place = config.rewards[index], ("rewards", index, "weight")
    weights = stream.weight if isinstance(stream.weight, dict) else {None: stream.weight}
    for name, weight in weights.items():
        if weight < 0:
            report.add(
                "RC307",
                f"stream {stream.name!r}: weight {weight:g} is negative under "
                f"{key}: {getattr(config.score, key)}",
                place if name is None else (*place, name),
                reads=[("score", key)],
                hint="use weighted_sum with on_failure: no_aggregate, or a weight of 0 or more",
            )


def _dataset_names(config: ConfigFile, declared: Sequence[str]) -> Iterable[str | None]:
    """Every dataset that rows may come from; None stands for all that are not named."""
    if declared:
        return declared
    named = (name for stream in config.rewards for name in stream.applicable_datasets or ())
    return [*dict.fromkeys(named), None]


def _all_zero(config: ConfigFile, dataset: str | None) -> bool:
    weights = [
        stream.weight.get(dataset or "", 1.0) if isinstance(stream.weight, dict) else stream.weight
        for stream in config.rewards
        if stream.applies_to(dataset)
    ]
    return bool(weights) and not any(weights)
