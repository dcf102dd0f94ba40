"""Machines through the API: made, listed, changed, paused, stopped, destroyed; each end has a reason."""
import errno
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from daemon import ROOTLESS, Refused, signal_all, stopped


def test_stats_of_many_machines_say_what_they_run(daemon):
    a, b = daemon.machine(), daemon.machine()
    x = daemon.background(a, "sleep 1000")

    def told(*ids):
        return {m["machine"]: m for m in daemon.get("/v1/stats", machines=",".join(ids))["machines"]}

    both = told(a, b, "m-aaaaaaaaaaaa")
    assert set(both) == {a, b} and both[a]["argv"][-1] == "sleep 1000" and "argv" not in both[b]
    assert both[a]["stats"].keys() == daemon.get(f"/v1/machines/{a}/stats").keys()
    daemon.post(f"/v1/machines/{a}/execs", {"command": "sleep 1000 #" + "x" * 5000, "background": True})
    assert told(a)[a]["argv"] == ["\u2026"]  # the newest one, which is long
    daemon.delete(f"/v1/machines/{a}/execs/{x}")
    daemon.delete(f"/v1/machines/{b}")
    assert set(told(a, b)) == {a}
    for wrong in ("", "x", f"{a},", f"{a};{a}", ",".join([a] * 201)):
        with pytest.raises(Refused) as e:
            told(wrong)
        assert e.value.code == "invalid", wrong


def test_a_machine_is_made_and_shown(daemon):
    m = daemon.post("/v1/machines", {"name": "one", "limits": {"mem": "256M", "cpus": 0.5, "pids": 64},
                                     "metadata": {"task": "42"}, "ttl": "1h"})
    assert m["state"] == "running" and m["name"] == "one" and m["kind"] == "box"
    assert m["limits"] == {"mem": 256 << 20, "cpus": 0.5, "pids": 64, "disk": 1 << 30}
    assert m["metadata"] == {"task": "42"} and "expires" in m
    for ref in (m["id"], "one", m["id"][:8]):
        assert daemon.get(f"/v1/machines/{ref}")["id"] == m["id"]


def test_the_limits_hold_inside(daemon):
    m = daemon.machine(limits={"pids": 20, "mem": "64M"})
    r = daemon.exec(m, "head -c 200M /dev/zero | tail >/dev/null; echo $?")
    assert "137" in r["stdout"], r
    r = daemon.exec(m, "python3 -c 'bytearray(200<<20)'")
    assert (r["exec"]["status"], r["exec"]["reason"]) == (137, "memory"), r


def test_lists_are_filtered_and_paged(daemon):
    ids = [daemon.machine(name=f"n{i}", metadata={"even": str(i % 2 == 0)}) for i in range(5)]
    assert [m["id"] for m in daemon.machines()] == ids[::-1]
    assert [m["name"] for m in daemon.machines(meta="even=True")] == ["n4", "n2", "n0"]
    assert [m["name"] for m in daemon.machines(name="n3")] == ["n3"]
    seen, cursor = [], None
    while True:
        page = daemon.get("/v1/machines", limit=2, **({"cursor": cursor} if cursor else {}))
        seen += [m["id"] for m in page["machines"]]
        cursor = page.get("next")
        if not cursor:
            break
    assert seen == ids[::-1]


def test_a_name_belongs_to_one_living_machine(daemon):
    first = daemon.machine(name="mine")
    with pytest.raises(Refused) as e:
        daemon.machine(name="mine")
    assert (e.value.status, e.value.code) == (409, "exists")
    daemon.delete(f"/v1/machines/{first}")
    daemon.machine(name="mine")


def test_destroyed_means_nothing_is_left_and_it_says_so(daemon, box):
    daemon.background(box, "sleep 1000")
    ended = daemon.delete(f"/v1/machines/{box}")
    assert (ended["state"], ended["reason"]) == ("ended", "destroyed")
    assert daemon.host.left_of_boxes() == []
    with pytest.raises(Refused) as e:
        daemon.exec(box, "true")
    assert (e.value.status, e.value.code) == (410, "gone")
    assert daemon.get(f"/v1/machines/{box}")["state"] == "ended"


