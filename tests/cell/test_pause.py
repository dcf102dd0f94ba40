"""The worker of a cell machine stores its program when the guest asks, and another worker continues it.

The tests are the guest: they hold the meter, the streams and the control socket.
"""
import array, contextlib, os, pathlib, shutil, socket, struct, subprocess, sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cells
from patience import PATIENCE

BUILD = pathlib.Path(os.environ.get("CARREL_BUILD", "build")).resolve()
CELL = BUILD / "libexec/carrel-cell"
PAUSE, GO_ON, STORED, CANNOT = range(1, 5)
FUEL = 10_000_000_000
TICKS = "".join(chr(97 + n % 26) + "\n" for n in range(120))
OTHER = {"aarch64": "x86_64", "x86_64": "aarch64"}


class Worker:
    """A process of carrel-cell with the descriptors that a guest gives it."""
    def __init__(self, words=None, state=None, runner=(), fuel=FUEL, env=None, name="carrel-cell-command", early=None):
        self.meter = os.memfd_create("meter")
        os.ftruncate(self.meter, 8)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(60 * PATIENCE)
        if early:
            self.ask(GO_ON)
            self.ask(PAUSE, early)
        given = {3: self.meter, 7: theirs.fileno()}
        if state:
            given[8] = os.open(state, os.O_RDONLY)
            name, argv = "carrel-cell-resume", []
        else:
            argv = [str(fuel), "0", "256", *map(str, words)]
        moved = {to: os.dup2(fd, 100 + to) for to, fd in given.items()}

        def place():
            for to, fd in moved.items():
                os.dup2(fd, to)
            os.closerange(9, 200)
        head = [*runner, "-0", name, str(CELL)] if runner else [name]
        self.process = subprocess.Popen([*head, *argv], executable=runner[0] if runner else str(CELL), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, close_fds=False, preexec_fn=place,
                                        env=env or {})
        for fd in moved.values():
            os.close(fd)
        theirs.close()

    def ask(self, kind, file=None, most=1 << 30):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))] if file else []
        with contextlib.suppress(BrokenPipeError):  # the worker may have ended
            self.control.sendmsg([struct.pack("=IIQ", kind, 0, most)], rights)

    def pause(self, path, **options):
        """Asks for a pause; returns the answer of the worker."""
        with open(path, "wb") as file:
            self.ask(PAUSE, file, **options)
            return self.answer()

    def answer(self):
        return struct.unpack("=IIQ", self.control.recv(16))[0]

    def read_lines(self, count):
        return b"".join(self.process.stdout.readline() for _ in range(count)).decode()

    def kill(self):
        """Ends the worker as the guest does, and returns what it had printed."""
        self.process.kill()
        out = self.process.stdout.read().decode()
        self.process.wait()
        return out

    def end(self, given=b""):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(given)
            self.process.stdin.close()
        out, err = self.process.stdout.read(), self.process.stderr.read()
        return out.decode(), err.decode(), self.process.wait(), self.fuel()

    def fuel(self):
        return struct.unpack("=Q", os.pread(self.meter, 8, 0))[0]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    for name, text in cells.PROGRAMS.items():
        (folder / f"{name}.wasm").write_text(text)
    return folder


@pytest.fixture(scope="module")
def whole(programs):
    """The end of the program if nobody stops it."""
    end = Worker([programs / "ticks.wasm"]).end()
    assert end[:3] == (TICKS, "", 7) and end[3] > 0
    return end


def test_program_is_the_same_after_many_pauses(programs, whole, tmp_path):
    w, out = Worker([programs / "ticks.wasm"]), ""
    for n in range(5):
        out += w.read_lines(3 + 5 * n)
        assert w.pause(tmp_path / f"{n}") == STORED
        out += w.kill()
        w = Worker(state=tmp_path / f"{n}")
        w.ask(GO_ON)
    out2, err, status, fuel = w.end()
    assert (out + out2, err, status, fuel) == whole


