"""Every row of the table of rights, and the scope of every route, tried with too little."""
import http.server
import os
import pathlib
import re
import shutil
import tempfile
import threading

import pytest

from daemon import Daemon, Refused
from test_auth import ALICE, BOB, as_user, needs_root, refused, shared, tcp  # noqa: F401

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "src"
ROWS = re.findall(r'\{"([^"]+)",\s*SCOPE_(\w+),\s*ROLE_(\w+),', (SOURCE / "service/rights.c").read_text())
NOBODY = "m-000000000000"
RULE = {"target": "https://example.test"}
SHIP = {"action": "ship", "target": "/x", "sha256": "0" * 64, "files": 1}

# What grants it: a request that fails for another reason, or does no harm, when it is allowed.
TRY = {
    "MachineRequest.dirs": ("POST", "/v1/machines", {"dirs": [{"path": "/nowhere", "mode": "ro"}]}),
    "MachineRequest.dirs.mode=rw": ("POST", "/v1/machines", {"dirs": [{"path": "/nowhere", "mode": "rw"}], "unreviewed": True}),
    "MachineRequest.volumes": ("POST", "/v1/machines", {"volumes": [{"name": "none", "at": "/data"}]}),
    "MachineRequest.net": ("POST", "/v1/machines", {"net": [{"target": "no such:target"}]}),
    "MachineRequest.models": ("POST", "/v1/machines", {"models": {"allow": True}, "image": "no-such-image"}),
    "MachineRequest.secrets": ("POST", "/v1/machines", {"secrets": [{"name": "NONE", "host": "example.test"}]}),
    "MachineRequest.grants": ("POST", "/v1/machines", {"grants": [{"kind": "file", "what": "/nowhere", "at": "/home/user/x"}]}),
    "MachineRequest.allow": ("POST", "/v1/machines", {"kind": "cell", "image": "no-such-image", "allow": "log"}),
    "UpdateRequest.allow": ("PATCH", "/v1/machines/{m}", {"allow": "log"}),
    "UpdateRequest.models": ("PATCH", "/v1/machines/{m}", {"models": {"tokens": 5}}),
    "KindRequest": ("POST", f"/v1/machines/{NOBODY}/move", {"kind": "vm"}),
    "RunStart.model": ("POST", "/v1/runs", {"task": "x", "model": "free/x", "machine": NOBODY}),
    "RunStart.keys": ("POST", "/v1/runs", {"task": "x", "model": "openai/x", "keys": {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "no:url"}}),
    "NetRule": ("POST", f"/v1/machines/{NOBODY}/net/rules", RULE),
    "GrantRequest": ("POST", f"/v1/machines/{NOBODY}/grants", {"kind": "env", "what": "A", "value": "1"}),
    "ExposeRequest": ("POST", f"/v1/machines/{NOBODY}/exposures", {"port": 80}),
    "SecretRequest": ("PUT", "/v1/secrets/no-name", {"value": "0123456789"}),
    "Approval": ("POST", "/v1/pending/a-000000000000", {"decision": "approve"}),
    "Approval of a run": ("POST", "/v1/pending/{run}", {"decision": "approve"}),
    "Ship": ("POST", "/v1/changesets/c-000000000000/ship", SHIP),
    "TokenRequest": ("GET", "/v1/tokens", None),
    "TokenRequest.owner": ("POST", "/v1/tokens", {"owner": "somebody", "scopes": ["read"]}),
    "BuildRequest.steps.net": ("POST", "/v1/images/builds", {"base": "no-such-image", "steps": [{"what": "x", "make": True, "net": ["example.test"]}]}),
    "BuildRequest.local": ("POST", "/v1/images/builds", {"base": "no-such-image", "steps": [], "local": ["example.test"]}),
    "VolumeRequest": ("DELETE", "/v1/volumes/none", None),
    "all": ("GET", "/v1/machines?all=1", None),
}
# Fields of requests that grant nothing of the host, the network or money.
GRANT_NOTHING = {
    "MachineRequest": {"kind", "image", "hostname", "name", "limits", "ttl", "on_ttl", "idle", "idle_action", "steps", "metadata", "env",
                       "expires", "unreviewed", "guard", "key",
                       "from"},  # as the route that forks
    "BuildRequest": {"base", "name", "no_cache"},
    "UpdateRequest": {"name", "limits", "ttl", "on_ttl", "idle", "idle_action", "steps", "metadata"},
    "RunStart": {"task", "machine", "script", "mode", "menu", "guard", "turns", "tokens", "money_micro", "timeout",
                 "ask_deviations", "tries", "check", "check_files", "machines"},
}


