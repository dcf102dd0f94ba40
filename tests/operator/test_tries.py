"""Several tries at a task, and machines that `carrel do` makes itself."""
import json
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "image"))

from carrel import PROGRAM, ROOTLESS  # noqa: E402
from daemon import Refused  # noqa: E402
from runs import Runs, call, finish, run, to_the_end, turns  # noqa: E402
from trees import archive, directory, layout, small_tree  # noqa: E402


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
    status, out, err = carrel("--tries", 3, "--check", "grep -q good made", "--name", "t", "--json", "--turns", 20, "Make it.",
                              turns=to_the_end([run(BY_NAME)]))
    assert status == 0, (out, err)
    told = json.loads(out)["report"]
    assert [t["good"] for t in told["tries"]] == [False, True, True] and told["best"] == 1
    daemon.until(lambda: [m["id"] for m in daemon.machines()] == [told["tries"][1]["machine"]])  # the others, and the forks for checks, are gone


def test_sums_are_those_of_all_tries(runs, carrel, daemon):
    """Also of those that a cancel ended. What each try used is in its own report."""
    status, out, err = carrel("--tries", 2, "--json", "Make it.", turns=to_the_end([run("true"), run("true")]))
    assert status == 0, (out, err)
    whole = json.loads(out)
    told = whole["report"]
    each = [runs.show(t["run"])["report"] for t in told["tries"]]
    for name in ("turns", "calls", "tokens", "input_tokens", "output_tokens", "cost_micro", "checkpoints"):
        assert told[name] == sum(e[name] for e in each), name
    assert (told["calls"], told["turns"]) == (2 * 5, 2 * 4) and whole["calls"] == 10
    assert {t["tool"]: t["calls"] for t in told["tools"]} == {"exec": 6, "finish": 4}

    whole = runs.start(turns([run("true")], [run("sleep 100", yield_ms=50000)]), tries=2)["id"]
    daemon.until(lambda: len([r for r in daemon.get("/v1/runs")["runs"] if r["state"] == "running" and r["turns"] == 2]) == 2)
    daemon.post(f"/v1/runs/{whole}/cancel")
    told = runs.wait(whole, "ended")["report"]
    assert (told["turns"], told["calls"]) == (4, 4) and told["tokens"] > 0, told


def test_forks_of_a_machine_leave_it_as_it_is(carrel, daemon):
    m = daemon.machine()
    daemon.exec(m, "echo old > made")
    status, out, err = carrel("--tries", 2, "--check", "test $(cat made) = new; echo worse > made; test $(cat made) = worse", m,
                              "Make it new.", turns=to_the_end([run("cat made; echo new > made")]))
    assert status == 0 and "The best is try 1" in out, (out, err)
    assert daemon.exec(m, "cat made")["stdout"] == "old\n"
    best = daemon.until(lambda: len(daemon.machines()) == 2 and [x["id"] for x in daemon.machines() if x["id"] != m])
    assert daemon.exec(best[0], "cat made")["stdout"] == "new\n", "a check changes nothing"


def test_check_works_as_the_user_of_the_image(carrel, daemon, tmp_path):
    """The work that was copied for the check belongs to the user of its commands."""
    home = archive(directory("home"), directory("home/user", uid=77, gid=88))
    config = {"User": "77:88", "WorkingDir": "/home/user"}
    daemon.request("POST", "/v1/images", layout([small_tree(tmp_path).read_bytes(), home], config=config), name="owned")
    m = daemon.machine(image="owned")
    check = "set -e; for f in made .; do [ $(stat -c %u:%g $f) = 77:88 ]; done; echo more >>made; touch new"
    status, out, err = carrel("--tries", 1, "--check", check, m, "Make it.", turns=to_the_end([run("echo new >made")]))
    assert status == 0, (out, err)
    daemon.delete("/v1/images/owned")


def test_what_a_check_needs_comes_from_the_owners_side(carrel, daemon, tmp_path):
    """A try that forges the test does not pass by it, and the file is not in its machine."""
    m = daemon.machine()
    (tmp_path / "test.sh").write_text("#!/bin/sh\ngrep -q right made\n")
    forge = "mkdir t; printf '#!/bin/sh\\n' > t/test.sh; chmod 755 t/test.sh; echo wrong > made"
    words = ["--tries", 2, "--check", "t/test.sh", "--check-file", f"{tmp_path}/test.sh:/home/user/t/test.sh", m, "Make it."]
    status, out, err = carrel(*words, turns=to_the_end([run(forge)]))
    assert status == 1 and "No try succeeded" in out and "the check exited 1" in out, (out, err)
    status, out, err = carrel(*words, turns=to_the_end([run("echo right > made")]))
    assert status == 0, (out, err)
    best = re.search(r"The best is try \d, machine (m-\w+)", out)[1]
    assert daemon.exec(best, "ls")["stdout"] == "made\n"


