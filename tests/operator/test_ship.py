"""carrel ship: what a machine made is frozen, looked at, and let out by its owner."""
import hashlib
import json
import os
import pathlib
import re
import shlex
import socket
import subprocess

import pytest

import pages
from carrel import PROGRAM, ROOTLESS, TOP
from daemon import Refused
from runs import Runs, call, finish, run, turns
from test_events import past


@pytest.fixture
def project(tmp_path):
    """A directory of the owner's, older than every machine."""
    top = tmp_path / "project"
    (top / "src").mkdir(parents=True)
    (top / "src/a.c").write_text("one\ntwo\nthree\n")
    (top / "keep").write_text("kept\n")
    (top / "old").write_text("old\n")
    return top


@pytest.fixture
def carrel(daemon):
    def ran(*words, **kw):
        return subprocess.run([PROGRAM, *map(str, words)], env=daemon.env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60, **kw)
    return ran


@pytest.fixture
def machine(carrel, project):
    done = carrel("new", "--name", "work", "--dir", f"{project}:/home/user/project:cow")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


CHANGES = """
cd /home/user/project
printf 'one\\n2\\nthree\\n' > src/a.c
mkdir -p new/deep && echo hi > new/deep/f
echo '#!/bin/sh' > run.sh; chmod 4755 run.sh
rm old
ln -s src/a.c link
ln -s /etc/passwd out
ln -s ../../x up
mkdir -p .github/workflows && echo 'on: push' > .github/workflows/x.yml
"""


def tree(top):
    return {str(p.relative_to(top)): os.readlink(p) if p.is_symlink() else p.read_text()
            for p in sorted(top.rglob("*")) if not p.is_dir() and ".carrel-ship" not in str(p)}


def ship(carrel, *words):
    done = carrel("ship", *words)
    assert done.returncode in (0, 1), done.stderr
    return done


