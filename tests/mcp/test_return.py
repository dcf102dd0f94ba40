"""`carrel mcp` survives its daemon: the conversation goes on, and no call is left without an answer."""
import os
import pathlib
import signal
import time

import pytest

from carrel import Carrel, alive
from mcp_client import Lines, RpcError
from patience import PATIENCE, clock
from screens import needs_chromium
from test_join import SERVER


@pytest.fixture
def carrel():
    """Its commands start the daemon, first and again."""
    c = Carrel()
    yield c
    c.stop()


@pytest.fixture
def lines(carrel, tmp_path):
    c = Lines(carrel, cwd=tmp_path)
    c.greet()
    yield c
    c.close()


def kill_daemon(c):
    pid = int(pathlib.Path(c.run_dir, "carrel.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    end = clock() + 30
    while alive(pid):
        assert clock() < end, "the daemon does not end"
        time.sleep(0.005)


def ping(lines):
    """A ping that was on its way to the daemon that died is answered with an error. The next one is not."""
    try:
        return lines.ask("ping", seconds=60 * PATIENCE)
    except RpcError as e:
        assert "daemon ended during this call" in str(e)
    return lines.ask("ping", seconds=60 * PATIENCE)


def test_a_conversation_goes_on_with_the_next_daemon(carrel, lines):
    assert lines.call("exec", cmd="echo kept >here; cat here")["stdout"] == "kept\n"
    for _ in range(2):
        kill_daemon(carrel)
        assert ping(lines) == {}
        assert lines.call("exec", cmd="cat here", seconds=60 * PATIENCE)["stdout"] == "kept\n"


def test_calls_under_way_are_answered_with_an_error(carrel, lines):
    lines.call("exec", cmd="true")
    calls = [lines.begin("tools/call", {"name": "exec", "arguments": {"cmd": "sleep 1000"}}) for _ in range(2)]
    assert lines.ask("ping") == {}
    kill_daemon(carrel)
    for number in calls:
        with pytest.raises(RpcError) as e:
            lines.wait(number, 60 * PATIENCE)
        assert "daemon ended during this call" in str(e.value)
    assert lines.ask("tools/list", seconds=60 * PATIENCE)["tools"]


def test_a_message_that_was_half_sent_reaches_the_next_daemon_whole(carrel, lines):
    lines.last += 1
    lines.raw(b'{"jsonrpc":"2.0","id":%d,' % lines.last)
    kill_daemon(carrel)
    lines.raw(b'"method":"ping"}\n')
    assert lines.wait(lines.last, 60 * PATIENCE) == {}


def test_an_interpreter_survives_its_daemon(carrel, lines):
    assert lines.call("python", code="x = 41")["fresh"]
    for i in range(2):
        kill_daemon(carrel)
        assert ping(lines) == {}
        after = lines.call("python", code="x += 1\nx", seconds=60 * PATIENCE)
        assert (after["value"], after["fresh"]) == (str(42 + i), False)


@needs_chromium
def test_a_browser_survives_its_daemon(carrel, lines):
    lines.call("write", path="/tmp/a.html", content="<title>Kept</title>")
    assert lines.call("browser", seconds=60 * PATIENCE, action="open", url="file:///tmp/a.html")["fresh"]
    kill_daemon(carrel)
    assert ping(lines) == {}
    after = lines.call("browser", seconds=60 * PATIENCE, action="read")
    assert (after["title"], after["fresh"]) == ("Kept", False)


def test_a_joined_server_is_started_by_the_next_daemon(carrel, tmp_path):
    (tmp_path / "server.py").write_text(SERVER % "")
    client = Lines(carrel, "--dir", f"{tmp_path}:/srv/it:ro", "--join", "far=python3 /srv/it/server.py", cwd=tmp_path)
    client.greet()
    assert "far__echo" in client.tools() and client.call("far__echo", say="one")["text"] == "one\n"
    kill_daemon(carrel)
    assert ping(client) == {}
    assert client.call("far__echo", say="two", seconds=60 * PATIENCE)["text"] == "two\n"
    client.close()
