"""One daemon for the suite; every test that takes `client` runs over both faces."""
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
for path in (HERE.parent, HERE.parent / "daemon", HERE):
    sys.path.insert(0, str(path))

from daemon import Daemon, TcpClient  # noqa: E402
from mcp_client import Http, Lines  # noqa: E402
import patience  # noqa: E402


time_limit = patience.time_limit(180)


@pytest.fixture(scope="session")
def daemon_session():
    d = Daemon("--listen", "127.0.0.1:0")
    yield d
    d.stop()


@pytest.fixture
def daemon(daemon_session):
    yield daemon_session
    daemon_session.clear()
    assert daemon_session.host.left_of_boxes() == []


@pytest.fixture(scope="session")
def token(daemon_session):
    """One that may run, as a client's configuration holds it."""
    return daemon_session.post("/v1/tokens", {"scopes": ["read", "run"]})["secret"]


@pytest.fixture
def open_client(daemon, token, tmp_path):
    """Makes clients of either kind, and ends them."""
    made = []

    def make(kind, *options, greet=True, **hello):
        if kind == "lines":
            c = Lines(daemon, *options, cwd=tmp_path)
        else:
            c = Http(TcpClient(daemon.port).connect, {"Authorization": "Bearer " + token}, *options)
        made.append(c)
        if greet:
            c.greet(**hello)
        return c

    yield make
    for c in made:
        c.close()


@pytest.fixture(params=["lines", "http"])
def client(request, open_client):
    return open_client(request.param)
