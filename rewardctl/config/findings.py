"""What a check found: the record, the table of codes, and findings as text, JSON or annotations."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from rewardctl.errors import printable

Severity = Literal["error", "warning"]

# RC1xx syntax, RC2xx schema, RC3xx meaning, RC4xx files, RC5xx security.
CODES: dict[str, str] = {
    "RC101": "not YAML: the file cannot be parsed",
    "RC102": "not text: the file is not UTF-8 or holds control characters",
    "RC103": "a key stands twice in one mapping",
    "RC104": "a tag that is not one of YAML's core",
    "RC105": "an alias that is undefined or contains itself",
    "RC106": "too big: the file, its nesting, or its size once aliases are expanded",
    "RC107": "several documents in one file",
    "RC108": "a key that is not text",
    "RC109": "a merge key (<<) that names no mapping",
    "RC110": "a number that YAML versions read differently, or that is too long",
    "RC201": "the file is empty or its top level is not a mapping",
    "RC202": "a required key is missing",
    "RC203": "an unknown key",
    "RC204": "a value of the wrong type",
    "RC205": "a value out of range or not among the choices",
    "RC206": "a number that is not finite",
    "RC207": "--set names no place in the config, or its value cannot be read",
    "RC301": "a name stands twice",
    "RC302": "a dataset that is not declared",
    "RC303": "a weight mapping and the datasets of its stream differ",
    "RC304": "a stream that never fires",
    "RC305": "a dataset that no stream applies to",
    "RC306": "`rewards` together with `feedback: none`",
    "RC307": "weights that the aggregate cannot use",
    "RC308": "a reward model that nothing goes by",
    "RC309": "a class that its module does not seem to hold",
    "RC310": "an option that the reward model does not know, or of a wrong value",
    "RC311": "an optional package that is not installed",
    "RC312": "workers that have no effect, or that the reward model cannot bear",
    "RC313": "a key without effect on this reward model",
    "RC314": "a key of another input kind, or one that this input kind needs",
    "RC315": "a network whose sizes do not fit together",
    "RC316": "training keys that contradict each other",
    "RC317": "a key that needs another one",
    "RC321": "a row that cannot be read as a sample",
    "RC322": "a row without a field that a stream requires",
    "RC323": "a dataset without rows, or without a stream",
    "RC401": "a config that cannot be read",
    "RC402": "a data file that is not there",
    "RC403": "a model, tokenizer or checkpoint that is not there",
    "RC404": "a folder of python_path that is not there",
    "RC501": "a tag that would build a Python object",
    "RC502": "an environment variable that is not set",
    "RC503": "a secret in plain text",
    "RC504": "${env:NAME} outside of `options`",
}


@dataclass(frozen=True)
class Finding:
    """One problem and where it stands; without a line it concerns a whole file or `--set`."""

    code: str  # a key of CODES
    severity: Severity
    message: str
    path: str  # as the user wrote it, or "--set ..."
    line: int | None = None  # from 1
    column: int | None = None  # from 1
    place: str = ""  # as rewards[1].weight
    hint: str | None = None  # next step; completes the message in brackets

    @property
    def is_error(self) -> bool:
        """Whether it makes the config unusable."""
        return self.severity == "error"

    def __str__(self) -> str:
        where = ":".join(str(p) for p in (self.path, self.line, self.column) if p is not None)
        hint = f" ({self.hint})" if self.hint else ""
        line = f"{where}: {self.code} {self.severity}: {self.message}{hint}"
        return printable(line).replace("\n", "\\n")


def in_order(findings: Sequence[Finding], files: Sequence[str]) -> list[Finding]:
    """By file in the given order, then by position; what has no position comes first."""
    rank = {path: number for number, path in enumerate(files)}
    return sorted(
        dict.fromkeys(findings),
        key=lambda f: (rank.get(f.path, -1), f.line or 0, f.column or 0, f.code),
    )


def count(findings: Sequence[Finding], files: Sequence[str]) -> str:
    """As "2 errors, 1 warning in 1 file"."""
    errors = sum(f.is_error for f in findings)
    parts = ((errors, "error"), (len(findings) - errors, "warning"))
    listed = ", ".join(_plural(number, noun) for number, noun in parts)
    return f"{listed} in {_plural(len(files), 'file')}"


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_text(findings: Sequence[Finding], files: Sequence[str]) -> str:
    """One line a finding, the count last."""
    return "\n".join([*map(str, findings), count(findings, files)])


def format_json(findings: Sequence[Finding], files: Sequence[str]) -> str:
    """One JSON object: `schema_version`, `files`, `findings`, `summary`."""
    errors = sum(f.is_error for f in findings)
    report = {
        "schema_version": 1,
        "files": list(files),
        "findings": [asdict(f) for f in findings],
        "summary": {
            "files": len(files),
            "errors": errors,
            "warnings": len(findings) - errors,
        },
    }
    return json.dumps(report, indent=2)


def format_github(findings: Sequence[Finding], files: Sequence[str]) -> str:
    """One workflow command a finding, which GitHub shows beside the line; the count last."""
    return "\n".join([*map(_github_command, findings), count(findings, files)])


def _github_command(finding: Finding) -> str:
    properties = {"title": f"{finding.code} {CODES[finding.code]}"}
    message = finding.message + (f" ({finding.hint})" if finding.hint else "")
    if finding.path.startswith("--"):  # an option has no file to be shown beside
        message = f"{finding.path}: {message}"
    else:
        position = {"file": finding.path, "line": finding.line, "col": finding.column}
        properties = {k: str(v) for k, v in position.items() if v is not None} | properties
    written = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
    return f"::{finding.severity} {written}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")
