"""A carrel-guest in its own pid and mount namespace, for tests: no spawner, no image."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

from guestlink import Link, Port
from patience import PATIENCE

BUILD = os.environ.get("CARREL_BUILD") or str(pathlib.Path(__file__).parents[2] / "build")
GUEST = BUILD + "/libexec/carrel-guest"
CGROUP = pathlib.Path("/sys/fs/cgroup")


def unshare_command():
    cmd = ["unshare", "--fork", "--pid", "--mount", "--mount-proc", "--kill-child"]
    return cmd if os.geteuid() == 0 else cmd + ["--user", "--map-root-user"]


def why_not():
    """A reason why no guest can be started here, or None."""
    if not shutil.which("unshare"):
        return "no unshare(1)"
    done = subprocess.run(unshare_command() + ["true"], capture_output=True, text=True)
    return None if done.returncode == 0 else "namespaces are not permitted: " + done.stderr.strip()


class Cgroups:
    """Spare command cgroups of one kind (v1 freezer or v2), and v1 work cgroups."""

    ROOTS = {"v1": CGROUP / "freezer", "v2": CGROUP / "unified"}

    @classmethod
    def why_not(cls, kind):
        root = cls.ROOTS[kind]
        if kind == "v2" and (CGROUP / "cgroup.procs").exists():
            root = CGROUP
        probe = root / f"carrel-probe-{os.getpid()}"
        try:
            probe.mkdir()
            probe.rmdir()
        except OSError as e:
            return f"cgroup {kind}: {e}"
        return None

    def __init__(self, kind, count):
        self.kind, self.fds, self.dirs, self.args = kind, [], [], []
        root = self.ROOTS[kind]
        if kind == "v2" and (CGROUP / "cgroup.procs").exists():
            root = CGROUP
        self.base = root / f"carrel-test-{os.getpid()}-{id(self):x}"
        self.base.mkdir()
        self.dirs.append(self.base)
        self.spares = [self.spare(i) for i in range(count)]

    def spare(self, i):
        d = self.base / f"c{i}"
        d.mkdir()
        self.dirs.append(d)
        files = ([("cgroup.procs", os.O_RDWR), ("freezer.state", os.O_RDWR)] if self.kind == "v1"
                 else [("cgroup.procs", os.O_RDWR), ("cgroup.freeze", os.O_RDWR),
                       ("cgroup.kill", os.O_WRONLY)])
        fds = [os.open(d / name, flags | os.O_CLOEXEC) for name, flags in files]
        self.fds += fds
        return fds

    def procs(self, i):
        return (self.base / f"c{i}" / "cgroup.procs").read_text().split()

    def close(self):
        for fd in self.fds:
            os.close(fd)
        for d in reversed(self.dirs):
            d.rmdir()


class Guest:
    def __init__(self, *, ctl=True, listen=False, spawn=False, port=False, admin=False, linger=0, deadline_ms=0, spares=(),
                 tasks=(), files=0, more=()):
        self.dir = tempfile.mkdtemp(prefix="carrel-guest-")
        os.chmod(self.dir, 0o755)
        keep, args = [], [f"linger={linger}", f"deadline_ms={deadline_ms}"]
        self.link = self.spawner = None
        self.lingers = linger
        ours = {}
        for name, wanted in (("ctl", ctl), ("spawn", spawn), ("port", port)):
            if wanted:
                ours[name], theirs = socket.socketpair()
                keep.append(theirs.detach())
                args.append(f"{name}={keep[-1]}")
        self.path = self.dir + "/guest.sock"
        for name, wanted in (("listen", listen), ("admin", admin)):
            if wanted:
                server = socket.socket(socket.AF_UNIX)
                server.bind(self.path if name == "listen" else self.path + ".admin")
                server.listen(8)
                keep.append(server.detach())
                args.append(f"{name}={keep[-1]}")
        for fds in spares:
            args.append("cg=" + ":".join(map(str, fds)))
        args += more
        if tasks:
            args.append("tasks=" + ",".join(map(str, tasks)))
        limit = ["prlimit", f"--nofile={files}:{files}"] if files else []
        pass_fds = keep + [fd for fds in spares for fd in fds] + list(tasks)
        self.process = subprocess.Popen(unshare_command() + limit + [GUEST] + args, pass_fds=pass_fds,
                                        stdin=subprocess.DEVNULL)
        for fd in keep:
            os.close(fd)
        if spawn:
            self.spawner = Link(ours["spawn"])
        if ctl or port:
            self.link = Link(ours["ctl" if ctl else "port"], port=None if ctl else Port())

    def connect(self, hello=True, path=None):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path or self.path)
        return Link(sock, hello)

    def pid(self):
        """Of the guest itself, as seen from outside."""
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return int(pathlib.Path(children).read_text().split()[0])

    def kill(self):
        """The guest first: acting as another user has cleared its wish to die with its parent."""
        try:
            os.kill(self.pid(), signal.SIGKILL)
        except (IndexError, FileNotFoundError, ProcessLookupError, PermissionError):
            pass
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        for link in self.link, self.spawner:
            if link:
                link.sock.close()
        try:
            self.process.wait(0 if self.lingers else 3 * PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)
