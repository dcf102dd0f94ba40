"""A daemon and a box for verbs of a computer that one owns."""
import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "daemon"), str(TESTS)]

from daemon import Daemon  # noqa: E402
import patience  # noqa: E402


time_limit = patience.time_limit(120)


@pytest.fixture(scope="module")
def daemon():
    d = Daemon("--listen", "127.0.0.1:0")
    yield d
    d.clear()
    d.stop()


@pytest.fixture(scope="module")
def box(daemon):
    """Tests leave it running, and look only at their own files."""
    return daemon.machine(name="lab")
