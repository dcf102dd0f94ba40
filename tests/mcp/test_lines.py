"""Lines on standard input and output: what no proper client sends."""
import json

import pytest

from mcp_client import HELLO, RpcError


@pytest.fixture
def lines(open_client):
    return open_client("lines")


def next_message(c, seconds=20):
    return c.came.get(timeout=seconds)


@pytest.mark.parametrize("line,code", [
    (b"nonsense", -32700),
    (b"{", -32700),
    (b"\xff\xfe", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","id":2}', -32700),
    (b"[]", -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 100000 + b'"}', -32601),
    (b"[" * 100000, -32700),
])
def test_every_bad_line_has_its_error(lines, line, code):
    lines.raw(line + b"\n")
    assert next_message(lines)["error"]["code"] == code
    assert lines.ask("ping") == {}


def test_what_is_not_meant_for_us_is_ignored(lines):
    for line in (b"", b"   ", b"\r", b'{"jsonrpc":"2.0","method":"notifications/unknown"}',
                 b'{"jsonrpc":"2.0","id":"carrel-7","result":{}}', b'{"jsonrpc":"2.0","id":9,"error":{"code":1,"message":""}}',
                 b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12345}}'):
        lines.raw(line + b"\n")
    lines.silent()
    assert lines.ask("ping") == {}


def test_a_message_may_come_in_pieces_and_many_in_one(lines):
    text = json.dumps({"jsonrpc": "2.0", "id": "a", "method": "ping"}).encode()
    for i in range(len(text)):
        lines.raw(text[i:i + 1])
    lines.raw(b"\r\n" + text.replace(b'"a"', b'"b"') + b"\n" + text.replace(b'"a"', b'"c"') + b"\n")
    assert [next_message(lines)["id"] for _ in range(3)] == ["a", "b", "c"]


def test_a_line_beyond_all_bounds_ends_the_connection(lines):
    try:
        for _ in range(40):
            lines.raw(b"x" * (1 << 20))
    except BrokenPipeError:
        pass
    assert next_message(lines)["error"]["code"] == -32700
    assert lines.process.wait(20) == 125


def test_initialize_comes_first_and_once(open_client):
    c = open_client("lines", greet=False)
    with pytest.raises(RpcError) as e:
        c.ask("tools/list")
    assert e.value.code == -32600
    assert c.ask("ping") == {}
    with pytest.raises(RpcError):
        c.ask("initialize", {})
    assert c.greet(protocolVersion="2024-11-05")["protocolVersion"] == "2025-06-18"
    with pytest.raises(RpcError) as e:
        c.ask("initialize", HELLO)
    assert e.value.code == -32600


def test_ids_are_echoed_exactly(lines):
    for number in (0, -1, 2**53, "", "1", "ü\n"):
        lines.send({"jsonrpc": "2.0", "id": number, "method": "ping"})
        answer = next_message(lines)
        assert answer["id"] == number and type(answer["id"]) is type(number)


def test_a_client_that_floods_without_reading(lines):
    lines.call("exec", cmd="true")
    ping = json.dumps({"jsonrpc": "2.0", "id": "p", "method": "ping"}).encode() + b"\n"
    for _ in range(200):
        lines.raw(ping * 100)
    for _ in range(20000):
        assert next_message(lines)["id"] == "p"
    assert lines.call("exec", cmd="echo on")["stdout"] == "on\n"


def test_a_cancelled_call_has_no_answer(lines):
    lines.call("exec", cmd="true")
    number = lines.begin("tools/call", {"name": "exec", "arguments": {"cmd": "sleep 60", "yield_ms": 50000}})
    lines.tell("notifications/cancelled", {"requestId": number})
    lines.silent(1)
    ask = lines.begin("tools/call", {"name": "session", "arguments": {"session": "x-000000000000"}})
    assert lines.wait(ask)["isError"]


def test_a_question_dies_with_its_call(open_client):
    c = open_client("lines", capabilities={"elicitation": {}})
    c.on_request["elicitation/create"] = lambda params: {"action": "cancel"}
    number = c.begin("tools/call", {"name": "ask", "arguments": {"question": "?"}})
    message = next_message(c)
    assert message["method"] == "elicitation/create"
    c.tell("notifications/cancelled", {"requestId": number})
    c.send({"jsonrpc": "2.0", "id": message["id"], "result": {"action": "accept", "content": {"answer": "x"}}})
    c.silent()
    assert c.call("ask", question="again?")["action"] == "cancel"


def test_log_levels(lines):
    lines.ask("logging/setLevel", {"level": "error"})
    lines.call("exec", cmd="true")
    assert lines.noted("notifications/message") == []
    with pytest.raises(RpcError):
        lines.ask("logging/setLevel", {"level": "loud"})