def test_pause_keeps_memory_and_resume_goes_on(daemon, box):
    x = daemon.background(box, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done")
    daemon.until(lambda: daemon.get(f"/v1/machines/{box}/execs/{x}")["stdout_bytes"] > 10)
    assert daemon.post(f"/v1/machines/{box}/pause")["state"] == "paused"
    time.sleep(0.2)
    before = daemon.get(f"/v1/machines/{box}/execs/{x}")["stdout_bytes"]
    time.sleep(0.5)
    assert daemon.get(f"/v1/machines/{box}/execs/{x}")["stdout_bytes"] == before
    assert daemon.post(f"/v1/machines/{box}/resume")["state"] == "running"
    daemon.until(lambda: daemon.get(f"/v1/machines/{box}/execs/{x}")["stdout_bytes"] > before)


def test_stop_ends_every_process_and_keeps_files(daemon, box):
    daemon.exec(box, "echo kept >/home/user/file; (setsid sleep 1000 >/dev/null 2>&1 &)")
    x = daemon.background(box, "sleep 1000")
    assert daemon.post(f"/v1/machines/{box}/stop")["state"] == "stopped"
    assert daemon.wait(box, x)["signal"] == 9
    assert daemon.get(f"/v1/machines/{box}/stats").get("pids", 0) == 0, "a host without cgroups counts none"
    assert daemon.get(f"/v1/machines/{box}/files", path="/home/user/file") == b"kept\n"
    daemon.post(f"/v1/machines/{box}/resume")
    assert daemon.exec(box, "cat file")["stdout"] == "kept\n"


def test_a_lifetime_ends_a_machine(daemon):
    m = daemon.machine(ttl=0.5)
    x = daemon.background(m, "sleep 1000")
    ended = daemon.until(lambda: (s := daemon.get(f"/v1/machines/{m}"))["state"] == "ended" and s)
    assert ended["reason"] == "its ttl is over"
    assert daemon.get(f"/v1/machines/{m}/execs/{x}")["state"] == "unknown"


def test_a_lifetime_can_be_changed(daemon):
    m = daemon.machine(ttl=3600)
    daemon.patch(f"/v1/machines/{m}", {"ttl": 0.5, "metadata": {"a": "b"}})
    assert daemon.get(f"/v1/machines/{m}")["metadata"] == {"a": "b"}
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] == "ended")


def can_pause(daemon):
    m = daemon.machine()
    try:
        daemon.post(f"/v1/machines/{m}/pause")
        return True
    except Refused as why:
        assert ROOTLESS and why.code == "unsupported", why
        assert why.error["remedy"] == "use carrel stop, which keeps files but no processes; or see carrel doctor"
        return False


@pytest.mark.parametrize("action,state", [("pause", "paused"), ("stop", "stopped"), ("destroy", "ended")])
def test_an_idle_machine_is(daemon, action, state):
    m = daemon.machine(idle=0.5, idle_action=action)
    if action == "pause" and not can_pause(daemon):
        state = "stopped"
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] == state)


@pytest.mark.parametrize("action", ["pause", "destroy"])
def test_end_of_the_ttl_applies_on_ttl(daemon, action):
    m = daemon.machine(ttl=2, on_ttl=action)
    assert daemon.get(f"/v1/machines/{m}")["on_ttl"] == action
    state = "ended" if action == "destroy" else "paused" if can_pause(daemon) else "stopped"
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] == state)
    if action == "pause":
        daemon.until(lambda: "expires" not in daemon.get(f"/v1/machines/{m}"))


def test_on_ttl_is_changed_without_the_ttl_and_a_fork_has_it_too(daemon):
    m = daemon.machine(ttl=3600)
    before = daemon.get(f"/v1/machines/{m}")
    after = daemon.patch(f"/v1/machines/{m}", {"on_ttl": "pause"})
    assert (before["on_ttl"], after["on_ttl"], after["expires"]) == ("destroy", "pause", before["expires"])
    fork, = daemon.post(f"/v1/machines/{m}/fork")["machines"]
    assert fork["on_ttl"] == "pause"


