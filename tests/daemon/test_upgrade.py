"""Programs of another version under live machines: nothing ends, and nothing new is refused."""
import shutil

import pytest

from carrel import BUILD, alive, spawner_pids
from daemon import Daemon


class Installed(Daemon):
    """A daemon of a tree of programs of its own, which can be upgraded."""

    def __init__(self, tree):
        self.libexec = tree / "libexec"
        self.libexec.mkdir(parents=True)
        for path in (BUILD / "libexec").iterdir():
            if path.is_file():
                self.replace(path.name)
        self.program = str(self.libexec / "carrel-daemon")
        super().__init__()

    def replace(self, name):
        """As a package manager does: another file under the same name."""
        new = self.libexec / f".{name}"
        shutil.copy(BUILD / "libexec" / name, new)
        new.rename(self.libexec / name)


@pytest.fixture
def installed(tmp_path):
    d = Installed(tmp_path)
    yield d
    d.stop()


def spawner(d):
    """The spawner itself, not those that wait in its pools."""
    return spawner_pids(d.run_dir)[0]


def test_a_spawner_of_another_version_is_replaced_and_no_box_ends(installed):
    d = installed
    m = d.machine()
    x = d.background(m, "echo before; read x; echo after $x; exit 7", stdin_open=True)
    d.until(lambda: d.get(f"/v1/machines/{m}/execs/{x}")["stdout_bytes"])
    old = spawner(d)
    d.end()
    d.replace("carrel-spawn")
    d.start()
    d.until(lambda: not alive(old))
    assert spawner(d) != old
    d.request("POST", f"/v1/machines/{m}/execs/{x}/stdin?eof=1", b"it\n")
    assert d.wait(m, x)["status"] == 7
    assert d.get(f"/v1/machines/{m}/execs/{x}/output") == b"before\nafter it\n"
    assert d.exec(d.machine(), "echo new")["stdout"] == "new\n"


def test_the_same_spawner_stays(installed):
    """The control: only another program is a reason."""
    d = installed
    m = d.machine()
    old = spawner(d)
    d.restart()
    assert d.exec(m, "echo on")["stdout"] == "on\n"
    assert spawner(d) == old


def test_a_program_that_is_installed_as_a_link_is_left_as_it_is(tmp_path):
    """Machines have a copy of the guest that nobody can read; the program itself stays everybody's."""
    d = Installed(tmp_path)
    try:
        real = tmp_path / "guest"
        (d.libexec / "carrel-guest").rename(real)
        (d.libexec / "carrel-guest").symlink_to(real)
        before = real.stat()
        d.end()
        d.replace("carrel-spawn")
        d.start()
        assert d.exec(d.machine(), "echo on")["stdout"] == "on\n"
        after = real.stat()
        assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    finally:
        d.stop()
