"""filesystem.Filesystem: entries as E2B describes them, and changes."""
import pytest

from envd import Failed
from test_envd_process import refused


def fs(sandbox, method, user=None, **fields):
    return sandbox.call("filesystem.Filesystem/" + method, fields, user=user)


def names(entries):
    return [e["path"] for e in entries["entries"]]


def test_entry_of_a_file(sandbox):
    sandbox.run("printf hello >note; chmod 640 note; touch -d '2026-01-02 03:04:05.5 UTC' note")
    assert fs(sandbox, "Stat", path="note") == {"entry": {
        "name": "note", "type": "FILE_TYPE_FILE", "path": "/home/user/note", "size": "5", "mode": 0o640,
        "permissions": "-rw-r-----", "owner": "user", "group": "user", "modifiedTime": "2026-01-02T03:04:05.500000000Z"}}


def test_entry_of_a_directory(sandbox):
    e = fs(sandbox, "Stat", path="/root")["entry"]
    assert (e["type"], e["owner"], e["group"], e["permissions"][0]) == ("FILE_TYPE_DIRECTORY", "root", "root", "d")
    assert fs(sandbox, "Stat", path="/")["entry"]["name"] == "/"
    assert fs(sandbox, "Stat", path="~", user="root")["entry"]["path"] == "/root"


def test_entry_of_a_symlink_tells_about_its_target(sandbox):
    sandbox.run("mkdir -p a/b; ln -s a/b one; ln -s /home/user/one two; ln -s nowhere three; ln -s four four")
    for name in ("one", "two"):
        e = fs(sandbox, "Stat", path=name)["entry"]
        assert e["symlinkTarget"] == "/home/user/a/b" and e["type"] == "FILE_TYPE_DIRECTORY"
        assert e["permissions"].startswith("L")
    for name in ("three", "four"):
        e = fs(sandbox, "Stat", path=name)["entry"]
        assert e["symlinkTarget"] == "/home/user/" + name and "type" not in e


def test_what_does_not_exist(sandbox):
    for method in ("Stat", "ListDir"):
        assert "'/no/such'" in refused("not_found", fs, sandbox, method, path="/no/such").message
    assert "'/no/such'" in refused("not_found", fs, sandbox, "CreateWatcher", path="/no/such").message
    assert "'/no/such'" in refused("not_found", fs, sandbox, "Move", source="/no/such", destination="/tmp/a").message
    assert fs(sandbox, "Remove", path="/no/such") == {}


def test_paths_of_others_and_malformed_ones(sandbox):
    refused("invalid_argument", fs, sandbox, "Stat", path="~root/x")
    refused("invalid_argument", fs, sandbox, "Stat", path=["x"])
    refused("invalid_argument", fs, sandbox, "Stat", path="/x" * 3000)
    refused("invalid_argument", fs, sandbox, "ListDir", path="/", depth=-1)
    refused("unauthenticated", fs, sandbox, "Stat", path="/", user="nobody-here")


def test_list_has_entries_in_depth_and_order(sandbox):
    sandbox.run("mkdir -p d/b/c d/a; touch d/a.txt d/a/x d/b/c/y d/b-c; ln -s b d/link")
    assert names(fs(sandbox, "ListDir", path="d")) == [
        "/home/user/d/" + n for n in ("a", "a.txt", "b", "b-c", "link")] == names(fs(sandbox, "ListDir", path="d", depth=1))
    assert names(fs(sandbox, "ListDir", path="d", depth=2)) == [
        "/home/user/d/" + n for n in ("a", "a/x", "a.txt", "b", "b/c", "b-c", "link")]
    assert "/home/user/d/b/c/y" in names(fs(sandbox, "ListDir", path="d", depth=4000000000))
    linked = fs(sandbox, "ListDir", path="d/link", depth=2)
    assert names(linked) == ["/home/user/d/link/c", "/home/user/d/link/c/y"]
    refused("invalid_argument", fs, sandbox, "ListDir", path="d/a.txt")


def test_list_of_a_large_directory(sandbox):
    sandbox.run("mkdir many; cd many; seq 5000 | xargs touch; ln -s 1 zlink")
    entries = fs(sandbox, "ListDir", path="many")["entries"]
    assert len(entries) == 5001 and entries[-1]["symlinkTarget"] == "/home/user/many/1"


def test_directories_are_made_with_their_parents_and_belong_to_the_user(sandbox):
    assert fs(sandbox, "MakeDir", path="/opt/x/y/z")["entry"]["owner"] == "user"
    for path in ("/opt/x", "/opt/x/y"):
        e = fs(sandbox, "Stat", path=path)["entry"]
        assert (e["owner"], e["mode"]) == ("user", 0o755)
    assert fs(sandbox, "Stat", path="/opt")["entry"]["owner"] == "root"
    refused("already_exists", fs, sandbox, "MakeDir", path="/opt/x")
    refused("already_exists", fs, sandbox, "MakeDir", path="/")
    sandbox.run("touch file")
    refused("invalid_argument", fs, sandbox, "MakeDir", path="file")
    refused("invalid_argument", fs, sandbox, "MakeDir", path="file/below")
    assert fs(sandbox, "MakeDir", path="/made", user="root")["entry"]["owner"] == "root"


def test_move_makes_parents_and_replaces(sandbox):
    sandbox.run("echo one >one; echo two >two")
    assert fs(sandbox, "Move", source="one", destination="/srv/new/place")["entry"]["path"] == "/srv/new/place"
    assert fs(sandbox, "Move", source="two", destination="/srv/new/place")["entry"]["size"] == "4"
    assert sandbox.run("cat /srv/new/place; stat -c %U /srv/new; ls").stdout == b"two\nuser\n"
    refused("not_found", fs, sandbox, "Stat", path="one")


def test_remove_takes_everything_below(sandbox):
    sandbox.run("mkdir -p a/b; touch a/b/c; ln -s a l")
    assert fs(sandbox, "Remove", path="l") == {} and fs(sandbox, "Remove", path="a") == {}
    assert sandbox.run("ls").stdout == b""
    with pytest.raises(Failed):
        fs(sandbox, "Remove", path="/proc")


def test_machine_without_user_files_still_lists(sandbox):
    sandbox.run("rm -f /etc/group", user="root")
    assert fs(sandbox, "Stat", path="~")["entry"]["group"] == "1000"
    sandbox.run("rm -f /etc/passwd", user="root")
    e = fs(sandbox, "Stat", path="/home/user")["entry"]
    assert (e["owner"], e["group"]) == ("1000", "1000")
