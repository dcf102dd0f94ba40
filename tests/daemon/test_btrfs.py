"""Disks that are btrfs: a step while commands run is a snapshot, and costs the same whatever was changed."""
import contextlib
import os
import pathlib
import re
import shutil
import socket
import sqlite3
import statistics
import struct
import subprocess
import tempfile
import time

import pytest
import test_faults as faults
from carrel import PROGRAM, ROOTLESS, sample, signal_all, spawner_pids, stop_spawner
from daemon import Daemon, Refused, stopped
from host_state import HostState
from patience import PATIENCE, clock
from test_steps import BEATS, Box, beats

SIZE = 1 << 30


def missing():
    if ROOTLESS:
        return "rootless: disks are in memory"
    if not os.access("/sbin/mkfs.btrfs", os.X_OK):
        return "no mkfs.btrfs"
    return "" if "\tbtrfs\n" in pathlib.Path("/proc/filesystems").read_text() else "this kernel has no btrfs"


pytestmark = pytest.mark.skipif(missing() != "", reason=missing())


def init(env, *words):
    return subprocess.run([PROGRAM, "store", "init", *words], env=env, capture_output=True, text=True, timeout=60)


class Prepared(Daemon):
    """Its store was told what disks are before it first started."""

    def start(self, env=()):
        if not self.process:
            done = init(self.env, "--btrfs", "1G")
            assert done.returncode == 0 and "a btrfs disk of 1G" in done.stdout, done
        super().start(env)


@pytest.fixture(scope="module")
def shared():
    d = Prepared(conf="[steps]\nkeep = 30\n")
    yield d
    d.stop()


@pytest.fixture
def btrfs(shared):
    yield shared
    shared.clear()
    assert shared.host.left_of_boxes() == []



def took(b, count=5):
    """Seconds that a step on request takes, in the middle."""
    def one():
        start = time.monotonic()
        assert b.snap()["how"] == "btrfs"
        return time.monotonic() - start
    return statistics.median(one() for _ in range(count))


def test_steps_while_commands_run_have_restore_points_and_cost_the_same(btrfs):
    assert btrfs.get("/v1/status")["box"]["disk"] == "btrfs"
    b = Box(btrfs)
    assert btrfs.get(b.url)["limits"]["disk"] == SIZE
    b.sh("mkdir d; echo deep >d/f; ln d/f d/g; echo old >old")
    assert b.settled(1)[0]["how"] == "switch"
    btrfs.background(b.id, BEATS)
    btrfs.until(lambda: b.sh("test -s beats && test -s b") == "")
    b.sh("rm old; echo one >one")
    step = btrfs.until(lambda: [s for s in b.steps() if "rm old" in s["what"]])[0]
    assert step["restorable"] and step["how"] == "btrfs" and "reason" not in step
    little = took(b)
    b.sh("head -c 1M /dev/urandom >piece; for i in $(seq 200); do cat piece; done >big")
    b.snap("large")
    much = took(b)
    assert much < 4 * little + 0.02, f"{little * 1e3:.1f} ms, with 200 MB {much * 1e3:.1f} ms"
    before = beats(b)
    btrfs.until(lambda: beats(b) > before)
    there = b.fork(step="large")[0]
    assert there.sh("stat -c %s big; tail -c 1M big | cmp - piece && cat one d/g; test -e old || echo gone") == \
        f"{200 << 20}\none\ndeep\ngone\n"
    assert btrfs.get("/metrics", raw=True).count(b'carrel_way{part="disk",way="btrfs"} 1') == 1
    b.rewind(step["number"])
    assert b.sh("cat one; ls big old 2>/dev/null; stat -c %h d/f") == "one\n2\n"
    b.rewind("start")
    assert b.sh("ls") == ""
    assert btrfs.get("/v1/store/check")["whole"]


def names(b):
    """Of every file of the machine's own, device and number; a second name of one does not count."""
    return b.sh("find /home/user -type f ! -name same -printf '%D:%i\n'").split()


