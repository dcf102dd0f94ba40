"""The real agents with a subscription login: the vendor is a server on loopback, and no token is in the machine (`make test-agents`)."""
import json
import sys
import pathlib

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gate"))

from conftest import Agents, delete_volumes, git  # noqa: E402
from model import Model  # noqa: E402
from real_agents import SCREENS, Answering, installed  # noqa: E402,F401
from vendor import ACCOUNT, CLAUDE, Vendor, whole  # noqa: E402
from carrel import BUILD  # noqa: E402
import os  # noqa: E402

NAMES = ["claude", "codex"]


class Subscription(Vendor):
    """Checks tokens as a vendor, and answers as the scripted model."""

    def __init__(self):
        self.model = Model()
        super().__init__()

    def end(self):
        super().end()
        self.model.end()

    def answer(self, r):
        checked = super().answer(r)
        if r.path == "/oauth/token" or checked[0] != 200 or r.method == "GET":
            return checked
        return self.model.answer(r)


class WithLogins(Agents):
    def __init__(self, vendor):
        super().__init__(conf=vendor.conf + "[models]\nmodel = * in=1 out=2\n")
        self.env["XDG_DATA_HOME"] = str(BUILD / "agents")
        self.env["PATH"] = os.environ["PATH"]


@pytest.fixture(scope="session")
def vendor_session():
    v = Subscription()
    yield v
    v.end()


@pytest.fixture(scope="session")
def real_session(vendor_session):
    d = WithLogins(vendor_session)
    yield d
    d.stop()


@pytest.fixture
def vendor(vendor_session):
    vendor_session.reset()
    return vendor_session


@pytest.fixture
def real(real_session, vendor):
    yield real_session
    real_session.clear()
    delete_volumes(real_session)
    for login in real_session.get("/v1/logins")["logins"]:
        real_session.delete(f"/v1/logins/{login['name']}")


def log_in(real, vendor, name, **fields):
    done = real.carrel("login", name, stdin=CLAUDE if name == "claude" else vendor.auth_file(**fields))
    assert done.returncode == 0, done


def machine_of(real):
    return json.loads(real.carrel("agent", "ls", "--json").stdout)["machines"][0]["name"]


@pytest.mark.parametrize("name", NAMES)
def test_agent_works_with_a_login_and_the_tokens_stay_outside(real, vendor, installed, repo, name):
    installed(name)
    log_in(real, vendor, name)
    done = real.carrel("agent", name, "--login", "-p", "Add a line to old.txt.", cwd=repo)
    assert done.returncode == 0 and "Done." in done.stdout, done
    machine = machine_of(real)
    assert git(repo, "branch", "--list", "carrel/*") == ""
    shipped = real.carrel("ship", "-y", "--uncommitted", machine, cwd=repo)
    assert shipped.returncode == 0 and git(repo, "show", f"carrel/{machine}:old.txt") == "one\nby-model\n", shipped
    assert {c.fields["authorization"].removeprefix("Bearer ") for c in vendor.calls} <= vendor.valid and vendor.calls
    if name == "codex":
        assert {c.fields["chatgpt-account-id"] for c in vendor.calls} == {ACCOUNT}
    for secret in vendor.secrets():
        look = (f"grep -rls {secret[4:]} /home /tmp /etc /run /var {repo} 2>/dev/null; "
                f"grep -ls {secret[4:]} /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; echo looked")
        assert real.carrel("exec", machine, "--", "sh", stdin=look).stdout == "looked\n"


@pytest.mark.parametrize("name", NAMES)
def test_later_start_uses_the_login_of_the_machine(real, vendor, installed, repo, name):
    installed(name)
    log_in(real, vendor, name)
    assert real.carrel("agent", name, "--login", "-p", "Remember the word heliotrope.", cwd=repo).returncode == 0
    vendor.calls.clear()
    again = real.carrel("agent", name, "--resume", "-p", "Which word?", cwd=repo)
    assert again.returncode == 0 and "Done." in again.stdout, again
    assert any("heliotrope" in json.dumps(c.body) for c in vendor.calls)


@pytest.mark.parametrize("name", NAMES)
def test_end_of_the_login_is_said_with_the_command(real, vendor, installed, repo, name):
    installed(name)
    log_in(real, vendor, name)
    vendor.valid.clear()
    vendor.fault = lambda r: whole({"error": {"code": "refresh_token_expired"}}, status=401)
    done = real.carrel("agent", name, "--login", "-p", "x", cwd=repo)
    assert done.returncode != 0 and f"carrel login {name}" in done.stdout + done.stderr, done
    assert len(vendor.renewals) == (name == "codex") and len([c for c in vendor.calls if c.method == "POST"]) <= 2


@pytest.mark.parametrize("name", NAMES)
def test_session_on_a_terminal_with_a_login(real, vendor, installed, repo, name):
    installed(name)
    log_in(real, vendor, name, **({"seconds": -10} if name == "codex" else {}))
    ready, leave = SCREENS[name]
    t = Answering(real, "agent", name, "--login", cwd=repo, cols=120, rows=40)
    t.expect(ready, seconds=60)
    t.submit(b"Add a line to old.txt.", b"Done.")
    t.submit(leave, b"what happens to the changes?")
    t.type(b"k\n")
    assert t.close()[0] == 0
    assert len(vendor.renewals) == (name == "codex")


def test_key_works_in_a_home_that_had_a_login(real, vendor, installed, repo):
    """The home keeps the placeholders of the login. An agent with a key must not send them."""
    installed("codex")
    log_in(real, vendor, "codex")
    assert real.carrel("agent", "codex", "--login", "-p", "x", cwd=repo).returncode == 0
    real.conf.write_text(real.conf.read_text() + f"[models]\nprovider = r format=responses url=http://127.0.0.1:{vendor.model.port}/v1\n")
    real.restart(hard=False)
    vendor.calls.clear()
    done = real.carrel("agent", "codex", "--fresh", "-y", "-p", "Add a line to old.txt.", cwd=repo)
    assert done.returncode == 0 and "Done." in done.stdout and vendor.calls == [], done


def test_agent_without_the_login_is_refused(real, vendor, installed, repo):
    installed("claude")
    done = real.carrel("agent", "claude", "--login", "-p", "x", cwd=repo)
    assert done.returncode != 0 and "carrel login claude" in done.stderr and vendor.calls == []
    gemini = real.carrel("agent", "gemini", "--login", "-p", "x", cwd=repo)
    assert gemini.returncode != 0 and "agent 'gemini' cannot use a login" in gemini.stderr
