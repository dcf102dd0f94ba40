"""Files up and down over plain HTTP: multipart forms, raw bodies, gzip, signed paths."""
import base64
import gzip
import hashlib
import json
import time
import urllib.parse

import pytest

from envd import Sandbox, as_user
from test_envd_filesystem import fs

RAW = {"Content-Type": "application/octet-stream"}


def target(path=None, **query):
    if path is not None:
        query["path"] = path
    return "/files?" + urllib.parse.urlencode(query)


def form(*parts, boundary="xxBOUNDARYxx"):
    """Parts are (headers of the disposition, bytes)."""
    body = b"".join(b"--%s\r\nContent-Disposition: form-data; %s\r\nContent-Type: text/plain\r\n\r\n%s\r\n"
                    % (boundary.encode(), disposition.encode(), data) for disposition, data in parts)
    return body + b"--%s--\r\n" % boundary.encode(), {"Content-Type": "multipart/form-data; boundary=" + boundary}


def send(sandbox, where, body, headers=None):
    status, _, data = sandbox.call_raw("POST", where, body, RAW if headers is None else headers)
    return status, json.loads(data)


def read(sandbox, where, headers=()):
    status, fields, data = sandbox.call_raw("GET", where, headers=headers)
    if status == 200 and fields.get("Content-Encoding") == "gzip":
        data = gzip.decompress(data)
    return status, data


def entry(path):
    return {"name": path.rsplit("/", 1)[1], "path": path, "type": "file"}


def test_raw_body_and_back(sandbox):
    assert send(sandbox, target("a/b/note"), b"hello") == (200, [entry("/home/user/a/b/note")])
    assert read(sandbox, target("/home/user/a/b/note")) == (200, b"hello")
    assert send(sandbox, target("a/b/note"), b"hi")[0] == 200
    assert read(sandbox, target("~/a/b/note")) == (200, b"hi")
    assert sandbox.run("stat -c '%U %G %a' a a/b a/b/note").stdout == b"user user 755\n" * 2 + b"user user 644\n"


def test_empty_file(sandbox):
    assert send(sandbox, target("empty"), b"") == (200, [entry("/home/user/empty")])
    status, fields, data = sandbox.call_raw("GET", target("empty"))
    assert (status, fields["Content-Length"], data) == (200, "0", b"")
    assert read(sandbox, target("empty"), {"Accept-Encoding": "gzip"}) == (200, b"")


@pytest.mark.parametrize("size", [1, 65535, 65536, 65537, 5_000_001])
def test_bytes_of_any_number(sandbox, size):
    data = hashlib.shake_128(b"seed").digest(size)
    assert send(sandbox, target("raw"), data)[0] == 200
    assert send(sandbox, target(), *form(('name="file"; filename="form"', data)))[0] == 200
    assert send(sandbox, target("packed"), gzip.compress(data, 1), {**RAW, "Content-Encoding": "gzip"})[0] == 200
    for name in ("raw", "form", "packed"):
        assert read(sandbox, target(name)) == (200, data)
    assert read(sandbox, target("raw"), {"Accept-Encoding": "gzip"}) == (200, data)


def test_form_names_its_files(sandbox):
    body = form(('name="file"; filename="x/one"', b"1"), ('name="other"; filename="no"', b"-"),
                ('name="file"; filename="/tmp/t\\"wo"', b"\r\n--xxBOUNDARY\r\n"), ('name=file; filename=three', b""))
    assert send(sandbox, target(), *body) == (200, [entry("/home/user/x/one"), entry('/tmp/t"wo'), entry("/home/user/three")])
    assert read(sandbox, target('/tmp/t"wo')) == (200, b"\r\n--xxBOUNDARY\r\n")
    assert read(sandbox, target("no"))[0] == 404


def test_form_without_a_file_name_goes_to_the_path(sandbox):
    assert send(sandbox, target("here"), *form(('name="file"', b"text"))) == (200, [entry("/home/user/here")])
    status, error = send(sandbox, target(), *form(('name="file"', b"text")))
    assert (status, error["code"]) == (400, 400)


def test_chunked_body(sandbox):
    c = sandbox.connect()
    c.request("POST", target("chunks"), body=iter([b"a" * 70000, b"b", b"c" * 70000]), headers={**sandbox.headers, **RAW},
              encode_chunked=True)
    assert c.getresponse().status == 200
    c.close()
    assert read(sandbox, target("chunks"))[1] == b"a" * 70000 + b"b" + b"c" * 70000


def test_file_of_another_user(sandbox):
    assert send(sandbox, target("note", username="root"), b"x") == (200, [entry("/root/note")])
    assert fs(sandbox, "Stat", path="/root/note")["entry"]["owner"] == "root"
    assert send(sandbox, target("/root/note"), b"y")[0] == 200
    assert fs(sandbox, "Stat", path="/root/note")["entry"]["owner"] == "user"
    assert send(sandbox, target("note", username="nobody-here"), b"x")[0] == 401
    assert sandbox.call_raw("GET", target("note"), headers=as_user("root"))[0] == 404, "only the query names the user"


