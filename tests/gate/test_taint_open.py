"""Connections that are open when a guarded machine is tainted: each is judged again, and the one that tainted it may only finish."""
import socketserver
import threading

import pytest

LEFT = r"""
import socket, urllib.request
def taint():
    return urllib.request.urlopen("http://other.test:{http}/", timeout=60).status
def rest(s):
    out = b""
    try:
        while part := s.recv(65536): out += part
    except OSError: return out.decode() + " reset"
    return out.decode()
def until(s, what):
    out = b""
    while what not in out:
        part = s.recv(65536)
        if not part: raise SystemExit("ended: " + repr(out))
        out += part
    return out
def dial(host, port):
    return socket.create_connection((host, port), 60)
"""
TUNNEL = LEFT + r"""
s = dial("ok.test", {tcp})
until(s, b"hello")
s.sendall(b"before"); until(s, b"before")
print(taint())
try: s.sendall(b"my-secret"); s.shutdown(1)
except OSError: pass
print(rest(s))
"""
UPLOAD = LEFT + r"""
s = dial("ok.test", {http})
s.sendall(b"POST /up HTTP/1.1\r\nHost: ok.test:{http}\r\nConnection: close\r\nContent-Length: 9\r\n\r\nmy-")
print(taint())
try: s.sendall(b"secret")
except OSError: pass
print(rest(s)[-300:])
"""


def guarded(gated, guard, *rules):
    return gated.machine(guard=guard, net=[{"target": t, "local": True, **more} for t, more in rules])


def run(gated, box, script, **words):
    for name, value in words.items():
        script = script.replace("{" + name + "}", str(value))
    done = gated.python(box, script)
    assert done["exec"]["status"] == 0, done
    return done["stdout"]


@pytest.mark.parametrize("script", [TUNNEL, UPLOAD], ids=["tunnel", "upload"])
def test_what_is_open_is_judged_again(gated, servers, script, count_attack):
    rules = ((f"http://other.test:{servers.http}", {}), (f"tcp://ok.test:{servers.tcp}", {"trusted": True}), (f"http://ok.test:{servers.http}", {"trusted": True}))

    def said(guard):
        return run(gated, guarded(gated, guard, *rules), script, http=servers.http, tcp=servers.tcp)
    assert "my-secret" in said(False), "the control: it goes on in one that is not guarded"
    lost = said(True)
    assert lost.startswith("200\n") and "secret" not in lost, lost
    count_attack()


class Stranger(socketserver.ThreadingTCPServer):
    """Answers a request before it is whole, and hears on; an upgrade it accepts."""
    daemon_threads = True

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            head = b""
            while b"\r\n\r\n" not in head:
                part = self.request.recv(65536)
                if not part:
                    return
                head += part
            self.request.sendall(b"HTTP/1.1 103 Hints\r\nX-Do: early\r\n\r\n")
            if b"upgrade" in head.lower():
                self.request.sendall(b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            else:
                self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nwords")
            while part := self.request.recv(65536):
                self.server.heard += part
                if b"secret" in self.server.heard:
                    return

    def __init__(self):
        self.heard = b""
        super().__init__(("127.0.0.1", 0), self.Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture
def stranger():
    s = Stranger()
    yield s
    s.shutdown()
    s.server_close()


ANSWERED = LEFT + r"""
s = dial("other.test", {port})
s.sendall(b"POST / HTTP/1.1\r\nHost: other.test:{port}\r\nTransfer-Encoding: chunked\r\n\r\n")
print(b"early" in until(s, b"words"))
s.sendall(b"9\r\nmy-secret\r\n0\r\n\r\n")
if {guard}: urllib.request.urlopen("http://inner.test:{http}/", timeout=60).read()
else: rest(s)
"""


@pytest.mark.parametrize("guard", [True, False])
def test_what_taints_only_receives_once_it_was_answered(gated, servers, stranger, guard):
    port = stranger.server_address[1]
    box = guarded(gated, guard, (f"http://other.test:{port}", {}), (f"http://inner.test:{servers.http}", {"tainted": True}))
    said = run(gated, box, ANSWERED, port=port, http=servers.http, guard=guard)
    assert said == f"{not guard}\n", "where that counts, not a word comes before the answer"
    if guard:
        assert b"secret" not in stranger.heard
    else:
        gated.until(lambda: b"secret" in stranger.heard)


UPGRADE = LEFT + r"""
s = dial("other.test", {port})
s.sendall(b"GET / HTTP/1.1\r\nHost: other.test:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
out = b""
while b" 101 " not in out and b" 502 " not in out: out += s.recv(65536)
print(" 101 " in out.decode())
"""


@pytest.mark.parametrize("guard", [True, False])
def test_what_taints_becomes_no_websocket(gated, stranger, guard):
    port = stranger.server_address[1]
    assert run(gated, guarded(gated, guard, (f"http://other.test:{port}", {})), UPGRADE, port=port) == f"{not guard}\n"


MUCH = LEFT + r"""
s = dial("other.test", {tcp})
until(s, b"hello\n")
s.sendall(b"x" * 1000); until(s, b"x")
try: s.sendall(b"y" * 100000); s.shutdown(1)
except OSError: pass
print(rest(s).count("y"))
"""


def test_a_tunnel_that_taints_sends_little(gated, servers, count_attack):
    free, held = (int(run(gated, guarded(gated, guard, (f"tcp://other.test:{servers.tcp}", {})), MUCH, tcp=servers.tcp)) for guard in (False, True))
    assert free == 100000 and held < 16384, (free, held)
    count_attack()


WAITS = LEFT + r"""
s = dial("ok.test", {tcp})
until(s, b"hello")
open("there", "w").close()
rest(s)
"""


def test_a_rule_that_ends_closes_its_tunnels(gated, servers):
    box, target = gated.machine(), f"tcp://ok.test:{servers.tcp}"
    gated.allow(box, target)
    waiting = gated.background(box, ["python3", "-c", WAITS.replace("{tcp}", str(servers.tcp))])
    gated.until(lambda: gated.exec(box, "test -e there")["exec"]["status"] == 0)
    gated.allow(box, target, ttl=0.2)
    gated.wait(box, waiting)  # the server would never end it
    assert "the network policy of the machine has changed" in [n["reason"] for n in gated.notes(box, "net.close")]
