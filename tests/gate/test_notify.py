"""[notify]: a command and a webhook hear of requests that wait."""
import http.server
import json
import os
import subprocess
import threading

import pytest

from carrel import PROGRAM
from daemon import Daemon


class Receiver:
    """A webhook that refuses the first calls with status 500, as many as asked for."""

    def __init__(self, refuse=0):
        self.got, self.refused, receiver = [], 0, self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.refused < refuse:
                    receiver.refused += 1
                    self.send_response(500)
                else:
                    receiver.got.append((self.path, self.headers["Content-Type"], json.loads(body)))
                    self.send_response(204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def notified(tmp_path):
    ends = []

    def start(conf):
        (tmp_path / "hosts").write_text("127.0.0.1 ok.test\n")
        d = Daemon(conf=f"[gate]\nhosts = {tmp_path}/hosts\n{conf}")
        ends.append(d)
        return d
    yield start
    for d in ends:
        d.stop()


@pytest.fixture
def receiver():
    made = []

    def start(refuse=0):
        made.append(Receiver(refuse))
        return made[-1]
    yield start
    for r in made:
        r.end()


def script(folder, text):
    path = folder / "tell"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def held(daemon):
    m = daemon.machine(net=[{"target": "http://ok.test:9", "action": "ask", "local": True}])
    daemon.background(m, ["curl", "-sS", "--max-time", "60", "http://ok.test:9/please"])
    daemon.until(lambda: daemon.get("/v1/pending")["pending"])
    return m


def test_a_command_gets_the_event_and_nothing_else(notified, tmp_path):
    told = tmp_path / "told"
    d = notified(f"[notify]\ncommand = {script(tmp_path, f'cat >>{told}; echo >>{told}; env >{tmp_path}/env')}\n")
    m = held(d)
    d.until(lambda: told.exists() and told.read_text().endswith("\n"))
    event, = [json.loads(line) for line in told.read_text().splitlines()]
    assert event["type"] == "net.held" and event["machine"] == m and event["detail"]["path"] == "/please"
    d.until(lambda: (tmp_path / "env").exists())
    assert {line.split("=")[0] for line in (tmp_path / "env").read_text().splitlines()} <= {"PWD", "_", "SHLVL", "OLDPWD"}


def test_a_webhook_gets_the_event_and_is_called_again(notified, receiver):
    r = receiver(refuse=2)
    d = notified(f"[notify]\nwebhook = http://127.0.0.1:{r.port}/hook\n")
    m = held(d)
    d.until(lambda: r.got)
    (path, kind, event), = r.got
    assert (path, kind, event["type"], event["machine"]) == ("/hook", "application/json", "net.held", m) and r.refused == 2


def test_only_the_types_that_were_asked_for_are_sent_and_in_order(notified, receiver):
    r = receiver()
    d = notified(f"[notify]\nwebhook = http://127.0.0.1:{r.port}/\nevents = exec.ended,machine.ended\n")
    m = d.machine()
    for status in range(5):
        d.exec(m, f"exit {status}")
    d.delete(f"/v1/machines/{m}")
    d.until(lambda: len(r.got) == 6)
    assert [e[2]["detail"].get("status") for e in r.got] == [0, 1, 2, 3, 4, None]


def test_one_receiver_that_fails_does_not_hold_up_the_other(notified, receiver, tmp_path):
    r = receiver()
    d = notified(f"[notify]\ncommand = {tmp_path}/none\nwebhook = http://127.0.0.1:{r.port}/\nevents = machine.created\n")
    d.machine()
    d.machine()
    d.until(lambda: len(r.got) == 2)
    assert d.exec(d.machine(), "echo works")["stdout"] == "works\n"


def test_a_webhook_that_is_no_url_is_refused_at_the_start(tmp_path):
    (tmp_path / "conf").write_text("[notify]\nwebhook = ftp://x/\n")
    env = dict(os.environ, CARREL_RUN=str(tmp_path / "run"), CARREL_HOME=str(tmp_path / "home"))
    done = subprocess.run([PROGRAM, "serve", "--conf", str(tmp_path / "conf")], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "key 'webhook' of section [notify] is not a URL" in done.stderr, done
