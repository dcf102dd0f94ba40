"""Output of an agent cannot disguise the questions of Carrel on the same terminal. tmux is the terminal, and says what it shows.

After an attack text is hidden, garbled or moved, or the terminal looks or behaves otherwise. Its control is a program that clears the
screen before it writes, as programs do: it is disguised.
"""
import json
import re
import subprocess
import time

import pytest

from carrel import PROGRAM
from conftest import CONF, Agents, delete_volumes
from patience import clock

# It writes its argument, and asks when that has reached the terminal.
AGENT = """[agent disguise]
start = printf %s "$1"; sleep 0.3; carrel ask 'which colour?' >/dev/null; read line
"""
ATTACKS = {
    "scroll-region": "\x1b[20;22r",
    "origin": "\x1b[20;22r\x1b[?6h",
    "line-drawing": "\x1b(0",
    "second-set-of-characters": "\x1b)0\x0e",
    "hidden-cursor": "\x1b[?25l",
    "no-wrapping": "\x1b[?7l",
    "insertion": "\x1b[4h",
    "invisible-text": "\x1b[8m",
    "black-on-black": "\x1b[30;40m",
    "default-colours": "\x1b]10;#000000\x1b\\\x1b]11;#000000\x1b\\",
    "mouse": "\x1b[?1003h\x1b[?1006h",
    "keypad": "\x1b=\x1b[?1h",
    "title": "\x1b]2;nothing to see\x1b\\",
}
FLAGS = ["cursor_flag", "insert_flag", "origin_flag", "wrap_flag", "keypad_flag", "keypad_cursor_flag", "mouse_any_flag",
         "mouse_sgr_flag", "scroll_region_upper", "scroll_region_lower"]
SHOWN = [*FLAGS, "cursor_x", "cursor_y", "pane_fg", "pane_bg", "pane_title"]
# A program that takes the screen, without knowing what was there.
TAKES_SCREEN = r'''printf %s "$1"; printf '\033[?1049h\033[H\033[2Jmay it? y or n\n%0200d' 7; sleep 600'''


class Screen:
    """A command on a terminal of tmux, in a server of its own."""

    def __init__(self, folder, path, *words, env=()):
        self.socket, self.env = str(path / "tmux"), {"TERM": "xterm", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin", **dict(env)}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "24", "-c", str(folder), *map(str, words))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], stderr=subprocess.DEVNULL)

    def tmux(self, *words):
        return subprocess.run(["tmux", "-S", self.socket, *words], env=self.env, check=True, capture_output=True, text=True).stdout

    def state(self, names=SHOWN):
        answers = self.tmux("display-message", "-p", "\n".join(f"#{{{name}}}" for name in names)).split("\n")
        return dict(zip(names, answers))

    def wait(self, is_there):
        end = clock() + 20
        while not is_there():
            assert clock() < end, self.shown()
            time.sleep(0.05)

    def has(self, text):
        return text in self.tmux("capture-pane", "-p")

    def has_ended(self):
        """tmux ends with its last command."""
        return subprocess.run(["tmux", "-S", self.socket, "has-session"], capture_output=True).returncode != 0

    def shown(self):
        """Rows with their colours, without ids and times, and what the terminal says of itself."""
        rows = self.tmux("capture-pane", "-p", "-e").rstrip("\n")
        return re.sub(r"\b[mq]-\w{12}\b", "ID", re.sub(r"\b\d+s\b", "TIME", rows)), self.state()


@pytest.fixture(scope="module")
def agents():
    d = Agents(conf=CONF + AGENT)
    yield d
    d.clear()
    delete_volumes(d)
    d.stop()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("place")


def waiting(agents):
    return json.loads(agents.carrel("pending", "--json").stdout)["pending"]


def questions(agents, place, path, attack):
    """Returns the screen with the question, and the state of the terminal before it and after the answer."""
    with Screen(place, path, PROGRAM, "agent", "disguise", "--", attack, env=agents.env) as s:
        s.wait(lambda: waiting(agents))
        before = s.state(FLAGS)
        s.tmux("send-keys", "C-\\")
        s.wait(lambda: s.has("answer (empty: later):"))
        shown = s.shown()
        s.tmux("send-keys", "blue", "Enter")
        s.wait(lambda: not waiting(agents) and not s.has("which colour?"))
        after = s.state(FLAGS)
        s.tmux("send-keys", "Enter")
        s.wait(s.has_ended)
    agents.clear()  # a machine may ask a few questions in a minute only
    return shown, before, after


@pytest.fixture(scope="module")
def ordinary(agents, place, tmp_path_factory):
    shown, before, after = questions(agents, place, tmp_path_factory.mktemp("ordinary"), "")
    assert "which colour?" in shown[0] and shown[1]["pane_title"] == "carrel: questions" and before == after
    return shown


@pytest.mark.parametrize("name", ATTACKS)
def test_questions_look_as_always_after_an_attack(agents, place, ordinary, tmp_path, name):
    shown, before, after = questions(agents, place, tmp_path, ATTACKS[name])
    assert shown == ordinary
    assert before == after  # the agent has its modes again


def taken(place, path, attack):
    with Screen(place, path, "sh", "-c", TAKES_SCREEN, "sh", attack) as s:
        s.wait(lambda: s.state(["alternate_on"]) == {"alternate_on": "1"} and s.state()["cursor_x"] != "0")
        return s.shown()


@pytest.mark.parametrize("name", ATTACKS)
def test_control_attack_disguises_a_screen_that_is_only_cleared(place, tmp_path, name):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    assert taken(place, first, ATTACKS[name]) != taken(place, second, "")
