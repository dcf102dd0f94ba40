"""Review of a granted directory by what the machine changed: untouched files are neither packed nor read."""
import ctypes
import json
import os
import re
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from carrel import PROGRAM

IN_ACCESS, IN_OPEN, IN_NONBLOCK, IN_CLOEXEC = 0x1, 0x20, 0o4000, 0o2000000


@pytest.fixture
def project(tmp_path):
    top = tmp_path / "project"
    for name in ("src/a.c", "src/b.c", "dir/one", "dir/sub/two", "gone/one", "gone/sub/two", "file", "mode", "back",
                 "untouched/one", "untouched/sub/two"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(f"{name}\n")
    os.link(top / "src/a.c", top / "src/same")
    (top / "link").symlink_to("file")
    return top


@pytest.fixture
def carrel(daemon):
    def ran(*words):
        return subprocess.run([PROGRAM, *map(str, words)], env=daemon.env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, errors="surrogateescape", timeout=120)
    return ran


@pytest.fixture
def machine(carrel, project):
    done = carrel("new", "--name", "work", "--dir", f"{project}:/home/user/project")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def changed(daemon, machine, script):
    done = daemon.exec(machine, "cd /home/user/project && " + script)
    assert done["exec"]["status"] == 0, done


def freeze(daemon, machine, **kw):
    return daemon.post(f"/v1/machines/{machine}/changesets", {"path": "/home/user/project", **kw})


def reviewed(carrel, word, project):
    done = carrel("ship", "--json", word, project)
    assert done.returncode in (0, 1), done.stderr
    return {(f["path"], f.get("change"), f.get("refused"), f["sha256"]) for f in json.loads(done.stdout)["files"]}


class Watch:
    """Counts opened and read files and directories of the host."""

    def __init__(self, *paths):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
        for path in paths:
            assert libc.inotify_add_watch(self.fd, os.fsencode(path), IN_OPEN | IN_ACCESS) > 0

    def seen(self):
        names, data = [], b""
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            pass
        while data:
            _, mask, _, n = struct.unpack_from("iIII", data)
            names.append((hex(mask), data[16:16 + n].rstrip(b"\0").decode()))
            data = data[16 + n:]
        return names


def test_review_of_a_change_does_not_pack_untouched_files(carrel, daemon, machine, project):
    (project / "large").write_bytes(bytes(3 << 20))
    changed(daemon, machine, "echo new >src/a.c")
    assert freeze(daemon, machine)["bytes"] > 3 << 20  # the control: the whole directory
    for words in (("work:/home/user/project", project), ("work",)):
        done = carrel("ship", "--json", *words)
        told = json.loads(done.stdout)
        assert done.returncode == 0 and [f["path"] for f in told["files"]] == ["src/a.c"], done
        assert daemon.get(f"/v1/changesets/{told['changeset']}")["bytes"] < 1 << 20
    assert carrel("ship", "-y", told["changeset"]).returncode == 0 and (project / "src/a.c").read_text() == "new\n"


def test_review_of_a_change_reads_no_untouched_file_of_the_host(carrel, daemon, machine, project):
    changed(daemon, machine, "echo new >src/a.c; rm dir/one")
    untouched = Watch(project / "untouched", project / "untouched/sub", project / "dir/sub", project / "src/b.c")
    touched = Watch(project / "src")
    done = carrel("diff", "work")
    assert "M  src/a.c" in done.stdout and "D  dir/one" in done.stdout, done
    assert "a.c" in {name for _, name in touched.seen()} and untouched.seen() == []


CHANGES = r"""
echo new >src/same                       # a hard link: the other name keeps its content
rm -r dir && mkdir dir && echo x >dir/made   # an opaque directory
rm -r gone                               # a whiteout of a directory
rm file && mkdir file && echo x >file/in # a file becomes a directory
rm -r untouched/sub && echo x >untouched/sub # a directory becomes a file
chmod 755 mode                           # only its mode changes
cp back keep && echo x >back && cp keep back && rm keep  # changed, and changed back
mv src moved                             # a renamed directory
touch -h link                            # only the time of a link changes
ln -s /etc/passwd out
printf x >"$(printf 'a\nb')"
printf x >"$(printf 'bad\377')"
mkdir empty; mkfifo pipe
mkdir -p deep/er && echo x >deep/er/f
mkdir .carrel-ship-c-aaaaaaaaaaaa && echo x >.carrel-ship-c-aaaaaaaaaaaa/f
"""


@pytest.mark.parametrize("owner", ["nothing", "edits", "removes", "renames", "replaces", "adds"])
def test_review_of_changes_finds_what_review_of_everything_finds(carrel, daemon, machine, project, owner):
    """And recognises the same changes of the owner's."""
    changed(daemon, machine, CHANGES)
    if owner == "edits":
        for name in ("src/a.c", "mode", "gone/one", "dir/one", "untouched/one"):
            (project / name).write_text("mine\n")
    elif owner == "removes":
        for name in ("src/same", "mode", "gone/sub/two", "dir/one", "untouched/one", "link"):
            (project / name).unlink()
    elif owner == "renames":
        for name in ("gone/one", "dir/sub/two", "src/a.c", "untouched/one"):
            (project / name).rename(project / f"{name}-renamed")
    elif owner == "replaces":
        for name in ("mode", "src/b.c", "gone/one", "dir/one"):
            was = (project / name).stat()
            (project / "other").write_text("?" * was.st_size)
            os.utime(project / "other", ns=(was.st_atime_ns, was.st_mtime_ns))
            (project / "other").rename(project / name)
    elif owner == "adds":
        for name in ("gone/mine", "dir/mine", "src/mine", "empty", "untouched/sub/mine"):
            (project / name).write_text("mine\n")
    whole, part = freeze(daemon, machine), freeze(daemon, machine, changes_only=True)
    assert part["changes_only"] and not whole["changes_only"] and part["bytes"] <= whole["bytes"]
    expected = reviewed(carrel, whole["id"], project)
    assert reviewed(carrel, part["id"], project) == expected
    assert {"A", "D"} <= {change for _, change, refused, _ in expected if not refused}
    assert ("mode", "M", None) in {(path, change, refused) for path, change, refused, _ in expected} or owner in (
        "edits", "removes", "replaces")
    assert any(refused for _, _, refused, _ in expected)


def test_review_of_changes_after_the_owner_renamed_them(carrel, daemon, machine, project):
    """The machine's files have lost their place: they are refused, and the rest is reviewed."""
    changed(daemon, machine, "echo new >src/a.c; echo new >mode; echo new >file; rm gone/one; rm -r dir")
    for name in ("src", "gone", "dir/sub", "untouched", "file"):
        (project / name).rename(project / f"{name}-renamed")
    done = carrel("ship", "-y", "work")
    assert done.returncode == 1 and "M  mode" in done.stdout and re.search("!  src/a.c .*you deleted", done.stdout), done
    assert re.findall("^D  (.*)", done.stdout, re.M) == ["dir/one"]
    assert (project / "src-renamed/a.c").read_text() == "src/a.c\n" and (project / "gone-renamed/one").exists()
    assert re.search("!  file .*you deleted", done.stdout) and "renamed" not in done.stdout
    assert (project / "file-renamed").read_text() == "file\n" and (project / "dir/sub-renamed/two").exists()


def test_a_change_set_of_changes_ships_into_another_directory(carrel, daemon, machine, project, tmp_path):
    """Only the changes: the files that the machine did not change are not in it."""
    changed(daemon, machine, "echo new >src/a.c; rm file")
    part = freeze(daemon, machine, changes_only=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("stays\n")
    done = carrel("ship", "-y", part["id"], other)
    assert done.returncode == 0 and "only what the machine changed" in done.stderr, done
    assert (other / "src/a.c").read_text() == "new\n" and (other / "file").read_text() == "stays\n"
    assert not (other / "src/b.c").exists()


def test_an_untouched_path_can_be_named(carrel, daemon, machine, project):
    changed(daemon, machine, "echo new >src/a.c")
    done = carrel("ship", "--only", "untouched/one", "work:/home/user/project", project)
    assert done.returncode == 0 and "nothing to ship" in done.stdout, done
    done = carrel("ship", "--only", "absent", "work:/home/user/project", project)
    assert done.returncode == 125 and "'absent'" in done.stderr, done


def test_changes_in_parts_and_after_shipping(carrel, daemon, machine, project):
    """The baseline of a change set knows what was shipped since it was frozen."""
    changed(daemon, machine, "echo 1 >src/a.c; echo 1 >mode; rm -r gone")
    part = freeze(daemon, machine, changes_only=True)["id"]
    assert carrel("ship", "-y", "--only", "mode", part).returncode == 0
    assert carrel("ship", "-y", part).returncode == 0
    assert (project / "mode").read_text() == "1\n" and not (project / "gone/sub/two").exists()
    changed(daemon, machine, "echo 2 >mode")
    assert carrel("ship", "-y", "work").returncode == 0 and (project / "mode").read_text() == "2\n"
    assert carrel("ship", "--undo", part).returncode == 1  # of `mode`, which was shipped again
    assert (project / "gone/sub/two").exists() and (project / "mode").read_text() == "2\n"


def test_changes_are_reviewed_while_the_machine_changes_them(carrel, daemon, machine, project):
    """A file that shrinks, and a name that is a file, a directory and nothing in turn."""
    changed(daemon, machine, """
        (while :; do head -c 300000 /dev/zero >shrinks; : >shrinks; done) >/dev/null 2>&1 &
        (while :; do echo x >turns; rm turns; mkdir turns; rmdir turns; done) >/dev/null 2>&1 &
        echo new >src/a.c""")
    for _ in range(20):
        done = carrel("ship", "work:/home/user/project", project)
        assert "M  src/a.c" in done.stdout or re.search("became shorter|changed while it was read", done.stderr), done


def test_reviews_wait_for_each_other(daemon, machine):
    """Also if more reviews run at once than comparisons may, no untouched file is packed."""
    changed(daemon, machine, "head -c 20000000 /dev/urandom >large")
    with ThreadPoolExecutor(8) as pool:
        sets = list(pool.map(lambda _: freeze(daemon, machine, changes_only=True), range(8)))
    assert [s["changes_only"] for s in sets] == [True] * 8
    assert len({s["sha256"] for s in sets}) == 1
    assert freeze(daemon, machine, changes_only=True)["changes_only"]  # no reservation is lost


def test_changes_are_reviewed_after_a_restart_of_the_daemon(carrel, daemon, machine, project):
    changed(daemon, machine, "echo new >src/a.c; rm -r gone")
    daemon.restart()
    assert freeze(daemon, machine, changes_only=True)["changes_only"]
    done = carrel("ship", "-y", "work")
    assert done.returncode == 0 and (project / "src/a.c").read_text() == "new\n" and not (project / "gone/one").exists()


def test_json_has_the_difference_of_each_text(daemon, carrel, machine, project):
    """A difference that does not fit is left out, and shown if only its file is asked for."""
    changed(daemon, machine, "echo more >>src/a.c; echo '<b>' >new; printf 'a\\0b' >bytes; rm file; ln -sf mode link; "
                             "seq 1 90000 >long; seq 1 70000 >longer")

    def files(*words):
        done = carrel("ship", "--json", *words, "work:/home/user/project", project)
        assert done.returncode in (0, 1), done.stderr
        return {f["path"]: f for f in json.loads(done.stdout)["files"]}

    shown = files()
    assert shown["src/a.c"]["diff"] == "@@ -1,1 +1,2 @@\n src/a.c\n+more\n"
    assert shown["new"]["diff"] == "@@ -0,0 +1,1 @@\n+<b>\n"
    assert shown["file"]["diff"] == "@@ -1,1 +0,0 @@\n-file\n"
    assert not {"diff", "diff_left_out"} & (set(shown["bytes"]) | set(shown["link"]))
    assert shown["long"]["diff"].endswith("+90000\n") and shown["longer"]["diff_left_out"]
    alone = files("--only", "longer")
    assert alone["longer"]["diff"].endswith("+70000\n") and "diff" not in alone["new"]
    assert not any("diff" in f for f in files("--stat").values())
    assert not any("diff" in f for f in files("-y").values())


def test_json_has_the_difference_of_a_repository(daemon, carrel, tmp_path):
    repo = tmp_path / "repo"
    repo.mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.invalid", "-C", repo]
    (repo / "f").write_text("one\n")
    for words in (["init", "-q"], ["add", "f"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True, timeout=60)
    done = carrel("new", "--name", "coder", "--repo", repo)
    assert done.returncode == 0, done.stderr
    script = "cd /home/user/repo && echo two >f && git commit -qam 'say two' && echo three >f"
    assert daemon.exec(done.stdout.strip(), script)["exec"]["status"] == 0

    def told(*words):
        done = carrel("ship", "--json", *words, "coder", repo)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    view = told()
    assert view["log"].endswith(": say two") and view["commits"] == 1
    assert view["diff"].splitlines()[0] == "diff --git a/f b/f" and view["diff"].endswith("\n-one\n+two")
    assert not {"diff", "log"} & set(told("--stat")) and not {"diff", "log"} & set(told("-y"))
