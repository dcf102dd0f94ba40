"""Repositories: a clone goes in, a branch comes back, and nothing that a machine wrote is run or believed on the host."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest

from carrel import PROGRAM

ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
       **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "Owner"), ("EMAIL", "o@example.com"))}}
AGENT = "git -c user.name=Agent -c user.email=a@example.com"


def git(repo, *words):
    return subprocess.run(["git", "-C", repo, *words], env=ENV, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repo(tmp_path):
    """The owner's, with a remote, a credential and a hook that must stay here."""
    path = tmp_path / "proj"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    (path / "a.txt").write_text("one\n")
    git(path, "add", ".")
    git(path, "commit", "-qm", "first")
    git(path, "branch", "other")
    git(path, "tag", "v1")
    git(path, "remote", "add", "origin", "https://user:hunter22@git.example.com/x.git")
    hook = path / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch /tmp/never\n")
    hook.chmod(0o755)
    return path


def carrel(gated, *words, ok=True):
    done = subprocess.run([PROGRAM, *map(str, words)], env=gated.env, capture_output=True, text=True, timeout=100)
    assert not ok or done.returncode == 0, done
    return done


def new(gated, repo, suffix="", *more):
    return carrel(gated, "new", "--repo", f"{repo}{suffix}", *more).stdout.strip()


def commit(gated, box, line, at="proj"):
    done = gated.exec(box, f"cd {at} && {line} && git add -A && {AGENT} commit -qm 'work of the agent'", cwd="/home/user")
    assert done["exec"]["status"] == 0, done


def left_in_tmp(repo):
    """Temporary repositories that borrow the objects of this repository; other tests have their own."""
    def borrows(file):
        try:
            return str(repo) in file.read_text()
        except OSError:
            return False
    return [f for pattern in ("carrel-repo-*", "carrel-ship-*/*") for f in pathlib.Path("/tmp").glob(f"{pattern}/objects/info/alternates") if borrows(f)]


def may_trace():
    return shutil.which("strace") and subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True).returncode == 0


# ---- there and back ----


def test_a_clone_without_remotes_credentials_or_hooks(gated, repo):
    box = new(gated, repo)
    inside = gated.exec(box, "cd proj; git remote -v; git branch -a; cat a.txt; cat .git/config; ls .git/hooks; git log --format=%s; grep -r hunter22 . ; stat -c %U .git",
                        cwd="/home/user")
    text = inside["stdout"]
    assert "* main" in text and "one\n" in text and "first" in text and "user\n" in text
    assert "origin" not in text and "hunter22" not in text and "pre-commit\n" not in text
    grants = gated.grants(box)
    assert [(g["kind"], g["what"], g["at"]) for g in grants] == [("repo", str(repo), "/home/user/proj")]
    assert re.fullmatch("x-[a-z2-7]{12}", grants[0]["detail"].pop("exec"))
    assert re.fullmatch(f"{box}/[0-9]+", grants[0]["detail"].pop("layer", f"{box}/1"))  # known once layers are merged
    assert grants[0]["detail"] == {"ref": "main", "author": "agent <agent@agents.invalid>", "start": True}
    assert gated.exec(box, "ls /tmp/.carrel* 2>/dev/null; true")["stdout"] == ""


AUTHOR = "git commit -q --allow-empty -m x && git log -1 --format='%an <%ae> %cn <%ce>'"


