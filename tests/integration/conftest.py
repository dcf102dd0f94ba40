"""One spawner for the whole suite; after every test the host must look as before."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from carrel import Carrel, ROOTLESS  # noqa: E402
import patience  # noqa: E402


time_limit = patience.time_limit(120)


@pytest.fixture(scope="session")
def carrel_session():
    c = Carrel()
    c.run("--", "true")  # the image is made once, and says so
    yield c
    c.stop()


@pytest.fixture
def carrel(carrel_session):
    yield carrel_session
    left = carrel_session.host.left_of_boxes()
    carrel_session.clear()
    assert left == []


@pytest.fixture
def fresh():
    """A run directory and store of the test's own."""
    c = Carrel()
    yield c
    c.stop()


WHY = {"disk": "tmpfs has no user attributes before kernel 6.6"}


@pytest.fixture
def limits(carrel):
    """limits("memory") skips where an ordinary user has nothing to enforce it with."""
    def need(name):
        if carrel.status().get("pid") is None:  # nobody asked for a minute, so daemon and spawner left
            carrel.run("-q", "--", "true")
        if name in carrel.status()["unenforced"]:
            assert ROOTLESS, "root can enforce every limit"
            pytest.skip(f"rootless: {WHY.get(name, 'no delegated cgroup')}: the {name} limit is not enforced, and said so")
    return need