def test_nothing_leaves_before_it_is_shown_and_let_out(carrel, daemon, machine, project):
    before = tree(project)
    assert daemon.exec(machine, CHANGES)["exec"]["status"] == 0
    shown = ship(carrel, "work:/home/user/project", project)
    assert tree(project) == before and shown.returncode == 1
    assert "M  src/a.c" in shown.stdout and "-two\n+2\n" in shown.stdout and "A  new/deep/f" in shown.stdout
    assert re.search(r"A  run.sh .*\[executable, setuid, stripped\]", shown.stdout)
    assert re.search(r"A  .github/workflows/x.yml .*\[CI\]", shown.stdout)
    assert re.search(r"!  out -> /etc/passwd  \[leads out of the tree\]  refused: the link leads out of the tree", shown.stdout)
    assert "!  up -> ../../x" in shown.stdout and "keep" not in shown.stdout
    # What is shipped is what was frozen, whatever the machine did since.
    changeset = re.search(r"carrel ship -y (c-\w+)", shown.stdout)[1]
    daemon.exec(machine, "echo later > /home/user/project/src/a.c")
    done = ship(carrel, "-y", "--stat", changeset, project)
    assert (project / "src/a.c").read_text() == "one\n2\nthree\n" and (project / "new/deep/f").read_text() == "hi\n"
    assert os.readlink(project / "link") == "src/a.c" and not (project / "out").is_symlink()
    assert (project / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert not (project / "old").exists() and "D  old" in shown.stdout
    # The receipt, and the journal.
    receipt = json.loads((project / f".carrel-ship-{changeset}/receipt.json").read_text())
    lines = "".join(f"{f['change']} {f['sha256']} {f['path']}\n" for f in receipt["files"])
    assert receipt["files_sha256"] == hashlib.sha256(lines.encode()).hexdigest()
    records = [json.loads(x) for x in daemon.request("GET", "/v1/audit", raw=True, verb="review").decode().splitlines()]
    (intent,) = [r for r in records if r["seq"] == receipt["journal_record"]]
    assert intent["verb"] == "review.ship" and intent["detail"]["files_sha256"] == receipt["files_sha256"]
    assert intent["seq"] in [r.get("intent") for r in records] and f"journal record {intent['seq']}" in done.stdout
    assert carrel("audit", "verify").returncode == 0
    # And back.
    undone = ship(carrel, "--undo", changeset, project)
    assert undone.returncode == 0 and tree(project) == before
    assert carrel("ship", "--undo", changeset, project).returncode == 125


def test_git_add_stages_only_shipped_files(carrel, daemon, machine, project):
    def git(*words):
        return subprocess.run(["git", "-C", project, *words], capture_output=True, text=True, check=True).stdout.split()
    git("init", "-q")
    git("add", "-A")
    changed = "cd /home/user/project && echo new >>src/a.c && echo added >added"
    assert daemon.exec(machine, changed)["exec"]["status"] == 0
    done = ship(carrel, "-y", "--stat", "work:/home/user/project", project)
    assert list(project.glob(".carrel-ship-c-*/receipt.json")), done
    assert sorted(git("ls-files", "--others", "--exclude-standard")) == ["added"]
    git("add", "-A")
    assert sorted(git("ls-files", "--cached")) == ["added", "keep", "old", "src/a.c"]


def test_what_the_owner_changed_meanwhile_is_refused(carrel, daemon, machine, project):
    daemon.exec(machine, CHANGES)
    (project / "src/a.c").write_text("mine\n")
    done = ship(carrel, "-y", "--stat", "work:/home/user/project", project)
    assert done.returncode == 1 and "!  src/a.c" in done.stdout and "changed on your side" in done.stdout
    assert (project / "src/a.c").read_text() == "mine\n" and (project / "run.sh").exists()


def test_only_some_and_removals(carrel, daemon, machine, project):
    daemon.exec(machine, CHANGES)
    ship(carrel, "-y", "--stat", "--only", "new", "work:/home/user/project", project)
    assert "new/deep/f" in tree(project) and "run.sh" not in tree(project)
    assert (project / "old").exists()
    done = ship(carrel, "-y", "--stat", "--only", "old", "work:/home/user/project", project)
    assert not (project / "old").exists() and "D  old" in done.stdout
    changeset = re.search(r"--undo (c-\w+)", done.stdout)[1]
    ship(carrel, "--undo", changeset, project)
    assert (project / "old").read_text() == "old\n"


def test_a_path_that_nothing_has_is_a_mistake(carrel, daemon, machine, project):
    before = tree(project)
    daemon.exec(machine, CHANGES)
    done = carrel("ship", "-y", "--only", "src", "--only", "no/such", "work:/home/user/project", project)
    assert done.returncode == 125 and "no/such" in done.stderr and tree(project) == before, done
    # One that is there and did not change is none.
    assert ship(carrel, "--only", "keep", "work:/home/user/project", project).returncode in (0, 1)


def test_pipes_and_sockets_are_refused_and_the_rest_is_reviewed(carrel, daemon, project):
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(str(project / "socket"))
    done = carrel("new", "--name", "work", "--dir", f"{project}:/home/user/project:cow")
    assert done.returncode == 0, done.stderr
    daemon.exec("work", "echo new >/home/user/project/keep")
    # The owner's own are nothing that the machine did. They are listed if the whole directory is frozen.
    for words, own in (((), []), (("--mirror",), [["!", "pipe"], ["!", "socket"]])):
        seen = carrel("ship", *words, "work:/home/user/project", project)
        assert seen.returncode == 0, seen
        assert [line.split()[:2] for line in seen.stdout.splitlines() if line[:2] in ("! ", "M ", "A ", "D ")] == [
            ["M", "keep"], *own], seen.stdout
    daemon.exec("work", "mkfifo /home/user/project/made")
    done = ship(carrel, "-y", "work:/home/user/project", project)
    assert done.returncode == 1 and re.search(r"^!  made  .*refused: the entry is not a file, directory or symbolic link", done.stdout, re.M), done.stdout
    assert (project / "keep").read_text() == "new\n" and (project / "pipe").is_fifo() and not (project / "made").exists()


def test_undo_leaves_alone_what_was_changed_since(carrel, daemon, machine, project):
    daemon.exec(machine, CHANGES)
    done = ship(carrel, "-y", "--stat", "work:/home/user/project", project)
    (project / "run.sh").write_text("mine now\n")
    changeset = re.search(r"--undo (c-\w+)", done.stdout)[1]
    undone = ship(carrel, "--undo", changeset, project)
    assert undone.returncode == 1 and "1 changed since then and kept" in undone.stdout
    assert (project / "run.sh").read_text() == "mine now\n" and (project / "src/a.c").read_text() == "one\ntwo\nthree\n"


def test_the_outbox(carrel, daemon, tmp_path):
    m = daemon.machine(name="box")
    daemon.exec(m, "mkdir /outbox && echo report > /outbox/report.txt", user="root")
    target = tmp_path / "here"
    target.mkdir()
    done = ship(carrel, "-y", "--json", "box", target)
    view = json.loads(done.stdout)
    assert view["shipped"] == 1 and (target / "report.txt").read_text() == "report\n"


@pytest.mark.parametrize("guarded", [True, False], ids=["target", "control"])
def test_a_machine_does_not_lead_a_shipment_elsewhere(carrel, daemon, tmp_path, guarded):
    """The machine replaces the directory that was reviewed by a link. --target tells them apart, also in an undo."""
    work, other = tmp_path / "work", tmp_path / "other"
    (work / "results").mkdir(parents=True)
    other.mkdir()
    for path in (work, work / "results"):
        path.chmod(0o777)
    done = carrel("new", "--unreviewed", "--name", "evil", "--dir", f"{work}:/home/user/work:rw")
    assert done.returncode == 0, done.stderr
    evil = done.stdout.strip()
    assert daemon.exec(evil, "cd /home/user && mkdir ob && echo key >ob/authorized_keys")["exec"]["status"] == 0
    review = json.loads(ship(carrel, "--json", "evil:/home/user/ob", work / "results").stdout)
    assert review["target"] == str(work / "results")
    assert daemon.exec(evil, f"cd /home/user/work && rmdir results && ln -s {other} results")["exec"]["status"] == 0
    words = [*(["--target", review["target"]] if guarded else []), review["changeset"], work / "results"]
    for how in (["-y"], ["--undo"]):
        done = carrel("ship", *how, *words)
        if guarded:
            assert done.returncode == 125 and f"'{work}/results' was reviewed" in done.stderr and str(other) in done.stderr
        else:
            assert done.returncode == 0, done.stderr
        assert (other / "authorized_keys").exists() == (how == ["-y"] and not guarded)
    if guarded:
        (work / "results").unlink()
        (work / "results").mkdir()
        assert ship(carrel, "-y", *words).returncode == 0
        assert (work / "results/authorized_keys").read_text() == "key\n"


def test_a_link_on_the_owners_side_leads_nowhere(carrel, daemon, machine, project, tmp_path):
    """The machine writes below a name that is a link here: the other end is not touched."""
    other = tmp_path / "other"
    other.mkdir()
    (project / "new").symlink_to(other)
    daemon.exec(machine, "mkdir -p /home/user/project/new2; rm -f /home/user/project/new; mkdir -p /home/user/project/new && "
                         "echo evil > /home/user/project/new/f")
    done = ship(carrel, "-y", "--stat", "work:/home/user/project", project)
    assert "a parent of this path is a symbolic link" in done.stdout or "another type of file" in done.stdout
    assert list(other.iterdir()) == []


def test_secrets_are_pointed_at_and_names_cannot_repaint(carrel, daemon, machine, project):
    daemon.exec(machine, "cd /home/user/project; printf 'k = AKIA%s\\n' ABCDEFGHIJKLMNOP > conf; touch \"$(printf 'a\\033[2Jb')\"")
    done = ship(carrel, "work:/home/user/project", project)
    assert re.search(r"A  conf .*\[secret\?\]", done.stdout) and "\x1b" not in done.stdout


def test_only_the_owner_lets_something_out(daemon, machine):
    changeset = daemon.post(f"/v1/machines/{machine}/changesets", {"path": "/home/user"})["id"]
    agent = daemon.tcp(scopes=["read", "run"])
    body = {"action": "ship", "target": "/", "files": 1, "sha256": "0" * 64}
    with pytest.raises(Refused) as e:
        agent.post(f"/v1/changesets/{changeset}/ship", body)
    assert e.value.code == "denied"
    stranger = daemon.tcp(owner="stranger", scopes=["read", "run"])
    with pytest.raises(Refused) as e:
        stranger.get(f"/v1/changesets/{changeset}")
    assert e.value.code == "not_found"


@pytest.mark.parametrize("words,message", [((), "no machine given"), (("work:/x",), "requires a DIRECTORY to ship to"), (("nowhere", "/tmp"), "nowhere"),
                                           (("work", "/nowhere"), "/nowhere"), (("work:/nowhere", "/tmp"), "/nowhere"),
                                           (("c-aaaaaaaaaaaa", "/tmp"), "change set 'c-aaaaaaaaaaaa' does not exist")])
def test_words_that_make_no_sense(carrel, machine, words, message):
    done = carrel("ship", *words)
    assert done.returncode == 125 and message in done.stderr


def test_no_word_after_two_dashes_is_an_option(carrel, daemon, machine, project):
    daemon.exec(machine, CHANGES)
    for words in (["ship", "--", "work", "--yes"], ["diff", "--", "work", "--json"], ["steps", "--", "work", "--json"],
                  ["do", "--", "work", "x", "--json"]):
        done = carrel(*words)
        assert done.returncode == 125 and done.stdout == "", done.args
    assert not (project / "new").exists()
    assert carrel("ship", "--yes", "--", "work").returncode == 1 and (project / "new").exists(), "the control"


@pytest.mark.skipif(ROOTLESS, reason="only root can write for others")
def test_what_root_ships_belongs_to_the_owner_of_the_directory(carrel, daemon, machine, project):
    os.chown(project, 12345, 12345)
    daemon.exec(machine, CHANGES)
    ship(carrel, "-y", "--stat", "work:/home/user/project", project)
    assert (project / "run.sh").stat().st_uid == 12345 and (project / "new/deep").stat().st_uid == 12345


def test_the_page_works(carrel, daemon, machine, project, tmp_path):
    """docs/reference/review.md, line by line."""
    daemon.exec(machine, CHANGES)
    daemon.exec(machine, "mkdir /outbox && echo x > /outbox/x", user="root")
    Runs(daemon).play(turns([finish("partial")], [finish("partial")]), machine=machine)
    changeset, ran, kept = None, 0, tmp_path / "receipt.json"
    for line in "".join(b.text for b in pages.blocks(TOP / "docs/reference/review.md", "sh")).splitlines():
        words = [w.replace("PROJECT", str(project)).replace("CHANGESET", changeset or "") for w in shlex.split(line, comments=True)]
        words = [str(kept) if w == "RECEIPT" else w for w in words]
        done = carrel(*words[1:])
        if "--pick" in words:  # asks on a terminal: see tests/agent
            assert "--pick requires a terminal" in done.stderr
            continue
        assert done.returncode in (0, 1), (words, done.stderr)
        changeset = (re.findall(r"c-[a-z0-9]{12}", done.stdout) or [changeset])[0]
        for receipt in project.glob(".carrel-ship-*/receipt.json"):  # it goes when all is taken back
            kept.write_text(receipt.read_text())
        ran += 1
    assert ran >= 5 and pathlib.Path(project, "run.sh").exists() is False


# ---- parts, and what was cut short ----

def changed(daemon, machine, script):
    assert daemon.exec(machine, script)["exec"]["status"] == 0


def frozen(carrel, project, *words):
    return re.search(r"c-[a-z2-7]{12}", ship(carrel, *words, "work:/home/user/project", project).stdout)[0]


def test_some_hunks_of_a_file(carrel, daemon, machine, project):
    os.utime(project / "keep")
    lines = [f"line {i}" for i in range(60)]
    (project / "long").write_text("\n".join(lines) + "\n")
    daemon.delete(f"/v1/machines/{machine}")
    again = carrel("new", "--name", "work", "--dir", f"{project}:/home/user/project:cow").stdout.strip()
    changed(daemon, again, "cd /home/user/project; sed -i 's/line 5$/five/; s/line 30$/thirty/; s/line 55$/last/' long; echo x > other")
    shown = ship(carrel, "work:/home/user/project", project).stdout
    assert [f"hunk {i}\n" in shown for i in (1, 2, 3, 4)] == [True, True, True, False]
    changeset = re.search(r"c-[a-z2-7]{12}", shown)[0]
    assert "'x' is not a list of hunks" in carrel("ship", "--hunk", "long:x", changeset, project).stderr
    assert "hunk 4 does not exist: the last hunk of the file is 3" in carrel("ship", "--hunk", "long:4", changeset, project).stderr
    assert "is not a changed text file of up to 1 MiB" in carrel("ship", "--hunk", "other:1", changeset, project).stderr
    assert ship(carrel, "-y", "--hunk", "long:1,3", changeset, project).returncode == 0
    now = (project / "long").read_text().splitlines()
    assert (now[5], now[30], now[55]) == ("five", "line 30", "last") and not (project / "other").exists()
    ship(carrel, "--undo", changeset, project)
    assert (project / "long").read_text().splitlines() == lines


def test_a_change_set_may_go_out_in_parts_and_come_back_whole(carrel, daemon, machine, project):
    before = tree(project)
    changed(daemon, machine, "cd /home/user/project; echo a > a; echo b > b; echo 2 > keep")
    changeset = frozen(carrel, project)
    ship(carrel, "-y", "--only", "a", changeset, project)
    first = (project / f".carrel-ship-{changeset}/receipt.json").read_text()
    ship(carrel, "-y", changeset, project)
    receipts = sorted((project / f".carrel-ship-{changeset}").glob("receipt*.json"))
    assert len(receipts) == 2 and (project / f".carrel-ship-{changeset}/receipt.json").read_text() == first
    verified = carrel("audit", "verify", *receipts)
    assert verified.returncode == 0 and verified.stdout.count("valid") == 3, verified
    assert ship(carrel, "--undo", changeset, project).returncode == 0
    assert tree(project) == before and not (project / f".carrel-ship-{changeset}").exists(), "nothing is left behind"


def test_what_was_cut_short_is_finished_from_its_receipt(carrel, daemon, machine, project):
    """As after a kill between two renames: one file is back in the stage, the receipt is there."""
    changed(daemon, machine, "cd /home/user/project; echo a > a; echo b > b; rm old")
    changeset = frozen(carrel, project)
    ship(carrel, "-y", "--mirror", changeset, project)
    stage = project / f".carrel-ship-{changeset}"
    receipt = (stage / "receipt.json").read_text()
    row = next(f for f in json.loads(receipt)["files"] if f["path"] == "b")
    record = json.loads(receipt)["journal_record"]
    (project / "b").rename(stage / f"{record}.{row['n']}.new")
    (stage / "receipt.json.done").unlink()
    done = ship(carrel, "-y", "--mirror", changeset, project)
    assert done.returncode == 0 and " files of an interrupted shipment are now in place" in done.stdout, done
    assert (project / "b").read_text() == "b\n" and not (project / "old").exists()
    assert (stage / "receipt.json").read_text() == receipt and (stage / "receipt.json.done").exists()
    assert not list(stage.glob("receipt-*")), "it is not shipped twice"
    assert ship(carrel, "--undo", changeset, project).returncode == 0 and (project / "old").read_text() == "old\n"


def test_what_its_owner_did_after_a_cut_stays(carrel, daemon, machine, project):
    """As after a kill right behind the receipt; then he makes a file of that name, and saves another anew."""
    changed(daemon, machine, "cd /home/user/project; echo a > a; echo b > b; echo 2 > keep; rm old")
    changeset = frozen(carrel, project)
    ship(carrel, "-y", changeset, project)
    stage = project / f".carrel-ship-{changeset}"
    receipt = json.loads((stage / "receipt.json").read_text())
    parts = {f["path"]: stage / f"{receipt['journal_record']}.{f['n']}" for f in receipt["files"]}
    for name in ("b", "keep"):
        (project / name).rename(f"{parts[name]}.new")
    (stage / "receipt.json.done").unlink()
    for name in ("b", "keep", "old"):
        (project / name).write_text("mine\n")
    done = ship(carrel, "-y", changeset, project)
    assert done.returncode == 1 and "1 file of an interrupted shipment is now in place" in done.stdout, done
    for name in ("b", "keep", "old"):
        assert (project / name).read_text() == "mine\n" and f"'{name}' changed after the review: your file is kept" in done.stderr
    assert f"the machine's file is kept as {parts['b']}.new" in done.stderr and pathlib.Path(f"{parts['b']}.new").read_text() == "b\n"
    assert pathlib.Path(f"{parts['keep']}.old").read_text() == "kept\n"
    undone = ship(carrel, "--undo", changeset, project)
    assert "1 undone, 3 changed since then and kept" in undone.stdout and not (project / "a").exists()


def test_a_kill_at_every_rename_and_a_second_run(carrel, daemon, machine, project, tmp_path):
    """The command line is killed at its n-th rename; the second run leaves the same tree, one receipt, one announcement."""
    changed(daemon, machine, "cd /home/user/project; echo a > a; echo b > b; echo 2 > keep; rm old")
    for n in range(1, 6):
        changeset = frozen(carrel, project, "--mirror")
        trace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat,renameat2,rename",
                 "-e", f"inject=renameat,renameat2,rename:signal=KILL:when={n}"]
        if subprocess.run(["strace", "-V"], capture_output=True).returncode:
            pytest.skip("there is no strace")
        subprocess.run([*trace, PROGRAM, "ship", "-y", "--mirror", changeset, project], env=daemon.env, capture_output=True, timeout=60)
        assert ship(carrel, "-y", "--mirror", changeset, project).returncode == 0
        assert tree(project) == {"a": "a\n", "b": "b\n", "keep": "2\n", "src/a.c": "one\ntwo\nthree\n"}, n
        verified = carrel("audit", "verify", *(project / f".carrel-ship-{changeset}").glob("receipt*.json"))
        assert verified.returncode == 0, verified
        assert ship(carrel, "--undo", changeset, project).returncode == 0
        assert (project / "old").read_text() == "old\n" and not (project / "a").exists(), n


