"""`carrel mcp` with grants: the owner's machine for this directory, and tools that are bound to it."""
import subprocess

import pytest

from carrel import PROGRAM
from mcp_client import RpcError


def test_a_directory_is_granted_as_a_copy(open_client, daemon, tmp_path):
    (tmp_path / "file").write_text("mine\n")
    client = open_client("lines", "--dir", ".")
    r = client.call("exec", cmd="pwd; cat file; echo theirs > file; cat file")
    assert r["stdout"] == f"{tmp_path}\nmine\ntheirs\n"
    assert (tmp_path / "file").read_text() == "mine\n"
    assert [m["id"] for m in daemon.machines()] == [r["machine"]]
    assert {"checkpoint", "patch"} < set(client.tools()) and not {"fork", "machine_create"} & set(client.tools())
    with pytest.raises(RpcError, match="unknown tool"):
        client.call("machine_create")


def test_the_machine_is_found_again_by_its_options(open_client, daemon):
    first = open_client("lines", "--dir", ".")
    machine = first.call("exec", cmd="echo kept > /home/user/kept")["machine"]
    first.close()
    again = open_client("lines", "--dir", ".")
    assert again.call("exec", cmd="cat /home/user/kept")["stdout"] == "kept\n"
    for other in (["--dir", ".:ro"], ["--dir", ".", "--net", "npm"], ["--dir", ".", "--mem", "512M"]):
        assert open_client("lines", *other).call("exec", cmd="true")["machine"] != machine
    assert len(daemon.machines()) == 4
    assert open_client("lines").call("exec", cmd="true")["machine"] != machine, "without options there is another one"


def test_a_fork_of_the_machine_is_not_taken_for_it(open_client, daemon):
    first = open_client("lines", "--mem", "512M")
    machine = first.call("exec", cmd="true")["machine"]
    first.close()
    daemon.post(f"/v1/machines/{machine}/fork", {})
    assert len(daemon.machines()) == 2
    assert open_client("lines", "--mem", "512M").call("exec", cmd="true")["machine"] == machine


def test_a_removed_machine_is_made_again(open_client, daemon):
    first = open_client("lines", "--mem", "512M")
    machine = first.call("exec", cmd="true")["machine"]
    first.close()
    daemon.request("DELETE", f"/v1/machines/{machine}")
    assert open_client("lines", "--mem", "512M").call("exec", cmd="true")["machine"] != machine


def test_hosts_are_allowed_by_a_list(open_client, daemon):
    machine = open_client("lines", "--net", "apt,npm", "--net", "ask:a.example,b.example,local").call("exec", cmd="true")["machine"]
    rules = daemon.get(f"/v1/machines/{machine}/net")["rules"]
    rows = [(r["action"], r["target"], r.get("local", False)) for r in rules]
    assert {("allow", "apt"), ("allow", "npm")} == {(r["action"], r["preset"]) for r in rules[:-2]} and not any(local for _, _, local in rows[:-2])
    assert rows[-2:] == [("ask", "a.example", False), ("allow", "b.example", True)]


@pytest.mark.parametrize("words", [["--budget", "1.5"], ["--models", "money=1.5"]])
def test_a_budget_for_models(open_client, daemon, words):
    machine = open_client("lines", *words).call("exec", cmd="true")["machine"]
    assert daemon.get(f"/v1/machines/{machine}/stats")["models"]["money_left"] == 1.5


@pytest.mark.parametrize("words,says", [
    (["--machine", "m", "--dir", "."], "--machine cannot be used with options for a new machine"),
    (["--models", "any", "--budget", "1"], "--models and --budget cannot be used together"),
    (["--budget", "much"], "--budget much: "),
    (["--dir", "/nowhere"], "/nowhere"),
    (["--dir", ".:rw"], "--dir .:rw: must be a copy (cow) or read-only (ro)"),
    (["--dir", ".:/x:rw:untrusted"], "must be a copy"),
    (["--mem", "1"], "--mem 1"),
])
def test_options_that_cannot_be(daemon, tmp_path, words, says):
    done = subprocess.run([PROGRAM, "mcp", *words], env=daemon.env, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    assert done.returncode == 125 and says in done.stderr and not done.stdout, done.stderr
    assert daemon.machines() == []
