"""A store whose disk is full: what only takes room is refused, and what frees room or reads is served."""
import re
import subprocess

import pytest

from carrel import PROGRAM
from daemon import Refused
from patience import PATIENCE
from small_home import SmallHome, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture
def small():
    made = []

    def make(size, reserve=0):
        made.append(SmallHome(size=size, reserve=reserve))
        return made[-1]

    yield make
    for d in made:
        d.stop()


def refused(call, *args, **fields):
    with pytest.raises(Refused) as why:
        call(*args, **fields)
    return why.value


def full(d):
    """Fills the disk, and waits until the daemon has seen it."""
    filler = d.fill()
    d.until(lambda: "CARREL_HOME is full" in d.log())
    return filler


def test_a_full_store_is_read_and_freed_and_then_used_again(small):
    d = small(200)
    m, other = d.machine(), d.machine()
    d.put(f"/v1/machines/{m}/files", b"kept", path="/home/user/f")
    assert (d.home / "ballast").stat().st_size > 0
    filler = full(d)
    for call in (lambda: d.machine(), lambda: d.exec(m, "true"), lambda: d.put(f"/v1/machines/{m}/files", b"x", path="/home/user/g")):
        why = refused(call)
        assert why.code == "limit", why
    assert d.get(f"/v1/machines/{m}/files", path="/home/user/f") == b"kept"
    assert not (d.home / "ballast").exists()
    d.post("/v1/images/prune", {})
    assert d.delete(f"/v1/machines/{other}")["state"] == "ended"
    assert [x["id"] for x in d.machines(all=1)] == [m]
    filler.unlink()
    d.until(lambda: (d.home / "ballast").exists())
    d.until(lambda: "has free space again" in d.log())
    assert d.exec(m, "cat f")["stdout"] == "kept"
    assert d.get("/v1/audit/verify")["whole"]


def test_a_full_store_is_read_when_the_reserve_of_its_disk_is_used_up(small):
    """What the ballast gives up goes to the reserve then, and never shows as room for everybody."""
    d = small(200, reserve=5)
    m, other = d.machine(), d.machine()
    d.put(f"/v1/machines/{m}/files", b"kept", path="/home/user/f")
    filler = full(d)
    for _ in range(3):
        assert d.get(f"/v1/machines/{m}/files", path="/home/user/f") == b"kept"
    assert not (d.home / "ballast").exists()
    assert d.free() == 0  # the control: by this number there is no room at all
    assert refused(d.machine).code == "limit"
    assert d.delete(f"/v1/machines/{other}")["state"] == "ended"
    assert d.get(f"/v1/machines/{m}/files", path="/home/user/f") == b"kept"
    filler.unlink()
    d.until(lambda: (d.home / "ballast").exists())


def test_without_ballast_a_full_store_cannot_be_freed(small):
    """The control: the room that rm is written down in is that of the ballast."""
    d = small(200)
    m = d.machine()
    filler = full(d)
    (d.home / "ballast").unlink()
    more = d.fill("more")
    # A record may still fit into the last block of the journal: then the end is done, and waits to be written.
    assert refused(d.delete, f"/v1/machines/{m}").code in ("limit", "unknown")
    for f in (filler, more):
        f.unlink()


def test_a_full_store_is_still_full_after_a_restart(small):
    d = small(200)
    m = d.machine()
    filler = full(d)
    before = d.log().count("CARREL_HOME is full")
    d.restart()
    d.until(lambda: d.log().count("CARREL_HOME is full") > before)
    assert refused(d.machine).code == "limit"
    assert d.delete(f"/v1/machines/{m}")["state"] == "ended"
    filler.unlink()


def test_a_step_becomes_durable_once_there_is_room(small):
    d = small(200)
    m = d.machine(steps="manual")
    url = f"/v1/machines/{m}"

    def why():
        return d.get(url).get("undurable", "")

    d.post(f"{url}/steps", {"name": "flat"})
    d.exec(m, "mkdir -p $(printf 'd/%.0s' $(seq 220))")  # too deep to be saved: it is tried again and again
    d.post(f"{url}/steps")
    d.until(lambda: "save layers" in why())
    filler = full(d)
    d.until(lambda: "once there is space" in why())  # it is not tried, so it does not fail either
    filler.unlink()
    d.until(lambda: "has free space again" in d.log())
    d.post(f"{url}/rewind", {"step": "flat"})
    d.exec(m, "echo again >again")
    step = d.post(f"{url}/steps")["number"]
    d.until(lambda: [s["number"] for s in d.get(f"{url}/steps")["steps"] if s["durable"]] == [step])
    assert why() == ""


