"""The code interpreter over the wire: what the SDK does not send, and programs that mean harm."""
import http.client
import json
import re
import time

import pytest

import patience
from carrel import TOP


class Code:
    """Requests at the port of the code interpreter of a sandbox."""

    def __init__(self, e2b, sandbox):
        self.e2b, self.sandbox = e2b, sandbox
        self.headers = {"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": "49999",
                        "X-Access-Token": sandbox["envdAccessToken"], "Content-Type": "application/json"}

    def open(self, body):
        c = http.client.HTTPConnection(self.e2b.url.hostname, self.e2b.url.port, timeout=120 * patience.PATIENCE)
        c.request("POST", "/execute", json.dumps(body), self.headers)
        return c

    def send(self, method, path, body=None, **headers):
        c = http.client.HTTPConnection(self.e2b.url.hostname, self.e2b.url.port, timeout=120 * patience.PATIENCE)
        own = {k: v for k, v in {**self.headers, **headers}.items() if v is not None}
        c.request(method, path, None if body is None else json.dumps(body), own)
        answer = c.getresponse()
        content = answer.read().decode()
        c.close()
        return answer.status, content

    def run(self, code, **more):
        """The lines of the answer, without those that say that it goes on."""
        status, content = self.send("POST", "/execute", {"code": code, **more})
        assert status == 200, content
        return [line for line in map(json.loads, content.splitlines()) if line["type"] != "keepalive"]

    def text(self, code, **more):
        lines = self.run(code, **more)
        return next((line["text"] for line in lines if line["type"] == "result"), lines)


@pytest.fixture
def code(e2b, daemon):
    return Code(e2b, e2b.create())


def wait_for(what):
    end = time.monotonic() + 60 * patience.PATIENCE
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_only_code_needs_the_token(code):
    wrong = {"X-Access-Token": "e2b_wrong"}
    assert code.send("POST", "/execute", {"code": "1"}, **{"X-Access-Token": None})[0] == 401
    assert code.send("POST", "/execute", {"code": "1"}, **wrong)[0] == 401
    assert code.send("GET", "/contexts", **{"X-Access-Token": None})[0] == 200
    assert code.text("1 + 1") == "2"
    assert code.send("GET", "/contexts", **{"E2b-Sandbox-Id": "m0000000000000"})[0] == 502


def test_wrong_requests_say_why(code):
    assert code.send("POST", "/execute", {}) == (422, "the field 'code' must be a text")
    assert code.send("POST", "/execute", {"code": "1", "env_vars": {"A": 1}}) == (400, "the variable 'A' has no text")
    assert code.send("POST", "/execute", {"code": "1", "context_id": "x", "language": "python"})[0] == 400
    assert code.send("POST", "/execute", {"code": "#" * (1 << 20) + "#"})[0] == 413
    assert code.send("POST", "/execute", {"code": "1", "language": "r"})[0] == 404
    assert code.send("DELETE", "/contexts/nope") == (404, "Context nope not found")
    assert code.send("DELETE", "/contexts/")[0] == code.send("PUT", "/execute", {})[0] == 404
    assert code.send("POST", "/contexts", {"cwd": "/none"})[0] == 500


def test_bash_keeps_its_variables(code):
    def bash(text, **more):
        """What it printed, as the pieces come, and the error or None."""
        lines = code.run(text, language="bash", **more)
        printed = "".join(line["text"] for line in lines if line["type"] in ("stdout", "stderr"))
        errors = [line for line in lines if line["type"] == "error"]
        assert all(e["name"] == e["traceback"] == "" for e in errors)
        return printed, errors[0]["value"] if errors else None
    assert bash("cd /tmp; x=41; f() { echo $((x + 1)); }; echo why >&2") == ("why\n", None)
    assert bash("pwd; f; read y; echo \"[$y]\"") == ("/tmp\n42\n[]\n", None)
    assert bash("echo $A; z=$A", env_vars={"A": "it's"}) == ("it's\n", None)
    assert bash("echo \"[$A]$z\"; false") == ("[]it's\n", "1")
    assert bash("sleep 1000 & echo ${x}; exit 3") == ("41\n", "3")
    assert bash("echo [$x]") == ("[]\n", None)  # a new shell
    assert any(c["id"] == "bash" for c in json.loads(code.send("GET", "/contexts")[1]))


def test_python_awaits_at_the_top(code):
    assert code.text("import asyncio\nx = await asyncio.sleep(0.01, 5)\nx + 1") == "6"
    assert code.text("async def f(): return [i async for i in g()]\nasync def g(): yield 7\nawait f()") == "[7]"
    assert code.text("t = asyncio.create_task(asyncio.sleep(0.01, 'goes on'))") != "goes on"  # no loop runs: the control
    code.run("async def later():\n    global t\n    t = asyncio.create_task(asyncio.sleep(0.01, 'goes on'))\nawait later()")
    assert code.text("await t") == "goes on"  # in the same loop
    assert code.text("asyncio.run(asyncio.sleep(0.01, 8))") == "8"
    error = next(line for line in code.run("async def bad(): 1 / 0\nawait bad()") if line["type"] == "error")
    assert error["name"] == "ZeroDivisionError"
    assert "asyncio" not in error["traceback"] and "in bad" in error["traceback"], error


