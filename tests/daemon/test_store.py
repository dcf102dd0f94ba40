"""The disk may fail and fill: the daemon says so, leaves, and the next one starts from what is really there."""
import contextlib
import json
import os
import signal
import threading

import pytest

from carrel import BUILD
from daemon import Refused, signal_all
from test_events import past


def failing_sync(d, flag):
    """The daemon again, with syncs that fail while the flag is there."""
    d.end()
    d.start(env={"LD_PRELOAD": str(BUILD / "tests/daemon/libfail-sync.so"), "FAIL_SYNC": str(flag)})


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
    said = [line for line in d.log().splitlines() if "stopping" in line][-1]
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
    c = d.post(f"/v1/machines/{kept}/changesets", {"path": "/home/user"})["id"]
    frozen = d.home / "changesets"
    assert os.listdir(frozen)
    gone = [d.machine() for _ in range(3)]
    for m in gone:
        d.exec(m, "echo gone")
        d.delete(f"/v1/machines/{m}")
    logs = d.home / "log"
    assert {kept, *gone} <= set(os.listdir(logs))
    d.until(lambda: set(os.listdir(logs)) == {kept}, seconds=40)
    d.until(lambda: [m["id"] for m in d.machines(state="all")] == [kept])
    d.until(lambda: os.listdir(frozen) == [], seconds=40)
    dropped = d.until(lambda: past(d, after=0, type="changeset.dropped"))
    noted = [json.loads(line) for line in d.request("GET", "/v1/audit", raw=True, verb="review.drop").splitlines()]
    assert d.get("/v1/changesets")["changesets"] == []
    assert [(r["machine"], r["detail"]) for r in noted] == [(e[2]["machine"], e[2]["detail"]) for e in dropped] == [(kept, {"changeset": c})]


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


def test_a_search_of_the_journal_does_not_hold_up_other_requests(fresh):
    d = fresh()
    m = d.machine()
    c = d.connect()
    for _ in range(1500):
        with contextlib.suppress(Refused):
            d.request("POST", f"/v1/machines/{m}/files/mkdir", {"path": "/x" * 2000}, connection=c)
    found, answers = [], 0
    search = threading.Thread(target=lambda: found.append(d.request("GET", "/v1/audit", raw=True, text="no such text")))
    search.start()
    while search.is_alive():
        d.request("GET", "/healthz", raw=True, connection=c)
        answers += 1
    c.close()
    assert found == [b""] and answers > 10


def test_a_search_of_the_journal_finds_all_words_as_they_were_written(fresh):
    d = fresh()
    d.exec(d.machine(), 'echo "say hi" twice')

    def found(text):
        return [json.loads(line)["verb"] for line in d.request("GET", "/v1/audit", raw=True, text=text).splitlines()]

    assert "exec" in found('twice "SAY')
    assert found('twice "never') == []


def test_a_journal_without_its_newest_segments_does_not_prove(fresh):
    d = fresh(conf="[journal]\nsegment_bytes = 64K\n")
    m = d.machine()
    journal = d.home / "journal"

    def segments():
        return sorted(p.name for p in journal.glob("*.log"))

    c = d.connect()
    while len(segments()) < 3:
        d.request("POST", f"/v1/machines/{m}/files/mkdir", {"path": "/home/user/" + "x" * 200}, connection=c)
    c.close()
    first = d.request("GET", "/v1/audit", raw=True, heads=1).splitlines()[0]
    early = "1:" + json.loads(first)["hash"]
    report = d.get("/v1/audit/verify", head=early)
    assert report["whole"] and report["segments"] >= 3, report
    (journal / segments()[-1]).unlink()
    report = d.get("/v1/audit/verify")
    assert not report["whole"] and "ends at record" in report["problem"], report
    report = d.get("/v1/audit/verify", head=early)  # an early head alone would not show it
    assert not report["whole"] and "ends at record" in report["problem"], report


def test_kept_output_that_is_old_goes_and_that_is_said(fresh):
    d = fresh(conf="[output]\nkeep_age = 1d\n")
    m = d.machine()
    old, new = (d.exec(m, "echo 12345")["exec"]["id"] for _ in range(2))
    logs = d.home / "log" / m
    d.until(lambda: logs.exists() and {old, new} <= set(os.listdir(logs)))
    d.delete(f"/v1/machines/{m}")
    os.utime(logs / old, (1, 1))
    d.restart()
    d.until(lambda: set(os.listdir(logs)) == {new}, seconds=60)
    assert d.get(f"/v1/machines/{m}/execs/{new}/output") == b"12345\n"
    with pytest.raises(Refused) as e:
        d.get(f"/v1/machines/{m}/execs/{old}/output")
    assert e.value.status == 410 and "6 bytes" in e.value.error["message"], e.value


