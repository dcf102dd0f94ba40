"""The host's side of the guest protocol, written from base/wire/msg.h and apart from the C one."""
import array
import os
import socket
import struct
import subprocess
import time

from patience import PATIENCE

HEAD = struct.Struct("<IHHII")
EOF = 0x100
NONE = 0xFFFFFFFF
VERSION = 2
CHUNK = 64 << 10

TYPES = dict(
    HELLO=1, OK=2, ERROR=3, PING=4, SHUTDOWN=5,
    EXEC=16, EXEC_STARTED=17, EXEC_FAILED=18, STDIN=19, STDOUT=20, STDERR=21, CREDIT=22, EXIT=23,
    EXIT_ACK=24, SIGNAL=25, KILL=26, RESIZE=27, ATTACH=28, TABLE=29, TABLE_ROWS=30, BUSY=31,
    BUSY_STATE=32, LOG_WAIT=33, LOG_GREW=34, LOG_OPEN=35,
    STAT=48, ENTRY=49, LIST=50, LIST_PAGE=51, READ=52, READ_DATA=53, WRITE=54, MKDIR=55, MOVE=56,
    REMOVE=57, CHMOD=58, CHOWN=59, SYMLINK=60, WATCH=61, UNWATCH=62, EVENT=63,
    CLONE_ID=80, DEADLINE=81, SPARES_WANT=82, SPARES=83, SWITCH_ROOT=84, LINGER=85,
    LOG_READ=86, LOG_DATA=87,
)
NAMES = {v: k for k, v in TYPES.items()}
CODES = [None, "internal", "invalid", "not_found", "exists", "denied", "limit", "busy",
         "unsupported", "gone", "unknown", "timeout"]
NULL, PIPE, FD, PTY, SAME = range(5)
QUIET, KILL_LEFT, LOG, TOOL, COPY, PACED = 1, 2, 4, 8, 64, 1024
SIGNALED, TIMED_OUT, CORE, KILLED = 1, 2, 4, 8
NOFOLLOW, PARENTS, RECURSIVE, CREATE, EXCLUSIVE, TRUNCATE, APPEND, NOREPLACE = (
    1 << i for i in range(8))


def b(x):
    return x.encode() if isinstance(x, str) else x


def s(x):
    return struct.pack("<I", len(b(x))) + b(x) + b"\0"


def strs(v):
    body = b"".join(b(x) + b"\0" for x in v)
    return struct.pack("<II", len(v), len(body)) + body


def exec_payload(argv, *, flags=0, stdio=(PIPE, PIPE, PIPE), rows=0, cols=0, window=0, uid=NONE,
                 gid=NONE, timeout_ms=0, groups=(), rlimits=(), cwd="/", env=("PATH=/usr/bin:/bin",)):
    p = struct.pack("<I3BHHIIIQ", flags, *stdio, rows, cols, window, uid, gid, timeout_ms)
    p += struct.pack("<I", len(groups)) + b"".join(struct.pack("<I", g) for g in groups)
    p += struct.pack("<I", len(rlimits)) + b"".join(struct.pack("<IQQ", *r) for r in rlimits)
    return p + s(cwd) + strs(argv) + strs(env)


class Refused(Exception):
    def __init__(self, code, number, text):
        super().__init__(f"{code or os.strerror(number)}: {text}")
        self.code, self.number, self.text = code, number, text


class Closed(Exception):
    pass


class Frame:
    def __init__(self, type_, flags, id_, tag, payload):
        self.type, self.flags, self.id, self.tag, self.payload = NAMES[type_], flags, id_, tag, payload

    def unpack(self, fmt):
        return struct.unpack(fmt, self.payload)


END, ESC = 0xC0, 0xDB


class PortLost(Closed):
    pass


