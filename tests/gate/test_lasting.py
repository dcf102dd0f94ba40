"""What stays true while a machine lives: its policy as it reads it, who it trusts, what waits."""
import json

import pytest

CURL = ["curl", "-sS", "--max-time", "60"]


@pytest.fixture
def box(gated, servers):
    servers.forget()
    return gated.machine(net=[{"target": "nothing.test"}])


def network(gated, box):
    return json.loads(gated.exec(box, "cat /run/carrel/machine.json")["stdout"])["network"]


def body(result):
    assert result["exec"]["status"] == 0, result
    return json.loads(result["stdout"])


# ---- machine.json ----


def test_a_machine_reads_its_policy(gated, servers):
    plain = gated.machine()
    before = json.loads(gated.exec(plain, "cat /run/carrel/machine.json")["stdout"])
    assert before["network"] == {"policy": "none"}
    gated.put("/v1/secrets/API_KEY", {"value": "some value of it"})
    box = gated.machine(net=[{"target": "https://ok.test/v1", "methods": "GET"}], secrets=[{"name": "API_KEY", "host": "ok.test"}])
    assert network(gated, box) == {"policy": "rules", "default": "deny",
                                   "rules": [{"action": "allow", "target": "https://ok.test/v1", "id": 1, "methods": "GET"}],
                                   "secrets": [{"variable": "API_KEY", "host": "ok.test", "as": "header"}]}
    gated.allow(box, "ok.test", action="deny")
    assert [r["action"] for r in network(gated, box)["rules"]] == ["deny", "allow"]
    gated.delete(f"/v1/machines/{box}/net/rules/1")
    gated.revoke(box, "secret")
    assert [r["id"] for r in network(gated, box)["rules"]] == [2] and network(gated, box)["secrets"] == []
    # The rest of it is as it was.
    after = json.loads(gated.exec(box, "cat /run/carrel/machine.json")["stdout"])
    assert {**after, "id": "", "network": ""} == {**before, "id": "", "network": ""}


def test_nobody_inside_can_change_it(gated, box):
    line = "echo x >/run/carrel/machine.json; rm -f /run/carrel/machine.json; mv /run/carrel/machine.json /tmp; touch /run/carrel/new"
    done = gated.exec(box, line, user="root")
    assert done["exec"]["status"] and network(gated, box)["policy"] == "rules"
    assert gated.exec(box, "ls /run/carrel; stat -c %a%U /run/carrel/machine.json")["stdout"] == "bin\nboot_id\nmachine.json\n444root\n"


def test_a_long_policy_is_cut_and_says_so(gated, box):
    for i in range(200):
        gated.post(f"/v1/machines/{box}/net/rules", {"target": f"https://host-{i}.test/{'x' * 60}"})
    told = network(gated, box)
    assert told["rules"][0]["target"].startswith("https://host-199.test/") and len(told["rules"]) + told["older_rules"] == 201


def test_it_is_told_after_a_rewind_a_fork_and_an_approval(gated, box):
    first = gated.post(f"/v1/machines/{box}/steps", {"name": "first"})
    gated.allow(box, "later.test")
    gated.post(f"/v1/machines/{box}/rewind", {"step": first["id"]})
    assert [r["target"] for r in network(gated, box)["rules"]] == ["later.test", "nothing.test"]
    fork = gated.post(f"/v1/machines/{box}/fork", {})["machines"][0]["id"]
    assert network(gated, fork) == network(gated, box)


# ---- who it trusts ----


def test_trust_after_a_rewind_to_before_it(gated, servers):
    box = gated.machine()
    gated.exec(box, "echo one >file")
    first = gated.post(f"/v1/machines/{box}/steps", {"name": "untrusting"})
    gated.allow(box, f"https://api.test:{servers.https}", methods="GET")
    line = [*CURL, f"https://api.test:{servers.https}/x"]
    assert body(gated.exec(box, line))["path"] == "/x"
    gated.post(f"/v1/machines/{box}/rewind", {"step": first["id"]})
    assert gated.exec(box, "cat file")["stdout"] == "one\n"
    assert body(gated.exec(box, line))["path"] == "/x"
    done = gated.exec(box, f"wget -q -O - https://api.test:{servers.https}/y")
    assert body(done)["path"] == "/y"


