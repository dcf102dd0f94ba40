"""Two plain MCP clients, one of lines and one of HTTP, that check what every answer must be."""
import collections
import json
import queue
import select
import socket
import subprocess
import threading
import time

from carrel import PROGRAM

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class RpcError(Exception):
    def __init__(self, error):
        super().__init__(error)
        self.code, self.message = error["code"], error["message"]


class ToolFailed(Exception):
    pass


class Client:
    """What both have: ids, notifications that came, tools by name."""

    def __init__(self):
        self.last = 0
        self.notes = []
        self.on_request = {}  # method -> function of params that gives a result

    def greet(self, **hello):
        result = self.ask("initialize", {**HELLO, **hello})
        self.tell("notifications/initialized")
        return result

    def message(self, method, params=None, **more):
        return {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params}), **more}

    def ask(self, method, params=None, seconds=60):
        return self.wait(self.begin(method, params), seconds)

    def tools(self):
        return {t["name"]: t for t in self.ask("tools/list")["tools"]}

    def result(self, name, /, seconds=60, **arguments):
        return self.ask("tools/call", {"name": name, "arguments": arguments}, seconds)

    def call(self, name, /, seconds=60, **arguments):
        """The structured content; a tool that failed is raised."""
        result = self.result(name, seconds, **arguments)
        if result.get("isError"):
            raise ToolFailed(result["content"][0]["text"])
        assert result["content"][0]["type"] == "text" and isinstance(result["structuredContent"], dict)
        return result["structuredContent"]

    def take(self, message):
        """A message that is no answer: kept, or answered."""
        if "id" in message and "method" in message:
            answer = self.on_request[message["method"]](message.get("params"))
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": answer})
        else:
            self.notes.append(message)

    def noted(self, method):
        return [n["params"] for n in self.notes if n["method"] == method]

    def until_noted(self, method, seconds=20):
        end = time.monotonic() + seconds
        while not self.noted(method):
            assert time.monotonic() < end, (method, self.notes)
            self.pump(0.1)
        return self.noted(method)


class Lines(Client):
    """`carrel mcp`."""

    def __init__(self, daemon, *options, cwd=None, env=()):
        super().__init__()
        self.process = subprocess.Popen([PROGRAM, "mcp", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env={**daemon.env, **dict(env)}, cwd=cwd)
        self.came = queue.Queue()
        self.answers = {}
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.came.put(json.loads(line))
        self.came.put(None)

    def send(self, message):
        self.raw(json.dumps(message).encode() + b"\n")

    def raw(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def begin(self, method, params=None):
        self.last += 1
        self.send(self.message(method, params, id=self.last))
        return self.last

    def tell(self, method, params=None):
        self.send(self.message(method, params))

    def pump(self, seconds):
        try:
            message = self.came.get(timeout=seconds)
        except queue.Empty:
            return
        assert message is not None, (self.process.wait(10), self.process.stderr.read())
        if "method" in message:
            self.take(message)
        else:
            assert message["id"] not in self.answers, "answered twice"
            self.answers[message["id"]] = message

    def wait(self, number, seconds=60):
        end = time.monotonic() + seconds
        while number not in self.answers:
            assert time.monotonic() < end, "no answer"
            self.pump(0.2)
        return unwrap(self.answers.pop(number))

    def silent(self, seconds=0.5):
        """No answer comes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.pump(0.1)
        assert not self.answers, self.answers

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            assert self.process.wait(20) == 0, self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()


def unwrap(message):
    assert message["jsonrpc"] == "2.0" and ("result" in message) != ("error" in message), message
    if "error" in message:
        raise RpcError(message["error"])
    return message["result"]


Event = collections.namedtuple("Event", "id data retry")


def events(answer):
    """Of a text/event-stream, as they come."""
    fields = {}
    for line in answer:
        line = line.decode().rstrip("\n")
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif fields:
            yield Event(fields.get("id"), fields.get("data", ""), fields.get("retry"))
            fields = {}


class Http(Client):
    """Streamable HTTP. connect: gives an http.client connection."""

    def __init__(self, connect, headers=(), path="/mcp"):
        super().__init__()
        self.connect, self.path = connect, path
        self.headers = dict(headers)
        self.session = None
        self.threads = {}
        self.results = {}
        self.last_event = None

    def request(self, method, body=None, headers=(), **connection):
        """The raw answer; its connection is answer.connection."""
        c = self.connect(**connection)
        usual = {"Accept": "application/json, text/event-stream", **self.headers}
        if body is not None:
            usual["Content-Type"] = "application/json"
        if self.session:
            usual |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": "2025-11-25"}
        merged = {k: v for k, v in {**usual, **dict(headers)}.items() if v is not None}
        c.request(method, self.path, body=body if body is None or isinstance(body, bytes) else json.dumps(body),
                  headers=merged)
        answer = c.getresponse()
        answer.connection = c
        return answer

    def send(self, message):
        answer = self.request("POST", message)
        assert (answer.status, answer.read()) == (202, b""), answer.status
        answer.connection.close()

    def tell(self, method, params=None):
        self.send(self.message(method, params))

    def read(self, answer):
        """Messages of an answer; the last one is returned."""
        last = None
        if answer.headers["Content-Type"].startswith("application/json"):
            return json.loads(answer.read())
        for event in events(answer):
            self.last_event = event.id
            if not event.data:
                continue
            last = json.loads(event.data)
            if "method" in last:
                self.take(last)
        return last

    def exchange(self, number, method, params):
        try:
            answer = self.request("POST", self.message(method, params, id=number), timeout=120)
            if method == "initialize":
                self.session = answer.headers["Mcp-Session-Id"]
            assert answer.status == 200, (answer.status, answer.read())
            self.results[number] = self.read(answer)
            answer.connection.close()
        except Exception as e:  # told to who waits
            self.results[number] = e

    def begin(self, method, params=None):
        self.last += 1
        self.threads[self.last] = threading.Thread(target=self.exchange, args=(self.last, method, params), daemon=True)
        self.threads[self.last].start()
        return self.last

    def wait(self, number, seconds=60):
        self.threads.pop(number).join(seconds)
        result = self.results.pop(number)
        if isinstance(result, Exception):
            raise result
        assert result["id"] == number
        return unwrap(result)

    def pump(self, seconds):
        time.sleep(seconds)

    def listen(self):
        """The stream of what nobody asked for."""
        answer = self.request("GET", timeout=120)
        assert answer.status == 200, answer.read()
        threading.Thread(target=lambda: self.read(answer), daemon=True).start()
        self.standalone = answer
        return self

    def close(self):
        if self.session:
            answer = self.request("DELETE")
            assert answer.status == 204, answer.status
            answer.connection.close()
            self.session = None


class Door:
    """A proxy that shows a token, because the suite cannot: one request a connection."""

    def __init__(self, port, token):
        self.port, self.token = port, token
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.serve, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/mcp"

    def serve(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.pass_on, args=(peer,), daemon=True).start()

    def pass_on(self, peer):
        data = b""
        while b"\r\n\r\n" not in data:
            piece = peer.recv(65536)
            if not piece:
                return
            data += piece
        head, body = data.split(b"\r\n\r\n", 1)
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        lines[1:1] = [b"Authorization: Bearer " + self.token.encode(), b"Connection: close"]
        far = socket.create_connection(("127.0.0.1", self.port))
        far.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        while True:
            for s in select.select([peer, far], [], [])[0]:
                piece = s.recv(65536)
                if not piece:
                    peer.close()
                    far.close()
                    return
                (far if s is peer else peer).sendall(piece)
