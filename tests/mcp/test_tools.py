"""The tools as an agent meets them, over both faces."""
import base64
import hashlib
import json
import os
import pathlib
import subprocess
import time

import pytest

import cells
from carrel import BUILD
from mcp_client import RpcError, ToolFailed
from patience import clock

ROOT = pathlib.Path(__file__).resolve().parents[2]
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==")


def test_every_tool_is_described(client):
    tools = client.tools()
    assert {"exec", "session", "read", "write", "edit", "search", "install", "fetch", "checkpoint", "rewind", "diff", "fork", "plan", "ask", "finish",
            "program", "machine_create",
            "machine_list", "machine_destroy"} <= set(tools)
    for t in tools.values():
        assert 0 < len(t["description"]) <= 600 and t["title"]
        assert t["inputSchema"]["type"] == t["outputSchema"]["type"] == "object"
        assert t["inputSchema"]["additionalProperties"] is False
        assert set(t["annotations"]) == {"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
    assert "bash" in tools["exec"]["inputSchema"]["properties"]["cmd"]["description"]
    assert tools["read"]["annotations"]["readOnlyHint"] and not tools["exec"]["annotations"]["readOnlyHint"]


def test_a_command_and_its_result(client):
    r = client.call("exec", cmd="echo out; echo err >&2; exit 3")
    assert (r["status"], r["exit_code"], r["stdout"], r["stderr"]) == ("exited", 3, "out\n", "err\n")


@pytest.mark.parametrize("arguments,out", [
    ({"argv": ["printf", "%s|", "a b", "$HOME"]}, "a b|$HOME|"),
    ({"cmd": "cat", "stdin": "in"}, "in"),
    ({"cmd": "pwd", "cwd": "/tmp"}, "/tmp\n"),
    ({"cmd": "echo $A $CI $PAGER", "env": {"A": "b"}}, "b 1 cat\n"),
    ({"cmd": "id -un", "user": "root"}, "root\n"),
    ({"cmd": "cat; echo end"}, "end\n"),
    ({"cmd": "a=(1 2); echo $0 ${#a[@]}"}, "/bin/bash 2\n"),
])
def test_what_a_command_gets(client, arguments, out):
    assert client.call("exec", **arguments)["stdout"] == out


@pytest.mark.parametrize("arguments,status", [
    ({"cmd": "sleep 100", "timeout_ms": 200}, "timeout"),
    ({"cmd": "kill -9 $$"}, "signal"),
    ({"argv": ["/nowhere"]}, "failed"),
])
def test_how_it_ended(client, arguments, status):
    assert client.call("exec", **arguments)["status"] == status


def test_a_connection_has_one_machine_of_its_own(client, daemon):
    first, second = client.call("exec", cmd="echo x > kept"), client.call("exec", cmd="cat kept")
    assert first["machine"] == second["machine"] and second["stdout"] == "x\n"
    assert [m["id"] for m in daemon.machines()] == [first["machine"]]


def test_calls_at_once_share_the_machine_that_the_first_makes(client, daemon):
    numbers = [client.begin("tools/call", {"name": "exec", "arguments": {"cmd": f"echo {i}"}}) for i in range(8)]
    results = [client.wait(n)["structuredContent"] for n in numbers]
    assert [r["stdout"] for r in results] == [f"{i}\n" for i in range(8)]
    assert len({r["machine"] for r in results}) == len(daemon.machines()) == 1


def test_a_long_command_yields_and_goes_on(client):
    """It ends only after something that is done once the call has come back: so the call did not wait for its end."""
    r = client.call("exec", cmd="echo one; while [ ! -e go-on ]; do sleep 0.05; done; echo two; exit 4", yield_ms=300)
    assert r["status"] == "running" and "exit_code" not in r
    out, session = r["stdout"], r["session"]
    client.call("exec", cmd="touch go-on")
    while r["status"] == "running":
        r = client.call("session", session=session)
        out += r["stdout"]
    assert (r["status"], r["exit_code"], out) == ("exited", 4, "one\ntwo\n")


def test_typing_into_a_command(client):
    s = client.call("exec", cmd="while read x; do echo got $x; done; echo bye", interactive=True, yield_ms=50)["session"]
    assert client.call("session", session=s, type="a\n")["stdout"] == "got a\n"
    assert client.call("session", session=s, type="b\n")["stdout"] == "got b\n"
    r = client.call("session", session=s, eof=True)
    assert (r["status"], r["stdout"]) == ("exited", "bye\n")


def test_a_terminal(client):
    s = client.call("exec", argv=["sh"], tty=True, yield_ms=300)["session"]
    assert "/dev/pts/" in client.call("session", session=s, type="tty\n")["stdout"]
    assert client.call("session", session=s, type="exit 7\n")["exit_code"] == 7


def test_signals(client):
    s = client.call("exec", cmd="trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done",
                    yield_ms=300)["session"]
    r = client.call("session", session=s, signal="INT")
    if r["status"] == "running":
        r = client.call("session", session=s)
    assert r["exit_code"] == 9
    s = client.call("exec", cmd="trap '' TERM INT; sleep 1000 & wait", yield_ms=100)["session"]
    r = client.call("session", session=s, signal="KILL")
    if r["status"] == "running":
        r = client.call("session", session=s)
    assert r["status"] == "killed"


def test_long_output_keeps_its_ends_and_stays_readable(client):
    r = client.call("exec", cmd="seq 1 200000", max_output=1000)
    assert r["stdout"].startswith("1\n2\n") and r["stdout"].endswith("199999\n200000\n")
    assert len(r["stdout"]) < 1100 and r["left_out"] == r["stdout_bytes"] - 1000
    part = client.call("session", session=r["session"], offset=r["stdout_bytes"] // 2, max_output=200000)["stdout"]
    assert "100000\n" in part or "110000\n" in part
    whole = client.ask("resources/read", {"uri": r["log"]})["contents"][0]["text"]
    assert whole == "".join(f"{i}\n" for i in range(1, 200001))


def test_fifty_megabytes_are_no_burden(client):
    r = client.call("exec", cmd="head -c 50000000 /dev/zero | tr '\\0' x", timeout_ms=60000, yield_ms=50000)
    assert r["stdout_bytes"] == 50000000 and r["left_out"] == 50000000 - 10000
    with pytest.raises(ToolFailed, match="binary"):
        client.call("exec", cmd="head -c 50000000 /dev/zero > big")
        client.call("read", path="/home/user/big")
    with pytest.raises(RpcError, match="larger than 4 MiB"):
        client.ask("resources/read", {"uri": f"carrel://{r['machine']}/files/home/user/big"})


def test_progress_of_a_long_command(client):
    number = client.begin("tools/call", {"name": "exec", "_meta": {"progressToken": "p1"},
                                         "arguments": {"cmd": "for i in 1 2 3; do echo step $i; sleep 1; done"}})
    assert client.wait(number)["structuredContent"]["exit_code"] == 0
    told = client.noted("notifications/progress")
    assert len(told) >= 2 and {p["progressToken"] for p in told} == {"p1"}
    assert [p["progress"] for p in told] == sorted({p["progress"] for p in told})
    assert any(p["message"].startswith("step ") for p in told)


def running(daemon, machine, word):
    return daemon.exec(machine, f"pgrep -f '[{word[0]}]{word[1:]}' || true")["stdout"].split()


def test_cancelling_really_kills(client, daemon):
    machine = client.call("exec", cmd="true")["machine"]
    number = client.begin("tools/call", {"name": "exec", "arguments": {"cmd": "sleep 4711", "yield_ms": 50000}})
    daemon.until(lambda: running(daemon, machine, "sleep 4711"))
    client.tell("notifications/cancelled", {"requestId": number, "reason": "enough"})
    daemon.until(lambda: not running(daemon, machine, "sleep 4711"))
    client.tell("notifications/cancelled", {"requestId": number})
    assert client.call("exec", cmd="echo on")["stdout"] == "on\n"


def test_read_shows_numbered_lines(client):
    text = "".join(f"line {i}\n" for i in range(1, 3001))
    sha = client.call("write", path="/home/user/deep/er/f.txt", content=text)["sha256"]
    assert sha == hashlib.sha256(text.encode()).hexdigest()
    r = client.call("read", path="/home/user/deep/er/f.txt")
    assert r["content"].startswith("     1\tline 1\n") and r["lines"] == 2000 and r["more"] and "sha256" not in r
    r = client.call("read", path="/home/user/deep/er/f.txt", from_line=2999)
    assert r["content"] == "  2999\tline 2999\n  3000\tline 3000\n" and not r["more"] and r["sha256"] == sha
    with pytest.raises(ToolFailed, match="has only 3000 lines"):
        client.call("read", path="/home/user/deep/er/f.txt", from_line=4000)


def test_read_of_an_image(client):
    client.call("write", path="/home/user/p.png", content_base64=base64.b64encode(PNG).decode())
    result = client.result("read", path="/home/user/p.png")
    image = [c for c in result["content"] if c["type"] == "image"][0]
    assert base64.b64decode(image["data"]) == PNG and image["mimeType"] == "image/png"
    assert result["structuredContent"]["media"] == "image/png"


def test_write_only_over_what_was_seen(client):
    path = "/home/user/w"
    first = client.call("write", path=path, content="one", if_hash="absent")
    with pytest.raises(ToolFailed, match="has changed: its sha256 is now"):
        client.call("write", path=path, content="two", if_hash="absent")
    client.call("write", path=path, content="two", if_hash=first["sha256"], mode="755")
    with pytest.raises(ToolFailed, match="read the file again"):
        client.call("write", path=path, content="three", if_hash=first["sha256"])
    assert client.call("exec", cmd="cat w")["stdout"] == "two"


def test_edit(client):
    path = "/home/user/e.c"
    client.call("write", path=path, content="int a;\nint b;\nint c;\n")
    r = client.call("edit", path=path, edits=[{"old": "int b;", "new": "long b;"}, {"old": "int", "new": "char", "count": 2}])
    assert r["replaced"] == 3 and "-int b;\n+long b;\n" in r["diff"]
    assert client.call("exec", cmd="cat e.c")["stdout"] == "char a;\nlong b;\nchar c;\n"
    with pytest.raises(ToolFailed, match="(?s)does not occur.*nearest, line 2:.*long b;"):
        client.call("edit", path=path, edits=[{"old": "long bb;", "new": "x"}])
    with pytest.raises(ToolFailed, match="occurs 2 times"):
        client.call("edit", path=path, edits=[{"old": "char", "new": "x"}])
    assert client.call("exec", cmd="cat e.c")["stdout"] == "char a;\nlong b;\nchar c;\n"


def test_search(client):
    client.call("exec", cmd="mkdir -p s/.git 'a b'; echo needle > s/x.py; echo needle > s/.git/y; "
                            "printf 'one\\nthe needle: here\\n' > 'a b/z.txt'")
    r = client.call("search", pattern="need.e")
    assert sorted((m["path"], m["line"], m["text"]) for m in r["matches"]) == [
        ("./a b/z.txt", 2, "the needle: here"), ("./s/x.py", 1, "needle")]
    assert client.call("search", pattern="needle", glob="*.py", path="/home/user/s")["count"] == 1
    assert client.call("search", pattern="NEEDLE")["count"] == 0
    assert client.call("search", pattern="NEEDLE", ignore_case=True)["count"] == 2
    assert client.call("search", pattern="*.txt", kind="name")["matches"] == [{"path": "./a b/z.txt"}]
    client.call("exec", cmd="seq 1 5000 > many")
    r = client.call("search", pattern="1", path="/home/user/many", max=10)
    assert r["count"] == 10 and r["more"]
    with pytest.raises(ToolFailed, match="the search failed"):
        client.call("search", pattern="(")


def test_checkpoint_and_rewind(client):
    client.call("write", path="/home/user/f", content="good")
    kept = client.call("checkpoint", name="good")
    assert kept["restorable"] and kept["name"] == "good" and kept["step"].startswith("s-")
    client.call("exec", cmd="echo bad > f; echo more > g")
    client.call("rewind", to="good")
    assert client.call("exec", cmd="cat f; ls")["stdout"] == "goodf\n"
    client.call("exec", cmd="rm f")
    client.call("rewind", to=kept["step"])
    assert client.call("exec", cmd="cat f")["stdout"] == "good"
    with pytest.raises(ToolFailed, match="a step that checkpoint returned"):
        client.call("rewind", to="nowhere")
    with pytest.raises(ToolFailed, match="not a valid step name"):
        client.call("checkpoint", name="17")


def test_what_changed_between_steps_and_in_all(client):
    client.call("exec", cmd="printf 'one\\ntwo\\n' > kept; touch -d @1 gone; ln -s kept link; head -c 9 /dev/zero > raw")
    step = client.call("checkpoint", name="before")["step"]
    client.call("exec", cmd="printf 'one\\n2\\n' > kept; rm gone; chmod 600 raw")
    d = client.call("diff", **{"from": "before"}, path="/home/user")
    rows = {r["path"].removeprefix("/home/user/"): r for r in d["changes"]}
    assert (d["from"], d["to"], d["more"]) == (step, "now", False) and d["deleted"] == 1
    assert rows["kept"]["change"] == "modified" and "-two\n+2" in rows["kept"]["diff"]
    assert rows["gone"]["change"] == "deleted" and (rows["raw"]["mode_before"], rows["raw"]["mode"]) == ("0644", "0600")
    d = client.call("diff", path="/home/user")
    rows = {r["path"].removeprefix("/home/user/"): r for r in d["changes"]}
    assert d["from"] == "start" and {r["change"] for r in rows.values()} == {"added"}
    assert rows["link"]["target"] == "kept" and rows["raw"]["content"] == "binary" and "gone" not in rows
    assert client.call("diff", **{"from": "before", "to": "before"})["changes"] == []


def test_a_long_difference_is_cut_and_says_so(client):
    client.call("exec", cmd="seq 1 20000 > long")
    d = client.call("diff", path="/home/user", max_output=500)
    assert len(d["changes"][0]["diff"]) <= 500 and d["left_out"] > 10000 and d["changes"][0]["lines_added"] == 20000
    assert all("diff" not in r for r in client.call("diff", path="/home/user", brief=True)["changes"])
    with pytest.raises(ToolFailed, match="nowhere"):
        client.call("diff", **{"from": "nowhere"})


def test_a_checkpoint_of_what_runs(client):
    s = client.call("exec", cmd="echo begun > state; sleep 30; echo ended > state", yield_ms=300)["session"]
    kept = client.call("checkpoint")
    client.call("session", session=s, signal="KILL")
    client.call("exec", cmd="echo other > state")
    client.call("rewind", to=kept["step"])
    assert kept["restorable"] and client.call("exec", cmd="cat state")["stdout"] == "begun\n"


def test_forks_are_copies_of_ones_own(client, daemon):
    client.call("write", path="/home/user/f", content="here")
    kept = client.call("checkpoint")
    client.call("write", path="/home/user/f", content="later")
    forks = [m["machine"] for m in client.call("fork", step=kept["step"], count=2)["machines"]]
    assert len(set(forks)) == 2
    for i, m in enumerate(forks):
        client.call("exec", machine=m, cmd=f"echo -{i} >> f")
    assert [client.call("exec", machine=m, cmd="cat f")["stdout"] for m in forks] == ["here-0\n", "here-1\n"]
    assert client.call("exec", cmd="cat f")["stdout"] == "later"
    assert len(client.call("machine_list")["machines"]) == 3
    client.call("machine_destroy", machine=forks[0])
    with pytest.raises(ToolFailed):
        client.call("fork", count=17)


def test_a_fork_is_nobodys_home(open_client):
    first = open_client("lines")
    home = first.call("exec", cmd="true")["machine"]
    first.call("fork")
    first.close()
    assert open_client("lines").call("exec", cmd="true")["machine"] == home


def test_a_bound_client_cannot_fork(open_client, daemon):
    machine = daemon.post("/v1/machines", {"name": "one"})["id"]
    client = open_client("lines", "--machine", machine)
    assert "fork" not in client.tools() and "checkpoint" in client.tools()


def test_plan_and_finish(client, daemon):
    assert client.call("plan", items=[{"text": "a", "status": "done"}, {"text": "b", "status": "doing"}])["left"] == 1
    with pytest.raises(ToolFailed, match="evidence"):
        client.call("finish", status="done", summary="s")
    with pytest.raises(ToolFailed, match="open_issues"):
        client.call("finish", status="blocked", summary="s")
    machine = client.call("exec", cmd="true")["machine"]
    assert client.call("finish", status="done", summary="s", evidence=["make test: 3 passed"])["machine"] == machine
    stream = daemon.request("GET", "/v1/events?follow=0&type=agent.report", raw=True).decode()
    told = [json.loads(line[5:]) for line in stream.splitlines() if line.startswith("data:")]
    assert told[-1]["machine"] == machine and told[-1]["detail"]["evidence"] == ["make test: 3 passed"], told


@pytest.mark.parametrize("kind", ["lines", "http"])
def test_ask_is_an_elicitation(open_client, kind):
    c = open_client(kind, capabilities={"elicitation": {}})
    asked = []

    def answer(params):
        asked.append(params)
        return {"action": "accept", "content": {"answer": "blue"}} if len(asked) == 1 else {"action": "decline"}

    c.on_request["elicitation/create"] = answer
    assert c.call("ask", question="Which?", options=["red", "blue"]) == {"action": "accept", "answer": "blue"}
    assert c.call("ask", question="Sure?") == {"action": "decline"}
    assert asked[0]["message"] == "Which?" and asked[0]["requestedSchema"]["properties"]["answer"]["enum"] == ["red", "blue"]


def test_without_elicitation_nobody_can_be_asked(client):
    with pytest.raises(ToolFailed, match="finish with the status blocked"):
        client.call("ask", question="Which?")


def test_several_machines(client, daemon):
    first = client.call("exec", cmd="echo 1 > f")["machine"]
    made = client.call("machine_create", mem_mb=64, name="second")
    assert made["mem_mb"] == 64
    assert client.call("exec", machine="second", cmd="cat f")["exit_code"] == 1
    assert {m["machine"] for m in client.call("machine_list")["machines"]} == {first, made["machine"]}
    client.call("machine_destroy", machine=made["machine"])
    assert [m["id"] for m in daemon.machines()] == [first]
    client.call("machine_destroy", machine=first)
    assert client.call("exec", cmd="cat f")["machine"] != first, "a new one takes its place"


def test_install_from_files_of_the_machine(client):
    r = client.call("exec", cmd="""mkdir -p d/DEBIAN d/usr/bin p && printf '#!/bin/sh\\necho installed\\n' > d/usr/bin/cheer &&
        chmod 755 d/usr/bin/cheer && printf 'Package: cheer\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@y>\\n'"""
        """'Description: x\\n' > d/DEBIAN/control && dpkg-deb --root-owner-group -b d cheer.deb >/dev/null && cp cheer.deb /tmp""")
    assert r["exit_code"] == 0, r
    r = client.call("install", manager="apt", packages=["/tmp/cheer.deb"], yield_ms=50000)
    while r["status"] == "running":
        r = client.call("session", session=r["session"], wait_ms=50000)
    assert r["exit_code"] == 0, r
    assert client.call("exec", cmd="cheer")["stdout"] == "installed\n"


@pytest.mark.parametrize("manager", ["apt", "npm", "pip"])
def test_install_without_network_is_refused_at_once(client, daemon, manager):
    box = client.call("exec", cmd="true")["machine"]
    with pytest.raises(ToolFailed, match=f"machine '{box}' has no network access") as e:
        client.call("install", manager=manager, packages=["no-such-package-of-anybody"])
    assert f"carrel net {box} allow {manager}" in str(e.value)
    assert [x["argv"] for x in daemon.get(f"/v1/machines/{box}/execs")["execs"] if "install" in x["argv"]] == [], "nothing was started"


def test_install_with_a_rule_is_left_to_the_package_manager(client, daemon):
    """A mirror that the owner allowed may be one that no preset knows of."""
    box = client.call("exec", cmd="true")["machine"]
    daemon.post(f"/v1/machines/{box}/net/rules", {"target": "mirror.example"})
    r = client.call("install", manager="pip", packages=["no-such-package-of-anybody"], yield_ms=50000)
    while r["status"] == "running":
        r = client.call("session", session=r["session"], wait_ms=50000)
    assert r["exit_code"] != 0


@pytest.mark.parametrize("packages", [[], ["-o", "x"], ["--help"], [""], ["https://evil.example/x.deb"]])
def test_install_takes_packages_only(client, packages):
    with pytest.raises(ToolFailed, match="package"):
        client.call("install", manager="apt", packages=packages)


SERVER = """
import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/away":
            self.send_response(302); self.send_header("Location", "/page"); self.end_headers(); return
        if self.path == "/file":
            self.send_response(302); self.send_header("Location", "file:///etc/passwd"); self.end_headers(); return
        body = b"x" * 50000 if self.path == "/long" else b"hello page"
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("Content-Type", "text/plain"); self.send_header("Content-Length", str(len(body)))
        self.end_headers(); self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", 8000), H).serve_forever()
"""


def test_fetch(client):
    client.call("write", path="/home/user/server.py", content=SERVER)
    client.call("exec", cmd="python3 server.py", yield_ms=100, timeout_ms=60000)
    client.call("exec", cmd="for i in $(seq 200); do curl -s 127.0.0.1:8000 >/dev/null && break; sleep 0.1; done")
    url = "http://127.0.0.1:8000"
    r = client.call("fetch", url=url + "/away")
    assert (r["status"], r["body"], r["type"], r["url"]) == (200, "hello page", "text/plain", url + "/page")
    assert client.call("fetch", url=url + "/none")["status"] == 404
    r = client.call("fetch", url=url + "/long", max_output=1000)
    assert r["bytes"] == 50000 and r["left_out"] == 49000
    for bad in ("/file", ":1/nobody"):
        with pytest.raises(ToolFailed, match="only the owner can allow"):
            client.call("fetch", url=url.replace(":8000", "") + bad if bad[0] == ":" else url + bad)
    with pytest.raises(ToolFailed, match="only the owner can allow"):
        client.call("fetch", url="https://example.com/")
    for wrong in ("file:///etc/passwd", "-o/tmp/x", "gopher://x", ""):
        with pytest.raises(ToolFailed, match="is not an http or https URL"):
            client.call("fetch", url=wrong)


def test_preview_of_an_exposed_port(client, daemon):
    """The tool exposes nothing, and does not show the token."""
    machine = client.call("exec", cmd="true")["machine"]
    with pytest.raises(ToolFailed, match=f"port 8000 of machine '{machine}' is not exposed\nonly the owner can expose it: carrel expose {machine} 8000"):
        client.call("preview", port=8000)
    assert daemon.get(f"/v1/machines/{machine}/exposures")["exposures"] == []
    opened = daemon.post(f"/v1/machines/{machine}/exposures", {"port": 8000})
    result = client.result("preview", port=8000)
    url = result["structuredContent"]["url"]
    assert url in opened["url"] and url.startswith(f"http://8000-{machine}.") and opened["token"] not in json.dumps(result)
    with pytest.raises(ToolFailed, match="port 8001 .* is not exposed"):
        client.call("preview", port=8001)
    for port in (0, 65536, None):
        with pytest.raises(ToolFailed, match="port"):
            client.call("preview", **({} if port is None else {"port": port}))


ADD = '(module (func (export "add") (param i32 i32) (result i32) local.get 0 local.get 1 i32.add))'
TALK = """(module (import "carrel" "log" (func $log (param i32 i32))) (memory (export "memory") 1)
  (data (i32.const 0) "hey") (func (export "main") (call $log (i32.const 0) (i32.const 3))))"""


def test_a_program_in_a_cell(client, daemon):
    r = client.call("program", text=ADD, invoke="add", args=["2", "-3"])
    assert (r["outcome"], r["results"], r["fuel"]) == ("done", [{"type": "i32", "value": "-1"}], 3)
    assert client.call("program", text=TALK)["log"].strip() == "hey"
    r = client.call("program", text='(module (func (export "f") unreachable))', invoke="f")
    assert (r["outcome"], r["trap"]) == ("trap", "unreachable") and r["frames"]
    r = client.call("program", text='(module (func (export "f") (loop br 0)))', invoke="f", fuel=1000)
    assert (r["outcome"], r["fuel"]) == ("out_of_fuel", 1000)
    assert daemon.machines() == [], "no machine is needed"


@pytest.mark.parametrize("arguments,words", [
    ({"text": '(module (func i32.ad))'}, "line 1 column 15: unknown operator `i32.ad`: did you mean `i32.add`?"),
    ({"text": "", "invoke": "f"}, "f"),
    ({"text": ADD, "invoke": "none"}, "none"),
    ({"text": ADD, "invoke": "add", "args": ["1"]}, "invalid"),
    ({"text": ADD, "args": ["1"]}, "field 'arguments' requires field 'invoke'"),
    ({"text": '(module (import "carrel" "clock" (func (result i64))))'}, "carrel.clock, which was not granted"),
    ({"text": ADD, "fuel": 0}, "field 'fuel' must be between"),
])
def test_a_program_that_cannot_be(client, arguments, words):
    with pytest.raises(ToolFailed) as e:
        client.call("program", **arguments)
    assert words in str(e.value), str(e.value)


READS = """(module (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1) (data (i32.const 0) "secret")
  (func (export "open") (result i32)
    (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 6) (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 16))))"""


def test_arguments_of_a_program_are_no_options(client, tmp_path):
    """carrel-cell takes options behind the arguments, and the daemon starts it on the host. The control is the owner's own command."""
    log, secret = tmp_path / "log", tmp_path / "secret"
    secret.write_text("x")
    attacks = ((ADD, "add", ["2", "3", "--record", str(log)]), (READS, "open", ["--dir", str(tmp_path)]))
    found = []
    for wat, invoke, args in attacks:
        with pytest.raises(ToolFailed) as e:
            client.call("program", wat=wat, invoke=invoke, args=args)
        assert f"'{args[-2]}' is not a number" in str(e.value), str(e.value)
        assert not log.exists()
    for wat, invoke, args in attacks:
        done = subprocess.run([BUILD / "libexec/carrel-cell", "run", "-", "--json", "--invoke", invoke, *args],
                              input=wat, capture_output=True, text=True)
        found.append(json.loads(done.stdout)["results"][0]["value"])
    assert found == ["5", "0"] and log.exists()


CAPABLE = """(module (import "carrel.1" "args" (func $args (result i32))) (import "carrel.1" "time" (func $time (result i64)))
  (import "carrel.1" "answer" (func $answer (param i32 i32 i32) (result i32)))
  (import "carrel.1" "result" (func $result (param i32 i32) (result i32))) (memory (export "memory") 1)
  (func (export "main") (local $n i32) (drop (call $time)) (local.set $n (call $args))
    (drop (call $answer (i32.const 0) (i32.const 0) (local.get $n))) (drop (call $result (i32.const 0) (local.get $n)))))"""


def test_program_has_the_capabilities_that_the_call_lists_and_the_machine_has(open_client, daemon):
    daemon.request("POST", "/v1/images", cells.image(), name="programs")
    m = daemon.machine(kind="cell", image="programs", allow="args,result,kv")
    client = open_client("http", f"/mcp?machine={m}")
    names = ["args", "result", "time"]

    def refusal(**arguments):
        with pytest.raises(ToolFailed) as e:
            client.call("program", wat=CAPABLE, input="[1]", **arguments)
        return str(e.value)
    assert "imports carrel.1.args, which was not granted" in refusal(machine=m)
    assert f"machine '{m}' does not have the capabilities" in refusal(allow=names) == refusal(allow=names, machine=m)
    daemon.patch(f"/v1/machines/{m}", {"allow": "args,result,time,kv"})
    r = client.call("program", wat=CAPABLE, allow=names, machine=m, input='{"a": [1, 2.5, "\u00e9"]}')
    assert (r["outcome"], r["result"]) == ("done", {"a": [1, 2.5, "\u00e9"]})
    assert "imports carrel.1.time, which was not granted" in refusal(allow=names[:2], machine=m)
    assert "capability 'fly' does not exist" in refusal(allow=["fly"], machine=m)
    assert "does not have the capabilities http" in refusal(allow=["kv", "http"], machine=m)
    # Whoever is not bound to the machine and did not make it learns nothing of it, and can use nothing of it.
    for stranger in (open_client("http"), open_client("lines")):
        for known in ("m-000000000000", m):
            with pytest.raises(ToolFailed, match="this machine does not exist or is not yours"):
                stranger.call("program", wat=CAPABLE, input="[1]", allow=names, machine=known)
    box = stranger.call("exec", cmd="true")["machine"]
    with pytest.raises(ToolFailed, match="does not have the capabilities"):
        stranger.call("program", wat=CAPABLE, input="[1]", allow=names, machine=box)
    for strange in ('"\\u0000"', "1e999"):
        try:
            assert client.call("program", wat=CAPABLE, allow=names, machine=m, input=strange)["outcome"] == "done"
        except ToolFailed as e:
            assert "a number or character that is not supported" in str(e)


PRINTS = """(module (import "wasi_snapshot_preview1" "fd_write" (func $w (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1) (data (i32.const 0) "\\08\\00\\00\\00\\05\\00\\00\\00a\\00\\ffb\\00")
  (func (export "_start") (drop (call $w (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 32)))))"""


def test_program_output_may_have_nul_bytes(client):
    r = client.call("program", wat=PRINTS)
    assert (r["outcome"], r["output"], r["exit_code"]) == ("done", "a\ufffd\ufffdb\ufffd", 0)


def test_program_with_capabilities_of_a_machine_runs_in_it(open_client, daemon):
    daemon.request("POST", "/v1/images", cells.image(), name="programs")
    m = daemon.machine(kind="cell", image="programs", allow="args,result,kv,call,http", limits={"fuel": 3_000_000})
    client = open_client("http", f"/mcp?machine={m}")
    count, echo = cells.PROGRAMS["count"], ["call", "args", "result"]
    assert [client.call("program", wat=count, allow=["kv", "result"])["result"] for _ in range(2)] == [1, 2]
    assert daemon.exec(m, ["count"])["stdout"] == "3\n", "the keys are those of the machine"
    assert client.call("program", wat=cells.PROGRAMS["caller"], allow=echo)["result"] == 7
    listed = [x["argv"] for x in daemon.get(f"/v1/machines/{m}/execs")["execs"]]
    assert listed.count(["program"]) == 3
    r = client.call("program", wat=cells.PROGRAMS["echo"], allow=[*echo, "kv"], input='{"a": "\u00e9\\n"}')
    assert r["result"] == {"a": "\u00e9\n"} and r["fuel"] > 0
    r = client.call("program", wat=ADD, invoke="add", args=["2", "-3"], allow=["kv"])
    assert (r["results"], r["fuel"]) == ([{"type": "i32", "value": "-1"}], 3)
    assert client.call("program", wat=PRINTS, allow=["kv"])["output"] == "a\ufffd\ufffdb\ufffd"
    r = client.call("program", wat='(module (func (export "f") (loop br 0)))', invoke="f", allow=["kv"])
    assert (r["outcome"], r["fuel"]) == ("out_of_fuel", 3_000_000), "the limit of the machine holds"


def test_program_in_a_machine_has_only_what_the_call_lists(open_client, daemon):
    daemon.request("POST", "/v1/images", cells.image(), name="programs")
    m = daemon.machine(kind="cell", image="programs", allow="result,kv,call,http,model")
    client = open_client("http", f"/mcp?machine={m}")

    def refusal(**arguments):
        with pytest.raises(ToolFailed) as e:
            client.call("program", **arguments)
        return str(e.value)
    why = refusal(wat=cells.PROGRAMS["count"], allow=["result", "http"])
    assert "carrel.1.kv.get, which was not granted" in why and "list it in field 'allow'" in why
    assert "which was not granted" in refusal(wat=cells.PROGRAMS["http"], allow=["kv"])
    # `count` needs kv, which the machine has and its caller was not given.
    calls = cells.capable('(if (i32.ne (i32.const -3) (call $call (i32.const 0) (i32.const 5) (i32.const 5) (i32.const 1) (i64.const 0)))'
                          ' (then unreachable))', '(data (i32.const 0) "count7")', call="(param i32 i32 i32 i32 i64) (result i32)")
    assert client.call("program", wat=calls, allow=["call", "result"])["outcome"] == "done"
    assert client.call("program", wat=calls, allow=["call", "result", "kv"])["outcome"] == "trap"
    # Files of the machine are not granted, as they are to its own programs: the error is badf.
    for allow in (["kv"], ["http"]):
        assert client.call("program", wat=READS, invoke="open", allow=allow)["results"][0]["value"] == "8"
    assert daemon.exec(m, ["look", "bin/hello.wasm"])["exec"]["status"] == 0
    assert "line 1 column" in refusal(wat="(module (func i32.ad))", allow=["kv"])
    assert "field 'invoke'" in refusal(wat=ADD, args=["1"], allow=["kv"])
    assert "does not have the capabilities" in refusal(wat=ADD, invoke="add", args=["1", "1"], allow=["kv", "time"])


def test_program_in_a_machine_is_cancelled(open_client, daemon):
    daemon.request("POST", "/v1/images", cells.image(), name="programs")
    m = daemon.machine(kind="cell", image="programs", allow="kv")
    client = open_client("http", f"/mcp?machine={m}")
    number = client.begin("tools/call", {"name": "program", "arguments": {"wat": cells.PROGRAMS["spin"], "allow": ["kv"],
                                                                         "fuel": 10000000000}})

    def state():
        return [x["state"] for x in daemon.get(f"/v1/machines/{m}/execs")["execs"]]
    daemon.until(lambda: state() == ["running"])
    client.tell("notifications/cancelled", {"requestId": number})
    daemon.until(lambda: state() == ["exited"])


@pytest.fixture
def with_guests(daemon):
    """Starts the daemon again, with this folder of interpreters."""
    def start(folder):
        daemon.end()
        daemon.start({"CARREL_CELL_GUESTS": str(folder)})
    yield start
    daemon.restart()


def test_program_runs_a_script_in_the_interpreter_of_its_language(daemon, with_guests, open_client, tmp_path):
    (tmp_path / "programs").mkdir()
    # The stand-in for an interpreter prints its words: its name, the script and the input.
    (tmp_path / "programs/qjs.wasm").write_text(cells.PROGRAMS["words"])
    with_guests(tmp_path)
    client = open_client("http")
    r = client.call("program", javascript="print(1)", input="[1, 2]")
    assert (r["outcome"], r["output"], r["exit_code"]) == ("done", "qjs|/script/program.js|[1, 2]|", 0)
    (tmp_path / "programs/qjs.wasm").write_text(cells.PROGRAMS["hello"])
    r = client.call("program", javascript="print(1)")
    assert (r["output"], r["exit_code"]) == ("hello\n", 3)
    for arguments, why in [({"python": "print(1)"}, f"scripts/cell-guests {tmp_path} python"),
                           ({"python": "1", "javascript": "1"}, "requires field 'wat', or else"),
                           ({"javascript": "1", "invoke": "f"}, "field 'invoke' is for field 'wat'"),
                           ({"javascript": "1", "allow": ["time"]}, "field 'allow' requires field 'machine'")]:
        with pytest.raises(ToolFailed) as e:
            client.call("program", **arguments)
        assert why in str(e.value), str(e.value)
    daemon.request("POST", "/v1/images", cells.image(), name="programs")
    m = daemon.machine(kind="cell", image="programs", allow="time,random,log")
    bound = open_client("http", f"/mcp?machine={m}")
    assert bound.call("program", javascript="1", machine=m, allow=["time", "random"])["exit_code"] == 3
    with pytest.raises(ToolFailed, match="a script can have the capabilities time and random"):
        bound.call("program", javascript="1", machine=m, allow=["log"])


def test_program_runs_javascript_and_python(with_guests, open_client):
    folder = pathlib.Path(os.environ.get("CARREL_CELL_GUESTS") or ROOT / "build-guests")
    scripts = {"qjs": {"javascript": "print(JSON.stringify({n: JSON.parse(args[1]).length}))"},
               "python": {"python": "import sys, json; print(json.dumps({'n': len(json.loads(sys.argv[1]))}))"}}
    found = [s for name, s in scripts.items() if (folder / f"programs/{name}.wasm").exists()]
    if not found:
        pytest.skip("there are no interpreters: run make cell-guests")
    with_guests(folder)
    client = open_client("http")
    for script in found:
        r = client.call("program", input="[1, 2]", **script)
        assert r["exit_code"] == 0 and json.loads(r["output"]) == {"n": 2}, r


def test_program_needs_one_module(client):
    for arguments in ({}, {"wat": ADD, "text": ADD}):
        with pytest.raises(ToolFailed, match="requires field 'wat', or else"):
            client.call("program", **arguments)


def test_a_program_is_cancelled_and_counted(client):
    endless = {"name": "program", "arguments": {"text": '(module (func (export "f") (loop br 0)))', "invoke": "f",
                                                "fuel": 10000000000}}
    numbers = [client.begin("tools/call", endless) for _ in range(4)]

    def asked():
        """What a fifth is told; None: it ran."""
        try:
            client.call("program", text=ADD, invoke="add", args=["1", "1"])
        except ToolFailed as e:
            return str(e)

    end = clock() + 20
    while not (why := asked()):
        assert clock() < end, "the four do not run"
        numbers.append(client.begin("tools/call", endless))  # asking may have taken the place of one of them
    assert "4 WebAssembly programs are running, which is the limit" in why
    for n in numbers:
        client.tell("notifications/cancelled", {"requestId": n})
    end = clock() + 20
    while asked():
        assert clock() < end, "the four run on"
        time.sleep(0.05)


def test_others_machines_are_not_there(client, daemon):
    other = daemon.machine(name="owners")
    for name, arguments in [("exec", {"cmd": "true"}), ("read", {"path": "/etc/hostname"}),
                            ("write", {"path": "/tmp/x", "content": ""}), ("search", {"pattern": "x"}),
                            ("machine_destroy", {})]:
        says = set()
        for machine in (other, "owners", "m-aaaaaaaaaaaa"):
            with pytest.raises(ToolFailed) as refused:
                client.call(name, machine=machine, **arguments)
            says.add(str(refused.value))
        assert len(says) == 1 and "this machine does not exist or is not yours\nlist your machines with machine_list" in says.pop(), name
    with pytest.raises(RpcError) as e:
        client.ask("resources/read", {"uri": f"carrel://{other}/files/etc/hostname"})
    assert e.value.code == -32002
    assert client.call("machine_list")["machines"] == []


def test_resources(client):
    assert client.ask("resources/list")["resources"] == []
    r = client.call("exec", cmd="printf 'caf\\303\\251' > 'a b'; printf '\\377\\000' > bin")
    listed = {x["uri"] for x in client.ask("resources/list")["resources"]}
    assert listed == {f"carrel://{r['machine']}/transcript", r["log"]}
    templates = client.ask("resources/templates/list")["resourceTemplates"]
    assert {t["uriTemplate"] for t in templates} == {"carrel://{machine}/files/{+path}", "carrel://{machine}/logs/{exec}"}
    home = f"carrel://{r['machine']}/files/home/user"
    assert client.ask("resources/read", {"uri": home + "/a%20b"})["contents"][0]["text"] == "café"
    assert client.ask("resources/read", {"uri": home + "/bin"})["contents"][0]["blob"] == "/wA="
    transcript = client.ask("resources/read", {"uri": f"carrel://{r['machine']}/transcript"})["contents"][0]["text"]
    assert json.loads(transcript.splitlines()[0])["tool"] == "exec"
    for uri in [home + "/none", f"carrel://{r['machine']}/logs/x-none", "carrel://m-none/transcript", "file:///etc/passwd",
                f"carrel://{r['machine']}/", home + "/%00"]:
        with pytest.raises(RpcError) as e:
            client.ask("resources/read", {"uri": uri})
        assert e.value.code == -32002, uri


@pytest.mark.parametrize("kind", ["lines", "http"])
def test_subscriptions_fire_per_step(open_client, kind):
    c = open_client(kind)
    if kind == "http":
        c.listen()
    uri = f"carrel://{c.call('exec', cmd='echo 1 > f')['machine']}/files/home/user/f"
    c.ask("resources/subscribe", {"uri": uri})
    c.call("exec", cmd="true")
    assert c.noted("notifications/resources/updated") == []
    c.call("exec", cmd="echo 2 >> f; echo 3 >> f")
    assert c.until_noted("notifications/resources/updated") == [{"uri": uri}]
    c.ask("resources/unsubscribe", {"uri": uri})
    c.call("exec", cmd="echo 4 >> f")
    c.call("exec", cmd="true")
    assert len(c.noted("notifications/resources/updated")) == 1


def test_prompts_and_completion(client):
    prompts = {p["name"]: p for p in client.ask("prompts/list")["prompts"]}
    assert set(prompts) == {"task", "investigate"} and all(p["description"] for p in prompts.values())
    text = client.ask("prompts/get", {"name": "task", "arguments": {"task": "count to 3"}})["messages"][0]["content"]["text"]
    assert "count to 3" in text
    for params in [{"name": "none"}, {"name": "task"}, {"name": "task", "arguments": {"task": 3}}]:
        with pytest.raises(RpcError) as e:
            client.ask("prompts/get", params)
        assert e.value.code == -32602
    r = client.call("exec", cmd="true")

    def complete(name, value):
        return client.ask("completion/complete", {"ref": {"type": "ref/resource", "uri": "carrel://{machine}/logs/{exec}"},
                                                  "argument": {"name": name, "value": value}})["completion"]["values"]

    assert complete("machine", "m-") == [r["machine"]] and complete("machine", "z") == []
    assert complete("exec", "x-") == [r["session"]]


@pytest.mark.parametrize("name,arguments,words", [
    ("exec", {}, "give either argument 'cmd' or argument 'argv'"),
    ("exec", {"cmd": "x", "argv": ["y"]}, "give either argument 'cmd' or argument 'argv'"),
    ("exec", {"cmd": 7}, "field 'cmd' must be a string"),
    ("exec", {"cmd": "x", "foo": 1}, "field 'foo' is unknown\nknown fields: machine cmd argv"),
    ("exec", {"cmd": "x", "yield_ms": 1e9}, "field 'yield_ms' must be between 0 and 50000"),
    ("exec", {"cmd": "x", "user": "nobody"}, "must be user or root"),
    ("exec", {"cmd": "x", "cwd": "tmp"}, "not an absolute path"),
    ("session", {}, "field 'session' is missing"),
    ("session", {"session": "x-000000000000"}, "does not exist"),
    ("session", {"session": "../../x"}, "does not exist"),
    ("read", {"path": "x"}, "start the path with /"),
    ("read", {"path": "/nowhere"}, "/nowhere"),
    ("read", {"path": "/etc"}, "/etc"),
    ("write", {"path": "/tmp/x"}, "give either argument 'content' or argument 'content_base64'"),
    ("write", {"path": "/tmp/x", "content_base64": "!"}, "not base64"),
    ("write", {"path": "/tmp/x", "content": "", "mode": "rwx"}, "octal"),
    ("write", {"path": "/tmp/x", "content": "", "if_hash": "abc"}, "SHA-256"),
    ("edit", {"path": "/tmp/x", "edits": [{"old": "a"}]}, "field 'edits.new' is missing"),
    ("search", {"pattern": "x", "path": "-delete"}, "starts with a dash"),
    ("plan", {"items": [{"text": "a", "status": "maybe"}]}, "must be todo, doing or done"),
    ("machine_create", {"dirs": [{"path": "/"}]}, "field 'dirs' is unknown"),
    ("machine_create", {"mem_mb": 1}, "must be between"),
])
def test_wrong_arguments_are_told_in_words(client, name, arguments, words):
    with pytest.raises(ToolFailed) as e:
        client.call(name, **arguments)
    assert words in str(e.value), str(e.value)


def test_an_unknown_tool_is_told_which_there_are(client):
    with pytest.raises(RpcError) as e:
        client.ask("tools/call", {"name": "shell"})
    assert e.value.code == -32602 and "exec session read" in e.value.message


def test_what_a_call_did_is_in_the_journal(client, daemon):
    machine = client.call("exec", cmd="echo journalled")["machine"]
    records = [r for r in daemon.stream("GET", f"/v1/audit?machine={machine}&verb=exec")]
    assert any("echo journalled" in r.get("argv", []) for r in records), records


@pytest.mark.parametrize("look", ["exec", "log", "file"])
def test_what_a_model_saw_of_a_tainted_machine_taints_the_next_that_it_uses(client, daemon, look):
    """Both before and after the machine is tainted the other one is used: only what was seen after that counts."""
    own = client.call("exec", cmd="echo seen | tee seen")
    other = client.call("machine_create", mem_mb=64)["machine"]

    def source():
        return daemon.get(f"/v1/machines/{other}/net").get("tainted")

    client.call("exec", cmd="true", machine=other)
    daemon.post(f"/v1/machines/{own['machine']}/grants", {"kind": "env", "what": "WORD", "value": "of a stranger", "untrusted": True})
    client.call("write", machine=other, path="/home/user/before", content="x")
    assert source() is None, "the control: nothing was seen of it since"
    if look == "exec":
        client.call("exec", cmd="echo $WORD")
    else:
        uri = own["log"] if look == "log" else f"carrel://{own['machine']}/files/home/user/seen"
        assert "seen" in json.dumps(client.ask("resources/read", {"uri": uri}))
    client.call("write", machine=other, path="/home/user/after", content="x")
    assert source() == "WORD"
