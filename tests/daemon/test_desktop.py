"""The desktop of a machine: a real X server in it, real clicks and keys, and servers that lie."""
import re
import threading
import time

import pytest

from daemon import Refused
from patience import PATIENCE
from screens import HONEST, SOCKET, needs_desktop, pixels, server


class Desktop:
    def __init__(self, daemon, machine):
        self.daemon, self.machine = daemon, machine
        self.at = f"/v1/machines/{machine}/desktop"

    def shot(self):
        return self.daemon.request("GET", self.at + "/screenshot", raw=True)

    def act(self, action, **fields):
        return self.daemon.post(self.at + "/input", {"action": action, **fields})

    def sh(self, line, **fields):
        return self.daemon.exec(self.machine, line, **fields)["stdout"]

    def watch_events(self):
        """Starts xev in a window at 100,100 and waits for it; it logs what it gets to /tmp/events."""
        self.daemon.background(self.machine, "DISPLAY=:0 stdbuf -oL xev -geometry 400x300+100+100 >/tmp/events")
        self.daemon.until(lambda: "Expose" in self.sh("cat /tmp/events 2>&1"))
        self.act("click", x=300, y=250)
        self.daemon.until(lambda: "ButtonRelease" in self.sh("cat /tmp/events"))

    def events(self, want, action, **fields):
        """The events of that kind after an action, until the last wanted one is there."""
        before = len(self.sh("cat /tmp/events"))
        self.act(action, **fields)
        new = lambda: self.sh("cat /tmp/events")[before:]
        self.daemon.until(lambda: re.search(want, new(), re.S))
        return new()


def wait_until(condition):
    end = time.monotonic() + 60 * PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture
def desktop(daemon):
    d = Desktop(daemon, daemon.machine())
    assert daemon.post(d.at) == {"width": 1280, "height": 800, "display": ":0"}
    return d


@needs_desktop
def test_a_screenshot_shows_what_a_program_draws(desktop):
    width, height, rows = pixels(desktop.shot())
    assert (width, height) == (1280, 800)
    blue = bytes((0x12, 0x34, 0xde))
    assert not any(blue * 50 in row for row in rows)
    desktop.daemon.background(desktop.machine, "DISPLAY=:0 xmessage -geometry 500x300+50+60 -bg '#1234de' here")
    desktop.daemon.until(lambda: sum(blue * 50 in row for row in pixels(desktop.shot())[2]) > 100)


@needs_desktop
def test_clicks_come_where_they_were_aimed(desktop):
    desktop.watch_events()
    said = desktop.events(r"ButtonRelease.*button 3", "click", x=222, y=234, button="right")
    assert re.search(r"ButtonPress.*root:\(222,234\).*button 3", said, re.S)
    said = desktop.events(r"(ButtonRelease.*){2}", "click", x=230, y=240, count=2)
    assert len(re.findall(r"ButtonPress", said)) == 2
    said = desktop.events(r"ButtonRelease", "click", x=150, y=150, to_x=250, to_y=260)
    assert re.search(r"ButtonPress.*root:\(150,150\).*MotionNotify.*ButtonRelease.*root:\(250,260\)", said, re.S)
    said = desktop.events(r"KeyRelease", "click", x=300, y=250, hold="shift")
    assert re.search(r"KeyPress.*Shift_L.*ButtonPress.*state 0x1,.*KeyRelease", said, re.S)
    said = desktop.events(r"root:\(310,255\)", "move", x=310, y=255)
    assert "ButtonPress" not in said
    for direction, button in ("up", 4), ("down", 5), ("left", 6), ("right", 7):
        said = desktop.events(rf"(ButtonRelease.*button {button},.*){{2}}", "scroll", x=300, y=250, direction=direction, amount=2)
        assert len(re.findall(rf"ButtonPress.*?button {button},", said, re.S)) == 2


