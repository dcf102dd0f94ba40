"""Upkeep: tasks that keep a machine in order, each switched on by a timer and off again."""
import contextlib
import json
import sqlite3
import subprocess
import time

import pytest

from carrel import PROGRAM
from daemon import Refused

# A package `carrel-demo` in two versions, in a repository of files that calls itself one of security updates, and an
# update of another kind that must not be installed.
REPOSITORY = r"""
set -e
mkdir -p /srv/repo; cd /srv/repo
pack() {
    mkdir -p p/DEBIAN p/etc
    echo "$3" >p/etc/$1.conf
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: x <x@example.com>\nDescription: a demo\n' $1 $2 >p/DEBIAN/control
    echo /etc/$1.conf >p/DEBIAN/conffiles
    dpkg-deb -b --root-owner-group p $4/$1_$2.deb >/dev/null; rm -r p
}
mkdir -p old secure other
pack carrel-demo 1.0 first old; pack carrel-other 1.0 first old
dpkg -i old/*.deb >/dev/null
echo mine >/etc/carrel-demo.conf
pack carrel-demo 1.1 second secure; pack carrel-other 1.1 second other
index() {
    cd /srv/repo/$1
    for d in *.deb; do dpkg-deb -f $d; printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' $d $(stat -c %s $d) $(sha256sum $d | cut -d' ' -f1); done >Packages
    printf 'Origin: Debian\nLabel: %s\nSuite: %s\nVersion: 12\nCodename: %s\nSHA256:\n %s %s Packages\n' "$2" $3 $3 $(sha256sum Packages | cut -d' ' -f1) $(stat -c %s Packages) >Release
}
index secure Debian-Security stable-security; index other Debian stable
rm -f /etc/apt/sources.list; rm -rf /etc/apt/sources.list.d/*
printf 'deb [trusted=yes] file:/srv/repo/secure ./\ndeb [trusted=yes] file:/srv/repo/other ./\n' >/etc/apt/sources.list
"""


def timer(daemon, *words):
    return subprocess.run([PROGRAM, "timer", *words], env=daemon.env, capture_output=True, text=True, timeout=60)


def task(daemon, machine, name):
    return next((t for t in daemon.get(f"/v1/machines/{machine}/timers")["timers"] if t.get("task") == name), None)


def run_now(daemon, machine, name):
    """Switches a task on for this moment, and waits for the end of its command."""
    daemon.post(f"/v1/machines/{machine}/timers", {"task": name, "in": "1s"})
    daemon.until(lambda: "last_status" in task(daemon, machine, name))
    row = task(daemon, machine, name)
    return row, daemon.get(f"/v1/machines/{machine}/execs/{row['last_exec']}/output", raw=True).decode()


def root(daemon, machine, script):
    done = daemon.exec(machine, script, user="root")
    assert done["exec"]["status"] == 0, done["stderr"]
    return done["stdout"]


def test_security_updates_are_installed_and_nothing_else(daemon):
    m = daemon.machine(name="updated")
    root(daemon, m, REPOSITORY)
    version = "dpkg-query -W -f '${Package} ${Version}\\n' carrel-demo carrel-other"
    assert root(daemon, m, version) == "carrel-demo 1.0\ncarrel-other 1.0\n"
    row, said = run_now(daemon, m, "updates")
    assert row["last_status"] == 0, said
    assert root(daemon, m, version) == "carrel-demo 1.1\ncarrel-other 1.0\n"
    assert root(daemon, m, "cat /etc/carrel-demo.conf") == "mine\n"
    assert row["every_ms"] == 86400_000 and row["user"] == "root" and row["argv"] == []
    assert "task updates" in timer(daemon, "ls", "updated").stdout and "exit 0" in timer(daemon, "ls", "updated").stdout
    steps = daemon.get(f"/v1/machines/{m}/steps")["steps"]
    before = next(s for s in steps if "before updates" in json.dumps(s))
    audit = subprocess.run([PROGRAM, "audit", "--json"], env=daemon.env, capture_output=True, text=True, timeout=60).stdout
    assert [e for e in map(json.loads, audit.splitlines()) if e.get("verb") == "upkeep.updates" and row["id"] in json.dumps(e)]
    daemon.post(f"/v1/machines/{m}/rewind", {"step": before["id"]})
    assert root(daemon, m, version) == "carrel-demo 1.0\ncarrel-other 1.0\n"
    assert timer(daemon, "rm", m, row["id"]).returncode == 0 and not task(daemon, m, "updates")
    daemon.delete(f"/v1/machines/{m}")


