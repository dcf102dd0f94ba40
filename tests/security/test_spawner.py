"""The spawner against a guest that was taken over, a client that lies, and kill -9: groups 33, 35; and
the test build against the product."""
import array
import contextlib
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import time

import pytest

from lab import ATTACK, BUILD, PATH, ROOTLESS, Lab, counts, read
from patience import PATIENCE, clock


# A guest that was taken over.

def test_a_hostile_guest_does_not_hold_up_the_spawner(make_lab):
    lab = make_lab(guest=ATTACK)
    counts["attacks tried"] += 1
    client = lab.popen("run", "--keep", "--", "true", stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = clock() + 60
    while not (boxes := list(lab.run_dir.glob("boxes/*/box"))) and clock() < end:
        time.sleep(0.02)
    assert boxes
    kb = lab.spawner_kb()
    time.sleep(4)
    assert lab("ls", timeout=5).returncode == 0
    assert lab.spawner_kb() < kb + 2048
    assert descriptors(lab.status()["pid"]) < 400
    client.kill()
    client.wait()
    for box in os.listdir(lab.run_dir / "boxes"):
        assert lab("rm", box, timeout=10).returncode == 0


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


def test_a_stopped_guest_can_be_removed(make_lab):
    machine = make_lab().keep()
    counts["attacks tried"] += 1
    if not ROOTLESS:
        os.kill(guest_pid(machine), signal.SIGSTOP)
    machine.rm()


def freezers(machine):
    """The files that freeze what a box runs, on either kind of cgroup."""
    number = next(l for l in read(machine.socket.parent / "box").splitlines() if l.startswith("cgroup="))[7:]
    for d, _, files in os.walk("/sys/fs/cgroup"):
        if f"/{machine.lab.state.group}/b{number}" in d:
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

def test_a_granted_directory_passes_no_sockets_pipes_or_devices(lab, host_dir):
    """A socket of the host that answers would be a way out."""
    os.chmod(host_dir, 0o777)
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(host_dir)
    server.bind("socket")
    os.chdir(here)
    server.listen()
    os.mkfifo(host_dir / "fifo")
    os.chmod(host_dir / "socket", 0o777)
    (host_dir / "file").write_text("x")
    code = ("import socket,os\ns = socket.socket(socket.AF_UNIX)\n"
            "try: s.connect('/d/socket'); print('reached')\nexcept OSError as e: print(e.strerror)\n"
            "try: os.open('/d/fifo', os.O_WRONLY | os.O_NONBLOCK); print('reached')\nexcept OSError as e: print(e.strerror)\n")
    reader = os.open(host_dir / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    for mode in ("ro", "cow"):
        counts["attacks tried"] += 2
        done = lab.run("-q", "--dir", f"{host_dir}:/d:{mode}", "--", "python3", "-c", code)
        assert done.returncode == 0 and b"reached" not in done.stdout, (mode, done)
    os.close(reader)
    server.close()


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

def kill_spawner(lab):
    pid = lab.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    # The processes that wait in its pool have its socket too, until they notice.
    while lab.state.spawners() or "\nState:\tZ" not in read(f"/proc/{pid}/status") and os.path.exists(f"/proc/{pid}"):
        time.sleep(0.005)


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
    assert machine.id in [m["id"] for m in lab.status()["machines"]]
    machine.rm()


# The test build is not the product.

def test_the_product_holds_no_way_to_weaken_it():
    product, weak = ((BUILD / "libexec" / n).read_bytes() for n in ("carrel-spawn", "carrel-spawn-weak"))
    assert b"CARREL_WEAKEN" in weak and b"CARREL_WEAKEN" not in product
    assert b"WEAKEN" not in (BUILD / "carrel").read_bytes() + (BUILD / "libexec/carrel-guest").read_bytes()


def test_the_product_does_not_heed_the_variable(make_lab):
    lab = make_lab()
    lab.env["CARREL_WEAKEN"] = "seccomp,masks,capabilities,no_new_privs,netns"
    status = lab.run("--", "grep", "-E", "^(Seccomp|NoNewPrivs)", "/proc/self/status").stdout.split()
    assert status[1] == b"1" and status[3] == b"2"
    lab = make_lab(weak="seccomp")  # the control
    assert lab.run("--", "grep", "^Seccomp:", "/proc/self/status").stdout.split()[1] == b"0"