def test_program_is_stored_again_before_it_goes_on(programs, whole, tmp_path):
    """The worker is slow to start: both messages are there before its program asks whether to go on."""
    w = Worker([programs / "ticks.wasm"])
    out = w.read_lines(3)
    assert w.pause(tmp_path / "0") == STORED
    out += w.kill()
    for n in range(1, 4):
        with open(tmp_path / f"{n}", "wb") as file:
            w = Worker(state=tmp_path / f"{n - 1}", early=file)
        assert w.answer() == STORED
        out += w.kill()
    w = Worker(state=tmp_path / "3")
    w.ask(GO_ON)
    out2, err, status, fuel = w.end()
    assert (out + out2, err, status, fuel) == whole


def test_stored_program_waits_until_it_may_go_on(programs, whole, tmp_path):
    w = Worker([programs / "ticks.wasm"])
    first = w.read_lines(10)
    assert w.pause(tmp_path / "state") == STORED
    w.ask(GO_ON)
    out, err, status, fuel = w.end()
    assert (first + out, err, status, fuel) == whole, "the pause was given up"
    held = Worker(state=tmp_path / "state")
    with pytest.raises(subprocess.TimeoutExpired):
        held.process.wait(0.3)
    assert held.kill() == "" and held.fuel() == 0


def test_a_pause_that_is_given_up_at_once_changes_nothing(programs, whole, tmp_path):
    w = Worker([programs / "ticks.wasm"])
    with open(tmp_path / "state", "wb") as file:
        for _ in range(20):
            w.ask(PAUSE, file)
            w.ask(GO_ON)
    assert w.end() == whole


def test_program_that_waits_for_input_is_stored_and_reads_on(programs, tmp_path):
    w = Worker([programs / "cat.wasm"])
    w.process.stdin.write(b"one\n")
    w.process.stdin.flush()
    assert w.read_lines(1) == "one\n"
    assert w.pause(tmp_path / "state") == STORED
    assert w.kill() == ""
    w = Worker(state=tmp_path / "state")
    w.ask(GO_ON)
    assert w.end(b"two\n")[:3] == ("two\n", "", 0)


def test_input_that_was_not_read_is_stored(programs, tmp_path):
    """The program is stored before it reads: all its input is in the pipe."""
    text = (cells.PROGRAMS["cat"].replace('(local $n i32)', '(local $n i32) (local.set $n (i32.const 60000000))'
            '(loop $more (br_if $more (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))', 1))
    (tmp_path / "late.wasm").write_text(text)
    w = Worker([tmp_path / "late.wasm"])
    given = bytes(range(256)) * 200
    w.process.stdin.write(given)
    w.process.stdin.close()
    while not w.fuel():
        pass
    assert w.pause(tmp_path / "state") == STORED
    assert w.kill() == ""
    w = Worker(state=tmp_path / "state")
    w.ask(GO_ON)
    out, err = w.process.communicate(b"")
    assert out == given and err == b"" and w.process.returncode == 0


@pytest.mark.parametrize("most", [0, 100, 2000])
def test_program_runs_on_if_its_file_would_be_too_large(programs, whole, tmp_path, most):
    w = Worker([programs / "ticks.wasm"])
    first = w.read_lines(2)
    assert w.pause(tmp_path / "state", most=most) == CANNOT
    assert (tmp_path / "state").stat().st_size <= most
    out, *rest = w.end()
    assert (first + out, *rest) == whole


def test_program_runs_on_if_the_disk_is_full(programs, whole):
    w = Worker([programs / "ticks.wasm"])
    first = w.read_lines(2)
    assert w.pause("/dev/full") == CANNOT
    out, *rest = w.end()
    assert (first + out, *rest) == whole


