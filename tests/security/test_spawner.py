"""The spawner against a guest that was taken over, a client that lies, and kill -9: groups 33, 35; and
the test build against the product."""
import array
import contextlib
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import time

import pytest

from lab import ATTACK, BUILD, PATH, ROOTLESS, Lab, counts, read
from carrel import alive
from patience import PATIENCE, clock


# What a box inherits.

def signals(text, name):
    return [int(value, 16) for value in re.findall(rf"^{name}:\s*(\w+)$", text, re.M)]


def test_a_box_inherits_no_ignored_or_blocked_signals(make_lab):
    lab = make_lab()

    def ignore():
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    done = lab.run("--", "cat", "/proc/1/status", "/proc/self/status", preexec_fn=ignore)
    spawners = read(f"/proc/{lab.status()['pid']}/status")
    assert signals(spawners, "SigIgn") != [0], spawners  # the control
    assert signals(done.stdout.decode(), "SigIgn") == [0, 0], done
    assert signals(done.stdout.decode(), "SigBlk")[1] == 0, done


# A guest that was taken over.

def test_a_hostile_guest_does_not_hold_up_the_spawner(make_lab):
    lab = make_lab(guest=ATTACK)
    counts["attacks tried"] += 1
    client = lab.popen("run", "--keep", "--", "true", stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = clock() + 60
    while not (boxes := list(lab.run_dir.glob("boxes/m-*/box"))) and clock() < end:
        time.sleep(0.02)
    assert boxes
    pid = re.search(r"^pid=(\d+)$", read(boxes[0]), re.M)[1]
    while read(f"/proc/{pid}/comm") != "heard\n" and clock() < end:
        time.sleep(0.02)
    assert read(f"/proc/{pid}/comm") == "heard\n"  # it asked for groups one byte at a time
    kb = lab.spawner_kb()
    time.sleep(4)
    assert lab("ls", timeout=5).returncode == 0
    assert lab.spawner_kb() < kb + 2048
    assert descriptors(lab.status()["pid"]) < 400
    client.kill()
    client.wait()
    for box in lab.run_dir.glob("boxes/m-*"):
        assert lab("rm", box.name, timeout=10).returncode == 0


def descriptors(pid):
    """Rootless, the spawner's cannot be counted by its own user."""
    if ROOTLESS:
        return 0
    return len(os.listdir(f"/proc/{pid}/fd"))


def guest_pid(machine):
    return int(next(l for l in read(machine.socket.parent / "box").splitlines() if l.startswith("pid="))[4:])


@pytest.mark.skipif(ROOTLESS, reason="another user's descriptors cannot be looked at")
@pytest.mark.parametrize("weak, leaks", [(None, 0), ("", 0), ("close_range", 1)])
def test_the_guest_holds_nothing_of_the_hosts(make_lab, weak, leaks):
    """The test build plants a descriptor of the host's root; only without close_range does it arrive."""
    machine = make_lab(weak=weak).keep()
    counts["attacks tried" if not leaks else "with a control that got through"] += 1
    pid = guest_pid(machine)
    links = [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
    directories = [l for l in links if os.path.isdir(f"/proc/{pid}/root") and l == "/"]
    assert len(directories) == leaks, links


COVERS = ("/meminfo", "/stat", "/cpuinfo", "/loadavg", "/uptime")


@pytest.mark.skipif(ROOTLESS, reason="another user's descriptors cannot be looked at")
def test_the_guest_can_write_to_no_file_of_the_hosts(lab):
    """It has control files of its own cgroups, and the covers of its own /proc; the lock on its ids is open for reading only."""
    machine = lab.keep()
    counts["attacks tried"] += 1
    pid, locks = guest_pid(machine), 0
    host_devices = {os.stat(line.split()[4]).st_dev for line in read("/proc/self/mountinfo").splitlines() if os.path.exists(line.split()[4])}
    for n in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{n}")
        flags = int(re.search(r"^flags:\s+(\d+)", read(f"/proc/{pid}/fdinfo/{n}"), re.M)[1], 8)
        if "/carrel-uids/" in target:
            locks += 1
            assert flags & os.O_ACCMODE == os.O_RDONLY
        elif target.startswith("/") and flags & os.O_ACCMODE != os.O_RDONLY:
            cover = target in COVERS and os.stat(f"/proc/{pid}/fd/{n}").st_dev not in host_devices
            assert cover or target.endswith("/dev/null") or lab.state.group in target or target.startswith("/memfd:"), target
    assert locks == 1


@pytest.mark.skipif(ROOTLESS, reason="the spawner's descriptors cannot be counted by its own user")
def test_empty_packets_leave_no_descriptors(lab):
    lab.run("--", "true")
    pid = lab.status()["pid"]
    time.sleep(1)  # the pools are full
    before, null = descriptors(pid), os.open("/dev/null", os.O_RDONLY)
    counts["attacks tried"] += 1
    for _ in range(50):
        s = packet_socket(lab)
        s.sendmsg([b""], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 16))])
        s.close()
    os.close(null)
    assert lab.status()["pid"] == pid
    time.sleep(0.5)
    assert descriptors(pid) <= before + 4


