"""What carrel agent refuses, and what it says about directories that are not ordinary: one clear line each."""
import json
import os
import pathlib
import stat

import pytest

from carrel import ROOTLESS
from conftest import git


def refused(agents, *words, where, env=()):
    done = agents.carrel("agent", *words, cwd=where, env=env)
    assert done.returncode == 125 and done.stdout == "", done
    lines = [line for line in done.stderr.splitlines() if not line.startswith("carrel: downloading agent ")]
    assert len(lines) == 1, done.stderr
    assert json.loads(agents.carrel("agent", "ls", "--json").stdout)["machines"] == []
    return lines[0]


@pytest.mark.parametrize("words, said", [
    (["nobody", "-p", "x"], "agent 'nobody' does not exist"),
    (["codxe", "-p", "x"], "did you mean 'codex'?"),
    (["fake"], "carrel agent fake requires a terminal: for scripts: carrel agent fake -p TASK"),
    (["fake", "-p", ""], "--prompt: the task is empty"),
    (["only-once", "-p", "x", "--resume"], "agent 'only-once' has no session for directory"),
    (["fake", "-p", "x", "--budget", "lots"], "--budget lots: "),
    (["update", "fake"], "agent 'fake' is part of its image"),
    (["update", "codex", "x"], "unexpected argument 'x'"),
    (["ls", "x"], "unexpected argument 'x'"),
])
def test_wrong_words_are_refused(agents, folder, words, said):
    assert said in refused(agents, *words, where=folder)


@pytest.mark.parametrize("agent, variable", [("claude", "ANTHROPIC_API_KEY"), ("codex", "OPENAI_API_KEY"),
                                             ("opencode", "ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY"),
                                             ("gemini", "GEMINI_API_KEY")])
def test_missing_key_is_said_before_anything_is_downloaded(agents, folder, agent, variable):
    line = refused(agents, agent, "-p", "x", where=folder, env={"PATH": "/nonexistent"})
    assert f"no key for the models of agent '{agent}'" in line and variable in line
    assert line.endswith("--login" if agent in ("claude", "codex") else "carrel.conf")


def test_home_and_root_are_not_given_to_an_agent(agents):
    home = pathlib.Path(agents.env["HOME"])
    assert "is your home: the agent would get all of it" in refused(agents, "fake", "-p", "x", where=home)
    assert "is the root of this host" in refused(agents, "fake", "-p", "x", where="/")


def test_command_that_the_row_lacks_is_named(agents, folder):
    t = agents.terminal("agent", "only-once", cwd=folder)
    status, text = t.close()
    assert status == 125 and b"add `start` to section [agent only-once] of carrel.conf" in text


def test_submodules_and_lfs_are_told(agents, repo):
    (repo / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs\n")
    (repo / ".gitmodules").write_text('[submodule "s"]\n\tpath = s\n\turl = ../s\n')
    git(repo, "add", ".gitattributes", ".gitmodules")
    git(repo, "commit", "-q", "-m", "second")
    said = agents.carrel("agent", "only-once", "-p", "x", cwd=repo).stderr
    assert "ignored files and submodules stayed out" in said
    assert "files in Git LFS are pointers in the machine" in said


@pytest.mark.skipif(not ROOTLESS, reason="root may write everywhere")
def test_read_only_directory_is_told(agents, folder):
    folder.chmod(0o555)
    said = agents.carrel("agent", "only-once", "-p", "x", cwd=folder).stderr
    folder.chmod(0o755)
    assert "changes can be reviewed, but not shipped" in said


# ---- programs from npm ----

def with_npm(agents, tmp_path, script):
    """Variables with an npm of the test's own before the host's."""
    programs = tmp_path / "programs"
    programs.mkdir()
    npm = programs / "npm"
    npm.write_text("#!/bin/sh\n" + script)
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{programs}:{agents.env['PATH']}", "XDG_DATA_HOME": str(tmp_path / "data")}


def installed(tmp_path):
    top = tmp_path / "data/carrel-agents"
    return sorted(p for p in os.listdir(top) if p != "lock") if top.exists() else []


def test_download_with_another_hash_is_not_unpacked(agents, folder, tmp_path):
    """A registry that sends something else: npm is content with it, and the table is not."""
    script = f'cd "{folder}" && tar -czf "$4/x.tgz" old.txt\n'
    line = refused(agents, "update", "codex", where=folder, env=with_npm(agents, tmp_path, script))
    assert "does not have the hash that Carrel knows" in line
    assert installed(tmp_path) == []


def test_failure_of_npm_is_told_with_its_reason(agents, folder, tmp_path):
    script = 'printf "npm warn old\\nnpm error code E404\\nnpm error 404 Not Found - GET x\\nnpm error more\\n" >&2; exit 1\n'
    line = refused(agents, "update", "codex", where=folder, env=with_npm(agents, tmp_path, script))
    assert "cannot install agent 'codex'" in line and "npm failed: 404 Not Found - GET x" in line
    assert installed(tmp_path) == []


def test_host_without_npm_is_told(agents, folder, tmp_path):
    line = refused(agents, "update", "codex", where=folder,
                   env={"PATH": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")})
    assert "npm is not installed on this host: install it: apt install npm" in line
