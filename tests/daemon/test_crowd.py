"""Half-open connections of anybody else do not lock the owner out."""
import http.client
import resource
import socket
import subprocess
import sys
import time

import pytest

from daemon import ROOTLESS

NOBODY = 65534
MORE_THAN_ALL = 1300  # the server has 1,024
TCP_PLACES = 512

# Connects as another user and says nothing, or half a head. Then it waits for its standard input to end.
CROWD = """
import os, socket, sys
os.chdir(sys.argv[1])
os.setegid({nobody}); os.seteuid({nobody})
held, turned_away = [], 0
for i in range({count}):
    s = socket.socket(socket.AF_UNIX) if sys.argv[2] == "unix" else socket.socket()
    try:
        s.connect("carrel.sock" if sys.argv[2] == "unix" else ("127.0.0.1", int(sys.argv[2])))
        s.sendall(b"GET / HT")
    except OSError:
        turned_away += 1
    held.append(s)
print(len(held), flush=True)
sys.stdin.read()
"""


def answers(d):
    """A kernel's queue that is still full of the crowd is asked again; what the daemon says counts at once."""
    try:
        return d.machines() == []
    except BlockingIOError:
        return False


@pytest.mark.skipif(ROOTLESS, reason="being somebody else needs root")
@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_half_open_connections_of_others_leave_the_owner_alone(fresh, way):
    d = fresh("--listen", "127.0.0.1:0")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * MORE_THAN_ALL:
        pytest.skip("this host allows too few descriptors")
    crowd = subprocess.Popen(
        [sys.executable, "-c", CROWD.format(nobody=NOBODY, count=MORE_THAN_ALL), str(d.run_dir), "unix" if way == "unix" else str(d.port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (2 * MORE_THAN_ALL, hard)))
    try:
        assert int(crowd.stdout.readline()) == MORE_THAN_ALL
        for _ in range(20):  # each on a connection of its own
            d.until(lambda: answers(d))
    finally:
        crowd.stdin.close()
        crowd.wait()


def is_open(s):
    s.setblocking(False)
    try:
        return s.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    finally:
        s.setblocking(True)


# What each connection of the crowd sends: a whole request whose answer it reads, and then a part of one.
WHOLE = b"GET /v1/machines HTTP/1.1\r\nHost: localhost\r\n\r\n"
HABITS = {"nothing": (b"", b""), "half": (b"", b"GET / HT"), "idle": (WHOLE, b""), "again": (WHOLE, b"GET / HT")}


@pytest.mark.parametrize("habit", HABITS)
def test_places_for_tcp_are_taken_from_connections_that_wait(fresh, habit):
    d = fresh("--listen", "127.0.0.1:0")
    whole, part = HABITS[habit]
    crowd, served = [], []
    try:
        for _ in range(TCP_PLACES):
            crowd.append(socket.create_connection(("127.0.0.1", d.port), timeout=60))
            crowd[-1].sendall(whole)
            if whole:
                assert crowd[-1].recv(4096).startswith(b"HTTP/1.1 401 ")
            crowd[-1].sendall(part)
        time.sleep(0.3)  # a connection keeps its place so long
        assert all(map(is_open, crowd))  # control: they have all places
        for _ in range(20):
            c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=60)
            served.append(c)
            c.request("GET", "/v1/machines")
            assert c.getresponse().status == 401
        kept = [is_open(s) for s in crowd]
        assert kept == [False] * 20 + [True] * (TCP_PLACES - 20)  # the oldest one first
        assert all(is_open(c.sock) for c in served)
    finally:
        for s in crowd + served:
            s.close()
