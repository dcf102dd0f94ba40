"""The guest behind a serial port that cuts, drops, delays and repeats bytes, and changes its host.

A bounded number of places in `make test`; CARREL_PORT_PLACES=all tries every byte."""
import os
import pathlib
import pty
import select
import socket
import struct
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from guestbox import Guest
from guestlink import *
from patience import PATIENCE, clock
from test_guest import GuestCase, wait_until

EVERY = os.environ.get("CARREL_PORT_PLACES") == "all"
# Bytes that would be packets if they were not escaped: a mark, an escape, half a frame.
MARKS = Port.pack(b"S" + bytes(8)) + b"\xdb\xdc\xdb\xdd\xc0\xc0" + Port.pack(b"L" + bytes(8)) + b"\xc0H\0\0"


class Cable:
    """What is between a host and the guest's port. `fault`: (kind, direction, place, size)."""

    def __init__(self, guest, fault=None):
        self.guest, self.fault, self.passed, self.timeout = guest, fault, {"to": 0, "from": 0}, None
        self.waiting = b""
        self.done = False

    def settimeout(self, seconds):
        self.timeout = seconds if not self.fault else min(seconds, PATIENCE)

    def spoil(self, direction, data):
        """The bytes that arrive in place of these, and whether the host ends there."""
        start = self.passed[direction]
        self.passed[direction] += len(data)
        kind, where, place, size = self.fault or (None, None, 0, 0)
        at = place - start
        if self.done or where != direction or not 0 <= at < len(data):
            return data, False
        self.done = True
        if kind == "cut":
            return data[:at], True
        if kind == "drop":
            return data[:at] + data[at + size:], False
        if kind == "repeat":
            return data[:at] + data[max(0, at - size):], False
        assert kind == "delay"
        self.carry(data[:at])
        time.sleep(0.002)
        return data[at:], False

    def carry(self, data):
        """To the guest, which may have much to say meanwhile."""
        while data:
            readable, writable, _ = select.select([self.guest], [self.guest], [], self.timeout)
            if not readable and not writable:
                raise TimeoutError
            if readable:
                self.waiting += self.guest.recv(1 << 16)
            if writable:
                data = data[self.guest.send(data):]

    def sendall(self, data):
        data, ends = self.spoil("to", data)
        self.carry(data)
        if ends:
            raise Closed()

    def recv(self, size):
        data, self.waiting = self.waiting, b""
        if not data:
            if not select.select([self.guest], [], [], self.timeout)[0]:
                raise TimeoutError
            data = self.guest.recv(size)
        data, ends = self.spoil("from", data)
        if ends:
            raise Closed()
        return data or self.recv(size)

    def lose(self):
        """What QEMU has taken from the guest and no host has read."""
        while select.select([self.guest], [], [], 0)[0]:
            self.guest.recv(1 << 16)


class Job:
    """What a daemon does: a command with input and a log, and a file, whatever happens to the port."""

    def __init__(self, id, place):
        self.id, self.out, self.exit, self.written = id, bytearray(), None, 0
        self.count, self.file = place / f"ran-{id}", place / f"file-{id}"
        self.input = MARKS + bytes(range(256)) + str(id).encode()

    def step(self, link):
        """Goes on where the connection before ended."""
        row = link.table().get(self.id)
        if not row and not self.exit:
            script = f"echo ran >>{self.count}; cat; exit 3"
            link.exec(self.id, ["sh", "-c", script], flags=LOG, stdio=(PIPE, PIPE, SAME))
        if row or not self.exit:
            self.follow(link)
        while self.written < len(self.input):
            part = self.input[self.written:self.written + 150]
            link.write(str(self.file), part, offset=self.written)
            self.written += len(part)
        assert link.read(str(self.file)) == self.input

    def follow(self, link):
        received, = link.call("ATTACH", struct.pack("<QQ", 0, 0), self.id).unpack("<Q")
        if received < len(self.input):
            link.stdin(self.id, received, self.input[received:], eof=True)
        else:
            link.stdin(self.id, received, eof=True)
        ended = False
        while not ended:
            (produced, _), _ = link.log_wait(self.id, (len(self.out), 0))
            at, data, _, lost, ended = link.log_read(self.id, 1, len(self.out), 200)
            assert at == len(self.out) and lost == 0
            self.out += data
            ended = ended and len(self.out) == produced
        self.exit = link.exit(self.id, ack=False)
        link.call("EXIT_ACK", id=self.id)

    def check(self, case):
        case.assertEqual(bytes(self.out), self.input)
        case.assertEqual(self.exit.status, 3)
        case.assertEqual(self.file.read_bytes(), self.input)
        case.assertEqual(self.count.read_text(), "ran\n")


