"""The disk limit by project quota, where the store's filesystem has it: on an ext4 and an xfs of our own."""
import errno
import os
import pathlib
import re
import time

import pytest
from carrel import ROOTLESS
from quota_disk import FULL, LEAVE, MAKE, SMALL, Disk, on_disk, python, python_in, settled, stop, upper_of, way

pytestmark = pytest.mark.skipif(ROOTLESS, reason="rootless: a disk limit on disk is unsupported, and says so")


@pytest.fixture(scope="module", params=MAKE)
def disk(request):
    d = Disk(request.param)
    yield d
    d.close()


@pytest.fixture(scope="module")
def quota_session(disk):
    c = on_disk(disk)
    yield c
    stop(c, disk)


@pytest.fixture
def quota(quota_session):
    yield quota_session
    quota_session.clear()


def test_the_spawner_finds_it_and_doctor_says_so(quota):
    assert way(quota) == "quota"
    row = quota("doctor").stdout.decode().split("disk limit")[1].split("\n")
    assert "ok" in row[0] and "project quota" in row[0] and "project quota" in row[1], row


def test_bytes(quota, disk):
    megabytes, why = map(int, python(quota, "print(*fill('/tmp/f', 100))"))
    assert why == FULL[disk.kind] and 60 <= megabytes <= 64


def test_inodes(quota, disk):
    code = ("n = 0\ntry:\n  while n < 40000:\n    open(f'/tmp/f{n}', 'w').close(); n += 1\n"
            "except OSError as e: print(e.errno)\nprint(n)")
    why, count = map(int, python(quota, code, limits=["--mem", "40M", "--disk", "24M"]))
    assert why == FULL[disk.kind] and 6000 < count < 24 * 1024 // 4


def test_the_limit_is_one_for_the_whole_machine(quota, disk):
    lent = disk.mount / "lent"
    lent.mkdir(mode=0o777, exist_ok=True)
    code = ("total = 0\nfor d in '/tmp', '/usr/local', '/etc', os.environ['LENT']:\n"
            "  n, why = fill(d + '/f', 25); total += n\n  print(why)\nprint(total)")
    *reasons, total = map(int, python(quota, code, "--dir", lent, "--env", f"LENT={lent}", "-q"))
    assert reasons[:2] == [0, 0] and set(reasons[2:]) == {FULL[disk.kind]} and 60 <= total <= 64


def test_df_shows_the_limit(quota):
    size, inodes = python(quota, "v = os.statvfs('/'); print(v.f_blocks * v.f_frsize, v.f_files)")
    assert int(size) == 64 << 20 and int(inodes) == 16384


def test_deleting_gives_room_back(quota):
    assert python(quota, "for i in range(3):\n  print(*fill('/tmp/f', 40)); os.unlink('/tmp/f')") == ["40", "0"] * 3


def test_moving_and_linking_cross_no_border(quota):
    """Two projects in one box would make these fail with EXDEV."""
    code = ("os.rename('/etc', '/tmp/etc'); os.rename('/tmp/etc', '/etc')\n"
            "os.rename('/usr/share/doc', '/usr/local/doc')\n"
            "open('/var/tmp/a', 'w').close(); os.link('/var/tmp/a', '/tmp/b'); os.rename('/tmp/b', '/etc/hosts')\n"
            "os.link('/etc/passwd', '/tmp/p'); print('fine')")
    assert python(quota, code) == ["fine"]


def test_a_full_machine_disturbs_no_other(quota, disk):
    full = quota.keep(*SMALL)
    assert python_in(quota, full, "print(*fill('/tmp/f', 100))")[1] == str(FULL[disk.kind])
    assert python(quota, "print(*fill('/tmp/f', 60))") == ["60", "0"]
    assert quota.run("--", "sh", "-c", "echo x > /tmp/x && cat /tmp/x").stdout == b"x\n"
    limit, used, inodes_limit, _ = disk.projects()[int(upper_of(quota, full))]
    assert limit == 64 << 20 and 60 << 20 < used <= limit and inodes_limit == 16384


@pytest.mark.parametrize("what", LEAVE)
def test_nothing_can_leave_its_project(quota, disk, what):
    refused, megabytes, why = map(int, python(quota, LEAVE[what]))
    assert refused == errno.ENOTTY and megabytes <= 64 and why == FULL[disk.kind]


def test_the_spawner_itself_holds_no_power_to_pass_limits(quota):
    quota.run("--", "true")
    status = pathlib.Path(f"/proc/{quota.spawner_pid()}/status").read_text()
    for name in "CapEff", "CapPrm":
        assert not int(re.search(rf"{name}:\s+(\w+)", status)[1], 16) >> 24 & 1, name


def test_uppers_are_closed_to_others(quota):
    """A setuid program of a box lies there with the owner it has inside: root."""
    quota.keep(*SMALL)
    for path in quota.home / "uppers", *(quota.home / "uppers").glob("*"):
        assert path.stat().st_mode & 0o7777 == 0o700 and path.stat().st_uid == 0


def test_what_a_machine_leaves_is_removed_in_the_background(quota, disk):
    """Deep, many and large: removed without recursion and without anybody waiting."""
    machine = quota.keep("--mem", "200M", "--disk", "150M")
    code = ("fill('/tmp/large', 100)\nos.chdir('/tmp')\nfor i in range(1000): os.mkdir('d'); os.chdir('d')\n"
            "for i in range(1000): open(f'f{i}', 'w').close()\nos.symlink('/', 'link'); os.mkfifo('fifo')\nprint('made')")
    assert python_in(quota, machine, code) == ["made"]
    upper = int(upper_of(quota, machine))
    assert disk.projects()[upper][1] > 100 << 20
    began = time.monotonic()
    assert quota("rm", machine).returncode == 0
    assert quota.run("--", "true").returncode == 0
    answered = time.monotonic() - began
    assert settled(lambda: upper in disk.projects(), False, 60) is False
    print(f"answered after {answered:.2f} s, removed after {time.monotonic() - began:.2f} s")
    assert os.path.exists(quota.home / "images")
