"""Builds as jobs of the daemon: steps, files, log, progress, cancel, restart, limits."""
import io
import json
import os
import signal
import subprocess
import tarfile
import threading

import pytest

from carrel import PROGRAM
from daemon import Refused
from test_jobs import OWNER_MAX as JOBS_MAX, stalled_imports

OWNER_MAX, HOST_MAX, KEPT_MAX = 4, 16, 32


def step(command, **fields):
    return {"what": f"run {command}", "make": True, "command": command, "user": "root", "cwd": "/", **fields}


def start(daemon, *steps, **fields):
    return daemon.post("/v1/images/builds", {"base": "small", "steps": list(steps), **fields})


def show(daemon, build):
    return daemon.get("/v1/images/builds/" + build["id"])


def ended(daemon, build):
    daemon.until(lambda: "ended" in show(daemon, build))
    return show(daemon, build)


def tar(**files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o640
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def send(daemon, build, number, data):
    return daemon.put(f"/v1/images/builds/{build['id']}/files/{number}", data)


def log(daemon, build, **query):
    return list(map(json.loads, daemon.get(f"/v1/images/builds/{build['id']}/log", **query).splitlines()))


def held(daemon, build, path="/tmp/held"):
    """The machine of a build, once its step has made a file."""
    def machine():
        try:
            found = daemon.machines()
            return found and daemon.exec(found[0]["id"], f"[ -e {path} ]", user="root")["exec"]["status"] == 0
        except Refused:  # it is being created, or waits for its image
            return False
    daemon.until(machine)
    return daemon.machines()[0]["id"]


WAIT = "touch /tmp/held; while :; do sleep 0.1; done"


def test_build_runs_steps_and_names_the_image(daemon, small):
    b = start(daemon, {"what": "base small", "how": "using"}, step("echo one >/one; echo said"), step("cat /one >/two"), name="app")
    assert b["state"] == "running" and b["id"].startswith("b-") and b["steps"] == 3
    done = ended(daemon, b)
    assert done["state"] == "done" and done["made"] == 2 and done["cached"] == 0 and "error" not in done, done
    image = daemon.get("/v1/images/app")
    assert image["id"] == done["image"] and image["layers"] == 3
    assert daemon.machines() == [], "its machine is gone"
    assert daemon.exec(daemon.machine(image="app"), "cat /two")["stdout"] == "one\n"
    events = log(daemon, b)
    assert [(e["how"], e["what"]) for e in events if e["type"] == "step"] == [
        ("using", "base small"), ("making", "run echo one >/one; echo said"), ("making", "run cat /one >/two")]
    assert [e["data"] for e in events if e["type"] == "output"] == ["said\n"]
    assert events[-1]["type"] == "end" and events[-1]["build"] == done


def test_steps_that_were_made_are_cached(daemon, small):
    first = ended(daemon, start(daemon, step("echo 1 >/one"), step("echo 2 >/two")))
    again = ended(daemon, start(daemon, step("echo 1 >/one", place="elsewhere"), step("echo 2 >/two")))
    assert (again["made"], again["cached"], again["image"]) == (0, 2, first["image"])
    for change in ({"env": {"A": "1"}}, {"user": "1000"}, {"dirs": ["/d"]}, {"config": {"user": "root"}}):
        other = ended(daemon, start(daemon, step("echo 1 >/one"), step("true", **change)))
        assert (other["made"], other["cached"]) == (1, 1), (change, other)
    assert ended(daemon, start(daemon, step("echo 1 >/one"), no_cache=True))["made"] == 1


def test_failed_step_names_its_place_and_leaves_no_machine(daemon, small):
    b = ended(daemon, start(daemon, step("echo fine"), step("echo broken; exit 7", place="line 3 of the recipe"), step("touch /never"), name="app"))
    assert b["state"] == "failed" and b["code"] == "invalid" and b["step"] == 2 and b["made"] == 1
    assert b["error"] == "line 3 of the recipe: the command exited with status 7" and "image" not in b
    assert daemon.machines() == [] and [e["data"] for e in log(daemon, b) if e["type"] == "output"] == ["fine\n", "broken\n"]
    assert "app" not in [i["name"] for i in daemon.get("/v1/images")["images"]]


def test_files_are_copied_into_the_machine(daemon, small):
    copies = [{"what": "copy", "make": True, "archive": 0, "to": "/etc/app/conf", "as_file": True, "key": "1"},
              {"what": "copy", "make": True, "archive": 1, "to": "/srv/new", "into": True, "key": "2", "chown": "12:34"},
              {"what": "copy", "make": True, "archive": 2, "to": "/etc", "key": "3", "chown": "app"}]
    b = start(daemon, *copies, name="app")
    assert b["state"] == "uploading"
    send(daemon, b, 1, tar(a=b"1", b=b"2"))
    send(daemon, b, 0, tar(anything=b"conf\n"))
    assert show(daemon, b)["state"] == "uploading" and daemon.machines() == []
    with pytest.raises(Refused) as refused:
        send(daemon, b, 0, tar(anything=b"other"))
    assert refused.value.code == "exists"
    send(daemon, b, 2, tar(one=b"x" * 200000))
    done = ended(daemon, b)
    assert done["state"] == "done", done
    out = daemon.exec(daemon.machine(image="app"), "cat /etc/app/conf; stat -c '%u:%g %a %s %n' /etc/app/conf /srv/new /srv/new/a /srv/new/b /etc/one", user="root")
    assert out["stdout"].splitlines() == ["conf", "0:0 640 5 /etc/app/conf", "12:34 755 16 /srv/new".replace(" 16 ", f" {size_of(out, '/srv/new')} "),
                                          "12:34 640 1 /srv/new/a", "12:34 640 1 /srv/new/b", "1234:1234 640 200000 /etc/one"], out


def size_of(out, name):
    return next(line for line in out["stdout"].splitlines() if line.endswith(" " + name)).split()[2]


def headers(count):
    """Extended headers without contents, which belong to no file."""
    info = tarfile.TarInfo("pax")
    info.type = tarfile.XGLTYPE
    return info.tobuf(format=tarfile.USTAR_FORMAT) * count


@pytest.mark.parametrize("fields,said", [({"to": "/x", "as_file": True}, "does not start with a file"), ({"to": "/d", "into": True, "chown": "1"}, "is damaged")])
def test_archive_with_many_headers_before_a_file_is_refused(daemon, small, fields, said):
    """A header takes 512 bytes, and the daemon reads all that belong to an entry at once."""
    for count, state in ((200, "done"), (300, "failed")):
        b = start(daemon, {"what": "copy", "make": True, "archive": 0, "key": str(count), **fields})
        send(daemon, b, 0, headers(count) + tar(x=b"1"))
        done = ended(daemon, b)
        assert done["state"] == state and (state == "done" or said in done["error"]), done


def test_file_after_many_links_gets_its_owner(daemon, small):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for i in range(100):
            link = tarfile.TarInfo(f"link{i}")
            link.type, link.linkname = tarfile.SYMTYPE, "last"
            t.addfile(link)
        t.addfile(tarfile.TarInfo("last"))
    b = start(daemon, {"what": "copy", "make": True, "archive": 0, "key": "1", "to": "/d", "into": True, "chown": "12:34"}, name="app")
    send(daemon, b, 0, out.getvalue())
    assert ended(daemon, b)["state"] == "done"
    assert daemon.exec(daemon.machine(image="app"), "stat -c %u:%g /d/last; set -- /d/*; echo $#", user="root")["stdout"].split() == ["12:34", "101"]


@pytest.mark.parametrize("fields,said", [
    ({"steps": [step("true", argv=["true"])]}, "one of"), ({"steps": [{"what": "x", "command": "true"}]}, "with 'make'"),
    ({"steps": [{"what": "x", "make": True, "archive": 1, "to": "/x", "key": "1"}]}, "archive number 0"),
    ({"steps": [{"what": "x", "make": True, "archive": 0, "to": "x", "key": "1"}]}, "absolute path"),
    ({"steps": [], "base": "missing"}, "'missing' does not exist"), ({"steps": [], "name": "../x"}, "not a valid image name"),
    ({"steps": [{"make": True}]}, "what"), ({"steps": [], "other": 1}, "other")])
def test_request_that_makes_no_sense_is_refused(daemon, small, fields, said):
    with pytest.raises(Refused) as refused:
        start(daemon, **fields)
    assert said in refused.value.error["message"], refused.value
    assert daemon.get("/v1/images/builds")["builds"] == [] or all("ended" in b for b in daemon.get("/v1/images/builds")["builds"])


def test_cancel_ends_the_command_and_the_machine(daemon, small):
    b = start(daemon, step("echo 1 >/one"), step(WAIT), name="app")
    held(daemon, b)
    assert show(daemon, b)["state"] == "running" and show(daemon, b)["what"].endswith(WAIT) and show(daemon, b)["step"] == 2
    daemon.delete("/v1/images/builds/" + b["id"])
    done = ended(daemon, b)
    assert done["state"] == "cancelled" and done["made"] == 1, done
    assert daemon.machines() == [] and "app" not in [i["name"] for i in daemon.get("/v1/images")["images"]]
    assert daemon.delete("/v1/images/builds/" + b["id"]) == done, "what has ended stays as it is"


def written(task):
    """Bytes that a thread or process has passed to write()."""
    with open(f"/proc/{task}/io") as f:
        return int(next(line for line in f if line.startswith("wchar:")).split()[1])


def test_files_are_not_written_by_the_thread_that_serves_requests(daemon, small):
    """A write waits if the disk is slow. The main thread is the one that serves all clients."""
    pid, size = daemon.process.pid, 24 << 20
    build = start(daemon, *[{"what": "copy", "make": True, "archive": i, "to": f"/{i}", "as_file": True, "key": str(i)} for i in range(2)], name="app")
    before = written(f"{pid}/task/{pid}"), written(pid)
    send(daemon, build, 0, tar(big=os.urandom(size)))
    main, whole = written(f"{pid}/task/{pid}") - before[0], written(pid) - before[1]
    assert whole >= size and main < size // 4, (main, whole)
    send(daemon, build, 1, tar(small=b"1"))
    assert ended(daemon, build)["state"] == "done", show(daemon, build)
    assert daemon.exec(daemon.machine(image="app"), "stat -c %s /0")["stdout"] == f"{size}\n"


def test_client_that_disconnects_can_send_files_again(daemon, small):
    b = start(daemon, {"what": "copy", "make": True, "archive": 0, "to": "/x", "as_file": True, "key": "1"}, name="app")
    c = daemon.connect()
    c.putrequest("PUT", f"/v1/images/builds/{b['id']}/files/0")
    c.putheader("Content-Length", str(8 << 20))
    c.endheaders()
    c.send(os.urandom(3 << 20))
    c.close()

    def again():
        try:
            return send(daemon, b, 0, tar(x=b"1\n"))
        except Refused as refused:
            assert refused.code == "exists", refused  # the daemon has not seen the end of the first one
            return None

    daemon.until(again)
    assert ended(daemon, b)["state"] == "done", show(daemon, b)
    assert daemon.exec(daemon.machine(image="app"), "cat /x", user="root")["stdout"] == "1\n"


def test_cancel_while_files_are_awaited(daemon, small):
    b = start(daemon, {"what": "copy", "make": True, "archive": 0, "to": "/x", "as_file": True, "key": "1"})
    daemon.delete("/v1/images/builds/" + b["id"])
    assert ended(daemon, b)["state"] == "cancelled"
    with pytest.raises(Refused) as refused:
        send(daemon, b, 0, tar(x=b"1"))
    assert refused.value.code == "gone"


def test_log_goes_on_after_a_disconnect(daemon, small):
    """A reader that lost its connection continues at an offset, in both forms of the stream."""
    b = start(daemon, step("echo first; touch /tmp/held; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo second"))
    m = held(daemon, b)
    c = daemon.connect()
    c.request("GET", f"/v1/images/builds/{b['id']}/log?follow=1", headers={"Accept": "text/event-stream"})
    answer = c.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    lines = [answer.readline().decode() for _ in range(6)]
    ids = [line[4:].strip() for line in lines if line.startswith("id:")]
    assert '"first\\n"' in "".join(lines) and len(ids) == 2, lines
    c.close()
    daemon.exec(m, "touch /tmp/go", user="root")
    done = ended(daemon, b)
    assert done["state"] == "done"
    rest = log(daemon, b, offset=ids[-1])
    assert [e["type"] for e in rest] == ["output", "end"] and rest[0]["data"] == "second\n", rest
    text = daemon.request("GET", f"/v1/images/builds/{b['id']}/log", headers={"Accept": "text/event-stream", "Last-Event-ID": ids[0]}.items()).decode()
    assert "second" in text and "first" in text and "making" not in text, text


def test_follower_of_a_log_gets_its_end(daemon, small):
    b = start(daemon, step("echo first; touch /tmp/held; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo second"))
    m, got = held(daemon, b), []

    def follow():
        got.extend(daemon.stream("GET", f"/v1/images/builds/{b['id']}/log?follow=1"))

    reader = threading.Thread(target=follow)
    reader.start()
    daemon.exec(m, "touch /tmp/go", user="root")
    reader.join(60)
    assert [e["type"] for e in got] == ["step", "output", "output", "end"] and got[-1]["build"]["state"] == "done", got


def test_long_output_of_a_failed_step_is_kept_to_its_end(daemon, small):
    line = "0123456789" * 20
    b = ended(daemon, start(daemon, step(f"i=0; while [ $i -lt 40000 ]; do echo $i {line}; i=$((i+1)); done; echo the reason; exit 3")))
    events = log(daemon, b)
    assert b["state"] == "failed" and [e["type"] for e in events].count("gap") == 1
    assert "the reason\n" in events[-2]["data"] and events[-2]["type"] == "output"
    assert os.path.getsize(daemon.home / "builds" / b["id"]) < 5 << 20


def test_builds_of_an_owner_are_limited(daemon, small):
    made = [start(daemon, step(WAIT), step(str(i)), no_cache=True) for i in range(OWNER_MAX)]
    with pytest.raises(Refused) as refused:
        start(daemon, step("true"))
    assert refused.value.status == 409 and refused.value.code == "busy" and "image builds in progress (at most 4)" in refused.value.error["message"]
    for b in made:
        daemon.delete("/v1/images/builds/" + b["id"])
    for b in made:
        assert ended(daemon, b)["state"] == "cancelled"


COPY = {"what": "copy", "make": True, "archive": 0, "to": "/x", "as_file": True, "key": "1"}


def test_builds_of_a_host_are_limited(fresh):
    """Builds that wait for their files, of as many owners as it takes."""
    daemon = fresh("--listen", "127.0.0.1:0")
    owners = [daemon.tcp(owner=f"o{i}", scopes=["read", "run"]) for i in range(HOST_MAX // OWNER_MAX)]
    made = [(o, start(o, COPY, base="host")) for o in owners for _ in range(OWNER_MAX)]
    other = daemon.tcp(owner="other", scopes=["read", "run"])
    with pytest.raises(Refused) as refused:
        start(other, COPY, base="host")
    assert refused.value.code == "busy" and "this host has 16 image builds in progress (at most 16)" in refused.value.error["message"]
    o, first = made[0]
    o.delete("/v1/images/builds/" + first["id"])
    assert ended(o, first)["state"] == "cancelled" and start(other, COPY, base="host")["state"] == "uploading", "the control"


def test_files_of_a_build_end_at_the_disk_quota(fresh):
    daemon, quota = fresh("--listen", "127.0.0.1:0"), 8 << 20
    owner = daemon.tcp(owner="small", scopes=["read", "run"], disk=str(quota))
    b = start(owner, COPY, {**COPY, "archive": 1}, base="host")
    with pytest.raises(Refused) as refused:
        send(owner, b, 0, tar(x=bytes(quota)))
    assert refused.value.code == "limit" and "larger than the rest of the disk quota" in refused.value.error["message"], refused.value
    assert send(owner, b, 0, tar(x=bytes(quota // 2)))["state"] == "uploading", "the control: what was refused takes nothing"
    with pytest.raises(Refused) as refused:
        send(owner, b, 1, tar(x=bytes(quota // 2)))
    assert refused.value.code == "limit", "files of all archives count together"


@pytest.mark.parametrize("cancel", [False, True])
def test_step_waits_until_an_image_can_be_kept(daemon, small, cancel):
    """Other image operations of the owner are at their limit when the command has ended."""
    with stalled_imports(daemon, JOBS_MAX):
        b = start(daemon, step("echo said"))
        daemon.until(lambda: any(e["type"] == "output" for e in log(daemon, b)))
        m = daemon.machines()[0]["id"]
        daemon.until(lambda: [x["status"] for x in daemon.get(f"/v1/machines/{m}/execs")["execs"] if "status" in x] == [0])
        assert all(show(daemon, b)["state"] == "running" for _ in range(20))
        if cancel:
            daemon.delete("/v1/images/builds/" + b["id"])
            assert ended(daemon, b)["state"] == "cancelled" and daemon.machines() == []
    done = ended(daemon, b)
    assert cancel or (done["state"] == "done" and done["made"] == 1), done


def test_oldest_ended_builds_are_deleted_with_their_logs(daemon, small):
    made = [ended(daemon, start(daemon)) for _ in range(KEPT_MAX + 2)]
    listed = [b["id"] for b in daemon.get("/v1/images/builds")["builds"]]
    assert len(listed) == KEPT_MAX and made[-1]["id"] in listed and made[0]["id"] not in listed
    assert sorted(os.listdir(daemon.home / "builds")) == sorted(listed)
    with pytest.raises(Refused) as refused:
        show(daemon, made[0])
    assert refused.value.code == "not_found"


@pytest.mark.parametrize("hard", [False, True])
def test_restart_of_the_daemon_ends_a_build_and_leaves_nothing(fresh, rootfs, hard):
    daemon = fresh()
    daemon.request("POST", "/v1/images", rootfs.read_bytes(), name="small")
    waits = start(daemon, {"what": "copy", "make": True, "archive": 0, "to": "/x", "as_file": True, "key": "1"})
    b = start(daemon, step("echo 1 >/one"), step(WAIT), name="app")
    held(daemon, b)
    daemon.restart(hard=hard)
    for one in (b, waits):
        lost = show(daemon, one)
        assert lost["state"] == "failed" and lost["code"] == "unknown" and lost["error"] == "the daemon restarted before the build ended", lost
    assert [e["type"] for e in log(daemon, b)][-1] == "end"
    daemon.until(lambda: daemon.machines() == [])
    daemon.until(lambda: daemon.host.left_of_boxes() == [])
    again = ended(daemon, start(daemon, step("echo 1 >/one"), name="app"))
    assert again["state"] == "done" and again["cached"] == 1, "a step that was kept is found again"


def test_builds_belong_to_their_owner(fresh, rootfs):
    daemon = fresh("--listen", "127.0.0.1:0")
    daemon.request("POST", "/v1/images", rootfs.read_bytes(), name="small")
    b = ended(daemon, start(daemon, step("true")))
    other = daemon.tcp(owner="somebody", scopes=["read", "run"])
    assert other.get("/v1/images/builds")["builds"] == []
    for ask in (lambda: show(other, b), lambda: log(other, b), lambda: other.delete("/v1/images/builds/" + b["id"]), lambda: send(other, b, 0, b"")):
        with pytest.raises(Refused) as refused:
            ask()
        assert refused.value.code == "not_found", refused.value


def test_build_is_in_the_journal(daemon, small):
    b = ended(daemon, start(daemon, step("true"), name="app"))
    records = [r for r in map(json.loads, daemon.get("/v1/audit").splitlines()) if r["verb"] == "image.build" and b["id"] in json.dumps(r)]
    assert [r["kind"] for r in records] == ["intent", "result"], records


# ---- the command line ----


def cli_start(daemon, *words):
    env = {"PATH": os.environ["PATH"], "CARREL_HOME": str(daemon.home), "CARREL_RUN": str(daemon.run_dir)}
    return subprocess.Popen([PROGRAM, "image", *map(str, words)], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def cli(daemon, *words):
    started = cli_start(daemon, *words)
    out, said = started.communicate(timeout=110)
    assert started.returncode == 0, said
    return out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_cancels_a_build(daemon, small, tmp_path, number):
    (tmp_path / "recipe").write_text(f"base small\nrun {WAIT}\n")
    started = cli_start(daemon, "build", tmp_path / "recipe", "--name", "app")
    held(daemon, None)
    started.send_signal(number)
    out, said = started.communicate(timeout=60)
    assert started.returncode == -number, (out, said)
    b = daemon.get("/v1/images/builds")["builds"][0]
    assert b["state"] == "cancelled" and b["name"] == "app" and daemon.machines() == [], b


def test_detached_build_goes_on_and_has_a_log(daemon, small, tmp_path):
    (tmp_path / "recipe").write_text("base small\nrun touch /tmp/held; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo said\nfile recipe /copy\n")
    b = {"id": cli(daemon, "build", tmp_path / "recipe", "--name", "app", "--detach").strip()}
    m = held(daemon, b)
    listed = [line.split() for line in cli(daemon, "builds").splitlines()]
    assert listed[1][:3] == [b["id"], "running", "2/3"] and "app" in listed[1], listed
    following = cli_start(daemon, "log", b["id"], "--follow")
    daemon.exec(m, "touch /tmp/go", user="root")
    out, said = following.communicate(timeout=60)
    assert following.returncode == 0 and "  2/3  making  run touch" in out and "said\n" in out and "  3/3  making  file recipe /copy" in out, (out, said)
    assert ended(daemon, b)["state"] == "done" and cli(daemon, "log", b["id"]) == out
    assert daemon.exec(daemon.machine(image="app"), "cat /copy")["stdout"].startswith("base small\n")


def test_cancel_command_ends_a_build(daemon, small, tmp_path):
    (tmp_path / "recipe").write_text(f"base small\nrun {WAIT}\n")
    b = {"id": cli(daemon, "build", tmp_path / "recipe", "--detach").strip()}
    held(daemon, b)
    cli(daemon, "cancel", b["id"])
    assert ended(daemon, b)["state"] == "cancelled" and daemon.machines() == []


def test_watching_continues_with_the_next_daemon(fresh, rootfs, tmp_path):
    daemon = fresh()
    daemon.request("POST", "/v1/images", rootfs.read_bytes(), name="small")
    (tmp_path / "recipe").write_text(f"base small\nrun {WAIT}\n")
    started = cli_start(daemon, "build", tmp_path / "recipe")
    held(daemon, None)
    daemon.restart()
    out, said = started.communicate(timeout=110)
    assert started.returncode == 125 and "the daemon restarted before the build ended" in said, (out, said)
