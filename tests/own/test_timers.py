"""`carrel timer`: a machine runs commands at set times, also after a rest, and once each, whatever dies."""
import contextlib
import json
import sqlite3
import subprocess
import time

import pytest

from carrel import PROGRAM
from daemon import Daemon, Refused, TcpClient, free_port


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def daemon(port):
    d = Daemon("--listen", f"127.0.0.1:{port}")
    yield d
    d.clear()
    d.stop()


def timer(daemon, *words):
    return subprocess.run([PROGRAM, "timer", *words], env=daemon.env, capture_output=True, text=True, timeout=60)


def add(daemon, machine, script, **when):
    return daemon.post(f"/v1/machines/{machine}/timers", {"argv": ["sh", "-c", script], **when})


def timers(daemon, machine):
    return daemon.get(f"/v1/machines/{machine}/timers")["timers"]


def told(daemon, machine):
    lines = subprocess.run([PROGRAM, "events", "--past", "--json", machine], env=daemon.env, capture_output=True, text=True, timeout=60).stdout
    return [(e["type"], e.get("detail", {})) for e in map(json.loads, lines.splitlines()) if e["type"].startswith("timer.")]


def runs(daemon, machine):
    return daemon.exec(machine, "cat ~/runs 2>/dev/null; true")["stdout"]


def set_row(daemon, **values):
    """Changes rows as the time that passes does; the daemon must not run."""
    with contextlib.closing(sqlite3.connect(daemon.home / "carrel.db")) as db, db:
        for name, value in values.items():
            db.execute(f"UPDATE timers SET {name} = ?", (value,))


def test_a_command_runs_once_at_its_time_and_the_journal_says_who(daemon):
    m = daemon.machine(name="once")
    done = timer(daemon, "add", "--in", "1s", "--user", "root", "once", "sh", "-c", "id -un >>/home/user/runs; echo said")
    assert done.returncode == 0 and done.stdout.startswith("a-"), done
    row, = timers(daemon, m)
    assert (row["id"], row["user"], row["runs"], row["argv"][0]) == (done.stdout.strip(), "root", 0, "sh")
    assert timer(daemon, "ls", "once").stdout.splitlines()[1].startswith(row["id"])
    daemon.until(lambda: not timers(daemon, m))
    daemon.until(lambda: runs(daemon, m) == "root\n")
    (kind, detail), = told(daemon, m)
    assert kind == "timer.ran" and detail["timer"] == row["id"] and "late_s" not in detail
    x = daemon.wait(m, detail["exec"])
    assert x["status"] == 0
    assert daemon.get(f"/v1/machines/{m}/execs/{detail['exec']}/output", raw=True) == b"said\n"
    audit = subprocess.run([PROGRAM, "audit", "--json"], env=daemon.env, capture_output=True, text=True, timeout=60).stdout
    assert f"timer {row['id']}" in audit and "timer.add" in audit
    daemon.delete(f"/v1/machines/{m}")


@pytest.mark.parametrize("rest", ["pause", "stop", "hibernate"])
def test_a_machine_at_rest_is_woken(daemon, rest):
    m = daemon.machine()
    add(daemon, m, "echo ran >>~/runs", **{"in": "2s"})
    daemon.post(f"/v1/machines/{m}/{rest}", {"files_only": True} if rest == "hibernate" else None)
    assert daemon.get(f"/v1/machines/{m}")["state"] != "running"
    daemon.until(lambda: not timers(daemon, m))
    assert daemon.get(f"/v1/machines/{m}")["state"] == "running"
    daemon.until(lambda: runs(daemon, m) == "ran\n")
    daemon.delete(f"/v1/machines/{m}")


def test_what_was_missed_is_done_once_and_said(daemon):
    """Ten runs were due while no daemon ran: one is done, nine are counted, and the next is in the future."""
    m = daemon.machine()
    row = add(daemon, m, "echo ran >>~/runs", every="1h")
    assert row["next_ms"] > time.time() * 1000 + 3500_000
    daemon.end()
    set_row(daemon, next_ms=int(time.time() * 1000) - 9 * 3600_000 - 5000)
    daemon.start()
    daemon.until(lambda: timers(daemon, m)[0]["runs"] == 1)
    row, = timers(daemon, m)
    assert row["missed"] == 9 and time.time() * 1000 < row["next_ms"] < time.time() * 1000 + 3600_000
    daemon.until(lambda: runs(daemon, m) == "ran\n")
    (kind, detail), = told(daemon, m)
    assert kind == "timer.ran" and 9 * 3600 <= detail["late_s"] < 9 * 3600 + 600
    daemon.restart()
    assert runs(daemon, m) == "ran\n" and timers(daemon, m)[0]["runs"] == 1
    daemon.delete(f"/v1/machines/{m}")


