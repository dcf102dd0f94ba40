"""kill -9 at any system call, or a system call that fails: never half a box, and nothing left."""
import contextlib
import json
import os
import signal
import subprocess
import threading
import time

import pytest
from carrel import GUEST, ROOTLESS, SOAK, SPAWNER, alive, sample, spawner_pids, stop_daemon, stop_spawner
from conftest import Faults
from host_state import read
from patience import PATIENCE, clock


def recovers(c):
    """The next one starts, works, and has taken away what the last one left."""
    done = c.run("-q", "--", "echo", "ok")
    if done.returncode == 125:
        honest(done)  # a fault meant for later than the first box met this one; there is only one
        done = c.run("-q", "--", "echo", "ok")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok\n", b""), done
    left = c.host.left_of_boxes()
    assert not left, left


def no_machine(c):
    """What `run` leaves is taken away behind its back, also by the daemon that comes after."""
    end = clock() + 10
    while machines := c.machines():
        assert clock() < end, machines
        time.sleep(0.02)


def honest(done, status=0, out=b"ok\n"):
    """Either it worked, or it says in one line that it did not."""
    if done.returncode == status:
        assert done.stdout == out, done
    else:
        text = "\n".join(l for l in done.stderr.decode().splitlines() if "preparing this host" not in l)
        assert done.returncode == 125 and text.count("\n") == 0 and text.startswith("carrel: "), done


def path_length(faults):
    """System calls of a spawner from its start to the end of its first box."""
    done = faults.with_fault("getppid:error=EIO:when=60000", "run", "-q", "--", "echo", "ok")
    assert done.stdout == b"ok\n", done
    time.sleep(0.3)
    length = faults.trace_length()
    faults.fresh_run()
    assert length > 100
    return length


def dies(run_dir, seconds=0.6):
    """Whether the fault is met, sooner or later: the pool is filled after the first box."""
    end = clock() + seconds
    while spawner_pids(run_dir):
        if clock() > end:
            return False
        time.sleep(0.01)
    return True


