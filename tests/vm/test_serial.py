"""carrel serial: the console of a vm, which needs neither its guest nor a daemon that listens all the time."""
import contextlib
import os
import pty
import re
import select
import subprocess

import pytest

from carrel import PROGRAM
from daemon import Refused
from qemu import answers, events


@pytest.fixture
def serial(daemon):
    """Runs `carrel serial` with these words."""
    def run(*words, stdin=subprocess.DEVNULL):
        return subprocess.run([PROGRAM, "serial", *words], stdin=stdin, capture_output=True, env=daemon.env, timeout=60)
    return run


def say(daemon, vm, text):
    """Writes to the console from inside."""
    daemon.exec(vm, f"printf '%s\\n' '{text}' >/dev/ttyS0", user="root")


class Screen:
    """`carrel serial` at a terminal."""

    def __init__(self, daemon, vm):
        self.fd, side = pty.openpty()
        self.process = subprocess.Popen([PROGRAM, "serial", vm], stdin=side, stdout=side, stderr=side, env=daemon.env, start_new_session=True)
        os.close(side)
        self.daemon, self.seen = daemon, b""

    def until(self, pattern):
        def found():
            if select.select([self.fd], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    self.seen += os.read(self.fd, 65536)
            return re.search(pattern, self.seen)
        self.daemon.until(found)

    def type(self, text):
        os.write(self.fd, text)

    def leave(self):
        self.type(b"\x1d\x1d\x1d")
        assert self.process.wait(30) == 0
        os.close(self.fd)


def test_the_log_has_what_was_written_while_nobody_looked(daemon, vm, serial):
    say(daemon, vm, "first words")
    daemon.restart(hard=True)
    say(daemon, vm, "second words")
    log = serial("--log", vm)
    assert log.returncode == 0 and b"first words" in log.stdout and log.stdout.endswith(b"second words\r\n"), log
    at = log.stdout.index(b"second")
    assert serial("--log", "--offset", str(at), vm).stdout == log.stdout[at:]
    assert serial("--log", "--offset", "99999999", vm).stdout == b""


def test_a_shell_on_the_console_is_used_by_two_terminals_at_once(daemon, vm):
    shell = daemon.background(vm, "sh -i </dev/ttyS0 >/dev/ttyS0 2>&1", user="root")
    one, other = Screen(daemon, vm), Screen(daemon, vm)
    one.until(rb"three times")
    one.type(b"echo typed-$((40 + 2))\r")
    one.until(rb"typed-42")
    other.until(rb"typed-42")
    other.type(b"echo also-$((1 + 2))\r")
    one.until(rb"also-3")
    other.leave()
    one.leave()
    daemon.post(f"/v1/machines/{vm}/execs/{shell}/signal", {"signal": "KILL"})


def test_the_console_keeps_its_last_bytes(daemon, vm, serial):
    """More than is kept: the newest bytes are there, and the first line tells their offset."""
    daemon.exec(vm, "i=0; while [ $i -lt 3000 ]; do echo \"$i 0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890\"; "
                    "i=$((i + 1)); done >/dev/ttyS0; echo the end >/dev/ttyS0", user="root")
    log = serial("--log", vm).stdout
    assert len(log) == 256 << 10 and log.endswith(b"the end\r\n")


def test_the_console_works_while_the_guest_does_not(daemon, serial):
    """A kernel that panics says so on the console before QEMU ends."""
    m = daemon.machine(kind="vm", name="panics")
    screen = Screen(daemon, m)
    screen.until(rb"three times")
    with contextlib.suppress(Refused):
        daemon.background(m, "sleep 1; echo c >/proc/sysrq-trigger", user="root")
    screen.until(rb"(?i)kernel panic")
    assert screen.process.wait(60) in (0, 125)
    daemon.until(lambda: "machine.rebooted" in events(daemon, m) and answers(daemon, m), seconds=120)
    daemon.delete(f"/v1/machines/{m}")


def test_a_box_has_no_console(daemon, serial):
    m = daemon.machine()
    done = serial("--log", m)
    assert done.returncode == 125 and b"is a box, which has no serial console" in done.stderr and done.stderr.count(b"\n") == 1, done
    daemon.delete(f"/v1/machines/{m}")
