"""Our client against a rehearsal over HTTP, in all three formats."""
import http.server
import json
import signal
import ssl
import subprocess
import threading
import time

import pytest

from conftest import HERE, KEY, MODELS, ask, environment

USAGE = {"in": 100, "cache_read": 50, "out": 20}
STORY = [
    {"turn": 0, "say": "I look. é ✓", "calls": [{"tool": "exec", "arguments": {"cmd": "make test"}},
                                               {"tool": "read", "arguments": {"path": "/a"}}], "usage": USAGE},
    {"turn": 1, "after": "ran read", "calls": [{"tool": "exec", "raw": "{\"cmd\": \"l"}], "usage": USAGE},
    {"turn": 2, "failed": True, "say": "That was wrong.", "usage": USAGE},
    # A whole answer of Anthropic's cannot hold what is not JSON, so there the call was good.
    {"turn": 2, "after": "malformed", "say": "That was wrong.", "usage": USAGE},
]


def kinds(lines):
    return [line["event"] for line in lines]


@pytest.mark.parametrize("stream", [1, 0])
@pytest.mark.parametrize("model", MODELS)
def test_a_conversation_with_tools(serve, model, stream):
    port = serve(STORY)
    lines = ask(model, port, stream=stream)
    assert kinds(lines) == ["answer"] * 3, lines
    first, second, third = lines
    assert first["parts"][0]["text"] == "I look. é ✓" and first["stop"] == "calls" and first["model"] == "m"
    assert json.loads(first["parts"][1]["arguments"]) == {"cmd": "make test"}
    assert [p.get("tool") for p in first["parts"]] == [None, "exec", "read"]
    assert first["tokens"] == 170
    assert third["stop"] == "done" and third["parts"][0]["text"] == "That was wrong."
    if stream or not model.startswith("anthropic"):
        assert "not JSON" in second["parts"][0]["bad"]


