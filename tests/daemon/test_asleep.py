"""Cell machines that nobody uses have no box and no process, and wake for the next request."""
import contextlib
import os
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import cells
from carrel import ROOTLESS, signal_all, spawner_pids
from daemon import Daemon, Refused
from test_cells import run
from test_durable import restart_host, saved
from test_events import journal

IMAGE = "programs"


@pytest.fixture(scope="module")
def host():
    d = Daemon()
    d.request("POST", "/v1/images", cells.image(), name=IMAGE)
    yield d
    d.stop()


def new(d, **fields):
    given = {"kind": "cell", "image": IMAGE, **fields}
    return d.machine(**{name: value for name, value in given.items() if value is not None})


def boxes(d):
    """Machines that have a box."""
    return {p.name for p in d.run_dir.glob("boxes/m-*")}


def asleep(d, m):
    """Waits until the machine has no box, and returns it."""
    d.until(lambda: m not in boxes(d))
    assert d.get(f"/v1/machines/{m}")["state"] == "running"
    return m


def test_unused_cell_has_no_process_and_wakes_for_a_command(host):
    box, m = host.machine(), new(host)
    assert {box, m} <= boxes(host)
    asleep(host, m)
    assert box in boxes(host), "a box has processes of its own"
    assert run(host, m, "hello") == (3, "hello\n", "")
    assert m in boxes(host)
    asleep(host, m)
    host.delete(f"/v1/machines/{m}")
    host.delete(f"/v1/machines/{box}")
    assert m not in [x["id"] for x in host.machines()]


def test_files_steps_and_records_of_a_cell_are_the_same_after_its_sleep(host):
    m = new(host, env={"A": "b"})
    first = run(host, m, "put", "data/one") and host.post(f"/v1/machines/{m}/steps", {"name": "first"})["id"]
    run(host, m, "put", "data/two")
    host.put(f"/v1/machines/{m}/files", b"mine\n", path="/data/mine")
    before = host.get(f"/v1/machines/{m}/steps")["steps"]
    execs = host.get(f"/v1/machines/{m}/execs")["execs"]
    diff = host.get(f"/v1/machines/{m}/diff")["changes"]
    asleep(host, m)
    after = host.get(f"/v1/machines/{m}/steps")["steps"]
    assert [(s["id"], s["restorable"]) for s in after] == [(s["id"], s["restorable"]) for s in before]
    assert host.get(f"/v1/machines/{m}/execs")["execs"] == execs
    assert m not in boxes(host), "records do not wake it"
    assert host.get(f"/v1/machines/{m}/diff")["changes"] == diff
    assert host.get(f"/v1/machines/{m}/files", path="/data/mine") == b"mine\n"
    assert run(host, m, "env")[1] == "A=b\0"
    asleep(host, m)
    fork = host.post(f"/v1/machines/{m}/fork", {"step": first})["machines"][0]["id"]
    assert [run(host, fork, "look", f"data/{n}")[0] for n in ("one", "two")] == [0, cells.NOENT]
    asleep(host, m)
    copy = new(host, image=None, **{"from": f"{m}@first"})
    assert [run(host, copy, "look", f"data/{n}")[0] for n in ("one", "two")] == [0, cells.NOENT]
    host.post(f"/v1/machines/{m}/rewind", {"step": first})
    assert [run(host, m, "look", f"data/{n}")[0] for n in ("one", "two")] == [0, cells.NOENT]
    for x in (m, fork, copy):
        asleep(host, x)
        assert run(host, x, "look", "data/one")[0] == 0
    assert host.get("/v1/store/check")["whole"]


def test_changes_without_a_step_are_kept(host):
    m = new(host, steps="manual")
    run(host, m, "put", "data/one")
    host.put(f"/v1/machines/{m}/files", b"mine\n", path="/data/mine")
    assert host.get(f"/v1/machines/{m}/steps")["steps"] == []
    for _ in range(2):
        asleep(host, m)
        assert host.get(f"/v1/machines/{m}/files", path="/data/mine") == b"mine\n"
        assert run(host, m, "look", "data/one")[0] == 0
        steps = host.get(f"/v1/machines/{m}/steps")["steps"]
        assert [s["kind"] for s in steps] == ["kept"], "and a second sleep adds nothing"


