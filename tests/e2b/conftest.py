"""A daemon and an E2B client of it, for the tests of one file."""
import pathlib
import sys

import pytest

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "daemon"))
sys.path.insert(0, str(here))

from daemon import Daemon  # noqa: E402
from e2b_client import E2b  # noqa: E402
from envd import Sandbox  # noqa: E402
import patience  # noqa: E402

time_limit = patience.time_limit(240)


@pytest.fixture(scope="module")
def server():
    d = Daemon()
    yield d
    d.stop()


@pytest.fixture(scope="module")
def e2b(server):
    return E2b.of(server)


@pytest.fixture
def daemon(server):
    yield server
    server.clear()


@pytest.fixture
def sandbox(e2b, daemon):
    return Sandbox(e2b, daemon)
