"""A storm that stands still says where everybody stands, instead of hanging: its own threads, the daemon and the spawner.

Nothing here ends a process. Whoever watches calls beat() whenever something went on; after `limit_s` without one the
report is said and the main thread is interrupted with Stuck, once. What does not even heed that is left by its caller's
own time limit, with the report said.
"""
import contextlib
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import traceback

from host_state import read
from patience import PATIENCE, clock

LOG_CHARS = 3000
GDB_S = 60


class Stuck(Exception):
    """Nothing went on for too long; the report was said."""


def our_threads():
    names = {t.ident: t.name for t in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)} of the storm:"
        yield from "".join(traceback.format_stack(frame)).splitlines()[-30:]


def kernel_side(pid):
    """Each thread of a process: its state, the system call it is in, and where that waits."""
    status = read(f"/proc/{pid}/status")
    state = next((line.split(None, 1)[1] for line in status.splitlines() if line.startswith("State:")), "gone")
    yield f"process {pid} {read(f'/proc/{pid}/cmdline').replace(chr(0), ' ')[:120]}: {state}"
    with contextlib.suppress(OSError):
        for task in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir()):
            yield f"  task {task.name} ({read(task / 'comm').strip()}): call {read(task / 'syscall').strip()}"
            for line in (read(task / "stack") or read(task / "wchan")).splitlines():
                yield f"    {line}"


def user_side(pid):
    """The stacks of a process, where there is a debugger; it goes on afterwards."""
    if not shutil.which("gdb"):
        return
    command = ["gdb", "-batch", "-nx", "-p", str(pid), "-ex", "thread apply all bt 20"]
    with contextlib.suppress(subprocess.TimeoutExpired, OSError):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=GDB_S * PATIENCE)
        for line in done.stdout.decode(errors="replace").splitlines():
            if line.startswith(("Thread", "#")):
                yield f"    {line}"


def report(daemon):
    """Lines: what each of us, the daemon and the spawner is doing now."""
    lines = list(our_threads())
    for pid in [daemon.process.pid, *daemon.host.spawners()]:
        lines += [*kernel_side(pid), *user_side(pid)]
    return [*lines, "the daemon's log ends:", *daemon.log()[-LOG_CHARS:].splitlines()]


class Watchdog:
    """with Watchdog(daemon, limit_s, say) as dog: ... dog.beat()"""

    def __init__(self, daemon, limit_s, say=print):
        self.daemon, self.limit_s, self.say = daemon, limit_s, say
        self.over = threading.Event()
        self.barked = False
        self.beat()

    def beat(self):
        self.last = clock()

    def interrupt(self, *_):
        raise Stuck(f"nothing went on for {self.limit_s} s")

    def watch(self):
        while not self.over.wait(0.2):
            if not self.barked and clock() - self.last > self.limit_s:
                self.barked = True
                for line in [f"nothing went on for {self.limit_s} s:", *report(self.daemon)]:
                    self.say(line)
                if not self.over.is_set():
                    signal.pthread_kill(self.main.ident, signal.SIGUSR1)

    def __enter__(self):
        self.main = threading.current_thread()
        self.before = signal.signal(signal.SIGUSR1, self.interrupt)
        self.thread = threading.Thread(target=self.watch, name="watchdog", daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # too late to interrupt anybody
        self.over.set()
        self.thread.join(GDB_S * PATIENCE)
        signal.signal(signal.SIGUSR1, self.before)
