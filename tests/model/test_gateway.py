"""Models for those inside a machine: the vendors' clients and ours, through the gateway, to a rehearsal."""
import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from conftest import HERE, MODELS, ask, environment
from test_sdks import FORMATS, STORY, converse, packages  # noqa: F401 (a fixture)

OWNER = "key-of-the-owner"
CONF = """[models]
provider = a format=anthropic url=http://127.0.0.1:{port} key_env=OWNER_KEY
provider = c format=chat url=http://127.0.0.1:{port}/v1 key_env=OWNER_KEY
provider = r format=responses url=http://127.0.0.1:{port}/v1 key_env=OWNER_KEY
model = m in=3 out=15 window=20000
model = free-* in=0 out=0
"""


class Gateway:
    def __init__(self, where, port, tokens=0, micro=0, conf=CONF):
        where.mkdir(exist_ok=True)
        (where / "carrel.conf").write_text(conf.format(port=port))
        self.process = subprocess.Popen([HERE / "gateway-server", where / "carrel.conf", where / "home", str(tokens), str(micro)],
                                        env=dict(environment(port, key=None), OWNER_KEY=OWNER), stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def end(self):
        """What the machine has spent."""
        self.process.terminate()
        out, _ = self.process.communicate(timeout=20)
        assert self.process.returncode == 0
        return json.loads(out)

    def post(self, path, body, **fields):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        c.request("POST", path, body if isinstance(body, (str, bytes)) else json.dumps(body), {"Content-Type": "application/json", **fields})
        answer = c.getresponse()
        return answer.status, answer.read(), answer


@pytest.fixture
def gate(serve, tmp_path):
    made = []

    def make(turns, **budget):
        made.append(Gateway(tmp_path / f"gw{len(made)}", serve(turns, OWNER), **budget))
        return made[-1]

    yield make
    for g in made:
        if g.process.poll() is None:
            g.process.kill()
            g.process.communicate()


@pytest.mark.parametrize("form", FORMATS)
def test_the_vendors_clients_work_unchanged(gate, packages, form):  # noqa: F811
    g = gate(STORY, micro=10**6)
    seen = converse(packages, form, g.port, key="whatever the machine has")
    assert "error" not in seen and [t["text"] for t in seen["turns"]] == ["I look. é ✓", "", "Done."], seen
    assert [t["out"] for t in seen["turns"]] == [33, 44, 55]
    spent = g.end()
    assert spent == {"tokens": 30 + 132, "micro": 30 * 3 + 132 * 15, "held": 0, "calls": 3}


@pytest.mark.parametrize("form", FORMATS)
def test_a_budget_that_is_used_up_is_a_clear_error(gate, packages, form):  # noqa: F811
    g = gate(STORY, tokens=300)
    seen = converse(packages, form, g.port)
    # Codex repeats a call that was answered with 402.
    assert seen["error"]["status"] == (400 if form == "responses" else 402), seen
    assert re.search(r"budget 300 tokens, spent 0, this call may take [\d,]+: carrel models raise m --tokens \d+", seen["error"]["message"]), seen
    assert g.end()["calls"] == 0


@pytest.mark.parametrize("stream", [1, 0])
@pytest.mark.parametrize("model", MODELS)
def test_our_client_works_through_it(gate, model, stream):
    g = gate([dict(STORY[0]), {"turn": 1, "say": "done", "usage": {"in": 5, "out": 5}}])
    lines = ask(model, g.port, stream=stream)
    assert [line["event"] for line in lines] == ["answer", "answer"], lines
    assert g.end()["tokens"] == 43 + 10


@pytest.mark.parametrize("model", MODELS)
def test_faults_of_the_provider_are_the_clients_to_handle(gate, model):
    g = gate([{"turn": 0, "fault": {"kind": "status", "status": 429, "retry_after_ms": 25, "times": 1}, "say": "x", "usage": {"in": 1, "out": 1}}])
    lines = ask(model, g.port)
    assert [line["event"] for line in lines] == ["retry", "answer"] and lines[0]["wait_ms"] == 25
    assert g.end()["tokens"] == 2
    for kind in ("cut", "error", "reset", "garbage"):
        g = gate([{"turn": 0, "fault": {"kind": kind, "times": 1}, "say": "x" * 300, "usage": {"in": 1, "out": 1}}])
        lines = ask(model, g.port)
        assert [line["event"] for line in lines] == ["retry", "answer"], (kind, lines)
        spent = g.end()
        # The answer that was cut costs what arrived of it, or the estimate if nothing did.
        assert 2 < spent["tokens"] < 1500 and spent["held"] == 0 and spent["calls"] == 2, (kind, spent)


BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_limits_and_usage_are_asked_for_where_the_client_did_not(gate):
    g = gate([{"say": "x", "usage": {"in": 7, "out": 3}}], tokens=20000)
    status, body, _ = g.post("/v1/chat/completions", dict(BODY, stream=True))
    assert status == 200 and b"[DONE]" in body and b"prompt_tokens" not in body
    assert g.end()["tokens"] == 10
    # The first call of a model is taken to use 4,096 tokens.
    g = gate([{"say": "x", "usage": {"in": 7, "out": 3}}], tokens=4000)
    status, _, answer = g.post("/v1/chat/completions", BODY)
    assert status == 200 and 3900 < int(answer.getheader("carrel-max-tokens")) < 4000
    status, _, answer = g.post("/v1/chat/completions", dict(BODY, max_tokens=100))
    assert status == 200 and answer.getheader("carrel-max-tokens") is None


def test_an_unknown_price_refuses_a_budget_in_money(gate):
    g = gate([{"say": "x"}], micro=10**9)
    status, body, _ = g.post("/v1/chat/completions", dict(BODY, model="c/unheard-of"))
    assert status == 402 and b"price of model 'unheard-of'" in body
    assert g.post("/v1/chat/completions", dict(BODY, model="c/free-one"))[0] == 200
    assert g.end()["micro"] == 0


BAD = [
    ("/v1/chat/completions", b"", 400), ("/v1/chat/completions", b"[]", 400), ("/v1/chat/completions", b"{}", 400),
    ("/v1/chat/completions", {"model": "a/m", "messages": []}, 400), ("/v1/chat/completions", dict(BODY, n=3), 400),
    ("/v1/messages", {"model": "c/m"}, 400), ("/v1/elsewhere", BODY, 404), ("/v1/responses", {"model": 7}, 400),
    ("/v1/chat/completions", dict(BODY, model="x" * 500), 400), ("/v1/chat/completions", dict(BODY, model="openai/m"), 403),
]


def test_requests_of_no_sense_cost_nothing(gate):
    g = gate(STORY)
    for path, body, wanted in BAD:
        status, text, _ = g.post(path, body)
        assert status == wanted, (path, body, status, text)
        assert json.loads(text)["error"]["message"]
        assert OWNER.encode() not in text
    assert g.end() == {"tokens": 0, "micro": 0, "held": 0, "calls": 0}


def test_models_are_listed(gate):
    g = gate(STORY)
    c = http.client.HTTPConnection("127.0.0.1", g.port, timeout=30)
    c.request("GET", "/v1/models")
    assert [m["id"] for m in json.loads(c.getresponse().read())["data"]] == ["m"]


def test_a_stream_pays_what_arrived_if_the_daemon_stops(gate):
    g = gate([{"fault": {"kind": "slow", "ms": 20000, "times": 1}, "say": "x" * 3000}])
    s = socket.create_connection(("127.0.0.1", g.port))
    body = json.dumps(dict(BODY, stream=True, max_tokens=500)).encode()
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert b"200 OK" in s.recv(100)
    s.close()
    time.sleep(1)
    spent = g.end()
    assert spent["held"] == 0 and 16 < spent["tokens"] < 1000 and spent["calls"] == 1


def test_kill_9_leaves_what_was_held_charged(gate, tmp_path):
    g = gate([{"fault": {"kind": "slow", "ms": 20000, "times": 1}, "say": "x" * 3000}])
    s = socket.create_connection(("127.0.0.1", g.port))
    body = json.dumps(dict(BODY, stream=True, max_tokens=500)).encode()
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert b"200 OK" in s.recv(100)
    g.process.send_signal(signal.SIGKILL)
    g.process.communicate()
    after = Gateway(tmp_path / "gw0", 1)
    spent = after.end()
    assert spent["held"] == 0 and 500 < spent["tokens"] < 600


@pytest.mark.parametrize("path, wanted", [("/v1/chat/completions", 424), ("/v1/messages", 424), ("/v1/responses", 400)])
def test_nobody_there_costs_nothing_and_is_final(tmp_path, path, wanted):
    """Agents repeat a call that got 5xx silently for minutes."""
    g = Gateway(tmp_path / "gw", 1, tokens=10**6)
    status, body, answer = g.post(path, dict(BODY, input="x", max_tokens=10))
    assert status == wanted and b"cannot be reached" in body and answer.headers["x-should-retry"] == "false"
    assert g.end()["tokens"] == 0


def test_provider_that_comes_back_meanwhile_is_reached(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    g = Gateway(tmp_path / "gw", port)
    answers = []
    client = threading.Thread(target=lambda: answers.append(g.post("/v1/chat/completions", BODY)))
    client.start()
    time.sleep(0.5)  # the first attempt has failed; if not, the test proves less
    server = socket.create_server(("127.0.0.1", port))
    server.settimeout(30)
    c, _ = server.accept()
    c.recv(65536)
    text = json.dumps({"id": "x", "object": "chat.completion", "model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 4},
                       "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "back"}}]})
    c.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
    client.join()
    assert answers[0][0] == 200 and b"back" in answers[0][1]
    c.close()
    server.close()
    assert g.end()["tokens"] == 7


def test_client_that_leaves_while_the_provider_is_tried_costs_nothing(tmp_path):
    g = Gateway(tmp_path / "gw", 1, tokens=10**6)
    body = json.dumps(BODY).encode()
    with socket.create_connection(("127.0.0.1", g.port)) as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        time.sleep(0.3)
    status, _, _ = g.post("/v1/chat/completions", BODY)
    assert status == 424
    spent = g.end()
    assert spent["tokens"] == 0 and spent["held"] == 0
