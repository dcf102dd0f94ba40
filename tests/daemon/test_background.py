"""Processes that a command leaves behind write on after `carrel exec` has returned, and their output is kept."""
import hashlib
import json
import os
import pty
import subprocess
import time

import pytest

from patience import clock

TICKS = "(while :; do echo tick; sleep 0.05; done) & echo $! >/tmp/ticks; echo started; exit 3"


@pytest.fixture
def machine(carrel):
    m = carrel.keep()
    yield m
    carrel("rm", m)


def until(condition):
    end = clock() + 60
    while not (value := condition()):
        assert clock() < end, "it did not come true"
        time.sleep(0.02)
    return value


def last_exec(carrel, machine):
    return json.loads(carrel("logs", "--json", machine).stdout)["execs"][0]["id"]


def kept(carrel, machine, exec_id, *options):
    done = carrel("logs", *options, machine, exec_id)
    assert done.returncode == 0, done
    return done.stdout


def to_file(carrel, args, path):
    with open(path, "wb") as f:
        status = carrel(*args, stdout=f).returncode
    return status, path.read_bytes()


def to_pipe(carrel, args, path):
    """The pipe ends with the command, though the loop goes on."""
    done = carrel(*args)
    return done.returncode, done.stdout


def to_null(carrel, args, path):
    return carrel(*args, stdout=subprocess.DEVNULL).returncode, b"started\n"


def to_terminal(carrel, args, path):
    ours, theirs = pty.openpty()
    status = carrel(*args, stdout=theirs).returncode
    os.close(theirs)
    shown = os.read(ours, 4096).replace(b"\r\n", b"\n")
    os.close(ours)
    return status, shown


def to_json(carrel, args, path):
    done = json.loads(carrel(args[0], "--json", *args[1:]).stdout)
    return done["exit_status"], done["stdout"].encode()


@pytest.mark.parametrize("way", [to_file, to_pipe, to_null, to_terminal, to_json])
def test_background_process_writes_on_after_exec_returned(carrel, machine, tmp_path, way):
    status, got = way(carrel, ("exec", machine, "--", "sh", "-c", TICKS), tmp_path / "out")
    assert status == 3 and b"started\n" in got, got
    x = last_exec(carrel, machine)
    seen = len(kept(carrel, machine, x))
    assert until(lambda: len(kept(carrel, machine, x)) > seen + 50), "it stopped writing"
    assert kept(carrel, machine, x).replace(b"tick\n", b"") == b"started\n"
    assert carrel("exec", machine, "--", "sh", "-c", "kill $(cat /tmp/ticks)").returncode == 0


def test_output_of_background_process_is_kept_after_machine_ended(carrel, tmp_path):
    m = carrel.keep()
    assert to_file(carrel, ("exec", m, "--", "sh", "-c", "(sleep 0.3; echo late; sleep 60) & echo now"),
                   tmp_path / "out") == (0, b"now\n")
    x = last_exec(carrel, m)
    until(lambda: kept(carrel, m, x) == b"now\nlate\n")
    assert carrel("rm", m).returncode == 0
    assert kept(carrel, m, x) == b"now\nlate\n"


LATER = "(while [ ! -e /tmp/go ]; do sleep 0.05; done; echo late) & echo now"


