"""The spawner ends although the kernel still works for a process of it that was killed."""
import ctypes
import os
import pathlib
import signal
import time

import pytest

from carrel import parent_of, spawner_pids
from daemon import Daemon
from patience import clock

PTRACE_CONT, PTRACE_SEIZE, TRACE_EXIT = 7, 0x4206, 1 << 6
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def children(pid, name):
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text().strip() == name and parent_of(entry.name) == pid:
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def test_spawner_does_not_wait_for_mounts_that_the_kernel_removes():
    """The removal of a million files takes the kernel long. Here a tracer holds the killed process at its end instead."""
    d = Daemon()
    m = d.machine()
    d.exec(m, "true")
    d.delete(f"/v1/machines/{m}")
    spawner = spawner_pids(d.run_dir)[0]
    pid = d.until(lambda: children(spawner, "carrel-bury"))[0]
    if libc.ptrace(PTRACE_SEIZE, pid, None, TRACE_EXIT) < 0:
        why = os.strerror(ctypes.get_errno())
        d.stop()
        pytest.skip(f"cannot trace the process: {why}")
    d.clear()
    d.end()
    os.kill(spawner, signal.SIGTERM)
    _, status = os.waitpid(pid, 0)  # it has stopped at its end, and is not gone
    assert os.WIFSTOPPED(status) and status >> 8 == signal.SIGTRAP | 6 << 8
    end = clock() + 10
    while spawner in spawner_pids(d.run_dir):
        assert clock() < end, "the spawner waits for the killed process"
        time.sleep(0.01)
    libc.ptrace(PTRACE_CONT, pid, None, None)
    d.start()
    d.stop()
