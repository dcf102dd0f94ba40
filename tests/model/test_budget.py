"""Budgets of machines while calls are in flight: holds, waiting, cut streams, and the last tokens."""
import concurrent.futures
import http.client
import json
import re
import socket
import threading
import time

import pytest

from scripted import Scripted, answer_any, chat_answer, chat_stream, event, messages_stream, stream, whole
from patience import PATIENCE
from test_gateway import BODY, CONF, Gateway

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


@pytest.fixture
def world(tmp_path):
    """world(answer, tokens=, micro=) gives a scripted provider and a gateway to it."""
    made = []

    def make(answer, conf=CONF, **budget):
        server = Scripted(answer)
        g = Gateway(tmp_path / f"gw{len(made)}", server.port, conf=conf, **budget)
        made.append((server, g))
        return server, g

    yield make
    for server, g in made:
        if g.process.poll() is None:
            g.process.kill()
            g.process.communicate()
        server.end()


def send(g, path, body):
    """A request whose answer is not read."""
    s = socket.create_connection(("127.0.0.1", g.port))
    text = json.dumps(body).encode()
    s.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(text)) + text)
    return s


def until(ready):
    end = time.monotonic() + 20 * PATIENCE
    while not ready():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_a_call_waits_while_only_another_call_is_in_the_way(world):
    go = threading.Event()

    def answer(_):
        assert go.wait(30 * PATIENCE)
        return whole(chat_answer())

    # Each call is estimated at 500 tokens and some of input: there is room for one.
    server, g = world(answer, tokens=800)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(g.post, CHAT, dict(BODY, max_tokens=500)) for _ in range(3)]
        until(lambda: server.requests)
        time.sleep(0.3)
        assert len(server.requests) == 1 and not any(c.done() for c in calls)
        go.set()
        assert [c.result()[0] for c in calls] == [200] * 3
    assert g.end() == {"tokens": 30, "micro": 30 // 10 * (7 * 3 + 3 * 15), "held": 0, "calls": 3}


def test_four_calls_of_a_budget_are_in_flight_at_most(world):
    lock, now, most, full = threading.Lock(), [0], [0], threading.Event()

    def answer(_):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
            if now[0] == 4:
                full.set()
        full.wait(20 * PATIENCE)
        time.sleep(0.05)
        with lock:
            now[0] -= 1
        return whole(chat_answer())

    _, g = world(answer, tokens=10**9)
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        got = list(pool.map(lambda _: g.post(CHAT, dict(BODY, max_tokens=500))[0], range(12)))
    assert got == [200] * 12 and most[0] == 4
    assert g.end()["calls"] == 12
    # Without a limit nothing is counted, and nothing waits.
    now[0] = most[0] = 0
    full.clear()
    barrier = threading.Barrier(8)

    def together(_):
        barrier.wait(20 * PATIENCE)
        return whole(chat_answer())

    _, g = world(together)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: g.post(CHAT, BODY)[0], range(8))) == [200] * 8


def test_a_client_that_leaves_the_queue_lets_others_pass(world):
    go = threading.Event()

    def answer(_):
        assert go.wait(30 * PATIENCE)
        return whole(chat_answer())

    server, g = world(answer, tokens=6000)
    first = send(g, CHAT, dict(BODY, max_tokens=3000))
    until(lambda: server.requests)
    second = send(g, CHAT, dict(BODY, max_tokens=4000))
    time.sleep(0.2)
    third = send(g, CHAT, dict(BODY, max_tokens=100))
    time.sleep(0.2)
    assert len(server.requests) == 1, "younger calls of the account wait behind the older one"
    second.close()
    until(lambda: len(server.requests) == 2)
    assert server.requests[1].body["max_tokens"] == 100
    go.set()
    for s in (first, third):
        assert b"200 OK" in s.recv(100)
        s.close()
    assert g.end()["calls"] == 2


def test_the_queue_of_a_budget_is_limited(world):
    go = threading.Event()

    def answer(_):
        assert go.wait(30 * PATIENCE)
        return whole(chat_answer(tokens=(1, 1)))

    server, g = world(answer, tokens=800)
    open_ = [send(g, CHAT, dict(BODY, max_tokens=500)) for _ in range(33)]
    until(lambda: server.requests)
    time.sleep(0.3)
    status, body, answered = g.post(CHAT, dict(BODY, max_tokens=500))
    assert status == 529 and b"wait for their budget" in body and answered.getheader("x-should-retry") == "true"
    go.set()
    for s in open_:
        assert b"200 OK" in s.recv(100)
        s.close()


