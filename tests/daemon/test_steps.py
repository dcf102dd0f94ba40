"""Steps, rewind and fork through the API of a real daemon."""
import contextlib
import hashlib
import signal
import sqlite3
import subprocess
import threading
import time

import pytest
from carrel import PROGRAM, ROOTLESS, comm, signal_all, spawner_pids
from daemon import Refused, stopped
from patience import PATIENCE, clock


class Box:
    def __init__(self, daemon, **options):
        self.d = daemon
        self.id = daemon.post("/v1/machines", options)["id"]

    @property
    def url(self):
        return f"/v1/machines/{self.id}"

    def sh(self, command, **options):
        r = self.d.post(self.url + "/execs", {"command": command, **options})
        if options.get("background"):
            return None
        return r["stdout"] if r["exec"]["status"] == 0 else r["exec"]["status"]

    def steps(self, **query):
        """Finished steps, oldest first."""
        return self.d.get(self.url + "/steps", **query)["steps"][::-1]

    def settled(self, count):
        """So many steps, once they are written down."""
        end = clock() + 10
        while len(self.steps()) < count:
            assert clock() < end, self.steps()
            time.sleep(0.005)
        return self.steps()

    def snap(self, name=None):
        return self.d.post(self.url + "/steps", {"name": name} if name else {})

    def rewind(self, step, **options):
        return self.d.post(self.url + "/rewind", {"step": str(step), **options})

    def fork(self, **options):
        return [Fork(self.d, m["id"], m) for m in self.d.post(self.url + "/fork", options)["machines"]]


class Fork(Box):
    def __init__(self, daemon, machine, view):
        self.d, self.id, self.view = daemon, machine, view


def refused(code, call, *args, **kw):
    with pytest.raises(Refused) as e:
        call(*args, **kw)
    assert e.value.code == code, e.value
    return e.value.error["message"]


def test_a_step_does_not_cut_a_download_short(daemon):
    b = Box(daemon)
    b.sh("seq 4000000 >f; sha256sum <f >sum")
    inode = b.sh("stat -c %i f")
    c = daemon.connect()
    c.request("GET", b.url + "/files?path=/home/user/f")
    answer = c.getresponse()
    digest = hashlib.sha256(answer.read(100000))
    b.sh("chmod 600 f")  # copied up, and with the step that follows it has another inode
    b.settled(3)
    while piece := answer.read(1 << 20):
        digest.update(piece)
    c.close()
    assert digest.hexdigest() == b.sh("cat sum").split()[0]
    assert b.sh("stat -c %i f") != inode


def test_every_command_is_a_step_that_can_be_returned_to(daemon):
    b = Box(daemon)
    for i in range(6):
        b.sh(f"echo {i} > f; echo {i} > f{i}")
    steps = b.settled(6)
    assert [s["number"] for s in steps] == [1, 2, 3, 4, 5, 6]
    assert all(s["restorable"] and s["kind"] == "exec" and s["status"] == 0 for s in steps)
    assert "echo 3" in steps[3]["what"] and steps[3]["exec"].startswith("x-")
    b.rewind(3)
    assert b.sh("cat f; ls") == "2\nf\nf0\nf1\nf2\n"


def test_a_rewind_can_be_undone(daemon):
    b = Box(daemon)
    b.sh("echo one > f")
    b.sh("echo two > f")
    back = b.rewind(1)
    assert back["kind"] == "rewind" and back["restorable"]
    assert b.sh("cat f") == "one\n"
    b.rewind(2)
    assert b.sh("cat f") == "two\n"
    b.sh("echo three > f", background=True)


def test_a_rewind_to_the_start_brings_back_the_machine_as_created(daemon):
    b = Box(daemon)
    fresh = b.sh("ls -A; cat /etc/hostname")
    b.rewind("start")
    b.sh("echo one > f; rm -r /home/user/.profile; echo changed > /tmp/changed")
    fork = b.fork()[0]
    back = b.rewind("start")
    assert (back["kind"], back["what"]) == ("rewind", "to start")
    assert b.sh("ls -A; cat /etc/hostname") == fresh and b.sh("ls /tmp/changed") == 2
    b.rewind([s for s in b.steps() if s["kind"] == "exec" and "one > f" in s["what"]][0]["number"])
    assert b.sh("cat f /tmp/changed") == "one\nchanged\n"
    fork.sh("echo two > f")
    fork.rewind("start")
    assert fork.sh("cat f") == "one\n"  # a fork was created with it


