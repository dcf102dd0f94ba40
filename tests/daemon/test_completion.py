"""Completion: what is offered for a line, and real shells on a real terminal that make use of it."""
import http.server
import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import threading
import time

import pytest

from carrel import BUILD, PROGRAM, TOP, Carrel
from daemon import stopped
from patience import PATIENCE, clock


@pytest.fixture(scope="module")
def carrel():
    c = Carrel()
    try:
        assert c("new", "--name", "workbench", "--net", "deny:one.test").returncode == 0
        assert c("snap", "workbench", "first").returncode == 0
        assert c("secret", "set", "API_KEY", stdin=b"long-enough").returncode == 0
        yield c
    finally:
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
    ("help re", ["rename", "resume", "rewind", "reinstall"]),
    ("run --ti", ["--timeout"]),
    ("run --timeout 5s --k", ["--keep", "--kind"]),
    ("run -qe A=b --k", ["--keep", "--kind"]),
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
    ("token ", ["new", "ls", "show", "rm"]),
    ("audit --machine=wo", ["--machine=workbench"]),
    ("audit --te", ["--text"]),
    ("audit verify --he", ["--head", "--help"]),
    ("mcp --machine wo", ["workbench"]),
    ("new --idle-action ", ["pause", "stop", "destroy", "release"]),
    ("set --idle-action s", ["stop"]),
    ("set --mem 1G wo", ["workbench"]),
    ("rename wo", ["workbench"]),
    ("rm --al", ["--all"]),
    ("cell r", ["run", "replay"]),
    ("cell run a ", [":files"]),
    ("completion ", ["bash", "zsh", "fish"]),
    ("completion f", ["fish"]),
    ("net workbench allow c", ["cargo"]),
    ("net workbench allow apt g", ["go"]),
    ("net workbench show ", []),
    ("run --net np", ["npm"]),
    ("new --net=pi", ["--net=pip"]),
    ("image ", ["ls", "show", "import", "export", "build", "builds", "log", "cancel", "tag", "pull", "push", "rm", "prune", "cache"]),
    ("image import ", [":files"]),
    ("image build ", [":files"]),
    ("image prune ", []),
    ("grant revoke wo", ["workbench"]),
    ("audit verify ", [":files"]),
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


def test_values_of_a_machine_are_offered(carrel):
    steps = [str(step["number"]) for step in json.loads(carrel("steps", "--json", "workbench").stdout)["steps"]]
    assert steps and offered(carrel, "rewind workbench ") == [*steps[:1], "first", *steps[1:]]
    assert offered(carrel, "rewind workbench fi") == ["first"] == offered(carrel, "diff workbench fi")
    assert offered(carrel, "diff workbench first fi") == ["first"]
    assert offered(carrel, "rewind nonesuch ") == []
    rules = [str(rule["id"]) for rule in json.loads(carrel("net", "workbench", "show", "--json").stdout)["rules"]]
    assert rules and offered(carrel, "net workbench rm ") == rules


def test_secrets_are_offered(carrel):
    assert offered(carrel, "secret rm ") == ["API_KEY"]
    assert offered(carrel, "run --secret ") == ["API_KEY@"]
    assert offered(carrel, "run --secret API_KEY@") == []


def test_presets_are_those_of_the_gate(carrel):
    source = (TOP / "src/gate/preset.c").read_text()
    names = re.findall(r'^    \{"(\w+)", "', source, re.M)
    assert offered(carrel, "net workbench allow ") == list(dict.fromkeys(names))


# What another daemon could answer, with names that mean something to a shell or to the scripts.
ANSWERS = {
    "/v1/pending": {"pending": [{"id": "p-aaa", "host": "one.test"}, {"id": "p-bbb", "host": "$(reboot)"}, {"id": "p;reboot"}]},
    "/v1/images": {"images": [{"name": "debian:bookworm", "origin": "import"}, {"name": "build:0123"}, {"name": "own/app"},
                              {"name": ":files"}, {"name": "open:"}, {"name": "-rf"}, {"name": "a b"}, {"name": "`id`"}]},
    "/v1/tokens": {"tokens": [{"id": "t-aaa", "owner": "me"}]},
    "/v1/store/boxes": {"boxes": [{"id": "b-aaa", "store": "s-1"}]},
    "/v1/machines/m/grants": {"grants": [{"id": "g-aaa", "kind": "dir"}]},
}


@pytest.fixture(scope="module")
def elsewhere():
    """The address of a daemon that answers from a table."""
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            body = json.dumps(ANSWERS.get(self.path, {})).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("line,wanted", [
    ("approve ", ["p-aaa", "p-bbb"]),
    ("approve p-aaa p-b", ["p-bbb"]),
    ("deny p-a", ["p-aaa"]),
    ("image rm ", ["debian:bookworm", "own/app"]),
    ("image show deb", ["debian:bookworm"]),
    ("new --image own", ["own/app"]),
    ("run --image=deb", ["--image=debian:bookworm"]),
    ("token rm ", ["t-aaa"]),
    ("store adopt ", ["b-aaa"]),
    ("grant revoke m ", ["g-aaa"]),
])
def test_plain_names_of_a_daemon_are_offered(carrel, elsewhere, line, wanted):
    done = carrel("completion", "words", *line.split(" "), env={"CARREL_URL": elsewhere})
    assert (done.returncode, done.stderr) == (0, b""), done
    assert [text.split("\t")[0] for text in done.stdout.decode().splitlines()] == wanted
    assert b"reboot" not in done.stdout


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
    use = b": use carrel completion bash, zsh or fish\n"
    for words, why in ((["tcsh"], b"unknown shell 'tcsh'"), ([], b"no shell given")):
        done = carrel("completion", *words)
        assert (done.returncode, done.stdout, done.stderr) == (125, b"", b"carrel: " + why + use)


@pytest.mark.skipif(not shutil.which("meson"), reason="meson, which knows what is installed where, is not here")
def test_it_is_installed_where_shells_look(carrel):
    plan = json.loads(subprocess.check_output(["meson", "introspect", "--installed", str(BUILD)]))
    for shell, place in (("bash", "share/bash-completion/completions/carrel"), ("zsh", "share/zsh/site-functions/_carrel"),
                         ("fish", "share/fish/vendor_completions.d/carrel.fish")):
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
    "fish": (["fish", "-i"],
             "function fish_prompt; echo '> '; end; set -g fish_autosuggestion_enabled 0; "
             "bind \\cxs 'printf \"<<%s>>\" (commandline)'; carrel completion fish | source; echo u''p"),
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
        self.expect(rb"(\n|\x1b\[\?2004l)up\r?\n")  # fish switches the pasting of whole lines off first

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
    # Without this folder fish reads all man pages of the host when it starts.
    os.makedirs(f"{carrel.dir}/.local/share/fish/generated_completions", exist_ok=True)
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
    ("carrel rewind workbench fir", "carrel rewind workbench first "),
    ("carrel run --secret API", "carrel run --secret API_KEY@"),
    ("carrel net workbench allow car", "carrel net workbench allow cargo "),
])
def test_a_tab_completes_the_line(shell, typed, wanted):
    assert shell.complete(typed) == wanted


def test_ids_complete_in_shells(shell, machine):
    assert shell.complete("carrel show " + machine[:6]) == f"carrel show {machine} "
