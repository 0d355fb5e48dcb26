"""`validate-config` from paths to findings, and the config of a run checked alike."""

import glob
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rewardctl.config.findings import Finding, in_order
from rewardctl.config.load import Examination, examine, examine_rewards, findings_error
from rewardctl.config.schema import Config
from rewardctl.errors import UsageError
from rewardctl.rewards.check import check_streams, with_option_hints
from rewardctl.runs.check_files import check_files

UNREADABLE = "RC401"


@dataclass(frozen=True)
class Validation:
    """The findings in some config files."""

    files: list[str]
    findings: list[Finding]  # in the order of the files and their lines

    def exit_code(self, *, strict: bool) -> int:
        """0 fine, 1 findings that matter, 2 a file that cannot be read.

        Args:
            strict: Warnings matter too.
        """
        if any(finding.code == UNREADABLE for finding in self.findings):
            return 2
        return int(any(strict or finding.is_error for finding in self.findings))


def validate(
    patterns: Sequence[str],
    overrides: Sequence[str] = (),
    *,
    with_files: bool = False,
    rows: str | None = None,
) -> Validation:
    """Check config files and import nothing that they name.

    Args:
        patterns: Paths, or globs for `**`, `*`, `?` and `[...]`.
        with_files: Ask too whether the files stand there that the configs name.
        rows: `[NAME=]PATH` of sample rows that the streams must fit.

    Raises:
        UsageError: standard input is to be read for several configs.
        DataError: `rows` cannot be read at all.
    """
    files: list[str] = []
    findings: list[Finding] = []
    for pattern in patterns:
        matches = expand(pattern)
        files += [match for match in matches if match not in files]
        if not matches:
            findings.append(Finding(UNREADABLE, "error", "no file matches this glob", pattern))
    if rows is not None and rows.rpartition("=")[2] == "-" and len(files) > 1:
        raise UsageError("--check-data -: standard input is read once; give one config")
    for file in files:
        findings += _examine_file(Path(file), overrides, with_files=with_files, rows=rows)
    return Validation(files, in_order(findings, files))


def expand(pattern: str) -> list[str]:
    """The files that a path or glob stands for; a path stands for itself, there or not."""
    if os.path.lexists(pattern) or not glob.has_magic(pattern):
        return [pattern]
    return sorted(path for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path))


def _examine_file(
    path: Path, overrides: Sequence[str], *, with_files: bool, rows: str | None
) -> list[Finding]:
    examination = examine(path, overrides)
    findings = _with_streams(examination, look_up_dotted=True)
    draft, report = examination.draft, examination.report
    if draft is not None and report is not None:
        if with_files:
            findings += check_files(draft, report, examination.folder)
        if rows is not None:
            from rewardctl.runs.check_data import check_data  # reads rows, which most checks do not

            findings += check_data(draft, report, examination.folder, rows)
    return findings


def _with_streams(examination: Examination, *, look_up_dotted: bool) -> list[Finding]:
    draft, report = examination.draft, examination.report
    if draft is None or report is None:
        return examination.findings
    found = check_streams(draft, report, folder=examination.folder, look_up_dotted=look_up_dotted)
    return [*with_option_hints(examination.findings, draft), *found]


def checked_config(
    path: Path, overrides: Sequence[str] = (), *, sections: Collection[str] | None = None
) -> tuple[Config, list[Finding]]:
    """The config of a run with its warnings, checked as by `validate-config`.

    Whether dotted classes are there is left to their import.

    Args:
        sections: What the command reads; other sections are neither checked nor kept. None: all.

    Raises:
        ConfigError: with every finding, if one of them is an error.
    """
    return _checked(examine(path, overrides, sections=sections, for_run=True), str(path))


def checked_rewards(
    names: Sequence[str], overrides: Sequence[str] = ()
) -> tuple[Config, list[Finding]]:
    """The config that `--reward NAME` stands for, checked like a file."""
    return _checked(examine_rewards(names, overrides), "--reward")


def _checked(examination: Examination, name: str) -> tuple[Config, list[Finding]]:
    findings = in_order(_with_streams(examination, look_up_dotted=False), [name])
    if examination.config is None or any(finding.is_error for finding in findings):
        raise findings_error(findings, name)
    return examination.config, findings
