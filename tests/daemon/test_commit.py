"""Commit, then acknowledge: while the disk is full nothing is told that is not written down, and a disk that fails
ends the daemon; the next one finds out what was done."""
import contextlib
import errno
import json
import os
import sqlite3
import threading

import pytest
from carrel import BUILD, ROOTLESS, spawner_pids
from daemon import Refused, stopped
from faulty import Faulty
from patience import clock
from test_durable import durable, kill_first_process
from test_events import journal
from test_steps import Box


@pytest.fixture
def d():
    made = Faulty()
    yield made
    made.stop()


class Call(threading.Thread):
    """A request that is under way; .answer() is what came of it: the answer, or the refusal."""

    def __init__(self, call, *args, **options):
        super().__init__(daemon=True)
        self.call, self.args, self.options, self.came = call, args, options, None
        self.start()

    def run(self):
        try:
            self.came = self.call(*self.args, **self.options)
        except (Refused, OSError) as e:
            self.came = e

    def answer(self):
        self.join(60)
        assert not self.is_alive(), "nobody was answered"
        return self.came


def waits_for_a_word(d, m, command="read word; exit 7"):
    x = d.post(f"/v1/machines/{m}/execs", {"command": command, "stdin_open": True, "background": True})["id"]
    d.until(lambda: d.get(f"/v1/machines/{m}/execs/{x}")["state"] == "running")
    return x


def say(d, m, x):
    d.request("POST", f"/v1/machines/{m}/execs/{x}/stdin", b"word\n", offset=0)


def unwritten(d):
    """How often it was logged that something done is not written down. Once a minute at most."""
    return d.log().count("save a change to the database:")


def exits_unwritten(d, m):
    """A command has exited, and that could not be written."""
    x = waits_for_a_word(d, m)
    d.fail()
    say(d, m, x)
    d.until(lambda: unwritten(d))
    assert d.get(f"/v1/machines/{m}/execs/{x}")["state"] == "running", "told before it was written"
    assert d.rows("SELECT state FROM execs WHERE id = ?", x) == [(2,)]
    return x


def test_an_exit_is_told_once_it_is_written(d):
    b = Box(d)
    x = exits_unwritten(d, b.id)
    d.heal()
    assert d.wait(b.id, x)["status"] == 7
    assert b.settled(1)[0]["exec"] == x
    assert b.sh("echo on") == "on\n"


def test_an_exit_that_was_not_written_is_known_to_the_next_daemon(d):
    m = d.machine()
    x = exits_unwritten(d, m)
    d.kill()
    d.heal()
    d.start()
    told = d.wait(m, x)
    assert told["state"] == "exited" and told["status"] == 7, told


def test_a_machine_whose_exit_is_not_written_takes_no_commands_and_can_be_read(d):
    b = Box(d)
    d.put(b.url + "/files", b"text", path="/home/user/f")
    exits_unwritten(d, b.id)
    begun = clock()
    with pytest.raises(Refused) as e:
        b.sh("echo more")
    assert e.value.code == "limit" and "full" in e.value.error["message"] and clock() - begun < 10, e.value
    assert d.request("GET", b.url + "/files", raw=True, path="/home/user/f") == b"text"
    assert d.get(b.url)["state"] == "running" and d.machines()
    d.heal()
    d.until(lambda: answered(b.sh, "echo more") == "more\n")


