"""The page Review: files, flags, differences and pictures; ship, undo, and return to the model."""
import json
import sqlite3
import struct
import subprocess
import zlib

import pytest

from browser import need_browser
from console import visit
from worker import carrel, console_command

need_browser()

LINES = [f"line {n}" for n in range(60)]


def png(width, height):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + b"\xff\0\0" * width for _ in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


@pytest.fixture
def page(daemon, browser, tmp_path):
    with console_command(daemon, tmp_path) as link:
        tab = browser.open(link)
        tab.shown("nav")
        yield tab
        tab.done()


@pytest.fixture
def project(tmp_path):
    top = tmp_path / "project"
    top.mkdir()
    (top / "text").write_text("\n".join(LINES) + "\n")
    (top / "old").write_text("old\n")
    return top


@pytest.fixture
def machine(daemon, project, tmp_path):
    m = carrel(daemon, tmp_path, "new", "--name", "work", "--dir", f"{project}:/home/user/project")
    done = daemon.exec(m, "cd /home/user/project && sed -i '3s/.*/first <b>change<\\/b>/; 50s/.*/second change/' text && rm old && "
                          "echo 'all:' > Makefile && echo fine > new")
    assert done["exec"]["status"] == 0
    return m


def file(name, rest=""):
    return f".file[aria-label={json.dumps(name)}]{rest}"


def test_outbox_is_shipped_into_a_directory_of_this_host(page, daemon, tmp_path):
    """No run worked here, so nothing can be returned to a model."""
    machine, to = daemon.machine(name="made"), tmp_path / "results"
    to.mkdir()
    assert daemon.exec(machine, "mkdir -p /outbox/sub && echo result >/outbox/report && echo n >/outbox/sub/n", user="root")["exec"]["status"] == 0
    visit(page, "review", machine)
    page.fill("label:has-text('To the directory') input", str(to))
    page.click(".elsewhere button:text('Freeze and review')")
    page.shown(file("report", " .added:has-text('result')"))
    assert page.count("button:text('Return to the model')") == 0
    page.shown(file("sub", ":has-text('A directory.')"))
    page.click("button:text('Ship 3 of 3 changes')")
    page.shown(f"dialog:has-text('{to}')")
    page.click("dialog button:text('Ship')")
    page.shown(".receipt:has-text('shipped')")
    assert (to / "report").read_text() == "result\n"
    page.click(".receipt button:text('Undo')")
    page.shown(".badge:text-is('undone')")
    said = page.evaluate("document.querySelector('.receipt').textContent")
    assert said == "undone 3 changes", said
    assert not (to / "report").exists()


def test_an_order_that_ends_with_not_found_is_an_error_at_once(page, daemon, machine, project, tmp_path):
    """The daemon says not_found of an order that it forgot in a restart: the page sends that one again."""
    to = tmp_path / "results"
    to.mkdir()
    visit(page, "review", machine)
    page.shown(file("new"))
    page.click("summary:has-text('Ship another directory')")
    page.fill("label:has-text('To the directory') input", str(to))
    page.click(".elsewhere button:text('Freeze and review')")
    page.shown(".problem:has-text('/outbox: No such file or directory')")
    page.click(".elsewhere button:text('Back to what was handed over')")
    page.shown(file("new"))
    project.rename(tmp_path / "moved")
    page.click("button:text('Ship 4 of 4 files')")
    page.click("dialog button:text('Ship')")
    page.shown("dialog .problem:has-text('cannot open directory')")


def test_only_the_directory_that_was_reviewed_is_shipped_to(page, daemon, tmp_path):
    machine, to, other = daemon.machine(name="made"), tmp_path / "results", tmp_path / "other"
    to.mkdir()
    other.mkdir()
    assert daemon.exec(machine, "mkdir -p /outbox && echo result >/outbox/report", user="root")["exec"]["status"] == 0
    visit(page, "review", machine)
    page.fill("label:has-text('To the directory') input", str(to))
    page.click(".elsewhere button:text('Freeze and review')")
    page.click("button:text('Ship 1 of 1 file')")
    page.shown(f"dialog:has-text('{to}')")
    to.rmdir()
    to.symlink_to(other)
    page.click("dialog button:text('Ship')")
    page.shown("dialog .problem:has-text('was reviewed')")
    assert list(other.iterdir()) == []
    to.unlink()
    to.mkdir()
    page.click("dialog button:text('Ship')")
    page.shown(".receipt:has-text('1 file shipped')")
    to.rename(tmp_path / "moved")
    to.symlink_to(tmp_path / "moved")
    page.click(".receipt button:text('Undo')")
    page.reads("was reviewed")
    assert (to / "report").exists()


