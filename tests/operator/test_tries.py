"""Several tries at a task, and machines that `carrel do` makes itself."""
import json
import subprocess

import pytest

from carrel import PROGRAM
from runs import call, finish, run, to_the_end, turns


@pytest.fixture
def carrel(daemon, tmp_path):
    def ran(*args, turns):
        script = tmp_path / "script.json"
        script.write_text(json.dumps({"turns": turns}))
        done = subprocess.run([PROGRAM, "do", "--provider", "rehearsal", "--script", script, *map(str, args)], env=daemon.env,
                              text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        return done.returncode, done.stdout, done.stderr
    return ran


# Which try it is, is told by the machine's name: the second and third are good, the third did more than it had to.
BY_NAME = "case $(hostname) in *-1) echo bad;; *) echo good;; esac > made; case $(hostname) in *-3) seq 9 > more;; esac"


def test_the_smallest_of_the_good_ones_stays(carrel, daemon):
    status, out, err = carrel("--tries", 3, "--check", "grep -q good made", "--name", "t", "--json", "--steps", 20, "Make it.",
                              turns=to_the_end([run(BY_NAME)]))
    assert status == 0, (out, err)
    told = json.loads(out)
    assert [t["good"] for t in told["tries"]] == [False, True, True] and told["best"] == 1
    assert [m["id"] for m in daemon.machines()] == [told["tries"][1]["machine"]], "the others, and the forks for checks, are gone"


def test_forks_of_a_machine_leave_it_as_it_is(carrel, daemon):
    m = daemon.machine()
    daemon.exec(m, "echo old > made")
    status, out, err = carrel("--tries", 2, "--check", "test $(cat made) = new; echo worse > made; test $(cat made) = worse", m,
                              "Make it new.", turns=to_the_end([run("cat made; echo new > made")]))
    assert status == 0 and "The best is try 1" in out, (out, err)
    assert daemon.exec(m, "cat made")["stdout"] == "old\n"
    best = [x["id"] for x in daemon.machines() if x["id"] != m]
    assert len(best) == 1 and daemon.exec(best[0], "cat made")["stdout"] == "new\n", "a check changes nothing"


def test_when_none_is_good(carrel, daemon):
    status, out, _ = carrel("--tries", 2, "--check", "false", "Try.", turns=to_the_end([run("true")]))
    assert status == 1 and "None is good" in out and len(daemon.machines()) == 1


def test_budgets_are_of_all_tries_and_questions_are_declined(carrel, daemon):
    status, out, _ = carrel("--tries", 2, "--tokens", 40000, "--json", "Ask.", turns=turns(
        [call("ask", question="Which?")], [finish("partial")]))
    tries = json.loads(out)["tries"]
    assert status == 1 and [t["view"]["calls"] for t in tries] == [2, 2]
    for t in tries:
        text = daemon.request("GET", f"/v1/runs/{t['run']}/transcript", raw=True).decode()
        assert json.loads(text.splitlines()[0])["tokens"] == 20000 and "decline" in text


def test_a_directory_is_lent_to_each_and_frozen_before_its_check(carrel, daemon, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "f").write_text("old\n")
    status, out, err = carrel("--tries", 2, "--dir", f"{project}:/home/user/p", "--check", "grep new f && touch dirt", "--json",
                              "Make it new.", turns=to_the_end([run("echo new > f")]))
    assert status == 0, (out, err)
    best = json.loads(out)["tries"][json.loads(out)["best"]]
    shipped = subprocess.run([PROGRAM, "ship", "-y", "--stat", best["changeset"], project], env=daemon.env, capture_output=True, text=True)
    assert shipped.returncode == 0, shipped
    assert (project / "f").read_text() == "new\n" and not (project / "dirt").exists()


def test_a_machine_is_made_as_new_makes_it(carrel, daemon, tmp_path):
    (tmp_path / "f").write_text("lent\n")
    status, out, err = carrel("-v", "--name", "mine", "--mem", "256M", "--dir", f"{tmp_path}:/home/user/p:ro", "--env", "A=b", "Look.",
                              turns=to_the_end([run("cat f; echo $A; touch x")]))
    assert status == 0 and "| lent" in out and "| b" in out and "Read-only" in out, (out, err)
    m = daemon.machines()[0]
    assert m["name"] == "mine" and m["limits"]["mem"] == 256 << 20


@pytest.mark.parametrize("args,words", [
    (["--tries", "9", "x"], "at most 8"), (["--check", "true", "x"], "--check needs --tries"),
    (["--mem", "1G", "work", "x"], "options of a new machine"), (["--dir", "/nowhere", "x"], "/nowhere")])
def test_what_does_not_go_together(carrel, daemon, args, words):
    status, _, err = carrel(*args, turns=turns([finish()]))
    assert status == 125 and words in err and daemon.machines() == []
