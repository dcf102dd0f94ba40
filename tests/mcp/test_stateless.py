"""Protocol version 2026-07-28: no initialize, no session, and questions as results."""
import json

import pytest

from daemon import TcpClient
from mcp_client import Lines, RpcError, unwrap

VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"


def meta(version=VERSION, **capabilities):
    return {META + "protocolVersion": version, META + "clientCapabilities": capabilities,
            META + "clientInfo": {"name": "test", "version": "1"}}


class OverLines:
    def __init__(self, daemon, token, cwd, query=""):
        self.client = Lines(daemon, cwd=cwd)

    def ask(self, method, capabilities=(), **params):
        return self.client.ask(method, {"_meta": meta(**dict(capabilities)), **params})

    def close(self):
        self.client.close()


class OverHttp:
    def __init__(self, daemon, token, cwd=None, query=""):
        self.daemon, self.token, self.query, self.last = daemon, token, query, 0

    def post(self, method, params, headers=(), body=None):
        c = TcpClient(self.daemon.port).connect()
        self.last += 1
        name = params.get("name", params.get("uri"))
        usual = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", "Mcp-Method": method,
                 "MCP-Protocol-Version": VERSION, "Authorization": "Bearer " + self.token, **({"Mcp-Name": name} if name else {})}
        merged = {k: v for k, v in {**usual, **dict(headers)}.items() if v is not None}
        c.request("POST", "/mcp" + self.query, headers=merged, body=json.dumps(
            body or {"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}))
        answer = c.getresponse()
        answer.connection = c
        return answer

    def ask(self, method, capabilities=(), **params):
        answer = self.post(method, {"_meta": meta(**dict(capabilities)), **params})
        text = answer.read().decode()
        answer.connection.close()
        assert "Mcp-Session-Id" not in answer.headers
        if answer.headers["Content-Type"].startswith("text/event-stream"):
            assert "id:" not in text, "events cannot be resumed"
            text = [line[5:] for line in text.splitlines() if line.startswith("data:")][-1]
        return unwrap(json.loads(text))

    def close(self):
        pass


@pytest.fixture(params=[OverLines, OverHttp])
def client(request, daemon, token, tmp_path):
    c = request.param(daemon, token, tmp_path)
    yield c
    c.close()


def call(client, name, /, **arguments):
    result = client.ask("tools/call", name=name, arguments=arguments)
    assert result["resultType"] == "complete" and not result["isError"], result
    return result["structuredContent"]


def test_a_client_needs_no_initialize(client, daemon):
    found = client.ask("server/discover")
    assert found["supportedVersions"][0] == VERSION and "tools" in found["capabilities"] and "instructions" in found
    assert found["_meta"][META + "serverInfo"]["name"] == "carrel"
    listed = client.ask("tools/list")
    assert (listed["resultType"], listed["ttlMs"], listed["cacheScope"]) == ("complete", 0, "private")
    assert "exec" in {t["name"] for t in listed["tools"]}
    first = call(client, "exec", cmd="echo kept > f")
    assert call(client, "exec", cmd="cat f")["stdout"] == "kept\n"
    assert [m["id"] for m in daemon.machines()] == [first["machine"]], "the requests share a machine"
    read = client.ask("resources/read", uri=f"carrel://{first['machine']}/files/home/user/f")
    assert read["contents"][0]["text"] == "kept\n" and read["cacheScope"] == "private"
    with pytest.raises(RpcError) as e:
        client.ask("resources/read", uri=f"carrel://{first['machine']}/files/nowhere")
    assert e.value.code == -32602


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "subscriptions/listen"])
def test_methods_of_sessions_do_not_exist(client, method):
    with pytest.raises(RpcError) as e:
        client.ask(method, uri="carrel://m/transcript")
    assert e.value.code == -32601


def test_a_question_is_a_result(client):
    can = {"elicitation": {}}
    ask = {"name": "ask", "arguments": {"question": "Which?", "options": ["red", "blue"]}}
    result = client.ask("tools/call", can, **ask)
    assert result["resultType"] == "input_required"
    (key, question), = result["inputRequests"].items()
    assert question["method"] == "elicitation/create" and question["params"]["message"] == "Which?"
    assert question["params"]["requestedSchema"]["properties"]["answer"]["enum"] == ["red", "blue"]
    answers = {key: {"action": "accept", "content": {"answer": "blue"}}}
    done = client.ask("tools/call", can, inputResponses=answers, **ask)
    assert done["resultType"] == "complete" and done["structuredContent"] == {"action": "accept", "answer": "blue"}
    assert client.ask("tools/call", can, inputResponses={key: 7}, **ask)["resultType"] == "input_required"
    refused = client.ask("tools/call", **ask)
    assert refused["isError"] and "finish with the status blocked" in refused["content"][0]["text"]


def test_both_eras_on_one_connection(daemon, token, tmp_path):
    client = OverLines(daemon, token, tmp_path)
    machine = call(client, "exec", cmd="true")["machine"]
    client.client.greet()
    assert client.client.call("exec", cmd="true")["machine"] == machine
    assert call(client, "exec", cmd="true")["machine"] == machine
    client.close()


def test_what_a_request_must_say(daemon, token):
    client = OverHttp(daemon, token)
    good = {"_meta": meta()}
    for params, headers, status, code in [
            (good, {"Mcp-Method": "tools/call"}, 400, -32020),
            (good, {"Mcp-Method": None}, 400, -32020),
            (good, {"MCP-Protocol-Version": "2025-11-25"}, 400, -32020),
            (good, {"MCP-Protocol-Version": None}, 400, -32020),
            ({}, {}, 400, -32602),
            ({"_meta": {META + "protocolVersion": VERSION}}, {}, 400, -32602),
            ({"_meta": meta("2999-01-01")}, {"MCP-Protocol-Version": "2999-01-01"}, 400, -32022)]:
        answer = client.post("tools/list", params, headers)
        error = json.loads(answer.read())["error"]
        assert (answer.status, error["code"]) == (status, code), (params, headers, error)
        answer.connection.close()
    assert error["data"] == {"supported": [VERSION, "2025-11-25", "2025-06-18"], "requested": "2999-01-01"}
    for name, status in [("read", 400), ("exec", 200), ("=?base64?ZXhlYw==?=", 200), ("=?base64?cmVhZA==?=", 400)]:
        answer = client.post("tools/call", {"name": "exec", "arguments": {"cmd": "true"}, **good}, {"Mcp-Name": name})
        assert (answer.status, answer.read() and 0) == (status, 0), name
        answer.connection.close()
    answer = client.post("unknown/method", good)
    assert answer.status == 404
    answer.connection.close()
    note = client.post("notifications/cancelled", good, body={"jsonrpc": "2.0", "method": "notifications/cancelled", "params": good})
    assert note.status == 202
    note.connection.close()


def test_tokens_and_queries_have_machines_of_their_own(daemon, token):
    other = daemon.post("/v1/tokens", {"scopes": ["read", "run"]})["secret"]
    clients = [OverHttp(daemon, token), OverHttp(daemon, other), OverHttp(daemon, token, query="?key=second")]
    machines = [call(c, "exec", cmd="true")["machine"] for c in clients]
    assert len(set(machines)) == 3
    assert [call(c, "exec", cmd="true")["machine"] for c in clients] == machines
    bound = daemon.machine(name="named")
    client = OverHttp(daemon, token, query="?machine=named")
    assert call(client, "exec", cmd="true")["machine"] == bound
    daemon.request("DELETE", f"/v1/machines/{bound}")
    again = daemon.machine(name="named")
    assert call(client, "exec", cmd="true")["machine"] == again, "the name is looked up again"


def running(daemon, machine, word):
    return daemon.exec(machine, f"pgrep -f '[{word[0]}]{word[1:]}' || true")["stdout"].split()


def test_a_disconnect_cancels(daemon, token):
    client = OverHttp(daemon, token)
    machine = call(client, "exec", cmd="true")["machine"]
    answer = client.post("tools/call", {"name": "exec", "arguments": {"cmd": "sleep 4712", "yield_ms": 50000}, "_meta": meta()})
    daemon.until(lambda: running(daemon, machine, "sleep 4712"))
    answer.close()
    answer.connection.close()
    daemon.until(lambda: not running(daemon, machine, "sleep 4712"))
    assert call(client, "exec", cmd="echo on")["stdout"] == "on\n"


def test_clients_of_one_token_may_use_the_same_ids(daemon, token):
    first, second = OverHttp(daemon, token), OverHttp(daemon, token)
    slow = first.post("tools/call", {"name": "exec", "arguments": {"cmd": "while [ ! -e go ]; do sleep 0.05; done; echo slow"},
                                     "_meta": meta()})
    assert call(second, "exec", cmd="touch go; echo fast")["stdout"] == "fast\n"
    assert "slow" in slow.read().decode()
    slow.connection.close()
