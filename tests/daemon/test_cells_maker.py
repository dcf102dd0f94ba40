"""The worker that makes dumps of interpreters runs beside the daemon: it has little memory, and ends with the daemon."""
import contextlib
import hashlib
import os
import pathlib
import signal
import subprocess
import time

import pytest

import cells
from daemon import Daemon
from patience import clock, sanitized
from test_cells_dumps import TEXT, binary
from test_cells_warm import CELL, warm

MOST = 512 << 20
LARGE = ["--memory", "16384", "--fuel", "10000000000"]
TABLES, ELEMENTS = 11, 10_000_000
# Its saved state is small, but the tables in it are 880 MB.
HUNGRY = TEXT.replace('(func (export "_start")', "".join(f"(table $t{i} {ELEMENTS} funcref)" for i in range(TABLES)) +
                      "(elem declare func $fill) (func $fill" +
                      "".join(f"(table.fill $t{i} (i32.const 0) (ref.func $fill) (i32.const {ELEMENTS}))" for i in range(TABLES)) +
                      ') (func (export "_start")', 1).replace("(call $say (i32.const 100)", "(call $fill) (call $say (i32.const 100)", 1)


def peak(words, **options):
    """Runs a command; returns its exit status and the most memory that it or a child of it had."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss << 10


def make(folder, program, image):
    """Makes a dump as the daemon does; returns the exit status, the memory and the size of the dump."""
    for name, data in (("program", program), ("image", image), ("dump", b"")):
        (folder / name).write_bytes(data)
    line = (f"exec -a carrel-cell-dump {CELL} python $PPID 3<{folder}/program 4<{folder}/image 5<>{folder}/dump")
    status, memory = peak(["bash", "-c", line])
    return status, memory, (folder / "dump").stat().st_size


def hungry_image(folder, program, good):
    """An image as an attacker writes it: the head of a good one, and a state with full tables."""
    (folder / "x.wasm").write_bytes(program)
    run = [CELL, "run", folder / "x.wasm", *LARGE]
    subprocess.run([*run, "--suspend-at", "27546000", "--out", folder / "state"], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    state = (folder / "state").read_bytes()
    wasi = 12 + int.from_bytes(state[8:12], "little")
    return good[:64] + hashlib.sha256(state[:wasi]).digest() + state, [*run, "--resume", folder / "state"]


@pytest.mark.skipif(sanitized(CELL), reason="the memory of a sanitized program cannot be limited")
def test_maker_of_dumps_has_little_memory(tmp_path):
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
    good, bad = binary(tmp_path / "good", TEXT), binary(tmp_path / "bad", HUNGRY, *LARGE)
    image = warm(tmp_path / "good", good)
    status, memory, size = make(tmp_path, good, image)
    assert status == 0 and memory < MOST and size > 0
    image, control = hungry_image(tmp_path / "bad", bad, image)
    assert len(bad) < 1 << 20 and len(image) < 1 << 20
    status, memory, _ = make(tmp_path, bad, image)
    assert status != 0 and memory < MOST, memory
    # A run of the same state, whose memory is that of its machine, uses what it asks for.
    status, memory = peak(control)
    assert status == 0 and memory > 1.5 * MOST, memory


def test_maker_refuses_another_parent(tmp_path):
    ran = subprocess.run(["bash", "-c", f"exec -a carrel-cell-dump {CELL} python 1 3</dev/null 4</dev/null 5</dev/null"])
    assert ran.returncode == 70


def makers(daemon):
    """Processes of this daemon that make a dump, and their children."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else [b""]
        except OSError:
            continue
        if words[0] == b"carrel-cell-dump" and words[2] == str(daemon).encode():
            found[int(entry.name)] = words
    return list(found)


def at_work(daemon):
    """The same, once the child is confined: from then on both end with their parents."""
    found = makers(daemon)
    with contextlib.suppress(OSError):
        states = [pathlib.Path(f"/proc/{pid}/status").read_text() for pid in found]
        return found if sanitized(CELL) or any("Seccomp:\t2" in s for s in states) else []
    return []


@pytest.fixture
def making(tmp_path):
    """A daemon whose worker stands still while it makes a dump."""
    d = Daemon()
    many = "".join(f"(func $g{i} (result i32) (i32.const {i}) {'(i32.const 3) i32.add ' * 300})" for i in range(2000))
    (tmp_path / "image").mkdir()
    program = binary(tmp_path / "image", TEXT.replace('(func (export "_start")', many + '(func (export "_start")', 1))
    files = {"bin_python.wasm": program, "bin_python.warm": warm(tmp_path / "image", program)}
    d.request("POST", "/v1/images", cells.image(**files), name="slow")
    machine = d.machine(kind="cell", image="slow")
    d.background(machine, ["python", "x.py"])
    pids = d.until(lambda: at_work(d.process.pid))
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    yield d
    if d.process.poll() is not None:
        d.start()
    d.stop()


def gone(pid):
    end = clock() + 20
    while makers(pid):
        assert clock() < end, "the worker does not end"
        time.sleep(0.01)


def test_daemon_that_ends_does_not_wait_for_a_dump(making):
    pid = making.process.pid
    assert makers(pid)
    making.process.send_signal(signal.SIGTERM)
    end = clock() + 20  # the worker itself has 30 seconds
    while making.process.poll() is None:
        assert clock() < end, "the daemon waits for the dump"
        time.sleep(0.01)
    assert making.process.returncode == 0
    gone(pid)


def test_maker_of_a_dump_ends_with_a_killed_daemon(making):
    pid = making.process.pid
    assert makers(pid)
    making.kill()
    gone(pid)