FORGED = call("exec", argv=["cp", "--remove-destination", "/bin/true", "/bin/sh"], user="root")


@pytest.mark.parametrize("lent", [False, True])
def test_a_try_cannot_forge_the_programs_of_its_check(carrel, daemon, tmp_path, lent):
    """The second command of each try shows that the shell is forged where it has worked: the control."""
    (tmp_path / "p").mkdir()
    place = ["--dir", f"{tmp_path}/p:/home/user/p"] if lent else []
    forge = [[run("echo wrong > made; echo 'exit 0' > ~/.profile")], [FORGED], [call("exec", argv=["/bin/sh", "-c", "exit 3"])]]
    status, out, err = carrel("--tries", 2, "--check", "grep -q right made", *place, "--json", "Make it.", turns=to_the_end(*forge))
    report = json.loads(out)["report"]
    assert status == 1 and [t["good"] for t in report["tries"]] == [False, False], (out, err)
    best = report["tries"][report["best"]]
    assert daemon.exec(best["machine"], ["/bin/sh", "-c", "exit 3"])["exec"]["status"] == 0, "the attack works there"
    status, out, err = carrel("--tries", 2, "--check", "grep -q right made", *place, "--json", "Make it.",
                              turns=to_the_end([run("echo right > made")], [FORGED]))
    assert status == 0, "work that is good is so wherever it is checked"


BEATS = run("(while :; do echo x >> beats; sleep 0.01; done) > /dev/null 2>&1 < /dev/null & until test -s beats; do :; done")


def test_nothing_that_a_try_left_running_changes_what_was_judged(carrel, daemon, tmp_path):
    """What is frozen, checked and kept is the same. Without a check, the control, it goes on running."""
    project = tmp_path / "p"
    project.mkdir()
    words = ["--tries", 1, "--dir", f"{project}:/home/user/p", "--json", "Make it."]
    status, out, err = carrel(*words, turns=to_the_end([BEATS]))
    assert status == 0, (out, err)
    m = json.loads(out)["report"]["machine"]
    beats = daemon.exec(m, "cat beats")["stdout"]
    daemon.until(lambda: daemon.exec(m, "cat beats")["stdout"] != beats, 60)
    daemon.delete(f"/v1/machines/{m}")

    status, out, err = carrel("--check", "test -s beats", *words, turns=to_the_end([BEATS]))
    assert status == 0, (out, err)
    best = json.loads(out)["report"]["tries"][0]
    shipped = subprocess.run([PROGRAM, "ship", "-y", "--stat", best["changeset"], project], env=daemon.env, capture_output=True, text=True, timeout=60)
    assert shipped.returncode == 0, shipped
    assert daemon.exec(best["machine"], "cat beats")["stdout"] == (project / "beats").read_text()


def test_a_check_sees_what_a_try_made_and_removed(carrel, daemon):
    """Of a fork: work directories are the try's, whole; all else is as its source was."""
    m = daemon.machine()
    daemon.exec(m, "cd /home/user; mkdir -p old keep/.hidden /outbox; touch old/x keep/a .mine; ln -s a keep/link; echo v1 > /etc/version", user="root")
    daemon.exec(m, "chown -R user: /home/user /outbox", user="root")
    act = run("cd /home/user; rm -rf old; echo b > 'keep/a b'; chmod 750 'keep/a b'; touch keep/.hidden/y .theirs; echo out > /outbox/o; echo v2 > /etc/version", user="root")
    check = ("test ! -e old && test \"$(cat 'keep/a b')\" = b && test -x 'keep/a b' -a -e keep/.hidden/y -a -L keep/link && "
             "test $(cat /outbox/o) = out && test $(cat /etc/version) = v1 && test -e .mine -a ! -e .theirs && touch keep/new")
    status, out, err = carrel("--tries", 1, "--check", check, m, "Make it.", turns=to_the_end([act]))
    assert status == 0, (out, err)


def test_when_none_is_good(carrel, daemon):
    status, out, _ = carrel("--tries", 2, "--check", "false", "Try.", turns=to_the_end([run("true")]))
    assert status == 1 and "No try succeeded" in out
    daemon.until(lambda: len(daemon.machines()) == 1)


def test_budgets_are_of_all_tries_and_questions_are_declined(carrel, daemon):
    status, out, _ = carrel("--tries", 2, "--tokens", 40000, "--json", "Ask.", turns=turns(
        [call("ask", question="Which?")], [finish("partial")]))
    view = json.loads(out)
    tries = view["report"]["tries"]
    assert status == 1 and view["turns"] == 4 and view["tokens"] == 4 * 120
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
    report = json.loads(out)["report"]
    best = report["tries"][report["best"]]
    shipped = subprocess.run([PROGRAM, "ship", "-y", "--stat", best["changeset"], project], env=daemon.env, capture_output=True, text=True)
    assert shipped.returncode == 0, shipped
    assert (project / "f").read_text() == "new\n" and not (project / "dirt").exists()


