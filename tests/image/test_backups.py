"""Backups of machines: small when little changed, complete when restored, and never damaged by a crash or by each other."""
import contextlib
import os
import pathlib
import sqlite3
import threading
import time

import pytest

from daemon import Refused

LOOK = "cd /root; sha256sum d/*; stat -c '%A %u %g %Y %N' d/* l p; stat -c '%A %u %Y' d; [ d/text -ef d/hard ] && echo same"


@pytest.fixture
def work(daemon, small):
    """A machine with files of all kinds."""
    m = daemon.machine(image="small", name="work")
    run(daemon, m, "mkdir -p /root/d; cd /root; dd if=/dev/urandom bs=1000 count=9000 2>/dev/null of=d/big; dd if=/dev/urandom bs=1000 count=70 2>/dev/null of=d/mid; : >d/empty;"
                   "echo text >d/text; ln d/text d/hard; ln -s d/text l; mkfifo p; chown 7:8 d/text; chmod 4750 d/mid;"
                   "dd if=/dev/urandom of=d/sparse bs=1000 count=1 seek=30000 2>/dev/null; rm /srv/app -r")
    return m


@pytest.fixture(autouse=True)
def forgotten(daemon):
    yield
    for b in backups(daemon):
        daemon.delete("/v1/backups/" + b["id"])
    assert os.listdir(store(daemon)) == [] if store(daemon).exists() else True


def run(daemon, machine, script):
    done = daemon.exec(machine, script, user="root")
    assert done["exec"]["status"] == 0, done
    return done["stdout"]


def store(daemon):
    return pathlib.Path(daemon.home) / "backups"


def backups(daemon, **query):
    return daemon.get("/v1/backups", **query)["backups"]


def take(daemon, machine):
    return daemon.post(f"/v1/machines/{machine}/backups")


def begin(daemon, machine):
    """Starts a backup. join() waits for its end; `said` then has the error, if there is one."""
    def ask():
        try:
            take(daemon, machine)
        except Exception as e:  # a refusal, or the connection broke
            thread.said = repr(e)
    thread = threading.Thread(target=ask, daemon=True)
    thread.said = ""
    thread.start()
    return thread


def restore(daemon, backup, **body):
    return daemon.post(f"/v1/backups/{backup['id']}/restore", body)


def packs(daemon, machine):
    return {p.name: p for p in (store(daemon) / machine / "packs").iterdir()}


def test_second_backup_stores_what_changed_and_both_restore_equal(daemon, work):
    first, before = take(daemon, work), run(daemon, work, LOOK)
    assert first["bytes"] > first["written_bytes"] > 9_000_000, "holes are not stored"
    run(daemon, work, "cd /root; dd if=/dev/urandom bs=1000 count=100 2>/dev/null of=d/new; rm d/mid; dd if=/dev/zero of=d/big bs=1 count=1 seek=5000000 conv=notrunc 2>/dev/null")
    second, after = take(daemon, work), run(daemon, work, LOOK)
    assert 100_000 < second["written_bytes"] < 2_500_000
    assert before != after
    daemon.delete(f"/v1/machines/{work}")
    for backup, wanted in (first, before), (second, after):
        machine = restore(daemon, backup, **{"as": "again"})
        assert machine["name"] == "again" and machine["kind"] == "box"
        assert run(daemon, machine["id"], LOOK) == wanted
        assert daemon.exec(machine["id"], "ls /srv/app", user="root")["exec"]["status"] != 0, "what was deleted stays deleted"
        assert int(run(daemon, machine["id"], "stat -c %b /root/d/sparse")) < 3000, "holes stay holes"
        daemon.delete(f"/v1/machines/{machine['id']}")
    assert [b["id"] for b in backups(daemon, machine="work")] == [second["id"], first["id"]]
    assert [i["name"] for i in daemon.get("/v1/images")["images"]] == ["small"], "the image of a restored machine has no name"


