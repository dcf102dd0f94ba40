"""A box is ended only by a row that says so. What the database does not vouch for is kept, shown and adopted."""
import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import threading

import pytest

from daemon import BUILD, Refused, signal_all
from patience import PATIENCE
from relay import SWITCH_ROOT, Relay

CARREL = str(BUILD / "carrel")


@contextlib.contextmanager
def database(d):
    """Of a daemon that is not running."""
    with contextlib.closing(sqlite3.connect(d.home / "carrel.db")) as db, db:
        yield db


def lose_database(d):
    """As after a restore from before there was any machine."""
    for name in os.listdir(d.home):
        if name.startswith("carrel.db"):
            os.unlink(d.home / name)


def boxes(d):
    return {b["id"]: b for b in d.get("/v1/store/boxes")["boxes"]}


def carrel(d, *words):
    return subprocess.run([CARREL, *words], env=d.env, capture_output=True, text=True, timeout=60)


def write(d, machine, line):
    done = d.exec(machine, line)
    assert done["exec"]["status"] == 0, done


def adopt(d, box):
    m = d.post(f"/v1/store/boxes/{box}/adopt")
    assert m["id"] == box
    d.until(lambda: "unreached" not in d.get(f"/v1/machines/{box}"))
    return m


def test_an_unreadable_row_keeps_its_box_and_all_others(fresh):
    d = fresh()
    bad, good = d.machine(), d.machine()
    for m in bad, good:
        write(d, m, "echo mine >/home/user/f")
    d.kill()
    with database(d) as db:
        db.execute("UPDATE machines SET pids = -1 WHERE id = ?", (bad,))
    d.start()
    assert d.exec(good, "cat /home/user/f")["stdout"] == "mine\n"
    assert {m["id"] for m in d.machines()} == {good}
    found = boxes(d)
    assert set(found) == {bad} and not found[bad]["adoptable"] and "damaged" in found[bad]["reason"]
    assert bad in d.log() and "damaged" in d.log()
    with pytest.raises(Refused) as e:
        d.post(f"/v1/store/boxes/{bad}/adopt")
    assert e.value.code == "invalid" and "backup" in e.value.error["remedy"]
    told = carrel(d, "doctor")
    assert "damaged rows: 1" in told.stdout, told
    d.kill()
    with database(d) as db:
        db.execute("UPDATE machines SET pids = 100 WHERE id = ?", (bad,))
    d.start()
    assert boxes(d) == {}
    assert d.exec(bad, "cat /home/user/f")["stdout"] == "mine\n"


def test_a_box_without_a_row_is_kept_and_can_be_adopted(fresh):
    d = fresh()
    m = d.machine(limits={"mem": "300M", "pids": 77}, ttl="1h")
    write(d, m, "echo mine >/home/user/f")
    d.kill()
    lose_database(d)
    d.start()
    assert d.machines() == [] and set(boxes(d)) == {m}
    listed = carrel(d, "ls")
    assert "1 box on this host belongs to no machine of this store" in listed.stderr, listed
    assert m in carrel(d, "store", "boxes").stdout
    done = carrel(d, "store", "adopt", m)
    assert done.returncode == 0 and done.stdout.strip() == m, done
    d.until(lambda: "unreached" not in d.get(f"/v1/machines/{m}"))
    read = d.exec(m, "cat /home/user/f")
    assert read["stdout"] == "mine\n", f"{read}\n{d.log()}"
    shown = d.get(f"/v1/machines/{m}")
    assert shown["limits"]["mem"] == 300 << 20 and shown["limits"]["pids"] == 77
    assert "expires" in shown
    net = d.get(f"/v1/machines/{m}/net")
    assert net["guarded"] and net["tainted"], net
    assert boxes(d) == {}
    d.restart()
    assert d.exec(m, "cat /home/user/f")["stdout"] == "mine\n"


def test_an_adopted_box_keeps_its_steps(fresh):
    """What its root lies on is known to the spawner: a new step neither hides nor loses files."""
    d = fresh()
    m = d.machine(steps="manual")
    for i in range(3):
        write(d, m, f"echo {i} >/home/user/f{i}")
        d.post(f"/v1/machines/{m}/steps", {})
    d.kill()
    lose_database(d)
    d.start()
    adopt(d, m)
    write(d, m, "echo new >/home/user/g")
    step = d.post(f"/v1/machines/{m}/steps", {})
    write(d, m, "rm /home/user/f0 /home/user/g")
    d.post(f"/v1/machines/{m}/rewind", {"step": step["id"]})
    assert d.exec(m, "cat /home/user/f0 /home/user/f1 /home/user/f2 /home/user/g")["stdout"] == "0\n1\n2\nnew\n"


