"""docs/reference/mcp.md: every configuration in it works, and its table names the tools there are."""
import json
import re
import shlex
import subprocess
import tomllib

import pytest

import pages
from carrel import PROGRAM, TOP
from daemon import TcpClient
from mcp_client import Http, Lines

PAGE = (TOP / "docs/reference/mcp.md").read_text()
BLOCKS = [(b.language, b.text) for b in pages.blocks(TOP / "docs/reference/mcp.md") if b.words == ("client",)]


def server_of(language, text):
    """The one server that a configuration names."""
    if language == "sh":
        words = shlex.split(text)
        words = words[words.index("--") + 1:]
        return {"command": words[0], "args": words[1:]}
    value = json.loads(text) if language == "json" else tomllib.loads(text)
    while "carrel" not in value:
        (value,) = value.values()
    server = value["carrel"]
    if isinstance(server.get("command"), list):
        server = {"command": server["command"][0], "args": server["command"][1:]}
    return server


@pytest.mark.parametrize("language,text", BLOCKS)
def test_a_configuration_works(daemon, token, tmp_path, language, text):
    server = server_of(language, text)
    if "url" in server:
        assert server["url"].endswith("/mcp")
        headers = {name: value.replace("TOKEN", token) for name, value in server["headers"].items()}
        client = Http(TcpClient(daemon.port).connect, headers)
    else:
        assert server["command"] == "carrel" and server["args"][0] == "mcp"
        client = Lines(daemon, *server["args"][1:], cwd=tmp_path)
    client.greet()
    assert client.call("exec", cmd="echo hi")["stdout"] == "hi\n"
    client.close()


def test_there_are_enough_of_them():
    assert len(BLOCKS) >= 6


def test_the_table_names_every_tool(daemon, tmp_path):
    client = Lines(daemon, cwd=tmp_path)
    client.greet()
    named = re.findall(r"^\| `(\w+)` \|", PAGE, re.M)
    assert named == list(client.tools())
    client.close()


def test_the_commands_about_a_project(daemon, tmp_path):
    """Lend a copy, bind a client to it, and nothing of the original changes."""
    (tmp_path / "file").write_text("mine\n")
    lines = [line for line in PAGE.splitlines() if line.startswith("carrel new ") or line == "carrel mcp --machine work"]
    assert len(lines) == 2
    new, mcp = (shlex.split(line) for line in lines)
    subprocess.run([PROGRAM, *new[1:]], env=daemon.env, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    client = Lines(daemon, *mcp[2:], cwd=tmp_path)
    client.greet()
    r = client.call("exec", cmd="pwd; cat file; echo theirs > file; cat file")
    assert r["stdout"] == "/home/user/project\nmine\ntheirs\n", r
    assert (tmp_path / "file").read_text() == "mine\n"
    client.close()