@pytest.fixture(scope="module")
def server():
    """With a provider that wants no key and has no server."""
    d = Daemon("--listen", "127.0.0.1:0", conf="[models]\nprovider = free format=chat url=http://127.0.0.1:9/v1\n")
    yield d
    d.stop()


def answer(client, case, **names):
    """None, or what refused it."""
    method, path, body = case
    try:
        client.request(method, path.format(**names), body)
        return None
    except Refused as e:
        return e


def test_the_table_of_rights_names_every_field_that_grants(server):
    """Who adds a field to a request for a machine or a run decides what it needs."""
    assert {field for field, _, _ in ROWS} == set(TRY)
    api = server.get("/v1/openapi.json")
    for request, nothing in GRANT_NOTHING.items():
        fields = set(api["components"]["schemas"][request]["properties"])
        assert fields == nothing | {f.split(".")[1] for f, _, _ in ROWS if f.startswith(request + ".")}, request


def test_every_right_is_refused_to_a_token_without_it(server, tcp):
    everything, plain = tcp(owner="ann", scopes=["read", "run", "admin"]), tcp(owner="ann")
    without = {"READ": tcp(owner="ann", scopes=["run", "admin"]), "RUN": tcp(owner="ann", scopes=["read", "admin"])}
    names = {"m": plain.machine(), "run": "r-000000000000"}
    for field, scope, role in ROWS:
        lacking = answer(without[scope], TRY[field], **names)
        assert lacking and lacking.status == 403 and f"'{scope.lower()}'" in lacking.error["message"], field
        if role != "ANYBODY" and field != "Approval of a run":  # which looks for the run first: operator/test_modes.py
            low = answer(plain, TRY[field], **names)
            assert low and low.status == 403 and "'admin'" in low.error["message"], (field, low)
        full = answer(everything, TRY[field], **names)
        assert not full or "scope" not in full.error["message"], (field, full)


def test_every_route_is_refused_to_a_token_without_its_scope(tcp):
    machine = "/v1/machines/{}"
    macros = {"M": machine, "X": machine + "/execs/{}", "F": machine + "/files"}
    text = (SOURCE / "api/routes.c").read_text()
    rows = re.findall(r'\{"([A-Z]+)", ((?:\w+ ?)?(?:"[^"]*")?), "\w+", SCOPE_(READ|RUN|ADMIN),', text)
    assert len(rows) == len(re.findall(r", SCOPE_\w+,", text)) > 80
    others = {"READ": tcp(scopes=["run", "admin"]), "RUN": tcp(scopes=["read", "admin"]),
              "ADMIN": tcp(scopes=["read", "run"])}
    for method, path, scope in rows:
        path = "".join(macros.get(part, part.strip('"')) for part in re.findall(r'"[^"]*"|\w+', path)).replace("{}", NOBODY)
        assert path.startswith("/"), path
        with pytest.raises(Refused) as e:
            others[scope].request(method, path, {} if method in ("POST", "PUT", "PATCH") else None)
        assert e.value.status == 403 and f"'{scope.lower()}'" in e.value.error["message"], (method, path, e.value)


