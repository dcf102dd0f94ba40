"""--dir: directories lent as ro, cow or rw, and what comes back."""
import json
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import tempfile
import threading

import pytest
from carrel import PROGRAM, ROOTLESS, Terminal


@pytest.fixture
def lent():
    """A directory with some files, of whoever runs the tests, at a path that exists nowhere inside."""
    with tempfile.TemporaryDirectory(prefix="lent-") as name:
        d = pathlib.Path(name)
        (d / "file").write_text("one\n")
        (d / "sub").mkdir()
        (d / "sub/deep").write_text("deep\n")
        (d / "run.sh").write_text("#!/bin/sh\necho ran\n")
        (d / "run.sh").chmod(0o755)
        (d / "link").symlink_to("file")
        yield d


def tree(d):
    return {str(p.relative_to(d)): (os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else None)
            for p in sorted(d.rglob("*"))}


def test_at_the_same_path_by_default(carrel, lent):
    assert carrel.sh(f"cat {lent}/file {lent}/link {lent}/sub/deep", "--dir", lent) == "one\none\ndeep\n"


def test_at_another_path(carrel, lent):
    assert carrel.sh("cat /mnt/here/file; ls -d /tmp/lent-* 2>/dev/null || echo hidden",
                     "--dir", f"{lent}:/mnt/here") == "one\nhidden\n"


def test_nothing_else_of_the_host_comes_along(carrel, lent):
    beside = lent.parent / (lent.name + "-beside")
    beside.mkdir()
    try:
        assert carrel.sh(f"ls {beside} 2>/dev/null || echo hidden", "--dir", lent) == "hidden\n"
    finally:
        beside.rmdir()


def test_it_is_the_working_directory_of_its_caller(carrel, lent):
    assert carrel.sh("pwd", "--dir", ".", cwd=lent) == f"{lent}\n"
    assert carrel.sh("pwd", "--dir", f"{lent}:/mnt/w", cwd=lent) == "/mnt/w\n"
    assert carrel.sh("pwd", "--dir", lent, cwd="/") == f"{lent}\n"
    assert carrel.sh("pwd", "--dir", ".", "--cwd", "/tmp", cwd=lent) == "/tmp\n"


def test_it_belongs_to_user(carrel, lent):
    out = carrel.sh(f"stat -c '%u:%g %a %n' . file sub sub/deep run.sh", "--dir", ".", cwd=lent)
    assert out == "1000:1000 700 .\n1000:1000 644 file\n1000:1000 755 sub\n1000:1000 644 sub/deep\n1000:1000 755 run.sh\n"


def test_programs_in_it_run(carrel, lent):
    assert carrel.sh("./run.sh", "--dir", ".", cwd=lent) == "ran\n"


@pytest.mark.parametrize("user", ["user", "root"])
def test_cow_lets_nothing_out(carrel, lent, user):
    before = tree(lent)
    done = carrel.run("-u", user, "--dir", lent, "--cwd", lent, "--", "sh", "-c",
                      "echo two > file; rm sub/deep; mkdir new; echo n > new/n; rm link; ls; cat file new/n")
    assert done.returncode == 0 and done.stdout == b"file\nnew\nrun.sh\nsub\ntwo\nn\n", done
    assert tree(lent) == before


def test_the_line_about_discarded_changes(carrel, lent):
    tail = b"discarded; use --keep to keep the machine, or --apply to review and copy them back\n"
    done = carrel.run("--dir", lent, "--cwd", lent, "--", "sh", "-c", "echo 2 > file; rm sub/deep; echo n > n")
    assert done.stderr == b"carrel: 3 files changed and " + tail
    done = carrel.run("--dir", lent, "--cwd", lent, "--", "sh", "-c", "echo 2 > file")
    assert done.stderr == b"carrel: 1 file changed and " + tail


def test_no_line_when_nothing_changed(carrel, lent):
    done = carrel.run("--dir", lent, "--", "sh", "-c", f"cat {lent}/file; touch /tmp/elsewhere")
    assert (done.stdout, done.stderr) == (b"one\n", b"")
    assert carrel.run("-q", "--dir", lent, "--", "touch", f"{lent}/x").stderr == b""


