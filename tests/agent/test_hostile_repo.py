"""A directory of somebody else: starting an agent in it runs nothing of it on the host and sends nothing of the owner to it."""
import os
import pathlib
import subprocess

import pytest

from conftest import git


def trap(folder, then="cat"):
    """A program that leaves a mark on the host if it is run."""
    mark = folder / "mark"
    program = folder / "trap.sh"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n{then}\n")
    program.chmod(0o755)
    return program, mark


def start(agents, where, env=()):
    return agents.carrel("agent", "fake", "-p", "x", cwd=where, env=env)


def tempt(where):
    """What the owner's own git does there, as a control."""
    subprocess.run(["git", "status"], cwd=where, capture_output=True, timeout=60)


def fetch_by(config, program):
    with open(config, "a") as f:
        f.write(f'[extensions]\n\tpartialClone = o\n[remote "o"]\n\turl = ext::{program}\n\tpromisor = true\n'
                '[protocol "ext"]\n\tallow = always\n[core]\n\trepositoryformatversion = 1\n')


def test_a_missing_object_is_not_fetched_by_a_program(agents, repo, tmp_path):
    program, mark = trap(tmp_path, "exit 1")
    fetch_by(repo / ".git/config", program)
    head = git(repo, "rev-parse", "HEAD").strip()
    os.unlink(repo / ".git/objects" / head[:2] / head[2:])
    done = start(agents, repo)
    assert not mark.exists(), done
    subprocess.run(["git", "cat-file", "-e", "HEAD^{commit}"], cwd=repo, capture_output=True, timeout=60)
    assert mark.exists(), "the control"


def test_a_part_of_a_clone_that_looks_like_a_repository_is_not_one(agents, repo, tmp_path):
    program, mark = trap(tmp_path, "exit 1")
    inner = repo / "sub"
    for name in ("objects/x", "refs/heads"):
        (inner / name).mkdir(parents=True)
    (inner / "HEAD").write_text("ref: refs/heads/main\n")
    (inner / "refs/heads/main").write_text("1" * 40 + "\n")
    (inner / "config").write_text("[core]\n\tbare = false\n\tworktree = .\n")
    fetch_by(inner / "config", program)
    done = start(agents, inner)
    assert not mark.exists() and done.returncode == 3, done
    assert f"a copy of directory {inner}" in done.stderr or f"a clone of repository {repo}" in done.stderr, done.stderr
    subprocess.run(["git", "rev-parse", "HEAD^{commit}"], cwd=inner, capture_output=True, timeout=60)
    assert mark.exists(), "the control"


@pytest.mark.parametrize("key", ["clean", "process"])
def test_a_filter_of_the_repository_is_not_run(agents, repo, tmp_path, key):
    program, mark = trap(tmp_path)
    git(repo, "config", f"filter.x.{key}", str(program))
    (repo / ".gitattributes").write_text("* filter=x\n")
    (repo / "old.txt").write_text("two\n")
    done = start(agents, repo)
    assert not mark.exists() and done.returncode == 125, done
    assert f"names a program that git would run here: filter.x.{key}" in done.stderr
    program.write_text(f"#!/bin/sh\ntouch {mark}\nexit 1\n")
    tempt(repo)
    assert mark.exists(), "the control"


def test_a_filter_that_the_configuration_includes_only_at_home_is_not_run(agents, repo, tmp_path):
    program, mark = trap(tmp_path)
    (tmp_path / "more").write_text(f"[filter \"x\"]\n\tclean = {program}\n")
    git(repo, "config", "includeIf.gitdir:~/**.path", str(tmp_path / "more"))
    (repo / ".gitattributes").write_text("* filter=x\n")
    (repo / "old.txt").write_text("two\n")
    done = start(agents, repo, env={"HOME": str(repo.parent)})
    assert not mark.exists() and "filter.x.clean" in done.stderr, done


def test_a_filter_of_the_owner_is_used(agents, repo, tmp_path):
    program, mark = trap(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(f"[filter \"x\"]\n\tclean = {program}\n")
    (repo / ".gitattributes").write_text("* filter=x\n")
    (repo / "old.txt").write_text("two\n")
    done = start(agents, repo, env={"HOME": str(home)})
    assert mark.exists() and done.returncode == 3, done


def test_a_filter_of_a_submodule_is_not_run(agents, repo, tmp_path):
    program, mark = trap(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "main")
    (other / "f").write_text("a\n")
    (other / ".gitattributes").write_text("* filter=x\n")
    git(other, "add", "-A")
    git(other, "commit", "-q", "-m", "first")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "s")
    git(repo, "commit", "-q", "-m", "with a submodule")
    git(repo / "s", "config", "filter.x.clean", str(program))
    os.utime(repo / "s/f", (1, 1))
    done = start(agents, repo)
    assert not mark.exists() and done.returncode == 3 and "and submodules stayed out" in done.stderr, done
    tempt(repo)
    assert mark.exists(), "the control"


def test_npm_runs_elsewhere_and_does_not_get_the_keys(agents, repo, tmp_path):
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    npm = bin_dir / "npm"
    npm.write_text(f"#!/bin/sh\n{{ pwd; env; }} >{tmp_path}/seen\nexit 1\n")
    npm.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    (repo / ".npmrc").write_text("registry=http://example.invalid/${OPENAI_API_KEY}/\n")
    agents.carrel("agent", "update", "codex", cwd=repo, env={
        "PATH": f"{bin_dir}:/usr/bin:/bin", "HOME": str(home), "OPENAI_API_KEY": "sk-owner", "npm_config_loglevel": "warn"})
    where, *env = (tmp_path / "seen").read_text().splitlines()
    assert str(repo) not in where and str(home) in where
    names = {line.split("=")[0] for line in env}
    assert "OPENAI_API_KEY" not in names and {"HOME", "PATH", "npm_config_loglevel"} <= names, names


def test_what_a_killed_download_left_is_removed(agents, repo, tmp_path):
    home = tmp_path / "home"
    left = home / ".local/share/carrel-agents/.new-abcdef"
    left.mkdir(parents=True)
    (left / "large").write_text("x")
    other = left.parent / "codex-1"
    other.mkdir()
    agents.carrel("agent", "update", "codex", cwd=repo, env={
        "PATH": "/nonexistent:/usr/bin:/bin", "HOME": str(home), "OPENAI_API_KEY": "sk-owner", "npm_config_registry": "http://127.0.0.1:9/",
        "npm_config_fetch_retries": "0"})
    assert not left.exists() and other.exists()


def test_the_history_of_another_directory_is_named(agents, repo, tmp_path):
    place = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", str(place))
    done = start(agents, place)
    assert done.returncode == 3 and f"the history of the clone comes from {repo}/.git" in done.stderr, done
    assert "the history" not in start(agents, repo).stderr


def test_a_directory_around_the_home_is_not_given(agents):
    home = pathlib.Path(agents.env["HOME"])
    done = start(agents, home.parent)
    assert done.returncode == 125 and ("contains your home" in done.stderr or home.parent == pathlib.Path("/")), done
