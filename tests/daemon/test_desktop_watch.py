"""A desktop as a WebSocket: RFB in both directions, of which only what is understood passes."""
import re
import struct

import pytest

from daemon import Refused
from screens import HONEST, SOCKET, needs_desktop, server
from test_terminal import BINARY, CLOSE, Socket

VERSION = b"RFB 003.008\n"
FORMAT = bytes([32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 0, 8, 16, 0, 0, 0])


class Viewer(Socket):
    """A VNC client that is just enough."""

    def __init__(self, daemon, machine=None, target=None):
        super().__init__(daemon, target or f"/v1/machines/{machine}/desktop/watch")
        self.why = None

    def receive(self):
        """Like Socket.receive(), and keeps the reason of a close frame."""
        rest = self.rest
        while len(rest) < 2 or len(rest) < 2 + rest[1] % 128 and rest[0] & 15 == CLOSE:
            more = self.sock.recv(1 << 16)
            assert more, "the connection ended"
            rest += more
        self.rest = rest
        if rest[0] & 15 == CLOSE:
            self.why = rest[4:2 + rest[1] % 128].decode()
        return super().receive()

    def read(self, n):
        while len(self.shown) < n:
            assert self.receive() == BINARY, self.why
        part, self.shown = self.shown[:n], self.shown[n:]
        return part

    def say(self, data):
        self.send(BINARY, data)

    def greet(self):
        assert self.read(12) == VERSION
        self.say(VERSION)
        assert self.read(2) == b"\1\1"
        self.say(b"\1")
        assert self.read(4) == bytes(4)
        self.say(b"\1")
        width, height = struct.unpack(">HH", self.read(4))
        assert self.read(27) == FORMAT + b"\0\0\0\7desktop"
        self.say(bytes(4) + FORMAT + struct.pack(">BBHii", 2, 0, 2, 7, 0))
        return width, height

    def ask(self, width, height, changed=False):
        self.say(struct.pack(">BBHHHH", 3, changed, 0, 0, width, height))

    def picture(self):
        """Pixels of one update by their rectangles."""
        kind, count = struct.unpack(">BxH", self.read(4))
        assert kind == 0
        rects = {}
        for _ in range(count):
            x, y, w, h, encoding = struct.unpack(">HHHHi", self.read(12))
            assert encoding == 0
            rects[x, y, w, h] = self.read(w * h * 4)
        return rects

    def closed_because(self):
        self.until_closed()
        return self.why


def lying(daemon, script):
    m = daemon.machine()
    daemon.background(m, server(script))
    daemon.until(lambda: daemon.exec(m, f"test -S {SOCKET} && echo yes")["stdout"])
    return m


@needs_desktop
def test_a_viewer_sees_the_screen_and_clicks_and_types(daemon):
    m = daemon.machine()
    daemon.post(f"/v1/machines/{m}/desktop")
    v = Viewer(daemon, m)
    assert v.greet() == (1280, 800)
    v.ask(1280, 800)
    assert sum(w * h for _, _, w, h in v.picture()) >= 1280 * 800
    daemon.background(m, "DISPLAY=:0 stdbuf -oL xev -geometry 400x300+100+100 >/tmp/events")
    events = lambda: daemon.exec(m, "cat /tmp/events 2>&1")["stdout"]
    daemon.until(lambda: "Expose" in events())
    v.say(struct.pack(">BBHH", 5, 0, 300, 250) + struct.pack(">BBHH", 5, 1, 300, 250) + struct.pack(">BBHH", 5, 0, 300, 250))
    v.say(b"\6\0\0\0\0\0\0\6secret")
    v.say(struct.pack(">BBHI", 4, 1, 0, 0x62) + struct.pack(">BBHI", 4, 0, 0, 0x62))
    daemon.until(lambda: re.search(r"KeyRelease.*, b\)", events(), re.S))
    assert re.search(r"ButtonPress.*root:\(300,250\).*button 1", events(), re.S)
    v.ask(1280, 800, changed=True)
    assert v.picture(), "only what changed comes"
    v.say(b"\xfb")
    assert v.closed_because() == "the viewer of the desktop sent a message of an unknown type"


@needs_desktop
def test_viewers_that_leave_early_lock_out_nobody(daemon):
    m = daemon.machine()
    daemon.post(f"/v1/machines/{m}/desktop")
    for _ in range(20):
        Viewer(daemon, m).cut()
    daemon.until(lambda: accepted(daemon, m))
    v = Viewer(daemon, m)
    assert v.greet() == (1280, 800)