def test_what_cannot_be_read_or_written(sandbox):
    assert read(sandbox, target("nothing")) == (404, b'{"code":404,"message":"path \'/home/user/nothing\' does not exist"}')
    assert read(sandbox, target("/tmp"))[0] == 400
    assert read(sandbox, target("/dev/zero"))[0] == 400
    assert send(sandbox, target("/tmp"), b"x")[0] == 400
    assert send(sandbox, target("~root/x"), b"x")[0] == 400
    sandbox.run("touch file")
    assert send(sandbox, target("file/below"), b"x")[0] == 400
    assert sandbox.call_raw("PUT", target("file"), b"x")[0] == 405


@pytest.mark.parametrize("body,headers", [
    (b"not gzip at all", {**RAW, "Content-Encoding": "gzip"}),
    (gzip.compress(b"x" * 100000)[:-9], {**RAW, "Content-Encoding": "gzip"}),
    (gzip.compress(b"x") + b"more", {**RAW, "Content-Encoding": "gzip"}),
    (b"", {"Content-Type": "multipart/form-data; boundary=b"}),
    (b"--b\r\n", {"Content-Type": "multipart/form-data; boundary=b"}),
    (b"--b\r\nContent-Disposition: form-data; name=\"file\r\n\r\n\r\n--b--", {"Content-Type": "multipart/form-data; boundary=b"}),
    (b"--b\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\nhalf", {"Content-Type": "multipart/form-data; boundary=b"}),
    (b"--bX\r\n\r\n\r\n--b--", {"Content-Type": "multipart/form-data; boundary=b"}),
    (b"--b\r\nno colon\r\n\r\n--b--", {"Content-Type": "multipart/form-data; boundary=b"}),
    (b"--b\r\n" + b"A: b\r\n" * 4000, {"Content-Type": "multipart/form-data; boundary=b"}),
    (b"x", {"Content-Type": "multipart/form-data"}),
    (b"x", {"Content-Type": "multipart/form-data; boundary=" + "b" * 71}),
])
def test_malformed_body(sandbox, body, headers):
    status, error = send(sandbox, target("a") if headers.get("Content-Encoding") else target(), body, headers)
    assert (status, error["code"]) == (400, 400)


BOUNDARY = b'--b\r\nContent-Disposition: form-data; name="file"; filename="note"\r\n\r\n'


@pytest.mark.parametrize("old", [b"old", None], ids=["replaces", "new"])
@pytest.mark.parametrize("head,headers", [(b"", RAW), (BOUNDARY, {"Content-Type": "multipart/form-data; boundary=b"}),
                                          (gzip.compress(b"")[:10], {**RAW, "Content-Encoding": "gzip"})], ids=["raw", "form", "gzip"])
def test_upload_that_is_cut_changes_nothing(sandbox, head, headers, old):
    """The control: the same upload is written if its client sends all of it."""
    kept = b"" if old is None else b"note\n"
    if old is not None:
        sandbox.run("printf old >note; chmod 751 note")
    body = head + (gzip.compress(b"x" * 50000)[10:] if "Content-Encoding" in headers else b"x" * 50000) + (b"\r\n--b--\r\n" if head == BOUNDARY else b"")
    for whole in (False, True):
        c = sandbox.connect()
        c.putrequest("POST", target("note"))
        for name, value in {**sandbox.headers, **headers, "Content-Length": str(len(body))}.items():
            c.putheader(name, value)
        c.endheaders()
        c.send(body[:-20])
        sandbox.daemon.until(lambda: sandbox.run("ls -A | grep carrel").stdout)
        assert sandbox.run("ls; cat note 2>/dev/null").stdout == kept + (old or b"")
        if whole:
            c.send(body[-20:])
            assert c.getresponse().status == 200
        c.close()
        sandbox.daemon.until(lambda: not sandbox.run("ls -A | grep carrel").stdout)
        if not whole:
            assert sandbox.run("ls; cat note 2>/dev/null").stdout == kept + (old or b"")
    assert sandbox.run("stat -c '%s %U %a' note").stdout == b"50000 user %d\n" % (644 if old is None else 751)


def test_uploads_follow_links(sandbox):
    """Also one whose `..` leads through another link, and one that leads nowhere yet."""
    sandbox.run("mkdir -p real/deep there; ln -s real/deep short; printf old >real/note; ln -s short/../note one; ln -s one two; ln -s there/new three; ln -s four four")
    assert send(sandbox, target("two"), b"new")[0] == 200 and send(sandbox, target("three"), b"made")[0] == 200
    assert sandbox.run("cat real/note there/new; readlink one two three; ls -A . real there | grep carrel").stdout == b"newmadeshort/../note\none\nthere/new\n"
    assert send(sandbox, target("four"), b"x")[0] == 400


def test_client_that_does_not_read_a_file(sandbox):
    sandbox.run("head -c 30000000 /dev/zero >large")
    c = sandbox.connect()
    c.request("GET", target("large"), headers=sandbox.headers)
    answer = c.getresponse()
    assert answer.read(1) == b"\0"
    assert read(sandbox, target("/etc/hostname"))[0] == 200
    assert len(answer.read()) == 29999999
    c.close()


