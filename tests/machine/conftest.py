"""One spawner for the suite; after every test no box is left."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from carrel import Carrel  # noqa: E402
from drive import Drive, fresh_id  # noqa: E402
import patience  # noqa: E402


time_limit = patience.time_limit(120)


@pytest.fixture(scope="session")
def carrel_session():
    c = Carrel()
    c.run("--", "true")
    yield c
    c.stop()


@pytest.fixture
def carrel(carrel_session):
    yield carrel_session
    carrel_session.clear()
    assert carrel_session.host.left_of_boxes() == []


@pytest.fixture
def drive(carrel):
    d = Drive(carrel)
    yield d
    d.quit()


@pytest.fixture
def machine(drive):
    """A machine that lingers."""
    m = fresh_id()
    drive("create", m, "linger=1")
    yield m
    drive("destroy", m)


@pytest.fixture
def fresh_carrel():
    """A run directory and store of the test's own, where nothing runs yet."""
    c = Carrel()
    yield c
    c.stop()
