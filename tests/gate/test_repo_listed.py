"""A review of a clone looks only at files that changed since the clone was made, and finds what a look at all files finds."""
import pytest

from test_repo import AGENT, carrel, commit, git, new, repo  # noqa: F401 (a fixture)

WHOLE = """cp -p .git/index /tmp/whole; export GIT_INDEX_FILE=/tmp/whole; git add -A 2>/dev/null; git write-tree; rm -f /tmp/whole"""
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


# The same, after the owner changed, removed and added files and committed nothing of it.
DIRTY_CHANGES = {
    "nothing": ("true", False),
    "edit": ("echo x >>d/a", False),
    "edit of a changed file": ("echo x >>top", False),
    "edit of an untracked file": ("echo x >>n/loose", False),
    "undo of a change": ("git checkout -q top", False),
    "undo of everything": ("git reset -q --hard; git clean -qfd n staged way", False),
    "delete an untracked file": ("rm -r n", False),
    "delete a changed file": ("rm top", False),
    "create a removed file": ("echo again >d/b", False),
    "add": ("mkdir -p n/m; echo x >n/m/f; echo y >a.log", False),
    "staged": ("git add -A; echo y >>d/a", False),
    "staged in part": ("git add top; echo x >new", False),
    "committed": (f"git add -A; {AGENT} commit -qm one", False),
    "committed and edited": (f"git add -A; {AGENT} commit -qm one; echo x >>d/a; echo y >>top; rm n/loose", False),
    "committed in part": (f"{AGENT} commit -qm one top; echo x >>run.sh", False),
    "an untracked file is ignored": ("echo loose >>.gitignore", True),
    "an untracked file is excluded": ("mkdir -p .git/info; echo loose >>.git/info/exclude; echo x >>d/a", True),
    "no longer tracked": ("git rm -q --cached d/a; echo d/a >>.gitignore", True),
    "staged in another version": ("git update-index --cacheinfo 100644,$(git rev-parse :run.sh),top; echo x >>d/a", True),
    "objects removed": ("git gc -q --prune=now; echo x >>d/a", True),
}


@pytest.fixture
def unfinished(filled):
    (filled / "top").write_text("changed\n")
    (filled / "d/b").unlink()
    (filled / "run.sh").chmod(0o644)
    (filled / "n").mkdir()
    (filled / "n/loose").write_text("loose\n")
    (filled / "staged").write_text("staged\n")
    (filled / "way").symlink_to("top")
    (filled / "ä odd").write_text("odd\n")
    (filled / "a.log").write_text("ignored\n")
    git(filled, "add", "staged")
    return filled


@pytest.mark.parametrize("name", CHANGES)
def test_a_review_finds_what_a_look_at_all_files_finds(gated, filled, name):
    check_review(gated, filled, new(gated, filled), *CHANGES[name])


@pytest.mark.parametrize("name", DIRTY_CHANGES)
def test_a_review_of_a_dirty_clone_finds_what_a_look_at_all_files_finds(gated, unfinished, name):
    check_review(gated, unfinished, new(gated, unfinished, ":dirty"), *DIRTY_CHANGES[name])


@pytest.mark.parametrize("change", ["forced", "nothing"])
def test_a_dirty_clone_with_an_ignored_file_or_without_a_change(gated, filled, change):
    """Git in the machine does not track an ignored file that the owner added by force and did not commit."""
    if change == "forced":
        (filled / "a.log").write_text("forced\n")
        git(filled, "add", "-f", "a.log")
    check_review(gated, filled, new(gated, filled, ":dirty"), "echo x >>d/a; echo y >new", change == "forced")


def check_review(gated, filled, box, script, scans):
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


LATE_CHANGES = {name: CHANGES[name] for name in ("edit", "add", "delete a directory", "committed and edited")}


@pytest.mark.parametrize("name", LATE_CHANGES)
def test_a_review_of_a_clone_granted_later_finds_what_a_look_at_all_files_finds(gated, filled, name):
    box = carrel(gated, "new").stdout.strip()
    gated.exec(box, "mkdir -p /home/user/before; echo x >/home/user/before/f")
    carrel(gated, "grant", "add", box, "--repo", filled)
    check_review(gated, filled, box, *LATE_CHANGES[name])


def test_a_review_of_a_dirty_clone_granted_later_finds_what_a_look_at_all_files_finds(gated, unfinished):
    box = carrel(gated, "new").stdout.strip()
    carrel(gated, "grant", "add", box, "--repo", f"{unfinished}:dirty")
    check_review(gated, unfinished, box, "echo x >>d/a; echo y >>n/loose", False)