def test_of_what_both_sides_changed_both_versions_stay(carrel, daemon, machine, project):
    changed(daemon, machine, "cd /home/user/project; echo theirs > keep; echo new > new")
    (project / "keep").write_text("mine\n")
    done = ship(carrel, "-y", "work:/home/user/project", project)
    aside = pathlib.Path(re.search(r"the machine's keep is kept as (\S+)", done.stdout)[1])
    assert done.returncode == 1 and (project / "keep").read_text() == "mine\n" and aside.read_text() == "theirs\n"
    assert (project / "new").read_text() == "new\n"


def test_what_others_may_not_read_they_may_not_read_afterwards(carrel, daemon, project):
    (project / "keep").chmod(0o600)
    machine = carrel("new", "--name", "work", "--dir", f"{project}:/home/user/project").stdout.strip()
    changed(daemon, machine, "cd /home/user/project; echo 2 > keep; echo 3 > new; chmod 755 keep; chmod 600 new")
    assert ship(carrel, "-y", "work").returncode == 0
    assert [(project / name).stat().st_mode & 0o777 for name in ("keep", "new")] == [0o700, 0o644]


def test_what_was_lent_knows_its_way_home(carrel, daemon, machine, project):
    changed(daemon, machine, "echo a > /home/user/project/a")
    shown = ship(carrel, "work")
    assert shown.returncode == 0 and "A  a" in shown.stdout and f" {project}\n" in shown.stdout, shown
    changeset = re.search(r"c-[a-z2-7]{12}", shown.stdout)[0]
    assert "shipped" in ship(carrel, "-y", changeset).stdout and (project / "a").read_text() == "a\n"
    assert ship(carrel, "--undo", changeset).returncode == 0 and not (project / "a").exists()
    daemon.machine(name="poor")
    assert "has no directory copy, repository or database that was granted" in carrel("ship", "poor").stderr
    assert "requires a DIRECTORY to ship to" in carrel("ship", "work:/home/user/project").stderr