def test_backup_without_changes_stores_no_contents(daemon, work):
    take(daemon, work)
    before = packs(daemon, work)
    again = take(daemon, work)
    assert packs(daemon, work) == before and again["written_bytes"] < 200_000


def test_changed_file_with_its_old_times_and_size_is_stored(daemon, work):
    first = take(daemon, work)
    run(daemon, work, "cd /root/d; cp -p mid old; dd if=/dev/urandom of=mid bs=1000 count=70 conv=notrunc 2>/dev/null; touch -r old mid; rm old")
    second = take(daemon, work)
    assert second["written_bytes"] - first["bytes"] < 0 and second["written_bytes"] > 70_000
    machine = restore(daemon, second)
    assert run(daemon, machine["id"], LOOK) == run(daemon, work, LOOK)


def test_damaged_pack_is_named_and_others_can_be_restored(daemon, work):
    first, old = take(daemon, work), packs(daemon, work)
    run(daemon, work, "dd if=/dev/urandom bs=1000 count=50 2>/dev/null of=/root/d/new")
    second = take(daemon, work)
    pack, = (p for name, p in packs(daemon, work).items() if name not in old)
    assert daemon.post(f"/v1/backups/{second['id']}/verify")["packs"] == len(old) + 1
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.write_bytes(data)
    for verb in "verify", "restore":
        with pytest.raises(Refused) as e:
            daemon.post(f"/v1/backups/{second['id']}/{verb}", {} if verb == "restore" else None)
        assert pack.name[:20] in str(e.value)
    daemon.post(f"/v1/backups/{first['id']}/verify")
    assert restore(daemon, first)["state"] == "running"
    pack.unlink()
    third = take(daemon, work)
    daemon.post(f"/v1/backups/{third['id']}/verify")
    assert third["written_bytes"] > 50_000, "what is missing is stored again"


