"""Ports inside machines, shown outside: by host name, with a token, and never on the API's origin."""
import asyncio
import http.client
import json
import re
import socket
import subprocess

import pytest

from carrel import PROGRAM
from daemon import Daemon, Refused, free_port
from faulty import Faulty
from kinds import ANY

SERVER = """
import base64, hashlib, http.server, json
class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            key = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
            self.wfile.write(b"HTTP/1.1 101 S\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + key + b"\\r\\n\\r\\n")
            head = self.rfile.read(2)
            mask, n = self.rfile.read(4), head[1] & 127
            text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(n)))
            self.wfile.write(bytes([0x81, len(text)]) + text[::-1])
            return
        if self.path == "/echo":
            self.wfile.write(b"HTTP/1.1 101 S\\r\\nUpgrade: echo\\r\\nConnection: Upgrade\\r\\n\\r\\n")
            while byte := self.rfile.read(1): self.wfile.write(byte)
            return
        if self.path == "/stream":
            self.wfile.write(b"HTTP/1.1 200 OK\\r\\n\\r\\nfirst")
            self.rfile.read(1)  # nothing more comes: until the connection has ended
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        text = json.dumps({"path": self.path, "headers": dict(self.headers.items()), "n": len(body)}).encode()
        if self.path.startswith("/big"):
            text = b"x" * 3_000_000
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    do_POST = do_GET
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("ANY", 8000), Web).serve_forever()
""".replace("ANY", ANY)


class Exposing(Daemon):
    domain, more = "", ""

    def __init__(self):
        self.ingress = free_port()
        super().__init__("--listen", "127.0.0.1:0", conf=f"[gate]\ningress = 127.0.0.1:{self.ingress}\ndomain = {self.domain}\n{self.more}[journal]\nrefusals = 100000\n")

    def visit(self, machine, path="/", port=8000, host=None, method="GET", body=None, **headers):
        c = http.client.HTTPConnection("127.0.0.1", self.ingress, timeout=20)
        headers = {k.replace("_", "-"): v for k, v in headers.items()}
        c.request(method, path, body=body, headers={"Host": host or f"{port}-{machine}.localhost:{self.ingress}", **headers})
        a = c.getresponse()
        text = a.read()
        c.close()
        return a, text

    def notes(self, machine, verb):
        return [n for n in self.audit(machine, verb) if n["kind"] == "note"]

    def audit(self, machine, verb):
        text = self.request("GET", "/v1/audit", raw=True, machine=machine, verb=verb).decode()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def module_daemon():
    d = Exposing()
    yield d
    d.stop()


@pytest.fixture
def daemon(module_daemon):
    yield module_daemon
    module_daemon.clear()


def with_server(daemon, **fields):
    box = daemon.machine(**fields)
    daemon.background(box, ["python3", "-c", SERVER])
    daemon.until(lambda: daemon.exec(box, "curl -s http://127.0.0.1:8000/")["exec"]["status"] == 0)
    return box


@pytest.fixture
def box(daemon):
    return with_server(daemon)


@pytest.fixture
def token(daemon, box):
    return daemon.post(f"/v1/machines/{box}/exposures", {"port": 8000})["token"]


def test_it_is_off_by_default(daemon, box):
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", free_port()))
    try:
        assert daemon.visit(box)[0].status == 404
    except ConnectionRefusedError:
        pass  # nothing was ever shown: nobody listens