def test_changes_are_reviewed_shipped_in_part_and_undone(page, daemon, machine, project):
    visit(page, "review")
    page.selectOption("label:has-text('Machine') select", machine)
    page.click("text=Freeze and review")
    page.shown(file("Makefile", ":has-text('a build runs it') .badge:has-text('build file')"))
    page.shown(file("old", " .badge:has-text('deleted')"))
    page.reads("first <b>change</b>")
    page.click(file("text", " .hunk-pick:has-text('hunk 2') input"))
    page.click(file("old", " .bar > input"))
    page.click("button:text('Ship 3 of 4 files')")
    page.shown("dialog .warning:has-text('Makefile')")
    page.click("dialog button:text('Ship')")
    page.shown(".receipt:has-text('3 files shipped')")
    text = (project / "text").read_text().splitlines()
    assert (text[2], text[49]) == ("first <b>change</b>", "line 49")
    assert (project / "old").exists() and (project / "new").read_text() == "fine\n"
    page.click(".receipt button:text('Undo')")
    page.shown(".receipt:has-text('undone')")
    assert (project / "text").read_text().splitlines() == LINES and not (project / "new").exists()
    visit(page, "review")
    page.shown(".row:has-text('work'):has-text('undone')")


def test_a_receipt_names_what_was_refused(page, daemon, machine, project):
    daemon.post(f"/v1/machines/{machine}/steps", {})
    oldest = daemon.get(f"/v1/machines/{machine}/steps")["steps"][-1]["number"]
    daemon.patch(f"/v1/machines/{machine}/steps/{oldest}", {"name": "polished"})
    done = daemon.exec(machine, "cd /home/user/project && touch -d 2020-01-01 new && ln -s /etc/passwd outside && ln -s text inside")
    assert done["exec"]["status"] == 0
    visit(page, "review", machine)
    page.shown(file("outside", ":has-text('link to /etc/passwd') .problem:has-text('Refused')"))
    page.shown(file("inside", ":has-text('link to text')"))
    page.shown(file("new", " .soft:text('step polished')"))
    page.click(file("text", " .hunk-pick:has-text('hunk 2') input"))
    page.key("?")  # a box takes no letters: the keys work
    page.shown("dialog .keys")
    page.key("Escape")
    page.key("j")
    page.until("document.activeElement.matches('.file')")
    page.click(file("text", " .hunk-pick:has-text('hunk 2') input"))
    page.click("button:text('Ship 5 of 6 files')")
    page.click("dialog button:text('Ship')")
    page.shown(".receipt .problem:has-text('Not shipped') li:has-text('outside'):has-text('/etc/passwd')")
    assert "inside" not in page.textContent(".receipt .problem")
    page.shown(".changeset button:not(.primary):text('Ship again')")
    assert (project / "inside").is_symlink() and not (project / "outside").is_symlink()


def test_untrusted_data_is_said_once_of_a_change_set(page, daemon, machine):
    daemon.post(f"/v1/machines/{machine}/grants", {"kind": "env", "what": "WORD", "value": "of a stranger", "untrusted": True})
    visit(page, "review", machine)
    page.shown(file("Makefile", " .badge:has-text('build file')"))
    page.shown(".changeset > .warning:has-text('had read untrusted data (WORD)')")
    assert page.count(".changeset > .warning:has-text('had read untrusted data')") == 1
    assert page.count(".badge:has-text('untrusted')") == 0
    page.click("button:text('Ship 4 of 4 files')")
    page.shown("dialog .warning li:has-text('Makefile')")
    assert page.count("dialog .warning li") == 1


def test_no_line_of_a_difference_disguises_itself(page, daemon, machine, project):
    """Direction marks can order the characters of a line as another program; others hide some."""
    line = "if (x) /*\u202e } \u2066if (admin)\u2069 begin */\tgo\u200b\x1b[8m\rfine"
    assert daemon.exec(machine, f"cd /home/user/project && printf '%s\\n' '{line}' >new")["exec"]["status"] == 0
    visit(page, "review")
    page.selectOption("label:has-text('Machine') select", machine)
    page.click("text=Freeze and review")
    page.shown(file("new", " .diff"))
    text = page.textContent(file("new", " .diff"))
    assert "if (x) /*\\u202e } \\u2066if (admin)\\u2069 begin */\tgo\\u200b\\u001b[8m\\u000dfine" in text
    page.click("text=One column")
    page.shown(file("new", " .diff:not(.sides)"))
    assert "\\u202e } \\u2066if" in page.textContent(file("new", " .diff"))


