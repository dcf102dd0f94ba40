"""carrel top: once as text and JSON, and live on a real terminal."""
import json
import os
import re
import signal
import subprocess
import time

import pytest

from carrel import PROGRAM, ROOTLESS, Carrel, Terminal
from daemon import stopped
from patience import clock
from screen import Screen

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e"


@pytest.fixture(scope="module")
def carrel():
    c = Carrel()
    assert c("new", "--name", "lazy").returncode == 0
    assert c("new", "--name", "busy").returncode == 0
    assert c("exec", "busy", "--", "sh", "-c", "(while :; do :; done) >/dev/null 2>&1 & true").returncode == 0
    assert c("exec", "lazy", "--", "echo", HOSTILE).returncode == 0
    yield c
    c.stop()


@pytest.fixture(scope="module")
def counted(carrel):
    """For what only a host with a cgroup for its machines can tell."""
    if "mem_bytes" not in json.loads(carrel("top", "--json").stdout)["machines"][0]:
        assert ROOTLESS, "root has a cgroup"
        pytest.skip("rootless, no delegated cgroup: nobody counts what a machine uses, and it cannot be paused")


def test_what_nobody_counts_is_not_shown_as_nothing(carrel):
    rows = json.loads(carrel("top", "--json").stdout)["machines"]
    for line in carrel("top", "--sort", "age").stdout.decode().splitlines()[1:]:
        row = next(r for r in rows if r["name"] == line.split()[0])
        cpu, mem = line.split()[2:4]
        assert (cpu == "-", mem == "-") == ("cpu_percent" not in row, "mem_bytes" not in row) and mem != "0B", line


class Live:
    """`carrel top` on a terminal, and what is on its screen."""

    def __init__(self, carrel, *args, rows=24, cols=80, **kw):
        self.terminal = Terminal(carrel, "top", *args, rows=rows, cols=cols, **kw)
        self.screen, self.rest, self.raw = Screen(rows, cols), b"", b""

    def read(self):
        data = self.terminal._read(0.1)
        self.raw += data
        self.rest = self.screen.feed(self.rest + data)

    def until(self, pattern, seconds=20):
        end = clock() + seconds
        while not (found := re.search(pattern, str(self.screen), re.M)):
            assert clock() < end, f"{pattern} is not there:\n{self.screen}"
            self.read()
        return found

    def resize(self, rows, cols):
        self.screen.resize(rows, cols)
        self.terminal.size(rows, cols)

    def type(self, text):
        self.terminal.type(text.encode())

    def leave(self, how="q"):
        self.type(how)
        status, rest = self.terminal.close()
        self.raw += rest
        return status


@pytest.fixture
def live(carrel):
    started = []

    def start(*args, **kw):
        started.append(Live(carrel, *args, **kw))
        return started[-1]

    yield start
    for v in started:
        if v.terminal.process.poll() is None:
            v.terminal.process.kill()
            v.terminal.process.wait()


def assert_restored(v):
    assert v.terminal.after == v.terminal.before
    assert v.raw.count(b"\x1b[?1049h") == 1 and v.raw.rfind(b"\x1b[?1049l") > v.raw.rfind(b"\x1b[?1049h")
    assert v.raw.rfind(b"\x1b[?25h") > v.raw.rfind(b"\x1b[?25l")  # the cursor is seen again


def test_json_is_one_object(carrel, counted):
    rows = json.loads(carrel("top", "--json").stdout)["machines"]
    busy, lazy = rows
    assert (busy["name"], busy["state"], lazy["name"]) == ("busy", "running", "lazy")
    assert busy["cpu_percent"] > 5 > lazy["cpu_percent"] >= 0
    assert busy["mem_bytes"] > 0 and lazy["disk_bytes"] >= 0 and busy["pids"] >= 1
    assert lazy["command"] == ["echo", HOSTILE] and busy["command"][0] == "sh"


def test_once_is_a_plain_table(carrel, counted):
    for words in (["top"], ["top", "--once"], ["top", "-1", "--sort", "cpu"]):
        done = carrel(*words)
        lines = done.stdout.decode().splitlines()
        assert done.returncode == 0 and lines[0].split() == ["MACHINE", "STATE", "CPU", "MEM", "DISK", "AGE", "COMMAND"]
        assert [line.split()[0] for line in lines[1:]] == ["busy", "lazy"]
        assert re.search(r"^busy +running +[1-9]\d*\.\d% +\S+[BKMG] +\S+[BKMG] +\d+[sm]  sh -c ", lines[1]), lines
        assert r"echo \x1b]0;owned\x07\x1b[2J\xe2\x80\xae" in lines[2]
    by_name = carrel("top", "--once", "--sort", "name").stdout.decode().splitlines()
    assert [line.split()[0] for line in by_name[1:]] == ["busy", "lazy"]
    by_age = carrel("top", "--once", "--sort", "age").stdout.decode().splitlines()
    assert [line.split()[0] for line in by_age[1:]] == ["lazy", "busy"]


