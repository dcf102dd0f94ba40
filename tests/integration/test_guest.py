"""The guest, really run: commands, streams, trees, reconnects, files, and bad manners."""
import hashlib
import os
import pathlib
import random
import signal
import socket
import struct
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import guestbox
import guestlink
from guestbox import Cgroups, Guest
from guestlink import *
from patience import PATIENCE, clock

ENOENT, EACCES, ENXIO, EINVAL, ELOOP, ENOTEMPTY, EISDIR, EEXIST = 2, 13, 6, 22, 40, 39, 21, 17
CHILD = 0  # index of errno in EXEC_FAILED


def wait_until(check, seconds=5):
    end = clock() + seconds
    while not check():
        if clock() > end:
            return False
        time.sleep(0.01)
    return True


class GuestCase(unittest.TestCase):
    kw = {}

    @classmethod
    def setUpClass(cls):
        reason = guestbox.why_not()
        if reason:
            raise unittest.SkipTest(reason)

    def setUp(self):
        self.guest = Guest(**self.kw)
        self.addCleanup(self.guest.close)
        self.link = self.guest.link

    def sh(self, id, script, link=None, **kw):
        return (link or self.link).run(id, ["sh", "-c", script], **kw)

    def refused(self, code, call, *args, **kw):
        with self.assertRaises(Refused) as caught:
            call(*args, **kw)
        self.assertEqual(caught.exception.code or caught.exception.number, code)

    def alive(self):
        self.assertEqual(self.link.call("PING").type, "OK")


