"""Watches of directories: as a stream, and polled."""
import pytest

from envd import Failed
from test_envd_filesystem import fs
from test_envd_process import refused


class Watch:
    """A stream of a watch that has begun, and what it told so far."""

    def __init__(self, sandbox, path, **fields):
        self.stream = sandbox.open("filesystem.Filesystem/WatchDir", {"path": path, **fields})
        self.messages = iter(self.stream)
        assert next(self.messages) == {"start": {}}

    def until(self, name, kind):
        """The event, and the names and kinds before it."""
        seen = []
        for message in self.messages:
            event = message.get("filesystem")
            if not event:
                continue
            if (event["name"], event["type"]) == (name, "EVENT_TYPE_" + kind):
                return event, seen
            seen.append((event["name"], event["type"]))
        raise AssertionError(seen)


def test_events_of_a_directory(sandbox):
    sandbox.run("mkdir d")
    w = Watch(sandbox, "d")
    sandbox.run("cd d; echo x >new; chmod 600 new; mv new old; rm old")
    for name, kind in (("new", "CREATE"), ("new", "WRITE"), ("new", "CHMOD"), ("new", "RENAME"), ("old", "CREATE"), ("old", "REMOVE")):
        event, _ = w.until(name, kind)
        assert "entry" not in event
    w.stream.close()


def test_uploads_are_writes(sandbox):
    """Their temporary names are not told. The control: a rename by a program is told as one."""
    octets = {"Content-Type": "application/octet-stream"}
    w = Watch(sandbox, "~")

    def before(name):
        return [(seen, kind.removeprefix("EVENT_TYPE_")) for seen, kind in w.until(name, "WRITE")[1]]

    sandbox.call_raw("POST", "/files?path=up", b"x", octets)
    assert before("up") == [("up", "CREATE")]
    sandbox.call_raw("POST", "/files?path=up", b"y", octets)
    assert before("up") == []
    sandbox.daemon.request("PUT", f"/v1/machines/{sandbox.machine}/files", b"z", path="/home/user/put")
    assert before("put") == [("put", "CREATE")]
    sandbox.run("echo >other; mv other up; echo >end")
    assert before("end") == [("other", "CREATE"), ("other", "WRITE"), ("other", "RENAME"), ("up", "CREATE"), ("end", "CREATE")]
    w.stream.close()


def test_events_have_the_entry_if_asked_for(sandbox):
    w = Watch(sandbox, "~", includeEntry=True)
    sandbox.run("echo hello >note; rm note; echo end >end")
    event, _ = w.until("note", "REMOVE")
    assert "entry" not in event
    event, _ = w.until("end", "WRITE")
    assert (event["entry"]["path"], event["entry"]["size"]) == ("/home/user/end", "4")
    w.stream.close()


def test_recursive_watch_sees_directories_made_later(sandbox):
    sandbox.run("mkdir -p d/a/b")
    w = Watch(sandbox, "d", recursive=True)
    flat = Watch(sandbox, "d")
    sandbox.run("touch d/a/b/deep; mkdir -p d/new")
    w.until("a/b/deep", "CREATE")
    w.until("new", "CREATE")

    def sees():
        sandbox.run("touch d/new/$RANDOM$RANDOM; touch d/mark; rm d/mark")
        _, seen = w.until("mark", "REMOVE")
        return any(name.startswith("new/") for name, _ in seen)
    sandbox.daemon.until(sees)
    _, seen = flat.until("mark", "REMOVE")
    assert not any("/" in name for name, _ in seen)
    w.stream.close()
    flat.stream.close()


def test_what_is_made_in_a_new_directory_at_once_is_told(sandbox):
    sandbox.run("mkdir d old; touch d/before")
    w = Watch(sandbox, "d", recursive=True)
    for i in range(5):
        sandbox.run(f"mkdir -p d/new{i}/deep/er && echo 1 >d/new{i}/deep/er/file")
        for name in (f"new{i}", f"new{i}/deep", f"new{i}/deep/er", f"new{i}/deep/er/file"):
            assert "before" not in dict(w.until(name, "CREATE")[1])
    w.stream.close()


def test_directory_below_that_is_made_again_is_watched_again(sandbox):
    sandbox.run("mkdir -p d/sub")
    w = Watch(sandbox, "d", recursive=True)
    for _ in range(100):  # more often than one watch has directories
        sandbox.run("rmdir d/sub; mkdir d/sub")
        w.until("sub", "CREATE")

    def sees():
        sandbox.run("touch d/sub/$RANDOM$RANDOM; touch d/mark; rm d/mark")
        _, seen = w.until("mark", "REMOVE")
        return any(name.startswith("sub/") for name, _ in seen)
    sandbox.daemon.until(sees)
    w.stream.close()