def test_ttl_of_a_stopped_machine_is_changed(daemon):
    m = daemon.machine(ttl=3600)
    daemon.post(f"/v1/machines/{m}/stop")
    assert daemon.patch(f"/v1/machines/{m}", {"ttl": 0}).get("expires") is None
    assert daemon.patch(f"/v1/machines/{m}", {"ttl": 2})["state"] == "stopped"
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] == "ended")


def test_a_process_keeps_a_machine_from_being_idle_where_it_cannot_be_paused(daemon):
    if can_pause(daemon):
        pytest.skip("this host can freeze processes, and counts what they use")
    m = daemon.machine(idle=0.5, idle_action="pause")
    daemon.exec(m, "sleep 600 >/dev/null 2>&1 & echo $! >/tmp/pid")
    time.sleep(2)
    assert daemon.get(f"/v1/machines/{m}")["state"] == "running"
    daemon.exec(m, "kill $(cat /tmp/pid)")
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] == "stopped")


@pytest.mark.parametrize("line,state", [("true; cat /etc/hostname >/dev/null", "ended"), ("echo work >made", "stopped"), ("echo a >made; rm made", "ended")])
def test_an_idle_machine_is_released_only_when_it_holds_nothing(daemon, line, state):
    m = daemon.machine(idle=0.5, idle_action="release")
    daemon.exec(m, line)
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] == state)
    view = daemon.get(f"/v1/machines/{m}")
    assert state == "stopped" or view["reason"] == "idle", view


def test_idle_is_not_silence(daemon):
    """A process nobody follows that uses the cpu keeps its machine; so does a command that sleeps."""
    busy, sleeping = (daemon.machine(idle=0.5, idle_action="destroy") for _ in range(2))
    daemon.exec(busy, "(setsid sh -c 'while :; do :; done' >/dev/null 2>&1 &)")
    daemon.background(sleeping, "sleep 1000")
    time.sleep(2.5)
    assert [daemon.get(f"/v1/machines/{m}")["state"] for m in (busy, sleeping)] == ["running"] * 2


def test_a_request_that_waits_keeps_its_machine(daemon):
    """No command runs, nothing uses the cpu: only its owner's word is missing. Once it came, the machine is idle."""
    m = daemon.machine(idle=0.5, idle_action="destroy")
    daemon.post(f"/v1/machines/{m}/net/rules", {"action": "ask", "target": "http://a.example"})
    daemon.exec(m, "(setsid curl -s http://a.example/ >/dev/null 2>&1 &)")
    waiting = daemon.until(lambda: [p["id"] for p in daemon.get("/v1/pending")["pending"] if p["machine"] == m])[0]
    time.sleep(2.5)
    assert daemon.get(f"/v1/machines/{m}")["state"] == "running"
    daemon.post(f"/v1/pending/{waiting}", {"decision": "deny"})
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] == "ended")


def test_limits_change_while_it_runs(daemon, box):
    daemon.patch(f"/v1/machines/{box}", {"limits": {"mem": "64M", "pids": 30}})
    assert daemon.get(f"/v1/machines/{box}")["limits"]["mem"] == 64 << 20
    r = daemon.exec(box, "python3 -c 'bytearray(200<<20)'")
    assert r["exec"]["reason"] == "memory", r


def test_limits_that_changed_can_be_read_inside(daemon, box):
    told = lambda: json.loads(daemon.get(f"/v1/machines/{box}/files", path="/run/carrel/machine.json"))  # noqa: E731
    before = told()
    daemon.patch(f"/v1/machines/{box}", {"limits": {"mem": "64M", "cpus": 0.5}, "ttl": "1h"})
    limits = told()["limits"]
    assert (limits["memory_bytes"], limits["cpu_milli"]) == (64 << 20, 500) and 3500_000 < limits["lifetime_ms"] < 3700_000
    same = ("id", "kind", "image", "enforced", "grants", "network")
    assert {k: told()[k] for k in same} == {k: before[k] for k in same} and limits["processes"] == before["limits"]["processes"]


