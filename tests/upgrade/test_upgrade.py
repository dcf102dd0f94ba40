"""From the Carrel that tests/upgrade/from names to the one under test, while commands run (make test-upgrade)."""
import contextlib
import os
import pathlib
import signal
import sqlite3
import subprocess

import pytest

from carrel import BUILD, alive, spawner_pids
from daemon import Daemon
from patience import PATIENCE

OLD = os.environ.get("CARREL_OLD_BUILD")
pytestmark = pytest.mark.skipif(not OLD, reason="run by make test-upgrade")


class Upgraded(Daemon):
    """A daemon of the old Carrel, until upgrade()."""

    def __init__(self):
        self.program = str(pathlib.Path(OLD or "") / "libexec/carrel-daemon")
        super().__init__()

    def upgrade(self, hard):
        self.old_spawner = spawner_pids(self.run_dir)[0]
        self.kill() if hard else self.end()
        self.program = str(BUILD / "libexec/carrel-daemon")
        self.start()

    def stop(self):
        for copy in self.home.glob("carrel.db.v*"):  # kept for the owner: all else must go by itself
            copy.unlink()
        super().stop()


@pytest.fixture
def carrel():
    d = Upgraded()
    yield d
    d.stop()


@pytest.mark.parametrize("hard", [False, True], ids=["ended", "killed"])
def test_commands_and_machines_go_on(carrel, hard):
    d = carrel
    m, idle = d.machine(name="work", metadata={"a": "b"}), d.machine()
    d.exec(m, "echo first >f")
    first = d.post(f"/v1/machines/{m}/steps", {"name": "first"})["id"]
    done = d.exec(m, "echo said; exit 3")["exec"]["id"]
    x = d.background(m, "echo before; read x; echo after $x; exit 7", stdin_open=True)
    d.until(lambda: d.get(f"/v1/machines/{m}/execs/{x}")["stdout_bytes"])
    counter = d.background(idle, "i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i; sleep 0.01; done; exit 9")

    d.upgrade(hard)

    assert {r["id"] for r in d.machines()} == {m, idle}
    assert d.get("/v1/machines/work")["metadata"] == {"a": "b"}
    assert d.get(f"/v1/machines/{m}/execs/{done}")["status"] == 3
    d.request("POST", f"/v1/machines/{m}/execs/{x}/stdin?eof=1", b"it\n")
    assert d.wait(m, x)["status"] == 7
    assert d.get(f"/v1/machines/{m}/execs/{x}/output") == b"before\nafter it\n"

    # The old guest does all that the new daemon asks for, and the spawner is a new one.
    d.until(lambda: not alive(d.old_spawner))
    d.request("PUT", f"/v1/machines/{idle}/files?path=/home/user/stop", b"")
    assert d.wait(idle, counter)["status"] == 9
    numbers = [int(n) for n in d.get(f"/v1/machines/{idle}/execs/{counter}/output").split()]
    assert numbers == list(range(1, len(numbers) + 1)), "every line once"
    assert d.exec(m, "echo later >f; cat f")["stdout"] == "later\n"
    fork, = d.post(f"/v1/machines/{m}/fork", {"step": first})["machines"]
    assert d.exec(fork["id"], "cat f")["stdout"] == "first\n"
    d.post(f"/v1/machines/{m}/rewind", {"step": first})
    assert d.exec(m, "cat f")["stdout"] == "first\n"
    for verb in ("pause", "resume"):
        d.post(f"/v1/machines/{idle}/{verb}")
    assert d.exec(d.machine(), "echo new")["stdout"] == "new\n"
    d.delete(f"/v1/machines/{idle}")


@pytest.mark.parametrize("hard", [False, True], ids=["ended", "killed"])
def test_a_disk_image_of_the_old_carrel_goes_on(carrel, hard):
    """It has no journal, and keeps its files, its steps and its limit. A fork has a disk of the new Carrel above it."""
    d = carrel
    m = d.machine(limits={"mem": "64M", "disk": "100M"})
    d.exec(m, "echo first >f; head -c 20000000 /dev/zero >big")
    first = d.post(f"/v1/machines/{m}/steps", {"name": "first"})["id"]
    d.exec(m, "echo second >f")

    d.upgrade(hard)

    assert d.exec(m, "cat f; rm big; echo third >f")["stdout"] == "second\n"
    fork, = d.post(f"/v1/machines/{m}/fork", {"step": first})["machines"]
    assert d.exec(fork["id"], "cat f; wc -c <big; rm big; echo own >f; cat f")["stdout"] == "first\n20000000\nown\n"
    d.post(f"/v1/machines/{m}/rewind", {"step": first})
    assert d.exec(m, "cat f; wc -c <big")["stdout"] == "first\n20000000\n"
    for box in (m, fork["id"]):
        assert "No space left" in d.exec(box, "head -c 200000000 /dev/zero >huge; rm huge")["stderr"]


def test_a_new_client_finishes_a_command_that_the_old_daemon_began(carrel):
    """Its `carrel exec` starts the new daemon by itself."""
    d = carrel
    m = d.machine()
    p = subprocess.Popen([BUILD / "carrel", "exec", m, "--", "sh", "-c", "echo one; read x; echo two $x; exit 5"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**d.env, "CARREL_WAIT": "300"})
    assert p.stdout.readline() == b"one\n"
    d.kill()
    out, _ = p.communicate(b"more\n", timeout=60 * PATIENCE)
    assert (out, p.returncode) == (b"two more\n", 5)
    # Ours again: what the client started is asked to leave.
    pid = int((d.run_dir / "carrel.pid").read_text())
    os.kill(pid, signal.SIGTERM)
    d.until(lambda: not alive(pid))
    d.program = str(BUILD / "libexec/carrel-daemon")
    d.start()
    assert d.exec(m, "echo on")["stdout"] == "on\n"


def test_the_database_of_before_is_kept(carrel):
    d = carrel
    version = schema(d.home / "carrel.db")
    d.upgrade(hard=False)
    now = schema(d.home / "carrel.db")
    kept = sorted(p.name for p in d.home.glob("carrel.db.v*"))
    assert kept == ([f"carrel.db.v{version}"] if now > version else [])
    if kept:
        assert schema(d.home / kept[0]) == version


def schema(path):
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as c:
        return c.execute("PRAGMA user_version").fetchone()[0]