def test_a_call_that_no_waiting_helps_is_refused_at_once(world):
    go = threading.Event()

    def answer(_):
        assert go.wait(30 * PATIENCE)
        return whole(chat_answer())

    server, g = world(answer, tokens=3000)
    first = send(g, CHAT, dict(BODY, max_tokens=1000))
    until(lambda: server.requests)
    long = dict(BODY, max_tokens=1000, messages=[{"role": "user", "content": "x" * 20000}])
    status, body, _ = g.post(CHAT, long)
    assert status == 402 and re.search(rb"budget 3,000 tokens, spent 0, this call may take [\d,]+: carrel models raise m --tokens \d+", body), body
    go.set()
    assert b"200 OK" in first.recv(100)
    first.close()


def test_a_refusal_names_the_budget_in_money(world):
    server, g = world(answer_any(), micro=50_000)
    long = dict(BODY, max_tokens=4000, messages=[{"role": "user", "content": "x" * 60000}])
    for path, wanted in ((CHAT, 402), (MESSAGES, 402), ("/v1/responses", 400)):
        status, body, answer = g.post(path, long)
        message = json.loads(body)["error"]["message"]
        assert status == wanted and answer.getheader("x-should-retry") == "false"
        assert re.fullmatch(r"budget 0.05 USD, spent 0, this call may take 0\.\d+: carrel models raise m --money 0\.\d", message), message
    assert not server.requests and g.end()["calls"] == 0


def test_the_last_tokens_of_a_budget_lower_the_limit(world):
    server, g = world(answer_any(tokens=(20, 900)), tokens=3000)
    # Claude Code asks for 128,000 tokens of output. They count as the 4,096 of a first call.
    status, _, answer = g.post(MESSAGES, dict(BODY, model="m", max_tokens=128000, stream=True))
    lowered = server.requests[0].body["max_tokens"]
    assert status == 200 and 2900 < lowered < 3000 and answer.getheader("carrel-max-tokens") == str(lowered)
    # The next estimate is the largest answer of late, so the limit stays as it is.
    status, _, answer = g.post(MESSAGES, dict(BODY, model="m", max_tokens=128000, stream=True))
    assert status == 200 and server.requests[1].body["max_tokens"] == 128000 and answer.getheader("carrel-max-tokens") is None
    assert g.post(MESSAGES, dict(BODY, model="m", max_tokens=128000, stream=True))[0] == 200
    # 240 are left: too few to be of use.
    status, body, _ = g.post(MESSAGES, dict(BODY, model="m", max_tokens=128000, stream=True))
    assert status == 402 and b"spent 2,760" in body
    assert g.end()["tokens"] == 3 * 920


def test_the_limit_stays_above_the_tokens_for_thinking(world):
    server, g = world(answer_any(), tokens=3000)
    body = dict(BODY, max_tokens=9000, thinking={"type": "enabled", "budget_tokens": 2500}, stream=True)
    assert g.post(MESSAGES, body)[0] == 402 and not server.requests
    body["thinking"]["budget_tokens"] = 1500
    assert g.post(MESSAGES, body)[0] == 200 and 2500 < server.requests[0].body["max_tokens"] < 3000


@pytest.mark.parametrize("path,records,reported", [(MESSAGES, messages_stream, 700), (CHAT, chat_stream, 0)])
def test_a_stream_that_the_provider_cuts_costs_what_arrived(world, path, records, reported):
    server, g = world(lambda _: stream(records("y" * 4000, (700, 5000))[:3], cut=True), micro=10**9)
    status, body, _ = g.post(path, dict(BODY, stream=True, max_tokens=9000))
    # The client reads an error, and the end of the body: the connection is not cut.
    last = body.decode().strip().split("\n\n")[-1]
    assert status == 200 and "cut off" in last and "error" in json.loads(last.split("data: ")[1])
    spent = g.end()
    # 4,000 bytes of output are 1,000 tokens of a model that is not Claude.
    assert 1000 + (reported or 20) <= spent["tokens"] <= 1000 + (reported or 60) and spent["held"] == 0


def test_a_client_that_leaves_pays_reported_input_and_received_output(world):
    gone = threading.Event()

    def answer(_):
        return stream([*messages_stream("y" * 2800, (700, 5000))[:3], lambda: gone.wait(30 * PATIENCE)])

    server, g = world(answer, micro=10**9)
    s = send(g, MESSAGES, dict(BODY, stream=True, max_tokens=9000))
    got = b""
    while b"yyy" not in got or b"\n\n" not in got.split(b"yyy")[-1]:
        got += s.recv(65536)
    s.close()
    time.sleep(0.5)
    spent = g.end()
    gone.set()
    assert spent["tokens"] == 700 + 700 and spent["calls"] == 1


