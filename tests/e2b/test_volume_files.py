"""Files of a volume by the token of the volume: with a sandbox and without one, and what must not be reached."""
import http.client
import json
import threading
import urllib.parse

import pytest

from carrel import ROOTLESS
from daemon import Daemon
from e2b_client import E2b, machine_of, status_of
from test_volumes import daemon, make  # noqa: F401

pytestmark = pytest.mark.skipif(ROOTLESS, reason="volumes need a daemon that runs as root")


class Volume:
    def __init__(self, e2b, made, token=None, daemon=None):
        self.daemon = daemon
        self.e2b, self.id, self.token = e2b, made["volumeID"], made["token"] if token is None else token

    def ask(self, method, what, path=None, body=None, **query):
        """The status, and the body of the answer: JSON, or bytes of a file."""
        words = urllib.parse.urlencode({**({} if path is None else {"path": path}), **query})
        fields = {"Authorization": "Bearer " + self.token} if self.token else {}
        if isinstance(body, bytes):
            fields["Content-Type"] = "application/octet-stream"
        nobody = E2b(self.e2b.url.geturl(), None)
        status, headers, data = nobody.send(method, f"/volumecontent/{self.id}/{what}?{words}", body, fields)
        return status, json.loads(data) if headers.get("Content-Type") == "application/json" else data

    def put(self, path, body, **query):
        return self.ask("PUT", "file", path, body, **query)

    def names(self, path="/", **query):
        status, entries = self.ask("GET", "dir", path, **query)
        assert status == 200, entries
        return [e["path"] for e in entries]


@pytest.fixture
def volume(e2b, daemon):  # noqa: F811
    return Volume(e2b, make(e2b), daemon=daemon)


def test_files_without_a_sandbox_and_in_one(e2b, daemon, volume):  # noqa: F811
    assert volume.put("a/b/note", b"hello")[0] == 201
    status, made = volume.ask("GET", "path", "a/b/note")
    assert status == 200 and {k: made[k] for k in ("name", "path", "type", "size", "mode", "uid", "gid")} == {
        "name": "note", "path": "/a/b/note", "type": "file", "size": 5, "mode": 0o644, "uid": 1000, "gid": 1000}
    assert all(made[k].endswith("Z") for k in ("atime", "mtime", "ctime"))
    assert volume.ask("GET", "file", "/a/b/note") == (200, b"hello")
    s = e2b.create(volumeMounts=[{"name": "data", "path": "/mnt/v"}])
    out = daemon.exec(machine_of(s), "cat /mnt/v/a/b/note; echo inside >/mnt/v/in; echo more >>/mnt/v/a/b/note", user="user")
    assert out["stdout"] == "hello"
    assert volume.ask("GET", "file", "/in") == (200, b"inside\n") and volume.ask("GET", "file", "a/b/note") == (200, b"hellomore\n")
    assert volume.put("/in", b"x" * 3_000_000, uid=0, gid=7, mode=0o600)[0] == 201
    assert daemon.exec(machine_of(s), "stat -c '%s %u %g %a' /mnt/v/in")["stdout"] == "3000000 0 7 600\n"
    e2b.kill(s)
    assert [p for p in volume.names(depth=3) if p != "/lost+found"] == ["/a", "/a/b", "/a/b/note", "/in"]
    assert volume.ask("PATCH", "path", "/in", {"uid": 5, "mode": 0o640})[1]["uid"] == 5
    assert volume.ask("DELETE", "path", "/a") == (204, b"") and volume.ask("DELETE", "path", "/a")[0] == 404
    e2b.call("DELETE", "/volumes/" + volume.id, status=204)
    assert volume.ask("GET", "path", "/in")[0] in (401, 404)


