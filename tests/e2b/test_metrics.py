"""Metrics of sandboxes: their history from the first question on, and the newest sample of many."""
import time

from e2b_client import E2b, machine_of, status_of


def metrics(e2b, sandbox, query=""):
    return e2b.call("GET", f"/sandboxes/{sandbox['sandboxID']}/metrics{query}", status=200)


def newest(e2b, *labels):
    return e2b.call("GET", "/sandboxes/metrics?sandbox_ids=" + ",".join(labels), status=200)["sandboxes"]


def test_metrics_have_a_sample_of_now(e2b, daemon):
    sandbox = e2b.create()
    now = int(time.time())
    row = metrics(e2b, sandbox, f"?start={now - 60}&end={now}")[-1]
    assert row["memTotal"] > row["memUsed"] >= 0 and row["diskTotal"] > 0 and row["cpuCount"] >= 1
    assert abs(row["timestampUnix"] - now) < 3600 and row["timestamp"].endswith("Z")
    assert metrics(e2b, sandbox, f"?end={now - 7200}") == []
    assert metrics(e2b, sandbox, f"?start={now + 7200}") == []
    assert status_of(metrics, e2b, sandbox, "?start=x") == 400


def test_samples_are_added_while_the_sandbox_runs(e2b, daemon):
    sandbox = e2b.create()
    assert len(metrics(e2b, sandbox)) == 1
    daemon.background(machine_of(sandbox), "while :; do :; done")

    def busy():
        found = metrics(e2b, sandbox)
        return found if len(found) > 1 and found[-1]["cpuUsedPct"] > 1 else None
    rows = daemon.until(busy)
    at = [row["timestampUnix"] for row in rows]
    assert at == sorted(at)
    first, last = rows[0], rows[-1]
    assert metrics(e2b, sandbox, f"?end={first['timestampUnix']}")[0] == first
    assert first not in metrics(e2b, sandbox, f"?start={last['timestampUnix']}")
    e2b.post(sandbox, "pause", {}, 204)
    kept = metrics(e2b, sandbox)
    assert kept[:len(rows)] == rows
    e2b.kill(sandbox)
    assert status_of(metrics, e2b, sandbox) == 404


def test_newest_samples_of_many(e2b, daemon):
    one, two = (e2b.create()["sandboxID"] for _ in range(2))
    found = newest(e2b, one, two, one, "m6xtdvxc5r6es", daemon.machine().replace("-", ""))
    assert set(found) == {one, two} and all(row["memTotal"] > 0 for row in found.values())
    stranger = E2b(e2b.url.geturl(), daemon.post("/v1/tokens", {"owner": "somebody-else"})["secret"])
    assert newest(stranger, one, two) == {}
    assert status_of(e2b.call, "GET", "/sandboxes/metrics") == 400
    assert status_of(newest, e2b, *(f"m{i:012}" for i in range(101))) == 400
