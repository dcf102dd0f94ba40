"""Programs in cell machines reach the network and models through the gate of their machine, and in no other way."""
import base64
import json
import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mcp"))

import cells  # noqa: E402
from mcp_client import Http, ToolFailed  # noqa: E402
import tally  # noqa: E402

IMAGE = "programs"
VALUE = "sk-real-0123456789abcdef"


@pytest.fixture
def cell(gated, servers):
    """Makes cell machines, and runs a request in one: its code, and its answer (text)."""
    servers.forget()
    if IMAGE not in [i["name"] for i in gated.get("/v1/images")["images"]]:
        gated.request("POST", "/v1/images", cells.image(), name=IMAGE)

    def make(**fields):
        return gated.machine(**{"kind": "cell", "image": IMAGE, "allow": "http", **fields})
    return make


def ask(daemon, machine, request, program="http"):
    text = request if isinstance(request, str) else json.dumps(request)
    done = daemon.exec(machine, [program], stdin=text)
    assert done["exec"]["status"] == 0, done
    return -int(done["stdout"][0]), done["stdout"][1:]


def get(daemon, machine, **request):
    code, text = ask(daemon, machine, request)
    assert code == 0, text
    return json.loads(text)


def test_http_request_follows_the_rules_of_the_machine(gated, servers, cell):
    m = cell(net=[{"target": f"http://ok.test:{servers.http}", "local": True}])
    url = f"http://ok.test:{servers.http}/a?b=c"
    r = get(gated, m, url=url, method="POST", headers={"X-Own": "yes"}, body="é")
    sent = json.loads(r["body"])
    assert (r["status"], sent["method"], sent["path"], sent["host"]) == (200, "POST", "/a?b=c", f"ok.test:{servers.http}")
    assert sent["headers"]["X-Own"] == "yes" and sent["body"].encode("latin-1").decode() == "é"
    assert ["Content-Type", "application/json"] in r["headers"]
    assert gated.notes(m, "net.allow")[0]["detail"]["host"] == "ok.test"
    other = get(gated, m, url=f"http://other.test:{servers.http}/")
    assert other["status"] == 403 and "other.test" in other["body"]
    assert gated.notes(m, "net.deny")[0]["detail"]["host"] == "other.test"
    gated.allow(m, f"http://other.test:{servers.http}")
    assert get(gated, m, url=f"http://other.test:{servers.http}/")["status"] == 200
    tally.attack()


def test_https_is_spoken_and_verified_by_the_gate(gated, servers, cell):
    m = cell(net=[{"target": f"https://{h}:{servers.https}", "local": True} for h in ("ok.test", "private.test")])
    assert get(gated, m, url=f"https://ok.test:{servers.https}/x")["status"] == 200
    assert get(gated, m, url=f"http://ok.test:{servers.https}/x")["status"] == 403


def test_bodies_of_bytes_chunks_and_heads(gated, servers, cell):
    m = cell(net=[{"target": f"http://ok.test:{servers.http}", "local": True}])
    url = f"http://ok.test:{servers.http}"
    data = bytes(range(256))
    r = get(gated, m, url=url + "/", method="PUT", body_base64=base64.b64encode(data).decode())
    assert servers.web.seen[-1]["body"] == data and r["status"] == 200
    assert get(gated, m, url=url + "/chunks")["body"] == "one two three"
    assert get(gated, m, url=url + "/", method="HEAD")["body"] == ""
    assert len(get(gated, m, url=url + "/big/900000")["body"]) == 900000
    assert ask(gated, m, {"url": url + "/big/1048576"}) == (-4, "the answer is larger than 1 MiB")
    assert ask(gated, m, {"url": url + "/big/9000000"}) == (-4, "the answer is larger than 1 MiB")
    assert get(gated, m, url=url + "/redirect")["status"] == 302  # redirects are not followed


