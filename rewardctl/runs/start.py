"""Where a scoring run begins: anew, where a stopped run ended, or at the failed cells of an
output.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewardctl.errors import UsageError
from rewardctl.runs.fingerprint import differences
from rewardctl.runs.output import OutputPaths, Recovered, journal_start, read_meta, recover

SHOWN = 12


@dataclass(frozen=True)
class Start:
    """What is there to go on from."""

    fingerprint: dict[str, Any]
    recovered: Recovered | None = None
    retry_of: Path | None = None  # rows whose failed cells are scored again
    complete: dict[str, Any] | None = None  # the meta file, where nothing is left to do
    stream_sha256: str | None = None  # of a stream that a retry reads again
    spools: dict[str, Any] = field(default_factory=dict)  # facts of copied inputs, by index

    @classmethod
    def anew(cls, fingerprint: dict[str, Any] | None = None) -> "Start":
        """From the first row."""
        return cls(fingerprint or {})


def find_start(
    paths: OutputPaths,
    fingerprint: dict[str, Any],
    *,
    resume: bool,
    overwrite: bool,
    retry_errors: bool,
) -> Start:
    """Decide where to begin; the caller holds the output's lock.

    Raises:
        UsageError: there is something already and neither `resume` nor `overwrite` is given, or
            what is there was made under another fingerprint.
    """
    if paths.out.exists() and not paths.out.is_file():
        raise UsageError(f"{paths.out}: expected a file to write, found something else")
    if overwrite:
        for path in paths.working_files():
            path.unlink()
        return Start.anew(fingerprint)
    if retry_errors:
        return _retry(paths, fingerprint)
    if resume:
        return _resume(paths, fingerprint)
    for path in (paths.out, paths.partial, paths.before_retry):
        if path.exists():
            raise UsageError(
                f"{path} exists; go on with --resume, or start anew with --overwrite (the old "
                "output stays until the new one is complete)"
            )
    return Start.anew(fingerprint)


def _resume(paths: OutputPaths, fingerprint: dict[str, Any]) -> Start:
    recovered = recover(paths)
    spools = recovered.start["spools"] if recovered else _spools(paths)
    if recovered is not None:
        _hold_same(recovered.start["fingerprint"], fingerprint, paths)
        retry_of = recovered.start["retry_of"]
        source = paths.out.with_name(retry_of) if retry_of else None
        return Start(fingerprint, recovered, source, spools=spools)
    if _is_retry_begun(paths):
        if paths.partial_meta.exists():
            _hold_same(read_meta(paths.partial_meta)["fingerprint"], fingerprint, paths)
        return Start(fingerprint, retry_of=paths.before_retry, spools=spools)
    if paths.out.exists() and not paths.partial.exists():
        meta = read_meta(paths.meta)
        _hold_same(meta["fingerprint"], fingerprint, paths)
        return _complete(paths, fingerprint, meta)
    return Start(fingerprint, spools=spools)


def _complete(paths: OutputPaths, fingerprint: dict[str, Any], meta: dict[str, Any]) -> Start:
    """Nothing is left to do but to delete what a kill at the very end left."""
    for path in paths.working_files():
        path.unlink()
    return Start(fingerprint, complete=meta)


def _retry(paths: OutputPaths, fingerprint: dict[str, Any]) -> Start:
    spools = _spools(paths)
    recovered = recover(paths)
    if recovered is not None:
        _hold_same(recovered.start["fingerprint"], fingerprint, paths)
        if recovered.start["retry_of"]:  # a retry that was stopped
            return _resume(paths, fingerprint)
        if not _is_all_rendered(paths):
            raise UsageError(
                f"{paths.partial}: not all rows are scored yet; finish them with --resume first, "
                "then use --retry-errors"
            )
        os.replace(paths.partial, paths.before_retry)
        return Start(fingerprint, retry_of=paths.before_retry, spools=spools)
    if _is_retry_begun(paths):
        if paths.partial_meta.exists():
            _hold_same(read_meta(paths.partial_meta)["fingerprint"], fingerprint, paths)
        return Start(fingerprint, retry_of=paths.before_retry, spools=spools)
    if not paths.out.exists():
        raise UsageError(f"{paths.out}: nothing to retry; there is no output yet")
    meta = read_meta(paths.meta)
    _hold_same(meta["fingerprint"], fingerprint, paths)
    if not meta["counts"]["failed"]:
        return _complete(paths, fingerprint, meta)
    return Start(
        fingerprint,
        retry_of=paths.out,
        stream_sha256=meta["stream_sha256"],
        spools=meta["spools"],
    )


def _is_retry_begun(paths: OutputPaths) -> bool:
    """Whether rows were set aside for a retry whose own journal had not begun when it was
    stopped.
    """
    begun = journal_start(paths)
    return paths.before_retry.exists() and not (begun and begun["retry_of"])


def _is_all_rendered(paths: OutputPaths) -> bool:
    """A run that was stopped at its end, by a percentage, says so in its meta file."""
    return bool(paths.partial_meta.exists() and read_meta(paths.partial_meta)["all_rendered"])


def _spools(paths: OutputPaths) -> dict[str, Any]:
    """Facts of copied inputs: in the journal, or before it was begun in the meta file."""
    facts = journal_start(paths) or {}
    if "spools" not in facts and paths.partial_meta.exists():
        facts = read_meta(paths.partial_meta)
    return dict(facts.get("spools", {}))


def _hold_same(before: Mapping[str, Any], now: Mapping[str, Any], paths: OutputPaths) -> None:
    changed = differences(before, now)
    if changed:
        shown = "".join(f"\n  {line}" for line in changed[:SHOWN])
        more = f"\n  … and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        raise UsageError(
            f"{paths.out}: was made from something else, so it cannot be gone on "
            f"with:{shown}{more}\n"
            "undo the change, choose another output, or start anew with --overwrite"
        )
