"""A client of the data plane as E2B's SDK speaks it: Connect with JSON, and plain HTTP for files."""
import base64
import http.client
import json
import struct

from e2b_client import machine_of


class Failed(Exception):
    """An error of a procedure: .code is its name, or a number for requests that are none."""

    def __init__(self, status, error):
        super().__init__(status, error)
        self.status = status
        self.code = error.get("code")
        self.message = error.get("message", "")


def envelope(message, flags=0):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">BI", flags, len(data)) + data


def b64(data):
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


class Stream:
    """The messages of a stream as they come. The end message must come, or the stream was cut."""

    def __init__(self, connection, answer):
        self.connection, self.answer = connection, answer

    def read(self, n):
        data = b""
        while len(data) < n:
            piece = self.answer.read(n - len(data))
            if not piece:
                raise EOFError("the stream was cut")
            data += piece
        return data

    def __iter__(self):
        while True:
            flags, n = struct.unpack(">BI", self.read(5))
            message = json.loads(self.read(n))
            if flags == 2:
                self.close()
                if "error" in message:
                    raise Failed(200, message["error"])
                return
            assert flags == 0
            yield message

    def events(self):
        """Name and value of each event of a command."""
        for message in self:
            (name, value), = message["event"].items()
            yield name, value

    def close(self):
        self.connection.close()


class Result:
    def __init__(self, events):
        self.pid, self.end = None, None
        self.out = {kind: bytearray() for kind in ("stdout", "stderr", "pty")}
        for name, value in events:
            if name == "start":
                self.pid = value["pid"]
            elif name == "data":
                (kind, data), = value.items()
                self.out[kind] += base64.b64decode(data)
            elif name == "end":
                self.end = value

    stdout = property(lambda self: bytes(self.out["stdout"]))
    stderr = property(lambda self: bytes(self.out["stderr"]))


class Sandbox:
    def __init__(self, e2b, daemon, made=None, **fields):
        self.e2b, self.daemon = e2b, daemon
        self.made = made or e2b.create(**fields)
        self.machine = machine_of(self.made)
        self.headers = {"E2b-Sandbox-Id": self.made["sandboxID"], "E2b-Sandbox-Port": "49983",
                        "X-Access-Token": self.made["envdAccessToken"]}

    def connect(self):
        return http.client.HTTPConnection(self.e2b.url.hostname, self.e2b.url.port, timeout=120)

    def call_raw(self, method, path, body=None, headers=()):
        """Status, headers and body."""
        c = self.connect()
        c.request(method, path, body=body, headers={**self.headers, **dict(headers)})
        answer = c.getresponse()
        data = answer.read()
        c.close()
        return answer.status, answer.headers, data

    def call(self, procedure, message=None, user=None):
        headers = {"Content-Type": "application/json", "Connect-Protocol-Version": "1", **as_user(user)}
        status, _, data = self.call_raw("POST", "/" + procedure, json.dumps(message or {}), headers)
        if status != 200:
            raise Failed(status, json.loads(data) if data else {})
        return json.loads(data)

    def open(self, procedure, message, user=None, headers=()):
        c = self.connect()
        fields = {"Content-Type": "application/connect+json", **self.headers, **as_user(user), **dict(headers)}
        body = message if isinstance(message, bytes) else envelope(message)
        c.request("POST", "/" + procedure, body=body, headers=fields)
        answer = c.getresponse()
        if answer.status != 200:
            data = answer.read()
            c.close()
            raise Failed(answer.status, json.loads(data) if data else {})
        return Stream(c, answer)

    # ---- commands ----

    def start(self, command, stdin=False, user=None, headers=(), **fields):
        process = {"cmd": "/bin/bash", "args": ["-l", "-c", command]}
        process.update({k: fields.pop(k) for k in ("envs", "cwd") if k in fields})
        message = {"process": process, "stdin": stdin, **fields}
        return self.open("process.Process/Start", message, user=user, headers=headers)

    def run(self, command, **fields):
        return Result(self.start(command, **fields).events())

    def process(self, method, pid=None, **fields):
        return self.call("process.Process/" + method, {"process": {"pid": pid}, **fields})


def as_user(user):
    return {"Authorization": "Basic " + b64(user + ":")} if user else {}
