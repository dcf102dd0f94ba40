"""Lists say what is true: which machines exist, which daemon was asked, what a command does."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from carrel import LIMIT_S, PROGRAM, ROOTLESS, Carrel, signal_all, stop_daemon, stop_spawner
from patience import clock

HEADING = b"MACHINE         NAME          STATE     MEM    AGE\n"
NOBODY = 65534


@pytest.fixture(scope="module")
def carrel():
    c = Carrel()
    yield c
    c.stop()


def reboot(carrel):
    """Ends all processes of Carrel and empties the run directory, as a reboot does with /run."""
    stop_daemon(carrel.run_dir)
    signal_all(carrel.host.guests(), signal.SIGKILL)
    stop_spawner(carrel.run_dir)
    shutil.rmtree(carrel.run_dir)


def test_ls_lists_saved_machines_after_a_reboot(carrel):
    machine = carrel("new", "--name", "asleep").stdout.decode().strip()
    assert carrel("exec", "asleep", "--", "touch", "file").returncode == 0
    end = clock() + LIMIT_S
    while not json.loads(carrel("steps", "--json", "asleep").stdout)["steps"][0].get("durable"):
        assert clock() < end
        time.sleep(0.05)
    reboot(carrel)
    listed = carrel("ls", "-q")
    assert listed.stdout.decode().split() == [machine], listed
    reboot(carrel)
    assert carrel("show", "asleep").returncode == 0
    assert carrel("rm", "asleep").returncode == 0


def test_ls_fails_if_the_daemon_of_CARREL_URL_cannot_be_reached(carrel):
    for words in (["ls"], ["ls", "--json"], ["top", "--json"], ["rm", "--all"], ["show", "m"], ["exec", "m", "true"]):
        done = carrel(*words, env={"CARREL_URL": "http://127.0.0.1:9"})
        assert done.returncode == 125 and not done.stdout, (words, done)
        assert b"cannot connect to the daemon at 'http://127.0.0.1:9'" in done.stderr, (words, done)
        assert b"unset CARREL_URL" in done.stderr, (words, done)


@pytest.mark.skipif(ROOTLESS, reason="only root can run a command as another user")
def test_ls_fails_if_the_daemon_belongs_to_another_user(carrel):
    assert carrel("token", "ls").returncode == 0  # a daemon runs
    os.chmod(carrel.dir, 0o755)
    os.chmod(carrel.run_dir, 0o700)
    ls = lambda: subprocess.run([PROGRAM, "ls"], env=carrel.env, user=NOBODY, group=NOBODY, extra_groups=[],
                                capture_output=True)
    done = ls()
    assert done.returncode == 125 and not done.stdout, done
    assert b"belongs to another user (uid 0)" in done.stderr and b"CARREL_RUN" in done.stderr, done
    os.chmod(carrel.run_dir, 0o755)  # the daemon answers, and has no machines of this user
    done = ls()
    assert (done.returncode, done.stdout) == (0, HEADING), done
    assert b"you have no machines at the daemon of another user (uid 0)" in done.stderr, done


def test_an_empty_list_names_the_store_that_was_read():
    c = Carrel()
    try:
        done = c("ls")
        assert (done.returncode, done.stdout) == (0, HEADING), done
        assert f"carrel: no machines in store '{c.home}'".encode() in done.stderr, done
        assert b"carrel new" in done.stderr and not c.run_dir.exists(), done
        assert not c("ls", "-q").stderr and not c("ls", "--json").stderr
        assert json.loads(c("ls", "--json").stdout) == {"machines": []}
    finally:
        c.stop()


@pytest.fixture
def machine(carrel):
    done = carrel("new", "--name", "tour")
    assert done.returncode == 0, done
    yield done.stdout.decode().strip()
    carrel("rm", "tour")


@contextlib.contextmanager
def running(carrel, *words, **kw):
    """`carrel WORDS` until the block ends; gives the process once its command has printed a line."""
    process = carrel.popen(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
    try:
        assert process.stdout.readline()
        yield process
    finally:
        process.communicate()


def test_a_running_command_is_listed_as_running_without_a_status(carrel, machine):
    with running(carrel, "exec", "tour", "--", "sh", "-c", "echo up; read line"):
        row, = carrel("logs", "tour").stdout.decode().splitlines()[1:]
        assert row.split()[1:3] == ["running", "-"] and re.fullmatch(r"\d+s", row.split()[3]), row
        x, = json.loads(carrel("logs", "--json", "tour").stdout)["execs"]
        assert x["state"] == "running" and x["started"], x
    row, = carrel("logs", "tour").stdout.decode().splitlines()[1:]
    assert row.split()[1:3] == ["exited", "1"], row