def test_a_receipt_that_was_changed_does_not_hold(carrel, daemon, machine, project):
    changed(daemon, machine, "echo a > /home/user/project/a")
    changeset = frozen(carrel, project, "-y")
    path = project / f".carrel-ship-{changeset}/receipt.json"
    good = json.loads(path.read_text())
    assert good["files"][0]["step"] >= 1, "where it came from"
    for change, words in [({"journal_record": 1}, "not valid: the journal has no record with its number"), ({"archive_sha256": "0" * 64}, "not valid: it differs from its record in the journal"),
                          ({"files": [{**good["files"][0], "path": "b"}]}, "not valid: its list of files does not match its hash")]:
        path.write_text(json.dumps({**good, **change}))
        done = carrel("audit", "verify", path)
        assert done.returncode == 1 and words in done.stdout, done
    path.write_text("{}")
    assert carrel("audit", "verify", path).returncode == 125


# ---- what the owner's side was ----

def test_diff_freezes_everything_that_comes_back(carrel, daemon, machine, project):
    """carrel diff M, then carrel ship ID: those bytes, whatever the machine did since."""
    changed(daemon, machine, "echo new > /home/user/project/new; echo own > /home/user/own")
    daemon.exec(machine, "mkdir /outbox && echo report > /outbox/report.txt", user="root")
    shown = carrel("diff", "work")
    assert shown.returncode == 0 and "A /home/user/own" in shown.stdout, shown
    assert f"/home/user/project, granted from {project}:\nA  new" in shown.stdout
    assert "/outbox:\nA  report.txt" in shown.stdout and " DIRECTORY\n" in shown.stdout
    lent, out = re.findall(r"carrel ship -y (c-[a-z2-7]{12})", shown.stdout)
    changed(daemon, machine, "echo later > /home/user/project/new; echo later > /outbox/report.txt || true")
    assert ship(carrel, "-y", lent).returncode == 0 and (project / "new").read_text() == "new\n"
    assert ship(carrel, "-y", out, project).returncode == 0 and (project / "report.txt").read_text() == "report\n"
    told = json.loads(carrel("diff", "work", "--json").stdout)
    assert [s["slice"] for s in told["changesets"]] == ["/home/user/project", "/outbox"] and told["added"] > 0
    assert [(f["path"], f["change"]) for f in told["changesets"][0]["files"]] == [("new", "M")]


