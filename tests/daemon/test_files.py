"""Files of a machine: read and written whole and in part, listed, moved, packed, watched; streamed when large."""
import hashlib
import io
import json
import os
import subprocess
import tarfile
import threading

import pytest

from daemon import DAEMON, Refused
from patience import sanitized

HOME = "/home/user"


@pytest.fixture
def files(daemon, box):
    return Files(daemon, box)


class Files:
    def __init__(self, daemon, machine):
        self.daemon, self.machine, self.url = daemon, machine, f"/v1/machines/{machine}/files"

    def put(self, path, content, **query):
        return self.daemon.put(self.url, content, path=path, **query)

    def get(self, path, **headers):
        """Status, fields and content."""
        c = self.daemon.connect()
        c.request("GET", f"{self.url}?path={path}", headers=headers)
        answer = c.getresponse()
        content = answer.read()
        c.close()
        return answer.status, answer.headers, content

    def read(self, path):
        return self.daemon.request("GET", self.url, raw=True, path=path)

    def do(self, verb, **fields):
        return self.daemon.post(f"{self.url}/{verb}", fields)

    def look(self, what, path, **query):
        return self.daemon.get(f"{self.url}/{what}", path=path, **query)


def refused(code, do, *args, **kw):
    with pytest.raises(Refused) as e:
        do(*args, **kw)
    assert e.value.code == code, e.value
    return e.value


def test_a_cut_upload_leaves_nothing_behind(files, daemon):
    """The temporary file is there while the upload goes on, and nothing was written when it is cut."""
    files.put(HOME + "/note", b"old")

    def names():
        return daemon.exec(files.machine, "ls -A")["stdout"].split()

    before = names()
    c = daemon.connect()
    c.putrequest("PUT", f"{files.url}?path={HOME}/note")
    c.putheader("Content-Length", "1000000")
    c.endheaders()
    c.send(b"x" * 500_000)
    daemon.until(lambda: len(names()) == len(before) + 1)
    c.close()
    daemon.until(lambda: names() == before)
    assert files.read(HOME + "/note") == b"old"


def test_head_tells_the_size_without_reading(files, daemon):
    """The file is sparse, and larger than what could be read in the time of a test."""
    daemon.exec(files.machine, "truncate -s 4T huge")
    c = daemon.connect()
    c.request("HEAD", f"{files.url}?path={HOME}/huge")
    assert c.getresponse().headers["Content-Length"] == str(4 << 40)
    c.close()


