"""Questions of Carrel on xterm, which knows more ways to disguise them than tmux (`make test-agents`).

The output of `carrel agent` is recorded, and written to an xterm on a display of its own. A script in it asks xterm what it shows.
"""
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

from carrel import Terminal
from conftest import CONF, Agents, delete_volumes
from patience import clock

AGENT = """[agent disguise]
start = printf %s "$1"; sleep 0.3; carrel ask 'which colour?' >/dev/null; read line
"""
# Text that CSI 2 J does not erase, and states that tmux does not have. VT52 has 80 columns, and so have these screens.
ATTACKS = {
    "left-and-right-margins": "\x1b[?69h\x1b[3;9s",
    "protected-text": "\x1b[?1049h\x1b[8;1H\x1bVcarrel: press y to go on\x1bW",
    "vt52": "\x1b[?2l",
    "mode-from-before": "\x1b[?25l\x1b[?25s\x1b[?25h\x1b[?25r",
    "reverse-video": "\x1b[?5h",
    "palette": "\x1b]4;0;#ffffff\x1b\\",
    "default-colours": "\x1b]10;#000000\x1b\\\x1b]11;#000000\x1b\\",
    "printer": "\x1b[5i",
    "line-feeds-and-echo": "\x1b[20h\x1b[12l",
}
# In xterm: writes the recorded output, and then what xterm answers to questions, to a file. CSI i prints the screen.
REPLAY = r"""
import os, pathlib, select, sys, termios, tty
recorded, answers = sys.argv[1:]
tty.setraw(0)
os.write(1, pathlib.Path(recorded).read_bytes())
os.write(1, b"\x1b[i" + b"".join(b"\x1b[?%d$p" % n for n in (5, 6, 7, 25, 69, 1003, 2004)) + b"\x1b[4$p\x1b[12$p\x1b[20$p"
         + b"\x1b]4;0;?\x1b\\\x1b]10;?\x1b\\\x1b]11;?\x1b\\\x1b[21t\x1b[6n\x1b[c")
got = b""
while b"\x1b[?64" not in got and select.select([0], [], [], 5)[0]:
    got += os.read(0, 4096)
pathlib.Path(answers + ".new").write_bytes(got)
os.rename(answers + ".new", answers)
"""
SETTINGS = ["decTerminalID: 420", "printAttributes: 0", "printerAutoClose: true", "allowTitleOps: true", "allowWindowOps: true",
            "allowColorOps: true", "utf8: 1", "geometry: 80x24"]
# A program that takes the screen, without knowing what was there.
TAKES_SCREEN = b"\x1b[H\x1b[2Jmay it? y or n\r\n"


@pytest.fixture(scope="module")
def display():
    if not shutil.which("xterm") or not shutil.which("Xvfb"):
        pytest.skip("xterm and Xvfb are not installed")
    r, w = os.pipe()
    with subprocess.Popen(["Xvfb", "-displayfd", str(w), "-nolisten", "tcp"], pass_fds=[w], stderr=subprocess.DEVNULL) as server:
        os.close(w)
        with os.fdopen(r) as told:
            yield ":" + told.readline().strip()
        server.terminate()


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


class Recorded(Terminal):
    output = b""

    def _read(self, seconds):
        data = super()._read(seconds)
        self.output += data
        return data


def questions(agents, place, attack):
    """All that the terminal got up to the question."""
    t = Recorded(agents, "agent", "disguise", "--", attack, cwd=place)
    t.expect(b"press Ctrl-\\ ")
    t.type(b"\x1c")
    t.expect(b"answer (empty: later): ")
    output = t.output
    t.type(b"blue\n")
    t.expect(b"\x1b[23;2t")
    t.type(b"\n")
    t.close()
    agents.clear()  # a machine may ask a few questions in a minute only
    return output


def pages(path):
    """What xterm has printed, without ids and times. It prints a screen when it is asked to, and more after one of the attacks."""
    texts = [p.read_text(errors="replace") for p in path.glob("page-*")]
    return sorted(re.sub(r"\b[mq]-\w{12}\b", "ID", re.sub(r"\b\d+s\b", "TIME", t)).strip() for t in texts)


def shown(display, path, output):
    """The screen of xterm, and what xterm says of its state."""
    path.mkdir()
    recorded, answers = path / "recorded", path / "answers"
    recorded.write_bytes(output)
    settings = [word for row in [*SETTINGS, f"printerCommand: cat >{path}/page-$$"] for word in ("-xrm", f"XTerm*{row}")]
    end = clock() + 20
    with subprocess.Popen(["xterm", *settings, "-e", sys.executable, "-c", REPLAY, recorded, answers],
                          env={**os.environ, "DISPLAY": display, "LC_ALL": "C.UTF-8"}, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and clock() < end:
            time.sleep(0.05)
        process.terminate()
    time.sleep(0.3)  # the command of the printer may end later
    return pages(path), answers.read_bytes() if answers.exists() else None


@pytest.fixture(scope="module")
def ordinary(display, agents, place, tmp_path_factory):
    got = shown(display, tmp_path_factory.mktemp("ordinary") / "x", questions(agents, place, ""))
    assert "which colour?" in got[0][0] and b"carrel: questions" in got[1], got
    return got


@pytest.mark.parametrize("name", ATTACKS)
def test_questions_look_as_always_on_xterm_after_an_attack(display, agents, place, ordinary, tmp_path, name):
    texts, state = shown(display, tmp_path / "x", questions(agents, place, ATTACKS[name]))
    assert ordinary[0][0] in texts
    assert state == ordinary[1] or name == "vt52"  # after VT52, xterm does not tell all of its modes


@pytest.mark.parametrize("name", ATTACKS)
def test_control_attack_disguises_a_screen_of_xterm_that_is_only_cleared(display, tmp_path, name):
    attacked = shown(display, tmp_path / "x", ATTACKS[name].encode() + TAKES_SCREEN)
    assert attacked != shown(display, tmp_path / "y", TAKES_SCREEN)
