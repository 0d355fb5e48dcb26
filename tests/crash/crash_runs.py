"""How the crash tests run `rewardctl score`: through the fork server, or in its own process."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewardctl.data.journal import read_records

HERE = Path(__file__).parent
TIMEOUT_S = 120.0
# Nothing of the caller's terminal or machine; one thread, so that scores do not depend on it.
CLEARED = ("FORCE_COLOR", "COLUMNS", "GITHUB_ACTIONS", "NO_COLOR", "CRASH_LOG", "CRASH_FLAGS")
ENV = {k: v for k, v in os.environ.items() if k not in CLEARED} | {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
}


@dataclass(frozen=True)
class Ended:
    """A run that is over."""

    code: int  # exit code; negative for a signal
    out: bytes
    err: str
    killed: bool = False  # by SIGKILL


class ForkServer:
    """Starts `rewardctl` in milliseconds, and kills it where a test says.

    Args:
        script: the server; which modules it has loaded before is its own.
    """

    def __init__(self, folder: Path, *, script: str = "crash_server.py") -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=ENV,
            text=True,
        )

    def score(self, *arguments: str | Path, cwd: Path, **settings: Any) -> Ended:
        """Run `rewardctl score`; settings as of `run`."""
        return self.run("score", *arguments, cwd=cwd, **settings)

    def run(
        self,
        *arguments: str | Path,
        cwd: Path,
        stdin: Path | str = os.devnull,
        env: Mapping[str, str] | None = None,
        max_file_bytes: int | None = None,
        die_at: int | None = None,
        kill_at: tuple[Path, int] | None = None,
        kill_after_s: float = 0.0,
    ) -> Ended:
        """Run to the end.

        Args:
            max_file_bytes: no file may grow beyond, as on a full disk.
            die_at: killed before this file operation, or in the middle of it if it is a write.
            kill_at: killed once this file has that many bytes, `kill_after_s` later.
        """
        out, err = self._folder / "stdout", self._folder / "stderr"
        request = {
            "argv": list(map(str, arguments)),
            "cwd": str(cwd),
            "stdin": str(stdin),
            "stdout": str(out),
            "stderr": str(err),
            "env": dict(env or {}),
            "max_file_bytes": max_file_bytes,
            "die_at": die_at,
            "kill_file": str(kill_at[0]) if kill_at else None,
            "kill_size": kill_at[1] if kill_at else 0,
            "kill_after_s": kill_after_s,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline())
        return Ended(reply["status"], out.read_bytes(), err.read_text("utf-8"), reply["killed"])

    def close(self) -> None:
        """End the server."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)
        self._process.stdout.close()


def command(*arguments: str | Path) -> list[str]:
    """The command line of a process of its own."""
    return [sys.executable, "-m", "rewardctl", "score", *map(str, arguments)]


def score_process(
    *arguments: str | Path,
    cwd: Path,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
) -> Ended:
    """Run `rewardctl score` as a process of its own, to the end."""
    done = subprocess.run(
        command(*arguments),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        env={**ENV, **(env or {})},
        timeout=TIMEOUT_S,
    )
    return Ended(done.returncode, done.stdout, done.stderr.decode())


@contextmanager
def started(
    *arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """`rewardctl score` while it runs; whatever the block does, no process stays behind."""
    process = subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**ENV, **(env or {})},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def finish(process: "subprocess.Popen[bytes]") -> Ended:
    """Wait for a process to end."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    return Ended(process.returncode, out, err.decode())


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    """Wait for something that a running process does."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.005)


def write_jsonl(path: Path, rows: Sequence[Mapping[str, Any] | bytes]) -> Path:
    """Rows, or lines as they are, one a line."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of an output."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def beside(out: Path, ending: str) -> Path:
    """A working file of an output."""
    return out.with_name(out.name + ending)


def names_in(folder: Path) -> list[str]:
    """What lies in a folder."""
    return sorted(path.name for path in folder.iterdir())


def meta_of(out: Path, ending: str = ".meta.json") -> dict[str, Any]:
    """The meta file of an output."""
    meta: dict[str, Any] = json.loads(beside(out, ending).read_text("utf-8"))
    return meta


def calls_in_journal(journal: Path) -> set[tuple[str, tuple[int, ...]]]:
    """Stream and rows of the whole calls that a journal holds, as a resumed run may rely on."""
    return {
        (record["stream"], tuple(record["rows"]))
        for record, _ in read_records(journal)
        if record["kind"] == "call" and not record["faults"]
    }