def test_files_of_many_steps_are_apart_and_merge_as_they_were(btrfs):
    b = Box(btrfs)
    btrfs.background(b.id, "sleep 1000")
    for i in range(3):
        b.sh(f"echo {i} >f{i}; mkdir e{i}; ln f{i} e{i}/same; echo {i} >all")
    b.snap("here")
    b.sh("rm -r f1 e2; echo more >f3")
    b.rewind("here")
    for i in range(4, 30):  # merged with what was a snapshot
        b.sh(f"echo {i} >f{i}; echo {i} >all")
    btrfs.until(lambda: b.snap()["layers"] <= 8)
    f = b.fork()[0]
    f.sh("for i in 1 2 3 4 5 6 7 8; do echo $i >of-fork-$i; done")
    for machine in b, f:
        found = names(machine)
        assert len(set(found)) == len(found) >= 30, "two files have the same number"
        assert machine.sh("cat all; stat -c %h f0 f1 f2; cat e1/same f29; test -e f3 || echo no") == \
            "29\n2\n2\n2\n1\n29\nno\n"
    assert btrfs.get("/v1/store/check")["whole"]


def stacks(b):
    """The layers of each step, oldest first."""
    with contextlib.closing(sqlite3.connect(f"file:{b.d.home}/carrel.db?mode=ro", uri=True)) as db:
        return [row[0] for row in db.execute("SELECT stack FROM steps WHERE machine = ? ORDER BY number", (b.id,))]


def test_steps_between_which_nothing_was_written_share_one_snapshot(btrfs):
    b = Box(btrfs)
    btrfs.background(b.id, "sleep 1000")

    def steps_of(command, count):
        """The layers of so many steps after that command."""
        before = len(b.steps())
        for _ in range(count):
            b.sh(command)
        steps = b.settled(before + count)[before:]
        assert all(s["restorable"] for s in steps), steps
        return stacks(b)[before:]

    one, = steps_of("echo one >one", 1)
    assert steps_of("true", 3) == [one] * 3  # the first read of a new file would write its time of access
    two, = steps_of("echo two >two", 1)
    three, = steps_of("rm one", 1)
    assert len({one, two, three}) == 3, "each change is in a snapshot of its own"
    assert b.snap()["how"] == "btrfs", "and so is a step on request"
    btrfs.restart()  # the next daemon knows no copy, and takes one
    four, five = steps_of("true", 2)
    assert four == five != three
    b.rewind(4)
    assert b.sh("ls") == "one\n"
    assert btrfs.get("/v1/store/check")["whole"]


# Writes one file after it was frozen, and nothing before: a sleep of 10 ms that took more than half a second.
LATE = """while :; do a=${EPOCHREALTIME/./}; sleep 0.01; [ $((${EPOCHREALTIME/./} - a)) -lt 500000 ] || break; done
echo late >late; exec sleep 1000"""


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace to make a system call slow")
def test_a_write_right_after_a_snapshot_is_in_the_next_step(btrfs):
    b = Box(btrfs)
    btrfs.background(b.id, LATE)
    b.sh("echo one >one")
    btrfs.until(lambda: b.steps()[-1].get("how") == "btrfs")
    slow = "inject=ioctl:delay_enter=700000"  # so the process writes before the copy is reported
    with faults.strace(btrfs, faults.undertaker(btrfs), "-f", "-o", "/dev/null", "-e", slow):
        b.sh("echo two >two")
        btrfs.until(lambda: b.sh("test -e late") == "", 30)
        b.sh("true")  # waits for the step of the command before
    there, = b.fork(step=str(b.steps()[-1]["number"]))
    assert there.sh("cat two late") == "two\nlate\n"


def test_verbs_wait_for_a_step_that_nobody_asked_for(btrfs):
    b = Box(btrfs)
    btrfs.background(b.id, BEATS)
    for _ in range(3):
        b.sh("echo x >>x")
        assert btrfs.post(b.url + "/pause")["state"] == "paused"
        assert btrfs.post(b.url + "/resume")["state"] == "running"
    assert all(s["how"] == "btrfs" for s in b.steps() if s["restorable"]) and any(s["restorable"] for s in b.steps())
    b.sh("echo x >>x")
    btrfs.delete(b.url)


def disk_bytes(b):
    return b.d.get(b.url + "/stats")["disk_bytes"]


def test_the_limit_is_hard_and_room_comes_back_with_the_steps(btrfs):
    b = Box(btrfs, limits={"disk": "300M"}, steps="manual")
    btrfs.background(b.id, "sleep 1000")
    b.sh("head -c 60M /dev/urandom >a")
    b.snap("first")
    b.sh("rm a; head -c 60M /dev/urandom >b")
    b.snap()  # also what was written last is on the disk with that
    assert disk_bytes(b) > 120 << 20, "a snapshot holds what was removed"
    told = b.sh("head -c 400M /dev/zero >full")
    assert told == 1 and b.sh("stat -c %s full") != str(400 << 20)
    with pytest.raises(Refused) as e:
        b.snap()
    assert e.value.code == "limit" and "--disk" in e.value.error["remedy"], e.value
    assert b.sh("rm full && echo on >on; cat on") == "on\n"
    assert b.snap()["restorable"]
    b.rewind("first")
    assert b.sh("ls") == "a\n"
    assert btrfs.get("/v1/store/check")["whole"]