def test_what_was_not_a_step_yet_is_kept_by_a_rewind(daemon):
    b = Box(daemon, steps="manual")
    b.sh("echo one > f")
    first = b.snap("first")
    assert first["name"] == "first" and first["number"] == 1
    b.sh("echo two > f")
    b.rewind("first")
    kept = [s for s in b.steps() if s["kind"] == "kept"]
    assert len(kept) == 1 and kept[0]["restorable"]
    assert b.sh("cat f") == "one\n"
    b.rewind(kept[0]["id"])
    assert b.sh("cat f") == "two\n"


def test_nothing_changed_is_no_new_layer(daemon):
    b = Box(daemon)
    b.sh("echo x > f")
    b.sh("cat f")
    b.sh("ls /")
    layers = [s["layers"] for s in b.settled(3)]
    assert layers == [1, 1, 1]
    b.rewind(3)
    assert b.sh("cat f") == "x\n"


def test_file_changes_are_steps_too(daemon):
    b = Box(daemon)
    daemon.put(b.url + "/files", b"hello", path="/home/user/note")
    b.settled(1)
    daemon.delete(b.url + "/files", path="/home/user/note")
    steps = b.settled(2)
    assert [s["kind"] for s in steps] == ["file", "file"] and "note" in steps[0]["what"]
    b.rewind(1)
    assert b.sh("cat note") == "hello"


def test_while_something_runs_a_step_says_why_it_is_no_point(daemon):
    b = Box(daemon)
    long = daemon.post(b.url + "/execs", {"command": "echo begun; sleep 60", "background": True})
    assert b.sh("echo x > f; cat f") == "x\n"
    step = b.settled(1)[0]
    assert not step["restorable"] and "running" in step["reason"]
    assert "no restore point" in refused("unsupported", b.rewind, 1)
    daemon.delete(b.url + f"/execs/{long['id']}")
    last = b.settled(2)[1]
    assert last["restorable"] and last["how"] == "switch"


BEATS = "i=0; while :; do i=$((i+1)); echo $i >a; cp a b; echo $i >>beats; sleep 0.01; done"


def beats(b):
    return int(b.sh("tail -n1 beats"))


def test_a_step_on_request_copies_what_runs_and_it_goes_on(daemon):
    b = Box(daemon, steps="manual")
    b.sh("mkdir d; echo deep >d/f; ln d/f d/g; echo old >old")
    assert b.snap()["how"] == "switch"
    assert b.snap()["how"] == "same"
    b.sh("rm old; echo kept >kept")
    daemon.background(b.id, BEATS)
    daemon.until(lambda: b.sh("test -s beats && test -s b") == "")
    step = b.snap("alive")
    assert step["restorable"] and step["how"] in ("copy", "reflink") and "reason" not in step
    before = beats(b)
    daemon.until(lambda: beats(b) > before)
    there = b.fork(step="alive")[0]
    now = b.fork()[0]
    assert there.sh("cat kept d/g; test -e old || echo gone; tail -n1 beats").split()[:3] == ["kept", "deep", "gone"]
    assert beats(there) <= before < beats(now), "both are of an instant"
    assert abs(int(there.sh("cat a || echo 0").strip() or 0) - beats(there)) <= 1
    b.rewind("alive")
    assert beats(b) == beats(there)
    assert daemon.get("/v1/store/check")["whole"]


def test_what_a_command_left_behind_is_copied_too_and_so_is_a_paused_machine(daemon):
    b = Box(daemon, steps="manual")
    b.sh("echo x >x; sleep 300 >/dev/null 2>&1 & echo left")
    assert b.snap()["how"] in ("copy", "reflink")
    daemon.post(b.url + "/pause")
    assert b.snap("still")["how"] in ("copy", "reflink")
    assert daemon.get(b.url)["state"] == "paused" and daemon.get(b.url + "/stats")["frozen"]
    daemon.post(b.url + "/resume")
    assert b.sh("cat x; pgrep sleep >/dev/null && echo runs") == "x\nruns\n"


