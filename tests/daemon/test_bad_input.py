"""What cannot be done is refused by one table: status, code, and a message that says what and where."""
import http.client
import json
import re

import pytest

from daemon import Refused

MACHINE = "/v1/machines/{m}"
EXECS = MACHINE + "/execs"
FILES = MACHINE + "/files"


def refusal(daemon, method, target, body=None, headers=()):
    """Status and error of an answer that must be one, in its one shape."""
    c = daemon.connect()
    data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
    try:
        c.request(method, target, body=data, headers={**daemon.headers, **dict(headers)})
    except BrokenPipeError:
        pass  # it was refused before all of it was sent
    answer = c.getresponse()
    content = answer.read()
    c.close()
    assert answer.status >= 400, (answer.status, content)
    assert answer.headers["Content-Type"] == "application/json"
    parsed = json.loads(content)
    assert list(parsed) == ["error"], parsed
    error = parsed["error"]
    assert set(error) <= {"code", "message", "cause", "remedy"}, error
    assert error["code"] and error["message"] and all(isinstance(v, str) for v in error.values()), error
    return answer.status, error


DEEP = b"[" * 100000
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Key": "AAECAwQFBgcICQoLDA0ODw=="}
BAD_TOKEN = {"Authorization": "Bearer ct_nonsense"}

