"""From a YAML file to a checked Config: read, parse, override, check, resolve."""

import os
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewardctl.config.draft import check_schema
from rewardctl.config.findings import Finding, count, in_order
from rewardctl.config.meaning import check_meaning
from rewardctl.config.overrides import apply_overrides
from rewardctl.config.positions import Document, Mark
from rewardctl.config.report import Report
from rewardctl.config.resolve import resolve
from rewardctl.config.schema import SECTIONS, Config, ConfigFile
from rewardctl.config.secret import check_secrets
from rewardctl.config.training_meaning import check_training
from rewardctl.config.yaml_loader import MAX_FILE_BYTES, parse_bytes
from rewardctl.errors import ConfigError, quote


@dataclass(frozen=True)
class Examination:
    """All that is known of a config file after the checks that need the file alone."""

    folder: Path  # of the file; absolute
    findings: list[Finding]
    draft: ConfigFile | None  # paths as written; what the file cannot mean is left out
    report: Report | None  # for further checks of the draft
    config: Config | None  # None with any error


def check_config(path: Path, overrides: Sequence[str] = ()) -> tuple[Config | None, list[Finding]]:
    """Check all sections of a config file; no Config if any finding is an error.

    Variables of `${env:NAME}` that are not set are warnings here.
    """
    examination = examine(path, overrides)
    return examination.config, examination.findings


def load_config(
    path: Path, overrides: Sequence[str] = (), *, sections: Collection[str] | None = None
) -> Config:
    """The config of a file, ready for a run.

    Args:
        sections: What the command reads; other sections are neither checked nor kept. None: all.

    Raises:
        ConfigError: with every finding, if one of them is an error.
    """
    return _usable(examine(path, overrides, sections=sections, for_run=True), str(path))


def config_from_rewards(names: Sequence[str], overrides: Sequence[str] = ()) -> Config:
    """The config that `--reward NAME` stands for: one stream a name, called like its reward model.

    Raises:
        ConfigError: a name stands twice, or an override does not fit.
    """
    return _usable(examine_rewards(names, overrides), "--reward")


def _usable(examination: Examination, name: str) -> Config:
    if examination.config is None:
        raise findings_error(examination.findings, name)
    return examination.config


def findings_error(findings: Sequence[Finding], name: str) -> ConfigError:
    """The error that shows all findings of a file."""
    lines = list(map(str, findings))
    if len(lines) > 1:
        lines.insert(0, f"{name}: {count(findings, [name])}")
    return ConfigError("\n".join(lines))


def examine(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    sections: Collection[str] | None = None,
    for_run: bool = False,
) -> Examination:
    """Read and check a config file.

    Args:
        sections: What is looked at; None: all.
        for_run: Variables of `${env:NAME}` must be set.
    """
    folder = Path(os.path.abspath(path)).parent
    content = read_content(path)
    if isinstance(content, Finding):
        return Examination(folder, [content], None, None, None)
    document, findings = parse_bytes(content, str(path))
    if document is None:
        return Examination(folder, findings, None, None, None)
    return _examine_document(document, overrides, folder, sections, for_run=for_run, found=findings)


def examine_rewards(names: Sequence[str], overrides: Sequence[str] = ()) -> Examination:
    """Check the config that `--reward NAME` stands for; paths start from the working directory."""
    document = Document("--reward", {"rewards": []}, values={(): Mark("--reward")})
    for index, name in enumerate(names):
        # A stream's name holds no colon, a dotted path may.
        stream = {"name": name.replace(":", ".")[-64:], "reward_model": name}
        document.tree["rewards"].append(stream)
        document.values["rewards", index] = Mark(f"--reward {name}")
    return _examine_document(document, overrides, Path.cwd(), None, for_run=True)


def read_content(path: Path) -> bytes | Finding:
    """The bytes of a regular file, one more than the limit at most; or why it cannot be read."""
    try:
        if path.is_dir():
            found = "is a folder, expected a YAML file"
        elif not path.exists():
            found = "there is no such file"
        elif not stat.S_ISREG(path.stat().st_mode):
            found = "is no regular file, expected a YAML file"
        else:
            with path.open("rb") as file:
                return file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        found = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    return Finding("RC401", "error", found, str(path))


def _examine_document(
    document: Document,
    overrides: Sequence[str],
    folder: Path,
    sections: Collection[str] | None,
    *,
    for_run: bool,
    found: Sequence[Finding] = (),
) -> Examination:
    _wrap_streams(document)
    findings = [*found, *apply_overrides(document, overrides)]
    _wrap_streams(document)
    if isinstance(document.tree, dict) and document.tree:
        _drop_other_sections(document.tree, sections)
        findings = [f for f in findings if _concerns(f, sections)]
    else:
        return Examination(folder, [*findings, _no_mapping(document)], None, None, None)
    draft = check_schema(document)
    refused = {(finding.line, finding.column) for finding in findings if finding.is_error}
    findings += [f for f in draft.findings if f.line is None or (f.line, f.column) not in refused]
    report = Report(document, draft.doubtful)
    if draft.config is not None:
        check_meaning(draft.config, report)
        check_training(draft.config, report)
    findings += report.findings
    findings += check_secrets(document, os.environ, unset="error" if for_run else "warning")
    findings = in_order(findings, [document.path])
    config = None
    if draft.config is not None and not any(finding.is_error for finding in findings):
        config = resolve(draft.config, folder, os.environ)
    return Examination(folder, findings, draft.config, report, config)


def _wrap_streams(document: Document) -> None:
    """One mapping stands for a list of one, so that a stream has one place whichever is written."""
    for section in ("rewards", "eval_rewards"):
        if isinstance(document.tree, dict) and isinstance(document.tree.get(section), dict):
            document.wrap(section)


def _drop_other_sections(tree: dict[str, Any], sections: Collection[str] | None) -> None:
    if sections is not None:
        for name in SECTIONS:
            if name not in sections:
                tree.pop(name, None)


def _concerns(finding: Finding, sections: Collection[str] | None) -> bool:
    """Whether the loader's finding matters to a command with these sections; syntax always does."""
    section = finding.place.partition(".")[0].partition("[")[0]
    is_other = sections is not None and section in SECTIONS and section not in sections
    return finding.code.startswith("RC1") or not is_other


def _no_mapping(document: Document) -> Finding:
    wanted = "a mapping with rewards:, train: or eval:"
    if document.tree is None or document.tree == {}:
        message = f"the config is empty, expected {wanted}"
    else:
        found = "a list" if isinstance(document.tree, list) else quote(document.tree)
        message = f"expected {wanted}, got {found}"
    return document.finding("RC201", message, ())