@pytest.mark.parametrize("request_, why", [
    ("", "not a JSON object"), ("[]", "'url'"), ('{"url": 1}', "'url'"), ({"url": "ftp://ok.test/"}, "http or https"),
    ({"url": "http://ok.test/", "method": "CONNECT"}, "method"), ({"url": "http://ok.test/", "method": "G T"}, "method"),
    ({"url": "http://ok.test/", "method": "GET / HTTP/1.1\r\nX: y"}, "method"), ({"url": "http://ok.test/ x"}, "not valid"),
    ({"url": "http://ok.test/\r\nX: y"}, "not valid"), ({"url": "http://ok.test\r\nX: y"}, "not valid"),
    ({"url": "http://ok.test/", "headers": {"A": "b\r\nHost: other.test"}}, "header 'A'"),
    ({"url": "http://ok.test/", "headers": {"A b": "c"}}, "header 'A b'"),
    ({"url": "http://ok.test/", "headers": {"Host": "other.test"}}, "header 'Host'"),
    ({"url": "http://ok.test/", "headers": {"transfer-encoding": "chunked"}}, "header"),
    ({"url": "http://ok.test/", "headers": {"Content-Length": "0"}}, "header"),
    ({"url": "http://ok.test/", "headers": [1]}, "'headers'"), ({"url": "http://ok.test/", "body": 1}, "'body'"),
    ({"url": "http://ok.test/", "body_base64": "!"}, "body_base64"), ({"url": "http://ok.test/", "body": "a", "body_base64": "YQ=="}, "'body'"),
    ({"url": "http://ok.test/" + "x" * 9000}, "URL")])
def test_hostile_requests_are_refused_before_the_gate(gated, servers, cell, request_, why):
    m = cell(net=[{"target": "http://ok.test", "local": True}])
    code, text = ask(gated, m, request_)
    assert code == -1 and why in text, (code, text)
    assert not servers.web.seen


def test_names_that_lead_elsewhere_are_refused_by_the_gate(gated, servers, cell):
    m = cell(net=[{"target": f"http://ok.test:{servers.http}", "local": True}])
    for url in (f"http://ok.test:{servers.http}@other.test/", f"http://127.0.0.1:{servers.http}/", f"http://127.1:{servers.http}/",
                f"http://ok.test.:{servers.http + 1}/", "http://169.254.169.254/latest/meta-data/", "http:///x", "http://[::1]/"):
        code, text = ask(gated, m, {"url": url})
        assert code < 0 or json.loads(text)["status"] in (400, 403), (url, text)
    assert not servers.web.seen
    tally.attack()


def test_secret_is_put_in_by_the_gate_and_never_seen_by_the_program(gated, servers, cell):
    gated.put("/v1/secrets/API_KEY", {"value": VALUE})
    m = cell(net=[{"target": f"https://{h}:{servers.https}", "local": True} for h in ("api.test", "ok.test")],
             secrets=[{"name": "API_KEY", "host": "api.test"}])
    variables = base64.b64decode(gated.exec(m, ["env"])["stdout_base64"]).decode()
    placeholder = re.search("API_KEY=([^\0]*)", variables)[1]
    assert VALUE not in variables
    r = get(gated, m, url=f"https://api.test:{servers.https}/as/plain", headers={"X-Key": placeholder})
    assert dict(servers.tls.seen[-1]["headers"])["X-Key"] == VALUE and VALUE not in r["body"]
    r = get(gated, m, url=f"https://ok.test:{servers.https}/", headers={"X-Key": placeholder})
    assert r["status"] == 403 and VALUE not in str(servers.tls.seen[1:])
    tally.attack()


def test_request_waits_for_the_approval_of_the_owner(gated, servers, cell):
    m = cell(net=[{"target": f"http://ok.test:{servers.http}", "local": True, "action": "ask"}])
    ids = []
    for decision in ("approve", "deny"):
        x = gated.post(f"/v1/machines/{m}/execs", {"argv": ["http"], "background": True,
                                                   "stdin": json.dumps({"url": f"http://ok.test:{servers.http}/{decision}"})})["id"]
        item, = gated.until(lambda: [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == m and p["path"] == "/" + decision])
        assert not [s for s in servers.web.seen if s["path"] == "/" + decision]
        gated.post(f"/v1/pending/{item['id']}", {"decision": decision})
        assert gated.wait(m, x)["status"] == 0
        out = gated.request("GET", f"/v1/machines/{m}/execs/{x}/output", raw=True).decode()
        ids.append((out[0], json.loads(out[1:])["status"]))
    assert ids == [("0", 200), ("0", 403)]


