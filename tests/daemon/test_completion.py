"""Completion: what is offered for a line, and real shells on a real terminal that make use of it."""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

from carrel import BUILD, PROGRAM, Carrel
from daemon import stopped
from patience import PATIENCE, clock


@pytest.fixture(scope="module")
def carrel():
    c = Carrel()
    assert c("new", "--name", "workbench").returncode == 0
    yield c
    c.stop()


@pytest.fixture(scope="module")
def machine(carrel):
    return carrel.machines()[0]


def offered(carrel, line):
    """Words offered for a line; what stands behind its last blank is being typed."""
    done = carrel("completion", "words", *line.split(" "))
    assert (done.returncode, done.stderr) == (0, b""), done
    return [text.split("\t")[0] for text in done.stdout.decode().splitlines()]


@pytest.mark.parametrize("line,wanted", [
    ("pa", ["pause"]),
    ("help re", ["rename", "resume", "rewind"]),
    ("run --ti", ["--timeout"]),
    ("run --timeout 5s --k", ["--keep"]),
    ("run -qe A=b --k", ["--keep"]),
    ("run -qe --k", []),
    ("run ", [":commands"]),
    ("run -- ma", [":commands"]),
    ("run ls --k", [":files"]),
    ("run --dir ", [":files"]),
    ("exec wo", ["workbench"]),
    ("exec -q wo", ["workbench"]),
    ("exec --cwd wo", []),
    ("exec workbench l", [":commands"]),
    ("exec workbench -- l", [":commands"]),
    ("exec workbench -- ls --", [":files"]),
    ("logs workbench --fo", []),
    ("rm a b wo", ["workbench"]),
    ("pause a wo", []),
    ("stats --j", ["--json"]),
    ("cp wo", [":files", "workbench:"]),
    ("cp ./wo", [":files"]),
    ("cp workbench:/et", []),
    ("cp workbench:/etc/hosts ", [":files", "workbench:"]),
    ("cp a b ", []),
    ("net workbench a", ["allow", "ask"]),
    ("net workbench allow --lo", ["--local"]),
    ("token new --scope r", ["read", "run"]),
    ("token ", ["new", "ls", "rm"]),
    ("audit --machine=wo", ["--machine=workbench"]),
    ("audit verify --he", ["--head", "--help"]),
    ("mcp --machine wo", ["workbench"]),
    ("new --idle-action ", ["pause", "stop", "destroy", "release"]),
    ("set --idle-action s", ["stop"]),
    ("set --mem 1G wo", ["workbench"]),
    ("rename wo", ["workbench"]),
    ("rm --al", ["--all"]),
    ("cell r", ["run", "replay"]),
    ("cell run a ", [":files"]),
    ("completion ", ["bash", "zsh"]),
    ("nonesuch ", []),
])
def test_what_is_offered(carrel, line, wanted):
    assert offered(carrel, line) == wanted


def test_every_command_and_option_is_offered(carrel):
    overview = re.findall(r"^  (\S+) +\S", carrel("help").stdout.decode(), re.M)
    assert offered(carrel, "") == overview and len(overview) > 25
    for name in set(overview) - {"cell", "wast", "net"}:
        told = re.findall(r"^  (?:-\S,|   ) (--\S+)", carrel(name, "--help").stdout.decode(), re.M)
        assert set(told) <= set(offered(carrel, name + " -")), name


def test_ids_by_prefix(carrel, machine):
    assert offered(carrel, "show m-") == [machine]
    assert offered(carrel, "show ") == ["workbench"]  # its name says more


def test_no_daemon_is_started_and_nothing_said():
    c = Carrel()
    try:
        assert offered(c, "exec ") == []
        assert not (c.run_dir / "carrel.sock").exists()
    finally:
        c.stop()