def test_a_port_is_shown_with_its_token_only(daemon, box, token):
    answer, text = daemon.visit(box, "/x?y=1", Carrel_Token=token, X_Own="kept")
    seen = json.loads(text)
    assert answer.status == 200 and seen["path"] == "/x?y=1" and seen["headers"]["X-Own"] == "kept"
    assert token not in text.decode()
    for wrong in ({}, {"Carrel_Token": "x" * 52}, {"Carrel_Token": token[:-1]}, {"Cookie": "carrel_expose=no"}, {"Carrel_Token": "x" * 500}):
        assert daemon.visit(box, **wrong)[0].status == 401
    other = token[:-1] + ("b" if token[-1] == "a" else "a")
    assert daemon.visit(box, f"/?carrel_token={other}")[0].status == 401
    refused = [n for n in daemon.notes(box, "expose.refuse")]
    assert len(refused) == 6 and refused[0]["detail"]["port"] == 8000
    assert daemon.notes(box, "expose.enter")[0]["detail"]["path"] == "/x"
    assert token not in json.dumps(daemon.notes(box, "expose"))


def test_a_browser_gets_a_cookie_for_that_host(daemon, box, token):
    answer, _ = daemon.visit(box, f"/a/b?one=1&carrel_token={token}&two=2")
    assert answer.status == 302 and answer.headers["Location"] == "/a/b?one=1&two=2"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Domain" not in cookie
    pair = cookie.split(";")[0]
    answer, text = daemon.visit(box, "/a/b", Cookie=f"mine=1; {pair}; other=2")
    seen = json.loads(text)
    assert answer.status == 200 and seen["headers"]["Cookie"] == "mine=1; other=2" and token not in text.decode()
    assert "Cookie" not in json.loads(daemon.visit(box, Cookie=pair)[1])["headers"]
    # No way to another host through the redirect.
    assert daemon.visit(box, f"//evil.test/?carrel_token={token}")[0].headers["Location"] == "/"


def test_bodies_and_websockets(daemon, box, token):
    assert len(daemon.visit(box, "/big", Carrel_Token=token)[1]) == 3_000_000
    answer, text = daemon.visit(box, "/up", method="POST", body=b"z" * 2_000_000, Carrel_Token=token)
    assert json.loads(text)["n"] == 2_000_000
    websockets = pytest.importorskip("websockets")

    async def talk():
        s = socket.create_connection(("127.0.0.1", daemon.ingress))
        s.setblocking(False)
        async with websockets.connect(f"ws://8000-{box}.localhost:{daemon.ingress}/ws", sock=s, close_timeout=0.1, extra_headers={"Carrel-Token": token}) as w:
            await w.send("hello")
            return await asyncio.wait_for(w.recv(), 10)

    assert asyncio.run(talk()) == "olleh"


def test_only_what_is_shown(daemon, box, token):
    daemon.background(box, f"python3 -m http.server 9000 --bind {ANY}")
    assert daemon.visit(box, port=9000, Carrel_Token=token)[0].status == 404
    other = daemon.machine()
    assert daemon.visit(other, Carrel_Token=token)[0].status == 404
    theirs = daemon.post(f"/v1/machines/{other}/exposures", {"port": 8000})["token"]
    assert daemon.visit(box, Carrel_Token=theirs)[0].status == 401
    assert daemon.visit(other, Carrel_Token=theirs)[0].status == 502  # nobody listens in there
    for host in ("localhost", f"127.0.0.1:{daemon.ingress}", f"8000-{box}.localhost.evil.test", f"8000-{box}.evil.test", f"08000-{box}.localhost",
                 f"0-{box}.localhost", f"99999-{box}.localhost", f"8000-{box}x.localhost", "x" * 300 + ".localhost", "-.localhost"):
        assert daemon.visit(box, host=host, Carrel_Token=token)[0].status == 404, host


def open_stream(daemon, box, token):
    """A connection that neither side would ever end, once its answer has begun."""
    s = socket.create_connection(("127.0.0.1", daemon.ingress))
    s.settimeout(60)
    s.sendall(f"GET /stream HTTP/1.1\r\nHost: 8000-{box}.localhost\r\nCarrel-Token: {token}\r\n\r\n".encode())
    said = b""
    while not said.endswith(b"first"):
        part = s.recv(1000)
        assert part, said
        said += part
    return s


