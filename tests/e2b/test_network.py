"""What sandboxes may reach: the settings of the host, what a client asks for, and what the owner decides."""
import pytest

from daemon import Daemon
from e2b_client import E2b, machine_of, status_of

ASK = """import socket
with socket.create_connection(("203.0.113.7", 80)) as s:
    s.sendall(b"GET / HTTP/1.1\\r\\nHost: 203.0.113.7\\r\\n\\r\\n")
    print(s.recv(65536).decode())
"""


def rules_of(daemon, sandbox):
    rules = daemon.get(f"/v1/machines/{machine_of(sandbox)}/net")["rules"]
    return [(r["action"], r["target"], r.get("from")) for r in rules]


def put(e2b, sandbox, **fields):
    e2b.call("PUT", f"/sandboxes/{sandbox['sandboxID']}/network", fields, 204)


@pytest.mark.parametrize("fields, rules", [
    ({}, [("ask", "*", "conf")]),
    ({"allow_internet_access": True}, [("ask", "*", "conf")]),
    ({"allow_internet_access": False}, [("deny", "*", "client")]),
    ({"network": {"denyOut": ["0.0.0.0/0"], "allowOut": ["a.example"]}}, [("deny", "*", "client"), ("ask", "a.example", "client")])])
def test_the_network_asks_unless_the_settings_say_otherwise(e2b, daemon, fields, rules):
    sandbox = e2b.create(**fields)
    assert rules_of(daemon, sandbox) == rules
    assert e2b.info(sandbox)["allowInternetAccess"] is False, "nothing is reached unasked"


def test_the_administrator_allows_all_hosts():
    daemon = Daemon(conf="[e2b]\ninternet = allow\n")
    try:
        e2b = E2b.of(daemon)
        sandbox = e2b.create(allow_internet_access=True)
        assert rules_of(daemon, sandbox) == [("allow", "*", "conf")]
        assert e2b.info(sandbox)["allowInternetAccess"] is True
        snapshot = e2b.post(sandbox, "snapshots", status=201)
        closed = e2b.create(templateID=snapshot["snapshotID"], allow_internet_access=False)
        assert rules_of(daemon, closed) == [("deny", "*", "client")]
    finally:
        daemon.stop()


def test_a_program_learns_that_the_administrator_denies_all_hosts():
    daemon = Daemon(conf="[e2b]\ninternet = deny\n")
    try:
        e2b = E2b.of(daemon)
        sandbox = e2b.create(allow_internet_access=True)
        assert rules_of(daemon, sandbox) == [("deny", "*", "conf")]
        assert e2b.info(sandbox)["allowInternetAccess"] is False
        put(e2b, sandbox, allowOut=["203.0.113.7"], allow_internet_access=True)
        assert rules_of(daemon, sandbox) == [("deny", "*", "conf")]
        told = daemon.exec(machine_of(sandbox), ["python3", "-c", ASK])["stdout"]
        assert told.startswith("HTTP/1.1 403")
        assert "the key internet in the section [e2b] of carrel.conf denies it" in told
        assert f"carrel net {machine_of(sandbox)} allow 203.0.113.7" in told
    finally:
        daemon.stop()


def test_a_change_of_the_network_replaces_what_the_client_asked_for(e2b, daemon):
    sandbox = e2b.create(metadata={"a": "b"}, network={"denyOut": ["bad.example"]})
    for fields, rules, internet in [
            ({"allowOut": ["a.example"], "denyOut": ["0.0.0.0/0", "b.example"]},
             [("deny", "*", "client"), ("deny", "b.example", "client"), ("ask", "a.example", "client")], False),
            ({"allowOut": ["9.9.9.9", "9.9.8.7/24"], "denyOut": ["10.0.0.0/8", "203.0.113.7"]},
             [("ask", "*", "conf"), ("deny", "10.0.0.0/8", "client"), ("deny", "203.0.113.7", "client"), ("ask", "9.9.9.9", "client"),
              ("ask", "9.9.8.0/24", "client")], False),
            ({"allow_internet_access": False}, [("deny", "*", "client")], False),
            ({"allow_internet_access": False, "allowOut": ["a.example"], "rules": None},
             [("deny", "*", "client"), ("ask", "a.example", "client")], False),
            ({}, [("ask", "*", "conf")], False)]:
        put(e2b, sandbox, **fields)
        assert rules_of(daemon, sandbox) == rules
        assert e2b.info(sandbox)["allowInternetAccess"] is internet
        assert e2b.info(sandbox)["metadata"] == {"a": "b"}