@pytest.mark.parametrize("where", ["nowhere", "home", "repository"])
def test_commits_have_the_author_of_the_owners_git_config(gated, repo, tmp_path, where):
    home = tmp_path / "home"
    home.mkdir()
    if where == "home":
        (home / ".gitconfig").write_text("[user]\n\tname = Zoë Owner\n\temail = zoe@example.com\n")
    elif where == "repository":
        git(repo, "config", "user.name", "Of Repo")
        git(repo, "config", "user.email", "repo@example.com")
    env = {k: v for k, v in gated.env.items() if not k.startswith(("GIT_", "XDG_CONFIG"))}
    done = subprocess.run([PROGRAM, "new", "--repo", str(repo)], env={**env, "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done
    who = {"nowhere": "agent <agent@agents.invalid>", "home": "Zoë Owner <zoe@example.com>", "repository": "Of Repo <repo@example.com>"}[where]
    made = gated.exec(done.stdout.strip(), AUTHOR, cwd="/home/user/proj")
    assert made["stdout"] == f"{who} {who}\n", made


def test_an_identity_counts_more_than_the_default_author(gated, repo):
    box = new(gated, repo, "", "--identity", "robot<robot@example.com>")
    made = gated.exec(box, AUTHOR, cwd="/home/user/proj")
    assert made["stdout"] == "robot <robot@example.com> robot <robot@example.com>\n", made


@pytest.mark.parametrize("suffix,branch", [("@other", "other"), ("@v1", "carrel"), ("@other:/home/user/else", "other")])
def test_a_branch_or_a_tag_at_a_place(gated, repo, suffix, branch):
    box = new(gated, repo, suffix)
    at = suffix.split(":")[1] if ":" in suffix else "/home/user/proj"
    assert gated.exec(box, "git branch --show-current", cwd=at)["stdout"] == branch + "\n"


@pytest.mark.parametrize("how", ["whole", "short", "words"])
def test_a_commit_without_a_name(gated, repo, how):
    (repo / "a.txt").write_text("two\n")
    git(repo, "commit", "-qam", "second")
    first = git(repo, "rev-parse", "main~1")
    box = new(gated, repo, "@" + {"whole": first, "short": first[:10], "words": "main~1"}[how])
    text = gated.exec(box, "git log --format=%s; git branch --show-current; git tag; cat a.txt", cwd="/home/user/proj")["stdout"]
    assert text == "first\ncarrel\none\n" and gated.grants(box)[0]["detail"]["ref"] == first
    commit(gated, box, "echo more >>a.txt")
    assert json.loads(carrel(gated, "ship", "-y", "--json", box, repo).stdout)["commits"] == 1
    assert git(repo, "show", f"carrel/{box}:a.txt") == "one\nmore" and not left_in_tmp(repo)
    assert git(repo, "for-each-ref", "--format=%(refname)").count("carrel-base") == 0


@pytest.fixture
def dirty(repo, tmp_path):
    """A working tree with changed, staged, deleted, untracked and ignored files; the owner's configuration ignores one of them."""
    (repo / "gone").write_text("gone\n")
    (repo / "tool").write_text("#!/bin/sh\n")
    (repo / ".gitignore").write_text("*.o\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "second")
    (repo / "gone").unlink()
    (repo / "a.txt").write_text("one\nchanged\n")
    (repo / "tool").chmod(0o755)
    (repo / "staged").write_text("staged\n")
    git(repo, "add", "staged")
    (repo / "deep").mkdir()
    (repo / "deep/new").write_text("new\n")
    (repo / "link").symlink_to("a.txt")
    for name in ("x.o", "inner", "global.key"):
        (repo / name).write_text("ignored\n")
    (repo / ".git/info").mkdir(exist_ok=True)
    (repo / ".git/info/exclude").write_text("inner\n")
    (tmp_path / "ignore").write_text("*.key\n")
    (tmp_path / "gitconfig").write_text(f"[core]\n\texcludesFile = {tmp_path}/ignore\n")
    return repo


def new_dirty(gated, tmp_path, repo, suffix, *more, ok=True):
    done = subprocess.run([PROGRAM, "new", *more, "--repo", f"{repo}{suffix}"], env={**gated.env, "GIT_CONFIG_GLOBAL": f"{tmp_path}/gitconfig", "GIT_CONFIG_NOSYSTEM": "1"},
                          capture_output=True, text=True, timeout=100)
    assert not ok or done.returncode == 0, done
    return done


SEEN = "git status --porcelain --untracked-files=all; git log --format=%s; cat a.txt deep/new staged 2>/dev/null; readlink link; ls *.o inner global.key 2>/dev/null; git fsck 2>&1 | grep -v dangling; ls .git/FETCH_HEAD 2>/dev/null; git for-each-ref; true"


def test_uncommitted_files_come_along_with_dirty(gated, dirty, tmp_path):
    before = git(dirty, "status", "--porcelain"), git(dirty, "count-objects"), git(dirty, "for-each-ref")
    done = new_dirty(gated, tmp_path, dirty, ":dirty")
    assert done.stderr.splitlines()[0] == f"carrel: 6 changed or untracked files of repository '{dirty}' come along; ignored files stay out", done
    inside = gated.exec(done.stdout.strip(), SEEN, cwd="/home/user/proj")["stdout"].splitlines()
    assert inside[:6] == [" M a.txt", " D gone", " M tool", "?? deep/new", "?? link", "?? staged"], inside
    assert inside[6:13] == ["second", "first", "one", "changed", "new", "staged", "a.txt"], inside
    assert len(inside) == 14 and inside[13].endswith("refs/heads/main"), inside
    after = git(dirty, "status", "--porcelain"), git(dirty, "count-objects"), git(dirty, "for-each-ref")
    assert after == before and not left_in_tmp(dirty), "the owner's repository is as it was"


def test_change_within_the_second_of_a_commit_comes_along(gated, dirty, tmp_path):
    """Size and time of the file say nothing then. Git reads it, because the index is not younger."""
    seconds = set()
    while len(seconds) != 1:
        (dirty / "a.txt").write_text("first\n")
        seconds = {int((dirty / "a.txt").stat().st_ctime)}
        git(dirty, "commit", "-qam", "quick", "--allow-empty")
        (dirty / "a.txt").write_text("other\n")
        seconds.add(int((dirty / "a.txt").stat().st_ctime))
    while int(time.time()) in seconds:  # a copy of the index that is made now would be younger
        time.sleep(0.05)
    box = new_dirty(gated, tmp_path, dirty, ":dirty").stdout.strip()
    assert gated.exec(box, "cat a.txt", cwd="/home/user/proj")["stdout"] == "other\n"


def test_the_first_line_tells_that_uncommitted_files_stay_out(gated, dirty, tmp_path):
    done = new_dirty(gated, tmp_path, dirty, "")
    assert done.stderr.splitlines()[0] == f"carrel: 6 changed or untracked files of repository '{dirty}' stay out; to bring them along: --repo {dirty}:dirty", done
    assert gated.exec(done.stdout.strip(), "git status --porcelain; cat a.txt; ls", cwd="/home/user/proj")["stdout"] == "one\na.txt\ngone\ntool\n"
    assert new_dirty(gated, tmp_path, dirty, "", "-q").stderr == ""


@pytest.mark.parametrize("suffix,at", [("@main:/home/user/else:dirty", "/home/user/else"), ("@v2:dirty:untrusted", "/home/user/proj"), (":dirty", "/home/user/proj")])
def test_a_dirty_clone_of_a_branch_a_tag_or_a_commit(gated, dirty, tmp_path, suffix, at):
    git(dirty, "tag", "-am", "x", "v2")
    if suffix == ":dirty":
        git(dirty, "checkout", "-q", "--detach")
    box = new_dirty(gated, tmp_path, dirty, suffix).stdout.strip()
    seen = gated.exec(box, "git status --porcelain | wc -l; git log --format=%s; cat a.txt; git tag", cwd=at)["stdout"]
    assert seen == "6\nsecond\nfirst\none\nchanged\n" + ("v2\n" if "v2" in suffix else ""), seen


def test_only_what_is_checked_out_can_be_dirty(gated, dirty, tmp_path):
    done = new_dirty(gated, tmp_path, dirty, "@v1:dirty", ok=False)
    assert done.returncode and ":dirty requires the commit that is checked out" in done.stderr, done


@pytest.mark.parametrize("suffix,why", [("@nothing", "has no branch, tag or commit 'nothing'"), ("@main~9", "has no branch, tag or commit 'main~9'"), ("@main:a.txt", "has no branch, tag or commit 'main:a.txt'"), ("@--all", "has no branch, tag or commit '--all'"), ("x", "No such file")])
def test_bad_words(gated, repo, suffix, why):
    done = carrel(gated, "new", "--repo", f"{repo}{suffix}", ok=False)
    assert done.returncode and why in done.stderr, done
    assert gated.machines() == []


def test_work_comes_back_as_a_branch(gated, repo):
    box = new(gated, repo)
    assert "nothing to ship" in carrel(gated, "ship", box, repo).stdout
    commit(gated, box, "echo two >>a.txt")
    gated.exec(box, "echo left >b.txt", cwd="/home/user/proj")
    before = git(repo, "rev-parse", "main")
    seen = carrel(gated, "ship", box, repo).stdout
    assert "Agent: work of the agent" in seen and "+two" in seen and "1 commit to ship" in seen and "uncommitted changes are not shipped" in seen
    assert git(repo, "branch", "--list", "carrel/*") == ""
    told = json.loads(carrel(gated, "ship", "-y", "--json", box, repo).stdout)
    assert told["commits"] == 1 and told["shipped"] and told["branch"] == f"carrel/{box}"
    assert git(repo, "show", f"carrel/{box}:a.txt") == "one\ntwo" and git(repo, "rev-parse", "main") == before
    assert git(repo, "status", "--porcelain") == "" and not (repo / ".git/FETCH_HEAD").exists()
    audit = [json.loads(n) for n in gated.request("GET", "/v1/audit", raw=True, machine=box, verb="review.ship").decode().splitlines()]
    assert [(n["kind"], n["verb"]) for n in audit][-2:] == [("intent", "review.ship"), ("result", "review.ship")], audit
    # And again, after more of it.
    commit(gated, box, "echo three >>a.txt")
    assert "2 commits in branch" in carrel(gated, "ship", "-y", box, repo).stdout


def test_uncommitted_work_is_offered_and_ships_as_one_more_commit(gated, repo):
    box = new(gated, repo)
    commit(gated, box, "echo two >>a.txt")
    change = "rm -f gone; echo three >>a.txt; echo staged >s; git add s; mkdir d; echo new >d/n; chmod +x d/n; echo '*.o' >.gitignore; echo x >x.o"
    assert gated.exec(box, change, cwd="/home/user/proj")["exec"]["status"] == 0
    state = "git status --porcelain; git log --format=%H; git for-each-ref; ls /tmp/.carrel* 2>/dev/null; true"
    before = gated.exec(box, state, cwd="/home/user/proj")["stdout"]
    seen = carrel(gated, "ship", box, repo).stdout
    rest = seen[seen.index("uncommitted changes are not shipped:"):].splitlines()
    assert rest[1:5] == ["A  .gitignore  4B", "M  a.txt  14B", "A  d/n  4B  [executable]", "A  s  7B"] and len(rest) == 6, seen
    changeset = re.search(rf"as one more commit: carrel ship --uncommitted (c-[a-z2-7]{{12}}) {repo}$", rest[5])[1]
    assert gated.exec(box, state, cwd="/home/user/proj")["stdout"] == before, "the clone is as it was"
    # Without the option only commits ship. The change set has both, so the choice comes later.
    told = json.loads(carrel(gated, "ship", "-y", "--json", changeset, repo).stdout)
    assert told["commits"] == 1 and [f["path"] for f in told["uncommitted"]] == [".gitignore", "a.txt", "d/n", "s"]
    assert git(repo, "show", f"carrel/{box}:a.txt") == "one\ntwo"
    gated.exec(box, "echo later >>a.txt", cwd="/home/user/proj")
    seen = carrel(gated, "ship", "--uncommitted", changeset, repo).stdout
    assert "+three" in seen and "+new" in seen and f"2 commits to ship: carrel ship -y --uncommitted {changeset}" in seen and "not shipped" not in seen
    assert git(repo, "show", f"carrel/{box}:a.txt") == "one\ntwo"
    carrel(gated, "ship", "-y", "--uncommitted", changeset, repo)
    assert git(repo, "show", f"carrel/{box}:a.txt") == "one\ntwo\nthree" and git(repo, "show", f"carrel/{box}:d/n") == "new"
    assert git(repo, "log", "--format=%s", f"main..carrel/{box}").splitlines() == ["Uncommitted changes", "work of the agent"]
    assert "x.o" not in git(repo, "ls-tree", "-r", "--name-only", f"carrel/{box}")
    assert git(repo, "for-each-ref", "--format=%(refname)", "refs/carrel") == ""


def test_work_without_a_commit_is_offered(gated, repo):
    box = new(gated, repo)
    gated.exec(box, "echo two >>a.txt", cwd="/home/user/proj")
    seen = carrel(gated, "ship", box, repo).stdout
    assert "nothing to ship" not in seen and "M  a.txt  8B" in seen.splitlines(), seen
    carrel(gated, "ship", "-y", "--uncommitted", box, repo)
    assert git(repo, "show", f"carrel/{box}:a.txt") == "one\ntwo"


def changeset_bytes(gated, box, repo, *words):
    told = json.loads(carrel(gated, "ship", "--json", *words, box, repo).stdout)
    return gated.get(f"/v1/changesets/{told['changeset']}")["bytes"], told


def test_work_in_a_repository_with_sha256_hashes_comes_back(gated, tmp_path):
    path = tmp_path / "proj"
    path.mkdir()
    git(path, "init", "-q", "-b", "main", "--object-format=sha256")
    (path / "a.txt").write_text("one\n")
    git(path, "add", ".")
    git(path, "commit", "-qm", "first")
    box = new(gated, path)
    commit(gated, box, "echo two >>a.txt")
    gated.exec(box, "echo three >proj/b.txt", cwd="/home/user")
    shown = carrel(gated, "diff", box).stdout
    assert "+two" in shown and "A  b.txt" in shown, shown
    carrel(gated, "ship", "-y", box, path)
    assert git(path, "show", f"carrel/{box}:a.txt") == "one\ntwo"


@pytest.mark.parametrize("moved", [False, True], ids=["as granted", "moved on"])
def test_a_bundle_leaves_out_what_the_owner_has(gated, repo, moved):
    """A large file of the owner's does not come back with one changed line, also if the branch moved on."""
    (repo / "large").write_bytes(os.urandom(3 << 20))
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "large")
    box = new(gated, repo)
    if moved:
        (repo / "a.txt").write_text("one\nand a half\n")
        git(repo, "commit", "-qam", "of the owner")
    nothing, told = changeset_bytes(gated, box, repo)
    assert nothing < 1 << 20 and told["commits"] == 0
    gated.exec(box, "echo two >>a.txt", cwd="/home/user/proj")
    rest, told = changeset_bytes(gated, box, repo)
    assert rest < 1 << 20 and told["commits"] == 0 and [f["path"] for f in told["uncommitted"]] == ["a.txt"]
    commit(gated, box, "true")
    one, told = changeset_bytes(gated, box, repo)
    assert one < 1 << 20 and told["commits"] == 1
    carrel(gated, "ship", "-y", box, repo)
    assert git(repo, "show", f"carrel/{box}:a.txt") == "one\ntwo" and git(repo, "fsck", "--no-progress") == ""
    commit(gated, box, "git reset -q --hard HEAD~2; echo three >>a.txt")  # from before the commit that was granted
    assert changeset_bytes(gated, box, repo)[1]["commits"] == 1
    carrel(gated, "ship", "-y", box, repo)
    assert git(repo, "show", f"carrel/{box}:a.txt") == "one\nthree"


def test_a_bundle_has_the_commits_that_the_owner_lost(gated, repo):
    """The last commit of the branch was replaced after the grant, and git has removed it."""
    git(repo, "commit", "-q", "--allow-empty", "-m", "second")
    box = new(gated, repo)
    git(repo, "commit", "-q", "--amend", "--allow-empty", "-m", "another second")
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "-q", "--prune=now")
    commit(gated, box, "echo two >>a.txt")
    carrel(gated, "ship", "-y", box, repo)
    assert git(repo, "log", "--format=%s", f"carrel/{box}").splitlines() == ["work of the agent", "second", "first"]


def test_diff_lists_files_of_a_clone_only_in_its_change_set(gated, repo):
    """Of all changes. A path or a step that is named is compared file by file."""
    box = new(gated, repo)
    gated.exec(box, "echo two >>a.txt; echo own >/home/user/own", cwd="/home/user/proj")
    steps = gated.get(f"/v1/machines/{box}/steps")["steps"]
    seen = carrel(gated, "diff", "--stat", box).stdout
    assert gated.get(f"/v1/machines/{box}/steps")["steps"] == steps  # what the review runs in the machine is no step
    own, clone = seen.split(", granted from ")
    assert "A /home/user/own" in own and "A /home/user/proj/\n" in own and "/proj/a.txt" not in own and "/.git" not in own, seen
    assert "M  a.txt" in clone, seen
    assert "A /home/user/proj/a.txt" in carrel(gated, "diff", "--stat", box, "start").stdout
    assert "A /home/user/proj/a.txt" in carrel(gated, "diff", "--stat", "--path", "/home/user/proj", box).stdout


def test_files_that_git_cannot_add_do_not_keep_back_commits(gated, repo):
    box = new(gated, repo)
    commit(gated, box, "echo two >>a.txt")
    gated.exec(box, "mkdir inner && git -C inner init -q", cwd="/home/user/proj")
    done = carrel(gated, "ship", "-y", "--uncommitted", box, repo)
    assert "uncommitted changes are not shipped: git in the machine cannot add them" in done.stdout, done
    assert git(repo, "log", "--format=%s", f"main..carrel/{box}") == "work of the agent"


def test_what_diff_froze_is_what_ships_and_it_can_be_taken_back(gated, repo):
    box = new(gated, repo)
    commit(gated, box, "echo two >>a.txt")
    shown = carrel(gated, "diff", box).stdout
    changeset = re.search(r"1 commit to ship: carrel ship -y (c-[a-z2-7]{12})", shown)[1]
    assert f"/home/user/proj, granted from {repo}:" in shown and "+two" in shown
    commit(gated, box, "echo three >>a.txt")
    done = carrel(gated, "ship", "-y", changeset).stdout
    assert git(repo, "show", f"carrel/{box}:a.txt") == "one\ntwo", done
    receipt = re.search(r"receipt (\S+),", done)[1]
    told = json.loads(pathlib.Path(receipt).read_text())
    assert told["commit"] == git(repo, "rev-parse", f"carrel/{box}") and told["changeset"] == changeset
    assert ": valid: the journal has the same record" in carrel(gated, "audit", "verify", receipt).stdout and git(repo, "status", "--porcelain") == ""
    # More of it, then back to the first, then to nothing; a branch that somebody moved is left alone.
    second = re.search(r"c-[a-z2-7]{12}", carrel(gated, "ship", "-y", box, repo).stdout)[0]
    assert git(repo, "show", f"carrel/{box}:a.txt") == "one\ntwo\nthree"
    refused = carrel(gated, "ship", "--undo", changeset, repo, ok=False)
    assert refused.returncode and "is no longer at the shipped commit" in refused.stderr
    carrel(gated, "ship", "--undo", second, repo)
    assert git(repo, "show", f"carrel/{box}:a.txt") == "one\ntwo"
    assert "is deleted" in carrel(gated, "ship", "--undo", changeset, repo).stdout and git(repo, "branch", "--list", "carrel/*") == ""


KEY = "ghp_" + "a" * 36


def test_what_deserves_a_look_is_said(gated, repo):
    """As of directories: by name, mode, target and content; and a key that a later commit took away again."""
    box = new(gated, repo)
    commit(gated, box, "mkdir -p .github && echo x >.github/ci.yml && printf '#!/bin/sh\\n' >run.sh && chmod 755 run.sh && ln -s /etc/passwd out && chmod +x a.txt && echo '{}' >package-lock.json")
    commit(gated, box, f"echo {KEY} >key && echo x {KEY} >gone")
    commit(gated, box, "git rm -q gone")
    for words in ((), ("--stat",)):
        seen = carrel(gated, "ship", *words, box, repo).stdout
        for line in ("A  .github/ci.yml  2B  [CI]  a build service runs it", "A  run.sh  10B  [executable]", "A  out  11B  [leads out of the tree]", "A  package-lock.json  3B  [lockfile]  it decides what is installed",
                     "M  a.txt  4B  mode 100644 -> 100755  [executable]", "A  key  41B  [secret?]", "C  gone  43B  [secret?]  in a commit before the last"):
            assert line in seen.splitlines(), (line, seen)
        assert ("+#!/bin/sh" in seen) == (not words)
    files = {f["path"]: f for f in json.loads(carrel(gated, "ship", "--json", box, repo).stdout)["files"]}
    assert files["run.sh"] == {"path": "run.sh", "change": "A", "size": 10, "flags": "executable"} and files["gone"]["change"] == "C"


def frozen(gated, box):
    return re.search(r"1 commit to ship: carrel ship -y (c-[a-z2-7]{12})", carrel(gated, "diff", box).stdout)[1]


def test_one_large_file_does_not_keep_back_the_rest(gated, repo):
    """Its difference would be longer than all that is shown: it is listed by name and size, and all of it ships."""
    box = new(gated, repo)
    commit(gated, box, "echo two >>a.txt && yes 'a line of a large text' | head -c 70000000 >large")
    seen = carrel(gated, "ship", box, repo).stdout
    assert "+two" in seen and re.search(r"^A  large  67M", seen, re.M) and len(seen) < 10_000, seen[:2000]
    carrel(gated, "ship", "-y", "--stat", box, repo)
    assert git(repo, "cat-file", "-s", f"carrel/{box}:large") == "70000000"


def test_a_bundle_ships_by_its_id_when_its_machine_is_gone(gated, repo):
    box = new(gated, repo, "", "--name", "worker")
    commit(gated, box, "echo two >>a.txt")
    changeset = frozen(gated, box)
    gated.delete(f"/v1/machines/{box}")
    assert "+two" in carrel(gated, "ship", changeset).stdout
    assert "1 commit in branch carrel/worker" in carrel(gated, "ship", "-y", changeset).stdout
    assert git(repo, "show", "carrel/worker:a.txt") == "one\ntwo"


def test_a_bundle_of_a_clone_that_was_taken_back_goes_only_where_it_is_told(gated, repo):
    box = new(gated, repo)
    commit(gated, box, "echo two >>a.txt")
    changeset = frozen(gated, box)
    gated.revoke(box, "repo")
    done = carrel(gated, "ship", "-y", changeset, ok=False)
    assert done.returncode == 125 and f"was revoked: {repo}" in done.stderr and "DIRECTORY" in done.stderr, done
    assert git(repo, "branch", "--list", "carrel/*") == ""
    carrel(gated, "ship", "-y", changeset, repo)
    assert git(repo, "show", f"carrel/{box}:a.txt") == "one\ntwo"


def test_work_comes_back_as_a_patch(gated, repo, tmp_path):
    box = new(gated, repo)
    commit(gated, box, "echo two >>a.txt")
    patch = tmp_path / "work.patch"
    done = carrel(gated, "ship", "-y", "--patch", patch, box, repo).stdout
    assert git(repo, "branch", "--list", "carrel/*") == "" and "+two" in patch.read_text()
    receipt = re.search(r"receipt (\S+),", done)[1]
    assert ": valid: the journal has the same record" in carrel(gated, "audit", "verify", receipt).stdout, done
    git(repo, "apply", "--check", patch)
    assert carrel(gated, "ship", "-y", "--patch", patch, box, repo, ok=False).returncode, "it is never written over"


def test_ship_leaves_nothing_but_the_patch_for_git_add(gated, repo):
    box = new(gated, repo)
    commit(gated, box, "echo two >>a.txt")
    receipts = [re.search(r"receipt (\S+),", carrel(gated, "ship", "-y", "--patch", repo / name, box, repo).stdout)[1] for name in ("one.patch", "two.patch")]
    assert len(set(receipts)) == 2 and all(pathlib.Path(r).is_file() for r in receipts), receipts
    carrel(gated, "ship", "-y", box, repo)
    git(repo, "add", "-A")
    assert git(repo, "diff", "--cached", "--name-only").split() == ["one.patch", "two.patch"]


def test_a_clone_is_taken_back(gated, repo):
    box = new(gated, repo)
    gated.revoke(box, "repo")
    assert gated.exec(box, "ls /home/user")["stdout"] == "" and gated.grants(box) == []


@pytest.mark.skipif(not may_trace(), reason="strace is not there, or may not trace")
@pytest.mark.parametrize("how", ["branch", "patch"])
def test_a_receipt_is_on_the_disk_before_what_was_shipped_is_written_down(gated, repo, tmp_path, how):
    box = new(gated, repo)
    commit(gated, box, "echo two > a.txt")
    seen, patch = tmp_path / "calls", tmp_path / "out/work.patch"
    patch.parent.mkdir()
    trace = ["strace", "-y", "-qq", "-o", str(seen), "-e", "trace=fsync,sendmsg", "-s", "4096"]
    words = ["--patch", str(patch)] if how == "patch" else []
    env = {**gated.env, "ASAN_OPTIONS": "detect_leaks=0"}  # whoever is traced cannot be searched for leaks
    done = subprocess.run([*trace, PROGRAM, "ship", "-y", *words, box, str(repo)], env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done
    calls = seen.read_text().splitlines()
    noted = [i for i, line in enumerate(calls) if line.startswith("sendmsg(") and "/ship HTTP" in line]
    assert len(noted) == 2, calls  # what is to be, and what was done
    synced = re.findall(r"^fsync\(\d+<(.*)>\) += 0$", "\n".join(calls[:noted[1]]), re.M)
    receipt = next((repo / ".git/carrel").iterdir())
    shipped = [str(patch), str(patch.parent)] if how == "patch" else []
    assert synced == [str(repo / ".git"), *shipped, str(receipt), str(receipt.parent)]


def test_a_fork_ships_to_a_branch_of_its_own(gated, repo):
    box = new(gated, repo)
    fork = gated.post(f"/v1/machines/{box}/fork")["machines"][0]["id"]
    commit(gated, fork, "echo fork >>a.txt")
    carrel(gated, "ship", "-y", fork, repo)
    assert git(repo, "show", f"carrel/{fork}:a.txt") == "one\nfork" and git(repo, "branch", "--list", f"carrel/{box}") == ""


# ---- what a machine may try ----


CONFIG = """
[core]
	fsmonitor = touch {mark}; true
	sshCommand = touch {mark}; false
	hooksPath = /home/user/proj/.git/hooks
	pager = touch {mark}; cat
	alternateRefsCommand = touch {mark}; true
[diff]
	external = touch {mark}; true
[uploadpack]
	packObjectsHook = touch {mark}; true
[include]
	path = {mark}
[alias]
	log = !touch {mark}
"""
RAW = """
import hashlib, os, subprocess, sys, zlib
def put(kind, body):
    return subprocess.run(["git", "hash-object", "-t", kind, "-w", "--stdin", "--literally"], input=body, capture_output=True, check=True).stdout.decode().strip()
def commit(tree, parent):
    text = f"tree {tree}\\nparent {parent}\\nauthor A <a@b> 1 +0000\\ncommitter A <a@b> 1 +0000\\n\\nx\\n".encode()
    subprocess.run(["git", "update-ref", "HEAD", put("commit", text)], check=True)
parent = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True).stdout.decode().strip()
blob = bytes.fromhex(put("blob", b"#!/bin/sh\\ntouch MARK\\n"))
def entry(mode, name, sha): return mode + b" " + name + b"\\0" + sha
"""
ATTACKS = {
    "a tree with .git in it": RAW + "commit(put('tree', entry(b'40000', b'.git', bytes.fromhex(put('tree', entry(b'100755', b'config', blob))))), parent)",
    "a tree with .GIT in it": RAW + "commit(put('tree', entry(b'40000', b'.GIT', bytes.fromhex(put('tree', entry(b'100755', b'config', blob))))), parent)",
    "a name that climbs": RAW + "commit(put('tree', entry(b'40000', b'..', bytes.fromhex(put('tree', entry(b'100755', b'x', blob))))), parent)",
    "a name with a slash": RAW + "commit(put('tree', entry(b'100755', b'../../x', blob)), parent)",
    "a submodule whose address is an option": RAW + "m = put('blob', b'[submodule \"x\"]\\n\\tpath = x\\n\\turl = --upload-pack=touch MARK\\n'); commit(put('tree', entry(b'100644', b'.gitmodules', bytes.fromhex(m)) + entry(b'160000', b'x', b'1' * 20)), parent)",
    "a submodule whose name climbs": RAW + "m = put('blob', b'[submodule \"../../x\"]\\n\\tpath = x\\n\\turl = ./x\\n'); commit(put('tree', entry(b'100644', b'.gitmodules', bytes.fromhex(m))), parent)",
    "a .gitmodules that is a link": RAW + "commit(put('tree', entry(b'120000', b'.gitmodules', bytes.fromhex(put('blob', b'/etc/passwd')))), parent)",
    "a commit without a date": RAW + "t = subprocess.run(['git', 'rev-parse', 'HEAD^{tree}'], capture_output=True).stdout.decode().strip(); subprocess.run(['git', 'update-ref', 'HEAD', put('commit', f'tree {t}\\nparent {parent}\\nauthor x\\ncommitter y\\n\\nx\\n'.encode())], check=True)",
}


@pytest.mark.parametrize("attack", ATTACKS, ids=list(ATTACKS))
def test_an_object_that_is_not_as_it_should_be_is_refused(gated, repo, attack, count_attack):
    box = new(gated, repo)
    mark = repo.parent / "mark"
    done = gated.exec(box, ["python3", "-c", ATTACKS[attack].replace("MARK", str(mark))], cwd="/home/user/proj")
    assert done["exec"]["status"] == 0, done
    shipped = carrel(gated, "ship", "-y", box, repo, ok=False)
    assert shipped.returncode and "is refused" in shipped.stderr, shipped
    untouched(repo, mark)
    count_attack()


@pytest.mark.parametrize("words", [(), ("--uncommitted",)], ids=["left out", "shipped"])
def test_uncommitted_objects_that_are_not_as_they_should_be_are_refused(gated, repo, words, count_attack):
    """HEAD is fine; the machine's own git puts another commit into the place of the uncommitted changes."""
    box = new(gated, repo)
    mark = repo.parent / "mark"
    commit(gated, box, "echo two >>a.txt")
    done = gated.exec(box, ["python3", "-c", ATTACKS["a tree with .git in it"].replace("MARK", str(mark))], cwd="/home/user/proj")
    assert done["exec"]["status"] == 0, done
    done = gated.exec(box, "git rev-parse HEAD >/home/user/evil && git update-ref HEAD HEAD~1 && git status --porcelain", cwd="/home/user/proj")
    assert done["exec"]["status"] == 0 and done["stdout"] == "", done
    ref = "refs/carrel/uncommitted"
    fake = f"#!/bin/sh\n[ \"$1\" != bundle ] || {{ /usr/bin/git update-ref {ref} $(cat /home/user/evil); set -- \"$@\" {ref}; }}\nexec /usr/bin/git \"$@\"\n"
    gated.put(f"/v1/machines/{box}/files?path=/usr/local/bin/git&user=root", fake.encode())
    gated.exec(box, "chmod 755 /usr/local/bin/git", user="root")
    shipped = carrel(gated, "ship", "-y", *words, box, repo, ok=False)
    assert shipped.returncode and "is refused" in shipped.stderr, shipped
    untouched(repo, mark)
    count_attack()


def untouched(repo, mark):
    assert not mark.exists() and git(repo, "branch", "--list", "carrel/*") == ""
    assert git(repo, "fsck", "--unreachable", "--no-progress") == "", "objects came in"
    assert not left_in_tmp(repo)


def test_its_configuration_hooks_and_alternates_stay_inside(gated, repo, count_attack):
    """Everything git would run for a repository it trusts; the work itself is fine and comes back."""
    box = new(gated, repo)
    mark = repo.parent / "mark"
    commit(gated, box, "echo two >>a.txt; echo '*.txt diff=evil filter=evil' >.gitattributes")
    gated.put(f"/v1/machines/{box}/files?path=/home/user/proj/.git/config.evil", CONFIG.format(mark=mark).encode())
    gated.exec(box, "cat config.evil >>config; mkdir -p hooks; for h in reference-transaction post-update update pre-receive post-receive fsmonitor-watchman; do "
                    f"printf '#!/bin/sh\\ntouch {mark}\\n' >hooks/$h; chmod 755 hooks/$h; done; mkdir -p objects/info; echo {repo}/.git/objects >objects/info/alternates",
               cwd="/home/user/proj/.git")
    carrel(gated, "ship", box, repo)
    carrel(gated, "ship", "-y", box, repo)
    assert git(repo, "show", f"carrel/{box}:a.txt") == "one\ntwo" and not mark.exists()
    assert not (repo / ".git/objects/info/alternates").exists() and "evil" not in (repo / ".git/config").read_text()
    for _ in range(3):
        count_attack()


@pytest.mark.parametrize("bundle", ["head -c 100000 /dev/urandom >$1/repo.bundle", "ln -s /etc/passwd $1/repo.bundle", "mkdir $1/repo.bundle", "true",
                                    "printf '# v2 git bundle\\n0000000000000000000000000000000000000000 HEAD\\n\\nPACK' >$1/repo.bundle",
                                    "printf '# v3 git bundle\\n@filter=--upload-pack=x\\n\\n' >$1/repo.bundle"],
                         ids=["noise", "a link", "a directory", "nothing", "no pack", "a filter"])
def test_a_bundle_that_is_none_is_refused(gated, repo, bundle, count_attack):
    """The machine's own git lies."""
    box = new(gated, repo)
    fake = "#!/bin/sh\n[ \"$1\" = bundle ] || exit 0\nset -- $(dirname $4)\ntouch /home/user/asked\n" + bundle + "\n"
    gated.put(f"/v1/machines/{box}/files?path=/usr/local/bin/git&user=root", fake.encode())
    gated.exec(box, "chmod 755 /usr/local/bin/git", user="root")
    done = carrel(gated, "ship", "-y", box, repo, ok=False)
    assert done.returncode, done
    assert gated.exec(box, "ls asked", cwd="/home/user")["stdout"] == "asked\n", "the fake git made no bundle"
    untouched(repo, repo.parent / "mark")
    count_attack()


def test_an_unchanged_repository_is_frozen_to_the_same_archive(gated, repo):
    """So that a list of reviews can see that nothing is new. A change of a file or a new commit is seen."""
    box = new(gated, repo)
    archives = []

    def frozen(line):
        assert gated.exec(box, line, cwd="/home/user/proj")["exec"]["status"] == 0
        time.sleep(1.1)  # git counts seconds
        carrel(gated, "ship", box)
        records = gated.request("GET", "/v1/audit", raw=True, verb="review.freeze", machine=box).splitlines()
        detail = [json.loads(r) for r in records if b"changeset" in r][-1]["detail"]
        assert (detail["kind"], detail["home"], detail["slice"], detail["ref"]) == ("repo", str(repo), "/home/user/proj", "main")
        archives.append(detail["sha256"])

    for line in ("true", "true", "echo two >>a.txt; echo new >b.txt", "true", f"git add -A && {AGENT} commit -qm work && echo more >c.txt", "touch a.txt", "rm c.txt"):
        frozen(line)
    a, b, c, d, e, f, g = archives
    assert a == b and c == d and e == f and len({a, c, e, g}) == 4


def test_the_commands_of_a_review_are_not_among_those_of_the_machine(gated, repo):
    """Users of a machine look for what its agent ran. Whoever asks for all commands sees them."""
    box = new(gated, repo)
    commit(gated, box, "echo mine >>a.txt")

    def seen():
        events = gated.request("GET", "/v1/events", raw=True, follow=0, machine=box).decode().count("event: exec.")
        return gated.get(f"/v1/machines/{box}/execs"), carrel(gated, "logs", "--json", box).stdout, events

    before, count = seen(), len(gated.get(f"/v1/machines/{box}/execs", all=1)["execs"])
    assert "mine" in carrel(gated, "ship", box).stdout
    assert seen() == before and before[2]
    more = gated.get(f"/v1/machines/{box}/execs", all=1)["execs"]
    assert len(more) > count and carrel(gated, "logs", "--all", "-q", box).stdout.split() == [x["id"] for x in more]
    assert gated.get(f"/v1/machines/{box}/execs/{more[0]['id']}")["state"] == "exited", "it is there for those who know its id"
