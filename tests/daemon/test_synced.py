"""Files of the store are on the disk, under their names, before the verb that made them is acknowledged. A recorder in
the daemon notes each write, name and sync, and at each answer what is unsynced."""
import os
import sqlite3

import pytest
from carrel import BUILD
from daemon import Daemon


class Recorded(Daemon):
    @property
    def record(self):
        return self.dir / "unsynced"

    def start(self, env=()):
        super().start({"LD_PRELOAD": str(BUILD / "tests/daemon/librecord-sync.so"), "RECORD_SYNC": str(self.record), **dict(env)})

    def unsynced(self, call, *folders):
        """The answer, and what of these folders of the store was not on the disk when it was given."""
        self.record.unlink(missing_ok=True)
        answer = call()
        found = [line.replace(str(self.home), "").removeprefix("/") or "." for line in self.record.read_text().splitlines()]
        assert "carrel.lock" in found, "the control: this file is never synced, and the recorder must say so"
        assert not [line for line in found if line.startswith(("lost", "early"))], found
        return answer, sorted({line for line in found if line.split("/")[0] in folders})

    def synced(self, call, *folders):
        answer, left = self.unsynced(call, *folders)
        assert not left, left
        return answer


@pytest.fixture
def d():
    """Its own for each test: whatever else goes on in a store is not on the disk either."""
    made = Recorded()
    (made.home / "log").mkdir(mode=0o700)  # else the first command makes it, at any time
    yield made
    made.stop()


def frozen(d, m, path):
    return d.synced(lambda: d.post(f"/v1/machines/{m}/changesets", {"path": path}), ".", "changesets")


def note(d, changeset, action, **fields):
    body = {"action": action, "target": "/x", "sha256": "0" * 64, "files": 1, **fields}
    return d.synced(lambda: d.post(f"/v1/changesets/{changeset}/ship", body), "changesets")


def test_a_directory_that_is_lent_and_what_is_frozen_of_it(d, tmp_path):
    (tmp_path / "lent").mkdir()
    (tmp_path / "lent/a").write_text("one")
    fd = os.open(tmp_path / "lent", os.O_RDONLY)
    try:
        m = d.synced(lambda: d.lend(fd, dirs=[{"path": "/home/user/w", "mode": "cow"}]), ".", "baselines")
    finally:
        os.close(fd)
    assert list((d.home / "baselines" / m).iterdir()), "there is something to sync"
    d.exec(m, "echo two > w/a")
    c = frozen(d, m, "/home/user/w")["id"]
    assert len([p for p in (d.home / "changesets").iterdir() if p.name.startswith(c)]) >= 3
    note(d, c, "shipped", now=(d.home / "baselines" / m).glob("*").__next__().read_text())


def test_a_database_that_is_handed_over_and_what_is_frozen_of_it(d, tmp_path):
    m = d.machine()
    g = d.synced(lambda: d.grant_database(m, tmp_path / "shop.db"), ".", "databases", "baselines")
    with sqlite3.connect(d.home / "databases" / g) as c:
        assert c.execute("SELECT count(*) FROM goods").fetchone() == (0,)
    frozen(d, m, "/home/user/shop.db")
    d.synced(lambda: d.delete(f"/v1/machines/{m}/grants/{g}"), ".", "changesets")
