"""Snapshots and forks: the files of a sandbox in others, also after it has ended."""
import time

import pytest

from e2b_client import E2bError, machine_of, status_of


@pytest.fixture
def sandbox(e2b, daemon):
    made = e2b.create(metadata={"a": "b"}, envVars={"FOO": "bar"})
    daemon.exec(machine_of(made), "echo kept >note")
    return made


def names(rows):
    return [r["snapshotID"] for r in rows]


def listed(e2b, **query):
    target = "/snapshots?" + "&".join(f"{k}={v}" for k, v in query.items())
    return e2b.call("GET", target, status=200)


def note_of(daemon, sandbox):
    return daemon.exec(machine_of(sandbox), "cat note; echo $FOO")["stdout"]


# ---- snapshots ----

def test_a_snapshot_starts_sandboxes_after_its_own_has_ended(e2b, daemon, sandbox):
    snapshot = e2b.post(sandbox, "snapshots", {"name": "first"}, 201)
    assert snapshot["names"] == ["first"]
    daemon.exec(machine_of(sandbox), "echo later >note")
    assert note_of(daemon, sandbox) == "later\nbar\n"
    e2b.kill(sandbox)
    made = e2b.create(templateID=snapshot["snapshotID"], metadata={"c": "d"})
    assert note_of(daemon, made) == "kept\nbar\n"
    info = e2b.info(made)
    assert info["metadata"] == {"c": "d"} and info["templateID"] == snapshot["snapshotID"]
    e2b.kill(made)
    assert names(listed(e2b)) == [snapshot["snapshotID"]]


def test_snapshots_are_listed_and_deleted(e2b, daemon, sandbox):
    made = [e2b.post(sandbox, "snapshots", {"name": f"n{i}"} if i else {}, 201) for i in range(3)]
    ids = names(made)
    assert names(listed(e2b)) == ids[::-1]
    assert names(listed(e2b, name="n1")) == [ids[1]] and listed(e2b, name="none") == []
    assert names(listed(e2b, sandboxID=sandbox["sandboxID"])) == ids[::-1] and listed(e2b, sandboxID="mx") == []
    status, headers, _ = e2b.send("GET", "/snapshots?limit=2")
    assert names(listed(e2b, limit=2, nextToken=headers["X-Next-Token"])) == [ids[0]]
    assert [r["sandboxID"] for r in e2b.list()[0]] == [sandbox["sandboxID"]]
    e2b.call("DELETE", "/templates/" + ids[1], status=204)
    assert status_of(e2b.call, "DELETE", "/templates/" + ids[1]) == 404
    assert names(listed(e2b)) == [ids[2], ids[0]]


def test_a_snapshot_is_no_sandbox_and_a_sandbox_is_no_snapshot(e2b, daemon, sandbox):
    snapshot = e2b.post(sandbox, "snapshots", {}, 201)
    assert status_of(e2b.info, {"sandboxID": snapshot["snapshotID"]}) == 404
    assert status_of(e2b.kill, {"sandboxID": snapshot["snapshotID"]}) == 404
    assert status_of(e2b.call, "DELETE", "/templates/" + sandbox["sandboxID"]) == 404
    assert status_of(e2b.create, templateID=sandbox["sandboxID"]) == 404
    assert status_of(e2b.call, "GET", "/snapshots?limit=x") == 400


# ---- forks ----

def test_forks_have_the_files_and_metadata_of_the_sandbox(e2b, daemon, sandbox):
    forks = [f["sandbox"] for f in e2b.post(sandbox, "fork", {"count": 3, "timeout": 60}, 201)]
    assert len({f["sandboxID"] for f in forks} | {sandbox["sandboxID"]}) == 4
    assert len({f["envdAccessToken"] for f in forks} | {sandbox["envdAccessToken"]}) == 4
    daemon.exec(machine_of(forks[0]), "echo changed >note")
    assert [note_of(daemon, f) for f in (*forks, sandbox)] == ["changed\nbar\n"] + 3 * ["kept\nbar\n"]
    assert e2b.info(forks[1])["metadata"] == {"a": "b"}


def test_forks_beyond_the_limit_are_errors_beside_the_others(e2b, daemon, sandbox):
    for count in (0, 101, "x"):
        with pytest.raises(E2bError) as refusal:
            e2b.post(sandbox, "fork", {"count": count})
        assert refusal.value.status == 400