def signed(sandbox, path, way, user="", until=None, token=None):
    parts = [path, way, user, token or sandbox.headers["X-Access-Token"], *([str(until)] if until else [])]
    hashed = base64.b64encode(hashlib.sha256(":".join(parts).encode()).digest()).decode().rstrip("=")
    query = {"signature": "v1_" + hashed, **({"username": user} if user else {})}
    return target(path, **query, **({"signature_expiration": until} if until else {}))


def test_signed_paths(sandbox):
    plain = {k: v for k, v in sandbox.headers.items() if k != "X-Access-Token"}

    def call(method, where, body=None):
        c = sandbox.connect()
        c.request(method, where, body=body, headers={**plain, **RAW})
        answer = c.getresponse()
        data = answer.read()
        c.close()
        return answer.status, data

    later, earlier, never = int(time.time()) + 600, int(time.time()) - 600, 9223372036854776000
    assert call("POST", signed(sandbox, "s", "write"), b"one")[0] == 200
    assert call("GET", signed(sandbox, "s", "read")) == (200, b"one")
    for until in (later, 10 ** 16, never):
        assert call("GET", signed(sandbox, "s", "read", user="user", until=until)) == (200, b"one")
    for where, why in ((target("s"), b"missing signature query parameter"),
                       (signed(sandbox, "s", "write"), b"invalid signature"),
                       (signed(sandbox, "s", "read", token="other"), b"invalid signature"),
                       (signed(sandbox, "s", "read") + "&username=root", b"invalid signature"),
                       (signed(sandbox, "s", "read", until=later).replace(str(later), str(later + 1)), b"invalid signature"),
                       (signed(sandbox, "s", "read") + "&signature_expiration=soon", b"invalid signature"),
                       (signed(sandbox, "s", "read", until=earlier), b"signature is already expired")):
        status, data = call("GET", where)
        assert status == 401 and why in data, (where, data)
    assert call("POST", "/process.Process/List", b"{}")[0] == 401
    assert call("GET", "/health")[0] == 204


def test_an_expired_signature_resumes_nothing(e2b, daemon):
    """The control: one that is valid does."""
    sandbox = Sandbox(e2b, daemon, autoPause=True, autoResume={"enabled": True})
    assert sandbox.call_raw("POST", target("s"), b"one", RAW)[0] == 200
    for until, want, state in ((1, 502, "paused"), (int(time.time()) + 600, 200, "running")):
        e2b.post(sandbox.made, "pause", {}, 204)
        where = signed(sandbox, "s", "read", until=until)
        plain = {k: v for k, v in sandbox.headers.items() if k != "X-Access-Token"}
        assert e2b.send("GET", where, headers=plain)[0] == want
        assert e2b.info(sandbox.made)["state"] == state
        if state == "paused":
            e2b.post(sandbox.made, "connect", {}, 201)


@pytest.mark.parametrize("wanted, status, data, told", [
    ("bytes=2-5", 206, b"cdef", "bytes 2-5/10"), ("bytes=7-", 206, b"hij", "bytes 7-9/10"), ("bytes=-3", 206, b"hij", "bytes 7-9/10"),
    ("bytes=0-999", 206, b"abcdefghij", "bytes 0-9/10"), ("bytes=10-", 416, b"", "bytes */10"),
    ("bytes=0-1,4-5", 200, b"abcdefghij", None), ("lines=1-2", 200, b"abcdefghij", None), ("bytes=5-2", 200, b"abcdefghij", None)])
def test_range_of_a_file(sandbox, wanted, status, data, told):
    sandbox.call_raw("POST", target("letters"), b"abcdefghij", RAW)
    got, fields, body = sandbox.call_raw("GET", target("letters"), headers={"Range": wanted})
    assert (got, body, fields["Content-Range"]) == (status, data, told)


def test_range_of_a_large_file_and_of_a_packed_answer(sandbox):
    whole = bytes(range(256)) * 20000
    sandbox.call_raw("POST", target("large"), whole, RAW)
    got, _, body = sandbox.call_raw("GET", target("large"), headers={"Range": "bytes=1000001-4000000"})
    assert got == 206 and body == whole[1000001:4000001]
    got, fields, body = sandbox.call_raw("GET", target("large"), headers={"Range": "bytes=1-2", "Accept-Encoding": "gzip"})
    assert (got, fields["Content-Encoding"]) == (200, "gzip") and gzip.decompress(body) == whole


def test_a_large_upload_is_one_change_of_the_machine(sandbox):
    """A step after each piece would hold a copy of the file each, until the disk is full."""
    steps = lambda: len(sandbox.daemon.get(f"/v1/machines/{sandbox.machine}/steps")["steps"])  # noqa: E731
    before = steps()
    octets = {"Content-Type": "application/octet-stream"}
    assert sandbox.call_raw("POST", "/files?path=large", b"z" * 8_000_000, octets)[0] == 200
    assert sandbox.run("wc -c <large").stdout == b"8000000\n"
    sandbox.daemon.until(lambda: steps() > before)  # the control
    assert steps() - before <= 4