def test_a_copy_that_nobody_was_told_of_leaves_nothing_standing_still(fresh):
    d = fresh()
    b = Box(d, steps="manual")
    d.background(b.id, BEATS)
    d.until(lambda: b.sh("test -s beats") == "")
    assert b.snap()["restorable"]
    copier = [p for p in spawner_pids(d.run_dir) if comm(p) == "carrel-bury"]
    assert copier
    with stopped(copier):
        asked = threading.Thread(target=lambda: pytest.raises(Exception, b.snap))
        asked.start()
        d.until(lambda: d.get(b.url + "/stats")["frozen"])
        d.kill()
        asked.join()
        d.start()
        before = beats(b)
        d.until(lambda: beats(b) > before)
    assert len(b.steps()) == 1 and b.snap()["restorable"]


def test_what_a_command_leaves_behind_is_seen(daemon):
    b = Box(daemon)
    b.sh("sleep 300 >/dev/null 2>&1 & echo left")
    step = b.settled(1)[0]
    assert not step["restorable"] and "processes" in step["reason"]
    assert b.sh("echo goes on > f; cat f") == "goes on\n"


# A process goes on beside so many changes that a step which nobody asked for does not copy them.
LEFT_BESIDE_MUCH = "head -c 48000000 /dev/zero >big; sleep 300 >/dev/null 2>&1 &"


def test_rewind_with_stop_processes_uses_the_restore_point_before(daemon):
    b = Box(daemon)
    b.sh("echo one >f")
    b.settled(1)
    b.sh(LEFT_BESIDE_MUCH)
    b.sh("echo two >f")
    steps = b.settled(3)
    assert [s["restorable"] for s in steps] == [True, False, False]
    with pytest.raises(Refused) as e:
        b.rewind(3)
    assert e.value.code == "unsupported" and "step 3 has no restore point: processes were running" in e.value.error["message"]
    assert f"to return to step 1: carrel rewind --stop-processes {b.id} 3" in e.value.error["remedy"], e.value
    assert b.sh("cat f; pgrep sleep >/dev/null && echo runs") == "two\nruns\n", "a refused rewind changes nothing"
    back = b.rewind(3, stop_processes=True)
    assert back["kind"] == "rewind" and back["what"] == "to 1, the restore point before step 3"
    assert b.sh("cat f; pgrep sleep >/dev/null || echo ended") == "one\nended\n"
    assert b.settled(7)[-1]["restorable"], "no process runs any more"
    assert "to return" in refused_remedy(b.fork, step="3") and "to return" in refused_remedy(
        daemon.get, b.url + "/diff", **{"from": "1", "to": "3"})


def refused_remedy(call, *args, **kw):
    with pytest.raises(Refused) as e:
        call(*args, **kw)
    return e.value.error["remedy"]


def test_rewind_with_stop_processes_needs_a_restore_point(daemon):
    b = Box(daemon)
    b.sh(LEFT_BESIDE_MUCH)
    b.settled(1)
    assert "no step before it has one" in refused_remedy(b.rewind, 1, stop_processes=True)
    assert b.sh("pgrep sleep >/dev/null && echo runs") == "runs\n"


def test_only_the_first_command_beside_a_process_is_told_of_its_step(daemon):
    b = Box(daemon)
    told = lambda command: daemon.post(b.url + "/execs", {"command": command})["exec"]["check_step"]
    assert not told("echo one >f")
    assert told(LEFT_BESIDE_MUCH) and not told("echo two >f")
    b.settled(3)
    b.rewind(1)
    assert not told("true") and told(LEFT_BESIDE_MUCH)


def test_a_rewind_ends_what_runs(daemon):
    b = Box(daemon)
    b.sh("echo one > f")
    b.settled(1)
    long = daemon.post(b.url + "/execs", {"command": "while :; do date >> f; sleep 0.01; done", "background": True})
    time.sleep(0.1)
    b.rewind(1)
    assert b.sh("cat f") == "one\n"
    x = daemon.get(b.url + f"/execs/{long['id']}")
    assert x["state"] == "exited" and x["signal"] == 9


