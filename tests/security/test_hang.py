"""A guest that hangs ends no promise: timeouts and lifetimes are kept from outside; and what a box can do
to make it hang lasts a moment (group 26)."""
import os
import signal
import subprocess
import time

import pytest

from lab import counts, read
from patience import PATIENCE, clock

GRACE_S = 5  # the host gives the guest a moment of its own; and this host may be busy


def guest_pid(machine):
    return int(next(l for l in read(machine.socket.parent / "box").splitlines() if l.startswith("pid="))[4:])


def wait_until(true, seconds):
    end = clock() + seconds
    while not true() and clock() < end:
        time.sleep(0.02)
    return true()


def is_stopped(pid):
    return "\nState:\tT" in read(f"/proc/{pid}/status")


@pytest.fixture
def stopped(lab):
    """A machine whose pid 1 does nothing any more: lab.keep(), stopped from the host."""
    def make(*options):
        machine = lab.keep(*options)
        os.kill(guest_pid(machine), signal.SIGSTOP)
        assert wait_until(lambda: is_stopped(guest_pid(machine)), 5)
        return machine
    return make


def exec_briefly(machine, limit, said):
    """Into a file: a pipe would be handed in, and a guest that hangs keeps it open."""
    began = clock()
    with open(said, "w+b") as err:
        status = machine.exec("true", user="user", options=("--timeout", limit), timeout=30, stdout=subprocess.DEVNULL,
                              stderr=err).returncode
    assert clock() - began < 1 + GRACE_S
    return status, said.read_text()


def test_a_timeout_is_kept_without_the_guest(stopped, tmp_path):
    machine = stopped()
    counts["attacks tried"] += 1
    status, said = exec_briefly(machine, "500ms", tmp_path / "said")
    assert status == 124 and "did not answer" in said
    os.kill(guest_pid(machine), signal.SIGCONT)  # the control: the guest was all that was missing
    assert machine.exec("true", options=("--timeout", "20s"), timeout=30).returncode == 0


def test_a_run_ends_by_its_timeout_without_the_guest(lab):
    counts["attacks tried"] += 1
    client = lab.popen("run", "--timeout", f"{2 * PATIENCE}s", "--", "sh", "-c", "echo begun; sleep 1000",
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert client.stdout.readline() == b"begun\n"
    pid = int(next(l for l in read(next(lab.run_dir.glob("boxes/m-*/box"))).splitlines() if l.startswith("pid="))[4:])
    os.kill(pid, signal.SIGSTOP)
    assert client.wait(timeout=20 * PATIENCE) == 124
    client.stdout.close()
    client.stderr.close()
    assert lab.state.left_of_boxes(8) == []


@pytest.mark.parametrize("spawner", ["the same", "the next"])
def test_a_lifetime_is_kept_without_the_guest(make_lab, spawner):
    lab = make_lab()
    machine = lab.keep("--ttl", f"{2 * PATIENCE}s")
    counts["attacks tried"] += 1
    os.kill(guest_pid(machine), signal.SIGSTOP)
    if spawner == "the next":
        old = lab.status()["pid"]
        os.kill(old, signal.SIGKILL)
        assert wait_until(lambda: old not in lab.state.spawners(), 5)
        assert lab.run("--", "true").returncode == 0
    assert lab.state.left_of_boxes(2 + GRACE_S) == []


@pytest.mark.parametrize("user", ["root", "user"])
def test_a_command_stopped_before_it_begins_holds_up_nobody(lab, tmp_path, user):
    """Every process that appears gets SIGSTOP at once, also the guest's own, which it waits for."""
    machine = lab.keep().install()
    assert machine.exec("true", user="user", options=("--timeout", "20s")).returncode == 0  # the control
    stopper = machine.popen("/usr/local/bin/attack", "--bomb", "stop", user=user, stdout=subprocess.PIPE)
    assert stopper.stdout.readline() == b"stop\n"
    for _ in range(40):
        counts["attacks tried"] += 1
        status, said = exec_briefly(machine, "500ms", tmp_path / "said")
        assert status in (0, 124) and "did not answer" not in said, said  # the guest itself has seen to it
    assert machine.link().call("PING").type == "OK"
    began = clock()
    machine.rm()
    assert clock() - began < GRACE_S
    stopper.wait()
    hits = stopper.stdout.read().count(b"hit")
    stopper.stdout.close()
    # It did stop some before their exec. Without root it can only once they have become `user`.
    assert hits or user == "user"
