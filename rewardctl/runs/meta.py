"""The meta file beside an output: how the run ended, its counts and figures, and what it was made
from.
"""

import importlib.metadata
import platform
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from rewardctl import __version__
from rewardctl.config.secret import masked_dump
from rewardctl.errors import PolicyStop, RewardctlError
from rewardctl.runs.fingerprint import digest_of
from rewardctl.runs.interrupt import Interrupted
from rewardctl.runs.output import Output, OutputPaths, write_json
from rewardctl.runs.policy import FailureLog
from rewardctl.runs.start import Start
from rewardctl.runs.statistics import RunStatistics

if TYPE_CHECKING:
    from rewardctl.runs.score import Prepared

PACKAGES = (
    "torch",
    "accelerate",
    "numpy",
    "pillow",
    "transformers",
    "onnxruntime",
    "rapidocr",
    "av",
)


class MetaWriter:
    """Gathers the meta file's content as a run goes on."""

    def __init__(
        self,
        prepared: "Prepared",
        paths: OutputPaths,
        start: Start,
        statistics: RunStatistics,
        failures: FailureLog,
    ) -> None:
        self.machine: dict[str, Any] = {}
        self.provenance: dict[str, dict[str, str]] = {}  # stream -> facts that its model records
        self.spools: dict[str, Any] = dict(start.spools)
        self._prepared = prepared
        self._paths = paths
        self._start = start
        self._statistics = statistics
        self._failures = failures
        self._started = datetime.now(UTC)
        self.all_rendered = False
        self.stream_sha256: str | None = None

    def journal_start(self) -> dict[str, Any]:
        """The facts of the journal's first record."""
        retry_of = self._start.retry_of
        return {
            "fingerprint": self._start.fingerprint,
            "machine": self.machine,
            "retry_of": retry_of.name if retry_of else None,
            "spools": self.spools,
        }

    def content(
        self, status: str, *, exit_code: int | None = 0, error: str | None = None
    ) -> dict[str, Any]:
        """The whole meta file."""
        now = datetime.now(UTC)
        config = masked_dump(self._prepared.request.config)
        return {
            "status": status,
            "exit_code": exit_code,
            "error": error,
            "output": str(self._paths.out) if self._prepared.request.out else "-",
            "counts": self._statistics.counts(),
            "streams": self._statistics.report(),
            "failures": {
                "max_errors": str(self._failures.limit),
                "by_source": dict(
                    sorted(self._failures.by_source.items(), key=lambda kv: (-kv[1], kv[0]))
                ),
                "examples": self._failures.examples,
            },
            "warnings": self.warnings(status),
            "all_rendered": self.all_rendered,
            "spools": self.spools,
            "stream_sha256": self.stream_sha256,
            "started": self._started.isoformat(timespec="seconds"),
            "ended": now.isoformat(timespec="seconds"),
            "seconds": round((now - self._started).total_seconds(), 3),
            "resumed": self._start.recovered is not None,
            "machine": self.machine,
            "versions": versions(),
            "provenance": self.provenance,
            "config": config,
            "config_sha256": digest_of(config),
            "fingerprint": self._start.fingerprint,
            "fingerprint_sha256": digest_of(self._start.fingerprint),
        }

    def warnings(self, status: str) -> list[str]:
        """What a reader of the scores should know."""
        found = []
        before = self._start.recovered.start["machine"] if self._start.recovered else self.machine
        for key, value in self.machine.items():
            if before.get(key) != value:
                found.append(
                    f"{key} was {before.get(key)} before the stop and is {value} now: scores of "
                    "the "
                    "two parts may differ in their last digits"
                )
        if status == "complete":
            for name in self._unseen_datasets():
                found.append(f"dataset {name!r} is named in rewards, but no row was of it")
        return found

    def _unseen_datasets(self) -> list[str]:
        named = {d for args in self._prepared.streams for d in args.applicable_datasets or []}
        return sorted(named - set(self._statistics.datasets))

    def write(self, output: Output, status: str) -> None:
        """Replace the meta file of the running run."""
        output.write_meta(self.content(status, exit_code=None))

    def write_spools(self) -> None:
        """Vouch for copied inputs before anything else is known."""
        facts = {"status": "running", "all_rendered": False, "spools": self.spools}
        write_json(self._paths.partial_meta, {**facts, "fingerprint": self._start.fingerprint})

    def write_ended(self, output: Output, error: RewardctlError) -> None:
        """Say how the run ended; what keeps that from being written is less than the error
        itself.
        """
        status = "failed"
        if isinstance(error, PolicyStop):
            status = "stopped"
        elif isinstance(error, Interrupted):
            status = "interrupted"
        with suppress(RewardctlError):
            output.write_meta(self.content(status, exit_code=error.exit_code, error=str(error)))

    def write_interrupted(self, output: Output, exit_code: int) -> None:
        """The last words of a run that does not end by itself after a signal."""
        with suppress(RewardctlError):
            output.write_meta(self.content("interrupted", exit_code=exit_code))


@cache
def versions() -> dict[str, str]:
    """Versions of Python, this package, and the packages that scores may depend on."""
    found = {"python": platform.python_version(), "rewardctl": __version__}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return {**found, "platform": f"{sys.platform} {platform.machine()}"}