def test_commands_that_come_during_a_step_wait_for_it(daemon):
    b = Box(daemon)
    results = []

    def one(i):
        results.append(b.sh(f"echo {i} >> all; echo {i}"))

    for _ in range(5):
        threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert sorted(results) == sorted(f"{i}\n" for i in range(8) for _ in range(5))
    assert len(b.sh("cat all").split()) == 40


def test_a_burst_of_commands_one_after_the_other(daemon):
    b = Box(daemon)
    for i in range(40):
        assert b.sh(f"cat n 2>/dev/null; echo {i} > n") == (f"{i - 1}\n" if i else "")
    assert len(b.settled(40)) == 40


def test_forks_are_apart_and_say_where_they_come_from(daemon):
    b = Box(daemon, metadata={"for": "test"}, env={"COLOUR": "blue"}, limits={"mem": "128M"})
    b.sh("echo common > f")
    good = b.snap("good")
    b.sh("echo later > f")
    forks = b.fork(count=3, step="good")
    assert len({f.id for f in forks}) == 3
    for i, f in enumerate(forks):
        assert f.sh("cat f; echo $COLOUR") == "common\nblue\n"
        f.sh(f"echo {i} > f")
        assert f.view["metadata"] == {"for": "test", "forked_from": b.id, "forked_at": good["id"]}
        assert f.view["limits"]["mem"] == 128 << 20
        assert f.steps()[0]["kind"] == "fork"
    assert [f.sh("cat f") for f in forks] == ["0\n", "1\n", "2\n"]
    assert b.sh("cat f") == "later\n"
    now, = b.fork()
    assert now.sh("cat f") == "later\n"
    now.rewind(1)
    assert now.sh("cat f") == "later\n"


def test_a_fork_request_that_comes_again_makes_no_more_machines(daemon):
    b = Box(daemon)
    b.sh("echo first > f")
    made = {f.id for f in b.fork(count=3, key="again")}
    b.sh("echo later > f")
    steps = len(b.steps())
    assert {f.id for f in b.fork(count=3, key="again")} == made
    assert sorted(m["id"] for m in daemon.machines()) == sorted([b.id, *made])
    assert len(b.steps()) == steps, "and no more steps"
    one, = b.fork(key="alone")
    assert [f.id for f in b.fork(key="alone")] == [one.id] and one.sh("cat f") == "later\n"
    # Without a key each request stands for itself.
    assert b.fork()[0].id != b.fork()[0].id


def test_what_is_missing_of_a_fork_request_comes_from_the_same_step(daemon):
    """As after a daemon that died when it had made some: nobody waits for those, and their keys are taken."""
    b = Box(daemon)
    b.sh("echo first > f")
    made = [f.id for f in b.fork(count=3, key="missing")]
    with contextlib.closing(sqlite3.connect(daemon.home / "carrel.db", timeout=30)) as c, c:
        c.execute("UPDATE machines SET idem = NULL WHERE id = ?", (made[1],))
    b.sh("echo later > f")
    now = b.fork(count=3, key="missing")
    assert {f.id for f in now} & set(made) == {made[0], made[2]}
    assert [f.sh("cat f") for f in now] == ["first\n"] * 3


def test_a_fork_request_that_fails_when_it_comes_again_ends_no_machine_of_the_first(fresh):
    """One of them is missing and cannot be made. The others were told of, and hold work. The control: there is room again."""
    daemon = fresh("--listen", "127.0.0.1:0")
    client = daemon.tcp(owner="forker", machines=3)
    source = client.machine()
    url, request = f"/v1/machines/{source}/fork", {"count": 2, "key": "of-both"}
    made = [m["id"] for m in client.post(url, request)["machines"]]
    for m in made:
        assert client.exec(m, "echo work > work")["exec"]["status"] == 0
    with contextlib.closing(sqlite3.connect(daemon.home / "carrel.db", timeout=30)) as c, c:
        c.execute("UPDATE machines SET idem = NULL WHERE id = ?", (made[1],))
    with pytest.raises(Refused) as e:
        client.post(url, request)
    assert e.value.code == "limit"
    assert [client.exec(m, "cat work")["stdout"] for m in made] == ["work\n"] * 2
    client.delete(f"/v1/machines/{made[1]}")
    again = {m["id"] for m in client.post(url, request)["machines"]}
    assert made[0] in again and len(again) == 2
    assert client.exec(made[0], "cat work")["stdout"] == "work\n"