def test_a_shipment_is_undone_after_a_reload(page, daemon, machine, project):
    """A page that comes back in the middle knows what was frozen, and what was shipped."""
    visit(page, "review", machine)
    page.shown(file("new"))
    page.reload()
    page.shown(file("new"))
    page.click("button:text('Ship 4 of 4 files')")
    page.click("dialog button:text('Ship')")
    page.shown(".receipt:has-text('4 files shipped')")
    page.reload()
    visit(page, "review")
    page.click(".row:has-text('work'):has-text('shipped')")
    page.click(".receipt:has-text('was shipped') button:text('Undo')")
    page.shown(".receipt:has-text('undone')")
    assert (project / "text").read_text().splitlines() == LINES and not (project / "new").exists()


def test_a_review_needs_no_mouse(page, daemon, machine, project):
    visit(page, "review", machine)
    page.shown(file("new"))
    for key in ("j", "x", "j", "x", "u", "u"):  # leaves Makefile and new
        page.key(key)
    page.reads("Ship 2 of 4 files")
    page.key("S")
    page.shown("dialog")
    page.key("Escape")
    page.gone("dialog[open]")
    page.key("k")
    page.key("x")
    page.reads("Ship 3 of 4 files")
    page.key("o")
    page.gone(file("Makefile", " .diff"))
    assert not (project / "new").exists()


def test_pictures_are_shown_and_only_pictures(page, daemon, machine):
    daemon.request("PUT", f"/v1/machines/{machine}/files?path=/home/user/project/a.png", png(31, 17))
    daemon.request("PUT", f"/v1/machines/{machine}/files?path=/home/user/project/b.png", b"<svg onload='alert(1)'>\0")
    visit(page, "review", machine)
    page.click(file("a.png", " button:text('Show the image')"))
    page.until("document.querySelector('.picture')?.naturalWidth === 31")
    page.click(file("b.png", " button:text('Show the image')"))
    page.reads("This file is not a PNG, JPEG, GIF or WebP image.")
    assert page.count(".picture") == 1


def test_commits_are_reviewed_and_shipped_as_a_branch(page, daemon, tmp_path):
    repo = tmp_path / "repo"
    repo.mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.invalid", "-C", repo]
    (repo / "f").write_text("one\n")
    for words in (["init", "-q"], ["add", "f"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True, timeout=60)
    m = carrel(daemon, tmp_path, "new", "--name", "coder", "--repo", repo)
    assert daemon.exec(m, "cd /home/user/repo && echo two >f && git commit -qam 'say two'")["exec"]["status"] == 0
    visit(page, "review", m)
    page.shown(".changeset pre:has-text('say two')")
    page.shown(file("f", " .added:has-text('two')"))
    page.click(".changeset button:text('Ship')")
    page.click("dialog button:text('Ship')")
    page.shown(".receipt:has-text('carrel/coder')")
    told = subprocess.run([*git, "show", "carrel/coder:f"], capture_output=True, text=True, timeout=60)
    assert told.stdout == "two\n"


def test_changes_of_a_database_are_reviewed_and_shipped(page, daemon, tmp_path):
    path = tmp_path / "shop.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE goods (name TEXT)")
    db.execute("INSERT INTO goods VALUES ('old')")
    db.commit()
    db.close()
    m = carrel(daemon, tmp_path, "new", "--name", "keeper", "--db", f"sqlite:{path}")
    at = next(g["at"] for g in daemon.get(f"/v1/machines/{m}/grants")["grants"] if g["kind"] == "sqlite")
    code = f"import sqlite3; d = sqlite3.connect({at!r}); d.execute(\"INSERT INTO goods VALUES ('<b>new</b>')\"); d.commit()"
    assert daemon.exec(m, ["python3", "-c", code])["exec"]["status"] == 0
    visit(page, "review", m)
    page.shown(".changeset .added:has-text('<b>new</b>')")
    page.click(".changeset button:text('Ship')")
    page.click("dialog button:text('Ship')")
    page.shown(".receipt")
    db = sqlite3.connect(path)
    assert sorted(db.execute("SELECT name FROM goods")) == [("<b>new</b>",), ("old",)]
    db.close()


def test_a_machine_that_was_granted_nothing_says_so_in_words(page, box):
    visit(page, "review", box)
    page.shown(".problem:has-text('no directory copy, repository or database') p:has-text('carrel ship MACHINE')")
    assert '{"error"' not in page.textContent("main")


def test_without_the_command_the_page_says_what_is_missing(tab, daemon):
    visit(tab, "review")
    tab.shown(".warning:has-text('carrel console')")