def test_what_was_shipped_or_taken_back_is_no_change_of_the_owners(carrel, daemon, machine, project):
    """Ship, work on, ship again; undo, ship again: and an edit of the owner's in between is seen."""
    for text in ("1", "2", "3"):
        changed(daemon, machine, f"echo {text} > /home/user/project/keep")
        assert ship(carrel, "-y", "work").returncode == 0 and (project / "keep").read_text() == f"{text}\n"
    changed(daemon, machine, "echo 4 > /home/user/project/keep; rm /home/user/project/old")
    changeset = frozen(carrel, project)
    assert ship(carrel, "-y", changeset).returncode == 0 and not (project / "old").exists()
    assert ship(carrel, "--undo", changeset).returncode == 0
    assert (project / "keep").read_text() == "3\n" and (project / "old").read_text() == "old\n"
    assert ship(carrel, "-y", changeset).returncode == 0 and (project / "keep").read_text() == "4\n"
    (project / "keep").write_text("mine\n")
    changed(daemon, machine, "echo 5 > /home/user/project/keep")
    done = ship(carrel, "-y", "work")
    assert done.returncode == 1 and "changed on your side" in done.stdout and (project / "keep").read_text() == "mine\n"


def test_the_owners_change_is_seen_whatever_its_times_say(carrel, daemon, project):
    """Same size and times as before, back-dated: by inode and change time it is another file."""
    then = (project / "keep").stat()
    assert carrel("new", "--name", "work", "--dir", f"{project}:/home/user/project").returncode == 0
    changed(daemon, "work", "cd /home/user/project; echo them > keep; echo x > src/a.c")
    (project / "keep2").write_text("mine\n")
    os.utime(project / "keep2", ns=(then.st_atime_ns, then.st_mtime_ns))
    (project / "keep2").rename(project / "keep")
    (project / "src/a.c").unlink()
    done = ship(carrel, "-y", "work")
    assert done.returncode == 1 and "!  keep" in done.stdout and "!  src/a.c" in done.stdout and "you deleted the file since the machine got it" in done.stdout
    assert (project / "keep").read_text() == "mine\n" and not (project / "src/a.c").exists()
    assert len(re.findall(r"the machine's \S+ is kept as", done.stdout)) == 2


