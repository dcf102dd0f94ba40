"""Subscription logins: the token stays outside of the machine, only granted machines use it, and it is renewed once at a time."""
import json
import subprocess
import threading

import pytest

from carrel import PROGRAM, TOP
from daemon import Daemon, Refused
from vendor import ACCOUNT, CLAUDE, Vendor, whole

PLACEHOLDER = "sk-ant-oat01-carrel-placeholder"
# A string literal of C in pieces.
CODEX = "".join(line.strip(' \\"') for line in (TOP / "src/base/login.h").read_text().split("LOGIN_CODEX_PLACEHOLDER")[1].split("/*")[0].split("\n"))
MESSAGES = {"model": "m", "max_tokens": 100, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
RESPONSES = {"model": "m", "stream": True, "store": False, "input": [{"type": "message", "role": "user", "content": "hi"}]}
CALLS = {"claude": (PLACEHOLDER, MESSAGES, "http://models.carrel/v1/messages?beta=true"),
         "codex": (CODEX, RESPONSES, "http://models.carrel/backend-api/codex/responses")}


class WithLogins(Daemon):
    def carrel(self, *words, stdin=""):
        return subprocess.run([PROGRAM, *words], env=self.env, capture_output=True, text=True, timeout=100, input=stdin)

    def login(self, name, value):
        self.put(f"/v1/logins/{name}", {"value": value})

    def box(self, *logins, **fields):
        return self.machine(models={"allow": True}, grants=[{"kind": "login", "what": n} for n in logins], **fields)

    def curl(self, box, token, url, *words):
        done = self.exec(box, ["curl", "-sS", "--max-time", "60", "-w", "\\n%{http_code}", "-H", f"Authorization: Bearer {token}", *words, url])
        assert done["exec"]["status"] == 0, done
        text, status = done["stdout"].rsplit("\n", 1)
        return int(status), text

    def ask(self, box, name, *words):
        token, body, url = CALLS[name]
        return self.curl(box, token, url, "-H", "Content-Type: application/json", *words, "-d", json.dumps(body))

    def notes(self, verb):
        text = self.request("GET", "/v1/audit", raw=True, verb=verb).decode()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def module_vendor():
    v = Vendor()
    yield v
    v.end()


@pytest.fixture(scope="module")
def module_daemon(module_vendor):
    d = WithLogins("--listen", "127.0.0.1:0", conf=module_vendor.conf + "[models]\nmodel = m in=3 out=15\n")
    yield d
    d.stop()


@pytest.fixture
def vendor(module_vendor):
    module_vendor.reset()
    return module_vendor


@pytest.fixture
def daemon(module_daemon, vendor):
    yield module_daemon
    module_daemon.clear()
    for login in module_daemon.get("/v1/logins")["logins"]:
        module_daemon.delete(f"/v1/logins/{login['name']}")
    text = module_daemon.log() + json.dumps(module_daemon.notes(""))
    assert [s for s in vendor.secrets() if s in text] == []


# ---- storing ----

def test_login_is_listed_without_its_token_and_deleted(daemon, vendor):
    done = daemon.carrel("login", "claude", stdin=CLAUDE + "\n")
    assert (done.returncode, done.stdout) == (0, ""), done
    assert daemon.carrel("login", "codex", stdin=vendor.auth_file()).returncode == 0
    shown = daemon.carrel("login", "ls", "--json").stdout + daemon.carrel("login", "ls").stdout + daemon.carrel("secret", "ls").stdout
    assert [s for s in vendor.secrets() if s in shown] == [] and "login." not in shown
    assert {l["name"] for l in daemon.get("/v1/logins")["logins"]} == {"claude", "codex"}
    assert daemon.carrel("login", "rm", "claude").returncode == 0
    assert daemon.carrel("login", "ls", "-q").stdout == "codex\n"
    again = daemon.carrel("login", "rm", "claude")
    assert again.returncode != 0 and "login 'claude' does not exist" in again.stderr


def test_tokens_are_encrypted_on_disk(daemon, vendor):
    daemon.login("claude", CLAUDE)
    daemon.login("codex", vendor.auth_file())
    daemon.restart()
    for path in daemon.home.rglob("*"):
        if path.is_file() and path.stat().st_size < 64 << 20 and "images" not in path.parts:
            data = path.read_bytes()
            assert [s for s in vendor.secrets() if s.encode() in data] == [], path
    assert daemon.ask(daemon.box("claude"), "claude")[0] == 200


BAD = {"empty token": ("claude", ""), "key": ("claude", "sk-ant-api03-a-key-of-the-api-1234"),
       "words": ("claude", "sk-ant-oat01-two words of text"), "long": ("claude", "sk-ant-oat01-" + "a" * 9000),
       "placeholder": ("claude", PLACEHOLDER), "empty file": ("codex", ""), "nothing": ("codex", "{}"), "array": ("codex", "[1]"),
       "short": ("codex", '{"tokens":{"access_token":"x","refresh_token":"y","account_id":"z"}}'),
       "deep": ("codex", '{"tokens":{"access_token":' + "[" * 3000), "vendor": ("gemini", "sk-anything-1234567890")}


@pytest.mark.parametrize("case", list(BAD))
def test_text_that_is_not_a_login_is_refused(daemon, case):
    name, value = BAD[case]
    with pytest.raises(Refused) as refused:
        daemon.login(name, value)
    assert refused.value.code in ("invalid", "limit")
    assert len(value) < 12 or value[10:] not in str(refused.value)
    assert daemon.get("/v1/logins")["logins"] == []


def test_placeholder_file_and_login_of_this_host_are_refused(daemon, vendor):
    with pytest.raises(Refused):
        daemon.login("codex", json.dumps({"tokens": {"access_token": CODEX, "refresh_token": "r" * 20, "account_id": "a"}}))
    own = daemon.dir / ".codex/auth.json"
    own.parent.mkdir(exist_ok=True)
    own.write_text(vendor.auth_file())
    with open(own) as file:
        done = subprocess.run([PROGRAM, "login", "codex"], env=daemon.env, stdin=file, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "would log out each other" in done.stderr
    assert daemon.get("/v1/logins")["logins"] == []


# ---- who may use it ----

@pytest.mark.parametrize("name", list(CALLS))
def test_token_is_added_outside_of_the_machine(daemon, vendor, name):
    daemon.login(name, CLAUDE if name == "claude" else vendor.auth_file())
    status, text = daemon.ask(daemon.box(name), name, "-H", "User-Agent: agent/1", "-H", "Cookie: of-the-machine", "-H", "x-api-key: mine")
    assert status == 200 and "Done." in text
    call, = vendor.calls
    assert call.fields["authorization"].removeprefix("Bearer ") in vendor.valid
    assert call.fields["user-agent"] == "agent/1" and "cookie" not in call.fields and "x-api-key" not in call.fields
    if name == "claude":
        assert call.path == "/v1/messages?beta=true" and "oauth-2025-04-20" in call.fields["anthropic-beta"]
    else:
        assert call.path == "/backend-api/codex/responses" and call.fields["chatgpt-account-id"] == ACCOUNT
    assert [s for s in vendor.secrets() if s in text] == []


def test_machine_without_the_grant_may_not_use_the_login(daemon, vendor):
    daemon.login("claude", CLAUDE)
    daemon.login("codex", vendor.auth_file())
    for box, name in ((daemon.box(), "claude"), (daemon.box("codex"), "claude"), (daemon.box("claude"), "codex")):
        status, text = daemon.ask(box, name)
        assert status in (400, 403) and f"may not use the login '{name}'" in text
    assert vendor.calls == []


def test_request_without_the_placeholder_never_uses_the_login(daemon, vendor):
    daemon.login("claude", CLAUDE)
    status, text = daemon.curl(daemon.box("claude"), "another-token", CALLS["claude"][2], "-d", json.dumps(MESSAGES))
    assert status in (400, 403) and "API key" in text and vendor.calls == []


def test_revoked_grant_and_deleted_login_end_at_once(daemon, vendor):
    daemon.login("claude", CLAUDE)
    box = daemon.box("claude")
    assert daemon.ask(box, "claude")[0] == 200
    daemon.revoke(box, "login")
    assert daemon.ask(box, "claude")[0] == 403
    daemon.grant(box, "login", "claude")
    assert daemon.ask(box, "claude")[0] == 200
    daemon.delete("/v1/logins/claude")
    status, text = daemon.ask(box, "claude")
    assert status == 403 and "carrel login claude" in text
    assert len(vendor.calls) == 2


def test_login_that_does_not_exist_is_not_granted(daemon):
    with pytest.raises(Refused) as refused:
        daemon.box("claude")
    assert refused.value.code == "not_found" and "carrel login claude" in str(refused.value)


def test_calls_count_for_the_budget(daemon, vendor):
    daemon.login("claude", CLAUDE)
    box = daemon.machine(models={"tokens": 50000, "money": 1.5}, grants=[{"kind": "login", "what": "claude"}])
    assert daemon.ask(box, "claude")[0] == 200
    spent = daemon.get(f"/v1/machines/{box}/stats")["models"]
    assert (spent["calls"], spent["tokens"]) == (1, 10) and spent["money"] == 0.000066
    small = daemon.machine(models={"tokens": 1}, grants=[{"kind": "login", "what": "claude"}])
    assert daemon.ask(small, "claude")[0] == 402 and len(vendor.calls) == 1


def test_login_is_not_for_other_formats(daemon, vendor):
    daemon.login("claude", CLAUDE)
    box = daemon.box("claude")
    for url in ("chat/completions", "responses", "embeddings", "models/m:generateContent"):
        status, _ = daemon.curl(box, PLACEHOLDER, f"http://models.carrel/v1/{url}", "-d", json.dumps({"model": "m", "input": "x"}))
        assert status in (400, 403), url
    assert vendor.calls == []


# ---- the list of models ----

def test_models_of_the_account_are_listed_without_the_rest(daemon, vendor):
    daemon.login("codex", vendor.auth_file())
    status, text = daemon.curl(daemon.box("codex"), CODEX, "http://models.carrel/backend-api/codex/models?client_version=0.166.0")
    assert (status, json.loads(text)) == (200, {"models": [{"slug": "gpt-x"}]})
    assert vendor.calls[0].path == "/backend-api/codex/models?client_version=0.166.0"


def test_other_routes_of_the_account_are_not_forwarded(daemon, vendor):
    daemon.login("codex", vendor.auth_file())
    box = daemon.box("codex")
    status, text = daemon.curl(box, CODEX, "http://models.carrel/backend-api/wham/accounts/check")
    assert status == 200 and json.loads(text)["default_account_id"] == "carrel"
    for path in ("wham/usage", "wham/accounts/check/x", "codex/models/../../me", "me", "accounts", "codex/responses/x"):
        assert daemon.curl(box, CODEX, f"http://models.carrel/backend-api/{path}", "--path-as-is")[0] in (400, 403, 404), path
    assert [c.path for c in vendor.calls if "models" not in c.path] == []


# ---- renewal ----

def test_expired_token_is_renewed_and_the_new_one_is_kept(daemon, vendor):
    daemon.login("codex", vendor.auth_file(seconds=-10))
    box = daemon.box("codex")
    assert daemon.ask(box, "codex")[0] == 200
    assert vendor.renewals == [{"client_id": vendor.renewals[0]["client_id"], "grant_type": "refresh_token",
                                "refresh_token": "refresh-token-1-of-the-owner"}]
    daemon.restart()  # without a word: the new tokens were on disk before they were used
    assert daemon.ask(box, "codex")[0] == 200 and len(vendor.renewals) == 1
    vendor.valid.clear()
    assert daemon.ask(box, "codex")[0] == 200 and vendor.renewals[1]["refresh_token"] == "refresh-token-2-of-the-owner"


def test_calls_at_once_are_renewed_once(daemon, vendor):
    daemon.login("codex", vendor.auth_file(seconds=-10))
    boxes, go = [daemon.box("codex") for _ in range(3)], threading.Event()

    def slow(r):
        vendor.fault = None
        go.wait(60)
        return vendor.renew(r)

    vendor.fault = slow
    token, body, url = CALLS["codex"]
    words = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"Authorization: Bearer {token}", "-d", json.dumps(body), url]
    clients = [(box, daemon.background(box, words)) for box in boxes]
    # What a call may cost is held just before its token is looked up.
    daemon.until(lambda: all(daemon.get(f"/v1/machines/{box}/stats").get("models", {}).get("held_tokens") for box in boxes))
    go.set()
    assert [daemon.wait(box, x)["status"] for box, x in clients] == [0] * 3
    assert len(vendor.calls) == 3 and {r["refresh_token"] for r in vendor.renewals} == {"refresh-token-1-of-the-owner"}
    assert vendor.count == 2 and len(vendor.renewals) == 2  # one request, which slow() passes on


def test_rejected_token_is_renewed_once_and_then_an_error_is_shown(daemon, vendor):
    daemon.login("codex", vendor.auth_file())
    box = daemon.box("codex")
    vendor.valid.clear()
    assert daemon.ask(box, "codex")[0] == 200 and len(vendor.renewals) == 1
    vendor.valid.clear()
    vendor.fault = lambda r: whole({"access_token": "a-token-that-nobody-accepts", "refresh_token": "a-refresh-token-of-it"})
    for _ in range(3):  # the last renewal was just now
        status, text = daemon.ask(box, "codex")
        assert status == 400 and "carrel login codex" in text
    assert len(vendor.renewals) == 1
    assert "rejected" in daemon.get("/v1/logins")["logins"][0]["problem"]


def test_rejected_token_of_claude_names_the_command(daemon, vendor):
    daemon.login("claude", CLAUDE)
    box = daemon.box("claude")
    vendor.valid.clear()
    status, text = daemon.ask(box, "claude")
    assert status == 403 and "carrel login claude" in text and json.loads(text)["type"] == "error"
    assert len(vendor.calls) == 1
    vendor.valid.add(CLAUDE)
    assert daemon.ask(box, "claude")[0] == 200


REFUSED = [(401, {"error": {"code": "refresh_token_reused", "message": "x"}}), (400, {"error": "invalid_grant"}),
           (401, {"error": {"code": "refresh_token_expired"}}), (400, {"code": "refresh_token_invalidated"}), (401, "text")]


@pytest.mark.parametrize("status,body", REFUSED)
def test_login_that_has_ended_asks_the_owner_and_is_not_tried_again(daemon, vendor, status, body):
    daemon.login("codex", vendor.auth_file(seconds=-10))
    box = daemon.box("codex")
    vendor.fault = lambda r: whole(body, status=status)
    for _ in range(2):
        got, text = daemon.ask(box, "codex")
        assert got == 400 and "carrel login codex" in text
    assert len(vendor.renewals) == 1 and vendor.calls == []
    assert "has ended" in daemon.carrel("login", "ls").stdout
    vendor.fault = None
    daemon.login("codex", vendor.auth_file())  # the owner did
    assert daemon.ask(box, "codex")[0] == 200


def lines(data, status=200, **fields):
    return lambda r: (status, {"Content-Length": str(len(data)), **fields}, [data])


FAULTS = {"status": lines(b"busy", status=503), "html": lines(b"<html>sign in</html>"), "empty": lines(b""),
          "no token": lines(b'{"access_token":7,"refresh_token":"r"}'), "array": lines(b"[" * 5000),
          "huge": lines(b'{"access_token":"' + b"a" * (1 << 20) + b'"}'), "long token": lines(json.dumps({"access_token": "a" * 30000}).encode()),
          "newline": lines(json.dumps({"access_token": "sixteen-letters-\r\nx: y", "refresh_token": "r" * 20}).encode()),
          "twice": lines(b'{"access_token":"aaaaaaaaaaaaaaaaaaaa","access_token":"bbbbbbbbbbbbbbbbbbbb"}'),
          "cut": lambda r: (200, {"Content-Length": "500"}, [b'{"access_token":', None]),
          "redirect": lambda r: (307, {"Location": "http://127.0.0.1:1/else", "Content-Length": "0"}, [])}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_fault_of_the_login_server_is_an_error_and_the_login_stays(daemon, vendor, fault):
    daemon.login("codex", vendor.auth_file(seconds=-10))
    box = daemon.box("codex")
    vendor.fault = FAULTS[fault]
    status, text = daemon.ask(box, "codex")
    assert status >= 500 and "error" in text and vendor.calls == []
    assert daemon.ask(box, "codex")[0] >= 500 and len(vendor.renewals) == 1  # not again at once
    vendor.fault = None
    assert daemon.until(lambda: daemon.ask(box, "codex")[0] == 200)


def test_token_that_is_still_valid_is_used_while_the_login_server_is_down(daemon, vendor):
    daemon.login("codex", vendor.auth_file(seconds=200))  # so soon before its end it is renewed
    vendor.fault = lines(b"busy", status=503)
    assert daemon.ask(daemon.box("codex"), "codex")[0] == 200
    assert len(vendor.renewals) == 1


def test_renewal_goes_on_without_its_client(daemon, vendor):
    daemon.login("codex", vendor.auth_file(seconds=-10))
    box, asked, go = daemon.box("codex"), threading.Event(), threading.Event()

    def slow(r):
        vendor.fault = None
        asked.set()
        go.wait(60)
        return vendor.renew(r)

    vendor.fault = slow
    token, body, url = CALLS["codex"]
    client = daemon.background(box, ["curl", "-sS", "-H", f"Authorization: Bearer {token}", "-d", json.dumps(body), url])
    assert asked.wait(60)
    daemon.post(f"/v1/machines/{box}/execs/{client}/signal", {"signal": "KILL"})
    daemon.wait(box, client)
    go.set()
    assert daemon.ask(box, "codex")[0] == 200
    assert daemon.until(lambda: vendor.count == 2) and vendor.calls[-1].fields["authorization"].endswith("access-2")


def test_login_replaced_during_a_renewal_is_not_overwritten(daemon, vendor):
    daemon.login("codex", vendor.auth_file(seconds=-10))
    box, asked, go, sent = daemon.box("codex"), threading.Event(), threading.Event(), threading.Event()

    def slow(r):
        asked.set()
        vendor.lock.release()
        go.wait(60)
        vendor.lock.acquire()
        status, fields, pieces = whole({"access_token": "the-renewed-one-of-the-old-login", "refresh_token": "refresh-of-the-old-login"})
        return status, fields, told(pieces)

    def told(pieces):
        yield from pieces
        sent.set()

    vendor.fault = slow
    token, body, url = CALLS["codex"]
    client = daemon.background(box, ["curl", "-sS", "-H", f"Authorization: Bearer {token}", "-d", json.dumps(body), url])
    assert asked.wait(60)
    vendor.fault = None
    daemon.login("codex", vendor.auth_file())
    go.set()
    daemon.wait(box, client)
    sent.wait(5)  # the daemon may have closed the connection
    assert daemon.ask(box, "codex")[0] == 200
    daemon.restart()
    assert daemon.ask(box, "codex")[0] == 200 and vendor.calls[-1].fields["authorization"].endswith("access-2")


def test_token_is_not_sent_on_to_a_redirect(daemon, vendor):
    daemon.login("claude", CLAUDE)
    box, before = daemon.box("claude"), vendor.server.server.answer
    vendor.server.server.answer = lambda r: (vendor.calls.append(r), (307, {"Location": f"http://127.0.0.1:{vendor.port}/else", "Content-Length": "0"}, []))[1]
    try:
        status, text = daemon.ask(box, "claude")
    finally:
        vendor.server.server.answer = before
    assert status == 307 and [c.path for c in vendor.calls] == ["/v1/messages?beta=true"] and "/else" not in text


@pytest.mark.parametrize("name", list(CALLS))
def test_error_of_the_vendor_with_the_token_is_not_passed_on(daemon, vendor, name):
    daemon.login(name, CLAUDE if name == "claude" else vendor.auth_file())
    box, before = daemon.box(name), vendor.server.server.answer

    def echo(r):
        return whole({"error": {"message": f"bad request of {r.fields.get('chatgpt-account-id')}: {r.fields['authorization']}"}}, status=400)

    vendor.server.server.answer = echo
    try:
        status, text = daemon.ask(box, name)
    finally:
        vendor.server.server.answer = before
    assert status >= 400 and [s for s in vendor.secrets() if s in text] == []


# ---- rights ----

def test_token_without_the_scope_admin_changes_and_grants_no_login(daemon, vendor):
    daemon.login("claude", CLAUDE)
    box, client = daemon.box(), daemon.tcp(scopes=["read", "run"])
    for call in (lambda: client.put("/v1/logins/claude", {"value": CLAUDE}), lambda: client.delete("/v1/logins/claude"),
                 lambda: client.grant(box, "login", "claude"), lambda: client.machine(grants=[{"kind": "login", "what": "claude"}])):
        with pytest.raises(Refused) as refused:
            call()
        assert refused.value.code == "denied"
    assert [s for s in vendor.secrets() if s in json.dumps(client.get("/v1/logins"))] == []
    assert daemon.ask(box, "claude")[0] == 403
