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
