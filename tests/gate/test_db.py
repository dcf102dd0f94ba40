"""Databases: a private copy goes in, the difference is shown, and a file that a machine wrote is only read where it can do nothing."""
import io
import json
import os
import re
import sqlite3
import subprocess
import tarfile
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import pytest

from carrel import BUILD, PROGRAM
from daemon import Refused, stopped
from patience import PATIENCE

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
    same = carrel(gated, "diff", box).stdout
    assert f"database /home/user/shop.db against {db}: the same\nnothing to ship" in same, same
    sql(gated, box, "INSERT INTO goods VALUES (7, 'pot\n', 12)", "UPDATE goods SET price = 4 WHERE name = 'tea'", "DELETE FROM goods WHERE name = 'cup'",
        "CREATE TABLE more (x BLOB)", "INSERT INTO more VALUES (x'00ff')")
    text = carrel(gated, "diff", box).stdout
    assert "+ 'table', 'more', 'more', 'CREATE TABLE more (x BLOB)'" in text
    assert "table goods\n- 1, 'tea', 3.5\n- 2, 'cup', 8.0\n+ 1, 'tea', 4.0\n+ 7, 'pot\\n', 12.0\n" in text, text
    assert "table more\n+ x'00ff'\n" in text and "1 change to ship: carrel ship -y c-" in text, text
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
    (told_too,) = [c["database"]["diff"] for c in json.loads(carrel(gated, "diff", "--json", box).stdout)["changesets"]]
    assert told_too == told["diff"]


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
    with pytest.raises(Refused, match="not an SQLite database any more"):
        diff_of(gated, box)
    done = carrel(gated, "diff", box, ok=False)
    assert done.returncode == 1 and "not an SQLite database any more" in done.stderr and "modified" in done.stdout, done
    gated.exec(box, "rm shop.db", cwd="/home/user")
    with pytest.raises(Refused, match="not an SQLite database any more"):
        diff_of(gated, box)
    with pytest.raises(Refused, match="is not a database"):
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


@pytest.mark.parametrize("word,why", [("sqlite:{dir}/none", "No such file"), ("sqlite:{dir}/text", "not a database"), ("mysql:x", "--db mysql: unknown kind of database"), ("sqlite:{dir}", "copy database")])
def test_bad_words(gated, tmp_path, word, why):
    (tmp_path / "text").write_text("not a database, and longer than a hundred bytes " * 10)
    done = carrel(gated, "new", "--db", word.format(dir=tmp_path), ok=False)
    assert done.returncode and why in done.stderr, done
    assert gated.machines() == []


# ---- frozen, and shipped ----


def rows(path):
    c = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        assert c.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [r[0] for r in c.execute("SELECT name FROM goods ORDER BY id")]
    finally:
        c.close()


def freeze(gated, box):
    (told,) = json.loads(carrel(gated, "diff", "--json", box).stdout)["changesets"]
    return told["changeset"]


def change(path, line):
    with sqlite3.connect(path) as c:
        c.execute(line)
    c.close()


ADD = "INSERT INTO goods VALUES (7, 'pot', 12)"


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_what_was_frozen_is_what_is_shown_and_ships(gated, db, journal):
    """Whatever the machine, or somebody else, does to its copy meanwhile; and it can be taken back."""
    db.chmod(0o600)
    change(db, f"PRAGMA journal_mode={journal}")
    before = db.read_bytes()
    box = new(gated, db)
    sql(gated, box, ADD, keep=True)  # with wal all of it is in the log
    changeset = freeze(gated, box)
    sql(gated, box, "DELETE FROM goods")
    shown = carrel(gated, "ship", changeset).stdout
    assert "M  shop.db" in shown and "table goods\n+ 7, 'pot', 12.0\n" in shown and "cup" not in shown, shown
    assert gated.get(f"/v1/changesets/{changeset}/database")["diff"] == "table goods\n+ 7, 'pot', 12.0\n"
    assert db.read_bytes() == before
    gated.delete(f"/v1/machines/{box}")
    done = carrel(gated, "ship", "-y", changeset).stdout
    assert f"1 file shipped to {db.parent}" in done and rows(db) == ["tea", "cup", "pot"] and db.stat().st_mode & 0o777 == 0o600, done
    assert db.read_bytes()[18:20] == before[18:20], "it has a log where the owner's had one"
    (receipt,) = db.parent.glob(".carrel-ship-*/receipt.json")
    assert ": valid: the journal has the same record" in carrel(gated, "audit", "verify", receipt).stdout
    assert "1 undone" in carrel(gated, "ship", "--undo", changeset).stdout
    assert db.read_bytes() == before


