"""One daemon for the suite; after every test no machine and nothing of one is left."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from daemon import ROOTLESS, Daemon, Refused  # noqa: E402
from carrel import Carrel  # noqa: E402
import patience  # noqa: E402


time_limit = patience.time_limit(120)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(call):
    """What the host cannot do for an ordinary user is refused, with the reason: there that is the answer."""
    report = (yield).get_result()
    why = call.excinfo and call.excinfo.value
    if ROOTLESS and isinstance(why, Refused) and why.code == "unsupported":
        report.outcome = "skipped"
        report.longrepr = (__file__, 0, f"Skipped: rootless: {why.error['message']}")


@pytest.fixture(scope="session")
def daemon_session():
    d = Daemon()
    yield d
    d.stop()


@pytest.fixture
def daemon(daemon_session):
    yield daemon_session
    daemon_session.clear()
    assert daemon_session.host.left_of_boxes() == []


@pytest.fixture(scope="module")
def carrel():
    """The command line with a store of its own, for the tests of one file."""
    c = Carrel()
    yield c
    c.stop()


@pytest.fixture
def fresh():
    """A daemon of the test's own, to be killed and started again."""
    made = []

    def make(*options, **kw):
        made.append(Daemon(*options, **kw))
        return made[-1]

    yield make
    for d in made:
        d.stop()


@pytest.fixture
def box(daemon):
    return daemon.machine()