@pytest.mark.parametrize("lost", [True, False], ids=["adopted", "row-kept"])
def test_a_box_between_two_roots_can_be_adopted(fresh, lost):
    """The daemon died while it took a step: the spawner had left the old root, and the guest was not told."""
    d = fresh()
    m = d.machine()
    d.kill()
    relay = Relay(d.run_dir, m)
    relay.cut_at(SWITCH_ROOT, hold=True)
    d.start()
    write(d, m, "echo mine >/home/user/f")
    assert relay.done.wait(60 * PATIENCE), "no step was taken"
    d.kill()
    if lost:
        lose_database(d)
    d.start()
    if lost:
        adopt(d, m)
    assert d.exec(m, "cat /home/user/f")["stdout"] == "mine\n"
    write(d, m, "echo more >>/home/user/f")
    step = d.post(f"/v1/machines/{m}/steps", {})
    write(d, m, "rm /home/user/f")
    d.post(f"/v1/machines/{m}/rewind", {"step": step["id"]})
    assert d.exec(m, "cat /home/user/f")["stdout"] == "mine\nmore\n"


def test_commands_of_an_adopted_box_go_on(fresh):
    d = fresh()
    m = d.machine()
    d.background(m, "cat; echo over >/home/user/over", stdin_open=True)
    d.kill()
    lose_database(d)
    d.start()
    adopt(d, m)
    running = d.until(lambda: d.get(f"/v1/machines/{m}/execs")["execs"])
    assert [x["state"] for x in running] == ["running"]
    new = d.exec(m, "echo beside")
    assert new["stdout"] == "beside\n" and new["exec"]["id"] != running[0]["id"]
    d.request("POST", f"/v1/machines/{m}/execs/{running[0]['id']}/stdin?eof=1", b"")
    assert d.wait(m, running[0]["id"])["status"] == 0
    assert d.exec(m, "cat /home/user/over")["stdout"] == "over\n"


def test_a_box_is_adopted_once(fresh):
    d = fresh()
    m = d.machine()
    d.kill()
    lose_database(d)
    d.start()
    answers = []

    def ask():
        try:
            answers.append(d.post(f"/v1/store/boxes/{m}/adopt")["id"])
        except Refused as e:
            answers.append(e.code)

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for t in askers:
        t.start()
    for t in askers:
        t.join()
    assert sorted(answers) == sorted([m, "not_found", "not_found", "not_found"])
    d.until(lambda: "unreached" not in d.get(f"/v1/machines/{m}"))
    assert d.exec(m, "echo once")["stdout"] == "once\n"


def test_another_store_on_the_same_run_directory_touches_no_box(fresh):
    d = fresh()
    m = d.machine()
    write(d, m, "echo mine >/home/user/f")
    d.kill()
    mine, other = d.home, d.dir / "other"
    other.mkdir(mode=0o700)
    d.env["CARREL_HOME"] = str(other)
    d.start()
    found = boxes(d)
    assert set(found) == {m} and found[m]["store"] != d.get("/v1/store/boxes")["store"]
    own = d.machine()
    assert d.exec(own, "echo here")["stdout"] == "here\n"
    d.delete(f"/v1/machines/{own}")
    d.kill()
    d.env["CARREL_HOME"] = str(mine)
    d.start()
    assert boxes(d) == {}
    assert d.exec(m, "cat /home/user/f")["stdout"] == "mine\n"


def test_a_box_that_another_store_took_over_is_not_taken_back(fresh):
    d = fresh()
    m = d.machine()
    d.kill()
    mine, other = d.home, d.dir / "other"
    other.mkdir(mode=0o700)
    d.env["CARREL_HOME"] = str(other)
    d.start()
    adopt(d, m)
    for text in ("first", "second", "theirs"):
        write(d, m, f"echo {text} >/home/user/f")
        d.post(f"/v1/machines/{m}/steps", {})
    d.kill()
    d.env["CARREL_HOME"] = str(mine)
    d.start()
    assert "belongs to store" in d.get(f"/v1/machines/{m}")["unreached"]
    with pytest.raises(Refused) as e:
        d.exec(m, "true")
    assert e.value.code == "busy"
    # Files say the same, and the only advice is to take it over.
    for words in ("exec", m, "--", "true"), ("cp", f"{m}:/home/user/f", "-"):
        done = carrel(d, *words)
        assert done.returncode == 125 and done.stderr.rstrip().endswith(f"carrel store adopt {m}"), done
    adopt(d, m)
    assert d.exec(m, "cat /home/user/f")["stdout"] == "theirs\n"
    step = d.post(f"/v1/machines/{m}/steps", {})
    write(d, m, "rm /home/user/f")
    d.post(f"/v1/machines/{m}/rewind", {"step": step["id"]})
    assert d.exec(m, "cat /home/user/f")["stdout"] == "theirs\n"
    # Removing the row of a box that is another's does not end the box.
    d.kill()
    d.env["CARREL_HOME"] = str(other)
    d.start()
    d.delete(f"/v1/machines/{m}")
    d.kill()
    d.env["CARREL_HOME"] = str(mine)
    d.start()
    assert d.exec(m, "cat /home/user/f")["stdout"] == "theirs\n"


