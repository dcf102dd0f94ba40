"""Broken requests: each gets an error of its kind, in the form that clients of E2B read, and the sandbox goes on."""
import json
import select
import socket

import pytest

from envd import Failed, Sandbox, b64, envelope

CONNECT, JSON = "application/connect+json", "application/json"


@pytest.fixture(scope="module")
def sandbox(e2b, server):
    yield Sandbox(e2b, server, envVars={"A": "1", "B": "x y"})
    server.clear()


def raw(sandbox, path, kind, body, *fields):
    """Sends these bytes as the body; the status and the answer. The connection may end before all is read."""
    s = socket.create_connection((sandbox.e2b.url.hostname, sandbox.e2b.url.port), timeout=120)
    head = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", *(f"{k}: {v}" for k, v in sandbox.headers.items()), *fields]
    try:
        s.sendall("\r\n".join(head + ["", ""]).encode() + body)
    except (ConnectionResetError, BrokenPipeError):
        pass
    answer = b""
    s.settimeout(60)
    while b"\r\n\r\n" not in answer:
        answer += s.recv(65536)
    head, _, data = answer.partition(b"\r\n\r\n")
    length = int(next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")).split(b":")[1])
    while len(data) < length:
        data += s.recv(65536)
    s.close()
    return int(head.split()[1]), data


CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize("body, code", [(b"zz\r\n{}", "invalid_argument"), (b"1000100\r\n" + b" " * 0x1000100 + b"\r\n0\r\n\r\n", "resource_exhausted")],
                         ids=["malformed", "too-long"])
def test_error_of_a_body_has_the_form_of_its_procedure(sandbox, body, code):
    status, data = raw(sandbox, "/process.Process/List", JSON, body, CHUNKED)
    assert status in (400, 429) and json.loads(data)["code"] == code and json.loads(data)["message"]
    status, data = raw(sandbox, "/process.Process/Start", CONNECT, body, CHUNKED)
    assert status == 200 and data[0] == 2 and json.loads(data[5:])["error"]["code"] == code
    assert sandbox.run("echo on").stdout == b"on\n"


def test_error_of_a_body_of_the_control_plane(e2b):
    s = socket.create_connection((e2b.url.hostname, e2b.url.port), timeout=120)
    s.sendall(f"POST /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {e2b.key}\r\n{CHUNKED}\r\n\r\nzz\r\n".encode())
    answer = s.recv(65536).decode()
    assert answer.startswith("HTTP/1.1 400") and json.loads(answer.split("\r\n\r\n")[1])["code"] == 400
    s.close()


def test_unfinished_bodies_take_a_limited_part_of_the_memory(sandbox, server):
    """The token of one sandbox is enough to send them; all that its owner sends has one limit."""
    before, length = server.memory_kb(), (16 << 20) - 10
    head = "\r\n".join(["POST /filesystem.Filesystem/Stat HTTP/1.1", "Host: localhost", f"Content-Type: {JSON}", f"Content-Length: {length}",
                        *(f"{k}: {v}" for k, v in sandbox.headers.items()), "", ""]).encode()
    waiting = []
    for _ in range(16):
        s = socket.create_connection((sandbox.e2b.url.hostname, sandbox.e2b.url.port), timeout=120)
        waiting.append(s)
        try:
            s.sendall(head + b" " * (15 << 20))
        except (ConnectionResetError, BrokenPipeError):
            pass  # it was refused
    server.until(lambda: len(select.select(waiting, [], [], 0)[0]) >= 8)
    refused = select.select(waiting, [], [], 0)[0]
    answer = refused[-1].recv(65536)
    assert b" 503 " in answer.splitlines()[0] and b"too many large requests at once" in answer, answer
    assert len(refused) < 16 and server.memory_kb() - before < 160 << 10
    assert sandbox.run("echo on").stdout == b"on\n"
    for s in waiting:
        s.close()
    body = b'{"path":"/tmp"}'.ljust(15 << 20)
    server.until(lambda: raw(sandbox, "/filesystem.Filesystem/Stat", JSON, body, f"Content-Length: {len(body)}")[0] == 200)


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x09{}", b"\x00\x06\x40\x00\x00", b"\x00\xff\xff\xff\xff{", envelope({}) + b"\x00"])
def test_half_an_envelope_and_one_of_100_megabytes(sandbox, body):
    for procedure in ("process.Process/Start", "process.Process/StreamInput", "filesystem.Filesystem/WatchDir"):
        with pytest.raises(Failed) as failed:
            list(sandbox.open(procedure, body))
        assert failed.value.code in ("invalid_argument", "resource_exhausted")


@pytest.mark.parametrize("body", [b"[" * 1_000_000, b'{"a":' * 100_000, b'{"path":"/tmp/a\\u0000b"}', b'{"path":"/tmp/\xff"}', b'"text"', b"{}{}", b'{"path":"/tmp","path":'],
                         ids=["lists", "objects", "nul", "no-utf8", "text", "two", "cut"])
def test_messages_that_are_no_json_object(sandbox, body):
    with pytest.raises(Failed) as failed:
        list(sandbox.open("filesystem.Filesystem/WatchDir", envelope(body)))
    assert failed.value.code == "invalid_argument"
    status, headers, data = sandbox.call_raw("POST", "/filesystem.Filesystem/Stat", body, {"Content-Type": JSON})
    assert (status, headers["Content-Type"], json.loads(data)["code"]) == (400, JSON, "invalid_argument")
    assert sandbox.run("echo on").stdout == b"on\n"


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1e9", "99999999999999999999", "1, 2", "9" * 40])
def test_a_keepalive_that_is_no_time_is_ignored(sandbox, value):
    assert sandbox.run("echo on", headers={"Keepalive-Ping-Interval": value}).stdout == b"on\n"


def test_versions_from_the_future(e2b, sandbox):
    """Fields and headers that nobody knows yet are ignored; paths are not found, in words."""
    made = e2b.create(futureField={"a": [1]}, metadata={"v": "9"})
    assert e2b.info(made)["metadata"] == {"v": "9"}
    fields = {"Content-Type": JSON, "Connect-Protocol-Version": "99", "User-Agent": "e2b-js-sdk/99.0.0", "E2b-Future": "x"}
    status, _, data = sandbox.call_raw("POST", "/process.Process/List", b'{"future": 1}', fields)
    assert status == 200 and "processes" in json.loads(data)
    assert sandbox.call_raw("POST", "/process.Process/Teleport", b"{}", fields)[0] == 404
    status, _, data = e2b.send("POST", "/v9/sandboxes", {})
    assert status == 404 and json.loads(data)["code"] == 404
    e2b.kill(made)


def test_the_root_directory_is_not_removed(sandbox):
    for path in ("/", "//", "/tmp/..", "/."):
        with pytest.raises(Failed) as failed:
            sandbox.call("filesystem.Filesystem/Remove", {"path": path}, user="root")
        assert (failed.value.status, failed.value.code) == (400, "invalid_argument")
    sandbox.call("filesystem.Filesystem/MakeDir", {"path": "/tmp/there"})
    assert sandbox.call("filesystem.Filesystem/Remove", {"path": "/tmp/there"}) == {}


def test_variables_of_the_sandbox(sandbox):
    status, headers, data = sandbox.call_raw("GET", "/envs")
    assert (status, headers["Content-Type"], json.loads(data)) == (200, JSON, {"A": "1", "B": "x y"})
    assert sandbox.call_raw("GET", "/envs", headers={"X-Access-Token": "x"})[0] == 401
    assert sandbox.call_raw("DELETE", "/envs")[0] in (404, 405)


def test_input_comes_in_a_stream(sandbox):
    events = sandbox.start("cat", stdin=True).events()
    pid = next(events)[1]["pid"]
    parts = [{"start": {"process": {"pid": pid}}}, {"data": {"input": {"stdin": b64("one ")}}}, {"keepalive": {}}, {"data": {"input": {"stdin": b64("two")}}}]
    assert list(sandbox.open("process.Process/StreamInput", b"".join(map(envelope, parts)))) == [{}]
    for bad, code in (([parts[1]], "invalid_argument"), ([parts[0], {"data": {"input": {"stdin": "%"}}}], "invalid_argument"), ([parts[0], {}], "invalid_argument"),
                      ([{"start": {"process": {"pid": 99999999}}}], "not_found"), ([parts[0], {"data": {"input": {"pty": b64("x")}}}], "internal")):
        with pytest.raises(Failed) as failed:
            list(sandbox.open("process.Process/StreamInput", b"".join(map(envelope, bad))))
        assert failed.value.code == code, bad
    sandbox.process("CloseStdin", pid)
    out = b"".join(json.dumps(value).encode() for name, value in events if name == "data")
    assert b64("one two").encode() in out or b64("one ").encode() in out


def test_pages_of_other_origins_call_the_data_plane_and_nothing_else(e2b, sandbox):
    """As E2B's: a page has the token only if its user gave it to the page. The control plane of this host stays closed for pages."""
    page = {"Origin": "https://app.example"}
    ask = {**page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,e2b-sandbox-id,x-access-token"}
    c = sandbox.connect()
    c.request("OPTIONS", "/process.Process/List", headers=ask)
    answer = c.getresponse()
    assert answer.status == 204 and answer.headers["Access-Control-Allow-Origin"] == "*" and answer.headers["Access-Control-Max-Age"] == "7200"
    assert answer.headers["Access-Control-Allow-Headers"] == ask["Access-Control-Request-Headers"] and "POST" in answer.headers["Access-Control-Allow-Methods"]
    answer.read()
    for token, status in ((sandbox.headers["X-Access-Token"], 200), ("x", 401)):
        fields = {**page, "Content-Type": JSON, "X-Access-Token": token}
        got, headers, _ = sandbox.call_raw("POST", "/process.Process/List", b"{}", fields)
        assert got == status and headers["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Origin" not in sandbox.call_raw("POST", "/process.Process/List", b"{}", {"Content-Type": JSON})[1]
    status, headers, _ = e2b.send("GET", "/v2/sandboxes", headers=page)
    assert status == 403 and "Access-Control-Allow-Origin" not in headers
    c.request("OPTIONS", "/v2/sandboxes", headers={**ask, "Access-Control-Request-Headers": "x-api-key"})
    assert c.getresponse().status == 403
    c.close()
