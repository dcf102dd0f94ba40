"""Fault injection over layers and database: the calls of a path are counted, then its N-th call is the last one of
whoever makes it, or fails. A few evenly spread N here, every N in a soak. Afterwards the machine goes on, and every
step that was acknowledged can be returned to with the tree that it had."""
import collections
import contextlib
import http.client
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import patience
import pytest
from carrel import ROOTLESS, SOAK, parent_of, sample, spawner_pids
from daemon import Daemon, Refused
from patience import clock
from test_steps import Box

pytestmark = [
    pytest.mark.skipif(ROOTLESS, reason="a spawner that was restarted cannot enter the boxes of the one before"),
    pytest.mark.skipif(not shutil.which("strace"), reason="no strace to make a system call fail"),
]
time_limit = patience.time_limit(3600 if SOAK else 120)

TREE = "find . -type f | sort | xargs sha256sum | sha256sum"
MOUNTS = "%file,write,pwrite64,fsconfig,fsmount,fsopen,move_mount,open_tree,mount_setattr,setns,umount2"
FILES = "%file,write,pwrite64,copy_file_range,sendfile,fsync,fdatasync,syncfs,ftruncate,fchmod,fchown,setxattr,fsetxattr"
STORE = "openat,pread64,pwrite64,write,ftruncate"  # no fcntl: no kernel refuses to unlock, and SQLite would wait for itself
UNSTEADY = (Refused, http.client.HTTPException, OSError)  # a daemon that dies answers nothing


@pytest.fixture(scope="module")
def d():
    made = Daemon(conf="[steps]\ndurable_after = 1s\n")
    yield made
    made.stop()


# ---- who is made to fail ----

def spawner(d):
    d.get("/v1/machines")
    return spawner_pids(d.run_dir)[0]


def undertaker(d):
    """The spawner's process for what takes long; it starts with the first such work."""
    main = spawner(d)
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and parent_of(entry) == main and pathlib.Path("/proc", entry, "comm").read_text() == "carrel-bury\n":
                return int(entry)
    return None


def the_daemon(d):
    return d.process.pid


# ---- what is done meanwhile ----