def test_an_unreadable_record_of_the_spawner_keeps_its_box(fresh):
    """A spawner that cannot read a record removes nothing, and finds the box when it can."""
    d = fresh()
    m = d.machine()
    x = d.background(m, "cat", stdin_open=True)
    record = d.run_dir / "boxes" / m / "box"
    whole = record.read_bytes()
    d.kill()
    signal_all(d.host.spawners(), signal.SIGKILL)
    guest = int(re.search(rb"^pid=(\d+)", whole, re.M)[1])
    record.write_bytes(b"\n" * len(whole))
    d.start()
    other = d.machine()
    assert d.exec(other, "echo beside")["stdout"] == "beside\n"
    assert guest in d.host.guests()
    d.kill()
    signal_all(d.host.spawners(), signal.SIGKILL)
    record.write_bytes(whole)
    d.start()
    assert {m, other} <= {row["id"] for row in d.machines()}
    d.request("POST", f"/v1/machines/{m}/execs/{x}/stdin?eof=1", b"")
    assert d.wait(m, x)["status"] == 0


# ---- lifetimes ----

def test_a_lifetime_is_not_told_by_the_wall_clock(fresh):
    """As after a wall clock that was set forward by a day: the box knows how long it has lived."""
    d = fresh()
    m = d.machine(ttl="1h", steps="manual")
    d.kill()
    with database(d) as db:
        db.execute("UPDATE machines SET created_ms = created_ms - 86400000")
    d.start()
    assert d.exec(m, "echo lives")["stdout"] == "lives\n"
    d.restart()
    assert d.get("/v1/machines/" + m)["state"] == "running"
    # What it dies of says how long the daemon thinks that it had to live.
    os.kill(int(re.search(r"^pid=(\d+)", (d.run_dir / "boxes" / m / "box").read_text(), re.M)[1]), signal.SIGKILL)
    d.until(lambda: d.get("/v1/machines/" + m)["state"] == "ended")
    assert d.get("/v1/machines/" + m)["reason"] == "it ended by itself"


def test_a_fork_keeps_the_lifetime_of_its_source(daemon):
    m = daemon.machine(ttl="1h", steps="manual")
    daemon.exec(m, "true")
    daemon.post(f"/v1/machines/{m}/steps", {})
    fork = daemon.post(f"/v1/machines/{m}/fork", {})["machines"][0]
    assert "expires" in fork
    record = (daemon.run_dir / "boxes" / fork["id"] / "box").read_text()
    assert int(re.search(r"^until=(\d+)", record, re.M)[1]) > 0
    assert "expires" not in daemon.post(f"/v1/machines/{daemon.machine(steps='manual')}/fork", {})["machines"][0]


BEGAN, NEVER = "x-bbbbbbbbbbbb", "x-aaaaaaaaaaaa"


def test_commands_of_an_older_database_are_not_said_to_have_never_begun(fresh):
    """A command that was seen to begin and is not in the guest has ended: how is not known."""
    d = fresh()
    m = d.machine()
    x = d.exec(m, "echo done")["exec"]["id"]
    d.kill()
    with database(d) as db:
        columns = [row[1] for row in db.execute("PRAGMA table_info(execs)")]
        row = dict(zip(columns, db.execute("SELECT * FROM execs WHERE id = ?", (x,)).fetchone()))
        for i, (id, state) in enumerate([(BEGAN, 2), (NEVER, 1)]):
            older = {**row, "id": id, "number": row["number"] + 9 + i, "state": state, "started_ms": 0, "ended_ms": 0, "idem": None, "name": None, "stored": None}
            db.execute(f"INSERT INTO execs VALUES ({', '.join('?' * len(columns))})", list(older.values()))
    d.start()
    began = d.wait(m, BEGAN)
    assert began["state"] == "unknown" and "was not recorded" in began["reason"]
    never = d.wait(m, NEVER)
    assert never["state"] == "failed" and "did not start" in never["reason"]
