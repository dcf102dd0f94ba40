"""Descriptors that travel with requests and answers on the unix socket."""
import array
import os
import socket

GET = b"GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n"


def pipe_with(text):
    r, w = os.pipe()
    os.write(w, text)
    os.close(w)
    return r


def send(talk, data, fds):
    control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    assert talk.sock.sendmsg([data], control) == len(data)
    for fd in fds:
        os.close(fd)


def test_descriptors_arrive_with_their_request(server):
    t = server.local()
    for n in (1, 2, 8):
        send(t, GET % (b"/fds", b"Carrel-Fds: %d\r\n" % n), [pipe_with(b"%d" % i) for i in range(n)])
        assert t.answer()[2] == b"01234567"[:n]
    send(t, GET % (b"/fds", b"Carrel-Fds: 0\r\n"), [])
    assert t.answer()[0] == 200
    t.sock.close()
    assert server.quiet_fds() == server.fds


def test_descriptors_with_a_body_and_with_pipelined_requests(server):
    t = server.local()
    send(t, b"POST /fds-body HTTP/1.1\r\nHost: a\r\nCarrel-Fds: 1\r\nContent-Length: 3\r\n\r\nabc", [pipe_with(b"x")])
    assert t.answer()[2] == b"x"
    send(t, GET % (b"/hello", b""), [])
    send(t, GET % (b"/fds", b"Carrel-Fds: 1\r\n"), [pipe_with(b"y")])
    send(t, GET % (b"/fds", b"Carrel-Fds: 2\r\n"), [pipe_with(b"1"), pipe_with(b"2")])
    assert [t.answer()[2] for _ in range(3)] == [b"hello\n", b"y", b"12"]


def test_a_number_that_does_not_match_is_refused_and_all_are_closed(server):
    for field, n in [(b"Carrel-Fds: 2\r\n", 1), (b"Carrel-Fds: 1\r\n", 2), (b"", 1), (b"Carrel-Fds: 1\r\n", 0),
                     (b"Carrel-Fds: x\r\n", 1), (b"Carrel-Fds: 9\r\n", 8), (b"Carrel-Fds: 1\r\nCarrel-Fds: 1\r\n", 1),
                     (b"Carrel-Fds: 01\r\n", 1), (b"Carrel-Fds: 8\r\n", 9), (b"", 20),
                     (b"Carrel-Fds: 25\r\n", 25), (b"Carrel-Fds: 100\r\n", 24), (b"Carrel-Fds: 1x\r\n", 1)]:
        t = server.local()
        ends = [os.pipe() for _ in range(n)]
        send(t, GET % (b"/fds", field), [r for r, _ in ends])
        status, fields, _ = t.answer()
        assert (status, fields["connection"]) == (400, "close"), (field, n)
        t.ended()
        for _, w in ends:
            try:
                os.write(w, b"x")
                raise AssertionError("the server kept a descriptor")
            except BrokenPipeError:
                os.close(w)
    assert server.quiet_fds() == server.fds


def test_a_half_sent_request_leaves_no_descriptor_behind(server):
    r, w = os.pipe()
    t = server.local()
    send(t, b"GET /fds HTTP/1.1\r\nCarrel-Fds: 1\r\n", [r])
    t.sock.close()
    server.wait(connections=1)
    try:
        os.write(w, b"x")
        raise AssertionError("the server kept a descriptor")
    except BrokenPipeError:
        os.close(w)


def test_over_tcp_there_are_none(server):
    t = server.tcp()
    t.say(GET % (b"/fds", b"Carrel-Fds: 1\r\n"))
    assert t.answer()[0] == 400


def test_an_answer_brings_descriptors(server):
    t = server.local()
    for _ in range(3):
        t.say(GET % (b"/give", b""))
        data, control, _, _ = t.sock.recvmsg(65536, socket.CMSG_SPACE(64))
        t.got += data
        fds = array.array("i", control[0][2])
        assert [os.read(fd, 10) for fd in fds] == [b"a\n", b"b\n"]
        for fd in fds:
            os.close(fd)
        _, fields, body = t.answer()
        assert (fields["carrel-fds"], body) == ("2", b"two")
    t.sock.close()
    assert server.quiet_fds() == server.fds


def test_an_answer_with_descriptors_waits_its_turn(server):
    """Behind one that the peer has not read yet; the descriptors stay with their own bytes."""
    t = server.local()
    t.say(GET % (b"/pour?n=1000000", b"") + GET % (b"/give", b"") + GET % (b"/hello", b"") + GET % (b"/give", b""))
    fds = array.array("i")
    while t.got.count(b"two") < 2:
        data, control, _, _ = t.sock.recvmsg(65536, socket.CMSG_SPACE(64))
        t.got += data
        for c in control:
            assert b"Carrel-Fds: 2" in data
            fds.frombytes(c[2])
    assert [os.read(fd, 10) for fd in fds] == [b"a\n", b"b\n"] * 2
    for fd in fds:
        os.close(fd)
