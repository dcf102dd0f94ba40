"""Two boxes do not see each other, nor use up what the other needs: groups 12, 29, 37."""
import os
import re
import subprocess
import threading

import pytest

from lab import ROOTLESS, counts


@pytest.fixture
def pair(lab):
    return lab.keep().install(), lab.keep().install()


LISTEN = """
import socket, sys, time
s = socket.socket(socket.AF_UNIX); s.bind("\\0apart"); s.listen()
t = socket.socket(); t.bind(("127.0.0.1", 4711)); t.listen()
print("ready", flush=True); sys.stdin.read()
"""
CONNECT = """
import socket
for s, to in (socket.socket(socket.AF_UNIX), "\\0apart"), (socket.socket(), ("127.0.0.1", 4711)):
    try: s.connect(to); print("reached")
    except OSError as e: print(e.strerror)
"""


def test_sockets_of_another_box(pair):
    a, b = pair
    server = a.popen("python3", "-c", LISTEN, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    counts["attacks tried"] += 2
    assert b.sh(f"python3 -c '{CONNECT}'").split("\n")[:2] == ["Connection refused"] * 2
    assert a.sh(f"python3 -c '{CONNECT}'").split("\n")[:2] == ["reached"] * 2  # the control
    server.communicate()


def test_files_of_another_box(pair):
    a, b = pair
    places = ["/tmp", "/var/tmp", "/dev/shm", "/home/user", "/run", "/usr", "/etc"]
    for place in places:
        a.sh(f"echo secret > {place}/apart")
        counts["attacks tried"] += 1
        assert a.sh(f"cat {place}/apart") == "secret\n"
        assert b.exec("test", "-e", f"{place}/apart").returncode == 1, place


def test_shared_memory_and_queues_of_another_box(pair):
    a, b = pair
    a.sh("ipcmk -M 4096 -p 0666; ipcmk -Q -p 0666; ipcmk -S 1 -p 0666")
    counts["attacks tried"] += 3
    assert a.sh("ipcs | grep -c ^0x") == "3\n"
    assert b.exec("sh", "-c", "ipcs | grep -c ^0x").stdout == b"0\n"


WATCH = """
import ctypes, fcntl, os, sys
libc = ctypes.CDLL(None)
watch = libc.inotify_init1(os.O_NONBLOCK)
for path in sys.argv[1:]: assert libc.inotify_add_watch(watch, path.encode(), 0xfff) > 0, path
fcntl.flock(os.open("/dev/null", os.O_RDONLY), fcntl.LOCK_EX)
try: os.read(watch, 65536)
except BlockingIOError: pass
print("ready", flush=True); sys.stdin.read()
try: print("events", len(os.read(watch, 65536)) > 0)
except BlockingIOError: print("nothing")
"""
OPEN = """
import fcntl, os
for name in "null", "zero", "full", "random", "urandom": os.open("/dev/" + name, os.O_RDONLY)
try: fcntl.flock(os.open("/dev/null", os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB); print("locked")
except BlockingIOError: print("busy")
"""


@pytest.mark.skipif(ROOTLESS, reason="without root a box has the host's own nodes")
@pytest.mark.parametrize("who", ["another", "itself"])
def test_a_box_sees_only_its_own_use_of_devices(pair, who):
    a, b = pair
    nodes = ["/dev"] + [f"/dev/{n}" for n in ("null", "zero", "full", "random", "urandom")]
    watcher = a.popen("python3", "-c", WATCH, *nodes, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert watcher.stdout.readline() == b"ready\n"
    counts["attacks tried"] += len(nodes) + 1
    lock = (b if who == "another" else a).sh(f"python3 -c '{OPEN}'")
    seen, _ = watcher.communicate()
    # To watch and lock what it uses itself is the control.
    assert (lock, seen) == (("locked\n", b"nothing\n") if who == "another" else ("busy\n", b"events True\n"))


def test_changing_the_image_changes_only_ones_own(pair):
    a, b = pair
    before = b.sh("sha256sum /usr/bin/env /bin/sh /etc/passwd")
    a.sh("for f in /usr/bin/env /etc/passwd; do echo poison >> $f; done; rm /usr/bin/id")
    counts["attacks tried"] += 2
    assert b.sh("sha256sum /usr/bin/env /bin/sh /etc/passwd") == before
    assert b.exec("id").returncode == 0 and os.path.exists("/usr/bin/id")


def test_processes_of_another_box(pair):
    a, b = pair
    sleeper = a.popen("sleep", "1000", user="user")
    counts["attacks tried"] += 2
    b.exec("sh", "-c", "kill -9 -1", user="user")
    b.exec("sh", "-c", "kill -9 -1", user="root")
    assert a.sh("pgrep -c sleep") == "1\n" and sleeper.poll() is None
    sleeper.kill()
    sleeper.wait()


@pytest.mark.skipif(ROOTLESS, reason="one shared range (DECISIONS 7)")
def test_uid_ranges_differ(pair):
    ranges = [m.sh("cat /proc/self/uid_map").split() for m in pair]
    counts["attacks tried"] += 1
    assert ranges[0][0] == ranges[1][0] == "0" and ranges[0][1] != ranges[1][1]
    assert all(int(r[1]) >= 65536 and r[2] == "65536" for r in ranges)


def test_ids_cannot_be_guessed(lab):
    ids = [lab.keep().id for _ in range(4)]
    counts["attacks tried"] += 1
    assert all(re.fullmatch("m-[a-z2-7]{12}", i) for i in ids)
    assert len({i[2:8] for i in ids}) == 4 and len({i[8:] for i in ids}) == 4


# What the kernel counts for a user or for the whole host. The first box takes all it can get;
# the second, and the host itself, must not notice.
SHARED = ["inotify", "terminal", "signal", "aio"]


@pytest.mark.parametrize("what", SHARED)
def test_a_box_cannot_use_up_what_all_share(pair, what):
    a, b = pair
    if ROOTLESS and what in ("inotify", "signal"):
        pytest.skip("the boxes of an ordinary user count as that user's")
    alone = take(b, what, 200)
    greedy = [a.popen("/usr/local/bin/attack", "--bomb", what, user=user, stdin=subprocess.PIPE,
                      stdout=subprocess.PIPE) for user in ("root", "user", "1001", "1002")]
    for process in greedy:
        process.stdout.readline()
    counts["attacks tried"] += 1
    beside = take(b, what, 200)
    for process in greedy:
        process.communicate()
    assert beside == alone


def take(machine, what, most):
    done = machine.exec("/usr/local/bin/attack", "--bomb", what, most, user="user")
    return done.stdout.split()[:2]


def test_a_crowd_of_boxes_leaves_the_host_its_inotify(pair):
    if ROOTLESS:
        pytest.skip("the boxes of an ordinary user count as that user's")
    greedy = [m.popen("/usr/local/bin/attack", "--bomb", "inotify", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
              for m in pair]
    for process in greedy:
        process.stdout.readline()
    counts["attacks tried"] += 1
    done = subprocess.run([pair[0].lab.program.parent / "tests/security/attack", "--bomb", "inotify", "20"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    for process in greedy:
        process.communicate()
    assert done.stdout.split() == [b"inotify", b"20", b"0"]