def test_a_fork_key_stands_for_one_request(daemon):
    b, other = Box(daemon), Box(daemon)
    b.fork(key="taken")
    for source, options in ((b, {"drifted": True}), (other, {})):
        with pytest.raises(Refused) as e:
            source.fork(key="taken", **options)
        assert e.value.code == "invalid"


def test_a_fork_has_a_random_seed_of_its_own(daemon):
    b = Box(daemon)
    seed = "/var/lib/systemd/random-seed"
    b.sh(f"mkdir -p /var/lib/systemd; echo the same >{seed}; chmod 600 {seed}", user="root")
    look = f"sha256sum <{seed}; stat -c %a {seed}; cat /etc/machine-id"
    one, two = (f.sh(look, user="root").split() for f in b.fork(count=2))
    assert one[0] != two[0] and one[3] != two[3] and one[2] == two[2] == "600"
    assert b.sh(f"cat {seed}", user="root") == "the same\n"


def test_a_fork_outlives_its_source(daemon):
    b = Box(daemon)
    b.sh("echo old > f")
    fork, = b.fork()
    daemon.delete(b.url)
    assert fork.sh("cat f; echo new >> f") == "old\n"
    again, = fork.fork()
    assert again.sh("cat f") == "old\nnew\n"


def test_names_are_unique_and_steps_are_found_by_all_of_theirs(daemon):
    b = Box(daemon)
    b.sh("echo x > f")
    step = b.snap("a")
    refused("exists", b.snap, "a")
    for bad in ("12", "last", "s-x", "a b", "../x", "x-aaaaaaaaaaaa"):
        refused("invalid", b.snap, bad)
    for ref in ("a", step["id"], step["number"]):
        assert daemon.get(b.url + f"/steps/{ref}")["id"] == step["id"]
    refused("not_found", b.rewind, "nonesuch")
    refused("not_found", b.rewind, 99)
    refused("not_found", b.fork, step="nonesuch")
    refused("invalid", b.fork, count=0)
    page = daemon.get(b.url + "/steps", limit=1)
    assert len(page["steps"]) == 1 and daemon.get(b.url + "/steps", cursor=page["next"])["steps"][0]["number"] == 1


def test_a_fork_of_a_machine_that_ends_is_refused(daemon):
    b = Box(daemon)
    b.sh("echo x > f")
    daemon.delete(b.url)
    refused("gone", b.fork)
    refused("gone", b.rewind, 1)
    refused("gone", b.snap)


def test_risky_commands_are_preceded_by_a_step(daemon):
    b = Box(daemon, steps="risky")
    b.sh("echo precious; printf precious | tee f")
    assert b.sh("cat f; true") == "precious"
    assert b.steps() == []
    b.sh("rm f")
    step = b.settled(1)[0]
    assert step["kind"] == "kept" and step["restorable"]
    b.rewind(1)
    assert b.sh("cat f") == "precious"


def test_steps_on_request_only(daemon):
    b = Box(daemon, steps="manual")
    b.sh("echo x > f")
    assert b.steps() == []
    daemon.patch(b.url, {"steps": "every"})
    b.sh("echo y > f")
    assert len(b.settled(1)) == 1
    assert daemon.get(b.url)["steps"] == "every"


def test_a_killed_daemon_and_spawner_lose_no_step(fresh):
    d = fresh()
    b = Box(d)
    for i in range(4):
        b.sh(f"echo {i} > f")
    b.settled(4)
    d.kill()
    d.start()
    assert len(b.steps()) == 4
    b.rewind(2)
    assert b.sh("cat f") == "1\n"
    if not ROOTLESS:
        signal_all(spawner_pids(d.run_dir), signal.SIGKILL)
        b.sh("echo new > f")
        b.rewind(4)
        assert b.sh("cat f") == "3\n"