def test_spawner_killed_at_each_step(faults):
    count = path_length(faults)
    tried = sorted({*sample(count // 4, 12), *sample(count, 8)})
    killed = 0
    for n in tried:
        done = faults.with_fault(f"all:signal=SIGKILL:when={n}", "run", "-q", "--", "echo", "ok")
        honest(done)
        killed += dies(faults.run_dir)
        stop_spawner(faults.run_dir, signal.SIGKILL)
        recovers(faults)
        faults.fresh_run()
    assert killed > len(tried) // 4, "the kills must fall while the box is made, too"


@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EMFILE", "ENOMEM"])
def test_a_system_call_of_the_spawner_fails(faults, error):
    count = path_length(faults)
    for n in sample(count, 6):
        done = faults.with_fault(f"all:error={error}:when={n}", "run", "-q", "--", "echo", "ok", timeout=100)
        honest(done)
        honest(faults.run("-q", "--", "echo", "ok"))  # the fault may come only now
        recovers(faults)
        faults.fresh_run()


# What a kernel may lack; each must be there for the suites to pass, so the refusal is ours.
FEATURES = ["fsopen", "fsmount", "open_tree", "move_mount", "mount_setattr", "clone3", "unshare", "setns", "pidfd_send_signal", "openat2"]


@pytest.mark.parametrize("call", FEATURES)
def test_no_kernel_feature_is_one_line_and_nothing_left(faults, call):
    done = faults.with_fault(f"{call}:error=ENOSYS", "run", "-q", "--", "echo", "ok")
    honest(done)
    if done.returncode:
        assert b"Function not implemented" in done.stderr, done
    stop_spawner(faults.run_dir)
    faults.fresh_run()


def test_image_building_killed():
    """The first start builds the image: a half-built one is never used."""
    c = Faults()
    try:
        for n in sample(30000, 2):
            for image in c.home.glob("images/*"):
                subprocess.run(["rm", "-rf", str(image)], check=True)
            done = c.with_fault(f"all:signal=SIGKILL:when={n}", "run", "-q", "--", "echo", "ok")
            honest(done)
            stop_spawner(c.run_dir)
            recovers(c)
            assert c.sh("cat /etc/shells | wc -l; dpkg-query -W bash | cut -f1", "-q").split()[1] == "bash"
            assert not [p for p in (c.home / "images").iterdir() if p.name.endswith(".new")]
            stop_daemon(c.run_dir)
            stop_spawner(c.run_dir)
    finally:
        c.stop()


def test_client_killed_at_each_step(faults):
    recovers(faults)
    probe = faults.client_with_fault("getppid:error=EIO:when=60000", "run", "--", "true")
    assert probe.returncode == 0
    count = faults.trace_length()
    assert 20 < count < 2000
    for n in range(1, count + 1):
        faults.client_with_fault(f"all:signal=SIGKILL:when={n}", "run", "--", "true")
    recovers(faults)
    assert faults.status()["boxes"] == 0
    faults.fresh_run()


def test_client_killed_while_it_starts_the_spawner(faults):
    for n in sample(90, 8):
        faults.client_with_fault(f"all:signal=SIGKILL:when={n}", "run", "--", "true")
        recovers(faults)
        faults.fresh_run()


def kill_spawner(c):
    pid = c.spawner_pid()
    os.kill(pid, signal.SIGKILL)
    while alive(pid):
        time.sleep(0.005)
    return pid


def test_a_kept_box_outlives_the_spawner_and_is_adopted(own):
    m = own.keep()
    own("exec", m, "--", "sh", "-c", "echo before > ~/f; setsid sleep 500 >/dev/null 2>&1 </dev/null & until pgrep -x sleep; do :; done")
    first = kill_spawner(own)
    assert own("exec", m, "--", "cat", "f").stdout == b"before\n"  # needs no spawner
    recovers_with_box = own.run("-q", "--", "echo", "ok")
    assert recovers_with_box.stdout == b"ok\n" and own.spawner_pid() != first
    assert m in own.machines()
    assert own("exec", m, "--", "cat", "f").stdout == b"before\n"
    assert own("exec", m, "--", "pgrep", "-x", "sleep").returncode == 0
    assert own("rm", m).returncode == 0 and m not in own.machines()
    left = own.host.left_of_boxes()
    assert not left, left


def test_commands_go_on_in_an_adopted_box(own):
    """More commands than any spawner left spare cgroups for."""
    m = own.keep()
    kill_spawner(own)
    own.run("-q", "--", "true")
    for i in range(20):
        assert own("exec", m, "--", "echo", str(i)).stdout == b"%d\n" % i
    assert own("rm", m).returncode == 0


def test_a_run_goes_on_without_the_spawner(own):
    process = own.popen("run", "--", "sh", "-c", "echo ready; read x; echo $x; exit 5", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    kill_spawner(own)
    process.stdin.write(b"still here\n")
    process.stdin.close()
    assert process.stdout.read() == b"still here\n" and process.wait(20 * PATIENCE) == 5
    process.stdout.close()
    recovers(own)


def test_a_run_box_ends_with_its_client_even_without_a_spawner(own):
    process = own.popen("run", "--", "sh", "-c", "echo ready; exec sleep 500", stdout=subprocess.PIPE)
    process.stdout.readline()
    kill_spawner(own)
    process.kill()
    process.wait()
    process.stdout.close()
    end = clock() + 10
    while [p for p in own.host.processes() if "sleep" in p]:  # the daemon's next spawner has guests that wait
        assert clock() < end, own.host.processes()
        time.sleep(0.02)
    recovers(own)


def test_spawner_killed_again_and_again_under_load(own):
    stop = threading.Event()
    bad = []

    def client(i):
        n = 0
        while not stop.is_set():
            n += 1
            done = own.run("-q", "--", "sh", "-c", f"exit {(i * 31 + n) % 100}")
            if done.returncode not in ((i * 31 + n) % 100, 125):
                bad.append(done)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for _ in range(40 if SOAK else 6):
        time.sleep(0.25)
        try:
            kill_spawner(own)
        except (TypeError, ProcessLookupError, json.JSONDecodeError):
            pass
    stop.set()
    for t in threads:
        t.join()
    assert not bad, bad[:3]
    recovers(own)


def test_clients_race_to_start_the_spawner(own):
    for _ in range(5):
        stop_daemon(own.run_dir)
        stop_spawner(own.run_dir)
        results = []

        def one():
            results.append(own.run("-q", "--", "echo", "ok"))

        threads = [threading.Thread(target=one) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert [(r.returncode, r.stdout) for r in results] == [(0, b"ok\n")] * 8, results
        assert len({own.spawner_pid()}) == 1


def own_spawner(own, *options):
    """A spawner of the test's own in the place of the daemon's."""
    stop_daemon(own.run_dir)
    stop_spawner(own.run_dir)
    process = subprocess.Popen(["carrel-spawn", "--run", own.run_dir, "--home", own.home, "--guest", GUEST, *options],
                               executable=SPAWNER, stderr=subprocess.DEVNULL)
    end = clock() + 10
    while not (own.run_dir / "spawn.sock").exists():
        assert clock() < end and process.poll() is None
        time.sleep(0.01)
    return process


# Longer than a daemon may take to start and to find the spawner, or it would start another.
IDLE_S = 2 * PATIENCE


def test_the_spawner_leaves_when_idle_and_takes_all_it_made_along(own):
    before = favoured()
    process = own_spawner(own, "--idle-ms", str(int(1000 * IDLE_S)))
    assert own.run("-q", "--", "true").returncode == 0
    stop_daemon(own.run_dir)
    assert process.wait(20 * PATIENCE) == 0
    left = own.host.left()
    assert not left, left
    assert set(os.listdir(own.run_dir)) <= {"spawn.lock", "spawn.log", "carrel.log", "daemon.lock"}
    if not others():
        assert favoured() == before


def favoured():
    return "favordynmods" in open("/proc/mounts").read()


def others():
    """Spawners of other run directories keep favordynmods on."""
    return subprocess.run(["pgrep", "-x", "carrel-spawn"], stdout=subprocess.DEVNULL).returncode == 0


def test_the_spawner_stays_while_a_machine_is_kept(own):
    process = own_spawner(own, "--idle-ms", str(int(1000 * IDLE_S)))
    machine = own.keep("-q")
    stop_daemon(own.run_dir)
    time.sleep(IDLE_S + 1)
    assert process.poll() is None
    assert own("rm", machine).returncode == 0
    stop_daemon(own.run_dir)
    assert process.wait(20 * PATIENCE) == 0


def test_stale_sockets_are_no_obstacle(own):
    daemon = int((own.run_dir / "carrel.pid").read_text())
    os.kill(daemon, signal.SIGKILL)
    while alive(daemon):
        time.sleep(0.005)
    stop_spawner(own.run_dir, signal.SIGKILL)
    assert (own.run_dir / "spawn.sock").exists() and (own.run_dir / "carrel.sock").exists()
    no_machine(own)
    recovers(own)


def test_rubbish_in_the_books_is_cleared_away(own):
    stop_daemon(own.run_dir)
    stop_spawner(own.run_dir)
    for name, files in {"m-aaaaaaaaaaaa": {}, "m-bbbbbbbbbbbb": {"box": "slot=99999999\ncgroup=18446744073709551615\nimage=x"},
                        "m-cccccccccccc": {"box": "slot=3\ncgroup=7\n", "pid": "1"}, "m-dddddddddddd": {"box": "", "pid": "-1"}}.items():
        d = own.run_dir / "boxes" / name
        d.mkdir(parents=True)
        for file, text in files.items():
            (d / file).write_text(text)
    recovers(own)
    no_machine(own)
    assert os.path.exists("/proc/1")


def undertakers(run_dir):
    return [p for p in spawner_pids(run_dir) if read(f"/proc/{p}/comm") == "carrel-bury\n"]


@pytest.mark.skipif(ROOTLESS, reason="rootless nobody may look at a guest's namespaces, so there is nothing to bury")
def test_the_undertaker_killed_while_it_works(own):
    seen = set()
    for _ in range(3):
        ids = [own.keep() for _ in range(12)]
        ending = own.popen("rm", *ids)
        end = time.monotonic() + 30
        while ending.poll() is None:
            assert time.monotonic() < end
            for pid in undertakers(own.run_dir):
                seen.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.005)
        assert ending.returncode == 0
        own.quiet()
    assert seen, "no undertaker was met at work"
    recovers(own)


@pytest.mark.skipif(ROOTLESS, reason="rootless nobody may look at a guest's namespaces, so there is nothing to bury")
def test_the_undertaker_ends_with_the_spawner_whatever_it_is_doing(own):
    """One with all hands full does not notice that nobody gives it orders any more; nor does one that stands still."""
    own("rm", own.keep())
    pid, = undertakers(own.run_dir)
    os.kill(pid, signal.SIGSTOP)
    try:
        kill_spawner(own)
        end = time.monotonic() + 5
        while alive(pid):
            assert time.monotonic() < end, "it outlived the spawner"
            time.sleep(0.005)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    recovers(own)
