"""A stand-in at a box's socket: what a daemon meets when the guest behind it cannot serve it."""
import contextlib
import os
import pathlib
import select
import socket
import struct
import threading

HEAD = struct.Struct("<IHHII")  # payload bytes, type, flags, id, tag
HELLO, OK, PING, ATTACH, TABLE, LOG_OPEN = 1, 2, 4, 28, 29, 35
TABLE_ROWS, SWITCH_ROOT = 30, 84
EXEC_LOG = 4  # enum msg_exec_flag
ROW = struct.Struct("<I5BII6QII4Q")  # struct msg_row


def frames(data):
    """The types of the whole frames in these bytes."""
    at = 0
    while at + HEAD.size <= len(data):
        size, kind, *_ = HEAD.unpack_from(data, at)
        yield kind
        at += HEAD.size + size


class Relay:
    """Takes the place of guest.sock until back()."""

    def __init__(self, run_dir, machine):
        self.path = pathlib.Path(run_dir, "boxes", machine, "guest.sock")
        self.real = self.path.with_name("guest.real")
        os.rename(self.path, self.real)
        self.listener = socket.socket(socket.AF_UNIX)
        with short(self.path) as name:
            self.listener.bind(name)
        self.listener.listen(16)
        self.accepted = 0
        self.done = threading.Event()

    def back(self):
        if self.real.exists():
            os.rename(self.real, self.path)
        self.listener.close()

    def serve(self, handle):
        """Each connection to handle(), in a thread, until it returns False."""
        def run():
            while True:
                try:
                    peer, _ = self.listener.accept()
                except OSError:
                    return
                self.accepted += 1
                with peer, contextlib.suppress(ConnectionError):  # the daemon ended: the next one is awaited
                    if handle(peer) is False:
                        self.done.set()
                        return

        threading.Thread(target=run, daemon=True).start()

    def speak_version(self, version):
        """Answers every HELLO with this version of the protocol."""
        def handle(peer):
            peer.recv(4096)
            peer.sendall(HEAD.pack(16, HELLO, 0, 0, 0) + struct.pack("<IIQ", version, 0, 7))

        self.serve(handle)

    def tell_of(self, count, rounds):
        """Plays a guest that tells of so many commands that nobody started, each time of others. The log of the last
        one is not given: the connection is cut instead, so that the daemon asks again, until the last round."""
        def table(tag):
            first = self.told * count + 1
            logged = first + count - 1 if self.told + 1 < rounds else 0
            rows = b"".join(ROW.pack(n, 1, 0, 0, 0, 0, EXEC_LOG if n == logged else 0, *[0] * 13)
                            for n in range(first, first + count))
            return HEAD.pack(4 + len(rows), TABLE_ROWS, 0, 0, tag) + struct.pack("<I", count) + rows

        def handle(peer):
            data = b""
            while more := peer.recv(1 << 16):
                data += more
                while len(data) >= HEAD.size and len(data) >= HEAD.size + HEAD.unpack_from(data)[0]:
                    size, kind, _, _, tag = HEAD.unpack_from(data)
                    said, data = data[HEAD.size:HEAD.size + size], data[HEAD.size + size:]
                    if kind == HELLO:  # in the version that was asked for
                        peer.sendall(HEAD.pack(16, HELLO, 0, 0, 0) + said[:4] + struct.pack("<IQ", 0, 7))
                    elif kind == PING:
                        peer.sendall(HEAD.pack(8, OK, 0, 0, tag) + bytes(8))
                    elif kind == TABLE:
                        peer.sendall(table(tag))
                        self.told += 1
                    elif kind == LOG_OPEN:
                        return True
            return True

        self.told = 0
        self.serve(handle)

    def cut_at(self, kind, hold=False):
        """Passes everything on until the daemon sends a frame of that type: then the connection is cut, or held
        until the daemon ends, and the next one meets the guest itself."""
        def handle(peer):
            with socket.socket(socket.AF_UNIX) as guest, short(self.real) as name:
                guest.connect(name)
                while True:
                    for s in select.select([peer, guest], [], [])[0]:
                        data, fds, *_ = socket.recv_fds(s, 1 << 16, 24)
                        if s is peer and kind in frames(data):
                            self.back()
                            self.done.set()
                            while hold and peer.recv(1 << 16):
                                pass
                            return False
                        if not data:
                            return True
                        socket.send_fds(guest if s is peer else peer, [data], fds)
                        for fd in fds:
                            os.close(fd)

        self.serve(handle)


class short:
    """A name for a socket's path that is short enough for its address."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def __enter__(self):
        self.fd = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self.fd}/{self.path.name}"

    def __exit__(self, *_):
        os.close(self.fd)