def stack_below(b):
    """The layers that the next root of the machine will have below its upper, uppermost first."""
    with contextlib.closing(sqlite3.connect(f"file:{b.d.home}/carrel.db?mode=ro", uri=True)) as db:
        stack, = db.execute("SELECT stack FROM roots WHERE machine = ?", (b.id,)).fetchone()
    return [int(layer.rpartition("/")[2]) for layer in stack.split()]


def test_a_layer_of_many_files_is_not_merged_with_a_few(daemon):
    """The cost of a merge is what changed: the first layer has 3,000 files, and the others above it two each."""
    b = Box(daemon, steps="manual")
    b.sh("mkdir d; cd d; seq 3000 | xargs touch")
    b.snap()
    first, = stack_below(b)
    for i in range(20):
        b.sh(f"echo {i} >f; echo {i} >d/1")
        b.snap()
    daemon.until(lambda: len(stack_below(b)) < 8)  # the small ones are merged meanwhile
    b.sh("echo more >f; echo more >d/2")
    b.snap()
    daemon.until(lambda: len(stack_below(b)) < 8)
    assert stack_below(b)[-1] == first
    assert b.sh("cat f d/1 d/2; ls d | wc -l") == "more\n19\nmore\n3000\n"
    b.sh("cd d; seq 3001 9000 | xargs touch")
    b.snap()
    daemon.until(lambda: first not in stack_below(b))  # as many are above it now
    assert b.sh("cat f d/1 d/2; ls d | wc -l") == "more\n19\nmore\n9000\n"


def test_no_snapshot_waits_for_a_merge(fresh):
    """The process that merges stands still meanwhile."""
    d = fresh()
    b = Box(d, steps="manual")
    for i in range(8):
        b.sh(f"echo {i} >f{i}")
        b.snap()
    merger = [p for p in spawner_pids(d.run_dir) if comm(p) == "carrel-bury"]
    assert merger
    with stopped(merger):
        for i in range(30):
            b.sh(f"echo {i} >g{i}")
            assert b.snap()["restorable"]
        assert b.steps()[-1]["layers"] >= 30
    for i in range(3):
        b.sh(f"echo {i} >h{i}")
        b.snap()
    d.until(lambda: len(stack_below(b)) < 8)
    assert b.sh("ls | wc -l; cat f7 g29 h2") == "41\n7\n29\n2\n"


def test_many_steps_stay_a_few_layers_each(daemon):
    b = Box(daemon)
    connection = daemon.connect()
    for i in range(150):
        daemon.request("POST", b.url + "/execs", {"command": f"echo {i} > f{i % 10}; rm -f gone; mkdir -p d{i % 7}/{i}"},
                       connection=connection)
    steps = b.steps(limit=1000)
    assert len(steps) == 150 and all(s["restorable"] for s in steps), [s for s in steps if not s["restorable"]]
    assert max(s["layers"] for s in steps) <= 64, [s["layers"] for s in steps]  # steps do not wait for merges
    daemon.until(lambda: len(stack_below(b)) <= 14)
    for number in (3, 77, 150, 64, 149):
        b.rewind(number)
        assert b.sh(f"cat f{(number - 1) % 10}; ls -d d*/* | wc -l") == f"{number - 1}\n{number}\n"


def test_a_machine_at_rest_lets_go_of_what_was_merged(daemon):
    """Each step holds 3 MB that the next one replaces. Once old steps have gone, what of them is still mounted
    goes too, though nothing happens in the machine any more."""
    b = Box(daemon, limits={"disk": "32M"})
    for i in range(9):
        b.sh(f"head -c 3000000 /dev/urandom >f; echo {i} >number")
    limit = 0.8 * (32 << 20)
    daemon.until(lambda: daemon.get(b.url + "/stats")["disk_bytes"] < limit, 15)
    time.sleep(2.5)  # it has come to rest
    steps = b.steps()
    assert steps  # five or more where nothing else runs; a busy host may let go of more before the merged ones are free
    assert [s["kind"] for s in steps] == ["exec"] * len(steps)
    assert b.sh("cat number") == "8\n"
    b.rewind(steps[0]["number"])
    assert b.sh("cat number") == f"{steps[0]['number'] - 1}\n"
    assert daemon.get("/v1/store/check")["whole"]


