"""Boxes that wait ready: handed out with everything a plan asks for, used once, and never in the way."""
import array
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time

import pytest
from carrel import GUEST, ROOTLESS, SPAWNER, alive, signal_all, stop_daemon, stop_spawner
from guestlink import FD, NULL, Link, exec_payload
from patience import PATIENCE, clock

CREATE, DESTROY, CREATED, DONE = 1, 3, 64, 66
TEXTS, NUMBERS = {"id": 1, "image": 2, "hostname": 3}, {"mem": 4, "cpu": 5, "pids": 6, "disk": 7, "deadline": 8, "linger": 9}


class Spawner:
    """A client of our own, for what the command line does not ask for."""

    def __init__(self, run_dir):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(str(run_dir / "spawn.sock"))
        self.sock.settimeout(20 * PATIENCE)

    def ask(self, type_, **fields):
        data = struct.pack("<HH", 1, type_)
        for name, value in fields.items():
            body = value.encode() if name in TEXTS else struct.pack("<Q", value)
            data += struct.pack("<HH", TEXTS.get(name) or NUMBERS[name], len(body)) + body
        self.sock.send(data)
        answer, ancillary, _, _ = self.sock.recvmsg(65536, 1024)
        fds = array.array("i", b"".join(data for _, _, data in ancillary))
        return struct.unpack_from("<HH", answer)[1], list(fds)

    def create(self, **fields):
        fields = {"id": "m-" + "a" * 12, "image": "host", **fields}
        type_, fds = self.ask(CREATE, **fields)
        assert type_ == CREATED and len(fds) == 1
        return socket.socket(fileno=fds[0])

    def destroy(self, id="m-" + "a" * 12):
        assert self.ask(DESTROY, id=id)[0] == DONE


@pytest.fixture
def ready(carrel):
    """A carrel with ready boxes; ready() waits for them and tells which they are."""
    def wait():
        end = clock() + 20
        while (pool := carrel.status()["pool"])["ready"] < pool["ready_wanted"]:
            assert clock() < end, pool
            time.sleep(0.01)
        carrel.quiet()
        return carrel.host.ready()

    carrel.run("-q", "--", "true")
    carrel.ready = wait
    return carrel


def output(sock, *argv, id=1):
    """Runs a command over a creator's connection; what it wrote."""
    link = Link(sock)
    r, w = os.pipe()
    link.send("EXEC", exec_payload(argv, stdio=(NULL, FD, NULL)), id=id, tag=1, fds=[w])
    os.close(w)
    with os.fdopen(r, "rb") as f:
        return f.read().decode()


def guest_of(carrel, machine):
    return int(re.search(r"^pid=(\d+)", (carrel.run_dir / "boxes" / machine / "box").read_text(), re.M)[1])


def test_a_plain_box_is_a_ready_one(ready):
    waiting = set(ready.ready().values())
    assert waiting
    for _ in range(3):
        m = ready.keep()
        assert guest_of(ready, m) in waiting
        ready("rm", m)
        waiting = set(ready.ready().values())


def test_ready_boxes_are_nobodys_machines(ready):
    waiting = ready.ready()
    status = ready.status()
    assert status["boxes"] == status["alive"] == 0 and status["machines"] == []
    for directory in waiting:
        assert ready("rm", directory.name).returncode != 0
        assert ready("exec", directory.name, "--", "true").returncode == 125
    assert ready.ready() == waiting


def test_everything_of_the_plan_is_applied(ready):
    ready.ready()
    spawner = Spawner(ready.run_dir)
    limits = {} if "memory" in ready.status()["unenforced"] else {"pids": 77, "cpu": 1500}
    before = set(ready.host.ready().values())
    guest = spawner.create(hostname="desk-7", deadline=600000, **limits)
    assert ROOTLESS or guest_of(ready, "m-" + "a" * 12) in before
    out = output(guest, "sh", "-c", "hostname; cat /run/carrel/machine.json")
    assert out.split("\n", 1)[0] == "desk-7"
    told = json.loads(out.split("\n", 1)[1])
    assert told["id"] == "m-" + "a" * 12 and told["limits"]["lifetime_ms"] == 600000
    if limits:
        assert told["limits"]["processes"] == 77 and told["limits"]["cpu_milli"] == 1500
        bombed = output(guest_again(ready), "sh", "-c", "exec 2>&1; for i in $(seq 100); do sleep 2 & done", id=2)
        assert "fork" in bombed
    spawner.destroy()
    assert ready.sh("hostname").strip() == "carrel"  # the next one knows nothing of it