def test_an_open_viewer_is_use_of_its_machine(daemon):
    script = server("greet(c)\nc.recv(1000)")
    seen, unseen = (daemon.machine() for _ in range(2))
    for m in (seen, unseen):
        daemon.exec(m, ["sh", "-c", '"$@" >/dev/null 2>&1 </dev/null &', "sh", *script])
        daemon.until(lambda: daemon.exec(m, f"test -S {SOCKET} && echo yes")["stdout"])
    viewer = Viewer(daemon, seen)
    state = lambda m: daemon.get(f"/v1/machines/{m}")["state"]
    for _ in range(2):  # each time the other machine was idle for long enough
        for m in (seen, unseen):
            daemon.patch(f"/v1/machines/{m}", {"idle": 0.3, "idle_action": "stop"})
        daemon.until(lambda: state(unseen) != "running")
        daemon.post(f"/v1/machines/{unseen}/resume")
    assert state(seen) == "running"
    viewer.cut()
    daemon.until(lambda: state(seen) == "stopped")


@needs_desktop
def test_viewers_end_with_the_desktop_and_are_limited(daemon):
    m = daemon.machine()
    daemon.post(f"/v1/machines/{m}/desktop")
    viewers = [Viewer(daemon, m) for _ in range(8)]
    with pytest.raises(Refused) as refused:
        daemon.get(f"/v1/machines/{m}/desktop/watch", headers=UPGRADE)
    assert refused.value.code == "limit" and "8 viewers" in refused.value.error["message"]
    viewers.pop().cut()
    daemon.until(lambda: accepted(daemon, m))
    daemon.exec(m, "kill -9 $(cat /tmp/.X0-lock)")
    assert {v.closed_because() for v in viewers} == {f"the desktop of machine '{m}' has ended"}
    assert Viewer(daemon, m).closed_because() == f"the desktop of machine '{m}' does not run"


UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Key": "AAECAwQFBgcICQoLDA0ODw=="}


def accepted(daemon, machine):
    try:
        Viewer(daemon, machine).cut()
    except AssertionError:
        return False
    return True


LIES = {
    "pixels instead of a handshake": ("greet(c)\nc.sendall(b'\\0\\0\\0\\1' + rect(0, 0, 8, 4) + bytes(128))", "pixels that nobody asked for"),
    "another encoding": ("greet(c)\nc.recv(10)\nc.sendall(b'\\0\\0\\0\\1' + rect(0, 0, 8, 4, 7) + bytes(128))", "an encoding that nobody asked for"),
    "pixels outside": ("greet(c)\nc.recv(10)\nc.sendall(b'\\0\\0\\0\\1' + rect(1, 0, 8, 4) + bytes(128))", "a rectangle outside of the screen"),
    "another message": ("greet(c)\nc.sendall(b'\\xff' * 100)", "a message of an unknown type"),
    "no end": ("greet(c)\nwhile True:\n    c.sendall(bytes([2]) * 65536)", "more than was asked for"),
}


@pytest.mark.parametrize("lie", [None, *LIES])
def test_a_server_that_lies_is_cut_off(daemon, lie):
    """Its control tells the truth in the same way, and its clipboard goes nowhere."""
    script, why = LIES[lie] if lie else (HONEST.replace("greet(c)", "greet(c)\nc.recv(10)\nc.sendall(b'\\3\\0\\0\\0\\0\\0\\0\\3cut')"), None)
    m = lying(daemon, script)
    v = Viewer(daemon, m)
    if lie:
        if "c.recv(10)" in script:
            v.greet()
            v.ask(8, 4)
        assert v.closed_because() == "the desktop's VNC server sent " + why
    else:
        assert v.greet() == (8, 4)
        v.ask(8, 4)
        assert v.picture() == {(0, 0, 8, 4): b"\x10\x20\x30\0" * 32}
    assert daemon.exec(m, "echo on")["stdout"] == "on\n"


def test_a_server_that_says_nothing_is_left_when_its_viewer_goes(daemon):
    m = lying(daemon, "pass")
    c = daemon.connect()
    c.request("GET", f"/v1/machines/{m}/desktop/watch", headers={**daemon.headers, **UPGRADE, "Host": "localhost"})
    daemon.until(lambda: connections(daemon, m) == 1)
    c.close()
    daemon.until(lambda: connections(daemon, m) == 0)


def connections(daemon, machine):
    """Connections to the desktop that the server of lying() sees: its sockets but the one that listens."""
    line = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q '^python3 -c' && ls -l $p/fd; done 2>/dev/null | grep -c socket:"
    return int(daemon.exec(machine, line)["stdout"]) - 1
