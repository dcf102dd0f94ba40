"""A vm restarts, panics or is powered off from inside: the machine stays, with its files."""
import contextlib
import json
import os
import subprocess

from carrel import PROGRAM
from daemon import Refused
from qemu import answers, events, qemu_of


def root(daemon, machine, script):
    done = daemon.exec(machine, script, user="root")
    assert done["exec"]["status"] == 0, done["stderr"]
    return done["stdout"]


def restart(daemon, machine, how):
    """Restarts it from inside, and waits for another boot."""
    before = root(daemon, machine, "cat /proc/sys/kernel/random/boot_id")
    count = events(daemon, machine).count("machine.rebooted")
    how()
    daemon.until(lambda: events(daemon, machine).count("machine.rebooted") == count + 1, seconds=120)
    for _ in range(200):  # more than a machine may run: those that fail while it boots do not count
        answers(daemon, machine)
    daemon.until(lambda: answers(daemon, machine), seconds=240)
    assert root(daemon, machine, "cat /proc/sys/kernel/random/boot_id") != before


REBOOT = {"x86_64": 169, "aarch64": 142}.get(os.uname().machine)
RESTART = f"sync; perl -e 'syscall({REBOOT}, 0xfee1dead, 672274793, 0x1234567, 0)'"
OFF = RESTART.replace("0x1234567", "0x4321fedc")
PANIC = "sync; echo c >/proc/sysrq-trigger"


def in_background(daemon, machine, script):
    """Its answer may get lost with the vm."""
    with contextlib.suppress(Refused):
        daemon.background(machine, script, user="root")


def reasons(daemon, machine):
    """Why it restarted, as the journal says."""
    audit = subprocess.run([PROGRAM, "audit", "--json"], env=daemon.env, capture_output=True, text=True, timeout=60).stdout
    rows = [e for e in map(json.loads, audit.splitlines()) if e.get("verb") == "machine.reboot" and e.get("machine") == machine]
    return [e["reason"] for e in rows if e.get("reason")]


def test_a_vm_that_restarts_panics_or_is_powered_off_keeps_its_files(daemon):
    m = daemon.machine(kind="vm")
    daemon.exec(m, "echo kept >~/note")
    before = daemon.background(m, "sleep 10000")
    restart(daemon, m, lambda: in_background(daemon, m, RESTART))
    assert daemon.exec(m, "cat ~/note")["stdout"] == "kept\n"
    ended = daemon.wait(m, before)
    assert ended["state"] in ("failed", "unknown"), ended
    assert daemon.get(f"/v1/machines/{m}")["state"] == "running"
    restart(daemon, m, lambda: in_background(daemon, m, PANIC))
    assert daemon.exec(m, "cat ~/note")["stdout"] == "kept\n"
    # Powered off, it takes no memory, and its newest files are there when it is resumed.
    daemon.exec(m, "echo late >>~/note")
    in_background(daemon, m, OFF)
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] == "stopped", seconds=120)
    daemon.until(lambda: not qemu_of(m))
    assert daemon.exec(m, "cat ~/note")["stdout"] == "kept\nlate\n"
    said = reasons(daemon, m)
    assert any("restarted from inside" in r for r in said) and any("panicked" in r for r in said), said
    daemon.delete(f"/v1/machines/{m}")
