"""A process that has imported torch and forks one child for each command line it is sent.

The child goes on as `python -m rewardctl`, to the very end of the interpreter; a start costs
milliseconds. The server watches it and kills it where the request says. It reads one JSON request
a line from stdin and answers with one JSON reply a line on stdout:

    {"argv", "cwd", "stdin", "stdout", "stderr", "env", "max_file_bytes", "die_at",
     "kill_file", "kill_size", "kill_after_s"}
    {"status": exit code, negative for a signal, "killed": whether by SIGKILL}
"""

import gc
import json
import os
import resource
import runpy
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

Request = dict[str, Any]


def serve() -> Request | None:
    """Answer requests. Returns in the server at their end (None), in a child with its request."""
    import torch

    torch.set_num_threads(1)
    for module in PRELOADED:
        __import__(module)
    gc.freeze()  # or a child would copy all of it to collect it
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    for line in iter(requests.readline, ""):
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            return request
        replies.write(json.dumps(watch(pid, request)) + "\n")
        replies.flush()
    return None


# All but `rewardctl.__main__`, which every child runs for itself.
PRELOADED = (
    "accelerate",
    "PIL.Image",
    "crash_rewards",
    "rewardctl.cli",
    "rewardctl.config.load",
    "rewardctl.runs.score",
    "rewardctl.rewards",
    "rich.pretty",
    "rich.table",
    "tqdm",
)


def watch(pid: int, request: Request) -> dict[str, Any]:
    """Wait for a child; kill it once `kill_file` has `kill_size` bytes and then a moment passed."""
    file, size = request["kill_file"], request["kill_size"]
    ended, status = os.waitpid(pid, os.WNOHANG)
    while not ended:
        if file is not None and file_size(file) >= size:
            time.sleep(request["kill_after_s"])
            os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still the child's
            _, status = os.waitpid(pid, 0)
            break
        time.sleep(0.001)
        ended, status = os.waitpid(pid, os.WNOHANG)
    code = os.waitstatus_to_exitcode(status)
    return {"status": code, "killed": code == -signal.SIGKILL}


def file_size(path: str) -> int:
    """Bytes of a file; -1 while it is not there."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1


def become(request: Request) -> None:
    """Turn this child into the process that the request describes."""
    os.chdir(request["cwd"])
    for number, name, flags in (
        (0, request["stdin"], os.O_RDONLY),
        (1, request["stdout"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        fd = os.open(name, flags, 0o644)
        os.dup2(fd, number)
        os.close(fd)
    os.environ.update(request["env"])
    sys.argv = ["rewardctl", *request["argv"]]
    if request["max_file_bytes"] is not None:
        limit = request["max_file_bytes"]
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if request["die_at"] is not None:
        die_at_operation(request["die_at"])


def die_at_operation(number: int) -> None:
    """Kill this process before its file operation `number` (from 0), or amid it if it writes."""
    done = 0

    def cut(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            if done == number:
                if name == "write":
                    operation(args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            done += 1
            return operation(*args, **kwargs)

        return counted

    # Not fsync: to a killed process it is all one.
    for name in ("write", "ftruncate", "replace", "unlink"):
        setattr(os, name, cut(name, getattr(os, name)))


if __name__ == "__main__":
    own = serve()
    if own is not None:
        become(own)
        runpy.run_module("rewardctl", run_name="__main__", alter_sys=True)
