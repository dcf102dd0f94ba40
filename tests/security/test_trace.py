"""Processes of a box may debug each other, but none of ours: not the guest, its children before exec, nor its tools."""
import subprocess
import threading

import pytest

from guestlink import TOOL
from lab import counts
import patience

ENOUGH = 10

time_limit = patience.time_limit(120)


class Hunter:
    """Tries to read every process that appears with the name of the process `of`, pid 1 unless told."""

    def __init__(self, machine, user, of=1):
        self.client = machine.popen("/usr/local/bin/attack", "--bomb", "hunt", of, user=user, stdout=subprocess.PIPE)
        assert self.client.stdout.readline() == b"hunt\n"

    def first(self, count):
        counts["attacks tried"] += count
        return {self.client.stdout.readline() for _ in range(count)}

    def end(self):
        self.client.kill()
        self.client.wait()
        self.client.stdout.close()


def ids(machine, pid):
    """Real, effective and saved group of a process."""
    return machine.sh(f"sed -n 's/^Gid://p' /proc/{pid}/status").split()[:3]


def pid_of_tool(machine):
    """The one process besides pid 1 that has its name."""
    found = machine.sh("for d in /proc/[0-9]*; do read -r name < $d/comm || continue; [ \"$name\" != \"$(cat /proc/1/comm)\" ] || echo ${d#/proc/}; "
                       "done 2>/dev/null").split()
    return next((pid for pid in found if pid != "1"), None)


def test_commands_cannot_be_read_before_their_exec(lab):
    machine = lab.keep().install()
    hunter = Hunter(machine, "root")
    over = threading.Event()

    def start_commands():
        while not over.is_set():
            machine.exec("true", user="user")
    starter = threading.Thread(target=start_commands)
    starter.start()
    try:
        assert hunter.first(ENOUGH) == {b"refused\n"}
    finally:
        over.set()
        starter.join()
        hunter.end()


@pytest.mark.parametrize("user", ["root", "user"])
def test_control_children_of_a_program_of_the_box_can_be_read(lab, user):
    machine = lab.keep().install()
    breeder = machine.popen("/usr/local/bin/attack", "--bomb", "breed", user=user, stdout=subprocess.PIPE)
    hunter = Hunter(machine, user, int(breeder.stdout.readline()))
    try:
        assert hunter.first(ENOUGH) == {b"caught\n"}
    finally:
        hunter.end()
        breeder.kill()
        breeder.wait()
        breeder.stdout.close()


@pytest.mark.parametrize("uid, user", [(0, "root"), (1000, "user")])
def test_a_tool_of_the_guest_cannot_be_traced(lab, uid, user):
    """A tool runs as the user it works for, in a copy of the guest's memory. That of a command shows that tracing works."""
    machine = lab.keep().install()
    link = machine.link()
    link.exec(1, ["untar", "/tmp"], flags=TOOL, uid=uid, gid=uid)
    while not (tool := pid_of_tool(machine)):
        pass
    trace = ("import ctypes, os, subprocess, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"
             "def seize(pid): return 0 if libc.ptrace(0x4206, pid, None, None) == 0 else ctypes.get_errno()\n"
             "own = subprocess.Popen(['sleep', '1000'])\n"
             "print(seize(own.pid), seize(int(sys.argv[1])), seize(1), flush=True)\nown.kill()")
    counts["attacks tried"] += 2
    done = machine.exec("python3", "-c", trace, tool, user=user)
    assert done.stdout.split() == [b"0", b"1", b"1"], done
    # Not even one with all the same ids could: the saved group of ours is another.
    for pid in ("1", tool):
        real, effective, saved = ids(machine, pid)
        assert real == effective != saved
    assert len(set(ids(machine, "self"))) == 1
    link.sock.close()
