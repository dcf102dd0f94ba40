"""Templates on the wire: requests that must be refused, what is left of them, and what clients may see."""
import gzip
import hashlib
import http.client
import io
import json
import pathlib
import tarfile
import urllib.parse
import zlib

import pytest

from base_image import lend_base
from daemon import Daemon
from e2b_client import E2b, E2bError, status_of
from envd import Sandbox


@pytest.fixture(scope="module")
def based(server, tmp_path_factory):
    lend_base(server, tmp_path_factory.mktemp("base"))
    return server


@pytest.fixture
def daemon(based):
    yield based
    based.clear()
    for image in based.get("/v1/images")["images"]:
        if image["name"] != "base":
            based.delete("/v1/images/" + image["name"])


def ask(e2b, name="t", **fields):
    return e2b.call("POST", "/v3/templates", {"name": name, **fields}, 202)


def begin(e2b, asked, *steps, **fields):
    return e2b.call("POST", f"/v2/templates/{asked['templateID']}/builds/{asked['buildID']}",
                    {"fromImage": "base", "steps": list(steps), **fields}, 202)


def status(e2b, asked, query=""):
    return e2b.call("GET", f"/templates/{asked['templateID']}/builds/{asked['buildID']}/status{query}", status=200)


def ended(e2b, daemon, asked):
    daemon.until(lambda: status(e2b, asked)["status"] in ("ready", "error"))
    return status(e2b, asked)


def run(command, **fields):
    return {"type": "RUN", "args": [command], **fields}


def copy(source, to, data, *more):
    return {"type": "COPY", "args": [source, to, *more], "filesHash": hashlib.sha256(data).hexdigest()}


def link(e2b, asked, data, **more):
    return e2b.call("GET", f"/templates/{asked['templateID']}/files/{hashlib.sha256(data).hexdigest()}", status=201, **more)


def put(url, data):
    to = urllib.parse.urlsplit(url)
    c = http.client.HTTPConnection(to.hostname, to.port, timeout=120)
    c.request("PUT", to.path, body=data)
    answer = c.getresponse()
    answer.read()
    c.close()
    return answer.status


