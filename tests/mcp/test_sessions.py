"""Connections: which machine they get, what outlives them, who may have them."""
import subprocess
import time

import pytest

from carrel import PROGRAM
from daemon import Daemon, TcpClient
from mcp_client import Http, Lines, RpcError, ToolFailed
from patience import PATIENCE


def test_the_same_directory_finds_its_machine_again(open_client, daemon):
    c = open_client("lines")
    machine = c.call("exec", cmd="echo kept > f")["machine"]
    c.close()
    assert open_client("lines").call("exec", cmd="cat f")["stdout"] == "kept\n"
    assert [m["id"] for m in daemon.machines()] == [machine]


def test_two_at_once_in_one_directory_do_not_share(open_client):
    a, b = open_client("lines"), open_client("lines")
    assert a.call("exec", cmd="true")["machine"] != b.call("exec", cmd="true")["machine"]


def test_a_stopped_machine_is_woken(client, daemon):
    machine = client.call("exec", cmd="echo kept > f")["machine"]
    daemon.post(f"/v1/machines/{machine}/stop")
    assert client.call("exec", cmd="cat f")["stdout"] == "kept\n"
    daemon.post(f"/v1/machines/{machine}/pause")
    assert client.call("exec", cmd="cat f")["stdout"] == "kept\n"


@pytest.mark.parametrize("action,state", [("pause", "paused"), ("stop", "stopped")])
@pytest.mark.parametrize("tool,arguments", [("exec", {"cmd": "cat f"}), ("read", {"path": "/home/user/f"}),
                                            ("write", {"path": "/home/user/g", "content": "x"})])
def test_tools_wake_a_machine_that_idleness_put_to_rest(client, daemon, action, state, tool, arguments):
    machine = client.call("exec", cmd="echo kept > f")["machine"]
    daemon.patch(f"/v1/machines/{machine}", {"idle": 0.3, "idle_action": action})
    daemon.until(lambda: daemon.get(f"/v1/machines/{machine}")["state"] == state)
    daemon.patch(f"/v1/machines/{machine}", {"idle": 0})
    client.call(tool, **arguments)
    assert daemon.get(f"/v1/machines/{machine}")["state"] == "running"


def test_its_machine_is_released_when_idle_and_ends_after_a_week(client, daemon):
    m = daemon.get("/v1/machines/" + client.call("exec", cmd="true")["machine"])
    assert m["idle_action"] == "release" and m["idle_ms"] == 30 * 60 * 1000
    assert "expires" in m or "expires_at" in m


@pytest.mark.parametrize("kind,option", [("lines", ("--machine", "{}")), ("http", ("/mcp?machine={}",))])
def test_bound_to_one_machine(open_client, daemon, kind, option):
    mine = daemon.machine(name="mine")
    c = open_client(kind, *[o.format("mine") for o in option])
    assert not {"machine_create", "machine_list", "machine_destroy"} & set(c.tools())
    assert c.call("exec", cmd="true")["machine"] == mine
    assert c.call("exec", cmd="true", machine="mine")["machine"] == mine
    other = daemon.machine()
    with pytest.raises(ToolFailed, match="you have only one"):
        c.call("exec", cmd="true", machine=other)
    with pytest.raises(RpcError):
        c.call("machine_create")
    assert len(daemon.machines()) == 2


def test_bound_to_none_that_exists(daemon, tmp_path):
    c = Lines(daemon, "--machine", "nowhere", cwd=tmp_path)
    assert c.process.wait(20) == 125 and b"nowhere" in c.process.stderr.read()


def test_a_client_that_goes_away_takes_its_calls_with_it(open_client, daemon):
    c = open_client("lines")
    machine = c.call("exec", cmd="true")["machine"]
    c.begin("tools/call", {"name": "exec", "arguments": {"cmd": "sleep 4712", "yield_ms": 50000}})
    daemon.until(lambda: daemon.exec(machine, "pgrep -f '[s]leep 4712' || true")["stdout"])
    c.process.kill()
    c.process.wait()
    daemon.until(lambda: not daemon.exec(machine, "pgrep -f '[s]leep 4712' || true")["stdout"])


def test_a_session_of_http_outlives_the_daemon(fresh_daemon):
    token = fresh_daemon.post("/v1/tokens", {"scopes": ["run", "read"]})["secret"]
    c = Http(lambda timeout=60: TcpClient(fresh_daemon.port).connect(timeout), {"Authorization": "Bearer " + token})
    c.greet()
    machine = c.call("exec", cmd="echo kept > f")["machine"]
    fresh_daemon.restart()
    r = c.call("exec", cmd="cat f")
    assert (r["machine"], r["stdout"]) == (machine, "kept\n")
    c.close()