def open_echo(daemon, box, token):
    """A connection whose every byte comes back."""
    s = socket.create_connection(("127.0.0.1", daemon.ingress))
    s.settimeout(60)
    s.sendall(f"GET /echo HTTP/1.1\r\nHost: 8000-{box}.localhost\r\nCarrel-Token: {token}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n".encode())
    said = b""
    while not said.endswith(b"\r\n\r\n"):
        said += s.recv(1)
    assert said.startswith(b"HTTP/1.1 101"), said
    return s


def has_ended(s):
    """Waits for it; a connection that stays open ends the test."""
    try:
        return s.recv(1) == b""
    except ConnectionResetError:
        return True


def test_sixteen_ports_are_shown_and_no_more(daemon):
    m = daemon.machine()
    for port in range(5000, 5016):
        daemon.post(f"/v1/machines/{m}/exposures", {"port": port})
    with pytest.raises(Refused) as e:
        daemon.post(f"/v1/machines/{m}/exposures", {"port": 5016})
    assert e.value.code == "limit", e.value
    shown = daemon.get(f"/v1/machines/{m}/exposures")["exposures"]
    assert sorted(x["port"] for x in shown) == list(range(5000, 5016))
    daemon.post(f"/v1/machines/{m}/exposures", {"port": 5007})  # one of them anew is not one more
    daemon.delete(f"/v1/machines/{m}/exposures/5000")
    daemon.post(f"/v1/machines/{m}/exposures", {"port": 5016})


def test_closed_means_closed(daemon, box, token):
    daemon.background(box, ["python3", "-c", SERVER.replace("8000", "9000")])
    daemon.until(lambda: daemon.exec(box, "curl -s http://127.0.0.1:9000/")["exec"]["status"] == 0)
    other = daemon.post(f"/v1/machines/{box}/exposures", {"port": 9000})["token"]
    s = open_stream(daemon, box, token)
    assert len(daemon.delete(f"/v1/machines/{box}/exposures/9000")["exposures"]) == 1
    assert daemon.visit(box, port=9000, Carrel_Token=other)[0].status == 404
    s.settimeout(0)
    with pytest.raises(BlockingIOError):  # the control: another port was closed, and this one is open still
        s.recv(1)
    s.settimeout(60)
    assert daemon.delete(f"/v1/machines/{box}/exposures/8000")["exposures"] == []
    assert has_ended(s)
    assert daemon.visit(box, Carrel_Token=token)[0].status == 404
    with pytest.raises(Refused) as e:
        daemon.delete(f"/v1/machines/{box}/exposures/8000")
    assert e.value.code == "not_found"


def test_a_stale_cookie_does_not_lock_the_owner_out(daemon, box, token):
    stale = "carrel_expose=" + "a" * 52
    assert daemon.visit(box, Cookie=stale)[0].status == 401
    assert daemon.visit(box, f"/?carrel_token={token}", Cookie=stale)[0].status == 302
    for more in ({"Cookie": f"{stale}; carrel_expose={token}"}, {"Cookie": f"carrel_expose={token}; {stale}"}, {"Cookie": stale, "Carrel_Token": token}):
        answer, text = daemon.visit(box, **more)
        assert answer.status == 200 and "carrel_expose" not in text.decode(), more


# Answers whatever looks like the end of a head, keeps the connection whatever it is told, and writes down every byte.
GREEDY = """
import socket, threading
def serve(c):
    data = b""
    while part := c.recv(65536):
        with open("/tmp/heard", "ab") as f: f.write(part)
        data += part
        while b"\\r\\n\\r\\n" in data:
            data = data.partition(b"\\r\\n\\r\\n")[2]
            c.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: keep-alive\\r\\nContent-Length: 2\\r\\n\\r\\nok")
s = socket.create_server(("ANY", 8000))
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
""".replace("ANY", ANY)