def test_directories_and_what_is_refused(volume):
    assert volume.put("/f", b"old", force="false")[0] == 201 and volume.put("/f", b"new", force="false")[0] == 409
    assert volume.ask("GET", "file", "/f") == (200, b"old")
    assert volume.put("/f", b"newer", force="true")[0] == volume.put("/f", b"newest")[0] == 201
    assert volume.ask("GET", "file", "/f") == (200, b"newest")
    assert volume.ask("POST", "dir", "/x/y")[0] == 404
    status, made = volume.ask("POST", "dir", "/x/y", force="true")
    assert status == 201 and (made["type"], made["uid"], made["mode"]) == ("directory", 1000, 0o755)
    assert volume.ask("POST", "dir", "/x/y", force="true", mode=0o700)[1]["mode"] == 0o700
    assert volume.ask("POST", "dir", "/x/y")[0] == 409
    assert volume.ask("GET", "file", "/x")[0] == 400 and volume.put("/x", b"")[0] == 400
    assert volume.ask("GET", "dir", "/none")[0] == 404 and volume.ask("GET", "file", "/none")[0] == 404
    for method, what, path, query in (("DELETE", "path", "/", {}), ("POST", "dir", "/d", {"mode": "999999"}), ("POST", "dir", "/d", {"uid": "-1"}),
                                      ("GET", "dir", "/" + "d" * 4200, {}), ("GET", "dir", "/x", {"depth": "x"})):
        assert volume.ask(method, what, path, **query)[0] == 400, (method, query)
    for body in ({"uid": 1 << 40}, {"mode": "600"}, [], {"uid": -1}):
        assert volume.ask("PATCH", "path", "/x", body)[0] == 400, body
    assert volume.ask("PATCH", "path", "/x", {"a": "x" * 10000})[0] in (400, 413)
    assert volume.ask("GET", "other", "/x")[0] == 404 and volume.ask("POST", "file", "/x")[0] == 404


