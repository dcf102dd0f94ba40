"""Builds with base `host` follow the packages of the host.

The host of these tests is small: a mount namespace with a shell and a few tools in /usr, and with a list of packages
of its own, so that all its files are stored at once and its packages can change.
"""
import os
import shutil

import pytest

from carrel import BUILD, ROOTLESS
from daemon import DAEMON, Daemon
from trees import libraries, small_tree

pytestmark = pytest.mark.skipif(ROOTLESS, reason="a small host needs the right to mount")

HOST = f"""mount --make-rprivate /
mount --bind "$0/status" /var/lib/dpkg/status
mount --bind "$0/tree/usr" /usr
exec {DAEMON} "$@"
"""


class SmallHost(Daemon):
    def __init__(self, where):
        self.packages = where / "status"
        self.program = ["unshare", "--mount", "/bin/sh", "-ec", HOST, str(where)]
        super().__init__()

    def furnish(self):
        """The image of the whole host is not the image of this one."""

    def strip(self):
        pass

    def build(self, **fields):
        """The record of a build that has ended well, and the lines of its log."""
        steps = [{"what": name, "command": f"echo made >/{name}", "make": True, "user": "root"} for name in ("one", "two")]
        made = self.post("/v1/images/builds", {"base": "host", "steps": steps, **fields})
        done = self.until(lambda: (b := self.get("/v1/images/builds/" + made["id"]))["state"] not in ("running", "uploading") and b)
        assert done["state"] == "done", (done, self.log())
        return done, self.request("GET", f"/v1/images/builds/{made['id']}/log", raw=True).decode()


@pytest.fixture
def host(tmp_path):
    if not os.path.exists("/var/lib/dpkg/status"):
        pytest.skip("this host has no packages of Debian")
    small_tree(tmp_path)
    parts = [BUILD / "libexec" / name for name in ("carrel-daemon", "carrel-spawn", "carrel-image")]
    disks = [path for path in ("/usr/sbin/mke2fs", "/usr/sbin/mkfs.btrfs") if os.path.exists(path)]
    for path in {*disks, *(path for program in parts + disks for path in libraries(program))}:
        to = tmp_path / "tree/usr" / os.path.realpath(os.path.dirname(path)).removeprefix("/usr/") / os.path.basename(path)
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists():
            shutil.copy(os.path.realpath(path), to)
    (tmp_path / "status").write_text("Package: one\nStatus: install ok installed\nVersion: 1\n\n")
    d = SmallHost(tmp_path)
    yield d
    d.stop()


NOTE = "all files of the host are stored first"


def own_files(host, image):
    top = host.home / "images" / image["id"] / "root"
    return {str(p.relative_to(top)) for p in top.rglob("*") if p.is_file()}


def test_steps_follow_the_packages_of_the_host_and_store_its_files_once(host, tmp_path):
    first, log = host.build()
    assert (first["made"], first["cached"]) == (2, 0) and log.count(NOTE) == 1
    images = sorted(host.get("/v1/images")["images"], key=lambda i: i["layers"])
    assert [i["layers"] for i in images] == [1, 2], images
    assert {"one", "usr/bin/sh"} <= own_files(host, images[0]) and own_files(host, images[1]) == {"two"}
    again, log = host.build()  # the control
    assert (again["made"], again["cached"], again["image"]) == (0, 2, first["image"]) and NOTE not in log
    host.request("POST", "/v1/images", (tmp_path / "small.tar").read_bytes(), name="small")
    above = host.build(base="small")[0]
    host.packages.write_text(host.packages.read_text().replace("Version: 1\n", "Version: 2\n"))
    later, log = host.build()
    assert (later["made"], later["cached"]) == (2, 0) and log.count(NOTE) == 1
    assert host.build()[0]["image"] == later["image"]
    assert host.build(base="small")[0]["image"] == above["image"], "its files are not those of the host"
