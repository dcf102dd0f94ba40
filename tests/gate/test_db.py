"""Databases: a private copy goes in, the difference is shown, and a file that a machine wrote is only read where it can do nothing."""
import json
import os
import sqlite3
import subprocess

import pytest

from carrel import BUILD, PROGRAM
from daemon import Refused

HELPER = BUILD / "libexec/carrel-sqlite"


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as c:
        c.execute("CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT, price REAL)")
        c.executemany("INSERT INTO goods(name, price) VALUES (?, ?)", [("tea", 3.5), ("cup", 8)])
    c.close()
    return path


def carrel(gated, *words, ok=True):
    done = subprocess.run([PROGRAM, *map(str, words)], env=gated.env, capture_output=True, text=True, timeout=100)
    assert not ok or done.returncode == 0, done
    return done


def new(gated, db, suffix=""):
    return carrel(gated, "new", "--db", f"sqlite:{db}{suffix}").stdout.strip()


def sql(gated, box, *lines, path="/home/user/shop.db", keep=False):
    """keep: it ends without a checkpoint, so that all of it is in the log."""
    script = f"import os, sqlite3; c = sqlite3.connect({path!r}, isolation_level=None); " + "; ".join(f"c.execute({line!r})" for line in lines)
    done = gated.python(box, script + ("; os._exit(0)" if keep else ""))
    assert done["exec"]["status"] == 0, done


def test_a_copy_goes_in_and_the_difference_is_shown(gated, db):
    before = db.read_bytes()
    box = new(gated, db)
    assert [(g["kind"], g["what"], g["at"]) for g in gated.grants(box)] == [("sqlite", str(db), "/home/user/shop.db")]
    assert f"database /home/user/shop.db against {db}: the same" in carrel(gated, "diff", box).stdout
    sql(gated, box, "INSERT INTO goods VALUES (7, 'pot\n', 12)", "UPDATE goods SET price = 4 WHERE name = 'tea'", "DELETE FROM goods WHERE name = 'cup'",
        "CREATE TABLE more (x BLOB)", "INSERT INTO more VALUES (x'00ff')")
    text = carrel(gated, "diff", box).stdout
    assert "+ 'table', 'more', 'more', 'CREATE TABLE more (x BLOB)'" in text
    assert "table goods\n- 1, 'tea', 3.5\n- 2, 'cup', 8.0\n+ 1, 'tea', 4.0\n+ 7, 'pot\\n', 12.0\n" in text, text
    assert db.read_bytes() == before


def diff_of(gated, box):
    (grant,) = gated.grants(box, "sqlite")
    return gated.get(f"/v1/machines/{box}/grants/{grant['id']}/diff")


def test_it_is_compared_with_what_was_handed_over(gated, db, tmp_path):
    """What the owner did to the file meanwhile is not the machine's doing, and a fork is told from the same copy."""
    box = new(gated, db)
    with sqlite3.connect(db) as c:
        c.execute("DELETE FROM goods")
    c.close()
    assert diff_of(gated, box)["same"] is True
    sql(gated, box, "INSERT INTO goods VALUES (7, 'pot', 12)")
    (fork,) = [m["id"] for m in gated.post(f"/v1/machines/{box}/fork", {})["machines"]]
    sql(gated, fork, "DELETE FROM goods WHERE id = 7")
    told = diff_of(gated, box)
    assert told["diff"] == "table goods\n+ 7, 'pot', 12.0\n" and told["same"] is False and told["cut"] is False
    assert told["what"] == str(db) and told["at"] == "/home/user/shop.db" and told["kind"] == "sqlite"
    assert diff_of(gated, fork)["same"] is True
    db.unlink()
    assert "+ 7, 'pot', 12.0" in carrel(gated, "diff", box).stdout
    assert [d["diff"] for d in json.loads(carrel(gated, "diff", "--json", box).stdout)["databases"]] == [told["diff"]]
    # And a change set shows it, though nothing of it ships.
    gated.exec(box, "mkdir -p /outbox && echo hello >/outbox/note", user="root")
    (tmp_path / "here").mkdir()
    shown = carrel(gated, "ship", box, tmp_path / "here").stdout
    assert "A  note" in shown and "+ 7, 'pot', 12.0" in shown, shown
    assert json.loads(carrel(gated, "ship", "--json", box, tmp_path / "here").stdout)["databases"][0]["diff"] == told["diff"]


def test_the_copies_go_with_their_grants(gated, db):
    def copies():
        return sorted(p.name for p in (gated.home / "databases").glob("g-*"))
    one, two, three = (new(gated, db) for _ in range(3))
    # Those of machines before them go in the background.
    gated.until(lambda: copies() == sorted(g["id"] for box in (one, two, three) for g in gated.grants(box, "sqlite")), 10)
    gated.revoke(one, "sqlite")
    gated.delete(f"/v1/machines/{two}")
    gated.until(lambda: copies() == [gated.grants(three, "sqlite")[0]["id"]], 10)
    (gated.home / "databases/g-aaaaaaaaaaaa").write_text("of a daemon that was killed")
    gated.restart()
    gated.until(lambda: len(copies()) == 1, 10)
    assert diff_of(gated, three)["same"] is True


