"""The container image of the daemon: its root runs the daemon as a container runtime does (make test-container).

The test is the runtime: it unpacks the layer, enters namespaces of its own and starts the program that the image's
configuration names. All that runs there ends with it.
"""
import contextlib
import gzip
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from carrel import BUILD  # noqa: E402
from patience import PATIENCE, clock  # noqa: E402

# The root, its volume on a disk of the host, and a filesystem for /run, as with `docker run --privileged`.
START = """
mount --make-rprivate /
mount --bind {root} {root}
mount --bind {volume} {root}/var/lib/carrel
mount -t proc none {root}/proc
mount --rbind /sys {root}/sys
mount --rbind /dev {root}/dev
mount -t tmpfs none {root}/run
cd {root}
pivot_root . mnt
umount -l /mnt
exec chroot . env -i {words}
"""


def image():
    (found,) = (BUILD / "container").glob("carrel_*.oci.tar")
    return found


class Container:
    def __init__(self, folder):
        with tarfile.open(image()) as tar:
            def read(name):
                return tar.extractfile(name).read()

            def blob(of):
                data = read("blobs/sha256/" + of["digest"].removeprefix("sha256:"))
                assert "sha256:" + hashlib.sha256(data).hexdigest() == of["digest"]
                return data

            manifest = json.loads(blob(json.loads(read("index.json"))["manifests"][0]))
            self.config = json.loads(blob(manifest["config"]))["config"]
            layer = gzip.decompress(blob(manifest["layers"][0]))
        self.root, self.volume = folder / "root", folder / "volume"
        self.root.mkdir()
        self.volume.mkdir(mode=0o700)
        subprocess.run(["tar", "-x", "--numeric-owner", "--xattrs", "-p", "-C", self.root], input=layer, check=True, timeout=120 * PATIENCE)
        for name in ("dev", "proc", "sys", "run", "mnt", "var/lib/carrel"):
            (self.root / name).mkdir(exist_ok=True)

    def start(self, *options):
        words = " ".join([*self.config["Env"], *self.config["Entrypoint"], *options])
        self.entry = subprocess.Popen(["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-ec",
                                       START.format(root=self.root, volume=self.volume, words=words)], stdin=subprocess.DEVNULL)
        deadline = clock() + 60
        children = pathlib.Path(f"/proc/{self.entry.pid}/task/{self.entry.pid}/children")
        while not (text := children.read_text().split()):
            assert clock() < deadline
            time.sleep(0.1)
        self.first = int(text[0])
        while pathlib.Path(f"/proc/{self.first}/comm").read_text() != "tini\n" or self("carrel", "ls", check=False).returncode:
            assert self.entry.poll() is None and clock() < deadline
            time.sleep(0.1)

    def __call__(self, *words, check=True):
        """As `docker exec`."""
        done = subprocess.run(["nsenter", "--target", str(self.first), "--mount", "--pid", "--ipc", "--uts", "--root", "--wd", "env", "-i",
                               *self.config["Env"], "HOME=/root", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120 * PATIENCE)
        assert done.returncode == 0 or not check, done
        return done.stdout if check else done

    def stop(self):
        """As `docker stop`; the exit status of its first program."""
        os.kill(self.first, signal.SIGTERM)
        return self.entry.wait(60 * PATIENCE)

    def end(self, program):
        """Ends the processes of one program."""
        space, deadline = os.readlink(f"/proc/{self.first}/ns/pid"), clock() + 30
        while pids := [int(p.name) for p in pathlib.Path("/proc").glob("[0-9]*") if runs(p, program, space)]:
            assert clock() < deadline
            for pid in pids:
                os.kill(pid, signal.SIGTERM)
            time.sleep(0.1)

    def close(self):
        """A runtime also removes the cgroups of a container. Here the spawner does, while process 1 waits."""
        if self.entry.poll() is None:
            os.kill(self.first, signal.SIGSTOP)
            self.end("carrel-daemon")
            self.end("carrel-spawn")
            self.entry.kill()
            self.entry.wait()


def runs(process, program, space):
    try:
        return os.readlink(process / "ns/pid") == space and os.readlink(process / "exe").endswith("/" + program)
    except OSError:
        return False  # it ended, or is a zombie


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("only root can be a container runtime here")
    with contextlib.closing(Container(tmp_path_factory.mktemp("container"))) as c:
        c.start()
        yield c


def test_two_builds_are_the_same_bytes():
    (again,) = (BUILD / "container-again").glob("carrel_*.oci.tar")
    one, two = (hashlib.sha256(path.read_bytes()).hexdigest() for path in (image(), again))
    assert one == two


def test_nothing_of_the_host_is_in_the_image(container):
    listed = (container.root / "etc/apt/sources.list").read_text()
    assert {line.split()[1].split("/")[2] for line in listed.splitlines()} == {"deb.debian.org"}
    assert not list((container.root / "etc/apt/sources.list.d").iterdir())
    assert not (container.root / "etc/hostname").exists() and not (container.root / "etc/resolv.conf").exists()


def test_the_daemon_runs_machines_and_the_volume_keeps_them(container):
    assert container("carrel", "run", "--", "echo", "hello") == "hello\n"
    m = container("carrel", "new", "--name", "work").strip()
    container("carrel", "exec", m, "--", "sh", "-c", "echo kept >file")
    container("carrel", "snap", m, "one")
    deadline = clock() + 60
    while not any(s.get("name") == "one" and s["durable"] for s in json.loads(container("carrel", "steps", m, "--json"))["steps"]):
        assert clock() < deadline
        time.sleep(0.1)
    assert container.stop() == 0
    container.start()
    container("carrel", "resume", m)
    assert container("carrel", "exec", m, "--", "cat", "file") == "kept\n"
    container("carrel", "rm", m)


def test_orphans_are_collected(container):
    container("sh", "-c", "(sleep 0.1 &) ; exit 0")
    deadline = clock() + 30
    while "Z" in container("sh", "-c", "for p in /proc/[0-9]*/stat; do sed 's/.*) \\(.\\).*/\\1/' $p 2>/dev/null; done || true"):
        assert clock() < deadline
        time.sleep(0.2)
