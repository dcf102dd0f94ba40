"""Backups through faults: the daemon is killed while it writes each kind of file, and the disk is full."""
import os
import pathlib
import threading

import pytest

from daemon import Refused
from faulty import Faulty
from small_home import SmallHome, why_not
from test_backup_copies import names
from test_backups import backups, begin, restore, run, store, take

HASH = "cd /root; sha256sum d/*"
CHANGE = "mkdir -p /root/d; dd if=/dev/urandom bs=1000 count=3000 2>/dev/null of=/root/d/a; echo >>/root/d/b"
FULL, LONG_MS = 28, 60000
FILES = "packs/new", ".manifest", ".known"  # that a backup writes, in this order


@pytest.fixture(scope="module")
def faulty(rootfs):
    d = Faulty()
    d.request("POST", "/v1/images", rootfs.read_bytes(), name="small")
    yield d
    d.stop()


@pytest.fixture
def backed(faulty):
    """A machine with a whole backup, and a change since."""
    m = faulty.machine(image="small")
    run(faulty, m, CHANGE)
    backup = take(faulty, m)
    faulty.whole = names(store(faulty)), [b["id"] for b in backups(faulty)]
    run(faulty, m, CHANGE)
    yield m, backup
    for b in backups(faulty):
        faulty.delete("/v1/backups/" + b["id"])
    assert names(store(faulty)) == set()
    faulty.clear()


def is_whole(d, backup):
    """As it was before the fault."""
    assert (names(store(d)), [b["id"] for b in backups(d)]) == d.whole
    d.post(f"/v1/backups/{backup['id']}/verify")


def killed_at(d, suffix, ask):
    """The daemon is killed while it writes to a file with this name."""
    d.fail(FULL, suffix=suffix, pause_ms=LONG_MS)
    asked = ask()
    d.until(lambda: any(p.match("*" + suffix.rpartition("/")[2]) and not p.stat().st_size for p in pathlib.Path(d.home).glob("[bi]*/*/**/*") if p.is_file()))
    d.kill()
    d.heal()
    d.start()
    asked.join()


def asking(d, *request, **fields):
    def ask():
        try:
            d.request(*request, **fields)
        except Exception:  # the daemon is killed
            pass
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("suffix", FILES)
def test_daemon_killed_in_a_backup(faulty, backed, suffix):
    m, backup = backed
    killed_at(faulty, suffix, lambda: begin(faulty, m))
    is_whole(faulty, backup)
    again = restore(faulty, take(faulty, m))["id"]
    assert run(faulty, again, HASH) == run(faulty, m, HASH)


def test_daemon_killed_in_a_restore(faulty, backed):
    m, backup = backed
    images = set((faulty.home / "images").iterdir())
    killed_at(faulty, "/image.json", lambda: asking(faulty, "POST", f"/v1/backups/{backup['id']}/restore", {}))
    is_whole(faulty, backup)
    assert {p for p in (faulty.home / "images").iterdir() if p.name[:2] in ("i-", "n-")} <= images
    assert [x["id"] for x in faulty.machines()] == [m]
    assert run(faulty, restore(faulty, backup)["id"], "stat -c %s /root/d/a") == "3000000\n"


@pytest.mark.parametrize("suffix", FILES[:2])
def test_daemon_killed_while_a_copy_arrives(faulty, backed, suffix):
    data = faulty.request("GET", f"/v1/backups/{backed[1]['id']}/archive", raw=True)
    killed_at(faulty, suffix, lambda: asking(faulty, "POST", "/v1/backups", data))
    is_whole(faulty, backed[1])
    stored = faulty.request("POST", "/v1/backups", data)
    faulty.post(f"/v1/backups/{stored['id']}/verify")


@pytest.mark.parametrize("suffix", FILES)
def test_file_of_a_backup_that_cannot_be_written(faulty, backed, suffix):
    with faulty.failing(FULL, suffix=suffix), pytest.raises(Refused, match="no disk space left") as e:
        take(faulty, backed[0])
    assert e.value.code == "limit"
    is_whole(faulty, backed[1])
    assert take(faulty, backed[0])["written_bytes"] > 3_000_000


def test_copy_that_does_not_fit(faulty, backed):
    data = faulty.request("GET", f"/v1/backups/{backed[1]['id']}/archive", raw=True)
    with faulty.failing(FULL, suffix="packs/new"), pytest.raises(Refused, match="no disk space left"):
        faulty.request("POST", "/v1/backups", data)
    is_whole(faulty, backed[1])


def has_room(d, backup):
    """The daemon may take a moment to see that the disk is not full any more."""
    try:
        return d.post(f"/v1/backups/{backup['id']}/verify")
    except Refused as e:
        assert e.code == "limit", e


@pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
def test_full_disk_during_backup_and_restore(rootfs):
    d = SmallHome(size=160)
    try:
        d.request("POST", "/v1/images", rootfs.read_bytes(), name="small")
        m = d.machine(image="small")
        run(d, m, "mkdir /root/d; dd if=/dev/urandom bs=1000 count=8000 2>/dev/null of=/root/d/a")
        backup = take(d, m)
        run(d, m, "dd if=/dev/urandom bs=1000 count=8000 2>/dev/null of=/root/d/a")
        d.whole = names(store(d)), [backup["id"]]
        for ask in (lambda: take(d, m)), (lambda: restore(d, backup)):
            filler = d.fill()
            os.truncate(filler, filler.stat().st_size - (3 << 20))
            with pytest.raises(Refused) as e:
                ask()
            assert e.value.code == "limit", e.value
            filler.unlink()
            d.until(lambda: has_room(d, backup))
            is_whole(d, backup)
            assert [x["id"] for x in d.machines()] == [m]
        take(d, m)
        assert run(d, restore(d, backup)["id"], "stat -c %s /root/d/a") == "8000000\n"
    finally:
        d.stop()
