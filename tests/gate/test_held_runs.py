"""A run whose machine's request waits for an approval: it shows, and costs none of its time."""
import json
import subprocess

import pytest

from carrel import PROGRAM

LEFT = {"tool": "finish", "arguments": {"status": "partial", "summary": "s", "open_issues": ["o"]}}


def start(gated, servers, **fields):
    box = gated.machine(net=[{"target": f"http://ok.test:{servers.http}", "local": True, "action": "ask"}])
    calls = [[{"tool": "fetch", "arguments": {"url": f"http://ok.test:{servers.http}/page"}}], [LEFT]]
    script = json.dumps({"turns": [{"turn": i, "calls": c} for i, c in enumerate(calls)]})
    return gated.post("/v1/runs", {"task": "Fetch.", "model": "rehearsal/x", "script": script, "machine": box, **fields})["id"]


def waiting(gated, run):
    view = gated.get(f"/v1/runs/{run}")
    return view if view["state"] == "waiting" else None


@pytest.mark.parametrize("decision,status", [("approve", 200), ("deny", 403)])
def test_it_waits_for_the_owner(gated, servers, decision, status):
    run = start(gated, servers, timeout="1s")
    view = gated.until(lambda: waiting(gated, run))
    item = view["question"]["approval"]
    assert (item["host"], item["method"], item["path"]) == ("ok.test", "GET", "/page")
    subprocess.run(["sleep", "1.5"], check=True)  # longer than it has
    assert gated.get(f"/v1/runs/{run}")["state"] == "waiting"
    gated.post(f"/v1/pending/{item['id']}", {"decision": decision})
    view = gated.until(lambda: (lambda v: v if v["state"] == "ended" else None)(gated.get(f"/v1/runs/{run}")))
    lines = [json.loads(x) for x in gated.request("GET", f"/v1/runs/{run}/transcript", raw=True).decode().splitlines()]
    assert view["status"] == "partial" and view["wall_ms"] < 1000, "the time of the owner is not the run's"
    assert [e["event"] for e in lines if e["event"] in ("held", "freed")] == ["held", "freed"]
    result = next(e for e in lines if e["event"] == "result")
    assert json.loads(result["text"])["status"] == status


def test_it_shows_on_the_terminal(gated, servers):
    run = start(gated, servers)
    item = gated.until(lambda: waiting(gated, run))["question"]["approval"]
    wanted = f"waits for an approval: GET ok.test/page; to approve it: carrel approve {item['id']}"
    with subprocess.Popen([PROGRAM, "do", "--resume", run], env=gated.env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True) as shown:
        seen = next((line for line in shown.stdout if wanted in line), None)
        gated.post(f"/v1/pending/{item['id']}", {"decision": "deny"})
        rest = shown.stdout.read()
    assert seen and rest and shown.returncode != 125
