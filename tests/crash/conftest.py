"""The fork server and the job that the crash tests share."""

import signal
from collections.abc import Iterator

import pytest
from crash_job import Job, make_job
from crash_runs import ForkServer


@pytest.fixture(autouse=True, scope="session")
def heeded_ctrl_c() -> None:
    """A process inherits that SIGINT is ignored, as in a suite that a script runs with `&`."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Starts runs in milliseconds."""
    running = ForkServer(tmp_path_factory.mktemp("server"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def job(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """300 rows under five streams, and what an undisturbed run makes of them."""
    return make_job(tmp_path_factory.mktemp("job"), server)