def test_a_daemon_that_hangs_is_not_waited_for(carrel):
    pid = int((carrel.run_dir / "carrel.pid").read_text())
    start = time.monotonic()
    with stopped([pid]):
        assert offered(carrel, "cp wo") == [":files"]
    assert time.monotonic() - start < 5 * PATIENCE
    assert offered(carrel, "exec wo") == ["workbench"]


def test_unknown_shells_are_refused(carrel):
    for words, says in ((["fish"], b"unknown shell 'fish'"), ([], b"no shell named")):
        done = carrel("completion", *words)
        assert (done.returncode, done.stderr) == (125, b"carrel: " + says + b": use carrel completion bash, or carrel completion zsh\n")


@pytest.mark.skipif(not shutil.which("meson"), reason="meson, which knows what is installed where, is not here")
def test_it_is_installed_where_shells_look(carrel):
    plan = json.loads(subprocess.check_output(["meson", "introspect", "--installed", str(BUILD)]))
    for shell, place in (("bash", "share/bash-completion/completions/carrel"), ("zsh", "share/zsh/site-functions/_carrel")):
        built = [pathlib.Path(path) for path, target in plan.items() if target.endswith(place)]
        assert [path.read_bytes() for path in built] == [carrel("completion", shell).stdout]


# ---- real shells ----

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"],
             "set +o history; PS1='> '; bind 'set bell-style none'; bind -x '\"\\C-xs\": printf \"<<%s>>\" \"$READLINE_LINE\"'; "
             "source <(carrel completion bash); echo u''p"),
    "zsh": (["zsh", "-f", "-i"],
            "PS1='> '; unsetopt beep zle_bracketed_paste; autoload -U compinit && compinit -u -D; show() { print -rn -- \"<<$BUFFER>>\" }; "
            "zle -N show; bindkey '^Xs' show; source <(carrel completion zsh); echo u''p"),
}


class Shell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, carrel, name, cwd):
        words, prepare = SHELLS[name]
        env = {**carrel.env, "PATH": f"{pathlib.Path(PROGRAM).resolve().parent}:{carrel.env['PATH']}", "TERM": "dumb"}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(words[0], words, env)
        self.text = b""
        self.type(prepare + "\n")
        self.expect(rb"\nup\r?\n")

    def type(self, text):
        os.write(self.fd, text.encode())

    def expect(self, pattern, seconds=20):
        end = clock() + seconds
        while not (found := re.search(pattern, self.text)):
            assert clock() < end, (pattern, self.text)
            if select.select([self.fd], [], [], 0.1)[0]:
                self.text += os.read(self.fd, 65536)
        self.text = self.text[found.end():]
        return found

    def complete(self, line):
        """The line after a Tab."""
        self.type(line + "\t\x18s")
        result = self.expect(rb"<<(.*?)>>").group(1).decode()
        self.type("\x15")
        return result

    def close(self):
        self.type("\x15exit\n")
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture(params=SHELLS)
def shell(request, carrel, tmp_path):
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed here")
    (tmp_path / "word list.txt").touch()
    (tmp_path / "notes").touch()
    s = Shell(carrel, request.param, tmp_path)
    yield s
    s.close()


@pytest.mark.parametrize("typed,wanted", [
    ("carrel compl", "carrel completion "),
    ("carrel run --timeo", "carrel run --timeout "),
    ("carrel exec workb", "carrel exec workbench "),
    ("carrel mcp --machine=wor", "carrel mcp --machine=workbench "),
    ("carrel cp workb", "carrel cp workbench:"),
    ("carrel cp workbench:/etc/hosts not", "carrel cp workbench:/etc/hosts notes "),
    ("carrel cp word", "carrel cp word\\ list.txt "),
    ("carrel run -- ls not", "carrel run -- ls notes "),
    ("carrel serve --conf not", "carrel serve --conf notes "),
])
def test_a_tab_completes_the_line(shell, typed, wanted):
    assert shell.complete(typed) == wanted


def test_ids_complete_in_shells(shell, machine):
    assert shell.complete("carrel show " + machine[:6]) == f"carrel show {machine} "
