"""carrel ship: what a machine made is frozen, looked at, and let out by its owner."""
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess

import pytest

from carrel import PROGRAM, ROOTLESS, TOP
from daemon import Refused


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
    assert re.search(r"!  out -> /etc/passwd  \[leads out of the tree\]  refused: it leads out of the tree", shown.stdout)
    assert "!  up -> ../../x" in shown.stdout and "keep" not in shown.stdout
    # What is shipped is what was frozen, whatever the machine did since.
    changeset = re.search(r"carrel ship -y (c-\w+)", shown.stdout)[1]
    daemon.exec(machine, "echo later > /home/user/project/src/a.c")
    done = ship(carrel, "-y", "--stat", changeset, project)
    assert (project / "src/a.c").read_text() == "one\n2\nthree\n" and (project / "new/deep/f").read_text() == "hi\n"
    assert os.readlink(project / "link") == "src/a.c" and not (project / "out").is_symlink()
    assert (project / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert (project / "old").exists(), "nothing is removed unless it is asked for"
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
    done = ship(carrel, "-y", "--stat", "--mirror", "--only", "old", "work:/home/user/project", project)
    assert not (project / "old").exists() and "D  old" in done.stdout
    changeset = re.search(r"--undo (c-\w+)", done.stdout)[1]
    ship(carrel, "--undo", changeset, project)
    assert (project / "old").read_text() == "old\n"


def test_undo_leaves_alone_what_was_changed_since(carrel, daemon, machine, project):
    daemon.exec(machine, CHANGES)
    done = ship(carrel, "-y", "--stat", "work:/home/user/project", project)
    (project / "run.sh").write_text("mine now\n")
    changeset = re.search(r"--undo (c-\w+)", done.stdout)[1]
    undone = ship(carrel, "--undo", changeset, project)
    assert undone.returncode == 1 and "1 changed since and left alone" in undone.stdout
    assert (project / "run.sh").read_text() == "mine now\n" and (project / "src/a.c").read_text() == "one\ntwo\nthree\n"


def test_the_outbox(carrel, daemon, tmp_path):
    m = daemon.machine(name="box")
    daemon.exec(m, "mkdir /outbox && echo report > /outbox/report.txt", user="root")
    target = tmp_path / "here"
    target.mkdir()
    done = ship(carrel, "-y", "--json", "box", target)
    view = json.loads(done.stdout)
    assert view["shipped"] == 1 and (target / "report.txt").read_text() == "report\n"


def test_a_link_on_the_owners_side_leads_nowhere(carrel, daemon, machine, project, tmp_path):
    """The machine writes below a name that is a link here: the other end is not touched."""
    other = tmp_path / "other"
    other.mkdir()
    (project / "new").symlink_to(other)
    daemon.exec(machine, "mkdir -p /home/user/project/new2; rm -f /home/user/project/new; mkdir -p /home/user/project/new && "
                         "echo evil > /home/user/project/new/f")
    done = ship(carrel, "-y", "--stat", "work:/home/user/project", project)
    assert "a directory above it is a link" in done.stdout or "another type" in done.stdout
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


@pytest.mark.parametrize("words,message", [((), "no machine named"), (("work",), "no directory named"), (("nowhere", "/tmp"), "nowhere"),
                                           (("work", "/nowhere"), "/nowhere"), (("work:/nowhere", "/tmp"), "/nowhere"),
                                           (("c-aaaaaaaaaaaa", "/tmp"), "no change set")])
def test_words_that_make_no_sense(carrel, machine, words, message):
    done = carrel("ship", *words)
    assert done.returncode == 125 and message in done.stderr


@pytest.mark.skipif(ROOTLESS, reason="only root can write for others")
def test_what_root_ships_belongs_to_the_owner_of_the_directory(carrel, daemon, machine, project):
    os.chown(project, 12345, 12345)
    daemon.exec(machine, CHANGES)
    ship(carrel, "-y", "--stat", "work:/home/user/project", project)
    assert (project / "run.sh").stat().st_uid == 12345 and (project / "new/deep").stat().st_uid == 12345


def test_the_page_works(carrel, daemon, machine, project):
    """docs/review.md, line by line."""
    page = (TOP / "docs/review.md").read_text()
    daemon.exec(machine, CHANGES)
    daemon.exec(machine, "mkdir /outbox && echo x > /outbox/x", user="root")
    changeset, ran = None, 0
    for line in "".join(re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)).splitlines():
        words = [w.replace("PROJECT", str(project)).replace("CHANGESET", changeset or "") for w in shlex.split(line, comments=True)]
        if words[:2] != ["carrel", "ship"] and words[:2] != ["carrel", "audit"]:
            continue
        done = carrel(*words[1:])
        assert done.returncode in (0, 1), (words, done.stderr)
        changeset = (re.findall(r"c-[a-z0-9]{12}", done.stdout) or [changeset])[0]
        ran += 1
    assert ran >= 5 and pathlib.Path(project, "run.sh").exists() is False
