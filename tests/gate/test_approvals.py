"""What an owner approves is what goes through: the query and the body are a part of it, and a rule that is added is no wider than the request."""
import json
import subprocess

import pytest

from carrel import PROGRAM
from daemon import Refused

CURL = ["curl", "-sS", "--max-time", "60", "-H", "Accept: application/json"]


@pytest.fixture
def box(gated, servers):
    servers.forget()
    return gated.machine()


@pytest.fixture
def asks(gated, servers, box):
    """Every request to ok.test waits; a function that makes one, and says what it became."""
    gated.allow(box, f"http://ok.test:{servers.http}", action="ask")
    return lambda path, *words: gated.background(box, [*CURL, *words, f"http://ok.test:{servers.http}{path}"])


def carrel(gated, *words, ok=True):
    done = subprocess.run([PROGRAM, *words], env=gated.env, capture_output=True, text=True, timeout=100)
    assert not ok or done.returncode == 0, done
    return done


def waiting(gated, box, count=1):
    def enough():
        found = [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == box and p["waiting"]]
        return found if len(found) == count else None
    return sorted(gated.until(enough), key=lambda p: p["since_ms"])


def output(gated, box, x):
    assert gated.wait(box, x, 60)["status"] == 0
    return json.loads(gated.request("GET", f"/v1/machines/{box}/execs/{x}/output", raw=True))


def rules(gated, box):
    return gated.get(f"/v1/machines/{box}/net")["rules"]


def test_the_query_is_shown_and_a_part_of_what_is_approved(gated, servers, box, asks):
    first = asks("/pay?amount=1")
    item, = waiting(gated, box)
    second = asks("/pay?amount=1000")
    other, = [p for p in waiting(gated, box, 2) if p["id"] != item["id"]]
    assert (item["query"], other["query"]) == ("amount=1", "amount=1000")
    listed = carrel(gated, "pending").stdout
    assert "/pay?amount=1 " in listed and "/pay?amount=1000 " in listed
    carrel(gated, "approve", item["id"])
    assert output(gated, box, first)["path"] == "/pay?amount=1"
    assert [p["id"] for p in waiting(gated, box)] == [other["id"]], "the other one waits on"
    carrel(gated, "deny", other["id"])
    assert "error" in output(gated, box, second)


def test_always_adds_the_rule_that_was_shown_and_no_wider_one(gated, servers, box, asks):
    x = asks("/a?x=1")
    item, = waiting(gated, box)
    rule = f"allow GET http://ok.test:{servers.http}/a?x=1, with any header fields and body"
    assert item["always"] == rule and f"    --always: {rule}\n" in carrel(gated, "pending").stdout
    assert carrel(gated, "approve", "--always", item["id"]).stdout.endswith(f": {rule}\n")
    assert output(gated, box, x)["path"] == "/a?x=1" and rules(gated, box)[-1]["exact"]
    assert output(gated, box, asks("/a?x=1"))["path"] == "/a?x=1", "it is not asked about again"
    for path in ("/a", "/a?x=2", "/a/b?x=1", "/a?x=1&y=2", "/?x=1"):
        x = asks(path)
        item, = waiting(gated, box)
        carrel(gated, "deny", item["id"])
        assert "error" in output(gated, box, x), path


@pytest.mark.parametrize("path", ["/a%2fb", "/a/..%2fb", "/a/..;/b", "/a%252e", "/" + "a" * 300, "/?" + "a" * 300])
def test_no_rule_is_added_that_is_wider_than_the_request(gated, servers, box, asks, path, count_attack):
    x = asks(path, "--path-as-is")
    item, = waiting(gated, box)
    before = rules(gated, box)
    assert "always" not in item and "no rule can match only this request" in item["no_rule"]
    for words in (["--always"], ["--for", "10m"]):
        done = carrel(gated, "approve", *words, item["id"], ok=False)
        assert done.returncode and "no rule can match only this request" in done.stderr, done
    assert rules(gated, box) == before and waiting(gated, box)[0]["id"] == item["id"]
    carrel(gated, "approve", item["id"])
    assert output(gated, box, x)["path"] == path, "once is no rule"
    count_attack()


@pytest.mark.parametrize("path, words, why", [
    ("/pay", ["-H", "X-HTTP-Method-Override: DELETE", "-X", "POST"], "another method"),
    ("/pay", ["-H", "X-Original-URL: /admin"], "another path"),
    ("/pay?_method=DELETE", ["-X", "POST"], "another method"),
    ("/pay", ["-d", "_method=DELETE"], "another method")], ids=["field", "path", "query", "form"])
def test_nobody_is_asked_about_a_request_that_means_another(gated, servers, box, asks, path, words, why, count_attack):
    """Its first line is what is shown. The control is a rule that does not ask: there it arrives."""
    said = output(gated, box, asks(path, *words))
    assert why in json.dumps(said) and servers.web.seen == [], said
    assert not [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == box and p["waiting"]]
    count_attack()
    gated.allow(box, f"http://ok.test:{servers.http}")
    assert output(gated, box, asks(path, *words))["path"] == path


def test_fields_that_are_not_shown_are_told_of(gated, servers, box, asks):
    few, many = asks("/few", "-H", "X-One: 1"), asks("/many", *(w for i in range(40) for w in ("-H", f"X-Field-{i}: {'v' * 60}")))
    items = {p["path"]: p for p in waiting(gated, box, 2)}
    assert "X-One: 1\n" in items["/few"]["first"] and "more fields" not in items["/few"]["first"]
    assert items["/many"]["first"].endswith("...\n(more fields are not shown)\n")
    for p in items.values():
        carrel(gated, "deny", p["id"])
    assert all("error" in output(gated, box, x) for x in (few, many))


