"""Kept machines: --keep, ls, exec, rm; and what a machine knows about itself."""
import json
import subprocess
import threading
import time

import pytest
from carrel import Terminal
from patience import PATIENCE, clock


@pytest.fixture
def machine(carrel):
    m = carrel.keep()
    yield m
    if m in carrel.machines():
        assert carrel("rm", m).returncode == 0
    assert m not in carrel.machines()


def test_keep_says_how_to_go_on(carrel):
    done = carrel.run("--keep", "--", "sh", "-c", "echo x > ~/file")
    line = done.stderr.decode()
    m = line.split()[6]
    assert line == f"carrel: the machine is kept as {m} (carrel exec {m} -- COMMAND, carrel rm {m})\n"
    assert carrel("exec", m, "--", "cat", "file").stdout == b"x\n"
    assert carrel("rm", m).returncode == 0 and carrel.machines() == []


def test_a_kept_machine_is_listed(carrel, machine):
    assert machine in carrel("ls").stdout.decode()
    row = next(m for m in carrel.status()["machines"] if m["id"] == machine)
    assert row["drifted"] is False


def test_exec_streams_and_status(carrel, machine):
    done = carrel("exec", machine, "--", "sh", "-c", "cat; echo err >&2; exit 9", stdin=b"\0bytes\xff")
    assert (done.returncode, done.stdout, done.stderr) == (9, b"\0bytes\xff", b"err\n")


def test_exec_output_to_a_file_is_whole(carrel, machine, tmp_path):
    with open(tmp_path / "out", "wb") as out:
        carrel("exec", machine, "--", "sh", "-c", "seq 1 300000", stdout=out)
    assert (tmp_path / "out").read_bytes().split()[-1] == b"300000"


def test_exec_options(carrel, machine):
    done = carrel("exec", "-u", "root", "--cwd", "/tmp", "-e", "A=b", machine, "--", "sh", "-c", "id -u; pwd; echo $A")
    assert done.stdout == b"0\n/tmp\nb\n"
    assert carrel("exec", "--timeout", "200ms", machine, "--", "sleep", "9").returncode == 124
    told = json.loads(carrel("exec", "--json", machine, "--", "sh", "-c", "echo out; exit 2").stdout)
    assert (told["machine"], told["exit_status"], told["stdout"]) == (machine, 2, "out\n")


def test_exec_with_a_terminal(carrel, machine):
    t = Terminal(carrel, "exec", machine, "--", "sh", "-c", "tty; exit 3")
    status, text = t.close()
    assert status == 3 and b"/dev/pts/" in text


def test_several_commands_at_once(carrel, machine):
    results = {}

    def one(i):
        results[i] = carrel("exec", machine, "--", "sh", "-c", f"sleep {0.2 * PATIENCE}; echo {i}").stdout

    threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
    started = clock()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {i: b"%d\n" % i for i in range(12)} and clock() - started < 2.4


def test_files_stay_between_commands(carrel, machine):
    carrel("exec", machine, "--", "sh", "-c", "echo 1 > ~/f; echo 2 > /tmp/f")
    assert carrel("exec", machine, "--", "cat", "/home/user/f", "/tmp/f").stdout == b"1\n2\n"


def test_a_server_left_running_stays(carrel, machine):
    carrel("exec", machine, "--", "sh", "-c", "setsid sleep 300 >/dev/null 2>&1 </dev/null & until pgrep -x sleep; do :; done")
    time.sleep(0.2)
    assert carrel("exec", machine, "--", "pgrep", "-x", "sleep").returncode == 0