def test_old_snapshots_go_and_what_they_held_is_free(btrfs):
    b = Box(btrfs)
    btrfs.background(b.id, "sleep 1000")
    b.sh("head -c 100M /dev/urandom >a")
    b.sh("rm a")
    btrfs.until(lambda: disk_bytes(b) > 100 << 20)
    for i in range(35):  # of which 30 are kept
        b.sh("true")
    btrfs.until(lambda: disk_bytes(b) < 60 << 20)
    assert len(b.steps()) <= 36 and b.steps()[-1]["restorable"]


def copiers(d):
    return [p for p in spawner_pids(d.run_dir) if pathlib.Path(f"/proc/{p}/comm").read_text() == "carrel-bury\n"]


def test_whoever_is_killed_over_a_snapshot_leaves_a_machine_that_goes_on(shared):
    d = shared
    b = Box(d)
    d.background(b.id, BEATS)
    d.until(lambda: b.sh("test -s beats") == "")
    d.until(lambda: b.steps()[-1].get("how") == "btrfs")
    with stopped(copiers(d)):
        b.sh("echo half >half")
        d.kill()  # its step is being taken
        signal_all(spawner_pids(d.run_dir), 9)
    d.start()
    before = beats(b)
    d.until(lambda: beats(b) > before)
    assert b.sh("cat half") == "half\n"
    left = [s for s in b.steps() if "echo half" in s.get("what", "")]
    assert not left or left[0]["restorable"] or "ended" in left[0]["reason"], left
    assert b.snap("after")["how"] == "btrfs"
    b.rewind("after")
    check = d.get("/v1/store/check")
    assert check["whole"], check
    d.clear()


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace to make a system call fail")
@pytest.mark.parametrize("fault", ["KILL", "ENOSPC", "EIO"])
def test_a_fault_at_calls_of_a_snapshot(shared, fault):
    """As in test_faults: afterwards the machine goes on, and every acknowledged step has the tree that it had."""
    d, subject, kill = shared, faults.Subject(shared), fault == "KILL"
    d.background(subject.box.id, "sleep 1000")
    subject.step()
    assert subject.box.steps()[-1]["how"] == "btrfs"
    calls = "all" if kill else faults.FILES + ",ioctl"
    count = faults.calls_of(d, faults.undertaker, calls, subject.step)
    what = "signal=KILL" if kill else f"error={fault}"
    for n in sample(count, 4 if kill else 2):
        subject.change()
        tracing = faults.strace(d, faults.undertaker(d), "-f", "-o", "/dev/null", "-e", f"inject={calls}:{what}:when={n}")
        with contextlib.suppress(*faults.UNSTEADY), tracing:
            subject.step()
        subject.goes_on()
        assert subject.box.steps()[-1]["how"] == "btrfs"
    subject.proves()
    d.clear()


CREATE, DESTROY, CREATED, DONE = 1, 3, 64, 66
ODD = 300 << 20  # no disk of this size is prepared


class Spawner:
    """A client that sends several requests before it reads an answer."""

    def __init__(self, d):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(str(d.run_dir / "spawn.sock"))
        self.sock.settimeout(60 * PATIENCE)

    def send(self, type_, id, disk=0):
        data = struct.pack("<HH", 1, type_)
        texts = {1: id.encode(), **({2: b"host"} if type_ == CREATE else {})}
        for field, body in {**texts, **({7: struct.pack("<Q", disk)} if disk else {})}.items():
            data += struct.pack("<HH", field, len(body)) + body
        self.sock.send(data)

    def answer(self):
        """The type of the next answer. Its descriptors are kept open until the test ends: a box lives as long."""
        data, self.fds, _, _ = socket.recv_fds(self.sock, 65536, 16)
        return struct.unpack_from("<HH", data)[1]


def test_other_requests_are_served_while_a_disk_is_made(btrfs):
    Box(btrfs)
    s, made, absent = Spawner(btrfs), "m-" + "a" * 12, "m-" + "b" * 12
    s.send(CREATE, made, ODD)
    s.send(DESTROY, absent)
    assert s.answer() not in (CREATED, DONE), "the refusal of the second request came after the disk of the first"
    assert s.answer() == CREATED
    s.send(DESTROY, made)
    assert s.answer() == DONE