def test_a_rule_for_what_went_through_once(gated, servers, box, asks):
    x = asks("/held")
    item, = waiting(gated, box)
    carrel(gated, "approve", item["id"])
    output(gated, box, x)
    assert not [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == box]
    done = carrel(gated, "approve", item["id"], ok=False)
    assert done.returncode and "it was let through" in done.stderr, done
    carrel(gated, "approve", item["id"], "--always")
    assert output(gated, box, asks("/held"))["path"] == "/held" and len(servers.web.seen) == 2
    assert carrel(gated, "approve", item["id"], "--always", ok=False).returncode, "it is used up"


def test_an_approval_is_for_this_body(gated, servers, box, asks):
    """Also when nobody waits for it any more: another body of the same length is another request."""
    gone = asks("/pay", "-d", "amount=1", "--max-time", "1")
    item = gated.until(lambda: [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == box])[0]
    assert gated.wait(box, gone)["status"] == 28
    assert item["body"] == 8 and "body: 8 bytes, sha256 " + item["body_sha256"] in carrel(gated, "pending").stdout
    carrel(gated, "approve", item["id"])
    other = asks("/pay", "-d", "amount=9")
    again, = waiting(gated, box)
    assert again["id"] != item["id"] and again["body_sha256"] != item["body_sha256"]
    carrel(gated, "deny", again["id"])
    assert "error" in output(gated, box, other)
    assert output(gated, box, asks("/pay", "-d", "amount=1"))["body"] == "amount=1"
    assert [s["body"] for s in servers.web.seen] == [b"amount=1"]


def test_an_approval_is_for_these_fields(gated, servers, box, asks):
    """One that came later with other fields is another request, and was not shown. The control: with the same fields it is the same."""
    def items(count):
        def found():
            mine = [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == box]
            return mine if sum(p["waiting"] for p in mine) == count else None
        return gated.until(found)
    first = asks("/pay", "-H", "X-To: alice")
    item, = items(1)
    assert "X-To: alice" in item["first"]
    other = asks("/pay", "-H", "X-To: mallory")
    two = items(2)
    assert len(two) == 2
    carrel(gated, "approve", item["id"])
    assert output(gated, box, first)["headers"]["X-To"] == "alice"
    left, = items(1)
    assert "X-To: mallory" in left["first"]
    again = asks("/pay", "-H", "X-To: mallory")
    left, = items(2)
    assert left["waiting"] == 2
    carrel(gated, "deny", left["id"])
    assert "error" in output(gated, box, other) and "error" in output(gated, box, again)
    assert [dict(s["headers"])["X-To"] for s in servers.web.seen] == ["alice"]


@pytest.mark.parametrize("words", [["-d", "@large"], ["-T", "-", "-H", "Expect: 100-continue"]], ids=["sized", "in chunks"])
def test_a_large_body_waits_and_goes_on_whole(gated, servers, box, words):
    gated.exec(box, "head -c 900000 /dev/zero | tr '\\0' x > large")
    gated.allow(box, f"http://ok.test:{servers.http}", action="ask")
    x = gated.background(box, ["sh", "-c", f"curl -sS -o /dev/null -w '%{{http_code}}' {' '.join(words)} -H 'Content-Type: a/b' http://ok.test:{servers.http}/up < large > code"
                               .replace("Expect: 100-continue", "'Expect: 100-continue'")])
    item, = waiting(gated, box)
    assert item["body"] == 900000
    carrel(gated, "approve", item["id"])
    gated.wait(box, x)
    assert gated.exec(box, "cat code")["stdout"] == "200" and servers.web.seen[-1]["body"] == b"x" * 900000


def test_a_body_that_cannot_be_kept_is_refused(gated, servers, box):
    gated.exec(box, "head -c 1100000 /dev/zero > large")
    gated.allow(box, f"http://ok.test:{servers.http}", action="ask")
    said = gated.exec(box, [*CURL, "--data-binary", "@large", f"http://ok.test:{servers.http}/up"])["stdout"]
    assert "too large to wait for an approval" in said and servers.web.seen == []


@pytest.mark.parametrize("tainted", [True, False])
def test_no_rule_for_bodies_once_it_is_tainted(gated, servers, box, asks, tainted):
    if tainted:
        gated.allow(box, f"http://other.test:{servers.http}")
        gated.exec(box, [*CURL, f"http://other.test:{servers.http}/"])
    x = asks("/pay", "-d", "amount=1")
    item, = waiting(gated, box)
    if not tainted:
        carrel(gated, "approve", "--always", item["id"])
    else:
        assert "untrusted source" in item["no_rule"]
        with pytest.raises(Refused) as e:
            gated.post(f"/v1/pending/{item['id']}", {"decision": "approve", "always": True})
        assert "the request has a body" in str(e.value) or "untrusted source" in str(e.value)
        carrel(gated, "approve", item["id"])
    assert output(gated, box, x)["body"] == "amount=1"


def test_a_body_that_waits_outlives_the_daemon(gated, servers, box, asks):
    asks("/pay?a=1", "-d", "amount=1")
    item, = waiting(gated, box)
    gated.restart()
    gated.until(lambda: gated.get(f"/v1/machines/{box}/net")["listening"])
    again = [p for p in gated.get("/v1/pending")["pending"] if p["machine"] == box][0]
    assert {k: again[k] for k in ("id", "path", "query", "body", "body_sha256")} == {k: item[k] for k in ("id", "path", "query", "body", "body_sha256")}
    gated.post(f"/v1/pending/{item['id']}", {"decision": "approve"})
    assert output(gated, box, asks("/pay?a=1", "-d", "amount=1"))["body"] == "amount=1"
