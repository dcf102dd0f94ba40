"""Uppers under project quota when spawners end, die, or are not alone."""
import errno
import os
import signal
import subprocess

import pytest
from carrel import BUILD, GUEST, ROOTLESS, Carrel, spawner_pids, stop_spawner
from host_state import HostState
from quota_disk import (FULL, LEAVE, MAKE, SMALL, Disk, on_disk, pid_of, python, python_in, set_project, settled,
                        stop, upper_of, uppers, way)

pytestmark = pytest.mark.skipif(ROOTLESS, reason="rootless: a disk limit on disk is unsupported, and says so")


@pytest.fixture(scope="module", params=MAKE)
def disk(request):
    d = Disk(request.param)
    yield d
    d.close()


@pytest.fixture
def own(disk):
    """A run directory with its store on the disk; afterwards nothing is left there."""
    c = on_disk(disk)
    yield c
    stop(c, disk)


def test_counted_but_not_enforced_is_not_used(own, disk):
    """ext4 counts projects whenever it can; only prjquota makes it refuse."""
    if disk.kind != "ext4":
        pytest.skip("xfs counts nothing without the option")
    subprocess.run(["umount", disk.mount], check=True)
    subprocess.run(["mount", "-o", "loop,discard", disk.dir / "image", disk.mount], check=True)
    try:
        assert way(own) == "image"
        assert python(own, "print(*fill('/tmp/f', 100))")[1] == str(errno.ENOSPC)
        stop_spawner(own.run_dir)
        assert disk.projects() == {}
    finally:
        subprocess.run(["umount", disk.mount], check=True)
        subprocess.run(["mount", "-o", "loop,prjquota,discard", disk.dir / "image", disk.mount], check=True)


def test_without_the_filter_it_can(own, disk):
    """The control of test_nothing_can_leave_its_project: it would not be counted."""
    ready, theirs = os.pipe()
    process = subprocess.Popen(
        ["carrel-spawn", "--run", own.run_dir, "--home", own.home, "--guest", GUEST, "--ready-fd", str(theirs)],
        executable=BUILD / "libexec/carrel-spawn-weak", pass_fds=[theirs], env={**own.env, "CARREL_WEAKEN": "seccomp"})
    os.close(theirs)
    assert os.read(ready, 1) == b"r"
    os.close(ready)
    try:
        for what in LEAVE.values():
            assert python(own, what) == ["0", "100", "0"]
    finally:
        process.terminate()
        process.wait()


def test_a_killed_spawner_leaves_its_machines_and_nothing_else(own, disk):
    lives, dies = own.keep(*SMALL), own.keep(*SMALL)
    mine, dead = upper_of(own, lives), pid_of(own, dies)
    before = uppers(own)
    assert len(before) > 2, before  # and those of the pool
    stop_spawner(own.run_dir, signal.SIGKILL)
    os.kill(dead, signal.SIGKILL)
    assert mine in uppers(own)
    own.run("--", "true")
    stop_spawner(own.run_dir)
    assert settled(lambda: uppers(own), {mine}) == {mine}
    assert settled(lambda: set(disk.projects()), {int(mine)}) == {int(mine)}
    assert python_in(own, lives, "print(*fill('/tmp/f', 100))")[1] == str(FULL[disk.kind])
    own.run("--", "true")  # rm asks a spawner that runs
    assert own("rm", lives).returncode == 0


def test_a_spawner_killed_while_it_removes_is_followed_by_one_that_does(own, disk):
    machine = own.keep(*SMALL)
    code = "for i in range(1000): os.mkdir(f'/tmp/{i}'); open(f'/tmp/{i}/f', 'w').close()\nprint('made')"
    assert python_in(own, machine, code) == ["made"]
    assert own("rm", machine).returncode == 0
    stop_spawner(own.run_dir, signal.SIGKILL)
    assert disk.projects() and not spawner_pids(own.run_dir)
    own.run("--", "true")


def test_two_run_directories_share_a_store(own, disk):
    mine = own.keep(*SMALL)
    other = Carrel()
    other.home = own.home
    other.env["CARREL_HOME"] = str(own.home)
    other.host = HostState(other.run_dir, other.dir / "home")
    theirs = other.keep(*SMALL)
    assert upper_of(own, mine) != upper_of(other, theirs)
    other("rm", theirs)
    other.stop()
    assert own("exec", mine, "--", "sh", "-c", "echo x > /tmp/x && cat /tmp/x").stdout == b"x\n"


def test_a_project_in_use_by_others_is_left_alone(own, disk):
    """Files of the project that the next box would have had."""
    machine = own.keep(*SMALL)
    taken = int(upper_of(own, machine))
    own("rm", machine)
    stop_spawner(own.run_dir)
    theirs = disk.mount / "theirs"
    theirs.mkdir()
    fd = os.open(theirs, os.O_RDONLY)
    try:
        set_project(fd, taken)
        own.keep(*SMALL)
        assert str(taken) not in uppers(own)
        own.clear()
        stop_spawner(own.run_dir)
        assert disk.projects() == {taken: (0, disk.projects()[taken][1], 0, 1)}
    finally:
        os.close(fd)
        theirs.rmdir()
