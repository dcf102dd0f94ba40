"""Many clients at once, each doing something else, some leaving in the middle: nobody gets stuck."""
import os
import random
import threading
import time

from test_websocket import HEAD, KEY, frame, next_frame

GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"
SECONDS = float(os.environ.get("HTTP_CROWD_SECONDS", "3"))


def plain(rng, t):
    for _ in range(rng.randrange(1, 6)):
        t.say(GET % b"/hello")
        assert t.answer()[2] == b"hello\n"


def pipelined(rng, t):
    todo = [rng.choice([(b"/hello", 6), (b"/later?ms=2", 6), (b"/job", 4), (b"/whole?n=400000", 400000), (b"/pieces", 9),
                        (b"/pour?n=70000", 70000)]) for _ in range(rng.randrange(1, 8))]
    t.say(b"".join(GET % path for path, _ in todo))
    assert [len(t.answer()[2]) for _ in todo] == [n for _, n in todo]


def echoes(rng, t):
    body = rng.randbytes(rng.choice([0, 1, 100, 5000, 100000]))
    if rng.random() < 0.5:
        t.say(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    else:
        t.say(b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(0, len(body), 3000):
            t.say(b"%x\r\n%b\r\n" % (len(body[i:i + 3000]), body[i:i + 3000]))
        t.say(b"0\r\n\r\n")
    assert t.answer()[2] == body


def paused(rng, t):
    t.say(b"POST /count?pause=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n" + bytes(50000))
    assert t.answer()[2] == b"50000"


def piped(rng, t):
    t.say(b"POST /pipe HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    t.until(b"\r\n\r\n")
    for _ in range(rng.randrange(1, 10)):
        t.say(b"5\r\nabcde\r\n")
        assert t.until(b"abcde\r\n") == b"5\r\nabcde\r\n"
    t.say(b"0\r\n\r\n")
    assert t.exactly(5) == b"0\r\n\r\n"


def talks(rng, t):
    t.say(HEAD % (b"13", KEY))
    t.until(b"\r\n\r\n")
    for _ in range(rng.randrange(1, 5)):
        data = rng.randbytes(rng.randrange(3000))
        t.say(frame(2, data))
        assert next_frame(t) == (0x82, data)
    t.say(frame(8, b"\x03\xe8"))
    assert next_frame(t) == (0x88, b"\x03\xe8")
    assert t.ended() == b""
    return False


def leaves(rng, t):
    t.say(rng.choice([GET % b"/pour?n=10000000", GET % b"/hold", GET % b"/later?ms=5", b"GET /x HTTP",
                      b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\nabc",
                      b"POST /pipe HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\nabc",
                      HEAD % (b"13", KEY) + frame(1, b"flood")]))
    time.sleep(rng.random() / 100)
    t.sock.close()
    return False


DEEDS = [plain, pipelined, echoes, paused, piped, talks, leaves]


def test_a_crowd(server):
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    end, failures, done = time.monotonic() + SECONDS, [], [0] * 24

    def client(i):
        rng = random.Random(seed + i)
        try:
            while time.monotonic() < end:
                t = rng.choice([server.tcp, server.local])()
                for _ in range(5):
                    done[i] += 1
                    if rng.choice(DEEDS)(rng, t) is False:
                        break
                t.sock.close()
        except Exception as e:  # noqa: BLE001 - whatever it is, the test tells it
            failures.append(repr(e))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(len(done))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures[:3]
    assert all(done)
    server.wait(connections=1, requests=1, held=0)
    assert server.quiet_fds() == server.fds
