"""The server of a vm's files, asked by a kernel that lies: this test speaks FUSE itself."""
import errno
import os
import socket
import struct
import subprocess

import pytest

from booted import SPAWNER
from patience import PATIENCE

LOOKUP, GETATTR, SETATTR, READLINK, SYMLINK, MKNOD, MKDIR, UNLINK = 1, 3, 4, 5, 6, 8, 9, 10
LINK, OPEN, READ, WRITE, RELEASE, INIT, OPENDIR, READDIR, CREATE = 13, 14, 15, 16, 18, 26, 27, 28, 35
ROOT = 1


class Kernel:
    """What is asked is a path below the tree; the answer is the number of an error, or bytes."""

    def __init__(self, tree):
        self.sock, server = socket.socketpair()
        self.sock.settimeout(20 * PATIENCE)
        self.process = subprocess.Popen([SPAWNER, "--serve-files", tree, str(server.fileno())],
                                        pass_fds=[server.fileno()], stderr=subprocess.PIPE, text=True)
        server.close()
        assert self.ask(INIT, struct.pack("<IIII", 7, 37, 131072, 0xffffffff))[:8] == struct.pack("<II", 7, 31)

    def take(self, n):
        data = b""
        while len(data) < n:
            more = self.sock.recv(n - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def ask(self, op, body=b"", node=ROOT, uid=0):
        self.sock.sendall(struct.pack("<IIQQIIII", 40 + len(body), op, 7, node, uid, uid, 0, 0) + body)
        size, error, unique = struct.unpack("<IiQ", self.take(16))
        assert unique == 7
        return -error if error else self.take(size - 16)

    def find(self, name, node=ROOT):
        got = self.ask(LOOKUP, name.encode() + b"\0", node)
        return got if isinstance(got, int) else struct.unpack("<Q", got[:8])[0]

    def read(self, node, size=100):
        got = self.ask(OPEN, struct.pack("<II", os.O_RDONLY, 0), node)
        if isinstance(got, int):
            return got
        handle, = struct.unpack("<Q", got[:8])
        return self.ask(READ, struct.pack("<QQIIQII", handle, 0, size, 0, 0, 0, 0), node)


@pytest.fixture
def kernel(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("the files of a vm are served by root")
    (tmp_path / "outside").write_text("of the host")
    tree = tmp_path / "tree"
    (tree / "dir").mkdir(parents=True)
    (tree / "file").write_text("text")
    k = Kernel(tree)
    k.tree = tree
    yield k
    k.sock.close()
    k.process.wait(20 * PATIENCE)
    k.process.stderr.close()


def test_files_are_found_and_read(kernel):
    assert kernel.read(kernel.find("file")) == b"text"
    assert kernel.find("nothing") == errno.ENOENT


@pytest.mark.parametrize("name", ["..", ".", "", "../outside", "/etc", "dir/../file", "n" * 256])
def test_a_name_never_leads_out_of_its_directory(kernel, name):
    assert kernel.find(name) == errno.EINVAL
    assert kernel.ask(UNLINK, name.encode() + b"\0") == errno.EINVAL


def test_a_link_is_never_followed(kernel):
    (kernel.tree / "up").symlink_to("../outside")
    (kernel.tree / "away").symlink_to(kernel.tree.parent)
    up, away = kernel.find("up"), kernel.find("away")
    assert kernel.ask(READLINK, node=up) == b"../outside"
    assert kernel.read(up) == errno.EACCES
    assert kernel.find("outside", away) == errno.ESTALE
    assert kernel.ask(CREATE, struct.pack("<IIII", os.O_WRONLY, 0o644, 0, 0) + b"new\0", away) == errno.ESTALE
    # A new file is not made where a link leads, either.
    (kernel.tree / "dangling").symlink_to("../made")
    assert kernel.ask(CREATE, struct.pack("<IIII", os.O_WRONLY, 0o644, 0, 0) + b"dangling\0") == errno.ELOOP
    assert not (kernel.tree.parent / "made").exists()


def test_a_link_to_the_root_stays_in_the_tree(kernel):
    assert not isinstance(kernel.ask(SYMLINK, b"l\0/outside\0"), int)
    assert os.readlink(kernel.tree / "l") == "/outside" and kernel.read(kernel.find("l")) == errno.EACCES


def test_numbers_that_were_not_given_lead_nowhere(kernel):
    for node in (0, 2, 3, 1 << 19, (1 << 64) - 1):
        assert kernel.ask(GETATTR, bytes(16), node) == errno.ESTALE
        assert kernel.find("file", node) == errno.ESTALE
        assert kernel.ask(LINK, struct.pack("<Q", node) + b"n\0") == errno.ESTALE
    # The socket and other descriptors of the server are small numbers.
    for handle in (0, 1, 2, 3, 4, 5, (1 << 64) - 1):
        assert kernel.ask(READ, struct.pack("<QQIIQII", handle, 0, 10, 0, 0, 0, 0)) == errno.EBADF
        assert kernel.ask(WRITE, struct.pack("<QQIIQII", handle, 0, 1, 0, 0, 0, 0) + b"x") == errno.EBADF
        assert kernel.ask(READDIR, struct.pack("<QQIIQII", handle, 0, 10, 0, 0, 0, 0)) == errno.EBADF


def test_a_handle_of_a_directory_is_no_file(kernel):
    handle, = struct.unpack("<Q", kernel.ask(OPENDIR, bytes(8))[:8])
    assert kernel.ask(READ, struct.pack("<QQIIQII", handle, 0, 10, 0, 0, 0, 0)) == errno.EBADF
    assert b"file" in kernel.ask(READDIR, struct.pack("<QQIIQII", handle, 0, 4096, 0, 0, 0, 0))
    assert kernel.ask(READDIR, struct.pack("<QQIIQII", handle, 0, 4096, 0, 0, 0, 0), kernel.find("file")) == errno.EBADF


def test_what_is_not_a_regular_file_is_not_opened(kernel):
    os.mkfifo(kernel.tree / "fifo")
    assert kernel.read(kernel.find("fifo")) == errno.EACCES
    assert kernel.read(kernel.find("dir")) == errno.EACCES


def test_more_data_than_there_are_are_refused(kernel):
    got = kernel.ask(CREATE, struct.pack("<IIII", os.O_RDWR, 0o600, 0, 0) + b"new\0", uid=1000)
    node, handle = struct.unpack("<Q", got[:8])[0], struct.unpack("<Q", got[128:136])[0]
    assert kernel.ask(WRITE, struct.pack("<QQIIQII", handle, 0, 1000, 0, 0, 0, 0) + b"x", node) == errno.EINVAL
    assert kernel.ask(WRITE, struct.pack("<QQIIQII", handle, 0, 1, 0, 0, 0, 0) + b"x", node) == struct.pack("<II", 1, 0)
    st = (kernel.tree / "new").stat()
    assert (st.st_uid, st.st_gid, st.st_size) == (1000, 1000, 1)
    # No answer is longer than the server has room for.
    assert kernel.ask(READ, struct.pack("<QQIIQII", handle, 0, 0xffffffff, 0, 0, 0, 0), node) == b"x"


def test_a_file_that_was_deleted_is_there_while_it_is_open(kernel):
    node = kernel.find("file")
    handle, = struct.unpack("<Q", kernel.ask(OPEN, struct.pack("<II", os.O_RDWR, 0), node)[:8])
    assert kernel.ask(UNLINK, b"file\0") == b""
    assert kernel.ask(READ, struct.pack("<QQIIQII", handle, 0, 10, 0, 0, 0, 0), node) == b"text"
    assert kernel.find("file") == errno.ENOENT


def test_an_operation_that_is_not_served_and_a_short_request_are_answered(kernel):
    assert kernel.ask(31, bytes(48)) == errno.ENOSYS
    assert kernel.ask(4000) == errno.ENOSYS
    assert kernel.ask(READ, b"short") == errno.EINVAL
    assert kernel.find("dir") > 1


@pytest.mark.parametrize("size", [0, 39, 1 << 30])
def test_a_stream_that_cannot_be_followed_ends_the_server(kernel, size):
    kernel.sock.sendall(struct.pack("<II", size, LOOKUP))
    assert kernel.process.wait(20 * PATIENCE) == 1
    assert "not a request" in kernel.process.stderr.read()


def test_the_server_ends_with_the_vm(kernel):
    kernel.sock.close()
    assert kernel.process.wait(20 * PATIENCE) == 0