def test_a_review_that_is_longer_than_an_answer_is_read_file_by_file_and_shipped(page, daemon, tmp_path):
    """A control character takes one byte in a file and six in an answer: 2 * 40 * 9 KB are 4.3 MB."""
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    m = carrel(daemon, tmp_path, "new", "--name", "long", *(f"--dir={p}:/home/user/{p.name}" for p in places))
    line = "'" + "\x01" * 997 + "'"
    script = f"for d in one two; do for n in $(seq 10 49); do for i in $(seq 9); do echo $n {line}; done >$d/f$n; done; done"
    assert daemon.exec(m, ["sh", "-c", f"cd /home/user && {script}"])["exec"]["status"] == 0
    visit(page, "review", m)
    page.until("document.querySelectorAll('.file').length === 80")
    last, shows = ":nth-match(.changeset, 2)", " button:text('Show the difference')"
    page.shown(f"{last} .warning:has-text('differences of 40 files')")
    assert page.count(".changeset .warning:has-text('This review is long')") == 1
    page.click(f"{last} {file('f11', shows)}")
    page.shown(f"{last} {file('f11')} .added:has-text('11 \\\\u0001')")
    page.click(f"{last} button:text('Ship 40 of 40 files')")
    page.click("dialog button:text('Ship')")
    page.shown(f"{last} .receipt:has-text('40 files shipped')")
    shipped, = [p for p in places if any(p.iterdir())]
    assert sorted(p.name for p in shipped.glob("f*")) == [f"f{n}" for n in range(10, 50)]
    assert (shipped / "f11").read_bytes() == (b"11 " + b"\x01" * 997 + b"\n") * 9
    told = [json.loads(r) for r in carrel(daemon, tmp_path, "ship", "--json", "long").splitlines()]
    other, = [r for r in told if any("diff" in f for f in r["files"])]
    assert [f["path"] for f in other["files"] if "diff" in f] == [f"f{n}" for n in range(10, 50)], "the command has no such limit"


def test_a_comment_returns_the_work_to_the_model(page, daemon, tmp_path):
    turns = [{"calls": [{"tool": "finish", "arguments": {"status": "blocked", "summary": "I cannot.", "open_issues": ["all"]}}]}]
    run = daemon.post("/v1/runs", {"task": "t", "model": "rehearsal/r", "script": json.dumps({"turns": turns})})
    daemon.until(lambda: daemon.get(f"/v1/runs/{run['id']}")["state"] == "ended")
    daemon.exec(run["machine"], "mkdir -p /outbox && echo x >/outbox/x", user="root")
    visit(page, "review", run["machine"])
    page.click("text=Return to the model")
    page.fill("dialog textarea", "try again")
    page.click("dialog button:text('Send')")
    daemon.until(lambda: "try again" in daemon.request("GET", f"/v1/runs/{run['id']}/transcript", raw=True).decode())


def test_the_list_of_reviews_follows_what_others_do(page, daemon, machine, project):
    """One row per directory, without a reload: frozen, frozen again, returned, shipped elsewhere, and undone."""
    def freeze():
        return daemon.post(f"/v1/machines/{machine}/changesets", {"path": "/home/user/project", "changes_only": True})["id"]

    def decide(changeset, action, **fields):
        return daemon.post(f"/v1/changesets/{changeset}/ship",
                           {"action": action, "target": str(project), "sha256": "0" * 64, "files": 1, **fields})["record"]

    def row(changeset, state):
        return f".row:has-text('{changeset}'):has-text('work'):has-text('{project}'):has-text('{state}')"

    visit(page, "review")
    page.shown("h1:has-text('Review')")
    first = freeze()
    page.shown(row(first, "pending"))
    page.click(row(first, "pending"))
    page.shown(file("new"))
    again = freeze()
    page.reads(f"frozen again: {again} is newer")
    visit(page, "review")
    page.shown(row(again, "pending"))
    assert page.count(f".row:has-text('{project}')") == 1
    decide(again, "shipped", intent=decide(again, "ship"))
    page.shown(row(again, "shipped"))
    freeze()
    freeze()
    assert daemon.exec(machine, "echo more >>/home/user/project/new")["exec"]["status"] == 0
    changed = freeze()
    page.shown(row(changed, "pending"))
    page.shown(row(again, "shipped"))
    assert page.count(f".row:has-text('{project}')") == 2, "equal content that was shipped already needs no decision"
    decide(changed, "shipped", intent=decide(changed, "ship"))
    decide(changed, "undone", intent=decide(changed, "undo"))
    page.shown(row(changed, "undone"))


def test_what_waits_stays_in_the_list_when_its_machine_is_deleted(tab, daemon, box):
    frozen = daemon.post(f"/v1/machines/{box}/changesets", {"path": "/home/user"})["id"]
    tab.evaluate("location.hash = '#/review'")
    tab.shown(f".row.opens:has-text('{frozen}'):has-text('pending')")
    daemon.delete(f"/v1/machines/{box}")
    tab.reload()
    tab.shown(f".row.opens:has-text('{frozen}'):has-text('pending')")
