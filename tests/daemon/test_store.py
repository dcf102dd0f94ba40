"""The disk may fail and fill: the daemon says so, leaves, and the next one starts from what is really there."""
import os

from carrel import BUILD
from daemon import Refused


def failing_sync(d, flag):
    """The daemon again, with syncs that fail while the flag is there."""
    asan = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    d.end()
    d.start(env={"LD_PRELOAD": str(BUILD / "tests/daemon/libfail-sync.so"), "FAIL_SYNC": str(flag),
                 **({"ASAN_OPTIONS": asan} if "ASAN_OPTIONS" in os.environ else {})})


def test_a_disk_that_fails_ends_the_daemon_and_nothing_else(fresh):
    d = fresh()
    m = d.machine(name="survivor")
    x = d.background(m, "sleep 1; echo went on; exit 5")
    flag = d.dir / "fail"
    failing_sync(d, flag)
    flag.touch()
    try:
        d.post(f"/v1/machines/{m}/files/mkdir", {"path": "/home/user/d"})
    except (Refused, OSError):
        pass  # it may be on its way out already
    assert d.process.wait(20) == 1, d.log()
    said = [line for line in d.log().splitlines() if "leaving" in line][-1]
    assert "disk" in said and "CARREL_HOME" in said, said
    flag.unlink()
    d.start()
    assert d.get("/v1/machines/survivor")["id"] == m
    assert d.wait(m, x)["status"] == 5
    assert d.get(f"/v1/machines/{m}/execs/{x}/output") == b"went on\n"
    assert d.get("/v1/audit/verify")["records"] > 0


def test_what_ended_long_ago_is_forgotten_with_its_output(fresh):
    d = fresh(conf="[daemon]\nended_keep = 1s\n")
    kept = d.machine()
    d.exec(kept, "echo kept")
    gone = [d.machine() for _ in range(3)]
    for m in gone:
        d.exec(m, "echo gone")
        d.delete(f"/v1/machines/{m}")
    logs = d.home / "log"
    assert {kept, *gone} <= set(os.listdir(logs))
    d.until(lambda: set(os.listdir(logs)) == {kept}, seconds=40)
    d.until(lambda: [m["id"] for m in d.machines(state="all")] == [kept])


def test_the_journal_is_pruned_from_its_front_and_still_proves(fresh):
    d = fresh(conf="[journal]\nsegment_bytes = 64K\nkeep_bytes = 1M\n")
    m = d.machine()
    journal = d.home / "journal"

    def segments():
        return sorted(p.name for p in journal.glob("*.log"))

    first = d.request("GET", "/v1/audit", raw=True, heads=1)
    c = d.connect()
    while len(segments()) < 20:
        for i in range(200):
            d.request("POST", f"/v1/machines/{m}/files/mkdir", {"path": "/home/user/" + "x" * 200}, connection=c)
    c.close()
    d.until(lambda: segments()[0] != "00000001.log", seconds=40)
    report = d.get("/v1/audit/verify")
    assert report["whole"] and report["first"] > 1, report
    assert d.request("GET", "/v1/audit", raw=True, heads=1) != first
    d.restart()
    assert d.get("/v1/audit/verify")["whole"]
    (journal / segments()[0]).unlink()
    report = d.get("/v1/audit/verify")
    assert not report["whole"] and "missing" in report["problem"], report
