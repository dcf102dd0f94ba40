"""Signals to `carrel exec`: forwarded to the command; if the machine cannot take them, they end the client."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import pytest

from patience import PATIENCE, clock


@pytest.fixture
def machine(carrel):
    m = carrel.keep()
    yield m
    carrel("rm", m)


def until(condition, what):
    end = clock() + 60
    while not (value := condition()):
        assert clock() < end, what
        time.sleep(0.01)
    return value


def client(carrel, *words, **kw):
    errors = tempfile.TemporaryFile()
    p = carrel.popen(*words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, **kw)
    p.errors = errors
    return p


def start(carrel, machine, script="echo up; exec sleep 1000"):
    """A client whose command runs."""
    p = client(carrel, "exec", machine, "--", "sh", "-c", script)
    assert p.stdout.readline() == b"up\n"
    return p


def end_of(p):
    """Exit status and stderr of a client that ends by itself. Its pipes may stay open in the machine."""
    try:
        status = p.wait(20 * PATIENCE)
    finally:
        p.kill()
        p.stdout.close()
    p.errors.seek(0)
    return status, p.errors.read().decode()


def last_exec(carrel, machine):
    return (json.loads(carrel("logs", "--json", machine).stdout)["execs"] or [{}])[0]


def takes_second(p, number):
    """True while the client waits for an answer about its first signal, and would take another one."""
    status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{p.pid}/status").read_text().splitlines())
    blocked, caught = (int(status[key], 16) >> number - 1 & 1 for key in ("SigBlk", "SigCgt"))
    return caught and not blocked


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_client_of_paused_machine(carrel, machine, number):
    p = start(carrel, machine)
    assert carrel("pause", machine).returncode == 0
    p.send_signal(number)
    status, errors = end_of(p)
    assert status == 128 + number
    assert f"machine '{machine}' is paused" in errors and f"carrel resume {machine}" in errors, errors
    assert carrel("resume", machine).returncode == 0
    until(lambda: last_exec(carrel, machine)["state"] == "exited", "the command did not get the signal")
    assert last_exec(carrel, machine)["signal"] == number


def test_client_of_paused_machine_reports_in_json(carrel, machine):
    p = client(carrel, "exec", "--json", machine, "--", "sleep", "1000")
    until(lambda: last_exec(carrel, machine).get("state") == "running", "no command")
    assert carrel("pause", machine).returncode == 0
    p.send_signal(signal.SIGTERM)
    got = json.loads(p.stdout.read())
    assert (end_of(p)[0], got["exit_status"]) == (143, 143) and "is paused" in got["reason"], got


def test_every_signal_reaches_command_of_running_machine(carrel, machine):
    p = start(carrel, machine, "trap 'n=$((n+1)); echo $n; [ $n -lt 3 ] || exit 7' TERM; echo up; while :; do sleep 0.05; done")
    for n in b"1\n", b"2\n", b"3\n":
        p.send_signal(signal.SIGTERM)
        assert p.stdout.readline() == n
        until(lambda: p.poll() is not None or not takes_second(p, signal.SIGTERM), "the signal is not answered")
    assert end_of(p) == (7, "")


@pytest.fixture
def stopped(carrel):
    """Stops processes, and continues them after the test."""
    pids = []

    def stop(pid):
        os.kill(pid, signal.SIGSTOP)
        pids.append(pid)
        until(lambda: "State:\tT" in pathlib.Path(f"/proc/{pid}/status").read_text(), "it did not stop")
    yield stop
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def daemon_pid(carrel):
    return json.loads(carrel("stats", "--json").stdout)["pid"]


@pytest.mark.skipif(os.geteuid() != 0, reason="the guest of a machine belongs to another user")
def test_signal_ends_client_whose_machine_does_not_answer(carrel, machine, stopped):
    p = start(carrel, machine)
    box = carrel.run_dir / "boxes" / machine / "box"
    stopped(int(box.read_text().split("pid=")[1].split()[0]))
    p.send_signal(signal.SIGTERM)
    status, errors = end_of(p)
    assert status == 143 and f"machine '{machine}' did not answer" in errors, errors


@pytest.mark.parametrize("script, status", [("trap 'kill -9 $$' INT; trap : TERM", 137), ("trap 'kill -9 $$' TERM; trap : INT", 137)])
def test_two_signals_in_a_row_both_reach_the_command(carrel, machine, script, status):
    p = start(carrel, machine, f"{script}; echo up; while :; do sleep 0.05; done")
    p.send_signal(signal.SIGTERM)
    p.send_signal(signal.SIGINT)
    assert end_of(p) == (status, "")


def test_second_signal_ends_client_that_waits_for_an_answer(carrel, machine, stopped):
    p = start(carrel, machine)
    stopped(daemon_pid(carrel))
    p.send_signal(signal.SIGTERM)
    until(lambda: takes_second(p, signal.SIGINT), "the first signal was not taken")
    p.send_signal(signal.SIGINT)
    status, errors = end_of(p)
    assert status == 128 + signal.SIGINT and f"machine '{machine}' did not answer" in errors, errors


def test_signal_ends_client_that_waits_for_the_start_of_its_command(carrel, machine, stopped):
    stopped(daemon_pid(carrel))
    p = client(carrel, "exec", machine, "--", "true")
    until(lambda: takes_second(p, signal.SIGTERM), "the request was not sent")
    p.send_signal(signal.SIGTERM)
    status, errors = end_of(p)
    assert status == 143 and "may still start" in errors, errors


def test_signal_that_the_caller_ignores_reaches_the_command(carrel, machine, stopped):
    """Shells start background jobs with SIGQUIT ignored. Such a signal is forwarded, also if it comes during the start."""
    pid = daemon_pid(carrel)
    stopped(pid)
    p = client(carrel, "exec", machine, "--", "sleep", "1000", preexec_fn=lambda: signal.signal(signal.SIGQUIT, signal.SIG_IGN))
    until(lambda: takes_second(p, signal.SIGTERM), "the request was not sent")
    p.send_signal(signal.SIGQUIT)
    os.kill(pid, signal.SIGCONT)
    assert end_of(p) == (128 + signal.SIGQUIT, "")