@pytest.fixture
def inner():
    """A server on this host that is nobody's model: its URL, and the paths that it was asked for."""
    asked = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append(self.path)
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as s:
        threading.Thread(target=s.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{s.server_address[1]}/inner", asked
        s.shutdown()


def test_a_token_does_not_make_this_host_ask_any_server(server, tcp, inner):
    """By the base URL of a run's provider; the owner on this host, the control, does."""
    url, asked = inner
    plain = tcp()
    keys = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": url}
    start = {"task": "x", "model": "openai/x", "keys": keys}
    assert "OPENAI_BASE_URL" in refused(403, "denied", plain.post, "/v1/runs", start)["message"] and not asked
    r = server.post("/v1/runs", start)["id"]
    server.until(lambda: server.get(f"/v1/runs/{r}")["state"] == "interrupted", 60)
    assert asked == ["/inner/chat/completions"], "the control"
    assert "OPENAI_BASE_URL" in refused(403, "denied", plain.post, f"/v1/runs/{r}/resume", {"keys": keys})["message"]
    assert len(asked) == 1


def test_a_token_runs_on_no_provider_of_the_owner(fresh, inner):
    """Neither on one that wants no key, nor as a default, nor with a key of its own; the owner on this host does: the control."""
    url, asked = inner
    d = fresh("--listen", "127.0.0.1:0", conf=f"[models]\ndefault = free/x\nprovider = free format=chat url={url}\n"
              f"provider = paid format=chat url={url} key_env=PAID_KEY\nprovider = sealed format=chat url={url} key_secret=SEALED_KEY\n")
    d.put("/v1/secrets/SEALED_KEY", {"value": "0123456789"})
    plain = d.tcp()

    def says_whose(call, path, body):
        message = refused(403, "denied", call, path, body)["message"]
        assert "'admin'" in message and "carrel.conf" in message, message

    for start in ({}, {"model": "free/x"}, {"model": "paid/x", "keys": {"PAID_KEY": "mine"}}, {"model": "sealed/x"}):
        says_whose(plain.post, "/v1/runs", {"task": "x", **start})
    assert not asked
    for model in ({}, {"model": "sealed/x"}):
        r = d.post("/v1/runs", {"task": "x", **model})["id"]
        d.until(lambda: d.get(f"/v1/runs/{r}")["state"] == "interrupted", 60)
        assert asked == ["/inner/chat/completions"], "the control"
        says_whose(plain.post, f"/v1/runs/{r}/resume", {})
        asked.clear()


@needs_root
def test_a_user_without_a_token_is_not_told_of_one(shared):
    owner = as_user(ALICE, lambda: shared.get("/v1/machines/" + shared.machine()))["owner"]
    for path in ("/v1/machines?all=1", "/v1/store/boxes"):
        error = refused(403, "denied", as_user, ALICE, lambda: shared.get(path))
        assert error["message"].startswith(f"user '{owner}' lacks the scope 'admin'"), error
        assert "token" not in error["message"] and "token new" not in error["remedy"], error


@needs_root
def test_a_provider_is_ready_for_those_whose_runs_can_call_it(fresh):
    """The daemon's user has the keys. Others are not told the names of its secrets."""
    url = "http://127.0.0.1:9/v1"
    d = fresh("--listen", "127.0.0.1:0", conf=f"[models]\nprovider = free format=chat url={url}\n"
              f"provider = sealed format=chat url={url} key_secret=SEALED_KEY\n")
    d.dir.chmod(0o711)
    d.put("/v1/secrets/SEALED_KEY", {"value": "0123456789"})
    plain = d.tcp()

    def told(name):
        return next(p for p in d.get("/v1/models")["providers"] if p["name"] == name)

    def run(model):
        return d.post("/v1/runs", {"task": "x", "model": model})

    own, hers = told("sealed"), as_user(ALICE, lambda: told("sealed"))
    assert own["ready"] and own["key_secret"] == "SEALED_KEY" and run("sealed/x"), "the control"
    assert not hers["ready"] and "administrator" in hers["missing"] and "SEALED" not in str(hers), hers
    refused(403, "denied", as_user, ALICE, lambda: run("sealed/x"))
    assert as_user(ALICE, lambda: told("free"))["ready"] and as_user(ALICE, lambda: run("free/x"))
    assert not any(p["ready"] for p in plain.get("/v1/models")["providers"])
    refused(403, "denied", plain.post, "/v1/runs", {"task": "x", "model": "free/x"})
    assert "OPENAI_API_KEY" in as_user(ALICE, lambda: told("openai"))["missing"]


@needs_root
def test_a_user_who_does_not_run_the_daemon_lends_nothing_rw(shared):
    """cow, the control, is lent; rw is not, though the directory is theirs."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="cd-rights-", dir="/tmp"))
    try:
        os.chown(top, BOB, BOB)

        def give(mode):
            fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
            return shared.lend(fd, unreviewed=True, dirs=[{"path": str(top), "at": "/home/user/d", "mode": mode}])

        assert as_user(BOB, lambda: give("cow"))
        assert "'admin'" in refused(403, "denied", as_user, BOB, lambda: give("rw"))["message"]
    finally:
        shutil.rmtree(top)


def test_a_root_belongs_to_an_owner(fresh):
    """A token of another owner names nothing below it; rw needs admin even below one's own."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="cd-rights-", dir="/tmp"))
    try:
        (top / "ann").mkdir()
        (top / "own").mkdir()
        d = fresh("--listen", "127.0.0.1:0", conf=f"[daemon]\nroots = ann:{top}/ann\n  {top}/own\n")
        ann, ben, own = d.tcp(owner="ann"), d.tcp(owner="ben"), d.tcp()
        boss = d.tcp(owner="ann", scopes=["read", "run", "admin"])

        def give(client, name, mode="ro"):
            return client.machine(dirs=[{"path": str(top / name), "at": "/home/user/d", "mode": mode}], unreviewed=True)

        assert give(ann, "ann") and give(own, "own") and give(boss, "ann", "rw"), "the controls"
        for client, name in ((ann, "own"), (ben, "ann"), (ben, "own"), (own, "ann")):
            refused(403, "denied", give, client, name)
        for client, name in ((ann, "ann"), (own, "own")):
            assert "'admin'" in refused(403, "denied", give, client, name, "rw")["message"]
    finally:
        shutil.rmtree(top)


def test_a_root_counts_as_soon_as_it_is_written_and_a_refusal_says_the_line(fresh):
    top = pathlib.Path(tempfile.mkdtemp(prefix="cd-rights-", dir="/tmp"))
    try:
        d = fresh("--listen", "127.0.0.1:0")
        own, ann = d.tcp(), d.tcp(owner="ann")
        give = lambda client: client.machine(dirs=[{"path": str(top), "at": "/home/user/d", "mode": "cow"}])  # noqa: E731
        conf = d.conf.read_text()
        told, other = (refused(403, "denied", give, client) for client in (own, ann))
        assert f"`roots` in {d.conf}" in told["message"], told
        assert told["remedy"].endswith(f"roots = {top}"), told
        assert str(d.dir) not in str(other) and other["remedy"].endswith(f"roots = ann:{top}"), other
        d.conf.write_text(f"[daemon]\nroots = ann:{top}\n    {top}\n" + conf)
        assert give(own) and give(ann)
        d.conf.write_text(f"[daemon]\nroots = {top} wrong\nwrong\n" + conf)
        assert str(d.conf) in refused(400, "invalid", give, own)["message"]
        for line in ("provider = x format=chat url=http://h key=HIDDEN", "provider = x format=chat url=http://u:HIDDEN@h/v1"):
            d.conf.write_text(f"[models]\n{line}\n" + conf)
            assert "HIDDEN" in refused(400, "invalid", give, own)["message"], "the control"
            other = refused(400, "invalid", give, ann)
            assert "administrator" in other["remedy"], other
            assert "HIDDEN" not in str(other) and str(d.dir) not in str(other), other
        d.conf.write_text(conf)
        refused(403, "denied", give, own)
    finally:
        shutil.rmtree(top)