def test_rm_ends_what_runs(carrel, machine):
    process = carrel.popen("exec", machine, "--", "sh", "-c", "echo ready; exec sleep 300", stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
    process.stdout.readline()
    assert carrel("rm", machine).returncode == 0
    assert process.wait(10 * PATIENCE) == 125
    assert process.stderr.read().count(b"\n") == 1
    process.stdout.close(), process.stderr.close()


def test_many_machines_and_rm_of_several(carrel):
    ids = [carrel.keep() for _ in range(12)]
    assert set(ids) <= set(carrel.machines())
    assert carrel("rm", *ids).returncode == 0
    assert not set(ids) & set(carrel.machines())


@pytest.mark.parametrize("words", [["exec", "m-aaaaaaaaaaaa", "--", "true"], ["rm", "m-aaaaaaaaaaaa"]])
def test_a_machine_that_is_not_there(carrel, words):
    done = carrel(*words)
    assert done.returncode == 125 and b"machine 'm-aaaaaaaaaaaa' does not exist" in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", ["x", "m-", "../../etc", "m-AAAAAAAAAAAA", "m-aaaaaaaaaaaaa", "m-aaaaaaaaaaa/", "..", "%2e", "a\nb", ""])
def test_what_is_no_machine_is_refused(carrel, name):
    for words in (["exec", name, "--", "true"], ["rm", name]):
        done = carrel(*words)
        assert done.returncode == 125 and done.stderr.count(b"\n") == 1
        assert (b"does not exist" if name else b"no machine given") in done.stderr, done


def test_the_json_inside_says_what_it_is(carrel):
    done = carrel.run("--mem", "300M", "--pids", "50", "--json", "--", "cat", "/run/carrel/machine.json")
    if done.returncode == 125:
        assert carrel.status()["unenforced"] and b"cannot enforce" in done.stderr
        done = carrel.run("--json", "--", "cat", "/run/carrel/machine.json")
    told = json.loads(done.stdout)
    inside = json.loads(told["stdout"])
    assert inside["id"] == told["machine"] and inside["kind"] == "box" and inside["image"] == "host"
    assert inside["network"] == {"policy": "none"} and inside["grants"] == []
    missing = carrel.status()["unenforced"]
    assert ("disk" in inside["enforced"]) == ("disk" not in missing) and inside["limits"]["disk_bytes"] > 0
    if not {"memory", "processes"} & set(missing):
        assert inside["limits"]["memory_bytes"] == 300 << 20 and inside["limits"]["processes"] == 50


def test_the_json_inside_is_read_only_even_for_root(carrel):
    carrel.sh("! echo x > /run/carrel/machine.json 2>/dev/null && ! rm -f /run/carrel/machine.json 2>/dev/null && "
              "! touch /run/carrel/x 2>/dev/null && ! mv /run/carrel /run/other 2>/dev/null", "-u", "root")


def test_two_boxes_see_nothing_of_each_other(carrel, machine):
    carrel("exec", machine, "--", "sh", "-c", "echo secret > /tmp/f; setsid sleep 299 >/dev/null 2>&1 </dev/null & "
           "until pgrep -f 'sleep 299' >/dev/null; do :; done")
    other = carrel.keep()
    try:
        assert carrel("exec", other, "--", "ls", "/tmp/f").returncode != 0
        assert carrel("exec", "-u", "root", other, "--", "pgrep", "-f", "sleep 299").returncode == 1
    finally:
        carrel("rm", other)


def test_a_store_has_one_daemon(carrel, tmp_path):
    carrel.run("-q", "--", "true")
    done = carrel.run("--", "true", env={"CARREL_RUN": str(tmp_path / "run")})
    *progress, line = done.stderr.decode().splitlines()
    assert done.returncode == 125 and line.startswith("carrel: cannot start the daemon: another daemon (pid "), done
    assert f"uses the store '{carrel.home}'" in line and "CARREL_HOME" in line
    assert progress in ([], ["carrel: preparing this host for its first machine..."])  # where it takes a while


def test_a_fork_wants_no_limit_that_its_source_did_not(carrel, machine):
    """Where a host enforces no limits, what a kind has by itself is no wish of anybody's."""
    assert carrel("exec", machine, "--", "sh", "-c", "echo x > ~/file").returncode == 0
    done = carrel("fork", machine)
    assert done.returncode == 0, done.stderr
    fork = done.stdout.decode().split()[0]
    assert carrel("exec", fork, "--", "cat", "file").stdout == b"x\n"
    assert carrel("rm", fork).returncode == 0