def test_what_is_no_database_any_more_is_told(gated, db):
    box = new(gated, db)
    gated.exec(box, "echo nothing >shop.db", cwd="/home/user")
    with pytest.raises(Refused, match="no database any more"):
        diff_of(gated, box)
    done = carrel(gated, "diff", box)
    assert "no database any more" in done.stdout and "modified" in done.stdout
    gated.exec(box, "rm shop.db", cwd="/home/user")
    with pytest.raises(Refused, match="no database any more"):
        diff_of(gated, box)
    with pytest.raises(Refused, match="is no database"):
        gated.get(f"/v1/machines/{box}/grants/{gated.grant(box, 'env', 'A', value='b')}/diff")


def test_what_is_still_in_the_log_counts(gated, db):
    box = new(gated, db, ":/home/user/d/x.db")
    sql(gated, box, "PRAGMA journal_mode=wal", "INSERT INTO goods VALUES (9, 'new', 1)", path="/home/user/d/x.db", keep=True)
    assert "x.db-wal" in gated.exec(box, "ls d", cwd="/home/user")["stdout"]
    assert "+ 9, 'new', 1.0" in carrel(gated, "diff", box).stdout
    gated.revoke(box, "sqlite")
    assert gated.exec(box, "ls d | grep -v shm", cwd="/home/user")["stdout"] == ""


def test_a_database_that_is_being_written_is_copied_whole(gated, db):
    with sqlite3.connect(db, isolation_level=None) as c:
        c.execute("PRAGMA journal_mode=wal")
        c.execute("INSERT INTO goods VALUES (20, 'in the log', 1)")
        c.execute("BEGIN IMMEDIATE")
        c.execute("INSERT INTO goods VALUES (21, 'not yet', 1)")
        box = new(gated, db)
        c.execute("ROLLBACK")
    c.close()
    done = gated.python(box, "import sqlite3; print([r[0] for r in sqlite3.connect('/home/user/shop.db').execute('SELECT id FROM goods ORDER BY id')])")
    assert done["stdout"] == "[1, 2, 20]\n", done


@pytest.mark.parametrize("word,why", [("sqlite:{dir}/none", "No such file"), ("sqlite:{dir}/text", "not a database"), ("mysql:x", "no database that can be"), ("sqlite:{dir}", "copy database")])
def test_bad_words(gated, tmp_path, word, why):
    (tmp_path / "text").write_text("not a database, and longer than a hundred bytes " * 10)
    done = carrel(gated, "new", "--db", word.format(dir=tmp_path), ok=False)
    assert done.returncode and why in done.stderr, done
    assert gated.machines() == []


# ---- what a machine may put there ----


def compare(before, after, log=b""):
    fds = []
    for bytes_ in (before, after, log):
        fd = os.memfd_create("x")
        os.write(fd, bytes_)
        os.lseek(fd, 0, os.SEEK_SET)
        fds.append(fd)

    def place():
        for n, fd in enumerate(fds):
            os.dup2(fd, 100 + n)
        for n in range(3):
            os.dup2(100 + n, 3 + n)
            os.set_inheritable(3 + n, True)
    done = subprocess.run([HELPER, "diff"], preexec_fn=place, pass_fds=(3, 4, 5), close_fds=False, capture_output=True, timeout=100)
    for fd in fds:
        os.close(fd)
    return done


def made(tmp_path, *lines):
    path = tmp_path / "made.db"
    path.unlink(missing_ok=True)
    with sqlite3.connect(path, isolation_level=None) as c:
        c.executescript(";".join(lines))
    c.close()
    return path.read_bytes()


HOSTILE = {
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON goods BEGIN SELECT load_extension('/tmp/x'); END",
    "a view": "CREATE VIEW v AS SELECT load_extension('/tmp/x')",
    "a column that calls": "CREATE TABLE g (a, b AS (abs(a)) STORED)",
    "a virtual table": "CREATE VIRTUAL TABLE f USING fts5(x)",
    "an index that calls": "CREATE INDEX i ON goods(abs(price))",
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=list(HOSTILE))
def test_what_a_schema_would_run_does_not_run(db, tmp_path, line, count_attack):
    with sqlite3.connect(db) as c:
        base = list(c.iterdump())
    c.close()
    done = compare(db.read_bytes(), made(tmp_path, *(x.rstrip(";") for x in base), line))
    assert done.returncode == 0 and line.split("(")[0].encode() in done.stdout, done
    count_attack()


def test_broken_files_are_refused_or_shown(db, tmp_path, count_attack):
    """Bytes turned at every place of the head, and in the middle; none ends other than by a word."""
    good = db.read_bytes()
    for at in [*range(16, 100, 7), 101, 105, 120, len(good) - 40, len(good) // 2]:
        bad = bytearray(good)
        bad[at] ^= 0xff
        done = compare(good, bytes(bad))
        assert done.returncode in (0, 1) and (done.returncode == 0 or done.stderr), (at, done)
    for bad in (b"", b"x" * 50, good[:512], good + b"\0" * 4096, os.urandom(8192)):
        done = compare(good, bad, os.urandom(5000))
        assert done.returncode in (0, 1), done
    count_attack()
