"""The real agents from npm, each in its machine, with a scripted model behind the gateway (`make test-agents`).

Their packages are large, so they are downloaded once into the build folder, and this file is not part of `make test`.
"""
import contextlib
import json
import os
import pathlib
import subprocess
import threading
import time

import pytest

from carrel import BUILD, PROGRAM, ROOTLESS, Terminal
from conftest import Agents, delete_volumes, git
from model import KEY, USAGE, Model

CONF = """[models]
provider = a format=anthropic url=http://127.0.0.1:{port} key_env=OWNER_KEY
provider = r format=responses url=http://127.0.0.1:{port}/v1 key_env=OWNER_KEY
provider = g format=gemini url=http://127.0.0.1:{port} key_env=OWNER_KEY
model = * in=1 out=2
"""
# What each needs after "--" in a test.
ARGS = {"claude": [], "codex": [], "opencode": ["-m", "anthropic/claude-sonnet-4-5"], "gemini": ["-m", "gemini-2.5-flash"]}
NAMES = list(ARGS)
# What the model lets the agent do: it edits a file, and runs the tests of the project.
EDIT_AND_TEST = "echo by-model >>old.txt; sh test.sh"


class Real(Agents):
    def __init__(self, port, more=""):
        super().__init__(conf=CONF.format(port=port) + more)
        self.env["XDG_DATA_HOME"] = str(BUILD / "agents")
        self.env["PATH"] = os.environ["PATH"]

    def start(self, env=()):
        super().start({**dict(env), "OWNER_KEY": KEY})


@pytest.fixture(scope="session")
def model_session():
    m = Model()
    yield m
    m.end()


@pytest.fixture(scope="session")
def real_session(model_session):
    d = Real(model_session.port)
    yield d
    d.stop()


@pytest.fixture
def model(model_session):
    model_session.refuse, model_session.commands, model_session.usage, model_session.last = None, [EDIT_AND_TEST], USAGE, "Done."
    model_session.requests.clear()
    return model_session


@pytest.fixture
def real(real_session, model):
    yield real_session
    real_session.clear()
    delete_volumes(real_session)


@pytest.fixture
def repo(repo):
    (repo / "test.sh").write_text("grep -q by-model old.txt && echo the-tests-pass\n")
    git(repo, "add", "test.sh")
    git(repo, "commit", "-q", "-m", "tests")
    return repo


failed = {}


@pytest.fixture(scope="session")
def installed(real_session):
    """Downloads the agent; without npm or a network the test is skipped, with the reason."""
    def install(name):
        if name not in failed:
            done = subprocess.run([PROGRAM, "agent", "update", name], env={**os.environ, **real_session.env, "HOME": os.environ["HOME"]},
                                  capture_output=True, text=True, timeout=600)
            failed[name] = done.stderr.strip().splitlines()[-1] if done.returncode else None
        if failed[name]:
            pytest.skip(failed[name])
    return install


def said(request):
    return json.dumps(request.body)


def is_title(request):
    """opencode asks a small model for the title of the session, beside the conversation."""
    return "haiku" in request.body.get("model", "")


def the_machine(real):
    (machine,) = json.loads(real.carrel("agent", "ls", "--json").stdout)["machines"]
    return machine


@pytest.mark.parametrize("name", NAMES)
def test_one_task_edits_a_file_runs_tests_and_is_shipped(real, model, installed, repo, name):
    installed(name)
    done = real.carrel("agent", name, "-p", "Add a line to old.txt.", "--", *ARGS[name], cwd=repo)
    assert done.returncode == 0, done
    assert "Done." in done.stdout, done
    assert any("the-tests-pass" in said(r) for r in model.requests)
    machine = the_machine(real)["name"]
    reviewed = real.carrel("ship", "--uncommitted", machine, cwd=repo)
    assert "+by-model" in reviewed.stdout, reviewed
    shipped = real.carrel("ship", "-y", "--uncommitted", machine, cwd=repo)
    assert shipped.returncode == 0, shipped
    assert git(repo, "show", f"carrel/{machine}:old.txt") == "one\nby-model\n"
    assert {r.fields.get("x-api-key") or r.fields.get("x-goog-api-key") or r.fields["authorization"].removeprefix("Bearer ")
            for r in model.requests} == {KEY}


@pytest.mark.parametrize("name", NAMES)
def test_resumed_task_knows_the_session_before(real, model, installed, repo, name):
    installed(name)
    first = real.carrel("agent", name, "-p", "Remember the word heliotrope.", "--", *ARGS[name], cwd=repo)
    assert first.returncode == 0, first
    model.requests.clear()
    again = real.carrel("agent", name, "--resume", "-p", "Which word?", "--", *ARGS[name], cwd=repo)
    assert again.returncode == 0 and "Done." in again.stdout, again
    assert any("heliotrope" in said(r) and "Which word?" in said(r) for r in model.requests)


