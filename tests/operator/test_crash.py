"""kill -9 at every boundary of a run, then resume: no effect is repeated, and none is lost."""
import json
import os

import pytest

from carrel import BUILD, SOAK
from daemon import Daemon
from runs import Runs, call, finish, run, turns

PRELOAD = str(BUILD / "tests/operator/libkill-at.so")
STORY = turns([run("echo a >> log")],
              [call("edit", path="/home/user/log", edits=[{"old": "a", "new": "aa"}])],
              [call("write", path="/home/user/w", content="written")],
              [call("checkpoint", name="good")],
              [run("echo b >> log")],
              [call("rewind", to="good")],
              [call("read", path="/home/user/log"), call("read", path="/home/user/w")],
              [run("echo c >> log")],
              [finish("partial")])
STEP = 1 if SOAK else 6  # with CARREL_SOAK every boundary, otherwise every sixth from a place that moves


@pytest.fixture
def own():
    d = Daemon()
    yield d
    d.stop()


def effects(daemon, machine):
    """All that was done in the machine, by what is left of it."""
    steps = daemon.get(f"/v1/machines/{machine}/steps", limit=1000)["steps"]
    execs = daemon.get(f"/v1/machines/{machine}/execs")["execs"]
    return {"log": daemon.exec(machine, "cat log")["stdout"], "w": daemon.exec(machine, "cat w")["stdout"],
            "rewinds": [s["kind"] for s in steps].count("rewind"), "good": [s.get("name") for s in steps].count("good"),
            "execs": len(execs)}


EXPECTED = {"log": "aa\nc\n", "w": "written", "rewinds": 1, "good": 1, "execs": 3}


def count_boundaries(daemon):
    count = daemon.dir / "count"
    daemon.kill()
    daemon.start({"LD_PRELOAD": PRELOAD, "KILL_COUNT": str(count)})
    runs = Runs(daemon)
    machine = daemon.machine()
    view, _ = runs.play(STORY, machine=machine)
    assert view["status"] == "partial" and effects(daemon, machine) == EXPECTED
    daemon.kill()
    return int(count.read_text())


def until_killed(daemon, runs, run_id):
    """The last boundaries are not always there: a signature of the journal comes by the clock."""
    def over():
        try:
            return runs.show(run_id)["state"] == "ended"
        except OSError:
            return daemon.process.wait(60)

    daemon.until(over)
    if daemon.process.poll() is None:
        daemon.kill()


def walk(daemon, at):
    """One run that is killed there; where it stood when it was."""
    daemon.start({"LD_PRELOAD": PRELOAD, "KILL_AT": str(at)})
    runs = Runs(daemon)
    machine = daemon.machine()
    try:
        run_id = runs.start(STORY, machine=machine)["id"]
    except OSError:
        daemon.process.wait(60)
        run_id = None  # killed before it was acknowledged: then nothing has begun
    if run_id:
        until_killed(daemon, runs, run_id)
    daemon.start()
    found = [r["id"] for r in daemon.get("/v1/runs")["runs"] if r["machine"] == machine]
    assert run_id is None or found == [run_id]
    for run_id in found:
        view = runs.show(run_id)
        assert view["state"] in ("interrupted", "ended"), view
        if view["state"] == "interrupted":
            daemon.post(f"/v1/runs/{run_id}/resume")
            view = runs.wait(run_id, "ended")
        assert view["status"] == "partial", view
        assert effects(daemon, machine) == EXPECTED, (at, json.dumps(runs.transcript(run_id), indent=1))
    daemon.delete(f"/v1/machines/{machine}")
    daemon.kill()
    return bool(found)


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="the sanitizer's runtime must be preloaded first")
def test_a_kill_at_every_boundary(own):
    total = count_boundaries(own)
    assert total > 100
    acknowledged = [walk(own, at) for at in range(1 + os.getpid() % STEP, total, STEP)]
    own.start()
    assert sum(acknowledged) > len(acknowledged) * 9 // 10
    own.get("/v1/audit/verify")
