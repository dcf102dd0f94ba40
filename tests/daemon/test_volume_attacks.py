"""What a machine may leave in a volume for the next one. Each attack has a control: it works without the volume."""
import shutil
import subprocess

import pytest

from carrel import ROOTLESS
from test_auth import refused
from test_volumes import loops_of, machine, out, use, volume  # noqa: F401

pytestmark = pytest.mark.skipif(ROOTLESS, reason="rootless: volumes require root")


def status(d, m, line, **fields):
    return d.exec(m, line, **fields)["exec"]["status"]


@pytest.mark.parametrize("mode", ["rw", "cow", "ro"])
def test_setuid_program_in_a_volume_gives_no_rights(daemon, volume, mode):  # noqa: F811
    volume()
    plant = "cp /bin/bash {0}/bash && chmod 4755 {0}/bash"
    m = machine(daemon)
    assert status(daemon, m, plant.format("/data"), user="root") == 0
    assert status(daemon, m, plant.format("/opt"), user="root") == 0
    assert out(daemon, m, "stat -c %u:%a /data/bash") == "0:4755\n"
    assert out(daemon, m, "/opt/bash -p -c 'id -u'") == "0\n"  # control: on the machine's own disk it works
    assert out(daemon, m, "/data/bash -p -c 'id -u'") == "1000\n"
    daemon.delete(f"/v1/machines/{m}")
    other = machine(daemon, use(mode=mode))
    assert out(daemon, other, "/data/bash -p -c 'id -u'") == "1000\n"


def test_device_in_a_volume_cannot_be_opened(daemon, volume, tmp_path):  # noqa: F811
    v = volume()
    daemon.delete(f"/v1/machines/{machine(daemon)}")  # the first mount makes the directory of the files
    daemon.until(lambda: not loops_of(daemon))
    image = daemon.home / "volumes" / v["id"] / "disk"
    # In a namespace of its own: one that another test begins meanwhile would keep the mount.
    made = subprocess.run(["unshare", "--mount", "sh", "-ec", f"""mount -o loop {image} {tmp_path}
mknod -m 666 {tmp_path}/files/zero c 1 5
head -c 4 {tmp_path}/files/zero
umount {tmp_path}"""], check=True, capture_output=True)
    assert made.stdout == bytes(4), "control: it is a device"
    daemon.until(lambda: not loops_of(daemon))
    for mode in ("rw", "cow", "ro"):
        m = machine(daemon, use(mode=mode))
        r = daemon.exec(m, "stat -c %F /data/zero; head -c 1 /data/zero", user="root")
        assert r["stdout"] == "character special file\n" and "Permission denied" in r["stderr"], r
        daemon.delete(f"/v1/machines/{m}")


def test_machine_makes_no_device_and_does_not_reach_the_disk_itself(daemon, volume):  # noqa: F811
    volume()
    m = machine(daemon)
    device = out(daemon, m, "stat -c %d /data").strip()
    make = f"mknod /data/raw b {int(device) >> 8} {int(device) & 255}"
    assert "Operation not permitted" in daemon.exec(m, make, user="root")["stderr"]
    assert out(daemon, m, "ls /dev | grep -c loop || true") == "0\n"


def test_socket_in_a_volume_does_not_join_machines(daemon, volume):  # noqa: F811
    """Otherwise a machine without network could use that of another one."""
    if not shutil.which("python3"):
        pytest.skip("the host has no python3")
    volume()
    writer = machine(daemon)
    readers = [machine(daemon, use(mode=mode)) for mode in ("ro", "cow")]
    daemon.background(writer, ["python3", "-c", "import socket,time\ns=socket.socket(socket.AF_UNIX)\n"
                               "s.bind('/data/s')\ns.listen()\nimport os\nos.chmod('/data/s',0o777)\nos.mkfifo('/data/f',0o777)\n"
                               "open('/data/up','w')\nwhile 1: s.accept()"])
    daemon.until(lambda: status(daemon, writer, "test -e /data/up") == 0)
    connect = "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"/data/s\")'"
    assert status(daemon, writer, connect) == 0  # control
    for m in readers:
        assert status(daemon, m, "test -S /data/s") == 0
        assert "refused" in daemon.exec(m, connect)["stderr"]
    feed = "timeout 5 sh -c 'echo x >/data/f'"
    daemon.background(writer, ["sh", "-c", "cat /data/f >/tmp/got"])
    for m in readers:
        daemon.exec(m, feed)
    assert status(daemon, writer, "test -s /tmp/got") != 0
    assert status(daemon, writer, feed) == 0  # control
    daemon.until(lambda: status(daemon, writer, "test -s /tmp/got") == 0)


def test_path_with_a_symbolic_link_is_refused(daemon, volume):  # noqa: F811
    volume()
    m = daemon.machine()
    assert out(daemon, m, "readlink /var/run") == "/run\n"
    error = refused(400, "invalid", machine, daemon, use(at="/var/run/data"))
    assert "symbolic link" in error["message"]
    assert daemon.get("/v1/volumes/data")["machines"] == []  # it was given back
    out(daemon, machine(daemon, use(at="/srv/data")), "touch /srv/data/x")  # control


def test_link_in_a_volume_leads_nowhere_outside(daemon, volume):  # noqa: F811
    volume()
    m = machine(daemon)
    out(daemon, m, "ln -s /proc/1/root/etc/shadow /data/a; ln -s ../../../../etc/hostname /data/b")
    daemon.delete(f"/v1/machines/{m}")
    other = machine(daemon, use(mode="ro"), hostname="inner")
    assert status(daemon, other, "cat /data/a", user="root") != 0
    assert out(daemon, other, "cat /data/b") == out(daemon, other, "cat /etc/hostname")


def test_root_of_a_machine_owns_the_files_only_inside(daemon, volume):  # noqa: F811
    """On the host the file of a volume belongs to root, and nobody else can open it."""
    v = volume()
    m = machine(daemon)
    out(daemon, m, "touch /data/mine")
    assert status(daemon, m, "chown 1234:1234 /data/mine; chmod 777 /data", user="root") == 0
    top = daemon.home / "volumes"
    for path in top, top / v["id"]:
        assert path.stat().st_mode & 0o777 == 0o700
    assert (top / v["id"] / "disk").stat().st_mode & 0o777 == 0o600
    assert out(daemon, machine(daemon, use(mode="ro")), "stat -c %u /data/mine") == "1234\n"