@pytest.mark.parametrize("name", NAMES)
def test_refusal_of_the_budget_reaches_the_user_in_one_call(real, model, installed, repo, name):
    """The budget does not pay for one call: nothing is sent to the provider, and the sentence of the gateway is shown."""
    installed(name)
    done = real.carrel("agent", name, "-p", "x", "--budget", "tokens=50", "--", *ARGS[name], cwd=repo)
    assert done.returncode != 0, done
    assert "carrel models raise" in done.stdout + done.stderr, done
    assert model.requests == [] and len(refusals(real, the_machine(real))) == 1


def refusals(real, machine):
    """Calls of the machine that the gateway refused, with the reason of each. opencode's calls for a title are left out."""
    lines = real.carrel("events", "--past", "--json", "--type", "model.refused", machine["name"]).stdout.splitlines()
    details = [json.loads(line)["detail"] for line in lines]
    return [d["why"] for d in details if "haiku" not in d.get("model", "")]


@pytest.mark.parametrize("name", NAMES)
def test_budget_that_ends_in_an_answer_stops_the_agent_after_one_more_call(real, model, installed, repo, name):
    """The first answer takes the whole budget: it is delivered to its end, and the call after it is refused."""
    installed(name)
    model.usage = lambda r, _: (10, 5) if is_title(r) else (39900, 200)
    done = real.carrel("agent", name, "-p", "x", "--budget", "tokens=40000", "--", *ARGS[name], cwd=repo)
    assert done.returncode != 0 and "carrel models raise" in done.stdout + done.stderr, done
    machine = the_machine(real)
    assert "by-model" in real.carrel("exec", machine["name"], "--", "cat", str(repo / "old.txt")).stdout
    why = refusals(real, machine)
    assert why and all("budget" in w for w in why), why
    assert len(why) == 1, why


# Reads all files that the machine can change. The text comes from standard input, in two parts, so that the search does not find
# itself.
SEARCH = r"""
import os, sys
text, found, looked = sys.stdin.read().replace(" ", "").encode(), [], 0
for top in ("/home", "/root", "/tmp", "/var", "/run", "/etc", "/dev/shm", sys.argv[1]):
    for where, _, names in os.walk(top):
        for path in (os.path.join(where, name) for name in names):
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            with open(path, "rb") as f:
                data = f.read()
            looked += 1
            if text in data:
                found.append(path)
print(looked > 10, found)
"""


def processes():
    """The processes of the machine of an agent, by their ids on this host."""
    spaces = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            spaces.setdefault(os.readlink(f"/proc/{pid}/ns/pid"), {})[pid] = b"/opt/carrel-agent" in words
    own = os.readlink("/proc/self/ns/pid")
    return [pid for space, pids in spaces.items() if space != own and any(pids.values()) for pid in pids]


PAGE, PART = os.sysconf("SC_PAGE_SIZE"), 1 << 24


def parts_of_memory(pid):
    """What the process has in memory or in swap. Agents reserve much more than they use, so other parts are not read."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem, \
            open(f"/proc/{pid}/pagemap", "rb", 0) as pages:
        for line in maps:
            start, end = (int(x, 16) for x in line.split()[0].split("-"))
            if "r" not in line.split()[1]:  # reserved, up to terabytes
                continue
            for at in range(start, end, PART):
                with contextlib.suppress(OSError, ValueError, OverflowError):  # not readable, or too high
                    pages.seek(at // PAGE * 8)
                    if max(pages.read(min(end - at, PART) // PAGE * 8)[7::8], default=0) < 0x40:
                        continue
                    mem.seek(at)
                    yield mem.read(min(end - at, PART + 64)) or b""


def in_processes(text):
    """Where the text is in memory, environment and words of the processes of the machine. The host's root may read all of it."""
    found = set()
    for pid in processes():
        for name in ("environ", "cmdline"):
            with contextlib.suppress(OSError):
                if text.encode() in pathlib.Path(f"/proc/{pid}/{name}").read_bytes():
                    found.add(name)
        if any(text.encode() in part for part in parts_of_memory(pid)):
            found.add("memory")
    return found


def in_files(real, machine, repo, text):
    done = real.carrel("exec", "-u", "root", machine["name"], "--", "python3", "-c", SEARCH, str(repo), stdin=f"{text[:9]} {text[9:]}")
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.skipif(ROOTLESS, reason="only root reads the memory of all processes")
@pytest.mark.parametrize("name", NAMES)
def test_key_of_the_owner_is_nowhere_in_the_machine(real, model, installed, repo, name):
    """Searched while the agent runs: it waits for the model's last answer. Control: the task is found in files and memory."""
    installed(name)
    task = "remember-the-word-heliotrope-7214"
    reached, go_on = threading.Event(), threading.Event()
    answer = model.answer

    def hold(r):
        if "the-tests-pass" in said(r):
            reached.set()
            go_on.wait(150)
        return answer(r)

    model.server.server.answer = hold
    try:
        with real.popen("agent", name, "-p", task, "--", *ARGS[name], cwd=repo, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT) as process:
            assert reached.wait(100)
            machine = the_machine(real)
            seen, control = in_files(real, machine, repo, KEY), in_files(real, machine, repo, task)
            held, held_control = in_processes(KEY), in_processes(task)
            go_on.set()
            process.communicate(timeout=100)
    finally:
        go_on.set()
        model.server.server.answer = answer
    assert seen == "True []\n" and held == set()
    assert "/home/user/" in control and "memory" in held_control, (control, held_control)


