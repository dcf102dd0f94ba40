"""The daemon may die at any instant: machines and commands go on, and the next daemon finds them."""
import contextlib
import os
import signal
import socket
import sqlite3
import struct
import time

import pytest

from daemon import Refused, signal_all, stopped
from patience import PATIENCE
from relay import ATTACH, LOG_OPEN, TABLE, Relay, short


def kill_spawner(d):
    signal_all(d.host.spawners(), signal.SIGKILL)


@pytest.mark.parametrize("hard", [True, False], ids=["killed", "ended"])
def test_a_command_outlives_the_daemon(fresh, hard):
    d = fresh()
    m = d.machine(name="lives", metadata={"a": "b"})
    x = d.background(m, "for i in $(seq 1 20); do echo $i; sleep 0.1; done; exit 7")
    before = d.get(f"/v1/machines/{m}")
    d.restart(hard)
    assert d.get("/v1/machines/lives") == {**before, "commands": 1}
    assert d.get(f"/v1/machines/{m}/execs/{x}/output", follow=1) == b"".join(b"%d\n" % i for i in range(1, 21))
    assert d.wait(m, x)["status"] == 7


def test_what_ended_meanwhile_is_known(fresh):
    d = fresh()
    m = d.machine()
    x = d.background(m, "echo said; sleep 0.3; exit 9")
    d.kill()
    time.sleep(1)
    d.start()
    assert d.wait(m, x)["status"] == 9
    assert d.get(f"/v1/machines/{m}/execs/{x}/output") == b"said\n"


def test_finished_commands_stay_readable(fresh):
    d = fresh()
    m = d.machine()
    x = d.exec(m, "echo kept; exit 2")["exec"]["id"]
    d.restart()
    assert d.get(f"/v1/machines/{m}/execs/{x}")["status"] == 2
    assert d.get(f"/v1/machines/{m}/execs/{x}/output") == b"kept\n"


def test_stdin_goes_on_at_its_offset(fresh):
    d = fresh()
    m = d.machine()
    x = d.background(m, "cat", stdin_open=True)
    d.request("POST", f"/v1/machines/{m}/execs/{x}/stdin", b"one\n")
    d.until(lambda: d.get(f"/v1/machines/{m}/execs/{x}")["stdout_bytes"] == 4)
    d.restart()
    d.request("POST", f"/v1/machines/{m}/execs/{x}/stdin?offset=0&eof=1", b"one\ntwo\n")
    assert d.wait(m, x)["status"] == 0
    assert d.get(f"/v1/machines/{m}/execs/{x}/output") == b"one\ntwo\n"


def test_pause_lasts_over_a_restart(fresh):
    d = fresh()
    m = d.machine()
    x = d.background(m, "while :; do echo x; sleep 0.05; done")
    d.post(f"/v1/machines/{m}/pause")
    d.restart()
    assert d.get(f"/v1/machines/{m}")["state"] == "paused"
    n = d.get(f"/v1/machines/{m}/execs/{x}")["stdout_bytes"]
    time.sleep(0.3)
    assert d.get(f"/v1/machines/{m}/execs/{x}")["stdout_bytes"] == n
    d.post(f"/v1/machines/{m}/resume")
    d.until(lambda: d.get(f"/v1/machines/{m}/execs/{x}")["stdout_bytes"] > n)


def test_the_spawner_may_die_too(fresh):
    d = fresh()
    m = d.machine()
    x = d.background(m, "sleep 1; exit 3")
    kill_spawner(d)
    assert d.exec(m, "echo still here")["stdout"] == "still here\n"
    other = d.machine()
    assert d.exec(other, "echo new")["stdout"] == "new\n"
    d.restart()
    assert d.wait(m, x)["status"] == 3
    assert {row["id"] for row in d.machines()} == {m, other}


