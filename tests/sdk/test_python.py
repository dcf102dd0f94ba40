"""The Python SDK against a real daemon: on its unix socket and over TCP, waiting and with asyncio."""
import ast
import asyncio
import contextlib
import doctest
import importlib.util
import inspect
import io
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
import urllib.error

import pytest

from conftest import BUILD, PATIENCE, TOP
from patience import clock

PACKAGE = TOP / "sdk/python/carrel"


def load():
    """The package under another name: `carrel` is a module of the tests."""
    spec = importlib.util.spec_from_file_location("carrel_sdk", PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)])
    module = importlib.util.module_from_spec(spec)
    sys.modules["carrel_sdk"] = module
    spec.loader.exec_module(module)
    return module


sdk = load()


@pytest.fixture(scope="module")
def token(daemon_session):
    return daemon_session.post("/v1/tokens", {"note": "sdk", "scopes": ["read", "run", "admin"]})["secret"]


@pytest.fixture(params=["unix", "tcp"])
def place(request, daemon, token):
    """Arguments of Client."""
    if request.param == "unix":
        return {"url": f"unix:{daemon.socket}"}
    return {"url": f"http://127.0.0.1:{daemon.port}", "token": token}


@pytest.fixture
def client(place):
    return sdk.Client(**place)


@pytest.fixture
def machine(daemon):
    with sdk.Machine.create(sdk.Client(f"unix:{daemon.socket}")) as m:
        yield m


def test_a_machine_from_its_creation_to_its_end(client):
    with sdk.Machine.create(client, name="first", metadata={"a": "b"}) as m:
        assert m.view["state"] == "running" and m.view["metadata"] == {"a": "b"}
        assert sdk.Machine.get("first", client).id == m.id and [o.id for o in client.machines(state="running")] == [m.id]
        result = m.exec("echo out; echo err >&2; exit 3")
        assert (result.status, result.stdout, result.stderr) == (3, "out\n", "err\n")
        with pytest.raises(sdk.CarrelError, match="exited with 3"):
            result.check()
        assert m.exec(["printf", "\\377"]).stdout_bytes == b"\377"
        assert m.exec("cat", stdin="as text").check().stdout == "as text"
        assert m.update(ttl="1h")["expires"]
        m.pause()
        assert m.refresh()["state"] == "paused"
        m.resume()
        assert m.stats()["disk_bytes"] >= 0
    assert client.machines() == []
    m.destroy()  # is no error


def test_output_comes_as_it_is_written(machine):
    got = []
    for event in machine.stream("echo one; read line; echo got $line", stdin_open=True):
        got.append(event)
        if event["type"] == "stdout" and sdk.event_bytes(event) == b"one\n":
            process = sdk.Process(machine.client, machine.client.call("exec_show", machine=machine.id, exec=got[0]["exec"]))
            process.write("two\n", eof=True)
    assert [e["type"] for e in got] == ["start", "stdout", "stdout", "exit"] and got[-1]["exec"]["status"] == 0


def test_a_stream_that_is_left_closes_its_connection(machine):
    events = machine.stream("echo begun; sleep 1000")
    assert [next(events)["type"], next(events)["type"]] == ["start", "stdout"]
    events.close()
    assert machine.exec("echo alive").stdout == "alive\n"


def test_commands_in_the_background(machine):
    process = machine.start("cat; echo end >&2", stdin_open=True)
    process.write(b"in", eof=True)
    assert process.wait()["status"] == 0 and process.output() == b"in" and process.output("stderr") == b"end\n"
    assert [e["type"] for e in process.events()][-1] == "exit"
    sleeping = machine.start(["sleep", "1000"])
    sleeping.signal("TERM")
    assert sleeping.wait()["signal"] == 15
    other = machine.start(["sleep", "1000"])
    other.kill()
    assert other.wait()["signal"] == 9