def test_a_key_makes_one_machine(daemon):
    body = {"key": "k1", "name": "keyed"}
    first = daemon.post("/v1/machines", body)
    assert daemon.post("/v1/machines", body)["id"] == first["id"]
    with pytest.raises(Refused) as e:
        daemon.post("/v1/machines", {"key": "k1", "name": "other"})
    assert (e.value.status, e.value.code) == (400, "invalid")
    assert len(daemon.machines()) == 1


def test_a_key_whose_machine_was_never_made_makes_another(fresh):
    d = fresh()
    d.machine()
    before = {m["id"] for m in d.machines(state="all")}
    with stopped(d.host.spawners()), ThreadPoolExecutor() as pool:
        asked = pool.submit(d.post, "/v1/machines", {"key": "k2", "limits": {"pids": 77}})
        d.until(lambda: [m for m in d.machines(state="all") if m["id"] not in before])
        d.kill()
        with pytest.raises(OSError):
            asked.result(30)
    d.start()
    made = d.post("/v1/machines", {"key": "k2", "limits": {"pids": 77}})
    assert made["state"] == "running" and d.exec(made["id"], "echo here")["stdout"] == "here\n"
    assert [m["state"] for m in d.machines(state="all") if m["id"] not in before | {made["id"]}] in (["ended"], ["ending"])


def test_a_held_machine_ends_with_its_connection(daemon):
    c = daemon.connect()
    c.request("POST", "/v1/machines?hold=1", body=b"{}")
    answer = c.getresponse()
    import json
    m = json.loads(answer.readline())["id"]
    assert daemon.exec(m, "echo here")["stdout"] == "here\n"
    c.close()
    answer.close()
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] == "ended")


def test_an_end_that_is_under_way_is_waited_for(daemon):
    m = daemon.machine()
    with stopped(daemon.host.spawners()), ThreadPoolExecutor() as pool:
        first = pool.submit(daemon.delete, f"/v1/machines/{m}")
        daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] == "ending")
        second = pool.submit(daemon.delete, f"/v1/machines/{m}")
        with pytest.raises(Refused) as e:
            daemon.post(f"/v1/machines/{m}/pause")
        assert e.value.code == "busy"
        with pytest.raises(TimeoutError):
            second.result(0.5)
        assert not first.done()
        signal_all(daemon.host.spawners(), signal.SIGCONT)
        assert first.result(30) == second.result(30)
    assert daemon.get(f"/v1/machines/{m}")["reason"] == "destroyed"
    with pytest.raises(Refused) as e:
        daemon.delete(f"/v1/machines/{m}")
    assert e.value.code == "gone"


def test_metadata_is_replaced_and_cleared(daemon):
    m = daemon.machine(metadata={"a": "1"})
    url = f"/v1/machines/{m}"
    assert daemon.patch(url, {"ttl": "1h"})["metadata"] == {"a": "1"}
    assert daemon.patch(url, {"metadata": {"b": "2"}})["metadata"] == {"b": "2"}
    assert daemon.patch(url, {"metadata": {}})["metadata"] == {}
    assert daemon.get(url)["metadata"] == {}


FSGETXATTR, FSSETXATTR, SETFLAGS = 0x801c581f, 0x401c5820, 0x40086602


def attributes(daemon, box, request, user):
    """What the kernel says to it: 0, or the number of an error."""
    script = f"import fcntl\nwith open('/home/user/f', 'w') as f:\n    try:\n        fcntl.ioctl(f, {request}, bytes(28))\n" \
             "    except OSError as e:\n        print(e.errno)\n    else:\n        print(0)"
    return int(daemon.exec(box, ["python3", "-c", script], user=user)["stdout"])


@pytest.mark.parametrize("user", ["user", "root"])
def test_a_box_does_not_set_attributes_of_files(daemon, box, user):
    """They would take files out of the box's quota. The control: reading them is allowed, on the same file."""
    if attributes(daemon, box, FSGETXATTR, user) != 0:
        pytest.skip("this filesystem has no attributes to set")
    assert [attributes(daemon, box, r, user) for r in (FSSETXATTR, SETFLAGS)] == [errno.ENOTTY] * 2