@pytest.mark.parametrize("victim", ["daemon", "both"])
def test_what_cow_directories_changed_is_found_again(fresh, tmp_path, victim):
    d = fresh()
    (tmp_path / "f").write_text("old")
    fd = os.open(tmp_path, os.O_RDONLY)
    m = d.lend(fd, dirs=[{"path": str(tmp_path), "at": "/home/user/d", "mode": "cow"}])
    os.close(fd)
    assert d.exec(m, "echo new >/home/user/d/f; echo more >/home/user/d/g")["exec"]["status"] == 0
    d.kill()
    if victim == "both":
        kill_spawner(d)
    d.start()
    d.exec(m, "rm /home/user/d/g")
    if victim == "both":
        d.get(f"/v1/machines/{m}/changes")  # refused where nobody reaches them
    fds = d.changes(m)
    assert len(fds) == 1 and os.listdir(fds[0]) == ["f"]
    with open(os.open("f", os.O_RDONLY, dir_fd=fds[0])) as f:
        assert f.read() == "new\n"
    os.close(fds[0])


def test_a_machine_that_vanished_is_ended_with_its_reason(fresh):
    d = fresh()
    m = d.machine()
    x = d.background(m, "sleep 1000")
    d.kill()
    kill_spawner(d)
    signal_all(d.host.guests(), signal.SIGKILL)
    d.start()
    ended = d.until(lambda: (s := d.get(f"/v1/machines/{m}"))["state"] == "ended" and s)
    assert "no daemon" in ended["reason"]
    assert d.get(f"/v1/machines/{m}/execs/{x}")["state"] == "unknown"
    assert d.get(f"/v1/machines/{m}/execs/{x}")["status"] == -1


def test_two_daemons_never_share_a_store(fresh):
    d = fresh()
    import subprocess
    from daemon import DAEMON
    second = subprocess.run([DAEMON, "--conf", str(d.conf)], env=d.env, capture_output=True, timeout=30)
    assert second.returncode == 1 and b"another daemon" in second.stderr, second
    assert d.get("/healthz") == b"ok\n"


# ---- a guest that is there and cannot be spoken to: only its absence is an end ----

def lives_unreached(d, m):
    shown = d.get(f"/v1/machines/{m}")
    return shown["state"] == "running" and shown.get("unreached")


def check_reached(d, m, x):
    """It was there all the time: nothing of its command is lost."""
    d.until(lambda: "unreached" not in d.get(f"/v1/machines/{m}"))
    assert d.wait(m, x)["status"] == 7
    assert d.get(f"/v1/machines/{m}/execs/{x}/output") == b"said\n"
    assert d.exec(m, "echo on")["stdout"] == "on\n"


@pytest.fixture
def orphan(fresh):
    """A machine with a command, and no daemon."""
    d = fresh()
    m = d.machine()
    x = d.background(m, "echo said; sleep 0.2; exit 7")
    d.kill()
    return d, m, x


def test_a_guest_that_says_nothing_holds_nobody_up(orphan):
    d, m, x = orphan
    with stopped(d.host.guests()):
        began = time.monotonic()
        d.start()
        assert time.monotonic() - began < 20 * PATIENCE
        assert "answer" in lives_unreached(d, m)
        assert d.get(f"/v1/machines/{m}/execs/{x}")["state"] in ("running", "starting")
    check_reached(d, m, x)


def test_a_guest_that_takes_no_connection_is_tried_again(orphan):
    d, m, x = orphan
    relay = Relay(d.run_dir, m)
    waiting = []
    with short(relay.path) as name:
        while True:
            s = socket.socket(socket.AF_UNIX)
            s.setblocking(False)
            waiting.append(s)
            try:
                s.connect(name)
            except BlockingIOError:
                break
    d.start()
    d.until(lambda: "does not accept connections" in lives_unreached(d, m))
    with pytest.raises(Refused) as e:
        d.exec(m, "true")
    assert e.value.code == "busy" and "is unreachable" in e.value.error["message"]
    with pytest.raises(Refused) as e:
        d.post(f"/v1/machines/{m}/pause")
    assert e.value.code == "busy"
    relay.back()
    for s in waiting:
        s.close()
    check_reached(d, m, x)