def test_work_goes_on_after_it_was_shipped(gated, db):
    box = new(gated, db)
    sql(gated, box, ADD)
    assert "1 file shipped" in carrel(gated, "ship", "-y", box).stdout
    sql(gated, box, "INSERT INTO goods VALUES (8, 'pan', 20)")
    carrel(gated, "ship", "-y", box)
    assert rows(db) == ["tea", "cup", "pot", "pan"]


def test_an_owners_change_is_refused_and_both_stay(gated, db):
    box = new(gated, db)
    sql(gated, box, ADD)
    changeset = freeze(gated, box)
    change(db, "DELETE FROM goods WHERE name = 'tea'")
    done = carrel(gated, "ship", "-y", changeset, ok=False)
    assert done.returncode == 1 and "refused: the file changed on your side" in done.stdout and rows(db) == ["cup"], done
    (aside,) = db.parent.glob(".carrel-ship-*/aside.*")
    assert rows(aside) == ["tea", "cup", "pot"]
    db.unlink()
    assert "refused: you deleted the file" in carrel(gated, "ship", "-y", changeset, ok=False).stdout and not db.exists()


def test_one_that_was_only_looked_at_is_the_same(gated, db):
    """Times do not count: what it holds does."""
    box = new(gated, db)
    sql(gated, box, ADD)
    changeset = freeze(gated, box)
    os.utime(db, (1, 1))
    assert "1 file shipped" in carrel(gated, "ship", "-y", changeset).stdout


def test_one_that_somebody_has_open_is_left_alone(gated, db):
    """What stands in its log would be put on top of another file."""
    change(db, "PRAGMA journal_mode=wal")
    with sqlite3.connect(db, isolation_level=None) as c:
        c.execute("INSERT INTO goods VALUES (5, 'in the log', 1)")
        box = new(gated, db)
        sql(gated, box, ADD)
        changeset = freeze(gated, box)
        for checkpoint in ("", "PRAGMA wal_checkpoint(TRUNCATE)"):  # then nothing is in it, and it is open all the same
            c.execute(checkpoint)
            done = carrel(gated, "ship", "-y", changeset, ok=False)
            assert done.returncode == 1 and "refused: another process has your file open" in done.stdout, done
    c.close()
    assert "1 file shipped" in carrel(gated, "ship", "-y", changeset).stdout and rows(db) == ["tea", "cup", "in the log", "pot"]
    other = db.parent / "other"
    other.mkdir()
    carrel(gated, "ship", "-y", changeset, other)
    with sqlite3.connect(other / "shop.db", isolation_level=None) as c:
        c.execute("UPDATE goods SET price = 1")
        done = carrel(gated, "ship", "--undo", changeset, other, ok=False)
        assert done.returncode == 125 and "/other/shop.db' is open in another process" in done.stderr, done
    c.close()


def test_a_grant_that_ended_ships_and_one_that_was_taken_back_only_where_it_is_told(gated, db):
    box = carrel(gated, "new", "--db", f"sqlite:{db}", "--expires", "4s").stdout.strip()
    sql(gated, box, ADD)
    changeset = freeze(gated, box)
    gated.until(lambda: gated.grants(box, "sqlite") == [], 20)
    assert "1 file shipped" in carrel(gated, "ship", "-y", changeset).stdout
    box = new(gated, db)
    sql(gated, box, "DELETE FROM goods WHERE name = 'pot'")
    changeset = freeze(gated, box)
    gated.revoke(box, "sqlite")
    gated.restart()
    done = carrel(gated, "ship", "-y", changeset, ok=False)
    assert done.returncode == 125 and f"was revoked: {db}" in done.stderr and f"carrel ship {changeset} DIRECTORY" in done.stderr, done
    assert rows(db) == ["tea", "cup", "pot"]
    assert "1 file shipped" in carrel(gated, "ship", "-y", changeset, db.parent).stdout and rows(db) == ["tea", "cup"]