@pytest.mark.skipif(ROOTLESS, reason="a host may enforce no memory limit without root")
def test_a_machine_is_made_as_new_makes_it(carrel, daemon, tmp_path):
    (tmp_path / "f").write_text("lent\n")
    status, out, err = carrel("-v", "--name", "mine", "--mem", "256M", "--dir", f"{tmp_path}:/home/user/p:ro", "--env", "A=b", "Look.",
                              turns=to_the_end([run("cat f; echo $A; touch x")]))
    assert status == 0 and "| lent" in out and "| b" in out and "Read-only" in out, (out, err)
    m = daemon.machines()[0]
    assert m["name"] == "mine" and m["limits"]["mem"] == 256 << 20


def test_tries_outlive_the_command_line_and_the_daemon(daemon):
    """Killed at the worst time, resumed: no machine, command or check is made twice, and the losers are gone."""
    runs, m = Runs(daemon), daemon.machine()
    story = to_the_end([run("echo x >> times; sleep 2; cat times; hostname > made", yield_ms=20000)])
    whole = runs.start(story, machine=m, tries=2, check="test $(wc -l < times) = 1", turns=20)["id"]
    daemon.until(lambda: len([r for r in daemon.get("/v1/runs")["runs"] if r["calls"] and r["state"] == "running"]) == 2)
    forks = {x["id"] for x in daemon.machines()} - {m}
    daemon.restart()
    assert runs.show(whole)["state"] == "interrupted"
    daemon.post(f"/v1/runs/{whole}/resume")
    view = runs.wait(whole, "ended")
    assert view["status"] == "done" and [t["good"] for t in view["report"]["tries"]] == [True, True], view
    assert view["machine"] in forks and {t["machine"] for t in view["report"]["tries"]} == forks
    daemon.until(lambda: {x["id"] for x in daemon.machines()} == {m, view["machine"]})
    events = [e["event"] for e in runs.transcript(whole)]
    assert events.count("try") == 4 and events.count("judged") == 2 and events.count("resume") == 1
    verbs = [json.loads(x)["verb"] for x in daemon.request("GET", "/v1/audit", raw=True, verb="run").decode().splitlines()]
    assert {"run.start", "run.resume", "run.end"} <= set(verbs)


# Tries that go on until somebody ends them.
ENDLESS = turns([run("sleep 600", yield_ms=50000, timeout_ms=700000)])


def both_at_work(daemon):
    return daemon.until(lambda: len([r for r in daemon.get("/v1/runs")["runs"] if r["calls"] and r["state"] == "running"]) == 2)


def all_cancelled(daemon, runs, whole, left):
    """The whole and its tries have ended, and of machines there are only these."""
    assert runs.wait(whole, "ended")["status"] == "cancelled"
    assert {m["id"] for m in daemon.machines()} == set(left)
    assert {r.get("status") for r in daemon.get("/v1/runs", limit=3)["runs"]} == {"cancelled"}


@pytest.mark.parametrize("forks", [True, False])
def test_tries_are_cancelled_together_and_their_machines_are_gone(runs, daemon, forks):
    source = [daemon.machine()] if forks else []
    whole = runs.start(ENDLESS, tries=2, **({"machine": source[0]} if forks else {}))["id"]
    both_at_work(daemon)
    daemon.post(f"/v1/runs/{whole}/cancel")
    all_cancelled(daemon, runs, whole, source)
    assert [e["event"] for e in runs.transcript(whole)][-2:] == ["cancel", "end"]
    with pytest.raises(Refused, match="its machines were deleted"):
        daemon.post(f"/v1/runs/{whole}/resume", {"comment": "Again."})


def test_cancelled_while_a_check_runs(runs, daemon):
    m = daemon.machine()
    whole = runs.start(to_the_end([run("true")]), machine=m, tries=2, check="sleep 600")["id"]
    daemon.until(lambda: len(daemon.machines()) == 4)  # both tries, and the fork in which the first is checked
    daemon.post(f"/v1/runs/{whole}/cancel")
    assert runs.wait(whole, "ended")["status"] == "cancelled" and [x["id"] for x in daemon.machines()] == [m]


