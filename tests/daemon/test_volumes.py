"""Volumes: disks that outlive machines, with one writer at a time."""
import os
import signal
import threading

import pytest

from carrel import ROOTLESS, signal_all, spawner_pids
from daemon import Refused
from test_auth import refused, server, tcp  # noqa: F401
from test_durable import restart_host

MODES = ("ro", "cow", "rw")
pytestmark = pytest.mark.skipif(ROOTLESS, reason="rootless: volumes require root, test_volumes_rootless.py has that")


def delete_volumes(d):
    """Snapshots first."""
    for v in sorted(d.get("/v1/volumes")["volumes"], key=lambda v: -len(v["name"])):
        d.delete(f"/v1/volumes/{v['name']}")


@pytest.fixture
def volume(daemon):
    """Makes volumes; they are deleted after the machines of the test."""
    def make(name="data", size="64M", **fields):
        return daemon.post("/v1/volumes", {"name": name, **({} if "from" in fields else {"size": size}), **fields})

    delete_volumes(daemon)  # of other files' tests
    yield make
    daemon.clear()
    delete_volumes(daemon)


def use(name="data", at="/data", mode=None):
    return {"name": name, "at": at, **({"mode": mode} if mode else {})}


def machine(d, *uses, **fields):
    return d.machine(volumes=list(uses) or [use()], **fields)


def out(d, m, line):
    r = d.exec(m, line)
    assert r["exec"]["status"] == 0, r
    return r["stdout"]


def loops_of(d):
    """Files of this daemon's volumes that loop devices of the host have."""
    found = []
    for name in os.listdir("/sys/block"):
        try:
            with open(f"/sys/block/{name}/loop/backing_file") as f:
                path = f.read().strip()
        except OSError:
            continue
        if path.startswith(f"{d.home}/volumes/"):
            found.append(path)
    return found


def test_volume_outlives_its_machine(daemon, volume):
    v = volume()
    assert (v["name"], v["size"], v["machines"]) == ("data", 64 << 20, [])
    m = machine(daemon)
    out(daemon, m, "echo kept >/data/file; sudo -n true 2>/dev/null; ln -s file /data/link")
    assert daemon.get("/v1/volumes/data")["machines"] == [{"machine": m, "at": "/data", "mode": "rw"}]
    assert daemon.get(f"/v1/machines/{m}")["volumes"] == [{"name": "data", "at": "/data", "mode": "rw"}]
    daemon.delete(f"/v1/machines/{m}")
    assert daemon.get("/v1/volumes/data")["machines"] == []
    assert out(daemon, machine(daemon), "cat /data/link; stat -c %U /data/file") == "kept\nuser\n"


def test_one_machine_writes_and_others_read(daemon, volume):
    volume()
    writer = machine(daemon)
    reader, copier = machine(daemon, use(mode="ro")), machine(daemon, use(mode="cow"))
    error = refused(409, "busy", machine, daemon)
    assert writer in error["message"] and "carrel grant revoke" in error["remedy"]
    out(daemon, writer, "echo one >/data/a")
    assert out(daemon, reader, "cat /data/a") == "one\n"
    assert daemon.exec(reader, "echo no >/data/b")["exec"]["status"] != 0
    out(daemon, copier, "echo mine >/data/a; echo new >/data/c")
    assert out(daemon, writer, "cat /data/a; ls /data") == "one\na\n"
    daemon.delete(f"/v1/machines/{writer}")
    machine(daemon)


def test_two_creations_at_once_give_one_writer(daemon, volume):
    volume()
    results = []

    def make():
        try:
            results.append(machine(daemon))
        except Refused as e:
            results.append(e.code)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(r for r in results if not r.startswith("m-")) == ["busy"] * 5
    assert [u["mode"] for u in daemon.get("/v1/volumes/data")["machines"]] == ["rw"]


def test_repeated_request_with_a_key_gets_the_machine_that_writes(daemon, volume):
    volume()
    m = machine(daemon, key="the-same")
    assert machine(daemon, key="the-same") == m


def test_revoked_volume_leaves_the_machine(daemon, volume):
    volume()
    m = machine(daemon)
    out(daemon, m, "echo x >/data/a")
    grant, = (g for g in daemon.get(f"/v1/machines/{m}/grants")["grants"] if g["kind"] == "volume")
    daemon.delete(f"/v1/machines/{m}/grants/{grant['id']}")
    assert out(daemon, m, "ls /data") == ""
    assert out(daemon, machine(daemon), "cat /data/a") == "x\n"


