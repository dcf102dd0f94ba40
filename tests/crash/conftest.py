"""Faults at a chosen system call: the spawner or the client runs under strace, which injects them."""
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from carrel import DAEMON, GUEST, PROGRAM, SPAWNER, Carrel, stop_daemon, stop_spawner  # noqa: E402
import patience  # noqa: E402
from patience import PATIENCE  # noqa: E402

WRAPPER = """#!/bin/sh
# Stands where carrel-spawn is looked for. FAULT is what strace injects; without it, the real one.
PATH={real}:$PATH
[ -z "$FAULT" ] && exec {spawner} "$@"
exec strace -o "$TRACE" -e trace=all -e inject="$FAULT" carrel-spawn "$@"
"""


time_limit = patience.time_limit(300)


def pytest_collection_modifyitems(items):
    why = None if shutil.which("strace") else "strace is not there: apt-get install strace"
    if not why:
        probe = subprocess.run(["strace", "-o", "/dev/null", "-e", "inject=getppid:error=EIO", "true"], stderr=subprocess.PIPE)
        why = None if probe.returncode == 0 else "strace may not trace here: " + probe.stderr.decode().strip()
    for item in items if why else ():
        if "faults" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip(reason=why))


class Faults(Carrel):
    """A carrel whose spawner, once started, runs into a fault."""

    def __init__(self, home=None):
        super().__init__(home)
        self.tree = self.dir / "bin"
        (self.tree / "libexec/real").mkdir(parents=True)
        shutil.copy(PROGRAM, self.tree / "carrel")
        shutil.copy(GUEST, self.tree / "libexec/carrel-guest")
        shutil.copy(DAEMON, self.tree / "libexec/carrel-daemon")
        (self.tree / "libexec/real/carrel-spawn").symlink_to(SPAWNER)
        wrapper = self.tree / "libexec/carrel-spawn"
        wrapper.write_text(WRAPPER.format(real=self.tree / "libexec/real", spawner=SPAWNER))
        wrapper.chmod(0o755)

    def with_fault(self, fault, *words, timeout=60):
        """`carrel WORDS` with a spawner that meets the fault; what came of it."""
        stop_daemon(self.run_dir)  # the next one hands the fault on to the spawner it starts
        env = {**self.env, "FAULT": fault, "TRACE": str(self.dir / "trace")}
        done = subprocess.run([str(self.tree / "carrel"), *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=timeout * PATIENCE)
        stop_daemon(self.run_dir)
        return done

    def client_with_fault(self, fault, *words, timeout=60):
        """The same for the client; its spawner is whole."""
        return subprocess.run(["strace", "-o", str(self.dir / "trace"), "-e", "trace=all", "-e", "inject=" + fault, PROGRAM, *words],
                              env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout * PATIENCE)

    def trace_length(self):
        return sum(1 for line in open(self.dir / "trace", errors="replace") if "(" in line)

    def stop(self):
        self.run("-q", "--", "true")  # takes away what one that was killed has left
        super().stop()

    def fresh_run(self):
        """The next fault starts from nothing but the image."""
        stop_daemon(self.run_dir)
        stop_spawner(self.run_dir)
        left = self.host.left()
        shutil.rmtree(self.run_dir, ignore_errors=True)
        assert not left, left


@pytest.fixture(scope="session")
def home():
    """One store for all: its image is built once."""
    c = Carrel()
    c.run("-q", "--", "true")
    stop_daemon(c.run_dir)  # one store, one daemon
    yield c.home
    c.stop()


@pytest.fixture
def faults(home):
    c = Faults(home)
    yield c
    c.stop()


@pytest.fixture
def own(home):
    c = Carrel(home)
    c.run("-q", "--", "true")
    yield c
    c.stop()
