"""The tools list and patch, over both faces."""
import json

import pytest

from mcp_client import ToolFailed

HOME = "/home/user/"


def files(client, *names):
    return [client.call("exec", cmd=f"cat {n}")["stdout"] for n in names]


def write(client, **texts):
    for name, text in texts.items():
        client.call("write", path=HOME + name, content=text)


DIFF = """diff --git a/one b/one
index 1234567..89abcde 100644
--- a/one
+++ b/one
@@ -1,3 +1,3 @@
 a
-b
+B
 c
--- /dev/null
+++ b/new/file
@@ -0,0 +1,2 @@
+first
+second
--- a/two
+++ /dev/null
@@ -1 +0,0 @@
-x
"""

STARS = """*** Begin Patch
*** Update File: one
@@
 a
-b
+B
 c
*** Add File: new/file
+first
+second
*** Delete File: two
*** End Patch
"""


@pytest.mark.parametrize("text", [DIFF, STARS])
def test_several_files_change_at_once(client, text):
    write(client, one="a\nb\nc\n", two="x\n")
    result = client.result("patch", patch=text)
    assert [(f["path"], f["change"], f["lines_added"], f["lines_removed"]) for f in result["structuredContent"]["files"]] == [
        (HOME + "one", "modified", 1, 1), (HOME + "new/file", "added", 2, 0),
        (HOME + "two", "deleted", 0, 1 if text is DIFF else 0)]
    assert "modified /home/user/one (+1 -1)\n" in result["content"][0]["text"]
    assert files(client, "one", "new/file") == ["a\nB\nc\n", "first\nsecond\n"]
    assert client.call("exec", cmd="ls -A")["stdout"].split() == [".profile", "new", "one"], "nothing else is left"


@pytest.mark.parametrize("last,words", [
    ("*** Update File: two\n@@\n-nothing of it\n+y\n", "the lines of hunk 1 are not in the file"),
    ("*** Update File: none\n@@\n-x\n+y\n", "none"),
    ("*** Add File: two\n+y\n", "file '/home/user/two' exists already"),
    ("*** Add File: two/below\n+y\n", "two"),
    ("*** Delete File: kept/none\n", "none"),
    ("*** Update File: one\n@@\n-c\n+C\n", "occurs twice"),
    ("*** Add File: /etc/not-mine\n+y\n", "not-mine"),
    ("*** Update File: sealed/f\n@@\n-s\n+t\n", "cannot create a temporary file"),
])
def test_all_files_change_or_none(client, last, words):
    write(client, one="a\nb\nc\n", two="x\n", gone="g\n", moved="#!/bin/sh\n")
    client.call("exec", cmd="chmod 755 moved; mkdir kept sealed; echo s > sealed/f; chown -R root . ; chown user . one two gone moved kept; "
                            "chmod 555 sealed", user="root", cwd=HOME)
    before = client.call("exec", cmd="find . -type f | sort | xargs sha256sum; stat -c '%n %a' moved gone")["stdout"]
    text = ("*** Begin Patch\n*** Update File: one\n@@\n-b\n+B\n*** Delete File: gone\n*** Add File: fresh\n+f\n"
            "*** Update File: moved\n*** Move to: there\n@@\n+# end\n" + last + "*** End Patch")
    with pytest.raises(ToolFailed, match=words):
        client.call("patch", patch=text)
    assert client.call("exec", cmd="find . -type f | sort | xargs sha256sum; stat -c '%n %a' moved gone")["stdout"] == before


def test_a_moved_file_keeps_its_mode(client):
    write(client, run="#!/bin/sh\necho old\n")
    client.call("exec", cmd="chmod 755 run")
    r = client.call("patch", patch="*** Begin Patch\n*** Update File: run\n*** Move to: bin/run\n@@\n-echo old\n+echo new\n*** End Patch")
    assert [(f["path"], f["from"], f["change"]) for f in r["files"]] == [(HOME + "bin/run", HOME + "run", "moved")]
    assert client.call("exec", cmd="bin/run; ls")["stdout"] == "new\nbin\n"


def test_what_models_get_wrong_still_fits(client):
    """Wrong line numbers and counts, blanks at line ends, empty lines that lost their blank."""
    write(client, f="".join(f"line {i}\n" for i in range(50)) + "tail  \n\nend\n")
    client.call("patch", patch="--- f\n+++ f\n@@ -3,1 +3,9 @@\n line 39\n-line 40\n+forty\n line 41\n@@ -70,2 +70,2 @@\n tail\n\n-end\n+END\n")
    assert client.call("exec", cmd="tail -n +40 f")["stdout"].startswith("line 39\nforty\nline 41\n")
    assert client.call("exec", cmd="tail -n 3 f")["stdout"] == "tail  \n\nEND\n"