def test_size_of_a_volume_is_a_limit(daemon, volume):
    volume(size="32M")
    m = machine(daemon)
    r = daemon.exec(m, "head -c 64M /dev/zero >/data/large")
    assert r["exec"]["status"] != 0 and "No space left" in r["stderr"]


def test_snapshot_and_copies(daemon, volume):
    volume()
    m = machine(daemon)
    out(daemon, m, "echo old >/data/a")
    error = refused(409, "busy", daemon.post, "/v1/volumes/data/snapshots", {"name": "one"})
    assert m in error["message"]
    daemon.delete(f"/v1/machines/{m}")
    snap = daemon.post("/v1/volumes/data/snapshots", {"name": "one"})
    assert (snap["name"], snap["from"], snap["size"]) == ("data@one", "data", 64 << 20)
    m = machine(daemon)
    out(daemon, m, "echo new >/data/a")
    assert out(daemon, machine(daemon, use("data@one")), "cat /data/a") == "old\n"
    refused(400, "invalid", machine, daemon, use("data@one", mode="rw"))
    daemon.clear()
    volume("again", **{"from": "data@one"})
    m = machine(daemon, use("again"))
    assert out(daemon, m, "cat /data/a; echo other >/data/a; cat /data/a") == "old\nother\n"
    assert out(daemon, machine(daemon, use("data@one", mode="cow")), "cat /data/a") == "old\n"
    error = refused(409, "busy", daemon.delete, "/v1/volumes/data")
    assert "data@one" in error["message"]


def test_attached_volume_is_not_deleted(daemon, volume):
    volume()
    for mode in MODES:
        m = machine(daemon, use(mode=mode))
        error = refused(409, "busy", daemon.delete, "/v1/volumes/data")
        assert m in error["message"]
        daemon.delete(f"/v1/machines/{m}")
    daemon.delete("/v1/volumes/data")
    refused(404, "not_found", daemon.get, "/v1/volumes/data")
    assert list((daemon.home / "volumes").iterdir()) == []


@pytest.mark.parametrize("fields, status, code", [
    ({"name": "data"}, 409, "exists"),
    ({"name": "a/b"}, 400, "invalid"),
    ({"name": "a@b"}, 400, "invalid"),
    ({"name": ".."}, 400, "invalid"),
    ({"name": "b", "size": "1M"}, 400, "invalid"),
    ({"name": "b", "size": "2T"}, 400, "invalid"),
    ({"name": "b", "from": "none"}, 404, "not_found"),
    ({"name": "b", "from": "data", "size": "64M"}, 400, "invalid"),
])
def test_wrong_volumes_are_refused(daemon, volume, fields, status, code):
    volume()
    refused(status, code, daemon.post, "/v1/volumes", fields)


@pytest.mark.parametrize("one, status, code", [
    (use("none"), 404, "not_found"),
    (use(at="/etc/x"), 400, "invalid"),
    (use(at="/proc"), 400, "invalid"),
    (use(at="data"), 400, "invalid"),
    (use(at="/data/../etc"), 400, "invalid"),
    (use(mode="rwx"), 400, "invalid"),
])
def test_wrong_uses_are_refused(daemon, volume, one, status, code):
    volume()
    refused(status, code, machine, daemon, one)


def test_fork_and_rewind_leave_the_volume_alone(daemon, volume):
    volume()
    m = machine(daemon)
    out(daemon, m, "echo one >/data/a; echo one >~/a")
    step = daemon.post(f"/v1/machines/{m}/steps", {"name": "here"})["number"]
    out(daemon, m, "echo two >/data/a; echo two >~/a")
    daemon.post(f"/v1/machines/{m}/rewind", {"step": str(step)})
    assert out(daemon, m, "cat ~/a /data/a") == "one\ntwo\n"
    fork = daemon.post(f"/v1/machines/{m}/fork", {})["machines"][0]["id"]
    assert out(daemon, fork, "cat ~/a; ls /data") == "one\n"
    assert "volumes" not in daemon.get(f"/v1/machines/{fork}")


