"""The end of a timeout: it kills or pauses, and a paused sandbox waits for connect or for traffic."""
import http.client
import threading
import time

import pytest

from e2b_client import E2b, machine_of, status_of


def state_of(e2b, sandbox):
    return e2b.info(sandbox)["state"]


def traffic(e2b, sandbox, token=None):
    headers = {"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": "49983",
               "X-Access-Token": token or sandbox["envdAccessToken"]}
    return e2b.send("GET", "/no-such-path", headers=headers)[0]


def test_the_end_of_the_timeout_kills(e2b, daemon):
    sandbox = e2b.create(timeout=1)
    daemon.until(lambda: not e2b.list()[0])
    assert status_of(e2b.info, sandbox) == 404


def test_the_end_of_the_timeout_pauses_if_the_client_wants(e2b, daemon):
    sandbox = e2b.create(timeout=2, autoPause=True)
    assert e2b.info(sandbox)["lifecycle"] == {"onTimeout": "pause", "autoResume": False}
    daemon.exec(machine_of(sandbox), "echo kept >/tmp/note")
    daemon.until(lambda: state_of(e2b, sandbox) == "paused")
    assert traffic(e2b, sandbox) == 502 and state_of(e2b, sandbox) == "paused"
    e2b.post(sandbox, "connect", {"timeout": 300}, 201)
    assert state_of(e2b, sandbox) == "running"
    assert daemon.exec(machine_of(sandbox), "cat /tmp/note")["stdout"] == "kept\n"
    e2b.post(sandbox, "timeout", {"timeout": 1}, 204)
    daemon.until(lambda: state_of(e2b, sandbox) == "paused")


def test_a_machine_resumed_by_its_owner_is_not_paused_again(e2b, daemon):
    sandbox = e2b.create(timeout=1, autoPause=True)
    machine = "/v1/machines/" + machine_of(sandbox)
    daemon.until(lambda: state_of(e2b, sandbox) == "paused" and not daemon.get(machine).get("expires"))
    daemon.post(machine + "/resume")
    time.sleep(2.5)  # two turns of the look that pauses
    assert state_of(e2b, sandbox) == "running"


def test_a_timeout_that_ends_without_a_daemon_pauses_at_its_start(e2b, daemon):
    sandbox = e2b.create(timeout=3, autoPause=True)
    daemon.kill()
    time.sleep(3)
    daemon.start()
    e2b.find(daemon)
    daemon.until(lambda: state_of(e2b, sandbox) == "paused")


@pytest.mark.parametrize("body", [{}, {"memory": False}])
def test_a_paused_sandbox_outlives_its_timeout(e2b, daemon, body):
    sandbox = e2b.create(timeout=3)
    e2b.post(sandbox, "pause", body, 204)
    time.sleep(4)
    assert state_of(e2b, sandbox) == "paused"
    e2b.post(sandbox, "connect", {"timeout": 1}, 201)
    daemon.until(lambda: not e2b.list()[0])


def test_traffic_with_the_right_token_resumes(e2b, daemon):
    sandbox = e2b.create(autoPause=True, autoResume={"enabled": True})
    assert e2b.info(sandbox)["lifecycle"] == {"onTimeout": "pause", "autoResume": True}
    e2b.post(sandbox, "pause", {}, 204)
    assert traffic(e2b, sandbox, "0" * 64) == 502 and state_of(e2b, sandbox) == "paused"
    assert traffic(e2b, sandbox) == 404 and state_of(e2b, sandbox) == "running"
    end = e2b.info(sandbox)["endAt"]
    assert traffic(e2b, sandbox) == 404 and e2b.info(sandbox)["endAt"] == end


def test_traffic_resumes_no_sandbox_that_kept_only_its_files(e2b, daemon):
    sandbox = e2b.create(autoPause=True, autoResume={"enabled": True})
    e2b.post(sandbox, "pause", {"memory": False}, 204)
    assert traffic(e2b, sandbox) == 502 and state_of(e2b, sandbox) == "paused"