@pytest.mark.parametrize("name", NAMES)
def test_refusal_of_the_provider_is_shown(real, model, installed, repo, name):
    installed(name)
    reason = "This organization may not use the model."
    model.refuse = (403, {"type": "error", "error": {"type": "permission_error", "message": reason, "code": 403,
                                                     "status": "PERMISSION_DENIED"}})
    done = real.carrel("agent", name, "-p", "x", "--", *ARGS[name], cwd=repo)
    assert done.returncode != 0 and reason in done.stdout + done.stderr, done


@pytest.mark.parametrize("name", NAMES)
def test_provider_that_is_down_is_told(installed, tmp_path, folder, name):
    """Nobody listens at the provider's port. The agents would repeat a call that got 5xx for minutes."""
    installed(name)
    down = Real(1)
    try:
        done = down.carrel("agent", name, "-p", "x", "--", *ARGS[name], cwd=folder)
        assert done.returncode != 0 and "the model provider cannot be reached" in done.stdout + done.stderr, done
    finally:
        down.stop()


@pytest.mark.parametrize("name", NAMES)
def test_wrong_key_of_the_owner_is_said_at_once(real, model, installed, repo, name):
    installed(name)
    model.refuse = (401, {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key", "code": 401}})
    done = real.carrel("agent", name, "-p", "x", "--", *ARGS[name], cwd=repo)
    assert done.returncode != 0 and "rejected the key that the owner" in done.stdout + done.stderr, done
    assert len(model.requests) <= 2  # opencode also asks for a title


# ---- on a terminal ----

# What a terminal answers when it is asked: position, kind, colours.
ANSWERS = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?62;22c", b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
           b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\", b"\x1b[?u": b"\x1b[?0u"}
# What is on the screen when it waits for a task, and how it is left.
SCREENS = {"claude": (b"bypass permissions", b"/exit"), "codex": (b"OpenAI Codex", b"/quit"),
           "opencode": (b"Ask anything", b"/exit"), "gemini": (b"Type your message", b"/quit")}

# What is there instead when a session is resumed: its end.
RESUMED = {"opencode": b"Done."}


class Answering(Terminal):
    def _read(self, seconds):
        data = super()._read(seconds)
        for asked, told in ANSWERS.items():
            for _ in range(data.count(asked)):
                self.type(told)
        return data

    def submit(self, text, wanted, tries=20):
        """Types a line, and presses Enter until something comes of it: a screen takes keys only when it is drawn."""
        self.type(text)
        for _ in range(tries):
            time.sleep(0.5)
            self.type(b"\r")
            with contextlib.suppress(AssertionError):
                return self.expect(wanted, seconds=3)
        raise AssertionError((wanted, self.text[-2000:]))


@pytest.mark.parametrize("name", list(SCREENS))
def test_session_on_a_terminal_is_reviewed_and_shipped(real, model, installed, repo, name):
    installed(name)
    ready, leave = SCREENS[name]
    t = Answering(real, "agent", name, "--", *ARGS[name], cwd=repo, cols=120, rows=40)
    t.expect(ready, seconds=60)
    t.submit(b"Add a line to old.txt.", b"Done.")
    assert any("the-tests-pass" in said(r) for r in model.requests)
    t.submit(leave, b"what happens to the changes?")
    t.type(b"d\n")
    t.expect(b"+by-model")
    t.type(b"s\n")
    assert t.close()[0] == 0
    branch = git(repo, "branch", "--list", "carrel/*").strip()
    assert git(repo, "show", f"{branch}:old.txt") == "one\nby-model\n"


@pytest.mark.parametrize("name", list(SCREENS))
def test_session_on_a_terminal_is_resumed(real, model, installed, repo, name):
    installed(name)
    ready, leave = SCREENS[name]
    t = Answering(real, "agent", name, "--", *ARGS[name], cwd=repo, cols=120, rows=40)
    t.expect(ready, seconds=60)
    t.submit(b"Remember the word heliotrope.", b"Done.")
    t.submit(leave, b"what happens to the changes?")
    t.type(b"k\n")
    assert t.close()[0] == 0
    model.requests.clear()
    t = Answering(real, "agent", name, "--resume", "--", *ARGS[name], cwd=repo, cols=120, rows=40)
    t.expect(RESUMED.get(name, ready), seconds=60)
    model.last = "It was a flower."  # the screen shows the end of the session before
    t.submit(b"Tell me the word.", b"flower")
    heard = [said(r) for r in model.requests]
    assert any("heliotrope" in h and "Tell me the word." in h for h in heard), [h[-1500:] for h in heard]
    t.submit(leave, b"what happens to the changes?")
    t.type(b"k\n")
    assert t.close()[0] == 0