def test_no_token_reaches_the_machine(daemon, count_attack):
    box = daemon.machine()
    daemon.background(box, ["python3", "-c", GREEDY])
    daemon.until(lambda: daemon.exec(box, ["curl", "-s", "http://127.0.0.1:8000/"])["exec"]["status"] == 0)
    token = daemon.post(f"/v1/machines/{box}/exposures", {"port": 8000})["token"]
    host = f"8000-{box}.localhost:{daemon.ingress}"

    def send(port, head):
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.settimeout(60)
            s.sendall(head.encode())
            s.shutdown(socket.SHUT_WR)
            said = b""
            while part := s.recv(65536):
                said += part
            return said.decode()

    def get(target, *fields):
        return f"GET {target} HTTP/1.1\r\nHost: {host}\r\n" + "".join(f + "\r\n" for f in fields) + "\r\n"
    cookie = f"Cookie: carrel_expose={token}"
    for head, status in ((get(f"/1?carrel_token={token}"), 302), (get(f"/2?carrel_token={token}", cookie), 302),
                         (get(f"/3?carrel_token={token}&carrel_token={token}&a=1", cookie), 302), (get(f"/4?carrel%5ftoken={token}", cookie), 302),
                         (get("/5", f"{cookie}; carrel_expose={token}"), 200), (get("/6", cookie, cookie), 200),
                         (get("/7", cookie, f"Referer: http://{host}/?carrel_token={token}"), 200),
                         (get("/8", f"Carrel-Token: {token}", f"Carrel-Token: {token}"), 200), (get("/9", cookie) + get("/10", cookie), 200),
                         (get("/11", cookie, "Content-Length: 2") + "xx" + get("/12", cookie), 200)):
        said = send(daemon.ingress, head)
        assert said.split()[1] == str(status) and said.count("HTTP/1.1") == 1, (head, said)
        assert status == 302 or "Connection: close" in said
        count_attack()
    heard = daemon.exec(box, "cat /tmp/heard")["stdout"]
    assert "GET /9 " in heard and token not in heard and "GET /10" not in heard and "GET /1 " not in heard
    assert "GET /11 " in heard and "GET /12" not in heard
    # The control: without the listener between, one connection carries both, and what is in them.
    script = f"import socket; s = socket.create_connection(('127.0.0.1', 8000)); s.sendall({get('/9', cookie) + get('/10', cookie)!r}.encode()); s.shutdown(1)\n" \
             "while s.recv(999): pass"
    assert daemon.exec(box, ["python3", "-c", script])["exec"]["status"] == 0
    heard = daemon.exec(box, "cat /tmp/heard")["stdout"]
    assert token in heard and "GET /10" in heard


def test_a_page_of_another_origin_opens_no_websocket(daemon, box, token):
    def knock(*fields):
        with socket.create_connection(("127.0.0.1", daemon.ingress)) as s:
            s.settimeout(60)
            s.sendall("\r\n".join([f"GET /ws HTTP/1.1\r\nHost: 8000-{box}.localhost:{daemon.ingress}\r\nUpgrade: websocket\r\nConnection: Upgrade",
                                   "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", f"Cookie: carrel_expose={token}", *fields, "", ""]).encode())
            return int(s.recv(1000).split()[1])
    assert knock() == 101 and knock(f"Origin: http://8000-{box}.localhost:{daemon.ingress}") == 101
    for origin in ("http://evil.test", "null", f"http://8001-{box}.localhost:{daemon.ingress}", f"http://8000-{box}.localhost"):
        assert knock(f"Origin: {origin}") == 403, origin


