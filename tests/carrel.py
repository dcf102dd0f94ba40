"""The command line as a test uses it: its own run directory and store, and a terminal of its own."""
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time

import host_image
from host_image import remove
from host_state import HostState
from kinds import words_with_kind
from patience import PATIENCE, clock

TOP = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("CARREL_BUILD") or TOP / "build")
PROGRAM = str(BUILD / "carrel")
SPAWNER = str(BUILD / "libexec/carrel-spawn")
GUEST = str(BUILD / "libexec/carrel-guest")
DAEMON = str(BUILD / "libexec/carrel-daemon")
ROOTLESS = os.geteuid() != 0
SOAK = bool(os.environ.get("CARREL_SOAK"))
LIMIT_S = 60


def sample(count, wanted):
    """All of 1..count in a soak, otherwise as many as wanted, spread evenly."""
    if SOAK or count <= wanted:
        return range(1, count + 1)
    if wanted == 1:
        return [(count + 1) // 2]
    return sorted({1 + i * (count - 1) // (wanted - 1) for i in range(wanted)})


class Carrel:
    """One run directory with its daemon and spawner, started by the first command and ended by stop()."""

    def __init__(self, home=None):
        """home: a store to share, which then stays."""
        # Short: a socket's path has 107 bytes.
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ci-", dir="/tmp"))
        self.run_dir, self.home = self.dir / "run", pathlib.Path(home or self.dir / "home")
        self.env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.dir),
                    "LANG": "C.UTF-8", "CARREL_RUN": str(self.run_dir), "CARREL_HOME": str(self.home)}
        self.host = HostState(self.run_dir, self.home)
        if not home:
            host_image.lend(self.home)
        if "ASAN_OPTIONS" in os.environ:
            self.env["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"]

    def popen(self, *args, env=(), **kw):
        return subprocess.Popen([PROGRAM, *words_with_kind(args)], env={**self.env, **dict(env)}, **kw)

    def __call__(self, *args, stdin=None, env=(), timeout=LIMIT_S, **kw):
        """Runs `carrel ARGS`; stdin are bytes for a pipe, or None for /dev/null."""
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        source = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        if hasattr(stdin, "fileno"):
            source = {"stdin": stdin}
        done = subprocess.run([PROGRAM, *words_with_kind(args)], env={**self.env, **dict(env)}, timeout=timeout * PATIENCE,
                              **source, **kw)
        if PATIENCE > 1 and isinstance(done.stderr, bytes):  # what only a slow host says
            done.stderr = done.stderr.removeprefix(b"carrel: preparing this host for its first machine...\n")
        return done

    def run(self, *args, **kw):
        return self("run", *args, **kw)

    def sh(self, script, *options, **kw):
        """A shell script in a box; its stdout as text. Fails the test when the script does."""
        done = self.run(*options, "--", "sh", "-c", script, **kw)
        assert done.returncode == 0, (script, done)
        return done.stdout.decode()

    def status(self):
        """What the spawner tells of itself, through the daemon; and the machines."""
        done = self("stats", "--json")
        box = json.loads(done.stdout)["box"] if done.returncode == 0 else {"boxes": 0}
        return {**box, "machines": json.loads(self("ls", "--json").stdout)["machines"]}

    def machines(self):
        done = self("ls", "--json")
        assert done.returncode == 0, done
        return [m["id"] for m in json.loads(done.stdout)["machines"]]

    def spawner_pid(self):
        return self.status().get("pid")

    def quiet(self, seconds=10):
        """Waits until no box is left."""
        end = clock() + seconds
        while self.status().get("boxes"):
            assert clock() < end, self.status()
            time.sleep(0.01)

    def keep(self, *options):
        """A kept machine; its id."""
        done = self.run("--keep", "--json", *options, "--", "true")
        assert done.returncode == 0, done
        return json.loads(done.stdout)["machine"]

    def clear(self):
        """Removes what a failed test left, so that the next one starts clean."""
        for machine in self.machines():
            self("rm", machine)

    def log(self):
        path = self.run_dir / "spawn.log"
        return path.read_text() if path.exists() else ""

    def stop(self):
        """Ends daemon and spawner as their idle time does, and removes what they were given."""
        self.clear()
        stop_daemon(self.run_dir)
        stop_spawner(self.run_dir)
        left = self.host.left()
        if self.home.is_relative_to(self.dir):
            host_image.take_back(self.home)
        remove(self.dir)
        assert not left, left


def alive(pid):
    """One whose last thread has ended is none, even if nobody has waited for it yet: some hosts' init takes seconds."""
    try:
        dead = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")
        return not dead or len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def stop_daemon(run_dir):
    """Ends the daemon that commands have started, if there is one."""
    try:
        pid = int(pathlib.Path(run_dir, "carrel.pid").read_text())
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return
    if str(run_dir).encode() not in words:  # its number was another namespace's, or it is gone
        return
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + 20
    while alive(pid):
        assert time.monotonic() < end, "the daemon does not leave"
        time.sleep(0.01)


def spawner_pids(run_dir):
    """Host pids of the spawner of a run directory, and after it of those that wait in its pools."""
    found = {}
    for entry in os.listdir("/proc"):
        try:
            words = pathlib.Path("/proc", entry, "cmdline").read_bytes().split(b"\0") if entry.isdigit() else []
        except OSError:
            continue
        if words and words[0] == b"carrel-spawn" and str(run_dir).encode() in words:
            found[int(entry)] = parent_of(entry)
    return sorted(found, key=lambda pid: found[pid] in found)


def comm(pid):
    """The name of a process; "" if it has ended."""
    try:
        return pathlib.Path("/proc", str(pid), "comm").read_text().strip()
    except OSError:
        return ""


def parent_of(pid):
    try:
        return int(pathlib.Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def signal_all(pids, number):
    """To those that are still there: what waits in a pool comes and goes."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def stop_spawner(run_dir, how=signal.SIGTERM, seconds=10):
    """Those that are there; a daemon starts another one at once."""
    pids = spawner_pids(run_dir)
    signal_all(pids, how)
    end = clock() + seconds
    while set(pids) & set(spawner_pids(run_dir)):
        assert clock() < end, "the spawner does not end"
        time.sleep(0.01)


class Terminal:
    """A command on a real terminal."""

    def __init__(self, carrel, *args, rows=24, cols=80, cwd=None, env=()):
        self.fd, slave = pty.openpty()
        self.size(rows, cols)
        self.before = termios.tcgetattr(slave)
        self.text = b""

        def own_terminal():
            os.setsid()
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell in the background ignores it, and so do its children
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = carrel.popen(*args, stdin=slave, stdout=slave, stderr=slave, cwd=cwd,
                                    preexec_fn=own_terminal, env={"TERM": "xterm", **dict(env)})
        self.slave = slave

    def size(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, data):
        os.write(self.fd, data)

    def _read(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return b""
        try:
            return os.read(self.fd, 65536)
        except OSError:
            return b""

    def expect(self, wanted, seconds=20):
        """Reads until the text is there; what came after it stays for the next call."""
        end = clock() + seconds
        while wanted not in self.text:
            assert clock() < end, (wanted, self.text)
            self.text += self._read(0.1)
            if self.process.poll() is not None and not select.select([self.fd], [], [], 0)[0]:
                break
        assert wanted in self.text, (wanted, self.text)
        seen, _, self.text = self.text.partition(wanted)
        return seen

    def close(self, seconds=20):
        """Waits for the end; the exit status and the rest of what was shown."""
        end = clock() + seconds
        while self.process.poll() is None:
            assert clock() < end, self.text
            self.text += self._read(0.05)
        while data := self._read(0):
            self.text += data
        self.after = termios.tcgetattr(self.slave)
        os.close(self.fd)
        os.close(self.slave)
        return self.process.returncode, self.text
