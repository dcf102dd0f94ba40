"""Requests and questions that wait while an agent has the terminal: the notice, and answers at the same terminal."""
import http.server
import threading

import pytest

from conftest import CONF, Agents, delete_volumes
from test_flow import LEAVE

KEY = b"\x1c"
NOTICE = b"1 request waits for your answer: press Ctrl-\\"
ALTERNATE, ORDINARY = b"\x1b[?1049h", b"\x1b[?1049l"
BACK = b"Ctrl-C returns to agent"


@pytest.fixture(scope="module")
def named_session(tmp_path_factory):
    """A daemon that gives the loopback address a name, by which machines can reach a server of the test."""
    hosts = tmp_path_factory.mktemp("names") / "hosts"
    hosts.write_text("127.0.0.1 here.test\n")
    d = Agents(conf=f"{CONF}[gate]\nhosts = {hosts}\n")
    yield d
    d.stop()


@pytest.fixture
def named(named_session):
    yield named_session
    named_session.clear()
    delete_volumes(named_session)


@pytest.fixture
def server():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "6")
            self.end_headers()
            self.wfile.write(b"served")

        def log_message(self, *args):
            pass

    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    s.asked = []
    thread = threading.Thread(target=s.serve_forever)
    thread.start()
    yield s
    s.shutdown()
    thread.join()
    s.server_close()


def finish(t):
    t.type(b"\n")
    return t.close()


def test_question_of_the_agent_is_answered_at_its_terminal(agents, folder):
    t = agents.terminal("agent", "asker", cwd=folder)
    t.expect(b"to answer its requests, press Ctrl-\\")
    t.expect(b"begun")
    assert b"\a\x1b]9;carrel: something waits for your answer\a" in t.expect(NOTICE)
    t.type(KEY)
    t.expect(ALTERNATE)
    t.expect(b"which colour?")
    t.expect(b"answer (empty: later): ")
    t.type(b"blue\n")
    t.expect(ORDINARY)
    t.expect(b"told blue")
    t.type(b"on\n")
    t.expect(b"read on")
    assert b"changed nothing" in t.close()[1]


def request(agents, folder, server):
    """An agent whose request is held, at the question whether to approve it."""
    url = f"http://here.test:{server.server_address[1]}"
    t = agents.terminal("agent", "caller", "--net", f"ask:{url},local", "--", f"{url}/x", cwd=folder)
    t.expect(NOTICE)
    assert server.asked == []
    t.type(KEY)
    t.expect(b"approve it? [y]es, ")
    return t


def test_request_is_approved_at_the_terminal(named, folder, server):
    t = request(named, folder, server)
    t.type(b"y\n")
    t.expect(b"approved request")
    t.expect(b"got served")
    finish(t)
    assert server.asked == ["/x"]


def test_request_is_denied_at_the_terminal(named, folder, server):
    t = request(named, folder, server)
    t.type(b"n\n")
    t.expect(b"denied request")
    assert b"served" not in t.expect(b"status ")
    finish(t)
    assert server.asked == []


def test_interrupt_returns_to_the_agent_and_leaves_the_request_open(named, folder, server):
    t = request(named, folder, server)
    t.type(b"\x03")
    t.expect(ORDINARY)
    t.expect(NOTICE)
    t.type(KEY)
    t.expect(b"approve it? [y]es, ")
    t.type(b"y\n")
    t.expect(b"got served")  # the interrupt did not reach the agent
    finish(t)


def test_key_without_anything_that_waits_says_so(agents, folder):
    t = agents.terminal("agent", "idle", cwd=folder)
    t.expect(b"mark=")
    t.type(KEY)
    t.expect(b"no request and no question waits for you")
    t.type(b"\n")
    t.expect(ORDINARY)
    assert b"changed nothing" in finish(t)[1]


def test_full_screen_agent_gets_its_modes_back_and_draws_again(agents, folder):
    t = agents.terminal("agent", "screen", cwd=folder)
    t.expect(b"drawn")
    t.type(KEY)
    before = t.expect(BACK)
    for off in (b"\x1b[?1000l", b"\x1b[?2004l", b"\x1b[?25h", b"\x1b[>4;0m"):
        assert off in before, before
    assert ALTERNATE not in before  # it is on this screen already
    t.type(b"\n")
    after = t.expect(b"redrawn")
    for on in (b"\x1b[?1000h", b"\x1b[?2004h", b"\x1b[?25l", b"\x1b[>4;2m"):
        assert on in after, after
    assert ORDINARY not in after
    finish(t)


def test_key_within_pasted_text_goes_to_the_agent(agents, folder):
    t = agents.terminal("agent", "keys", cwd=folder)
    t.expect(b"begun")
    t.type(b"a" + KEY + b"y\r")
    shown = t.expect(b"79 0d")
    assert b"61 1c" in shown and BACK not in shown, shown
    assert b"changed nothing" in t.close()[1]


@pytest.mark.parametrize("keys", [LEAVE, b"\x1b[93;5u" * 3, b"\x1b[93;5:1u\x1b[93;5:3u" * 3, b"\x1b[27;5;93~" * 3])
def test_keys_to_leave_are_known_in_every_form(agents, folder, keys):
    """Agents switch a terminal to another form of keys (CSI u, modifyOtherKeys)."""
    t = agents.terminal("agent", "idle", cwd=folder)
    t.expect(b"mark=")
    t.type(keys)
    assert b"the agent continues" in t.close()[1]


def test_shell_gets_an_ordinary_terminal_when_the_agent_is_left(agents, folder):
    t = agents.terminal("agent", "screen", cwd=folder)
    t.expect(b"drawn")
    t.type(LEAVE)
    rest = t.close()[1]
    for off in (b"\x1b[?1000l", b"\x1b[?2004l", b"\x1b[?25h", b"\x1b[>4;0m", ORDINARY):
        assert off in rest, rest
    assert b"the agent continues" in rest.partition(ORDINARY)[2]


def test_key_in_the_form_of_newer_terminals_opens_the_questions(agents, folder):
    t = agents.terminal("agent", "idle", cwd=folder)
    t.expect(b"mark=")
    t.type(b"\x1b[92;5u")
    t.expect(BACK)
    t.type(b"\n")
    t.expect(ORDINARY)
    finish(t)


def test_notice_comes_after_a_restart_of_the_daemon(agents, folder):
    t = agents.terminal("agent", "later", cwd=folder, env={"CARREL_WAIT": "30"})
    t.expect(b"begun")
    agents.restart()
    t.type(b"now\n")
    t.expect(NOTICE, seconds=40)
    t.type(KEY)
    t.expect(b"answer (empty: later): ")
    t.type(b"green\n")
    t.expect(b"told green")
    finish(t)
