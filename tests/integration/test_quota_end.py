"""Uppers under project quota when spawners end, die, or are not alone."""
import errno
import os
import signal
import subprocess

import pytest
from carrel import BUILD, GUEST, ROOTLESS, stop_daemon, stop_spawner
from quota_disk import (FULL, LEAVE, MAKE, SMALL, Disk, on_disk, pid_of, python, python_in, set_project, settled,
                        stop, upper_of, uppers, way)

pytestmark = pytest.mark.skipif(ROOTLESS, reason="rootless: a disk limit on disk is unsupported, and says so")


def halt(own):
    """The daemon too: it would start another spawner at once, and has the store open."""
    stop_daemon(own.run_dir)
    stop_spawner(own.run_dir)


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
    disk.remount("loop,discard")
    try:
        assert way(own) == "image"
        assert python(own, "print(*fill('/tmp/f', 100))")[1] == str(errno.ENOSPC)
        assert disk.projects() == {}
    finally:
        halt(own)
        disk.remount("loop,prjquota,discard")


def test_without_the_filter_it_can(own, disk):
    """The control of test_nothing_can_leave_its_project: it would not be counted."""
    ready, theirs = os.pipe()
    process = subprocess.Popen(
        ["carrel-spawn", "--run", own.run_dir, "--home", own.home, "--guest", GUEST, "--ready-fd", str(theirs)],
        executable=BUILD / "libexec/carrel-spawn-weak", pass_fds=[theirs], env={**own.env, "CARREL_WEAKEN": "seccomp,version"})
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
    halt(own)
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
    assert own.run("--", "true").returncode == 0
    assert not (own.run_dir / "boxes" / machine).exists()  # and that nothing stays on the disk is what the fixture asks


def test_a_project_in_use_by_others_is_left_alone(own, disk):
    """Files of the project that the next box would have had."""
    machine = own.keep(*SMALL)
    taken = int(upper_of(own, machine))
    own("rm", machine)
    halt(own)
    theirs = disk.mount / "theirs"
    theirs.mkdir()
    fd = os.open(theirs, os.O_RDONLY)
    try:
        set_project(fd, taken)
        own.keep(*SMALL)
        assert str(taken) not in uppers(own)
        own.clear()
        halt(own)
        assert disk.projects() == {taken: (0, disk.projects()[taken][1], 0, 1)}
    finally:
        os.close(fd)
        theirs.rmdir()