# method, target, body (of a GET: the headers), status, code, words of the message
TABLE = [
    # not JSON
    ("POST", "/v1/machines", b"{", 400, "invalid", ["not JSON", "line 1"]),
    ("POST", "/v1/machines", b'{"name":"a"}}', 400, "invalid", ["not JSON"]),
    ("POST", "/v1/machines", b'{"name":"\xff"}', 400, "invalid", ["not JSON"]),
    ("POST", "/v1/machines", b'{"name":"a","name":"b"}', 400, "invalid", ["duplicate"]),
    ("POST", "/v1/machines", DEEP, 400, "invalid", ["not JSON"]),
    ("POST", "/v1/machines", b"[]", 400, "invalid", ["must be a JSON object"]),
    ("POST", "/v1/machines", b'"text"', 400, "invalid", []),
    # fields nobody knows, by name
    ("POST", "/v1/machines", {"colour": 1}, 400, "invalid", ["'colour'", "unknown"]),
    ("POST", "/v1/machines", {"limits": {"ram": 1}}, 400, "invalid", ["'limits.ram'"]),
    ("POST", "/v1/machines", {"dirs": [{"path": "/x", "wat": 1}]}, 400, "invalid", ["'dirs.wat'"]),
    ("POST", EXECS, {"argv": ["true"], "shell": True}, 400, "invalid", ["'shell'"]),
    ("POST", "/v1/run", {"exec": {"argv": ["true"], "x": 1}}, 400, "invalid", ["'exec.x'"]),
    ("PATCH", MACHINE, {"kind": "box"}, 400, "invalid", ["'kind'"]),
    ("POST", FILES + "/mkdir", {"path": "/a", "p": 1}, 400, "invalid", ["'p'"]),
    ("POST", "/v1/tokens", {"role": "root"}, 400, "invalid", ["'role'"]),
    # missing
    ("POST", "/v1/run", {}, 400, "invalid", ["'exec'", "missing"]),
    ("POST", EXECS, {}, 400, "invalid", ["argv"]),
    ("POST", EXECS, {"argv": []}, 400, "invalid", ["argv"]),
    ("POST", EXECS, {"argv": ["true"], "command": "true"}, 400, "invalid", ["argv", "command"]),
    ("POST", FILES + "/move", {"from": "/a"}, 400, "invalid", ["'to'"]),
    ("GET", FILES, None, 400, "invalid", ["'path'"]),
    # wrong types
    ("POST", "/v1/machines", {"name": 7}, 400, "invalid", ["'name'", "string"]),
    ("POST", "/v1/machines", {"steps": "x"}, 400, "invalid", ["field 'steps' must be every, risky or manual"]),
    ("POST", "/v1/machines", {"kind": "x"}, 400, "invalid", ["field 'kind' must be box, cell or vm"]),
    ("POST", "/v1/machines", {"limits": 7}, 400, "invalid", ["'limits'", "object"]),
    ("POST", "/v1/machines", {"limits": {"mem": "much"}}, 400, "invalid", ["'limits.mem'"]),
    ("POST", "/v1/machines", {"limits": {"mem": True}}, 400, "invalid", ["'limits.mem'"]),
    ("POST", "/v1/machines", {"limits": {"pids": "64"}}, 400, "invalid", ["'limits.pids'", "whole"]),
    ("POST", "/v1/machines", {"limits": {"pids": 6.5}}, 400, "invalid", ["'limits.pids'"]),
    ("POST", "/v1/machines", {"metadata": {"a": 1}}, 400, "invalid", ["'metadata.a'", "string"]),
    ("POST", "/v1/machines", {"metadata": ["a"]}, 400, "invalid", ["'metadata'"]),
    ("POST", "/v1/machines", {"dirs": {}}, 400, "invalid", ["'dirs'", "list"]),
    ("POST", EXECS, {"argv": "true"}, 400, "invalid", ["'argv'", "list"]),
    ("POST", EXECS, {"argv": ["a", 1]}, 400, "invalid", ["'argv'"]),
    ("POST", EXECS, {"argv": ["a\0b"]}, 400, "invalid", ["\\u0000"]),
    ("POST", EXECS, {"command": "true", "background": "yes"}, 400, "invalid", ["'background'"]),
    ("POST", EXECS, {"command": "cat", "stdin_base64": "%%%"}, 400, "invalid", ["stdin_base64"]),
    # out of range
    ("POST", "/v1/machines", {"kind": "spaceship"}, 400, "invalid", ["'kind'", "box"]),
    ("POST", "/v1/machines", {"name": "n" * 64}, 400, "invalid", ["'name'", "63"]),
    ("POST", "/v1/machines", {"name": "a/b"}, 400, "invalid", ["a/b"]),
    ("POST", "/v1/machines", {"key": "k" * 128}, 400, "invalid", ["'key'", "127"]),
    ("POST", "/v1/machines", {"image": "none-such"}, 404, "not_found", ["none-such"]),
    ("POST", "/v1/machines", {"limits": {"mem": 1}}, 400, "invalid", ["field 'limits.mem' must be between 1M and 16T"]),
    ("POST", "/v1/machines", {"limits": {"mem": -1}}, 400, "invalid", ["'limits.mem'"]),
    ("POST", "/v1/machines", {"limits": {"mem": 1e300}}, 400, "invalid", ["'limits.mem'"]),
    ("POST", "/v1/machines", {"limits": {"cpus": 0.001}}, 400, "invalid", ["'limits.cpus'", "0.01"]),
    ("POST", "/v1/machines", {"limits": {"pids": 1 << 62}}, 400, "invalid", ["'limits.pids'"]),
    ("POST", "/v1/machines", {"ttl": "11 years"}, 400, "invalid", ["'ttl'"]),
    ("POST", "/v1/machines", {"idle_action": "explode"}, 400, "invalid", ["'idle_action'", "pause"]),
    ("POST", "/v1/machines", {"metadata": {str(i): "" for i in range(65)}}, 400, "invalid", ["'metadata'", "64"]),
    ("POST", "/v1/machines", {"metadata": {"big": "x" * (2 << 20)}}, 429, "limit", ["field 'metadata' is larger than 1 MiB"]),
    ("POST", "/v1/machines", {"dirs": [{"path": "/tmp"}]}, 400, "invalid", ["file descriptors", "needs 1"]),
    ("POST", EXECS, {"argv": ["true"] * 4097}, 400, "invalid", ["'argv'", "4096"]),
    ("POST", EXECS, {"command": "true", "size": {"rows": 0}}, 400, "invalid", ["'size.rows'"]),
    ("POST", EXECS, {"command": "true", "output_max": "17M"}, 400, "invalid", ["'output_max'"]),
    ("POST", EXECS, {"command": "true", "user": "no body"}, 400, "invalid", ["user", "/etc/passwd"]),
    ("POST", EXECS, {"command": "true", "env": {"A=B": "c"}}, 400, "invalid", ["A=B"]),
    ("POST", EXECS, {"command": "true", "env": {"": "c"}}, 400, "invalid", ["variable"]),
    ("POST", EXECS + "/{x}/signal", {"signal": "SIGNONE"}, 400, "invalid", ["SIGNONE"]),
    ("POST", EXECS + "/{x}/signal", {"signal": "99"}, 400, "invalid", ["99"]),
    ("POST", FILES + "/chmod", {"path": "/home/user", "mode": "9"}, 400, "invalid", ["mode"]),
    ("POST", "/v1/tokens", {"scopes": ["root"]}, 400, "invalid", ["root"]),
    # queries
    ("GET", "/v1/machines?colour=red", None, 400, "invalid", ["'colour'", "unknown"]),
    ("GET", "/v1/machines?limit=x", None, 400, "invalid", ["'limit'"]),
    ("GET", "/v1/machines?limit=0", None, 400, "invalid", ["'limit'"]),
    ("GET", "/v1/machines?limit=1001", None, 400, "invalid", ["'limit'"]),
    ("GET", "/v1/machines?cursor=here", None, 400, "invalid", ["cursor"]),
    ("GET", "/v1/machines?meta=a", None, 400, "invalid", ["'meta'", "KEY=VALUE"]),
    ("GET", "/v1/machines?meta==a", None, 400, "invalid", ["'meta'"]),
    ("GET", "/v1/machines?state=drowsy", None, 400, "invalid", ["drowsy"]),
    ("GET", "/v1/machines?name=%zz", None, 400, "invalid", ["malformed"]),
    ("GET", EXECS + "/{x}/output?stream=stdwhat", None, 400, "invalid", ["stream"]),
    ("GET", EXECS + "/{x}/output?offset=-1", None, 400, "invalid", ["'offset'"]),
    ("GET", FILES + "?path=relative", None, 400, "invalid", ["'path'", "absolute"]),
    ("GET", FILES + "?path=/x&user=a+b", None, 400, "invalid", ["a b"]),
    ("PUT", FILES + "?path=/home/user/f&mode=999", b"x", 400, "invalid", ["mode"]),
    ("PUT", FILES + "?path=/home/user/f&if_hash=short", b"x", 400, "invalid", ["if_hash"]),
    ("GET", "/v1/audit?tail=x", None, 400, "invalid", ["'tail'"]),
    ("GET", "/v1/audit/verify?head=x", None, 400, "invalid", ["head"]),
    ("GET", "/v1/events?after=x", None, 400, "invalid", ["'after'"]),
    # nothing of that name
    ("GET", "/v1/machines/m-000000000000", None, 404, "not_found", ["m-000000000000"]),
    ("GET", "/v1/machines/nobody", None, 404, "not_found", ["nobody"]),
    ("DELETE", "/v1/machines/nobody", None, 404, "not_found", []),
    ("PATCH", "/v1/machines/nobody", {}, 404, "not_found", []),
    ("POST", "/v1/machines/nobody/pause", None, 404, "not_found", []),
    ("POST", "/v1/machines/nobody/execs", {"command": "true"}, 404, "not_found", []),
    ("GET", "/v1/machines/nobody/stats", None, 404, "not_found", []),
    ("GET", "/v1/machines/nobody/changes", None, 404, "not_found", []),
    ("GET", "/v1/machines/nobody/pty", UPGRADE, 404, "not_found", []),
    ("GET", "/v1/machines/nobody/files?path=/etc/hostname", None, 404, "not_found", []),
    ("GET", "/v1/machines/nobody/files/tar?path=/etc", None, 404, "not_found", []),
    ("GET", "/v1/machines/nobody/files/watch?path=/etc", None, 404, "not_found", []),
    ("PUT", "/v1/machines/nobody/files?path=/tmp/a", b"x", 404, "not_found", []),
    ("PUT", "/v1/machines/nobody/files/tar?path=/tmp", b"x", 404, "not_found", []),
    ("GET", EXECS + "/x-000000000000", None, 404, "not_found", ["x-000000000000"]),
    ("GET", EXECS + "/x-000000000000/output", None, 404, "not_found", []),
    ("GET", EXECS + "/x-000000000000/events", None, 404, "not_found", []),
    ("POST", EXECS + "/x-000000000000/stdin", b"x", 404, "not_found", []),
    ("POST", EXECS + "/x-000000000000/signal", {"signal": "TERM"}, 404, "not_found", []),
    ("DELETE", EXECS + "/x-000000000000", None, 404, "not_found", []),
    ("GET", FILES + "?path=/none/such", None, 404, "not_found", ["/none/such"]),
    ("GET", FILES + "/stat?path=/none", None, 404, "not_found", ["/none"]),
    ("GET", FILES + "/list?path=/none", None, 404, "not_found", ["/none"]),
    ("GET", FILES + "/tar?path=/none", None, 404, "not_found", ["/none"]),
    ("GET", FILES + "/watch?path=/none", None, 404, "not_found", ["/none"]),
    ("DELETE", "/v1/tokens/t-000000000000", None, 404, "not_found", ["t-000000000000"]),
    ("DELETE", "/v1/tokens/nonsense", None, 404, "not_found", []),
    # the kernel inside says no
    ("GET", FILES + "?path=/etc", None, 400, "invalid", ["/etc"]),
    ("DELETE", FILES + "?path=/home", None, None, None, ["/home"]),
    ("PUT", FILES + "?path=/etc/shadow2", b"x", 403, "denied", ["/etc/shadow2"]),
    ("PUT", FILES + "/tar?path=/home/user", b"not a tar archive at all" * 100, 400, "invalid", []),
    # paths and methods
    ("GET", "/v1", None, 404, "not_found", []),
    ("GET", "/v1/machines/", None, 404, "not_found", []),
    ("GET", "/v1/machines/a/b/c/d/e", None, 404, "not_found", []),
    ("GET", "/v1/machines/%2e%2e", None, 404, "not_found", []),
    ("PUT", "/v1/machines", None, 405, "invalid", ["PUT"]),
    ("PATCH", "/healthz", None, 405, "invalid", ["PATCH"]),
    ("DELETE", "/v1/status", None, 405, "invalid", ["DELETE"]),
    # who
    ("GET", "/v1/machines", BAD_TOKEN, 401, "denied", ["token"]),
    ("GET", "/v1/machines", {"Authorization": "Basic Zm9vOmJhcg=="}, 401, "denied", ["Bearer"]),
]


