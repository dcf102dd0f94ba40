"""Whoever may see a machine hears what becomes of its change sets, and the journal says what they are of."""
import json
import os

import pytest

from daemon import Daemon
from test_events import past


@pytest.fixture(scope="module")
def server():
    d = Daemon("--listen", "127.0.0.1:0")
    yield d
    d.stop()


def told(client, mark, **query):
    return [(e[1], e[2]["detail"]["changeset"]) for e in past(client, after=mark, **query) if e[1].startswith("changeset.")]


def ship(client, changeset, action, **fields):
    return client.post(f"/v1/changesets/{changeset}/ship",
                       {"action": action, "target": "/somewhere", "sha256": "0" * 64, "files": 1, **fields})["record"]


def journal(client, verb):
    return [json.loads(line) for line in client.request("GET", "/v1/audit", raw=True, verb=verb).splitlines()]


def test_owners_hear_what_becomes_of_their_change_sets(server):
    ann, ben = server.tcp(owner="ann", scopes=["read", "run", "admin"]), server.tcp(owner="ben")
    mark = max([e[0] for e in past(server, after=0)], default=0)
    m = ann.machine(name="work", steps="manual")
    c = ann.post(f"/v1/machines/{m}/changesets", {"path": "/home/user"})["id"]
    assert told(ann, mark, machine=m) == [("changeset.frozen", c)]
    frozen = past(ann, after=mark, type="changeset.frozen")[0]
    assert (frozen[2]["machine"], frozen[2]["detail"]["path"], frozen[2]["detail"]["name"]) == (m, "/home/user", "work")
    record = ship(ann, c, "ship")
    ship(ann, c, "shipped", intent=record)
    record = ship(ann, c, "undo")
    ship(ann, c, "undone", intent=record)
    decided = [("changeset.frozen", c), ("changeset.shipped", c), ("changeset.undone", c)]
    assert told(ann, mark) == decided
    assert told(ann, frozen[0]) == decided[1:], "the stream goes on after an id"
    assert told(ben, mark) == [] and told(server, mark) == decided


def test_a_freeze_that_fails_is_no_change_set(server):
    mark = max([e[0] for e in past(server, after=0)], default=0)
    m = server.machine(steps="manual")
    with pytest.raises(Exception, match="/nowhere"):
        server.post(f"/v1/machines/{m}/changesets", {"path": "/nowhere"})
    assert told(server, mark) == []


def test_the_journal_says_which_directory_a_change_set_is_of(server, tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    m = server.lend(fd, name="other", steps="manual", dirs=[{"path": str(tmp_path), "at": "/home/user/p", "mode": "cow"}])
    c = server.post(f"/v1/machines/{m}/changesets", {"path": "/home/user/p", "changes_only": True})["id"]
    os.close(fd)
    said = next(r["detail"] for r in journal(server, "review.freeze") if r.get("detail", {}).get("changeset") == c)
    assert (said["name"], said["slice"], said["kind"], said["home"]) == ("other", "/home/user/p", "dir", str(tmp_path))


def test_long_paths_do_not_keep_a_change_set_from_the_journal(server):
    m = server.machine(steps="manual")
    path = "/home/user" + ("/" + "\u0001" * 120) * 12
    assert server.exec(m, 'mkdir -p "$P"', env={"P": path})["exec"]["status"] == 0
    c = server.post(f"/v1/machines/{m}/changesets", {"path": path})["id"]
    said = next(r["detail"] for r in journal(server, "review.freeze") if r.get("detail", {}).get("changeset") == c)
    assert "path" not in said and len(said["sha256"]) == 64
