"""One daemon for the suite, and a small root filesystem made of the host's own shell."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "daemon"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from daemon import Daemon  # noqa: E402
import patience  # noqa: E402
from trees import small_tree  # noqa: E402


time_limit = patience.time_limit(120)


@pytest.fixture(scope="session")
def daemon_session():
    d = Daemon()
    yield d
    d.stop()


@pytest.fixture
def daemon(daemon_session):
    """Afterwards no machine, no image and nothing of one is left."""
    yield daemon_session
    daemon_session.clear()
    for image in daemon_session.get("/v1/images")["images"]:
        daemon_session.delete("/v1/images/" + image["name"])
    daemon_session.until(lambda: left_over(daemon_session) == [])
    assert daemon_session.host.left_of_boxes() == []


def left_over(daemon):
    home = pathlib.Path(daemon.home) / "images"
    return [p.name for p in home.iterdir() if p.name[:2] in ("i-", "n-")] + listed(home / "trash")


def listed(directory):
    """It may go while we look."""
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


@pytest.fixture
def fresh():
    made = []

    def make(*options, **kw):
        made.append(Daemon(*options, **kw))
        return made[-1]

    yield make
    for d in made:
        d.stop()


@pytest.fixture(scope="session")
def rootfs(tmp_path_factory):
    """A tar of a tree in which a shell runs."""
    return small_tree(tmp_path_factory.mktemp("rootfs"))


@pytest.fixture
def small(daemon, rootfs):
    """Such an image."""
    return daemon.request("POST", "/v1/images", rootfs.read_bytes(), name="small")
