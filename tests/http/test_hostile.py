"""Peers that are slow, greedy, malformed or gone."""
import json
import os
import socket
import struct
import time

import pytest

from conftest import GROWTH_KIB

GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"


def refused(talk, status):
    """The answer to something refused: the one shape of an error, then the end."""
    got, fields, body = talk.answer()
    error = json.loads(body)["error"]
    assert got == status, (got, error)
    assert fields["connection"] == "close" and set(error) == {"code", "message", "cause", "remedy"}
    assert talk.ended() == b""
    return error["code"]


@pytest.mark.parametrize("text, status", [
    (b"GET / HTTP/1.1\nHost: a\n\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n\r\n", 400),
    (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 20000 + b"\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 200 + b"\r\n", 431),
    (b"\x16\x03\x01\x02\x00", 400),
], ids=range(10))
def test_what_the_codec_refuses_is_answered_and_ends(server, text, status):
    for t in server.tcp(), server.local():
        t.say(text)
        refused(t, status)
    assert server.ask("GET", "/hello")[0] == 200


def test_a_refusal_reaches_a_peer_that_is_still_sending(server):
    """The socket is not closed on unread bytes, which would take the answer back."""
    t = server.tcp()
    try:
        for _ in range(200):
            t.say(b"GET /" + b"a" * 10000)
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert t.answer()[0] == 414


def test_a_body_that_is_too_long(server):
    t = server.tcp()
    t.say(b"POST /echo?max=10 HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n")
    assert refused(t, 413) == "limit"
    t = server.tcp()
    t.say(b"POST /echo?max=10 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n6\r\nabcdef\r\n")
    assert refused(t, 413) == "limit"
    t = server.tcp()
    t.say(b"POST /count?max=10 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n6\r\nabcdef\r\n")
    assert refused(t, 413) == "limit"
    t = server.tcp()
    t.say(b"POST /count?max=10 HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n")
    assert refused(t, 413) == "limit"
    assert server.stats()["gone"] == 4


def test_a_handler_may_drop_what_could_not_be_collected(server):
    post = b"POST /echo?drop=1&max=10 HTTP/1.1\r\nHost: a\r\n"
    t = server.tcp()
    t.say(post + b"Content-Length: 11\r\n\r\n")
    refused(t, 413)
    t = server.tcp()
    t.say(post + b"Transfer-Encoding: chunked\r\n\r\nff\r\nabcdefghijk")
    refused(t, 413)
    t = server.tcp()
    t.say(post + b"Transfer-Encoding: chunked\r\n\r\nX")
    refused(t, 400)
    t = server.tcp()
    t.say(post + b"Content-Length: 10\r\n\r\nabc")
    server.wait(requests=2)
    t.sock.close()
    server.wait(gone=4, requests=1, connections=1)


def test_a_body_that_is_malformed(server):
    for route in b"/echo", b"/count":
        t = server.tcp()
        t.say(b"POST " + route + b" HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n")
        refused(t, 400)
    t = server.tcp()
    t.say(b"POST /pipe HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nX")
    assert not t.ended().endswith(b"0\r\n\r\n")
    assert server.wait(requests=1)["gone"] == 3


def test_a_slow_head_is_refused(start):
    s = start("--head-ms", 200)
    t = s.tcp()
    begin = time.monotonic()
    t.say(b"GET / HTTP/1.1\r\n")
    for i in range(100):
        time.sleep(0.02)
        try:
            t.say(b"X-%d: y\r\n" % i)
        except OSError:
            break
    assert t.answer()[0] == 408
    assert 0.15 < time.monotonic() - begin < 5
    quiet = s.tcp()
    assert quiet.ended() == b""


def test_a_slow_body_is_refused(start):
    s = start("--body-ms", 200)
    t = s.tcp()
    t.say(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
    assert refused(t, 408) == "timeout"
    # A drop at a time is no better, when it is to be collected ...
    t = s.tcp()
    t.say(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n")
    try:
        for _ in range(100):
            time.sleep(0.02)
            t.say(b"x")
    except OSError:
        pass
    assert t.answer()[0] == 408
    # ... but what is streamed may come as it comes.
    t = s.tcp()
    t.say(b"POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n")
    for _ in range(20):
        time.sleep(0.02)
        t.say(b"x")
    assert t.answer()[2] == b"20"
    t = s.tcp()
    t.say(b"POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n")
    assert refused(t, 408) == "timeout"


def test_an_idle_connection_is_closed_without_a_word(start):
    s = start("--idle-ms", 200)
    t = s.tcp()
    t.say(GET % b"/hello")
    assert t.answer()[0] == 200
    assert t.ended() == b""
    # One that waits for its answer is not idle.
    t = s.tcp()
    t.say(GET % b"/later?ms=600")
    assert t.answer()[2] == b"later\n"


def test_a_peer_that_does_not_read_is_cut_off(start):
    s = start("--write-ms", 300)
    t = s.tcp()
    t.say(GET % b"/pour?n=100000000")
    s.wait(gone=1, requests=1)


def test_too_many_connections(start):
    s = start("--connections", 4)
    first = [s.tcp() for _ in range(4)]
    for t in first:
        t.say(GET % b"/hello")
        assert t.answer()[0] == 200
    extra = s.tcp()
    extra.say(GET % b"/hello")
    status, fields, body = extra.answer()
    assert (status, fields["retry-after"]) == (503, "1")
    assert json.loads(body)["error"]["code"] == "busy"
    first[0].sock.close()
    time.sleep(0.1)
    t = s.tcp()
    t.say(GET % b"/hello")
    assert t.answer()[0] in (200, 503)
    for t in first[1:]:
        t.say(GET % b"/hello")
        assert t.answer()[0] == 200


def test_too_many_requests_in_flight(start):
    s = start("--requests", 2)
    waiting = [s.tcp(), s.tcp()]
    for t in waiting:
        t.say(GET % b"/later?ms=300")
    time.sleep(0.05)
    t = s.tcp()
    t.say(GET % b"/hello")
    status, fields, _ = t.answer()
    assert (status, fields["retry-after"]) == (503, "1")
    assert "connection" not in fields
    for w in waiting:
        assert w.answer()[2] == b"later\n"
    t.say(GET % b"/hello")
    assert t.answer()[0] == 200


@pytest.mark.parametrize("kind", ["tcp", "local"])
def test_a_peer_that_vanishes_is_told_to_the_handler(server, kind):
    t = getattr(server, kind)()
    t.say(GET % b"/hold")
    server.wait(held=1)
    t.sock.close()
    server.wait(gone=1, held=0, requests=1, connections=1)


@pytest.mark.parametrize("kind", ["tcp", "local"])
def test_an_exchange_outlives_its_peer_until_it_is_ended(server, kind):
    t = getattr(server, kind)()
    t.say(GET % b"/keep")
    server.wait(requests=2)
    t.sock.close()
    server.wait(gone=1, requests=2, connections=2)
    assert server.ask("GET", "/release") == (200, b"gone=1")
    server.wait(requests=1, connections=1)


def test_a_peer_that_vanishes_in_its_body(server):
    for route in b"/echo", b"/count", b"/pipe":
        t = server.tcp()
        t.say(b"POST " + route + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
        time.sleep(0.02)
        t.sock.close()
    server.wait(gone=3, requests=1, connections=1)


def test_a_peer_that_resets_in_a_long_answer(server):
    t = server.tcp()
    t.say(GET % b"/pour?n=100000000")
    t.sock.recv(1000)
    t.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    t.sock.close()
    server.wait(gone=1, requests=1, connections=1)


@pytest.mark.parametrize("route", [b"/pour?n=100000", b"/whole?n=1000000"])
def test_a_flood_of_pipelined_requests_does_not_grow_memory(server, route):
    """A peer that asks and never reads: its requests wait in its own socket."""
    server.ask("GET", route.decode())
    before = server.memory_kib()
    t = server.tcp()
    t.sock.setblocking(False)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        try:
            t.sock.send((GET % route) * 100)
        except BlockingIOError:
            time.sleep(0.01)
    assert server.memory_kib() - before < 2 * GROWTH_KIB
    # It is slow then, not stuck.
    t.sock.setblocking(True)
    t.sock.settimeout(20)
    for _ in range(20):
        assert len(t.answer()[2]) == int(route.partition(b"=")[2])


def test_a_forgetful_handler_and_a_wrong_field(server):
    assert server.ask("GET", "/forgets")[0] == 500
    t = server.tcp()
    t.say(GET % b"/bad-field" + GET % b"/hello")
    status, fields, body = t.answer()
    assert (status, body) == (500, b"") and "y" not in fields
    assert t.answer()[2] == b"hello\n"


def test_an_answer_that_ends_short_is_seen(server):
    t = server.tcp()
    t.say(GET % b"/short")
    assert t.ended().endswith(b"Content-Length: 10\r\n\r\nabc")
    t = server.tcp()
    t.say(GET % b"/dropped?begun=1")
    assert t.ended().endswith(b"3\r\nabc\r\n")
    t = server.tcp()
    t.say(GET % b"/dropped")
    assert t.ended() == b""


def test_hundreds_of_connections_that_come_and_go(server):
    for _ in range(5):
        talks = [server.tcp() for _ in range(200)]
        for i, t in enumerate(talks):
            t.say([GET % b"/hello", b"GET", GET % b"/later?ms=20", b""][i % 4])
        for t in talks:
            t.sock.close()
    server.wait(connections=1, requests=1)
    assert server.quiet_fds() == server.fds


def test_bytes_at_random_break_nothing(server):
    import random
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    rng = random.Random(seed)
    parts = [b"GET ", b"POST ", b"/echo", b"/count", b"/pipe", b" HTTP/1.1\r\n", b"Host: a\r\n", b"\r\n",
             b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"5\r\nabcde\r\n",
             b"0\r\n\r\n", b"abcde", b"\n", b"\0", b"Carrel-Fds: 1\r\n", b"Connection: close\r\n", GET % b"/hello",
             b"Connection: Upgrade\r\nUpgrade: websocket\r\n"]
    for _ in range(300):
        t = rng.choice([server.tcp, server.local])()
        try:
            for _ in range(rng.randrange(1, 20)):
                t.say(rng.choice(parts))
        except OSError:
            pass
        t.sock.close()
    server.wait(connections=1, requests=1)