class Subject:
    """A machine, and the ledger of what was acknowledged: the tree of each step."""

    def __init__(self, d):
        self.d, self.box, self.ledger, self.count = d, Box(d, steps="manual"), {}, 0
        self.change()
        self.base = self.step()

    def change(self):
        self.count += 1
        n = self.count
        self.box.sh(f"mkdir -p d{n % 3}; echo {n} >d{n % 3}/f{n}; rm -f d{(n + 1) % 3}/f*; echo {n} >now")

    def step(self):
        number = self.box.snap()["number"]
        self.ledger[number] = self.box.sh(TREE)
        return number

    def back(self):
        self.box.rewind(self.base)

    def twins(self):
        for fork in self.box.fork(count=1, step=str(self.base)):
            assert fork.sh(TREE) == self.ledger[self.base]
            self.d.delete(fork.url)

    def pile(self):
        """So many steps that layers are merged, in the background."""
        for _ in range(4):
            self.change()
            self.step()
        time.sleep(0.25)

    def save(self):
        """A step, and time enough that it is made durable."""
        self.step()
        time.sleep(1.6)

    def lives_on(self):
        """A daemon that was killed is started again, as whoever comes next would."""
        try:
            self.d.get("/v1/machines")
        except OSError:
            self.d.process.wait(10)
            self.d.start()

    def changed(self):
        """A disk that was full is full until it was looked at again; one that failed ended the daemon."""
        try:
            self.change()
            return True
        except Refused as e:
            assert e.code == "limit" and "full" in e.error["message"], e
            return False

    def goes_on(self):
        self.lives_on()
        self.d.until(self.changed)
        assert self.box.sh("cat now; ls /proc/self/fd /dev/pts >/dev/null && echo there") == f"{self.count}\nthere\n"
        self.step()

    def proves(self):
        r = self.d.get("/v1/store/check")
        assert r["whole"] and r["unchecked"] == 0, r
        there = {s["number"] for s in self.box.steps(limit=500)}
        kept = [n for n in self.ledger if n in there]  # old ones may have made room
        assert len(kept) > 1
        for number in kept if SOAK else kept[:: 1 + len(kept) // 5]:
            self.d.until(lambda n=number: self.returned(n))
            assert self.box.sh(TREE) == self.ledger[number], number

    def returned(self, number):
        """Where merges kept failing there may be too many layers: then they are merged now."""
        try:
            return self.box.rewind(number)
        except Refused as e:
            assert "being merged" in e.error.get("remedy", ""), e
            return None


# ---- the faults ----

def traced(pid, trace):
    """Or killed already, by a call that it made for somebody else: then the tracer has gone too."""
    try:
        with open(f"/proc/{pid}/status") as f:
            return f"TracerPid:\t{trace.pid}\n" in f.read() or trace.poll() is not None
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextlib.contextmanager
def strace(d, pid, *options):
    trace = subprocess.Popen(["strace", "-qq", "-p", str(pid), *options], stderr=subprocess.DEVNULL)
    try:
        d.until(lambda: traced(pid, trace), 10)
        yield
    finally:
        trace.send_signal(2)
        try:
            trace.wait(2)
        except subprocess.TimeoutExpired:  # it may wait for ever for a thread that its own signal has killed
            trace.kill()
            trace.wait()


def calls_of(d, who, calls, act):
    """How many of these calls the path has, in that of its threads and children that makes the most: each is counted by itself."""
    record = d.dir / "calls"
    with strace(d, who(d), "-f", "-o", str(record), "-e", "trace=" + calls):
        act()
    lines = record.read_text(errors="replace").splitlines()
    made = collections.Counter(line.split()[0] for line in lines if "(" in line)
    return max(made.values())


PATHS = {  # who, what, which of its calls fail, samples of a kill and of each error
    "spawner-step": (spawner, Subject.step, MOUNTS, 10, 4),
    "spawner-rewind": (spawner, Subject.back, MOUNTS, 4, 2),
    "spawner-fork": (spawner, Subject.twins, MOUNTS, 4, 2),
    "undertaker-merge": (undertaker, Subject.pile, FILES, 4, 2),
    "undertaker-durable": (undertaker, Subject.save, FILES, 2, 1),
    "daemon-step": (the_daemon, Subject.step, STORE, 5, 3),
    "daemon-rewind": (the_daemon, Subject.back, STORE, 3, 1),
}


@pytest.mark.parametrize("fault", ["KILL", "ENOSPC", "EIO", "EMFILE"])
@pytest.mark.parametrize("path", PATHS)
def test_at_every_call_of_a_path(d, path, fault):
    who, act, failing, kills, errors = PATHS[path]
    kill = fault == "KILL"
    calls = "all" if kill else failing
    subject = Subject(d)
    subject.pile()  # so that there is an undertaker
    subject.change()
    count = calls_of(d, who, calls, lambda: act(subject))
    met = not kill
    for n in sample(count, kills if kill else errors):
        subject.change()
        begun, pid = clock(), who(d)
        what = "signal=KILL" if kill else f"error={fault}"
        with contextlib.suppress(*UNSTEADY), strace(d, pid, "-f", "-o", "/dev/null", "-e", f"inject={calls}:{what}:when={n}"):
            act(subject)
        subject.goes_on()
        met |= who is undertaker or who(d) != pid  # the former's children do the work
        assert clock() - begun < 25, n
    assert met, "no kill fell into the path"
    subject.proves()
    d.clear()


def usr_attached(d, subject):
    """Which of the spawner's move_mount calls of a step attaches /usr to the new root."""
    record = d.dir / "calls"
    with strace(d, spawner(d), "-o", str(record), "-e", "trace=move_mount,openat2"):
        subject.step()
    lines = record.read_text(errors="replace").splitlines()
    after = max(i for i, line in enumerate(lines) if '"usr"' in line and i + 1 < len(lines) and "move_mount" in lines[i + 1])
    return sum("move_mount" in line for line in lines[:after + 2])


def test_a_root_without_its_usr_is_not_gone_over_to(d):
    """The spawner is killed after the new root is attached, and before its /usr is."""
    subject = Subject(d)
    subject.change()
    n = usr_attached(d, subject)
    subject.change()
    with contextlib.suppress(*UNSTEADY), strace(d, spawner(d), "-o", "/dev/null", "-e", f"inject=move_mount:signal=KILL:when={n}"):
        subject.step()
    subject.goes_on()
    assert subject.box.sh("ls /usr/bin/env") == "/usr/bin/env\n"
    subject.proves()
    d.clear()


# The spawner's calls of a step from the first that moves the upper of /usr: U and W to the new layer, another U, /usr to
# the new root, and the old one is left.
MOVES_USR = [("renameat", 1), ("renameat", 2), ("mkdirat", 6), ("utimensat", 3), ("move_mount", 2), ("move_mount", 3),
             ("umount2", 1), ("pwrite64", 2)]


# In the mount namespace of a box, outside its root: prints how many roots are attached.
ROOTS = """
import ctypes, os, sys
proc = os.open("/proc", os.O_RDONLY)
space = os.open(f"/proc/{sys.argv[1]}/ns/mnt", os.O_RDONLY)
assert ctypes.CDLL(None).setns(space, 0x20000) == 0
with open(os.open("self/mountinfo", os.O_RDONLY, dir_fd=proc)) as f:
    print(sum(line.split()[4] in ("/a", "/b") for line in f))
"""


def roots(d, box):
    pid = re.search(r"^pid=(\d+)$", (d.run_dir / "boxes" / box.id / "box").read_text(), re.M)[1]
    return int(subprocess.run([sys.executable, "-c", ROOTS, pid], stdout=subprocess.PIPE, check=True).stdout)


def test_usr_is_whole_after_a_spawner_was_killed_while_it_moved(d):
    """An upper that is in the wrong layer would be deleted with it; one without its work directory takes no files of the image."""
    subject = Subject(d)
    subject.box.sh("cp /usr/bin/env /usr/local/old", user="root")
    subject.step()
    for k, (call, n) in enumerate(MOVES_USR):
        for _ in range(10):  # /usr does not move in the first step of a spawner, nor when its layers were merged
            subject.change()
            subject.step()
            subject.change()
            pid = spawner(d)
            with contextlib.suppress(*UNSTEADY), strace(d, pid, "-o", "/dev/null", "-e", f"inject={call}:signal=KILL:when={n}"):
                subject.step()
            if pid not in spawner_pids(d.run_dir):
                break
        assert pid not in spawner_pids(d.run_dir), (call, n)
        subject.goes_on()
        done = subject.box.sh(f"echo {k} >/usr/local/k{k} && chmod 7{k % 8}5 /usr/local/old && ls /usr/local/k* | wc -l", user="root")
        assert done == f"{k + 1}\n", (call, n)
        subject.step()
        d.until(lambda: roots(d, subject.box) == 1)  # the one before is detached after the answer
    subject.proves()
    subject.box.rewind(subject.base)
    assert subject.box.sh("ls -d /usr/local/k* /usr/local/old 2>/dev/null | wc -l") == "0\n"
    d.clear()


def test_nobody_reads_while_a_root_is_on_its_way(d, tmp_path):
    """Lent directories are moved to the new root: for a moment they are in neither, here for a longer one."""
    (tmp_path / "f").write_text("there")
    fd = os.open(tmp_path, os.O_RDONLY)
    m = d.lend(fd, dirs=[{"path": str(tmp_path), "at": "/home/user/d", "mode": "cow"}])
    os.close(fd)
    d.exec(m, "echo 1 >/home/user/one")
    with strace(d, spawner(d), "-o", "/dev/null", "-e", "trace=move_mount", "-e", "inject=move_mount:delay_exit=20000"):
        d.exec(m, "echo 2 >/home/user/two")
        for _ in range(30):
            assert d.request("GET", f"/v1/machines/{m}/files", raw=True, path="/home/user/d/f") == b"there"
            time.sleep(0.005)
    steps = d.get(f"/v1/machines/{m}/steps")["steps"]
    assert len(steps) == 2 and all(s["restorable"] for s in steps)
    d.clear()


def test_a_merge_that_failed_is_tried_again(d):
    """Or steps would end where stacks do, at 64 layers."""
    subject = Subject(d)
    subject.pile()
    log = d.dir / "log"
    before = log.read_text().count("merge layers:")
    with strace(d, undertaker(d), "-f", "-o", "/dev/null", "-e", "inject=linkat,mkdirat:error=EIO"):
        subject.pile()
        subject.pile()
    assert log.read_text().count("merge layers:") > before
    for n in range(66):
        subject.box.sh(f"echo {n} >n")
        subject.box.snap()
    subject.proves()
    d.clear()


def test_a_full_disk_during_a_step(d):
    """The machine's own disk has no room left at all: nothing is lost, and once there is room steps go on."""
    b = Box(d, steps="manual", limits={"disk": "16M"})
    b.sh("echo first >first")
    first = b.snap()["number"]
    tree = b.sh(TREE)
    b.sh("head -c 64M /dev/zero >big; for i in $(seq 9999); do : >x$i || break; done 2>/dev/null; true")
    with pytest.raises(Refused) as e:
        b.snap()
    assert e.value.code == "limit" and b.id in e.value.error["message"] and "--disk" in e.value.error["remedy"], e.value
    assert b.sh("cat first; head -c 3 big | wc -c") == "first\n3\n"
    b.sh("rm -f big x*")
    d.until(lambda: b.sh("echo second >second") == "", 20)
    after = d.until(lambda: taken(b), 20)
    b.rewind(first)
    assert b.sh(TREE) == tree
    b.rewind(after)
    assert b.sh("cat first second; ls | wc -l") == "first\nsecond\n2\n"
    assert d.get("/v1/store/check")["whole"]
    d.clear()


def taken(b):
    try:
        return b.snap()["number"]
    except Refused as e:
        assert e.code == "limit" and e.error["message"], e
        return None
