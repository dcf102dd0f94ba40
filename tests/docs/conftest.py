"""Where pages are played: a store of their own, with or without example.com."""
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gate"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "daemon"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "image"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2b"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from carrel import BUILD, Carrel, ROOTLESS, TOP  # noqa: E402
from daemon import Daemon  # noqa: E402
import npm_project  # noqa: E402
import patience  # noqa: E402
import postgres  # noqa: E402
import ssh_client  # noqa: E402
from trees import small_tree  # noqa: E402
from world import World  # noqa: E402


time_limit = patience.time_limit(300)

SSH = pathlib.Path(__file__).with_name("ssh")


class Place:
    """A reader's directory, and the environment of their shell."""

    def __init__(self, host):
        self.dir = pathlib.Path(host.dir, "you")
        self.dir.mkdir()
        self.env = {**host.env, "HOME": str(self.dir), "PATH": f"{BUILD}:/usr/bin:/bin:/usr/sbin:/sbin"}
        (self.dir / ".gitconfig").write_text("[user]\n\tname = You\n\temail = you@example.com\n[init]\n\tdefaultBranch = main\n")


@pytest.fixture
def alone():
    """No daemon yet: the first command starts one."""
    c = Carrel()
    yield Place(c)
    c.stop()


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    if ROOTLESS:
        pytest.skip("rootless: only root can make a network in which example.com is this host")
    w = World(tmp_path_factory.mktemp("world"))
    yield w
    w.stop()


@pytest.fixture
def online(world):
    """A daemon whose machines can be allowed to reach example.com."""
    d = Daemon(conf=world.conf)
    yield Place(d)
    d.stop()


@pytest.fixture
def with_rootfs(alone):
    """With the archive that docs/howto/images.md imports."""
    (alone.dir / "parts").mkdir()
    small_tree(alone.dir / "parts").rename(alone.dir / "rootfs.tar")
    return alone


@pytest.fixture
def with_sdk(alone):
    """With the Python SDK installed."""
    alone.env["PYTHONPATH"] = str(TOP / "sdk/python")
    alone.env["PYTHONDONTWRITEBYTECODE"] = "1"
    return alone


@pytest.fixture
def with_e2b(alone):
    """With the SDK of E2B from npm, and a node for it."""
    try:
        where, node = npm_project.project()
    except npm_project.Missing as why:
        pytest.skip(str(why))
    (alone.dir / "node_modules").symlink_to(where / "node_modules")
    (alone.dir / "bin").mkdir()
    (alone.dir / "bin/node").symlink_to(shutil.which(node))
    alone.env["PATH"] = f"{alone.dir}/bin:{alone.env['PATH']}"
    return alone


@pytest.fixture
def with_volumes(alone):
    if ROOTLESS:
        pytest.skip("rootless: volumes require root")
    return alone


@pytest.fixture
def with_desktop(alone):
    if lacking := [p for p in ("Xtigervnc", "openbox", "xterm", "xprop", "chromium") if not shutil.which(p)]:
        pytest.skip(f"not installed, so machines of the image 'host' do not have it: {', '.join(lacking)}")
    return alone


@pytest.fixture
def with_sshd(alone):
    if not ssh_client.SSHD:
        pytest.skip("openssh-server is not installed, so machines of the image 'host' have no sshd: scripts/setup test")
    return alone


@pytest.fixture
def with_postgres(online):
    """With the server that docs/howto/databases.md names."""
    if not postgres.BIN:
        pytest.skip("no PostgreSQL on this host: scripts/setup test")
    s = postgres.Server(port=5432)
    s.sql("CREATE DATABASE shop")
    s.sql("CREATE TABLE goods (name text, price int); INSERT INTO goods VALUES ('tea', 3), ('cake', 4)", "shop")
    (online.dir / "dsn.txt").write_text(s.dsn)
    yield online
    s.remove()


@pytest.fixture
def with_ssh(world, alone):
    """With an ssh that forwards a port without another host: world, because the page names the port."""
    (alone.dir / "bin").mkdir()
    (alone.dir / "bin/ssh").symlink_to(SSH)
    alone.env["PATH"] = f"{alone.dir}/bin:{alone.env['PATH']}"
    return alone
