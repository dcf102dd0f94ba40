"""Using up one resource hits only the box that does it: groups 20 to 23, 28. Beside every bomb a second
box answers, and the spawner does not grow. How fast it answers is measured by bench/, where nobody else uses the host."""
import errno
import os
import pathlib
import re
import subprocess
import time

import pytest

from lab import ROOTLESS, counts, read
from patience import PATIENCE

MEM, PIDS, DISK = 64, 48, 16  # MiB, processes, MiB
LIMITS = {"memory": ("--mem", f"{MEM}M"), "processes": ("--pids", str(PIDS)), "disk": ("--disk", f"{DISK}M")}
GROWTH_KB = 2048


@pytest.fixture(scope="module")
def victim(shared_lab):
    machine = shared_lab.keep()
    yield machine
    machine.rm()


@pytest.fixture
def lab(shared_lab, victim):
    """As the common one, but the victim stays."""
    yield shared_lab
    for machine in shared_lab.machines():
        if machine["id"] != victim.id:
            shared_lab("rm", machine["id"])
    left = [x for x in shared_lab.state.left_of_boxes(10 if len(shared_lab.machines()) > 1 else 0.2)
            if victim.id not in x]
    assert len(left) <= 1, left  # the victim's pid 1


@pytest.fixture
def limits(lab):
    missing = lab.unenforced()

    def need(*names):
        if set(names) & set(missing):
            assert ROOTLESS, "root can enforce every limit"
            pytest.skip(f"rootless: {', '.join(names)} not enforced on this host, and said so")
    return need


def small(lab):
    """A small machine; what the host cannot limit is not asked for."""
    missing = lab.unenforced()
    return lab.keep(*(word for name, words in LIMITS.items() if name not in missing for word in words)).install()


class Beside:
    """What a bomb does to others: a machine beside it answers meanwhile and afterwards."""

    def __init__(self, lab, victim):
        self.lab, self.victim, self.kb = lab, victim, lab.spawner_kb()

    def answers(self):
        for _ in range(15):
            assert self.victim.exec("true", user="user").returncode == 0
        assert self.lab.spawner_kb() <= self.kb + GROWTH_KB