def test_history_gives_way_when_the_disk_is_full_of_it(daemon):
    """Also the layers that only the newest step names go, once others hold the same files."""
    b = Box(daemon, limits={"disk": "100M", "mem": "512M"})
    b.sh("echo first > name; head -c 5000000 /dev/urandom > big")
    b.snap("precious")
    for i in range(30):
        assert b.sh(f"head -c 10000000 /dev/urandom > big && echo {i} > n; rm -f f*; mkdir -p d; rm -f d/*; "
                    f"touch f{i} d/{i}; cat n") == f"{i}\n", i
        end = clock() + 20 * PATIENCE
        while daemon.get(b.url + "/stats")["disk_bytes"] > 84_000_000:
            assert clock() < end, (b.steps(limit=1000), daemon.log()[-3000:])
            time.sleep(0.05)
    steps = b.steps(limit=1000)
    assert len(steps) < 30 and any(s["name"] == "precious" for s in steps if "name" in s)
    assert b.sh("ls -d f*; ls d") == "f29\n29\n"
    b.rewind("precious")
    assert b.sh("cat name; wc -c < big; ls -d f* d 2>&1 | wc -l") == "first\n5000000\n2\n"
    b.rewind(steps[-1]["number"])
    assert b.sh("cat n; ls -d f*; ls d") == "29\nf29\n29\n"
    assert daemon.get("/v1/store/check")["whole"]


def test_a_disk_full_of_what_only_the_newest_step_names_becomes_free(daemon):
    """Dropping older steps frees nothing then: that step comes to lie on what its layers were merged to."""
    b = Box(daemon, steps="manual", limits={"disk": "44M", "mem": "512M"})
    for i in range(8):  # the eighth names four layers of 10 MB, more than the four fifths of a disk that make it full
        b.sh(f"head -c 10000000 /dev/urandom > big; echo {i} > n")
        b.snap()
        held = {s["id"] for s in b.steps(limit=1000)}
        daemon.until(lambda: daemon.get(b.url + "/stats")["disk_bytes"] < 37_000_000)
        assert {s["id"] for s in b.steps(limit=1000)} <= held, "nothing was written, and there is another step"
    daemon.restart()
    b.sh("rm big n")
    b.rewind(b.steps(limit=1000)[-1]["number"])
    assert b.sh("cat n; wc -c < big") == "7\n10000000\n"
    assert daemon.get("/v1/store/check")["whole"]


def test_what_no_step_holds_stays_when_a_full_disk_gets_a_new_root(daemon):
    """Snapshots come before what is to be kept is written: a new root that lets go of old layers takes it along.
    Merged as usual, 15 steps are four layers, and with a version of the file in each the disk would stay full."""
    b = Box(daemon, steps="manual", limits={"disk": "32M", "mem": "512M"})
    for i in range(17):
        b.sh(f"head -c 7000000 /dev/urandom > big && echo {i} > n; rm -f f*; touch f{i}")
        b.snap()
        b.sh(f"rm -f f*; echo {i} > own")
        if i % 4 == 2:
            daemon.restart()
        daemon.until(lambda: daemon.get(b.url + "/stats")["disk_bytes"] < 26_900_000, 20)
        assert b.sh("cat own n; ls -d f* 2>/dev/null | wc -l") == f"{i}\n{i}\n0\n"
    assert daemon.get("/v1/store/check")["whole"]


