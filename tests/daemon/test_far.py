"""`carrel` with a daemon elsewhere: CARREL_URL and CARREL_TOKEN, no descriptor to hand over."""
import json
import os
import subprocess

import pytest

from carrel import PROGRAM, Terminal
from daemon import Daemon
from test_cli import test_exec_hands_its_streams_through, test_how_exec_ends, test_signals_reach_the_command  # noqa: F401


class Far:
    """The command line of somebody who has nothing but an address and a token."""

    def __init__(self, daemon):
        secret = daemon.post("/v1/tokens", {"owner": "far", "scopes": ["read", "run"]})["secret"]
        self.daemon = daemon
        self.env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8", "CARREL_RUN": str(daemon.dir / "none"),
                    "CARREL_URL": f"http://127.0.0.1:{daemon.port}", "CARREL_TOKEN": secret}

    def popen(self, *args, env=(), **kw):
        return subprocess.Popen([PROGRAM, *args], env={**self.env, **dict(env)}, **kw)

    def __call__(self, *args, stdin=None):
        given = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run([PROGRAM, *args], env=self.env, capture_output=True, timeout=60, **given)


@pytest.fixture(scope="module")
def far():
    d = Daemon("--listen", "127.0.0.1:0")
    yield Far(d)
    d.stop()


@pytest.fixture
def carrel(far):
    """What test_cli.py promises holds here too: its tests are imported."""
    return far


@pytest.fixture
def machine(far):
    done = far("new", "--name", "tour")
    assert done.returncode == 0, done
    yield done.stdout.decode().strip()
    far("rm", "tour")


def test_run_makes_a_machine_that_ends_with_it(far):
    done = far("run", "-q", "--", "sh", "-c", "echo here; exit 3")
    assert (done.stdout, done.returncode) == (b"here\n", 3), done
    far.daemon.until(lambda: far.daemon.machines() == [])


def test_much_comes_whole_both_ways(far, machine):
    data = os.urandom(3 << 20)
    done = far("exec", "tour", "--", "cat", stdin=data)
    assert done.returncode == 0 and done.stdout == data, (done.returncode, len(done.stdout), done.stderr)


def test_input_that_nobody_reads_holds_up_nothing(far, machine):
    done = far("exec", "tour", "--", "sh", "-c", "echo said; sleep 0.2; exit 5", stdin=bytes(1 << 20))
    assert (done.stdout, done.returncode) == (b"said\n", 5), done


def test_a_reader_that_leaves_ends_the_command(far, machine):
    p = far.popen("exec", "tour", "--", "sh", "-c", "while echo y; do sleep 0.01; done", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"y\n"
    p.stdout.close()
    assert p.wait(20) != 0  # the shell, or its echo, was told


def test_the_result_as_json(far, machine):
    done = json.loads(far("exec", "--json", "tour", "--", "sh", "-c", "echo out; echo err >&2").stdout)
    assert (done["stdout"], done["stderr"], done["exit_status"]) == ("out\n", "err\n", 0)


def test_a_terminal(far, machine):
    t = Terminal(far, "exec", "-t", "tour", "--", "sh", "-c", "test -t 0 && stty size; read x; echo got $x", rows=31, cols=97)
    t.expect(b"31 97")
    t.type(b"word\n")
    status, text = t.close()
    assert status == 0 and b"got word" in text


@pytest.mark.parametrize("option,text", [("--dir", b"--dir works"), ("--file", b"--file, --repo and --db work")])
def test_options_that_lend_files_of_this_host_are_refused(far, tmp_path, option, text):
    (tmp_path / "file").write_text("x")
    lent = tmp_path if option == "--dir" else tmp_path / "file"
    done = far("run", option, str(lent), "--", "true")
    remedy = b"create a machine with `carrel new` and copy files with `carrel cp`"
    assert (done.returncode, done.stderr) == (125, b"carrel: " + text + b" only with a daemon on this host: " + remedy + b"\n")


def test_without_a_right_it_is_said(far, machine):
    far.env["CARREL_TOKEN"], kept = "nonsense", far.env["CARREL_TOKEN"]
    done = far("exec", "tour", "--", "true")
    far.env["CARREL_TOKEN"] = kept
    assert done.returncode == 125 and b"token" in done.stderr, done