def test_quota_counts_volumes(tcp):  # noqa: F811
    client = tcp(owner="volumes", scopes=["read", "run", "admin"], disk="2G")
    client.post("/v1/volumes", {"name": "a", "size": "1536M"})
    error = refused(429, "limit", client.post, "/v1/volumes", {"name": "b", "size": "1G"})
    assert "disk quota of this token is 2G: 1.5G in use, 1G more requested" in error["message"], error
    error = refused(429, "limit", client.machine, limits={"disk": "1G"})
    assert "1.5G in use" in error["message"], error
    client.delete("/v1/volumes/a")
    client.post("/v1/volumes", {"name": "b", "size": "1G"})
    client.delete("/v1/volumes/b")


def test_owners_do_not_see_volumes_of_others(tcp):  # noqa: F811
    one, other = (tcp(owner=o, scopes=["read", "run", "admin"]) for o in ("volume1", "volume2"))
    one.post("/v1/volumes", {"name": "data", "size": "16M"})
    assert other.get("/v1/volumes")["volumes"] == []
    refused(404, "not_found", other.get, "/v1/volumes/data")
    refused(404, "not_found", other.delete, "/v1/volumes/data")
    refused(404, "not_found", other.post, "/v1/volumes/data/snapshots", {})
    refused(404, "not_found", other.post, "/v1/volumes", {"name": "b", "from": "data"})
    refused(404, "not_found", machine, other)
    other.post("/v1/volumes", {"name": "data", "size": "16M"})  # a name of its own
    for client in (one, other):
        client.delete("/v1/volumes/data")


def test_volume_survives_kills_of_daemon_and_spawner(fresh):
    d = fresh()
    d.post("/v1/volumes", {"name": "data", "size": "64M"})
    m = machine(d)
    out(d, m, "echo before >/data/a")
    d.kill()
    signal_all(spawner_pids(d.run_dir), signal.SIGKILL)
    d.start()
    # A second loop device would mean a second filesystem on the same blocks.
    reader = machine(d, use(mode="ro"))
    out(d, m, "echo after >>/data/a")
    assert out(d, reader, "cat /data/a") == "before\nafter\n"
    assert len(loops_of(d)) == 1


def test_volume_returns_after_a_restart_of_the_host(fresh):
    d = fresh()
    d.post("/v1/volumes", {"name": "data", "size": "64M"})
    m = machine(d)
    out(d, m, "echo kept >/data/a; sync; echo x >~/x")
    d.post(f"/v1/machines/{m}/steps", {"name": "here"})
    d.until(lambda: any(s["durable"] for s in d.get(f"/v1/machines/{m}/steps")["steps"]))
    restart_host(d)
    d.post(f"/v1/machines/{m}/resume")
    assert out(d, m, "cat /data/a") == "kept\n"
    refused(409, "busy", machine, d)
    d.clear()


def test_unfinished_volumes_are_settled_at_the_start(fresh):
    """After a crash the row decides about every directory that has no final name."""
    d = fresh()
    kept = [d.post("/v1/volumes", {"name": n, "size": "16M"})["id"] for n in ("new", "old", "plain")]
    d.kill()
    top = d.home / "volumes"
    (top / kept[0]).rename(top / f"new-{kept[0]}")
    (top / kept[1]).rename(top / f"old-{kept[1]}")
    for name in ("new-v-aaaaaaaaaaaa", "old-v-bbbbbbbbbbbb", "v-cccccccccccc"):
        (top / name).mkdir()
        (top / name / "disk").write_bytes(b"x")
    d.start()
    assert {p.name for p in top.iterdir()} == {*kept, "v-cccccccccccc"}
    for name in ("new", "old", "plain"):
        d.delete(f"/v1/volumes/{name}")


def test_untrusted_data_is_followed_through_volumes(daemon, volume, tmp_path):
    def tainted(m):
        return daemon.get(f"/v1/machines/{m}/net").get("tainted", "")

    for name in ("data", "clean"):
        volume(name)
    before, clean = machine(daemon, use(mode="ro")), machine(daemon, use("clean"))
    fd = os.open(tmp_path, os.O_RDONLY)
    dirs = [{"path": str(tmp_path), "at": "/home/user/d", "mode": "ro", "untrusted": True}]
    writer = daemon.lend(fd, dirs=dirs, volumes=[use()])
    os.close(fd)
    assert tainted(writer) and tainted(before) and not tainted(clean)
    daemon.clear()
    assert tainted(machine(daemon, use(mode="cow")))
    daemon.clear()
    daemon.post("/v1/volumes/data/snapshots", {"name": "s"})
    volume("copy", **{"from": "data@s"})
    assert tainted(machine(daemon, use("data@s"))) and tainted(machine(daemon, use("copy")))
    assert not tainted(machine(daemon, use("clean")))


