"""Output that the guest drains into a log on the host: MSG_EXEC_LOG."""
import concurrent.futures
import hashlib
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from guestbox import Guest
from guestlink import *
from patience import PATIENCE, clock
from outlog import DATA, GROW, SEAL, SHRINK, Log
from test_guest import GuestCase, wait_until

BOTH = (NULL, PIPE, PIPE)
EINVAL = 22
NO_PACE = 2**64 - 1


class LogCase(GuestCase):
    def log(self, **kw):
        log = Log(**kw)
        self.addCleanup(log.close)
        return log

    def start(self, id, script, log, stdio=BOTH, **kw):
        f = self.link.exec(id, ["sh", "-c", script], fds=[log.fd], stdio=stdio, flags=LOG, **kw)
        self.assertEqual(f.type, "EXEC_STARTED")


class Logs(LogCase):
    def test_at_the_exit_the_log_has_all_and_says_so(self):
        log = self.log()
        self.start(1, "echo out; echo err >&2; exit 3", log)
        e = self.link.exit(1)
        self.assertEqual((e.status, log.text(0), log.text(1)), (3, b"out\n", b"err\n"))
        self.assertTrue(log.ended(0) and log.ended(1))
        self.assertEqual(self.link.table(), {})
        self.assertEqual([f.type for f in self.link.kept], [], "no data frames")

    def test_what_is_not_logged_has_ended_from_the_start(self):
        log = self.log()
        self.start(1, "echo a; echo b >&2; exec sleep 60", log, stdio=(NULL, PIPE, SAME))
        self.assertTrue(wait_until(lambda: log.produced(0) == 4))
        self.assertEqual((log.text(0), log.ended(0), log.ended(1)), (b"a\nb\n", False, True))

    def test_head_and_tail_are_kept_and_the_rest_counted(self):
        log = self.log(head=(5000, 0), tail=(8192, 4096))
        self.start(1, "seq 1 100000", log)
        self.link.exit(1)
        want = b"".join(b"%d\n" % i for i in range(1, 100001))
        start, left_out, end = log.bytes_of(0)
        self.assertEqual(log.produced(0), len(want))
        self.assertEqual((start, end), (want[:5000], want[-8192:]))
        self.assertEqual(left_out, len(want) - 5000 - 8192)

    def test_a_paced_command_waits_for_credit_from_its_first_byte_on(self):
        window = 16 << 10  # a quarter of the tail
        for id, stream, to in ((1, 0, ""), (2, 1, " >&2")):
            log = self.log(tail=(4 * window, 4 * window))
            f = self.link.exec(id, ["sh", "-c", "yes" + to], fds=[log.fd], stdio=BOTH, flags=LOG | PACED)
            self.assertEqual(f.type, "EXEC_STARTED")
            self.assertTrue(wait_until(lambda: log.produced(stream) == window))
            time.sleep(0.1 * PATIENCE)
            self.assertEqual(log.produced(stream), window)
            self.link.credit(id, stream + 1, 5000)
            self.assertTrue(wait_until(lambda: log.produced(stream) == window + 5000))
            self.link.credit(id, stream + 1, NO_PACE)
            self.assertTrue(wait_until(lambda: log.produced(stream) > 100 * window))

    def test_memory_is_taken_only_for_what_was_printed(self):
        log = self.log(head=(32 << 20, 8 << 20), tail=(32 << 20, 8 << 20))
        self.start(1, "echo ten bytes", log)
        self.link.exit(1)
        self.assertLessEqual(log.allocated(), 16 << 10)

    def test_a_log_is_not_mapped_after_both_streams_ended(self):
        maps = pathlib.Path(f"/proc/{self.guest.pid()}/maps")
        log = self.log()
        self.start(1, "echo out; exec 1>&-; read go", log, stdio=(PIPE, PIPE, PIPE))
        self.assertTrue(wait_until(lambda: log.ended(0)))
        self.assertIn("memfd:outlog", maps.read_text())
        self.link.stdin(1, 0, b"go\n")
        self.link.exit(1, ack=False)
        self.assertEqual((log.text(0), log.ended(1)), (b"out\n", True))
        self.assertNotIn("memfd:outlog", maps.read_text())
        self.assertEqual(self.link.log_wait(1, (0, 0)), ((4, 0), 3))

    def test_the_order_of_the_streams_is_told(self):
        log = self.log()
        self.start(1, "for i in 1 2 3; do echo o$i; sleep 0.05; echo e$i >&2; sleep 0.05; done", log)
        self.link.exit(1)
        self.assertEqual(log.turns(), [3, 3, 6, 6, 9])
        log = self.log()
        self.start(2, "echo first >&2; sleep 0.05; echo then", log)
        self.link.exit(2)
        self.assertEqual(log.turns(), [0, 6])

    def test_a_command_never_waits_for_anyone(self):
        log = self.log()
        self.start(1, "head -c 300000000 /dev/zero; echo end", log, timeout_ms=int(60000 * PATIENCE))
        e = self.link.exit(1)
        self.assertEqual((e.status, e.flags, log.produced()), (0, 0, 300000004))
        self.assertEqual(log.bytes_of(0)[2][-5:], b"\0end\n")
        self.assertLess(log.allocated(), 3 << 20)

    def test_another_command_is_served_while_one_floods(self):
        log = self.log()
        self.start(1, "exec cat /dev/zero", log)
        self.assertTrue(wait_until(lambda: log.produced() > 50 << 20))
        began = clock()
        for id in range(2, 12):
            self.assertEqual(self.sh(id, "echo hi")[1], b"hi\n")
        self.assertLess(clock() - began, 2)
        self.link.call("KILL", id=1)
        e = self.link.exit(1)
        self.assertEqual(e.status, 9)
        self.assertTrue(log.ended())

    def test_a_terminal_can_be_logged(self):
        log = self.log()
        self.start(1, "stty -onlcr; read x; echo got $x; tty >/dev/null && echo is a tty", log,
                   stdio=(PTY, PTY, PTY))
        self.link.stdin(1, 0, b"hello\n")
        e = self.link.exit(1)
        self.assertEqual(e.status, 0)
        self.assertTrue(wait_until(lambda: log.ended(0)))
        self.assertIn(b"got hello\nis a tty\n", log.text(0))

    def test_an_unfit_log_is_refused(self):
        def try_with(fd):
            f = self.link.exec(1, ["true"], fds=[fd], stdio=BOTH, flags=LOG)
            self.assertEqual((f.type, f.unpack("<II")), ("EXEC_FAILED", (EINVAL, 3)))

        for seals in 0, SHRINK, GROW:
            try_with(self.log(seals=seals).fd)
        broken = self.log()
        broken.map[0:4] = b"nope"
        try_with(broken.fd)
        small = os.memfd_create("small", os.MFD_ALLOW_SEALING)
        self.addCleanup(os.close, small)
        try_with(small)
        with open("/dev/null") as null:
            try_with(null.fileno())
        used = self.log()
        self.start(1, "echo x", used)
        self.link.exit(1)
        try_with(used.fd)
        self.alive()

    def test_a_log_that_changes_under_the_guest_does_no_harm(self):
        log = self.log(head=(4096, 0), tail=(4096, 4096))
        self.start(1, "while :; do echo 123456789; done", log)
        for i in range(200):
            log.map[0:DATA] = os.urandom(DATA)
        self.alive()
        self.link.call("KILL", id=1)
        self.link.exit(1)
        self.alive()