def guest_again(carrel):
    s = socket.socket(socket.AF_UNIX)
    s.connect(str(carrel.run_dir / "boxes" / ("m-" + "a" * 12) / "guest.sock"))
    s.settimeout(20 * PATIENCE)
    return s


def test_the_deadline_ends_it(ready):
    ready.ready()
    spawner, start = Spawner(ready.run_dir), time.monotonic()
    guest = spawner.create(deadline=300, linger=1)
    guest.settimeout(10 * PATIENCE)
    assert guest.recv(1) == b"" and time.monotonic() - start > 0.29


def test_one_that_lingers_outlives_its_creator_at_once(ready):
    for _ in range(10):
        ready.ready()
        spawner = Spawner(ready.run_dir)
        spawner.create(linger=1).close()
        spawner.sock.close()
        other = Spawner(ready.run_dir)
        assert output(guest_again(ready), "echo", "here") == "here\n"
        other.destroy()


def test_one_that_does_not_ends_with_its_creator(ready):
    ready.ready()
    spawner = Spawner(ready.run_dir)
    guest = spawner.create()
    pid = guest_of(ready, "m-" + "a" * 12)
    guest.close()
    end = clock() + 10
    while alive(pid):
        assert clock() < end
        time.sleep(0.01)


def test_what_a_ready_box_cannot_have_is_made_to_measure(ready, tmp_path):
    ready.ready()
    waiting = ready.host.ready()
    (tmp_path / "f").write_text("lent")
    done = ready.run("-q", "--dir", f"{tmp_path}:/w", "--", "cat", "/w/f")
    assert (done.returncode, done.stdout) == (0, b"lent"), done
    if "disk" not in ready.status()["unenforced"]:  # an image has its own tables in it
        assert 60000 < int(ready.sh("df -k --output=size / | tail -1", "--disk", "64M")) <= 65536
    assert ready.host.ready() == waiting


def test_a_ready_box_that_died_is_not_handed_out(ready):
    for pid in ready.ready().values():
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)
    for _ in range(4):
        assert ready.run("-q", "--", "echo", "ok").stdout == b"ok\n"


def test_killed_with_ready_boxes_nothing_is_left(ready):
    waiting = ready.ready()
    pid = ready.spawner_pid()
    stop_spawner(ready.run_dir, signal.SIGKILL)
    end = clock() + 10
    while any(alive(p) for p in waiting.values()):  # they end without the next one
        assert clock() < end
        time.sleep(0.01)
    assert ready.run("-q", "--", "echo", "ok").stdout == b"ok\n"
    assert ready.spawner_pid() != pid
    assert not {d.name for d in waiting} & set(os.listdir(ready.run_dir / "boxes"))
    assert not ready.host.left_of_boxes()


def test_a_stopped_ready_box_does_not_survive_the_next_spawner(ready):
    """One that cannot notice that we went."""
    waiting = ready.ready()
    for pid in waiting.values():
        os.kill(pid, signal.SIGSTOP)
    stop_spawner(ready.run_dir, signal.SIGKILL)
    assert ready.run("-q", "--", "echo", "ok").stdout == b"ok\n"
    signal_all(waiting.values() if ROOTLESS else (), signal.SIGCONT)  # where the next one has no power over them
    end = clock() + 10
    while any(alive(p) for p in waiting.values()):
        assert clock() < end
        time.sleep(0.01)


def test_none_when_none_are_wanted(fresh):
    fresh.run("-q", "--", "true")
    stop_daemon(fresh.run_dir)
    stop_spawner(fresh.run_dir)
    process = subprocess.Popen(["carrel-spawn", "--run", fresh.run_dir, "--home", fresh.home, "--guest", GUEST, "--ready-boxes", "0"],
                               executable=SPAWNER, stderr=subprocess.DEVNULL)
    end = clock() + 10
    while not (fresh.run_dir / "spawn.sock").exists():
        assert clock() < end
        time.sleep(0.01)
    assert fresh.run("-q", "--", "true").returncode == 0
    while fresh.status()["pool"]["berths"] < fresh.status()["pool"]["berths_wanted"]:
        assert clock() < end
        time.sleep(0.01)
    time.sleep(0.1)
    assert fresh.status()["pool"]["ready"] == 0 and not fresh.host.ready()
    stop_daemon(fresh.run_dir)
    process.terminate()
    assert process.wait(20 * PATIENCE) == 0