def test_files(machine):
    files = machine.files
    files.write("/home/user/a", "text é")
    assert files.read_text("/home/user/a") == "text é" and files.stat("/home/user/a")["size"] == 7
    files.mkdir("/home/user/d/e")
    files.move("/home/user/a", "/home/user/d/b")
    assert not files.exists("/home/user/a") and {e["name"] for e in files.list("/home/user/d")} == {"b", "e"}
    archive = files.read_tar("/home/user/d")
    files.mkdir("/home/user/copy")
    files.write_tar("/home/user/copy", archive)
    assert machine.exec("find copy -name b").stdout.endswith("b\n")
    files.remove("/home/user/d", recursive=True)
    assert not files.exists("/home/user/d")
    big = os.urandom(5 << 20)
    files.write("/home/user/big", big)
    assert files.read("/home/user/big") == big
    with pytest.raises(sdk.CarrelError) as refused:
        files.read("/home/user/none")
    assert refused.value.code == "not_found" and refused.value.status == 404


def test_steps_and_forks(machine):
    machine.files.write("/home/user/n", "1")
    good = machine.snapshot("good")
    machine.files.write("/home/user/n", "2")
    diff = machine.diff(good)
    assert [(c["path"], c["change"]) for c in diff["changes"]] == [("home/user/n", "modified")]
    one, two = machine.fork(2, good)
    assert one.files.read("/home/user/n") == two.files.read("/home/user/n") == b"1"
    machine.rewind("good")
    assert machine.files.read("/home/user/n") == b"1" and "good" in [s.get("name") for s in machine.steps()]


def test_a_tournament_keeps_the_best(machine):
    rows = machine.tournament("head -c 2 /dev/urandom | od -An -tu2 | tr -d ' ' >score", "cat score", 3)
    scores = [row.score for row in rows]
    assert len(rows) == 3 and scores == sorted(scores, reverse=True) and all(row.status == 0 for row in rows)
    assert {m.id for m in machine.client.machines(state="running")} == {machine.id, rows[0].machine.id}
    none = machine.tournament("true", "echo no number", 2)
    assert [row.score for row in none] == [None, None] and all(row.machine.refresh()["state"] == "running" for row in none)


def test_one_command_in_a_machine_of_its_own(daemon, client):
    assert sdk.Machine.run("echo $A", client, env={"A": "b"}, machine={"limits": {"mem": "128M"}}).stdout == "b\n"
    daemon.until(lambda: client.machines() == [])


def test_a_change_set_ships_into_a_directory(daemon, machine, tmp_path, monkeypatch):
    monkeypatch.setenv("CARREL_PROGRAM", str(BUILD / "carrel"))
    monkeypatch.setenv("CARREL_HOME", str(daemon.home))
    machine.files.mkdir("/home/user/job")
    machine.files.write("/home/user/job/note", "shipped")
    assert machine.freeze("/home/user/job")["bytes"] > 0
    target = tmp_path / "project"
    target.mkdir()
    machine.ship("/home/user/job", str(target))
    assert (target / "note").read_text() == "shipped"
    with pytest.raises(sdk.CarrelError):
        machine.ship("/home/user/none", str(target))


def test_requests_wait_for_an_approval(daemon, machine):
    item_id = daemon.held(machine.id)
    (item,) = machine.pending()
    assert item["id"] == item_id and item["host"] == "a.example"
    machine.deny(item)
    other = daemon.held(machine.id)
    machine.approve(other)
    daemon.until(lambda: other not in [p["id"] for p in machine.pending()])


def test_rules_grants_and_ports(daemon, machine):
    assert machine.allow("https://a.example")[-1]["action"] == "allow"
    daemon.put("/v1/secrets/API_KEY", {"value": "some value of it"})
    assert machine.grant("secret", "API_KEY", at="a.example")[-1]["kind"] == "secret"
    machine.start("echo hello >page; python3 -m http.server 8000")
    port = machine.expose(8000)
    assert port["url"].startswith("http")

    def page():
        try:
            return urllib.request.urlopen(sdk.port_request(port, "/page", headers={"Accept": "*/*"}), timeout=60).read()
        except urllib.error.HTTPError as refusal:
            assert refusal.code == 502, "the server has started"

    daemon.until(lambda: page() == b"hello\n")
    with pytest.raises(sdk.CarrelError):
        sdk.port_request({k: v for k, v in port.items() if k != "direct_url"})
    machine.unexpose(8000)
    with pytest.raises(sdk.CarrelError):
        machine.unexpose(8000)


