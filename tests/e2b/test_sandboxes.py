"""The control plane: sandboxes are made, found, listed, prolonged, paused and killed as by E2B's own service."""
import datetime
import json
import subprocess

import pytest

from carrel import BUILD
from daemon import Daemon, TcpClient
from e2b_client import E2b, E2bError, machine_of, metadata_filter, status_of


@pytest.fixture
def sandbox(e2b, daemon):
    return e2b.create(metadata={"a": "b c", "ü": "%20+&="}, envVars={"FOO": "bar"})


def seconds_left(info):
    end = datetime.datetime.fromisoformat(info["endAt"].replace("Z", "+00:00"))
    return (end - datetime.datetime.now(datetime.timezone.utc)).total_seconds()


def ids(rows):
    return [r["sandboxID"] for r in rows]


# ---- create and info ----

def test_a_sandbox_is_a_machine_with_an_id_for_host_names(e2b, daemon, sandbox):
    assert sandbox["sandboxID"].isalnum() and sandbox["templateID"] == "base"
    assert sandbox["envdVersion"] == "0.6.13" and len(sandbox["envdAccessToken"]) == 64
    result = daemon.exec(machine_of(sandbox), "echo $FOO")
    assert result["stdout"] == "bar\n"


def test_info_describes_the_sandbox(e2b, sandbox):
    info = e2b.info(sandbox)
    assert info["metadata"] == {"a": "b c", "ü": "%20+&="}
    assert (info["state"], info["templateID"]) == ("running", "base")
    assert info["envdAccessToken"] == sandbox["envdAccessToken"]
    assert info["cpuCount"] >= 1 and info["memoryMB"] > 0 and info["diskSizeMB"] > 0
    assert 0 < seconds_left(info) <= 300 and info["lifecycle"] == {"onTimeout": "kill", "autoResume": False}


def test_the_older_path_makes_sandboxes_too(e2b, daemon):
    made = e2b.call("POST", "/sandboxes", {"templateID": "base", "secure": True}, 201)
    assert seconds_left(e2b.info(made)) <= 15


def test_fields_of_later_versions_are_ignored(e2b, daemon):
    assert e2b.create(fromTheFuture={"x": [1]}, metadata=None)["sandboxID"]


@pytest.mark.parametrize("field, value", [
    ("mcp", {"github": {}}), ("iam", {"tokens": {}}),
    ("network", {"egressProxy": {"address": "a:1"}}),
    ("metadata", {"carrel.e2b": "{}"}), ("metadata", {"forked_from": "x"}), ("timeout", -1), ("timeout", "x"), ("templateID", 7)])
def test_what_cannot_be_done_is_refused(e2b, daemon, field, value):
    with pytest.raises(E2bError) as refusal:
        e2b.create(**{field: value})
    assert refusal.value.status == 400 and field.split(".")[0] in refusal.value.message
    assert not daemon.machines()


def test_variables_that_no_program_can_start_with_are_refused(e2b, daemon):
    for env in ({"A=B": "1"}, {"": "1"}, {"BIG": "x" * 200000}, {f"V{i}": "x" * 100000 for i in range(5)}, {f"V{i}": "" for i in range(240)}):
        with pytest.raises(E2bError) as refusal:
            e2b.create(envVars=env)
        assert refusal.value.status == 400 and "environment variable" in refusal.value.message
    largest = {**{f"V{i}": "" for i in range(220)}, **{f"L{i}": "x" * 130000 for i in range(2)}}
    assert len(daemon.exec(machine_of(e2b.create(envVars=largest)), "printf %s $L1")["stdout"]) == 130000


def test_a_key_is_for_the_calls_of_clients_only(e2b, daemon):
    for fields in ({"X-API-Key": e2b.key}, {"Authorization": "Bearer " + e2b.key}):
        status, _, content = E2b(e2b.url.geturl(), None).send("GET", "/v1/machines", headers=fields)
        assert status == 401 and "key of E2B" in json.loads(content)["error"]["message"]
    with pytest.raises(E2bError) as refusal:
        E2b(e2b.url.geturl(), "e2b_" + "0" * 65).list()
    assert refusal.value.status == 401 and "carrel e2b env" in refusal.value.message


def test_an_unknown_template_is_not_found(e2b, daemon):
    assert status_of(e2b.create, templateID="no-such-template") == 404


# ---- keys ----

def test_every_request_needs_a_key(e2b, daemon, sandbox):
    for key in ("", "e2b_" + "0" * 65, "e2b_" + "0" * 40, e2b.key[:-1], e2b.key + "0", "crl_" + "a" * 52):
        stranger = E2b(e2b.url.geturl(), key)
        assert status_of(stranger.create) == 401
        assert status_of(stranger.info, sandbox) == 401
        assert status_of(stranger.kill, sandbox) == 401
        assert stranger.send("GET", "/v2/sandboxes")[0] == 401