class Commands(GuestCase):
    def test_output_and_status_are_the_commands(self):
        e, out = self.sh(1, "cat; echo err >&2; exit 7", stdin=b"in\n")
        self.assertEqual((out, e.status, e.flags), (b"in\n", 7, 0))
        self.assertEqual(self.link.output(1, "STDERR"), b"err\n")
        self.assertGreater(e.wall_us, 0)
        self.assertGreater(e.max_rss_kb, 100)

    def test_a_signal_is_told_as_a_signal(self):
        e, _ = self.sh(1, "kill -SEGV $$")
        self.assertEqual((e.flags & SIGNALED, e.status), (SIGNALED, signal.SIGSEGV))

    def test_cpu_time_comes_from_the_kernel(self):
        e, _ = self.sh(1, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
        self.assertGreater(e.user_us, 20000)

    def test_what_cannot_start_says_at_which_step(self):
        for id, (argv, kw, want) in enumerate([
            (["nonesuch"], {}, (ENOENT, 7)),
            (["/nonesuch"], {}, (ENOENT, 7)),
            (["/etc/passwd"], {}, (EACCES, 7)),
            ([""], {}, (ENOENT, 7)),
            (["true"], dict(cwd="/nonesuch"), (ENOENT, 6)),
            (["true"], dict(rlimits=[(99, 1, 1)]), (EINVAL, 4)),
        ], 1):
            f = self.link.run(id, argv, **kw)
            self.assertEqual((f.type, f.unpack("<II")), ("EXEC_FAILED", want), argv)
        self.assertEqual(self.link.table(), {})
        self.assertEqual(self.sh(1, "exit 3")[0].status, 3)

    def test_environment_directory_and_descriptors_are_exactly_what_was_given(self):
        _, out = self.link.run(1, ["env"], env=["A=1", "PATH=/usr/bin", "B="])
        self.assertEqual(sorted(out.split()), [b"A=1", b"B=", b"PATH=/usr/bin"])
        self.assertEqual(self.link.run(2, ["pwd"], cwd="/usr/lib")[1], b"/usr/lib\n")
        self.assertEqual(self.link.run(3, ["ls", "/proc/self/fd"])[1].split(),
                         [b"0", b"1", b"2", b"3"])  # 3 is the listing itself

    def test_path_is_searched_as_execvp_does(self):
        d = self.guest.dir
        pathlib.Path(d, "script").write_text("echo no-shebang $1\n")
        os.chmod(d + "/script", 0o755)
        pathlib.Path(d, "refused").write_text("")
        env = [f"PATH=/nonesuch:{d}:/usr/bin"]
        self.assertEqual(self.link.run(1, ["script", "x"], env=env)[1], b"no-shebang x\n")
        self.assertEqual(self.link.run(2, ["refused"], env=env).unpack("<II"), (EACCES, 7))

    def test_signal_state_is_clean(self):
        _, out = self.link.run(1, ["cat", "/proc/self/status"])
        sets = [x.split()[1] for x in out.splitlines() if x[:6] in (b"SigBlk", b"SigIgn", b"SigCgt")]
        self.assertEqual(sets, [b"0" * 16] * 3)

    @unittest.skipUnless(os.geteuid() == 0, "needs several uids")
    def test_user_groups_and_pipes_belong_to_the_user(self):
        _, out = self.sh(1, "id -u; id -g; id -G; echo ok > /dev/stdout", uid=1000, gid=1001,
                         groups=[4, 27])
        self.assertEqual(out, b"1000\n1001\n1001 4 27\nok\n")
        _, out = self.link.run(2, ["grep", "CapEff", "/proc/self/status"], uid=1000, gid=1000)
        self.assertEqual(out.split()[1], b"0" * 16)

    def test_rlimits_are_only_lowered(self):
        nofile = 7
        _, out = self.sh(1, "ulimit -Sn; ulimit -Hn", rlimits=[(nofile, 64, 128)])
        self.assertEqual(out, b"64\n128\n")
        _, out = self.sh(2, "ulimit -Hn")
        most = out
        _, out = self.sh(3, "ulimit -Hn", rlimits=[(nofile, 1 << 40, 1 << 40)])
        self.assertEqual(out, most)

    def test_passed_descriptors_are_used_as_they_are(self):
        r, w = os.pipe()
        null = os.open("/dev/null", os.O_RDWR)
        self.link.exec(1, ["sh", "-c", "echo out; echo err >&2; exit 5"], fds=[null, w, w],
                       stdio=(FD, FD, FD))
        os.close(w)
        os.close(null)
        self.assertEqual(self.link.exit(1).status, 5)
        self.assertEqual(os.read(r, 100), b"out\nerr\n")
        self.assertEqual(os.read(r, 100), b"")  # nobody else holds the pipe
        os.close(r)

    def test_stderr_may_follow_stdout(self):
        e, out = self.sh(1, "echo a; echo b >&2", stdio=(NULL, PIPE, SAME))
        self.assertEqual(out, b"a\nb\n")

    def test_quiet_exec_says_only_how_it_ended(self):
        self.link.send("EXEC", exec_payload(["true"], flags=QUIET, stdio=(NULL,) * 3), 1, 55)
        self.assertEqual(self.link.next().type, "EXIT")

    def test_many_at_once(self):
        for id in range(1, 101):
            self.link.exec(id, ["sh", "-c", f"sleep 0.2; exit {id}"], stdio=(NULL,) * 3)
        self.assertEqual([self.link.exit(id).status for id in range(1, 101)], list(range(1, 101)))
        self.assertEqual(self.link.table(), {})

    def test_the_table_is_bounded(self):
        for id in range(1, 257):
            self.link.exec(id, ["true"], stdio=(NULL,) * 3)
        self.refused("limit", self.link.exec, 999, ["true"], stdio=(NULL,) * 3)
        for id in range(1, 257):
            self.link.exit(id)
        self.assertEqual(self.link.run(999, ["true"], stdio=(NULL,) * 3)[0].status, 0)

    def test_a_duplicate_id_is_refused_until_acknowledged(self):
        self.link.exec(1, ["sleep", "0.2"])
        self.refused("exists", self.link.exec, 1, ["true"])
        e = self.link.exit(1, ack=False)
        self.assertEqual(e.status, 0)
        self.refused("exists", self.link.exec, 1, ["true"])
        self.link.output(1), self.link.output(1, "STDERR")
        self.link.call("EXIT_ACK", id=1)
        self.assertEqual(self.link.run(1, ["true"])[0].status, 0)

    def test_timeout_kills_and_says_so(self):
        start = clock()
        e, _ = self.sh(1, "sleep 30 & sleep 30", timeout_ms=300)
        self.assertLess(clock() - start, 3)
        self.assertTrue(e.flags & TIMED_OUT and e.flags & SIGNALED)
        self.assertEqual(e.status, signal.SIGKILL)

    def test_signals_reach_the_process_or_its_group(self):
        self.link.exec(1, ["sleep", "30"])
        self.link.call("SIGNAL", struct.pack("<IB", signal.SIGTERM, 0), 1)
        self.assertEqual(self.link.exit(1, ack=False).status, signal.SIGTERM)
        self.refused("gone", self.link.call, "SIGNAL", struct.pack("<IB", 15, 0), 1)
        self.refused("not_found", self.link.call, "SIGNAL", struct.pack("<IB", 15, 0), 77)
        self.link.exec(2, ["sh", "-c", "trap 'exit 9' INT; sleep 30 & wait"])
        time.sleep(0.2 * PATIENCE)
        self.link.call("SIGNAL", struct.pack("<IB", signal.SIGINT, 1), 2)
        self.assertEqual(self.link.exit(2).status, 9)
        self.refused(EINVAL, self.link.call, "SIGNAL", struct.pack("<IB", 99, 0),
                     self.link.exec(3, ["sleep", "1"]).id)

    def test_exit_is_told_although_a_background_child_holds_the_pipe(self):
        self.link.exec(1, ["sh", "-c", f"(sleep {0.4 * PATIENCE}; echo late) & echo early"])
        e = self.link.exit(1)
        self.assertLess(e.wall_us, 300000 * PATIENCE)
        self.assertEqual(self.link.table()[1]["state"], 3)
        self.assertEqual(self.link.output(1), b"early\nlate\n")
        self.link.output(1, "STDERR")
        self.assertTrue(wait_until(lambda: self.link.table() == {}))

    def test_busy_is_the_kernels_view(self):
        self.assertEqual(self.link.busy(), (0, 0, 0, 0))
        self.link.exec(1, ["sleep", "30"], stdio=(NULL,) * 3)
        self.assertEqual(self.link.busy(), (1, 1, 0, 0))
        self.link.call("KILL", id=1)
        self.assertEqual(self.link.exit(1, ack=False).flags, SIGNALED | KILLED)
        self.assertEqual(self.link.busy(), (0, 0, 1, 0))
        self.link.call("EXIT_ACK", id=1)
        self.assertEqual(self.link.busy(), (0, 0, 0, 0))
        self.link.run(2, ["sh", "-c", "setsid sleep 1 &"], stdio=(NULL,) * 3)
        self.assertEqual(self.link.busy()[0], 1)

    def test_orphans_are_reaped(self):
        self.sh(1, "for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.05 &) ; done", stdio=(NULL,) * 3)
        self.assertTrue(wait_until(lambda: self.link.busy()[0] == 0))
        _, out = self.sh(2, "cat /proc/[0-9]*/stat | grep -c ') Z ' || true")
        self.assertEqual(out, b"0\n")

    def test_pid_1_cannot_be_signalled_or_looked_into(self):
        _, out = self.sh(1, """
            for s in TERM INT HUP USR1 ALRM CHLD PIPE KILL STOP QUIT SEGV; do kill -$s 1; done
            cat /proc/1/environ /proc/1/maps 2>&1 | head -c 1; ls /proc/1/fd 2>&1 | head -1""",
            uid=1000 if os.geteuid() == 0 else NONE)
        self.alive()
        if os.geteuid() == 0:
            self.assertIn(b"ermission denied", out)

    def test_a_megabyte_of_arguments_is_the_limit_and_arrives(self):
        big = "x" * 100000
        _, out = self.sh(1, 'echo ${#A}', env=["A=" + big, "PATH=/bin"])
        self.assertEqual(out, b"100000\n")
        argv = ["sh", "-c", "echo $#", "x"] + ["y"] * 60000
        self.assertEqual(self.link.run(2, argv)[1], b"60000\n")


class Terminals(GuestCase):
    def read_until(self, id, text, got=b""):
        while text not in got:
            f = self.link.next(lambda f: f.type == "STDOUT" and f.id == id)
            got += f.payload[8:]
        return got

    def test_a_command_has_a_terminal_of_the_given_size(self):
        self.link.exec(1, ["sh", "-c", "tty; stty size; read x; stty size; echo got $x"],
                       stdio=(PTY,) * 3, rows=30, cols=100)
        got = self.read_until(1, b"30 100\r\n")
        self.assertTrue(got.startswith(b"/dev/pts/"))
        self.link.call("RESIZE", struct.pack("<HH", 44, 122), 1)
        self.link.stdin(1, 0, b"hello\n")
        self.assertIn(b"44 122\r\ngot hello\r\n", self.read_until(1, b"got hello\r\n"))
        self.assertEqual(self.link.exit(1).status, 0)

    def test_the_interrupt_character_interrupts_and_end_of_input_ends(self):
        self.link.exec(1, ["sh", "-c", "trap 'echo INT; exit 4' INT; echo ready; while :; do sleep 0.05; done"],
                       stdio=(PTY,) * 3)
        self.read_until(1, b"ready")
        self.link.stdin(1, 0, b"\x03")
        self.read_until(1, b"INT")
        self.assertEqual(self.link.exit(1).status, 4)
        self.link.exec(2, ["sh", "-c", "cat >/dev/null; echo over"], stdio=(PTY,) * 3)
        self.link.stdin(2, 0, eof=True)
        self.read_until(2, b"over")
        self.assertEqual(self.link.exit(2).status, 0)

    def test_a_signal_to_the_group_goes_to_the_foreground(self):
        self.link.exec(1, ["sh", "-c", "set -m; echo ready; sleep 30; echo woken $?"],
                       stdio=(PTY,) * 3)
        self.read_until(1, b"ready")
        time.sleep(0.2 * PATIENCE)
        self.link.call("SIGNAL", struct.pack("<IB", signal.SIGTERM, 1), 1)
        self.read_until(1, b"woken 143")
        self.assertEqual(self.link.exit(1).status, 0)

    def test_resize_without_a_terminal_is_refused(self):
        self.link.exec(1, ["sleep", "1"])
        self.refused("invalid", self.link.call, "RESIZE", struct.pack("<HH", 1, 1), 1)

    def test_much_terminal_output_is_whole(self):
        self.link.exec(1, ["seq", "1", "200000"], stdio=(PTY,) * 3)
        out = self.link.output(1)
        self.assertEqual(out.replace(b"\r\n", b"\n"),
                         b"".join(b"%d\n" % i for i in range(1, 200001)))
        self.assertEqual(self.link.exit(1).status, 0)


class Streams(GuestCase):
    def test_64_mib_arrive_whole(self):
        n = 64 << 20
        script = (f"import hashlib,os,random\nr=random.Random(5)\nh=hashlib.sha256()\n"
                  f"for i in range({n >> 16}):\n d=r.randbytes(1<<16)\n h.update(d)\n"
                  f" os.write(1,d)\nos.write(2,h.hexdigest().encode())")
        self.link.exec(1, [sys.executable, "-c", script], stdio=(NULL, PIPE, PIPE))
        h, got, told = hashlib.sha256(), 0, 0
        while True:
            f = self.link.next(lambda f: f.type == "STDOUT")
            self.assertEqual(struct.unpack_from("<Q", f.payload)[0], got)
            h.update(f.payload[8:])
            got += len(f.payload) - 8
            if f.flags & EOF:
                break
            if got - told >= 65536:
                self.link.credit(1, 1, got)
                told = got
        self.assertEqual(got, n)
        self.assertEqual(self.link.output(1, "STDERR").decode(), h.hexdigest())
        self.assertEqual(self.link.exit(1).status, 0)

    def test_without_credit_only_one_window_is_sent(self):
        self.link.exec(1, ["cat", "/dev/zero"], stdio=(NULL, PIPE, NULL), window=8192)
        got = 0
        while got < 8192:
            got += len(self.link.next(lambda f: f.type == "STDOUT").payload) - 8
        self.assertEqual(got, 8192)
        self.assertTrue(self.link.silent_for(0.3, lambda f: f.type == "STDOUT"))
        self.link.credit(1, 1, 4096)
        got = len(self.link.next(lambda f: f.type == "STDOUT").payload) - 8
        self.assertLessEqual(got, 4096)

    def test_a_slow_reader_blocks_only_itself(self):
        self.link.exec(1, ["cat", "/dev/zero"], stdio=(NULL, PIPE, NULL))
        time.sleep(0.2 * PATIENCE)
        for id in range(2, 12):
            e, out = self.sh(id, "echo fine")
            self.assertEqual((e.status, out), (0, b"fine\n"))
        row = self.link.table()[1]
        self.assertLessEqual(row["out_produced"], 256 << 10)

    def test_a_connection_that_never_reads_blocks_only_itself(self):
        guest = Guest(listen=True, linger=1)
        self.addCleanup(guest.close)
        deaf, other = guest.connect(), guest.connect()
        deaf.sock.setblocking(False)
        request = struct.pack("<IIQI", NONE, NONE, 0, CHUNK) + s("/bin/sh")
        try:
            while True:
                deaf.sock.send(HEAD.pack(len(request), TYPES["READ"], 0, 0, 1) + request)
        except BlockingIOError:
            pass
        start = clock()
        for id in range(1, 20):
            self.assertEqual(other.run(id, ["true"])[0].status, 0)
        self.assertLess(clock() - start, 5)

    def test_stdin_is_back_pressured_and_whole(self):
        data = random.Random(1).randbytes(3 << 20)
        self.link.exec(1, ["sh", "-c", "sleep 0.3; sha256sum"], window=65536)
        sent = allowed = 0
        allowed = 65536
        while sent < len(data):
            n = min(CHUNK, allowed - sent, len(data) - sent)
            if n == 0:
                f = self.link.next(lambda f: f.type == "CREDIT")
                stream, consumed = f.unpack("<BQ")
                self.assertEqual(stream, 0)
                allowed = consumed + 65536
                continue
            self.link.stdin(1, sent, data[sent:sent + n])
            sent += n
        self.link.stdin(1, sent, eof=True)
        self.assertEqual(self.link.output(1).split()[0].decode(), hashlib.sha256(data).hexdigest())
        self.assertEqual(self.link.exit(1).status, 0)

    def test_stdin_beyond_the_window_or_with_a_gap_breaks_the_connection(self):
        guest = Guest(listen=True, linger=1)
        self.addCleanup(guest.close)
        for offset, n in ((0, 5000), (1, 1)):
            link = guest.connect()
            link.exec(1, ["sleep", "30"], window=4096)
            link.stdin(1, offset, b"x" * n)
            with self.assertRaises(Closed):
                link.next()
            other = guest.connect()
            other.call("KILL", id=1)
            other.call("ATTACH", struct.pack("<QQ", 0, 0), 1)
            other.exit(1)

    def test_input_for_a_command_that_does_not_read_is_dropped(self):
        self.link.exec(1, ["true"], window=4096)
        e = self.link.exit(1, ack=False)
        for i in range(100):
            self.link.stdin(1, i * 1000, b"x" * 1000)
        self.alive()
        self.assertEqual(e.status, 0)


class Port(GuestCase):
    """A byte stream that cannot carry descriptors: the way into a vm."""

    kw = dict(ctl=False, port=True, linger=1)

    def test_everything_but_descriptors_works(self):
        self.assertEqual(self.link.features & 1, 0)
        e, out = self.sh(1, "cat; exit 3", stdin=b"over the wire")
        self.assertEqual((e.status, out), (3, b"over the wire"))
        self.link.exec(2, ["head", "-c", "3000000", "/dev/zero"], stdio=(NULL, PIPE, NULL))
        self.assertEqual(len(self.link.output(2)), 3000000)
        self.assertEqual(self.link.exit(2).status, 0)
        self.assertEqual(self.link.read("/etc/hostname"), pathlib.Path("/etc/hostname").read_bytes())

    def test_a_frame_that_claims_descriptors_breaks_it(self):
        self.link.send("EXEC", exec_payload(["true"], stdio=(FD, NULL, NULL)), 1, 1, flags=1)
        with self.assertRaises(Closed):
            self.link.next()


class Reconnects(GuestCase):
    kw = dict(ctl=False, listen=True, linger=1)

    def test_exits_are_kept_until_acknowledged(self):
        a = self.guest.connect()
        for id in (1, 2, 3):
            a.exec(id, ["sh", "-c", f"sleep 0.1; exit {id}"], stdio=(NULL,) * 3)
        a.sock.close()
        time.sleep(0.4 * PATIENCE)
        b_ = self.guest.connect()
        self.assertEqual(b_.incarnation, a.incarnation)
        table = b_.table()
        self.assertEqual({k: (v["state"], v["status"], v["attached"]) for k, v in table.items()},
                         {1: (2, 1, 0), 2: (2, 2, 0), 3: (2, 3, 0)})
        b_.call("ATTACH", struct.pack("<QQ", 0, 0), 2)
        self.assertEqual(b_.exit(2, ack=False).status, 2)
        b_.call("EXIT_ACK", id=1)
        b_.sock.close()
        c = self.guest.connect()
        self.assertEqual(sorted(c.table()), [2, 3])

    def test_output_goes_on_without_loss(self):
        a = self.guest.connect()
        script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"
        a.exec(1, ["sh", "-c", script], stdio=(NULL, PIPE, NULL), window=16384)
        got = b""
        for _ in range(30):
            links = self.guest.connect()
            links.call("ATTACH", struct.pack("<QQ", len(got), 0), 1)
            for _ in range(3):
                f = links.next(lambda f: f.type == "STDOUT")
                self.assertEqual(struct.unpack_from("<Q", f.payload)[0], len(got))
                got += f.payload[8:]
                links.credit(1, 1, len(got))
                if f.flags & EOF:
                    break
            last = f.flags & EOF
            if last:
                break
            links.sock.close()
        if not last:
            links = self.guest.connect()
            links.call("ATTACH", struct.pack("<QQ", len(got), 0), 1)
            while not last:
                f = links.next(lambda f: f.type == "STDOUT")
                self.assertEqual(struct.unpack_from("<Q", f.payload)[0], len(got))
                got += f.payload[8:]
                links.credit(1, 1, len(got))
                last = f.flags & EOF
        self.assertEqual(got, b"".join(b"line %d\n" % i for i in range(20000)))
        self.assertEqual(links.exit(1).status, 0)

    def test_a_gap_is_never_papered_over(self):
        a = self.guest.connect()
        a.exec(1, ["sh", "-c", "echo 0123456789; sleep 30"], stdio=(NULL, PIPE, NULL))
        a.next(lambda f: f.type == "STDOUT")
        a.credit(1, 1, 5)
        a.call("PING")
        a.sock.close()
        b_ = self.guest.connect()
        self.refused("invalid", b_.call, "ATTACH", struct.pack("<QQ", 3, 0), 1)
        self.refused("invalid", b_.call, "ATTACH", struct.pack("<QQ", 12, 0), 1)
        self.refused("not_found", b_.call, "ATTACH", struct.pack("<QQ", 0, 0), 2)
        b_.call("ATTACH", struct.pack("<QQ", (1 << 64) - 1, (1 << 64) - 1), 1)
        f = b_.next(lambda f: f.type == "STDOUT")
        self.assertEqual(f.payload, struct.pack("<Q", 5) + b"56789\n")

    def test_garbage_closes_only_its_connection(self):
        good = self.guest.connect()
        good.exec(1, ["sh", "-c", "sleep 1; exit 6"], stdio=(NULL,) * 3)
        hello = HEAD.pack(16, 1, 0, 0, 0) + struct.pack("<IIQ", VERSION, 0, 0)
        cases = [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\0" * 64, hello + hello,
                 HEAD.pack(0, TYPES["PING"], 0, 0, 1),
                 HEAD.pack(16, 1, 0, 0, 9) + struct.pack("<IIQ", VERSION + 1, 0, 0),
                 hello + HEAD.pack(2, TYPES["EXEC"], 0, 1, 1) + b"xx",
                 hello + HEAD.pack(0, TYPES["EXIT"], 0, 1, 1),
                 hello + HEAD.pack(0, TYPES["PING"], 1, 0, 1),
                 hello + HEAD.pack(0, 999, 0, 0, 1),
                 hello + HEAD.pack(len(exec_payload([])), TYPES["EXEC"], 0, 5, 1) + exec_payload([]),
                 hello + HEAD.pack(len(exec_payload(["a"], stdio=(9, 1, 1))), TYPES["EXEC"], 0, 5, 1)
                 + exec_payload(["a"], stdio=(9, 1, 1))]
        cases += [hello + random.Random(i).randbytes(4096) for i in range(50)]
        for data in cases:
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(self.guest.path)
            sock.settimeout(5 * PATIENCE)
            sock.sendall(data)
            try:
                while sock.recv(65536):
                    pass
            except ConnectionResetError:
                pass
            except TimeoutError:
                self.assertIn(data, cases[12:])  # random bytes may announce a frame to come
            sock.close()
        self.assertEqual(good.exit(1).status, 6)

    def test_any_payload_under_any_type_is_survived(self):
        # Some of it will make sense, so it happens in a root of its own.
        guest = Guest(spawn=True, listen=True, linger=1)
        self.addCleanup(guest.close)
        root = os.open(guest.dir, os.O_PATH | os.O_DIRECTORY)
        self.addCleanup(os.close, root)
        guest.spawner.call("SWITCH_ROOT", fds=[root])
        rng = random.Random(7)
        seeds = [b"", struct.pack("<Q", 1), exec_payload(["true"], stdio=(NULL,) * 3),
                 struct.pack("<IIII", NONE, NONE, 7, 0o755) + s("/nonesuch/x"),
                 struct.pack("<III", NONE, NONE, 0) + s("/nonesuch/a") + s("/nonesuch/b"),
                 struct.pack("<IIIIQ", NONE, NONE, 0, 0, 0) + s("/nonesuch/x") + b"data"]
        hello = HEAD.pack(16, 1, 0, 0, 0) + struct.pack("<IIQ", VERSION, 0, 0)
        for type_ in sorted(set(TYPES.values()) - {TYPES["SHUTDOWN"]}):
            for _ in range(12):
                payload = bytearray(rng.choice(seeds))
                for _ in range(rng.randrange(4)):
                    if payload:
                        payload[rng.randrange(len(payload))] = rng.choice((0, 1, 255, 128))
                sock = socket.socket(socket.AF_UNIX)
                sock.connect(guest.path)
                sock.sendall(hello + HEAD.pack(len(payload), type_, rng.choice((0, 0, EOF)),
                                               rng.randrange(3), 1) + payload)
                sock.shutdown(socket.SHUT_WR)
                sock.settimeout(5 * PATIENCE)
                try:
                    while sock.recv(65536):
                        pass
                except ConnectionResetError:
                    pass
                sock.close()
        self.assertEqual(guest.link.call("PING").type, "OK")

    def test_too_many_connections_and_descriptors_are_refused(self):
        links = [self.guest.connect() for _ in range(16)]
        ninth = socket.socket(socket.AF_UNIX)
        ninth.connect(self.guest.path)
        self.assertEqual(ninth.recv(1), b"")
        links.pop().sock.close()
        self.assertTrue(wait_until(lambda: self.can_connect(links)))
        null = os.open("/dev/null", os.O_RDWR)
        link = links[-1]
        try:
            for _ in range(3):
                link.sock.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                             array.array("i", [null] * 20))])
        except (BrokenPipeError, ConnectionResetError):
            pass
        os.close(null)
        with self.assertRaises((Closed, ConnectionResetError)):
            link.next()
        self.assertEqual(links[0].call("PING").type, "OK")
        guest_fds = os.listdir(f"/proc/{self.guest.pid()}/fd") if os.geteuid() == 0 else []
        self.assertLess(len(guest_fds), 40)

    def can_connect(self, links):
        try:
            links.append(self.guest.connect())
            return True
        except (Closed, ConnectionResetError, BrokenPipeError):
            return False

    def test_a_host_that_speaks_an_older_version_is_answered_with_ours(self):
        """The host greets with the oldest version that it speaks, and decides by the guest's own."""
        for greeting, answer in ((VERSION, VERSION), (VERSION - 1, VERSION), (VERSION + 1, None), (0, None)):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(self.guest.path)
                link = Link(sock, hello=False)
                link.send("HELLO", struct.pack("<IIQ", greeting, 0, 0))
                try:
                    f = link.next()
                    got = f.unpack("<IIQ")[0] if f.type == "HELLO" else None
                except Closed:
                    got = None
                self.assertEqual((greeting, got), (greeting, answer))

    def test_frames_may_be_pipelined_and_cut_anywhere(self):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(self.guest.path)
        p = exec_payload(["sh", "-c", "exit 8"], flags=QUIET, stdio=(NULL,) * 3)
        data = (HEAD.pack(16, 1, 0, 0, 0) + struct.pack("<IIQ", VERSION, 0, 0) +
                HEAD.pack(len(p), TYPES["EXEC"], 0, 1, 1) + p)
        for i in range(len(data)):
            sock.send(data[i:i + 1])
        link = Link(sock, hello=False)
        self.assertEqual(link.next().type, "HELLO")
        self.assertEqual(link.exit(1).status, 8)