# The process waits for the clone and changes a file of it before the step after the clone.
MEDDLER = """nohup sh -c 'until test -s /home/user/proj/.git/carrel-base; do :; done; echo meddled >>/home/user/proj/d/a' >/dev/null 2>&1 &"""


def test_a_review_finds_what_a_process_changed_before_the_step_after_the_clone(gated, filled):
    box = carrel(gated, "new").stdout.strip()
    gated.exec(box, f"cd /; {MEDDLER}")
    carrel(gated, "grant", "add", box, "--repo", filled)
    inside(gated, box, "until grep -q meddled d/a; do :; done")
    assert "exec" not in gated.grants(box)[0]["detail"]
    assert "M  d/a" in carrel(gated, "diff", box).stdout


@pytest.mark.parametrize("name", ["the command", "control"])
def test_a_step_named_like_the_command_of_the_clone_hides_no_change(gated, filled, name, count_attack):
    """A review compares with the step after that command, and anybody who may take a step chooses its name."""
    box = new(gated, filled)
    inside(gated, box, "echo x >>d/a; echo y >hidden")
    exec_id = gated.grants(box)[0]["detail"]["exec"]
    done = carrel(gated, "snap", box, exec_id if name == "the command" else "x-ray", ok=False)
    shown = carrel(gated, "diff", box).stdout
    assert "M  d/a" in shown and "A  hidden" in shown, shown
    assert (done.returncode == 0) == (name == "control"), done
    if name != "control":
        count_attack()


FORK_CHANGES = {name: CHANGES[name] for name in ("edit", "nothing", "add", "delete a directory", "staged", "committed and edited", "another branch", "link")}


@pytest.mark.parametrize("name", FORK_CHANGES)
def test_a_review_of_a_fork_finds_what_a_look_at_all_files_finds(gated, filled, name):
    """What its source changed after the clone counts, too."""
    source = new(gated, filled)
    inside(gated, source, "echo before >>run.sh; rm pointer; echo early >early")
    box = carrel(gated, "fork", source).stdout.strip()
    inside(gated, source, "echo late >late")
    check_review(gated, filled, box, *FORK_CHANGES[name])


def test_a_review_of_a_fork_whose_source_has_ended(gated, filled):
    source = new(gated, filled)
    for i in range(12):  # their layers are merged, but not with that of the clone
        inside(gated, source, f"echo {i} >>d/a")
    first = carrel(gated, "fork", source).stdout.strip()
    carrel(gated, "rm", source)
    inside(gated, first, "echo x >between")
    box = carrel(gated, "fork", first).stdout.strip()
    carrel(gated, "rm", first)
    check_review(gated, filled, box, "echo y >>d/b", False)


def test_a_review_of_a_fork_from_before_the_clone_or_of_a_rewound_one(gated, filled):
    """The files of the clone are not there: nothing is compared with it."""
    source = carrel(gated, "new").stdout.strip()
    gated.exec(source, "echo x >/home/user/first")
    carrel(gated, "grant", "add", source, "--repo", filled)
    inside(gated, source, "echo x >>d/a")
    early = carrel(gated, "fork", "--at", "1", source).stdout.strip()
    assert "cannot bundle the repository" in carrel(gated, "diff", early, ok=False).stderr
    late = carrel(gated, "fork", source).stdout.strip()
    inside(gated, late, "echo y >>d/b")
    carrel(gated, "rewind", late, "1")
    check_review(gated, filled, late, "echo z >>top", False)


def test_without_the_step_of_the_clone_git_looks_at_all_files(gated, filled):
    box = new(gated, filled, "", "--steps", "manual")
    inside(gated, box, f"{SCANS}; echo x >>d/a; rm d/b")
    shown = carrel(gated, "diff", box).stdout
    assert "M  d/a" in shown and "D  d/b" in shown, shown
    assert inside(gated, box, "cat /tmp/scans") != ""


def test_a_change_within_the_second_of_git_add_is_reviewed(gated, filled):
    """Size and time of the file say nothing then. Git reads it, because the index is not younger."""
    box = new(gated, filled, "", "--steps", "manual")
    inside(gated, box, """seconds=2; until test $seconds = 1; do
echo aaaa >quick; stat -c %Z quick >/tmp/s; git add quick; echo bbbb >quick; stat -c %Z quick .git/index >>/tmp/s
seconds=$(sort -u /tmp/s | wc -l); done
while test $(date +%s) = $(head -n 1 /tmp/s); do sleep 0.05; done""")  # a copy of the index that is made now would be younger
    carrel(gated, "ship", "-y", "--uncommitted", box, filled)
    assert git(filled, "show", f"carrel/{box}:quick") == "bbbb"
