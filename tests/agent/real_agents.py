"""The real agents from npm, each in its machine, with a scripted model behind the gateway (`make test-agents`).

Their packages are large, so they are downloaded once into the build folder, and this file is not part of `make test`.
"""
import contextlib
import json
import os
import subprocess
import time

import pytest

from carrel import BUILD, PROGRAM, Terminal
from conftest import Agents, delete_volumes, git
from model import KEY, Model

CONF = """[models]
provider = a format=anthropic url=http://127.0.0.1:{port} key_env=OWNER_KEY
provider = r format=responses url=http://127.0.0.1:{port}/v1 key_env=OWNER_KEY
provider = g format=gemini url=http://127.0.0.1:{port} key_env=OWNER_KEY
model = * in=1 out=2
"""
# What each needs after "--" in a test.
ARGS = {"claude": [], "codex": [], "opencode": ["-m", "anthropic/claude-sonnet-4-5"], "gemini": ["-m", "gemini-2.5-flash"]}
NAMES = list(ARGS)


class Real(Agents):
    def __init__(self, port):
        super().__init__(conf=CONF.format(port=port))
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
    model_session.refuse = None
    model_session.requests.clear()
    return model_session


@pytest.fixture
def real(real_session, model):
    yield real_session
    real_session.clear()
    delete_volumes(real_session)


failed = {}


@pytest.fixture
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


@pytest.mark.parametrize("name", NAMES)
def test_one_task_edits_a_file_and_is_shipped(real, model, installed, repo, name):
    installed(name)
    done = real.carrel("agent", name, "-p", "Add a line to old.txt.", "--", *ARGS[name], cwd=repo)
    assert done.returncode == 0, done
    assert "Done." in done.stdout, done
    machine = json.loads(real.carrel("agent", "ls", "--json").stdout)["machines"][0]["name"]
    shipped = real.carrel("ship", "-y", "--uncommitted", machine, cwd=repo)
    assert shipped.returncode == 0, shipped
    assert git(repo, "show", f"carrel/{machine}:old.txt") == "one\nby-model\n"
    assert {r.fields.get("x-api-key") or r.fields.get("x-goog-api-key") or r.fields["authorization"].removeprefix("Bearer ")
            for r in model.requests} == {KEY}


def said(request):
    return json.dumps(request.body)


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
    assert model.requests == []


def test_key_of_the_owner_is_nowhere_in_the_machine(real, model, installed, repo):
    installed("codex")
    real.carrel("agent", "codex", "-p", "x", cwd=repo)
    machine = json.loads(real.carrel("agent", "ls", "--json").stdout)["machines"][0]["name"]
    look = (f"grep -rls {KEY[:12]} /home /tmp /etc /run /var {repo} 2>/dev/null; "
            f"grep -ls {KEY[:12]} /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; echo looked")
    # The words of this search name a part of the key themselves, so it comes from standard input.
    done = real.carrel("exec", machine, "--", "sh", stdin=look)
    assert done.stdout == "looked\n", done


@pytest.mark.parametrize("name", NAMES)
def test_refusal_of_the_provider_is_shown(real, model, installed, repo, name):
    installed(name)
    reason = "This organization may not use the model."
    model.refuse = (403, {"type": "error", "error": {"type": "permission_error", "message": reason, "code": 403,
                                                     "status": "PERMISSION_DENIED"}})
    done = real.carrel("agent", name, "-p", "x", "--", *ARGS[name], cwd=repo)
    assert done.returncode != 0 and reason in done.stdout + done.stderr, done


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
    t.submit(leave, b"what happens to the changes?")
    t.type(b"s\n")
    assert t.close()[0] == 0
    branch = git(repo, "branch", "--list", "carrel/*").strip()
    assert git(repo, "show", f"{branch}:old.txt") == "one\nby-model\n"
