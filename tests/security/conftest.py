"""After every test the host must look as before; at the end the count of attacks is printed."""
import pathlib
import shutil
import tempfile

import pytest

from lab import PLACE, Lab, counts


@pytest.fixture(scope="session")
def shared_lab():
    lab = Lab()
    yield lab
    lab.stop()


@pytest.fixture
def lab(shared_lab):
    yield shared_lab
    for machine in shared_lab.machines():
        shared_lab("rm", machine["id"])
    assert shared_lab.state.left_of_boxes() == []


@pytest.fixture
def host_dir():
    """A directory of the host to lend."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="cd-", dir=PLACE))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def make_lab():
    """A run directory and spawner of the test's own: make_lab(weak="seccomp")."""
    labs = []

    def make(**kw):
        labs.append(Lab(**kw))
        return labs[-1]
    yield make
    for lab in labs:
        lab.stop()


def pytest_sessionfinish():
    if counts:
        print("#! " + ", ".join(f"{n} {what}" for what, n in counts.items()), flush=True)
