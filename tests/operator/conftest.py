"""One daemon for the suite, and runs whose model is a rehearsal."""
import pathlib
import signal
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
for path in (HERE.parent, HERE.parent / "daemon", HERE):
    sys.path.insert(0, str(path))

from daemon import Daemon  # noqa: E402
from patience import PATIENCE  # noqa: E402
from runs import Runs  # noqa: E402


@pytest.fixture(autouse=True)
def time_limit():
    def too_long(*_):
        raise TimeoutError("this test takes too long")

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(int(840 * PATIENCE))
    yield
    signal.alarm(0)


@pytest.fixture(scope="session")
def daemon_session():
    d = Daemon("--listen", "127.0.0.1:0", conf="[models]\nmodel = cheap in=1.00 out=2.00\nmodel = small window=12000\n")
    yield d
    d.stop()


@pytest.fixture
def daemon(daemon_session):
    yield daemon_session
    daemon_session.clear()
    assert daemon_session.host.left_of_boxes() == []


@pytest.fixture
def runs(daemon):
    return Runs(daemon)