def test_a_run_that_a_dead_daemon_had_begun_is_not_done_twice(daemon):
    """As if it died after it had started the command, and before it wrote so."""
    m = daemon.machine()
    row = add(daemon, m, "echo ran >>~/runs", every="1h")
    daemon.end()
    due = int(time.time() * 1000) - 1000
    set_row(daemon, next_ms=due)
    daemon.start()
    daemon.until(lambda: timers(daemon, m)[0]["runs"] == 1)
    first = timers(daemon, m)[0]["last_exec"]
    daemon.wait(m, first)
    daemon.end()
    set_row(daemon, due_ms=due, runs=0, last_exec=None)
    daemon.start()
    daemon.until(lambda: timers(daemon, m)[0]["runs"] == 1)
    assert timers(daemon, m)[0]["last_exec"] == first and runs(daemon, m) == "ran\n"
    assert timers(daemon, m)[0]["id"] == row["id"]
    daemon.delete(f"/v1/machines/{m}")


def test_a_killed_daemon_loses_no_timer(daemon):
    m = daemon.machine()
    for _ in range(3):
        row = add(daemon, m, "echo ran >>~/runs", **{"in": "1s"})
        time.sleep((row["next_ms"] / 1000 - time.time()) if _ else 0)
        daemon.restart(hard=True)
        daemon.until(lambda: not timers(daemon, m))
    daemon.until(lambda: runs(daemon, m) == "ran\n" * 3)
    daemon.delete(f"/v1/machines/{m}")


def test_a_run_waits_for_the_end_of_the_one_before(daemon):
    m = daemon.machine()
    add(daemon, m, "echo ran >>~/runs; sleep 1000", every="1h")
    for expected in (1, 1):
        daemon.end()
        set_row(daemon, next_ms=int(time.time() * 1000) - 1000, last_ms=0)
        daemon.start()
        daemon.until(lambda: timers(daemon, m)[0].get("last_ms"))
        assert timers(daemon, m)[0]["runs"] == expected
    assert "has not ended" in timers(daemon, m)[0]["error"] and [kind for kind, _ in told(daemon, m)] == ["timer.ran", "timer.failed"]
    assert "failed" in timer(daemon, "ls", m).stdout
    daemon.delete(f"/v1/machines/{m}")


def test_a_timer_ends_with_the_token_that_made_it(daemon, port):
    m = daemon.machine()
    token = daemon.post("/v1/tokens", {"scopes": ["read", "run"]})
    client = TcpClient(port, token["secret"])
    reader = TcpClient(port, daemon.post("/v1/tokens", {"scopes": ["read"]})["secret"])
    with pytest.raises(Refused) as e:
        add(reader, m, "true", every="1h")
    assert e.value.code == "denied"
    add(client, m, "echo control >>~/runs", **{"in": "1s"})
    daemon.until(lambda: runs(daemon, m) == "control\n")
    add(client, m, "echo ran >>~/runs", **{"in": "2s"})
    daemon.delete(f"/v1/tokens/{token['id']}")
    daemon.until(lambda: "timer.failed" in [kind for kind, _ in told(daemon, m)])
    assert runs(daemon, m) == "control\n"
    daemon.delete(f"/v1/machines/{m}")


def test_bad_timers_are_refused_and_their_number_is_limited(daemon):
    m = daemon.machine()
    for fields, code in (({"every": 59}, "invalid"), ({}, "invalid"), ({"in": 5, "at_ms": 10 ** 12}, "invalid"),
                         ({"at_ms": 1000}, "invalid"), ({"every": "400d"}, "invalid"), ({"in": 5, "argv": []}, "invalid"),
                         ({"in": 5, "argv": [""]}, "invalid"), ({"in": 5, "argv": ["x" * 20000]}, "limit"),
                         ({"in": 5, "argv": ["x"] * 65}, "invalid"), ({"in": 5, "user": "u" * 64}, "invalid")):
        with pytest.raises(Refused) as e:
            daemon.post(f"/v1/machines/{m}/timers", {"argv": ["true"], **fields})
        assert e.value.code in (code, "limit"), fields
    rows = [add(daemon, m, "true", every="1d") for _ in range(32)]
    with pytest.raises(Refused) as e:
        add(daemon, m, "true", every="1d")
    assert e.value.code == "limit"
    assert timer(daemon, "rm", m, rows[0]["id"]).returncode == 0
    add(daemon, m, "true", every="1d")
    with pytest.raises(Refused) as e:
        daemon.delete(f"/v1/machines/{m}/timers/{rows[0]['id']}")
    assert e.value.code == "not_found"
    done = timer(daemon, "add", "--at", "25:99", m, "true")
    assert done.returncode == 125 and "not a time" in done.stderr
    daemon.delete(f"/v1/machines/{m}")
