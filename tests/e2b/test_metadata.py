"""Metadata of files: sent with a file, read with entries, kept as attributes that programs of the sandbox see and set."""
import pytest

from envd import Failed
from test_envd_filesystem import fs
from test_envd_files import entry, form, read, send, target

RAW = {"Content-Type": "application/octet-stream"}
SET = """python3 -c 'import os, sys; os.setxattr(sys.argv[1], sys.argv[2].encode(), sys.argv[3].encode("latin-1"))' %s %s "%s" """


def labelled(path, **metadata):
    return {**entry(path), "metadata": metadata}


def put(sandbox, path, body=b"x", **metadata):
    return send(sandbox, target(path), body, {**RAW, **{"X-Metadata-" + k: v for k, v in metadata.items()}})


def meta(sandbox, path):
    return fs(sandbox, "Stat", path=path)["entry"].get("metadata")


@pytest.fixture
def box(sandbox):
    """A sandbox whose files have attributes; the control of all that follows."""
    sandbox.run("touch probe")
    if sandbox.run(SET % ("probe", "user.e2b.a", "b")).end["status"] != "exit status 0":
        pytest.skip("the filesystem of this host's machines has no user attributes")
    assert meta(sandbox, "probe") == {"a": "b"}
    return sandbox


def test_metadata_comes_back_with_entries_and_is_replaced_as_a_whole(box):
    assert put(box, "d/note", Author="me", n="1") == (200, [labelled("/home/user/d/note", author="me", n="1")])
    assert meta(box, "d/note") == {"author": "me", "n": "1"}
    (listed,) = fs(box, "ListDir", path="d")["entries"]
    assert listed["metadata"] == {"author": "me", "n": "1"}
    assert {e["name"]: e.get("metadata") for e in fs(box, "ListDir", path=".", depth=2)["entries"] if e["name"] in ("note", "d")} == \
        {"d": None, "note": {"author": "me", "n": "1"}}
    moved = fs(box, "Move", source="d/note", destination="e/note")["entry"]
    assert moved["metadata"] == {"author": "me", "n": "1"}
    assert put(box, "e/note", n="2") == (200, [labelled("/home/user/e/note", n="2")])
    assert meta(box, "e/note") == {"n": "2"}
    assert put(box, "e/note") == (200, [entry("/home/user/e/note")])
    assert meta(box, "e/note") is None and read(box, target("e/note")) == (200, b"x")


def test_all_files_of_a_form_get_it(box):
    body, fields = form(('name="file"; filename="f/1"', b"1"), ('name="file"; filename="f/2"', b"2"))
    assert send(box, target(), body, {**fields, "X-Metadata-k": "v"}) == (200, [labelled("/home/user/f/1", k="v"), labelled("/home/user/f/2", k="v")])
    assert [e["metadata"] for e in fs(box, "ListDir", path="f")["entries"]] == [{"k": "v"}] * 2


def test_a_snapshot_and_a_fork_have_it(e2b, box):
    put(box, "kept", by="fork")
    fork = e2b.post(box.made, "fork", {}, 201)[0]["sandbox"]
    out = box.daemon.exec("m-" + fork["sandboxID"][1:], "python3 -c 'import os; print(os.getxattr(\"/home/user/kept\", \"user.e2b.by\"))'")
    assert out["stdout"] == "b'fork'\n"


@pytest.mark.parametrize("metadata", [{"k" * 247: "v"}, {"k": "v\x7f"}, {"k": "é"}, {"k": "v" * 4097}, {f"k{n}": "v" for n in range(65)}])
def test_what_is_no_metadata_is_refused_before_the_file_is_written(box, metadata):
    fields = {**RAW, **{"X-Metadata-" + k: v.encode("latin-1") for k, v in metadata.items()}}
    status, error = send(box, target("none"), b"x", fields)
    assert status in (400, 431) and error
    with pytest.raises(Failed):
        fs(box, "Stat", path="none")


def test_attributes_of_hostile_programs_do_no_harm(box):
    """Only what a client could have set is shown. An upload replaces the file with all its attributes."""
    for name, value in (("user.e2b.good", "yes"), ("user.e2b.bad", "a\nb"), ("user.e2b.", "x"), ("user.other", "1"), ("user.e2b.high", "\\xff")):
        box.run(SET % ("probe", name, value))
    assert meta(box, "probe") == {"a": "b", "good": "yes"} or meta(box, "probe") == {"a": "b", "good": "yes", "high": "\\xff"}
    box.run("ln -s probe link; mkfifo pipe; ln -s /proc/1/environ out; mkdir marked; " + SET % ("marked", "user.e2b.dir", "1"))
    entries = {e["name"]: e.get("metadata") for e in fs(box, "ListDir", path=".")["entries"]}
    assert entries["pipe"] is None and entries["link"] is None and entries["marked"] == {"dir": "1"}
    assert meta(box, "link")["a"] == "b"
    assert put(box, "probe")[0] == 200
    assert box.run("python3 -c 'import os; print(os.listxattr(\"probe\"))'").stdout == b"[]\n"


def test_a_program_that_fills_the_attributes_of_many_files_is_listed(box):
    box.run("""mkdir many; python3 -c '
import os
for i in range(300):
    open(f"many/{i}", "w").close()
    os.setxattr(f"many/{i}", "user.e2b.k", b"v" * 900)'""")
    entries = fs(box, "ListDir", path="many")["entries"]
    assert len(entries) == 300 and all(e["metadata"] == {"k": "v" * 900} for e in entries)
