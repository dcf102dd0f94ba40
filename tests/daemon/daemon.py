"""A real daemon with a run directory and store of its own, and a plain HTTP client of it."""
import array
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from carrel import BUILD, ROOTLESS, signal_all, stop_spawner  # noqa: E402
import host_image  # noqa: E402
from host_image import remove  # noqa: E402
from host_state import HostState, sub_ids  # noqa: E402
from kinds import with_kernel, with_kind  # noqa: E402
from patience import PATIENCE, clock  # noqa: E402

DAEMON = str(BUILD / "libexec/carrel-daemon")
START_S = 60
WAIT_S = 60  # and no less: who waits for what is sure to come loses nothing on a busy host


@contextlib.contextmanager
def stopped(pids):
    """These processes stand still meanwhile."""
    signal_all(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_all(pids, signal.SIGCONT)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=60):
        super().__init__("carrel", timeout=timeout * PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Refused(Exception):
    """An answer that is an error: .status and the members of its body."""

    def __init__(self, status, body):
        super().__init__(status, body)
        self.status = status
        self.error = body["error"] if isinstance(body, dict) and "error" in body else {}
        self.code = self.error.get("code")


class Client:
    """Requests over what connect() gives."""
    headers = {}

    def request(self, method, target, body=None, headers=(), raw=False, connection=None, **query):
        """The status and the answer: JSON, or bytes with raw. Refusals are raised."""
        if (method, target) == ("POST", "/v1/machines") and isinstance(body, dict):
            body = with_kind(body)
        if query:
            target += "?" + urllib.parse.urlencode(query)
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        c = connection or self.connect()
        c.request(method, target, body=data, headers={**self.headers, **dict(headers)})
        answer = c.getresponse()
        content = answer.read()
        if not connection:
            c.close()
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        parsed = json.loads(content) if is_json and content else content
        if answer.status >= 300:
            raise Refused(answer.status, parsed)
        return content if raw else parsed

    def get(self, target, **query):
        return self.request("GET", target, **query)

    def post(self, target, body=None, **query):
        return self.request("POST", target, body if body is not None else {}, **query)

    def patch(self, target, body):
        return self.request("PATCH", target, body)

    def put(self, target, body, **query):
        return self.request("PUT", target, body, **query)

    def delete(self, target, **query):
        return self.request("DELETE", target, **query)

    def stream(self, method, path, body=None, headers=()):
        """Events of an NDJSON answer as they come."""
        c = self.connect(timeout=120)
        data = json.dumps(body).encode() if body is not None else None
        c.request(method, path, body=data, headers={"Accept": "application/x-ndjson", **dict(headers)})
        answer = c.getresponse()
        if answer.status >= 300:
            raise Refused(answer.status, json.loads(answer.read()))
        try:
            for line in answer:
                yield json.loads(line)
        finally:
            c.close()

    # ---- what tests do all the time ----

    def machine(self, **fields):
        return self.post("/v1/machines", fields)["id"]

    def machines(self, **query):
        return self.get("/v1/machines", **query)["machines"]

    def exec(self, machine, command, **fields):
        """The whole result of a shell line, or of a list of words."""
        words = {"command": command} if isinstance(command, str) else {"argv": command}
        return self.post(f"/v1/machines/{machine}/execs", {**words, **fields})

    def grant_database(self, machine, path):
        """Hands a small SQLite database over, made at that path; the grant's id."""
        with sqlite3.connect(path) as c:
            c.execute("CREATE TABLE goods (name TEXT)")
        fd = os.open(path, os.O_RDONLY)
        try:
            fields = {"kind": "sqlite", "what": str(path), "at": "/home/user/shop.db"}
            return self.send([fd], f"/v1/machines/{machine}/grants", fields)["grants"][-1]["id"]
        finally:
            os.close(fd)

    def ticket(self, way, machine=None, path="/home/user/note"):
        """For a file of this or a new machine, as a client of MCP gets it from the tool `transfer`."""
        session = {}
        if not machine:
            machine = self.machine()
            self.exec(machine, "echo hello >note")

        def ask(method, **params):
            c = self.connect()
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            accept = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
            c.request("POST", "/mcp?machine=" + machine, body=body, headers={**accept, **session})
            answer = c.getresponse()
            session.setdefault("Mcp-Session-Id", answer.headers["Mcp-Session-Id"])
            content = answer.read().decode()
            c.close()
            return json.loads(re.search(r"\{.*\}", content)[0])["result"]

        ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"})
        told = ask("tools/call", name="transfer", arguments={"path": path, "way": way})
        return told["structuredContent"]["url"].rsplit("/", 1)[1]

    def grant(self, machine, kind, what, **fields):
        """Hands it over; the grant's id."""
        grants = self.post(f"/v1/machines/{machine}/grants", {"kind": kind, "what": what, **fields})["grants"]
        return [g["id"] for g in grants if (g["kind"], g["what"]) == (kind, what)][-1]

    def grants(self, machine, kind=None):
        return [g for g in self.get(f"/v1/machines/{machine}/grants")["grants"] if kind in (None, g["kind"])]

    def revoke(self, machine, kind):
        """Takes back all of that kind."""
        for g in self.grants(machine, kind):
            self.delete(f"/v1/machines/{machine}/grants/{g['id']}")

    def background(self, machine, command, **fields):
        words = {"command": command} if isinstance(command, str) else {"argv": command}
        return self.post(f"/v1/machines/{machine}/execs", {**words, "background": True, **fields})["id"]

    def held(self, machine):
        """The id of a request of this machine that waits for an approval."""
        self.post(f"/v1/machines/{machine}/net/rules", {"action": "ask", "target": "http://a.example"})
        self.background(machine, "curl -s http://a.example/")
        return self.until(lambda: [p["id"] for p in self.get("/v1/pending")["pending"] if p["machine"] == machine])[0]

    def wait(self, machine, exec_id, seconds=WAIT_S):
        """The exec once it has an outcome."""
        end = clock() + max(seconds, WAIT_S)
        while True:
            x = self.get(f"/v1/machines/{machine}/execs/{exec_id}")
            if x["state"] not in ("starting", "running"):
                return x
            assert clock() < end, x
            time.sleep(0.02)

    def until(self, condition, seconds=WAIT_S):
        end = clock() + max(seconds, WAIT_S)
        while True:
            value = condition()
            if value:
                return value
            assert clock() < end, "it did not come true" + self.last_lines()
            time.sleep(0.02)

    def last_lines(self):
        """What the daemon logged last, for a message."""
        return ""


class TcpClient(Client):
    def __init__(self, port, token=None):
        self.port = port
        self.headers = {"Authorization": "Bearer " + token} if token else {}

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def with_own_ingress(conf):
    """Daemons of several suites live at once, and this is the one port that has a default."""
    if "ingress" in conf:
        return conf
    line = f"[gate]\ningress = 127.0.0.1:{free_port()}\n"
    return conf.replace("[gate]\n", line, 1) if "[gate]\n" in conf else line + conf


class Daemon(Client):
    program = DAEMON

    def __init__(self, *options, conf=None):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cd-", dir="/tmp"))
        self.run_dir, self.home = self.dir / "run", self.dir / "home"
        for path in (self.run_dir, self.home):
            path.mkdir(mode=0o700)
        self.furnish()
        self.conf = self.dir / "carrel.conf"
        self.conf.write_text(with_kernel(with_own_ingress(conf or ""), BUILD))
        self.options = list(options)
        self.lent_fds = []  # descriptors of ours that it has open beside its own
        self.env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.dir), "LANG": "C.UTF-8",
                    "CARREL_RUN": str(self.run_dir), "CARREL_HOME": str(self.home),
                    "CARREL_WAIT": "0"}  # when it is killed, the next one is the test's to start, not a client's
        if "ASAN_OPTIONS" in os.environ:
            self.env["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"]
        self.host = HostState(self.run_dir, self.home, sub_ids() if ROOTLESS else ())
        self.process = None
        self.start()

    def furnish(self):
        """Puts into the new home what it has before the first start."""
        host_image.lend(self.home)

    def strip(self):
        """Takes out of the home what is not removed with it."""
        host_image.take_back(self.home)

    @property
    def socket(self):
        return str(self.run_dir / "carrel.sock")

    def launch(self, env=()):
        """Starts it; what is returned yields b"r" when it is ready, and nothing when it dies before."""
        ready, told = os.pipe()
        log = open(self.dir / "log", "ab")
        self.process = subprocess.Popen(
            [*([self.program] if isinstance(self.program, (str, os.PathLike)) else self.program), "--conf", str(self.conf), "--ready-fd", str(told), *self.options], pass_fds=[told, *self.lent_fds],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**self.env, **dict(env)})
        os.close(told)
        log.close()
        return os.fdopen(ready, "rb")

    def start(self, env=()):
        with self.launch(env) as end:
            word = end.read()
        assert word == b"r", (word, self.log())

    def kill(self):
        """As a power failure would: without a word."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        """As an administrator would."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0, self.log()

    def restart(self, hard=True):
        (self.kill if hard else self.end)()
        self.start()

    def stray(self, **fields):
        """A machine that the database does not know."""
        box = self.machine(**fields)
        self.kill()
        with contextlib.closing(sqlite3.connect(self.home / "carrel.db")) as db, db:
            db.execute("DELETE FROM machines WHERE id = ?", (box,))
        self.start()
        return box

    def log(self):
        return (self.dir / "log").read_text(errors="replace")

    def last_lines(self):
        return "; the daemon logged: " + " | ".join(self.log().splitlines()[-4:])

    def clear(self):
        """Destroys every machine; what is ending already is waited for."""
        def left():
            found = self.machines(all=1)
            for m in found:
                try:
                    self.delete(f"/v1/machines/{m['id']}")
                except Refused as e:
                    assert e.code in ("busy", "gone", "limit", "unknown"), e  # the disk may have been full just now
            return not found

        self.until(left)

    def stop(self):
        self.clear()
        self.end()
        stop_spawner(self.run_dir)
        left = self.host.left()
        self.strip()
        remove(self.dir)
        assert not left, left

    def connect(self, timeout=60):
        return UnixConnection(self.socket, timeout)

    @property
    def port(self):
        """Of TCP, when it was started with --listen."""
        return int(re.findall(r"listening address=\S+ port=(\d+)", self.log())[-1])

    def memory_kb(self):
        return int(re.search(r"RssAnon:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())[1])

    def lend(self, *descriptors, **fields):
        """Makes a machine with directories handed over as descriptors; the machine."""
        return self.send(descriptors, "/v1/machines", fields)["id"]

    def send(self, descriptors, target, fields):
        """POSTs with descriptors beside it."""
        c = UnixConnection(self.socket)
        c.connect()
        body = json.dumps(with_kind(fields) if target == "/v1/machines" else fields).encode()
        head = (f"POST {target} HTTP/1.1\r\nHost: carrel\r\nContent-Length: {len(body)}\r\n"
                f"Carrel-Fds: {len(descriptors)}\r\n\r\n").encode()
        c.sock.sendmsg([head + body], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])
        answer = http.client.HTTPResponse(c.sock)
        answer.begin()
        told = json.loads(answer.read())
        c.close()
        if answer.status >= 300:
            raise Refused(answer.status, told)
        return told

    def changes(self, machine):
        """Descriptors of what its cow directories changed."""
        c = UnixConnection(self.socket)
        c.connect()
        c.sock.sendall(f"GET /v1/machines/{machine}/changes HTTP/1.1\r\nHost: carrel\r\n\r\n".encode())
        head, fds, *_ = socket.recv_fds(c.sock, 1 << 16, 16)
        c.close()
        assert b" 200 " in head.split(b"\r\n")[0], head
        return fds

    def tcp(self, **token):
        """A client with a token of its own, made with these fields."""
        return TcpClient(self.port, self.post("/v1/tokens", token)["secret"])