@pytest.fixture(scope="module")
def things(daemon_session):
    """A machine and a command that ended; no row of the table may harm them."""
    m = daemon_session.machine()
    return {"m": m, "x": daemon_session.exec(m, "echo hello")["exec"]["id"]}


def row_id(row):
    body = json.dumps(row[2]) if isinstance(row[2], (dict, list)) else str(row[2] or "")
    return f"{row[0]} {row[1]} {body[:50]}".replace("/v1/machines/", "~/")


@pytest.mark.parametrize("row", TABLE, ids=row_id)
def test_refused(daemon_session, things, row):
    method, target, body, status, code, words = row
    headers = {}
    if method == "GET" and body:
        body, headers = None, body
    got, error = refusal(daemon_session, method, target.format(**things), body, headers)
    assert (got, error["code"]) == (status or got, code or error["code"]), (got, error)
    assert got < 500, error
    said = error["message"] + error.get("remedy", "")
    assert all(word in said for word in words), error


def test_nothing_was_harmed(daemon_session, things):
    assert daemon_session.exec(things["m"], "echo alive")["stdout"] == "alive\n"
    assert [m["id"] for m in daemon_session.machines()] == [things["m"]]


def test_a_body_that_is_too_long_is_refused(daemon_session):
    status, error = refusal(daemon_session, "POST", "/v1/machines", b" " * ((8 << 20) + 1))
    assert (status, error["code"]) == (413, "limit")


