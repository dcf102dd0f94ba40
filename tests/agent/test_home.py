"""The home of an agent: a volume for each agent and directory; and a machine that is made again with the present files."""
import json
import pathlib
import sys

import pytest

from carrel import ROOTLESS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "image"))
from trees import small_tree  # noqa: E402

needs_volumes = pytest.mark.skipif(ROOTLESS, reason="rootless: volumes require root, so the home is in the machine")


def once(agents, where, task, *words, agent="homely"):
    done = agents.carrel("agent", agent, "-p", task, *words, cwd=where)
    assert done.returncode == 0, done
    return done.stdout


def machines(agents):
    return json.loads(agents.carrel("agent", "ls", "--json").stdout)["machines"]


def delete_machine(agents):
    (m,) = machines(agents)
    agents.delete(f"/v1/machines/{m['id']}")


@needs_volumes
def test_history_outlives_the_machine(agents, folder):
    assert once(agents, folder, "first") == ""
    delete_machine(agents)
    assert once(agents, folder, "second") == "first\n"
    delete_machine(agents)
    t = agents.terminal("agent", "homely", "--resume", cwd=folder)  # also without a machine
    t.expect(b"before: first\r\nsecond\r\n")
    t.type(b"\n")
    t.close()


@needs_volumes
def test_home_does_not_reach_another_project_or_agent(agents, folder, tmp_path):
    once(agents, folder, "of the first")
    twin = tmp_path / "elsewhere" / folder.name
    twin.mkdir(parents=True)
    (twin / "old.txt").write_text("one\n")
    assert once(agents, twin, "of the twin") == ""
    assert once(agents, folder, "x", agent="other") == ""
    assert once(agents, folder, "y") == "of the first\n"
    assert len(agents.get("/v1/volumes")["volumes"]) == 3


@needs_volumes
def test_discard_says_that_the_history_stays(agents, folder):
    t = agents.terminal("agent", "fake", cwd=folder)
    t.expect(b"begun")
    t.type(b"\n")
    t.expect(b"what happens to the changes?")
    t.type(b"x\n")
    assert b"The history of the agent stays in volume home-fake-plain-" in t.expect(b"[y/N]")
    t.type(b"y\n")
    assert t.close()[0] == 0
    assert machines(agents) == [] and len(agents.get("/v1/volumes")["volumes"]) == 1


@pytest.mark.skipif(not ROOTLESS, reason="root has volumes")
def test_home_is_in_the_machine_without_volumes(agents, folder):
    once(agents, folder, "first")
    assert once(agents, folder, "second") == "first\n"
    assert agents.get("/v1/volumes")["volumes"] == []


def test_home_of_an_agent_with_an_image_is_in_the_machine(agents, folder, tmp_path):
    """A volume would hide what the image has there."""
    agents.request("POST", "/v1/images", small_tree(tmp_path).read_bytes(), name="small")
    try:
        done = agents.carrel("agent", "only-once", "-p", "x", "--image", "small", cwd=folder)
        assert done.stdout == "one\n", done
        assert agents.get("/v1/volumes")["volumes"] == []
    finally:
        agents.clear()
        agents.delete("/v1/images/small")


# ---- --fresh ----

def test_fresh_makes_a_machine_with_the_present_files(agents, repo):
    (repo / "untracked.txt").unlink()
    once(agents, repo, "x", agent="only-once")
    (before,) = machines(agents)
    (repo / "old.txt").write_text("two\n")
    assert once(agents, repo, "x", agent="only-once") == "one\n"
    assert once(agents, repo, "x", "--fresh", agent="only-once") == "two\n"
    (after,) = machines(agents)
    assert after["id"] != before["id"]


def test_fresh_without_a_machine_makes_one(agents, folder):
    assert once(agents, folder, "x", "--fresh", agent="only-once") == "one\n"


def test_fresh_does_not_delete_changes_without_a_yes(agents, folder):
    agents.carrel("agent", "fake", "-p", "x", cwd=folder)
    (before,) = machines(agents)
    done = agents.carrel("agent", "fake", "-p", "x", "--fresh", cwd=folder)
    assert done.returncode == 125 and "has changes, so it was not deleted" in done.stderr, done
    t = agents.terminal("agent", "fake", "--fresh", cwd=folder)
    assert b"has 1 change, which may not be shipped" in t.expect(b"[y/N]")
    t.type(b"n\n")
    assert t.close()[0] == 125
    assert [m["id"] for m in machines(agents)] == [before["id"]]
    assert agents.carrel("agent", "fake", "-p", "x", "--fresh", "-y", cwd=folder).returncode == 3
    assert [m["id"] for m in machines(agents)] != [before["id"]]


def test_fresh_does_not_end_an_agent_that_runs(agents, folder):
    t = agents.terminal("agent", "fake", cwd=folder)
    t.expect(b"begun")
    t.type(b"\x1d\x1d\x1d")
    t.close()
    done = agents.carrel("agent", "fake", "-p", "x", "--fresh", "-y", cwd=folder)
    assert done.returncode == 125 and "agent 'fake' is running in machine" in done.stderr, done