@pytest.mark.parametrize("place", ["run", "home"])
def test_a_place_that_others_may_write_to_is_refused(make_lab, place):
    """Both by the command line and by the spawner itself."""
    lab = make_lab()
    where = {"run": lab.run_dir, "home": lab.home}
    for name in where:
        where[name].mkdir(mode=0o700, exist_ok=True)
    where[place].chmod(0o777)
    counts["attacks tried"] += 2
    done = lab.run("--", "true")
    assert done.returncode == 125 and b"not a private directory" in done.stderr, done
    spawn = [BUILD / "libexec/carrel-spawn", "--run", lab.run_dir, "--home", lab.home, "--guest", BUILD / "libexec/carrel-guest"]
    done = subprocess.run(spawn, env=lab.env, stderr=subprocess.PIPE, timeout=20)
    assert b"not a private directory" in done.stderr and not list(lab.run_dir.glob("spawn.sock")), done
    where[place].chmod(0o700)
    assert lab.run("--", "true").returncode == 0  # the control


@pytest.mark.parametrize("spawner", ["the same", "the next"])
def test_a_stopped_guest_can_be_removed(make_lab, spawner):
    """Asking it would be no use, and rootless the next spawner has no power over it itself."""
    lab = make_lab()
    machine = lab.keep()
    counts["attacks tried"] += 1
    os.kill(guest_pid(machine), signal.SIGSTOP)
    if spawner == "the next":
        kill_spawner(lab)
        assert lab.run("--", "true").returncode == 0
    assert lab("rm", machine.id, timeout=10).returncode == 0
    assert lab.state.left_of_boxes() == []


def record(machine):
    return dict(line.split("=", 1) for line in read(machine.socket.parent / "box").split())


@pytest.mark.parametrize("lie", ["pid", "pid slot", "pid slot image until", "pid=1", "pid=-1", "pid=4000000",
                                 "slot=4000000000", "slot=-1", "upper=4294967295", "cgroup=18446744073709551615"])
def test_a_record_that_lies_ends_nobody_else(make_lab, lie):
    """Pids are reused. What is not the very process that was written down is left alone, its own box is gone."""
    lab = make_lab()
    machine, bystander = lab.keep(), lab.keep()
    counts["attacks tried"] += 1
    with no_spawner(lab):
        os.kill(guest_pid(machine), signal.SIGKILL)
        mine, other = record(machine), record(bystander)
        for word in lie.split():
            key, _, value = word.partition("=")
            mine[key] = value or other[key]
        if mine["born"] == other["born"]:  # both from one moment of filling the pool
            mine["born"] = str(int(mine["born"]) + 1)
        (machine.socket.parent / "box").write_text("".join(f"{k}={v}\n" for k, v in mine.items()))
    assert lab.run("--", "true").returncode == 0
    end = clock() + 20
    while machine.id in (listed := [m["id"] for m in lab.machines()]) and clock() < end:
        time.sleep(0.05)
    answers = bystander.exec("true", timeout=20).returncode
    lab("rm", bystander.id)
    assert machine.id not in listed and bystander.id in listed and answers == 0
    assert lab.state.left_of_boxes() == []


def freezers(machine):
    """The files that freeze what a box runs, on either kind of cgroup."""
    number = next(l for l in read(machine.socket.parent / "box").splitlines() if l.startswith("cgroup="))[7:]
    for d, _, files in os.walk("/sys/fs/cgroup"):
        if f"/{machine.lab.state.group}/b{number}/" in d + "/":
            yield from (pathlib.Path(d, f) for f in files if f in ("freezer.state", "cgroup.freeze"))


def test_a_frozen_box_can_be_removed(make_lab):
    """A guest that dies between freezing a command and thawing it leaves it frozen."""
    lab = make_lab()
    machine = lab.keep()
    sleeper = machine.popen("sleep", "1000", user="user")
    while machine.exec("pgrep", "sleep").returncode:
        time.sleep(0.02)
    counts["attacks tried"] += 1
    files = list(freezers(machine))
    if not files:
        assert ROOTLESS
        pytest.skip("rootless without a delegated cgroup: nothing can freeze")
    for f in sorted(files, reverse=True):  # the innermost first
        with contextlib.suppress(OSError):
            f.write_text("FROZEN" if f.name == "freezer.state" else "1")
    assert lab("rm", machine.id, timeout=10).returncode == 0
    sleeper.wait(timeout=10 * PATIENCE)


