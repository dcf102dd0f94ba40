"""`carrel store check`: it proves the layers, and sees what is wrong with them."""
import json
import shutil
import sqlite3
import subprocess

import pytest
from carrel import PROGRAM, ROOTLESS
from test_faults import strace
from test_steps import Box


def check(d):
    return d.get("/v1/store/check")


def cli(d, *args):
    return subprocess.run([PROGRAM, "store", *args], env=d.env, capture_output=True, text=True, timeout=60)


def test_a_store_that_is_whole(daemon):
    b = Box(daemon)
    for i in range(20):
        b.sh(f"echo {i} >f{i}")
    f = b.fork(count=2)[0]
    f.sh("echo fork >g")
    b.rewind(3)
    b.settled(22)
    r = check(daemon)
    assert r["whole"] and r["problems"] == [] and (r["machines"], r["unchecked"]) == (3, 0)
    assert r["stacks"] >= 22 and r["layers"] >= 20
    daemon.delete(b.url)  # its disk lives on in the forks
    r = check(daemon)
    assert r["whole"] and r["machines"] == 2
    told = cli(daemon, "check")
    assert told.returncode == 0 and "2 machines" in told.stdout and ": complete\n" in told.stdout
    assert json.loads(cli(daemon, "check", "--json").stdout)["whole"]
    assert cli(daemon, "mend").returncode != 0 and "unknown subcommand 'mend'" in cli(daemon, "mend").stderr
    assert "carrel store requires a subcommand" in cli(daemon).stderr


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace to hold up a system call")
def test_layers_that_are_merged_meanwhile_are_not_missed(daemon):
    b = Box(daemon)
    for i in range(3):
        for n in range(6):
            b.sh(f"echo {n} >f{n}")
        # The disk has been read, and what is named is not yet: long enough that the merge of these falls between.
        with strace(daemon, daemon.process.pid, "-f", "-o", "/dev/null", "-e", "trace=wait4", "-e", "inject=wait4:delay_exit=500000"):
            b.sh(f"echo {i} >g")
            r = check(daemon)
        assert r["whole"] and r["machines"] == 1 and r["unchecked"] == 0, r


def forge(d, machine, stack):
    """A step of the database names what is not there."""
    db = sqlite3.connect(d.home / "carrel.db", timeout=20)
    db.execute("UPDATE steps SET stack = ? WHERE machine = ? AND number = 1", (stack, machine))
    db.commit()
    db.close()


@pytest.mark.parametrize("stack, what", [
    ("{own}/777", "a layer is missing"),
    ("m-aaaaaaaaaaaa/1", "a layer of a machine that it was forked from is missing"),
    ("nonsense", "is unreadable"),
])
def test_what_is_not_there_is_told(daemon, stack, what):
    b = Box(daemon)
    b.sh("echo 1 >a")
    b.sh("echo 2 >a")
    b.settled(2)
    forge(daemon, b.id, stack.format(own=b.id))
    r = check(daemon)
    assert not r["whole"] and len(r["problems"]) == 1
    problem = r["problems"][0]
    assert what in problem["what"] and problem["machine"] == b.id and problem["remedy"]
    told = cli(daemon, "check")
    assert told.returncode == 1 and "INCOMPLETE" in told.stdout and what in told.stdout


@pytest.mark.skipif(not ROOTLESS, reason="root may choose; see test_btrfs.py")
def test_an_ordinary_user_has_no_choice_of_disks(daemon):
    done = cli(daemon, "init", "--btrfs", "1G")
    assert done.returncode == 125 and "in memory" in done.stderr and "run as root" in done.stderr, done
