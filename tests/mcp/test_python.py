"""The tool python: an interpreter that keeps its variables between calls."""
import base64
import json
import time

import pytest

from mcp_client import ToolFailed

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
# Modules with the names and the functions of the real ones, as far as the driver uses them.
PANDAS = '''
class Part:
    def __init__(self, frame): self.frame = frame
    def __getitem__(self, at): return DataFrame([r[at[1]] for r in self.frame.data[at[0]]], self.frame.columns[at[1]])
class DataFrame:
    def __init__(self, data, columns): self.data, self.columns = data, columns
    index = property(lambda self: range(len(self.data)))
    shape = property(lambda self: (len(self.data), len(self.columns)))
    iloc = property(Part)
    def itertuples(self, index, name): return iter(map(tuple, self.data))
    def to_string(self, max_rows, max_cols): return "table of %d x %d" % self.shape
'''
PLOT = f'''
import base64
PNG = {PNG!r}
open_figures = []
class Figure:
    def savefig(self, to, format): to.write(PNG)
def plot(): open_figures.append(Figure())
def get_fignums(): return list(range(len(open_figures)))
def figure(n): return open_figures[0]
def close(f): open_figures.remove(f)
'''


def run(client, code=None, **more):
    return client.call("python", **({} if code is None else {"code": code}), **more)


def test_variables_last_until_a_restart(client):
    first = run(client, "import math\nx = 20\nprint('begun')\nx + 1")
    assert (first["status"], first["value"], first["stdout"], first["fresh"]) == ("ok", "21", "begun\n", True)
    second = run(client, "x *= 2\nmath.floor(x / 3)")
    assert (second["value"], second["fresh"], second["stdout"]) == ("13", False, "")
    assert run(client, "_")["value"] == "13"
    again = run(client, "'x' in globals()", restart=True)
    assert (again["value"], again["fresh"]) == ("False", True)


def test_errors_are_results_and_keep_the_variables(client):
    run(client, "x = 1")
    failed = run(client, "def f():\n    return 1 / 0\nf()")
    assert failed["status"] == "error" and failed["error"].endswith("ZeroDivisionError: division by zero\n")
    assert "return 1 / 0" in failed["error"] and "carrel" not in failed["error"]
    assert "SyntaxError" in run(client, "def (")["error"]
    assert run(client, "x")["value"] == "1"


def test_the_text_is_for_the_model(client):
    result = client.result("python", code="import sys\nprint('out')\nprint('err', file=sys.stderr)\n[1]")
    text = result["content"][0]["text"]
    assert text == "[new interpreter: variables of earlier calls do not exist]\nout\n[stderr]\nerr\n[1]\n"
    assert client.result("python", code="x = 1")["content"][0]["text"] == "[ok]"


def test_sessions_are_apart_and_limited(client):
    for i in range(8):
        assert run(client, f"x = {i}", session=f"s{i}")["fresh"]
    assert run(client, "x", session="s3")["value"] == "3"
    with pytest.raises(ToolFailed, match="runs 8 Python interpreters, which is the limit"):
        run(client, "1", session="s8")
    ended = run(client, "exit()", session="s0")
    assert ended["status"] == "exit"
    assert run(client, "1", session="s8")["fresh"]
    with pytest.raises(ToolFailed, match="'session' must consist of letters"):
        run(client, "1", session="a.b")
    with pytest.raises(ToolFailed, match="argument 'code' is required"):
        run(client)


def test_late_code_is_interrupted_and_the_variables_stay(client):
    run(client, "import time\nx = 5")
    late = client.result("python", code="x = 6\nwhile True: time.sleep(0.1)", timeout_ms=1500)
    assert late["structuredContent"]["status"] == "interrupted" and late["content"][0]["text"].endswith("[interrupted: variables are kept]\n")
    assert run(client, "x")["value"] == "6"
    assert run(client, "import subprocess\nsubprocess.call(['sleep', '1000'])", timeout_ms=1500)["status"] == "interrupted"