def test_a_key_is_a_token_in_another_spelling(e2b, daemon):
    secret = daemon.post("/v1/tokens", {})
    assert E2b(e2b.url.geturl(), secret["secret"]).list() == ([], None)
    assert E2b(e2b.url.geturl(), secret["secret"], "X-Access-Token").list() == ([], None)
    daemon.delete(f"/v1/tokens/{secret['id']}")
    assert status_of(E2b(e2b.url.geturl(), secret["secret"]).list) == 401


def test_a_key_of_the_environment_reaches_the_daemon(daemon):
    words = subprocess.run([BUILD / "carrel", "e2b", "env"], env=daemon.env, capture_output=True, text=True, timeout=60,
                           check=True).stdout
    values = dict(line.removeprefix("export ").split("=", 1) for line in words.splitlines())
    assert values["E2B_API_URL"] == values["E2B_SANDBOX_URL"] == values["E2B_VOLUME_API_URL"]
    e2b = E2b(values["E2B_API_URL"], values["E2B_API_KEY"])
    assert len(values["E2B_API_KEY"]) == 69
    e2b.kill(e2b.create())


def test_keys_are_made_only_by_callers_of_the_api(e2b, daemon):
    assert status_of(TcpClient(e2b.url.port).post, "/e2b/key") == 401


def test_the_face_touches_no_other_machine(e2b, daemon):
    other = daemon.machine()
    foreign = {"sandboxID": "m" + other[2:]}
    assert ids(e2b.list()[0]) == []
    for call in (e2b.info, e2b.kill):
        assert status_of(call, foreign) == 404
    assert status_of(e2b.post, foreign, "pause") == 404
    assert daemon.get(f"/v1/machines/{other}")["state"] == "running"


def test_another_owner_does_not_see_the_sandbox(e2b, daemon, sandbox):
    token = daemon.post("/v1/tokens", {"owner": "somebody-else"})
    other = E2b(e2b.url.geturl(), token["secret"])
    assert other.list() == ([], None)
    assert status_of(other.info, sandbox) == 404 and status_of(other.kill, sandbox) == 404


def test_revoking_changes_the_token_of_the_machine(e2b, daemon, sandbox):
    daemon.delete(f"/v1/tokens/{machine_of(sandbox)}")
    token = e2b.info(sandbox)["envdAccessToken"]
    assert token != sandbox["envdAccessToken"]
    daemon.restart()
    e2b.find(daemon)
    assert e2b.info(sandbox)["envdAccessToken"] == token


# ---- lifetime ----

def test_the_timeout_counts_from_now_and_may_be_shorter(e2b, sandbox):
    e2b.post(sandbox, "timeout", {"timeout": 1000}, 204)
    assert 900 < seconds_left(e2b.info(sandbox)) <= 1000
    e2b.post(sandbox, "timeout", {"timeout": 100}, 204)
    assert seconds_left(e2b.info(sandbox)) <= 100


def test_connect_and_refresh_never_shorten(e2b, sandbox):
    again = e2b.post(sandbox, "connect", {"timeout": 5}, 200, version="/v2")
    assert again["envdAccessToken"] == sandbox["envdAccessToken"]
    e2b.post(sandbox, "refreshes", {"duration": 5}, 204)
    assert seconds_left(e2b.info(sandbox)) > 100
    e2b.post(sandbox, "connect", {"timeout": 2000}, 200)
    assert seconds_left(e2b.info(sandbox)) > 1000


def test_a_timeout_of_zero_ends_the_sandbox(e2b, daemon, sandbox):
    e2b.post(sandbox, "timeout", {"timeout": 0}, 204)
    daemon.until(lambda: not e2b.list()[0])


def test_kill_ends_the_sandbox_once(e2b, daemon, sandbox):
    e2b.kill(sandbox)
    for call in (e2b.kill, e2b.info):
        assert status_of(call, sandbox) == 404
    for verb in ("timeout", "pause", "connect"):
        assert status_of(e2b.post, sandbox, verb, {"timeout": 9}) == 404
    assert not daemon.machines()


@pytest.mark.parametrize("name", ["x", "m" + "a" * 12, "M" * 13, "..", "%2e%2e", "%00", "m-abcdefghijkl", "a" * 4000])
def test_a_foreign_id_is_not_found(e2b, daemon, name):
    assert status_of(e2b.info, {"sandboxID": name}) == 404


# ---- pause ----