def test_a_lock_of_another_program_is_not_told_as_a_full_disk(d):
    b = Box(d)
    x = waits_for_a_word(d, b.id)
    with contextlib.closing(sqlite3.connect(d.home / "carrel.db", timeout=30, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        say(d, b.id, x)
        d.until(lambda: unwritten(d))
        d.until(lambda: refusal(b.sh, "echo more").code == "busy")
        error = refusal(b.sh, "echo more").error
        assert "locked carrel.db" in error["message"] and "full" not in str(error), error
        assert d.get(b.url)["state"] == "running" and d.machines(), "reads go on"
        db.execute("ROLLBACK")
    assert d.wait(b.id, x)["status"] == 7
    d.until(lambda: answered(b.sh, "echo more") == "more\n")


def refusal(call, *args):
    with pytest.raises(Refused) as e:
        call(*args)
    return e.value


def changing(d, b):
    """Requests that change a file; one passes through another part of the daemon than the other."""
    return [Call(d.put, b.url + "/files", b"new", path="/home/user/g"),
            Call(d.post, b.url + "/files/mkdir", {"path": "/home/user/h"})]


def all_refused(calls):
    for call in calls:
        came = call.answer()
        assert isinstance(came, Refused) and came.code == "limit" and "full" in came.error["message"], came


def answered(call, *args):
    """The answer; None: it is refused for now."""
    try:
        return call(*args)
    except Refused as e:
        assert e.code in ("limit", "busy"), e
        return None


def late(d, b):
    """The disk has been full for so long that who would change something is refused at once."""
    def refused():
        with pytest.raises(Refused) as e:
            b.sh("echo more")
        return e.value.code == "limit"

    d.until(refused)


LOOKS = {
    "steps": lambda d, b: d.get(b.url + "/steps"),
    "diff": lambda d, b: d.get(b.url + "/diff"),
    "check": lambda d, b: d.get("/v1/store/check"),
}


@pytest.mark.parametrize("look", LOOKS)
def test_looking_at_a_machine_does_not_wait_for_a_full_disk(d, look):
    b = Box(d)
    b.sh("echo one >f")
    exits_unwritten(d, b.id)
    late(d, b)
    came = Call(LOOKS[look], d, b).answer()
    assert not isinstance(came, Exception), came


@contextlib.contextmanager
def rows_that_cannot_change(d, table):
    """Another program has put a rule into the database: writing there fails, and not for want of room."""
    def change(sql):
        with contextlib.closing(sqlite3.connect(d.home / "carrel.db", timeout=30)) as db, db:
            db.execute(sql)

    change(f"CREATE TRIGGER kept_as_it_is BEFORE UPDATE ON {table} BEGIN SELECT RAISE(ABORT, 'it stays'); END")
    try:
        yield
    finally:
        change("DROP TRIGGER kept_as_it_is")


def test_an_exit_that_can_never_be_written_is_not_told_and_stays_with_the_guest(d):
    m = d.machine()
    with rows_that_cannot_change(d, "execs"):
        told = d.exec(m, "exit 7")["exec"]
        assert told["state"] == "unknown" and told["status"] == -1 and "could not be saved" in told["reason"], told
        d.get(f"/v1/machines/{m}/files/list", path="/home/user")  # takes along what waits to be sent to the guest
        d.kill()
    d.start()
    told = d.wait(m, told["id"])
    assert told["state"] == "exited" and told["status"] == 7, told


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_disk_that_fails_under_an_exit_ends_the_daemon(d, number):
    m = d.machine()
    x = waits_for_a_word(d, m)
    d.fail(number)
    say(d, m, x)
    assert d.process.wait(60) == 1, d.log()
    d.heal()
    d.start()
    told = d.wait(m, x)
    assert told["state"] == "exited" and told["status"] == 7, told


def test_a_quota_is_a_full_disk(d):
    """SQLite knows ENOSPC only."""
    m = d.machine()
    x = waits_for_a_word(d, m)
    d.fail(errno.EDQUOT)
    say(d, m, x)
    d.until(lambda: unwritten(d))
    assert d.get(f"/v1/machines/{m}/execs/{x}")["state"] == "running"
    d.heal()
    assert d.wait(m, x)["status"] == 7


# ---- steps and rewinds: the intent is written, the root is switched, and the result finds no room ----

def result_unwritten(d, b, call, *args, number=errno.ENOSPC):
    """The call; its intent is there, its effect too, and its result could not be written."""
    logged = unwritten(d)
    with stopped(spawner_pids(d.run_dir)):
        under_way = Call(call, *args)
        d.until(lambda: d.taking(b.id))
        d.fail(number)
    if number == errno.ENOSPC:
        d.until(lambda: unwritten(d) > logged)
    return under_way


needs_root = pytest.mark.skipif(ROOTLESS, reason="a step switches no root without the privileges of root")


@needs_root
def test_a_failed_rewind_does_not_run_over_later_work(d):
    b = Box(d, steps="manual")
    b.sh("echo one >f")
    one = b.snap()["number"]
    b.sh("echo two >f")
    rewinding = result_unwritten(d, b, b.rewind, one)
    d.heal()
    came = rewinding.answer()
    assert not isinstance(came, Exception) or came.code == "unknown", came
    d.until(lambda: answered(b.sh, "cat f") == "one\n")
    b.sh("echo three >f")
    d.restart()
    assert b.sh("cat f") == "three\n", "the next daemon ran the rewind again"
    kinds = [s["kind"] for s in b.steps()]
    assert kinds == ["snap", "kept", "rewind"], kinds
    assert d.get("/v1/store/check")["whole"]


@needs_root
def test_nothing_runs_in_a_machine_whose_rewind_is_not_written(d):
    b = Box(d, steps="manual")
    b.sh("echo one >f")
    one = b.snap()["number"]
    b.sh("echo two >f")
    rewinding = result_unwritten(d, b, b.rewind, one)
    came = rewinding.answer()
    assert isinstance(came, Refused) and came.code == "unknown" and "not saved yet" in came.error["message"], came
    with pytest.raises(Refused) as e:
        b.sh("echo three >f")
    assert e.value.code == "limit", e.value
    d.kill()
    d.heal()
    d.start()
    d.until(lambda: answered(b.sh, "cat f") == "one\n")
    assert [s["kind"] for s in b.steps()] == ["snap", "kept", "rewind"]


@needs_root
def test_no_file_is_written_in_a_machine_whose_rewind_is_not_written(d):
    """The next daemon would do the rewind over it."""
    b = Box(d, steps="manual")
    b.sh("echo one >f")
    one = b.snap()["number"]
    b.sh("echo two >f")
    rewinding = result_unwritten(d, b, b.rewind, one)
    all_refused(changing(d, b))
    assert isinstance(rewinding.answer(), Refused)
    d.kill()
    d.heal()
    d.start()
    d.until(lambda: answered(b.sh, "ls; cat f") == "f\none\n")


@needs_root
def test_nothing_runs_before_it_is_known_what_an_earlier_daemon_began(d):
    """A rewind was begun and its row cannot be read: work that is done now would be undone by the daemon that can."""
    b = Box(d, steps="manual")
    b.sh("echo one >f")
    one = b.snap()["number"]
    b.sh("echo two >f")
    result_unwritten(d, b, b.rewind, one, number=errno.EIO)
    assert d.process.wait(60) == 1, d.log()
    d.heal()
    damage(d, b, -1)
    d.start()
    with pytest.raises(Refused) as e:
        b.sh("echo three >f")
    assert e.value.code == "busy" and "not known" in e.value.error["message"], e.value
    assert d.get(b.url)["state"] == "running", "it is kept"
    d.kill()
    damage(d, b, 1)
    d.start()
    d.until(lambda: answered(b.sh, "cat f") == "one\n")
    b.sh("echo three >f")
    d.restart()
    assert b.sh("cat f") == "three\n"


def damage(d, b, sign):
    """Makes the kind of what was begun one that there is not; with 1 it is as before."""
    with contextlib.closing(sqlite3.connect(d.home / "carrel.db", timeout=30)) as db, db:
        db.execute("UPDATE steps SET kind = abs(kind) * ? WHERE machine = ? AND state = 1", (sign, b.id))


@needs_root
def test_a_file_waits_for_a_rewind_until_that_is_written(d):
    """The next daemon would rewind again, over files that were acknowledged. After a while they are refused."""
    b = Box(d, steps="manual")
    b.sh("echo one >f")
    one = b.snap()["number"]
    b.sh("echo two >f")
    logged = unwritten(d)
    with stopped(spawner_pids(d.run_dir)):
        rewinding = Call(b.rewind, one)
        d.until(lambda: d.taking(b.id))
        writing = changing(d, b)
        for _ in range(20):
            d.get(b.url)  # so that it has most likely come to the gate
        d.fail()
    d.until(lambda: unwritten(d) > logged)
    all_refused(writing)
    assert rewinding.answer().code == "unknown"
    with pytest.raises(Refused) as e:
        d.put(b.url + "/files", b"new", path="/home/user/g")
    assert e.value.code == "limit", e.value
    assert d.request("GET", b.url + "/files", raw=True, path="/home/user/f") == b"one\n"  # reads go on
    d.heal()
    d.until(lambda: answered(b.sh, "ls") == "f\n")


@needs_root
def test_a_disk_that_fails_under_a_rewind_lets_the_next_daemon_do_it(d):
    b = Box(d, steps="manual")
    b.sh("echo one >f")
    one = b.snap()["number"]
    b.sh("echo two >f")
    rewinding = result_unwritten(d, b, b.rewind, one, number=errno.EIO)
    assert d.process.wait(60) == 1, d.log()
    assert isinstance(rewinding.answer(), OSError) or rewinding.answer() is not None
    d.heal()
    d.start()
    d.until(lambda: answered(b.sh, "cat f") == "one\n")
    b.sh("echo three >f")
    d.restart()
    assert b.sh("cat f") == "three\n"


@needs_root
def test_a_refused_snapshot_does_not_keep_its_name(d):
    b = Box(d, steps="manual")
    b.sh("echo one >f")
    came = result_unwritten(d, b, b.snap, "mine").answer()
    assert isinstance(came, Refused) and came.code == "limit", came
    d.heal()
    d.until(lambda: not d.taking(b.id))
    with pytest.raises(Refused) as e:
        d.get(b.url + "/steps/mine")
    assert e.value.code == "not_found", e.value
    again = d.until(lambda: answered(b.snap, "mine"))
    assert d.get(b.url + "/steps/mine")["id"] == again["id"]
    for step in b.steps():
        assert d.get(f"{b.url}/steps/{step['id']}")["id"] == step["id"]
    b.sh("echo two >f")
    b.rewind("mine")
    assert b.sh("cat f") == "one\n"


@needs_root
def test_a_refused_snapshot_has_no_name_for_the_next_daemon_either(d):
    b = Box(d, steps="manual")
    b.sh("echo one >f")
    came = result_unwritten(d, b, b.snap, "mine").answer()
    assert isinstance(came, Refused) and came.code == "limit", came
    d.kill()
    d.heal()
    d.start()
    d.until(lambda: not d.taking(b.id))
    assert [(s["kind"], s.get("name")) for s in b.steps()] == [("kept", None)], b.steps()
    again = d.until(lambda: answered(b.snap, "mine"))
    assert d.get(b.url + "/steps/mine")["id"] == again["id"]


@pytest.mark.parametrize("verb, before", [("pause", "running"), ("resume", "paused")])
def test_a_pause_that_was_not_written_is_undone_by_the_next_daemon(d, verb, before):
    """The row says what a machine is: what a daemon did and could not write is not left half done."""
    b = Box(d)
    if before == "paused":
        d.post(b.url + "/pause")
    d.fail()
    came = Call(d.post, f"{b.url}/{verb}").answer()
    assert isinstance(came, Refused) and came.code == "unknown", came
    assert d.get(b.url)["state"] == before
    d.kill()
    d.heal()
    d.start()
    assert d.get(b.url)["state"] == before
    if before == "paused":
        d.post(b.url + "/resume")
    assert b.sh("echo on") == "on\n"


# ---- output ----

def kept_log(d, m, x):
    return d.home / "log" / m / x


def printed(d, m, text="hello"):
    """A command that printed something, whose output is on the disk; known to a daemon from there alone."""
    x = d.exec(m, f"echo {text}")["exec"]["id"]
    log, url = kept_log(d, m, x), f"/v1/machines/{m}/execs/{x}"
    d.until(lambda: log.exists() and text.encode() in log.read_bytes())
    d.delete(f"/v1/machines/{m}")
    d.end()  # which waits for what is being copied
    d.start()
    assert d.get(url + "/output") == (text + "\n").encode()
    return x, url


@pytest.mark.parametrize("loss", ["gone", "empty"])
def test_output_that_a_power_cut_took_is_not_shown_as_empty(d, loss):
    """As after one: the exit is written down, and the file of its output is not there, or has nothing in it."""
    m = d.machine()
    x, url = printed(d, m)
    if loss == "gone":
        kept_log(d, m, x).unlink()
    else:
        with open(kept_log(d, m, x), "r+b") as f:
            f.truncate(0)
    with pytest.raises(Refused) as e:
        d.get(url + "/output")
    assert e.value.status == 410 and "6 bytes of output" in e.value.error["message"], e.value
    assert d.get(url)["status"] == 0
    gaps = [(e["stream"], e["bytes"]) for e in d.stream("GET", url + "/events") if e["type"] == "gap"]
    assert gaps == [("stdout", 6)], gaps
    assert d.get(url + "/output", stream="stderr") == b"", "it printed nothing there"


def test_what_printed_nothing_has_lost_nothing(d):
    m = d.machine()
    x = d.exec(m, "true")["exec"]["id"]
    d.delete(f"/v1/machines/{m}")
    assert d.get(f"/v1/machines/{m}/execs/{x}/output") == b""


# ---- what is promised to be on the disk before it is acknowledged ----

DURABLE = {
    "token": lambda d, m: d.post("/v1/tokens", {"note": "late"}),
    "secret": lambda d, m: d.put("/v1/secrets/LATE", {"value": "v" * 20}),
    "grant": lambda d, m: d.grant(m, "env", "LATE", value="1"),
    "machine": lambda d, m: d.machine(env={"LATE": "1"}),
    "ship": lambda d, m: d.post(f"/v1/changesets/{d.frozen}/ship", {"action": "shipped", "target": "/x", "sha256": "0" * 64, "files": 1}),
}


@pytest.mark.parametrize("verb", DURABLE)
def test_what_must_be_durable_is_synced_before_it_is_acknowledged(fresh, verb):
    """No sync succeeds: whoever answers all the same did not wait for one. The control is a verb that need not wait."""
    d = fresh()
    m = d.machine()
    d.frozen = d.post(f"/v1/machines/{m}/changesets", {"path": "/home/user"})["id"]
    flag = d.dir / "fail"
    d.end()
    d.start(env={"LD_PRELOAD": str(BUILD / "tests/daemon/libfail-sync.so"), "FAIL_SYNC": str(flag)})
    flag.touch()
    with pytest.raises((Refused, OSError)):
        DURABLE[verb](d, m)
    assert d.process.wait(60) == 1
    flag.unlink()
    d.start()
    DURABLE[verb](d, m)


def test_a_token_waits_for_the_disk(fresh):
    """No sync returns: whoever is answered all the same waited for none. The control is who only looks, also after the
    first commit of a daemon."""
    d = fresh()
    m = d.machine()
    flag = d.dir / "hold"
    d.end()
    d.start(env={"LD_PRELOAD": str(BUILD / "tests/daemon/libfail-sync.so"), "HOLD_SYNC": str(flag)})
    flag.touch()
    try:
        waits = Call(DURABLE["token"], d, m)
        for _ in range(20):
            assert d.get(f"/v1/machines/{m}")["state"] == "running"
        assert waits.is_alive(), waits.came
    finally:
        flag.unlink()
    assert waits.answer()["note"] == "late", waits.came


def lend(d, path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return d.lend(fd, dirs=[{"path": str(path), "at": "/home/user/lent", "mode": "cow"}])
    finally:
        os.close(fd)


def test_an_update_takes_back_nothing_that_came_while_it_waited(d, tmp_path):
    """Here for the spawner; a full disk is the same."""
    m = lend(d, tmp_path)
    url = "/v1/machines/" + m

    def is_warned():
        return "untrusted content" in d.get(url).get("warnings", "")

    assert not is_warned()
    with stopped(spawner_pids(d.run_dir)):
        update = Call(d.patch, url, {"ttl": "1h", "metadata": {"for": "later"}})
        d.until(lambda: [r for r in journal(d, machine=m) if r["verb"] == "machine.update"])
        rule = Call(d.post, url + "/net/rules", {"action": "allow", "target": "http://h.example"})
        d.until(is_warned)
    assert update.answer()["metadata"] == {"for": "later"}
    assert not isinstance(rule.answer(), Exception), rule.came
    assert is_warned()
    d.restart()
    assert is_warned() and d.get(url)["metadata"] == {"for": "later"}


def lent_dirs(d, b):
    return [g["at"] for g in d.get(b.url + "/grants")["grants"] if g["kind"] == "dir"]


def test_a_box_made_anew_has_no_directory_that_a_full_disk_let_stand(d, tmp_path):
    """What was lent went with the old box: the rows of that go with what is written of the new one."""
    b = Box.__new__(Box)
    b.d, b.id = d, lend(d, tmp_path)
    b.sh("echo kept >/home/user/kept")
    durable(b, 1)
    kill_first_process(d, b)
    d.until(lambda: d.get(b.url)["state"] == "stopped")
    assert lent_dirs(d, b) == ["/home/user/lent"], "nothing says that it went"
    d.fail()
    resumed = Call(d.post, b.url + "/resume")
    d.until(lambda: unwritten(d))
    came = resumed.answer()
    assert isinstance(came, Refused) and came.code == "unknown", came
    d.heal()
    d.until(lambda: d.get(b.url)["state"] == "running")
    assert lent_dirs(d, b) == []
    assert [r for r in journal(d, machine=b.id) if r["verb"] == "grant.revoke"], "nobody wrote down that it went"


def test_a_command_that_is_lost_is_not_journalled_as_an_exit(d):
    m = d.machine()
    x = waits_for_a_word(d, m)
    d.delete(f"/v1/machines/{m}")
    told = d.wait(m, x)
    assert told["state"] == "unknown" and told["status"] == -1, told
    records = [json.loads(line) for segment in sorted((d.home / "journal").glob("*.log")) for line in segment.read_text().splitlines()]
    results = [r for r in records if r.get("exec") == x and r["kind"] == "result"]
    assert len(results) == 1 and "exit" not in results[0] and results[0]["reason"] == "its machine ended", results
