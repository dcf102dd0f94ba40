"""The test server of this folder, one for each test that asks, and a client that says bytes."""
import http.client
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests"))

import patience  # noqa: E402

BUILD = pathlib.Path(os.environ.get("CARREL_BUILD") or TOP / "build")
PROGRAM = str(BUILD / "tests/http/http-test-server")
GROWTH_KIB = 1 << 20 if patience.sanitized(PROGRAM) else 2048  # what a server may grow by when it holds nothing


time_limit = patience.time_limit(60)


class Talk:
    """A connection on which a test says exactly what it wants."""

    def __init__(self, sock):
        self.sock, self.got = sock, b""
        sock.settimeout(20)

    def say(self, data):
        self.sock.sendall(data)

    def until(self, wanted):
        """Everything up to and with these bytes; the rest stays for the next call."""
        while wanted not in self.got:
            data = self.sock.recv(65536)
            assert data, f"ended before {wanted!r}: {self.got!r}"
            self.got += data
        seen, _, self.got = self.got.partition(wanted)
        return seen + wanted

    def exactly(self, n):
        parts, have = [self.got], len(self.got)
        while have < n:
            data = self.sock.recv(1 << 20)
            assert data, f"ended after {have} of {n} bytes"
            parts.append(data)
            have += len(data)
        seen = b"".join(parts)
        self.got = seen[n:]
        return seen[:n]

    def answer(self, method="GET"):
        """One answer: status, fields in lower case, body (chunked is put together)."""
        line, *lines = self.until(b"\r\n\r\n")[:-4].decode().split("\r\n")
        fields = {k.lower(): v for k, v in (x.split(": ", 1) for x in lines)}
        body = b""
        if method == "HEAD":
            pass
        elif fields.get("transfer-encoding") == "chunked":
            pieces = []
            while size := int(self.until(b"\r\n"), 16):
                pieces.append(self.exactly(size + 2)[:-2])
            body = b"".join(pieces)
            assert self.exactly(2) == b"\r\n"
        else:
            body = self.exactly(int(fields.get("content-length", 0)))
        assert line.startswith("HTTP/1.1 ")
        return int(line.split()[1]), fields, body

    def ended(self):
        """All that comes until the other side closes; then this one does."""
        try:
            while data := self.sock.recv(65536):
                self.got += data
        except ConnectionResetError:
            pass
        self.sock.close()
        return self.got


class Server:
    def __init__(self, *options):
        self.dir = tempfile.TemporaryDirectory(prefix="ht-", dir="/tmp")
        self.path = self.dir.name + "/s"
        self.process = subprocess.Popen([PROGRAM, "--unix", self.path, *map(str, options)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"
        self.fds = len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def tcp(self):
        return Talk(socket.create_connection(("127.0.0.1", self.port)))

    def local(self):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(self.path)
        return Talk(sock)

    def ask(self, method, target, body=None, headers=()):
        """By Python's own client, on a connection of its own."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        c.request(method, target, body, dict(headers))
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, data

    def stats(self):
        return json.loads(self.ask("GET", "/stats")[1])

    def wait(self, **wanted):
        """Until the statistics say so."""
        end = time.monotonic() + 10
        while True:
            now = self.stats()
            if all(now[k] == v for k, v in wanted.items()):
                return now
            assert time.monotonic() < end, (wanted, now)
            time.sleep(0.01)

    def memory_kib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def quiet_fds(self):
        """Its open descriptors, once no connection but the one that asks is left."""
        self.wait(connections=1)
        end = time.monotonic() + 10
        while (n := len(os.listdir(f"/proc/{self.process.pid}/fd"))) != self.fds:
            if time.monotonic() > end:
                break
            time.sleep(0.01)
        return n

    def stop(self):
        if self.process.returncode is not None:
            return
        self.process.stdin.close()
        assert self.process.wait(20) == 0
        self.process.stdout.close()
        left = os.listdir(self.dir.name)
        self.dir.cleanup()
        assert left == []


@pytest.fixture
def start():
    """start("--head-ms", 200): a server with these limits."""
    started = []

    def one(*options):
        started.append(Server(*options))
        return started[-1]

    yield one
    for s in started:
        s.stop()


@pytest.fixture
def server(start):
    return start()