@needs_desktop
def test_text_and_keys_come_as_they_were_written(desktop):
    desktop.watch_events()
    last = r"KeyRelease[^\n]*\n[^\n]*\n[^\n]*, {}\)"
    said = desktop.events(last.format("Return"), "type", text='Hi, "Grüße" €~\n')
    keys = re.findall(r"KeyPress event[^\n]*\n[^\n]*\n[^\n]*\(keysym 0x[0-9a-f]+, (\w+)\)", said)
    assert "Caps_Lock" not in keys
    assert [k for k in keys if not k.startswith("Shift")] == [
        "H", "i", "comma", "space", "quotedbl", "G", "r", "udiaeresis", "ssharp", "e", "quotedbl", "space", "U20AC", "asciitilde",
        "Return"]
    said = desktop.events(last.format("F5"), "key", text="ctrl+shift+t F5")
    assert re.findall(r"(Key\w+) event[^\n]*\n[^\n]*\n[^\n]*\(keysym 0x[0-9a-f]+, (\w+)\)", said) == [
        ("KeyPress", "Control_L"), ("KeyPress", "Shift_L"), ("KeyPress", "T"), ("KeyRelease", "T"),
        ("KeyRelease", "Shift_L"), ("KeyRelease", "Control_L"), ("KeyPress", "F5"), ("KeyRelease", "F5")]


@needs_desktop
def test_wrong_actions_are_refused(desktop):
    for action, fields, why in [("click", {}, "both coordinates"), ("click", {"x": 1280, "y": 0}, "outside of the screen"),
                                ("click", {"x": 0, "y": 0, "to_x": 5}, "both coordinates"),
                                ("click", {"x": 0, "y": 0, "hold": "hyper"}, "unknown key 'hyper'"),
                                ("key", {"text": "ctrl+"}, "unknown key"), ("key", {"text": " "}, "needs keys"),
                                ("key", {"text": "a+b+c+d+e+f+g"}, "more than 6 keys"), ("type", {"text": "\x1b"}, "no key types"),
                                ("fly", {}, "must be click"), ("scroll", {"x": 1, "y": 1, "amount": 101}, "between")]:
        with pytest.raises(Refused) as refused:
            desktop.act(action, **fields)
        assert refused.value.code == "invalid" and why in refused.value.error["message"], (action, fields)