def test_volumes_are_in_journal_events_and_metrics(daemon, volume):
    volume()
    daemon.post("/v1/volumes/data/snapshots", {"name": "s"})
    text = daemon.request("GET", "/metrics", raw=True).decode()
    assert "carrel_volumes 2" in text and f"carrel_volumes_bytes {128 << 20}" in text
    records = daemon.request("GET", "/v1/audit", raw=True).decode()
    assert '"volume.create"' in records and '"volume.snap"' in records


CHANGE = "echo two >>notes; echo new >new; rm old; mkdir d; echo x >d/f; mv dir moved; chmod 600 mode; ln -s notes link"
CHANGED = {"notes": "modified", "new": "added", "old": "deleted", "d": "added", "d/f": "added", "dir": "deleted", "dir/a": "deleted",
           "moved": "added", "moved/a": "added", "mode": "modified", "link": "added"}
FILLED = "echo one >notes; echo old >old; mkdir dir many; echo a >dir/a; echo m >mode; cd many; seq 3000 | xargs touch"


def volume_diff(d, m, name="data", **query):
    answer = d.get(f"/v1/machines/{m}/diff", volume=name, **query)
    assert "cut" not in answer
    return {c["path"]: c["change"] for c in answer["changes"]}, answer


def filled_volume(d, volume):
    volume()
    m = machine(d)
    out(d, m, f"cd /data; {FILLED}")
    d.delete(f"/v1/machines/{m}")


def test_changes_of_mode_cow_are_those_of_the_machine(daemon, volume):
    filled_volume(daemon, volume)
    m, other = machine(daemon, use(mode="cow")), machine(daemon, use(mode="cow"))
    assert volume_diff(daemon, m)[0] == {}
    out(daemon, m, f"cd /data; {CHANGE}")
    found, answer = volume_diff(daemon, m)
    assert found == CHANGED and answer["from"] == {"name": "data"} and answer["looked"] < 100, answer
    notes = next(c for c in answer["changes"] if c["path"] == "notes")
    assert "+two" in notes["diff"] and notes["after"]["owner"] == 1000
    assert set(volume_diff(daemon, m, path="/d")[0]) == {"d", "d/f"}
    assert volume_diff(daemon, other)[0] == {} and out(daemon, other, "cat /data/notes") == "one\n"
    daemon.post(f"/v1/machines/{m}/pause")
    assert volume_diff(daemon, m)[0] == CHANGED
    daemon.restart()
    assert volume_diff(daemon, m)[0] == CHANGED


def test_changes_of_mode_rw_are_those_since_a_snapshot(daemon, volume):
    filled_volume(daemon, volume)
    m = machine(daemon)
    refused(404, "not_found", daemon.get, f"/v1/machines/{m}/diff", volume="data")
    daemon.delete(f"/v1/machines/{m}")
    for name in ("first", "second"):
        daemon.post("/v1/volumes/data/snapshots", {"name": name})
        m = machine(daemon)
        out(daemon, m, f"cd /data; {CHANGE}" if name == "second" else "echo a >/data/between")
        if name == "first":
            daemon.delete(f"/v1/machines/{m}")
    found, answer = volume_diff(daemon, m)
    assert found == CHANGED and answer["from"] == {"name": "data@second"}
    assert volume_diff(daemon, m, **{"from": "first"})[0] == {**CHANGED, "between": "added"}
    assert volume_diff(daemon, m, **{"from": "data@first"})[0] == {**CHANGED, "between": "added"}
    same_size = "cp -p notes /tmp/n; tr a-z A-Z </tmp/n >notes; touch -r /tmp/n notes"
    out(daemon, m, f"cd /data/many; echo abc >1; cd ..; {same_size}")
    found, answer = volume_diff(daemon, m)
    assert found == {**CHANGED, "many/1": "modified"}
    assert "+ONE" in next(c for c in answer["changes"] if c["path"] == "notes")["diff"]
    daemon.delete(f"/v1/machines/{m}")
    daemon.until(lambda: loops_of(daemon) == [])


