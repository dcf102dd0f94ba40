"""The Debian package in a Debian of its own: installed, upgraded under live machines, and removed (make test-deb).

Nothing of the host changes: the root is a folder, entered in namespaces of its own, and all that runs there ends
with them.
"""
import contextlib
import hashlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from carrel import BUILD  # noqa: E402
from patience import PATIENCE, clock  # noqa: E402
from test_debian import why_not  # noqa: E402

START = """
mount --make-rprivate /
mount --bind {root} {root}
mount -t proc none {root}/proc
mount --rbind /sys {root}/sys
mount --rbind /dev {root}/dev
mount -t tmpfs none {root}/run
cd {root}
pivot_root . mnt
exec chroot . bash -c 'umount -l /mnt; echo ready; while :; do sleep 1000 & wait; done'
"""


def package(folder):
    arch = subprocess.run(["dpkg", "--print-architecture"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    (found,) = (BUILD / folder).glob(f"carrel_*_{arch}.deb")
    return found


def field(deb, name):
    return subprocess.run(["dpkg-deb", "-f", deb, name], check=True, capture_output=True, text=True).stdout.strip()


class Root:
    """A Debian in a folder, with the package's dependencies and no systemd."""

    def __init__(self, path, packages):
        self.path = path
        subprocess.run(["unshare", "--mount", "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase",
                        f"--include={','.join(packages)}", "bookworm", path], check=True, timeout=600 * PATIENCE)
        self.entry = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", START.format(root=path)],
                                      stdout=subprocess.PIPE, text=True)
        assert self.entry.stdout.readline() == "ready\n"
        self.pid = int(pathlib.Path(f"/proc/{self.entry.pid}/task/{self.entry.pid}/children").read_text().split()[0])

    def command(self, *words):
        env = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"]
        return ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--root", "--wd", *env, *map(str, words)]

    def __call__(self, *words, check=True):
        done = subprocess.run(self.command(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120 * PATIENCE)
        assert done.returncode == 0 or not check, done
        return done.stdout if check else done

    def serve(self):
        """The daemon, as the unit starts it."""
        self.daemon = subprocess.Popen(self.command("carrel", "serve"), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.until(lambda: self("carrel", "ls", check=False).returncode == 0 == self("test", "-S", "/run/carrel/carrel.sock", check=False).returncode)

    def page(self):
        """What the daemon answers to a browser."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"/proc/{self.pid}/root/run/carrel/carrel.sock")
            s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return s.makefile("rb").read()

    def until(self, true):
        deadline = clock() + 60
        while not true():
            assert clock() < deadline
            time.sleep(0.1)

    def end_daemon(self):
        """As KillMode=process of the unit does: the main process alone."""
        self("sh", "-c", "kill $(cat /run/carrel/carrel.pid)")
        self.daemon.wait(60 * PATIENCE)

    def close(self):
        self.entry.kill()
        self.entry.wait()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("only root can make a root of its own")
    if reason := why_not():
        pytest.skip(reason)
    names = [re.split(r"[ (|]", d.strip())[0] for d in field(package("deb"), "Depends").split(",")]
    with contextlib.closing(Root(tmp_path_factory.mktemp("root") / "debian", names)) as r:
        r.path.chmod(0o755)
        yield r


def newer(deb, folder):
    """The same package with a higher version."""
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "-R", deb, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", r"\g<0>.1", control.read_text(), flags=re.M))
    path = folder / "newer.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, path], check=True, stdout=subprocess.DEVNULL)
    return path


def test_two_builds_are_the_same_bytes():
    one, two = (hashlib.sha256(package(folder).read_bytes()).hexdigest() for folder in ("deb", "deb-again"))
    assert one == two


def test_it_is_installed_upgraded_under_live_machines_and_removed(root, tmp_path):
    deb = package("deb")
    for source, name in (deb, "old.deb"), (newer(deb, tmp_path), "new.deb"):
        (root.path / name).write_bytes(source.read_bytes())
    root("dpkg", "-i", "/old.deb")
    assert root("getent", "group", "carrel")
    for path in ("lib/systemd/system/carrel.service", "usr/lib/systemd/user/carrel.service", "usr/share/man/man1/carrel-new.1.gz",
                 "usr/share/bash-completion/completions/carrel", "usr/share/zsh/site-functions/_carrel",
                 "usr/share/fish/vendor_completions.d/carrel.fish", "usr/share/doc/carrel/examples/carrel.conf"):
        assert (root.path / path).is_file(), path
    unit = (root.path / "lib/systemd/system/carrel.service").read_text()
    assert "ExecStart=/usr/bin/carrel serve" in unit
    root("sh", "-c", "sed 's/^#group/group/' /usr/share/doc/carrel/examples/carrel.conf >/etc/carrel.conf.new && "
                     "mkdir -p /etc/carrel && mv /etc/carrel.conf.new /etc/carrel/carrel.conf")

    root.serve()
    assert root("stat", "-c", "%G %a", "/run/carrel/carrel.sock") == "carrel 660\n"
    has_page = (root.path / "usr/share/carrel/console/index.html").is_file()
    assert (b"<title>" in root.page()) == has_page, root.page()
    m = root("carrel", "new", "--name", "work").strip()
    counting = subprocess.Popen(root.command("env", "CARREL_WAIT=300", "carrel", "exec", m, "--", "sh", "-c",
                                             "echo begun; while [ ! -e stop ]; do sleep 0.1; done; echo ended; exit 7"),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert counting.stdout.readline() == "begun\n"

    root("dpkg", "-i", "/new.deb")
    assert "deb-systemd-invoke" in (root.path / "var/lib/dpkg/info/carrel.postinst").read_text()
    root.end_daemon()
    root.serve()
    root("carrel", "exec", m, "--", "touch", "stop")
    assert counting.communicate(timeout=60 * PATIENCE)[0] == "ended\n" and counting.returncode == 7
    assert (root.path / "etc/carrel/carrel.conf").read_text().count("\ngroup = carrel") == 1

    root("carrel", "rm", m)
    root.end_daemon()
    done = root("dpkg", "--purge", "carrel", check=False)
    assert done.returncode == 0 and "stay in /var/lib/carrel" in done.stderr, done
    left = root("sh", "-c", "find /usr /lib /etc -name '*carrel*' -not -path '*/systemd/*'")
    assert left.split() == ["/etc/carrel", "/etc/carrel/carrel.conf"]
    assert (root.path / "var/lib/carrel/carrel.db").is_file(), "machines of owners stay"
