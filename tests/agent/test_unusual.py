"""Directories that are not ordinary, and an agent that changes its own program: a defined end, and one clear line."""
import json
import os
import subprocess

import pytest

from carrel import ROOTLESS
from conftest import git
from test_settings import keyed, keyed_session  # noqa: F401 (fixtures)

LFS_STAND_IN = """#!/bin/sh
# clean: content to pointer; smudge: pointer to content.
case $1 in
clean) size=$(wc -c); printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%064d\\nsize %d\\n' 7 "$size" ;;
smudge) cat >/dev/null; echo the content ;;
*) exit 1 ;;
esac
"""


def machine(agents):
    (m,) = json.loads(agents.carrel("agent", "ls", "--json").stdout)["machines"]
    return m["name"]


def test_submodule_stays_out_and_the_rest_is_shipped(agents, repo, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    (other / "inner.txt").write_text("inner\n")
    git(other, "add", "-A")
    git(other, "commit", "-q", "-m", "inner")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "s")
    git(repo, "commit", "-q", "-m", "with a submodule")
    done = agents.carrel("agent", "fake", "-p", "x", cwd=repo)
    assert done.returncode == 3 and "ignored files and submodules stayed out" in done.stderr, done
    inside = agents.carrel("exec", machine(agents), "--", "sh", "-c", "ls s | wc -l; git ls-files -s s").stdout
    assert inside.startswith("0\n160000 "), inside
    shipped = agents.carrel("ship", "-y", "--uncommitted", machine(agents), cwd=repo)
    assert shipped.returncode == 0, shipped
    branch = f"carrel/{machine(agents)}"
    assert git(repo, "show", f"{branch}:once.txt") == "once\n"
    assert git(repo, "rev-parse", f"{branch}:s") == git(repo, "rev-parse", "HEAD:s")
    assert (repo / "s/inner.txt").read_text() == "inner\n"


@pytest.mark.parametrize("is_installed", [False, True])
def test_files_in_git_lfs_are_pointers_in_the_machine(agents, repo, tmp_path, is_installed):
    """With git-lfs the working tree has the content; without it, the pointer. The machine has the pointer both times."""
    programs, home = tmp_path / "programs", tmp_path / "home"
    programs.mkdir()
    home.mkdir()
    env = {"PATH": agents.env["PATH"], "HOME": str(home)}
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{7:064d}\nsize 12\n"
    (repo / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (repo / "big.bin").write_text("the content\n" if is_installed else pointer)
    if is_installed:
        (programs / "git-lfs").write_text(LFS_STAND_IN)
        (programs / "git-lfs").chmod(0o755)
        env["PATH"] = f"{programs}:{env['PATH']}"
        (home / ".gitconfig").write_text('[filter "lfs"]\nclean = git-lfs clean -- %f\nsmudge = git-lfs smudge -- %f\nrequired = true\n')
    for words in (["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "big"]):
        subprocess.run(["git", *words], cwd=repo, check=True, env={**os.environ, **env})
    assert git(repo, "show", "HEAD:big.bin") == pointer
    done = agents.carrel("agent", "fake", "-p", "x", cwd=repo, env=env)
    assert done.returncode == 3 and "files in Git LFS are pointers in the machine" in done.stderr, done
    assert agents.carrel("exec", machine(agents), "--", "cat", "big.bin").stdout == pointer
    shipped = agents.carrel("ship", "-y", "--uncommitted", machine(agents), cwd=repo, env=env)
    assert shipped.returncode == 0, shipped
    assert git(repo, "show", f"carrel/{machine(agents)}:big.bin") == pointer


@pytest.mark.skipif(ROOTLESS, reason="only root mounts")
def test_read_only_mount_is_told_and_ships_nothing(agents, folder):
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        done = agents.carrel("agent", "fake", "-p", "x", cwd=folder)
        assert done.returncode == 3 and "is read-only for you: changes can be reviewed, but not shipped" in done.stderr, done
        shipped = agents.carrel("ship", "-y", machine(agents), cwd=folder)
        assert shipped.returncode == 125 and "read-only file system" in shipped.stderr.lower(), shipped
    finally:
        agents.clear()
        subprocess.run(["umount", folder], check=True)
    assert (folder / "old.txt").read_text() == "one\n" and not (folder / "once.txt").exists()


def test_agent_cannot_change_its_own_program(keyed, folder, tmp_path):  # noqa: F811
    """As an agent that updates itself does. Every machine of the owner uses this program."""
    program = tmp_path / "data/carrel-agents/claude-2.1.325"
    program.mkdir(parents=True)
    script = "#!/bin/sh\necho evil >>/opt/carrel-agent/claude; echo evil >/opt/carrel-agent/new; rm /opt/carrel-agent/claude\n"
    (program / "claude").write_text(script)
    (program / "claude").chmod(0o755)
    done = keyed.carrel("agent", "claude", "-p", "x", cwd=folder, env={"XDG_DATA_HOME": str(tmp_path / "data")})
    assert done.stderr.lower().count("read-only file system") == 3, done
    assert os.listdir(program) == ["claude"] and (program / "claude").read_text() == script