@pytest.fixture
def fresh_daemon():
    d = Daemon("--listen", "127.0.0.1:0")
    yield d
    d.stop()


def test_commands_go_on_when_the_daemon_leaves(fresh_daemon, tmp_path):
    c = Lines(fresh_daemon, cwd=tmp_path)
    c.greet()
    machine = c.call("exec", cmd="true")["machine"]
    c.begin("tools/call", {"name": "exec", "arguments": {"cmd": "sleep 3; echo through > f", "yield_ms": 50000}})
    fresh_daemon.until(lambda: fresh_daemon.exec(machine, "pgrep -f '[s]leep 3;' || true")["stdout"])
    fresh_daemon.end()
    assert c.process.wait(20 * PATIENCE) == 125, "a bridge that may not wait says so and ends"
    fresh_daemon.start()
    fresh_daemon.until(lambda: fresh_daemon.exec(machine, "cat f || true")["stdout"] == "through\n")


def test_the_owner_itself_is_no_administrator_here(open_client, daemon):
    """Over the owner's own socket the face has the scopes read and run, and none of the verbs of others."""
    c = open_client("lines")
    assert not any(word in name for name in c.tools() for word in ("token", "grant", "secret", "approve", "ship", "policy"))
    other = daemon.machine()
    with pytest.raises(ToolFailed):
        c.call("exec", cmd="true", machine=other)


@pytest.mark.parametrize("scopes,status", [(["read"], 403), (["read", "run"], 200)])
def test_a_token_needs_the_scope_run(daemon, scopes, status):
    secret = daemon.post("/v1/tokens", {"scopes": scopes})["secret"]
    c = Http(TcpClient(daemon.port).connect, {"Authorization": "Bearer " + secret})
    answer = c.request("POST", c.message("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}, id=1))
    assert answer.status == status
    answer.connection.close()


def test_without_a_token_over_tcp_nothing(daemon):
    c = Http(TcpClient(daemon.port).connect)
    answer = c.request("POST", c.message("initialize", {}, id=1))
    assert answer.status == 401 and answer.headers["WWW-Authenticate"] == "Bearer"
    answer.connection.close()


def test_a_quota_holds_here_too(daemon):
    secret = daemon.post("/v1/tokens", {"scopes": ["run", "read"], "machines": 1})["secret"]
    c = Http(TcpClient(daemon.port).connect, {"Authorization": "Bearer " + secret})
    c.greet()
    c.call("exec", cmd="true")
    with pytest.raises(ToolFailed, match="limit"):
        c.call("machine_create")
    c.close()


def test_a_session_belongs_to_its_token(daemon, open_client):
    c = open_client("http")
    other = daemon.post("/v1/tokens", {"scopes": ["run", "read"]})["secret"]
    answer = c.request("POST", c.message("ping", id=1), {"Authorization": "Bearer " + other})
    assert answer.status == 404
    answer.connection.close()


def test_it_starts_fast(daemon, tmp_path):
    times = []
    for _ in range(5):
        began = time.monotonic()
        c = Lines(daemon, cwd=tmp_path)
        c.greet()
        times.append(time.monotonic() - began)
        c.close()
    assert min(times) < 0.2, times


def test_help(daemon):
    done = subprocess.run([PROGRAM, "mcp", "--help"], stdout=subprocess.PIPE, env=daemon.env)
    assert done.returncode == 0 and b"--machine" in done.stdout
    for words in (["x"], ["--listen", "127.0.0.1:0"], ["--no"]):
        done = subprocess.run([PROGRAM, "mcp", *words], stderr=subprocess.PIPE, env=daemon.env)
        assert done.returncode == 125 and done.stderr


def test_instructions_have_the_card_of_the_machine(daemon, open_client):
    """The same text as `carrel me` in the machine; a session without a machine has none."""
    m = daemon.machine(name="carded", net=[{"target": "https://example.com"}])
    card = daemon.exec(m, "carrel me")["stdout"]
    assert card.startswith(f"Machine {m}") and "allow https://example.com" in card
    bound = open_client("lines", "--machine", "carded", greet=False)
    assert bound.greet()["instructions"].endswith("\n\n" + card)
    assert "Machine m-" not in open_client("lines", greet=False).greet()["instructions"]