def test_kept_output_of_a_machine_has_a_quota(fresh):
    """The oldest goes until the rest fits; the control is a machine that stays below."""
    d = fresh()
    large, small = d.machine(), d.machine()
    execs = [d.exec(large, "head -c 600000 /dev/zero | tr '\\0' x")["exec"]["id"] for _ in range(2)]
    execs += [d.exec(small, "echo 12345")["exec"]["id"] for _ in range(2)]
    logs = {m: d.home / "log" / m for m in (large, small)}
    for m, path in logs.items():
        mine = execs[:2] if m == large else execs[2:]
        d.until(lambda: path.exists() and set(mine) <= set(os.listdir(path)))
        d.delete(f"/v1/machines/{m}")
    d.end()  # which waits for what is being copied
    for i, x in enumerate(execs):
        os.utime(logs[large if i < 2 else small] / x, (1000 + i, 1000 + i))
    with d.conf.open("a") as f:
        f.write("[output]\nkeep_bytes = 1M\n")
    d.start()
    d.until(lambda: os.listdir(logs[large]) == [execs[1]], seconds=60)
    assert len(d.get(f"/v1/machines/{large}/execs/{execs[1]}/output")) == 600000
    with pytest.raises(Refused) as e:
        d.get(f"/v1/machines/{large}/execs/{execs[0]}/output")
    assert e.value.status == 410 and "600000 bytes" in e.value.error["message"], e.value
    assert set(os.listdir(logs[small])) == set(execs[2:])


def test_a_journal_whose_segments_are_gone_does_not_prove(fresh):
    """Removed under a daemon, and before the next one starts: that one begins a new journal, which holds in itself."""
    d = fresh()
    d.machine()
    assert d.get("/v1/audit/verify")["whole"]
    for segment in (d.home / "journal").glob("*.log"):
        segment.unlink()
    report = d.get("/v1/audit/verify")
    assert not report["whole"] and "no journal" in report["problem"], report
    d.restart()
    report = d.get("/v1/audit/verify")
    assert not report["whole"] and "is missing" in report["problem"], report
    # Who has seen the loss goes on from there.
    assert d.get("/v1/audit/verify", head=report["head"])["whole"]


def test_output_of_what_never_ends_is_on_the_disk(fresh):
    """As after a restart of the host: daemon, spawner and machine are gone at once."""
    d = fresh()
    m = d.machine()
    x = d.background(m, "echo before; echo problem >&2; exec sleep 1000")
    log = d.home / "log" / m / x
    d.until(lambda: log.exists() and b"problem" in log.read_bytes())
    d.kill()
    signal_all(d.host.spawners() + d.host.guests(), signal.SIGKILL)
    d.start()
    d.until(lambda: d.get(f"/v1/machines/{m}")["state"] == "ended")
    assert d.get(f"/v1/machines/{m}/execs/{x}")["state"] == "unknown"
    assert d.get(f"/v1/machines/{m}/execs/{x}/output") == b"before\n"
    assert d.get(f"/v1/machines/{m}/execs/{x}/output", stream="stderr") == b"problem\n"


def test_output_goes_on_being_kept_after_a_restart(fresh):
    d = fresh()
    m = d.machine()
    x = d.background(m, "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 1; done; exit 4")
    d.until(lambda: (d.home / "log" / m / x).exists())
    d.restart()
    assert d.wait(m, x)["status"] == 4
    d.delete(f"/v1/machines/{m}")
    assert d.get(f"/v1/machines/{m}/execs/{x}/output") == b"".join(b"%d\n" % i for i in range(1, 9))


def test_only_so_many_commands_at_once(fresh):
    d = fresh(conf="[daemon]\nexecs_per_machine = 2\nexecs_per_owner = 3\n")
    a, b = d.machine(), d.machine()
    running = [d.background(a, "sleep 1000") for _ in range(2)]
    with pytest.raises(Refused) as e:
        d.exec(a, "true")
    assert (e.value.status, e.value.code) == (429, "limit")
    assert a in e.value.error["message"] and "2 commands" in e.value.error["message"]
    keyed = d.background(b, "sleep 1000", key="again")
    with pytest.raises(Refused) as e:
        d.exec(b, "true")
    assert "owner" in e.value.error["message"] and "3 commands" in e.value.error["message"]
    assert d.background(b, "sleep 1000", key="again") == keyed
    d.restart()
    with pytest.raises(Refused):
        d.exec(a, "true")
    d.delete(f"/v1/machines/{a}/execs/{running[0]}")
    d.wait(a, running[0])
    assert d.until(lambda: try_exec(d, a, "echo fits"))["stdout"] == "fits\n"
    for _ in range(3):
        assert d.until(lambda: try_exec(d, a, "true"))["exec"]["status"] == 0


def try_exec(d, m, command):
    try:
        return d.exec(m, command)
    except Refused as e:
        assert e.code == "limit"
        return None


def test_the_cap_of_output_is_configured(fresh):
    d = fresh(conf="[output]\nlog_bytes = 64K\n")
    m = d.machine()
    x = d.background(m, "head -c 1000000 /dev/zero")
    d.wait(m, x)
    assert len(d.request("GET", f"/v1/machines/{m}/execs/{x}/output", raw=True)) <= 64 << 10
    assert d.get(f"/v1/machines/{m}/execs/{x}")["stdout_bytes"] == 1000000