def test_damaged_record_costs_only_time(daemon, work):
    first = take(daemon, work)
    record = store(daemon) / work / (first["id"] + ".known")
    data = bytearray(record.read_bytes())
    data[len(data) // 2] ^= 1
    record.write_bytes(data)
    second = take(daemon, work)
    assert second["written_bytes"] > 9_000_000
    daemon.post(f"/v1/backups/{second['id']}/verify")


def test_forget_keeps_what_other_backups_need(daemon, work):
    first = take(daemon, work)
    run(daemon, work, "rm /root/d/big; dd if=/dev/urandom bs=1000 count=50 2>/dev/null of=/root/d/new")
    second = take(daemon, work)
    assert daemon.delete(f"/v1/backups/{first['id']}")["forgotten"] == 1
    daemon.post(f"/v1/backups/{second['id']}/verify")
    third = take(daemon, work)
    before = len(packs(daemon, work))
    assert daemon.post("/v1/machines/work/backups/prune", {"keep": 1})["forgotten"] == 1
    assert [b["id"] for b in backups(daemon)] == [third["id"]] and len(packs(daemon, work)) <= before
    daemon.post(f"/v1/backups/{third['id']}/verify")
    with pytest.raises(Refused, match="does not exist"):
        restore(daemon, second)


def test_machine_that_ends_fails_its_backup(daemon, work):
    run(daemon, work, "dd if=/dev/urandom bs=1000 count=60000 2>/dev/null of=/root/more")
    kept = take(daemon, daemon.machine(image="small", name="other"))
    running = begin(daemon, work)
    daemon.until(lambda: list(store(daemon).glob(f"{work}/packs/*")))
    daemon.delete(f"/v1/machines/{work}")
    running.join()
    assert "'gone'" in running.said and "before its backup was complete" in running.said
    daemon.until(lambda: not store(daemon).joinpath(work).exists())
    assert [b["id"] for b in backups(daemon)] == [kept["id"]]


def test_killed_daemon_leaves_whole_backups_only(fresh, rootfs):
    d = fresh()
    d.request("POST", "/v1/images", rootfs.read_bytes(), name="small")
    m = d.machine(image="small")
    run(d, m, "mkdir /root/d; dd if=/dev/urandom bs=1000 count=30000 2>/dev/null of=/root/d/a")
    whole = [take(d, m)["id"]]
    for wait in 0.02, 0.1, 0.25, 0.5:
        run(d, m, "dd if=/dev/urandom bs=1000 count=30000 2>/dev/null of=/root/d/a; echo >>/root/d/b")
        running = begin(d, m)
        time.sleep(wait)
        d.restart()
        running.join()
        known = [b["id"] for b in backups(d)]
        assert known[-len(whole):] == whole
        whole = known
        names = {p.name.split(".")[0] for p in (store(d) / m).iterdir() if p.name != "packs"}
        assert names == set(whole), "files without a row are deleted"
        for backup in whole:
            d.post(f"/v1/backups/{backup}/verify")
    assert run(d, restore(d, take(d, m))["id"], "sha256sum /root/d/*") == run(d, m, "sha256sum /root/d/*")


USR = "cd /usr; stat -c '%A %u %g %Y %N' local/mine share/common-licenses/GPL-3 local/mine/*; [ local/mine/tool -ef local/mine/again ] && echo same; sha256sum local/mine/tool; ls -A bin/env share/common-licenses local/mine 2>&1; find share/doc/bash; cat share/common-licenses/*"


def test_machine_on_host_is_stored_without_the_usr_of_the_host(daemon):
    m = daemon.machine(name="onhost")
    run(daemon, m, "cd /usr; echo kept >/root/kept; mkdir local/mine; echo '#!/bin/sh' >local/mine/tool; echo echo own >>local/mine/tool; chmod 4755 local/mine/tool; ln local/mine/tool local/mine/again;"
                   "rm share/common-licenses/GPL-2; echo changed >>share/common-licenses/GPL-3; rm -r share/doc/bash; mkdir share/doc/bash; echo new >share/doc/bash/only; mkfifo local/mine/p; rm /etc/hostname")
    first, before = take(daemon, m), run(daemon, m, USR)
    assert "GPL-2" not in before.splitlines() and "/usr/share/doc/bash/only" not in before
    assert first["bytes"] < 600 << 20, "the host's /usr is not in it"
    run(daemon, m, "echo more >/usr/local/mine/more")
    second, after = take(daemon, m), run(daemon, m, USR)
    assert second["written_bytes"] < 2 << 20
    daemon.delete(f"/v1/machines/{m}")
    for backup, wanted in (first, before), (second, after):
        machine = restore(daemon, backup)
        assert run(daemon, machine["id"], USR) == wanted
        assert not machine.get("warnings")
        assert run(daemon, machine["id"], "/usr/local/mine/tool; cat /root/kept; id -un; [ ! -e /etc/hostname ] && python3 -c 'print(6 * 7)'") == "own\nkept\nroot\n42\n"
        assert daemon.exec(machine["id"], "id -un")["stdout"] == "user\n", "the usual user of the image host"
    fork = daemon.post(f"/v1/machines/{machine['id']}/fork", {})["machines"][0]
    run(daemon, machine["id"], "rm /usr/share/common-licenses/BSD; touch /usr/local/mine/third")
    third, last = take(daemon, machine["id"]), run(daemon, machine["id"], USR)
    assert last != wanted == run(daemon, fork["id"], USR)
    with contextlib.closing(sqlite3.connect(f"{daemon.home}/carrel.db")) as db, db:
        db.execute("""UPDATE backups SET details = replace(details, '"host":"', '"host":"0') WHERE id = ?""", (third["id"],))
    again = restore(daemon, third)
    assert run(daemon, again["id"], USR) == last, "a restored machine can be backed up"
    assert "packages of the host are not the same" in again["warnings"]
