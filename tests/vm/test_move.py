"""carrel move: a box becomes a vm in place, and whatever dies on the way leaves a box or a vm with all its files."""
import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from carrel import PROGRAM, signal_all, spawner_pids
from daemon import Daemon, Refused, TcpClient, free_port
from qemu import qemu_of, files_of

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "console"))
from browser import Browser, BrowserError, missing  # noqa: E402

BOOT_S = 300  # as the daemon, which waits long for a kernel on a busy host


def move(daemon, machine, **fields):
    c = daemon.connect(timeout=BOOT_S)
    try:
        return daemon.post(f"/v1/machines/{machine}/move", {"kind": "vm", **fields}, connection=c)
    finally:
        c.close()


def steps(daemon, machine):
    return daemon.get(f"/v1/machines/{machine}/steps")["steps"]


@pytest.fixture(scope="module")
def moved(daemon, tmp_path_factory):
    """A box with one of everything that was made a vm; the answer of the move, and what it had as a box."""
    lent = tmp_path_factory.mktemp("lent")
    (lent / "given").write_text("given\n")
    fd = os.open(lent, os.O_RDONLY | os.O_DIRECTORY)
    fields = {"name": "up", "metadata": {"a": "b"}, "env": {"WORD": "kept"},
              "dirs": [{"path": str(lent), "at": "/home/user/lent", "mode": "cow"}]}
    m = daemon.send([fd], "/v1/machines", fields)["id"]
    os.close(fd)
    daemon.post(f"/v1/machines/{m}/net/rules", {"target": "http://allowed.test"})
    daemon.exec(m, "echo one >~/f")
    daemon.exec(m, "echo root >/etc/of-root", user="root")
    step = daemon.post(f"/v1/machines/{m}/steps", {"name": "as-box"})
    daemon.exec(m, "echo two >~/f; echo changed >~/lent/given")
    running = daemon.background(m, "sleep 1000")
    before = daemon.get(f"/v1/machines/{m}/net")
    answer = move(daemon, m)
    yield answer, step, running, before
    daemon.delete(f"/v1/machines/{m}")


def test_a_box_becomes_a_vm_and_keeps_what_it_has(daemon, moved):
    answer, _, running, before = moved
    m = answer["id"]
    assert (answer["kind"], answer["state"], answer["name"], answer["metadata"]) == ("vm", "running", "up", {"a": "b"})
    x = daemon.exec(m, "uname -r; hostname; cat ~/f; cat ~/lent/given; cat /etc/of-root; echo $WORD")
    kernel, *rest = x["stdout"].splitlines()
    assert kernel != os.uname().release and rest == ["up", "two", "changed", "root", "kept"]
    assert daemon.wait(m, running)["reason"] == "killed"
    assert [r["target"] for r in daemon.get(f"/v1/machines/{m}/net")["rules"]] == [r["target"] for r in before["rules"]]
    assert "no rule allows" in daemon.exec(m, "curl -s -m 20 http://refused.test/")["stdout"]
    assert [s["what"] for s in steps(daemon, m) if s["restorable"]].count("before the move to a vm") == 1
    assert move(daemon, m)["kind"] == "vm"  # again: it is one already


def test_a_moved_vm_outlives_the_daemon_and_returns_to_a_step_of_the_box(daemon, moved):
    m, step = moved[0]["id"], moved[1]
    daemon.restart(hard=True)
    assert daemon.exec(m, "cat ~/f")["stdout"] == "two\n"
    daemon.post(f"/v1/machines/{m}/rewind", {"step": str(step["number"])})
    x = daemon.exec(m, "cat ~/f; uname -r")["stdout"].splitlines()
    assert x[0] == "one" and x[1] != os.uname().release
    assert daemon.get(f"/v1/machines/{m}")["kind"] == "vm"