def test_changes_are_counted_in_json(carrel, lent):
    told = json.loads(carrel.run("--json", "--dir", lent, "--", "touch", f"{lent}/x", f"{lent}/y").stdout)
    assert told["changed_files"] == 2
    assert json.loads(carrel.run("--json", "--dir", lent, "--", "true").stdout)["changed_files"] == 0


def test_ro_refuses_every_change(carrel, lent):
    done = carrel.run("-u", "root", "--dir", f"{lent}:ro", "--cwd", lent, "--", "sh", "-c",
                      "cat file; echo x > file || touch new || rm file || chmod 777 file || mkdir d || ln -s a b")
    assert done.stdout == b"one\n" and done.returncode != 0
    assert done.stderr.count(b"Read-only file system") == 6


def test_rw_needs_to_be_called_unreviewed(carrel, lent):
    done = carrel.run("--dir", f"{lent}:rw", "--", "touch", f"{lent}/x")
    assert done.returncode == 125 and not (lent / "x").exists()
    assert b"without review" in done.stderr and b"--unreviewed" in done.stderr and done.stderr.count(b"\n") == 1


def test_rw_writes_through_as_the_owner(carrel, lent):
    done = carrel.run("--unreviewed", "--dir", f"{lent}:rw", "--cwd", lent, "--", "sh", "-c",
                      "echo two > file; echo new > new; mkdir d; rm sub/deep; stat -c %u file new d")
    assert done.returncode == 0, done
    assert set(done.stdout.split()) == {b"1000"}
    assert (lent / "file").read_text() == "two\n" and (lent / "new").read_text() == "new\n"
    assert not (lent / "sub/deep").exists()
    assert {(lent / n).stat().st_uid for n in ("file", "new", "d")} == {os.geteuid()}


@pytest.mark.skipif(ROOTLESS, reason="rootless one user owns all: no other owner to try")
@pytest.mark.parametrize("ids", [(0, 0), (1234, 42)])
def test_a_warning_names_whose_rights_a_writable_directory_gives(carrel, lent, ids):
    os.chown(lent, *ids)
    warning = b"rights of user %d and group %d," % ids
    for verb, rest in ("run", ["--", "true"]), ("new", []):
        for options, wanted in ([f"{lent}:rw", "--unreviewed"], True), ([f"{lent}:rw", "--unreviewed", "-q"], verb == "new"), ([lent], False):
            done = carrel(verb, "--dir", *options, *rest)
            assert done.returncode == 0 and (warning in done.stderr) == wanted, (verb, options, done)
            if verb == "new":
                assert carrel("rm", done.stdout.decode().strip()).returncode == 0


@pytest.mark.skipif(ROOTLESS, reason="rootless one user owns all: no other owner to try")
@pytest.mark.parametrize("owner", [1, 999, 1000, 1001, 30000, 65534, 65536, 70000, 2000000000])
def test_the_owner_appears_as_user_whoever_it_is(carrel, lent, owner):
    for p in [lent, *lent.rglob("*")]:
        os.lchown(p, owner, owner)
    lent.chmod(0o755)
    out = carrel.sh(f"stat -c %u:%g . file sub && echo 2 > file && mkdir d && touch d/new", "--unreviewed",
                    "--dir", f"{lent}:rw", "--cwd", lent)
    assert out == "1000:1000\n" * 3
    assert {p.lstat().st_uid for p in (lent / "file", lent / "d", lent / "d/new")} == {owner}
    assert carrel.sh("stat -c %u file; echo 3 > file; cat file", "--dir", lent, "--cwd", lent, "-q") == "1000\n3\n"


@pytest.mark.skipif(ROOTLESS, reason="rootless one user owns all: no other owner to try")
def test_root_of_the_host_is_not_root_in_a_lent_directory(carrel, lent):
    """A file of the host's root in somebody else's directory: nobody inside becomes its owner."""
    for p in [lent, *lent.rglob("*")]:
        os.lchown(p, 1234, 1234)
    secret = lent / "secret"
    secret.write_text("s")
    secret.chmod(0o600)
    done = carrel.run("--dir", lent, "--cwd", lent, "--", "cat", "secret")
    assert done.returncode == 1 and b"Permission denied" in done.stderr


