"""carrel events and carrel pending --watch: the owner sees what happens, and decides at once."""
import json
import os
import pty
import select
import signal
import subprocess
import threading
import time

import pytest

from carrel import PROGRAM

CURL = ["curl", "-sS", "--max-time", "60"]


class Follower:
    """A command of ours that prints lines until it is ended."""

    def __init__(self, gated, *words):
        self.lines = []
        self.process = subprocess.Popen([PROGRAM, *words], env=dict(gated.env, CARREL_WAIT="30"), stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)
        print(self.process.stderr.read())
        self.reader.join(20)
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def follow(gated):
    made = []

    def start(*words):
        f = Follower(gated, *words)
        made.append(f)
        return f
    yield start
    for f in made:
        f.end()


class Typist:
    """The command on a terminal, with somebody who types."""

    def __init__(self, gated, *words):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(PROGRAM, [PROGRAM, *words], gated.env)

    def expect(self, text, seconds=30):
        end = time.monotonic() + seconds
        while text.encode() not in self.seen:
            left = end - time.monotonic()
            assert left > 0, (text, self.seen)
            if select.select([self.fd], [], [], left)[0]:
                self.seen += os.read(self.fd, 65536)
        self.seen = self.seen[self.seen.index(text.encode()) + len(text):]

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        os.kill(self.pid, signal.SIGINT)
        os.close(self.fd)
        os.waitpid(self.pid, 0)


@pytest.fixture
def typist(gated):
    made = []

    def start(*words):
        t = Typist(gated, *words)
        made.append(t)
        return t
    yield start
    for t in made:
        t.end()


@pytest.fixture
def box(gated, servers):
    servers.forget()
    m = gated.machine(net=[{"target": "nothing.test"}])
    gated.allow(m, f"http://ok.test:{servers.http}", action="ask")
    return m


def ask(gated, servers, box, path="/held"):
    return gated.background(box, [*CURL, f"http://ok.test:{servers.http}{path}"])


def output(gated, box, x):
    assert gated.wait(box, x, 60)["status"] == 0
    return gated.request("GET", f"/v1/machines/{box}/execs/{x}/output", raw=True).decode()


def newest(gated):
    return max(json.loads(line)["id"] for line in past(gated))


def past(gated, *words):
    done = subprocess.run([PROGRAM, "events", "--past", "--json", *words], env=gated.env, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done
    return done.stdout.splitlines()


# ---- carrel events ----


def test_past_events_are_filtered(gated, box):
    mark = newest(gated)
    gated.patch(f"/v1/machines/{box}", {"name": "watched"})
    gated.exec(box, "exit 3")
    found = [json.loads(line) for line in past(gated, "--after", str(mark), "watched")]
    assert "exec.ended" in [e["type"] for e in found] and {e["machine"] for e in found} == {box}
    assert [e["detail"]["status"] for e in found if e["type"] == "exec.ended"] == [3]
    assert past(gated, "--after", str(mark), "--type", "machine.created", box) == []


def test_people_get_a_line_per_event(gated, box):
    gated.exec(box, "exit 3")
    done = subprocess.run([PROGRAM, "events", "--past", "--type", "exec.ended", box], env=gated.env, capture_output=True,
                          text=True, timeout=60)
    line, = done.stdout.splitlines()
    assert f"  exec.ended        {box}  " in line and "status=3" in line, line


def test_events_are_followed_across_a_restart_of_the_daemon(gated, box, follow):
    mark = newest(gated)
    f = follow("events", "--json", "--after", str(mark))
    gated.exec(box, "exit 3")
    gated.until(lambda: any('"exec.ended"' in line for line in f.lines))
    gated.restart()
    gated.exec(box, "exit 4")
    gated.until(lambda: sum('"exec.ended"' in line for line in f.lines) == 2)
    ids = [json.loads(line)["id"] for line in f.lines]
    assert ids == sorted(set(ids)) and f.process.poll() is None


@pytest.mark.parametrize("words, says", [
    (["no-such-machine"], "machine 'no-such-machine' does not exist"),
    (["a", "b"], "unexpected argument 'b'"),
    (["--after", "x"], "--after"),
])
def test_wrong_words_are_explained(gated, words, says):
    done = subprocess.run([PROGRAM, "events", "--past", *words], env=gated.env, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and says in done.stderr, done


# ---- carrel pending --watch ----


def test_requests_are_printed_as_they_come(gated, servers, box, follow):
    first = ask(gated, servers, box, "/first")
    gated.until(lambda: [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == box])
    f = follow("pending", "--watch", "--json")
    gated.until(lambda: len(f.lines) == 1)
    second = ask(gated, servers, box, "/second")
    gated.until(lambda: len(f.lines) == 2)
    items = [json.loads(line) for line in f.lines]
    assert [i["path"] for i in items] == ["/first", "/second"] and items[0]["machine"] == box
    gated.restart()
    for x in (first, second):  # the gate of the new daemon has new connections
        gated.wait(box, x, 60)
    third = ask(gated, servers, box, "/third")
    gated.until(lambda: any('"/third"' in line for line in f.lines))
    item = json.loads(f.lines[-1])
    gated.post(f"/v1/pending/{item['id']}", {"decision": "approve"})
    assert '"path": "/third"' in output(gated, box, third)
    assert sum('"/first"' in line for line in f.lines) == 1, "a request is shown once"


@pytest.mark.parametrize("key, ends", [("y", '"path": "/held"'), ("n", "the owner denied the request")])
def test_the_owner_decides_on_the_terminal(gated, servers, box, typist, key, ends):
    t = typist("pending", "--watch")
    t.expect("ITEM")
    x = ask(gated, servers, box)
    t.expect("approve it? [y]es, [a]lways, [n]o, [l]ater: ")
    t.type("?\n")
    t.expect("approve it? ")
    t.type(key + "\n")
    assert ends in output(gated, box, x)


def test_always_adds_the_rule(gated, servers, box, typist):
    t = typist("pending", "--watch")
    x = ask(gated, servers, box)
    t.expect("[a]lways")
    t.type("a\n")
    t.expect("rule ")
    assert '"path": "/held"' in output(gated, box, x)
    assert gated.get(f"/v1/machines/{box}/net")["rules"][-1]["target"].endswith("/held")


def test_a_request_that_was_left_for_later_waits(gated, servers, box, typist):
    t = typist("pending", "--watch")
    x = ask(gated, servers, box)
    t.expect("[l]ater: ")
    t.type("l\n")
    y = ask(gated, servers, box, "/other")
    t.expect("/other")
    t.expect("[l]ater: ")
    t.type("y\n")
    assert '"path": "/other"' in output(gated, box, y)
    item, = [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == box]
    gated.post(f"/v1/pending/{item['id']}", {"decision": "approve"})
    assert '"path": "/held"' in output(gated, box, x)
