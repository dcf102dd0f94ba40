"""Terminals: bytes both ways over a WebSocket, resized, cut off, attached again with what was shown before."""
import base64
import json
import os
import struct
import time
import urllib.parse

import pytest

from daemon import Refused

BINARY, TEXT, CLOSE = 2, 1, 8


class Socket:
    """A WebSocket client that is just enough: whole messages, no extension."""

    def __init__(self, daemon, target):
        self.sock = daemon.connect()
        self.sock.connect()
        self.sock = self.sock.sock
        key = base64.b64encode(os.urandom(16)).decode()
        more = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "localhost", **daemon.headers}.items())
        self.sock.sendall(f"GET {target} HTTP/1.1\r\n{more}Connection: Upgrade\r\nUpgrade: websocket\r\n"
                          f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
        self.rest = b""
        while b"\r\n\r\n" not in self.rest:
            self.rest += self.sock.recv(4096)
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 101 "), head
        self.shown, self.told = b"", []

    def send(self, kind, data):
        mask = os.urandom(4)
        size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        self.sock.sendall(bytes([0x80 | kind]) + size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def type(self, text):
        self.send(BINARY, text.encode())

    def control(self, **what):
        self.send(TEXT, json.dumps(what).encode())

    def take(self, n):
        while len(self.rest) < n:
            more = self.sock.recv(1 << 16)
            assert more, "the connection ended"
            self.rest += more
        part, self.rest = self.rest[:n], self.rest[n:]
        return part

    def receive(self):
        kind, size = self.take(2)
        if size >= 126:
            size = struct.unpack(">H" if size == 126 else ">Q", self.take(2 if size == 126 else 8))[0]
        data = self.take(size)
        if kind & 15 == BINARY:
            self.shown += data
        elif kind & 15 == TEXT:
            self.told.append(json.loads(data))
        return kind & 15

    def until(self, text):
        while text.encode() not in self.shown:
            assert self.receive() != CLOSE, (text, self.shown)

    def until_closed(self):
        while self.receive() != CLOSE:
            pass

    def cut(self):
        self.sock.close()


@pytest.fixture
def terminal(daemon, box):
    def attach(**query):
        words = urllib.parse.urlencode(query)
        return Socket(daemon, f"/v1/machines/{box}/pty?{words}")

    return attach


def exec_of(daemon, box):
    return daemon.get(f"/v1/machines/{box}/execs")["execs"][0]["id"]


def test_what_is_typed_is_run_and_shown(daemon, box, terminal):
    t = terminal()
    t.type("stty size; tty\n")
    t.until("/dev/pts/")
    t.control(resize={"rows": 33, "cols": 111})
    t.type("stty size\n")
    t.until("33 111")
    t.type("exit 3\n")
    t.until_closed()
    assert t.told[-1]["type"] == "exit" and t.told[-1]["exec"]["status"] == 3


TWICE = """
import os, random, time, tty
tty.setraw(0)
for i in range(%d):
    os.write(1, b"a")
    end = time.perf_counter() + random.random() * 0.0003
    while time.perf_counter() < end:
        pass
    os.write(1, b"b")
    os.read(0, 1)
"""


def test_output_that_comes_while_output_is_read_is_shown(daemon, box, terminal):
    """Nothing follows the second byte until it was seen, so one that is missed ends the test."""
    rounds = 10000
    daemon.exec(box, "cat >twice.py", stdin=TWICE % rounds)
    t = terminal(command="python3 twice.py")
    for i in range(rounds):
        while t.shown.count(b"b") <= i:
            assert t.receive() != CLOSE
        t.type("x")
    t.until_closed()
    assert t.shown == b"ab" * rounds


def test_a_cut_connection_is_attached_again(daemon, box, terminal):
    t = terminal()
    t.type("secret=forty-two; echo fir''st\n")
    t.until("first")
    x = exec_of(daemon, box)
    t.cut()
    again = terminal(exec=x)
    again.until("first")  # what was shown before comes again
    again.type("echo $secret\n")
    again.until("forty-two\r\n")
    later = terminal(exec=x, offset=len(again.shown))
    later.type("echo la''ter\n")
    later.until("later")
    assert b"first" not in later.shown
    again.until("later")  # two see one terminal
    later.type("exit\n")
    again.until_closed()


def test_a_terminal_outlives_the_daemon(fresh):
    d = fresh()
    m = d.machine()
    t = Socket(d, f"/v1/machines/{m}/pty")
    t.type("here=still; echo be''fore\n")
    t.until("before")
    x = exec_of(d, m)
    d.restart()
    t = Socket(d, f"/v1/machines/{m}/pty?exec={x}")
    t.until("before")
    t.type("echo $here-there\n")
    t.until("still-there")


def test_signals_and_what_is_no_terminal(daemon, box, terminal):
    t = terminal(command="trap 'echo caught; exit' INT; echo ready; while :; do sleep 0.1; done")
    t.until("ready")
    t.type("\x03")
    t.until("caught")
    x = daemon.background(box, "sleep 1000")
    with pytest.raises(AssertionError, match="HTTP/1.1 4"):
        terminal(exec=x)
    with pytest.raises(Refused):
        daemon.get(f"/v1/machines/{box}/pty")


def test_a_command_waits_for_a_reader_that_wants_every_byte(daemon):
    """More than a log keeps. Who does not ask for it is told of a gap; nobody waits for one who left."""
    m, size = daemon.machine(), 80 << 20
    command = urllib.parse.quote(f"head -c {size} /dev/zero | tr '\\0' x")
    def start(**more):
        s = Socket(daemon, f"/v1/machines/{m}/pty?command={command}" + "".join(f"&{k}={v}" for k, v in more.items()))
        return s, daemon.until(lambda: [x for x in daemon.get(f"/v1/machines/{m}/execs")["execs"] if x["state"] == "running"])[0]["id"]
    produced = lambda x: daemon.get(f"/v1/machines/{m}/execs/{x}")["stdout_bytes"]

    def taken(s):
        n = 0
        while s.receive() != CLOSE:
            n += len(s.shown)
            s.shown = b""
        return n, sum(t["bytes"] for t in s.told if t["type"] == "gap")

    s, x = start(wait=1)
    time.sleep(1)
    assert 0 < produced(x) < 16 << 20
    assert taken(s) == (size, 0)
    s, x = start(wait=1)
    s.cut()
    assert daemon.wait(m, x)["stdout_bytes"] == size
    s, x = start()  # the control
    assert daemon.wait(m, x)["stdout_bytes"] == size
    n, gap = taken(s)
    assert n + gap == size and gap