def test_a_stopped_box_is_started_as_a_vm(daemon):
    m = daemon.machine(name="rests")
    daemon.exec(m, "echo kept >~/f")
    daemon.post(f"/v1/machines/{m}/stop")
    assert move(daemon, m, mem=256 << 20)["state"] == "running"
    assert daemon.exec(m, "cat ~/f; awk '$1 == \"MemTotal:\" {print ($2 < 262144)}' /proc/meminfo")["stdout"] == "kept\n1\n"
    daemon.delete(f"/v1/machines/{m}")


def refused(daemon, machine, **fields):
    with pytest.raises(Refused) as e:
        move(daemon, machine, **fields)
    return e.value


def test_a_move_that_cannot_be_is_refused_before_anything_is_stopped(kernel):
    port = free_port()
    d = Daemon("--listen", f"127.0.0.1:{port}", conf="[vm]\nkernel = /nonexistent/vmlinuz-0\n")
    try:
        m = d.machine()
        x = d.background(m, "sleep 1000")
        run = TcpClient(port, d.post("/v1/tokens", {"scopes": ["read", "run"]})["secret"])
        assert refused(d, m, mem=1 << 44).code == "limit"
        assert refused(d, m, mem=64 << 20).code == "invalid"
        assert refused(run, m).code == "denied"
        assert refused(d, m).code == "unsupported" and "/nonexistent/vmlinuz-0" in str(refused(d, m).error)
        asks, question = asked(d, m)
        with pytest.raises(Refused):
            d.post(f"/v1/pending/{question}", {"decision": "approve"})
        assert d.wait(m, asks)["status"] == 1
        assert d.get(f"/v1/machines/{m}")["kind"] == "box"
        assert d.get(f"/v1/machines/{m}/execs/{x}")["state"] == "running"
    finally:
        d.stop()


def victims_of(daemon, what, name):
    """The processes to kill; none if they are not there yet, or no more."""
    if what == "daemon":
        return [daemon.process.pid]
    if what == "spawner":
        return spawner_pids(daemon.run_dir)
    qemu = qemu_of(name)
    return [files_of(pid) for pid in qemu] if what == "files" else qemu


def during_a_move(daemon, machine, act):
    """Calls act() while the machine moves, and returns when the request has its answer, or lost its connection."""
    def ask():
        with contextlib.suppress(OSError, http.client.HTTPException, Refused):
            move(daemon, machine)

    asking = threading.Thread(target=ask)
    asking.start()
    act()
    asking.join()


def look_inside(daemon, machine):
    """A file and the kernel of the machine; None while it is on its way, or ends because its vm was killed."""
    state = daemon.get(f"/v1/machines/{machine}")["state"]
    with contextlib.suppress(Refused):
        if state == "stopped":  # a vm whose QEMU died goes back to its last step
            daemon.post(f"/v1/machines/{machine}/resume")
        lines = daemon.exec(machine, "cat ~/f; uname -r")["stdout"].splitlines()
        return lines if len(lines) == 2 else None


@pytest.mark.parametrize("what", ["daemon", "spawner", "qemu", "files"])
def test_what_is_killed_during_a_move_leaves_a_box_or_a_vm_with_its_files(daemon, what):
    """At once when the vm boots, then at any time. Afterwards the machine is one or the other, whole, and can move."""
    name = f"falls-{what}"
    m = daemon.machine(name=name)
    daemon.exec(m, "echo kept >~/f")

    def kill(wait):
        daemon.until(lambda: qemu_of(name))
        time.sleep(wait)
        signal_all(victims_of(daemon, what, name), signal.SIGKILL)
        if what == "daemon":
            daemon.process.wait()
            daemon.start()

    for wait in (0, random.Random(what).uniform(0.1, 3)):
        during_a_move(daemon, m, lambda: kill(wait))
        x = daemon.until(lambda: look_inside(daemon, m))
        is_vm = daemon.get(f"/v1/machines/{m}")["kind"] == "vm"
        assert x[0] == "kept" and is_vm == (x[1] != os.uname().release) and is_vm == bool(qemu_of(name))
        if is_vm:
            break
    assert move(daemon, m)["kind"] == "vm"
    assert daemon.exec(m, "cat ~/f")["stdout"] == "kept\n"
    daemon.delete(f"/v1/machines/{m}")
    daemon.until(lambda: not qemu_of(name))