def test_pause_that_a_crash_cuts_off_leaves_no_sandbox_without_an_end(e2b, daemon):
    """The daemon dies at another moment of the pause each time."""
    for i in range(4):
        sandbox = e2b.create(timeout=600)
        pausing = threading.Thread(target=attempt, args=(e2b, sandbox, "pause"))
        pausing.start()
        time.sleep(i * 0.01)
        daemon.kill()
        pausing.join()
        daemon.start()
        e2b.find(daemon)
        machine = daemon.get("/v1/machines/" + machine_of(sandbox))
        assert machine["state"] == "paused" or machine.get("expires"), machine
        e2b.post(sandbox, "connect", {"timeout": 600})
        machine = daemon.get("/v1/machines/" + machine_of(sandbox))
        assert machine["expires"] and machine["state"] == "running"
        e2b.post(sandbox, "timeout", {"timeout": 600}, 204)
        assert daemon.get("/v1/machines/" + machine_of(sandbox))["on_ttl"] == "destroy"


def attempt(e2b, sandbox, verb):
    try:
        e2b.post(sandbox, verb)
    except (OSError, http.client.HTTPException):
        pass  # the daemon was killed


def test_sandbox_whose_pause_was_cut_off_pauses_at_its_end(e2b, daemon):
    sandbox = e2b.create()
    daemon.patch("/v1/machines/" + machine_of(sandbox), {"on_ttl": "pause", "ttl": "2s"})  # the first half of a pause
    daemon.until(lambda: state_of(e2b, sandbox) == "paused")
    e2b.post(sandbox, "connect", {"timeout": 1}, 201)
    daemon.until(lambda: not e2b.list()[0])


def test_many_requests_resume_a_sandbox_once(e2b, daemon):
    sandbox = e2b.create(autoPause=True, autoResume={"enabled": True})
    e2b.post(sandbox, "pause", {}, 204)
    got = []
    threads = [threading.Thread(target=lambda: got.append(traffic(e2b, sandbox))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == [404] * 8 and state_of(e2b, sandbox) == "running"


def at_once(e2b, sandbox, *requests):
    """The statuses of requests that are sent at the same time, by verb."""
    path, got = f"/sandboxes/{sandbox['sandboxID']}", {}
    ways = [(verb, "DELETE" if verb == "kill" else "POST", path + ("" if verb == "kill" else "/" + verb), body) for verb, body in requests]
    threads = [threading.Thread(target=lambda w=w: got.setdefault(w[0], []).append(e2b.send(*w[1:])[0])) for w in ways]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return {verb: sorted(statuses) for verb, statuses in got.items()}


def test_kill_ends_a_sandbox_that_others_use(e2b, daemon):
    sandbox = e2b.create()
    got = at_once(e2b, sandbox, *4 * [("connect", {}), ("fork", {"count": 2}), ("kill", None)])
    assert got["kill"] == [204, 404, 404, 404] and set(got["connect"]) <= {200, 404} and set(got["fork"]) <= {201, 404}, got
    assert status_of(e2b.info, sandbox) == 404


def test_changes_wait_for_one_another(e2b, daemon):
    """The control: a pause of a sandbox that is paused is still refused, which clients take for that."""
    sandbox = e2b.create()
    for _ in range(2):
        got = at_once(e2b, sandbox, ("fork", {"count": 2}), ("snapshots", {}), ("pause", {}), *2 * [("timeout", {"timeout": 600})])
        assert got == {"fork": [201], "snapshots": [201], "pause": [204], "timeout": [204, 204]}, got
        assert state_of(e2b, sandbox) == "paused" and status_of(e2b.post, sandbox, "pause") == 409
        got = at_once(e2b, sandbox, *12 * [("connect", {})])
        assert set(got["connect"]) <= {200, 201} and 201 in got["connect"], got
        assert state_of(e2b, sandbox) == "running"


def test_a_quota_of_lifetimes_forbids_pausing_at_the_end(e2b, daemon):
    limited = E2b(e2b.url.geturl(), daemon.post("/v1/tokens", {"max_ttl": "10m"})["secret"])
    assert status_of(limited.create, autoPause=True) == 429
    assert status_of(limited.create, timeout=3600) == 429
    limited.kill(limited.create())
