"""Sets of tools that a client chooses, and results as text for its model."""
import json
import subprocess

import pytest

from carrel import PROGRAM
from daemon import TcpClient
from mcp_client import Http, RpcError

MINIMAL = {"exec", "session", "read", "write", "edit"}
CODING = MINIMAL | {"search", "list", "patch", "python", "preview", "checkpoint", "rewind", "diff"}


def with_set(open_client, kind, name):
    return open_client("lines", "--tools", name) if kind == "lines" else open_client("http", f"/mcp?tools={name}")


@pytest.mark.parametrize("kind", ["lines", "http"])
def test_each_set_has_its_tools(open_client, kind):
    assert set(with_set(open_client, kind, "minimal").tools()) == MINIMAL
    assert set(with_set(open_client, kind, "coding").tools()) == CODING
    assert CODING < set(with_set(open_client, kind, "all").tools())


def test_the_coding_list_is_short(open_client):
    """The client sends it with each call of its model."""
    tools = with_set(open_client, "lines", "coding").ask("tools/list")
    assert len(json.dumps(tools, separators=(",", ":"))) < 12000
    for t in tools["tools"]:
        assert t["description"] and t["inputSchema"]["type"] == "object" and "machine" not in t["inputSchema"]["properties"]


def test_a_tool_outside_the_set_does_not_exist(open_client, daemon):
    client = with_set(open_client, "lines", "coding")
    with pytest.raises(RpcError, match="unknown tool 'machine_create'"):
        client.call("machine_create")
    assert daemon.machines() == []
    assert client.call("exec", cmd="echo hi")["stdout"] == "hi\n"


def test_an_unknown_set_is_refused(daemon, token):
    client = Http(TcpClient(daemon.port).connect, {"Authorization": "Bearer " + token}, "/mcp?tools=most")
    answer = client.request("POST", client.message("initialize", {}, id=1))
    assert answer.status == 400 and "use minimal, coding or all" in json.loads(answer.read())["error"]["message"]
    answer.connection.close()
    done = subprocess.run([PROGRAM, "mcp", "--tools", "most"], env=daemon.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    assert done.returncode == 125 and "--tools most: must be minimal, coding or all" in done.stderr and not done.stdout


def text_of(client, name, /, **arguments):
    result = client.result(name, **arguments)
    assert not result["isError"] and result["structuredContent"]
    return result["content"][0]["text"]


def test_results_are_text_for_the_model(client):
    assert text_of(client, "exec", cmd="echo out; echo err >&2; exit 3") == "out\n[stderr]\nerr\n[exit code 3]"
    assert text_of(client, "exec", cmd="kill -9 $$").startswith("[signal")
    assert text_of(client, "write", path="/home/user/f", content="one\ntwo\n").startswith("path: /home/user/f\n")
    read = text_of(client, "read", path="/home/user/f")
    assert read.startswith("     1\tone\n     2\ttwo\n[sha256 ")
    assert "-two\n+2\n" in text_of(client, "edit", path="/home/user/f", edits=[{"old": "two", "new": "2"}])
    assert text_of(client, "search", pattern="one", path="/home/user/f") == "/home/user/f:1:one\n[1 matches]"
    assert "/home/user/f: added file" in text_of(client, "diff", path="/home/user")


def test_the_text_of_a_running_command_names_its_session(client):
    result = client.result("exec", cmd="echo begun; sleep 100", yield_ms=300)
    session = result["structuredContent"]["session"]
    assert result["content"][0]["text"] == f"begun\n[running]\n[session {session}]"
    client.call("session", session=session, signal="KILL")