def asked(daemon, machine):
    """Starts `carrel move` in the machine; its command, and the id of the question."""
    x = daemon.background(machine, "carrel move 'it needs mount'")
    item, = daemon.until(lambda: [p for p in daemon.get("/v1/pending")["pending"] if p["machine"] == machine])
    assert (item["question"], item["moves"]) == ("it needs mount", True)
    return x, item["id"]


def approve(daemon, machine, question):
    """In the page of the console where there is a browser; else over the API."""
    if missing():
        with contextlib.closing(daemon.connect(timeout=BOOT_S)) as c:
            daemon.post(f"/v1/pending/{question}", {"decision": "approve"}, connection=c)
        return
    browser = Browser()
    try:
        tab = browser.open(daemon.post("/console/link")["url"])
        tab.click("nav a:has-text('Approvals')")
        tab.click(".pending:not([aria-busy=true]):has-text('it needs mount') button:text('Approve and move')")
        tab.reads("All processes of the machine end")
        assert daemon.get(f"/v1/machines/{machine}")["kind"] == "box"
        tab.click("dialog button:text('Move')")
        for _ in range(BOOT_S // 30):
            with contextlib.suppress(BrowserError):
                tab.reads("The machine is a vm now.")
                break
        tab.gone(".pending:not(.ended)")
        tab.evaluate(f"location.hash = '#/machines/{machine}'")
        tab.click("summary:text('Details')")
        tab.shown(".facts dd:text-is('vm')")
        tab.done()
    finally:
        browser.stop()


def test_a_program_asks_for_the_move_and_the_owner_decides(daemon):
    m = daemon.machine(name="asks")
    x, question = asked(daemon, m)
    daemon.post(f"/v1/pending/{question}", {"decision": "deny"})
    assert daemon.wait(m, x)["status"] == 1 and daemon.get(f"/v1/machines/{m}")["kind"] == "box"
    x, question = asked(daemon, m)
    approve(daemon, m, question)
    assert daemon.get(f"/v1/machines/{m}")["kind"] == "vm" and daemon.wait(m, x)["reason"] == "killed"
    assert not [p for p in daemon.get("/v1/pending")["pending"] if p["machine"] == m]
    assert "only a box can become a vm" in daemon.exec(m, "carrel move 'it needs mount' 2>&1")["stdout"]
    daemon.delete(f"/v1/machines/{m}")


def test_a_vm_that_the_database_lost_is_taken_over_as_a_vm(daemon):
    lost = daemon.stray(kind="vm", name="lost")
    m = daemon.post(f"/v1/store/boxes/{lost}/adopt")
    assert (m["id"], m["kind"], m["limits"]["mem"]) == (lost, "vm", 512 << 20)
    assert daemon.exec(lost, "uname -r")["stdout"].strip() != os.uname().release
    daemon.delete(f"/v1/machines/{lost}")


def test_the_command_line_moves(daemon):
    m = daemon.machine(name="by-cli")

    def run(*words):
        return subprocess.run([PROGRAM, *words], env=daemon.env, capture_output=True, text=True, timeout=BOOT_S)

    assert "a box can only become a vm" in run("move", "--kind", "cell", "by-cli").stderr
    done = run("move", "--kind", "vm", "--mem", "256M", "by-cli")
    assert (done.returncode, done.stdout) == (0, f"{m} running\n"), done.stderr
    assert json.loads(run("move", "--json", "--kind", "vm", "by-cli").stdout)["kind"] == "vm"
    daemon.delete(f"/v1/machines/{m}")
