"""How a command ended: exit status, signals, time, memory, and the one line that says why."""
import json
import re
import signal
import subprocess
import time

import pytest
from patience import PATIENCE, clock


def test_every_exit_status(carrel):
    machine = carrel.keep()
    try:
        for status in range(256):
            assert carrel("exec", machine, "--", "sh", "-c", f"exit {status}").returncode == status
    finally:
        assert carrel("rm", machine).returncode == 0


@pytest.mark.parametrize("status", [0, 1, 2, 63, 64, 125, 126, 127, 128, 254, 255])
def test_exit_status_of_a_run(carrel, status):
    done = carrel.run("--", "sh", "-c", f"exit {status}")
    assert (done.returncode, done.stderr) == (status, b"")


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "ILL", "ABRT", "FPE", "KILL", "SEGV", "PIPE", "ALRM",
                                  "TERM", "USR1", "USR2", "BUS", "SYS", "XCPU"])
def test_a_signal_is_128_and_its_number(carrel, name):
    number = getattr(signal, "SIG" + name)
    assert carrel.run("--", "sh", "-c", f"kill -{name} $$").returncode == 128 + number


def test_a_command_that_is_not_there_is_127(carrel):
    done = carrel.run("--", "no-such-command")
    assert done.returncode == 127
    assert done.stderr == b"carrel: run 'no-such-command': No such file or directory\n"


@pytest.mark.parametrize("path", ["/etc/passwd", "/etc"])
def test_a_command_that_cannot_be_run_is_126(carrel, path):
    done = carrel.run("--", path)
    assert done.returncode == 126 and done.stderr.count(b"\n") == 1 and path.encode() in done.stderr


def test_a_directory_that_is_not_there_is_125(carrel):
    done = carrel.run("--cwd", "/no/such", "--", "true")
    assert (done.returncode, done.stderr) == (125, b"carrel: enter '/no/such': No such file or directory\n")


def test_the_time_limit_is_124(carrel):
    started = time.monotonic()
    done = carrel.run("--timeout", "300ms", "--", "sleep", "60")
    assert done.returncode == 124 and 0.25 < time.monotonic() - started < 5 * PATIENCE
    assert done.stderr == b"carrel: the command ended after 0.300 s: the time limit (--timeout)\n"


def test_the_time_limit_ends_what_ignores_signals(carrel):
    script = "trap '' TERM INT HUP; (setsid sleep 60 &) ; while :; do :; done"
    started = clock()
    assert carrel.run("--timeout", "0.3", "--", "sh", "-c", script).returncode == 124
    assert clock() - started < 8


def test_a_command_within_its_time_is_left_alone(carrel):
    assert carrel.run("--timeout", "20s", "--", "sh", "-c", "exit 3").returncode == 3


def test_the_lifetime_ends_the_machine(carrel):
    started = clock()
    done = carrel.run("--ttl", "300ms", "--", "sleep", "60")
    assert done.returncode == 124 and clock() - started < 5
    assert done.stderr == b"carrel: the machine ended after 0.300 s: its time limit (--ttl)\n"


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1"])
def test_signals_reach_the_command(carrel, name):
    script = f"trap 'echo got; exit 5' {name}; echo ready; while :; do sleep 0.05; done"
    process = carrel.popen("run", "--", "sh", "-c", script, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(getattr(signal, "SIG" + name))
    assert process.stdout.read() == b"got\n" and process.wait(20 * PATIENCE) == 5
    process.stdout.close()


def test_a_killed_client_takes_its_box_along(carrel):
    process = carrel.popen("run", "--", "sh", "-c", "echo ready; sleep 300", stdout=subprocess.PIPE)
    process.stdout.readline()
    process.kill()
    process.wait()
    carrel.quiet(5)
    process.stdout.close()


def test_usage_is_what_was_used(carrel):
    script = "python3 -c 'x = bytearray(60 << 20); s = sum(range(3000000))'"
    usage = json.loads(carrel.run("--json", "--", "sh", "-c", script).stdout)["usage"]
    assert 60 * 1024 <= usage["max_rss_kb"] < 200 * 1024
    assert 10_000 < usage["user_us"] < usage["wall_us"] * 3 and usage["wall_us"] < 60_000_000


@pytest.mark.parametrize("mem", ["64M", "200M"])
def test_the_memory_limit_is_137_and_says_so(carrel, limits, mem):
    limits("memory")
    script = "x = bytearray(1 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1"
    done = carrel.run("--mem", mem, "--", "python3", "-c", script)
    assert done.returncode == 137
    line = f"carrel: a process was killed: the memory limit of {mem[:-1]} MiB was reached (--mem)\n"
    assert done.stderr.decode() == line


def test_memory_within_the_limit_is_there(carrel, limits):
    limits("memory")
    script = "x = bytearray(60 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"
    assert carrel.run("--mem", "128M", "--", "python3", "-c", script).returncode == 0


def test_the_memory_limit_counts_all_processes(carrel, limits):
    limits("memory")
    one = "python3 -c 'import time; x = bytearray(40 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\ntime.sleep(2)'"
    facts = json.loads(carrel.run("--json", "--mem", "100M", "--", "sh", "-c",
                                  f"{one} & {one} & {one} & wait; exit 1").stdout)
    assert facts["out_of_memory"] is True


def test_the_process_limit(carrel, limits):
    limits("processes")
    script = "import os, sys, time\nn = 0\nwhile n < 200:\n  try: pid = os.fork()\n  except OSError: break\n" \
             "  if pid == 0: time.sleep(30); os._exit(0)\n  n += 1\nprint(n); sys.exit(7)"
    done = carrel.run("--pids", "20", "--", "python3", "-c", script)
    assert done.returncode == 7 and int(done.stdout) == 19
    assert done.stderr == b"carrel: the limit of processes was reached (--pids)\n"


def test_the_cpu_limit(carrel, limits):
    """However busy the host is: a twentieth of a processor needs four seconds for 0.2 of its time."""
    limits("cpu")
    script = "import time\nstart, used = time.monotonic(), time.process_time()\nwhile time.process_time() < used + 0.2: pass\nprint(time.monotonic() - start)"
    slow = float(carrel.run("--cpus", "0.05", "--", "python3", "-c", script).stdout)
    free = min(float(carrel.run("--", "python3", "-c", script).stdout) for _ in range(3))
    assert slow > 2 and free < slow


def test_reasons_are_told_in_json_too(carrel):
    told = json.loads(carrel.run("--json", "--timeout", "200ms", "--", "sleep", "9").stdout)
    assert (told["exit_status"], told["timed_out"]) == (124, True) and "time limit" in told["reason"]
    told = json.loads(carrel.run("--json", "--", "sh", "-c", "kill -SEGV $$").stdout)
    assert (told["exit_status"], told["signal"], told["timed_out"]) == (139, 11, False)
    told = json.loads(carrel.run("--json", "--", "no-such-command").stdout)
    assert told["exit_status"] == 127 and "no-such-command" in told["reason"]


def test_quiet_says_nothing(carrel):
    done = carrel.run("-q", "--timeout", "200ms", "--", "sleep", "9")
    assert (done.returncode, done.stdout, done.stderr) == (124, b"", b"")


def test_verbose_says_what_was_used(carrel):
    done = carrel.run("-v", "--", "sh", "-c", "exit 6")
    took = r"[0-9.]+(us|ms|s|m)( [0-9]+s)?"
    assert done.returncode == 6 and re.fullmatch(rf"carrel: m-\S+: exit status 6; time: user {took}, system {took}, wall {took}; "
                                                 r"peak memory [0-9.]+[KM]\n", done.stderr.decode()), done