def test_a_task_that_fails_is_seen(daemon):
    m = daemon.machine(name="failing")
    root(daemon, m, "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*; echo 'deb [trusted=yes] file:/srv/none ./' >/etc/apt/sources.list")
    row, _ = run_now(daemon, m, "updates")
    assert row["last_status"] == 100
    checks = {c["name"]: c for c in daemon.get(f"/v1/machines/{m}/health")["checks"]}
    assert checks["upkeep"]["state"] == "bad" and "updates" in checks["upkeep"]["text"] and row["last_exec"] in checks["upkeep"]["text"]
    daemon.delete(f"/v1/machines/{m}")


def test_old_files_are_deleted_and_new_ones_stay(daemon):
    m = daemon.machine()
    daemon.exec(m, "touch -d '11 days ago' /tmp/old '/tmp/old 2' && mkdir /tmp/d && touch -d '11 days ago' /tmp/d/old; touch /tmp/new ~/kept; touch -d '11 days ago' ~/kept")
    row, said = run_now(daemon, m, "cleanup")
    assert row["last_status"] == 0 and "/tmp/old 2" in said
    assert daemon.exec(m, "cd /tmp; find -type f -user user | sort; ls ~/kept")["stdout"].splitlines()[0] == "./new"
    daemon.delete(f"/v1/machines/{m}")


def test_tasks_are_refused_where_they_make_no_sense(daemon, box):
    for fields, code in (({"task": "units"}, "unsupported"), ({"task": "sing"}, "invalid"), ({"task": "cleanup", "argv": ["true"]}, "invalid"),
                         ({"task": "cleanup", "user": "user"}, "invalid"), ({"every": "1d"}, "invalid")):
        with pytest.raises(Refused) as e:
            daemon.post(f"/v1/machines/{box}/timers", fields)
        assert e.value.code == code, fields
    done = timer(daemon, "add", "--task", "cleanup", "--every", "2d", "lab")
    assert done.returncode == 0 and task(daemon, box, "cleanup")["every_ms"] == 172800_000
    again = timer(daemon, "add", "--task", "cleanup", "lab")
    assert again.returncode == 125 and "already does the task 'cleanup'" in again.stderr
    assert timer(daemon, "add", "--task", "cleanup", "lab", "true").returncode == 125
    assert timer(daemon, "rm", "lab", done.stdout.strip()).returncode == 0


def test_a_run_that_a_dead_daemon_had_begun_is_not_done_twice(daemon):
    """As if it died after it had started the command, and before it wrote so."""
    m = daemon.machine()
    daemon.post(f"/v1/machines/{m}/timers", {"task": "cleanup"})
    due = int(time.time() * 1000) - 1000
    seen = []
    for _ in range(2):
        daemon.end()
        with contextlib.closing(sqlite3.connect(daemon.home / "carrel.db")) as db, db:
            db.execute("UPDATE timers SET due_ms = ?, runs = 0, last_exec = NULL", (due,))
        daemon.start()
        daemon.until(lambda: task(daemon, m, "cleanup")["runs"] == 1 and "last_status" in task(daemon, m, "cleanup"))
        seen.append(task(daemon, m, "cleanup")["last_exec"])
    assert seen[0] == seen[1]
    assert len([x for x in daemon.get(f"/v1/machines/{m}/execs")["execs"] if "carrel-upkeep" in json.dumps(x["argv"])]) == 1
    daemon.delete(f"/v1/machines/{m}")