class Endings(GuestCase):
    def setUp(self):
        pass

    def start(self, **kw):
        guest = Guest(**kw)
        self.addCleanup(guest.close)
        return guest

    def test_a_run_box_ends_with_its_creator(self):
        guest = self.start(listen=True)
        guest.link.exec(1, ["sleep", "60"])
        guest.link.sock.close()
        self.assertEqual(guest.process.wait(5 * PATIENCE), 0)

    def test_a_lingering_box_does_not(self):
        guest = self.start(listen=True, linger=1)
        guest.link.exec(1, ["sleep", "60"])
        guest.link.sock.close()
        time.sleep(0.2 * PATIENCE)
        link = guest.connect()
        self.assertEqual(link.table()[1]["state"], 1)
        link.send("SHUTDOWN")
        self.assertEqual(guest.process.wait(5 * PATIENCE), 0)

    def test_the_spawner_may_say_later_that_it_lingers(self):
        for _ in range(20):  # its word came first, whatever the guest looks at first
            guest = self.start(spawn=True, listen=True)
            guest.spawner.send("LINGER")
            guest.link.sock.close()
            link = guest.connect()
            self.assertEqual(link.call("PING").type, "OK")
            link.send("SHUTDOWN")
            self.assertEqual(guest.process.wait(5), 0)
        guest = self.start(spawn=True)
        self.refused("denied", guest.link.call, "LINGER")
        guest.link.sock.close()
        self.assertEqual(guest.process.wait(5), 0)

    def test_the_deadline_ends_it_with_nobody_connected(self):
        start = time.monotonic()
        guest = self.start(listen=True, linger=1, deadline_ms=600)
        guest.link.exec(1, ["sh", "-c", "trap '' TERM; sleep 60"])
        guest.link.sock.close()
        self.assertEqual(guest.process.wait(5 * PATIENCE), 0)
        self.assertGreater(time.monotonic() - start, 0.55)

    def test_the_deadline_can_be_moved_by_the_spawner_only(self):
        guest = self.start(spawn=True, linger=1, deadline_ms=int(500 * PATIENCE))
        self.refused("denied", guest.link.call, "DEADLINE", struct.pack("<Q", 99999))
        guest.spawner.call("DEADLINE", struct.pack("<Q", 0))
        time.sleep(0.8 * PATIENCE)
        self.assertEqual(guest.link.call("PING").type, "OK")
        guest.spawner.call("DEADLINE", struct.pack("<Q", 100))
        self.assertEqual(guest.process.wait(5 * PATIENCE), 0)

    def test_a_later_spawner_comes_in_by_its_own_door(self):
        guest = self.start(spawn=True, listen=True, admin=True, linger=1, deadline_ms=60000)
        guest.spawner.sock.close()
        self.refused("denied", guest.connect().call, "DEADLINE", struct.pack("<Q", 1))
        admin = guest.connect(path=guest.path + ".admin")
        self.assertTrue(admin.features & 4)
        admin.call("DEADLINE", struct.pack("<Q", 100))
        self.assertEqual(guest.process.wait(5 * PATIENCE), 0)

    @unittest.skipUnless(os.geteuid() == 0, "needs chroot")
    def test_the_root_is_switched_only_when_nothing_else_lives(self):
        guest = self.start(spawn=True, linger=0)
        root = os.open("/usr", os.O_PATH | os.O_DIRECTORY)
        self.addCleanup(os.close, root)
        guest.link.exec(1, ["sleep", "60"], stdio=(NULL,) * 3)
        self.refused("busy", guest.link.call, "SWITCH_ROOT", fds=[root])
        self.refused("busy", guest.spawner.call, "SWITCH_ROOT", fds=[root])
        guest.link.call("KILL", id=1)
        guest.link.exit(1)
        guest.link.call("SWITCH_ROOT", fds=[root])
        names = {e["name"] for e in guest.link.list("/")[1]}
        self.assertIn("bin", names)
        self.refused(ENOENT, guest.link.stat, "/usr/bin")
        with self.assertRaises(Closed):
            guest.spawner.call("SWITCH_ROOT")

    def test_an_unknown_argument_is_a_bad_start(self):
        import subprocess
        for arg in ("x=1", "ctl=99", "ctl=-1", "ctl=x", "ctl"):
            self.assertEqual(subprocess.run([guestbox.GUEST, arg]).returncode, 125, arg)

    def test_a_clone_gets_a_new_identity(self):
        import subprocess
        guest = self.start(spawn=True)
        payload = s("clone-7") + s("0123456789abcdef" * 2) + struct.pack("<I", 32) + b"s" * 32
        self.refused("denied", guest.link.call, "CLONE_ID", payload)
        with self.assertRaises(Closed):
            guest.spawner.call("CLONE_ID", s("x") + s("../../etc") + struct.pack("<I", 0))
        guest.link.call("PING")