def test_javascript_has_all_names_for_itself(code):
    """Whatever our own program calls its parts: code can declare the same, and changes nothing of it."""
    source = (TOP / "src/tools/javascript_child.js").read_text()
    names = set(re.findall(r"^(?:const|let|function|async function) (\w+)", source, re.M)) | {"fs", "createRequire", "REQUESTS"}
    assert {"send", "queue", "channel", "console_"} < names
    seen = code.text(" + ".join(f"typeof {name}" for name in sorted(names - {"fs", "net", "repl", "util"})), language="javascript")
    assert seen == "undefined" * (len(names) - 4)
    for name in sorted(names):
        assert code.text(f"let {name} = 5; {name}", language="javascript") == "5", name
    assert code.text("const files = require('fs'); files.existsSync('/etc')", language="javascript") == "true"


def test_contexts_are_limited(code):
    made = [code.send("POST", "/contexts", {})[0] for _ in range(17)]
    assert made == [200] * 16 + [429]


def test_context_goes_on_after_a_restart_of_the_daemon(code, daemon):
    status, made = code.send("POST", "/contexts", {"cwd": "/tmp"})
    context = json.loads(made)
    code.run("x = 41", context_id=context["id"])
    daemon.restart()
    assert context in json.loads(code.send("GET", "/contexts")[1])
    assert code.text("x + 1", context_id=context["id"]) == "42"


def test_forged_lines_are_answers_of_nobody(code):
    forged = json.dumps({"id": "k-000000000000", "event": "result", "main": True, "data": {"text": "forged"}})
    got = code.run(f"import os\nf = open('/proc/%d/fd/1' % os.getppid(), 'w')\nf.write({forged!r} + '\\n{{' * 10 + '\\n')\nf.close()\n7")
    assert [line["text"] for line in got if line["type"] == "result"] == ["7"]


def test_only_known_formats_pass(code):
    made = "class T:\n def __repr__(self): return 't'\n" \
           " def _repr_mimebundle_(self, include=None, exclude=None): return {'type': 'error', 'text/html': ['no'], 'image/png': 'cG5n'}\nT()"
    result = code.run(made)[-1]
    assert result == {"type": "result", "is_main_result": True, "text": "t", "png": "cG5n"}


def test_interpreter_that_is_killed_is_replaced(code):
    code.run("x = 1")
    for end in ("import os\nos._exit(3)", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
                "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"):
        error = code.run(end)[-1]
        assert (error["type"], error["name"]) == ("error", "UnexpectedEndOfExecution")
        assert code.run("x")[-1]["name"] == "NameError"


def test_code_that_ignores_the_interruption_is_killed(code):
    stubborn = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('on', flush=True)\n" \
               "while True: time.sleep(1)"
    c = code.open({"code": stubborn})
    answer = c.getresponse()
    while b"on" not in answer.readline():
        pass
    c.sock.close()
    answer.close()
    c.close()
    assert code.text("1 + 1") == "2"


def test_endless_output_waits_for_its_reader(code, e2b):
    headers = {**code.headers, "E2b-Sandbox-Port": "49983"}
    printed = ("import os\nn = 0\nwhile True:\n    print('x' * 1000)\n    n += 1\n"
               "    with open('/tmp/m', 'w') as f: f.write(str(n))\n    os.replace('/tmp/m', '/tmp/n')")
    c = code.open({"code": printed})
    answer = c.getresponse()
    assert answer.status == 200 and b"number_of_executions" in answer.readline()

    def count():
        return e2b.send("GET", "/files?path=/tmp/n", headers=headers)[2]

    def stands_still():
        before = count()
        time.sleep(1)
        return before == count() != b""

    wait_for(stands_still)
    stopped = count()
    for _ in range(20000):  # the control: it goes on when it is read
        answer.readline()
    wait_for(lambda: count() != stopped)
    answer.close()
    c.close()
    assert code.text("'still here'") == "still here"


def test_waiting_client_that_leaves_is_forgotten(code):
    first = code.open({"code": "import time, os\nwhile not os.path.exists('/tmp/go'): time.sleep(0.02)"})
    status, made = code.send("POST", "/contexts", {})
    other = json.loads(made)["id"]
    second = code.open({"code": "z = 1"})
    time.sleep(0.3)
    second.close()
    code.run("open('/tmp/go', 'w')", context_id=other)
    assert first.getresponse().status == 200
    assert code.run("z")[-1]["name"] in ("NameError",)


def test_large_results_leave_formats_out(code):
    result = code.run("class T:\n def _repr_html_(self): return 'x' * (7 << 20)\n def __repr__(self): return 't'\nT()")[-1]
    assert "html" not in result and result["text"] == "t\n[html left out: it is too large]"
