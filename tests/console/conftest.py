"""A daemon whose console is open, for the tests of one file."""
import pathlib
import sys

import pytest

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "daemon"))
sys.path.insert(0, str(here))

from console import ConsoleDaemon  # noqa: E402  (finds the modules of the next line)
from browser import Browser  # noqa: E402
import patience  # noqa: E402

time_limit = patience.time_limit(240)


@pytest.fixture(scope="module")
def server():
    d = ConsoleDaemon()
    yield d
    d.stop()


@pytest.fixture
def daemon(server):
    yield server
    server.clear()


@pytest.fixture(scope="module")
def browser():
    b = Browser()
    yield b
    b.stop()


@pytest.fixture
def tab(daemon, browser):
    """The page of the console, logged in."""
    t = browser.open(daemon.link_url())
    t.shown("nav")
    yield t
    t.done()


@pytest.fixture
def box(daemon):
    return daemon.machine(name="box")