@pytest.mark.parametrize("body", [{}, {"memory": True}, {"memory": False}])
def test_a_paused_sandbox_is_resumed_by_connect(e2b, daemon, sandbox, body):
    machine = machine_of(sandbox)
    daemon.exec(machine, "echo kept >note")
    status, headers, _ = e2b.send("POST", f"/sandboxes/{sandbox['sandboxID']}/pause", body)
    assert status == 204
    assert headers["Carrel-Kept"] == {"paused": "memory", "stopped": "files"}[daemon.get(f"/v1/machines/{machine}")["state"]]
    assert headers["Carrel-Kept"] == "files" or body.get("memory", True)
    assert e2b.info(sandbox)["state"] == "paused"
    assert status_of(e2b.post, sandbox, "pause", body) == 409
    assert e2b.list(state="running")[0] == [] and ids(e2b.list(state="paused")[0]) == [sandbox["sandboxID"]]
    again = e2b.post(sandbox, "connect", {"timeout": 60}, 201, version="/v2")
    assert again["envdAccessToken"] == sandbox["envdAccessToken"]
    assert e2b.info(sandbox)["state"] == "running"
    assert daemon.exec(machine, "cat note")["stdout"] == "kept\n"


# ---- list ----

def test_pages_hold_every_sandbox_once(e2b, daemon):
    made = [e2b.create(metadata={"n": str(i)})["sandboxID"] for i in range(5)]
    found, token = e2b.list(limit=2)
    assert ids(found) == made[:2:-1]
    e2b.kill({"sandboxID": made[3]})  # the place where the next page starts
    e2b.create()
    while token:
        page, token = e2b.list(limit=2, nextToken=token)
        assert len(page) <= 2
        found += page
    assert ids(found) == made[::-1]
    rows, token = e2b.list(limit=3, order="asc")
    assert ids(rows) == [made[0], made[1], made[2]] and token


def test_filters_choose_by_metadata_time_and_template(e2b, daemon, sandbox):
    other = e2b.create(metadata={"a": "x"})
    assert ids(e2b.list(metadata=metadata_filter(a="b c"))[0]) == [sandbox["sandboxID"]]
    assert ids(e2b.list(metadata=metadata_filter(**{"a": "b c", "ü": "%20+&="}))[0]) == [sandbox["sandboxID"]]
    assert e2b.list(metadata=metadata_filter(a="b c", c="d"))[0] == []
    assert ids(e2b.list(startedAfter=e2b.info(other)["startedAt"])[0])[0] == other["sandboxID"]
    assert e2b.list(startedAfter="2999-01-01T00:00:00+02:00")[0] == []
    assert len(e2b.list(template="base")[0]) == 2 and e2b.list(template="other")[0] == []
    assert ids(e2b.call("GET", "/sandboxes", status=200)) == [other["sandboxID"], sandbox["sandboxID"]]


@pytest.mark.parametrize("query", [
    {"limit": "0"}, {"limit": "x"}, {"order": "up"}, {"state": "dead"}, {"startedAfter": "yesterday"},
    {"nextToken": "1.x"}, {"nextToken": "x"}, {"metadata": "a=%"}, {"metadata": "a=%2500"}])
def test_a_malformed_query_is_refused(e2b, daemon, query):
    assert status_of(e2b.list, **query) == 400


# ---- bad requests ----

@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b'{"timeout":1,"timeout":2}', b"{" * 100000])
def test_bodies_that_are_no_object_make_nothing(e2b, daemon, body):
    status = e2b.send("POST", "/v2/sandboxes", body)[0]
    assert status == (201 if body == b"" else 400)
    assert len(daemon.machines()) == (body == b"")


def test_a_huge_body_is_refused(e2b, daemon):
    body = b'{"metadata":{"a":"' + b"x" * (2 << 20) + b'"}}'
    assert e2b.send("POST", "/v2/sandboxes", body, chunked=False)[0] == 413


def test_unknown_paths_have_errors_that_clients_read(e2b, sandbox):
    for method, path in (("PUT", f"/sandboxes/{sandbox['sandboxID']}/secrets"), ("GET", "/vaults"), ("GET", "/templates/a/b/c")):
        status, _, content = e2b.send(method, path)
        assert status == 404 and json.loads(content)["code"] == 404 and "not answered" in json.loads(content)["message"]
    status, _, content = e2b.send("GET", "/secrets")
    assert status == 501 and json.loads(content)["code"] == 501 and "carrel secret" in json.loads(content)["message"]
    assert "error" in json.loads(e2b.send("GET", "/v1/nothing")[2])


def test_another_method_is_refused(e2b, daemon):
    assert status_of(e2b.call, "PATCH", "/v2/sandboxes", {}) == 405