def test_a_disk_full_of_history_makes_room_for_the_next_step(daemon):
    """Files, not bytes, are what runs out: with old steps gone there is room again, and the machine goes on."""
    b = Box(daemon, steps="manual", limits={"disk": "64M"})
    most = int(b.sh("df --output=iavail / | tail -1"))
    b.sh("echo kept >kept")
    b.snap("kept")
    for i in range(8):
        b.sh(f"mkdir d; cd d; seq {most // 4 - 100} | xargs touch 2>/dev/null; while : >x$((n+=1)); do :; done 2>/dev/null"
             if i == 3 else f"mkdir d; cd d; seq {most // 5} | xargs touch")
        assert b.snap()["restorable"]
        b.rewind("kept")
    numbers = [s["number"] for s in b.steps()]
    assert len(numbers) < 17 and numbers[0] == 1, numbers
    assert b.sh("ls; cat kept").split() == ["kept", "kept"]


def test_a_step_that_has_no_room_is_refused_and_nothing_is_lost(daemon):
    b = Box(daemon, steps="manual", limits={"disk": "64M"})
    b.sh("echo 1 >a")
    b.snap("first")
    assert b.sh("while : >x$((n+=1)); do :; done 2>/dev/null; test -e x$n") != ""
    assert "No space left" in refused("limit", b.snap, "second")
    assert b.sh("cat a; rm x?; echo 2 >a; cat a").split() == ["1", "2"]
    b.sh("rm x*")
    assert b.snap("second")["restorable"]
    b.rewind("first")
    assert b.sh("cat a; ls") == "1\na\n"
    b.rewind("second")
    assert b.sh("cat a; ls") == "2\na\n"


def test_history_is_kept_as_long_as_was_configured(fresh):
    d = fresh(conf="[steps]\nkeep = 6\nkeep_age = 3s\n")
    b = Box(d)
    b.sh("echo first >first")
    b.snap("precious")
    for i in range(12):
        b.sh(f"echo {i} >n")
    d.until(lambda: len(b.steps()) <= 6 + 1)
    assert [s["name"] for s in b.steps() if "name" in s] == ["precious"]
    d.until(lambda: len(b.steps()) == 2)  # by age: what is mounted stays, and what has a name
    told = d.request("GET", "/v1/events", raw=True, follow=0, after=0).decode()
    assert '"reason":"count"' in told and '"reason":"age"' in told
    b.rewind("precious")
    assert b.sh("ls") == "first\n"


def test_what_is_a_machines_own_is_known(daemon):
    b = Box(daemon)
    b.sh("head -c 5000000 /dev/urandom >big")
    assert len(b.steps()) == 1  # which waits for it
    assert daemon.get(b.url)["step_count"] == 1
    daemon.until(lambda: daemon.get(b.url)["disk_bytes"] > 4_900_000)
    fork = b.fork()[0]
    fork.sh("echo little >little")
    daemon.until(lambda: daemon.get(fork.url)["step_count"] == 2)
    assert daemon.get(fork.url)["disk_bytes"] < 1_000_000, "what it shares is the source's"
    assert [s["bytes"] > 4_900_000 for s in b.steps()] == [True, False], "and each step's own"
    text = daemon.request("GET", "/metrics", raw=True).decode()
    assert f'carrel_machine_disk_bytes{{machine="{b.id}"}} ' in text and f'carrel_machine_steps{{machine="{fork.id}"}} 2' in text


def test_hibernate_says_why_it_cannot_and_keeps_files_when_asked(daemon):
    b = Box(daemon)
    daemon.background(b.id, "echo x >x; sleep 100")
    daemon.until(lambda: b.sh("cat x") == "x\n")
    with pytest.raises(Refused) as e:
        daemon.post(b.url + "/hibernate")
    assert e.value.code == "unsupported" and "CRIU" in e.value.error["message"] and "files-only" in e.value.error["remedy"]
    assert daemon.get(b.url)["commands"] == 1, "nothing was done to it"
    done = subprocess.run([PROGRAM, "hibernate", b.id], env=daemon.env, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "CRIU" in done.stderr
    assert daemon.post(b.url + "/hibernate", {"files_only": True})["state"] == "stopped"
    last = [s for s in b.steps() if s["kind"] == "snap"][-1]
    assert last["restorable"] and last["what"] == "hibernate"
    daemon.post(b.url + "/resume")
    assert b.sh("cat x; pgrep sleep || echo ended") == "x\nended\n"