def test_what_the_owner_decides_wins_over_the_client(e2b, daemon):
    sandbox = e2b.create()
    rules = f"/v1/machines/{machine_of(sandbox)}/net/rules"
    daemon.post(rules, {"action": "deny", "target": "bad.example"})
    daemon.post(rules, {"target": "good.example"})
    mine = [("deny", "bad.example", None), ("allow", "good.example", None)]
    put(e2b, sandbox, allowOut=["bad.example"], denyOut=["0.0.0.0/0"])
    assert rules_of(daemon, sandbox) == [("deny", "*", "client"), ("ask", "bad.example", "client")] + mine
    put(e2b, sandbox)
    assert rules_of(daemon, sandbox) == [("ask", "*", "conf")] + mine


def test_a_range_that_is_denied_is_reached_neither_by_address_nor_by_name():
    daemon = Daemon(conf="[e2b]\ninternet = allow\n")
    try:
        e2b = E2b.of(daemon)
        sandbox = e2b.create()
        ask = ["python3", "-c", ASK]
        control = daemon.exec(machine_of(sandbox), ask)["stdout"]
        assert "resolves to a reserved address" in control and "denied by a rule" not in control
        put(e2b, sandbox, denyOut=["203.0.0.0/16"])
        assert "denied by a rule" in daemon.exec(machine_of(sandbox), ask)["stdout"]
        put(e2b, sandbox, denyOut=["203.0.0.0/16"], allowOut=["203.0.113.0/24"])
        assert daemon.exec(machine_of(sandbox), ask)["stdout"] == control
    finally:
        daemon.stop()


def test_a_request_is_refused_at_once_until_the_owner_approves_it(e2b, daemon):
    """E2B's programs take a long wait for a fault. The control: the request passes the gate once it is approved."""
    sandbox = e2b.create()
    box = machine_of(sandbox)
    told = daemon.exec(box, ["python3", "-c", ASK], timeout="60s")["stdout"]
    assert told.startswith("HTTP/1.1 403") and "the owner has not approved this request yet" in told
    assert "the key internet in the section [e2b] of carrel.conf asks for it" in told and "carrel pending" in told
    again = daemon.exec(box, ["python3", "-c", ASK], timeout="60s")["stdout"]
    assert again.startswith("HTTP/1.1 403")
    (item,) = [p for p in daemon.get("/v1/pending")["pending"] if p["machine"] == box]
    assert (item["host"], item["port"]) == ("203.0.113.7", 80)
    daemon.post(f"/v1/pending/{item['id']}", {"decision": "approve"})
    passed = daemon.exec(box, ["python3", "-c", ASK], timeout="60s")["stdout"]
    assert "not approved" not in passed and "resolves to a reserved address" in passed
    assert "not approved" in daemon.exec(box, ["python3", "-c", ASK], timeout="60s")["stdout"], "an approval is for one request"
    tunnel = "import socket; s = socket.create_connection(('203.0.113.7', 443)); s.sendall(b'x' * 99); print(s.recv(9))"
    assert "ConnectionResetError" in daemon.exec(box, ["python3", "-c", tunnel], timeout="60s")["stderr"]


@pytest.mark.parametrize("fields", [
    {"allowOut": "a.example"}, {"denyOut": [7]}, {"allowOut": ["no host"]}, {"allowOut": ["10.0.0.0/33"]}, {"allowOut": ["169.254.0.0/16"]}, {"denyOut": ["fd00::/8"]},
    {"denyOut": [f"h{i}.example" for i in range(64)]}, {"rules": {"a.example": []}}, {"egressProxy": {"address": "a:1"}}])
def test_a_network_that_cannot_be_is_refused_and_changes_nothing(e2b, daemon, fields):
    sandbox = e2b.create(network={"denyOut": ["bad.example"]})
    before = rules_of(daemon, sandbox)
    assert status_of(e2b.call, "PUT", f"/sandboxes/{sandbox['sandboxID']}/network", fields) == 400
    assert rules_of(daemon, sandbox) == before


def test_only_the_network_of_a_sandbox_of_the_caller_can_change(e2b, daemon):
    box = daemon.machine()
    for name in ("m6xtdvxc5r6es", box.replace("-", "")):
        assert status_of(e2b.call, "PUT", f"/sandboxes/{name}/network", {}) == 404
