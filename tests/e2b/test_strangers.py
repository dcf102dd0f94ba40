"""Every route of the control plane, from src/api/e2b/e2b.c: what a wrong key, a key that may only read and the key of another owner get, and that nothing is lost."""
import json
import pathlib
import re
import urllib.parse

import pytest

from base_image import lend_base
from carrel import ROOTLESS
from e2b_client import E2b, machine_of, status_of
from test_templates import ask, begin, ended, run

TOP = pathlib.Path(__file__).resolve().parents[2]
ROUTES = re.findall(r'^ {4}\{"([A-Z]+)", "(/[^"]*)",', (TOP / "src/api/e2b/e2b.c").read_text(), re.M)
# What a stranger gets from routes that name nothing of another owner.
LISTS = {("GET", path): nothing for path, nothing in
         (("/v2/sandboxes", []), ("/sandboxes", []), ("/snapshots", []), ("/volumes", []), ("/templates", []), ("/sandboxes/metrics", {"sandboxes": {}}))}
# They give a right to change something: the access token of a sandbox, and an address to upload to.
GIVE = {"/sandboxes/{}", "/templates/{}/files/{}"}
MAKE = {("POST", path) for path in ("/v2/sandboxes", "/sandboxes", "/volumes", "/v3/templates")}


@pytest.fixture(scope="module")
def owned(server, e2b, tmp_path_factory):
    """One thing of each kind, and its names for the parameters of paths."""
    lend_base(server, tmp_path_factory.mktemp("base"))
    sandbox = e2b.create(templateID="base", metadata={"whose": "mine"})
    snapshot = e2b.post(sandbox, "snapshots", {"name": "kept"}, 201)["snapshotID"]
    waits, built = ask(e2b, "mine"), ask(e2b, "built", tags=["default", "v1"])
    begin(e2b, built, run("true"))
    assert ended(e2b, server, built)["status"] == "ready"
    volume = None if ROOTLESS else e2b.call("POST", "/volumes", {"name": "data"}, 201)["volumeID"]
    yield {"sandbox": sandbox, "snapshot": snapshot, "waits": waits, "volume": volume}
    if volume:
        e2b.call("DELETE", "/volumes/" + volume, status=204)
    server.clear()


@pytest.fixture(scope="module")
def stranger(server, e2b):
    return E2b(e2b.url.geturl(), server.post("/v1/tokens", {"owner": "stranger"})["secret"])


def filled(path, owned):
    """The path with the names of what the owner has."""
    first = owned["sandbox"]["sandboxID"] if "/sandboxes/" in path else owned["volume"] or "v" + "a" * 12 if "/volumes/" in path \
        else owned["waits"]["templateID"] if "/builds/" in path or "/files/" in path else "built"
    second = owned["waits"]["buildID"] if "/builds/" in path else "0" * 64
    target = path.replace("{}", first, 1).replace("{}", second, 1)
    return target + ("?sandbox_ids=" + first if path == "/sandboxes/metrics" else "")


def asked(e2b, method, target, **fields):
    body = {"timeout": 5, "duration": 5, "steps": [], "fromImage": "base", "target": "built", "tags": ["stolen"], "name": "built", **fields}
    return e2b.send(method, target, body if method in ("POST", "PUT", "DELETE") else None)


def is_refusal(answer, status):
    got, headers, data = answer
    body = json.loads(data)
    return (got, body["code"], headers["Content-Type"]) == (status, status, "application/json") and body["message"]


def state(e2b, daemon, owned):
    """What the owner has."""
    lists = [e2b.send("GET", path)[2] for path in ("/snapshots", "/volumes", "/templates", "/templates/built/tags")]
    info = {k: v for k, v in e2b.info(owned["sandbox"]).items() if k not in ("diskSizeMB", "endAt")}
    build = e2b.send("GET", f"/templates/mine/builds/{owned['waits']['buildID']}/status")[2]
    return lists, info, build, sorted(m["id"] for m in daemon.machines())


def test_the_table_was_read():
    assert len(ROUTES) > 30 and set(LISTS) | MAKE <= set(ROUTES)


def test_a_wrong_key_gets_nothing_from_any_route(server, e2b, owned):
    """The control: the right key is refused by none of them with 401."""
    before = state(e2b, server, owned)
    for method, path in ROUTES:
        for key in (None, "e2b_" + "0" * 65, e2b.key[:-1] + ("0" if e2b.key[-1] != "0" else "1")):
            assert is_refusal(asked(E2b(e2b.url.geturl(), key), method, filled(path, owned)), 401), (method, path)
        if method == "GET":
            assert e2b.send(method, filled(path, owned))[0] in (200, 201), path
    assert state(e2b, server, owned) == before


def test_a_key_that_may_only_read_changes_nothing(server, e2b, owned):
    """The control: each route that it may not use is used by other tests with a whole key, and it reads what it may read."""
    reader = E2b(e2b.url.geturl(), server.post("/v1/tokens", {"scopes": ["read"]})["secret"])
    before = state(e2b, server, owned)
    for method, path in ROUTES:
        answer = asked(reader, method, filled(path, owned))
        if method == "GET" and path not in GIVE:
            assert answer[0] == 200 or (path == "/volumes/{}" and ROOTLESS), path
        else:
            assert is_refusal(answer, 403), (method, path, answer[0], answer[2])
    for _ in range(9):  # as many as push out a build that waits
        assert status_of(ask, reader, "other") == 403
    assert state(e2b, server, owned) == before


def test_another_owner_gets_and_changes_nothing(server, e2b, owned, stranger):
    before = state(e2b, server, owned)
    for method, path in ROUTES:
        if (method, path) in MAKE:
            continue
        answer = asked(stranger, method, filled(path, owned))
        if (method, path) in LISTS:
            assert (answer[0], json.loads(answer[2])) == (200, LISTS[method, path]), path
        elif path == "/volumes/{}" and ROOTLESS:
            assert answer[0] >= 400
        else:
            assert is_refusal(answer, 404), (method, path, answer[0], answer[2])
    snapshot = urllib.parse.quote(owned["snapshot"], safe="")
    assert is_refusal(stranger.send("DELETE", "/templates/" + snapshot), 404)
    for path in ("/v2/sandboxes", "/sandboxes"):
        for template in (owned["snapshot"], "built", "built:v1", machine_of(owned["sandbox"])):
            assert is_refusal(asked(stranger, "POST", path, templateID=template), 404), template
        if owned["volume"]:
            assert asked(stranger, "POST", path, templateID="base", volumeMounts=[{"name": "data", "path": "/v"}])[0] in (400, 404)
    assert stranger.list() == ([], None)
    assert state(e2b, server, owned) == before
