"""Clients that others wrote."""
import json
import subprocess

import pytest

import npm
from carrel import PROGRAM
from mcp_client import Door

INSPECTOR = "@modelcontextprotocol/inspector/cli/build/cli.js"


@pytest.mark.parametrize("kind", ["lines", "http"])
def test_the_official_client_library(daemon, token, tmp_path, kind):
    words = [PROGRAM] if kind == "lines" else [f"http://127.0.0.1:{daemon.port}/mcp", token]
    done = subprocess.run([npm.node(), npm.script("sdk_client.cjs"), kind, *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env={**daemon.env, "NODE_PATH": npm.modules("stable")}, cwd=tmp_path,
                          text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def inspect(daemon, tmp_path, *words):
    done = subprocess.run([npm.node(), npm.module("stable", INSPECTOR), "--cli", *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=daemon.env, cwd=tmp_path, text=True, timeout=60)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def test_the_inspector_over_lines(daemon, tmp_path):
    tools = inspect(daemon, tmp_path, PROGRAM, "mcp", "--method", "tools/list")["tools"]
    assert "exec" in {t["name"] for t in tools}
    r = inspect(daemon, tmp_path, PROGRAM, "mcp", "--method", "tools/call", "--tool-name", "exec", "--tool-arg", "cmd=echo hi")
    assert r["structuredContent"]["stdout"] == "hi\n"


def test_the_inspector_over_http(daemon, token, tmp_path):
    door = Door(daemon.port, token)  # its command line has no way to show one
    assert len(inspect(daemon, tmp_path, door.url, "--method", "prompts/list")["prompts"]) == 2
    r = inspect(daemon, tmp_path, door.url, "--method", "tools/call", "--tool-name", "exec", "--tool-arg", "cmd=echo hi")
    assert r["structuredContent"]["stdout"] == "hi\n"
    door.listener.close()


@pytest.mark.parametrize("era", ["modern", "auto", "legacy"])
@pytest.mark.parametrize("kind", ["lines", "http"])
def test_the_inspector_of_both_eras(daemon, token, tmp_path, kind, era):
    """auto asks for version 2026-07-28 first."""
    program = npm.module("eras", "@modelcontextprotocol/inspector/clients/launcher/build/index.js")
    own = [w for k, v in daemon.env.items() if k.startswith("CARREL_") for w in ("-e", f"{k}={v}")]  # it passes few variables on
    where = [PROGRAM, "mcp", *own] if kind == "lines" else [
        f"http://127.0.0.1:{daemon.port}/mcp", "--transport", "http", "--header", f"Authorization: Bearer {token}"]
    done = subprocess.run([npm.node(), program, "--cli", *where, "--protocol-era", era, "--method", "tools/call", "--tool-name", "exec",
                           "--tool-arg", "cmd=echo hi"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=daemon.env, cwd=tmp_path,
                          stdin=subprocess.DEVNULL, text=True, timeout=60)
    assert done.returncode == 0, (done.stdout, done.stderr)
    result = json.loads(done.stdout)["structuredContent"]
    assert result["stdout"] == "hi\n" and [m["id"] for m in daemon.machines()] == [result["machine"]]
