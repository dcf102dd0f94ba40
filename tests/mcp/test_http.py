"""Streamable HTTP as a hostile or clumsy client meets it."""
import json
import socket
import time

import pytest

from daemon import TcpClient
from mcp_client import HELLO, Http, RpcError, events


@pytest.fixture
def http(open_client):
    return open_client("http")


def body_of(answer):
    data = answer.read()
    answer.connection.close()
    return json.loads(data) if data else None


@pytest.mark.parametrize("method,body,headers,status", [
    ("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"Accept": "application/json"}, 406),
    ("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"Accept": "text/event-stream"}, 406),
    ("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"Content-Type": "text/plain"}, 415),
    ("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"Content-Type": "application/jsonx"}, 415),
    ("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"Content-Type": "application/json; charset=utf-8"}, 200),
    ("POST", b"{", {}, 400),
    ("POST", b"", {}, 400),
    ("POST", [], {}, 400),
    ("POST", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}, {}, 200),
    ("POST", {"jsonrpc": "1.0", "id": 1, "method": "ping"}, {}, 400),
    ("POST", {"jsonrpc": "2.0", "method": "notifications/x"}, {}, 202),
    ("POST", {"jsonrpc": "2.0", "id": "carrel-99", "result": {}}, {}, 202),
    ("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"Mcp-Session-Id": None}, 400),
    ("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"Mcp-Session-Id": "s-none"}, 404),
    ("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"MCP-Protocol-Version": None}, 200),
    ("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"MCP-Protocol-Version": "2025-03-26"}, 200),
    ("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"MCP-Protocol-Version": "2025-06-18"}, 200),
    ("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"MCP-Protocol-Version": "1999-01-01"}, 400),
    ("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"Origin": "http://evil.example"}, 403),
    ("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"Host": "evil.example"}, 403),
    ("GET", None, {"Accept": "application/json"}, 406),
    ("GET", None, {"Last-Event-ID": "nonsense"}, 400),
    ("GET", None, {"Last-Event-ID": "99-0"}, 404),
    ("GET", None, {"Mcp-Session-Id": "s-none"}, 404),
    ("PUT", None, {}, 405),
    ("DELETE", None, {"Mcp-Session-Id": "s-none"}, 404),
    ("DELETE", None, {"Mcp-Session-Id": None}, 400),
])
def test_every_request_has_its_status(http, method, body, headers, status):
    answer = http.request(method, body, headers)
    assert answer.status == status, body_of(answer)
    answer.connection.close()
    assert http.ask("ping") == {}


def test_an_unknown_version_is_told_the_versions(daemon, token):
    c = Http(TcpClient(daemon.port).connect, {"Authorization": "Bearer " + token})
    answer = c.request("POST", c.message("ping", {}, id="probe"), {"MCP-Protocol-Version": "2999-01-01"})
    assert answer.status == 400
    error = body_of(answer)
    assert error["id"] == "probe" and error["error"]["data"]["supported"] == ["2026-07-28", "2025-11-25", "2025-06-18"]


def test_an_ended_session_is_gone(http):
    answer = http.request("DELETE")
    assert answer.status == 204
    answer.connection.close()
    answer = http.request("POST", http.message("ping", id=1))
    assert answer.status == 404 and body_of(answer)["error"]["code"] == -32001
    http.session = None


def test_a_short_answer_is_plain_json_and_a_long_one_a_stream(http):
    def call(**arguments):
        return http.request("POST", http.message("tools/call", {"name": "exec", "arguments": arguments}, id=5))

    http.call("exec", cmd="true")
    for _ in range(20):  # a busy host may take its time for one of them
        quick = call(cmd="true")
        kind = quick.headers["Content-Type"]
        assert '"id":5' in quick.read().decode()
        quick.connection.close()
        if kind == "application/json":
            break
    assert kind == "application/json"
    slow = call(cmd="sleep 1; echo late")
    assert slow.headers["Content-Type"] == "text/event-stream"
    first, second = events(slow)
    assert first.id and first.data == "" and int(first.retry) > 0, "an empty event first, to come back to"
    assert json.loads(second.data)["result"]["structuredContent"]["stdout"] == "late\n"
    slow.connection.close()


def test_a_lost_stream_is_taken_up_again(http):
    http.call("exec", cmd="true")
    answer = http.request("POST", http.message("tools/call", {
        "name": "exec", "_meta": {"progressToken": 1}, "arguments": {"cmd": "echo a; sleep 2; echo b"}}, id=5))
    first = next(events(answer))
    answer.connection.sock.shutdown(socket.SHUT_RDWR)
    answer.connection.close()
    time.sleep(0.2)
    again = http.request("GET", headers={"Last-Event-ID": first.id})
    assert again.status == 200
    came = [json.loads(e.data) for e in events(again) if e.data]
    again.connection.close()
    assert came[-1]["id"] == 5 and came[-1]["result"]["structuredContent"]["stdout"] == "a\nb\n"
    ids = first.id
    later = http.request("GET", headers={"Last-Event-ID": ids})
    assert [json.loads(e.data) for e in events(later) if e.data] == came, "and again, after its end"
    later.connection.close()


def test_one_standalone_stream_a_session(http):
    http.listen()
    answer = http.request("GET")
    assert answer.status == 409
    answer.connection.close()
    machine = http.call("exec", cmd="true")["machine"]
    told = http.until_noted("notifications/message")
    assert told[0]["data"] == {"machine": machine, "message": "made"} and told[0]["level"] == "info"


def test_what_was_told_meanwhile_waits_for_the_stream(http):
    machine = http.call("exec", cmd="true")["machine"]
    http.listen()
    assert http.until_noted("notifications/message")[0]["data"]["machine"] == machine


def test_many_requests_at_once(http):
    http.call("exec", cmd="true")
    numbers = [http.begin("tools/call", {"name": "exec", "arguments": {"cmd": f"echo {i}"}}) for i in range(40)]
    assert [http.wait(n)["structuredContent"]["stdout"] for n in numbers] == [f"{i}\n" for i in range(40)]


def test_a_flood_is_answered_and_bounded(http):
    http.call("exec", cmd="true")
    numbers = [http.begin("tools/call", {"name": "exec", "arguments": {"cmd": "sleep 2", "yield_ms": 5000}}) for _ in range(80)]
    done = refused = 0
    for n in numbers:
        try:
            http.wait(n)
            done += 1
        except RpcError as e:
            assert e.code == -32000 and "64 requests" in e.message
            refused += 1
    assert done + refused == 80 and done >= 60
    assert http.call("exec", cmd="echo on")["stdout"] == "on\n"


def test_sessions_are_bounded(daemon):
    secret = daemon.post("/v1/tokens", {"scopes": ["run", "read"]})["secret"]
    c = Http(TcpClient(daemon.port).connect, {"Authorization": "Bearer " + secret})
    statuses, ids = [], []
    for i in range(66):
        answer = c.request("POST", c.message("initialize", HELLO, id=i))
        statuses.append(answer.status)
        ids.append(answer.headers["Mcp-Session-Id"])
        answer.read()
        answer.connection.close()
    assert statuses == [200] * 64 + [503] * 2
    assert len(set(ids[:64])) == 64
    for session in ids[:64]:
        answer = c.request("DELETE", headers={"Mcp-Session-Id": session})
        assert answer.status == 204
        answer.connection.close()


def test_a_client_that_vanishes_in_the_middle_leaves_nothing_behind(daemon, http):
    machine = http.call("exec", cmd="true")["machine"]
    for i in range(5):  # each with an id of its own: the one before may still be under way
        c = http.connect()
        c.request("POST", "/mcp", json.dumps(http.message("tools/call", {
            "name": "exec", "arguments": {"cmd": "sleep 0.3; echo done >> log"}}, id=f"gone-{i}")),
            {"Accept": "application/json, text/event-stream", "Content-Type": "application/json",
             "Mcp-Session-Id": http.session, **http.headers})
        c.sock.close()
        time.sleep(0.5)
    daemon.until(lambda: daemon.exec(machine, "wc -l < log")["stdout"].strip() == "5")
    assert http.ask("ping") == {}


def test_unix_socket_too(daemon):
    c = Http(daemon.connect)
    c.greet()
    assert c.call("exec", cmd="echo hi")["stdout"] == "hi\n"
    c.close()
