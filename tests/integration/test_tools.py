"""The guest's own tools, MSG_EXEC_TOOL: archives in and out, hashes, files replaced in one step."""
import hashlib
import io
import os
import pathlib
import random
import shutil
import socket
import stat
import sys
import tarfile
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from guestlink import *
from test_guest import GuestCase, wait_until

DONE, PARTLY, FAILED, UNMET = range(4)
ENOENT, EACCES, EEXIST, EISDIR, EINVAL, EXDEV = 2, 13, 17, 21, 22, 18


class ToolCase(GuestCase):
    def setUp(self):
        super().setUp()
        self.ids = iter(range(1, 10000))
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="carrel-tools-"))
        self.addCleanup(self.remove)

    def remove(self):
        """Archives may have brought directories that their owner cannot enter."""
        subprocess.run(["chmod", "-R", "u+rwx", str(self.dir)], stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", str(self.dir)], check=True)

    def feed(self, id, data, step=CHUNK):
        """All of data in the windows the guest grants."""
        at = consumed = 0
        while at < len(data):
            while at - consumed + step > (256 << 10):
                f = self.link.next(lambda f: f.id == id and f.type in ("CREDIT", "EXIT"))
                if f.type == "EXIT":
                    self.link.kept.append(f)
                    return
                consumed = f.unpack("<BQ")[1]
            self.link.stdin(id, at, data[at:at + step])
            at += step
        self.link.stdin(id, len(data), eof=True)

    def tool(self, *argv, stdin=None, **kw):
        """(status, stdout, stderr)"""
        id = next(self.ids)
        f = self.link.exec(id, [os.fspath(a) for a in argv], flags=TOOL, **kw)
        self.assertEqual(f.type, "EXEC_STARTED")
        self.feed(id, stdin or b"")
        out, err = self.link.output(id), self.link.output(id, "STDERR")
        e = self.link.exit(id)
        self.assertEqual(e.flags, 0, f"killed by signal {e.status}")
        return e.status, out, err.decode(errors="replace")

    def tar(self, path, want=DONE, **kw):
        status, out, err = self.tool("tar", path, **kw)
        self.assertEqual(status, want, err)
        return tarfile.open(fileobj=io.BytesIO(out)), err

    def untar(self, data, want=DONE, path=None, **kw):
        status, out, err = self.tool("untar", path or self.dir, stdin=data, **kw)
        self.assertEqual((status, out), (want, b""), err)
        return err


def archive(*members, format=tarfile.GNU_FORMAT, **kw):
    """Members are (name, content or None) or TarInfo objects."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format, **kw) as t:
        for m in members:
            info, content = (m, None) if isinstance(m, tarfile.TarInfo) else (tarfile.TarInfo(m[0]), m[1])
            if content is not None:
                info.size = len(content)
            t.addfile(info, io.BytesIO(content or b""))
    return out.getvalue()


def member(name, type=tarfile.REGTYPE, **kw):
    info = tarfile.TarInfo(name)
    info.type = type
    info.mode = 0o755 if type == tarfile.DIRTYPE else 0o644
    for key, value in kw.items():
        setattr(info, key, value)
    return info


class Starting(ToolCase):
    def test_an_unknown_tool_is_not_started(self):
        for argv in (["nonesuch"], [""], ["sh", "-c", "true"], ["/bin/tar"]):
            f = self.link.exec(1, argv, flags=TOOL)
            self.assertEqual((f.type, f.unpack("<II")), ("EXEC_FAILED", (ENOENT, 7)))

    def test_arguments_are_checked(self):
        for argv in (["tar"], ["untar"], ["sha256"], ["put"], ["put", "/x"], ["put", "/x", "any"],
                     ["tar", "relative"], ["untar", "."], ["sha256", "x"], ["put", "x", "any", "644"],
                     ["connect"], ["connect", "relative"]):
            status, _, err = self.tool(*argv)
            self.assertEqual((status, err.split()[0]), (FAILED, str(EINVAL)), argv)

    def test_a_tool_is_a_command_to_the_table_and_to_kill(self):
        self.link.exec(1, ["untar", str(self.dir)], flags=TOOL)
        self.assertEqual(self.link.table()[1]["flags"], TOOL)
        self.link.call("KILL", id=1)
        e = self.link.exit(1)
        self.assertEqual((e.flags & SIGNALED, e.status), (SIGNALED, 9))
        self.alive()

    @unittest.skipIf(os.geteuid() != 0, "needs to become another user")
    def test_a_tool_has_its_users_rights_only(self):
        secret = self.dir / "secret"
        secret.write_text("x")
        secret.chmod(0o600)
        self.dir.chmod(0o755)
        status, _, err = self.tool("sha256", secret, uid=1000, gid=1000)
        self.assertEqual((status, err.split()[0]), (FAILED, str(EACCES)))
        t, err = self.tar(self.dir, want=PARTLY, uid=1000, gid=1000)
        self.assertEqual((t.getnames(), err), ([], f"{EACCES} cannot open secret\n"))
        err = self.untar(archive(("f", b"x")), want=PARTLY, uid=1000, gid=1000)
        self.assertEqual(err, f"{EACCES} cannot create f\n")

    def test_the_guest_itself_is_out_of_reach(self):
        for argv in (["tar", "/proc/self"], ["tar", "/proc/1"], ["untar", "/proc/self"], ["tar", "/proc"],
                     ["sha256", "/proc/self/mem"], ["sha256", "/proc/self/environ"], ["sha256", "/proc/self/exe"],
                     ["put", "/proc/self/comm", "any", "644"]):
            status, out, err = self.tool(*argv, stdin=b"x")
            self.assertEqual((status, out), (FAILED, b""), argv)


class Packing(ToolCase):
    def test_a_tree_comes_out_as_it_is(self):
        (self.dir / "a/b").mkdir(parents=True)
        (self.dir / "a/b/file").write_bytes(os.urandom(200000))
        (self.dir / "a/b/file").chmod(0o754)
        os.utime(self.dir / "a/b/file", (1, 1234567890))
        (self.dir / "empty").touch()
        (self.dir / "link").symlink_to("a/b/file")
        os.link(self.dir / "a/b/file", self.dir / "hard")
        t, err = self.tar(self.dir)
        self.assertEqual(sorted(t.getnames()), ["a", "a/b", "a/b/file", "empty", "hard", "link"])
        for name in "a/b/file", "hard", "empty":
            self.assertEqual(t.extractfile(name).read(), (self.dir / name).read_bytes())
            self.assertTrue(t.getmember(name).isreg())
        m = t.getmember("a/b/file")
        self.assertEqual((m.mode, m.mtime, m.uid), (0o754, 1234567890, os.stat(self.dir).st_uid if os.geteuid() == 0 else 0))
        self.assertEqual(t.getmember("link").linkname, "a/b/file")
        self.assertTrue(t.getmember("a").isdir())

    def test_one_file_is_an_archive_of_one(self):
        (self.dir / "x").write_bytes(b"hello")
        t, _ = self.tar(self.dir / "x")
        self.assertEqual((t.getnames(), t.extractfile("x").read()), (["x"], b"hello"))

    def test_names_of_every_length(self):
        names = ["n" * n for n in (1, 99, 100, 101, 154, 155, 156, 255)]
        deep = "d" * 150 + "/" + "e" * 100 + "/" + "f" * 200
        (self.dir / deep).mkdir(parents=True)
        names.append(deep + "/" + "ü" * 100)
        for n in names:
            (self.dir / n).write_text(n)
        long = "t" * 300
        (self.dir / "to").symlink_to(long)
        t, _ = self.tar(self.dir)
        for n in names:
            self.assertEqual(t.extractfile(n).read().decode(), n)
        self.assertEqual(t.getmember("to").linkname, long)

    def test_odd_names(self):
        for n in ("new\nline", "sp ace", "-dash", "a=b", "...", "\\", "\x7f"):
            (self.dir / n).write_text(n)
        (self.dir / os.fsdecode(b"\xff\xfe")).write_text("bytes")
        t, _ = self.tar(self.dir)
        self.assertEqual(sorted(os.fsencode(n) for n in t.getnames()),
                         sorted(os.fsencode(n) for n in os.listdir(self.dir)))

    def test_a_sparse_file_beyond_8_gib_has_its_size(self):
        with open(self.dir / "big", "wb") as f:
            f.truncate(9 << 30)
        id = next(self.ids)
        self.link.exec(id, ["tar", str(self.dir)], flags=TOOL, window=1 << 20)
        f = self.link.next(lambda f: f.id == id and f.type == "STDOUT")
        info = tarfile.open(fileobj=io.BytesIO(f.payload[8:] + bytes(1024)), ignore_zeros=True).next()
        self.assertEqual((info.name, info.size), ("big", 9 << 30))
        self.link.call("KILL", id=id)

    def test_what_is_no_file_is_left_out_and_named(self):
        os.mkfifo(self.dir / "fifo")
        (self.dir / "ok").touch()
        t, err = self.tar(self.dir, want=PARTLY)
        self.assertEqual((t.getnames(), err), (["ok"], "0 not a file, directory or link: fifo\n"))

    def test_a_very_deep_tree_is_cut_and_said(self):
        fd = os.open(self.dir, os.O_RDONLY)
        for _ in range(300):
            os.mkdir("d", dir_fd=fd)
            next_fd = os.open("d", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = next_fd
        os.close(fd)
        t, err = self.tar(self.dir, want=PARTLY)
        self.assertIn("40 cannot open d/d/", err)
        self.assertEqual(len(t.getnames()), 256)

    def test_many_small_files(self):
        for i in range(3000):
            (self.dir / f"f{i}").write_bytes(b"%d" % i)
        t, _ = self.tar(self.dir)
        self.assertEqual(len(t.getnames()), 3000)
        self.assertEqual(t.extractfile("f2999").read(), b"2999")

    def test_files_that_change_meanwhile_do_not_break_the_archive(self):
        big = self.dir / "big"
        big.write_bytes(b"x" * (4 << 20))
        (self.dir / "other").write_bytes(b"whole")
        id = next(self.ids)
        self.link.exec(id, ["tar", str(self.dir)], flags=TOOL)
        self.link.next(lambda f: f.id == id and f.type == "STDOUT")  # under way, and waiting for credit
        big.write_bytes(b"")
        self.link.credit(id, 1, CHUNK)
        # The window holds 256 KiB: by then the file was open, and is now shorter than promised.
        out = bytearray(CHUNK)
        while True:
            f = self.link.next(lambda f: f.id == id and f.type == "STDOUT")
            out += f.payload[8:]
            if f.flags & EOF:
                break
            self.link.credit(id, 1, len(out))
        self.assertEqual(
            self.link.output(id, "STDERR"), b"0 file became shorter, filled with zeros: big\n"
        )
        self.assertEqual(self.link.exit(id).status, PARTLY)
        self.assertEqual(len(out) % 512, 0)

    def test_a_missing_path_fails(self):
        self.assertEqual(self.tool("tar", self.dir / "none")[0::2], (FAILED, f"{ENOENT} cannot open {self.dir}/none\n"))


class Unpacking(ToolCase):
    def tree(self):
        found = {}
        for root, dirs, files in os.walk(self.dir):
            for n in dirs + files:
                p = pathlib.Path(root) / n
                key = str(p.relative_to(self.dir))
                found[key] = ("->" + os.readlink(p) if p.is_symlink() else "dir" if p.is_dir() else p.read_bytes())
        return found

    def test_what_was_packed_unpacks_the_same(self):
        src = self.dir / "src"
        (src / "a/b").mkdir(parents=True)
        (src / "a/b/file").write_bytes(os.urandom(100001))
        (src / "a/b/file").chmod(0o640)
        os.utime(src / "a/b/file", (5, 1000000000))
        (src / ("l" * 180)).write_text("long")
        (src / "link").symlink_to("a/../a")
        (src / "a").chmod(0o555)
        os.utime(src / "a", (5, 900000000))
        _, out, _ = self.tool("tar", src)
        (self.dir / "dst").mkdir()
        self.untar(out, path=self.dir / "dst")
        for p in sorted(src.rglob("*")):
            q = self.dir / "dst" / p.relative_to(src)
            a, b = p.lstat(), q.lstat()
            self.assertEqual(a.st_mode, b.st_mode, p)
            if not p.is_symlink():
                self.assertEqual(int(a.st_mtime), int(b.st_mtime), p)
            if p.is_file():
                self.assertEqual(p.read_bytes(), q.read_bytes())
        (src / "a").chmod(0o755)
        (self.dir / "dst/a").chmod(0o755)

    def test_every_dialect(self):
        long, target = "x" * 90 + "/" + "y" * 200, "z" * 300
        for format in tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT:
            shutil.rmtree(self.dir)
            self.dir.mkdir()
            members = [("dir/plain", b"1"), member("sub/", tarfile.DIRTYPE, mode=0o700)]
            if format != tarfile.USTAR_FORMAT:
                members += [(long, b"2"), member("sym", tarfile.SYMTYPE, linkname=target)]
            self.untar(archive(*members, format=format))
            tree = self.tree()
            self.assertEqual((tree["dir/plain"], tree["sub"]), (b"1", "dir"))
            if format != tarfile.USTAR_FORMAT:
                self.assertEqual((tree[long], tree["sym"]), (b"2", "->" + target))

    def test_what_other_programs_make(self):
        src = self.dir / "src"
        src.mkdir()
        for i in range(50):
            (src / ("f" * i + str(i))).write_bytes(os.urandom(i * 100))
        os.link(src / "0", src / "zero")
        for flags in ([], ["--format=pax"], ["--format=v7"], ["--format=ustar"], ["--format=oldgnu"]):
            out = subprocess.run(["tar", "-C", str(src), "-c", *flags, "."], capture_output=True, check=True).stdout
            dst = self.dir / "dst"
            dst.mkdir()
            self.untar(out, path=dst)
            self.assertEqual(subprocess.run(["diff", "-r", str(src), str(dst)]).returncode, 0)
            self.assertEqual((dst / "0").stat().st_nlink, 2)
            shutil.rmtree(dst)

    def test_a_global_header_is_passed_over(self):
        self.untar(archive(("f", b"x"), format=tarfile.PAX_FORMAT, pax_headers={"comment": "of git archive"}))
        self.assertEqual(self.tree(), {"f": b"x"})

    def test_nothing_leaves_the_directory(self):
        outside = pathlib.Path(tempfile.mkdtemp(prefix="carrel-outside-"))
        self.addCleanup(shutil.rmtree, outside)
        (outside / "victim").write_text("untouched")
        (self.dir / "out").symlink_to(outside)
        sym = lambda name, to: member(name, tarfile.SYMTYPE, linkname=to)
        hard = lambda name, to: member(name, tarfile.LNKTYPE, linkname=to)
        rel = os.path.relpath(outside, self.dir)
        err = self.untar(archive(
            ("../up", b"x"), ("a/../../up", b"x"), ("a/..", b"x"), ("..", b"x"),
            ("out/victim", b"x"), ("out/new", b"x"), ("out/dir/new", b"x"), member("out/made", tarfile.DIRTYPE),
            sym("abs", str(outside)), ("abs/victim", b"x"), sym("rel", rel), ("rel/victim", b"x"),
            sym("one", "two"), sym("two", rel), ("one/victim", b"x"),
            hard("grab", "out/victim"), hard("grab2", "../" + outside.name + "/victim"), hard("grab3", str(outside) + "/victim"),
            ("/etc-of-mine", b"inside"), ("///x//./y", b"inside"), ("last", b"yes")), want=PARTLY)
        self.assertEqual(sorted(os.listdir(outside)), ["victim"])
        self.assertEqual((outside / "victim").read_text(), "untouched")
        self.assertEqual((outside / "victim").stat().st_nlink, 1)
        self.assertFalse((self.dir.parent / "up").exists())
        self.assertEqual((self.dir / "etc-of-mine").read_text(), "inside")
        self.assertEqual((self.dir / "x/y").read_text(), "inside")
        self.assertEqual((self.dir / "last").read_text(), "yes")
        self.assertEqual(err.count("\n"), 14, err)
        self.assertEqual(err.count(f"{EXDEV} cannot open the directory of"), 7, err)

    def test_links_that_stay_inside_are_followed(self):
        (self.dir / "real").mkdir()
        (self.dir / "alias").symlink_to("real")
        self.untar(archive(("alias/f", b"x"), ("alias/sub/g", b"y"), member("alias", tarfile.DIRTYPE)))
        self.assertEqual(self.tree()["real/f"], b"x")
        self.assertEqual(self.tree()["real/sub/g"], b"y")
        self.assertTrue((self.dir / "alias").is_symlink())

    def test_what_is_in_the_way_is_replaced_but_directories_stay(self):
        (self.dir / "file").write_text("old")
        (self.dir / "ro").write_text("old")
        (self.dir / "ro").chmod(0o400)
        (self.dir / "link").symlink_to("file")
        (self.dir / "dir").mkdir()
        (self.dir / "tofile").write_text("old")
        err = self.untar(archive(("file", b"new"), ("ro", b"new"), ("link", b"new"), ("dir", b"no"),
                                 member("tofile", tarfile.DIRTYPE), ("tofile/x", b"1")), want=PARTLY)
        self.assertEqual(err, f"{EISDIR} cannot create dir\n")
        tree = self.tree()
        self.assertEqual([tree[k] for k in ("file", "ro", "link", "dir", "tofile/x")],
                         [b"new", b"new", b"new", "dir", b"1"])

    def test_devices_and_fifos_are_left_out(self):
        err = self.untar(archive(member("null", tarfile.CHRTYPE, devmajor=1, devminor=3), member("p", tarfile.FIFOTYPE),
                                 member("b", tarfile.BLKTYPE), ("f", b"x")), want=PARTLY)
        self.assertEqual(
            (self.tree(), err.count("0 not a file, directory or link:")), ({"f": b"x"}, 3)
        )

    def test_setuid_is_stripped(self):
        self.untar(archive(member("s", mode=0o6755), member("d", tarfile.DIRTYPE, mode=0o3777)))
        self.assertEqual(stat.S_IMODE((self.dir / "s").stat().st_mode), 0o755)
        self.assertEqual(stat.S_IMODE((self.dir / "d").stat().st_mode), 0o1777)

    def test_broken_archives_fail(self):
        good = archive(("f", os.urandom(5000)))
        for data in (b"", b"x", b"\0" * 511, good[:511], good[:3000], good[:512 + 5120], b"x" * 10240,
                     bytes([good[0] ^ 1]) + good[1:]):
            status, _, err = self.tool("untar", self.dir, stdin=data)
            self.assertEqual(status, FAILED, data[:20])
            self.assertTrue(err)

    def test_flipped_bits_never_crash_it_nor_leave_the_directory(self):
        good = archive(("dir/file", b"x" * 1000), ("n" * 200, b"y"), member("s", tarfile.SYMTYPE, linkname="t" * 200),
                       member("h", tarfile.LNKTYPE, linkname="dir/file"), format=tarfile.PAX_FORMAT)
        rnd = random.Random(3)
        before = set(os.listdir("/tmp"))
        for i in range(150):
            data = bytearray(good)
            for _ in range(rnd.randint(1, 4)):
                data[rnd.randrange(len(data))] = rnd.randrange(256)
            for at in range(0, len(data) - 512, 512):  # let the checksum pass, so that more is reached
                if data[at + 257:at + 262] == b"ustar":
                    data[at + 148:at + 156] = b" " * 8
                    data[at + 148:at + 156] = b"%06o\0 " % sum(data[at:at + 512])
            status, _, _ = self.tool("untar", self.dir, stdin=bytes(data))
            self.assertIn(status, (DONE, PARTLY, FAILED))

    def test_a_name_that_is_too_long_does_no_harm(self):
        self.untar(archive(("n" * 300, b"x"), ("ok", b"y"), format=tarfile.PAX_FORMAT), want=PARTLY)
        self.untar(archive(("a/" * 3000 + "f", b"x"), format=tarfile.PAX_FORMAT), want=FAILED)
        self.untar(archive(("a/" * 2000 + "f", b"x"), ("ok2", b"y"), format=tarfile.PAX_FORMAT))
        self.assertEqual((self.dir / "ok2").read_text(), "y")
        subprocess.run(["rm", "-rf", str(self.dir)], check=True)
        self.dir.mkdir()

    def test_a_full_disk_is_said(self):
        if os.geteuid() != 0:
            self.skipTest("needs a mount")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", str(self.dir)], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", str(self.dir)])
        guest = type(self.guest)()
        self.addCleanup(guest.close)
        self.link = guest.link
        err = self.untar(archive(("f", os.urandom(3 << 20))), want=FAILED)
        self.assertEqual(err, "28 cannot write f\n")


class Hashing(ToolCase):
    def test_hash_and_size(self):
        data = os.urandom((3 << 20) + 17)
        (self.dir / "f").write_bytes(data)
        want = f"{hashlib.sha256(data).hexdigest()} {len(data)}\n".encode()
        self.assertEqual(self.tool("sha256", self.dir / "f"), (DONE, want, ""))

    def test_what_is_no_regular_file(self):
        os.mkfifo(self.dir / "p")
        for path, number in ((self.dir / "none", ENOENT), (self.dir, EISDIR), (self.dir / "p", EINVAL), ("/dev/zero", EINVAL)):
            status, out, err = self.tool("sha256", path)
            self.assertEqual((status, out, err.split()[0]), (FAILED, b"", str(number)))


def line(data):
    return f"{hashlib.sha256(data).hexdigest()} {len(data)}\n".encode()


class Connecting(ToolCase):
    def serve(self, talk):
        """The path of a socket; talk(connection) answers the one client."""
        path = self.dir / "s"
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen()
        self.addCleanup(server.close)

        def run():
            with server.accept()[0] as c:
                talk(c)

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        return path

    def test_bytes_go_both_ways_at_once(self):
        data = random.randbytes(200000)

        def echo(c):
            while piece := c.recv(50000):
                c.sendall(piece)

        self.assertEqual(self.tool("connect", self.serve(echo), stdin=data), (DONE, data, ""))

    def test_an_answer_comes_after_the_end_of_input(self):
        def answer(c):
            asked = b""
            while piece := c.recv(1000):
                asked += piece
            c.sendall(asked.upper() * 100000)

        self.assertEqual(self.tool("connect", self.serve(answer), stdin=b"abc"), (DONE, b"ABC" * 100000, ""))

    def test_the_server_may_close_first(self):
        self.assertEqual(self.tool("connect", self.serve(lambda c: c.sendall(b"bye"))), (DONE, b"bye", ""))

    def test_it_waits_for_a_server(self):
        late = threading.Timer(0.3, lambda: self.serve(lambda c: c.sendall(b"here")))
        late.start()
        self.assertEqual(self.tool("connect", self.dir / "s", "60000"), (DONE, b"here", ""))
        late.join()
        self.assertEqual(self.tool("connect", self.dir / "none", "50")[0], FAILED)

    def test_nobody_listens(self):
        path = self.serve(lambda c: None)
        self.tool("connect", path)
        (self.dir / "file").write_text("")
        for name, number in ("absent", 2), ("file", 111), ("a" * 120, 36):
            status, out, err = self.tool("connect", self.dir / name)
            self.assertEqual((status, out, err.split()[0]), (FAILED, b"", str(number)), name)


class Putting(ToolCase):
    def put(self, condition, data, mode="644", path=None, *more, **kw):
        status, out, err = self.tool("put", path or self.dir / "f", condition, mode, *more, stdin=data, **kw)
        left = [n for n in os.listdir(self.dir) if n.startswith(".carrel-put")]
        self.assertEqual(left, [])
        return status, out

    def test_a_new_file(self):
        data = os.urandom(300000)
        self.assertEqual(self.put("any", data, "640"), (DONE, line(data)))
        self.assertEqual((self.dir / "f").read_bytes(), data)
        self.assertEqual(stat.S_IMODE((self.dir / "f").stat().st_mode), 0o640)
        self.assertEqual(self.put("any", b"", "644", None, "sync"), (DONE, line(b"")))

    def test_mode_of_an_old_file_stays(self):
        (self.dir / "f").write_text("old")
        (self.dir / "f").chmod(0o751)
        before = (self.dir / "f").stat().st_ino
        self.put("any", b"new", "600")
        st = (self.dir / "f").stat()
        self.assertEqual((stat.S_IMODE(st.st_mode), (self.dir / "f").read_text()), (0o751, "new"))
        self.assertNotEqual(before, st.st_ino)

    def test_absent(self):
        self.assertEqual(self.put("absent", b"1")[0], DONE)
        self.assertEqual(self.put("absent", b"2"), (UNMET, line(b"1")))
        self.assertEqual((self.dir / "f").read_bytes(), b"1")

    def test_if_hash(self):
        h = lambda b: hashlib.sha256(b).hexdigest()
        self.assertEqual(self.put(h(b"1"), b"2"), (UNMET, b"absent\n"))
        self.put("any", b"1")
        self.assertEqual(self.put(h(b"0"), b"2"), (UNMET, line(b"1")))
        self.assertEqual(self.put(h(b"1"), b"2"), (DONE, line(b"2")))
        self.assertEqual(self.put("junk", b"3"), (UNMET, line(b"2")))

    def test_a_change_while_it_comes_in_is_noticed(self):
        f = self.dir / "f"
        for condition in hashlib.sha256(b"1").hexdigest(), "absent":
            f.unlink(missing_ok=True)
            if condition != "absent":
                f.write_bytes(b"1")
            id = next(self.ids)
            self.link.exec(id, ["put", str(f), condition, "644"], flags=TOOL)
            self.link.stdin(id, 0, b"mine")
            self.assertTrue(wait_until(lambda: any(n.startswith(".carrel-put") for n in os.listdir(self.dir))))
            f.write_bytes(b"theirs")
            self.link.stdin(id, 4, eof=True)
            self.assertEqual(self.link.output(id), line(b"theirs"))
            self.assertEqual(self.link.exit(id).status, UNMET)
            self.assertEqual(os.listdir(self.dir), ["f"])
            self.assertEqual(f.read_bytes(), b"theirs")

    def test_giving_up_leaves_nothing(self):
        id = next(self.ids)
        (self.dir / "f").write_text("old")
        self.link.exec(id, ["put", str(self.dir / "f"), "any", "644"], flags=TOOL)
        self.link.stdin(id, 0, b"half")
        self.assertTrue(wait_until(lambda: len(os.listdir(self.dir)) == 2))
        self.link.call("SIGNAL", struct.pack("<IB", 15, 0), id)
        self.assertEqual(self.link.exit(id).status, 143)
        self.assertEqual((os.listdir(self.dir), (self.dir / "f").read_text()), (["f"], "old"))

    def test_links_are_followed(self):
        (self.dir / "real").mkdir()
        (self.dir / "real/f").write_text("old")
        (self.dir / "f").symlink_to("real/f")
        self.assertEqual(self.put("any", b"new")[0], DONE)
        self.assertTrue((self.dir / "f").is_symlink())
        self.assertEqual((self.dir / "real/f").read_text(), "new")

    def test_what_cannot_be_replaced(self):
        (self.dir / "d").mkdir()
        os.mkfifo(self.dir / "p")
        for path, number in ((self.dir / "d", EISDIR), (self.dir / "p", EINVAL), (self.dir / "none/f", ENOENT), ("/", EINVAL)):
            status, _, err = self.tool("put", path, "any", "644", stdin=b"x")
            self.assertEqual((status, err.split()[0]), (FAILED, str(number)), path)

    def test_readers_see_old_or_new_and_nothing_between(self):
        f = self.dir / "f"
        versions = [bytes([65 + i]) * 200000 for i in range(3)]
        f.write_bytes(versions[0])
        seen, stop = set(), threading.Event()

        def read():
            while not stop.is_set():
                seen.add(f.read_bytes())

        reader = threading.Thread(target=read)
        reader.start()
        for i in range(20):
            self.put("any", versions[i % 3])
        stop.set()
        reader.join()
        self.assertLessEqual(seen, set(versions))