class Starving(LogCase):
    GROUP = pathlib.Path("/sys/fs/cgroup/memory") / f"carrel-test-log-{os.getpid()}"

    def setUp(self):
        super().setUp()
        try:
            self.GROUP.mkdir()
            self.addCleanup(self.GROUP.rmdir)
            (self.GROUP / "memory.oom_control").write_text("1")
        except OSError as e:
            self.skipTest(f"no memory cgroup that only refuses: {e}")
        self.addCleanup(lambda: self.guest.process.wait(5 * PATIENCE))
        self.addCleanup(self.guest.close)
        self.addCleanup((self.GROUP / "memory.limit_in_bytes").write_text, "-1")

    def starve(self):
        (self.GROUP / "memory.limit_in_bytes").write_text(str(4 << 20))
        (self.GROUP / "cgroup.procs").write_text(str(self.guest.pid()))

    def test_without_memory_the_caller_still_gets_every_byte(self):
        log, (r, w) = self.log(head=(16 << 20, 0), tail=(4096, 4096)), os.pipe()
        script = f"echo $$ > {self.GROUP.parent}/cgroup.procs; read go; seq 1 2000000"
        self.link.exec(1, ["sh", "-c", script], fds=[w, log.fd], stdio=(PIPE, FD, NULL), flags=LOG | COPY)
        os.close(w)
        self.starve()
        self.link.stdin(1, 0, b"go\n")
        want = b"".join(b"%d\n" % i for i in range(1, 2000001))
        with open(r, "rb") as f, concurrent.futures.ThreadPoolExecutor(1) as reader:
            got = reader.submit(f.read)
            for more in range(0, 8 << 20, 16 << 10):  # a few pages at a time, for the log or for the pipe
                (self.GROUP / "memory.limit_in_bytes").write_text(str((4 << 20) + more))
                if wait_until(lambda: log.numbers(0)[2] > 0, seconds=0.02):
                    break
            lost = log.numbers(0)[2]
            (self.GROUP / "memory.limit_in_bytes").write_text("-1")
            got = got.result()
        self.assertGreater(lost, 0)
        self.assertEqual(hashlib.sha256(got).digest(), hashlib.sha256(want).digest(), len(got))
        self.assertEqual((self.link.exit(1).status, log.produced()), (0, len(want)))

    def test_without_memory_the_command_goes_on_and_the_loss_is_counted(self):
        log = self.log(head=(16 << 20, 0), tail=(4096, 4096))
        self.start(1, f"echo $$ > {self.GROUP.parent}/cgroup.procs; read go; head -c 6000000 /dev/zero", log,
                   stdio=(PIPE, PIPE, PIPE))
        self.starve()
        self.link.stdin(1, 0, b"go\n")
        self.assertTrue(wait_until(lambda: log.ended(0), 20))
        (self.GROUP / "memory.limit_in_bytes").write_text("-1")  # else there is none for a message either
        e = self.link.exit(1)
        self.assertEqual((e.status, e.flags), (0, 0))
        claimed, produced, lost, ended = log.numbers(0)
        self.assertEqual((claimed, produced, ended), (6000000, 6000000, 1))
        self.assertGreater(lost, 1 << 20)
        self.assertLess(log.allocated(), 5 << 20)
        self.alive()