class Port:
    """One end of base/wire/port.h, that of the host."""

    def __init__(self, nonce=None):
        self.nonce = int.from_bytes(os.urandom(8), "little") if nonce is None else nonce
        self.sent = self.received = 0
        self.is_open = False
        self.packet = bytearray()

    @staticmethod
    def sum(body, seed):
        a, b = seed & 0xFFFFFFFF, seed >> 32
        for c in body:
            a = a + c & 0xFFFFFFFF
            b = b + a & 0xFFFFFFFF
        return struct.pack("<I", b ^ (a << 16 & 0xFFFFFFFF | a >> 16))

    @classmethod
    def pack(cls, body, seed=0):
        body += cls.sum(body, seed)
        return b"\xc0" + body.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc") + b"\xc0"

    def sync(self):
        return self.pack(b"S" + struct.pack("<Q", self.nonce))

    def frame(self, frame):
        self.sent += 1
        return self.pack(b"H" + struct.pack("<I", self.sent - 1) + frame, self.nonce)

    def take(self, packet):
        """The frame in a packet, or None."""
        body = packet.replace(b"\xdb\xdc", b"\xc0").replace(b"\xdb\xdd", b"\xdb")
        body, given = body[:-4], body[-4:]
        if body[:1] == b"A" and body[1:] == struct.pack("<Q", self.nonce):
            self.is_open = True
        if not self.is_open:
            return None
        if body[:1] == b"G" and given == self.sum(body, self.nonce):
            number, = struct.unpack_from("<I", body, 1)
            if number < self.received:
                return None
            if number == self.received:
                self.received += 1
                return body[5:]
        elif body[:1] == b"A" and given == self.sum(body, 0):
            return None
        raise PortLost(packet[:40])

    def frames(self, data):
        for part in data.split(b"\xc0")[:-1]:
            packet = bytes(self.packet) + part
            self.packet.clear()
            if packet and (frame := self.take(packet)) is not None:
                yield frame
        self.packet += data.rsplit(b"\xc0", 1)[-1]


class Exit:
    def __init__(self, f):
        (self.flags, self.status, self.user_us, self.system_us, self.max_rss_kb,
         self.wall_us) = f.unpack("<IIQQQQ")


