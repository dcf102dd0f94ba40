"""Ports of programs in sandboxes: by header on the one origin, and by host name on the listener of exposed ports."""
import http.client
import json
import socket
import threading

import pytest

from e2b_client import machine_of
from envd import Sandbox

PROGRAM = """
import http.server, json
class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        whole = b""
        while n := int(self.rfile.readline(), 16):
            whole += self.rfile.read(n)
            self.rfile.readline()
        self.rfile.readline()
        return whole
    def do_GET(self):
        if self.headers.get("Upgrade"):
            self.wfile.write(b"HTTP/1.1 101 S\\r\\nUpgrade: echo\\r\\nConnection: Upgrade\\r\\n\\r\\n")
            while data := self.rfile.read1(65536): self.wfile.write(data)
            self.close_connection = True
            return
        if self.path == "/none":
            self.send_response(204)
            self.end_headers()
            return
        if self.path == "/broken":
            self.wfile.write(b"this is not HTTP\\r\\n\\r\\n")
            self.close_connection = True
            return
        if self.path == "/cut":
            self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 100\\r\\n\\r\\nhalf")
            self.close_connection = True
            return
        body = self.body()
        if self.path == "/chunks":
            self.wfile.write(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n3\\r\\none\\r\\n3\\r\\ntwo\\r\\n0\\r\\n\\r\\n")
            return
        if self.path == "/until-close":
            self.wfile.write(b"HTTP/1.0 200 OK\\r\\n\\r\\n" + b"y" * 100000)
            self.close_connection = True
            return
        fields = [[k, v] for k, v in self.headers.items()]
        text = json.dumps({"method": self.command, "path": self.path, "fields": fields, "n": len(body)}).encode()
        if self.path == "/big":
            text = b"x" * 8_000_000
        self.send_response(200)
        self.send_header("Set-Cookie", "a=1")
        self.send_header("Set-Cookie", "b=2")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
    do_POST = do_PUT = do_HEAD = do_GET
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Web).serve_forever()
"""


def serve(server, sandbox):
    server.background(machine_of(sandbox), ["python3", "-c", PROGRAM])
    server.until(lambda: server.exec(machine_of(sandbox), "curl -s http://127.0.0.1:8000/")["exec"]["status"] == 0)
    return sandbox


@pytest.fixture(scope="module")
def served(server, e2b):
    yield serve(server, e2b.create())
    server.clear()


@pytest.fixture(scope="module")
def other(e2b):
    return e2b.create()


def visit(e2b, sandbox, path="/", method="GET", body=None, port="8000", **more):
    """Status, headers and bytes of a request to the one origin."""
    c = http.client.HTTPConnection(e2b.url.hostname, e2b.url.port, timeout=120)
    fields = {"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": port, **more}
    c.request(method, path, body=body, headers=fields, encode_chunked="Transfer-Encoding" in fields)
    answer = c.getresponse()
    data = answer.read()
    c.close()
    return answer.status, answer.headers, data


def visit_by_name(sandbox, path="/", port=8000, **fields):
    """The same by the host name that the SDK's getHost() makes."""
    domain, listener = sandbox["domain"].rsplit(":", 1)
    c = http.client.HTTPConnection("127.0.0.1", int(listener), timeout=120)
    c.request("GET", path, headers={"Host": f"{port}-{sandbox['sandboxID']}.{domain}:{listener}", **fields})
    answer = c.getresponse()
    data = answer.read()
    c.close()
    return answer.status, data


def visit_by_address(sandbox, path="/", port=8000, **fields):
    """The same for programs that resolve no names below localhost."""
    listener = int(sandbox["domain"].rsplit(":", 1)[1])
    c = http.client.HTTPConnection("127.0.0.1", listener, timeout=120)
    c.request("GET", path, headers={"Carrel-Port": f"{port}-{sandbox['sandboxID']}", **fields})
    answer = c.getresponse()
    data = answer.read()
    c.close()
    return answer.status, data


def test_request_passes_whole_and_without_fields_of_the_connection(e2b, served):
    status, headers, data = visit(e2b, served, "/a%20b?c=d", "POST", b"12345", **{"X-Own": "1"})
    told = json.loads(data)
    assert (status, told["method"], told["path"], told["n"]) == (200, "POST", "/a%20b?c=d", 5)
    assert headers.get_all("Set-Cookie") == ["a=1", "b=2"]
    fields = {name.lower(): value for name, value in told["fields"]}
    assert (fields["x-own"], fields["connection"], fields["content-length"]) == ("1", "close", "5")


def test_answer_of_each_form_arrives_whole(e2b, served):
    for path, data in (("/chunks", b"onetwo"), ("/until-close", b"y" * 100000), ("/big", b"x" * 8_000_000)):
        status, _, got = visit(e2b, served, path)
        assert status == 200 and got == data, path