# A client that lies. Only our own user can connect at all; it may still be wrong.

def packet_socket(lab):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = os.open(lab.run_dir, os.O_PATH)
    s.connect(f"/proc/self/fd/{fd}/spawn.sock")
    os.close(fd)
    s.settimeout(5 * PATIENCE)
    return s


def test_malformed_requests(lab):
    lab.run("--", "true")
    pid = lab.status()["pid"]
    time.sleep(PATIENCE)  # the pools are full
    before, rng = descriptors(pid), random.Random(815)
    null = os.open("/dev/null", os.O_RDONLY)
    for n in range(300):
        s = packet_socket(lab)
        data = rng.randbytes(rng.choice((1, 2, 8, 40, 300, 5000)))
        if n % 3 == 0:
            data = struct.pack("<HH", 1, rng.choice((1, 2, 3, 4, 9, 64, 68))) + data
        fds = array.array("i", [null] * rng.choice((0, 0, 1, 17, 100)))
        with contextlib.suppress(OSError):
            s.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if fds else [])
        s.close()
    counts["attacks tried"] += 1
    os.close(null)
    assert lab.run("--", "true").returncode == 0
    assert lab.status()["pid"] == pid
    time.sleep(PATIENCE)
    assert descriptors(pid) <= before + 4


def test_silent_clients(lab):
    lab.run("--", "true")
    silent = [packet_socket(lab) for _ in range(200)]
    counts["attacks tried"] += 1
    assert lab.run("--", "true", timeout=10).returncode == 0
    for s in silent:
        s.close()


@pytest.mark.skipif(ROOTLESS, reason="only root can be another user here")
def test_another_user_cannot_ask(lab):
    lab.run("--", "true")
    code = ("import socket,sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
            "try: s.connect(sys.argv[1]); s.send(b'x'); print(len(s.recv(10)))\nexcept OSError as e: print(e.strerror)")
    counts["attacks tried"] += 1
    ask = ["setpriv", "--reuid", "4711", "--regid", "4711", "--clear-groups", "/usr/bin/python3", "-c", code,
           str(lab.run_dir / "spawn.sock")]
    assert subprocess.run(ask, stdout=subprocess.PIPE, text=True).stdout == "Permission denied\n"
    # The second lock: even where the directories let everyone in.
    for path, mode in ((lab.dir, 0o755), (lab.run_dir, 0o755), (lab.run_dir / "spawn.sock", 0o777)):
        os.chmod(path, mode)
    said = subprocess.run(ask, stdout=subprocess.PIPE, text=True).stdout
    for path, mode in ((lab.dir, 0o700), (lab.run_dir, 0o700), (lab.run_dir / "spawn.sock", 0o700)):
        os.chmod(path, mode)
    assert said in ("0\n", "Connection reset by peer\n", "Broken pipe\n"), said


# Granted directories.

REACH = """
import os, socket
def attempt(what):
    try: what(); print("reached")
    except OSError as e: print(e.strerror)
attempt(lambda: socket.socket(socket.AF_UNIX).connect("/d/socket"))
attempt(lambda: os.open("/d/fifo", os.O_WRONLY | os.O_NONBLOCK))
attempt(lambda: os.open("/d/null", os.O_RDONLY))
"""
DEAD = ["Connection refused", "No such device or address"]
# rw is the host's directory itself, which is why it says so: what leads to host processes works.
REACHED = {"ro": DEAD, "cow": DEAD, "rw": ["reached"] * 2}


