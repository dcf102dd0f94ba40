"""Real MCP clients from npm with the configurations of docs/reference/mcp.md that switch the tools of the host off.

A scripted model answers them. The packages are large, so this file is not part of `make test` (`make test-agents`).
"""
import json
import os
import pathlib
import shlex
import subprocess
import sys

import pytest

import pages
from carrel import BUILD, PROGRAM, TOP

sys.path.insert(0, str(TOP / "tests/agent"))

from model import Model  # noqa: E402

AGENTS = BUILD / "agents"
BLOCKS = {b.words[1]: b.text for b in pages.blocks(TOP / "docs/reference/mcp.md") if b.words and b.words[0] == "alone"}
CODING = {"exec", "session", "read", "write", "edit", "patch", "search", "list", "python", "preview", "checkpoint", "rewind", "diff"}
# What clients offer besides: nothing of it runs commands or reads, writes or fetches.
BESIDE = {"claude": {"DeferredToolPlaceholder"}, "opencode": set(), "gemini": set(),
          "codex": {"list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource", "request_user_input",
                    "get_goal", "create_goal", "update_goal"}}
# The name of a tool of the machine, as the client shows it to its model.
PREFIX = {"claude": "mcp__carrel__", "codex": "", "opencode": "carrel_", "gemini": "mcp_carrel_"}


@pytest.fixture
def model():
    m = Model(command="id -un; cat mine; echo theirs >mine; ls /carrel-of-the-host", shells=tuple(p + "exec" for p in PREFIX.values()))
    yield m
    m.end()


class Place:
    """A home and a project in it. No host but this one can be reached."""

    def __init__(self, daemon, model, path):
        self.home, self.project, self.url = path, path / "project", f"http://127.0.0.1:{model.port}"
        self.put("project/mine", "mine\n")
        (path / "bin").mkdir()
        (path / "bin/carrel").symlink_to(PROGRAM)
        self.env = {**os.environ, **daemon.env, "HOME": str(path), "PWD": str(self.project), "PATH": f"{path}/bin:{os.environ['PATH']}",
                    "HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost"}

    def put(self, name, text):
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text))

    def run(self, *words):
        return subprocess.run([str(w) for w in words], env=self.env, cwd=self.project, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120)


def claude(at, program, block):
    at.put(".claude.json", {"hasCompletedOnboarding": True, "projects": {str(at.project): {"hasTrustDialogAccepted": True}}})
    at.env |= {"ANTHROPIC_BASE_URL": at.url, "ANTHROPIC_AUTH_TOKEN": "x", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
               "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1"}
    add, start = (shlex.split(line) for line in block.splitlines())
    done = at.run(program / "claude", *add[1:])
    assert done.returncode == 0, done
    return at.run(program / "claude", *start[1:], "-p", "Do it.")


def codex(at, program, block):
    at.put(".codex/config.toml", block)
    at.env["K"] = "x"
    own = ", ".join(f"{k}={json.dumps(v)}" for k, v in at.env.items() if k.startswith("CARREL_"))  # it passes few variables on
    provider = f'{{name="t", base_url="{at.url}/v1", env_key="K", wire_api="responses", supports_websockets=false}}'
    given = ["model_provider=t", f"model_providers.t={provider}", 'model="gpt-5"', "check_for_update_on_startup=false",
             f"mcp_servers.carrel.env={{{own}}}", "features.plugins=false", "features.apps=false", "analytics.enabled=false"]
    return at.run(next(program.glob("vendor/*/bin/codex")), "exec", "--skip-git-repo-check", *(w for g in given for w in ("-c", g)), "Do it.")


def opencode(at, program, block):
    at.put("project/opencode.json", block)
    at.put(".config/opencode/opencode.json", {"autoupdate": False, "share": "disabled", "enabled_providers": ["anthropic"],
                                              "provider": {"anthropic": {"options": {"baseURL": at.url + "/v1", "apiKey": "x"}}}})
    at.env |= {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
    return at.run(program / "bin/opencode", "run", "-m", "anthropic/claude-sonnet-4-5", "Do it.")


def gemini(at, program, block):
    at.put("project/.gemini/settings.json", block)
    at.put(".gemini/settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
                                     "general": {"enableAutoUpdate": False}, "privacy": {"usageStatisticsEnabled": False}})
    at.env |= {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": at.url}
    return at.run(program / "node/bin/node", program / "cli/bundle/gemini.js", "-m", "gemini-2.5-flash", "-p", "Do it.")


CLIENTS = {f.__name__: f for f in (claude, codex, opencode, gemini)}


def offered(body):
    """The names of the tools in a request to a model, those of a namespace without it."""
    for t in body.get("tools", []):
        if t.get("type") == "namespace":
            yield from (x["name"] for x in t["tools"])
        elif "functionDeclarations" in t:
            yield from (f["name"] for f in t["functionDeclarations"])
        else:
            yield t.get("name") or t["type"]


def downloaded(daemon, name):
    done = subprocess.run([PROGRAM, "agent", "update", name], env={**os.environ, **daemon.env, "HOME": os.environ["HOME"],
                                                                   "XDG_DATA_HOME": str(AGENTS)}, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    return next(pathlib.Path(AGENTS / "carrel-agents").glob(name + "-*"))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_works_only_in_its_machine(daemon, model, tmp_path, name):
    at = Place(daemon, model, tmp_path)
    done = CLIENTS[name](at, downloaded(daemon, name), BLOCKS[name])
    assert done.returncode == 0 and "Done." in done.stdout, done
    lists = [set(offered(r.body)) for r in model.requests if list(offered(r.body))]
    for tools in lists:
        assert {PREFIX[name] + t for t in CODING} <= tools <= {PREFIX[name] + t for t in CODING} | BESIDE[name], tools
    said = json.dumps([r.body for r in model.requests])
    assert "user\\\\nmine\\\\n" in said or "user\\nmine\\n" in said, "the command ran in the machine, on the copy"
    assert (at.project / "mine").read_text() == "mine\n"
    (machine,) = daemon.machines()
    assert daemon.exec(machine["id"], f"cat {at.project}/mine")["stdout"] == "theirs\n"


def test_every_client_has_its_configuration():
    assert set(BLOCKS) == set(CLIENTS)
