"""WebSockets: against another implementation, and frame by frame."""
import asyncio
import base64
import hashlib
import os
import struct
import time

import pytest

from conftest import GROWTH_KIB

HEAD = (b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: %s\r\nSec-WebSocket-Key: %s\r\n\r\n")
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="


def frame(opcode, data=b"", fin=True, mask=b"\x12\x34\x56\x78", rsv=0):
    n = len(data)
    size = bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536 else b"\x7f" + struct.pack(">Q", n)
    head = bytes([(0x80 if fin else 0) | rsv | opcode, size[0] | (0x80 if mask else 0)]) + size[1:]
    if mask:
        data = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
    return head + (mask or b"") + data


def open_ws(server, kind="tcp"):
    t = getattr(server, kind)()
    t.say(HEAD % (b"13", KEY))
    head = t.until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in head
    return t


def next_frame(t):
    first, size = t.exactly(2)
    assert size < 128
    n = size if size < 126 else int.from_bytes(t.exactly(2 if size == 126 else 8), "big")
    return first, t.exactly(n)


def test_another_implementation_agrees(server):
    websockets = pytest.importorskip("websockets")

    async def talk():
        async with websockets.connect(f"ws://127.0.0.1:{server.port}/ws", max_size=None, compression="deflate",
                                      subprotocols=["other", "echo"]) as ws:
            assert ws.subprotocol == "echo"
            for n in (0, 1, 125, 126, 127, 65535, 65536, 1 << 20):
                data = os.urandom(n)
                await ws.send(data)
                assert await ws.recv() == data
            await ws.send("žluťoučký kůň")
            assert await ws.recv() == "žluťoučký kůň"
            await ws.send(["in ", "three ", "pieces"])
            assert await ws.recv() == "in three pieces"
            await (await ws.ping(b"beat"))
            await ws.send("close")
            with pytest.raises(websockets.ConnectionClosed) as e:
                await ws.recv()
            assert (e.value.code, e.value.reason) == (4000, "as you say")
        async with websockets.connect(f"ws://127.0.0.1:{server.port}/ws") as ws:
            await ws.send("x" * 70000)
            assert len(await ws.recv()) == 70000
        assert ws.close_code == 1000
        async with websockets.connect(f"ws://127.0.0.1:{server.port}/ws") as ws:
            await ws.send(bytes((1 << 20) + 1))
            with pytest.raises(websockets.ConnectionClosed) as e:
                await ws.recv()
            assert e.value.code == 1009

    asyncio.run(talk())
    server.wait(gone=3, requests=1, connections=1)


def test_a_flood_waits_for_its_reader(server):
    t = open_ws(server)
    before = server.memory_kib()
    t.say(frame(1, b"flood"))
    time.sleep(0.3)
    assert server.memory_kib() - before < GROWTH_KIB
    got = 0
    while True:
        first, data = next_frame(t)
        if first == 0x81:
            break
        got += len(data)
    assert (got, data) == (4096 * 4096, b"done")


def test_pings_are_answered_between_fragments(server):
    t = open_ws(server, "local")
    t.say(frame(1, b"ab", fin=False) + frame(9, b"hi") + frame(0, b"", fin=False) + frame(0, b"cd") + frame(10, b"x"))
    assert next_frame(t) == (0x8a, b"hi")
    assert next_frame(t) == (0x81, b"abcd")


def test_bytes_one_by_one(server):
    t = open_ws(server)
    for b in frame(2, bytes(range(200))) + frame(1, "é€😀".encode()):
        t.say(bytes([b]))
    assert next_frame(t) == (0x82, bytes(range(200)))
    assert next_frame(t) == (0x81, "é€😀".encode())


@pytest.mark.parametrize("data, code", [
    (frame(1, b"x", mask=None), 1002),
    (frame(1, b"x", rsv=0x40), 1002),
    (frame(3, b"x"), 1002),
    (frame(11, b"x"), 1002),
    (frame(0, b"x"), 1002),
    (frame(1, b"x", fin=False) + frame(1, b"y"), 1002),
    (frame(9, b"x", fin=False), 1002),
    (frame(9, b"x" * 126), 1002),
    (b"\x82\xfe\x00\x05\0\0\0\0hello", 1002),
    (b"\x82\xff\x00\x00\x00\x00\x00\x00\x00\x05\0\0\0\0hello", 1002),
    (b"\x82\xff\x80\x00\x00\x00\x00\x00\x00\x05\0\0\0\0hello", 1002),
    (b"\x82\xff\x00\x00\x01\x00\x00\x00\x00\x00\0\0\0\0", 1009),
    (frame(2, bytes(1 << 19), fin=False) + frame(0, bytes((1 << 19) + 1)), 1009),
    (frame(1, b"\xff"), 1007),
    (frame(1, b"\xc3"), 1007),
    (frame(1, b"a\xed\xa0\x80"), 1007),
    (frame(1, b"\xe2\x82", fin=False) + frame(0, b"x"), 1007),
    (frame(8, b"\x03"), 1002),
    (frame(8, b"\x03\xed"), 1002),
    (frame(8, struct.pack(">H", 999)), 1002),
    (frame(8, struct.pack(">H", 1000) + b"\xff"), 1007),
    (frame(8, struct.pack(">H", 1000) + b"bye"), 1000),
    (frame(8, struct.pack(">H", 4999)), 4999),
], ids=range(23))
def test_every_breach_is_answered_with_its_code(server, data, code):
    t = open_ws(server)
    t.say(data)
    first, payload = next_frame(t)
    assert (first, int.from_bytes(payload[:2], "big")) == (0x88, code)
    assert t.ended() == b""
    server.wait(gone=1, requests=1, connections=1)


def test_a_close_without_a_code(server):
    t = open_ws(server)
    t.say(frame(8))
    assert next_frame(t) == (0x88, b"")
    assert t.ended() == b""


def test_a_peer_that_never_says_goodbye_is_cut_off(server):
    t = open_ws(server)
    t.say(frame(1, b"close"))
    assert next_frame(t) == (0x88, struct.pack(">H", 4000) + b"as you say")
    begin = time.monotonic()
    assert t.ended() == b""
    assert 1 < time.monotonic() - begin < 10
    server.wait(gone=1, requests=1, connections=1)


def test_a_peer_that_vanishes(server):
    for kind in "tcp", "local":
        t = open_ws(server, kind)
        t.say(frame(1, b"ab", fin=False))
        t.sock.close()
    server.wait(gone=2, requests=1, connections=1)


def test_a_frame_that_comes_with_the_handshake(server):
    t = server.tcp()
    t.say(HEAD % (b"13", KEY) + frame(1, b"early"))
    t.until(b"\r\n\r\n")
    assert next_frame(t) == (0x81, b"early")


@pytest.mark.parametrize("text, status", [
    (b"GET /ws HTTP/1.1\r\nHost: a\r\n\r\n", 426),
    (HEAD % (b"8", KEY), 426),
    (HEAD % (b"13", b"short"), 400),
    (HEAD % (b"13", b"dGhlIHNhbXBsZSBub25jZQ=!"), 400),
    ((HEAD % (b"13", KEY)).replace(b"GET", b"PUT"), 400),
    ((HEAD % (b"13", KEY)).replace(b"HTTP/1.1", b"HTTP/1.0"), 426),
    ((HEAD % (b"13", KEY)).replace(b"\r\n\r\n", b"\r\nContent-Length: 1\r\n\r\nx"), 400),
], ids=range(7))
def test_an_improper_request_is_refused_and_the_connection_kept(server, text, status):
    t = server.tcp()
    t.say(text)
    got, fields, _ = t.answer()
    assert (got, fields["sec-websocket-version"]) == (status, "13")
    if b"HTTP/1.0" not in text:
        t.say(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        assert t.answer()[2] == b"hello\n"
    server.wait(gone=0)


def test_any_key_gets_its_hash(server):
    for _ in range(20):
        key = base64.b64encode(os.urandom(16))
        t = server.tcp()
        t.say(HEAD % (b"13", key))
        want = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        assert b"Sec-WebSocket-Accept: " + want + b"\r\n" in t.until(b"\r\n\r\n")