def test_a_store_too_small_for_the_image_leaves_no_ghost(small):
    d = small(24)
    why = refused(d.machine)
    assert why.code == "limit", why  # the spawner's words, or the store's if it saw first that its disk is full
    assert re.search(r"the disk that holds CARREL_HOME( has no room for .* are free| is full)", why.error["message"]), why
    assert "larger disk" in why.error["remedy"] or "make room" in why.error["remedy"], why
    d.until(lambda: d.machines(all=1) == [])


def told(d, *words):
    """What the command line says of the store: on both streams."""
    done = subprocess.run([PROGRAM, *words], env=d.env, capture_output=True, text=True, timeout=60 * PATIENCE)
    assert done.returncode == 0, done
    return done.stdout + done.stderr


def test_every_overview_tells_of_a_full_disk_and_what_helps(small):
    """Which disk it is, how much of it is free, and what to do. With room, the control, none speaks of it."""
    d = small(200)
    d.machine()
    for words in (["ls"], ["top", "--once"]):
        assert "the disk of the store" not in told(d, *words)
    status = d.get("/v1/status")["store"]
    assert status["home"] == str(d.home) and not status["full"] and "remedy" not in status
    filler = full(d)
    for words in (["ls"], ["top", "--once"]):
        assert re.search(r"the disk of the store is used by (9\d|100) %: [0-9.]+[BKM] of \d+M are free; .*carrel rm", told(d, *words)), words
    stats = told(d, "stats")
    assert re.search(rf"home +{d.home}\n", stats) and re.search(r"full +yes", stats) and "carrel image prune" in stats, stats
    assert re.search(rf"used by (9\d|100) %: [0-9.]+[BKM] of \d+M are free in {d.home}", told(d, "doctor"))
    assert d.get("/v1/machines")["store"]["full"]
    filler.unlink()
    d.until(lambda: not d.get("/v1/status")["store"]["full"])
    assert "the disk of the store" not in told(d, "ls")


def test_a_disk_that_fills_up_is_warned_of(small):
    d = small(200)
    assert "% full: " not in d.log()
    with open(d.home / "filler", "wb") as f:
        f.write(b"x" * (d.free() - (1 << 20)))
    d.until(lambda: "CARREL_HOME is 9" in d.log())
    (d.home / "filler").unlink()


def fill_volume(d):
    """A machine that writes more to its volume than the disk below has room for. The volume itself is large enough."""
    d.post("/v1/volumes", {"name": "data", "size": "256M"})
    m = d.machine(volumes=[{"name": "data", "at": "/data"}])
    done = d.exec(m, "echo kept >/data/kept; sync /data/kept; dd if=/dev/urandom of=/data/big bs=1M count=200 conv=fsync; cat /data/kept")
    # If the file system writes its journal before dd ends, it sees the fault first and takes no more writes.
    assert "No space left on device" in done["stderr"] or "Read-only file system" in done["stderr"], done
    assert done["stdout"] == "kept\n", done
    d.until(lambda: "CARREL_HOME is full" in d.log())
    return m


def test_full_disk_below_a_volume_is_reported_and_freed_by_deleting_the_volume(small):
    d = small(200)
    m = fill_volume(d)
    for call in (lambda: d.machine(volumes=[{"name": "data", "at": "/data", "mode": "ro"}]), lambda: d.post("/v1/volumes", {"name": "more"}),
                 lambda: d.exec(m, "true")):
        why = refused(call)
        assert why.code == "limit" and "CARREL_HOME is full" in str(why) and "carrel volume rm" in str(why), why
    assert d.get("/v1/volumes/data")["used_bytes"] > 64 << 20
    d.delete(f"/v1/machines/{m}")
    d.delete("/v1/volumes/data")
    d.until(lambda: "has free space again" in d.log())
    assert d.exec(d.machine(), "echo fine")["stdout"] == "fine\n"


def test_volume_is_used_again_after_the_disk_below_it_was_full(small):
    d = small(200)
    spare = d.home / "spare"
    spare.write_bytes(b"x" * (40 << 20))
    m = fill_volume(d)
    spare.unlink()
    d.until(lambda: "has free space again" in d.log())
    d.delete(f"/v1/machines/{m}")
    m = d.machine(volumes=[{"name": "data", "at": "/data"}])
    done = d.exec(m, "cat /data/kept; rm -f /data/big; echo more >/data/more; sync /data/more && cat /data/more")
    assert done["stdout"] == "kept\nmore\n", done
    d.delete(f"/v1/machines/{m}")
    d.delete("/v1/volumes/data")