def tar(**files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def images(daemon):
    return sorted(i["name"] for i in daemon.get("/v1/images")["images"] if not i["name"].startswith("build:"))


def message(call, *words):
    with pytest.raises(E2bError) as refusal:
        call(*words)
    return refusal.value.status, refusal.value.message


# ---- builds ----

def test_build_is_polled_page_by_page(e2b, daemon):
    asked = ask(e2b, tags=["v1"])
    assert asked["tags"] == ["v1"] and asked["names"] == ["t"] and status(e2b, asked)["status"] == "waiting"
    begin(e2b, asked, run("for i in 1 2 3; do echo line $i; done"))
    done = ended(e2b, daemon, asked)
    assert done["status"] == "ready" and "reason" not in done and done["logs"] == []
    lines = [e["message"] for e in done["logEntries"]]
    assert lines[-5:] == ["line 1", "line 2", "line 3", "[finalize] finalize", "Build finished"]
    assert [e["step"] for e in done["logEntries"]][-3:] == ["1", "finalize", "finalize"]
    page = status(e2b, asked, "?logsOffset=1&limit=2")["logEntries"]
    assert [e["message"] for e in page] == lines[1:3]
    logs = e2b.call("GET", f"/templates/t/builds/{asked['buildID']}/logs?direction=backward&limit=1", status=200)["logs"]
    assert [e["message"] for e in logs] == ["Build finished"]
    assert status_of(e2b.call, "GET", f"/templates/t/builds/{asked['buildID']}/status?limit=101") == 400
    assert images(daemon) == ["base", "t:v1"]


def test_cached_steps_are_said_to_be(e2b, daemon):
    for force in (False, False, True):
        asked = ask(e2b)
        begin(e2b, asked, run("echo once", force=force))
        done = ended(e2b, daemon, asked)
        cached = ["CACHED" in e["message"] for e in done["logEntries"] if "RUN echo once" in e["message"]]
    assert cached == [False]
    asked = ask(e2b)
    begin(e2b, asked, run("echo once"))
    assert any(e["message"].startswith("CACHED [builder 1/1] RUN echo once") for e in ended(e2b, daemon, asked)["logEntries"])


@pytest.mark.parametrize("steps, why", [
    ([{"type": "VOLUME", "args": ["/x"]}], "step 1: steps of the type 'VOLUME' are not supported"),
    ([run("true"), {"type": "RUN", "args": []}], "step 2: RUN requires a command"),
    ([{"type": "RUN", "args": [1]}], "step 1: an argument is not a text"),
    ([{"args": ["x"]}], "step 1: the step has no type"),
    ([{"type": "ENV", "args": ["A"]}], "step 1: ENV requires names with a value each"),
    ([{"type": "ENV", "args": ["A=B", "c"]}], "'A=B' is not a valid name"),
    ([{"type": "USER", "args": ["-x; rm"]}], "is not a valid user name"),
    ([{"type": "WORKDIR", "args": []}], "WORKDIR requires a path"),
    ([{"type": "COPY", "args": ["a", "/b"]}], "COPY requires the hash of its files"),
    ([copy("../a", "/b", b"")], "has '..'"),
    ([copy("a", "/b", b"", "", "9z")], "are not valid permissions"),
    ([copy("a", "/b", b"never sent")], "were not sent"),
    ([run("true")] * 257, "more than 256 entries"),
    ("no list", "field 'steps'"),
], ids=range(14))
def test_steps_that_cannot_be_built_are_refused(e2b, daemon, steps, why):
    asked = ask(e2b)
    code, text = message(e2b.call, "POST", f"/v2/templates/t/builds/{asked['buildID']}", {"fromImage": "base", "steps": steps})
    assert code in (400, 429) and why in text, text
    if steps != "no list":  # the body is not that of a start: the build still waits
        assert status(e2b, asked)["status"] == "error" and why in status(e2b, asked)["reason"]["message"]
    assert images(daemon) == ["base"]


def test_build_starts_once_and_only_from_one_base(e2b, daemon):
    asked = ask(e2b)
    begin(e2b, asked)
    assert status_of(begin, e2b, asked) == 400
    assert ended(e2b, daemon, asked)["status"] == "ready"
    for fields in ({"fromTemplate": "t"}, {"fromImageRegistry": {"type": "aws"}}):
        target = f"/v2/templates/t/builds/{ask(e2b)['buildID']}"
        assert status_of(e2b.call, "POST", target, {"fromImage": "base", **fields}) == 400


def test_absent_image_names_the_command_that_fetches_it(e2b, daemon):
    code, text = message(e2b.call, "POST", f"/v2/templates/t/builds/{ask(e2b)['buildID']}", {"fromImage": "ubuntu:22.04"})
    assert code == 404 and "carrel image pull ubuntu:22.04" in text


def test_names_and_tags_that_are_none_are_refused(e2b, daemon):
    for fields in ({}, {"name": ""}, {"name": "a b"}, {"name": "x" * 70}, {"name": "host"}, {"name": "build:x"}, {"name": "a:b:c"},
                   {"name": "a", "tags": ["b c"]}, {"name": "a", "cpuCount": 0}, {"name": "a", "memoryMB": 1}, {"name": 1}):
        assert status_of(e2b.call, "POST", "/v3/templates", fields) == 400, fields


def test_builds_that_wait_are_few_and_strangers_see_none(e2b, daemon):
    asked = [ask(e2b, f"w{i}") for i in range(9)]
    other = E2b(e2b.url.geturl(), daemon.post("/v1/tokens", {"owner": "stranger"})["secret"])
    assert status_of(status, e2b, asked[0]) == 404 and status(e2b, asked[1])["status"] == "waiting"
    assert status_of(status, other, asked[8]) == 404 and status_of(link, other, asked[8], b"") == 404
    begin(e2b, asked[8], run("exit 1"))
    assert ended(e2b, daemon, asked[8])["status"] == "error"
    assert images(daemon) == ["base"]


# ---- files ----

def test_files_come_at_the_address_only(e2b, daemon):
    asked = ask(e2b)
    data = gzip.compress(tar(**{"dir/a": b"a", "dir/b": b"b"}))
    first = link(e2b, asked, data)
    assert first["present"] is False
    assert put(first["url"] + "0", data) == 404
    assert put(first["url"], data) == 200 and link(e2b, asked, data)["present"] is True
    begin(e2b, asked, copy("dir", "/to", data), run("cat /to/a /to/b >/tmp/both; cat /tmp/both"))
    done = ended(e2b, daemon, asked)
    assert done["status"] == "ready" and "ab" in [e["message"] for e in done["logEntries"]]
    assert put(first["url"], data) == 404 and status_of(link, e2b, asked, data) == 404


@pytest.mark.parametrize("data, why", [
    (b"no archive at all" * 100, "not an archive"),
    (gzip.compress(tar(a=b"a" * 5000))[:-40], "truncated"),
    (tar(a=b"a" * 5000)[:2000], "too early"),
    (tar(**{"../a": b"a"}), "has '..'"),
    (tar(b=b"b"), "'a' is not among the files"),
    (b"", "not among the files"),
], ids=["no archive", "cut gzip", "cut tar", "outside", "other names", "empty"])
def test_files_that_are_no_archive_of_the_source_end_the_build(e2b, daemon, data, why):
    asked = ask(e2b)
    assert put(link(e2b, asked, data)["url"], data) == 200
    begin(e2b, asked, run("true"), copy("a", "/to", data))
    done = ended(e2b, daemon, asked)
    assert done["status"] == "error" and why in done["reason"]["message"] and done["reason"]["step"] == "2"
    assert images(daemon) == ["base"]


def test_files_beyond_the_quota_end_the_build(e2b, daemon):
    token = daemon.post("/v1/tokens", {"owner": "limited", "disk": "16M"})
    limited = E2b(e2b.url.geturl(), token["secret"])
    asked, data = ask(limited), gzip.compress(tar(a=bytes(20 << 20)), 1)
    assert put(link(limited, asked, data)["url"], data) == 200
    begin(limited, asked, copy("a", "/to", data))
    assert "disk quota" in ended(limited, daemon, asked)["reason"]["message"]
    daemon.until(lambda: all(b.get("ended") for b in daemon.get("/v1/images/builds", all=1)["builds"]))


def packed_zeros(size):
    """An archive of a small file and a large one of zeros, which packs to little."""
    entry = tarfile.TarInfo("zeros")
    entry.size = size
    packer = zlib.compressobj(9, wbits=31)
    small = tar(a=b"a")[:1024]
    head = packer.compress(small + entry.tobuf()) + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + piece * ((size >> 20) + 1)


def test_unpacked_files_of_all_steps_have_one_limit(e2b, daemon):
    asked, data = ask(e2b), packed_zeros(1536 << 20)
    assert put(link(e2b, asked, data)["url"], data) == 200
    begin(e2b, asked, *[copy("a", f"/to{i}", data) for i in range(3)])
    done = ended(e2b, daemon, asked)
    assert done["status"] == "error" and "all steps are too large" in done["reason"]["message"]
    assert done["reason"]["step"] == "3"


def put_head(url, length):
    """An upload that sends no byte yet."""
    to = urllib.parse.urlsplit(url)
    c = http.client.HTTPConnection(to.hostname, to.port, timeout=120)
    c.putrequest("PUT", to.path)
    c.putheader("Content-Length", str(length))
    c.endheaders()
    return c


def test_uploads_under_way_count(e2b, daemon):
    asked = ask(e2b, "t0")
    urls = [link(e2b, asked, name)["url"] for name in (b"1", b"2")]
    first = put_head(urls[0], 3 << 30)
    first.send(b"a")
    second = put_head(urls[1], 2 << 30)
    assert second.getresponse().status == 429
    for i in range(8):
        ask(e2b, f"t{i + 1}")
    first.send(b"a")  # the build has made room for others meanwhile
    assert first.getresponse().status == 404


def test_builds_of_others_do_not_replace_mine(e2b, daemon):
    mine = ask(e2b, "mine")
    begin(e2b, mine, run("true"))
    assert ended(e2b, daemon, mine)["status"] == "ready"
    other = E2b(e2b.url.geturl(), daemon.post("/v1/tokens", {"owner": "eager"})["secret"])
    for _ in range(70):
        failed = ask(other, "failed")
        assert status_of(begin, other, failed, {"type": "NONE"}) == 400
    assert status(e2b, mine)["status"] == "ready"


def test_hashes_and_builds_that_do_not_exist(e2b, daemon):
    asked = ask(e2b)
    assert status_of(e2b.call, "GET", "/templates/t/files/xyz") == 400
    assert status_of(e2b.call, "GET", "/templates/other/files/" + "0" * 64) == 404
    assert status_of(e2b.call, "GET", "/templates/t/builds/0/status") == 404
    assert status_of(e2b.call, "GET", f"/templates/other/builds/{asked['buildID']}/status") == 404
    assert status_of(e2b.call, "POST", "/v2/templates/t/builds/0", {}) == 404
    begin(e2b, asked, run("true"))
    assert ended(e2b, daemon, asked)["status"] == "ready"


# ---- templates ----

def test_templates_are_listed_shown_and_deleted(e2b, daemon):
    for name, tags in (("a", ["default", "x"]), ("b", ["y"])):
        asked = ask(e2b, name, tags=tags, cpuCount=2, memoryMB=256)
        begin(e2b, asked)
        assert ended(e2b, daemon, asked)["status"] == "ready"
    rows = e2b.call("GET", "/templates", status=200)
    assert [(r["templateID"], r["buildCount"], r["cpuCount"], r["memoryMB"]) for r in rows] == [("a", 2, 2, 256), ("b", 1, 2, 256)]
    assert len(e2b.call("GET", "/templates/a", status=200)["builds"]) == 2
    assert e2b.call("GET", "/templates/aliases/b", status=200)["templateID"] == "b"
    assert status_of(e2b.create, templateID="b") == 404
    made = e2b.create(templateID="b:y")
    e2b.call("DELETE", "/templates/b", status=204)
    assert status_of(e2b.call, "DELETE", "/templates/b") == 404 and status_of(e2b.call, "GET", "/templates/b") == 404
    assert e2b.info(made)["templateID"] == "b:y"
    assert images(daemon) == ["a", "a:x", "base"]


def test_clients_start_from_other_images_but_do_not_change_them(e2b, daemon):
    assert e2b.call("GET", "/templates", status=200) == []
    assert e2b.call("GET", "/templates/aliases/base", status=200)["public"] is False
    assert status_of(e2b.call, "DELETE", "/templates/base") == 404
    assert status_of(e2b.call, "POST", "/templates/tags", {"target": "base", "tags": ["x"]}) == 404
    assert status_of(e2b.call, "DELETE", "/templates/tags", {"name": "base", "tags": ["x"]}) == 404
    assert status_of(e2b.call, "POST", "/templates/tags", {"target": "base", "tags": []}) == 400
    assert images(daemon) == ["base"]


def test_names_of_images_that_the_owner_made_are_not_taken(e2b, daemon):
    """Whatever a client builds: `carrel new --image mine` starts what the owner put there."""
    before = daemon.post("/v1/images/base/names", {"name": "mine"})["id"]
    daemon.post("/v1/images/base/names", {"name": "good:x"})
    code, text = message(e2b.call, "POST", "/v3/templates", {"name": "mine"})
    assert code == 409 and "image 'mine' exists" in text and "carrel image rm mine" in text
    assert status_of(e2b.call, "POST", "/v3/templates", {"name": "good", "tags": ["y", "x"]}) == 409
    late = ask(e2b, "late")  # the name is free when the build is asked for, and not when it begins
    daemon.post("/v1/images/base/names", {"name": "late"})
    begin(e2b, late, run("true"))
    assert ended(e2b, daemon, late)["status"] == "error"
    for _ in range(2):  # the control: a client's own is replaced
        asked = ask(e2b, "good")
        begin(e2b, asked, run("true"))
        assert ended(e2b, daemon, asked)["status"] == "ready"
    assert status_of(e2b.call, "POST", "/templates/tags", {"target": "good", "tags": ["z", "x"]}) == 409
    assert images(daemon) == ["base", "good", "good:x", "late", "mine"]
    assert {daemon.get("/v1/images/" + name)["id"] for name in ("mine", "good:x", "late")} == {before}


def test_builds_are_known_after_a_crash_of_the_daemon(e2b, daemon):
    done, failed, running = ask(e2b, "done", tags=["default", "second"]), ask(e2b, "failed"), ask(e2b, "running")
    begin(e2b, done, run("echo built"))
    begin(e2b, failed, run("echo why; exit 3"))
    before = [ended(e2b, daemon, asked) for asked in (done, failed)]
    begin(e2b, running, run("echo begun; sleep 1000"))
    daemon.until(lambda: any(e["message"] == "begun" for e in status(e2b, running)["logEntries"]))
    daemon.kill()
    daemon.start()
    e2b.find(daemon)
    for asked, old in zip((done, failed), before):
        new = status(e2b, asked)
        assert new["status"] == old["status"] and new.get("reason", {}).get("message") == old.get("reason", {}).get("message")
        assert [(e["message"], e["step"], e["level"]) for e in new["logEntries"]] == [(e["message"], e["step"], e["level"]) for e in old["logEntries"]]
    lost = status(e2b, running)
    assert lost["status"] == "error" and "daemon restarted before the build ended" in lost["reason"]["message"]
    assert any(e["message"] == "begun" for e in lost["logEntries"])
    daemon.until(lambda: daemon.machines() == [])
    assert status_of(status, e2b, {**done, "templateID": "failed"}) == 404
    e2b.call("DELETE", "/templates/tags", {"name": "done", "tags": ["second"]}, 204)  # as if it had not been given
    daemon.restart()
    e2b.find(daemon)
    unnamed = status(e2b, done)
    assert unnamed["status"] == "error" and "no tag 'second'" in unnamed["reason"]["message"]
    other = E2b(e2b.url.geturl(), daemon.post("/v1/tokens", {"owner": "stranger"})["secret"])
    assert status_of(status, other, done) == 404


def test_builds_that_are_not_begun_are_known_after_a_crash_of_the_daemon(e2b, daemon):
    """One waits and has its files, one fails at once, one has files that are being unpacked, and one is forgotten."""
    def crash():
        daemon.kill()
        daemon.start()
        e2b.find(daemon)
    data = gzip.compress(tar(note=b"kept"))
    large = gzip.compress(tar(**{f"f{n}": bytes(8 << 20) for n in range(60)}), 1)
    waits, fails, cut = ask(e2b, "waits", tags=["a", "b"], cpuCount=2), ask(e2b, "fails"), ask(e2b, "cut")
    assert put(link(e2b, waits, data)["url"], data) == 200
    unsent = link(e2b, waits, b"unsent")["url"]
    assert put(link(e2b, cut, large)["url"], large) == 200
    assert status_of(begin, e2b, fails, {"type": "NONSENSE", "args": ["x"]}) == 400
    reason = status(e2b, fails)["reason"]
    begin(e2b, cut, copy("f*", "/srv/", large))
    assert status(e2b, cut)["status"] == "building"
    crash()
    assert status(e2b, waits)["status"] == "waiting"
    assert status(e2b, fails)["status"] == "error"
    assert {k: status(e2b, fails)["reason"][k] for k in ("message", "step")} == {k: reason[k] for k in ("message", "step")}
    lost = status(e2b, cut)
    assert lost["status"] == "error" and "daemon restarted before the build ended" in lost["reason"]["message"]
    assert [(e["level"], e["message"]) for e in lost["logEntries"]][-1] == ("error", lost["reason"]["message"])
    assert status_of(begin, e2b, cut, run("true")) == 400
    assert link(e2b, waits, data)["present"] and not link(e2b, waits, b"unsent")["present"]
    assert urllib.parse.urlsplit(link(e2b, waits, b"unsent")["url"]).path == urllib.parse.urlsplit(unsent).path
    other = E2b(e2b.url.geturl(), daemon.post("/v1/tokens", {"owner": "stranger"})["secret"])
    assert status_of(status, other, waits) == status_of(status, other, cut) == 404
    begin(e2b, waits, copy("note", "/srv/note", data), run("grep kept /srv/note"))
    assert ended(e2b, daemon, waits)["status"] == "ready", status(e2b, waits)
    assert [i for i in images(daemon) if i.startswith("waits")] == ["waits:a", "waits:b"]
    crash()
    assert [status(e2b, asked)["status"] for asked in (waits, fails, cut)] == ["ready", "error", "error"]
    drafts = pathlib.Path(daemon.home) / "drafts"
    own = [asked["buildID"] for asked in (waits, fails, cut)]
    assert sorted(f.name for f in drafts.iterdir() if f.name[:36] in own) == sorted(own[1:])  # and no files


def test_drafts_that_nobody_wrote_are_deleted(e2b, daemon):
    drafts = pathlib.Path(daemon.home) / "drafts"
    waits = ask(e2b, "waits")
    before = sorted(f.name for f in drafts.iterdir())
    row = json.loads((drafts / waits["buildID"]).read_text())
    daemon.kill()
    uuid = "00000000-0000-4000-8000-00000000000"
    for n, text in enumerate(("", "{", "[]", json.dumps({**row, "owner": 5}), json.dumps({**row, "name": "x" * 5000}),
                              json.dumps({**row, "asked_ms": 1}), json.dumps({**row, "tags": {}}), "[" * 300000)):
        (drafts / f"{uuid}{n}").write_text(text)
    for name in ("x", f"{uuid}9.{'0' * 64}", f"{waits['buildID']}.new"):
        (drafts / name).write_text(json.dumps(row))
    (drafts / f"{uuid}8").symlink_to("/etc/passwd")
    daemon.start()
    e2b.find(daemon)
    assert status(e2b, waits)["status"] == "waiting"
    assert sorted(f.name for f in drafts.iterdir()) == before


def test_build_reaches_hosts_if_the_configuration_allows_it(tmp_path):
    daemon = Daemon(conf="[e2b]\ninternet = allow\n")
    try:
        lend_base(daemon, tmp_path)
        e2b = E2b.of(daemon)
        asked = ask(e2b)
        begin(e2b, asked, run("touch /tmp/held; while [ -e /tmp/held ]; do sleep 0.1; done"))
        daemon.until(lambda: daemon.machines())
        machine = daemon.machines()[0]["id"]
        assert [r["target"] for r in daemon.get(f"/v1/machines/{machine}/net")["rules"]] == ["*"]
        daemon.until(lambda: daemon.get(f"/v1/machines/{machine}")["state"] == "running")
        daemon.until(lambda: daemon.exec(machine, "rm /tmp/held", user="root")["exec"]["status"] == 0)
        assert ended(e2b, daemon, asked)["status"] == "ready"
    finally:
        daemon.stop()


def test_copies_of_a_sandbox_keep_the_user_and_directory_of_its_template(e2b, daemon):
    asked = ask(e2b)
    begin(e2b, asked, {"type": "USER", "args": ["root"]}, run("echo worker:x:1234:1234::/tmp:/bin/bash >>/etc/passwd"), {"type": "USER", "args": ["worker"]}, {"type": "WORKDIR", "args": ["/tmp"]})
    done = ended(e2b, daemon, asked)
    assert done["status"] == "ready", done
    first = Sandbox(e2b, daemon, templateID="t")
    snapshot = e2b.post(first.made, "snapshots", {}, 201)["snapshotID"]
    again = Sandbox(e2b, daemon, templateID=snapshot)
    of_copy = Sandbox(e2b, daemon, templateID=e2b.post(again.made, "snapshots", {}, 201)["snapshotID"])
    fork = Sandbox(e2b, daemon, e2b.post(first.made, "fork", {}, 201)[0]["sandbox"])
    for one in (first, again, of_copy, fork):
        assert one.run("id -un; pwd").stdout == b"worker\n/tmp\n"
    plain = Sandbox(e2b, daemon, templateID="base")  # the control
    assert plain.run("id -un; pwd").stdout == b"user\n/home/user\n"