def test_a_daemon_killed_after_the_cancel_and_before_its_end(daemon):
    """The line that it is to go is all that was written: who takes it up again ends it, without a model."""
    runs, m = Runs(daemon), daemon.machine()
    whole = runs.start(ENDLESS, machine=m, tries=2)["id"]
    both_at_work(daemon)
    daemon.kill()
    path = daemon.home / "runs" / f"{whole}.jsonl"
    path.write_text(path.read_text() + json.dumps({"event": "cancel", "time": 1}) + "\n")
    daemon.start()
    assert runs.show(whole)["state"] == "interrupted" and len(daemon.machines()) == 3
    daemon.post(f"/v1/runs/{whole}/resume")
    all_cancelled(daemon, runs, whole, [m])


def test_one_that_nobody_drives_is_cancelled_too(daemon):
    runs, m = Runs(daemon), daemon.machine()
    whole = runs.start(ENDLESS, machine=m, tries=2)["id"]
    both_at_work(daemon)
    daemon.restart()
    assert runs.show(whole)["state"] == "interrupted"
    daemon.post(f"/v1/runs/{whole}/cancel")
    all_cancelled(daemon, runs, whole, [m])


def test_a_try_whose_model_is_gone_interrupts_the_whole(runs, daemon):
    whole = runs.start(turns([run("true")]), tries=2)["id"]  # the script has no second turn
    assert ": interrupted: the rehearsal script has no turn" in runs.wait(whole, "interrupted")["reason"]


@pytest.mark.parametrize("body,words", [({"check": "true"}, "needs field 'tries'"), ({"machines": ["m-aaaaaaaaaaaa"]}, "needs field 'tries'"),
                                        ({"tries": 9}, "tries"), ({"tries": 2, "check_files": {"/a": "b"}}, "needs field 'check'"),
                                        ({"tries": 2, "check": "true", "check_files": {"a": "b"}}, "not an absolute path"),
                                        ({"tries": 2, "check": "true", "check_files": {"/a": "b" * ((1 << 20) + 1)}}, "larger than 1024 KiB"), ({"tries": 2, "machines": ["a"]}, "one machine per try"),
                                        ({"tries": 1, "machines": ["m-aaaaaaaaaaaa"]}, "m-aaaaaaaaaaaa")])
def test_requests_that_make_no_sense(runs, daemon, body, words):
    with pytest.raises(Refused) as e:
        runs.start(turns([finish()]), **body)
    assert words in str(e.value) and daemon.machines() == []


def test_one_machine_is_not_two_tries(runs, daemon):
    """The loser's is removed: that would be the winner's. Its name and its id are the same machine; two, the control, are two."""
    m, other = daemon.machine(name="twice"), daemon.machine()
    with pytest.raises(Refused, match=f"lists machine '{m}' twice"):
        runs.start(turns([finish("partial")]), tries=2, machines=[m, "twice"])
    assert {x["id"] for x in daemon.machines()} == {m, other}
    view = runs.wait(runs.start(turns([finish("partial")]), tries=2, machines=[m, other])["id"], "ended")
    assert view["machine"] in (m, other)
    daemon.until(lambda: [x["id"] for x in daemon.machines()] == [view["machine"]])


def test_every_option_of_new_is_one_of_do(carrel):
    def options(command):
        text = subprocess.run([PROGRAM, command, "--help"], capture_output=True, text=True).stdout
        return set(re.findall(r"--([a-z-]+)", "\n".join(line[:40] for line in text.splitlines())))
    assert options("new") - {"json", "help"} <= options("do") and "steps" in options("do")


def test_a_machine_is_made_with_a_repository_and_more(carrel, daemon, tmp_path):
    repo = tmp_path / "repo"
    for words in (["init", "-q", "-b", "main", repo], ["-C", repo, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run(["git", *map(str, words)], check=True)
    status, out, err = carrel("-v", "--repo", f"{repo}:/home/user/r", "--steps", "manual", "--meta", "a=b", "--idle", "1h", "Look.",
                              turns=to_the_end([run("git log --format=%s")]))
    assert status == 0 and "| one" in out, (out, err)
    m = daemon.machines()[0]
    assert m["metadata"] == {"a": "b"} and m["steps"] == "manual"


@pytest.mark.parametrize("args,words", [
    (["--tries", "9", "x"], "at most 8"), (["--check", "true", "x"], "--check requires --tries"),
    (["--tries", "2", "--check-file", "a:/b", "x"], "--check-file requires --check"),
    (["--tries", "2", "--check", "true", "--check-file", "a", "x"], "--check-file a: no path in the machine given"),
    (["--tries", "2", "--check", "true", "--check-file", "/nowhere:/a", "x"], "/nowhere"),
    (["--mem", "1G", "work", "x"], "options of a new machine"), (["--dir", "/nowhere", "x"], "/nowhere")])
def test_what_does_not_go_together(carrel, daemon, args, words):
    status, _, err = carrel(*args, turns=turns([finish()]))
    assert status == 125 and words in err and daemon.machines() == []
