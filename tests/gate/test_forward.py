"""`carrel forward`: TCP ports of a machine on this host, byte for byte, for programs of one user only."""
import hashlib
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from carrel import PROGRAM, ROOTLESS
from daemon import Daemon, TcpClient
from kinds import ANY

# One port for each manner of a server: its program handles one connection `c` per thread.
MANNERS = {
    7001: "while b := c.recv(65536): c.sendall(b)",  # an echo, until the client has ended
    7002: """
h = hashlib.sha256()
while b := c.recv(65536): h.update(b)
c.sendall(h.hexdigest().encode())""",  # answers only when the client has ended
    7003: """
c.sendall(b"all")
c.shutdown(socket.SHUT_WR)
h = b""
while b := c.recv(65536): h += b
open("/tmp/heard", "wb").write(h)""",  # ends first, and still listens
    7004: """
c.recv(1)
c.sendall(b"part")
c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))""",  # breaks off
    7005: "c.sendall(b'y' * 20_000_000)",
}
SERVER = """
import hashlib, socket, struct, sys, threading, time
def serve(port, manner):
    s = socket.create_server(("ANY", port), backlog=400)
    def one(c):
        with c:
            exec(manner, {**globals(), "c": c})
    while True:
        threading.Thread(target=one, args=(s.accept()[0],)).start()
silent = socket.create_server(("ANY", 7006), backlog=400)
for port, manner in MANNERS.items():
    threading.Thread(target=serve, args=(port, manner)).start()
print("ready", flush=True)
""".replace("MANNERS", repr(MANNERS)).replace("ANY", ANY)
SECONDS = 60


@pytest.fixture(scope="module")
def module_daemon():
    d = Daemon("--listen", "127.0.0.1:0")
    yield d
    d.stop()


@pytest.fixture(scope="module")
def module_box(module_daemon):
    return with_servers(module_daemon)


@pytest.fixture
def daemon(module_daemon, module_box):
    yield module_daemon
    for m in module_daemon.machines(all=1):
        if m["id"] != module_box:
            module_daemon.delete(f"/v1/machines/{m['id']}")


@pytest.fixture
def box(daemon, module_box):
    return module_box


def with_servers(daemon):
    box = daemon.machine()
    x = daemon.background(box, ["python3", "-c", SERVER])
    daemon.until(lambda: "ready" in daemon.get(f"/v1/machines/{box}/execs/{x}/output", raw=True).decode())
    return box


class Forward:
    """A running `carrel forward`."""

    def __init__(self, daemon, *words, env=()):
        self.process = subprocess.Popen([PROGRAM, "forward", *map(str, words)], env={**daemon.env, **dict(env)}, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ports = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end()
        for pipe in (self.process.stdout, self.process.stderr):
            pipe.close()

    def end(self, how=signal.SIGTERM):
        """Its exit status, and what it said on stderr."""
        self.process.send_signal(how)
        return self.process.wait(SECONDS), self.process.stderr.read()

    def listens(self):
        """The port of this host that the next line names."""
        line = self.process.stdout.readline()
        port = re.match(r"\S+:(\d+) to port \d+ of machine '\S+'\n", line)
        assert port, (line, self.process.stderr.read())
        return int(port[1])


def call(port):
    return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)


def all_of(c):
    return b"".join(iter(lambda: c.recv(65536), b""))


@pytest.fixture
def forwarded(daemon, box):
    """Connects to the port of the machine."""
    with Forward(daemon, box, *(f"0:{p}" for p in sorted(MANNERS))) as f:
        ports = {p: f.listens() for p in sorted(MANNERS)}
        yield lambda port: call(ports[port])


def test_bytes_go_both_ways_and_connections_do_not_mix(forwarded):
    clients = [forwarded(7001) for _ in range(40)]
    for i, c in enumerate(clients):
        c.sendall(b"%d " % i * 1000)
    for i, c in enumerate(clients):
        c.shutdown(socket.SHUT_WR)
        assert all_of(c) == b"%d " % i * 1000
        c.close()


def test_a_client_may_end_its_bytes_and_still_gets_the_answer(forwarded):
    data = os.urandom(3_000_000)
    with forwarded(7002) as c:
        c.sendall(data)
        c.shutdown(socket.SHUT_WR)
        assert all_of(c) == hashlib.sha256(data).hexdigest().encode()


def test_a_server_may_end_its_bytes_and_still_listens(daemon, box, forwarded):
    with forwarded(7003) as c:
        assert all_of(c) == b"all"
        c.sendall(b"after your end" * 10000)
    daemon.until(lambda: daemon.exec(box, "test -e /tmp/heard && cat /tmp/heard | wc -c")["stdout"].strip() == "140000")


