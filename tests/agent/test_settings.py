"""carrel agent import-settings: shows the owner's own settings, leaves keys out, and copies after a yes."""
import json

import pytest

from conftest import Agents, delete_volumes

KEY = "sk-owner-secret-123"


class Keyed(Agents):
    """A daemon with a key for the models of claude."""

    def start(self, env=()):
        super().start({**dict(env), "ANTHROPIC_API_KEY": "sk-daemon"})


@pytest.fixture(scope="module")
def keyed_session():
    d = Keyed()
    yield d
    d.stop()


@pytest.fixture
def keyed(keyed_session):
    yield keyed_session
    keyed_session.clear()
    delete_volumes(keyed_session)


@pytest.fixture
def home(tmp_path):
    top = tmp_path / "owner"
    (top / ".claude/commands").mkdir(parents=True)
    (top / ".claude/CLAUDE.md").write_text("be brief\x1b[2J\n")
    (top / ".claude/commands/go.md").write_text("go on\n")
    (top / ".claude/.credentials.json").write_text(json.dumps({"accessToken": KEY}))
    (top / ".claude/settings.json").write_text(json.dumps({"env": {"ANTHROPIC_API_KEY": KEY}, "apiKeyHelper": KEY, "hooks": {"Stop": []}}))
    (top / ".claude.json").write_text(json.dumps({"oauthAccount": KEY, "mcpServers": {"x": {"command": "serve-x"}}}))
    return top


@pytest.fixture
def claude(home, tmp_path):
    """Variables of an owner who has installed claude already: a few lines of shell."""
    data = tmp_path / "data"
    program = data / "carrel-agents/claude-2.1.325"
    program.mkdir(parents=True)
    (program / "claude").write_text("#!/bin/sh\ncat ~/.claude/CLAUDE.md ~/.claude/settings.json ~/.claude.json; ls -la ~/.claude\n")
    (program / "claude").chmod(0o755)
    return {"HOME": str(home), "XDG_DATA_HOME": str(data)}


def inside(agents, path):
    (m,) = json.loads(agents.carrel("agent", "ls", "--json").stdout)["machines"]
    done = agents.carrel("exec", m["name"], "--", "cat", "/home/user/" + path)
    assert done.returncode == 0, done
    return done.stdout


def test_files_are_shown_and_copied_without_keys(keyed, folder, claude):
    done = keyed.carrel("agent", "import-settings", "claude", "-y", cwd=folder, env=claude)
    assert done.returncode == 0, done
    assert "---- ~/.claude/CLAUDE.md\nbe brief\\x1b[2J\n" in done.stdout
    assert KEY not in done.stdout and "copied 4 files into the home of agent claude" in done.stderr
    assert inside(keyed, ".claude/CLAUDE.md") == "be brief\x1b[2J\n"
    assert inside(keyed, ".claude/commands/go.md") == "go on\n"
    settings = json.loads(inside(keyed, ".claude/settings.json"))
    assert settings == {"hooks": {"Stop": []}, "skipDangerousModePermissionPrompt": True}
    own = json.loads(inside(keyed, ".claude.json"))
    assert own["mcpServers"] == {"x": {"command": "serve-x"}} and own["hasCompletedOnboarding"] is True
    assert own["projects"][str(folder)] == {"hasTrustDialogAccepted": True}
    (m,) = json.loads(keyed.carrel("agent", "ls", "--json").stdout)["machines"]
    modes = keyed.carrel("exec", m["name"], "--", "stat", "-c", "%a", "/home/user/.claude/CLAUDE.md", "/home/user/.claude.json").stdout
    assert modes == "444\n600\n"
    found = keyed.carrel("exec", m["name"], "--", "grep", "-r", KEY, "/home/user")
    assert found.returncode == 1, found


def test_keys_of_mcp_servers_stay_out(keyed, folder, claude, home):
    """Variables and headers of MCP servers are where their users put tokens. The rest of a server is the control."""
    rest = {"a": {"command": "serve-a", "args": ["--fast"]}, "b": {"type": "http", "url": "https://b.example/mcp"}}
    servers = {"a": {**rest["a"], "env": {"TOKEN": KEY}}, "b": {**rest["b"], "headers": {"Authorization": KEY}, "oauth": {"clientSecret": KEY}}}
    (home / ".claude.json").write_text(json.dumps({"mcpServers": servers}))
    done = keyed.carrel("agent", "import-settings", "claude", "-y", cwd=folder, env=claude)
    assert done.returncode == 0 and KEY not in done.stdout, done
    assert json.loads(inside(keyed, ".claude.json"))["mcpServers"] == rest
    for server, member in (("a", "env"), ("b", "headers"), ("b", "oauth")):
        assert f"left out '{member}' of MCP server '{server}' of ~/.claude.json: it may have keys\n" in done.stdout, done


def test_what_the_agent_wrote_into_a_shared_file_stays(keyed, folder, claude):
    assert keyed.carrel("agent", "import-settings", "claude", "-y", cwd=folder, env=claude).returncode == 0
    (m,) = json.loads(keyed.carrel("agent", "ls", "--json").stdout)["machines"]
    keyed.carrel("exec", m["name"], "--", "sh", "-c", "echo '{\"tips\":7,\"mcpServers\":{}}' >~/.claude.json")
    assert keyed.carrel("agent", "import-settings", "claude", "-y", cwd=folder, env=claude).returncode == 0
    own = json.loads(inside(keyed, ".claude.json"))
    assert own["tips"] == 7 and own["mcpServers"] == {"x": {"command": "serve-x"}}


def test_nothing_is_copied_without_a_yes(keyed, folder, claude):
    done = keyed.carrel("agent", "import-settings", "claude", cwd=folder, env=claude)
    assert done.returncode == 125 and "requires a terminal" in done.stderr
    t = keyed.terminal("agent", "import-settings", "claude", cwd=folder, env=claude)
    t.expect(b"copy these files into the agent's machine? [y/N]")
    t.type(b"n\n")
    assert b"nothing was copied" in t.close()[1]
    assert json.loads(keyed.carrel("agent", "ls", "--json").stdout)["machines"] == []


def test_unusual_files_are_skipped_with_a_reason(keyed, folder, claude, home):
    (home / ".claude/settings.json").write_text("{ // comment\n}")
    (home / ".claude/CLAUDE.md").write_bytes(b"\xff\xfe")
    (home / ".claude/commands/go.md").write_bytes(b"x" * (200 << 10))
    done = keyed.carrel("agent", "import-settings", "claude", "-y", cwd=folder, env=claude)
    for path, why in ((".claude/settings.json", "not a JSON object"), (".claude/CLAUDE.md", "not text in UTF-8"),
                      (".claude/commands/go.md", "not a file of at most 128 KiB")):
        assert f"skipped ~/{path}: it is {why}" in done.stdout, done
    assert "copied 1 file " in done.stderr


def test_agent_of_carrel_conf_has_no_known_settings(agents, folder):
    done = agents.carrel("agent", "import-settings", "fake", "-y", cwd=folder)
    assert done.returncode == 125 and "does not know the settings of agent 'fake'" in done.stderr