def test_answers_without_a_body(e2b, served):
    assert visit(e2b, served, "/none")[::2] == (204, b"")
    status, headers, data = visit(e2b, served, "/big", "HEAD")
    assert (status, headers["Content-Length"], data) == (200, "8000000", b"")


def test_body_in_chunks_and_a_large_one_arrive_whole(e2b, served):
    piece = b"z" * 65536
    assert json.loads(visit(e2b, served, "/", "POST", iter([piece] * 64), **{"Transfer-Encoding": "chunked"})[2])["n"] == 64 * 65536
    assert json.loads(visit(e2b, served, "/", "PUT", piece * 100)[2])["n"] == 100 * 65536


def test_connection_is_kept_between_requests(e2b, served):
    c = http.client.HTTPConnection(e2b.url.hostname, e2b.url.port, timeout=120)
    for i in range(3):
        c.request("POST", f"/{i}", body=b"x" * i, headers={"E2b-Sandbox-Id": served["sandboxID"], "E2b-Sandbox-Port": "8000"})
        first = c.sock
        assert json.loads(c.getresponse().read())["n"] == i
        assert c.sock is first
    c.close()


def test_answer_that_is_cut_or_no_http(e2b, served):
    with pytest.raises(http.client.IncompleteRead):
        visit(e2b, served, "/cut")
    assert visit(e2b, served, "/broken")[0] == 502


def test_upgraded_connection_carries_bytes_both_ways(e2b, served):
    c = socket.create_connection((e2b.url.hostname, e2b.url.port), timeout=120)
    c.sendall(f"GET / HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: {served['sandboxID']}\r\nE2b-Sandbox-Port: 8000\r\n"
              "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n".encode())
    back, head = c.makefile("rb"), []
    while line := back.readline().strip():
        head.append(line)
    assert head[0].startswith(b"HTTP/1.1 101") and b"Upgrade: echo" in head
    data = bytes(range(256)) * 8192
    sender = threading.Thread(target=lambda: (c.sendall(data), c.shutdown(socket.SHUT_WR)))
    sender.start()
    assert back.read() == data
    sender.join()
    c.close()


def test_port_without_a_listener_is_a_bad_gateway(e2b, served):
    status, _, data = visit(e2b, served, port="8001")
    assert (status, json.loads(data)) == (502, {"sandboxId": served["sandboxID"], "port": 8001, "code": 502,
                                               "message": "The sandbox is running but port is not open"})
    for port in ("0", "65536", "x", "-1", "", "8000000000"):
        assert visit(e2b, served, port=port)[0] == 502


def test_host_name_leads_to_the_same_port(e2b, served):
    assert e2b.info(served)["domain"] == served["domain"]
    status, data = visit_by_name(served, "/named")
    assert (status, json.loads(data)["path"]) == (200, "/named")
    assert visit_by_name(served, port=8001)[0] == 502
    assert visit_by_name(served, "/metrics", port=49983)[0] == 401
    assert visit_by_name({**served, "sandboxID": "m" + "a" * 12})[0] == 404


def test_private_ports_need_the_traffic_token(e2b, server, served):
    own = serve(server, e2b.create(network={"allowPublicTraffic": False}))
    other = e2b.create(network={"allowPublicTraffic": False})
    token = own["trafficAccessToken"]
    assert served["trafficAccessToken"] is None and token and token != own["envdAccessToken"]
    field = {"e2b-traffic-access-token": token}
    status, _, data = visit(e2b, own, **field)
    assert status == 200 and token not in data.decode()
    assert "e2b-traffic-access-token" in json.loads(visit(e2b, own)[2])["message"]
    for wrong in (None, own["envdAccessToken"], other["trafficAccessToken"], e2b.key):
        fields = {"e2b-traffic-access-token": wrong} if wrong else {}
        assert visit(e2b, own, **fields)[0] == 403
        status, told = visit_by_name(own, **fields)
        assert status == 403 and json.loads(told)["code"] == 403 and b"e2b-traffic-access-token" in told
    assert visit_by_name(own, **field)[0] == visit_by_address(own, **field)[0] == 200
    assert visit_by_address(own)[0] == visit_by_address(own, **{"e2b-traffic-access-token": other["trafficAccessToken"]})[0] == 403
    assert e2b.post(own, "connect", {"timeout": 300})["trafficAccessToken"] == token


@pytest.mark.parametrize("field, value", [
    ("X-API-Key", "{key}"), ("X-Access-Token", "{token}"), ("X-Access-Token", "{other}"), ("X-Access-Token", "{key}"),
    ("Authorization", "Bearer {key}"), ("authorization", "bearer {carrel}"), ("Authorization", "Bearer {token}"), ("Authorization", "x={carrel}, y")])