def test_a_cell_runs_a_program(daemon):
    program = b"""(module
      (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1)
      (data (i32.const 16) "from a cell\\0a")
      (func (export "_start")
        (i32.store (i32.const 0) (i32.const 16)) (i32.store (i32.const 4) (i32.const 12))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"""
    with sdk.Machine.cell({"hello": program}, sdk.Client(f"unix:{daemon.socket}")) as cell:
        result = cell.exec(["hello"]).check()
        assert result.stdout == "from a cell\n" and result.exec["usage"]["fuel"] > 0


def test_asyncio_has_the_same_methods(place):
    async def story():
        client = sdk.AsyncClient(**place)
        async with await sdk.AsyncMachine.create(client) as m:
            await m.files.write("/home/user/a", "b")
            results = await asyncio.gather(*(m.exec(f"cat a; echo {i}") for i in range(5)))
            assert [r.stdout for r in results] == [f"b{i}\n" for i in range(5)]
            types = [event["type"] async for event in m.stream("echo out")]
            assert types == ["start", "stdout", "exit"]
            (fork,) = await m.fork()
            assert await fork.files.read("/home/user/a") == b"b"
            rows = await m.tournament("true", "echo 4", 1)
            assert rows[0].score == 4
            process = await m.start("sleep 1000")
            waiting = asyncio.create_task(process.wait())
            await process.kill()
            assert (await waiting)["signal"] == 9
            with pytest.raises(sdk.CarrelError):
                await m.files.read("/none")
        assert m.id not in [o.id for o in await client.machines()]

    asyncio.run(asyncio.wait_for(story(), 120 * PATIENCE))


@pytest.mark.parametrize("name", ["Client", "Machine", "Files", "Process"])
def test_both_clients_have_the_same_parameters(name):
    plain, other = getattr(sdk, name), getattr(sdk, "Async" + name)
    methods = [n for n in vars(plain) if not n.startswith("_")]
    assert methods == [n for n in vars(other) if not n.startswith("_")] and len(methods) > 3
    for method in methods:
        a, b = getattr(plain, method), getattr(other, method)
        assert list(inspect.signature(a).parameters) == list(inspect.signature(b).parameters), method


def test_every_operation_is_there(daemon):
    document = daemon.get("/v1/openapi.json")
    names = {op["operationId"] for item in document["paths"].values() for op in item.values()}
    assert names == set(sys.modules["carrel_sdk._operations"].OPERATIONS)
    client = sdk.Client(f"unix:{daemon.socket}")
    assert client.call("healthz") == b"ok\n" and client.call("token_list")["tokens"] is not None
    assert client.status()["version"]
    with pytest.raises(TypeError, match="no parameter 'wrong'"):
        client.call("machine_list", wrong=1)
    with pytest.raises(ValueError, match="is empty"):
        client.call("machine_show", machine="")


# ---- a daemon that is absent, hostile or restarted ----

def test_a_wrong_token_and_a_wrong_address(daemon):
    with pytest.raises(sdk.CarrelError) as refused:
        sdk.Client(f"http://127.0.0.1:{daemon.port}", "wrong").machines()
    assert refused.value.code == "denied" and refused.value.status == 401
    with pytest.raises(OSError):
        sdk.Client("unix:/nonexistent/carrel.sock", wait=0).machines()
    for wrong in ("ftp://x", "http://", "carrel", "http://a?b", "unix:relative", "http://a/b c", "http://a/b\u00e9"):
        with pytest.raises(ValueError):
            sdk.Client(wrong)


HOSTILE = {
    b"nonsense\r\n\r\n": ConnectionError, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc": ConnectionError,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n": ConnectionError, b"": ConnectionError,
    b"HTTP/1.1 200 OK\r\n" + b"A: " + b"b" * (80 << 10): ConnectionError,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000: ConnectionError,
    b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}": sdk.CarrelError,
    b"HTTP/1.1 500 No\r\nContent-Length: 27\r\n\r\n{\"error\": {\"code\": [1, 2]}}": sdk.CarrelError,
    b"HTTP/1.1 100 Wait\r\n\r\n" * 20000: ConnectionError, b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\n": ConnectionError,
    b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc": ConnectionError,
    b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\nabc": ConnectionError,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nabc": ConnectionError,
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/v1/status\r\nContent-Length: 0\r\n\r\n": sdk.CarrelError,
    **{b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + body: sdk.CarrelError
       for body in (b"{", b"null", b"[" * 100000, b"1" * 5000, b"\xff", b"[1]")},
}