def test_every_verb_wakes_a_cell(host):
    m = asleep(host, new(host))
    url = f"/v1/machines/{m}"
    for call in (lambda: host.patch(url, {"limits": {"mem": 128 << 20}}),
                 lambda: host.get(url + "/files/list", path="/"),
                 lambda: host.get(url + "/files/tar", path="/bin"),
                 lambda: host.post(url + "/files/mkdir", {"path": "/data/new"}),
                 lambda: host.post(url + "/steps", {"name": "one"}),
                 lambda: host.get(url + "/diff"),
                 lambda: host.post(url + "/changesets", {"path": "/data"}),
                 lambda: host.post(url + "/image", {"name": "taken"}),
                 lambda: host.post(url + "/resume")):
        if host.get(url)["state"] == "running":
            asleep(host, m)
        call()
        assert m in boxes(host)
    assert host.get(url)["limits"]["mem"] == 128 << 20
    host.delete("/v1/images/taken")


def test_stats_and_stop_do_not_wake_a_cell(host):
    m = asleep(host, new(host))
    assert "cpu_us" not in host.get(f"/v1/machines/{m}/stats")
    assert host.post(f"/v1/machines/{m}/stop")["state"] == "stopped"
    assert m not in boxes(host)
    assert run(host, m, "hello")[0] == 3


def test_image_without_a_name_stays_for_a_sleeping_cell(host):
    host.request("POST", "/v1/images", cells.image(more=b"x"), name="other")
    m = asleep(host, new(host, image="other"))
    host.delete("/v1/images/other")
    host.restart()
    assert run(host, m, "hello")[0] == 3
    assert host.get(f"/v1/machines/{m}/files", path="/more") == b"x"


def test_requests_that_come_at_once_share_one_wake(host):
    m = asleep(host, new(host))
    with ThreadPoolExecutor(6) as pool:
        commands = [pool.submit(run, host, m, "hello") for _ in range(4)]
        reads = [pool.submit(host.get, f"/v1/machines/{m}/files/list", path="/bin") for _ in range(2)]
    assert {c.result()[0] for c in commands} == {3} and all(r.result()["entries"] for r in reads)
    assert sum(r["verb"] == "machine.resume" and "result" in r for r in journal(host, machine=m)) <= 1


def test_command_keeps_a_cell_awake(host):
    m = asleep(host, new(host))
    x = host.background(m, ["spin"])
    time.sleep(4)
    assert m in boxes(host)
    host.post(f"/v1/machines/{m}/execs/{x}/signal", {"signal": "KILL"})
    host.wait(m, x)
    asleep(host, m)


def test_slow_upload_keeps_a_cell_awake(host):
    m = new(host)
    c = host.connect()
    c.putrequest("PUT", f"/v1/machines/{m}/files?path=/data/slow")
    c.putheader("Content-Length", "6")
    c.endheaders()
    c.send(b"one")
    time.sleep(4)
    assert m in boxes(host)
    c.send(b"two")
    assert c.getresponse().status == 200
    asleep(host, m)
    assert host.get(f"/v1/machines/{m}/files", path="/data/slow") == b"onetwo"


def test_client_that_leaves_while_a_cell_wakes_up_harms_nobody(host):
    m = new(host)
    for method, path, body in (("PUT", "/files?path=/data/cut", b"one"), ("GET", "/files?path=/bin/hello.wasm", b""),
                               ("POST", "/execs", b'{"argv": ["hello"]}')):
        asleep(host, m)
        c = host.connect()
        c.putrequest(method, f"/v1/machines/{m}{path}")
        c.putheader("Content-Length", str(len(body) + 3 * (method == "PUT")))
        c.endheaders(body)
        c.close()
        host.until(lambda: m in boxes(host))
        assert run(host, m, "hello")[0] == 3


