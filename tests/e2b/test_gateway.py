"""The gateway: who a request for a sandbox reaches, with which token, and what is said of one that is gone."""
import json

import pytest


def sent(e2b, label, path="/process.Process/List", token=None, port="49983"):
    """The status and the body."""
    headers = {"E2b-Sandbox-Id": label, **({"E2b-Sandbox-Port": port} if port else {}),
               **({"X-Access-Token": token} if token else {})}
    status, _, content = e2b.send("POST" if "." in path else "GET", path, headers=headers)
    return status, json.loads(content) if content else None


@pytest.fixture
def sandbox(e2b, daemon):
    return e2b.create()


def test_health_needs_no_token(e2b, sandbox):
    assert sent(e2b, sandbox["sandboxID"], "/health") == (204, None)
    assert sent(e2b, sandbox["sandboxID"], "/health", port=None) == (204, None)


@pytest.mark.parametrize("verb", ["pause", "kill"])
def test_a_sandbox_that_does_not_run_is_a_bad_gateway(e2b, daemon, sandbox, verb):
    e2b.post(sandbox, "pause", status=204) if verb == "pause" else e2b.kill(sandbox)
    gone = {"sandboxId": sandbox["sandboxID"], "message": "The sandbox was not found", "code": 502}
    for path in ("/health", "/process.Process/List", "/files"):
        assert sent(e2b, sandbox["sandboxID"], path, sandbox["envdAccessToken"]) == (502, gone)


def test_a_machine_that_is_no_sandbox_is_not_found(e2b, daemon):
    machine = daemon.machine()
    assert sent(e2b, "m" + machine[2:], "/health")[0] == 502
    for label in ("", "x", "m" * 13, machine, "m" + "a" * 4000):
        assert sent(e2b, label, "/health")[0] == 502


def test_the_token_of_another_sandbox_is_refused(e2b, daemon, sandbox):
    other = e2b.create()
    for token in (None, other["envdAccessToken"], sandbox["envdAccessToken"][:-1], sandbox["envdAccessToken"] + "0",
                  e2b.key, "0" * 64):
        status, body = sent(e2b, sandbox["sandboxID"], token=token)
        assert (status, body["code"]) == (401, 401) and "unauthorized" in body["message"]
    assert sent(e2b, sandbox["sandboxID"], token=sandbox["envdAccessToken"])[0] != 401


def test_a_revoked_token_is_refused(e2b, daemon, sandbox):
    daemon.delete("/v1/tokens/m-" + sandbox["sandboxID"][1:])
    assert sent(e2b, sandbox["sandboxID"], token=sandbox["envdAccessToken"])[0] == 401
    assert sent(e2b, sandbox["sandboxID"], token=e2b.info(sandbox)["envdAccessToken"])[0] != 401


def test_who_guesses_tokens_is_slowed_down_and_nobody_else(e2b, daemon, sandbox):
    status = 401
    for _ in range(1000):
        if status == 401:
            status, headers, _ = e2b.send("GET", "/metrics", headers={"E2b-Sandbox-Id": sandbox["sandboxID"]})
    assert status == 429 and 0 < int(headers["Retry-After"]) <= 60
    assert sent(e2b, sandbox["sandboxID"], token=sandbox["envdAccessToken"])[0] not in (401, 429)


def test_sandbox_has_a_sample_of_its_metrics(e2b, sandbox):
    status, sample = sent(e2b, sandbox["sandboxID"], "/metrics", sandbox["envdAccessToken"])
    assert status == 200 and sample["ts"] > 1700000000 and sample["cpu_count"] >= 1
    assert sample["mem_total"] > sample["mem_used"] >= 0 and sample["disk_total"] > 0
    assert {type(v) for v in sample.values()} <= {int, float} and sample["cpu_used_pct"] >= 0
    assert sent(e2b, sandbox["sandboxID"], "/metrics")[0] in (401, 429)