def test_no_daemon_means_no_machines():
    c = Carrel()
    try:
        assert json.loads(c("top", "--json").stdout) == {"machines": []}
        assert len(c("top").stdout.splitlines()) == 1
        assert not (c.run_dir / "carrel.sock").exists()
    finally:
        c.stop()


@pytest.mark.parametrize("words,word", [(["--sort", "size"], b"size"), (["busy"], b"busy"), (["--bad"], b"--bad")])
def test_bad_words_are_named(carrel, words, word):
    done = carrel("top", *words)
    assert done.returncode == 125 and word in done.stderr, done


def test_a_busy_machine_shows_cpu(live, counted):
    v = live()
    v.until(r"^busy +running +[1-9]\d*\.\d% +\S+ +\S+ +\S+  sh -c")
    assert v.screen.lines[0].startswith("2 machines, cpu ") and v.screen.lines[1].startswith("MACHINE")
    assert v.screen.lines[2].startswith("busy") and v.screen.lines[3].startswith("lazy")
    assert v.screen.lines[23].startswith("c cpu   m mem") and v.screen.lines[23].endswith("q leave")
    assert v.leave() == 0
    assert_restored(v)


def test_figures_are_refreshed(live, carrel, counted):
    v = live()
    v.until(r"^2 machines")
    assert carrel("new", "--name", "third").returncode == 0
    try:
        v.until(r"^third +running", 10)
        assert carrel("pause", "third").returncode == 0
        v.until(r"^third +paused", 10)
    finally:
        assert carrel("rm", "third").returncode == 0
    v.until(r"^2 machines", 10)
    assert v.leave() == 0


def test_keys_change_the_order(live):
    v = live()
    v.until(r"^busy.*\n^lazy")
    v.type("a")
    v.until(r"^lazy.*\n^busy")
    v.type("n")
    v.until(r"^busy.*\n^lazy")
    assert v.leave() == 0


def test_resize_is_followed(live):
    v = live()
    v.until(r"^busy")
    v.resize(10, 120)
    v.until(r"^lazy .*echo ")
    v.until(r"^c cpu .*q leave$")
    assert v.screen.lines[9].startswith("c cpu")
    for rows, cols in ((1, 1), (2, 9), (3, 40)):
        v.resize(rows, cols)
        time.sleep(0.2)
        v.read()
        assert v.terminal.process.poll() is None
    v.resize(4, 80)  # one row has room
    v.until(r"^busy")
    v.until(r"^c cpu .*q leave$")
    assert "lazy" not in str(v.screen)
    v.type("\x1bOB")  # down
    v.until(r"^lazy")
    assert v.leave() == 0
    assert_restored(v)


def test_what_is_inside_cannot_speak_to_the_terminal(live):
    v = live(cols=140)
    v.until(r"^lazy .*echo \\x1b\]0;owned\\x07\\x1b\[2J\\xe2\\x80\\xae")
    assert v.leave() == 0
    assert b"\x1b]" not in v.raw and b"\x07" not in v.raw and "\u202e".encode() not in v.raw


def test_the_terminal_is_as_before_when_it_is_interrupted(live, carrel):
    v = live()
    v.until(r"^busy")
    with stopped([int((carrel.run_dir / "carrel.pid").read_text())]):  # even while it waits for an answer
        time.sleep(1.5)
        assert v.leave("\x03") != 0
    assert_restored(v)


def test_told_to_end_it_leaves_the_terminal_as_before(live):
    v = live()
    v.until(r"^busy")
    v.terminal.process.send_signal(signal.SIGTERM)
    v.leave("")
    assert_restored(v)


def test_a_daemon_that_dies_is_found_again(carrel, live, counted):
    v = live()
    v.until(r"^2 machines")
    os.kill(int((carrel.run_dir / "carrel.pid").read_text()), signal.SIGKILL)
    time.sleep(1.5)
    v.until(r"^2 machines.*\n.*\n^busy +running +[1-9]\d*\.\d%", 30)
    assert v.leave() == 0


def test_a_terminal_that_cannot_is_named(carrel):
    t = Terminal(carrel, "top", env={"TERM": "nonesuch"})
    status, text = t.close()
    assert status == 125 and b"nonesuch" in text and b"--once" in text, text
    assert t.after == t.before


def test_the_command_line_does_not_load_what_draws():
    """Static, and without it: `carrel` starts in a millisecond."""
    names = subprocess.run(["strings", "-a", PROGRAM], capture_output=True, check=True).stdout
    assert b"newterm" not in names and b"terminfo" not in names
