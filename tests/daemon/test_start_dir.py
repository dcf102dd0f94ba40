"""Commands start in the directory or repository that their machine was made with, the same way for every command."""
import json
import re
import signal
import subprocess

import pytest

from carrel import Terminal, stop_daemon


@pytest.fixture
def host(tmp_path):
    """Two directories and a repository."""
    for name in "b-first", "a-second", "repo":
        (tmp_path / name).mkdir()
    git = lambda *words: subprocess.run(["git", "-C", tmp_path / "repo", "-c", "user.name=n", "-c", "user.email=n@example.com", *words], check=True)
    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "first")
    return tmp_path


def new(carrel, *options):
    done = carrel("new", *options)
    assert done.returncode == 0, done
    return done.stdout.decode().strip()


def pwd(carrel, machine, *options):
    done = carrel("exec", *options, machine, "--", "pwd")
    assert done.returncode == 0, done
    there = done.stdout.decode().strip()
    assert options or there == json.loads(carrel("show", "--json", machine).stdout)["cwd"]
    return there


def test_commands_start_in_the_first_directory_also_after_a_restart_and_in_forks(carrel, host):
    first, second = host / "b-first", host / "a-second"
    m = new(carrel, "--dir", first, "--dir", second, "--repo", host / "repo")
    assert pwd(carrel, m) == str(first)
    assert pwd(carrel, m, "-w", "/tmp") == "/tmp"
    stop_daemon(carrel.run_dir)
    assert pwd(carrel, m) == str(first)
    carrel("rm", m)


def test_commands_start_in_the_repository(carrel, host):
    m = new(carrel, "--repo", host / "repo")
    assert pwd(carrel, m) == "/home/user/repo"
    assert carrel("exec", m, "--", "git", "log", "--format=%s").stdout == b"first\n"
    fork = carrel("fork", m).stdout.decode().strip()
    assert pwd(carrel, fork) == "/home/user/repo"
    stop_daemon(carrel.run_dir)
    assert pwd(carrel, m) == "/home/user/repo"
    terminal = Terminal(carrel, "sh", m)
    terminal.type(b"pwd; exit\n")
    terminal.expect(b"\r/home/user/repo\r\n")
    terminal.close()
    carrel("rm", m, fork)


def test_run_starts_in_the_directory_or_repository(carrel, host):
    assert carrel.run("--dir", host / "b-first", "--", "pwd").stdout.decode() == f"{host}/b-first\n"
    assert carrel.run("--dir", f"{host}/b-first:/srv/there:ro", "--", "pwd").stdout == b"/srv/there\n"
    assert carrel.run("--repo", host / "repo", "--", "pwd").stdout == b"/home/user/repo\n"
    assert carrel.run("--dir", host / "b-first", "--dir", host / "a-second", "--", "pwd", cwd=host / "a-second").stdout.decode() \
        == f"{host}/a-second\n", "the directory in which the command was typed"
    assert carrel.run("--", "pwd").stdout == b"/home/user\n"


def test_commands_start_at_home_once_the_start_directory_is_revoked(carrel, host):
    m = new(carrel, "--dir", host / "b-first", "--repo", host / "repo")
    row = next(line for line in carrel("grants", m).stdout.decode().splitlines() if "b-first" in line)
    assert carrel("grant", "revoke", m, row.split()[0]).returncode == 0
    assert pwd(carrel, m) == "/home/user"
    carrel("rm", m)


def test_the_help_of_idle_action_names_the_real_default(carrel):
    default = re.search(r"--idle-action .*\n.*\(default: (\w+)", carrel("new", "--help").stdout.decode())[1]
    m = new(carrel, "--idle", "1h")
    shown = carrel("show", m).stdout.decode()
    assert re.search(r"idle_action +(\w+)", shown)[1] == default, (shown, default)
    carrel("rm", m)


def test_a_secret_typed_on_a_terminal_is_not_shown_and_ends_at_enter(carrel):
    terminal = Terminal(carrel, "secret", "set", "TYPED")
    terminal.expect(b"secret (not shown, end with Enter): ")
    terminal.type(b"hunter22\n")
    status, text = terminal.close()
    assert status == 0 and b"hunter22" not in text and terminal.after == terminal.before, text
    assert "TYPED" in carrel("secret", "ls", "-q").stdout.decode().split()


def test_an_interrupted_secret_leaves_the_terminal_as_it_was(carrel):
    terminal = Terminal(carrel, "secret", "set", "NEVER")
    terminal.expect(b"end with Enter): ")
    terminal.type(b"half\x03")
    status, text = terminal.close()
    assert status == -signal.SIGINT and b"half" not in text and terminal.after == terminal.before, (status, text)
    assert "NEVER" not in carrel("secret", "ls", "-q").stdout.decode().split()
