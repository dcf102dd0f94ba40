"""`carrel store check`: it proves the layers, and sees what is wrong with them."""
import contextlib
import json
import shutil
import sqlite3
import subprocess

import pytest
from carrel import PROGRAM, ROOTLESS, spawner_pids
from daemon import Refused
from patience import clock
from test_steps import Box


def check(d):
    return d.get("/v1/store/check")


def cli(d, *args):
    return subprocess.run([PROGRAM, "store", *args], env=d.env, capture_output=True, text=True, timeout=60)


def test_a_store_that_is_whole(daemon):
    b = Box(daemon)
    for i in range(20):
        b.sh(f"echo {i} >f{i}")
    f = b.fork(count=2)[0]
    f.sh("echo fork >g")
    b.rewind(3)
    b.settled(22)
    r = check(daemon)
    assert r["whole"] and r["problems"] == [] and (r["machines"], r["unchecked"]) == (3, 0)
    assert r["stacks"] >= 22 and r["layers"] >= 20
    daemon.delete(b.url)  # its disk lives on in the forks
    r = check(daemon)
    assert r["whole"] and r["machines"] == 2
    told = cli(daemon, "check")
    assert told.returncode == 0 and "2 machines" in told.stdout and ": whole\n" in told.stdout
    assert json.loads(cli(daemon, "check", "--json").stdout)["whole"]
    assert cli(daemon, "mend").returncode != 0 and "unknown verb 'mend'" in cli(daemon, "mend").stderr
    assert "no verb named" in cli(daemon).stderr


def forge(d, machine, stack):
    """A step of the database names what is not there."""
    db = sqlite3.connect(d.home / "carrel.db", timeout=20)
    db.execute("UPDATE steps SET stack = ? WHERE machine = ? AND number = 1", (stack, machine))
    db.commit()
    db.close()


@pytest.mark.parametrize("stack, what", [
    ("{own}/777", "a layer is named, and is not there"),
    ("m-aaaaaaaaaaaa/1", "a layer of an ancestor is named, and is not there"),
    ("nonsense", "cannot be read"),
])
def test_what_is_not_there_is_told(daemon, stack, what):
    b = Box(daemon)
    b.sh("echo 1 >a")
    b.sh("echo 2 >a")
    b.settled(2)
    forge(daemon, b.id, stack.format(own=b.id))
    r = check(daemon)
    assert not r["whole"] and len(r["problems"]) == 1
    problem = r["problems"][0]
    assert what in problem["what"] and problem["machine"] == b.id and problem["remedy"]
    told = cli(daemon, "check")
    assert told.returncode == 1 and "NOT WHOLE" in told.stdout and what in told.stdout


def traced(pid, trace):
    """Or killed already, by a call that it made for somebody else: then the tracer has gone too."""
    try:
        with open(f"/proc/{pid}/status") as f:
            return f"TracerPid:\t{trace.pid}\n" in f.read() or trace.poll() is not None
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.skipif(ROOTLESS, reason="a spawner that was restarted cannot enter the boxes of the one before")
@pytest.mark.skipif(not shutil.which("strace"), reason="no strace to kill at a system call")
def test_killed_at_any_call_of_a_step_everything_acknowledged_is_there(daemon):
    """SIGKILL at the n-th system call of the spawner while it takes a step, for n all over its path."""
    b = Box(daemon, steps="manual")
    hashes, killed = {}, 0
    for n in list(range(1, 30, 4)) + list(range(30, 190, 11)):
        b.sh(f"mkdir -p d{n % 3}; echo {n} >d{n % 3}/f{n}; rm -f d{(n + 1) % 3}/f*")
        daemon.get(b.url + "/stats")  # one that was killed is started again
        main = str(spawner_pids(daemon.run_dir)[0])
        trace = subprocess.Popen(["strace", "-qq", "-o", "/dev/null", "-p", main, "-e", f"inject=all:signal=KILL:when={n}"],
                                 stderr=subprocess.DEVNULL)
        try:
            daemon.until(lambda: traced(main, trace), 10)
            step = b.snap()
            assert step["restorable"], step
            hashes[step["number"]] = b.sh("find . -type f | sort | xargs sha256sum | sha256sum")
            killed += main not in {str(p) for p in spawner_pids(daemon.run_dir)}
        finally:
            trace.send_signal(2)
            trace.wait()
    assert killed > 5
    r = check(daemon)
    assert r["whole"] and r["unchecked"] == 0, r
    for number in list(hashes)[::5]:
        b.rewind(number)
        assert b.sh("find . -type f | sort | xargs sha256sum | sha256sum") == hashes[number], number


