"""The audit of preference data: all that was found in rows, counted, and shown as text and JSON.

The checks are in audit_checks.py; what cannot be read or encoded comes from preferences.py and
encode.py.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewardctl.data.audit_checks import (
    LengthBias,
    contradictions,
    identical_sides,
    is_decided,
    length_bias,
    length_warning,
    margins,
    shared_prompts,
    ties,
    timesteps,
)
from rewardctl.data.encode import Problem, Severity
from rewardctl.data.encoded import EncodedRow
from rewardctl.data.preferences import BadPreference, PreferenceRow
from rewardctl.errors import printable

MAX_SHOWN = 10  # of a kind, in text
_WORDS: dict[Severity, str] = {
    "error": "error",
    "left_out": "left out",
    "warning": "warning",
    "note": "note",
}
_ORDER = tuple(_WORDS)


@dataclass(frozen=True)
class AuditedRows:
    """The rows of train or validation at every step: read, encoded, refused."""

    name: str  # train | validation
    source: str  # the files, for messages
    rows: Sequence[PreferenceRow]
    bad: Sequence[BadPreference] = ()
    encoded: Sequence[EncodedRow] | None = None  # None: no model's input is known
    problems: Sequence[Problem] = ()  # of encoding, and of the loss

    @property
    def usable(self) -> int:
        """Rows that can be learnt from."""
        return len(self.rows) if self.encoded is None else len(self.encoded)


@dataclass(frozen=True)
class AuditReport:
    """What was found, and how many rows there are."""

    problems: list[Problem]  # errors, left out, warnings, notes; each in the order of the rows
    counts: dict[str, dict[str, Any]] = field(default_factory=dict)  # by train and validation

    @property
    def errors(self) -> list[Problem]:
        """Why training must not start."""
        return self._of("error")

    @property
    def left_out(self) -> list[Problem]:
        """Rows that are not learnt from."""
        return self._of("left_out")

    @property
    def warnings(self) -> list[Problem]:
        """What is doubtful; errors under `--strict`."""
        return self._of("warning")

    def failed(self, *, strict: bool = False) -> bool:
        """Whether the data are refused.

        Args:
            strict: Warnings matter too.
        """
        return bool(self.errors or (strict and self.warnings))

    def text(self) -> str:
        """A line a problem, ten of a kind at most, and the counts last."""
        lines: list[str] = []
        for (severity, kind), problems in self._kinds().items():
            lines += map(str, problems[:MAX_SHOWN])
            rest = len(problems) - MAX_SHOWN
            if rest > 0:
                lines.append(f"and {rest:,} more of this kind ({_WORDS[severity]}: {kind})")
        lines += [_summary(name, counts) for name, counts in self.counts.items()]
        lines.append(", ".join(_count(each, len(self._of(each))) for each in _ORDER))
        return "\n".join(printable(line).replace("\n", "\\n") for line in lines)

    def to_json(self) -> dict[str, Any]:
        """`ok`, `counts`, and `problems` by kind with the places of all and ten messages."""
        return {
            "schema_version": 1,
            "ok": not self.errors,
            "counts": self.counts,
            "problems": [
                {
                    "severity": severity,
                    "kind": kind,
                    "count": len(problems),
                    "places": [problem.place for problem in problems],
                    "messages": [problem.message for problem in problems[:MAX_SHOWN]],
                }
                for (severity, kind), problems in self._kinds().items()
            ],
        }

    def _of(self, severity: Severity) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == severity]

    def _kinds(self) -> dict[tuple[Severity, str], list[Problem]]:
        kinds: dict[tuple[Severity, str], list[Problem]] = {}
        for problem in self.problems:
            kinds.setdefault((problem.severity, problem.kind), []).append(problem)
        return kinds


def audit(
    train: AuditedRows,
    validation: AuditedRows | None = None,
    *,
    margin_mode: str = "scale",
    timestep_aware: bool | None = None,
) -> AuditReport:
    """All that is wrong or doubtful in preference data.

    Args:
        margin_mode: How margins enter the loss: scale | subtract | ignore.
        timestep_aware: Whether the model takes timesteps; None: not known, not checked.
    """
    parts = [train] if validation is None else [train, validation]
    problems: list[Problem] = []
    counts: dict[str, dict[str, Any]] = {}
    for part in parts:
        bias = length_bias(part.rows, _positions(part))
        found = list(_problems_of(part, bias, margin_mode, timestep_aware))
        problems += found
        counts[part.name] = _counts(part, bias, found)
    if validation is not None:
        problems += shared_prompts(train.rows, validation.rows)
    problems.sort(key=lambda problem: _ORDER.index(problem.severity))  # stable
    return AuditReport(problems, counts)


def _problems_of(
    part: AuditedRows, bias: LengthBias, margin_mode: str, timestep_aware: bool | None
) -> Iterator[Problem]:
    for bad in part.bad:
        yield Problem("error", "unreadable", bad.place, bad.message)
    yield from part.problems
    left_out = list(identical_sides(part.rows)) if part.encoded is None else []
    yield from left_out
    yield from _nothing_left(part, part.usable - len(left_out))
    yield from contradictions(part.rows)
    yield from length_warning(bias, part.source)
    yield from ties(part.rows)
    yield from margins(part.rows, margin_mode)
    if timestep_aware is not None:
        yield from timesteps(part.rows, timestep_aware=timestep_aware)


def _nothing_left(part: AuditedRows, usable: int) -> Iterator[Problem]:
    """An error where there is nothing to learn, or to judge, from."""
    purpose = "train on" if part.name == "train" else "validate on"
    read = len(part.rows) + len(part.bad)
    if not usable:
        message = f"nothing left to {purpose}: of {read:,} rows none can be used"
        yield Problem("error", "nothing_left", part.source, message)
    elif not any(map(is_decided, part.rows)):
        message = f"nothing to {purpose}: each of {len(part.rows):,} rows is a tie"
        yield Problem("error", "nothing_left", part.source, message)


def _positions(part: AuditedRows) -> dict[str, list[int]]:
    return {row.place: [len(item) for item in row.items] for row in part.encoded or ()}


def _counts(part: AuditedRows, bias: LengthBias, problems: Iterable[Problem]) -> dict[str, Any]:
    kinds = Counter((problem.severity, problem.kind) for problem in problems)
    left_out = {kind: n for (severity, kind), n in kinds.items() if severity == "left_out"}
    counts: dict[str, Any] = {
        "source": part.source,
        "rows": len(part.rows) + len(part.bad),
        "usable": part.usable - (sum(left_out.values()) if part.encoded is None else 0),
        "kwise": sum(row.ranks is not None for row in part.rows),
        "left_out": left_out,
        "truncated": kinds["note", "truncated"],
        "longer_chosen": {
            "pairs": bias.pairs,
            "share": None if bias.share is None else round(bias.share, 4),
            "z": None if bias.z is None else round(bias.z, 2),
        },
    }
    lengths = [len(item) for row in part.encoded or () for item in row.items]
    if lengths:
        counts["positions"] = {
            "median": statistics.median(lengths),
            "max": max(lengths),
            "sum": sum(lengths),
        }
    return counts


def _summary(name: str, counts: dict[str, Any]) -> str:
    parts = [f"{counts['rows']:,} rows read", f"{counts['usable']:,} used"]
    parts += [f"{n:,} left out ({kind})" for kind, n in counts["left_out"].items()]
    if counts["truncated"]:
        parts.append(f"{counts['truncated']:,} truncated")
    if counts["longer_chosen"]["share"] is not None:
        parts.append(f"longer chosen in {counts['longer_chosen']['share']:.1%}")
    if "positions" in counts:
        positions = counts["positions"]
        parts.append(f"positions median {positions['median']:g}, max {positions['max']:,}")
    return f"{name}: {counts['source']}: {', '.join(parts)}"


def _count(severity: Severity, number: int) -> str:
    plural = "s" if number != 1 and severity != "left_out" else ""
    return f"{number:,} {_WORDS[severity]}{plural}"