def test_a_rehearsal_in_the_process_plays_the_same(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": STORY}))
    lines = ask("rehearsal/demo", 1, script=script)
    assert kinds(lines) == ["answer"] * 3
    assert "not JSON" in lines[1]["parts"][0]["bad"]
    assert lines[2]["parts"][0]["text"] == "That was wrong."


FAULTS = [
    ({"kind": "status", "status": 429, "retry_after_ms": 30, "times": 2}, "busy"),
    ({"kind": "status", "status": 500, "times": 2}, "unknown"),
    ({"kind": "status", "status": 529, "times": 1}, "busy"),
    ({"kind": "garbage", "times": 2}, "unknown"),
    ({"kind": "cut", "times": 2}, "unknown"),
    ({"kind": "reset", "times": 2}, "unknown"),
    ({"kind": "error", "times": 2}, "busy"),
]


@pytest.mark.parametrize("fault,code", FAULTS, ids=[f"{f['kind']}{f.get('status', '')}" for f, _ in FAULTS])
@pytest.mark.parametrize("model", MODELS + ["rehearsal/m"])
def test_faults_are_tried_again_and_never_acted_on(serve, tmp_path, model, fault, code):
    turns = [{"turn": 0, "fault": fault, "calls": [{"tool": "exec", "arguments": {"cmd": "once"}}]},
             {"turn": 1, "say": "done"}]
    script = tmp_path / "same.json"
    script.write_text(json.dumps({"turns": turns}))
    lines = ask(model, serve(turns), script=script)
    assert kinds(lines) == ["retry"] * fault["times"] + ["answer", "answer"], lines
    assert all(line["code"] == code and line["remedy"] for line in lines[:fault["times"]])
    if "retry_after_ms" in fault:
        assert [line["wait_ms"] for line in lines[:2]] == [30, 30]


@pytest.mark.parametrize("model", MODELS)
def test_attempts_end(serve, model):
    port = serve([{"fault": {"kind": "status", "status": 503, "times": 99}, "say": "never"}])
    lines = ask(model, port, attempts=3)
    assert kinds(lines) == ["retry", "retry", "failed"]
    assert lines[2]["text"].startswith("the model call failed after 3 attempts: ") and lines[2]["failure"] == "busy"


@pytest.mark.parametrize("model", MODELS)
def test_a_wait_beyond_the_deadline_is_not_begun(serve, model):
    port = serve([{"fault": {"kind": "status", "status": 429, "retry_after_ms": 60000, "times": 99}, "say": "never"}])
    began = time.monotonic()
    lines = ask(model, port, deadline_ms=3000)
    assert kinds(lines) == ["failed"] and lines[0]["failure"] == "rate"
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("model", MODELS)
def test_silence_is_a_timeout_and_patience_is_rewarded(serve, model):
    turns = [{"turn": 0, "fault": {"kind": "slow", "ms": 3000, "times": 1}, "say": "slow and steady"}]
    lines = ask(model, serve(turns), idle_ms=300)
    assert kinds(lines) == ["retry", "answer"] and lines[0]["code"] == "timeout"
    lines = ask(model, serve([dict(turns[0], fault={"kind": "slow", "ms": 300, "times": 1})]))
    assert kinds(lines) == ["answer"]


@pytest.mark.parametrize("model", MODELS)
def test_a_call_can_be_cancelled_in_the_middle(serve, tmp_path, model):
    port = serve([{"turn": 0, "fault": {"kind": "slow", "ms": 30000, "times": 1}, "say": "well",
                   "calls": [{"tool": "exec", "raw": "x" * 20000}]}])
    began = time.monotonic()
    lines = ask(model, port, cancel_after=1, home=tmp_path / "home", limit_tokens=100000)
    assert kinds(lines) == ["failed"] and lines[0]["failure"] == "cancelled"
    assert time.monotonic() - began < 20
    # It was sent, and nobody knows what it cost: what was held is spent.
    assert lines[0]["held_tokens"] == 0 and lines[0]["spent_tokens"] > 1000


@pytest.mark.parametrize("model", MODELS)
def test_errors_that_trying_again_cannot_help(serve, model):
    port = serve(STORY)
    lines = ask(model, port, key="another")
    assert kinds(lines) == ["failed"] and lines[0]["failure"] == "key" and lines[0]["code"] == "denied"
    lines = ask(model, port, key=None)
    assert kinds(lines) == ["failed"] and "API_KEY" in lines[0]["remedy"]
    env = environment(port)
    env.update(ANTHROPIC_BASE_URL=f"http://127.0.0.1:{port}/nowhere?x", OPENAI_BASE_URL="nonsense")
    lines = ask(model, port, env=env)
    assert kinds(lines) == ["failed"] and lines[0]["code"] == "invalid"


def test_nobody_there(tmp_path):
    lines = ask("openai/m", 1, attempts=2, home=tmp_path / "home", limit_tokens=5000)
    assert kinds(lines) == ["retry", "failed"] and lines[1]["failure"] == "connect"
    assert lines[1]["spent_tokens"] == 0 and lines[1]["held_tokens"] == 0


# ---- The ledger ----

PRICE = "m in=3 out=15 cache_read=0.3"


@pytest.mark.parametrize("model", MODELS)
def test_the_ledger_is_exact_after_each_call(serve, tmp_path, model):
    lines = ask(model, serve(STORY), home=tmp_path / "home", price=PRICE, limit_micro=10**7)
    each = 100 * 3 + 15 + 20 * 15
    assert [line["spent_micro"] for line in lines] == [each, 2 * each, 3 * each]
    assert [line["spent_tokens"] for line in lines] == [170, 340, 510]
    assert all(line["held_tokens"] == 0 for line in lines)


@pytest.mark.parametrize("model", MODELS)
def test_a_budget_is_checked_before_the_call(serve, tmp_path, model):
    port = serve(STORY)
    # The first estimate of output is 4,096 tokens, but not more than max_tokens.
    lines = ask(model, port, home=tmp_path / "a", limit_tokens=900)
    assert kinds(lines) == ["failed"] and lines[0]["failure"] == "budget" and "budget of run:r 900 tokens" in lines[0]["text"]
    lines = ask(model, port, home=tmp_path / "b", price=PRICE, limit_micro=1000)
    assert kinds(lines) == ["failed"] and lines[0]["code"] == "limit"
    lines = ask(model, port, home=tmp_path / "c", limit_micro=10**9)
    assert kinds(lines) == ["failed"] and "price" in lines[0]["text"]


@pytest.mark.parametrize("model", MODELS)
def test_an_estimate_is_held_and_not_the_worst_case(serve, tmp_path, model):
    """The worst case would be 64,000 tokens of output for each call."""
    lines = ask(model, serve(STORY), home=tmp_path / "home", limit_tokens=10000, max_tokens=64000)
    assert kinds(lines) == ["answer"] * 3 and lines[-1]["spent_tokens"] == 510


@pytest.mark.parametrize("model", MODELS[:2])  # a part of the third one is not text yet
def test_a_cut_answer_costs_what_was_received_if_that_is_more(serve, tmp_path, model):
    cut = [{"turn": 0, "fault": {"kind": "cut", "times": 1}, "say": "x" * 200000, "usage": USAGE}]
    lines = ask(model, serve(cut), home=tmp_path / "home", limit_tokens=10**6, max_tokens=64000)
    assert lines[-1]["spent_tokens"] > 170 + 4096 + 10000


@pytest.mark.parametrize("model", MODELS)
def test_what_failed_is_paid_for_only_if_it_was_served(serve, tmp_path, model):
    refused = [{"turn": 0, "fault": {"kind": "status", "status": 500, "times": 2}, "say": "x", "usage": USAGE}]
    lines = ask(model, serve(refused), home=tmp_path / "a", limit_tokens=10**6)
    assert lines[-1]["spent_tokens"] == 170
    cut = [{"turn": 0, "fault": {"kind": "cut", "times": 1}, "say": "x" * 500, "usage": USAGE}]
    lines = ask(model, serve(cut), home=tmp_path / "b", limit_tokens=10**6)
    assert lines[-1]["spent_tokens"] > 170 + 1000, "the cut attempt keeps what was held for it"


@pytest.mark.parametrize("model", MODELS)
def test_a_call_without_usage_keeps_its_reservation(serve, tmp_path, model):
    lines = ask(model, serve([{"say": "x", "usage": False}]), home=tmp_path / "a", limit_tokens=10**6, max_tokens=1000)
    assert kinds(lines) == ["answer"] and "tokens" not in lines[0]
    assert 1000 < lines[0]["spent_tokens"] < 1000 + 2048 and lines[0]["held_tokens"] == 0


def test_kill_9_during_a_call_leaves_it_charged(serve, tmp_path):
    port = serve([{"turn": 0, "fault": {"kind": "slow", "ms": 60000, "times": 1}, "say": "x"}, ])
    client = subprocess.Popen([HERE / "model-ask", "openai/m", f"home={tmp_path}/home", "limit_tokens=1000000", "idle_ms=60000"],
                              env=environment(port), stdout=subprocess.PIPE)
    time.sleep(1.5)
    assert client.poll() is None, "it waits for the answer"
    client.send_signal(signal.SIGKILL)
    client.communicate(timeout=20)
    lines = ask("openai/m", serve([{"turn": 0, "say": "x", "usage": USAGE}]), home=f"{tmp_path}/home", limit_tokens=10**6)
    assert lines[0]["spent_tokens"] > 170 + 1000 and lines[0]["held_tokens"] == 0


# ---- TLS and proxies ----

@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    where = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", where / "key", "-out", where / "cert"],
                   check=True, stderr=subprocess.DEVNULL)
    return where


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, dict(self.headers)))
        if self.server.endless:
            return self.pour()
        if self.server.cut:
            return self.cut()
        body = json.dumps({"id": "1", "model": "m", "choices": [{"message": {"content": "over TLS"}, "finish_reason": "stop"}],
                           "usage": {"prompt_tokens": 1, "completion_tokens": 2}}).encode()
        self.send_response(*self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(body)

    def pour(self):
        """An answer that goes on for as long as somebody reads."""
        self.close_connection = True
        self.send_response(200)
        self.end_headers()
        piece = json.dumps({"choices": [{"index": 0, "delta": {"content": "x" * 100000}}]})
        try:
            for _ in range(1000):
                self.wfile.write(f"data: {piece}\n\n".encode())
            self.server.asked.append("read to the end")
        except OSError:
            pass

    def cut(self):
        """A refusal that ends before its body does."""
        self.close_connection = True
        self.send_response(500)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"error": {"message": "so')

    def log_message(self, *_):
        pass


@pytest.fixture
def plain():
    """A server in Python; .wrap(certificate) makes it one of TLS."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.status, server.endless, server.cut = [], (200,), False, False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def wrap(server, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert", certificate / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)


def test_tls_with_a_certificate_that_is_trusted(plain, certificate):
    wrap(plain, certificate)
    lines = ask("openai/m", plain.server_port, scheme="https", stream=0, ca=certificate / "cert")
    assert kinds(lines) == ["answer"] and lines[0]["parts"][0]["text"] == "over TLS"
    assert plain.asked[0][0] == "/v1/chat/completions" and plain.asked[0][1]["Authorization"] == "Bearer " + KEY


def test_a_certificate_that_is_not_trusted_gets_no_key(plain, certificate):
    wrap(plain, certificate)
    lines = ask("openai/m", plain.server_port, scheme="https", stream=0)
    assert kinds(lines) == ["failed"] and lines[0]["failure"] == "trust" and lines[0]["code"] == "denied"
    assert plain.asked == []


def test_redirects_are_not_followed(plain):
    plain.status = (307,)
    lines = ask("openai/m", plain.server_port, stream=0, attempts=1)
    assert kinds(lines) == ["failed"] and len(plain.asked) == 1


def test_no_proxy_is_used_but_the_one_that_was_given(plain):
    env = dict(environment(plain.server_port), http_proxy="http://127.0.0.1:1", HTTP_PROXY="http://127.0.0.1:1", ALL_PROXY="http://127.0.0.1:1")
    assert kinds(ask("openai/m", 0, env=env, stream=0)) == ["answer"]
    # Given: the proxy is asked for the whole URL.
    lines = ask("openai/m", 9, stream=0, proxy=f"http://127.0.0.1:{plain.server_port}")
    assert kinds(lines) == ["answer"] and plain.asked[-1][0] == "http://127.0.0.1:9/v1/chat/completions"


def test_a_refusal_costs_nothing_even_if_it_is_cut(plain, tmp_path):
    plain.cut = True
    lines = ask("openai/m", plain.server_port, attempts=2, home=tmp_path / "home", limit_tokens=100000)
    assert kinds(lines) == ["retry", "failed"] and lines[1]["failure"] == "server"
    assert lines[1]["spent_tokens"] == 0 and lines[1]["held_tokens"] == 0


def test_a_large_answer_is_read_and_one_without_end_is_given_up(serve, plain):
    assert kinds(ask("openai/m", serve([{"say": "x" * (3 << 20)}]))) == ["answer"]
    plain.endless = True
    lines = ask("openai/m", plain.server_port)
    assert kinds(lines) == ["failed"] and lines[0]["failure"] == "large" and lines[0]["code"] == "limit"
