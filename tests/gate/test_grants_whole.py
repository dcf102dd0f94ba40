"""A grant and its variables are written together: a daemon that leaves in the middle leaves all of it, or nothing."""
import contextlib
import errno
import http.client
import sqlite3

import pytest

from daemon import Refused
from faulty import Faulty

ENV = {"kind": "env", "what": "COLOUR", "value": "green"}
IDENTITY = {"kind": "identity", "what": "Robin"}
VARIABLE = {"env": "COLOUR", "identity": "GIT_AUTHOR_NAME"}
KEY = "/home/user/.ssh/id_ed25519"


@pytest.fixture
def faulty():
    d = Faulty()
    yield d
    d.stop()


def ask(call, *args, **fields):
    with contextlib.suppress(OSError, http.client.HTTPException, Refused):
        call(*args, **fields)


def again(d):
    d.heal()
    d.kill()
    d.start()


def held_by(d, box, kind):
    """The grant, and its variable."""
    return bool(d.grants(box, kind)), f"{VARIABLE[kind]}=" in d.exec(box, "env")["stdout"]


@pytest.mark.parametrize("wanted", [ENV, IDENTITY], ids=["env", "identity"])
def test_a_grant_and_its_variables_are_given_and_taken_whole(faulty, wanted):
    """The disk fails at some write of a grant or its end. Of a key in the machine its grant is always known."""
    d, box, kind = faulty, faulty.machine(), wanted["kind"]
    url = f"/v1/machines/{box}/grants"
    for skip, ends in [(0, False), (2, False), (4, False), (6, False), (0, True), (2, True)]:
        if ends and not d.grants(box, kind):
            d.post(url, wanted)
        elif not ends and d.grants(box, kind):
            d.revoke(box, kind)
        grant = f"{url}/{d.grants(box, kind)[0]['id']}" if ends else None
        d.fail(errno.EIO, skip=skip)
        ask(d.delete, grant) if ends else ask(d.post, url, wanted)
        again(d)
        has = held_by(d, box, kind)
        assert has in ((True, True), (False, False)), (skip, ends)
        assert has[0] or d.exec(box, f"test -e {KEY}")["exec"]["status"] == 1, (skip, ends)


def shown(d, box):
    return sorted((g["kind"], g["what"], g.get("at")) for g in d.grants(box))


def source(d):
    box = d.machine()
    for wanted in (ENV, {**ENV, "what": "SHAPE"}, IDENTITY):
        d.post(f"/v1/machines/{box}/grants", wanted)
    return box


def test_a_fork_that_cannot_have_all_grants_of_its_source_has_none(faulty):
    """The write of the second one fails, whatever came before it."""
    d, box = faulty, source(faulty)
    with contextlib.closing(sqlite3.connect(d.home / "carrel.db", timeout=60)) as db:
        db.execute(f"CREATE TRIGGER refuse_grant BEFORE INSERT ON grants WHEN NEW.machine != '{box}' AND (SELECT count(*)"
                   " FROM grants WHERE machine = NEW.machine) = 1 BEGIN SELECT RAISE(ABORT, 'no more grants'); END")
        with pytest.raises(Refused) as refused:
            d.post(f"/v1/machines/{box}/fork", {})
        assert "no more grants" in str(refused.value), refused.value
        db.execute("DROP TRIGGER refuse_grant")
    assert d.rows("SELECT machine FROM grants WHERE machine != ?", box) == []
    assert [m["id"] for m in d.machines()] == [box]
    fork = d.post(f"/v1/machines/{box}/fork", {})["machines"][0]["id"]
    assert shown(d, fork) == shown(d, box) and len(shown(d, box)) == 3


@pytest.mark.parametrize("skip", [0, 8, 16, 24, 32, 40])
def test_a_fork_that_outlives_its_daemon_has_all_grants_of_its_source(faulty, skip):
    """The disk fails at some write of a fork: the next daemon knows no machine with a part of them."""
    d, box = faulty, source(faulty)
    d.fail(errno.EIO, skip=skip)
    ask(d.post, f"/v1/machines/{box}/fork", {})
    again(d)
    lives = [m["id"] for m in d.machines() if m["state"] != "ending"]
    assert box in lives
    assert [shown(d, m) for m in lives] == [shown(d, box)] * len(lives)
    assert all("COLOUR=green" in d.exec(m, "env")["stdout"] for m in lives)