def explode(machine, what, most=0, user="user"):
    """Runs a bomb and leaves it there; (how many, errno) or None when it was killed."""
    process = machine.popen("/usr/local/bin/attack", "--bomb", what, most, user=user, options=("--timeout", f"{60 * PATIENCE}s"),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    words = process.stdout.readline().split()
    return process, (int(words[1]), int(words[2])) if words else None


def defuse(process):
    """Ends it. What it left behind may hold its output open, so that is not waited for."""
    process.stdin.close()
    try:
        process.wait(timeout=20 * PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
    return process.returncode


# what -> (limits it needs, errnos that end it, most it may get: None where only memory ends it)
BOMBS = {
    "fork": (["processes"], {errno.EAGAIN}, PIDS),
    "zombie": (["processes"], {errno.EAGAIN}, PIDS),
    "daemon": (["processes"], {errno.EAGAIN}, PIDS),
    "disk": (["disk"], {errno.ENOSPC}, DISK),
    "inode": (["disk"], {errno.ENOSPC}, 4096),
    "xattr": (["disk"], {errno.ENOSPC, errno.EOPNOTSUPP, errno.E2BIG, errno.ENOMEM}, 4096),
    "depth": (["disk"], {errno.ENOSPC, errno.ENAMETOOLONG}, 4200),
    "shm": (["memory"], {errno.ENOSPC}, MEM),
    "memory": (["memory"], set(), MEM),
    "memfd": (["memory"], {errno.ENOMEM}, MEM),
    "segment": (["memory"], {errno.ENOMEM, errno.ENOSPC}, MEM),
    "pipe": (["memory"], {errno.EMFILE, errno.ENFILE, errno.ENOMEM}, None),
    "socket": (["memory"], {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}, None),
    "tcp": (["memory"], {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}, None),
    "queue": (["memory"], {errno.ENOSPC, errno.ENOMEM}, None),
    "file": (["memory"], {errno.EMFILE}, 1 << 16),
    "descriptor": ([], {errno.EMFILE}, 1 << 16),
    "pagetable": (["memory"], {errno.ENOMEM}, None),
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_hits_only_its_own_box(lab, victim, limits, what):
    needs, ends, most = BOMBS[what]
    limits(*needs)
    machine = small(lab)
    beside = Beside(lab, victim)
    process, got = explode(machine, what)
    counts["attacks tried"] += 1
    beside.answers()
    status = defuse(process)
    if got is None:
        assert "memory" in needs and status == 137, (what, status)
    else:
        assert got[1] in ends, (what, os.strerror(got[1]))
        assert most is None or got[0] <= most, (what, got)
    machine.rm()
    beside.answers()


# The same bomb with that one limit left out gets past it.
@pytest.mark.skipif(ROOTLESS, reason="the run as root has the controls")
@pytest.mark.parametrize("what, defence, most", [
    ("fork", "process limit", 2 * PIDS), ("zombie", "process limit", 2 * PIDS), ("memory", "memory limit", 2 * MEM),
    ("memfd", "memory limit", 2 * MEM), ("disk", "disk limit", 2 * DISK), ("inode", "disk limit", 6000)])
def test_without_the_limit_it_gets_past(make_lab, what, defence, most):
    lab = make_lab(weak=defence)
    lab.run("--", "true")
    machine = small(lab)
    process, got = explode(machine, what, most)
    defuse(process)
    counts["with a control that got through"] += 1
    assert got == (most, 0)


def group_of(machine, controller):
    """The directory of a machine's limits, on either kind of cgroup."""
    number = re.search(r"^cgroup=(\d+)$", read(machine.socket.parent / "box"), re.M)[1]
    tail = f"/{machine.lab.state.group}/b{number}"
    v2 = machine.lab.status()["cgroup"] == "v2"
    found = [pathlib.Path(d) for d, _, _ in os.walk("/sys/fs/cgroup") if d.endswith(tail) and (v2 or f"/{controller}/" in d)]
    return found[0] / "work" if v2 else found[0]


def value(group, name):
    text = read(group / name).strip()
    return int(text) if text else None


@pytest.mark.parametrize("mem, megabytes", [(None, 2048), ("64M", 64), ("3G", 3072)])
def test_swap_and_tcp_are_in_the_memory_limit(lab, victim, limits, mem, megabytes):
    limits("memory")
    machine = lab.keep(*(("--mem", mem) if mem else ()))
    group, most = group_of(machine, "memory"), megabytes << 20
    counts["attacks tried"] += 1
    if lab.status()["cgroup"] == "v2":
        assert value(group, "memory.max") == most and value(group, "memory.swap.max") in (0, None)
    else:
        assert value(group, "memory.limit_in_bytes") == most
        assert value(group, "memory.memsw.limit_in_bytes") in (most, None)
        assert value(group, "memory.kmem.tcp.limit_in_bytes") in (most // 8, None)
    machine.rm()


def tcp_bytes():
    """What the host's kernel holds for TCP."""
    return int(re.search(r"^TCP: .* mem (\d+)", read("/proc/net/sockstat"), re.M)[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("weak", [None, "memory limit"])
def test_tcp_buffers_are_limited(make_lab, lab, limits, weak):
    """On v2 they count as memory. On v1 they have a limit of their own, an eighth of that of memory; every
    connection may go a little beyond it."""
    limits("memory")
    if lab.status()["cgroup"] != "v1" or ROOTLESS:
        pytest.skip("cgroup v2 counts them as memory, and the bomb above shows it")
    own = make_lab(weak=weak)
    own.run("--", "true")
    machine = small(own)
    before = tcp_bytes()
    process, _ = explode(machine, "tcp", 64)
    held = tcp_bytes() - before
    defuse(process)
    counts["with a control that got through" if weak else "attacks tried"] += 1
    assert held > MEM << 20 if weak else held < (MEM << 20) // 2, held


def test_a_box_full_of_tmpfs_can_still_be_ended(lab, victim, limits):
    """/dev/shm and the disk both count as memory: together they fill it, and no process is to blame."""
    limits("memory", "disk")
    machine = lab.keep("--mem", "32M", "--disk", "16M").install()
    beside = Beside(lab, victim)
    counts["attacks tried"] += 1
    for what in ("disk", "shm", "memfd"):
        process, _ = explode(machine, what)
        defuse(process)
    beside.answers()
    machine.exec("true", timeout=60 * PATIENCE)  # it may fail for want of memory; it may not hang
    machine.rm()
    beside.answers()


@pytest.mark.parametrize("how", ["pipe", "frames"])
def test_output_that_nobody_reads(lab, victim, how):
    machine = lab.keep().install()
    beside = Beside(lab, victim)
    counts["attacks tried"] += 1
    before = memory_kb(machine)
    if how == "pipe":
        process = machine.popen("/usr/local/bin/attack", "--bomb", "output", stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    else:
        link = machine.link()
        for n in range(1001, 1009):  # not the daemon's numbers
            link.exec(n, ["/usr/local/bin/attack", "--bomb", "output"])
    time.sleep(1)
    beside.answers()
    # Eight commands have windows of 256 KiB; nothing else may be kept.
    assert memory_kb(machine) < before + 8 * 2 * 256 + 2048
    assert machine.exec("true").returncode == 0
    if how == "pipe":
        process.stdout.close()
        process.kill()
        process.wait()
    machine.rm()
    beside.answers()


def memory_kb(machine):
    for line in (machine.socket.parent / "box").read_text().splitlines():
        if line.startswith("pid="):
            with open(f"/proc/{line[4:]}/status") as f:
                return int(f.read().split("VmRSS:")[1].split()[0])


def test_spinning_processes_get_their_share_and_no_more(lab, limits):
    limits("cpu")
    counts["attacks tried"] += 1
    used = {}
    for cpus in ("0.05", None):  # so little that even on a busy host there is more to take
        options = ("--cpus", cpus) if cpus else ()
        machine = lab.keep(*options).install()
        began, before = time.monotonic(), cpu_seconds(machine)
        machine.exec("/usr/local/bin/attack", "--bomb", "spin", "2", options=("--timeout", "10s"))
        wall = time.monotonic() - began
        end = time.monotonic() + 5
        while machine.exec("pgrep", "attack").returncode == 0 and time.monotonic() < end:
            time.sleep(0.05)  # counted when the last of them is reaped
        used[cpus] = (cpu_seconds(machine) - before) / wall
        machine.rm()
    assert used["0.05"] < 0.1, used  # a busy host only makes it less
    assert used[None] > 1.5 * used["0.05"], used  # the control: without the limit it takes what there is


def cpu_seconds(machine):
    """Of all that ended below pid 1."""
    for line in (machine.socket.parent / "box").read_text().splitlines():
        if line.startswith("pid="):
            with open(f"/proc/{line[4:]}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
