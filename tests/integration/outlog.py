"""A log of output as the host makes and reads it, written from base/wire/outlog.h and apart from the C one."""
import fcntl
import mmap
import os
import struct

PAGE, TURNS = 4096, 4096
DATA = PAGE + 8 * TURNS
STREAM = struct.Struct("<QQQQ")  # claimed, produced, lost, ended
F_ADD_SEALS, SHRINK, GROW, SEAL = 1033, 2, 4, 1


class Log:
    def __init__(self, head=(1 << 20, 1 << 20), tail=(1 << 20, 1 << 20), seals=SHRINK | GROW | SEAL, fd=None):
        self.head, self.tail = head, tail
        self.bytes = DATA + sum(head) + sum(tail)
        self.fd = fd
        if fd is None:
            self.fd = os.memfd_create("outlog", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.truncate(self.fd, self.bytes)
            os.pwrite(self.fd, struct.pack("<II4Q", 0x474c5243, 1, *head, *tail), 0)
            fcntl.fcntl(self.fd, F_ADD_SEALS, seals)
        self.map = mmap.mmap(self.fd, self.bytes)

    def close(self):
        self.map.close()
        os.close(self.fd)

    def numbers(self, stream):
        return STREAM.unpack_from(self.map, 40 + 32 * stream)

    def produced(self, stream=0):
        return self.numbers(stream)[1]

    def ended(self, stream=0):
        return self.numbers(stream)[3] == 1

    def turns(self):
        n = struct.unpack_from("<Q", self.map, 104)[0]
        return [struct.unpack_from("<Q", self.map, PAGE + 8 * (i % TURNS))[0] for i in range(max(0, n - TURNS), n)]

    def bytes_of(self, stream=0):
        """(start, bytes left out, end): all that is kept. Only when nobody writes any more."""
        head, tail, n = self.head[stream], self.tail[stream], self.produced(stream)
        at = DATA + (self.head[0] + self.tail[0] if stream else 0)
        start = self.map[at:at + min(n, head)]
        if n <= head:
            return start, 0, b""
        at += head
        if n - head <= tail:
            return start, 0, self.map[at:at + n - head]
        turn = (n - head) % tail
        return start, n - head - tail, self.map[at + turn:at + tail] + self.map[at:at + turn]

    def text(self, stream=0):
        start, left_out, end = self.bytes_of(stream)
        assert left_out == 0
        return start + end

    def allocated(self):
        """Bytes of memory it takes."""
        return os.fstat(self.fd).st_blocks * 512
