"""A review of a clone looks only at files that changed since the clone was made, and finds what a look at all files finds."""
import pytest

from test_repo import AGENT, carrel, commit, git, new, repo  # noqa: F401 (a fixture)

WHOLE = """cp .git/index /tmp/whole; export GIT_INDEX_FILE=/tmp/whole; git add -A 2>/dev/null; git write-tree; rm -f /tmp/whole"""
# git reads this file again only if it looks at all files: the file is newer than the index, and has the same content.
SCANS = """mkdir -p .git/info; echo 'probe filter=probe' >.git/info/attributes; touch probe
git config filter.probe.clean 'echo scan >>/tmp/scans; cat'"""

# name: (what the agent does, whether git has to look at all files)
CHANGES = {
    "edit": ("echo x >>d/a", False),
    "nothing": ("true", False),
    "add": ("mkdir -p n/m; echo x >n/m/f; echo y >'with space'", False),
    "delete": ("rm d/a", False),
    "delete a directory": ("rm -r d", False),
    "rename a directory": ("mv d e", False),
    "mode": ("chmod +x d/a", False),
    "mode off": ("chmod -x run.sh", False),
    "a directory becomes a file": ("rm -r d; echo x >d", False),
    "a file becomes a directory": ("rm top; mkdir top; echo x >top/a", False),
    "a file becomes a pipe": ("rm top; mkfifo top", True),
    "ignored": ("echo x >a.log; mkdir out; echo x >out/f; echo y >b.txt", False),
    "added by force": ("echo x >a.log; git add -f a.log; echo y >>a.log", False),
    "no longer tracked": ("git rm -q --cached d/a; echo d/a >>.gitignore", True),
    "no longer tracked, and edited": ("git rm -q --cached d/a; echo d/a >>.gitignore; echo x >>d/a", False),
    "staged": ("echo x >>d/a; git add -A; echo y >>d/a", False),
    "staged and gone": ("echo x >new; git add new; rm new", True),
    "committed": (f"echo x >>d/a; git add -A; {AGENT} commit -qm one", False),
    "committed and edited": (f"echo x >>d/a; rm top; {AGENT} commit -qam one; echo y >>d/b; echo z >new", False),
    "another branch": ("git checkout -q -b other HEAD~; mkdir d; echo x >d/a", False),
    "attributes": ("echo '*.txt text eol=crlf' >.gitattributes; printf 'a\\r\\nb\\r\\n' >crlf.txt", False),
    "link": ("ln -s d link", True),
    "a file becomes a link": ("rm top; ln -s d/a top", True),
    "a link becomes a file": ("rm pointer; echo x >pointer", False),
    "odd names": ("echo x >'a\"b'; echo y >\"$(printf 'c\\nd')\"; echo z >$(printf '\\303\\244')", True),
    "spaces at the ends": ("echo x >' a '", True),
    "a name like an option": ("echo x >-n; echo y >--help", False),
    "a repository inside": (f"git init -q sub; echo x >sub/f; git -C sub add f; {AGENT} -C sub commit -qm sub", True),
    "sparse": ("git sparse-checkout set --no-cone /d/ /probe", True),
    "many": ("for i in $(seq 600); do echo $i >m$i; done", True),
    "the commit forgotten": ("rm .git/carrel-base; echo x >>d/a", True),
}


@pytest.fixture
def filled(repo):  # noqa: F811
    (repo / "probe").write_text("probe\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "probe")
    (repo / "d").mkdir()
    for name in ("d/a", "d/b", "top"):
        (repo / name).write_text(f"{name}\n")
    (repo / "run.sh").write_text("#!/bin/sh\n")
    (repo / "run.sh").chmod(0o755)
    (repo / "pointer").symlink_to("d/a")
    (repo / ".gitignore").write_text("*.log\nout/\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "second")
    return repo


def inside(gated, box, script):
    done = gated.exec(box, f"cd /home/user/proj && {{ {script}\n}}", cwd="/home/user")
    assert done["exec"]["status"] == 0, done
    return done["stdout"].strip()


@pytest.mark.parametrize("name", CHANGES)
def test_a_review_finds_what_a_look_at_all_files_finds(gated, filled, name):
    script, scans = CHANGES[name]
    box = new(gated, filled)
    inside(gated, box, script)
    expected = inside(gated, box, WHOLE)
    before = inside(gated, box, "git status --porcelain; git rev-parse HEAD; git for-each-ref")
    inside(gated, box, SCANS)
    carrel(gated, "ship", "-y", "--uncommitted", box, filled)
    branch = git(filled, "branch", "--list", f"carrel/{box}")
    seen = git(filled, "rev-parse", f"carrel/{box}^{{tree}}" if branch else "main^{tree}")
    assert seen == expected, git(filled, "diff", "--stat", "main", f"carrel/{box}" if branch else "main")
    assert (inside(gated, box, "cat /tmp/scans 2>/dev/null || :") != "") == scans
    inside(gated, box, "git config --unset filter.probe.clean; rm .git/info/attributes")
    assert inside(gated, box, "git status --porcelain; git rev-parse HEAD; git for-each-ref") == before
    assert inside(gated, box, "ls -A /tmp | grep carrel || :") == "" and "crash" not in inside(gated, box, "ls .git")


def test_uncommitted_work_has_the_author_of_the_machine(gated, filled):
    box = new(gated, filled)
    inside(gated, box, "git config user.name 'A \\n B'; git config user.email a@b.example; echo x >>d/a")
    carrel(gated, "ship", "-y", "--uncommitted", box, filled)
    assert git(filled, "log", "-1", "--format=%an|%ae|%s|%b", f"carrel/{box}") == "A \\n B|a@b.example|Uncommitted changes|"


@pytest.mark.parametrize("how", ["a fork", "no steps", "granted later"])
def test_without_the_step_of_the_clone_git_looks_at_all_files(gated, filled, how):
    if how == "granted later":
        box = carrel(gated, "new").stdout.strip()
        carrel(gated, "grant", "add", box, "--repo", filled)
    else:
        box = new(gated, filled, "", "--steps", "manual" if how == "no steps" else "every")
    if how == "a fork":
        box = carrel(gated, "fork", box).stdout.strip()
    inside(gated, box, f"{SCANS}; echo x >>d/a; rm d/b")
    shown = carrel(gated, "diff", box).stdout
    assert "M  d/a" in shown and "D  d/b" in shown, shown
    assert inside(gated, box, "cat /tmp/scans") != ""