@pytest.mark.parametrize("way", ["header", "name", "address"])
def test_a_program_does_not_get_the_credentials_of_its_client(e2b, server, served, other, way, field, value):
    """A client of E2B sends its key and the access token with all requests. The control: a program gets a credential of its own."""
    def fields(value):
        ways = {"header": lambda **f: visit(e2b, served, **f)[2], "name": lambda **f: visit_by_name(served, **f)[1],
                "address": lambda **f: visit_by_address(served, **f)[1]}
        data = ways[way](**{field: value})
        return json.loads(data)["fields"]

    carrel = server.post("/v1/tokens", {"note": "a test"})["secret"]
    secrets = {"key": e2b.key, "token": served["envdAccessToken"], "other": other["envdAccessToken"], "carrel": carrel}
    secret = value.format(**secrets)
    seen = fields(secret)
    assert seen and field.lower() not in [name.lower() for name, _ in seen]
    assert not any(one in json.dumps(seen) for one in secrets.values())
    # What only looks like one of ours belongs to the program: a key of E2B's own cloud, a token of another service.
    own = ["Basic dXNlcjpwYXNz", "key-of-the-program", "e2b_" + "0" * 40, "crl_", "Bearer " + "a" * 64, secret[:-1] if value[0] == "{" else "x"]
    for text in own:
        assert [field, text] in fields(text), text


def test_traffic_resumes_a_paused_sandbox_if_it_may(e2b, server):
    sandbox = serve(server, e2b.create(autoPause=True, autoResume={"enabled": True}))
    for call in (lambda: visit(e2b, sandbox)[0], lambda: visit_by_name(sandbox)[0]):
        e2b.post(sandbox, "pause", {}, 204)
        assert call() == 200 and e2b.info(sandbox)["state"] == "running"
    stays = serve(server, e2b.create())
    e2b.post(stays, "pause", {}, 204)
    assert visit(e2b, stays)[0] == 502 and visit_by_name(stays)[0] == 404
    assert e2b.info(stays)["state"] == "paused"


def test_traffic_without_the_token_resumes_nothing(e2b, server):
    sandbox = e2b.create(autoPause=True, autoResume={"enabled": True}, network={"allowPublicTraffic": False})
    e2b.post(sandbox, "pause", {}, 204)
    assert visit(e2b, sandbox)[0] == 502 and visit_by_name(sandbox)[0] == 403
    assert e2b.info(sandbox)["state"] == "paused"


def test_sandbox_that_is_gone_has_no_ports(e2b, server):
    sandbox = serve(server, e2b.create())
    e2b.kill(sandbox)
    assert visit(e2b, sandbox)[0] == 502 and visit_by_name(sandbox)[0] == 404


def test_the_address_leads_to_programs_only(served, other):
    """Not to the data plane, nor to the API, which have names; nor to ports that nobody listens on."""
    assert visit_by_address(served, "/a?b=c")[0] == 200
    token = served["envdAccessToken"]
    for port, path, status in ((49983, "/health", 404), (49983, "/files?path=/etc/passwd", 404), (49999, "/execute", 502), (8001, "/", 502), (0, "/", 404)):
        assert visit_by_address(served, path, port, **{"X-Access-Token": token})[0] == status, port
    assert visit_by_address(other)[0] == 502
    for name in ("api", f"api-{served['sandboxID']}", served["sandboxID"]):
        assert visit_by_address(served, **{"Carrel-Port": name})[0] == 404, name


def test_names_work_after_a_restart_of_the_daemon(e2b, server):
    sandbox = serve(server, e2b.create())
    server.kill()
    server.start()
    e2b.find(server)
    server.until(lambda: visit(e2b, sandbox)[0] == 200)
    assert visit_by_name({**sandbox, "domain": e2b.info(sandbox)["domain"]})[0] == 200


def test_port_that_its_owner_exposed_needs_that_token(e2b, server):
    sandbox = serve(server, e2b.create())
    token = server.post(f"/v1/machines/{machine_of(sandbox)}/exposures", {"port": 8000})["token"]
    assert visit_by_name(sandbox)[0] == 401
    assert visit_by_name(sandbox, **{"Carrel-Token": token})[0] == 200
    server.delete(f"/v1/machines/{machine_of(sandbox)}/exposures/8000")
    assert visit_by_name(sandbox)[0] == 200


def test_connections_end_with_their_clients(e2b, server):
    sandbox = Sandbox(e2b, server)
    serve(server, sandbox.made)
    for _ in range(20):
        c = socket.create_connection((e2b.url.hostname, e2b.url.port), timeout=120)
        c.sendall(f"GET /big HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: {sandbox.made['sandboxID']}\r\n"
                  "E2b-Sandbox-Port: 8000\r\n\r\n".encode())
        assert c.recv(10).startswith(b"HTTP/1.1")
        c.close()
    server.until(lambda: sandbox.run("ss -Htn state established '( sport = :8000 )' 2>/dev/null | wc -l").stdout in (b"0\n", b""))
    assert visit(e2b, sandbox.made)[0] == 200