@pytest.fixture
def doors(host_dir):
    """A directory with a socket that answers, a pipe that somebody reads, and a device."""
    os.chmod(host_dir, 0o777)
    server, here = socket.socket(socket.AF_UNIX), os.getcwd()
    os.chdir(host_dir)
    server.bind("socket")
    os.chdir(here)
    server.listen()
    os.mkfifo(host_dir / "fifo")
    for name in ("socket", "fifo"):
        os.chmod(host_dir / name, 0o777)
    if not ROOTLESS:
        os.mknod(host_dir / "null", 0o20666, os.makedev(1, 3))
        os.close(os.open(host_dir / "null", os.O_RDONLY))  # the control
    reader = os.open(host_dir / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    yield host_dir
    os.close(reader)
    server.close()


@pytest.mark.parametrize("mode", REACHED)
def test_sockets_pipes_and_devices_in_a_granted_directory(lab, doors, mode):
    """A socket of the host that answers would be a way out."""
    device = "No such file or directory" if ROOTLESS else "Permission denied"
    counts["attacks tried" if mode != "rw" else "with a control that got through"] += 2
    counts["attacks tried"] += 1
    for quiet in ((), ("-q",)):
        done = lab.run(*quiet, "--unreviewed", "--dir", f"{doors}:/d:{mode}", "--", "python3", "-c", REACH)
        assert done.stdout.decode().splitlines() == [*REACHED[mode], device], done
        assert (b"sockets and pipes" in done.stderr) == (mode == "rw" and not quiet), done


def test_a_granted_directory_is_no_way_up(lab, host_dir):
    (host_dir / "in").mkdir()
    (host_dir / "secret").write_text("the host")
    os.symlink("../secret", host_dir / "in/up")
    os.symlink(str(host_dir / "secret"), host_dir / "in/abs")
    os.chmod(host_dir, 0o755)
    for mode in ("ro", "cow"):
        counts["attacks tried"] += 3
        for path in ("/d/up", "/d/abs", "/d/../secret"):
            assert lab.run("-q", "--dir", f"{host_dir / 'in'}:/d:{mode}", "--", "cat", path).returncode == 1, (mode, path)


@pytest.mark.parametrize("at", ["/proc/self", "/etc/../proc", "/bin/x", "/var/run/x", "/", "", "/dev/pts", "/../x"])
def test_a_grant_at_an_odd_place_fails_or_stays_inside(lab, host_dir, at):
    counts["attacks tried"] += 1
    done = lab.run("-q", "--dir", f"{host_dir}:{at}:ro", "--", "sh", "-c", "cat /proc/kallsyms | head -c1; id -u", timeout=20)
    assert done.returncode in (0, 125, 126), done
    assert not done.stdout.replace(b"1000\n", b""), done


# kill -9.

@contextlib.contextmanager
def no_spawner(lab):
    """Kills it; the daemon, which would start the next one at once, stands still meanwhile."""
    pid, daemon = lab.status()["pid"], int(read(lab.run_dir / "carrel.pid"))
    os.kill(daemon, signal.SIGSTOP)
    try:
        os.kill(pid, signal.SIGKILL)
        # The processes that wait in its pool have its socket too, until they notice.
        end = clock() + 20
        while (lab.state.spawners() or alive(pid)) and clock() < end:
            time.sleep(0.005)
        assert not lab.state.spawners()
        yield
    finally:
        os.kill(daemon, signal.SIGCONT)


def kill_spawner(lab):
    with no_spawner(lab):
        pass


@pytest.mark.parametrize("victim", ["spawner", "runner", "both"])
def test_kill_9_leaves_nothing_once_the_next_one_starts(make_lab, victim):
    lab = make_lab()
    lab.run("--", "true")
    counts["attacks tried"] += 1
    runners = [lab.popen("run", "--", "sh", "-c", "sleep 1000 & setsid sleep 1000", stdin=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL) for _ in range(4)]
    end = clock() + 10
    while lab.status()["boxes"] < 4 and clock() < end:
        time.sleep(0.02)
    if victim != "runner":
        kill_spawner(lab)
    if victim != "spawner":
        for r in runners:
            r.kill()
            r.wait()
    # Boxes outlive the spawner; they end with their clients.
    for r in runners:
        r.kill()
        r.wait()
    assert lab.run("--", "true").returncode == 0
    assert lab.state.left_of_boxes() == []


def test_a_kept_box_outlives_the_spawner_and_is_found_again(make_lab):
    lab = make_lab()
    machine = lab.keep()
    kill_spawner(lab)
    counts["attacks tried"] += 1
    assert machine.exec("true").returncode == 0
    lab.run("--", "true")
    assert machine.id in [m["id"] for m in lab.machines()]
    machine.rm()


# The test build is not the product.

def test_the_product_holds_no_way_to_weaken_it():
    product, weak = ((BUILD / "libexec" / n).read_bytes() for n in ("carrel-spawn", "carrel-spawn-weak"))
    assert b"CARREL_WEAKEN" in weak and b"CARREL_WEAKEN" not in product
    assert b"WEAKEN" not in (BUILD / "carrel").read_bytes() + (BUILD / "libexec/carrel-guest").read_bytes()


def test_the_product_does_not_heed_the_variable(make_lab):
    lab = make_lab()
    lab.env["CARREL_WEAKEN"] = "seccomp,masks,capabilities,nosuid,netns"
    assert lab.run("--", "grep", "^Seccomp:", "/proc/self/status").stdout.split()[1] == b"2"
    lab = make_lab(weak="seccomp")  # the control
    assert lab.run("--", "grep", "^Seccomp:", "/proc/self/status").stdout.split()[1] == b"0"
