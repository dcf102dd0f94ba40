"""Half-open connections of anybody else do not lock the owner out."""
import resource
import subprocess
import sys

import pytest

from daemon import ROOTLESS

NOBODY = 65534
MORE_THAN_ALL = 1300  # the server has 1,024

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