@pytest.mark.parametrize("answer", HOSTILE, ids=range(len(HOSTILE)))
def test_an_answer_that_is_no_answer_is_an_error(answer):
    with answering(answer) as client, pytest.raises(HOSTILE[answer]):
        client.status()


@contextlib.contextmanager
def answering(answer):
    """A client of a server that gives every request these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve():
            with contextlib.suppress(OSError):
                while True:
                    c, _ = server.accept()
                    with contextlib.suppress(ConnectionError), c:
                        c.recv(1 << 16)
                        c.sendall(answer)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield sdk.Client(f"http://127.0.0.1:{server.getsockname()[1]}", wait=0)
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def of_json(body):
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + json.dumps(body).encode()


VIEW = {"id": "m-1", "state": "running"}
WRONG_TYPES = {
    "a view without an id": ({"state": "running"}, lambda c: sdk.Machine.get("m", c)),
    "an id that is a list": ({"id": ["m"]}, lambda c: sdk.Machine.create(c)),
    "rows that are a number": ({"machines": 5}, lambda c: c.machines()),
    "rows that are not objects": ({"machines": ["m"]}, lambda c: c.machines()),
    "no rows": ({}, lambda c: c.pending()),
    "a result without a command": ({"stdout": ""}, lambda c: sdk.Machine(c, VIEW).exec("true")),
    "a status that is a text": ({"exec": {"status": "0"}}, lambda c: sdk.Machine(c, VIEW).exec("true")),
    "output that is not base64": ({"exec": {"status": 0}, "stdout_base64": "="}, lambda c: sdk.Machine(c, VIEW).exec("true")),
    "forks that are null": ({"machines": None}, lambda c: sdk.Machine(c, VIEW).fork()),
    "a process without an id": ({}, lambda c: sdk.Machine(c, VIEW).start("true")),
    "pages without end": ({"steps": [], "next": "more"}, lambda c: sdk.Machine(c, VIEW).steps()),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_an_answer_of_the_wrong_type_is_an_error(name, monkeypatch):
    monkeypatch.setattr(sys.modules["carrel_sdk._http"], "PAGES_MAX", 20)
    body, ask = WRONG_TYPES[name]
    with answering(of_json(body)) as client, pytest.raises(sdk.CarrelError, match="usable|20 pages"):
        ask(client)


def test_an_answer_that_is_too_long_is_not_kept(monkeypatch):
    monkeypatch.setattr(sys.modules["carrel_sdk._http"], "BODY_MAX", 1 << 20)
    monkeypatch.setattr(sys.modules["carrel_sdk._http"], "LINE_MAX", 1 << 20)
    long = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n" + b"x" * (3 << 20)
    with answering(long) as client:
        with pytest.raises(sdk.CarrelError, match="longer than"):
            client.status()
        with pytest.raises(ConnectionError, match="too long"):
            list(client.events("events"))


def test_an_id_cannot_lead_to_another_path():
    client = sdk.Client("http://127.0.0.1:1", wait=0)
    for wrong in (".", ".."):
        with pytest.raises(ValueError, match="may not be"):
            client.call("expose_remove", machine="m", port=wrong)
    assert client._target("machine_show", {"machine": "../a/..?b#c"})[1] == "/v1/machines/..%2Fa%2F..%3Fb%23c"


def test_a_long_upload_that_is_refused_says_why(daemon, place):
    with pytest.raises(sdk.CarrelError) as refused:
        sdk.Client(place["url"], "wrong" if "token" in place else None).call("file_write", bytes(30 << 20), machine="none", path="/a")
    assert refused.value.code in ("denied", "not_found")


def test_a_daemon_that_never_answered_is_not_waited_for():
    began = clock()
    with pytest.raises(ConnectionError, match="/nonexistent/carrel.sock: No such file.*carrel serve"):
        sdk.Client("unix:/nonexistent/carrel.sock", wait=1000).machines()
    assert clock() - began < 500


def test_a_tournament_that_fails_leaves_no_fork(machine):
    with pytest.raises(TypeError, match="a command is a text or a list"):
        machine.tournament("true", 5)
    assert [m.id for m in machine.client.machines(state="running")] == [machine.id]


def test_input_and_arguments_may_be_bytes_and_paths(machine):
    assert machine.exec("cat", stdin=b"\xff\0").stdout_bytes == b"\xff\0"
    machine.files.write("/home/user/a", bytearray(b"array"))
    assert machine.exec(["cat", pathlib.Path("/home/user/a")]).stdout == "array"
    with pytest.raises(TypeError, match="start\\(\\) starts"):
        machine.exec("true", background=True)
    with pytest.raises(TypeError, match="no operation 'machine_shw'"):
        machine.client.call("machine_shw")
    with pytest.raises(TypeError, match="needs the parameter 'machine'"):
        machine.client.call("machine_show")


def test_an_answer_in_single_bytes_is_read_whole():
    text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n10;x=y\r\n0123456789abcdef\r\n0\r\n\r\n"
    reader = sys.modules["carrel_sdk._http"].Reader()
    got = b""
    for i in range(len(text)):
        reader.feed(text[i:i + 1])
        got += reader.take()
    assert got == b"abc0123456789abcdef" and reader.done


# ---- time limits ----

@contextlib.contextmanager
def silent(answer, backlog=5):
    """The URL of a server that answers each request with these bytes, and then neither speaks nor hangs up."""
    kept = []
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(folder + "/carrel.sock")
        server.listen(backlog)

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    kept.append(server.accept()[0])
                    kept[-1].recv(1 << 16)
                    kept[-1].sendall(answer)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"unix:{folder}/carrel.sock"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for c in kept:
                c.close()


def both(url, ask):
    """What a client raises that waits, and what one of asyncio raises."""
    async def story():
        got = ask(sdk.AsyncClient(url, timeout=0.2))
        if inspect.isasyncgen(got):
            return [event async for event in got]
        return await asyncio.wait_for(got, 60 * PATIENCE)

    for act in lambda: list(ask(sdk.Client(url, timeout=0.2))), lambda: asyncio.run(story()):
        with pytest.raises(TimeoutError) as e:
            act()
        yield str(e.value)


SILENT = {
    "nothing": (b"", lambda c: c.status(), "status: the daemon at /.* did not complete its answer within 0.2 s"),
    "half a head": (b"HTTP/1.1 200 OK\r\nConte", lambda c: c.status(), "status: .* within 0.2 s"),
    "half a body": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", lambda c: c.call("machine_create", {"key": "a"}), "machine_create: "),
    "half a refusal": (b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n{", lambda c: c.status(), "status: "),
    "no first event": (b"", lambda c: c.events("events"), "events: nothing came from the daemon at /.* within 0.2 s"),
    "no second event": (b"HTTP/1.1 200 OK\r\n\r\n{}\n", lambda c: c.events("events"), "events: nothing came"),
    "a request that nobody reads": (b"", lambda c: c.call("image_import", bytes(8 << 20), name="a"), "image_import: "),
}


@pytest.mark.parametrize("name", SILENT)
def test_a_daemon_that_says_nothing_is_waited_for_as_long_as_the_limit_says(name):
    answer, ask, text = SILENT[name]
    with silent(answer) as url:
        for said in both(url, ask):
            assert re.match(text, said), said


def test_a_daemon_that_takes_no_connection_is_waited_for_as_long_as_the_limit_says():
    with socket.socket(socket.AF_UNIX) as server, tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        server.bind(folder + "/full")
        server.listen(0)
        for _ in range(2):
            c = stack.enter_context(socket.socket(socket.AF_UNIX))
            c.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                c.connect(folder + "/full")
        for said in both(f"unix:{folder}/full", lambda c: c.status()):
            assert "did not complete its answer" in said
        with pytest.raises(ConnectionError, match="it does not answer"):
            sdk.Client(f"unix:{folder}/full", connect_timeout=0.1).status()


def test_a_stream_has_its_limit_for_each_piece(machine):
    """The command speaks for longer than the limit, but is never silent for so long."""
    lazy = machine.with_timeout(2 * PATIENCE)
    pause = PATIENCE / 2
    began = clock()
    events = [e["type"] for e in lazy.stream(f"for i in 1 2 3 4 5; do echo $i; sleep {pause}; done")]
    assert events == ["start", *["stdout"] * 5, "exit"] and clock() - began > 2 * PATIENCE


def test_a_command_goes_on_after_the_limit(machine):
    with pytest.raises(TimeoutError, match="^exec: .* within 0.3 s$"):
        machine.with_timeout(0.3).exec("while [ ! -e go ]; do sleep 0.05; done; echo done >end")
    machine.files.write("/home/user/go", "")
    machine.exec("while [ ! -e end ]; do sleep 0.05; done").check()
    process = machine.start("sleep 1000")
    with pytest.raises(TimeoutError, match="^exec_events: "):
        process.with_timeout(0.3).wait()
    assert process.refresh()["state"] == "running"
    process.kill()
    assert process.with_timeout(60 * PATIENCE).wait()["signal"] == 9


def test_a_program_has_the_limit_too(tmp_path, monkeypatch):
    slow = tmp_path / "carrel"
    slow.write_text("#!/bin/sh\nexec sleep 1000\n")
    slow.chmod(0o755)
    monkeypatch.setenv("CARREL_PROGRAM", str(slow))
    for said in both("unix:/nowhere", lambda c: c.program("ship", "a", "b")):
        assert said == "carrel ship did not end within 0.2 s"


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match="timeout: .* greater than 0"):
        sdk.Client("unix:/nowhere", timeout=wrong)
    with pytest.raises(ValueError, match="timeout: .* greater than 0"):
        sdk.AsyncClient("unix:/nowhere").with_timeout(wrong)


# ---- what we publish ----

def test_the_examples_of_the_readme_work(daemon):
    blocks = re.findall(r"^```python\n(.*?)^```", (TOP / "sdk/python/README.md").read_text(), re.M | re.S)
    env = {**os.environ, "PYTHONPATH": str(TOP / "sdk/python"), "CARREL_RUN": str(daemon.run_dir)}
    printed = [subprocess.run(["/usr/bin/python3", "-c", block], env=env, check=True, stdout=subprocess.PIPE, timeout=60 * PATIENCE,
                              cwd="/").stdout.decode() for block in blocks]
    assert printed == ["hello from /home/user/hello.py\n\n", "1\n2\n3\n", "no answer within half a second\n", "hello\n\n"]


async def run_examples(module, names):
    """How many lines of the docstrings ran. Those of asyncio wait on the top level, which doctest cannot do."""
    checker, count = doctest.OutputChecker(), 0
    flags = doctest.NORMALIZE_WHITESPACE
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=names):
        for example in test.examples:
            code = compile(example.source, test.name, "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                waiting = eval(code, test.globs)
                if inspect.isawaitable(waiting):
                    await waiting
            assert checker.check_output(example.want, printed.getvalue(), flags), (test.name, example.source, printed.getvalue())
            count += 1
    return count


@pytest.mark.parametrize("name", ["_sync", "_aio"])
def test_the_examples_of_the_docstrings_work(name, daemon, tmp_path, monkeypatch):
    for variable, value in ("RUN", daemon.run_dir), ("HOME", daemon.home), ("PROGRAM", BUILD / "carrel"):
        monkeypatch.setenv("CARREL_" + variable, str(value))

    async def story():
        kind = sdk.Machine if name == "_sync" else sdk.AsyncMachine
        machine = kind.create()
        machine = await machine if inspect.isawaitable(machine) else machine
        return await run_examples(sys.modules["carrel_sdk." + name], {"machine": machine, "directory": str(tmp_path), "port_request": sdk.port_request})

    assert asyncio.run(story()) > 20


def test_a_stale_file_is_noticed(tmp_path):
    """With a build whose document has one operation less."""
    document = json.loads(subprocess.run([BUILD / "tests/daemon/api-doc", "openapi"], stdout=subprocess.PIPE, check=True).stdout)
    del document["paths"]["/healthz"]
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    program = tmp_path / "tests/daemon/api-doc"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/openapi.json\n")
    program.chmod(0o755)
    done = subprocess.run([TOP / "sdk/generate", "--check", tmp_path], stderr=subprocess.PIPE)
    assert done.returncode == 1 and b"_operations.py" in done.stderr and b"types.ts" in done.stderr