def test_code_that_ignores_the_interruption_is_killed(client):
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('on')\nwhile True: pass"
    killed = run(client, stubborn, timeout_ms=1500)
    assert killed["status"] == "killed" and "did not stop 5 s after its interruption" in killed["error"]
    after = run(client, "1")
    assert after["fresh"] and after["status"] == "ok"


def test_an_interpreter_that_dies_says_so(client):
    died = run(client, "import os, signal\nprint('last', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)")
    assert (died["status"], died["error"], died["stdout"]) == ("died", "the interpreter ended with signal 11", "last\n")
    assert run(client, "1")["fresh"]
    assert run(client, "import os\nif os.fork() == 0:\n    import time; time.sleep(1000)\nos._exit(3)")["error"].endswith("exit code 3")
    assert run(client, "1")["fresh"]


def test_output_is_cut_and_counted(client):
    big = run(client, "print('a' * 3_000_000)\n'b' * 100_000", max_output=1000)
    assert big["stdout_bytes"] == 3_000_001 and big["left_out"] == 3_000_001 - 1000
    assert len(big["stdout"]) < 1100 and "bytes left out" in big["stdout"] and len(big["value"]) < 1100
    assert run(client, "import os\nfor i in range(300): os.write(1, b'x' * 65536)")["stdout_bytes"] == 300 * 65536


def test_an_answer_too_large_for_a_line_ends_the_interpreter(client):
    """The child can send anything to the parent, and the parent to the daemon."""
    hostile = "import os\nfor fd in os.listdir('/proc/%d/fd' % os.getppid()): pass\n" \
              "sink = os.open('/proc/%d/fd/1' % os.getppid(), os.O_WRONLY)\nfor i in range(200): os.write(sink, b'y' * 65536)"
    died = run(client, hostile)
    assert died["status"] == "died" and "it sent a line that is too long" in died["error"]
    assert run(client, "1")["fresh"]


# Code that writes to the daemon in place of its parent; LINES is replaced by an expression.
FLOOD = """import os
sink = os.open('/proc/%d/fd/1' % os.getppid(), os.O_WRONLY)
for line in LINES:
    while line: line = line[os.write(sink, line):]
import time; time.sleep(600)
"""


def test_a_line_of_many_values_is_not_read(client, daemon):
    """Read as JSON, empty objects take many times their bytes of the daemon's memory."""
    few = run(client, FLOOD.replace("LINES", r"[b'[' + b'{},' * 20_000 + b'{}]\n']").replace("600", "0"))
    assert few["status"] == "ok"
    before = peak_memory(daemon)
    died = run(client, FLOOD.replace("LINES", r"[b'[' + b'{},' * 2_700_000 + b'{}]\n']"), timeout_ms=20000)
    assert died["status"] == "died" and "a line with too many values" in died["error"]
    assert peak_memory(daemon) - before < 200 << 20
    assert run(client, "1")["fresh"]


