"""The list of change sets: what waits for a decision is listed, however much was frozen since."""
import json
import sqlite3
import subprocess

import pytest

from carrel import PROGRAM
from daemon import Daemon, Refused
from test_reviews import ship

LATER = 621  # change sets that are frozen after the first one


@pytest.fixture(scope="module")
def server():
    d = Daemon("--listen", "127.0.0.1:0")
    yield d
    d.stop()


def freeze(client, machine, path="/home/user"):
    return client.post(f"/v1/machines/{machine}/changesets", {"path": path})["id"]


def listed(client, **query):
    rows, cursor = [], {}
    while True:
        page = client.get("/v1/changesets", **query, **cursor)
        rows += page["changesets"]
        if "next" not in page:
            return rows
        cursor = {"cursor": page["next"]}


def states(client, **query):
    return [(r["id"], r["state"], r.get("instead")) for r in listed(client, **query)]


def write(client, machine, text):
    assert client.exec(machine, f"echo {text} >/home/user/f")["exec"]["status"] == 0


def ship_all(client, changeset, first="ship"):
    ship(client, changeset, {"ship": "shipped", "undo": "undone"}[first], intent=ship(client, changeset, first))


def test_a_newer_freeze_of_the_same_supersedes_what_waits(server):
    m = server.machine(name="same", steps="manual")
    first = freeze(server, m)
    write(server, m, "new")
    second, other = freeze(server, m), freeze(server, m, "/etc/alternatives")
    assert states(server, machine="same") == [(other, "pending", None), (second, "pending", None)]
    assert states(server, machine=m, state="superseded") == [(first, "superseded", second)]
    ship_all(server, second)
    again = freeze(server, m)
    assert states(server, machine=m) == [(other, "pending", None)], "nobody need decide again about the same content"
    assert (again, "superseded", second) in states(server, machine=m, state="all")
    ship_all(server, second, "undo")
    assert (second, "undone", None) in states(server, machine=m, state="shipped,undone")
    shown = server.get(f"/v1/changesets/{again}")
    assert (shown["state"], shown["instead"]) == ("superseded", second)
    write(server, m, "newer")
    newest = freeze(server, m)
    assert [r[0] for r in states(server, machine=m)] == [newest, other]


def test_a_shipment_of_an_earlier_freeze_decides_about_the_same_content(server):
    m = server.machine(steps="manual")
    first, second = freeze(server, m), freeze(server, m)
    ship_all(server, first)
    assert states(server, machine=m, state="all") == [(second, "superseded", first), (first, "shipped", None)]


def test_owners_list_their_own_change_sets_and_administrators_all(server):
    ann, ben, root = server.tcp(owner="ann"), server.tcp(owner="ben"), server.tcp(owner="ann", scopes=["read", "admin"])
    sets = {who: freeze(who, who.machine(steps="manual")) for who in (ann, ben)}
    assert [r["id"] for r in listed(ann)] == [r["id"] for r in listed(root)] == [sets[ann]]
    assert [r["id"] for r in listed(ben)] == [sets[ben]]
    theirs = listed(ben)[0]["machine"]
    assert listed(ann, machine=theirs) == [] and {sets[ann], sets[ben]} <= {r["id"] for r in listed(root, all=1)}
    with pytest.raises(Refused, match="admin"):
        ann.get("/v1/changesets", all=1)


@pytest.mark.parametrize("query", [{"state": "new"}, {"state": "pending;all"}, {"limit": 0}, {"limit": 1001}, {"cursor": "-1"},
                                   {"cursor": "x"}, {"machine": "no-such-machine"}])
def test_a_query_that_means_nothing_is_refused(server, query):
    with pytest.raises(Refused):
        server.get("/v1/changesets", **query)


def test_what_waits_is_listed_after_hundreds_of_others_restarts_and_lost_rows(server):
    """An earlier daemon wrote no rows, and a crash may lose some: the files and the journal have it all."""
    m = server.machine(name="old", steps="manual")
    oldest, shipped = freeze(server, m), freeze(server, m, "/etc/alternatives")
    ship_all(server, shipped)
    server.delete(f"/v1/machines/{m}")
    home = server.home / "changesets"
    server.kill()
    like = json.loads((home / f"{oldest}.json").read_text())
    letters = "abcdefghijklmnopqrstuvwxyz"
    for n in range(LATER):
        name = "c-" + "a" * 10 + letters[n // 26] + letters[n % 26]
        words = {**like, "machine": "m-bbbbbbbbbbbb", "slice": f"/home/user/{n}", "created_ms": like["created_ms"] + 1000 + n}
        (home / f"{name}.json").write_text(json.dumps(words))
    (home / "c-cccccccccccc.json").write_text("{")
    with sqlite3.connect(server.home / "carrel.db") as db:
        db.execute("DELETE FROM changesets WHERE id IN (?, ?)", (oldest, shipped))
    db.close()
    server.start()
    for _ in range(2):
        assert states(server, machine=m, state="all") == [(shipped, "shipped", None), (oldest, "pending", None)]
        rows = listed(server, limit=250)
        assert [r["slice"] for r in rows[:LATER]] == [f"/home/user/{n}" for n in reversed(range(LATER))]
        assert len({r["id"] for r in rows}) == len(rows) and oldest in [r["id"] for r in rows[LATER:]]
        assert len(server.get("/v1/changesets")["changesets"]) == 100
        server.restart()


def test_the_command_lists_them_on_one_line_each(server):
    def carrel(*words):
        done = subprocess.run([PROGRAM, "ship", *words], env=server.env, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    m = server.machine(name="listed", steps="manual")
    path = "/home/user/a\u202eb\x1b[8m"
    assert server.exec(m, 'mkdir "$P"', env={"P": path})["exec"]["status"] == 0
    first, second = freeze(server, m, path), freeze(server, m, path)
    shown = carrel("--ls", "listed")
    assert len(shown) == 1 and shown[0].split()[:3] == [second, "listed", "pending"] and "\\x1b[8m" in shown[0]
    assert [line.split()[2] for line in carrel("--ls", "--all", m)] == ["pending", "superseded"]
    assert carrel("--ls", "--all", m)[1].endswith(f"  see {second}")
    told = json.loads("".join(carrel("--ls", "--json")))["changesets"]
    assert second in [c["id"] for c in told] and first not in [c["id"] for c in told]


def test_change_sets_without_files_are_dropped(server):
    m = server.machine(steps="manual")
    gone, kept = freeze(server, m), freeze(server, m, "/etc/alternatives")
    server.end()
    for path in (server.home / "changesets").glob(f"{gone}.*"):
        path.unlink()
    server.start()
    assert states(server, machine=m) == [(kept, "pending", None)]
    assert states(server, machine=m, state="dropped") == [(gone, "dropped", None)]