class Waiting(LogCase):
    def test_a_follower_is_woken_once(self):
        log = self.log()
        self.start(1, "read x; echo a; read x; echo b; read x", log, stdio=(PIPE, PIPE, PIPE))
        self.link.send("LOG_WAIT", struct.pack("<QQB", 0, 0, 0), id=1, tag=77)
        self.assertTrue(self.link.silent_for(0.2, lambda f: f.tag == 77))
        self.link.stdin(1, 0, b"\n")
        f = self.link.next(lambda f: f.tag == 77)
        self.assertEqual((f.type, f.id, f.unpack("<QQB")), ("LOG_GREW", 1, (2, 0, 0)))
        self.link.stdin(1, 1, b"\n")
        self.assertTrue(self.link.silent_for(0.2, lambda f: f.type == "LOG_GREW"), "nobody asked")
        self.assertEqual(self.link.log_wait(1, (2, 0)), ((4, 0), 0))
        self.link.stdin(1, 2, b"\n")
        ended = 0
        while ended != 3:  # the two streams end one after the other
            now, ended = self.link.log_wait(1, (4, 0))
            self.assertEqual(now, (4, 0))
        self.link.exit(1)

    def test_a_flood_wakes_as_often_as_it_is_asked(self):
        log = self.log()
        self.start(1, "exec cat /dev/zero", log)
        seen = (0, 0)
        for _ in range(50):
            now, ended = self.link.log_wait(1, seen)
            self.assertGreater(now[0], seen[0])
            seen = now
        self.assertEqual([f.type for f in self.link.kept], [])
        self.link.call("KILL", id=1)
        self.link.exit(1)

    def test_a_second_wait_answers_the_first(self):
        log = self.log()
        self.start(1, "exec sleep 60", log)
        self.link.send("LOG_WAIT", struct.pack("<QQB", 0, 0, 0), id=1, tag=1001)
        self.link.send("LOG_WAIT", struct.pack("<QQB", 0, 0, 0), id=1, tag=1002)
        self.assertEqual(self.link.next(lambda f: f.tag == 1001).type, "LOG_GREW")
        self.link.call("KILL", id=1)
        f = self.link.next(lambda f: f.tag == 1002)
        self.assertIn(f.unpack("<QQB")[2], (1, 2, 3))
        self.link.exit(1)

    def test_what_a_background_child_prints_is_logged_after_the_exit(self):
        log = self.log()
        self.start(1, "(sleep 0.4; echo late) & echo early", log)
        self.assertEqual(self.link.exit(1, ack=False).status, 0)
        self.assertEqual((log.text(0), log.ended(0)), (b"early\n", False))
        self.assertEqual(self.link.log_wait(1, (6, 0))[0], (11, 0))
        ended = 0
        while ended != 3:
            _, ended = self.link.log_wait(1, (11, 0), ended)
        self.assertEqual(log.text(0), b"early\nlate\n")
        self.link.call("EXIT_ACK", id=1)
        self.assertTrue(wait_until(lambda: self.link.table() == {}))

    def test_after_the_exit_is_acknowledged_the_row_goes_with_the_output(self):
        log = self.log()
        self.start(1, "(sleep 0.4; echo late) & echo early", log)
        self.link.exit(1)
        self.assertEqual(self.link.table()[1]["state"], 3)
        self.assertEqual(self.link.log_wait(1, (6, 0))[0], (11, 0))
        self.assertTrue(wait_until(lambda: log.ended(0) and log.ended(1)))
        self.assertTrue(wait_until(lambda: self.link.table() == {}))

    def test_refusals(self):
        log = self.log()
        self.refused("not_found", self.link.log_wait, 9)
        self.refused("not_found", self.link.log_open, 9)
        self.link.exec(1, ["sleep", "60"])
        self.refused("not_found", self.link.log_wait, 1)
        self.refused("not_found", self.link.log_open, 1)
        self.link.call("KILL", id=1)
        for payload in b"", b"x" * 18:
            guest = Guest()
            self.addCleanup(guest.close)
            with self.assertRaises(Closed):
                guest.link.call("LOG_WAIT", payload, 1)


