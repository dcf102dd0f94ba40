"""What a machine writes cannot repaint its owner's terminal: hostile names through every command that prints."""
import contextlib
import json
import os
import pty
import re
import subprocess

import pytest

from carrel import PROGRAM
from daemon import Daemon

# Escape sequences, C1 controls as UTF-8, characters that turn the direction of writing, a bell and a line break.
HOSTILE = "a\x1b[2J\x9b31m\u202eb\u2066c\x07\rd\ne"
HARMFUL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")
# A line that only a line break inside a name can make.
FORGED = re.compile(rb"^e", re.M)

MAKE = r"""
import os, socket, sys
name = sys.argv[1]
for kind in ("file", "link", "pipe", "socket", "dir", "text"):
    os.makedirs(kind, exist_ok=True)
os.chdir("file"); open(name, "w").write(name); os.chdir("..")
os.chdir("link"); os.symlink(name, name); os.chdir("..")
os.chdir("pipe"); os.mkfifo(name); os.chdir("..")
os.chdir("socket"); socket.socket(socket.AF_UNIX).bind(name); os.chdir("..")
os.chdir("dir"); os.mkdir(name); open(name + "/" + name, "w").close(); os.chdir("..")
open("text/plain", "w").write("before\n" + name + "\nafter\n")
"""


@pytest.fixture(scope="module")
def hostile():
    """A daemon with a machine full of it."""
    d = Daemon()
    m = d.machine(metadata={"note": HOSTILE}, env={"WORD": HOSTILE})
    first = d.post(f"/v1/machines/{m}/steps", {})["id"]
    made = d.exec(m, ["python3", "-c", MAKE, HOSTILE], env={"WORD": HOSTILE})
    assert made["exec"]["status"] == 0, made
    d.exec(m, ["sh", "-c", "exit 3", HOSTILE])
    d.post(f"/v1/machines/{m}/steps", {})
    d.post(f"/v1/machines/{m}/net/rules", {"action": "ask", "target": "http://a.example"})
    d.background(m, ["curl", "-s", "http://a.example/%E2%80%AEx?q=%1b%5b2J"])
    d.until(lambda: [p for p in d.get("/v1/pending")["pending"] if p["machine"] == m])
    yield d, m, first
    d.stop()


COMMANDS = {
    "ls": "ls", "ls json": "ls --json", "show": "show M", "show json": "show --json M", "stats": "stats M",
    "logs": "logs M", "logs json": "logs --json M", "steps": "steps M", "steps json": "steps --json M",
    "diff": "diff M FIRST", "diff json": "diff --json M FIRST", "diff stat": "diff --stat M FIRST",
    "audit": "audit", "net": "net M", "pending": "pending",
    "pending json": "pending --json", "grants": "grants M", "expose": "expose M", "image": "image ls",
    "ship": "ship M:/home/user --dry-run", "top": "top --json", "token": "token ls", "secret": "secret ls",
    "store": "store check", "nobody": "show NAME", "exec": "exec M -- NAME", "cp": "cp M:NAME /dev/null",
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS.keys())
def test_nothing_that_a_terminal_obeys_is_printed(hostile, words):
    d, m, first = hostile
    given = {"M": m, "FIRST": first, "NAME": HOSTILE, "M:/home/user": f"{m}:/home/user", "M:NAME": f"{m}:{HOSTILE}"}
    done = subprocess.run([PROGRAM, *(given.get(w, w) for w in words.split())], env=d.env, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=120)
    for text in (done.stdout, done.stderr):
        assert not HARMFUL.search(text), (words, HARMFUL.search(text), text)
        assert not FORGED.search(text), (words, text)
    if "--json" in words and done.returncode == 0:
        for line in done.stdout.splitlines():
            json.loads(line)


def test_records_of_the_journal_are_exact_for_programs_and_safe_for_eyes(hostile):
    d, *_ = hostile
    words = [PROGRAM, "audit", "--json"]
    piped = subprocess.run(words, env=d.env, capture_output=True, timeout=120).stdout
    assert piped and d.request("GET", "/v1/audit", raw=True).startswith(piped) and HARMFUL.search(piped)
    near, far = pty.openpty()
    with subprocess.Popen(words, env=d.env, stdin=subprocess.DEVNULL, stdout=far, stderr=far) as p:
        os.close(far)
        seen = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while data := os.read(near, 65536):
                seen += data
        p.wait(120)
    os.close(near)
    lines = seen.replace(b"\r\n", b"\n")
    assert not HARMFUL.search(lines), lines
    assert [json.loads(n) for n in lines.splitlines()][:3] == [json.loads(n) for n in piped.splitlines()][:3]


def test_the_machine_does_hold_it(hostile):
    """The control: the names are there, and what is asked for as data comes as it is."""
    d, m, first = hostile
    paths = {c["path"] for c in d.get(f"/v1/machines/{m}/diff", **{"from": first})["changes"]}
    assert f"home/user/socket/{HOSTILE}" in paths, paths
    done = subprocess.run([PROGRAM, "diff", "--json", m, first], env=d.env, capture_output=True, timeout=120)
    assert f"home/user/socket/{HOSTILE}" in {c["path"] for c in json.loads(done.stdout)["changes"]}
    out = subprocess.run([PROGRAM, "exec", m, "--", "cat", "text/plain"], env=d.env, capture_output=True, timeout=120)
    assert HOSTILE.encode() in out.stdout
