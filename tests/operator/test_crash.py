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
# A sub-agent works on a fork and brings a directory back.
SPAWN = [{"after": "You are a sub-agent", "calls": [run("echo x >> work/c; echo counted")]},
         {"after": "counted", "calls": [finish("partial", summary="Once.")]},
         {"turn": 0, "calls": [run("echo a >> log; mkdir work")]},
         {"turn": 1, "calls": [call("spawn", task="Count.", bring="/home/user/work")]},
         {"turn": 2, "calls": [run("echo b >> log")]},
         {"turn": 3, "calls": [finish("partial")]}]
# Two tries; each says with its file that it was made once, and the check that it was.
TRIES = turns([run("echo x >> times")], [finish("partial")])


@pytest.fixture
def own():
    d = Daemon()
    yield d
    d.stop()


def alone(daemon, count):
    """So many machines, once those that are of no use any more have gone."""
    return daemon.until(lambda: len(daemon.machines()) == count and [m["id"] for m in daemon.machines()])


def read(daemon, machine, path):
    return daemon.exec(machine, f"cat {path}")["stdout"]


def calls_effects(daemon, machine, view):
    """All that was done in the machine, by what is left of it."""
    steps = daemon.get(f"/v1/machines/{machine}/steps", limit=1000)["steps"]
    execs = daemon.get(f"/v1/machines/{machine}/execs")["execs"]
    return {"log": read(daemon, machine, "log"), "w": read(daemon, machine, "w"),
            "rewinds": [s["kind"] for s in steps].count("rewind"), "good": [s.get("name") for s in steps].count("good"),
            "execs": len(execs)}


def spawn_effects(daemon, machine, view):
    alone(daemon, 1)
    return {"log": read(daemon, machine, "log"), "c": read(daemon, machine, "work/c")}


def tries_effects(daemon, machine, view):
    left = alone(daemon, 2)
    tries = view["report"]["tries"]
    return {"good": [t["good"] for t in tries], "best": view["machine"] in left, "times": read(daemon, view["machine"], "times"),
            "source": read(daemon, machine, "times")}


# What is asked for, the request's other fields, what was done, what it must be, and how many boundaries are taken in the short form.
STORIES = {
    "calls": (STORY, {}, calls_effects, {"log": "aa\nc\n", "w": "written", "rewinds": 1, "good": 1, "execs": 3}, 12),
    "spawn": (SPAWN, {}, spawn_effects, {"log": "a\nb\n", "c": "x\n"}, 4),
    "tries": (TRIES, {"tries": 2, "check": "test $(wc -l < times) = 1"}, tries_effects,
              {"good": [True, True], "best": True, "times": "x\n", "source": ""}, 4),
}


def start(daemon, story):
    machine = daemon.machine()
    script, fields, *_ = STORIES[story]
    return machine, lambda: Runs(daemon).start(script, machine=machine, **fields)["id"]


def is_done(view):
    return view["status"] in ("partial", "done")


def count_boundaries(daemon, story):
    count = daemon.dir / "count"
    daemon.kill()
    daemon.start({"LD_PRELOAD": PRELOAD, "KILL_COUNT": str(count)})
    machine, begin = start(daemon, story)
    view = Runs(daemon).wait(begin())
    _, _, effects, expected, _ = STORIES[story]
    assert is_done(view) and effects(daemon, machine, view) == expected
    clear(daemon)
    daemon.kill()
    return int(count.read_text())


def clear(daemon):
    for m in daemon.machines():
        daemon.delete(f"/v1/machines/{m['id']}")


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


def walk(daemon, story, at):
    """One run that is killed there and taken up again: was it acknowledged, or had it begun?"""
    daemon.start({"LD_PRELOAD": PRELOAD, "KILL_AT": str(at)})
    runs = Runs(daemon)
    before = {r["id"] for r in daemon.get("/v1/runs", limit=200)["runs"]}
    machine, begin = start(daemon, story)
    try:
        run_id = begin()
    except OSError:
        daemon.process.wait(60)
        run_id = None  # killed before it was acknowledged: then nothing has begun
    if run_id:
        until_killed(daemon, runs, run_id)
    daemon.start()
    mine = [r["id"] for r in daemon.get("/v1/runs", limit=200)["runs"] if r["id"] not in before]
    found = [r for r in mine if "parent" not in runs.transcript(r)[0]]
    assert run_id is None or found == [run_id]
    for run_id in found:
        view = runs.show(run_id)
        assert view["state"] in ("interrupted", "ended"), view
        if view["state"] == "interrupted":
            daemon.post(f"/v1/runs/{run_id}/resume")
            view = runs.wait(run_id)
        _, _, effects, expected, _ = STORIES[story]
        told = (story, at, json.dumps(runs.transcript(run_id), indent=1))
        assert is_done(view), told
        assert effects(daemon, machine, view) == expected, told
    clear(daemon)
    daemon.kill()
    return bool(found)


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="the sanitizer's runtime must be preloaded first")
@pytest.mark.parametrize("story", STORIES)
def test_a_kill_at_every_boundary(own, story):
    """With CARREL_SOAK at every one, otherwise at some, from a place that moves."""
    total = count_boundaries(own, story)
    assert total > 80
    step = 1 if SOAK else max(1, total // STORIES[story][-1])
    acknowledged = [walk(own, story, at) for at in range(1 + os.getpid() % step, total, step)]
    own.start()
    # A few boundaries come before the run is acknowledged; of four places, two may be among them by chance.
    assert 2 * sum(acknowledged) >= len(acknowledged)
    own.get("/v1/audit/verify")
