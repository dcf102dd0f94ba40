"""The calls of E2B's Python SDK: its requests as version 2.45 sends them, and what it needs of the answers."""
import base64
import datetime
import http.client
import json
import urllib.parse
import uuid

import pytest

from e2b_client import E2b, E2bError, status_of
from envd import Result, Stream, b64, envelope

SDK = {"User-Agent": "e2b-python-sdk/2.45.1", "lang": "python", "lang_version": "3.12.4", "package_version": "2.45.1",
       "publisher": "e2b", "sdk_runtime": "python", "system": "Linux", "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
# What the classes of the SDK read without asking whether it is there.
CREATED = {"templateID", "sandboxID", "clientID", "envdVersion"}
DETAIL = CREATED | {"startedAt", "endAt", "cpuCount", "memoryMB", "diskSizeMB", "state"}
METRIC = {"timestamp", "timestampUnix", "cpuCount", "cpuUsedPct", "memUsed", "memTotal", "memCache", "diskUsed", "diskTotal"}


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(code, message)
        self.code = code


class Python:
    """A sandbox as the SDK uses it. Bodies have a length, unlike those of the JavaScript SDK."""

    def __init__(self, e2b, **fields):
        self.api = E2b(e2b.url.geturl(), e2b.key)
        body = {"templateID": "base", "allow_internet_access": True, "autoPause": False, "envVars": {}, "metadata": {},
                "secure": True, "timeout": 300, **fields}
        self.made = self.rest("POST", "/sandboxes", body, 201)
        assert CREATED <= set(self.made)
        assert [int(n) for n in self.made["envdVersion"].split(".")] >= [0, 6, 2] and isinstance(self.made["envdAccessToken"], str)
        self.path = "/sandboxes/" + self.made["sandboxID"]
        self.headers = {**SDK, "E2b-Sandbox-Id": self.made["sandboxID"], "E2b-Sandbox-Port": "49983",
                        "X-Access-Token": self.made["envdAccessToken"]}

    def rest(self, method, target, body=None, status=200):
        return self.api.call(method, target, body, status, chunked=False, headers=SDK)

    def send(self, method, target, body=None, **headers):
        c = http.client.HTTPConnection(self.api.url.hostname, self.api.url.port, timeout=120)
        c.request(method, target, body, {**self.headers, **{k.replace("_", "-"): v for k, v in headers.items()}})
        return c, c.getresponse()

    def unary(self, procedure, message, **headers):
        """The SDK takes an error only if it is JSON with the name of a code."""
        c, answer = self.send("POST", "/" + procedure, json.dumps(message, separators=(",", ":")), Content_Type="application/json",
                              Connect_Protocol_Version="1", Connect_Timeout_Ms="60000", Accept_Encoding="identity", **headers)
        data = json.loads(answer.read())
        c.close()
        assert answer.headers["Content-Type"] == "application/json"
        if answer.status != 200:
            raise Refused(data["code"], data["message"])
        return data

    def stream(self, procedure, message, **headers):
        c, answer = self.send("POST", "/" + procedure, envelope(message), Content_Type="application/connect+json",
                              Connect_Protocol_Version="1", Connect_Timeout_Ms="60000", Connect_Accept_Encoding="identity",
                              Connect_Content_Encoding="identity", Keepalive_Ping_Interval="50", **headers)
        assert answer.status == 200 and answer.headers["Content-Type"] == "application/connect+json"
        return Stream(c, answer)

    def start(self, command, stdin=False, **fields):
        return self.stream("process.Process/Start", {
            "process": {"cmd": "/bin/bash", "args": ["-l", "-c", command], **fields}, "stdin": stdin})

    def run(self, command, **fields):
        return Result(self.start(command, **fields).events())

    def is_running(self):
        c, answer = self.send("GET", "/health")
        answer.read()
        c.close()
        assert answer.status in (204, 502)
        return answer.status != 502

    def form(self, files, **params):
        """As httpx writes it: each part has the path as its name."""
        edge = uuid.uuid4().hex
        parts = b"".join(f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{path}"\r\n'
                         f"Content-Type: {kind}\r\n\r\n".encode() + data + b"\r\n" for path, data, kind in files)
        c, answer = self.send("POST", "/files" + ("?" + urllib.parse.urlencode(params) if params else ""),
                              parts + f"--{edge}--\r\n".encode(), Content_Type=f"multipart/form-data; boundary={edge}")
        data = json.loads(answer.read())
        c.close()
        assert answer.status == 200
        return data

    def read(self, path, **headers):
        c, answer = self.send("GET", "/files?" + urllib.parse.urlencode({"path": path}), **headers)
        data = answer.read()
        c.close()
        return answer.status, data


@pytest.fixture
def python(e2b, daemon):
    return Python(e2b)


def time_of(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def test_life_of_a_sandbox(e2b, daemon):
    p = Python(e2b, metadata={"run": "7/a b"}, envVars={"FOO": "bar"})
    info = p.rest("GET", p.path)
    assert DETAIL <= set(info) and info["state"] == "running" and info["metadata"] == {"run": "7/a b"}
    assert time_of(info["startedAt"]) < time_of(info["endAt"])
    p.rest("POST", p.path + "/timeout", {"timeout": 900}, 204)
    assert time_of(p.rest("GET", p.path)["endAt"]) > time_of(info["endAt"])
    assert p.is_running() and p.run("echo $FOO").stdout == b"bar\n"
    p.rest("POST", p.path + "/pause", {"memory": True}, 204)
    assert not p.is_running()
    with pytest.raises(E2bError) as again:
        p.rest("POST", p.path + "/pause", {"memory": True})
    assert again.value.status == 409
    back = p.rest("POST", p.path + "/connect", {"timeout": 300}, 201)
    assert CREATED <= set(back) and back["sandboxID"] == p.made["sandboxID"] and p.is_running()
    p.rest("DELETE", p.path, status=204)
    assert not p.is_running()
    for method, path, body in (("DELETE", "", None), ("GET", "", None), ("POST", "/timeout", {"timeout": 1}),
                               ("POST", "/connect", {"timeout": 1}), ("PUT", "/network", {})):
        assert status_of(p.rest, method, p.path + path, body) == 404


def test_lists_are_filtered_and_paged(e2b, daemon):
    made = [Python(e2b, metadata={"run": "7/a b", "n": str(n)}) for n in range(3)]
    for query, names in (({"metadata": urllib.parse.urlencode({"run": urllib.parse.quote("7/a b")}), "state": "running,paused"}, [2, 1, 0]),
                         ({"metadata": urllib.parse.urlencode({"n": "1"})}, [1]), ({"order": "asc", "template": "base"}, [0, 1, 2]),
                         ({"startedAfter": "2020-01-01T00:00:00.000001+01:00", "state": "paused"}, [])):
        found, token = e2b.list(**query, limit=100)
        assert [s["sandboxID"] for s in found] == [made[n].made["sandboxID"] for n in names] and token is None
        assert all(DETAIL <= set(s) for s in found)
    page, token = e2b.list(limit=2)
    rest, end = e2b.list(limit=2, nextToken=token)
    assert len(page) == 2 and len(rest) == 1 and end is None


def test_metrics_and_network(python):
    now = int(datetime.datetime.now().timestamp())
    for query in ("", f"?start={now - 3600}&end={now + 3600}"):
        *_, sample = python.rest("GET", f"{python.path}/metrics{query}")
        assert METRIC <= set(sample) and time_of(sample["timestamp"]) and sample["memTotal"] > 0
    python.rest("PUT", python.path + "/network", {"allowOut": ["a.example"], "denyOut": ["0.0.0.0/0"], "allow_internet_access": True}, 204)


def test_commands(python):
    result = python.run("echo out; echo err >&2; exit 3", envs={"A": "b"}, cwd="/tmp")
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
    assert result.end["exitCode"] == 3 and result.end["error"] == "exit status 3"
    running = python.start("echo ready; read line; echo got $line; sleep 1000", stdin=True)
    events = running.events()
    pid = next(events)[1]["pid"]
    assert next(events) == ("data", {"stdout": b64("ready\n")})
    listed, = python.unary("process.Process/List", {})["processes"]
    assert listed["pid"] == pid and listed["config"]["cmd"] == "/bin/bash" and listed["config"]["args"][:2] == ["-l", "-c"]
    one = {"process": {"pid": pid}}
    assert python.unary("process.Process/SendInput", {**one, "input": {"stdin": b64("x\n")}}) == {}
    assert next(events) == ("data", {"stdout": b64("got x\n")})
    assert python.unary("process.Process/CloseStdin", one) == {}
    other = python.stream("process.Process/Connect", one).events()
    assert next(other) == ("start", {"pid": pid})
    assert python.unary("process.Process/SendSignal", {**one, "signal": "SIGNAL_SIGKILL"}) == {}
    for stream in (events, other):
        name, end = list(stream)[-1]
        assert name == "end" and end["exitCode"] == -1
    python.run("sleep 0")
    with pytest.raises(Refused) as gone:  # kill() of the SDK is False then
        python.unary("process.Process/SendSignal", {"process": {"pid": 999999}, "signal": "SIGNAL_SIGKILL"})
    assert gone.value.code == "not_found"


def test_terminal(python):
    stream = python.stream("process.Process/Start", {
        "process": {"cmd": "/bin/bash", "args": ["-i", "-l"], "envs": {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}},
        "pty": {"size": {"cols": 80, "rows": 24}}})
    events = stream.events()
    one = {"process": {"pid": next(events)[1]["pid"]}}
    assert python.unary("process.Process/Update", {**one, "pty": {"size": {"cols": 100, "rows": 30}}}) == {}
    python.unary("process.Process/SendInput", {**one, "input": {"pty": b64("stty size; exit\n")}})
    told = b"".join(base64.b64decode(value["pty"]) for name, value in events if name == "data")
    assert b"30 100" in told


def test_files(python):
    wrote, = python.form([("a/b c.txt", "hällo".encode(), "text/plain")], path="a/b c.txt")
    assert (wrote["name"], wrote["path"], wrote["type"]) == ("b c.txt", "/home/user/a/b c.txt", "file")
    both = python.form([("one", b"1", "application/octet-stream"), ("d/two", b"\0\xff", "application/octet-stream")])
    assert [w["path"] for w in both] == ["/home/user/one", "/home/user/d/two"]
    assert python.read("a/b c.txt") == (200, "hällo".encode()) and python.read("d/two", Accept_Encoding="identity") == (200, b"\0\xff")
    status, body = python.read("none")
    assert status == 404 and json.loads(body)["message"]
    fs = "filesystem.Filesystem/"
    assert python.unary(fs + "MakeDir", {"path": "new/deep"})["entry"]["type"] == "FILE_TYPE_DIRECTORY"
    with pytest.raises(Refused) as exists:
        python.unary(fs + "MakeDir", {"path": "new/deep"})
    assert exists.value.code == "already_exists"
    moved = python.unary(fs + "Move", {"source": "one", "destination": "new/one"})["entry"]
    assert moved["path"] == "/home/user/new/one" and time_of(moved["modifiedTime"]) and int(moved["size"]) == 1
    names = [e["path"] for e in python.unary(fs + "ListDir", {"path": "new", "depth": 1})["entries"]]
    assert names == ["/home/user/new/deep", "/home/user/new/one"]
    assert python.unary(fs + "Remove", {"path": "new"}) == {}
    with pytest.raises(Refused) as gone:  # exists() of the SDK is False then
        python.unary(fs + "Stat", {"path": "new/one"})
    assert gone.value.code == "not_found"


def test_watches_are_polled(python, daemon):
    fs = "filesystem.Filesystem/"
    watcher = python.unary(fs + "CreateWatcher", {"path": "/home/user"}, Keepalive_Ping_Interval="50")
    python.form([("note", b"x", "text/plain")], path="note")
    seen = []

    def told():
        seen.extend(python.unary(fs + "GetWatcherEvents", watcher).get("events", []))
        return ("note", "EVENT_TYPE_CREATE") in [(e["name"], e["type"]) for e in seen]
    daemon.until(told)
    assert python.unary(fs + "RemoveWatcher", watcher) == {}
    with pytest.raises(Refused) as gone:
        python.unary(fs + "GetWatcherEvents", watcher)
    assert gone.value.code == "not_found"
