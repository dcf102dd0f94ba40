"""Boxes to attack: the product, and the test build with a defence left out."""
import collections
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

from carrel import signal_all, stop_daemon  # noqa: E402
import host_image  # noqa: E402
from guestlink import Link  # noqa: E402
from host_state import HostState, read, sub_ids  # noqa: E402, F401
from kinds import words_with_kind  # noqa: E402
from patience import PATIENCE  # noqa: E402

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CARREL_BUILD") or TOP / "build").resolve()
ATTACK = BUILD / "tests/security/attack"
ROOTLESS = os.geteuid() != 0
PLACE = "/var/tmp"  # on disk: older kernels cannot show a tmpfs through a map of ids
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

# Printed at the end.
counts = collections.Counter()


class Lab:
    """One run directory with its daemon and spawner. weak: defences to leave out; guest: another pid 1; worker: of cells."""

    def __init__(self, weak=None, guest=None, worker=None):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cs-", dir=PLACE))  # short: it holds sockets
        self.run_dir, self.home = self.dir / "run", self.dir / "home"
        self.program = BUILD / "carrel"
        self.env = {"PATH": PATH, "HOME": str(self.dir), "LANG": "C.UTF-8", "CARREL_TEST_SECRET": "swordfish",
                    "CARREL_RUN": str(self.run_dir), "CARREL_HOME": str(self.home)}
        if "ASAN_OPTIONS" in os.environ:
            self.env["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"]
        if weak is not None or guest or worker:
            self._other_programs(weak, guest, worker)
        host_image.lend(self.home)
        self.state = HostState(self.run_dir, self.home, sub_ids() if ROOTLESS else ())

    def _other_programs(self, weak, guest, worker):
        libexec = self.dir / "bin/libexec"
        libexec.mkdir(parents=True)
        self.program = self.dir / "bin/carrel"
        shutil.copy(BUILD / "carrel", self.program)
        shutil.copy(BUILD / "libexec/carrel-daemon", libexec / "carrel-daemon")
        shutil.copy(BUILD / "libexec" / ("carrel-spawn" if weak is None else "carrel-spawn-weak"), libexec / "carrel-spawn")
        shutil.copy(guest or BUILD / "libexec/carrel-guest", libexec / "carrel-guest")
        if worker:
            shutil.copy(worker, libexec / "carrel-cell")
            shutil.copy(BUILD / "libexec/carrel-image", libexec / "carrel-image")
        if weak is not None:
            self.env["CARREL_WEAKEN"] = weak

    def popen(self, *args, **kw):
        return subprocess.Popen([self.program, *words_with_kind(args)], env=self.env, **kw)

    def __call__(self, *args, input=None, timeout=60, **kw):
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        if input is None:
            kw.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run([self.program, *words_with_kind(args)], env=self.env, input=input, timeout=timeout * PATIENCE, **kw)

    def run(self, *args, **kw):
        return self("run", *args, **kw)

    def keep(self, *options):
        """A machine in which nothing has run yet. Tests talk to its guest themselves, and steps would not wait for them."""
        done = self("new", "--steps", "manual", *options)
        assert done.returncode == 0, done
        return Machine(self, done.stdout.decode().strip())

    def machines(self):
        """Also right when the daemon, which nobody needed for some seconds, has ended: then there are none."""
        done = self("ls", "--json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)["machines"]

    def status(self):
        """What the spawner tells of itself, through the daemon; and the machines."""
        done = self("stats", "--json")
        assert done.returncode == 0, done
        return {**json.loads(done.stdout)["box"], "machines": self.machines()}

    def unenforced(self):
        return self.status()["unenforced"]

    def spawner_kb(self):
        pid = self.status()["pid"]
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0])

    def stop(self):
        """Ends all machines, daemon and spawner; then nothing may be left, and the places go."""
        for machine in self.machines():
            self("rm", machine["id"])
        stop_daemon(self.run_dir)
        signal_all(self.state.spawners(), 15)
        left = self.state.left()
        if "CARREL_WEAKEN" not in self.env:  # an attack may have written to it
            host_image.take_back(self.home)
        host_image.remove(self.dir)
        assert left == [], left


class Machine:
    def __init__(self, lab, id):
        self.lab, self.id = lab, id
        self.socket = lab.run_dir / "boxes" / id / "guest.sock"
        self.settled = 0  # when the daemon has acknowledged its last command, whose number is then free

    def exec(self, *args, user="root", options=(), **kw):
        self.settled = time.monotonic() + 0.3 * PATIENCE
        return self.lab("exec", "-u", user, *options, self.id, "--", *args, **kw)

    def popen(self, *args, user="root", options=(), **kw):
        self.settled = time.monotonic() + 0.3 * PATIENCE
        return self.lab.popen("exec", "-u", user, *options, self.id, "--", *args, **kw)

    def sh(self, script, user="root"):
        done = self.exec("sh", "-c", script, user=user)
        assert done.returncode == 0, done
        return done.stdout.decode()

    def install(self, program=ATTACK):
        """The attacker, as a program of the box."""
        done = self.exec("sh", "-c", "cat > /usr/local/bin/attack && chmod 755 /usr/local/bin/attack",
                         input=pathlib.Path(program).read_bytes())
        assert done.returncode == 0, done
        return self

    def connect(self):
        """A raw connection to the guest. The path may be too long for a socket, so by descriptor."""
        time.sleep(max(0, self.settled - time.monotonic()))
        s = socket.socket(socket.AF_UNIX)
        fd = os.open(self.socket.parent, os.O_PATH)
        try:
            s.connect(f"/proc/self/fd/{fd}/guest.sock")
        finally:
            os.close(fd)
        s.settimeout(20 * PATIENCE)
        return s

    def link(self):
        return Link(self.connect())

    def rm(self):
        done = self.lab("rm", self.id)
        assert done.returncode == 0, done


def outcomes(text):
    return {row["n"]: row["outcome"] for row in map(json.loads, text.splitlines())}
