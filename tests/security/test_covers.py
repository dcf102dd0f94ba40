"""The files over /proc that show limits and use: nobody in a box changes them, or keeps others from reading them."""
import os
import re
import signal
import subprocess
import time

import pytest

from lab import counts, read
from patience import PATIENCE, clock

NAMES = ("stat", "cpuinfo", "loadavg", "uptime", "meminfo")

CHANGES = """
import ctypes, errno, fcntl, os, sys
libc = ctypes.CDLL(None, use_errno=True)
path = sys.argv[1].encode()
def call(f, *args):
    if f(*args) != 0:
        raise OSError(ctypes.get_errno(), "")
def lease(kind):
    fd = os.open(path, os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, kind)
    os.close(fd)
tries = {
    "read lease": lambda: lease(fcntl.F_RDLCK),
    "write lease": lambda: lease(fcntl.F_WRLCK),
    "mode": lambda: os.chmod(path, 0o666),
    "owner": lambda: os.chown(path, 1000, 1000),
    "times": lambda: os.utime(path, (1, 1)),
    "write": lambda: os.close(os.open(path, os.O_RDWR)),
    "truncate": lambda: os.truncate(path, 0),
    "unmount": lambda: call(libc.umount2, path, 2),
    "mount": lambda: call(libc.mount, b"/etc/passwd", path, None, 4096, None),
    "move": lambda: call(libc.mount, path, b"/mnt", None, 8192, None),
    "remount": lambda: call(libc.mount, None, path, None, 4096 | 32, None),
    "unshare": lambda: call(libc.unshare, 0x10020000),
    "rename": lambda: os.rename(path, path + b".away"),
    "unlink": lambda: os.unlink(path + (b".away" if os.path.exists(path + b".away") else b"")),
}
for name, attempt in tries.items():
    try:
        attempt()
        print(name, "done")
    except OSError as e:
        print(name, errno.errorcode[e.errno])
"""
OF_MOUNTS = {"unmount", "mount", "move", "remount", "unshare"}


def outcomes(machine, path):
    done = machine.exec("python3", "-c", CHANGES, path)
    assert done.returncode == 0, done
    return dict(re.findall(r"^(.+) (\S+)$", done.stdout.decode(), re.M))


def covered(machine):
    """Those of NAMES that are covered: without a limit of memory, meminfo is the host's."""
    mounts = machine.sh("cat /proc/self/mounts")
    found = [name for name in NAMES if f" /proc/{name} tmpfs ro," in mounts]
    assert found[:4] == list(NAMES[:4]), mounts
    return found


def test_nobody_changes_or_removes_a_cover(lab):
    machine = lab.keep()
    before = machine.sh("grep -c '^cpu[0-9]' /proc/stat")
    for name in covered(machine):
        found = outcomes(machine, f"/proc/{name}")
        counts["attacks tried"] += len(found)
        assert "done" not in found.values(), (name, found)
        assert machine.sh("grep -c '^cpu[0-9]' /proc/stat") == before
    # The control: on a file of its own, root of the box may do all that needs no mount rights.
    machine.sh("touch /dev/shm/own")
    own = outcomes(machine, "/dev/shm/own")
    assert {what for what, how in own.items() if how == "done"} == own.keys() - OF_MOUNTS, own


def guest_pid(machine):
    return int(next(line for line in read(machine.socket.parent / "box").splitlines() if line.startswith("pid="))[4:])


def reads(machine, **kw):
    """Reads all covers in a process of its own."""
    done = machine.exec("cat", *(f"/proc/{name}" for name in NAMES), timeout=20, **kw)
    assert done.returncode == 0 and b"MemTotal" in done.stdout, done


def test_processes_that_hold_covers_open_keep_nobody_from_reading(lab):
    machine = lab.keep()
    holders = [machine.popen("sh", "-c", f"exec 3</proc/{name}; exec 4</proc/{name}; flock -x 3; {how}", stdout=subprocess.DEVNULL)
               for name in covered(machine) for how in ("sleep 600", "kill -STOP $$")]
    counts["attacks tried"] += len(holders)
    for _ in range(5):
        reads(machine)
        time.sleep(0.3)
    machine.rm()
    for holder in holders:
        holder.wait(20 * PATIENCE)


def test_signals_to_pid_1_keep_nobody_from_reading(lab):
    machine = lab.keep()
    counts["attacks tried"] += 1
    # Bounded by count: on one CPU the loop takes the time of the reader too.
    flood = machine.popen("python3", "-c", "import os, signal\nfor i in range(200000): os.kill(1, signal.SIGIO)")
    reads(machine)
    assert flood.wait(60 * PATIENCE) == 0
    reads(machine)


def test_the_guest_never_waits_for_itself(lab):
    machine = lab.keep()
    began = clock()
    counts["attacks tried"] += 3
    # It looks users up itself, in files that a box may replace.
    machine.sh("cp /etc/passwd /tmp/p; ln -sf /proc/stat /etc/passwd; ln -sf /proc/stat /etc/group")
    for _ in range(2):
        time.sleep(1)
        assert machine.exec("true", user="postgres").returncode != 0
    machine.sh("cp --remove-destination /tmp/p /etc/passwd")
    # It executes programs, and reads files for the host.
    for _ in range(2):
        time.sleep(1)
        assert machine.exec("/proc/loadavg").returncode in (125, 126)
        copied = machine.lab("cp", f"{machine.id}:/proc/cpuinfo", "-")
        assert copied.returncode != 0 and b"ermission denied" in copied.stderr, copied
    reads(machine)
    assert clock() - began < 40  # a lease that nobody gives up ends after 45 s


@pytest.fixture
def hung(lab):
    """A machine in which a command reads covers again and again; and its pid 1 is stopped from the host."""
    machine = lab.keep()
    reader = machine.popen("sh", "-c", "while :; do cat /proc/loadavg >/dev/null; echo x; sleep 3; done", stdout=subprocess.PIPE)
    assert reader.stdout.readline() == b"x\n"
    pid = guest_pid(machine)
    time.sleep(1.5)  # then it has its leases again
    os.kill(pid, signal.SIGSTOP)
    yield machine, pid, reader
    os.kill(pid, signal.SIGCONT)
    reader.kill()
    reader.wait()


def readers_of(pid):
    """Host pids of `cat` in the box, with their states."""
    space = os.readlink(f"/proc/{pid}/ns/pid")
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = read(f"/proc/{entry}/stat")
            if "(cat)" in text and os.readlink(f"/proc/{entry}/ns/pid") == space:
                found[int(entry)] = text.rsplit(") ", 1)[1][0]
        except OSError:
            pass
    return found


def wait_for(true, seconds=20):
    end = clock() + seconds
    while not (value := true()):
        assert clock() < end, "it did not come true"
        time.sleep(0.02)
    return value


def test_a_reader_of_a_hung_guest_can_be_killed_and_frozen(hung):
    machine, pid, _ = hung
    counts["attacks tried"] += 2

    def waiting():
        """A reader that sleeps, and sleeps still."""
        first = readers_of(pid)
        time.sleep(0.3)
        return [p for p, state in readers_of(pid).items() if state == "S" and p in first]

    reader = wait_for(waiting)[0]
    os.kill(reader, signal.SIGKILL)
    wait_for(lambda: reader not in readers_of(pid))
    wait_for(waiting)
    assert machine.lab("pause", machine.id).returncode == 0
    assert machine.lab("resume", machine.id).returncode == 0
    os.kill(pid, signal.SIGCONT)  # the control: the guest was all that was missing
    reads(machine)