def test_source_of_a_running_fork_stays_awake(host):
    """Its disk has the layers of the fork."""
    m = new(host)
    run(host, m, "put", "data/one")
    fork = host.post(f"/v1/machines/{m}/fork")["machines"][0]["id"]
    x = host.background(fork, ["spin"])
    time.sleep(4)
    assert m in boxes(host)
    assert run(host, host.post(f"/v1/machines/{fork}/fork", {"step": "1"})["machines"][0]["id"], "look", "data/one")[0] == 0
    host.post(f"/v1/machines/{fork}/execs/{x}/signal", {"signal": "KILL"})
    host.wait(fork, x)
    asleep(host, fork)
    for x in (m, fork):
        assert run(host, x, "look", "data/one")[0] == 0


def test_idle_action_of_a_sleeping_cell(host):
    stops, ends, released = (new(host, idle=4, idle_action=a) for a in ("pause", "destroy", "release"))
    for m in (stops, ends, released):
        host.until(lambda: m not in boxes(host))
    host.until(lambda: {ends, released}.isdisjoint(x["id"] for x in host.machines()))
    host.until(lambda: host.get(f"/v1/machines/{stops}")["state"] == "stopped")
    assert run(host, stops, "hello")[0] == 3


@pytest.mark.skipif(ROOTLESS, reason="the limit of the disk begins anew without root")
def test_sleep_does_not_extend_the_disk_limit(host):
    m, written = new(host, limits={"disk": 4 << 20}), 0
    with pytest.raises(Refused) as why:
        while written < 8 << 20:
            host.put(f"/v1/machines/{m}/files", os.urandom(1 << 20), path=f"/data/{written}")
            written += 1 << 20
            asleep(host, m)
    assert why.value.code == "limit" and 1 << 20 < written <= 4 << 20, (why.value, written)
    assert len(host.get(f"/v1/machines/{m}/files", path="/data/0")) == 1 << 20


# ---- crashes ----

def test_sleeping_cells_are_there_after_every_crash(host):
    plain, used = new(host), new(host)
    run(host, used, "put", "data/one")
    for m in (plain, used):
        asleep(host, m)
    for crash in (host.restart, lambda: signal_all(spawner_pids(host.run_dir), signal.SIGKILL), lambda: restart_host(host)):
        crash()
        for m in (plain, used):
            asleep(host, m)
            assert run(host, m, "hello")[0] == 3
        assert run(host, used, "look", "data/one")[0] == 0
        for m in (plain, used):
            asleep(host, m)
    stopped = asleep(host, new(host))
    host.post(f"/v1/machines/{stopped}/stop")
    host.restart()
    assert host.get(f"/v1/machines/{stopped}")["state"] == "stopped"
    assert run(host, stopped, "hello")[0] == 3


def test_box_that_is_left_over_is_not_used_again(host):
    """As if the daemon was killed before it wrote that the machine is awake."""
    m = new(host, steps="manual")
    run(host, m, "put", "data/one")
    asleep(host, m)
    run(host, m, "put", "data/only-in-the-box")
    host.kill()
    with contextlib.closing(sqlite3.connect(host.home / "carrel.db")) as db, db:
        assert db.execute("UPDATE saved SET boot = '' WHERE machine = ? AND boot != ''", (m,)).rowcount == 1
    host.start()
    host.until(lambda: m not in boxes(host))
    assert [run(host, m, "look", f"data/{n}")[0] for n in ("one", "only-in-the-box")] == [0, cells.NOENT]


@pytest.mark.parametrize("after", [2, 2.2, 2.22, 2.25])
def test_daemon_killed_while_a_cell_falls_asleep_loses_nothing(host, after):
    m = new(host, steps="manual")
    run(host, m, "put", "data/one")
    host.put(f"/v1/machines/{m}/files", b"mine\n", path="/data/mine")
    time.sleep(after)
    host.restart()
    for _ in range(2):
        assert run(host, m, "look", "data/one")[0] == 0
        assert host.get(f"/v1/machines/{m}/files", path="/data/mine") == b"mine\n"
        asleep(host, m)


def test_saved_layers_go_with_their_machine(host):
    host.clear()
    host.until(lambda: not saved(host))
    m = new(host)
    run(host, m, "put", "data/one")
    asleep(host, m)
    assert len(saved(host)) == 1
    host.delete(f"/v1/machines/{m}")
    host.until(lambda: not saved(host))