def test_a_connection_that_breaks_is_no_end_of_the_bytes(forwarded):
    with forwarded(7004) as c:
        c.sendall(b"x")
        with pytest.raises(ConnectionResetError):
            while c.recv(100):
                pass


def test_much_in_both_directions_at_once_with_a_slow_reader(forwarded):
    data = os.urandom(8_000_000)
    with forwarded(7001) as c, forwarded(7005) as slow:
        def send():
            c.sendall(data)
            c.shutdown(socket.SHUT_WR)
        sender = threading.Thread(target=send)
        sender.start()
        assert slow.recv(10) == b"y" * 10  # and no more for now: it delays nobody
        assert all_of(c) == data
        sender.join()
        assert len(all_of(slow)) == 20_000_000 - 10


def test_over_tcp_it_is_the_same(daemon, box):
    secret = daemon.post("/v1/tokens", {"note": "far", "scopes": ["read", "run"]})["secret"]
    far = {"CARREL_URL": f"http://127.0.0.1:{daemon.port}", "CARREL_TOKEN": secret}
    data = os.urandom(2_000_000)
    with Forward(daemon, box, "0:7002", "0:7003", "0:7005", env=far) as f:
        answers, ends, much = f.listens(), f.listens(), f.listens()
        with call(answers) as c:
            c.sendall(data)
            c.shutdown(socket.SHUT_WR)
            assert all_of(c) == hashlib.sha256(data).hexdigest().encode()
        with call(ends) as c:
            assert all_of(c) == b"all"
        with call(much) as c:
            c.shutdown(socket.SHUT_WR)
            assert len(all_of(c)) == 20_000_000


def test_a_port_where_nothing_listens_is_reported(daemon, box):
    with Forward(daemon, box, "0:7999") as f:
        with call(f.listens()) as c, pytest.raises(ConnectionResetError):
            c.recv(1)
        status, said = f.end()
        assert status == 0 and said == f"carrel: no program in machine '{box}' listens on port 7999\n"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_with_all_its_connections(daemon, box, how):
    with Forward(daemon, box, "0:7001") as f:
        port = f.listens()
        with call(port) as c:
            c.sendall(b"x")
            assert c.recv(1) == b"x"
            assert f.end(how) == (0, "")
            with pytest.raises(ConnectionResetError):
                c.recv(1)
        with pytest.raises(ConnectionRefusedError):
            call(port)


def test_it_ends_with_the_machine(daemon):
    box = with_servers(daemon)
    with Forward(daemon, box, "0:7001") as f:
        port = f.listens()
        with call(port) as c:
            c.sendall(b"x")
            assert c.recv(1) == b"x"
            daemon.delete(f"/v1/machines/{box}")
            try:
                assert c.recv(1) == b""
            except ConnectionResetError:
                pass
        with pytest.raises((ConnectionResetError, ConnectionRefusedError)), call(port) as c:  # it may have ended before
            c.recv(1)
        assert f.process.wait(SECONDS) == 125
        assert box in f.process.stderr.read()


def test_it_ends_with_the_machine_without_a_connection(daemon):
    """The control: while the machine is there it goes on."""
    box = with_servers(daemon)
    with Forward(daemon, box, "0:7001") as f:
        port = f.listens()
        time.sleep(3.5)  # longer than the time between two looks
        with call(port) as c:
            c.sendall(b"x")
            assert c.recv(1) == b"x"
        daemon.delete(f"/v1/machines/{box}")
        assert f.process.wait(SECONDS) == 125
        assert f"machine '{box}' has ended" in f.process.stderr.read()


@pytest.mark.skipif(ROOTLESS, reason="pausing a machine requires a cgroup, and this user has none")
def test_a_paused_machine_wakes_for_a_connection(daemon, box):
    with Forward(daemon, box, "0:7001") as f:
        port = f.listens()
        daemon.post(f"/v1/machines/{box}/pause")
        with call(port) as c:
            c.sendall(b"x")
            assert c.recv(1) == b"x"
        assert daemon.get(f"/v1/machines/{box}")["state"] == "running"