def test_a_guest_of_another_version_is_kept(orphan):
    d, m, x = orphan
    relay = Relay(d.run_dir, m)
    relay.speak_version(99)
    d.start()
    assert "version" in lives_unreached(d, m)
    d.until(lambda: relay.accepted > 1)
    assert lives_unreached(d, m)
    relay.back()
    check_reached(d, m, x)


def test_a_machine_that_is_not_reached_can_be_destroyed(orphan):
    d, m, x = orphan
    relay = Relay(d.run_dir, m)
    relay.speak_version(99)
    d.start()
    relay.back()
    d.delete(f"/v1/machines/{m}")
    assert d.get(f"/v1/machines/{m}/execs/{x}")["state"] == "unknown"


@pytest.mark.parametrize("kind", [TABLE, LOG_OPEN, ATTACH], ids=["table", "log", "attach"])
def test_a_connection_lost_while_adopting_loses_no_command(orphan, kind):
    d, m, x = orphan
    relay = Relay(d.run_dir, m)
    relay.cut_at(kind)
    d.start()
    assert relay.done.wait(30), "the daemon never asked"
    check_reached(d, m, x)


# ---- a guest that lies ----

@contextlib.contextmanager
def database(d):
    """Of a daemon that is not running."""
    with contextlib.closing(sqlite3.connect(d.home / "carrel.db")) as db, db:
        yield db


def is_whole(d, m, x):
    """Is all output of a command on disk? Both streams in its file have their end."""
    path = d.home / "log" / m / x
    page = path.read_bytes()[:104] if path.exists() else b""
    return len(page) == 104 and struct.unpack_from("<Q", page, 64)[0] and struct.unpack_from("<Q", page, 96)[0]


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "control"])
def test_a_finished_command_takes_no_other_output(fresh, kept):
    """A guest that tells of a finished command again, with another log. Its number is that of a command that
    runs. Where nothing was kept, a crash may have come between, and the guest's log is taken."""
    d = fresh()
    m = d.machine()
    done = d.exec(m, "echo as it was; exit 3")["exec"]["id"]
    d.until(lambda: is_whole(d, m, done))
    other = d.background(m, "echo forged; exec sleep 1000")
    d.until(lambda: d.get(f"/v1/machines/{m}/execs/{other}")["stdout_bytes"])
    d.kill()
    with database(d) as db:
        numbers = dict(db.execute("SELECT id, number FROM execs WHERE id IN (?, ?)", (done, other)))
        for x, number in (done, 1000), (other, numbers[done]), (done, numbers[other]):
            db.execute("UPDATE execs SET number = ? WHERE id = ?", (number, x))
    if not kept:
        os.unlink(d.home / "log" / m / done)
    d.start()
    d.until(lambda: "unreached" not in d.get(f"/v1/machines/{m}"))
    read = d.get(f"/v1/machines/{m}/execs/{done}/output")
    assert read == (b"as it was\n" if kept else b"forged\n")
    assert d.get(f"/v1/machines/{m}/execs/{done}")["status"] == 3


def test_a_guest_cannot_add_commands_for_ever(orphan):
    """What it tells of and nobody wrote down gets a row, as after a restore. It may tell of others each time."""
    d, m, x = orphan
    relay = Relay(d.run_dir, m)
    relay.tell_of(600, rounds=2)
    d.start()
    d.until(lambda: relay.told == 2 and "unreached" not in d.get(f"/v1/machines/{m}"))
    d.kill()
    with database(d) as db:
        rows = db.execute("SELECT count(*) FROM execs WHERE machine = ?", (m,)).fetchone()[0]
    relay.back()
    d.start()
    assert 600 < rows <= 1024 + 1