def test_a_damaged_one_is_not_frozen(gated, db):
    """Its rows can be read, but an index says something else than they do."""
    change(db, "CREATE INDEX by_name ON goods(name)")
    box = new(gated, db)
    gated.python(box, "import sqlite3; p = '/home/user/shop.db'; b = bytearray(open(p, 'rb').read()); i = b.rindex(b'cup'); b[i:i+3] = b'cap'; open(p, 'wb').write(b)")
    before = sorted((gated.home / "changesets").glob("c-*"))
    with pytest.raises(Refused, match="damaged: row 2"):
        gated.post(f"/v1/machines/{box}/changesets", {"path": "/home/user/shop.db"})
    assert sorted((gated.home / "changesets").glob("c-*")) == before, "nothing of it is left"


# Two tables that always agree, for whoever sees whole transactions: argv is the mode of its log, how many, rows in each, seconds between, and
# "killed" if the second is not to end. What does not fit into the small cache is in the file before the transaction is whole.
PAIRS = """
import os, sqlite3, sys, time
mode, count, rows, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
c = sqlite3.connect("/home/user/shop.db", isolation_level=None)
c.executescript(f"PRAGMA journal_mode={mode}; PRAGMA cache_size=10; CREATE TABLE a(t); CREATE TABLE b(t)")
for i in range(count):
    c.execute("BEGIN IMMEDIATE")
    for table in "ab":
        c.executemany(f"INSERT INTO {table} VALUES (?)", [("x" * 1000,)] * rows)
        time.sleep(pause)
        if i == 1 and "killed" in sys.argv:
            os.kill(os.getpid(), 9)
    c.execute("COMMIT")
    print(i, flush=True)
    time.sleep(pause)
"""


def write_pairs(gated, box, *words, **fields):
    return gated.exec(box, ["python3", "-c", PAIRS, *map(str, words)], **fields)


def freeze(gated, box):
    return gated.post(f"/v1/machines/{box}/changesets", {"path": "/home/user/shop.db"})["id"]


