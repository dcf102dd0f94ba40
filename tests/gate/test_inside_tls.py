"""Where TLS ends at the gate: refusals that can be read, rules about requests, requests that wait."""
import json
import re
import subprocess
import time

import pytest

from carrel import PROGRAM

CURL = ["curl", "-sS", "--max-time", "60"]
JSON = ["-H", "Accept: application/json"]  # a refusal is then an object


@pytest.fixture
def box(gated, servers):
    servers.forget()
    return gated.machine(net=[{"target": "nothing.test"}])


def body(result):
    assert result["exec"]["status"] == 0, result
    return json.loads(result["stdout"])


def carrel(gated, *words):
    return subprocess.run([PROGRAM, *words], env=gated.env, capture_output=True, text=True, timeout=60)


def waiting(gated, machine, count=1):
    def enough():
        items = [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == machine]
        return items if len(items) >= count else None
    return gated.until(enough, 30)


# ---- refusals ----


CLIENTS = {
    "curl": "curl -sS --max-time 20 {url}",
    "wget": "wget -q -O - --content-on-error -T 20 -t 1 {url} || true",
    "python": "python3 -c \"import urllib.request as u, urllib.error as e\ntry: u.urlopen('{url}')\nexcept e.HTTPError as x: print(x.read().decode())\"",
    "node": "node -e \"fetch('{url}').then(r => r.text()).then(console.log)\"",
    "git": "git ls-remote {url} 2>&1 || true",
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refusal_inside_tls_can_be_read(gated, servers, box, client):
    if not gated.exec(box, f"command -v {client.replace('python', 'python3')}")["stdout"]:
        pytest.skip(f"this host has no {client}")
    done = gated.exec(box, CLIENTS[client].format(url=f"https://other.test:{servers.https}/x"))
    assert "may not reach 'other.test" in done["stdout"], done
    assert gated.notes(box, "net.deny")[0]["reason"] == "no rule allows the request"
    assert servers.tls.seen == []


def test_the_wrong_name_is_explained_too(gated, servers, box):
    gated.allow(box, f"ok.test:{servers.https}")
    done = gated.exec(box, [*CURL, "--connect-to", f"api.test:{servers.https}:ok.test:{servers.https}",
                            f"https://api.test:{servers.https}/"])
    assert "differs from the host of the connection" in done["stdout"]


# ---- rules about requests ----


def test_methods_and_paths_inside_tls(gated, servers, box):
    gated.allow(box, f"https://api.test:{servers.https}/v1", methods="GET")
    url = f"https://api.test:{servers.https}"
    seen = body(gated.exec(box, [*CURL, f"{url}/v1/x"]))
    assert seen["path"] == "/v1/x" and seen["host"] == f"api.test:{servers.https}"
    for words in ([f"{url}/v2"], ["-d", "x", f"{url}/v1/x"]):
        assert body(gated.exec(box, [*CURL, *JSON, *words]))["code"] == "denied"
    assert len(servers.tls.seen) == 1
    assert gated.notes(box, "net.allow")[0]["detail"]["path"] == "/v1/x"


@pytest.mark.parametrize("size", [0, 100_000, 3_000_000])
def test_bodies_inside_tls(gated, servers, box, size):
    gated.allow(box, f"https://api.test:{servers.https}/")
    gated.allow(box, f"https://api.test:{servers.https}", methods="GET,POST")
    url = f"https://api.test:{servers.https}"
    script = f"head -c {size} /dev/zero | tr '\\0' y >f && curl -sS --data-binary @f {url}/up -o /dev/null" \
             f" && curl -sS {url}/big/{size} | wc -c"
    assert gated.exec(box, script)["stdout"].strip() == str(size)
    assert servers.tls.seen[0]["body"] == b"y" * size


def test_the_server_must_prove_its_name(gated, servers, box):
    """inner.test leads to the same server, whose certificate does not name it."""
    gated.allow(box, f"https://inner.test:{servers.https}/v1")
    done = gated.exec(box, [*CURL, "-i", f"https://inner.test:{servers.https}/v1"])
    assert " 502 " in done["stdout"] and servers.tls.seen == []


def test_trust_outlives_the_daemon(gated, servers, box):
    gated.allow(box, f"https://api.test:{servers.https}/v1")
    gated.restart()
    gated.until(lambda: gated.get(f"/v1/machines/{box}/net")["listening"])
    assert body(gated.exec(box, [*CURL, f"https://api.test:{servers.https}/v1"]))["path"] == "/v1"


# ---- held ----


def ask_for(gated, servers, box, scheme="http", path="/held", words=()):
    port = servers.http if scheme == "http" else servers.https
    name = "ok.test" if scheme == "http" else "api.test"
    gated.allow(box, f"{scheme}://{name}:{port}", action="ask")
    return gated.background(box, [*CURL, *words, f"{scheme}://{name}:{port}{path}"])


def ending(gated, box, x):
    status = gated.wait(box, x, 60)["status"]
    return status, gated.request("GET", f"/v1/machines/{box}/execs/{x}/output", raw=True).decode()


def text(gated, box, x):
    status, words = ending(gated, box, x)
    assert status == 0, words
    return words


def output(gated, box, x):
    return json.loads(text(gated, box, x))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_approval_lets_that_same_request_go_on(gated, servers, box, scheme):
    x = ask_for(gated, servers, box, scheme, words=["-d", "some words", "-H", "Authorization: Bearer hidden", "-H", "X-Why: a reason"])
    item, = waiting(gated, box)
    assert f"rule {item['rule']} requires approval: " in item["why"] and "X-Why: a reason\nContent-Length: 10" in item["first"]
    assert "Authorization: ...\n" in item["first"] and "hidden" not in str(item)
    assert (item["method"], item["path"], item["waiting"]) == ("POST", "/held", 1)
    listed = carrel(gated, "pending").stdout
    assert item["id"] in listed and "/held" in listed and "    X-Why: a reason\n" in listed and "    rule " in listed
    assert carrel(gated, "approve", item["id"]).returncode == 0
    seen = output(gated, box, x)
    assert seen["path"] == "/held" and seen["body"] == "some words"
    assert not [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == box]
    verbs = [n["verb"] for n in gated.notes(box, count=2)]
    assert verbs[:2] == ["net.hold", "net.allow"]


def test_once_is_once(gated, servers, box):
    first = ask_for(gated, servers, box)
    carrel(gated, "approve", waiting(gated, box)[0]["id"])
    output(gated, box, first)
    second = ask_for(gated, servers, box)
    item, = waiting(gated, box)
    assert carrel(gated, "deny", item["id"]).returncode == 0
    assert text(gated, box, second).endswith(": the owner denied the request\n")
    assert len(servers.web.seen) == 1


def test_a_retry_joins_what_waits_and_an_approval_waits_for_a_retry(gated, servers, box):
    gone = ask_for(gated, servers, box, words=["--max-time", "1"])
    item, = waiting(gated, box)
    assert gated.wait(box, gone)["status"] == 28
    again = ask_for(gated, servers, box)
    gated.until(lambda: waiting(gated, box)[0]["waiting"] == 2)
    assert waiting(gated, box)[0]["id"] == item["id"]
    assert carrel(gated, "approve", item["id"]).returncode == 0
    assert output(gated, box, again)["path"] == "/held"


@pytest.mark.parametrize("words", [["--always"], ["--for", "10m"]])
def test_always_adds_a_rule_for_requests_like_it(gated, servers, box, words):
    x = ask_for(gated, servers, box)
    done = carrel(gated, "approve", *words, waiting(gated, box)[0]["id"])
    assert done.returncode == 0 and bool(re.search(r", until 20\S+Z$", done.stdout)) == (words[0] == "--for"), done
    output(gated, box, x)
    url = f"http://ok.test:{servers.http}"
    assert body(gated.exec(box, [*CURL, f"{url}/held"]))["path"] == "/held"
    rule = gated.get(f"/v1/machines/{box}/net")["rules"][-1]
    assert rule["target"] == f"{url}/held" and rule["methods"] == "GET" and ("expires" in rule) == (words[0] == "--for")


@pytest.mark.parametrize("approval", [{"always": True}, {"ttl": "1h"}, {}], ids=["always", "for", "once"])
def test_what_waits_in_plain_words_and_inside_tls_is_approved_apart(gated, servers, box, approval):
    """To the same port, so that only the protocol tells them apart: a rule made of one does not fit the other."""
    gated.allow(box, f"api.test:{servers.https}", action="ask")
    tls = gated.background(box, [*CURL, f"https://api.test:{servers.https}/held"])
    waiting(gated, box)
    plain = gated.background(box, [*CURL, f"http://api.test:{servers.https}/held"])
    items = {p["protocol"]: p for p in waiting(gated, box, 2)}
    assert sorted(items) == ["http", "tls"] and [p["waiting"] for p in items.values()] == [1, 1], items
    gated.post(f"/v1/pending/{items['tls']['id']}", {"decision": "approve", **approval})
    assert output(gated, box, tls)["path"] == "/held"
    assert [p["id"] for p in waiting(gated, box)] == [items["http"]["id"]]
    gated.post(f"/v1/pending/{items['http']['id']}", {"decision": "deny"})
    assert text(gated, box, plain).endswith(": the owner denied the request\n")


def test_an_approval_that_is_over_at_once_lets_them_wait_again(gated, servers, box):
    commands = [ask_for(gated, servers, box) for _ in range(4)]
    gated.until(lambda: waiting(gated, box)[0]["waiting"] == 4)
    item, = waiting(gated, box)
    gated.post(f"/v1/pending/{item['id']}", {"decision": "approve", "ttl": "1ms"})
    left = []

    def all_ended():
        """They wait again at different times; each item that appears is denied."""
        for p in gated.get("/v1/pending")["pending"]:
            if p["machine"] == box:
                left.append(p["id"])
                gated.post(f"/v1/pending/{p['id']}", {"decision": "deny"})
        return all(gated.get(f"/v1/machines/{box}/execs/{x}")["state"] == "exited" for x in commands)

    gated.until(all_ended)
    assert len(left) <= len(commands) and item["id"] not in left
    results = [ending(gated, box, x)[1] for x in commands]
    without = [r for r in results if '"path": "/held"' not in r and "the owner denied the request" not in r]
    # A request may be under way when the rule ends. Its connection is then closed, as for any rule that ends.
    ended = [n for n in gated.notes(box, "net.close", count=len(without))
             if n.get("reason") == "the network policy of the machine has changed"]
    assert len(without) <= len(ended), (results, ended)
    assert len(gated.notes(box, "net.hold")) == 1 + len(left)


@pytest.mark.parametrize("approval", [{"ttl": "1h"}, {"always": True}, {}], ids=["for", "always", "once"])
def test_an_approval_counts_though_the_rule_was_added_again(gated, servers, box, approval):
    """A rule that is added again has a new id. What waits keeps the rights of that rule, such as --local."""
    x = ask_for(gated, servers, box)
    item, = waiting(gated, box)
    gated.allow(box, f"http://ok.test:{servers.http}", action="ask")
    again, = waiting(gated, box)
    assert again["id"] == item["id"] and again["rule"] != item["rule"] and f"rule {again['rule']} " in again["why"]
    gated.post(f"/v1/pending/{item['id']}", {"decision": "approve", **approval})
    assert output(gated, box, x)["path"] == "/held"


@pytest.mark.parametrize("action, ends", [("allow", '"path": "/held"'), ("deny", "denied by a rule")])
def test_a_changed_rule_decides_about_requests_that_wait(gated, servers, box, action, ends):
    x = ask_for(gated, servers, box)
    waiting(gated, box)
    gated.allow(box, f"http://ok.test:{servers.http}", action=action)
    assert ends in text(gated, box, x)
    assert not [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == box]


def test_nobody_answers_in_time(gated, servers, box):
    gated.allow(box, f"ok.test:{servers.http}", action="ask", hold=1)
    began = time.monotonic()
    done = body(gated.exec(box, [*CURL, *JSON, f"http://ok.test:{servers.http}/late"]))
    assert done["code"] == "timeout" and 0.9 < time.monotonic() - began < 10


def test_a_tunnel_may_wait_too(gated, servers, box):
    gated.allow(box, f"tcp://ok.test:{servers.tcp}", action="ask")
    x = gated.background(box, ["python3", "-c", f"import socket; print(socket.create_connection(('ok.test', {servers.tcp})).recv(6))"])
    item, = waiting(gated, box)
    assert "method" not in item
    gated.post(f"/v1/pending/{item['id']}", {"decision": "approve"})
    gated.wait(box, x)
    assert b"hello" in gated.request("GET", f"/v1/machines/{box}/execs/{x}/output", raw=True)


def test_nothing_waits_under_a_name_that_is_none(gated):
    assert carrel(gated, "approve", "p-aaaaaaaaaaaa").returncode == 125
    assert "no network request with the id 'nonsense' waits for approval" in carrel(gated, "deny", "nonsense").stderr