class Link:
    def __init__(self, sock, hello=True, port=None):
        self.sock, self.buf, self.tag, self.kept, self.fds, self.port = sock, b"", 0, [], [], port
        sock.settimeout(20 * PATIENCE)
        if port:
            self.sock.sendall(port.sync())
        if hello:
            self.greet()

    def greet(self):
        self.send("HELLO", struct.pack("<IIQ", VERSION, 0, 0))
        f = self.next()
        assert f.type == "HELLO", f.type
        self.version, self.features, self.incarnation = f.unpack("<IIQ")

    def send(self, type_, payload=b"", id=0, tag=0, flags=0, fds=()):
        data = HEAD.pack(len(payload), TYPES[type_], flags | len(fds), id, tag) + payload
        if self.port:
            data = self.port.frame(data)
        if fds:
            n = self.sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                            array.array("i", fds))])
            data = data[n:]
        self.sock.sendall(data)

    def _read(self):
        if self.port:
            data, fds = self.sock.recv(1 << 20), []
        else:
            data, fds, _, _ = socket.recv_fds(self.sock, 1 << 20, 24)
        self.fds += fds
        if not data:
            raise Closed()
        self.buf += b"".join(self.port.frames(data)) if self.port else data

    def _frame(self):
        while len(self.buf) < 16 or len(self.buf) < 16 + HEAD.unpack_from(self.buf)[0]:
            self._read()
        n, type_, flags, id_, tag = HEAD.unpack_from(self.buf)
        f = Frame(type_, flags, id_, tag, self.buf[16:16 + n])
        self.buf = self.buf[16 + n:]
        return f

    def next(self, want=None):
        """The next frame for which want(frame) holds; others are kept for later calls."""
        for i, f in enumerate(self.kept):
            if not want or want(f):
                return self.kept.pop(i)
        while True:
            f = self._frame()
            if f.type == "ERROR" and f.tag == 0:
                raise Closed(f.payload)
            if not want or want(f):
                return f
            self.kept.append(f)

    def silent_for(self, seconds, want):
        """True if no frame with want(frame) comes in that time."""
        end = time.monotonic() + seconds
        try:
            while (left := end - time.monotonic()) > 0:
                self.sock.settimeout(left)
                f = self._frame()
                if want(f):
                    self.kept.append(f)
                    return False
                self.kept.append(f)
        except (TimeoutError, socket.timeout):
            pass
        finally:
            self.sock.settimeout(20 * PATIENCE)
        return True

    def call(self, type_, payload=b"", id=0, fds=()):
        self.tag += 1
        tag = self.tag
        self.send(type_, payload, id, tag, fds=fds)
        f = self.next(lambda f: f.tag == tag)
        if f.type == "ERROR":
            code, number, n = struct.unpack_from("<III", f.payload)
            raise Refused(CODES[code], number, f.payload[12:12 + n].decode())
        return f

    # Commands.

    def exec(self, id, argv, fds=(), **kw):
        return self.call("EXEC", exec_payload(argv, **kw), id, fds)

    def stdin(self, id, offset, data=b"", eof=False):
        self.send("STDIN", struct.pack("<Q", offset) + data, id, flags=EOF if eof else 0)

    def credit(self, id, stream, consumed):
        self.send("CREDIT", struct.pack("<BQ", stream, consumed), id)

    def exit(self, id, ack=True):
        e = Exit(self.next(lambda f: f.type == "EXIT" and f.id == id))
        if ack:
            self.call("EXIT_ACK", id=id)
        return e

    def output(self, id, stream="STDOUT", credit=True):
        """All bytes of a stream to its end, in order, with their offsets checked."""
        out = bytearray()
        while True:
            f = self.next(lambda f: f.type == stream and f.id == id)
            assert struct.unpack_from("<Q", f.payload)[0] == len(out)
            out += f.payload[8:]
            if f.flags & EOF:
                return bytes(out)
            if credit and f.payload[8:]:
                self.credit(id, 1 if stream == "STDOUT" else 2, len(out))

    def run(self, id, argv, stdin=b"", **kw):
        f = self.exec(id, argv, **kw)
        if f.type == "EXEC_FAILED":
            return f
        if kw.get("stdio", (PIPE,))[0] == PIPE:
            self.stdin(id, 0, stdin, eof=True)
        out = self.output(id) if kw.get("stdio", (PIPE, PIPE))[1] != NULL else b""
        return self.exit(id), out

    def table(self):
        f = self.call("TABLE")
        row = struct.Struct("<IBB3BIIQQQQQQIIQQQQ")
        assert len(f.payload) == 4 + row.size * struct.unpack_from("<I", f.payload)[0]
        keys = ("id state attached in_ out err flags pid age stdin_received out_consumed err_consumed "
                "out_produced err_produced exit_flags status user_us system_us rss wall_us").split()
        return {r[0]: dict(zip(keys, r)) for r in row.iter_unpack(f.payload[4:])}

    def busy(self):
        return self.call("BUSY").unpack("<BIII")

    def log_wait(self, id, produced=(0, 0), ended=0):
        """What the log holds, once that differs from this."""
        *produced, ended = self.call("LOG_WAIT", struct.pack("<QQB", *produced, ended), id).unpack("<QQB")
        return tuple(produced), ended

    def log_open(self, id):
        f = self.call("LOG_OPEN", id=id)
        assert f.flags == 1, f.flags
        return self.fds.pop(0)

    def log_read(self, id, stream, offset, n=CHUNK):
        """Offset of the first byte, bytes, produced, lost, ended."""
        f = self.call("LOG_READ", struct.pack("<BQI", stream, offset, n), id)
        at, produced, lost, ended = struct.unpack_from("<QQQB", f.payload)
        return at, f.payload[25:], produced, lost, ended

    # Files.

    def path(self, type_, path, flags=0, mode=0, uid=NONE, gid=NONE, id=0):
        return self.call(type_, struct.pack("<IIII", uid, gid, flags, mode) + s(path), id)

    def stat(self, path, flags=0, **kw):
        return self.entry(self.path("STAT", path, flags, **kw).payload)[0]

    @staticmethod
    def entry(p):
        keys = "mode uid gid nlink size mtime_ns ino".split()
        e = dict(zip(keys, struct.unpack_from("<IIIIQQQ", p)))
        at = 40
        for key in "name", "target":
            n = struct.unpack_from("<I", p, at)[0]
            e[key] = p[at + 4:at + 4 + n].decode()
            at += 5 + n
        return e, p[at:]

    def list(self, path, cookie=0, max=0, uid=NONE):
        p = self.call("LIST", struct.pack("<IIQI", uid, NONE, cookie, max) + s(path)).payload
        (cookie, count), p = struct.unpack_from("<QI", p), p[12:]
        entries = []
        while p:
            e, p = self.entry(p)
            entries.append(e)
        assert len(entries) == count
        return cookie, entries

    def read(self, path, offset=0, n=CHUNK, uid=NONE, gid=NONE):
        return self.call("READ", struct.pack("<IIQI", uid, gid, offset, n) + s(path)).payload[28:]

    def write(self, path, data, offset=0, flags=CREATE, mode=0o644, uid=NONE, gid=NONE):
        p = struct.pack("<IIIIQ", uid, gid, flags, mode, offset) + s(path) + data
        return self.call("WRITE", p).unpack("<Q")[0]

    def move(self, type_, from_, to, flags=0, uid=NONE):
        return self.call(type_, struct.pack("<III", uid, NONE, flags) + s(from_) + s(to))