FAILING = "%file,write,pwrite64,fsconfig,fsmount,move_mount,open_tree,mount_setattr,setns,umount2"


@contextlib.contextmanager
def failing(d, pid, calls, error, when):
    """The when-th of these calls of a process fails."""
    trace = subprocess.Popen(["strace", "-qq", "-f", "-o", "/dev/null", "-p", str(pid), "-e", f"inject={calls}:error={error}:when={when}"],
                             stderr=subprocess.DEVNULL)
    try:
        d.until(lambda: traced(pid, trace), 10)
        yield
    finally:
        trace.send_signal(2)
        trace.wait()


class Ledger:
    """What was acknowledged: the tree of each step that was taken."""
    TREE = "find . -type f | sort | xargs sha256sum | sha256sum"

    def __init__(self, box):
        self.box, self.hashes = box, {}

    def step(self):
        number = self.box.snap()["number"]
        self.hashes[number] = self.box.sh(self.TREE)

    def proves(self, d, least):
        r = check(d)
        assert r["whole"] and r["unchecked"] == 0, r
        there = [s["number"] for s in self.box.steps() if s["number"] in self.hashes]  # old ones may have made room
        assert len(there) > least
        for number in there[::3]:
            self.box.rewind(number)
            assert self.box.sh(self.TREE) == self.hashes[number], number


@pytest.mark.skipif(ROOTLESS, reason="a spawner that was restarted cannot enter the boxes of the one before")
@pytest.mark.skipif(not shutil.which("strace"), reason="no strace to make a system call fail")
@pytest.mark.parametrize("error, first", [("ENOSPC", 1), ("EIO", 3), ("EMFILE", 6)])
def test_whatever_call_of_a_step_fails_nothing_is_lost(daemon, error, first):
    """A step may be refused; the machine goes on, the next step is taken, and all that were can be returned to."""
    b = Box(daemon, steps="manual")
    ledger = Ledger(b)
    for n in range(first, 110, 9):
        b.sh(f"echo {n} >f{n}; rm -f f{n - 18}")
        daemon.get(b.url + "/stats")
        begun = clock()
        with contextlib.suppress(Refused), failing(daemon, spawner_pids(daemon.run_dir)[0], FAILING, error, n):
            ledger.step()
        assert b.sh(f"cat f{n}; ls /proc/self/fd /dev/pts >/dev/null && echo there") == f"{n}\nthere\n"
        b.sh("date +%N >now")
        ledger.step()
        assert clock() - begun < 20
    ledger.proves(daemon, 3)
    if error != "ENOSPC":
        told = daemon.request("GET", "/v1/events", raw=True, follow=0, after=0).decode().splitlines()
        assert not [e for e in told if b.id in e and "steps.dropped" in e], "only a full disk costs history"


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace to make a system call fail")
@pytest.mark.parametrize("error, calls", [("EMFILE", "openat,accept4,socket"), ("EIO", "openat,pread64,pwrite64,write")])
def test_whatever_call_of_the_daemon_fails_during_a_step_nothing_is_lost(daemon, error, calls):
    """It answers, if need be with a refusal; what it acknowledged is there, and it takes the next step."""
    b = Box(daemon, steps="manual")
    ledger = Ledger(b)
    for n in range(1, 13, 2):
        b.sh(f"echo {n} >f{n}; rm -f f{n - 4}")
        begun = clock()
        with contextlib.suppress(Refused), failing(daemon, daemon.process.pid, calls, error, n):
            ledger.step()
        assert b.sh(f"cat f{n}") == f"{n}\n"
        b.sh("date +%N >now")
        ledger.step()
        assert clock() - begun < 20
    ledger.proves(daemon, 3)