def test_logs_follow_waits_for_processes_that_the_command_left_behind(carrel, machine):
    assert carrel("exec", machine, "--", "sh", "-c", LATER).stdout == b"now\n"
    x = last_exec(carrel, machine)
    with carrel.popen("logs", "-f", machine, x, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
        assert follower.stdout.readline() == b"now\n"
        for _ in range(5):
            assert carrel("show", machine).returncode == 0
        assert follower.poll() is None, follower.communicate()
        assert carrel("exec", machine, "--", "touch", "/tmp/go").returncode == 0
        said = f"carrel: command '{x}' has ended; waiting for output of processes that it left behind\n"
        assert (follower.stdout.read(), follower.stderr.read().decode(), follower.wait()) == (b"late\n", said, 0)
    assert kept(carrel, machine, x, "-f") == b"now\nlate\n", "nothing is left to wait for"


@pytest.mark.parametrize("way", ["id", "name"])
@pytest.mark.parametrize("end", ["rm", "stop"])
def test_logs_follow_ends_with_the_machine(carrel, end, way):
    m = carrel.keep()
    if way == "name":
        assert carrel("rename", m, "followed").returncode == 0
        m = "followed"
    assert carrel("exec", m, "--", "sh", "-c", LATER).returncode == 0
    with carrel.popen("logs", "-f", m, last_exec(carrel, m), stdout=subprocess.PIPE) as follower:
        assert follower.stdout.readline() == b"now\n"
        assert carrel(end, m).returncode == 0
        assert (follower.stdout.read(), follower.wait()) == (b"", 0)
    carrel("rm", m)


@pytest.mark.parametrize("way", [to_file, to_pipe])
def test_exec_output_is_whole_and_kept(carrel, machine, tmp_path, way):
    status, got = way(carrel, ("exec", machine, "--", "seq", "1", "900000"), tmp_path / "out")
    want = b"".join(b"%d\n" % i for i in range(1, 900001))
    assert status == 0 and hashlib.sha256(got).digest() == hashlib.sha256(want).digest(), len(got)
    assert kept(carrel, machine, last_exec(carrel, machine)) == want


def test_command_waits_for_slow_reader_and_loses_nothing(carrel, machine):
    script = "seq 1 100000; echo whole >/tmp/done"
    with carrel.popen("exec", machine, "--", "sh", "-c", script, stdout=subprocess.PIPE) as p:
        assert p.stdout.readline() == b"1\n"
        for _ in range(5):
            assert carrel("exec", machine, "--", "test", "-e", "/tmp/done").returncode == 1, "it did not wait"
        rest = p.stdout.read()
        assert p.wait() == 0 and rest == b"".join(b"%d\n" % i for i in range(2, 100001))


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_command_gets_sigpipe_when_reader_closes_pipe(carrel, machine, stream):
    line = "exec yes" if stream == "stdout" else "exec yes >&2"
    with carrel.popen("exec", machine, "--", "sh", "-c", line, **{stream: subprocess.PIPE}) as p:
        assert getattr(p, stream).readline() == b"y\n"
        getattr(p, stream).close()
        assert p.wait() == 141


def test_quiet_command_is_not_ended_by_closed_pipe(carrel, machine):
    """As with a pipe of its own: only a write fails."""
    with carrel.popen("exec", machine, "--", "sh", "-c", "echo up; read x; exit 4", stdin=subprocess.PIPE,
                      stdout=subprocess.PIPE) as p:
        assert p.stdout.readline() == b"up\n"
        p.stdout.close()
        assert carrel("exec", machine, "--", "true").returncode == 0
        p.stdin.close()
        assert p.wait() == 4


@pytest.mark.parametrize("way", [to_file, to_pipe])
def test_order_of_stdout_and_stderr_in_one_place(carrel, machine, tmp_path, way):
    script = "for i in $(seq 300); do echo $i; echo $i >&2; done"
    want = b"".join(b"%d\n%d\n" % (i, i) for i in range(1, 301))
    if way is to_pipe:
        got = carrel("exec", machine, "--", "sh", "-c", script, stderr=subprocess.STDOUT).stdout
    else:
        with open(tmp_path / "out", "wb") as f:
            carrel("exec", machine, "--", "sh", "-c", script, stdout=f, stderr=f)
        got = (tmp_path / "out").read_bytes()
    assert got == want


def test_stdout_and_stderr_are_apart_in_two_places(carrel, machine):
    done = carrel("exec", machine, "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
    x = last_exec(carrel, machine)
    assert (kept(carrel, machine, x), kept(carrel, machine, x, "--stderr")) == (b"out\n", b"err\n")


def test_command_may_open_its_output_again_as_another_user(carrel, machine):
    script = "echo a >/dev/stdout; su -s /bin/sh nobody -c 'echo b >/dev/stderr; echo c >>/dev/stdout'"
    done = carrel("exec", "-u", "root", machine, "--", "sh", "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"a\nc\n", b"b\n")


def test_run_ends_with_its_command_though_a_process_is_left(carrel, tmp_path):
    args = ("run", "--", "sh", "-c", "(while :; do echo tick; sleep 0.05; done) & sleep 0.2; echo over")
    status, got = to_file(carrel, args, tmp_path / "out")
    assert status == 0 and b"over\n" in got and got.startswith(b"tick\n"), got