def test_what_the_machine_removed_goes_and_what_the_owner_made_stays(carrel, daemon, machine, project):
    changed(daemon, machine, "cd /home/user/project; rm keep old")
    (project / "mine").write_text("mine\n")
    (project / "old").write_text("changed\n")
    done = ship(carrel, "-y", "work")
    assert done.returncode == 1 and "D  keep" in done.stdout and "!  old" in done.stdout and "mine" not in done.stdout
    assert not (project / "keep").exists() and tree(project) == {"mine": "mine\n", "old": "changed\n", "src/a.c": "one\ntwo\nthree\n"}


def test_a_file_with_another_name_is_one_thing(carrel, daemon, machine, project):
    changed(daemon, machine, "cd /home/user/project; mkdir d; mv keep d/kept; echo x > x")
    done = ship(carrel, "-y", "--only", "d/kept", "work:/home/user/project", project)
    assert "A  d/kept  5B  was keep" in done.stdout and "D  keep  is now d/kept" in done.stdout, done
    assert (project / "d/kept").read_text() == "kept\n" and not (project / "keep").exists() and not (project / "x").exists()


def test_another_directory_is_not_measured_by_what_was_lent(carrel, daemon, machine, project, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "theirs").write_text("stays\n")
    changed(daemon, machine, "echo new > /home/user/project/new")
    done = ship(carrel, "-y", "work:/home/user/project", other)
    assert done.returncode == 0 and tree(other).keys() == {"theirs", "new", "keep", "old", "src/a.c"}