def test_what_says_405_says_what_is_allowed(daemon_session):
    c = daemon_session.connect()
    c.request("PUT", "/v1/machines")
    answer = c.getresponse()
    assert answer.status == 405 and answer.read()
    assert {m.strip() for m in answer.headers["Allow"].split(",")} >= {"GET", "POST"}
    c.close()


def test_the_wrong_state_is_busy_or_gone(daemon):
    m = daemon.machine()
    done = daemon.exec(m, "true")["exec"]["id"]
    x = f"/v1/machines/{m}/execs/{done}"
    assert refusal(daemon, "POST", x + "/stdin", b"late")[0] in (409, 410)
    assert refusal(daemon, "POST", x + "/resize", {"rows": 1, "cols": 1})[0] in (400, 409, 410)
    daemon.post(f"/v1/machines/{m}/stop")
    status, error = refusal(daemon, "POST", f"/v1/machines/{m}/pause")
    assert (status, error["code"]) == (409, "busy") and "stopped" in error["message"], error
    assert "resume" in error["remedy"]
    daemon.delete(f"/v1/machines/{m}")
    for method, path, body in [("POST", "/execs", {"command": "true"}), ("POST", "/pause", None),
                               ("POST", "/resume", None), ("POST", "/stop", None), ("GET", "/stats", None),
                               ("GET", "/files?path=/etc/hostname", None), ("PATCH", "", {"ttl": 1}),
                               ("DELETE", "", None), ("GET", "/pty", None)]:
        headers = UPGRADE if path == "/pty" else {}
        status, error = refusal(daemon, method, f"/v1/machines/{m}{path}", body, headers)
        assert (status, error["code"]) == (410, "gone"), (method, path, error)
        assert "destroyed" in error["message"], error