@pytest.mark.parametrize("mode", ["ro", "cow"])
def test_sockets_pipes_and_devices_in_it_are_dead(carrel, lent, mode):
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(lent / "sock"))
    server.listen()
    os.mkfifo(lent / "fifo")
    reader = os.open(lent / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    if not ROOTLESS:
        os.mknod(lent / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.chmod(lent / "null", 0o666)
    try:
        script = ("import os, socket\ns = socket.socket(socket.AF_UNIX)\n"
                  "try: s.connect('sock'); print('connected')\nexcept OSError as e: print(type(e).__name__)\n"
                  "try: os.open('fifo', os.O_WRONLY | os.O_NONBLOCK); print('opened')\nexcept OSError as e: print(e.errno)\n")
        if not ROOTLESS:
            script += "try: os.open('null', os.O_RDWR); print('device')\nexcept OSError as e: print(e.errno)\n"
        out = carrel.run("-q", "-u", "root", "--dir", f"{lent}:{mode}", "--cwd", lent, "--", "python3", "-c", script).stdout
        want = ["ConnectionRefusedError", "6" if mode == "cow" else out.decode().split()[1]] + ([] if ROOTLESS else ["13"])
        assert out.decode().split() == want and out.decode().split()[1] in ("6", "30")
    finally:
        os.close(reader)
        server.close()


def test_the_positive_control_of_dead_sockets(carrel, lent):
    """With rw they pass, which is why rw has to be asked for."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(lent / "sock"))
    server.listen()
    script = "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('sock')\nprint('connected')"
    done = carrel.run("--unreviewed", "--dir", f"{lent}:rw", "--cwd", lent, "--", "python3", "-c", script)
    server.close()
    assert done.stdout == b"connected\n", done


def test_several_directories(carrel, lent):
    with tempfile.TemporaryDirectory(prefix="lent2-") as other:
        pathlib.Path(other, "o").write_text("other\n")
        out = carrel.sh(f"cat {lent}/file {other}/o /mnt/w/o; ls /home/user/nested/in", "--dir", lent, "--dir", f"{other}:ro",
                        "--dir", f"{other}:/mnt/w:cow", "--dir", f"{lent}:/home/user/nested/in")
        assert out == "one\nother\nother\nfile\nlink\nrun.sh\nsub\n"


def test_nested_places(carrel, lent):
    with tempfile.TemporaryDirectory(prefix="lent2-") as other:
        pathlib.Path(other, "o").write_text("other\n")
        assert carrel.sh("cat /w/file /w/sub/o", "--dir", f"{lent}:/w", "--dir", f"{other}:/w/sub") == "one\nother\n"


def test_a_directory_reached_through_a_link(carrel, lent):
    link = lent.parent / (lent.name + "-link")
    link.symlink_to(lent)
    try:
        assert carrel.sh(f"cat {lent}/file", "--dir", link) == "one\n"
    finally:
        link.unlink()


def test_names_and_contents_survive_odd_bytes(carrel, lent):
    name = os.fsencode(lent) + b"/od\xff d\n\x1b'\""
    pathlib.Path(os.fsdecode(name)).write_bytes(bytes(range(256)))
    script = "import os, sys\nn = [n for n in os.listdir(b'.') if b'\\xff' in n][0]\nsys.stdout.buffer.write(n + open(n, 'rb').read())"
    done = carrel.run("--dir", lent, "--cwd", lent, "--", "python3", "-c", script)
    assert done.stdout == os.path.basename(name) + bytes(range(256))


def test_renaming_a_directory_inside(carrel, lent):
    assert carrel.sh("mv sub moved && cat moved/deep && ls", "-q", "--dir", lent, "--cwd", lent) == \
        "deep\nfile\nlink\nmoved\nrun.sh\n"


def test_keep_leaves_the_changes_inside(carrel, lent):
    done = carrel.run("--keep", "--dir", lent, "--cwd", lent, "--", "sh", "-c", "echo kept > file")
    first, second = done.stderr.decode().splitlines()
    m = second.split()[6]
    kept = carrel("exec", m, "--", "cat", f"{lent}/file").stdout
    assert carrel("rm", m).returncode == 0 and kept == b"kept\n"
    assert first == f"carrel: 1 file changed in machine {m}" and (lent / "file").read_text() == "one\n"


def test_the_disk_limit_holds_in_a_lent_directory(carrel, lent, limits):
    limits("disk")
    done = carrel.run("-q", "--disk", "10M", "--dir", lent, "--cwd", lent, "--", "dd", "if=/dev/zero", "of=big", "bs=1M", "count=40")
    assert done.returncode == 1 and b"No space left on device" in done.stderr


@pytest.mark.parametrize("place", ["/", "/proc", "/proc/x", "/dev", "/dev/shm", "/sys", "/run/carrel", "/run", "/usr", "/usr/bin",
                                   "/etc", "/etc/ssl", "/bin", "/lib", "/lib64", "/sbin", "/home/..", "/home/../etc", "/a/./b",
                                   "/.", "//etc", "/x/..", "/.."])
def test_places_of_the_machine_itself_are_refused(carrel, lent, place):
    done = carrel.run("--dir", f"{lent}:{place}", "--", "true")
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1
    assert b"a grant cannot be placed at" in done.stderr and b"choose another" in done.stderr


def test_the_same_place_twice_is_refused(carrel, lent):
    done = carrel.run("--dir", f"{lent}:/w", "--dir", f"{lent}/sub:/w", "--", "true")
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1 and b"/w" in done.stderr


def test_the_store_is_never_lent(carrel):
    for host in (carrel.home, carrel.dir, carrel.home / "images", carrel.run_dir, carrel.run_dir / "boxes", "/"):
        done = carrel.run("--dir", f"{host}:/mnt/w:ro", "--", "ls", "/mnt/w")
        assert done.returncode == 125 and done.stdout == b"", (host, done)
        assert b"Carrel's own" in done.stderr and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("text, says", [
    ("/no/such/dir", b"No such file or directory"), ("/etc/passwd", b"Not a directory"), ("/tmp:rx", b"is not a path, ro, cow or rw"),
    ("/tmp:", b"is not a path, ro, cow or rw"), ("", b"No such file"), ("/tmp:relative:ro", b"is not a path, ro, cow or rw"), ("a" * 5000, b"too long")], ids=str.split("absent file mode empty-mode empty relative long"))
def test_what_is_no_directory(carrel, text, says):
    done = carrel.run("--dir", text, "--", "true")
    assert done.returncode == 125 and says in done.stderr and done.stderr.count(b"\n") == 1, done.stderr


def test_more_directories_than_can_be(carrel, lent):
    options = [w for i in range(17) for w in ("--dir", f"{lent}:/w/{i}")]
    done = carrel.run(*options, "--", "true")
    assert done.returncode == 125 and b"--dir" in done.stderr and done.stderr.count(b"\n") == 1
    assert carrel.sh("ls /w | wc -l", *options[:32]) == "16\n"


@pytest.mark.skipif(not ROOTLESS, reason="root may read every directory")
def test_a_directory_we_may_not_read(carrel, lent):
    (lent / "sub").chmod(0)
    done = carrel.run("--dir", lent / "sub", "--", "true")
    (lent / "sub").chmod(0o755)
    assert done.returncode == 125 and b"Permission denied" in done.stderr and done.stderr.count(b"\n") == 1


# --apply


def apply(carrel, lent, script, answer, *options, meanwhile=None, user="user"):
    t = Terminal(carrel, "run", "-u", user, "--dir", lent, "--apply", *options, "--", "sh", "-c", script + "; echo script-ended", cwd=lent)
    t.expect(b"script-ended")
    shown = t.expect(b"[y/N] ")
    if meanwhile:
        meanwhile()
    t.type(answer)
    status, rest = t.close()
    return status, shown.decode(errors="surrogateescape"), rest.decode(errors="surrogateescape")


def test_apply_shows_asks_and_copies(carrel, lent):
    status, shown, rest = apply(carrel, lent, "echo two > file; echo n > new; rm sub/deep", b"y\n")
    assert status == 0
    for line in ("M file", "-one", "+two", "A new", "+n", "D sub/deep", f"Copy 3 changes back to {lent}?"):
        assert line in shown, (line, shown)
    assert "3 of 3 changes copied back" in rest
    assert tree(lent) == {"file": b"two\n", "link": "file", "new": b"n\n", "run.sh": b"#!/bin/sh\necho ran\n", "sub": None}


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"no\n", b"\x04", b"xyz\n"])
def test_apply_without_a_yes_changes_nothing(carrel, lent, answer):
    before = tree(lent)
    status, _, rest = apply(carrel, lent, "echo two > file; rm -r sub", answer)
    assert status == 0 and tree(lent) == before and "copied back" not in rest


def test_apply_keeps_the_commands_status(carrel, lent):
    assert apply(carrel, lent, "echo 2 > file; trap 'exit 7' EXIT", b"y\n")[0] == 7
    assert (lent / "file").read_text() == "2\n"


def test_apply_leaves_alone_what_changed_here_meanwhile(carrel, lent):
    status, _, rest = apply(carrel, lent, "echo two > file; echo n > new", b"y\n",
                            meanwhile=lambda: (lent / "file").write_text("mine\n"))
    assert "'file' was changed on this host: it is not overwritten" in rest and "1 of 2 changes" in rest
    assert (lent / "file").read_text() == "mine\n" and (lent / "new").read_text() == "n\n"


def test_apply_of_deletions_goes_all_the_way_down(carrel, lent):
    (lent / "sub/more").mkdir()
    (lent / "sub/more/x").write_text("x")
    status, shown, rest = apply(carrel, lent, "rm -r sub", b"y\n")
    for line in ("D sub/", "D sub/deep", "D sub/more/", "D sub/more/x"):
        assert line in shown, shown
    assert not (lent / "sub").exists() and "4 of 4" in rest, rest


def test_apply_of_a_directory_made_anew(carrel, lent):
    """rm -r and mkdir: the kernel hides what was below, and so must the copy."""
    status, shown, rest = apply(carrel, lent, "rm -r sub; mkdir sub; echo f > sub/fresh", b"y\n")
    assert "D sub/deep" in shown and "A sub/fresh" in shown
    assert tree(lent / "sub") == {"fresh": b"f\n"}


def test_apply_of_a_moved_directory(carrel, lent):
    status, shown, rest = apply(carrel, lent, "mv sub moved", b"y\n")
    assert "D sub/deep" in shown and "A moved/deep" in shown
    assert not (lent / "sub").exists() and (lent / "moved/deep").read_text() == "deep\n"


def test_apply_of_new_directories_links_and_modes(carrel, lent):
    script = "mkdir -p a/b/c; echo x > a/b/c/x; ln -s ../file a/l; ln -sf /etc/passwd link; chmod 755 file; chmod 4755 run.sh"
    status, shown, rest = apply(carrel, lent, script, b"y\n")
    assert (lent / "a/b/c/x").read_text() == "x\n" and os.readlink(lent / "a/l") == "../file"
    assert os.readlink(lent / "link") == "/etc/passwd"
    assert stat.S_IMODE((lent / "file").stat().st_mode) == 0o755
    assert stat.S_IMODE((lent / "run.sh").stat().st_mode) == 0o755  # setuid never comes out


def test_apply_writes_what_was_shown(carrel, lent):
    """Whatever a kept machine does between the look and the answer; targets and modes are part of the look."""
    (lent / "sub/deep").chmod(0o600)

    def later():
        (m,) = carrel.machines()
        done = carrel("exec", "-u", "root", m, "--", "sh", "-c", f"cd {lent} && echo evil > file && ln -sfn /etc/shadow l && chmod 777 new d && "
                      "echo evil > sub/deep && echo evil > unseen && cat file && readlink l")
        assert done.stdout == b"evil\n/etc/shadow\n", done
    script = "echo two > file; chmod 755 file; ln -s file l; ln -s /etc out; echo n > new; mkdir d; rm link; echo shh > sub/deep"
    status, shown, rest = apply(carrel, lent, script, b"y\n", "--keep", meanwhile=later)
    carrel.clear()
    for line in ("M file  mode 644 -> 755  [executable]", "A l -> file", "A out -> /etc  [leads out of the tree]", "A new  mode 644",
                 "A d/  mode 755", "M sub/deep\r\n", "+shh"):
        assert line in shown, (line, shown)
    assert "7 of 7 changes" in rest and tree(lent) == {"file": b"two\n", "l": "file", "out": "/etc", "new": b"n\n", "d": None, "sub": None,
                                                      "sub/deep": b"shh\n", "run.sh": b"#!/bin/sh\necho ran\n"}, rest
    assert [stat.S_IMODE((lent / n).stat().st_mode) for n in ("file", "new", "d", "sub/deep")] == [0o755, 0o644, 0o755, 0o600]


class Failing:
    """The command line, with one system call that fails."""

    def __init__(self, carrel, call):
        self.env = carrel.env
        self.trace = ["strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:error=ENOSPC"]

    def popen(self, *args, env=(), **kw):
        return subprocess.Popen([*self.trace, PROGRAM, *map(str, args)], env={**self.env, **dict(env)}, **kw)


@pytest.mark.skipif(not shutil.which("strace"), reason="there is no strace")
@pytest.mark.parametrize("call", ["symlinkat", "renameat"])
def test_what_cannot_be_copied_back_takes_nothing_away(carrel, lent, call):
    before = tree(lent)
    carrel.sh("true")  # the daemon is not a child of this one
    status, shown, rest = apply(Failing(carrel, call), lent, "ln -sf sub file; ln -sfn run.sh link", b"y\n")
    assert "No space left" in rest and "0 of 2 changes" in rest and tree(lent) == before, rest


def test_apply_of_types_that_changed(carrel, lent):
    script = "rm -r sub; echo now-a-file > sub; rm file; mkdir file; echo in > file/in; rm link; echo plain > link"
    status, shown, rest = apply(carrel, lent, script, b"y\n")
    assert tree(lent) == {"file": None, "file/in": b"in\n", "link": b"plain\n", "run.sh": b"#!/bin/sh\necho ran\n",
                          "sub": b"now-a-file\n"}, rest


def test_apply_never_follows_links_of_the_host(carrel, lent):
    """A name that became a link here meanwhile is not a way out of the directory."""
    with tempfile.TemporaryDirectory() as other:
        def swap():
            (lent / "sub/deep").unlink()
            (lent / "sub").rmdir()
            (lent / "sub").symlink_to(other)
        apply(carrel, lent, "echo evil > sub/planted; echo evil > sub/deep", b"y\n", meanwhile=swap)
        assert os.listdir(other) == []


def test_apply_leaves_sockets_pipes_and_devices_inside(carrel, lent):
    apply(carrel, lent, "mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; echo n > n", b"y\n")
    assert sorted(os.listdir(lent)) == ["file", "link", "n", "run.sh", "sub"]


HOSTILE = ["\x1b[2J", "a\nM innocent", "tab\there", "del\x7f", "\u202egnp.exe", "\u009b31m", "\r", "\u2066x"]


def test_hostile_names_and_contents_are_shown_harmless(carrel, lent):
    script = "; ".join(f"printf x > '{n}'" for n in HOSTILE) + "; printf 'a\\033[31mb\\302\\233c\\342\\200\\256d\\r\\n' > file"
    status, shown, rest = apply(carrel, lent, script, b"y\n")
    ours = shown[:shown.index("Copy ")]
    # The terminal itself turns \n into \r\n; beyond that no control or direction character may pass.
    assert not [c for c in ours.replace("\r\n", "\n") if (c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f"
                or c in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f"]
    assert "M innocent" not in ours.replace("\r", "").split("\n")
    assert "\\x1b[2J" in ours and "\\x0aM innocent" in ours
    assert set(os.listdir(lent)) >= set(HOSTILE)


def test_hostile_names_in_error_lines_too(carrel, lent):
    name = "\x1b[31mred\nline"
    (lent / name).write_text("1")
    status, shown, rest = apply(carrel, lent, f"printf 2 > '{name}'", b"y\n", meanwhile=lambda: (lent / name).write_text("3"))
    assert "\x1b" not in rest and "not overwritten" in rest


def test_apply_with_nobody_to_ask(carrel, lent):
    done = carrel.run("--dir", lent, "--apply", "--", "sh", "-c", f"echo 2 > {lent}/file", start_new_session=True)
    assert done.returncode == 0 and b"there is no terminal to ask on: nothing was copied back" in done.stderr and (lent / "file").read_text() == "one\n"


def test_apply_with_nothing_to_apply(carrel, lent):
    done = carrel.run("--dir", lent, "--apply", "--", "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("options", [["--apply"], ["--apply", "--json", "--dir", "/srv"]])
def test_apply_that_makes_no_sense_is_refused(carrel, options):
    done = carrel.run(*options, "--", "true")
    assert done.returncode == 125 and b"--apply" in done.stderr and done.stderr.count(b"\n") == 1


@pytest.mark.skipif(ROOTLESS, reason="rootless one user owns all: no other owner to try")
def test_apply_keeps_owners(carrel, lent):
    for p in [lent, *lent.rglob("*")]:
        os.lchown(p, 1234, 1235)
    apply(carrel, lent, "echo 2 > file; mkdir d; echo n > d/n; ln -s x l", b"y\n")
    for name in ("file", "d", "d/n", "l"):
        st = (lent / name).lstat()
        assert (st.st_uid, st.st_gid) == (1234, 1235), name


@pytest.mark.skipif(ROOTLESS, reason="rootless one user owns all: no other owner to try")
def test_a_group_with_another_number(carrel, lent):
    for p in [lent, *lent.rglob("*")]:
        os.lchown(p, 1234, 100)
    assert carrel.sh("stat -c %u:%g file; touch new", "--unreviewed", "--dir", f"{lent}:rw", "--cwd", lent) == "1000:1000\n"
    st = (lent / "new").stat()
    assert (st.st_uid, st.st_gid) == (1234, 100)


@pytest.mark.skipif(ROOTLESS, reason="rootless the host's ids are not mapped")
def test_a_filesystem_that_cannot_map_ids_is_refused(carrel):
    done = carrel.run("--dir", "/sys/class:/mnt/x:ro", "--", "true")
    assert done.returncode == 125 and b"cannot map user ids" in done.stderr and done.stderr.count(b"\n") == 1, done


def test_a_large_file_comes_back_whole(carrel, lent):
    status, shown, _ = apply(carrel, lent, "seq 1 2000000 > big", b"y\n")
    assert "(0 bytes before, 14888896 after: too large to show)" in shown
    want = subprocess.run(["sh", "-c", "seq 1 2000000 | cksum"], stdout=subprocess.PIPE).stdout.split()[0]
    with open(lent / "big", "rb") as f:
        assert subprocess.run(["cksum"], stdin=f, stdout=subprocess.PIPE).stdout.split()[0] == want


@pytest.mark.parametrize("place, why", [("missing", "Read-only file system"), ("file", "is not a directory"),
                                        ("link/deep", "")])
def test_directory_that_cannot_be_mounted_is_named_every_time(carrel, lent, place, why):
    """Inside a read-only directory no mount point can be made."""
    with tempfile.TemporaryDirectory(prefix="other-") as other:
        dirs = ("--dir", f"{lent}:/mnt/a:ro", "--dir", f"{other}:/mnt/a/{place}")
        for words in [("run", *dirs, "--", "true"), ("new", *dirs)] * 5:
            done = carrel(*words)
            errors = done.stderr.decode()
            assert done.returncode == 125 and f"at '/mnt/a/{place}' in the machine" in errors and why in errors, errors
            assert "choose another path" in errors and errors.count("\n") == 1, errors


@pytest.mark.parametrize("first", ["parent", "child"])
def test_directory_inside_another_is_seen_in_any_order(carrel, lent, first):
    with tempfile.TemporaryDirectory(prefix="parent-") as parent:
        pathlib.Path(parent, "above").touch()
        dirs = ["--dir", f"{parent}:/mnt/a", "--dir", f"{lent}:/mnt/a/below/it"]
        if first == "child":
            dirs = dirs[2:] + dirs[:2]
        assert carrel.sh("ls /mnt/a; cat /mnt/a/below/it/file", *dirs) == "above\nbelow\none\n"


def test_two_directories_at_one_place_are_refused(carrel, lent):
    done = carrel("run", "--dir", f"{lent}:/mnt/a", "--dir", f"{lent}:/mnt/a/", "--", "true")
    assert done.returncode == 125 and b"same path '/mnt/a' in the machine" in done.stderr, done