@needs_desktop
def test_it_starts_once_and_again_after_its_end(daemon):
    d = Desktop(daemon, daemon.machine())
    shots = []
    threads = [threading.Thread(target=lambda: shots.append(d.shot())) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert [s[:4] for s in shots] == [b"\x89PNG"] * 4
    count = lambda: len([e for e in daemon.get(f"/v1/machines/{d.machine}/execs")["execs"] if e.get("name") == "desktop"])
    assert count() == 1
    d.sh("kill -9 $(cat /tmp/.X0-lock)")
    daemon.until(lambda: not d.sh("ps -e -o comm= | grep tigervnc"))
    assert daemon.post(d.at, {"width": 640, "height": 480})["width"] == 640
    assert count() == 2
    assert daemon.post(d.at, {"width": 800, "height": 600})["width"] == 640, "the size is that of its start"


def test_a_desktop_that_starts_slowly_is_waited_for(daemon):
    """An operation before this one started the command `desktop`, and gave up."""
    machine = daemon.machine()
    program = server(HONEST)
    daemon.background(machine, ["sh", "-c", 'sleep 2; exec "$@"', "sh", *program], name="desktop")
    assert pixels(Desktop(daemon, machine).shot())[:2] == (8, 4)


@needs_desktop
def test_the_command_line(carrel, tmp_path):
    assert carrel("new", "--name", "seen").returncode == 0
    try:
        said = carrel("desktop", "seen", "start", "--size", "640x480")
        assert (said.returncode, said.stderr) == (0, b"carrel: the desktop of machine 'seen' runs: 640x480 pixels, DISPLAY=:0\n")
        said = carrel("desktop", "seen", "screenshot", tmp_path / "a.png")
        assert (said.returncode, said.stderr.decode()) == (0, f"carrel: wrote '{tmp_path}/a.png'\n")
        assert pixels((tmp_path / "a.png").read_bytes())[:2] == pixels(carrel("desktop", "seen", "screenshot", "-").stdout)[:2] == (640, 480)
        carrel("exec", "seen", "--", "sh", "-c", "DISPLAY=:0 stdbuf -oL xev -geometry 400x300+100+100 >/tmp/events 2>&1 &")
        events = lambda: carrel("exec", "seen", "--", "cat", "/tmp/events").stdout.decode()
        wait_until(lambda: "Expose" in events())
        for words in (["click", "200", "210", "--button", "middle"], ["move", "300", "310"], ["scroll", "250", "260", "up", "1"],
                      ["type", "a", "b"], ["key", "shift+F2"]):
            said = carrel("desktop", "seen", *words)
            assert (said.returncode, said.stdout, said.stderr) == (0, b"", b""), words
        wait_until(lambda: ", F2)" in events())
        assert re.search(r"root:\(200,210\).*button 2.*root:\(300,310\).*button 4.*, a\).*, space\).*, b\).*, F2\)", events(), re.S)
        (tmp_path / "kept").write_text("old")
        for words, why in [(["fly"], "unknown subcommand 'fly'"), ([], "requires a subcommand"), (["click", "1"], "takes X Y"),
                           (["click", "-", "1"], "x '-'"), (["start", "--size", "big"], "--size"), (["click", "1", "9999"], "'y'"),
                           (["key", "hyper"], "unknown key 'hyper'"), (["screenshot", tmp_path / "no/where"], "cannot write")]:
            said = carrel("desktop", "seen", *words)
            assert said.returncode != 0 and why in said.stderr.decode(), (words, said.stderr)
        assert carrel("desktop", "none", "screenshot", tmp_path / "kept").returncode != 0
        assert (tmp_path / "kept").read_text() == "old"
    finally:
        carrel("rm", "seen")


@needs_desktop
def test_it_listens_on_no_port_and_has_no_clipboard(desktop):
    assert desktop.sh("cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == \"0A\" {print $2}' | grep -i -E ':(170|177)'") == ""
    options = desktop.sh("tr '\\0' ' ' </proc/$(cat /tmp/.X0-lock | tr -d ' ')/cmdline")
    for option in "-AcceptCutText=0", "-SendCutText=0", "-rfbport -1", "-nolisten tcp":
        assert option in options
    assert desktop.sh(f"stat -c %a {SOCKET}").strip() == "600"


def test_a_machine_without_the_programs_says_what_is_missing(daemon):
    machine = daemon.machine()
    daemon.exec(machine, "rm -f /usr/bin/Xtigervnc", user="root")
    with pytest.raises(Refused) as refused:
        Desktop(daemon, machine).shot()
    assert refused.value.code == "unsupported"
    assert "Xtigervnc" in refused.value.error["message"] and "tigervnc-standalone-server" in refused.value.error["remedy"]


def test_only_those_who_may_run_commands(fresh):
    daemon = fresh("--listen", "127.0.0.1:0")
    machine = daemon.machine()
    reader = daemon.tcp(scopes=["read"])
    for call in (lambda: reader.get(f"/v1/machines/{machine}/desktop/screenshot"),
                 lambda: reader.post(f"/v1/machines/{machine}/desktop/input", {"action": "key", "text": "a"}),
                 lambda: reader.post(f"/v1/machines/{machine}/desktop")):
        with pytest.raises(Refused) as refused:
            call()
        assert refused.value.code == "denied"


LIES = {
    "another protocol": ("c.sendall(b'HTTP/1.1 200 OK\\r\\n\\r\\n')", "another version"),
    "a password": ("c.sendall(b'RFB 003.008\\n'); c.recv(12); c.sendall(b'\\1\\2')", "no password"),
    "a huge screen": ("greet(c, 65535, 65535)", "a size that is not supported"),
    "pixels outside": ("greet(c)\nc.sendall(b'\\0\\0\\0\\1' + rect(1, 0, 8, 4) + bytes(128))", "outside of the screen"),
    "another encoding": ("greet(c)\nc.sendall(b'\\0\\0\\0\\1' + rect(0, 0, 8, 4, 16) + bytes(128))", "an encoding"),
    "a huge clipboard": ("greet(c)\nc.sendall(b'\\3\\0\\0\\0\\xff\\xff\\xff\\xff')", "clipboard"),
    "no end": ("greet(c)\nwhile True:\n    c.sendall(bytes([2]) * 65536)", "more than was asked for"),
    "an early end": ("greet(c)\nc.shutdown(2)", "closed the connection"),
}


@pytest.mark.parametrize("lie", [None, *LIES])
def test_a_server_that_lies_is_refused(daemon, lie):
    """Its control tells the truth in the same way."""
    d = Desktop(daemon, daemon.machine())
    script, why = LIES[lie] if lie else (HONEST, None)
    daemon.background(d.machine, server(script))
    daemon.until(lambda: d.sh(f"test -S {SOCKET} && echo yes"))
    if lie:
        with pytest.raises(Refused) as refused:
            d.shot()
        assert why in refused.value.error["message"]
    else:
        assert pixels(d.shot()) == (8, 4, [bytes((0x10, 0x20, 0x30)) * 8] * 4)
    assert daemon.exec(d.machine, "echo on")["stdout"] == "on\n"
