"""The log of a sandbox: when its commands started and ended."""
import urllib.parse

from e2b_client import machine_of, status_of


def log(e2b, sandbox, version="/v2", **query):
    return e2b.call("GET", f"{version}/sandboxes/{sandbox['sandboxID']}/logs?{urllib.parse.urlencode(query)}", status=200)


def test_commands_are_in_the_log_of_their_sandbox(e2b, daemon):
    made = e2b.create()
    assert log(e2b, made) == {"logs": []}
    daemon.exec(machine_of(made), "echo not in the log")
    daemon.exec(machine_of(made), "exit 3")
    entries = log(e2b, made)["logs"]
    assert [(e["level"], e["message"].split(":")[0]) for e in entries] == [
        ("info", "command started"), ("info", "command ended with status 0"),
        ("info", "command started"), ("error", "command ended with status 3")]
    assert [e["fields"] for e in entries[::2]] == [e["fields"] for e in entries[1::2]] and all(e["timestamp"] for e in entries)
    assert log(e2b, made, direction="backward", limit=1)["logs"] == entries[3:]
    assert log(e2b, made, level="error")["logs"] == entries[3:]
    assert log(e2b, made, search="not in")["logs"] == entries[:2]
    assert log(e2b, made, cursor=1)["logs"] == entries and log(e2b, made, cursor=1 << 60)["logs"] == []
    daemon.exec(machine_of(made), ": " + "ä" * 1000)
    assert all(len(e["message"]) < 600 for e in log(e2b, made)["logs"])
    old = log(e2b, made, version="", start=1)
    assert old["logEntries"][:4] == entries and [e["line"] for e in old["logs"][:4]] == [e["message"] for e in entries]


def test_logs_that_cannot_be_asked_for(e2b, daemon):
    made = e2b.create()
    target = f"/v2/sandboxes/{made['sandboxID']}/logs"
    for query in ("limit=1001", "limit=x", "cursor=-1"):
        assert status_of(e2b.call, "GET", f"{target}?{query}") == 400, query
    e2b.kill(made)
    assert status_of(e2b.call, "GET", target) == 404