def test_a_file_is_written_and_read(files):
    content = os.urandom(300000)
    written = files.put(HOME + "/f", content, mode=600)
    assert written == {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    assert files.read(HOME + "/f") == content
    shown = files.look("stat", HOME + "/f")
    assert shown["type"] == "file" and shown["mode"] == "0600" and shown["size"] == len(content)
    assert shown["uid"] == 1000
    refused("not_found", files.read, HOME + "/none")
    refused("denied", files.put, "/etc/hostname", b"x")
    files.put("/etc/hostname", b"x", user="root")


def test_a_write_may_depend_on_what_is_there(files):
    first = files.put(HOME + "/f", b"one", if_hash="absent")
    assert refused("exists", files.put, HOME + "/f", b"two", if_hash="absent").status == 412
    assert refused("exists", files.put, HOME + "/f", b"two", if_hash="0" * 64).status == 412
    assert files.read(HOME + "/f") == b"one"
    files.put(HOME + "/f", b"two", if_hash=first["sha256"])
    assert files.read(HOME + "/f") == b"two"


@pytest.mark.parametrize("asked, status, content, said", [
    ("bytes=0-3", 206, b"0123", "bytes 0-3/10"), ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
    ("bytes=8-99", 206, b"89", "bytes 8-9/10"), ("bytes=-3", 206, b"789", "bytes 7-9/10"),
    ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"), ("bytes=10-", 416, None, "bytes */10"),
    ("bytes=99-100", 416, None, "bytes */10"), ("bytes=-0", 416, None, "bytes */10"),
    ("bytes=5-2", 200, b"0123456789", None), ("bytes=0-1,3-4", 200, b"0123456789", None),
    ("lines=1-2", 200, b"0123456789", None)])
def test_a_range(files, asked, status, content, said):
    files.put(HOME + "/digits", b"0123456789")
    got, fields, body = files.get(HOME + "/digits", Range=asked)
    assert got == status and fields.get("Content-Range") == said
    if content is None:
        assert json.loads(body)["error"]["code"] == "invalid"
    else:
        assert body == content


def test_a_range_of_nothing_and_one_under_a_condition(files):
    files.put(HOME + "/empty", b"")
    assert files.get(HOME + "/empty")[0] == 200
    assert files.get(HOME + "/empty", Range="bytes=0-")[0] == 416
    files.put(HOME + "/digits", b"0123456789")
    conditional = {"Range": "bytes=1-2", "If-Range": '"tag"'}
    assert files.get(HOME + "/digits", **conditional)[::2] == (200, b"0123456789")


def test_writing_into_a_file(files):
    assert files.put(HOME + "/f", b"world", offset=6) == {"size": 11}
    assert files.read(HOME + "/f") == b"\0" * 6 + b"world"
    files.put(HOME + "/f", b"hello ", offset=0)
    assert files.read(HOME + "/f") == b"hello world"
    large = os.urandom(5 << 20)
    assert files.put(HOME + "/f", large, offset=11) == {"size": 11 + len(large)}
    assert files.read(HOME + "/f") == b"hello world" + large
    refused("invalid", files.put, HOME + "/f", b"x", offset=0, if_hash="absent")
    refused("invalid", files.put, HOME + "/f", b"x", offset=-1)
    refused("denied", files.put, "/etc/hostname", b"x", offset=0)
    assert files.put(HOME + "/f", b"", offset=0) == {"size": 11 + len(large)}


def test_a_large_write_into_a_file_is_one_change_of_the_machine(files):
    """A step after each piece would hold a copy of the file so far, until the disk is full."""
    steps = lambda: len(files.daemon.get(f"/v1/machines/{files.machine}/steps")["steps"])  # noqa: E731
    before = steps()
    assert files.put(HOME + "/f", b"z" * (8 << 20), offset=0) == {"size": 8 << 20}
    files.daemon.until(lambda: steps() > before)  # the control
    assert steps() - before == 1


def test_directories_links_and_moves(files):
    files.do("mkdir", path=HOME + "/a/b/c")
    refused("exists", files.do, "mkdir", path=HOME + "/a/b", exact=True)
    files.put(HOME + "/a/b/f", b"x")
    files.do("symlink", target="b/f", path=HOME + "/a/link")
    assert files.look("stat", HOME + "/a/link")["target"] == "b/f"
    assert files.look("stat", HOME + "/a/link", follow=1)["type"] == "file"
    names = {e["name"]: e["type"] for e in files.look("list", HOME + "/a")["entries"]}
    assert names == {"b": "directory", "link": "symlink"}
    files.do("move", **{"from": HOME + "/a/b/f", "to": HOME + "/a/g"})
    files.put(HOME + "/a/h", b"y")
    refused("exists", files.do, "move", no_replace=True, **{"from": HOME + "/a/g", "to": HOME + "/a/h"})
    files.do("chmod", path=HOME + "/a/g", mode="640")
    files.do("chown", path=HOME + "/a/g", owner=0, group=0)
    assert {k: files.look("stat", HOME + "/a/g")[k] for k in ("mode", "uid")} == {"mode": "0640", "uid": 0}
    files.daemon.delete(files.url, path=HOME + "/a", recursive=1)
    refused("not_found", files.look, "stat", HOME + "/a")


def test_a_long_list_comes_in_pages(files):
    files.daemon.exec(files.machine, "mkdir d && cd d && seq 1 250 | xargs touch")
    names, cursor = [], {}
    while True:
        page = files.look("list", HOME + "/d", limit=100, **cursor)
        assert len(page["entries"]) <= 100
        names += [e["name"] for e in page["entries"]]
        if "next" not in page:
            break
        cursor = {"cursor": page["next"]}
    assert sorted(names, key=int) == [str(i) for i in range(1, 251)]


def test_paths_are_resolved_inside(files):
    """A link to the host's root is one to the machine's: there is nothing else to reach."""
    files.daemon.exec(files.machine, "ln -s / slash; ln -s /proc/1/root out")
    assert files.read(HOME + "/slash/etc/passwd") == files.read("/etc/passwd")
    assert "symbolic links" in refused("invalid", files.read, HOME + "/out/etc/passwd").error["message"]


def archive(**members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o644
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def test_a_directory_travels_as_tar(files):
    files.do("mkdir", path=HOME + "/in")
    files.daemon.put(files.url + "/tar", archive(a=b"one", b=b"two" * 100000), path=HOME + "/in")
    assert files.read(HOME + "/in/b") == b"two" * 100000
    packed = files.daemon.request("GET", files.url + "/tar", raw=True, path=HOME + "/in")
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        found = {m.name.strip("./"): tar.extractfile(m).read() for m in tar if m.isfile()}
    assert found == {"a": b"one", "b": b"two" * 100000}
    refused("not_found", files.daemon.request, "GET", files.url + "/tar", path=HOME + "/none")
    refused("invalid", files.daemon.put, files.url + "/tar", b"no tar at all" * 100, path=HOME + "/in")


def test_an_archive_cannot_leave_its_directory(files):
    files.do("mkdir", path=HOME + "/in")
    answer = files.daemon.put(files.url + "/tar", archive(**{"../out": b"x", "in": b"y"}), path=HOME + "/in")
    assert "../out" in answer["left_out"]
    assert files.read(HOME + "/in/in") == b"y"
    refused("not_found", files.look, "stat", HOME + "/out")


def test_changes_are_told_and_written_down(files):
    told, began = [], threading.Event()
    c = files.daemon.connect()

    def listen():
        c.request("GET", f"{files.url}/watch?path={HOME}")
        answer = c.getresponse()
        assert answer.headers["Content-Type"] == "text/event-stream"
        began.set()
        for line in answer:
            if line.startswith(b"data: "):
                told.append(json.loads(line[6:]))
            if any(e.get("name") == "seen" and e["change"] == "written" for e in told):
                return

    t = threading.Thread(target=listen, daemon=True)
    t.start()
    assert began.wait(20)
    files.daemon.exec(files.machine, "echo x > seen")
    t.join(20)
    assert not t.is_alive(), told
    c.close()

    def results():
        lines = files.daemon.request("GET", "/v1/audit", raw=True, machine=files.machine, verb="file.watch")
        return [json.loads(line) for line in lines.splitlines()]

    files.daemon.until(lambda: [r["kind"] for r in results()] == ["intent", "result"])
    intent, result = results()
    assert result["intent"] == intent["seq"] and HOME in json.dumps(intent["detail"])


@pytest.mark.skipif(sanitized(DAEMON), reason="the sanitizer keeps freed memory")
def test_large_files_pass_in_constant_memory(files):
    """Half a gigabyte up and down: the daemon grows by a few windows, not by the file."""
    size, block = 512 << 20, os.urandom(1 << 20)

    def rss():
        status = open(f"/proc/{files.daemon.process.pid}/status").read()
        return int(status.split("VmHWM:")[1].split()[0])

    before = rss()
    c = files.daemon.connect(timeout=110)
    c.putrequest("PUT", f"{files.url}?path={HOME}/large")
    c.putheader("Content-Length", str(size))
    c.endheaders()
    hashed = hashlib.sha256()
    for _ in range(size >> 20):
        c.send(block)
        hashed.update(block)
    assert json.loads(c.getresponse().read())["sha256"] == hashed.hexdigest()
    c.request("GET", f"{files.url}?path={HOME}/large")
    answer, down = c.getresponse(), hashlib.sha256()
    while piece := answer.read(1 << 20):
        down.update(piece)
    c.close()
    assert down.digest() == hashed.digest()
    assert rss() - before < 32 << 10


# ---- archives packed with zstd ----

def zstd(data, *options):
    return subprocess.run(["zstd", "-q", "-c", *options], input=data, stdout=subprocess.PIPE, check=True).stdout


def tar_get(files, path, query="", **headers):
    c = files.daemon.connect()
    c.request("GET", f"{files.url}/tar?path={path}{query}", headers=headers)
    answer = c.getresponse()
    content = answer.read()
    c.close()
    return answer, content


def names_in(packed):
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        return {m.name.strip("./") for m in tar if m.isfile()}


@pytest.mark.parametrize("how", ["field", "query"])
def test_a_packed_archive_goes_in_and_out(files, how):
    large = os.urandom(3 << 20) + b"0" * (20 << 20)
    files.do("mkdir", path=HOME + "/in")
    packed = zstd(archive(a=b"one", b=large))
    if how == "query":
        files.daemon.put(files.url + "/tar", packed, path=HOME + "/in", compress="zstd")
    else:
        files.daemon.request("PUT", f"{files.url}/tar?path={HOME}/in", packed, headers={"Content-Encoding": "zstd"})
    assert files.read(HOME + "/in/b") == large
    if how == "query":
        answer, content = tar_get(files, HOME + "/in", "&compress=zstd")
        assert answer.headers["Content-Type"] == "application/zstd"
    else:
        answer, content = tar_get(files, HOME + "/in", **{"Accept-Encoding": "gzip, zstd"})
        assert answer.headers["Content-Encoding"] == "zstd"
        assert answer.headers["Content-Type"] == "application/x-tar"
    assert len(content) < 5 << 20
    assert names_in(zstd(content, "-d")) == {"a", "b"}
    answer, content = tar_get(files, HOME + "/in", **{"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in answer.headers and names_in(content) == {"a", "b"}


def test_what_is_packed_wrongly_is_refused(files):
    good = zstd(archive(a=os.urandom(1 << 20)))
    put = files.daemon.put
    for body in (good[:-10], b"nonsense", b""):
        refused("invalid", put, files.url + "/tar", body, path=HOME, compress="zstd")
    refused("invalid", put, files.url + "/tar", good, path=HOME, compress="lzma")
    # A window that would cost 128 MiB of the daemon.
    refused("invalid", put, files.url + "/tar", zstd(archive(a=b"x" * (200 << 20)), "--long=27"), path=HOME,
            compress="zstd")
    with pytest.raises(Refused) as e:
        files.daemon.request("PUT", f"{files.url}/tar?path={HOME}", good, headers={"Content-Encoding": "gzip"})
    assert e.value.status == 415


def test_a_bomb_costs_the_machine_its_disk_and_the_daemon_nothing(files):
    bomb = zstd(archive(a=b"\0" * (200 << 20)), "-19")
    assert len(bomb) < 1 << 20

    def peak():
        return int(open(f"/proc/{files.daemon.process.pid}/status").read().split("VmHWM:")[1].split()[0])

    before = peak()
    try:
        files.daemon.put(files.url + "/tar", bomb, path=HOME, compress="zstd")
    except Refused as e:
        assert e.code in ("limit", "invalid", "internal"), e
    assert peak() - before < 48 << 10
    assert files.daemon.exec(files.machine, "echo alive")["stdout"] == "alive\n"