def test_comparisons_of_volumes_that_are_refused(daemon, volume):
    volume()
    volume("other")
    for name in ("data", "other"):
        daemon.post(f"/v1/volumes/{name}/snapshots", {"name": "s"})
    ro, rw, cow = machine(daemon, use(mode="ro")), machine(daemon), machine(daemon, use(mode="cow"))
    for code, m, query in (("not_found", rw, {"volume": "nonesuch"}), ("not_found", rw, {"volume": "other"}), ("invalid", ro, {"volume": "data"}),
                           ("invalid", rw, {"volume": "data", "from": "other@s"}), ("not_found", rw, {"volume": "data", "from": "t"}),
                           ("invalid", cow, {"volume": "data", "from": "s"}), ("invalid", rw, {"volume": "data", "path": "/../x"})):
        refused({"not_found": 404, "invalid": 400}[code], code, daemon.get, f"/v1/machines/{m}/diff", **query)


def test_volumes_are_reviewed_on_the_command_line(carrel, tmp_path):
    def run(*args, status=0):
        done = carrel(*args)
        assert done.returncode == status, done
        return (done.stdout + done.stderr).decode()

    run("volume", "create", "data", "--size", "64M")
    run("run", "--volume", "data:/data", "--", "sh", "-c", f"cd /data; {FILLED}")
    run("volume", "snap", "data", "one")
    for mode in ("cow", "rw"):
        to = tmp_path / mode
        to.mkdir()
        (to / "kept").write_text("owner's")  # before the machine is made: a later change is not overwritten
        m = run("new", "--volume", f"data:/data:{mode}").strip()
        run("exec", m, "--", "sh", "-c", f"cd /data; {CHANGE}")
        shown = run("diff", m, "--volume", "data")
        assert "\nM notes" in f"\n{shown}" and "+two" in shown and "D old" in shown and "A d/f" in shown, shown
        assert "+two" not in run("diff", m, "--volume", "data", "--stat")
        run("ship", "-y", m, "--volume", "data", to)
        assert (to / "notes").read_text() == "one\ntwo\n" and (to / "moved/a").read_text() == "a\n" and (to / "kept").exists()
        assert (to / "many").exists() == (mode == "rw"), "of mode cow only what changed"
        run("ship", "-y", "--mirror", m, "--volume", "data", to)
        assert (to / "many/3000").exists() and not (to / "kept").exists()
        assert "name a DIRECTORY" in run("ship", m, "--volume", "data", status=125) if mode == "rw" else "carrel cp" in run("ship", m, "--volume", "data", status=125)
        assert "no volume" in run("ship", m, "--volume", "other", to, status=125)
        assert "no volume" in run("diff", m, "--volume", "other", status=125)
        run("rm", m)
    run("volume", "rm", "data@one")
    run("volume", "rm", "data")


def test_command_line(carrel, tmp_path):
    def run(*args, status=0):
        done = carrel(*args)
        assert (done.returncode != 0) == status, done
        return (done.stderr if status else done.stdout).decode()

    assert b"made volume 'data'" in carrel("volume", "create", "data", "--size", "64M").stderr
    assert run("volume", "ls", "-q") == "data\n"
    m = run("new", "--volume", "data:/data").strip()
    run("exec", m, "--", "sh", "-c", "echo hi >/data/a")
    assert f"{m}:rw" in run("volume", "ls")
    assert '{"kind":"volume","path":"/data","mode":"rw"}' in run("exec", m, "--", "cat", "/run/carrel/machine.json")
    run("ship", "-y", f"{m}:/data", tmp_path)
    assert (tmp_path / "a").read_text() == "hi\n"
    assert m in run("volume", "show", "data") and "/data" in run("show", m)
    assert m in run("volume", "rm", "data", status=1)
    run("rm", m)
    assert run("run", "--volume", "data:/data:ro", "--", "cat", "/data/a") == "hi\n"
    for i in range(5):  # one after the other, each the only writer
        run("run", "--volume", "data:/data", "--", "sh", "-c", "echo again >>/data/a")
    assert run("run", "--volume", "data:/data:cow", "--", "wc", "-l", "/data/a") == "6 /data/a\n"
    for wrong in ("data", "data:data", ":/data", "data:/data:rwx"):
        assert "VOLUME:/GUEST" in run("new", "--volume", wrong, status=1), wrong
    assert "--size" in run("volume", "rm", "data", "--size", "1G", status=1)
    run("volume", "rm", "data")