class Copies(LogCase):
    """MSG_EXEC_COPY: output goes to a pipe of the host, too, until the main process ends."""

    def pipe(self):
        r, w = os.pipe()
        self.addCleanup(os.close, r)
        return r, w

    def copy(self, id, script, log, *pipes, stdio=(NULL, FD, FD), flags=LOG | COPY):
        f = self.link.exec(id, ["sh", "-c", script], fds=[*pipes, log.fd], stdio=stdio, flags=flags)
        for w in set(pipes):
            os.close(w)
        self.assertEqual(f.type, "EXEC_STARTED")

    def whole(self, fd):
        parts = []
        while part := os.read(fd, 1 << 16):
            parts.append(part)
        return b"".join(parts)

    def test_output_goes_to_pipe_and_log(self):
        log, (r, w), (r2, w2) = self.log(), self.pipe(), self.pipe()
        self.copy(1, "echo out; echo err >&2; exit 3", log, w, w2)
        self.assertEqual((self.whole(r), self.whole(r2)), (b"out\n", b"err\n"))
        self.assertEqual((self.link.exit(1).status, log.text(0), log.text(1)), (3, b"out\n", b"err\n"))
        self.assertEqual(self.link.table(), {})

    def test_one_pipe_for_both_keeps_the_order(self):
        log, (r, w) = self.log(), self.pipe()
        self.copy(1, "for i in 1 2 3 4; do echo o$i; echo e$i >&2; done", log, w, stdio=(NULL, FD, SAME))
        want = b"o1\ne1\no2\ne2\no3\ne3\no4\ne4\n"
        self.assertEqual((self.whole(r), log.text(0)), (want, want))

    def test_the_pipe_ends_with_the_command_and_the_log_goes_on(self):
        log, (r, w) = self.log(), self.pipe()
        self.copy(2, "(sleep 0.3; echo late) & echo early", log, w, stdio=(NULL, FD, NULL))
        self.assertEqual(self.whole(r), b"early\n")
        self.link.exit(2)
        self.assertTrue(wait_until(lambda: log.text(0) == b"early\nlate\n" and log.ended(0)))
        self.assertTrue(wait_until(lambda: self.link.table() == {}))

    def test_command_waits_while_the_pipe_is_full(self):
        log, (r, w) = self.log(head=(4 << 20, 0), tail=(4096, 4096)), self.pipe()
        self.copy(1, "exec head -c 3000000 /dev/zero", log, w, stdio=(NULL, FD, NULL))
        self.assertTrue(wait_until(lambda: log.produced() >= 65536))
        self.assertFalse(wait_until(lambda: log.produced() > 1 << 18, seconds=0.3))
        self.assertEqual(self.link.table()[1]["state"], 1)
        self.assertEqual(len(self.whole(r)), 3000000)
        self.assertEqual((self.link.exit(1).status, log.produced()), (0, 3000000))

    def test_pipe_full_of_small_writes_gets_every_byte_once(self):
        """A pipe has a fixed number of places for writes, so it can be full with few bytes in it."""
        log, (r, w) = self.log(), self.pipe()
        self.copy(1, "for i in $(seq 100); do echo $i; sleep 0.01; done", log, w, stdio=(NULL, FD, NULL))
        want = b"".join(b"%d\n" % i for i in range(1, 101))
        self.assertTrue(wait_until(lambda: log.produced() > want.index(b"17"), 20))
        self.assertEqual((self.whole(r), log.text(0)), (want, want))

    def test_what_was_written_before_the_end_reaches_a_full_pipe_later(self):
        log, (r, w) = self.log(), self.pipe()
        size = 100000  # more than one pipe holds, less than two
        self.copy(1, f"head -c {size} /dev/zero | tr '\\0' x; sleep 60 & exit 0", log, w, stdio=(NULL, FD, NULL))
        self.assertEqual(self.link.exit(1, ack=False).status, 0)
        self.assertEqual(self.whole(r), b"x" * size)
        self.assertTrue(wait_until(lambda: log.produced() == size))

    def test_closed_pipe_ends_the_command_at_its_next_write(self):
        log = self.log()
        r, w = os.pipe()
        self.copy(1, "exec yes", log, w, stdio=(NULL, FD, NULL))
        self.assertEqual(os.read(r, 2), b"y\n")
        os.close(r)
        e = self.link.exit(1)
        self.assertEqual((e.flags & SIGNALED, e.status), (SIGNALED, 13))
        self.assertTrue(log.ended(0))

    def test_closed_pipe_after_the_end_does_not_end_background_processes(self):
        log = self.log()
        r, w = os.pipe()
        self.copy(1, "(while sleep 0.02; do echo tick; done) & head -c 100000 /dev/zero", log, w,
                  stdio=(NULL, FD, NULL))
        self.link.exit(1)
        os.close(r)  # full, so that the guest still has bytes for it
        self.assertTrue(wait_until(lambda: log.produced() > 100500))
        self.link.call("KILL", id=1)

    def test_copy_without_log_is_refused(self):
        r, w = self.pipe()
        with self.assertRaises(Closed):
            self.link.exec(1, ["true"], fds=[w], stdio=(NULL, FD, NULL), flags=COPY)
        os.close(w)

    def test_a_descriptor_that_cannot_be_written_does_no_harm(self):
        log, (r, w) = self.log(), self.pipe()
        self.copy(1, "echo x; echo y; exit 2", log, os.dup(r), stdio=(NULL, FD, NULL))
        os.close(w)
        self.assertIn(self.link.exit(1).status, (2, 13))
        self.alive()


