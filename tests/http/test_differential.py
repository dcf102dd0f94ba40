"""
The codec beside two others that are in wide use: Node's parser (llhttp) and Python's own.

What both of them refuse is refused here. And where one is followed by the other - as behind a proxy -
they never see different messages: whatever is accepted here is either refused there, or means the same.
"""
import email.errors
import http.client
import http.server
import io
import json
import os
import random
import shutil
import struct
import subprocess

import pytest

from conftest import BUILD, TOP

REQUESTS = [
    b"GET /a?b=c HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: b\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n",
    b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nabc",
    b"DELETE /a%20b HTTP/1.1\r\nHost: a:80\r\nX-Long: a b\tc\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;x=y\r\nabc\r\n1\r\nd\r\n0\r\nX-Trailer: z\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://a.b/c HTTP/1.1\r\nHost: a.b\r\n\r\n",
    b"HEAD / HTTP/1.0\r\n\r\n",
]
RESPONSES = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n\r\nuntil the end",
    b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
]
# Where parsers have disagreed in the past.
PARTS = [b"\r", b"\n", b"\r\n", b" ", b"\t", b"\0", b":", b",", b";", b"\x0b", b"\x7f", b"\x80", b"0", b"1", b"5", b"+5", b"-1",
         b"0x5", b"5, 5", b"1e1", b"\r\n ", b"\n\n", b"\r\r\n", b"chunked", b"identity", b"Content-Length: 5\r\n",
         b"Content-Length: 6\r\n", b"Content-Length : 5\r\n", b"Transfer-Encoding: chunked\r\n",
         b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding:\x0bchunked\r\n", b"Transfer-Encoding: identity\r\n",
         b"Transfer-Encoding: chunked, identity\r\n", b"Transfer-Encoding: xchunked\r\n", b"Transfer-Encoding\r\n",
         b"Host: b\r\n", b" Host: b\r\n", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/1.2", b"http/1.1", b"5 \r\n", b"5;\r\n", b"05\r\n",
         b"ffffffffffffffff\r\n", b"0\r\n\r\n", b"GET / HTTP/1.1\r\n", b"Connection: close\r\n", b"X\r\n", b": x\r\n", b"X y: z\r\n"]


def mutate(rng, seeds):
    s = bytearray(rng.choice(seeds))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(s) + 1)
        if rng.random() < 0.5:  # at the start of a line, where most of it matters
            ends = [i + 2 for i in range(len(s)) if s[i:i + 2] == b"\r\n"]
            at = rng.choice(ends) if ends else at
        kind = rng.randrange(4)
        if kind == 0:
            s[at:at] = rng.choice(PARTS)
        elif kind == 1:
            s[at:at + rng.randrange(1, 4)] = b""
        elif kind == 2:
            s[at:at + 1] = rng.choice(PARTS)
        else:
            s[at:at + 1] = bytes([rng.randrange(256)])
    return bytes(s)


def samples(seed, count):
    rng = random.Random(seed)
    fixed = [(0, r) for r in REQUESTS] + [(1, r) for r in RESPONSES]
    return fixed + [(kind, mutate(rng, (REQUESTS, RESPONSES)[kind])) for kind in (0, 1) for _ in range(count)]


def ask(command, data):
    done = subprocess.run(command, input=data, capture_output=True, timeout=50)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


class OneHead(http.server.BaseHTTPRequestHandler):
    def __init__(self, data):
        self.rfile, self.wfile = io.BytesIO(data), io.BytesIO()
        self.client_address, self.close_connection = ("", 0), True
        self.raw_requestline = self.rfile.readline(65537)
        self.ok = self.parse_request()

    def log_message(self, *_):
        pass


def python_refuses(kind, data):
    """Whether the first head is refused."""
    try:
        if kind == 0:
            return not OneHead(data).ok

        class Sock:
            def makefile(self, _):
                return io.BytesIO(data)
        http.client.HTTPResponse(Sock()).begin()
        return False
    except (http.client.HTTPException, email.errors.MessageError, ValueError, ConnectionError):
        return True


def compare(kind, data, ours, node):
    """What is wrong, or None."""
    for i, mine in enumerate(ours["messages"]):
        if not mine["whole"] or mine["upgrade"]:
            return None
        if i >= len(node["messages"]):
            return None if node["end"] else "accepted here, not seen there"
        other = node["messages"][i]
        if not other["whole"]:
            return None if node["end"] else "whole here, not whole there"
        if (mine["first"], mine["target"]) != (other["first"], other["target"]):
            return "another first line"
        if mine["body"] != other["body"]:
            return "another body"
        if other["upgrade"]:
            return None
    if kind == 0 and len(ours["messages"]) == 0 and not ours["end"] and node["messages"]:
        return "nothing here, something there"
    return None


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_beside_llhttp_and_python():
    seed = int(os.environ.get("HTTP_SEED", "7"))
    todo = samples(seed, int(os.environ.get("HTTP_SAMPLES", "6000")))
    wire = b"".join(struct.pack(">BI", kind, len(data)) + data for kind, data in todo)
    ours = ask([str(BUILD / "tests/http/http-codec")], wire)
    node = ask(["node", "--no-deprecation", str(TOP / "tests/http/llhttp.js")], wire)
    assert len(ours) == len(node) == len(todo)
    wrong, both_refuse, both_accept = [], 0, 0
    for (kind, data), a, b in zip(todo, ours, node):
        # Node knows a list of methods; here any token is one.
        known = b["end"] != "HPE_INVALID_METHOD"
        refused_there = not b["messages"] and b["end"] and known and python_refuses(kind, data)
        if refused_there:
            both_refuse += 1
            if a["messages"]:
                wrong.append(("refused there, accepted here", kind, data, a, b))
        both_accept += bool(a["messages"] and b["messages"])
        why = compare(kind, data, a, b)
        if why:
            wrong.append((why, kind, data, a, b))
    for item in wrong[:8]:
        print(*item, sep="\n   ")
    assert not wrong, f"{len(wrong)} of {len(todo)} differ (seed {seed})"
    # Otherwise the samples would say nothing.
    assert both_refuse > len(todo) / 50 and both_accept > len(todo) / 10
