"""SIGINT and SIGTERM: the first lets the calls in flight end, the second ends the run at once."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from crash_job import logged_calls
from crash_runs import (
    ENV,
    Ended,
    ForkServer,
    beside,
    calls_in_journal,
    command,
    finish,
    meta_of,
    names_in,
    rows_of,
    started,
    wait_until,
    write_jsonl,
)

ROWS = [{"id": n, "response": f"answer {n}" + " gate" * (n == 5)} for n in range(12)]
ARGUMENTS = ("config.yaml", "--data", "rows.jsonl", "-o", "out.jsonl")
GATED_CALL = ("gated", (4, 5))


def write_job(folder: Path, *, model: str = "GatedReward", async_reward: bool = False) -> None:
    write_jsonl(folder / "rows.jsonl", ROWS)
    is_async = str(async_reward).lower()
    (folder / "config.yaml").write_text(
        "score: {window: 4}\n"
        "rewards:\n"
        f"  - {{name: gated, reward_model: 'crash_rewards:{model}', batch_size: 2, "
        f"async_reward: {is_async}, options: {{tag: gated}}}}\n"
        "  - {name: company, reward_model: 'crash_rewards:CompanyReward', batch_size: 3,"
        " options: {tag: company}}\n"
    )


def environment(folder: Path) -> dict[str, str]:
    return {"CRASH_FLAGS": str(folder), "CRASH_LOG": str(folder / "calls.log")}


def send(process: "subprocess.Popen[bytes]", signum: int, folder: Path) -> None:
    """Send a signal, and wait until the Python code of the gated call has run on since."""
    heartbeat = folder / "heartbeat"
    process.send_signal(signum)
    size = heartbeat.stat().st_size
    wait_until(lambda: heartbeat.stat().st_size > size + 1, process)


def check_resumed_as_undisturbed(folder: Path, server: ForkServer) -> None:
    (folder / "open").touch()
    before = set(logged_calls(folder / "calls.log"))
    known = calls_in_journal(beside(folder / "out.jsonl", ".partial.journal"))
    (folder / "calls.log").unlink()
    ended = server.score(*ARGUMENTS, "--resume", cwd=folder, env=environment(folder))
    assert ended.code == 0, ended.err
    assert known.isdisjoint(logged_calls(folder / "calls.log"))
    assert before <= known
    other = server.score(*ARGUMENTS[:-1], "alone.jsonl", cwd=folder, env=environment(folder))
    assert other.code == 0, other.err
    assert (folder / "out.jsonl").read_bytes() == (folder / "alone.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("signum", "code", "async_reward"),
    [(signal.SIGINT, 130, False), (signal.SIGTERM, 143, True)],
    ids=["SIGINT, sync", "SIGTERM, async"],
)
def test_first_signal_lets_the_call_in_flight_end(
    signum: signal.Signals, code: int, async_reward: bool, tmp_path: Path, server: ForkServer
) -> None:
    write_job(tmp_path, async_reward=async_reward)
    with started(*ARGUMENTS, cwd=tmp_path, env=environment(tmp_path)) as process:
        wait_until((tmp_path / "arrived").exists, process)
        send(process, signum, tmp_path)
        (tmp_path / "open").touch()
        ended = finish(process)
    assert ended.code == code
    assert ended.err.splitlines()[-1] == (
        f"rewardctl: error: {signum.name}: stopped; what was finished is kept, go on with --resume"
    )
    assert "Traceback" not in ended.err
    out = tmp_path / "out.jsonl"
    assert not out.exists()
    assert GATED_CALL in calls_in_journal(beside(out, ".partial.journal"))
    assert [c for c in logged_calls(tmp_path / "calls.log") if c[0] == "gated"][-1] == GATED_CALL
    meta = meta_of(out, ".partial.meta.json")
    assert (meta["status"], meta["exit_code"]) == ("interrupted", code)
    check_resumed_as_undisturbed(tmp_path, server)


def test_second_signal_ends_the_run_at_once(tmp_path: Path, server: ForkServer) -> None:
    """The gate stays shut, and the grace is made longer than any test waits."""
    write_job(tmp_path)
    patient = {**environment(tmp_path), "CRASH_GRACE_S": "3600"}
    with started(*ARGUMENTS, cwd=tmp_path, env=patient) as process:
        wait_until((tmp_path / "arrived").exists, process)
        send(process, signal.SIGINT, tmp_path)
        process.send_signal(signal.SIGTERM)
        ended = finish(process)
    assert ended.code == 143
    assert "Traceback" not in ended.err
    meta = meta_of(tmp_path / "out.jsonl", ".partial.meta.json")
    assert (meta["status"], meta["exit_code"]) == ("interrupted", 143)
    check_resumed_as_undisturbed(tmp_path, server)


def test_two_signals_end_a_call_that_hangs_in_native_code(tmp_path: Path) -> None:
    """No Python runs in the main thread there, so no handler in Python does either."""
    write_job(tmp_path, model="StuckReward")
    with started(*ARGUMENTS, cwd=tmp_path, env=environment(tmp_path)) as process:
        wait_until((tmp_path / "arrived").exists, process)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    assert process.returncode in (130, 143)
    assert meta_of(tmp_path / "out.jsonl", ".partial.meta.json")["status"] == "interrupted"


def test_call_that_does_not_end_is_cut_after_the_grace(tmp_path: Path, server: ForkServer) -> None:
    """The gate stays shut: this takes the 10 s of grace."""
    write_job(tmp_path, async_reward=True)
    with started(*ARGUMENTS, cwd=tmp_path, env=environment(tmp_path)) as process:
        wait_until((tmp_path / "arrived").exists, process)
        process.send_signal(signal.SIGTERM)
        ended = finish(process)
    assert ended.code == 143
    assert "Traceback" not in ended.err
    meta = meta_of(tmp_path / "out.jsonl", ".partial.meta.json")
    assert (meta["status"], meta["exit_code"]) == ("interrupted", 143)
    check_resumed_as_undisturbed(tmp_path, server)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signal_before_the_first_call(signum: signal.Signals, tmp_path: Path) -> None:
    """While torch is imported and the model built."""
    write_job(tmp_path)
    lock = beside(tmp_path / "out.jsonl", ".partial.lock")
    with started(*ARGUMENTS, cwd=tmp_path, env=environment(tmp_path)) as process:
        wait_until(lock.exists, process)
        process.send_signal(signum)
        ended = finish(process)
    assert ended.code == 128 + signum
    assert "Traceback" not in ended.err
    assert not (tmp_path / "out.jsonl").exists()
    assert not beside(tmp_path / "out.jsonl", ".partial").exists()


def run_until(moment: str, signals: Sequence[int], folder: Path, *, opened: bool = False) -> Ended:
    """A run of one row that is held at a moment and gets the signals there."""
    write_jsonl(folder / "rows.jsonl", ROWS[:1])
    (folder / "config.yaml").write_text(
        "rewards:\n  - {name: moment, reward_model: 'crash_moments:MomentReward'}\n"
    )
    env = {**environment(folder), "CRASH_MOMENT": moment}
    with started(*ARGUMENTS, cwd=folder, env=env) as process:
        wait_until((folder / "arrived").exists, process)
        for signum in signals:
            process.send_signal(signum)
        if opened:
            (folder / "open").touch()
        return finish(process)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "moment",
    [
        "import",
        "import that makes another error of it",
        "import that swallows it",
        "import, in a destructor",
    ],
)
def test_signal_while_a_module_is_imported(
    moment: str, signum: signal.Signals, tmp_path: Path
) -> None:
    """What the import makes of the exception changes nothing."""
    ended = run_until(moment, [signum], tmp_path)
    assert ended.code == 128 + signum
    assert "Traceback" not in ended.err
    assert ended.err.splitlines()[-1].startswith(f"rewardctl: error: {signum.name}: stopped")
    assert not (tmp_path / "out.jsonl").exists()
    assert not (tmp_path / "calls.log").exists()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_a_finished_process_ends(signum: signal.Signals, tmp_path: Path) -> None:
    """The output is complete; a clean-up that hangs is left at once."""
    ended = run_until("atexit", [signum], tmp_path)
    assert ended.code == 128 + signum
    assert "Traceback" not in ended.err
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == [0]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signal_at_the_very_end_changes_nothing(signum: signal.Signals, tmp_path: Path) -> None:
    """Python has put its own handlers away by then, under which the process would be killed."""
    ended = run_until("very end", [signum], tmp_path, opened=True)
    assert (ended.code, "Traceback" in ended.err) == (0, False)
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == [0]


def test_background_job_of_a_script_ignores_ctrl_c(tmp_path: Path) -> None:
    """A shell starts `command &` in a script with SIGINT ignored: Ctrl-C is not meant for it."""
    write_job(tmp_path)
    inherited = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with started(*ARGUMENTS, cwd=tmp_path, env=environment(tmp_path)) as process:
            wait_until((tmp_path / "arrived").exists, process)
            send(process, signal.SIGINT, tmp_path)
            (tmp_path / "open").touch()
            ended = finish(process)
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert ended.code == 0, ended.err
    assert len(rows_of(tmp_path / "out.jsonl")) == len(ROWS)


def test_signal_while_stdin_is_awaited(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "config.yaml").write_text(
        "rewards:\n  - {name: spread, reward_model: 'crash_rewards:GroupReward'}\n"
    )
    reader, writer = os.pipe()
    process = subprocess.Popen(
        command("config.yaml", "--data", "rows=-", "-o", "out.jsonl"),
        cwd=tmp_path,
        stdin=reader,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENV,
    )
    os.close(reader)
    try:
        wait_until(beside(tmp_path / "out.jsonl", ".partial.input").exists, process)
        process.send_signal(signal.SIGINT)
        ended = finish(process)
    finally:
        os.close(writer)
        process.kill()
        process.wait()
    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert "out.jsonl" not in names_in(tmp_path)