class Reconnects(LogCase):
    kw = dict(listen=True, ctl=False, linger=1)

    def setUp(self):
        super().setUp()
        self.link = self.guest.connect()

    def test_output_goes_on_without_a_host_and_the_next_one_finds_it(self):
        log = self.log()
        self.start(7, "cat; echo done >&2; sleep 60", log, stdio=(PIPE, PIPE, PIPE))
        self.link.stdin(7, 0, b"one")
        self.assertTrue(wait_until(lambda: log.produced() == 3))
        self.link.sock.close()
        later = self.guest.connect()
        row = later.table()[7]
        self.assertEqual((row["flags"], row["attached"], row["stdin_received"]), (LOG, 0, 3))
        self.assertEqual(row["out_produced"], 3)
        found = Log(fd=later.log_open(7))
        self.addCleanup(found.close)
        self.assertEqual(found.text(0), b"one")
        self.refused("busy", later.log_wait, 7)
        f = later.call("ATTACH", struct.pack("<QQ", 2 ** 64 - 1, 2 ** 64 - 1), 7)
        self.assertEqual(f.unpack("<Q"), (3,))
        later.stdin(7, 0, b"one,two", eof=True)  # what is sent again is not doubled
        self.assertEqual(later.log_wait(7, (3, 0))[0][0], 7)
        self.assertTrue(wait_until(lambda: found.text(1) == b"done\n"))
        self.assertEqual(found.text(0), b"one,two")
        later.call("KILL", id=7)
        self.assertEqual(later.exit(7).status, 9)

    def test_an_end_that_nobody_saw_is_still_there(self):
        log = self.log()
        self.start(3, "sleep 0.3; seq 1000; exit 5", log)
        self.link.sock.close()
        time.sleep(0.6 * PATIENCE)
        later = self.guest.connect()
        self.assertEqual(later.table()[3]["state"], 2)
        found = Log(fd=later.log_open(3))
        self.addCleanup(found.close)
        self.assertEqual(hashlib.sha256(found.text()).digest(),
                         hashlib.sha256(b"".join(b"%d\n" % i for i in range(1, 1001))).digest())
        later.call("ATTACH", struct.pack("<QQ", 2 ** 64 - 1, 2 ** 64 - 1), 3)
        self.assertEqual(later.exit(3).status, 5)
        self.assertEqual(later.table(), {})

    def test_who_takes_over_ends_the_others_wait(self):
        log = self.log()
        self.start(1, "exec sleep 60", log)
        self.link.send("LOG_WAIT", struct.pack("<QQB", 0, 0, 0), id=1, tag=5)
        other = self.guest.connect()
        other.call("ATTACH", struct.pack("<QQ", 2 ** 64 - 1, 2 ** 64 - 1), 1)
        self.assertEqual(self.link.next(lambda f: f.tag == 5).type, "LOG_GREW")
        self.refused("busy", self.link.log_wait, 1)

    def test_many_logs_are_handed_back_at_once(self):
        logs = [self.log() for _ in range(40)]
        for id, log in enumerate(logs, 1):
            self.start(id, f"echo {id}; exec sleep 60", log)
        for id in range(1, 41):
            self.assertTrue(wait_until(lambda: logs[id - 1].produced() > 0))
        later = self.guest.connect()
        for id in range(1, 41):
            later.send("LOG_OPEN", id=id, tag=id)
        for id in range(1, 41):
            f = later.next(lambda f: f.tag == id)
            self.assertEqual((f.type, f.flags), ("OK", 1))
            found = Log(fd=later.fds.pop(0))
            self.addCleanup(found.close)
            self.assertEqual(found.text(), b"%d\n" % id)

    def test_descriptors_are_given_back(self):
        fds = lambda: len(os.listdir(f"/proc/{self.guest.pid()}/fd"))
        self.sh(1, "true")
        before = fds()
        for id in range(2, 40):
            log = Log()
            self.start(id, "echo x", log)
            os.close(self.link.log_open(id))
            self.link.exit(id)
            log.close()
        self.assertEqual(fds(), before)
