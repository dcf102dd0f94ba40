"""carrel cp: files and directories in and out, byte for byte, with their modes; hostile names stay where they belong."""
import hashlib
import os
import re
import subprocess
import time

import pytest

from carrel import PROGRAM, Terminal
from patience import PATIENCE, sanitized


@pytest.fixture
def machine(carrel):
    m = carrel.keep()
    yield m
    carrel("rm", m)


@pytest.fixture
def box(carrel, machine):
    """A script in the machine; its stdout."""
    def run(script, user="user"):
        done = carrel("exec", "-u", user, machine, "--", "sh", "-c", script)
        assert done.returncode == 0, done
        return done.stdout
    return run


def ok(done):
    """One line says what was copied; bytes of the machine's choice cannot break it."""
    assert done.returncode == 0 and done.stdout == b"" and re.fullmatch(rb"carrel: copied [^\x00-\x1f\x7f]+\n", done.stderr), done


def refused(done, *says):
    assert done.returncode == 125 and done.stdout == b"" and done.stderr.count(b"\n") == 1, done
    assert all(s.encode() in done.stderr for s in says), done


def test_a_file_in_and_out(carrel, machine, box, tmp_path):
    data = os.urandom(3_000_001)
    (tmp_path / "f").write_bytes(data)
    (tmp_path / "f").chmod(0o640)
    ok(carrel("cp", tmp_path / "f", f"{machine}:/home/user/g"))
    assert box("stat -c '%a %U %s' g; sha256sum <g").decode().split()[:4] == ["640", "user", "3000001", hashlib.sha256(data).hexdigest()]
    box("chmod 701 g")
    ok(carrel("cp", f"{machine}:g", tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == data and (tmp_path / "back").stat().st_mode & 0o777 == 0o701
    assert sorted(p.name for p in tmp_path.iterdir()) == ["back", "f"]  # nothing aside


def test_into_a_directory_under_its_own_name(carrel, machine, box, tmp_path):
    (tmp_path / "name").write_text("x")
    ok(carrel("cp", "-r", tmp_path / "name", f"{machine}:"))
    ok(carrel("cp", tmp_path / "name", f"{machine}:/tmp/"))
    assert box("cat name /tmp/name") == b"xx"
    (tmp_path / "d").mkdir()
    ok(carrel("cp", f"{machine}:/tmp/name", tmp_path / "d"))
    assert (tmp_path / "d/name").read_text() == "x"


def test_a_file_that_was_there_is_replaced_with_its_mode(carrel, machine, box, tmp_path):
    (tmp_path / "f").write_text("new")
    (tmp_path / "f").chmod(0o755)
    box("echo old >f; chmod 600 f")
    ok(carrel("cp", tmp_path / "f", f"{machine}:f"))
    assert box("cat f; stat -c %a f") == b"new755\n"


@pytest.mark.parametrize("mask,file,folder", [("077", 0o600, 0o700), ("027", 0o640, 0o750), ("000", 0o666, 0o777)])
def test_what_comes_out_honours_the_umask(carrel, machine, box, tmp_path, mask, file, folder):
    """A machine cannot open a file of its owner's to others. The last row is the control."""
    box("mkdir -p open/sub; echo x >open/f; echo x >open/sub/g; chmod 666 open/f open/sub/g; chmod 777 open open/sub")
    for words in ((f"{machine}:open/f", tmp_path / "f"), (f"{machine}:open", tmp_path / "open")):
        ok(carrel("cp", *words, preexec_fn=lambda: os.umask(int(mask, 8))))
    modes = {str(p.relative_to(tmp_path)): p.stat().st_mode & 0o777 for p in tmp_path.rglob("*")}
    assert modes == {"f": file, "open": folder, "open/f": file, "open/sub": folder, "open/sub/g": file}


def test_streams(carrel, machine, box):
    ok(carrel("cp", "-", f"{machine}:s", stdin=b"\0\xffstream"))
    assert box("cat s") == b"\0\xffstream"
    done = carrel("cp", f"{machine}:s", "-")
    assert (done.returncode, done.stdout) == (0, b"\0\xffstream")


def test_a_directory_in_and_out(carrel, machine, box, tmp_path):
    src = tmp_path / "src"
    (src / "sub/deep").mkdir(parents=True)
    (src / "sub/deep/f").write_bytes(b"x" * 100_000)
    (src / "run").write_text("#!/bin/sh\n")
    (src / "run").chmod(0o750)
    (src / "link").symlink_to("sub/deep/f")
    (src / "empty").mkdir(mode=0o711)
    ok(carrel("cp", src, f"{machine}:/home/user"))
    assert box("cd src && stat -c '%a' run empty && readlink link && wc -c <sub/deep/f").split() == [b"750", b"711", b"sub/deep/f", b"100000"]
    ok(carrel("cp", src, f"{machine}:other"))
    assert box("ls other").split() == [b"empty", b"link", b"run", b"sub"]
    ok(carrel("cp", f"{machine}:src", tmp_path / "back"))
    assert subprocess.run(["diff", "-r", "--no-dereference", src, tmp_path / "back"]).returncode == 0
    assert (tmp_path / "back/run").stat().st_mode & 0o777 == 0o750 and os.readlink(tmp_path / "back/link") == "sub/deep/f"
    (tmp_path / "into").mkdir()
    ok(carrel("cp", f"{machine}:src", tmp_path / "into"))
    assert (tmp_path / "into/src/sub/deep/f").stat().st_size == 100_000


def test_names_of_odd_bytes(carrel, machine, box, tmp_path):
    src = tmp_path / "src"
    src.mkdir()
    names = [b"sp ace", b"new\nline", b"\xff\xfe", b"-rf", b"a:b", "ü".encode(), b"\x1b[31m"]
    for name in names:
        (src / os.fsdecode(name)).write_bytes(name)
    ok(carrel("cp", src, f"{machine}:odd"))
    ok(carrel("cp", f"{machine}:odd", tmp_path / "back"))
    assert {os.fsencode(p.name): p.read_bytes() for p in (tmp_path / "back").iterdir()} == {n: n for n in names}
    refused(carrel("cp", src / "-rf", f"{machine}:/tmp/\udcff"), "not UTF-8", "directory")
    for name in set(names) - {b"\xff\xfe"}:
        ok(carrel("cp", src / os.fsdecode(name), f"{machine}:/tmp/" + os.fsdecode(name)))
        done = carrel("cp", f"{machine}:/tmp/" + os.fsdecode(name), "-")
        assert (done.returncode, done.stdout) == (0, name), done


def test_links_out_of_the_directory_lead_nowhere_here(carrel, machine, box, tmp_path):
    """A machine that was taken over plants a link and writes through it: the control is that inside it works."""
    victim = tmp_path / "victim"
    victim.mkdir()
    box(f"mkdir -p bad && ln -s {victim} bad/a && ln -s .. bad/up")
    ok(carrel("cp", f"{machine}:bad", tmp_path / "got"))
    assert os.readlink(tmp_path / "got/a") == str(victim)  # the link itself came, nothing went through it
    box("rm bad/a bad/up; mkdir bad/a bad/up; echo owned >bad/a/f; echo owned >bad/up/f")
    done = carrel("cp", f"{machine}:bad/.", tmp_path / "got")
    assert not list(victim.iterdir()) and not (tmp_path / "f").exists(), done


def test_what_cannot_be_copied_is_said_and_the_rest_comes(carrel, machine, box, tmp_path):
    src = tmp_path / "src"
    src.mkdir()
    (src / "file").write_text("x")
    os.mkfifo(src / "pipe")
    done = carrel("cp", src, f"{machine}:part")
    assert done.returncode == 125 and b"pipe" in done.stderr and b"some files were not copied" in done.stderr, done
    assert box("cat part/file") == b"x"


@pytest.mark.parametrize("words, says", [
    (["cp"], "carrel cp takes two arguments: SOURCE and DESTINATION"), (["cp", "a"], "carrel cp takes two arguments: SOURCE and DESTINATION"), (["cp", "a", "b", "c"], "carrel cp takes two arguments: SOURCE and DESTINATION"), (["cp", "a", "b"], "neither SOURCE nor DESTINATION is in a machine"),
    (["cp", "a:x", "b:y"], "files cannot be copied directly between two machines"), (["cp", "/no/such", "M:x"], "/no/such"), (["cp", "M:/no/such", "."], "no such"),
    (["cp", "M:/etc/hostname", "/no/such/dir/f"], "/no/such/dir"), (["cp", "/etc/hostname", "M:/nowhere/f"], "nowhere"),
    (["cp", "M:/tmp", "-"], "it cannot be written to standard output"), (["cp", "/dev/null", "M:x"], "neither a regular file nor a directory"),
    (["cp", "/etc/hostname", "m-aaaaaaaaaaaa:x"], "machine 'm-aaaaaaaaaaaa' does not exist"), (["cp", "/etc/hostname", "M:gone/"], "does not exist"),
    (["cp", "/etc", "M:/etc/hostname"], "a directory cannot replace it"), (["cp", "/etc/hostname", "M:/root/x"], "enied"),
])
def test_bad_words(carrel, machine, words, says):
    done = carrel(*[w.replace("M:", machine + ":") for w in words])
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1 and says.lower() in done.stderr.decode().lower(), done


@pytest.mark.skipif(sanitized(PROGRAM), reason="the sanitizer's own memory is more than the limit")
def test_a_large_file_in_constant_memory(carrel, machine, tmp_path):
    size = 300 << 20
    with open(tmp_path / "big", "wb") as f:
        f.truncate(size)

    def limited(*words, **kw):
        return subprocess.run(["sh", "-c", "ulimit -v 60000; exec \"$@\"", "sh", PROGRAM, *map(str, words)], env=carrel.env,
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=100 * PATIENCE, **kw)

    done = limited("cp", tmp_path / "big", f"{machine}:big")
    assert done.returncode == 0, done
    with open(tmp_path / "back", "wb") as out:
        assert limited("cp", f"{machine}:big", "-", stdout=out).returncode == 0
    assert (tmp_path / "back").stat().st_size == size


def test_progress_on_a_terminal_when_it_takes_long(carrel, machine, tmp_path):
    t = Terminal(carrel, "cp", "-", f"{machine}:slow")
    for _ in range(8):
        t.type(b"line\n")
        time.sleep(0.25 * PATIENCE)
    t.type(b"\x04")
    status, text = t.close()
    assert status == 0 and b"/s" in text, text
    quick = Terminal(carrel, "cp", f"{machine}:slow", str(tmp_path / "q"))
    status, text = quick.close()
    assert status == 0 and b"/s" not in text and text.count(b"\n") == 1, text
