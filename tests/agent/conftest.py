"""Agents in machines: one daemon for the suite, and directories for agents to work on."""
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
for path in (HERE.parent, HERE.parent / "daemon", HERE):
    sys.path.insert(0, str(path))

from carrel import PROGRAM, Terminal  # noqa: E402
from daemon import Daemon  # noqa: E402
import patience  # noqa: E402

time_limit = patience.time_limit(180)

# An agent that is a few lines of shell. `start` waits for a line, so a test decides when it ends.
CONF = """[agents]
tokens = 70000
[agent fake]
start = echo "begun task=$task args=$* in $PWD"; echo by-agent >>old.txt; echo new >new.txt; read line; echo "read $line"
once = echo "did $task, $# more"; echo once >once.txt; cat; exit 3
resume = echo "again task=$task"; echo more >>new.txt; read line
env = FAKE_MARK=seven
[agent idle]
start = echo "mark=$FAKE_MARK"; read line
[agent hunks]
start = sed -i '1s/^/first-/;30s/^/last-/' long.txt; rm gone.txt; echo new >new.txt; echo begun; read line
[agent odd]
start = ln -s /etc/passwd a-link; printf 'a\\000b' >b-bytes; chmod +x gone.txt; sed -i '1s/^/x/;30s/^/y/' long.txt; chmod +x long.txt; echo begun; read line
[agent only-once]
once = cat old.txt
[agent homely]
start = read line
once = cat ~/history 2>/dev/null; echo "$task" >>~/history
resume = echo "before: $(cat ~/history)"; read line
[agent project]
start = echo "mark=$PROJECT_MARK setup=$([ -e ~/was-set-up ] && echo yes || echo no)"; read line
once = echo "task=$task mark=$PROJECT_MARK setup=$([ -e ~/was-set-up ] && echo yes || echo no)"; cat ~/notes.md 2>/dev/null; cat
[agent asker]
start = echo begun; echo "told $(carrel ask 'which colour?')"; read line; echo "read $line"
[agent later]
start = echo begun; read line; echo "told $(carrel ask 'which colour?')"; read line
[agent caller]
start = echo begun; echo "got $(curl -sS --max-time 60 "$1")"; echo "status $?"; read line
[agent screen]
start = trap 'echo redrawn' WINCH; printf '\\033[?1049h\\033[?1000;2004h\\033[?25l\\033[>4;2m'; echo drawn; until read line; do :; done
[agent keys]
start = stty raw -echo; echo begun; dd bs=1 count=4 2>/dev/null | od -An -tx1; stty sane
[agent other]
once = cat ~/history 2>/dev/null; echo "$task" >>~/history
"""


class Agents(Daemon):
    """A daemon with agents of its own in carrel.conf, and the command line beside it."""

    def __init__(self, conf=CONF):
        super().__init__(conf=conf)

    def popen(self, *words, env=(), **kw):
        return subprocess.Popen([PROGRAM, *map(str, words)], env={**self.env, **dict(env)}, **kw)

    def carrel(self, *words, cwd=None, env=(), stdin="", **kw):
        return subprocess.run([PROGRAM, *map(str, words)], env={**self.env, **dict(env)}, cwd=cwd, capture_output=True, text=True,
                              input=stdin, timeout=100 * patience.PATIENCE, **kw)

    def terminal(self, *words, cwd, env=()):
        return Terminal(self, *words, cwd=cwd, env=env, cols=200)


@pytest.fixture(scope="session")
def agents_session():
    d = Agents()
    yield d
    d.stop()


def delete_volumes(d):
    for volume in d.get("/v1/volumes")["volumes"]:
        d.delete(f"/v1/volumes/{volume['name']}")


@pytest.fixture
def agents(agents_session):
    yield agents_session
    agents_session.clear()
    delete_volumes(agents_session)
    assert agents_session.host.left_of_boxes() == []


def git(where, *words):
    return subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *words], cwd=where, check=True,
                          capture_output=True, text=True).stdout


@pytest.fixture
def repo(tmp_path):
    """A repository with a commit, a changed file, an untracked one and an ignored one."""
    top = tmp_path / "proj"
    top.mkdir()
    git(top, "init", "-q", "-b", "main")
    (top / "old.txt").write_text("one\n")
    (top / ".gitignore").write_text("*.log\n")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "first")
    (top / "untracked.txt").write_text("u\n")
    (top / "secret.log").write_text("ignored\n")
    return top


@pytest.fixture
def folder(tmp_path):
    top = tmp_path / "plain"
    top.mkdir()
    (top / "old.txt").write_text("one\n")
    return top