def test_wrong_words_are_refused(daemon, box):
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    for words, says in (([], "no machine given"), ([box], "no port given"), ([box, "0"], "port '0'"), ([box, "x:1"], "port 'x:1'"),
                        ([box, "1:70000"], "port '1:70000'"), ([box, "123456789:1"], "not a port"), ([box, "1:2:3"], "port '1:2:3'"),
                        (["nobody", "0:1"], "machine 'nobody'"), (["--address", "here", box, "1"], "not an IP address"),
                        ([box, f"{port}:1"], f"cannot listen on 127.0.0.1 port {port}")):
        done = subprocess.run([PROGRAM, "forward", *words], env=daemon.env, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 125 and says in done.stderr, done.stderr
    taken.close()


@pytest.mark.skipif(ROOTLESS, reason="a connection of another user: only root can make one")
def test_programs_of_other_users_are_refused(daemon, box):
    def as_other(port):
        script = f"import socket; c = socket.create_connection(('127.0.0.1', {port})); c.sendall(b'x'); print(c.recv(1))"
        return subprocess.run(["python3", "-c", script], user=65534, group=65534, extra_groups=[], capture_output=True, text=True)

    with Forward(daemon, box, "0:7001") as f:
        assert as_other(f.listens()).stdout != "b'x'\n"
        assert "refused a connection of another user" in f.end()[1]
    with Forward(daemon, "--all-users", box, "0:7001") as f:
        assert as_other(f.listens()).stdout == "b'x'\n"


# ---- the route ----

class Tunnel:
    """A WebSocket that is just enough; `status` is the answer's."""

    def __init__(self, client, target, upgrade="websocket"):
        connection = client.connect(SECONDS)
        connection.connect()
        self.sock = connection.sock
        fields = {"Host": "localhost", "Connection": "Upgrade", "Upgrade": upgrade, "Sec-WebSocket-Version": "13",
                  "Sec-WebSocket-Key": "AAECAwQFBgcICQoLDA0ODw==", **client.headers}
        self.sock.sendall("".join([f"GET {target} HTTP/1.1\r\n", *(f"{k}: {v}\r\n" for k, v in fields.items() if v), "\r\n"]).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.sock.recv(1)
        self.status = int(head.split()[1])

    def send(self, data, kind=2):
        self.sock.sendall(bytes([0x80 | kind, 0x80 | len(data), 0, 0, 0, 0]) + data)

    def hears(self, data):
        """Whether this comes before the connection ends."""
        heard = b""
        while data not in heard:
            try:
                more = self.sock.recv(65536)
            except ConnectionResetError:
                return False
            if not more:
                return False
            heard += more
        return True

    def close(self):
        self.sock.close()


def status(*args, **more):
    t = Tunnel(*args, **more)
    t.close()
    return t.status


def test_the_route_needs_an_upgrade_and_a_port(daemon, box):
    for upgrade in (None, "tcp"):
        assert status(daemon, f"/v1/machines/{box}/forward/7001", upgrade=upgrade) in (400, 426)
    for port in ("0", "70000", "x", "-1", "7001x"):
        assert status(daemon, f"/v1/machines/{box}/forward/{port}") == 400


def test_tokens_of_others_do_not_lead_into_a_machine(daemon, box):
    target = f"/v1/machines/{box}/forward/7001"
    assert status(TcpClient(daemon.port), target) == 401
    assert status(TcpClient(daemon.port, "x" * 52), target) == 401
    assert status(daemon.tcp(owner="ben"), target) == 404
    assert status(daemon.tcp(scopes=["read"]), target) == 403
    assert status(daemon.tcp(scopes=["read", "run"]), target) == 101


def test_a_revoked_token_ends_its_connections(daemon, box):
    made = daemon.post("/v1/tokens", {"scopes": ["run"]})
    t = Tunnel(TcpClient(daemon.port, made["secret"]), f"/v1/machines/{box}/forward/7001")
    t.send(b"first")
    assert t.hears(b"first")
    daemon.delete(f"/v1/tokens/{made['id']}")
    t.send(b"second")
    assert not t.hears(b"second")


@pytest.mark.parametrize("kind, data", [(1, b"end"), (1, b'{"type":"taken"}'), (1, b'["end"]'), (1, b"\xff"), (3, b"x"), (2, b"x")])
def test_malformed_messages_break_the_connection(daemon, box, kind, data):
    t = Tunnel(daemon, f"/v1/machines/{box}/forward/7001")
    t.send(b"good")
    assert t.hears(b"good")
    if kind == 2:  # bytes after their end
        t.send(b'{"type":"end"}', 1)
    t.send(data, kind)
    assert not t.hears(b"\x81\x10never such text"), "it ends"


def test_connections_to_one_machine_are_limited(daemon, box):
    target = f"/v1/machines/{box}/forward/7006"
    kept = [Tunnel(daemon, target) for _ in range(256)]
    assert {t.status for t in kept} == {101}
    assert status(daemon, target) == 429
    other = with_servers(daemon)
    assert status(daemon, f"/v1/machines/{other}/forward/7001") == 101, "another machine has its own"
    for t in kept:
        t.close()
    daemon.until(lambda: status(daemon, target) == 101)


def test_the_journal_names_machine_and_port(daemon):
    box = daemon.machine()
    assert status(daemon, f"/v1/machines/{box}/forward/7001") == 409
    text = daemon.request("GET", "/v1/audit", raw=True, machine=box, verb="forward").decode()
    assert '"port":7001' in text and "listens on port 7001" in text
