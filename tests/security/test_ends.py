"""A command ends when it is told to, with all it started; pid 1 does not: groups 24, 25, 26."""
import re
import subprocess
import time

import pytest

from lab import ROOTLESS, counts, read
from patience import PATIENCE, clock


@pytest.fixture
def box(lab):
    return lab.keep().install()


def living(machine):
    """Processes in the box besides pid 1 and the one that counts."""
    names = machine.exec("ps", "-eo", "comm=").stdout.split()
    return [n for n in names if n not in (b"carrel-guest", b"guest", b"ps")]


@pytest.mark.parametrize("user", ["root", "user"])
def test_no_signal_from_inside_ends_or_stops_the_guest(box, user):
    counts["attacks tried"] += 64
    box.exec("sh", "-c", "for n in $(seq 1 64); do kill -$n 1; done; true", user=user)
    assert box.exec("true").returncode == 0
    assert box.link().call("PING").type == "OK"


FLOOD = """
import os, signal, time
end, n = time.monotonic() + 1.5, 0
while time.monotonic() < end:
    for _ in range(1000):
        os.kill(1, signal.SIGALRM); os.kill(1, signal.SIGVTALRM); os.kill(1, signal.SIGCONT)
    n += 3000
print(n)
"""


def test_signals_to_the_guest_cost_nothing_outside_the_limits(box):
    """Its leader stands outside of them: what wakes it would be free for the box and not for the host."""
    counts["attacks tried"] += 1
    pid = re.search(r"^pid=(\d+)$", read(box.socket.parent / "box"), re.M)[1]
    before = leader_ticks(pid)
    sent = int(box.sh(f"python3 -c '{FLOOD}'"))
    assert sent > 30000
    assert leader_ticks(pid) - before <= 5


def leader_ticks(pid):
    return sum(map(int, read(f"/proc/{pid}/task/{pid}/stat").rsplit(")", 1)[1].split()[11:13]))


@pytest.mark.parametrize("signal", ["KILL", "STOP", "TERM", "ALRM", "HUP"])
def test_a_signal_to_all(box, signal):
    counts["attacks tried"] += 1
    box.popen("sh", "-c", f"kill -{signal} -1; sleep 1", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait()
    assert box.exec("true").returncode == 0


ESCAPES = {
    "a child that holds stdout": "sleep 1000 & sleep 1000",
    "a daemon": "setsid sh -c 'setsid sleep 1000 & sleep 1000' & sleep 1000",
    "one that ignores signals": "trap '' TERM INT HUP QUIT; sleep 1000 & wait",
    "stopped ones": "sleep 1000 & kill -STOP $!; sleep 1000",
    "an orphan of an orphan": "(setsid sh -c '(setsid sleep 1000 &) & exit') ; sleep 1000",
}


DAEMONS = {"a daemon", "an orphan of an orphan"}


@pytest.mark.parametrize("what", ESCAPES)
def test_a_timeout_ends_the_whole_tree(box, what):
    if what in DAEMONS and box.lab.status()["cgroup"] == "none":
        assert ROOTLESS, "root has cgroups"
        pytest.skip("without cgroups a daemon is ended with its box, not with its command")
    counts["attacks tried"] += 1
    began = clock()
    done = box.exec("sh", "-c", ESCAPES[what], options=("--timeout", "300ms"))
    assert done.returncode == 124 and clock() - began < 5
    end = clock() + 5
    while (left := living(box)) and clock() < end:
        time.sleep(0.05)
    assert left == []


@pytest.mark.parametrize("user", ["root", "user"])
def test_a_timeout_ends_what_forks_while_it_is_killed(box, user):
    counts["attacks tried"] += 1
    done = box.exec("/usr/local/bin/attack", "--bomb", "churn", "100", user=user, options=("--timeout", "500ms"))
    assert done.returncode == 124
    end = clock() + 10
    while (left := living(box)) and clock() < end:
        time.sleep(0.05)
    assert left == []


def test_a_box_of_churning_processes_can_be_removed(box):
    counts["attacks tried"] += 1
    process = box.popen("/usr/local/bin/attack", "--bomb", "churn", "100", stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    began = clock()
    box.rm()
    assert clock() - began < 5
    process.wait()


def test_the_lifetime_ends_a_box_that_fights_it(lab):
    """Everything inside is busy, pid 1 gets every signal, and nobody is connected."""
    counts["attacks tried"] += 1
    machine = lab.keep("--ttl", f"{2 * PATIENCE}s").install()
    fight = "while :; do for n in 14 18 19 20 1 15; do kill -$n 1; done; done"
    for _ in range(3):
        machine.popen("sh", "-c", fight, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).kill()
    assert lab.state.left_of_boxes(8) == []


def test_output_after_the_end_is_not_waited_for(lab):
    counts["attacks tried"] += 1
    began = clock()
    done = lab.run("--", "sh", "-c", "(sleep 1000; echo late) & echo early")
    assert done.stdout == b"early\n" and clock() - began < 5
