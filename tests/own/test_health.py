"""`carrel health`: what an owner must know about a machine, and an event when it turns bad."""
import json
import subprocess

from carrel import PROGRAM
from daemon import stopped


def health(daemon, machine):
    view = daemon.get(f"/v1/machines/{machine}/health")
    assert view["machine"] == machine and [c["name"] for c in view["checks"]] == ["guest", "disk", "files", "memory", "units", "upkeep", "backup"]
    return view["state"], {c["name"]: (c["state"], c["text"]) for c in view["checks"]}


def events(daemon, machine):
    lines = subprocess.run([PROGRAM, "events", "--past", "--json", machine], env=daemon.env, capture_output=True, text=True, timeout=60).stdout
    return [e for e in map(json.loads, lines.splitlines()) if "healthy" in e["type"]]


def test_a_good_machine_is_good(daemon, box):
    state, checks = health(daemon, box)
    assert state == "good" and checks["guest"][1].startswith("it answered in ")
    assert checks["disk"][0] == "good" and " of 1G are in use" in checks["disk"][1]
    assert events(daemon, box) == []
    done = subprocess.run([PROGRAM, "health", "lab"], env=daemon.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.splitlines()[0].split()[:2] == ["guest", "good"]


def test_a_full_disk_is_bad_and_an_event_says_so_once(daemon):
    m = daemon.machine(limits={"disk": 64 << 20}, steps="manual")
    assert health(daemon, m)[0] == "good"
    daemon.exec(m, "head -c 62M /dev/zero >big")
    for _ in range(2):
        state, checks = health(daemon, m)
        assert (state, checks["disk"][0]) == ("bad", "bad") and "of 64M are in use" in checks["disk"][1]
    done = subprocess.run([PROGRAM, "health", "--json", m], env=daemon.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and json.loads(done.stdout)["state"] == "bad"
    daemon.exec(m, "rm big")
    assert health(daemon, m)[0] == "good"
    told = events(daemon, m)
    assert [e["type"] for e in told] == ["machine.unhealthy", "machine.healthy"]
    assert "of 64M are in use" in json.dumps(told[0])
    daemon.delete(f"/v1/machines/{m}")


def test_what_rests_is_not_asked(daemon):
    m = daemon.machine()
    daemon.post(f"/v1/machines/{m}/pause")
    state, checks = health(daemon, m)
    assert state == "good" and checks["guest"] == ("unknown", "the machine is paused")
    daemon.post(f"/v1/machines/{m}/resume")
    assert health(daemon, m)[1]["guest"][0] == "good"
    daemon.delete(f"/v1/machines/{m}")


def test_a_guest_that_does_not_answer_is_bad(daemon, box):
    with stopped(daemon.host.guests()):
        daemon.until(lambda: health(daemon, box)[0] == "bad")  # a signal may take a moment to stop it
        assert health(daemon, box)[1]["guest"] == ("bad", "it did not answer within 5 seconds")
    assert daemon.exec(box, "echo on")["stdout"] == "on\n"
    assert health(daemon, box)[1]["guest"][0] == "good"
    assert [e["type"] for e in events(daemon, box)][-2:] == ["machine.unhealthy", "machine.healthy"]


def test_a_machine_that_is_deleted_meanwhile_is_no_harm(daemon):
    m = daemon.machine()
    with stopped(daemon.host.guests()):
        asked = subprocess.Popen([PROGRAM, "health", m], env=daemon.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        removed = subprocess.Popen([PROGRAM, "rm", m], env=daemon.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, _ = asked.communicate(timeout=60)
        assert asked.returncode in (1, 125) or "the machine is ending" in out, out
    removed.communicate(timeout=60)
    assert daemon.machine()