def test_a_terminal_needs_an_upgrade(daemon, box):
    status, error = refusal(daemon, "GET", f"/v1/machines/{box}/pty")
    assert status in (400, 426) and "WebSocket" in error["message"] + error.get("remedy", ""), error


def test_the_daemons_own_limit_is_told(fresh):
    d = fresh(conf="[daemon]\nmax_machines = 1\n")
    d.machine()
    with pytest.raises(Refused) as e:
        d.machine()
    assert (e.value.status, e.value.code) == (429, "limit") and "this daemon has reached its limit of 1 machines" in e.value.error["message"]


def test_descriptors_are_counted(daemon):
    status, error = refusal(daemon, "POST", "/v1/machines", {}, {"Carrel-Fds": "2"})
    assert (status, error["code"]) == (400, "invalid") and "Carrel-Fds" in error["message"]


def test_garbage_is_answered_and_the_connection_closed(daemon):
    c = daemon.connect()
    c.connect()
    c.sock.sendall(b"GET /v1/machines HTTP/1.1\nHost: x\n\n")
    answer = http.client.HTTPResponse(c.sock)
    answer.begin()
    assert answer.status == 400 and json.loads(answer.read())["error"]["code"] == "invalid"
    assert answer.headers["Connection"] == "close"
    c.close()


# ---- methods ----

def raw(daemon, method, target, **headers):
    c = daemon.connect()
    c.request(method, target, headers=headers)
    answer = c.getresponse()
    content = answer.read()
    c.close()
    return answer.status, answer.headers, content


def test_every_route_says_what_it_takes(daemon):
    paths = daemon.get("/v1/openapi.json")["paths"]
    for path in paths:
        also = [p for p in paths if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(p)), path)]
        known = {m.upper() for p in also for m in paths[p] if m in ("get", "put", "post", "patch", "delete")}
        want = known | {"OPTIONS"} | ({"HEAD"} if "GET" in known else set())
        target = path.replace("{machine}", "m-none").replace("{exec}", "x-none").replace("{token}", "t-none")
        status, fields, content = raw(daemon, "OPTIONS", target)
        assert (status, content) == (204, b""), path
        assert set(fields["Allow"].split(", ")) == want, path
        assert not [f for f in fields if f.lower().startswith("access-control")], path
    assert raw(daemon, "OPTIONS", "*")[0] == 204
    assert raw(daemon, "OPTIONS", "/v1/none")[0] == 404
    status, fields, _ = raw(daemon, "PATCH", "/v1/machines")
    assert status == 405 and set(fields["Allow"].split(", ")) == {"GET", "HEAD", "POST", "OPTIONS"}


def test_options_do_not_open_the_door_to_pages(daemon):
    """A preflight of another origin is refused as its request would be."""
    status, fields, _ = raw(daemon, "OPTIONS", "/v1/machines", Origin="http://evil.example",
                            **{"Access-Control-Request-Method": "POST"})
    assert status == 403 and not [f for f in fields if f.lower().startswith("access-control")]