def test_one_authority_a_lineage(gated, servers, box):
    gated.allow(box, f"https://api.test:{servers.https}", methods="GET")
    fork = gated.post(f"/v1/machines/{box}/fork", {})["machines"][0]["id"]
    other = gated.machine(net=[{"target": "nothing.test"}])
    ca = "cat /usr/local/share/ca-certificates/carrel.crt"
    mine, forked, others = (gated.exec(m, ca)["stdout"] for m in (box, fork, other))
    assert mine == forked != others and "BEGIN CERTIFICATE" in mine
    assert body(gated.exec(fork, [*CURL, f"https://api.test:{servers.https}/x"]))["path"] == "/x"
    gated.restart()
    gated.until(lambda: gated.get(f"/v1/machines/{fork}/net")["listening"])
    assert body(gated.exec(fork, [*CURL, f"https://api.test:{servers.https}/x"]))["path"] == "/x"


CLIENTS = {
    "curl": "curl -sS {url}",
    "wget": "wget -q -O - {url}",
    "git": "git ls-remote {url} 2>&1; true",
    "python3": "python3 -c \"import urllib.request as u; print(u.urlopen('{url}').read().decode())\"",
    "node": "node -e \"fetch('{url}').then(r => r.text()).then(console.log)\"",
    "npm": "npm view nothing --registry {url} --fetch-retries=0 2>&1; true",
    "openssl": "printf 'GET /t HTTP/1.0\\r\\nHost: api.test\\r\\n\\r\\n' | openssl s_client -quiet -verify_return_error -servername api.test -connect api.test:{port} 2>/dev/null",
    "java": "java /tmp/Get.java {url} 2>&1",
    "apt-get": "echo 'deb [trusted=yes] {url} x main' >/tmp/s.list; apt-get update -o Dir::Etc::sourcelist=/tmp/s.list -o Dir::Etc::sourceparts=- -o Acquire::Retries=0 2>&1; true",
}
JAVA = """import java.net.URI; import java.net.http.*;
public class Get { public static void main(String[] a) throws Exception {
  System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString()).body());
} }"""


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("where", ["opened", "unopened"])
def test_each_client_trusts(gated, servers, client, where):
    """TLS that ends at the gate, by a rule with methods; what is not opened shows the server's own certificate, which
    only those trust who were given the test's authority: so the other half of the proof is that it is refused."""
    box = gated.machine(net=[{"target": f"https://api.test:{servers.https}", "local": True,
                              **({"methods": "GET,POST,HEAD"} if where == "opened" else {})}])
    if not gated.exec(box, f"command -v {client}")["stdout"]:
        pytest.skip(f"this host has no {client}")
    servers.forget()
    gated.exec(box, "cat >/tmp/Get.java", stdin=JAVA)
    gated.exec(box, CLIENTS[client].format(url=f"https://api.test:{servers.https}/t", port=servers.https), timeout=90,
               **({"user": "root"} if client == "apt-get" else {}))
    assert bool(servers.tls.seen) == (where == "opened")


# ---- what waits ----


@pytest.mark.parametrize("hard", [True, False])
def test_what_waits_outlives_the_daemon(gated, servers, box, hard):
    gated.allow(box, f"http://ok.test:{servers.http}", action="ask")
    gated.background(box, [*CURL, f"http://ok.test:{servers.http}/held"])
    mine = lambda: [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == box]  # noqa: E731
    item = gated.until(mine)[0]
    gated.restart(hard)
    gated.until(lambda: gated.get(f"/v1/machines/{box}/net")["listening"])
    again, = mine()
    assert {k: again[k] for k in ("id", "host", "port", "method", "path", "since_ms")} == {
        k: item[k] for k in ("id", "host", "port", "method", "path", "since_ms")}
    assert again["waiting"] == 0 and 0 < again["left_ms"] <= item["left_ms"]
    # Approved while nobody waits, and over another restart: the retry goes through, once.
    gated.post(f"/v1/pending/{item['id']}", {"decision": "approve"})
    gated.restart(hard)
    gated.until(lambda: gated.get(f"/v1/machines/{box}/net")["listening"])
    assert body(gated.exec(box, [*CURL, f"http://ok.test:{servers.http}/held"]))["path"] == "/held"
    assert mine() == []
    gated.background(box, [*CURL, f"http://ok.test:{servers.http}/held"])
    assert gated.until(mine)[0]["id"] != item["id"]


def test_what_was_refused_is_forgotten(gated, servers, box):
    gated.allow(box, f"http://ok.test:{servers.http}", action="ask")
    x = gated.background(box, [*CURL, f"http://ok.test:{servers.http}/held"])
    item = gated.until(lambda: [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == box])[0]
    gated.post(f"/v1/pending/{item['id']}", {"decision": "deny"})
    gated.wait(box, x)
    gated.restart()
    assert [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == box] == []
