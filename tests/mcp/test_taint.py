"""What a client has been told of a tainted machine taints the next one it uses: also after a restart, and by progress alone."""
import json

import pytest

from carrel import Carrel
from daemon import Daemon, TcpClient
from faulty import Faulty
from mcp_client import Http, Lines, RpcError, ToolFailed
from patience import PATIENCE, clock
from test_return import kill_daemon, ping

WORD = {"kind": "env", "what": "WORD", "value": "of a stranger", "untrusted": True}
WAIT = 60 * PATIENCE


def taint(d, machine):
    d.post(f"/v1/machines/{machine}/grants", WORD)


def source(d, machine):
    return d.get(f"/v1/machines/{machine}/net").get("tainted")


def http(d, token):
    c = Http(lambda timeout=60: TcpClient(d.port).connect(timeout), {"Authorization": "Bearer " + token})
    c.greet()
    return c


@pytest.fixture
def fresh():
    d = Daemon("--listen", "127.0.0.1:0")
    yield d
    d.stop()


def test_a_session_of_http_remembers_what_it_saw(fresh):
    """Its control saw its machine only before that was tainted. The third has no machine by which it could be found again."""
    token = fresh.post("/v1/tokens", {"scopes": ["run", "read"]})["secret"]
    saw, control, homeless = (http(fresh, token) for _ in range(3))
    others = {}
    for c in (saw, control):
        own = c.call("exec", cmd="true")["machine"]
        others[c] = c.call("machine_create")["machine"]
        taint(fresh, own)
    saw.call("exec", cmd="echo $WORD")
    named = homeless.call("machine_create")["machine"]
    taint(fresh, named)
    homeless.call("exec", machine=named, cmd="echo $WORD")
    fresh.restart()
    for c, machine in others.items():
        c.call("write", machine=machine, path="/home/user/after", content="x")
    assert (source(fresh, others[saw]), source(fresh, others[control])) == ("WORD", None)
    assert source(fresh, homeless.call("exec", cmd="true")["machine"]) == "WORD"
    for c in (saw, control, homeless):
        c.close()


def test_a_conversation_of_lines_remembers_what_it_saw(tmp_path):
    """The control is the next conversation, in the same directory: it has seen nothing yet."""
    carrel = Carrel()
    theirs = carrel.dir / "theirs"
    theirs.write_text("of a stranger")

    def tainted(machine):
        return json.loads(carrel("net", machine, "show", "--json").stdout).get("tainted")

    def write(c, machine):
        c.call("write", seconds=WAIT, machine=machine, path="/home/user/after", content="x")

    try:
        c = Lines(carrel, cwd=tmp_path)
        c.greet()
        own = c.call("exec", cmd="true")["machine"]
        second, third = (c.call("machine_create")["machine"] for _ in range(2))
        done = carrel("grant", "add", own, "--file", f"{theirs}:/home/user/theirs:untrusted")
        assert done.returncode == 0, done
        assert "of a stranger" in c.call("exec", cmd="cat theirs")["stdout"]
        kill_daemon(carrel)
        assert ping(c) == {}
        write(c, second)
        c.close()
        c = Lines(carrel, cwd=tmp_path)
        c.greet()
        write(c, third)
        c.close()
        assert (tainted(second), tainted(third)) == (str(theirs), None)
    finally:
        carrel.stop()


@pytest.mark.parametrize("told", [True, False], ids=["progress", "control"])
def test_progress_alone_taints(client, daemon, told):
    """The command goes on, so its result tells nothing yet."""
    own = client.call("exec", cmd="true")["machine"]
    other = client.call("machine_create")["machine"]
    taint(daemon, own)
    number = client.begin("tools/call", {"name": "exec", **({"_meta": {"progressToken": "p"}} if told else {}),
                                         "arguments": {"cmd": "echo $WORD; touch said; exec sleep 4719", "yield_ms": 50000}})
    if told:
        end = clock() + 60
        while not any("stranger" in p.get("message", "") for p in client.noted("notifications/progress")):
            assert clock() < end, client.notes
            client.pump(0.1)
    else:
        daemon.until(lambda: "said" in daemon.exec(own, "ls")["stdout"])
    client.call("write", machine=other, path="/home/user/after", content="x")
    assert source(daemon, other) == ("WORD" if told else None)
    client.tell("notifications/cancelled", {"requestId": number})


def test_what_cannot_be_written_down_is_not_told(tmp_path):
    """That a session is tainted is stored before it hears anything. While nothing can be stored, others still hear all."""
    d = Faulty()
    try:
        c, control = Lines(d, cwd=tmp_path), Lines(d, cwd=d.dir)
        made = {}
        for x in (c, control):
            x.greet()
            made[x] = x.call("exec", cmd="echo of a stranger | tee /home/user/text")["machine"]
        uri = f"carrel://{made[c]}/files/home/user/text"
        taint(d, made[c])
        with d.failing():
            with pytest.raises(ToolFailed, match="the result cannot be shown"):
                c.call("read", seconds=WAIT, path="/home/user/text")
            with pytest.raises(RpcError, match="cannot record the taint"):
                c.ask("resources/read", {"uri": uri}, WAIT)
            assert "stranger" in control.call("read", seconds=WAIT, path="/home/user/text")["content"]
        assert "stranger" in c.call("read", seconds=WAIT, path="/home/user/text")["content"]
        assert "stranger" in json.dumps(c.ask("resources/read", {"uri": uri}, WAIT))
        assert d.rows("SELECT source FROM taints WHERE kind = 'talk'") == [("WORD",)]
        for x in (c, control):
            x.close()
    finally:
        d.stop()
