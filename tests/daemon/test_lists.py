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
from patience import PATIENCE, clock

HEADING = b"MACHINE         NAME          STATE     MEM    AGE\n"
NOBODY = 65534


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
        assert done.returncode == 125, (words, done)
        assert "error" in json.loads(done.stdout) if "--json" in words else not done.stdout, (words, done)
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


@pytest.mark.parametrize("words", [
    ["logs", "M", "-q"], ["logs", "M", "--json"], ["show", "M", "--json"], ["steps", "M", "--json"], ["stats", "M", "--json"],
    ["diff", "M", "--json"], ["net", "M", "--json"], ["net", "M", "show", "-q"], ["grants", "M", "-q"], ["grant", "ls", "M", "--json"],
    ["expose", "M", "--json"], ["set", "M", "--meta", "a=b"], ["exec", "M", "-w", "/tmp", "--", "pwd"], ["exec", "M", "-e", "A=1", "printenv", "A"],
    ["rm", "other", "--yes"], ["pause", "M", "--json"], ["resume", "M", "--json"], ["rename", "M", "M", "--json"],
    ["snap", "M", "name", "-q"], ["rewind", "M", "1", "--json"], ["fork", "M", "-n", "1", "-q"], ["stop", "M", "--json"],
    ["token", "ls", "-q"], ["audit", "verify", "--json"], ["secret", "ls", "-q"], ["store", "boxes", "--json"], ["image", "ls", "-q"],
    ["cp", "/etc/hostname", "M:/tmp/x", "-q"], ["sh", "M", "-T", "-w", "/tmp"]], ids=" ".join)
def test_options_may_follow_the_name_of_the_machine(carrel, machine, words):
    carrel("new", "--name", "other")
    carrel("exec", "tour", "--", "touch", "file")  # step 1
    try:
        done = carrel(*("tour" + word[1:] if word[:1] == "M" else word for word in words))
        assert done.returncode == 0, done
        if "--json" in words:
            json.loads(done.stdout)
        if "-q" in words:
            assert b"  " not in done.stdout, "only ids"
    finally:
        carrel("rm", "other")


def test_options_of_a_command_in_a_machine_are_its_own(carrel, machine):
    shown = lambda *words: carrel("exec", *words).stdout
    assert shown("tour", "echo", "-q", "--json", "--help") == shown("tour", "--", "echo", "-q", "--json", "--help") == b"-q --json --help\n"
    assert shown("-T", "tour", "-w", "/tmp", "--", "echo", "--", "-q") == b"-- -q\n"
    assert shown("--", "tour", "echo", "-q") == b"-q\n"
    done = carrel("exec", "tour", "--no-such", "true")
    assert done.returncode == 125 and b"unknown option '--no-such'" in done.stderr, done
    done = carrel("rm", "--", "--all")
    assert done.returncode == 125 and b"machine '--all' does not exist" in done.stderr, done


def test_audit_takes_names_and_shows_host_path_and_reason(carrel):
    machine = carrel("new", "--name", "web", "--net", "one.example").stdout.decode().strip()
    other = carrel("new", "--name", "web-2").stdout.decode().strip()
    assert carrel("exec", "web", "--", "curl", "-sf", "http://two.example/some/path").returncode != 0
    audit = lambda *words: carrel("audit", *words).stdout.decode().splitlines()
    end = clock() + LIMIT_S
    while not (rows := audit("--machine", "web", "--verb", "net.deny")):
        assert clock() < end
        time.sleep(0.05)
    assert re.search(r"  GET  two\.example:80  /some/path  no rule allows the request\s*$", rows[0]), rows
    assert all(machine in row and other not in row for row in audit("--machine", "web"))
    assert audit("--machine", "web") == audit("--machine", machine) != audit("--machine", "web-2") != []
    assert carrel("rm", "web", "web-2").returncode == 0
    assert any("machine.destroy" in row and machine in row for row in audit("--machine", "web")), "also after its end"
    refused = carrel("audit", "--machine", "nobody")
    assert refused.returncode == 125 and b"machine 'nobody' does not exist" in refused.stderr, refused


def test_logs_follow_a_running_command_until_it_ends(carrel, machine):
    with running(carrel, "exec", "tour", "--", "sh", "-c", "echo up; read line") as command:
        x, = carrel("logs", "-q", "tour").stdout.decode().split()
        follower = carrel.popen("logs", "tour", x, "-f", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(5):
            assert carrel("show", "tour").returncode == 0
        assert follower.poll() is None, follower.communicate()
        command.stdin.close()
        command.stdin = None
        out, err = follower.communicate(timeout=LIMIT_S * PATIENCE)
    assert follower.returncode == 0 and (out == b"up\n" or b"went only to the client that ran it" in err), (out, err)
    silent = carrel("logs", "tour", x, "--stderr")
    assert (silent.returncode, silent.stdout) == (0, b"") and f"no stderr of command '{x}' is kept".encode() in silent.stderr, silent
    assert carrel("logs", "-q", "tour", x, "--stderr").stderr == b""