def test_one_of_many_makes_a_file_that_must_not_exist(volume):
    """The control: without force=false all of them write the same file."""
    def all_put(path, **query):
        start, answers = threading.Barrier(8), {}

        def put(n):
            start.wait()
            answers[n] = volume.put(path, str(n).encode() * 1000, **query)[0]
        threads = [threading.Thread(target=put, args=(n,)) for n in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return answers
    assert set(all_put("/control").values()) == {201}
    for turn in range(6):
        answers = all_put(f"/one{turn}", force="false")
        assert sorted(answers.values()) == [201] + [409] * 7
        winner = next(n for n, status in answers.items() if status == 201)
        assert volume.ask("GET", "file", f"/one{turn}") == (200, str(winner).encode() * 1000)


@pytest.mark.parametrize("force,old", [("true", b"old"), ("true", None), ("false", None)])
def test_upload_that_is_cut_changes_nothing(volume, force, old):
    """The control: the same upload is written if its client sends all of it."""
    if old:
        volume.put("/note", old)
    before = volume.names()
    for whole in (False, True):
        c = http.client.HTTPConnection(volume.e2b.url.hostname, volume.e2b.url.port, timeout=120)
        c.putrequest("PUT", f"/volumecontent/{volume.id}/file?path=/note&force={force}")
        for name, value in {"Authorization": "Bearer " + volume.token, "Content-Type": "application/octet-stream",
                            "Content-Length": "100000"}.items():
            c.putheader(name, value)
        c.endheaders()
        c.send(b"x" * 50000)
        volume.daemon.until(lambda: len(volume.names()) == len(before) + 1)
        assert ("/note" in volume.names()) == bool(old)
        if whole:
            c.send(b"x" * 50000)
            assert c.getresponse().status == 201
        c.close()
        if not whole:
            volume.daemon.until(lambda: volume.names() == before)
            assert volume.ask("GET", "file", "/note") == (200, old) if old else volume.ask("GET", "file", "/note")[0] == 404
    assert volume.ask("GET", "file", "/note") == (200, b"x" * 100000)


def test_a_link_is_not_followed_to_make_a_file_that_must_not_exist(e2b, daemon, volume):  # noqa: F811
    """The control: without force=false the file that the link names is made."""
    machine = machine_of(e2b.create(volumeMounts=[{"name": "data", "path": "/mnt/v"}]))
    daemon.exec(machine, "ln -s made /mnt/v/link")
    assert volume.put("/link", b"x", force="false")[0] == 409 and "/made" not in volume.names()
    assert volume.put("/link", b"x")[0] == 201 and volume.ask("GET", "file", "/made") == (200, b"x")


def test_files_are_served_also_when_the_owner_has_all_its_machines():
    daemon = Daemon(conf="[daemon]\nmachines_per_owner = 1\n")
    try:
        full = E2b.of(daemon)
        volume = Volume(full, make(full))
        first = full.create()
        assert status_of(full.create) == 429  # the control
        assert volume.put("/f", b"x")[0] == 201 and volume.ask("GET", "file", "/f") == (200, b"x")
        assert [m["id"] for m in daemon.machines()] == [machine_of(first)]
        full.kill(first)
        assert volume.names() and full.create()  # what serves the volume does not use up the quota either
    finally:
        daemon.stop()


def held(volume, names):
    """Uploads that are under way: each holds its volume."""
    open_ones = []
    for v in names:
        c = http.client.HTTPConnection(volume.e2b.url.hostname, volume.e2b.url.port, timeout=60)
        c.putrequest("PUT", f"/volumecontent/{v.id}/file?path=/held")
        for name, value in {"Authorization": "Bearer " + v.token, "Content-Type": "application/octet-stream", "Content-Length": "6"}.items():
            c.putheader(name, value)
        c.endheaders(b"one")
        open_ones.append(c)
    return open_ones


def test_files_of_eight_volumes_are_served_at_once(e2b, daemon):  # noqa: F811
    """The ninth is refused as long as all are in use, also for nobody else; then it gets the place of one that is not."""
    volumes = [Volume(e2b, make(e2b, f"v{n}")) for n in range(9)]
    other = E2b(e2b.url.geturl(), daemon.post("/v1/tokens", {"owner": "stranger"})["secret"])
    uploads = held(volumes[0], volumes[:8])
    for v in volumes[:8]:  # the upload has come to its file
        daemon.until(lambda v=v: any(".carrel-" in name for name in v.names()))
    status, refusal = volumes[8].put("/f", b"x")
    assert status == 429 and "files of 8 volumes are in use" in refusal["message"], (status, refusal)
    assert volumes[0].put("/beside", b"x")[0] == 201
    foreign = Volume(other, make(other, "theirs"))
    assert foreign.put("/f", b"x")[0] == 201
    assert daemon.machines() == []
    uploads[0].send(b"two")
    assert uploads[0].getresponse().status == 201 and volumes[0].ask("GET", "file", "/held") == (200, b"onetwo")
    daemon.until(lambda: volumes[8].put("/f", b"x")[0] == 201)
    assert volumes[8].ask("GET", "file", "/f") == (200, b"x")
    for c in uploads[1:]:  # those that were in use all the time lost nothing
        c.send(b"two")
        assert c.getresponse().status == 201
    assert {v.ask("GET", "file", "/held") for v in volumes[:8]} == {(200, b"onetwo")}
    other.call("DELETE", "/volumes/" + foreign.id, status=204)


def test_machines_that_served_volumes_are_in_no_list(e2b, daemon, volume):  # noqa: F811
    """The control: a machine that had the volume is in the list when it has ended."""
    sandbox = e2b.create(volumeMounts=[{"name": "data", "path": "/mnt/v"}], metadata={"carrel.volume": "data"})
    assert volume.put("/f", b"x")[0] == 201
    e2b.kill(sandbox)
    everything = {"state": "creating,running,paused,stopped,ending,ended", "limit": 1000}
    daemon.until(lambda: daemon.machines() == [])
    before = {m["id"] for m in daemon.machines(**everything)}
    e2b.call("DELETE", "/volumes/" + volume.id, status=204)  # ends what serves it
    daemon.until(lambda: not daemon.host.boxes())
    after = {m["id"] for m in daemon.machines(**everything)}
    assert after == before and machine_of(sandbox) in after


def test_only_its_own_token_reaches_a_volume(e2b, daemon, volume):  # noqa: F811
    other = E2b(e2b.url.geturl(), daemon.post("/v1/tokens", {"owner": "stranger"})["secret"])
    foreign = Volume(e2b, make(other))
    assert foreign.put("/theirs", b"x")[0] == volume.put("/ours", b"x")[0] == 201
    for token in ("", foreign.token, volume.token[:-1], volume.token + "0", e2b.key):
        assert Volume(e2b, {"volumeID": volume.id}, token).ask("GET", "file", "/ours")[0] == 401, token
    assert [p for p in volume.names() if p != "/lost+found"] == ["/ours"]
    assert Volume(e2b, {"volumeID": "v0"}, volume.token).ask("GET", "path", "/")[0] in (401, 404)
    sandbox = e2b.create()
    assert Volume(e2b, {"volumeID": volume.id}, sandbox["envdAccessToken"]).ask("GET", "path", "/")[0] == 401
    other.call("DELETE", "/volumes/" + foreign.id, status=204)


def test_no_link_leads_out_of_a_volume(e2b, daemon, volume):  # noqa: F811
    """A hostile sandbox makes the links. The control: the same links lead out for its own programs."""
    s = e2b.create(volumeMounts=[{"name": "data", "path": "/mnt/v"}])
    out = daemon.exec(machine_of(s), "cd /mnt/v; ln -s /etc/passwd abs; ln -s ../../etc/passwd up; ln -s /proc/1/root root; ln -s /etc dir;"
                      " mkfifo pipe; cat abs up >/dev/null && ls dir/ >/dev/null && echo out")
    assert out["stdout"] == "out\n"
    for name in ("abs", "up", "dir/passwd", "root/etc/passwd", "../../etc/passwd", "/../etc/passwd"):
        assert volume.ask("GET", "file", name)[0] == 404, name
    for name in ("dir/new", "root/etc/new"):
        assert volume.put(name, b"x")[0] in (400, 404, 409), name
    assert volume.ask("GET", "file", "pipe")[0] == 400
    assert volume.put("abs", b"x")[0] in (201, 404)
    assert volume.ask("GET", "path", "abs")[1]["type"] in ("symlink", "file")
    assert daemon.exec(machine_of(s), "head -c 5 /etc/passwd")["stdout"] == "root:"
    assert volume.ask("DELETE", "path", "dir")[0] == 204 and daemon.exec(machine_of(s), "ls /etc/passwd")["stdout"] == "/etc/passwd\n"


def test_a_directory_that_is_swapped_for_a_link_leads_nowhere(e2b, daemon, volume):  # noqa: F811
    """The control: a program of the sandbox that reads the same path reads the file outside, too."""
    machine = machine_of(e2b.create(volumeMounts=[{"name": "data", "path": "/mnt/v"}]))
    daemon.exec(machine, "cd /mnt/v; mkdir d; echo mine >d/passwd; ln -s /etc l")
    swap = "import os\nos.chdir('/mnt/v')\nwhile True:\n for a, b in (('d', 't'), ('l', 'd'), ('d', 'l'), ('t', 'd')): os.rename(a, b)\n"
    daemon.background(machine, ["python3", "-c", swap])
    looks = "import time\nseen = set()\nend = time.monotonic() + 30\nwhile len(seen) < 2 and time.monotonic() < end:\n try: seen.add(open('/mnt/v/d/passwd').read(5))\n except OSError: pass\nprint(sorted(seen))"
    assert daemon.exec(machine, ["python3", "-c", looks])["stdout"] == "['mine\\n', 'root:']\n"
    seen = []
    for _ in range(200):
        try:
            seen.append(volume.ask("GET", "file", "d/passwd"))
        except http.client.IncompleteRead as cut:  # the file went between its size and its bytes
            seen.append((404, cut.partial))
    assert any(answer == (200, b"mine\n") for answer in seen)
    assert all(data == b"mine\n" if status == 200 else status in (400, 404) for status, data in seen)


def test_a_volume_is_deleted_and_copied_right_after_its_files_were_used(e2b, daemon, volume):  # noqa: F811
    threads = [threading.Thread(target=volume.put, args=(f"/f{n}", b"x" * 1000)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(volume.names()) >= 8
    daemon.post("/v1/volumes/e2b.data/snapshots", {"name": "s"})
    assert len(volume.names()) >= 8 and daemon.get("/v1/volumes/e2b.data")["machines"] == []
    daemon.delete("/v1/volumes/e2b.data@s")
    e2b.call("DELETE", "/volumes/" + volume.id, status=204)
    assert volume.ask("GET", "path", "/")[0] in (401, 404)


def test_a_daemon_that_is_killed_leaves_no_machine_that_serves_a_volume(e2b, daemon, volume):  # noqa: F811
    assert volume.put("/kept", b"x")[0] == 201
    daemon.kill()
    daemon.start()
    e2b.find(daemon)
    daemon.until(lambda: daemon.machines() == [])
    assert volume.ask("GET", "file", "/kept") == (200, b"x")
    e2b.call("DELETE", "/volumes/" + volume.id, status=204)