def test_a_change_set_knows_what_was_lent_when_its_machine_is_gone(carrel, daemon, machine, project):
    changed(daemon, machine, "echo new > /home/user/project/new; echo 2 > /home/user/project/keep")
    changeset = frozen(carrel, project)
    (project / "keep").write_text("mine\n")
    daemon.delete(f"/v1/machines/{machine}")
    assert not (daemon.home / "baselines" / machine).exists()
    done = ship(carrel, "-y", changeset)  # it knows where to, too
    assert done.returncode == 1 and (project / "keep").read_text() == "mine\n" and (project / "new").exists()


def test_what_the_image_brought_is_not_shipped(carrel, daemon, tmp_path):
    """Of a home that was not lent. A file of the image that the machine changed, the control, is."""
    daemon.machine(name="plain")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".profile").write_text("mine\n")
    daemon.exec("plain", "echo made > /home/user/made")
    done = ship(carrel, "-y", "--mirror", "plain:/home/user", home)
    assert done.returncode == 0 and tree(home) == {".profile": "mine\n", "made": "made\n"}, done
    assert ".profile" not in done.stdout
    (home / ".profile").unlink()
    assert ship(carrel, "-y", "plain:/home/user", home).returncode == 0 and tree(home) == {"made": "made\n"}
    daemon.exec("plain", "cd /home/user; tr a-z A-Z <.profile >/tmp/p; cat /tmp/p >.profile")  # of the same size
    done = ship(carrel, "-y", "plain:/home/user", home)
    assert re.search(r"^A  .profile", done.stdout, re.M) and ".BASHRC" in tree(home)[".profile"], done