def test_lines_that_occur_several_times(client):
    write(client, f="def a():\n    return 1\n\ndef b():\n    return 1\n")
    with pytest.raises(ToolFailed, match="occur several times"):
        client.call("patch", patch="*** Begin Patch\n*** Update File: f\n@@\n-    return 1\n+    return 2\n*** End Patch")
    client.call("patch", patch="*** Begin Patch\n*** Update File: f\n@@ def b():\n-    return 1\n+    return 2\n*** End Patch")
    assert files(client, "f") == ["def a():\n    return 1\n\ndef b():\n    return 2\n"]
    with pytest.raises(ToolFailed, match="(?s)not in the file.*nearest, line 5:.*return 2"):
        client.call("patch", patch="--- f\n+++ f\n@@ -5 +5 @@\n-    return 3\n+    return 4\n")


def test_a_patch_in_a_directory(client):
    client.call("exec", cmd="mkdir -p p; printf 'x' > p/f")
    client.call("patch", cwd=HOME + "p", patch="--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+y\n\\ No newline at end of file\n")
    assert files(client, "p/f") == ["y"]
    client.call("patch", patch=f"--- {HOME}p/f\n+++ {HOME}p/f\n@@ -1 +1 @@\n-y\n+z\n")
    assert files(client, "p/f") == ["z\n"]


@pytest.mark.parametrize("text,words", [
    ("", "names no file"),
    ("hello", "names no file"),
    ("*** Begin Patch\n*** Update File: f\n@@\n-a\n+b\n", "no line \\*\\*\\* End Patch"),
    ("*** Begin Patch\n*** Erase File: f\n*** End Patch", "line 2 of the patch is not known"),
    ("*** Begin Patch\n*** Update File: f\n a\n*** End Patch", "changes nothing"),
    ("*** Begin Patch\n*** Update File: f\n@@\n?a\n*** End Patch", "starts with none of"),
    ("*** Begin Patch\n*** Add File: f\n a\n*** End Patch", "must start with '\\+'"),
    ("*** Begin Patch\n*** Add File: d/\n+a\n*** End Patch", "is not the path of a file"),
    ("GIT binary patch\n", "binary"),
])
def test_a_patch_that_cannot_be(client, text, words):
    with pytest.raises(ToolFailed, match=words):
        client.call("patch", patch=text)


def test_list_shows_a_tree(client):
    client.call("exec", cmd="rm .profile; mkdir -p a/b/c .git/x node_modules/y; echo 12345 > a/f; echo > a/b/c/deep; ln -s f a/l; echo > z")
    result = client.result("list")
    r = result["structuredContent"]
    assert [(e["path"], e["type"]) for e in r["entries"]] == [
        (".git", "directory"), ("a", "directory"), ("a/b", "directory"), ("a/f", "file"), ("a/l", "symlink"),
        ("node_modules", "directory"), ("z", "file")]
    assert r["entries"][3]["size"] == 6 and r["path"] == "/home/user" and r["count"] == 7 and not r["more"]
    assert result["content"][0]["text"] == ("/home/user\n.git/\na/\n  b/\n  f\n  l\nnode_modules/\nz\n[7 entries]")
    deep = client.call("list", path="/home/user/a", depth=8)
    assert "b/c/deep" in [e["path"] for e in deep["entries"]]
    few = client.call("list", max=3, depth=8)
    assert few["count"] == 3 and few["more"]
    assert {"etc", "etc/passwd"} <= {e["path"] for e in client.call("list", path="/", max=2000)["entries"]}
    for path, words in [("nowhere", "not absolute"), ("/nowhere", "nowhere"), ("/etc/passwd", "passwd")]:
        with pytest.raises(ToolFailed, match=words):
            client.call("list", path=path)


def test_list_of_a_directory_with_many_files(client):
    client.call("exec", cmd="mkdir many; cd many; seq 1 1800 | xargs touch")
    r = client.call("list", path="/home/user/many", max=2000)
    assert r["count"] == 1800 and not r["more"]
    assert client.call("list", path="/home/user/many")["more"]
    assert json.dumps(r["entries"]).count("file") == 1800


def test_list_shows_directories_that_cannot_be_read(client):
    client.call("exec", cmd="mkdir -p shut/in && chmod 700 shut && chown root shut && mkdir open && chmod 755 open; rm .profile", user="root", cwd=HOME)
    assert [e["path"] for e in client.call("list")["entries"]] == ["open", "shut"]
    assert [e["path"] for e in client.call("list", user="root")["entries"]] == ["open", "shut", "shut/in"]
