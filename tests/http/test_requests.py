"""Requests and answers over real sockets: what a well-behaved client meets."""
import os
import socket
import subprocess
import time

import pytest

from conftest import GROWTH_KIB

GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"


def curl(*args, data=None):
    done = subprocess.run(["curl", "-sS", "--max-time", "20", *args], input=data, capture_output=True)
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.parametrize("kind", ["tcp", "local"])
def test_a_request_and_the_next_on_the_same_connection(server, kind):
    t = getattr(server, kind)()
    for _ in range(3):
        t.say(GET % b"/hello")
        status, fields, body = t.answer()
        assert (status, body) == (200, b"hello\n")
        assert fields["content-type"] == "text/plain"
        assert "connection" not in fields
        assert fields["date"].endswith(" GMT")


def test_the_date_is_a_date(server):
    from email.utils import parsedate_to_datetime
    t = server.tcp()
    t.say(GET % b"/hello")
    assert abs(parsedate_to_datetime(t.answer()[1]["date"]).timestamp() - time.time()) < 3


def test_a_request_byte_by_byte(server):
    t = server.tcp()
    t.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for b in b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n":
        t.say(bytes([b]))
        time.sleep(0.001)
    assert t.answer()[2] == b"abc"


def test_pipelined_requests_are_answered_in_order(server):
    t = server.tcp()
    t.say(GET % b"/later?ms=60" + GET % b"/hello" +
          b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" + GET % b"/job" + GET % b"/pieces")
    assert [t.answer()[2] for _ in range(5)] == [b"later\n", b"hello\n", b"abc", b"job\n", b"abcabcabc"]


def test_pipelined_requests_with_long_answers(server):
    for t in server.tcp(), server.local():
        t.say(GET % b"/whole?n=300000" + (GET % b"/whole?n=300001") * 3 + GET % b"/hello")
        assert [len(t.answer()[2]) for _ in range(5)] == [300000, 300001, 300001, 300001, 6]


def test_thousands_of_pipelined_requests(server):
    t = server.local()
    t.sock.setblocking(False)
    todo, got = (GET % b"/hello") * 5000, b""
    end = time.monotonic() + 20
    while got.count(b"hello\n") < 5000:
        assert time.monotonic() < end
        try:
            todo = todo[t.sock.send(todo[:100000]):] if todo else todo
        except BlockingIOError:
            pass
        try:
            got += t.sock.recv(1 << 20)
        except BlockingIOError:
            pass


def test_head_has_the_length_and_no_body(server):
    t = server.tcp()
    t.say(b"HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n" + GET % b"/hello")
    status, fields, _ = t.answer("HEAD")
    assert (status, fields["content-length"]) == (200, "6")
    assert t.answer()[2] == b"hello\n"
    t.say(b"HEAD /pour?n=100000 HTTP/1.1\r\nHost: a\r\n\r\n" + GET % b"/hello")
    assert t.answer("HEAD")[1]["transfer-encoding"] == "chunked"
    assert t.answer()[2] == b"hello\n"


def test_an_answer_without_content(server):
    t = server.tcp()
    for status in (204, 304):
        t.say(GET % b"/empty?status=%d" % status)
        got, fields, _ = t.answer()
        assert got == status
        assert "content-length" not in fields
    t.say(GET % b"/empty?status=200")
    assert t.answer()[1]["content-length"] == "0"


def test_http_1_0_closes_and_may_keep(server):
    t = server.tcp()
    t.say(b"GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert t.answer()[1]["connection"] == "keep-alive"
    t.say(b"GET /pour?n=100000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    head, _, body = t.ended().partition(b"\r\n\r\n")
    assert b"Connection: close" in head and b"Transfer-Encoding" not in head
    assert body == bytes(100000)
    t = server.tcp()
    t.say(b"GET /hello HTTP/1.0\r\n\r\n")
    assert t.ended().endswith(b"hello\n")


def test_connection_close_is_honoured(server):
    t = server.tcp()
    t.say(b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + GET % b"/hello")
    assert t.answer()[1]["connection"] == "close"
    assert t.ended() == b""


def test_a_half_closed_client_still_gets_its_answer(server):
    for t in server.tcp(), server.local():
        t.say(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
        t.sock.shutdown(socket.SHUT_WR)
        assert t.ended().endswith(b"abc")
    t = server.local()
    t.say(GET % b"/later")
    t.sock.shutdown(socket.SHUT_WR)
    assert t.ended().endswith(b"later\n")


@pytest.mark.parametrize("kind", ["tcp", "local"])
def test_a_half_closed_client_gets_long_answers_whole(server, kind):
    t = getattr(server, kind)()
    t.say((GET % b"/whole?n=4000000") * 3)
    t.sock.shutdown(socket.SHUT_WR)
    time.sleep(0.2)
    assert [len(t.answer()[2]) for _ in range(3)] == [4000000] * 3
    assert t.ended() == b""


def test_expect_continue_is_answered_when_the_body_is_wanted(server):
    t = server.tcp()
    t.say(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    assert t.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    t.say(b"abc" + GET % b"/hello")
    assert t.answer()[2] == b"abc"
    assert t.answer()[2] == b"hello\n"


def test_expect_continue_is_not_asked_for_what_is_not_wanted(server):
    t = server.tcp()
    t.say(b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    status, fields, body = t.answer()
    assert (status, body, fields["connection"]) == (200, b"hello\n", "close")
    t = server.tcp()
    t.say(b"POST /echo?max=2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    assert t.answer()[0] == 413


def test_a_body_nobody_wanted_is_read_away_if_small(server):
    t = server.tcp()
    t.say(b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n")
    assert t.answer()[0] == 200
    t.say(bytes(50000) + GET % b"/hello")
    assert t.answer()[2] == b"hello\n"
    t.say(b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n")
    assert t.answer()[1]["connection"] == "close"


def test_bodies_of_all_sizes_come_back_whole(server):
    t = server.local()
    for n in (0, 1, 4095, 4096, 4097, 20000, 131072, 131073, 1 << 20):
        body = os.urandom(n)
        t.say(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % n + body)
        assert t.answer()[2] == body, n
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(c), c)
                          for c in (body[i:i + 7777] for i in range(0, n, 7777)))
        t.say(b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        assert t.answer()[2] == body, n


@pytest.mark.parametrize("pause", [0, 1])
def test_a_streamed_body_of_many_megabytes_in_constant_memory(server, pause):
    mib = 4 if pause else 64
    before = server.memory_kib()
    t = server.tcp()
    t.say(b"POST /count?pause=%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (pause, mib << 20))
    piece = bytes(1 << 20)
    for _ in range(mib):
        t.say(piece)
    assert t.answer()[2] == b"%d" % (mib << 20)
    assert server.memory_kib() - before < GROWTH_KIB


def test_a_long_answer_waits_for_its_reader(server):
    before = server.memory_kib()
    for sized in (b"0", b"1"):
        t = server.tcp()
        t.say(GET % (b"/pour?n=67108864&sized=" + sized))
        time.sleep(0.2)
        assert server.memory_kib() - before < GROWTH_KIB
        assert len(t.answer()[2]) == 64 << 20
        assert server.memory_kib() - before < GROWTH_KIB


def test_a_pipe_through_the_server_is_lossless(server):
    t = server.local()
    t.say(b"POST /pipe HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    status, fields = t.until(b"\r\n\r\n").split(b"\r\n")[0], None
    assert status == b"HTTP/1.1 200 OK"
    for i in range(3):
        t.say(b"5\r\nabc%02d\r\n" % i)
        assert t.until(b"abc%02d\r\n" % i)
    t.say(b"0\r\n\r\n")
    assert t.until(b"0\r\n\r\n")
    t.say(GET % b"/hello")
    assert t.answer()[2] == b"hello\n"


def test_small_pieces_are_sent_together(server):
    """begin, three writes and end of one turn: one packet."""
    t = server.local()
    t.say(GET % b"/pieces")
    assert t.sock.recv(65536).endswith(b"3\r\nabc\r\n3\r\nabc\r\n3\r\nabc\r\n0\r\n\r\n")


def test_events_are_streamed(server):
    t = server.tcp()
    t.say(GET % b"/events")
    _, fields, body = t.answer()
    assert fields["content-type"] == "text/event-stream"
    assert body == (b": beat\n\nid: 7\nevent: note\nretry: 500\ndata: one\ndata: two\ndata: \ndata: four\n\n")


def test_curl_agrees(server, tmp_path):
    big = tmp_path / "big"
    big.write_bytes(os.urandom(900_000))
    assert curl(server.url + "/hello") == b"hello\n"
    assert curl("--unix-socket", server.path, "http://x/hello") == b"hello\n"
    assert curl("--http1.0", server.url + "/pieces") == b"abcabcabc"
    assert curl("-T", str(big), server.url + "/echo") == big.read_bytes()
    assert curl("-T", "-", server.url + "/echo", data=big.read_bytes()) == big.read_bytes()
    assert curl("-H", "Expect: 100-continue", "--data-binary", "@" + str(big), server.url + "/echo") == big.read_bytes()
    assert curl("-I", server.url + "/hello").startswith(b"HTTP/1.1 200 OK\r\n")
    assert curl(server.url + "/hello", server.url + "/later", server.url + "/job") == b"hello\nlater\njob\n"
    assert len(curl(server.url + "/pour?n=50000000")) == 50000000
    assert curl("-o", "/dev/null", "-w", "%{http_code}", server.url + "/none") == b"404"


def test_python_agrees(server):
    assert server.ask("GET", "/hello") == (200, b"hello\n")
    assert server.ask("POST", "/echo", b"x" * 100000) == (200, b"x" * 100000)
    assert server.ask("POST", "/count", iter([b"ab"] * 1000)) == (200, b"2000")


def test_the_peer_is_known(server):
    t = server.local()
    t.say(GET % b"/peer")
    assert t.answer()[2].decode().split()[:3] == ["1", str(os.geteuid()), str(os.getpid())]
    t = server.tcp()
    t.say(GET % b"/peer")
    port = t.sock.getsockname()[1]
    assert t.answer()[2].decode() == f"0 -1 -1 127.0.0.1:{port}"


def test_stopping_lets_the_current_requests_finish(start):
    s = start()
    busy, idle = s.tcp(), s.tcp()
    busy.say(GET % b"/later?ms=1000")
    idle.say(GET % b"/hello")
    idle.answer()
    s.process.stdin.write(b"x")
    s.process.stdin.flush()
    assert idle.ended() == b""
    status, fields, body = busy.answer()
    assert (body, fields["connection"]) == (b"later\n", "close")
    assert busy.ended() == b""
    with pytest.raises(ConnectionRefusedError):
        s.tcp()
    assert not os.path.exists(s.path)


def test_ending_waits_for_jobs_whose_peers_are_cut_off(start):
    s = start()
    talks = [s.tcp() for _ in range(40)]
    for t in talks:
        t.say(GET % b"/job")
    time.sleep(0.01)
    s.stop()
    answers = [t.ended() for t in talks]
    assert all(a == b"" or a.endswith(b"job\n") for a in answers)
    assert b"" in answers, "all were done: this shows nothing"