def test_watched_directory_that_vanishes_ends_the_watch(sandbox):
    sandbox.run("mkdir d")
    w = Watch(sandbox, "d")
    sandbox.run("rmdir d")
    assert refused("not_found", w.until, "none", "CREATE").message == "the directory '/home/user/d' was removed"
    refused("not_found", Watch, sandbox, "d")


def test_polled_watch_of_a_directory_that_vanishes_says_so(sandbox):
    """After the events that were seen before; and a directory of the same name is another one."""
    sandbox.run("mkdir p")
    watcher = fs(sandbox, "CreateWatcher", path="p")["watcherId"]
    sandbox.run("touch p/last; rm -r p; mkdir p; touch p/other")
    seen = []

    def ends():
        try:
            seen.extend(e["name"] for e in fs(sandbox, "GetWatcherEvents", watcherId=watcher)["events"])
        except Failed as e:
            return (e.code, e.message) == ("not_found", "the directory '/home/user/p' was removed")
        return False
    sandbox.daemon.until(ends)
    assert "other" not in seen


def test_what_cannot_be_watched(sandbox):
    sandbox.run("touch file; mkdir many; cd many; seq 100 | xargs mkdir")
    refused("invalid_argument", Watch, sandbox, "file")
    refused("invalid_argument", Watch, sandbox, 5)
    refused("resource_exhausted", Watch, sandbox, "many", recursive=True)
    for _ in range(3):
        w = Watch(sandbox, "many")
        w.stream.close()


def test_polled_watch(sandbox):
    sandbox.run("mkdir -p d/a")
    watcher = fs(sandbox, "CreateWatcher", path="d", recursive=True)["watcherId"]
    assert fs(sandbox, "GetWatcherEvents", watcherId=watcher) == {"events": []}
    sandbox.run("touch d/a/x; touch d/end")
    seen = []

    def ended():
        seen.extend(fs(sandbox, "GetWatcherEvents", watcherId=watcher)["events"])
        return {"name": "end", "type": "EVENT_TYPE_CHMOD"} in seen
    sandbox.daemon.until(ended)
    assert {"name": "a/x", "type": "EVENT_TYPE_CREATE"} in seen
    assert fs(sandbox, "RemoveWatcher", watcherId=watcher) == {}
    for method in ("GetWatcherEvents", "RemoveWatcher"):
        refused("not_found", fs, sandbox, method, watcherId=watcher)
        refused("not_found", fs, sandbox, method)
    refused("not_found", fs, sandbox, "CreateWatcher", path="/no/such")


def test_polled_watches_are_limited_and_of_one_sandbox(sandbox, e2b, daemon):
    made = [fs(sandbox, "CreateWatcher", path="~")["watcherId"] for _ in range(64)]
    refused("resource_exhausted", fs, sandbox, "CreateWatcher", path="~")
    other = type(sandbox)(e2b, daemon)
    refused("not_found", fs, other, "GetWatcherEvents", watcherId=made[0])
    sandbox.run("touch x")
    for watcher in made:
        sandbox.daemon.until(lambda: fs(sandbox, "GetWatcherEvents", watcherId=watcher)["events"])


def test_polled_watch_that_is_not_read_ends_with_a_reason(sandbox):
    watcher = fs(sandbox, "CreateWatcher", path="~")["watcherId"]
    sandbox.run("for i in $(seq 300); do seq $i $((i + 20)) | xargs touch; done")

    def fails():
        try:
            fs(sandbox, "GetWatcherEvents", watcherId=watcher)
        except Failed as e:
            return e.code == "resource_exhausted"
        return False
    sandbox.daemon.until(fails)


@pytest.mark.parametrize("verb", ["pause", "kill"])
def test_watch_of_a_sandbox_that_stops_is_cut(sandbox, e2b, verb):
    w = Watch(sandbox, "~")
    e2b.post(sandbox.made, "pause") if verb == "pause" else e2b.kill(sandbox.made)
    with pytest.raises(Exception) as e:
        w.until("none", "CREATE")
    assert type(e.value).__name__ in ("EOFError", "IncompleteRead", "ConnectionResetError"), e.value


def test_client_that_does_not_read_events_holds_up_nobody(sandbox):
    w = Watch(sandbox, "~", includeEntry=True)
    sandbox.run("mkdir d; for i in $(seq 100); do touch d; done")
    assert sandbox.run("echo still here").stdout == b"still here\n"
    w.stream.close()