def test_capability_that_was_taken_away_is_refused_at_once(gated, servers, cell):
    m = cell(net=[{"target": f"http://ok.test:{servers.http}", "local": True}])
    assert get(gated, m, url=f"http://ok.test:{servers.http}/")["status"] == 200
    x = gated.post(f"/v1/machines/{m}/execs", {"argv": ["http"], "background": True, "stdin_open": True})["id"]
    gated.patch(f"/v1/machines/{m}", {"allow": "log"})  # the program is loaded already
    servers.forget()
    gated.request("POST", f"/v1/machines/{m}/execs/{x}/stdin", json.dumps({"url": f"http://ok.test:{servers.http}/"}).encode(), eof="1")
    assert gated.wait(m, x)["status"] == 0
    out = gated.request("GET", f"/v1/machines/{m}/execs/{x}/output", raw=True).decode()
    assert out.startswith("3the machine does not have this capability"), out
    assert not servers.web.seen
    tally.attack()


def test_cell_has_no_other_way_to_the_gate(gated, servers, cell):
    """The worker itself, if it was taken over, finds nobody who listens in the network of its machine."""
    rules = [{"target": f"http://ok.test:{servers.http}", "local": True}]
    m, box = cell(net=rules), gated.machine(net=rules)
    gated.until(lambda: gated.get(f"/v1/machines/{box}/net")["listening"])
    assert not gated.get(f"/v1/machines/{m}/net")["listening"]
    gated.restart()
    gated.until(lambda: gated.get(f"/v1/machines/{box}/net")["listening"])
    assert not gated.get(f"/v1/machines/{m}/net")["listening"]
    assert get(gated, m, url=f"http://ok.test:{servers.http}/")["status"] == 200
    tally.attack()


def test_cell_without_the_capability_cannot_use_its_rules(gated, servers, cell):
    m = cell(net=[{"target": f"http://ok.test:{servers.http}", "local": True}], allow="log")
    done = gated.exec(m, ["http"], stdin="{}")
    assert done["exec"]["status"] == 126 and "carrel.1.http.request, which was not granted" in done["stderr"]
    done = gated.exec(m, ["model"], stdin="{}")
    assert done["exec"]["status"] == 126


def test_program_that_lost_the_daemon_gets_a_code(gated, servers, cell):
    """A new daemon does not know the socket of an older command."""
    m = cell(net=[{"target": f"http://ok.test:{servers.http}", "local": True}])
    x = gated.post(f"/v1/machines/{m}/execs", {"argv": ["http"], "background": True, "stdin_open": True})["id"]
    gated.restart()
    gated.request("POST", f"/v1/machines/{m}/execs/{x}/stdin", json.dumps({"url": f"http://ok.test:{servers.http}/"}).encode(), eof="1")
    assert gated.wait(m, x)["status"] == 0
    out = gated.request("GET", f"/v1/machines/{m}/execs/{x}/output", raw=True).decode()
    assert out.startswith("5the daemon cannot be reached"), out


def test_tool_program_makes_requests_through_the_gate_of_the_machine(gated, servers, cell):
    m = cell(allow="http,kv,result", net=[{"target": f"http://ok.test:{servers.http}", "local": True}])
    request = json.dumps({"url": f"http://ok.test:{servers.http}/tool"})
    text = request.replace('"', '\\"')
    wat = cells.capable(f'(local.set $n (call $http_request (i32.const 0) (i32.const {len(request)})))'
                        '(drop (call $answer (i32.const 1024) (i32.const 0) (i32.const 60000)))'
                        '(drop (call $result (i32.const 1024) (local.get $n)))',
                        f'(data (i32.const 0) "{text}")', http_request="(param i32 i32) (result i32)", **cells.ANSWERING)
    client = Http(gated.connect, path=f"/mcp?machine={m}")
    client.greet()
    r = client.call("program", wat=wat, allow=["http", "result"])
    assert r["result"]["status"] == 200 and json.loads(r["result"]["body"])["path"] == "/tool"
    with pytest.raises(ToolFailed, match="http.request, which was not granted"):
        client.call("program", wat=wat, allow=["kv", "result"])
    assert len(servers.web.seen) == 1
    client.close()