def test_requests_about_a_machine_wait_for_its_disk(btrfs):
    Box(btrfs)
    s, made = Spawner(btrfs), "m-" + "a" * 12
    s.send(CREATE, made, ODD)
    s.send(CREATE, made, ODD)
    s.send(DESTROY, made)
    answers = [s.answer() for _ in range(3)]
    assert answers[0] == CREATED and answers[1] not in (CREATED, DONE) and answers[2] == DONE, answers


@pytest.mark.parametrize("count", [1, 12])
def test_nothing_is_left_of_machines_whose_client_went_before_their_disk(btrfs, count):
    Box(btrfs)
    s, ids = Spawner(btrfs), ["m-" + c * 12 for c in "abcdefghijkl"[:count]]
    for id in ids:
        s.send(CREATE, id, ODD)
    s.sock.close()
    Box(btrfs, limits={"disk": ODD})  # answered after the requests above were forgotten or served
    end = clock() + 60
    while left := [id for id in ids if (btrfs.run_dir / "boxes" / id).exists()]:
        assert clock() < end, left
        time.sleep(0.05)


def test_several_disks_are_made_for_as_many_requests(btrfs):
    Box(btrfs)
    s, ids = Spawner(btrfs), ["m-" + c * 12 for c in "abcdefghij"]
    held = []
    for i, id in enumerate(ids):
        s.send(CREATE, id, ODD + (i << 20))
    for _ in ids:
        assert s.answer() == CREATED
        held.append(s.fds)
    for id in ids:
        s.send(DESTROY, id)
    assert [s.answer() for _ in ids] == [DONE] * len(ids)


def test_a_store_that_lies_on_btrfs_is_used_so_without_a_word():
    where = pathlib.Path(tempfile.mkdtemp(prefix="cb-", dir="/tmp"))
    image, mount = where / "image", where / "mnt"
    mount.mkdir()
    with open(image, "wb") as f:
        f.truncate(3 << 30)
    subprocess.run(["/sbin/mkfs.btrfs", "-q", "-f", image], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "CARREL_RUN": str(where / "run"), "CARREL_HOME": str(mount / "home")}
    try:
        told = subprocess.run([PROGRAM, "doctor"], env=env, capture_output=True, text=True, timeout=60).stdout
        assert "btrfs; the store is on it" in told and "disks are btrfs" in told, told
        done = subprocess.run([PROGRAM, "run", "--disk", "300M", "--", "df", "--output=size", "-k", "/"], env=env,
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and 250_000 < int(done.stdout.split()[-1]) <= 307_200, done
        stop_daemon(where / "run")
        assert HostState(where / "run", mount / "home").left() == []
    finally:
        subprocess.run(["umount", mount], check=True)
        shutil.rmtree(where)


def stop_daemon(run):
    pid = run / "carrel.pid"
    if pid.exists():
        signal_all([int(pid.read_text())], 15)
    end = time.monotonic() + 30
    while pid.exists() and time.monotonic() < end:
        time.sleep(0.02)
    stop_spawner(run)


def test_what_cannot_be_is_refused(btrfs, tmp_path):
    def no(env, *words):
        done = init(env, *words)
        assert done.returncode == 125, done
        return done.stderr
    assert "the daemon is running" in no(btrfs.env, "--btrfs", "1G")
    env = {"PATH": btrfs.env["PATH"], "CARREL_RUN": str(tmp_path / "run"), "CARREL_HOME": str(tmp_path / "home")}
    assert "carrel store init requires --btrfs or --plain" in no(env)
    assert "exclude each other" in no(env, "--btrfs", "1G", "--plain")
    for size in ("1M", "100T"):
        assert f"--btrfs {size}: must be between 256M and 64T" in no(env, "--btrfs", size)
    assert re.search(r"--btrfs 60T: the disk that holds '\S+' has only [0-9.]+[KMGT] free", no(env, "--btrfs", "60T"))
    assert "not a size" in no(env, "--btrfs", "much")
    assert not (tmp_path / "home/disks").exists()
    assert init(env, "--plain").returncode == 0
    assert (tmp_path / "home/disks").read_text() == "plain\n"
    (tmp_path / "home/disks").write_text("zfs\n")
    told = subprocess.run([PROGRAM, "run", "--", "true"], env=env, capture_output=True, text=True, timeout=60)
    assert told.returncode == 125 and "file 'disks' in the store" in told.stderr, told