def test_a_preview_gets_a_cookie_of_its_own_that_only_opens_pages(daemon, box, token):
    """In a frame of another site a browser sends no strict cookie. The one that it sends opens pages, nothing else."""
    frame = {"Sec_Fetch_Dest": "iframe", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Site": "cross-site"}
    answer, _ = daemon.visit(box, f"/?carrel_token={token}", **frame)
    cookie = answer.headers["Set-Cookie"]
    assert answer.status == 302 and all(f"; {rule}" in cookie for rule in ("HttpOnly", "SameSite=None", "Secure", "Partitioned"))
    pair = cookie.split(";")[0]
    assert daemon.visit(box, Cookie=pair, **frame)[0].status == 200
    own = {"Sec_Fetch_Dest": "empty", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Site": "same-origin"}
    assert daemon.visit(box, Cookie=pair, method="POST", body="x", **own)[0].status == 200
    for method, more in (("POST", {}), ("GET", {"Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"}),
                         ("POST", {"Sec_Fetch_Site": "same-site"})):  # another machine below the same domain
        answer, text = daemon.visit(box, Cookie=pair, method=method, **{**frame, **more})
        assert answer.status == 403 and b"another site" in text


def taint(daemon, box, tmp_path):
    thing = tmp_path / "theirs"
    thing.write_text("x")
    done = subprocess.run([PROGRAM, "grant", "add", box, "--file", f"{thing}:/home/user/theirs:untrusted"], env=daemon.env, capture_output=True, text=True)
    assert done.returncode == 0 and daemon.get(f"/v1/machines/{box}/net")["tainted"] == str(thing), done


def test_a_guarded_machine_that_is_tainted_shows_no_port(daemon, tmp_path):
    box = with_server(daemon, guard=True)
    token = daemon.post(f"/v1/machines/{box}/exposures", {"port": 8000})["token"]
    s = open_echo(daemon, box, token)
    taint(daemon, box, tmp_path)
    s.sendall(b"q")
    assert has_ended(s)
    answer, text = daemon.visit(box, Carrel_Token=token)
    assert answer.status == 403 and b"untrusted source" in text
    assert daemon.visit(box, Carrel_Token="a" * 52)[0].status == 401, "nobody else is told"
    # Its owner knows, and shows it all the same; also to the next daemon.
    token = daemon.post(f"/v1/machines/{box}/exposures", {"port": 8000})["token"]
    assert daemon.visit(box, Carrel_Token=token)[0].status == 200
    daemon.restart()
    daemon.until(lambda: daemon.get(f"/v1/machines/{box}")["state"] == "running")
    assert daemon.until(lambda: daemon.visit(box, Carrel_Token=token)[0].status == 200)


class FaultyExposing(Faulty, Exposing):
    """Its database can be made to refuse writes."""


def test_a_port_that_could_not_be_exposed_again_is_not_shown(tmp_path):
    """Whichever write of it fails: nothing was stored, and the old token opens nothing. The control is the first that is stored."""
    d = FaultyExposing()

    def expose():
        return d.post(f"/v1/machines/{box}/exposures", {"port": 8000})["token"]

    def stored():
        return [d.rows(f"SELECT * FROM {table} WHERE machine = ?", box) for table in ("networks", "exposures")]

    try:
        box = with_server(d, guard=True)
        old, new, skip = expose(), None, 0
        assert d.visit(box, Carrel_Token=old)[0].status == 200
        taint(d, box, tmp_path)
        before = stored()
        while not new:
            with d.failing(skip=skip):
                try:
                    new = expose()
                except Refused:
                    assert stored() == before, skip
            if not new:
                assert d.visit(box, Carrel_Token=old)[0].status == 403, skip
            skip += 1
        assert skip > 1, "no write failed"
        assert stored() != before
        assert [d.visit(box, Carrel_Token=t)[0].status for t in (old, new)] == [401, 200]
    finally:
        d.stop()


def test_control_one_that_is_not_guarded_goes_on_showing(daemon, box, token, tmp_path):
    s = open_echo(daemon, box, token)
    taint(daemon, box, tmp_path)
    s.sendall(b"q")
    assert s.recv(1) == b"q" and daemon.visit(box, Carrel_Token=token)[0].status == 200


def test_it_outlives_the_daemon(daemon, box, token):
    daemon.restart()
    daemon.until(lambda: daemon.get(f"/v1/machines/{box}")["state"] == "running")
    assert daemon.until(lambda: daemon.visit(box, Carrel_Token=token)[0].status == 200)
    daemon.delete(f"/v1/machines/{box}")
    assert daemon.visit(box, Carrel_Token=token)[0].status == 404


def test_a_page_of_a_box_cannot_call_the_api(daemon, box, token):
    """Its origin is another, a cookie of its host means nothing there, and the API is not on its listener."""
    origin = f"http://8000-{box}.localhost:{daemon.ingress}"
    api = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=20)

    def ask(method="GET", path="/v1/machines", **headers):
        api.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        a = api.getresponse()
        return a.status, a.headers, a.read()

    bearer = "Bearer " + daemon.post("/v1/tokens", {"scopes": ["read", "run", "admin"]})["secret"]
    assert ask(Authorization=bearer)[0] == 200  # the control: without a page it passes
    status, headers, _ = ask(Authorization=bearer, Origin=origin)
    assert status == 403 and "Access-Control-Allow-Origin" not in headers
    assert ask(Origin=origin, Cookie=f"carrel_expose={token}")[0] in (401, 403)
    assert ask(Cookie=f"carrel_expose={token}")[0] == 401
    assert ask(Carrel_Token=token)[0] == 401
    status, headers, _ = ask("OPTIONS", Origin=origin, Access_Control_Request_Method="POST")
    assert "Access-Control-Allow-Origin" not in headers
    assert ask(Host=f"8000-{box}.localhost:{daemon.port}", Authorization=bearer)[0] == 403
    # What looks like the API on the machine's own host is the machine's.
    assert json.loads(daemon.visit(box, "/v1/machines", Carrel_Token=token)[1])["path"] == "/v1/machines"


def test_bad_requests(daemon, box, token):
    for raw, status in ((b"GET / HTTP/1.1\r\n\r\n", b"400"), (b"GET / HTTP/1.0\r\n\r\n", b"404"), (b"nonsense\r\n\r\n", b"400"),
                        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"), (b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", b"404"),
                        (b"GET / HTTP/1.1\r\nX: " + b"y" * 20000 + b"\r\n\r\n", b"431")):
        s = socket.create_connection(("127.0.0.1", daemon.ingress))
        s.settimeout(20)
        s.sendall(raw)
        assert s.recv(200).split()[1] == status, raw[:40]
        s.close()
    with pytest.raises(Refused):
        daemon.post(f"/v1/machines/{box}/exposures", {"port": 70000})


def test_a_token_of_the_api_cannot_expose(daemon, box):
    secret = daemon.post("/v1/tokens", {"scopes": ["read", "run"]})["secret"]
    with pytest.raises(Refused) as e:
        daemon.request("POST", f"/v1/machines/{box}/exposures", {"port": 8000}, headers={"Authorization": "Bearer " + secret}.items())
    assert e.value.status == 403


def test_the_command_line(daemon, box):
    def carrel(*words):
        return subprocess.run([PROGRAM, *words], env=daemon.env, capture_output=True, text=True, timeout=60)
    url = carrel("expose", box, "8000").stdout.strip()
    assert re.fullmatch(rf"http://8000-{box}\.localhost:{daemon.ingress}/\?carrel_token=[a-z2-7]{{52}}", url)
    assert daemon.visit(box, Carrel_Token=url.split("=")[1])[0].status == 200
    assert carrel("expose", box).stdout == url.split("?")[0] + "\n"
    again = carrel("expose", box, "8000")
    assert again.stdout.strip() != url and again.stderr == "carrel: the earlier link to port 8000 no longer works\n", again
    assert carrel("expose", box, "rm", "8000").returncode == 0 and carrel("expose", box).stdout == ""
    assert carrel("expose", box, "0").returncode != 0