class Relay(GuestCase):
    kw = dict(ctl=False, port=True, linger=1)

    def setUp(self):
        super().setUp()
        self.wire = self.link.sock
        self.wire.setblocking(False)
        self.id = 0

    def play(self, fault, loses):
        """One job over a port with one fault; the next hosts have a good one."""
        self.id += 1
        job = Job(self.id, pathlib.Path(self.guest.dir))
        for attempt in range(5):
            cable = Cable(self.wire, None if attempt else fault)
            try:
                job.step(Link(cable, port=Port()))
                job.check(self)
                return cable
            except (Closed, TimeoutError):
                if loses:
                    cable.lose()
        self.fail(f"no end after {fault}")

    def places(self, kind, direction, most):
        cable = self.play(None, False)
        size = cable.passed[direction]
        self.assertGreater(size, 500)
        step = 1 if EVERY else max(1, size // most)
        for i, place in enumerate(range(i_of(kind) % step, size, step)):
            with self.subTest(kind=kind, direction=direction, place=place):
                self.play((kind, direction, place, 1 + place % 40), i % 2)

    def test_cut_on_the_way_to_guest(self):
        self.places("cut", "to", 90)

    def test_cut_on_the_way_to_host(self):
        self.places("cut", "from", 90)

    def test_bytes_to_guest_are_missing(self):
        self.places("drop", "to", 40)

    def test_bytes_to_host_are_missing(self):
        self.places("drop", "from", 40)

    def test_bytes_to_guest_come_twice(self):
        self.places("repeat", "to", 60)

    def test_bytes_to_host_come_twice(self):
        self.places("repeat", "from", 60)

    def test_bytes_to_guest_are_late(self):
        self.places("delay", "to", 60)


def i_of(kind):
    """Tests of different faults look at different places."""
    return 3 * ("cut", "drop", "repeat", "delay").index(kind)


class NewHosts(GuestCase):
    """Another host takes over the port; the guest sees no end of the connection before."""

    kw = dict(ctl=False, port=True, linger=1)

    def again(self):
        self.link = Link(self.link.sock, port=Port())
        return self.link

    def test_exit_is_repeated_until_acknowledged(self):
        self.link.exec(1, ["sh", "-c", "exit 7"], flags=LOG, stdio=(NULL, PIPE, PIPE))
        self.assertEqual(self.link.exit(1, ack=False).status, 7)
        for _ in range(2):
            self.again().call("ATTACH", struct.pack("<QQ", 0, 0), 1)
            self.assertEqual(self.link.exit(1, ack=False).status, 7)
        self.link.call("EXIT_ACK", id=1)
        self.assertEqual(self.again().table(), {})

    def test_logged_command_runs_to_its_end_without_host(self):
        done = pathlib.Path(self.guest.dir) / "done"
        script = f"sleep 0.2; yes 0123456 | head -c 60000000; echo >{done}"
        self.link.exec(1, ["sh", "-c", script], flags=LOG, stdio=(NULL, PIPE, NULL))
        self.assertTrue(wait_until(done.exists, 60))
        self.again()
        at, data, produced, lost, ended = self.link.log_read(1, 1, 0, 80)
        self.assertEqual((at, data, produced, lost), (0, b"0123456\n" * 10, 60000000, 0))
        at, data, _, _, _ = self.link.log_read(1, 1, produced - 16)
        self.assertEqual((at, data), (produced - 16, b"0123456\n" * 2))
        at, data, _, _, _ = self.link.log_read(1, 1, produced // 2)
        self.assertGreaterEqual(at, produced // 2)
        self.assertTrue(data)
        self.assertLessEqual(at + len(data), produced)
        at, data, _, _, ended = self.link.log_read(1, 1, produced)
        self.assertEqual((at, data, ended), (produced, b"", 1))

    def test_stream_goes_on_at_its_offset(self):
        self.link.exec(1, ["seq", "200000"], stdio=(NULL, PIPE, NULL), window=65536)
        out = b""
        while len(out) < 40000:
            f = self.link.next(lambda f: f.type == "STDOUT")
            out += f.payload[8:]
        out = out[:39999]
        self.again().call("ATTACH", struct.pack("<QQ", len(out), 0), 1)
        self.link.credit(1, 1, len(out))
        while True:
            f = self.link.next(lambda f: f.type == "STDOUT")
            self.assertEqual(struct.unpack_from("<Q", f.payload)[0], len(out))
            out += f.payload[8:]
            self.link.credit(1, 1, len(out))
            if f.flags & EOF:
                break
        self.assertEqual(out, b"".join(b"%d\n" % i for i in range(1, 200001)))

    def test_watch_ends_with_its_host_and_can_be_set_again(self):
        place = pathlib.Path(self.guest.dir) / "watched"
        place.mkdir()
        for name in "first", "second":
            self.link.path("WATCH", str(place), id=5)
            (place / name).write_text("x")
            f = self.link.next(lambda f: f.type == "EVENT" and name.encode() in f.payload)
            self.assertEqual(f.id, 5)
            self.again()

    def test_bytes_of_files_cannot_be_packets(self):
        """The file has frames of this very connection, with the right sums."""
        port = self.link.port
        frame = HEAD.pack(0, TYPES["SHUTDOWN"], 0, 0, 0)
        evil = b"".join(Port.pack(b"H" + struct.pack("<I", n) + frame, port.nonce)
                        for n in range(port.sent, port.sent + 4))
        evil += Port(port.nonce + 1).sync() + MARKS
        path = self.guest.dir + "/evil"
        self.link.write(path, evil)
        self.assertEqual(self.link.read(path), evil)
        self.assertEqual(self.link.run(1, ["cat"], stdin=evil)[1], evil)
        self.alive()

    def test_descriptors_are_refused_as_unsupported(self):
        for stdio, flags in ((FD, PIPE, PIPE), 0), ((NULL, PIPE, NULL), COPY | LOG):
            self.refused("unsupported", self.link.exec, 1, ["true"], stdio=stdio, flags=flags)
        self.link.exec(1, ["true"], flags=LOG, stdio=(NULL, PIPE, NULL))
        self.refused("unsupported", self.link.call, "LOG_OPEN", id=1)
        self.alive()

    def test_wrong_reads_of_a_log_end_the_connection_only(self):
        self.link.exec(1, ["true"], flags=LOG, stdio=(NULL, PIPE, NULL))
        self.refused("not_found", self.link.log_read, 2, 1, 0)
        for stream, offset, n in (0, 0, 1), (3, 0, 1), (1, 1 << 63, 1), (1, 0, CHUNK + 1):
            with self.assertRaises(Closed):
                self.link.log_read(1, stream, offset, n)
            self.again()
        self.alive()

    def test_message_before_hello_is_refused_and_next_host_is_served(self):
        link = Link(self.link.sock, hello=False, port=Port())
        link.send("PING", tag=1)
        with self.assertRaises(Closed):
            link.next()
        self.again()
        self.alive()


class Paths(GuestCase):
    """--port PATH, as in a vm: a terminal takes the place of the virtio port."""

    def setUp(self):
        self.master, self.slave = pty.openpty()
        self.addCleanup(os.close, self.master)
        self.kw = dict(ctl=False, linger=1, more=["--port", os.ttyname(self.slave)])
        super().setUp()
        # The guest says LOST once it has opened the port. Before that it is a terminal with echo.
        self.assertTrue(select.select([self.master], [], [], 20 * PATIENCE)[0])
        os.close(self.slave)

    def connect(self):
        return Link(Terminal(self.master), port=Port())

    def test_terminal_is_made_raw_and_served(self):
        for _ in range(2):
            link = self.connect()
            self.assertEqual(link.run(1, ["cat"], stdin=MARKS + b"\x03\x04\r\n")[1], MARKS + b"\x03\x04\r\n")

    def test_guest_without_host_neither_ends_nor_uses_processor(self):
        """The master is closed: reads of the port return at once for ever, as without a host in QEMU."""
        link = self.connect()
        link.exec(1, ["sleep", "1000"], stdio=(NULL,) * 3)
        os.dup2(os.open(os.devnull, os.O_RDWR), self.master)
        time.sleep(0.2 * PATIENCE)
        stat = pathlib.Path(f"/proc/{self.guest.pid()}/stat")

        def ticks():
            return sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13]))
        before = ticks()
        time.sleep(1)
        self.assertLess(ticks() - before, 20)


class Terminal:
    """The methods of a socket that Link needs, over a terminal."""

    def __init__(self, fd):
        self.fd, self.timeout = fd, None

    def settimeout(self, seconds):
        self.timeout = seconds

    def sendall(self, data):
        while data:
            data = data[os.write(self.fd, data):]

    def recv(self, size):
        if not select.select([self.fd], [], [], self.timeout)[0]:
            raise TimeoutError
        return os.read(self.fd, size)

    def close(self):
        pass


if __name__ == "__main__":
    unittest.main()