def pairs_in(gated, changeset, tmp_path):
    """How many rows each of the two tables of a frozen database has."""
    archive = gated.request("GET", f"/v1/changesets/{changeset}/archive", raw=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        (tmp_path / "frozen.db").write_bytes(tar.extractfile(tar.getmembers()[0]).read())
    c = sqlite3.connect(tmp_path / "frozen.db")
    a, b = (c.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in "ab")
    c.close()
    assert a == b
    return a


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_one_that_is_written_now_and_then_is_frozen_as_of_one_instant(gated, db, tmp_path, mode):
    box = new(gated, db)
    write_pairs(gated, box, mode, 200, 300, 0.1 * PATIENCE, background=True)
    gated.until(lambda: gated.exec(box, "test $(stat -c %s shop.db-wal shop.db | sort -n | tail -1) -gt 400000", cwd="/home/user")["exec"]["status"] == 0)
    counts = []

    def grew():  # every look sees whole transactions; the first ones may all fall between the same two
        try:
            counts.append(pairs_in(gated, freeze(gated, box), tmp_path))
        except Refused as refused:  # on a busy host a look takes longer than the pause
            assert refused.code == "busy", refused
        return len(counts) >= 8 and counts[-1] > counts[0]

    gated.until(grew)
    assert counts == sorted(counts), counts


def test_one_that_is_written_all_the_time_is_frozen_while_the_machine_is_paused(gated, db, tmp_path):
    box = new(gated, db)
    write_pairs(gated, box, "wal", 1000000, 1, 0, background=True)
    gated.until(lambda: gated.exec(box, "test -s shop.db-wal", cwd="/home/user")["exec"]["status"] == 0)
    for _ in range(3):
        try:
            pairs_in(gated, freeze(gated, box), tmp_path)  # the writer had to wait for the processor
        except Refused as refused:
            assert refused.code == "busy" and f"carrel pause {box}" in str(refused), refused
            break
    else:
        pytest.skip("this host is too busy to write all the time")
    gated.post(f"/v1/machines/{box}/pause")
    assert pairs_in(gated, freeze(gated, box), tmp_path) > 0


def test_half_of_a_transaction_is_not_frozen(gated, db, tmp_path):
    box = new(gated, db)
    assert write_pairs(gated, box, "delete", 2, 300, 0, "killed")["exec"]["signal"] == 9
    with pytest.raises(Refused, match="is in a transaction: '/home/user/shop.db-journal' exists") as refused:
        freeze(gated, box)
    assert refused.value.code == "busy"
    sql(gated, box, "SELECT count(*) FROM a")
    assert pairs_in(gated, freeze(gated, box), tmp_path) == 300


def guest_of(gated, box):
    return int(re.search(r"^pid=(\d+)", (gated.run_dir / "boxes" / box / "box").read_text(), re.M)[1])


def test_one_machine_that_does_not_answer_leaves_room_for_others(gated, db):
    box, other = new(gated, db), new(gated, db)
    assert diff_of(gated, box)["same"] is True  # all that belongs to its beginning is over
    with ThreadPoolExecutor() as pool:
        with stopped([guest_of(gated, box)]):
            asked = [pool.submit(diff_of, gated, box) for _ in range(3)]
            (refused,), waiting = wait(asked, timeout=20, return_when=FIRST_COMPLETED)
            assert refused.exception().code == "busy" and f"2 databases of machine '{box}'" in str(refused.exception())
            assert diff_of(gated, other)["same"] is True
        assert [w.result()["same"] for w in waiting] == [True, True]
    assert diff_of(gated, box)["same"] is True


def test_a_daemon_leaves_while_a_machine_does_not_answer(gated, db):
    """What was asked of it is answered by nobody, and nothing of it is left."""
    box = new(gated, db)
    assert diff_of(gated, box)["same"] is True
    frozen = lambda: sorted(p.name for p in (gated.home / "changesets").glob("c-*"))  # noqa: E731
    before = frozen()
    with ThreadPoolExecutor() as pool, stopped([guest_of(gated, box)]):
        asked = [pool.submit(diff_of, gated, box), pool.submit(freeze, gated, box)]
        gated.until(lambda: len(frozen()) == len(before) + 2)
        gated.restart(hard=False)
        assert all(x.exception() for x in asked)
    assert frozen() == before
    gated.until(lambda: gated.get(f"/v1/machines/{box}")["state"] == "running")
    assert diff_of(gated, box)["same"] is True


def test_a_daemon_that_leaves_keeps_no_copy_of_a_machine_that_is_gone(gated, db):
    box, stays = new(gated, db), new(gated, db)
    gated.delete(f"/v1/machines/{box}")
    gated.end()
    kept = list((gated.home / "databases").iterdir())
    gated.start()
    assert len(kept) == 1
    assert diff_of(gated, stays)["same"] is True


def test_rows_that_are_there_twice_are_told(gated, db, tmp_path):
    base, more = ["CREATE TABLE t(a)", "INSERT INTO t VALUES (1)"], ["INSERT INTO t VALUES (1), (1), (2), (2)"]
    done = compare(made(tmp_path, *base), made(tmp_path, *base, *more))
    assert done.stdout == b"table t\n+ 1\n+ 2\n+ ... 2 like others\n", done
    done = compare(made(tmp_path, *base, *more), made(tmp_path, *base, 'CREATE TABLE "a\n+ 7"(x)', 'INSERT INTO "a\n+ 7" VALUES (1)'))
    assert b"table a\\n+ 7\n+ 1\n" in done.stdout, done


# What was, what became of it, and what is shown: by its own rules each is the same.
HIDDEN = {
    "letters": ("CREATE TABLE t(a TEXT COLLATE NOCASE)", ["'admin'"], ["'ADMIN'"], "table t\n- 'admin'\n+ 'ADMIN'\n"),
    "blanks": ("CREATE TABLE t(a TEXT COLLATE RTRIM)", ["'a'"], ["'a '"], "table t\n- 'a'\n+ 'a '\n"),
    "kind of number": ("CREATE TABLE t(a)", ["1"], ["1.0"], "table t\n- 1\n+ 1.0\n"),
    "how often": ("CREATE TABLE t(a)", ["'A'", "'A'", "'B'"], ["'A'", "'B'", "'B'"], "table t\n- 'A'\n+ 'B'\n"),
    "nothing and nothing": ("CREATE TABLE t(a)", ["NULL", "''"], ["NULL", "x''"], "table t\n- ''\n+ x''\n"),
    "keyed by itself": ("CREATE TABLE t(a TEXT COLLATE NOCASE PRIMARY KEY, b DEFAULT 1) WITHOUT ROWID", ["'x'"], ["'X'"], "table t\n- 'x', 1\n+ 'X', 1\n"),
    "made of another": ("CREATE TABLE t(a TEXT COLLATE NOCASE, b AS (a) STORED, c AS (a))", ["'x'"], ["'X'"], "table t\n- 'x', 'x', 'x'\n+ 'X', 'X', 'X'\n"),
    "odd names": ('CREATE TABLE t("n", "c0" COLLATE NOCASE DEFAULT \'d\', "r" DEFAULT 0)', ["1"], ["1.0"], "table t\n- 1, 'd', 0\n+ 1.0, 'd', 0\n"),
    "many columns": (f"CREATE TABLE t({', '.join(f'a{n} DEFAULT 7' for n in range(999))})", ["1"], ["2"], f"table t\n- 1{', 7' * 998}\n+ 2{', 7' * 998}\n"),
    "nothing at all": ("CREATE TABLE t(a TEXT COLLATE NOCASE)", ["'x'", "'X'", "NULL", "NULL", "1.5"], ["NULL", "1.5", "'X'", "NULL", "'x'"], ""),
}


@pytest.mark.parametrize("form,before,after,shown", HIDDEN.values(), ids=list(HIDDEN))
def test_what_is_equal_but_not_the_same_is_shown(tmp_path, form, before, after, shown):
    first = re.search(r"\(\"?(\w+)", form)[1]
    one, other = (made(tmp_path, form, *(f"INSERT INTO t({first}) VALUES ({v})" for v in values)) for values in (before, after))
    done = compare(one, other)
    assert done.returncode == 0 and done.stdout.decode() == shown, done


def test_numbers_in_the_head_are_shown(tmp_path):
    form = ["CREATE TABLE t(a)", "PRAGMA application_id=7"]
    done = compare(made(tmp_path, *form), made(tmp_path, *form, "PRAGMA user_version=-3"))
    assert done.stdout == b"user_version\n- 0\n+ -3\n", done
    done = compare(made(tmp_path, *form), made(tmp_path, "CREATE TABLE t(a)"))
    assert done.stdout == b"application_id\n- 7\n+ 0\n", done


def test_large_ones_and_wide_ones(tmp_path):
    """More than a sort has room for in one piece; and more columns than are compared."""
    rows = "CREATE TABLE t(a); WITH r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r LIMIT 30000) INSERT INTO t SELECT i || hex(zeroblob(200)) FROM r"
    done = compare(made(tmp_path, rows), made(tmp_path, rows, "UPDATE t SET a = 'x' || a"))
    assert done.returncode == 0 and b"- ... 29900 more\n" in done.stdout and b"+ ... 29900 more\n" in done.stdout, done.stderr
    wide = made(tmp_path, f"CREATE TABLE t({', '.join(f'a{n}' for n in range(1000))})")
    done = compare(wide, wide)
    assert done.returncode == 1 and done.stderr == b"table 't' of the SQLite database: the table has more than 999 columns\n", done


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