class NoDescriptorsLeft(GuestCase):
    kw = dict(listen=True, files=20)

    def cpu_ticks(self):
        return sum(int(x) for x in pathlib.Path(f"/proc/{self.guest.pid()}/stat").read_text()
                   .rpartition(")")[2].split()[11:13])

    def test_commands_and_connections_are_refused_and_nothing_spins(self):
        failed = [f for f in (self.link.exec(id, ["sleep", "60"]) for id in range(1, 12))
                  if f.type == "EXEC_FAILED"]
        self.assertTrue(failed)
        self.assertEqual({f.unpack("<II") for f in failed}, {(24, 3)})  # EMFILE, stdio
        sockets = []
        for _ in range(12):
            sockets.append(socket.socket(socket.AF_UNIX))
            sockets[-1].connect(self.guest.path)
        before = self.cpu_ticks()
        time.sleep(0.5)
        self.assertLess(self.cpu_ticks() - before, 10)
        self.alive()
        for row in self.link.table():
            self.link.call("KILL", id=row)
            self.link.exit(row)
            self.link.output(row), self.link.output(row, "STDERR")
        for sock in sockets:
            sock.close()
        self.assertEqual(self.link.run(99, ["true"])[0].status, 0)


class Trees:
    """What both kinds of cgroup must do; the classes below say which."""

    kind = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        reason = Cgroups.why_not(cls.kind)
        if reason:
            raise unittest.SkipTest(reason)

    def setUp(self):
        self.cgroups = Cgroups(self.kind, 3)
        self.addCleanup(self.cgroups.close)
        self.guest = Guest(spawn=True, spares=self.cgroups.spares)
        self.addCleanup(self.guest.close)
        self.link = self.guest.link

    ESCAPE = "(setsid sh -c 'setsid sleep 61 & sleep 62' >/dev/null 2>&1 &) ; "

    def test_a_command_lives_in_its_cgroup_and_kill_takes_all_of_it(self):
        self.assertTrue(self.link.features & 2)
        self.link.exec(1, ["sh", "-c", self.ESCAPE + "sleep 60"], stdio=(NULL,) * 3)
        self.assertTrue(wait_until(lambda: len(self.cgroups.procs(0)) >= 4))
        self.link.call("KILL", id=1)
        self.assertEqual(self.link.exit(1).status, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: self.cgroups.procs(0) == []))
        self.assertEqual(self.link.busy(), (0, 0, 0, 0))

    def test_what_a_command_left_behind_is_known_and_can_be_killed(self):
        self.link.run(1, ["sh", "-c", self.ESCAPE + "true"], stdio=(NULL,) * 3)
        self.assertEqual(self.link.table()[1]["state"], 3)
        self.refused("exists", self.link.exec, 1, ["true"])
        self.link.call("KILL", id=1)
        self.assertTrue(wait_until(lambda: self.link.table() == {}))
        self.assertEqual(self.link.busy()[0], 0)

    def test_kill_left_cleans_up_by_itself(self):
        self.link.run(1, ["sh", "-c", self.ESCAPE + "true"], stdio=(NULL,) * 3, flags=KILL_LEFT)
        self.assertTrue(wait_until(lambda: self.link.busy()[0] == 0))
        self.assertTrue(wait_until(lambda: self.link.table() == {}))

    def test_a_fork_bomb_is_killed_whole(self):
        script = "while (1) { fork }"
        nproc = 6
        uid = 61234 if os.geteuid() == 0 else NONE
        self.link.exec(1, ["perl", "-e", script], stdio=(NULL,) * 3, uid=uid,
                       rlimits=[(nproc, 60, 60)])
        self.assertTrue(wait_until(lambda: len(self.cgroups.procs(0)) > 10))
        self.link.call("KILL", id=1)
        self.link.exit(1)
        self.assertTrue(wait_until(lambda: self.cgroups.procs(0) == [], 20))
        self.assertTrue(wait_until(lambda: self.link.busy()[0] == 0, 20))

    def test_timeout_kills_the_tree(self):
        self.link.exec(1, ["sh", "-c", self.ESCAPE + "sleep 60"], stdio=(NULL,) * 3, timeout_ms=300)
        self.assertTrue(self.link.exit(1).flags & TIMED_OUT)
        self.assertTrue(wait_until(lambda: self.link.busy()[0] == 0))

    def test_other_commands_survive_a_kill(self):
        self.link.exec(1, ["sleep", "60"], stdio=(NULL,) * 3)
        self.link.exec(2, ["sh", "-c", "sleep 0.5; exit 4"], stdio=(NULL,) * 3)
        self.link.call("KILL", id=1)
        self.assertEqual(self.link.exit(2).status, 4)

    def test_spares_are_reused_and_more_are_asked_for(self):
        for id in range(1, 21):
            self.assertEqual(self.link.run(id, ["true"], stdio=(NULL,) * 3)[0].status, 0)
        for id in (101, 102, 103):
            self.link.exec(id, ["sleep", "60"], stdio=(NULL,) * 3)
        self.link.send("EXEC", exec_payload(["sh", "-c", "exit 5"], stdio=(NULL,) * 3), 104, 999)
        self.guest.spawner.next(lambda f: f.type == "SPARES_WANT")
        self.assertTrue(self.link.silent_for(0.3, lambda f: f.id == 104))
        more = self.cgroups.spare(3) + self.cgroups.spare(4)
        self.guest.spawner.send("SPARES", struct.pack("<BB", 2, len(more) // 2), fds=more)
        self.assertEqual(self.link.exit(104).status, 5)
        for id in (101, 102, 103):
            self.link.call("KILL", id=id)
            self.link.exit(id)
        self.assertTrue(wait_until(lambda: self.link.busy()[0] == 0))

    def test_short_commands_ask_for_no_spares(self):
        for _ in range(20):  # on a slow host a command may take longer than the guest waits
            guest = Guest(spawn=True, spares=self.cgroups.spares[:1])
            for id in (1, 2, 3):
                self.assertEqual(guest.link.run(id, ["true"], stdio=(NULL,) * 3)[0].status, 0)
            asked = not guest.spawner.silent_for(0.1, lambda f: f.type == "SPARES_WANT")
            guest.close()
            if not asked:
                return
        self.fail("each command asked")

    def test_a_long_command_asks_for_one_spare(self):
        guest = Guest(spawn=True, spares=self.cgroups.spares[:1])
        self.addCleanup(guest.close)
        guest.link.exec(1, ["sleep", "60"], stdio=(NULL,) * 3)
        self.assertEqual(guest.spawner.next(lambda f: f.type == "SPARES_WANT").payload[0], 1)

    def test_without_an_answer_the_limit_is_told(self):
        for id in (1, 2, 3):
            self.link.exec(id, ["sleep", "60"], stdio=(NULL,) * 3)
        start = clock()
        self.refused("limit", self.link.exec, 4, ["true"])
        self.assertLess(clock() - start, 15)  # it waits ten seconds for a spawner that comes back
        self.alive()
        self.link.call("KILL", id=1)
        self.link.exit(1)
        self.assertTrue(wait_until(lambda: self.cgroups.procs(0) == []))
        self.assertEqual(self.link.run(4, ["true"], stdio=(NULL,) * 3)[0].status, 0)

    def test_a_cgroup_that_is_gone_is_tried_only_once(self):
        self.cgroups.dirs.pop(1).rmdir()
        f = self.link.exec(1, ["true"], stdio=(NULL,) * 3)
        self.assertEqual((f.type, f.unpack("<II")[1]), ("EXEC_FAILED", 2))
        for id in range(2, 8):
            self.assertEqual(self.link.run(id, ["true"], stdio=(NULL,) * 3)[0].status, 0)

    def test_only_the_spawner_may_hand_in_spares(self):
        null = os.open("/dev/null", os.O_RDWR)
        self.link.send("SPARES", struct.pack("<BB", 1, 2), tag=77, fds=[null, null])
        f = self.link.next(lambda f: f.tag == 77)
        self.assertEqual((f.type, struct.unpack_from("<I", f.payload)[0]),
                         ("ERROR", CODES.index("denied")))
        os.close(null)


class TreesV1(Trees, GuestCase):
    kind = "v1"


class TreesV2(Trees, GuestCase):
    kind = "v2"


class Limits(GuestCase):
    """v1: only the working thread is in the limit cgroups, so a memory kill spares pid 1."""

    def setUp(self):
        self.dirs, fds = [], []
        if not os.access("/sys/fs/cgroup/memory/tasks", os.W_OK):
            self.skipTest("no cgroup v1 memory controller to write to")
        for name in ("memory", "pids"):
            d = pathlib.Path(f"/sys/fs/cgroup/{name}/carrel-test-{os.getpid()}")
            d.mkdir()
            self.addCleanup(d.rmdir)
            self.dirs.append(d)
            fds.append(os.open(d / "tasks", os.O_WRONLY | os.O_CLOEXEC))
        (self.dirs[0] / "memory.limit_in_bytes").write_text(str(32 << 20))
        (self.dirs[1] / "pids.max").write_text("20")
        self.guest = Guest(tasks=fds)
        self.addCleanup(self.guest.close)
        for fd in fds:
            os.close(fd)
        self.link = self.guest.link

    def test_memory_and_process_limits_hold_and_the_guest_survives(self):
        self.assertTrue(self.link.features & 8)
        eat = "a=[]\nwhile True: a.append(b'x'*(1<<20))"
        self.link.exec(1, [sys.executable, "-c", eat], stdio=(NULL,) * 3)
        e = self.link.exit(1)
        self.assertEqual((e.flags & SIGNALED, e.status), (SIGNALED, signal.SIGKILL))
        self.alive()
        _, out = self.sh(2, "i=0; while [ $i -lt 40 ]; do sleep 1 & i=$((i+1)); done; wait; echo $?")
        self.assertEqual(self.sh(3, "echo fine")[1], b"fine\n")
        end = clock() + 20
        while (self.dirs[1] / "pids.current").read_text() != "1\n":  # the last sleepers end
            self.assertLess(clock(), end)
            time.sleep(0.02)
        (self.dirs[1] / "pids.max").write_text("2")
        self.assertEqual(self.link.exec(4, ["sleep", "1000"], stdio=(NULL,) * 3).type, "EXEC_STARTED")
        self.assertEqual(self.link.exec(5, ["true"]).unpack("<II"), (11, 1))  # EAGAIN, fork
        self.refused(11, self.link.path, "REMOVE", self.full_dir(), RECURSIVE)
        self.link.call("KILL", id=4)
        self.link.exit(4)
        self.assertEqual(self.sh(5, "exit 2")[0].status, 2)
        leader, worker = sorted(
            int(t) for t in os.listdir(f"/proc/{self.guest.pid()}/task"))
        self.assertEqual((self.dirs[0] / "tasks").read_text().split(), [str(worker)])
        self.assertEqual(self.memory_cgroup(leader), self.memory_cgroup("self"))

    def full_dir(self):
        d = pathlib.Path(self.guest.dir, "full")
        d.mkdir()
        (d / "x").write_text("")
        return str(d)

    @staticmethod
    def memory_cgroup(pid):
        lines = pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        return [x for x in lines if ":memory:" in x]


@unittest.skipUnless(os.geteuid() == 0, "only root may see the memory of the guest")
class Idle(GuestCase):
    """An idle guest keeps few pages, whatever it did before."""

    KEPT_KB = 48  # a page more or less: which variables share a page is up to the linker

    def own_kb(self):
        rows = pathlib.Path(f"/proc/{self.guest.pid()}/smaps_rollup").read_text().splitlines()
        return next(int(r.split()[1]) for r in rows if r.startswith("Anonymous:"))

    def work(self, id):
        path = self.guest.dir + "/file"
        self.link.write(path, b"x" * 60000)
        self.assertEqual(self.link.read(path), b"x" * 60000)
        words = [str(i) for i in range(20000)]
        e, out = self.link.run(id, ["sh", "-c", "cat; echo $# $1 ${20000}", "sh"] + words, stdin=b"in\n",
                               env=["PATH=/usr/bin"] + [f"V{i}=" for i in range(2000)])
        self.assertEqual((out, e.status), (b"in\n20000 0 19999\n", 0))
        self.assertEqual([e["name"] for e in self.link.list(self.guest.dir)[1]], ["file"])

    def test_an_idle_guest_gives_its_memory_back_and_works_as_before(self):
        for id in (1, 2):
            self.work(id)
            self.assertTrue(wait_until(lambda: self.own_kb() <= self.KEPT_KB, 20), self.own_kb())
        self.alive()

    def test_a_running_command_keeps_its_streams_while_the_guest_is_idle(self):
        started = self.link.exec(1, ["sh", "-c", "read x; echo got $x; read y; echo got $y"])
        self.assertEqual(started.type, "EXEC_STARTED")
        self.assertTrue(wait_until(lambda: self.own_kb() <= self.KEPT_KB, 20), self.own_kb())
        self.link.stdin(1, 0, b"one\n")
        self.assertTrue(self.link.silent_for(1.5, lambda f: f.type == "EXIT"))  # idle again
        self.link.stdin(1, 4, b"two\n", eof=True)
        self.assertEqual(self.link.exit(1).status, 0)
        self.assertEqual(self.link.output(1), b"got one\ngot two\n")

    def test_half_a_message_is_kept_while_the_guest_is_idle(self):
        path = self.guest.dir + "/file"
        p = struct.pack("<IIIIQ", NONE, NONE, CREATE, 0o644, 0) + s(path) + b"x" * 50000
        frame = HEAD.pack(len(p), TYPES["WRITE"], 0, 0, 77) + p
        self.link.sock.sendall(frame[:30000])
        self.assertTrue(self.link.silent_for(1.5, lambda f: True))  # longer than it takes to be idle
        self.link.sock.sendall(frame[30000:])
        self.assertEqual(self.link.next(lambda f: f.tag == 77).type, "OK")
        self.assertEqual(pathlib.Path(path).read_bytes(), b"x" * 50000)


class Files(GuestCase):
    def setUp(self):
        super().setUp()
        self.d = self.guest.dir + "/f"
        os.mkdir(self.d)
        os.chmod(self.d, 0o777)

    def test_write_and_read_by_range(self):
        p = self.d + "/file"
        self.refused(ENOENT, self.link.write, p, b"x", flags=0)
        self.assertEqual(self.link.write(p, b"hello"), 5)
        self.assertEqual(self.link.write(p, b"J", flags=0), 5)
        self.assertEqual(self.link.write(p, b"!", offset=10, flags=0), 11)
        self.assertEqual(self.link.write(p, b"+", flags=APPEND), 12)
        self.assertEqual(self.link.read(p), b"Jello\0\0\0\0\0!+")
        self.assertEqual(self.link.read(p, 1, 3), b"ell")
        self.assertEqual(self.link.read(p, 100), b"")
        self.refused(EEXIST, self.link.write, p, b"", flags=CREATE | EXCLUSIVE)
        self.assertEqual(self.link.write(p, b"new", flags=TRUNCATE), 3)
        self.assertEqual(os.stat(p).st_mode & 0o777, 0o644)

    def test_a_large_file_streams_in_chunks(self):
        data = random.Random(3).randbytes(5 << 20)
        p = self.d + "/big"
        for at in range(0, len(data), CHUNK):
            self.link.write(p, data[at:at + CHUNK], at)
        got = b"".join(self.link.read(p, at) for at in range(0, len(data), CHUNK))
        self.assertEqual(got, data)

    def test_stat_list_and_paging(self):
        for i in range(1000):
            pathlib.Path(self.d, f"name-{i:04}").write_text("x" * (i % 7))
        os.symlink("/nonesuch", self.d + "/link")
        seen, cookie = {}, 0
        while True:
            cookie, page = self.link.list(self.d, cookie, 64)
            self.assertLessEqual(len(page), 64)
            for e in page:
                self.assertNotIn(e["name"], seen)
                seen[e["name"]] = e
            if cookie == 0:
                break
        self.assertEqual(len(seen), 1001)
        self.assertEqual(seen["name-0006"]["size"], 6)
        e = self.link.stat(self.d + "/link", NOFOLLOW)
        self.assertEqual((e["target"], e["mode"] >> 12), ("/nonesuch", 0o12))
        self.refused(ENOENT, self.link.stat, self.d + "/link")

    def test_names_can_be_changed(self):
        d = self.d
        self.link.path("MKDIR", d + "/a/b/c", PARENTS, 0o755)
        self.link.path("MKDIR", d + "/a/b/c", PARENTS, 0o755)
        self.refused(EEXIST, self.link.path, "MKDIR", d + "/a", 0, 0o755)
        self.refused(ENOENT, self.link.path, "MKDIR", d + "/x/y", 0, 0o755)
        self.link.write(d + "/a/b/c/f", b"1")
        self.link.write(d + "/g", b"2")
        self.refused(EEXIST, self.link.move, "MOVE", d + "/g", d + "/a/b/c/f", NOREPLACE)
        self.link.move("MOVE", d + "/g", d + "/a/b/c/f")
        self.assertEqual(self.link.read(d + "/a/b/c/f"), b"2")
        self.link.move("SYMLINK", "a/b", d + "/s")
        self.assertEqual(self.link.read(d + "/s/c/f"), b"2")
        self.link.path("CHMOD", d + "/s/c/f", 0, 0o600)
        self.assertEqual(os.stat(d + "/a/b/c/f").st_mode & 0o7777, 0o600)
        self.refused(ENOTEMPTY, self.link.path, "REMOVE", d + "/a")
        self.link.path("REMOVE", d + "/s", RECURSIVE)
        self.assertTrue(os.path.exists(d + "/a"))
        self.link.path("REMOVE", d + "/a", RECURSIVE)
        self.assertFalse(os.path.exists(d + "/a"))
        self.refused(ENOENT, self.link.path, "REMOVE", d + "/a", RECURSIVE)

    def test_a_very_deep_tree_is_removed(self):
        top = self.d + "/deep"
        os.mkdir(top)
        fd = os.open(top, os.O_RDONLY)
        for i in range(1500):
            os.mkdir("d", dir_fd=fd)
            new = os.open("d", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = new
        os.close(fd)
        self.link.path("REMOVE", top, RECURSIVE)
        self.assertFalse(os.path.exists(top))

    @unittest.skipUnless(os.geteuid() == 0, "needs several uids")
    def test_the_named_user_is_the_one_who_acts(self):
        d = self.d
        self.link.write(d + "/mine", b"x", uid=1234, gid=1234)
        self.assertEqual((os.stat(d + "/mine").st_uid, os.stat(d + "/mine").st_gid), (1234, 1234))
        self.link.write(d + "/root", b"x", mode=0o600)
        self.refused(EACCES, self.link.read, d + "/root", uid=1234, gid=1234)
        self.assertEqual(self.link.read(d + "/root"), b"x")
        self.refused(EACCES, self.link.write, "/etc/x", b"", uid=1234)
        self.link.call("CHOWN", struct.pack("<IIIII", NONE, NONE, 0, 7, NONE) + s(d + "/root"))
        self.assertEqual((os.stat(d + "/root").st_uid, os.stat(d + "/root").st_gid), (7, 0))
        self.refused(1, self.link.call, "CHOWN",
                     struct.pack("<IIIII", 1234, NONE, 0, 1234, NONE) + s(d + "/root"))

    def test_nothing_but_regular_files_is_opened(self):
        d = self.d
        os.mkfifo(d + "/fifo")
        os.symlink("loop", d + "/loop")
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(d + "/sock")
        start = clock()
        self.refused(EINVAL, self.link.read, d + "/fifo")
        self.refused(ENXIO, self.link.write, d + "/fifo", b"x")
        self.refused(ENXIO, self.link.read, d + "/sock")
        self.refused(EINVAL, self.link.read, "/dev/zero")
        self.refused(EINVAL, self.link.read, "/dev/null")
        self.refused(EINVAL, self.link.write, "/dev/null", b"x")
        self.refused(EISDIR, self.link.read, d)
        self.refused(ELOOP, self.link.read, d + "/loop")
        self.refused(ELOOP, self.link.path, "CHMOD", d + "/loop")
        self.refused(20, self.link.list, "/etc/passwd")
        self.refused(EINVAL, self.link.read, "etc/passwd")
        self.refused(EINVAL, self.link.path, "REMOVE", "/")
        self.refused(EINVAL, self.link.path, "REMOVE", d + "/..")
        self.refused(36, self.link.read, "/" + "x" * 300)
        self.refused(36, self.link.read, "/x" * 3000)
        self.assertLess(clock() - start, 5)
        self.alive()

    def test_the_guests_own_descriptors_and_memory_cannot_be_named(self):
        d = self.d
        for target in ("/proc/self/fd/3", "/proc/1/fd/3", "/proc/thread-self/fd/3",
                       "/proc/self/exe", "/proc/self/root/etc/passwd", "/proc/self/cwd/etc/passwd"):
            self.refused(ELOOP, self.link.read, target)
            self.refused(ELOOP, self.link.write, target, b"0", flags=0)
            self.refused(ELOOP, self.link.stat, target)
            link = d + "/to-proc"
            os.symlink(target, link)
            self.refused(ELOOP, self.link.read, link)
            self.refused(ELOOP, self.link.path, "CHMOD", link, 0, 0o777)
            os.unlink(link)
        for target in ("/proc/self/mem", "/proc/1/maps", "/proc/self/environ", "/proc/meminfo"):
            self.refused(EACCES, self.link.read, target)
        for target in ("/proc/self/mem", "/proc/self/oom_score_adj", "/proc/self/comm"):
            self.refused(EACCES, self.link.write, target, b"0", flags=0)
        self.assertEqual(self.link.stat("/proc/meminfo")["mode"] >> 12, 0o10)
        self.alive()

    def test_watching(self):
        d = self.d
        self.link.path("WATCH", d, id=5)
        self.refused("exists", self.link.path, "WATCH", d, id=5)
        self.refused("exists", self.link.path, "WATCH", d, id=6)
        pathlib.Path(d, "new").write_text("x")
        names = set()
        while True:
            f = self.link.next(lambda f: f.type == "EVENT")
            mask, cookie, n = struct.unpack_from("<III", f.payload)
            names.add((f.id, f.payload[12:12 + n]))
            if mask & 8:  # IN_CLOSE_WRITE
                break
        self.assertEqual(names, {(5, b"new")})
        self.link.call("UNWATCH", id=5)
        self.refused("not_found", self.link.call, "UNWATCH", id=5)
        pathlib.Path(d, "other").write_text("x")
        self.link.kept = [f for f in self.link.kept if f.type != "EVENT"]
        self.assertTrue(self.link.silent_for(0.2, lambda f: f.type == "EVENT" and b"other" in f.payload))

    def test_a_flood_of_events_is_told_as_lost_not_grown(self):
        d = self.d
        self.link.path("WATCH", d, id=5)
        self.sh(1, f"cd {d}; i=0; while [ $i -lt 3000 ]; do : > f$i; i=$((i+1)); done",
                stdio=(NULL,) * 3)
        self.alive()
        self.link.path("REMOVE", d, RECURSIVE)
        self.alive()


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