@pytest.mark.parametrize("begun", [True, False])
def test_a_client_that_leaves_pays_the_input_that_is_reported_later(world, begun):
    """A Chat stream reports its usage at the end, so it is read although its client has left."""
    gone, records = threading.Event(), chat_stream("y" * 40, (5000, 30))

    def answer(_):
        early = records[:2] if begun else []
        return stream([*early, lambda: gone.wait(30 * PATIENCE), *records[len(early):]])

    server, g = world(answer, micro=10**9)
    s = send(g, CHAT, dict(BODY, stream=True, max_tokens=9000))
    until(lambda: server.requests)
    while begun and b"yyy" not in s.recv(65536):
        pass
    s.close()
    time.sleep(0.3)
    gone.set()
    time.sleep(0.7)
    assert g.end() == {"tokens": 5030, "micro": 5000 * 3 + 30 * 15, "held": 0, "calls": 1}


def test_a_stream_without_its_client_ends_when_its_input_is_reported(world):
    gone, records = threading.Event(), messages_stream("y" * 2800, (700, 5000))

    def answer(_):
        return stream([lambda: gone.wait(30 * PATIENCE), *records[:3], lambda: time.sleep(1), *records[3:]])

    server, g = world(answer, micro=10**9)
    s = send(g, MESSAGES, dict(BODY, stream=True, max_tokens=9000))
    until(lambda: server.requests)
    s.close()
    time.sleep(0.3)
    gone.set()
    time.sleep(0.5)
    spent = g.end()
    assert 700 <= spent["tokens"] <= 1400 and spent["calls"] == 1


@pytest.mark.parametrize("in_part", [False, True])
def test_text_that_looks_like_an_image_is_estimated_as_text(world, in_part):
    server, g = world(answer_any(), tokens=10_000)
    text = "data:image/png;base64," + "text " * 40000
    content = [{"type": "text", "text": text}] if in_part else text
    status, body, _ = g.post(CHAT, dict(BODY, max_tokens=100, messages=[{"role": "user", "content": content}]))
    assert status == 402 and int(re.search(rb"may take ([\d,]+)", body)[1].replace(b",", b"")) > 20_000 - 100, body
    assert not server.requests


def test_an_answer_that_is_charged_anyway_is_read_to_its_end(world):
    gone = threading.Event()

    def answer(_):
        records = messages_stream("y" * 2800, (700, 5000))
        return stream([*records[:3], lambda: gone.wait(30 * PATIENCE), *records[3:]])

    conf = CONF.replace("provider = a format=anthropic", "provider = a charges_whole=yes format=anthropic")
    server, g = world(answer, conf=conf, micro=10**9)
    s = send(g, MESSAGES, dict(BODY, stream=True, max_tokens=9000))
    while b"yyy" not in s.recv(65536):
        pass
    s.close()
    time.sleep(0.3)
    gone.set()
    time.sleep(0.7)
    assert g.end()["tokens"] == 5700


def test_a_whole_answer_is_read_although_the_client_left(world):
    gone = threading.Event()

    def answer(_):
        assert gone.wait(30 * PATIENCE)
        return whole(chat_answer(tokens=(700, 5000)))

    server, g = world(answer, micro=10**9)
    s = send(g, CHAT, dict(BODY, max_tokens=9000))
    until(lambda: server.requests)
    s.close()
    time.sleep(0.3)
    gone.set()
    time.sleep(0.7)
    assert g.end()["tokens"] == 5700


def test_estimates_follow_what_the_provider_reports(world):
    """A request is refused by its estimate, so the refusal shows how the estimate has changed."""
    server, g = world(answer_any(tokens=(20000, 100)), tokens=150000)
    long = dict(BODY, model="c/free-x", max_tokens=100, messages=[{"role": "user", "content": "x" * 40000}])

    def estimate():
        status, body, _ = g.post(CHAT, dict(BODY, model="c/free-x", max_tokens=100, messages=[{"role": "user", "content": "x" * 2000000}]))
        assert status == 402
        return int(re.search(rb"may take ([\d,]+)", body)[1].replace(b",", b""))

    before = estimate()
    assert 500000 < before < 501000
    for _ in range(4):
        assert g.post(CHAT, long)[0] == 200
    # 2 bytes per token were reported.
    assert 900000 < estimate() < 1001000
    # The bytes of an image do not count.
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2000000}}
    assert g.post(CHAT, dict(BODY, model="c/free-x", max_tokens=100, messages=[{"role": "user", "content": [image]}]))[0] == 200
