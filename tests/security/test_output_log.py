"""Logs of output and the guest's tools in a real box: behind its filter, in its namespaces, as its users."""
import functools
import hashlib
import io
import json
import os
import subprocess
import tarfile
import time

import pytest

from lab import ATTACK, ROOTLESS, counts
from guestlink import LOG, NONE, NULL, PIPE, TOOL
from outlog import Log
from patience import clock
from test_guest_socket import guest_pid

USERS = [(NONE, "root"), (1000, "user")]


@pytest.fixture
def box(lab):
    return lab.keep()


def run_logged(link, id, script, uid=NONE):
    log = Log()
    link.exec(id, ["sh", "-c", script], fds=[log.fd], stdio=(NULL, PIPE, PIPE), flags=LOG, uid=uid, gid=uid,
              env=["PATH=/usr/bin:/bin"])
    status = link.exit(id).status
    text = log.text(0), log.text(1)
    log.close()
    return status, *text


@pytest.mark.parametrize("uid, name", USERS)
def test_output_arrives_in_the_log(box, uid, name):
    link = box.link()
    status, out, err = run_logged(link, 1, "echo out; echo err >&2; seq 100000 | tail -1; exit 4", uid)
    assert (status, out, err) == (4, b"out\n100000\n", b"err\n")


def test_output_is_not_counted_against_the_boxs_memory(lab):
    """A small box may print more than its memory: the pages are the guest's, whose cgroup has no such limit."""
    box = lab.keep("--mem", "32M")
    link = box.link()
    log = Log(head=(40 << 20, 0), tail=(8 << 20, 4096))
    link.exec(1, ["head", "-c", str(48 << 20), "/dev/zero"], fds=[log.fd], stdio=(NULL, PIPE, PIPE), flags=LOG)
    assert link.exit(1).status == 0
    assert log.produced() == 48 << 20 and log.allocated() > 48 << 20 and log.numbers(0)[2] == 0
    log.close()


@pytest.mark.parametrize("uid, name", USERS)
def test_a_command_cannot_reach_a_log(box, uid, name):
    """Neither its own nor another's: it has 0, 1 and 2, and what pid 1 holds cannot be looked at."""
    counts["attacks tried"] += 1
    link = box.link()
    other = Log()
    link.exec(1, ["sleep", "60"], fds=[other.fd], stdio=(NULL, PIPE, PIPE), flags=LOG)
    if not ROOTLESS:  # positive control: it is there for one who may look
        held = [os.readlink(f"/proc/{guest_pid(box)}/fd/{n}") for n in os.listdir(f"/proc/{guest_pid(box)}/fd")]
        assert any("memfd:outlog" in h for h in held)
    status, out, err = run_logged(link, 2, """
        for p in /proc/[0-9]*; do
            for f in $p/fd/* $p/map_files/*; do
                [ -e "$f" ] && readlink "$f"
            done
            cat $p/maps 2>/dev/null
        done | grep outlog
        ls /proc/self/fd | wc -l
        : < /proc/1/fd/3""", uid)
    assert out == b"4\n"  # ls has one more: the directory
    assert b"outlog" not in out + err and status != 0
    link.call("KILL", id=1)
    link.exit(1)
    other.close()


def feed_and_wait(link, id, argv, data=b"", uid=NONE):
    link.exec(id, argv, flags=TOOL, uid=uid, gid=uid)
    link.stdin(id, 0, data, eof=True)
    out, err = link.output(id), link.output(id, "STDERR")
    return link.exit(id).status, out, err


# The daemon counts its commands from 1 on.
OURS = 1 << 24


@pytest.mark.parametrize("uid, name", USERS)
def test_tools_work_behind_the_filter(box, uid, name):
    link = box.link()
    box.exec("sh", "-c", f"mkdir -p /tmp/{name} && chmod 777 /tmp/{name}")
    data = os.urandom(50000)
    line = f"{hashlib.sha256(data).hexdigest()} {len(data)}\n".encode()
    assert feed_and_wait(link, OURS + 1, ["put", f"/tmp/{name}/f", "absent", "640"], data, uid) == (0, line, b"")
    assert feed_and_wait(link, OURS + 2, ["sha256", f"/tmp/{name}/f"], b"", uid) == (0, line, b"")
    status, out, err = feed_and_wait(link, OURS + 3, ["tar", f"/tmp/{name}"], b"", uid)
    assert (status, err) == (0, b"")
    assert tarfile.open(fileobj=io.BytesIO(out)).extractfile("f").read() == data
    box.exec("mkdir", "-m", "777", f"/tmp/{name}-2")
    assert feed_and_wait(link, OURS + 4, ["untar", f"/tmp/{name}-2"], out, uid) == (0, b"", b"")
    assert box.sh(f"cmp /tmp/{name}/f /tmp/{name}-2/f && stat -c %U:%a /tmp/{name}-2/f") == f"{name}:640\n"


def test_a_tool_cannot_be_traced_by_its_own_user(box):
    """It is a copy of pid 1: what it has in memory is not its user's to read."""
    counts["attacks tried"] += 1
    link = box.link()
    box.exec("mkdir", "-m", "777", "/tmp/u")
    f = link.exec(OURS + 1, ["untar", "/tmp/u"], flags=TOOL, uid=1000, gid=1000)
    pid = int.from_bytes(f.payload[:4], "little")
    script = f"for f in mem maps environ fd root cwd exe; do head -c 1 /proc/{pid}/$f >/dev/null 2>&1 && echo $f; ls -l /proc/{pid}/fd >/dev/null 2>&1 && echo fds; done; true"
    assert box.sh(script, user="user") == ""
    assert box.sh("exec sleep 60 & sleep 0.1; head -c 1 /proc/$!/environ >/dev/null && echo readable; kill $!", user="user") == "readable\n"
    link.call("KILL", id=OURS + 1)
    link.exit(OURS + 1)


def changed_output(start, before=lambda: None):
    """Runs attack --page, changes its output after before(), and only then reads what the caller gets."""
    with start(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        kept = before()
        p.stdin.write(b"x")
        p.stdin.flush()
        assert p.stderr.readline() == b"changed\n"
        got = p.stdout.read(4096)
        p.stdin.close()
        assert p.stdout.read() == b"" and p.wait() == 0
    return got, kept


def kept_output(lab, box):
    """The log of the machine's last command, as soon as it has any output."""
    end = clock() + 60
    while clock() < end:
        last = json.loads(lab("logs", "--json", box.id).stdout)["execs"][0]["id"]
        if kept := lab("logs", box.id, last).stdout:
            return kept
        time.sleep(0.02)
    raise AssertionError("nothing is kept")


def test_output_changed_after_it_was_written_is_the_same_for_caller_and_log(lab, box):
    """A command can put its own page of memory into its pipe with vmsplice(2), and change it afterwards."""
    counts["attacks tried"] += 1
    assert changed_output(functools.partial(subprocess.Popen, [ATTACK, "--page"]))[0] == b"E" * 4096, "control"
    box.install()
    got, kept = changed_output(functools.partial(box.popen, "attack", "--page"), lambda: kept_output(lab, box))
    assert got == kept == kept_output(lab, box) and len(set(got)) == 1