def peak_memory(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM"))


def test_endless_lines_that_are_no_answer_end_the_interpreter(client):
    """Each line is read by the daemon, which does nothing else meanwhile."""
    some = run(client, FLOOD.replace("LINES", r"[b'\"' + b'y' * 1_000_000 + b'\"\n'] * 10").replace("600", "0"))
    assert some["status"] == "ok"
    died = run(client, FLOOD.replace("LINES", r"[b'\"' + b'y' * 1_000_000 + b'\"\n'] * 30"), timeout_ms=20000)
    assert died["status"] == "died" and "too many lines that are not an answer" in died["error"]
    assert run(client, "1")["fresh"]


def test_forged_answers_are_checked(client):
    """Code can answer for its parent, whose request it can read, but only with an answer of the right shape."""
    forged = {"status": "great", "stdout": 5, "images": ["AAAA", "no base64", 7], "tables": [{"columns": 1}, 3],
              "stdout_bytes": -4, "value": ["x"]}
    code = f"import os, sys, json\nf = sys._getframe()\nwhile f.f_code.co_name != 'run': f = f.f_back\n" \
           f"answer = dict({forged!r}, id=f.f_locals['request']['id'])\n" \
           f"os.write(os.open('/proc/%d/fd/1' % os.getppid(), os.O_WRONLY), json.dumps(answer).encode() + b'\\n')\n" \
           "import time; time.sleep(2)"
    result = client.result("python", code=code)
    view = result["structuredContent"]
    assert (view["status"], view["stdout"], view["tables"], view["images"]) == ("error", "", [], 0)
    assert len(result["content"]) == 1 and "value" not in view and view["stdout_bytes"] == 0
    time.sleep(2)  # the true answer comes while nobody listens
    assert run(client, "2 + 2")["value"] == "4"


def test_images_and_tables(client):
    client.call("write", path="/home/user/lib/pandas/__init__.py", content="from pandas.frame import DataFrame\n")
    client.call("write", path="/home/user/lib/pandas/frame.py", content=PANDAS)
    client.call("write", path="/home/user/lib/matplotlib/__init__.py", content="")
    client.call("write", path="/home/user/lib/matplotlib/pyplot.py", content=PLOT)
    run(client, "import sys\nsys.path.insert(0, '/home/user/lib')")
    result = client.result("python", code="import matplotlib.pyplot as plt\nplt.plot()\nplt.plot()")
    images = [c for c in result["content"] if c["type"] == "image"]
    assert [(i["mimeType"], base64.b64decode(i["data"])) for i in images] == [("image/png", PNG)] * 2
    assert result["structuredContent"]["images"] == 2 and run(client, "1")["images"] == 0
    view = run(client, "import pandas\npandas.DataFrame([[1, 'a', 2.5, float('nan')]] * 150, ['n', 's', 'f', 'x'])")
    assert view["value"] == "table of 150 x 4"
    table, = view["tables"]
    assert table["columns"] == ["n", "s", "f", "x"] and table["rows"][0] == [1, "a", 2.5, "nan"]
    assert (table["row_count"], table["column_count"], len(table["rows"]), table["index"][99]) == (150, 4, 100, "99")
    shown = client.result("python", code=f"class P:\n    def _repr_png_(self): return {PNG!r}\ndisplay(*[P()] * 6)\n'end'")
    assert shown["structuredContent"]["images"] == 4 and "limit is 4 images" in shown["structuredContent"]["value"]


def test_real_modules_give_images_and_tables(client):
    missing = run(client, "import importlib.util\n[m for m in ('pandas', 'matplotlib', 'PIL') if not importlib.util.find_spec(m)]")["value"]
    if missing != "[]":
        pytest.skip(f"python3 of this host does not have {missing}")
    code = "import pandas as pd, matplotlib.pyplot as plt\nfrom PIL import Image\nplt.plot([1, 2, 3])\n" \
           "display(pd.DataFrame({'a': [1, 2], 'b': ['x', None]}))\nImage.new('RGB', (4, 4), 'red')"
    result = client.result("python", code=code, timeout_ms=60000, seconds=90)
    view = result["structuredContent"]
    assert view["status"] == "ok" and view["images"] == 2, view
    assert view["tables"][0]["columns"] == ["a", "b"] and view["tables"][0]["rows"] == [[1, "x"], [2, None]]
    assert all(base64.b64decode(c["data"]).startswith(b"\x89PNG") for c in result["content"] if c["type"] == "image")


def test_a_step_follows_the_code(client, daemon, open_client):
    """It has the files as the code left them, where they can be copied beside a process. The control's machine takes no steps by itself."""
    control = daemon.machine(steps="manual")
    run(open_client("lines", "--machine", control), "open('note', 'w').write('first')")
    machine = run(client, "open('note', 'w').write('first')")["machine"]
    run(client, "open('note', 'w').write('second')")
    daemon.until(lambda: len(daemon.get(f"/v1/machines/{machine}/steps")["steps"]) >= 2)
    newest, before = daemon.get(f"/v1/machines/{machine}/steps")["steps"][:2]
    assert newest["kind"] == before["kind"] == "exec" and newest["exec"] == before["exec"], (newest, before)
    assert daemon.get(f"/v1/machines/{control}/steps")["steps"] == []
    if before["restorable"]:
        client.call("rewind", to=str(before["number"]))
        assert client.call("exec", cmd="cat note")["stdout"] == "first"
    else:
        assert before["reason"] == "other commands were running"


def test_a_rewind_ends_the_interpreter(client):
    step = client.call("checkpoint")["step"]
    run(client, "x = 1")
    client.call("rewind", to=step)
    after = run(client, "'x' in globals()")
    assert (after["value"], after["fresh"]) == ("False", True)


def test_a_fork_has_an_interpreter_of_its_own(client):
    machine = run(client, "x = 1")["machine"]
    copy, = client.call("fork")["machines"]
    after = run(client, "'x' in globals()", machine=copy["machine"])
    assert (after["value"], after["fresh"], after["machine"]) == ("False", True, copy["machine"])
    assert run(client, "x", machine=machine)["value"] == "1"


def test_a_busy_interpreter_refuses_other_code(client):
    first = client.begin("tools/call", {"name": "python", "arguments": {"code": "import time; time.sleep(4); 'late'"}})
    until_runs(client)
    with pytest.raises(ToolFailed, match="interpreter 'main' runs the code of another call"):
        run(client, "1")
    assert run(client, "1", session="other")["value"] == "1"
    assert client.wait(first)["structuredContent"]["value"] == "'late'"


def until_runs(client, seconds=20):
    end = time.monotonic() + seconds
    while "'<carrel>'" not in client.call("exec", cmd="cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")["stdout"]:
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_machine_without_python_says_what_to_do(client):
    client.call("exec", cmd="rm -f $(which -a python3)", user="root")
    for path in ("/usr/bin/python3", "/usr/local/bin/python3", "/root/.pyenv/shims/python3"):
        client.call("exec", cmd=f"rm -f {path}", user="root")
    assert client.call("exec", cmd="command -v python3")["exit_code"] != 0
    with pytest.raises(ToolFailed, match="has no program 'python3'\ninstall it with the tool install"):
        run(client, "1")


def test_a_closed_session_ends_its_interpreters(open_client, daemon):
    client = open_client("lines")
    machine = run(client, "x = 1")["machine"]
    client.close()
    end = time.monotonic() + 20
    while [x for x in daemon.get(f"/v1/machines/{machine}/execs?state=running")["execs"]]:
        assert time.monotonic() < end
        time.sleep(0.2)


def test_an_interpreter_does_not_keep_its_machine_from_being_idle(open_client, daemon):
    machine = daemon.machine(idle=2, idle_action="stop")
    client = open_client("lines", "--machine", machine)
    assert run(client, "x = 1")["fresh"]
    daemon.until(lambda: daemon.get(f"/v1/machines/{machine}")["state"] == "stopped")
    assert run(client, "2")["fresh"]  # the call woke the machine
    client.call("exec", cmd="sleep 1000", yield_ms=0)  # the control: another command does keep it
    time.sleep(5)
    assert daemon.get(f"/v1/machines/{machine}")["state"] == "running"


def test_a_cancelled_call_is_interrupted(open_client):
    client = open_client("lines")
    run(client, "x = 1")
    number = client.begin("tools/call", {"name": "python", "arguments": {"code": "import time\nx = 2\ntime.sleep(100)"}})
    time.sleep(1)
    client.tell("notifications/cancelled", {"requestId": number})
    end = time.monotonic() + 20
    while True:
        try:
            after = run(client, "x")
            break
        except ToolFailed as e:
            assert "another call" in str(e) and time.monotonic() < end
            time.sleep(0.2)
    assert (after["value"], after["fresh"]) == ("2", False)
    client.silent()


def test_progress_comes_while_code_runs(open_client):
    client = open_client("lines")
    client.ask("tools/call", {"name": "python", "arguments": {"code": "import time; time.sleep(2.5)"},
                              "_meta": {"progressToken": "p"}})
    assert [n["progressToken"] for n in client.noted("notifications/progress")][:1] == ["p"]


def test_results_match_the_output_schema(client):
    schema = client.tools()["python"]["outputSchema"]
    view = run(client, "1")
    assert set(schema["required"]) <= set(view) <= set(schema["properties"])
    assert json.dumps(view)
