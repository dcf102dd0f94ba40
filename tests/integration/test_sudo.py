"""Becoming root and another user inside a machine, the usual way."""
import shutil

import pytest

from carrel import ROOTLESS


def test_su_changes_the_user(carrel):
    assert carrel.sh("su user -c 'id -un; cd; pwd'; su - user -c 'echo $HOME'", "-u", "root").split() == ["user", "/home/user", "/home/user"]


def test_a_setuid_program_of_root_runs_as_root(carrel):
    """What sudo is made of: the id in its mode counts, and the real user stays."""
    machine = carrel("new").stdout.decode().strip()
    assert carrel("exec", "-u", "root", machine, "--", "sh", "-c", "cp /usr/bin/id /usr/local/bin/whose; chmod 4755 /usr/local/bin/whose").returncode == 0
    for words, wanted in (("-u", b"0\n"), ("-ru", b"1000\n")):
        done = carrel("exec", "-u", "user", machine, "--", "/usr/local/bin/whose", words)
        assert done.stdout == wanted, done
    # The root of the machine is mounted anew by a step.
    assert carrel("snap", machine).returncode == 0
    assert carrel("exec", "-u", "user", machine, "--", "/usr/local/bin/whose", "-u").stdout == b"0\n"
    assert carrel("rm", machine).returncode == 0


@pytest.mark.skipif(ROOTLESS or not shutil.which("sudo"), reason="the host's image has no sudo")
def test_sudo_asks_for_no_password(carrel):
    done = carrel.run("--", "sh", "-c", "sudo -n id -u && sudo -n -u nobody id -un && sudo -n su user -c 'id -un'")
    assert done.stdout.split() == [b"0", b"nobody", b"user"], done


def test_the_entry_for_user_is_there_and_closed(carrel):
    assert carrel.sh("stat -c '%a %u %g' /etc/sudoers.d/carrel; cat /etc/sudoers.d/carrel", "-u", "root").splitlines() == \
        ["440 0 0", "user ALL=(ALL:ALL) NOPASSWD: ALL"]


@pytest.mark.skipif(not ROOTLESS, reason="as root the host's own sudo works")
def test_without_root_sudo_says_what_to_use(carrel):
    done = carrel.run("--", "sudo", "id")
    assert done.returncode == 1 and b"carrel exec -u root MACHINE COMMAND" in done.stderr, done