# ---- returned ----

def test_work_is_returned_with_a_comment(carrel, daemon, machine, project):
    runs = Runs(daemon)
    view, _ = runs.play(turns([run("echo good > a")], [finish("partial")], [run("echo better > a")], [finish("partial", summary="Better.")]),
                        machine=machine)
    assert view["report"]["summary"] == "Not all is done."
    frozen = daemon.post(f"/v1/machines/{machine}/changesets", {"path": "/home/user"})["id"]
    done = carrel("ship", "work", "--return", "Please call it better.")
    assert done.returncode == 0 and f"run {view['id']} continues" in done.stdout, done
    view = runs.wait(view["id"], "ended")
    assert view["id"] in [e[2]["detail"]["run"] for e in past(daemon, after=0, type="changeset.returned")]
    assert daemon.get(f"/v1/changesets/{frozen}")["state"] == "returned" and frozen in carrel("ship", "--ls", "work").stdout
    assert view["report"]["summary"] == "Better." and daemon.exec(machine, "cat a")["stdout"] == "better\n"
    events = runs.transcript(view["id"])
    assert [e["event"] for e in events].count("end") == 2
    assert [e["text"] for e in events if e["event"] == "return"] == [
        "Your work was reviewed and returned with this comment:\nPlease call it better."]
    other = daemon.machine(name="idle")
    assert "no run has worked" in carrel("ship", "idle", "--return", "x").stderr and other


def test_only_what_has_ended_can_be_returned(carrel, daemon, machine):
    runs = Runs(daemon)
    r = runs.start(turns([call("ask", question="?")], [finish("partial")]), machine=machine)["id"]
    runs.wait(r, "waiting")
    assert "still running" in carrel("ship", "work", "--return", "x").stderr