def test_damaged_files_are_refused(programs, tmp_path):
    w = Worker([programs / "ticks.wasm"])
    w.read_lines(5)
    assert w.pause(tmp_path / "state") == STORED
    w.kill()
    good = (tmp_path / "state").read_bytes()
    size = len(good)
    damaged = [good[:n] for n in (0, 63, 80, size // 2, size - 1)] + [good + b"x"]
    damaged += [good[:n] + bytes([good[n] ^ 1]) + good[n + 1:] for n in (0, 8, 16, 24, 30, 40, 47, 48, size - 60, size - 16, size - 9, size - 1)]
    for n, content in enumerate(damaged):
        (tmp_path / "bad").write_bytes(content)
        w = Worker(state=tmp_path / "bad")
        w.ask(GO_ON)
        out, err, status, _ = w.end()
        assert out == "" and err and status in (125, 126), (n, status, err)


def test_stored_program_of_another_kind_is_refused(programs, tmp_path):
    """A file cannot make a worker run another entry: the first word is that of a command."""
    w = Worker([programs / "ticks.wasm"])
    w.read_lines(1)
    assert w.pause(tmp_path / "state") == STORED
    w.kill()
    content = (tmp_path / "state").read_bytes()
    for name in (b"carrel-cell-resume\0", b"carrel-cell-module\0"):
        assert content.count(b"carrel-cell-command\0") == 1
        put = content.replace(b"carrel-cell-command\0", name)
        put = put[:16] + struct.pack("<Q", struct.unpack("<Q", content[16:24])[0] - 1) + put[24:]
        (tmp_path / "bad").write_bytes(put)
        w = Worker(state=tmp_path / "bad")
        w.ask(GO_ON)
        out, err, status, _ = w.end()
        assert (out, status) == ("", 125) and "not one of a cell machine" in err


# qemu-user has no seccomp, without which the worker does not start.
NO_SECCOMP = """#include <sys/syscall.h>
#include <unistd.h>
int prctl(int what, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
    return what == 22 /* PR_SET_SECCOMP */ ? 0 : (int)syscall(SYS_prctl, what, a, b, c, d);
}
"""


def other_cpu(folder_of_test):
    """The words that run a carrel-cell of the other CPU, and its path."""
    arch = OTHER.get(os.uname().machine)
    qemu = shutil.which(f"qemu-{arch}") if arch else None
    folder = pathlib.Path(os.environ.get("CARREL_CROSS", BUILD.parent / "build-cross"))
    cell = folder / "libexec/carrel-cell"
    if not qemu or not cell.exists():
        pytest.skip(f"no {'qemu-' + str(arch) if not qemu else cell}: scripts/setup cross, make BUILD=build-cross")
    sysroot, stub = folder.parent / "build-cross-root/sysroot", folder_of_test / "stub.so"
    (folder_of_test / "stub.c").write_text(NO_SECCOMP)
    made = subprocess.run([f"{arch}-linux-gnu-gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", stub, folder_of_test / "stub.c"], capture_output=True)
    if made.returncode:
        pytest.skip(f"{arch}-linux-gnu-gcc cannot compile: libc6-dev-*-cross")
    root = sysroot if sysroot.exists() else f"/usr/{arch}-linux-gnu"
    return (qemu, "-L", str(root), "-E", f"LD_PRELOAD={stub}"), cell


def test_program_goes_on_with_the_other_cpu_and_comes_back(programs, whole, tmp_path, monkeypatch):
    qemu, cell = other_cpu(tmp_path)
    here = CELL
    w = Worker([programs / "ticks.wasm"])
    out = w.read_lines(7)
    assert w.pause(tmp_path / "here") == STORED
    out += w.kill()
    monkeypatch.setattr(sys.modules[__name__], "CELL", cell)
    w = Worker(state=tmp_path / "here", runner=qemu)
    w.ask(GO_ON)
    out += w.read_lines(5)
    assert w.pause(tmp_path / "there") == STORED
    out += w.kill()
    monkeypatch.setattr(sys.modules[__name__], "CELL", here)
    w = Worker(state=tmp_path / "there")
    w.ask(GO_ON)
    rest, err, status, fuel = w.end()
    assert (out + rest, err, status, fuel) == whole
