"""Sub-agents: runs within a run, on forks, with what their parent has left."""
import json

import pytest

from runs import call, finish, results, run

CHILD = "You are a sub-agent"


def story(child, parent, **spawn):
    """Turns of the child first: it is told apart by its card, then by what came of its calls."""
    first, *rest = child
    return [{"after": CHILD, "calls": first}, *rest,
            {"turn": 0, "calls": [call("spawn", task="Count the lines.", **spawn)]}, *parent]


LEFT = {"calls": [finish("partial")]}


@pytest.fixture
def machine(daemon):
    m = daemon.machine()
    daemon.exec(m, "mkdir work; seq 7 > work/data")
    return m


def test_a_sub_agent_works_on_a_fork_and_reports(runs, daemon, machine):
    child = [[run("wc -l < work/data > work/count; echo counted; touch elsewhere")],
             {"after": "counted", "calls": [finish("partial", summary="Seven.", open_issues=["nothing"])]}]
    view, t = runs.play(story(child, [LEFT], bring="/home/user/work"), machine=machine)
    out = json.loads(results(t)[0]["text"])
    assert (out["status"], out["summary"], out["open_issues"], out["brought"]) == ("partial", "Seven.", ["nothing"], "all of it")
    assert daemon.exec(machine, "cat work/count; ls")["stdout"] == "7\nwork\n", "what is not brought stays behind"
    daemon.until(lambda: [m["id"] for m in daemon.machines()] == [machine])  # its fork is gone
    theirs = runs.show(out["run"])
    assert theirs["machine"] != machine and theirs["turns"] == 2
    assert view["tokens"] == 120 * 4, "what it spent is its parent's"


def test_it_has_no_children_and_no_more_than_is_left(runs, daemon, machine):
    child = [[call("spawn", task="More.")], {"after": "There is no tool 'spawn'", "calls": [run("echo 1")]},
             {"after": "1\\n", "calls": [run("echo 2")]}, {"after": "2\\n", "calls": [run("echo 1")]}]
    view, t = runs.play(story([*child], [LEFT], turns=30), machine=machine, turns=6, timeout="60s")
    out = json.loads(results(t)[0]["text"])
    theirs = runs.transcript(out["run"])
    assert theirs[0]["turns"] == 5 and theirs[0]["parent"].startswith(view["id"]) and theirs[0]["timeout_ms"] <= 60000
    assert out["status"] in ("budget", "partial")
    assert view["status"] == "budget" and "budget of turns" in view["report"]["reason"], "its turns were the parent's"


def test_one_that_is_cancelled_with_its_parent(runs, daemon, machine):
    child = [[run("echo begun; sleep 600", yield_ms=50000, timeout_ms=700000)]]
    r = runs.start(story(child, [LEFT]), machine=machine)["id"]
    other = daemon.until(lambda: [x["id"] for x in daemon.get("/v1/runs")["runs"] if x["id"] != r and x["state"] == "running"])[0]
    daemon.post(f"/v1/runs/{r}/cancel")
    assert runs.show(r)["status"] == "cancelled" and runs.show(other)["status"] == "cancelled"
    daemon.until(lambda: [m["id"] for m in daemon.machines()] == [machine])


def test_one_whose_parent_is_cancelled_when_nobody_drives_them(runs, daemon, machine):
    child = [[run("echo begun; sleep 600", yield_ms=50000, timeout_ms=700000)]]
    r = runs.start(story(child, [LEFT]), machine=machine)["id"]
    other = daemon.until(lambda: [x["id"] for x in daemon.get("/v1/runs")["runs"] if x["id"] != r and x["calls"]])[0]
    daemon.restart()
    assert daemon.post(f"/v1/runs/{r}/cancel")["status"] == "cancelled" and runs.show(other)["status"] == "cancelled"
    daemon.until(lambda: [m["id"] for m in daemon.machines()] == [machine])


def test_a_restart_takes_both_up_again(runs, daemon, machine):
    child = [[run("echo begun >> begun; sleep 2; echo slept; cat begun", yield_ms=20000)],
             {"after": "slept", "calls": [finish("partial", summary="Once.")]}]
    r = runs.start(story(child, [LEFT], bring="/home/user"), machine=machine)["id"]
    daemon.until(lambda: len([x for x in daemon.get("/v1/runs")["runs"] if x["state"] == "running" and x["calls"]]) == 2)
    daemon.restart()
    assert runs.show(r)["state"] == "interrupted"
    daemon.post(f"/v1/runs/{r}/resume")
    view = runs.wait(r, "ended")
    out = json.loads(results(runs.transcript(r))[0]["text"])
    assert (view["status"], out["summary"]) == ("partial", "Once."), out
    assert daemon.exec(machine, "cat begun")["stdout"] == "begun\n", "nothing was done twice"
    daemon.until(lambda: [m["id"] for m in daemon.machines()] == [machine])


def test_bringing_what_is_not_there_says_so(runs, machine):
    view, t = runs.play(story([[finish("partial")]], [LEFT], bring="/nowhere"), machine=machine)
    out = json.loads(results(t)[0]["text"])
    assert out["status"] == "partial" and "/nowhere" in out["brought"]


def test_bringing_more_than_there_is_room_for_ends(runs, daemon, machine):
    """A file that takes a moment to make and an age to read."""
    child = [[run("truncate -s 8T work/endless; echo made")], {"after": "made", "calls": [finish("partial")]}]
    view, t = runs.play(story(child, [LEFT], bring="/home/user/work"), machine=machine)
    assert json.loads(results(t)[0]["text"])["brought"] == "the directory in argument 'bring' is larger than 64 MiB"
    assert daemon.exec(machine, "ls work")["stdout"] == "data\n"
