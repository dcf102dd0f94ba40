"""The guest's file API against the files of a hostile box (group 16) and its socket against a hostile
host side (group 33): whatever comes closes that connection and nothing else."""
import array
import os
import random
import socket
import stat
import struct
import subprocess
import threading
import time

import pytest

from guestlink import CHUNK, CREATE, HEAD, NOFOLLOW, TRUNCATE, TYPES, VERSION, Closed, Link, Refused, exec_payload, s
from lab import ROOTLESS, counts
from patience import PATIENCE, clock


@pytest.fixture
def box(lab):
    return lab.keep().install()


def refused(call, *args, **kw):
    counts["attacks tried"] += 1
    try:
        got = call(*args, **kw)
    except Refused as e:
        return e.number or e.code
    return got


# Links that lead to what the guest itself holds: its descriptors, its root, its program.
MAGIC = ["/proc/self/root/etc/passwd", "/proc/1/root/etc/passwd", "/proc/self/cwd/etc/passwd", "/proc/self/exe",
         "/proc/1/exe", "/proc/self/fd/3", "/proc/self/fd/4", "/proc/self/fd/5", "/proc/self/fd/10", "/proc/1/fd/3",
         "/proc/self/task/1/fd/3", "/proc/thread-self/fd/3", "/dev/fd/3", "/dev/stdin", "/dev/stdout"]
PROC = ["/proc/self/environ", "/proc/self/mem", "/proc/1/mem", "/proc/1/maps", "/proc/self/oom_score_adj",
        "/proc/sys/kernel/core_pattern", "/proc/kallsyms", "/proc/sysrq-trigger", "/proc/self/attr/current",
        "/proc/self/coredump_filter", "/proc/version"]


@pytest.mark.parametrize("path", MAGIC + PROC)
def test_proc_is_refused(box, path):
    link = box.link()
    box.sh(f"ln -s {path} /tmp/link")
    for name in (path, "/tmp/link"):
        assert not refused(link.read, name) or isinstance(refused(link.read, name), int), name
        assert isinstance(refused(link.write, name, b"0"), int), name
        assert isinstance(refused(link.path, "CHMOD", name, mode=0o777), int), name
    assert link.read("/etc/hostname")  # the control: a file of the box is read


def test_nothing_but_regular_files_is_opened(box):
    box.sh("mkfifo /tmp/fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/tmp/socket\")'; "
           "ln -s /dev/zero /tmp/zero; ln -s /dev/tty /tmp/tty; ln -s /dev/pts/ptmx /tmp/ptmx; ln -s loop /tmp/loop")
    link = box.link()
    for name in ("fifo", "socket", "zero", "tty", "ptmx", "loop", "."):
        began = clock()
        assert isinstance(refused(link.read, f"/tmp/{name}"), int), name
        assert isinstance(refused(link.write, f"/tmp/{name}", b"x", flags=0), int), name
        assert clock() - began < 1, f"{name} made the guest wait"


def test_paths_do_not_leave_the_box(box, tmp_path_factory):
    mark = tmp_path_factory.mktemp("host") / "mark"
    mark.write_text("the host")
    link = box.link()
    for path in (str(mark), "/" + "../" * 30 + str(mark)[1:], f"/tmp/..{mark}", f"/proc/self/root{mark}"):
        assert isinstance(refused(link.read, path), int), path
        assert isinstance(refused(link.stat, path), int), path
    for path in ("", "etc/hostname", "../etc/hostname", ".", "\x01"):
        assert refused(link.read, path) == 22, path
    for path in ("/", "/..", "/tmp/.", "/tmp/.."):
        assert refused(link.path, "REMOVE", path, flags=4) in (22, 16, 1, 39), path
    link.write("/" + "../" * 30 + "tmp/inside", b"x")
    assert box.sh("cat /tmp/inside") == "x"


def test_a_link_swapped_under_the_guest(box):
    """The classic race: a directory that is a link every other moment. It stays in the box by itself;
    as the user it was asked for, it also stays within what that user may touch."""
    box.sh("mkdir -p /home/user/d /root/secret; echo keep > /root/secret/f; echo mine > /home/user/d/f; "
           "chmod 700 /root; chown -R user /home/user")
    swap = ("import os\nos.chdir('/home/user'); os.symlink('/root/secret', 'l')\n"
            "while True:\n os.rename('d', 't'); os.rename('l', 'd'); os.rename('d', 'l'); os.rename('t', 'd')")
    racer = box.popen("python3", "-c", swap, user="user")
    link, seen = box.link(), set()
    end = time.monotonic() + 2
    counts["attacks tried"] += 3
    while time.monotonic() < end:
        for call in (lambda: link.read("/home/user/d/f", uid=1000, gid=1000),
                     lambda: link.write("/home/user/d/f", b"lost", flags=CREATE | TRUNCATE, uid=1000, gid=1000),
                     lambda: link.path("REMOVE", "/home/user/d/f", uid=1000, gid=1000)):
            try:
                seen.add(bytes(call()) if isinstance(r := call(), bytes) else type(r).__name__)
            except Refused as e:
                seen.add(e.number)
    racer.kill()
    racer.wait()
    assert box.sh("cat /root/secret/f") == "keep\n" and b"keep\n" not in seen
    assert 13 in seen, f"the link was never met: {seen}"  # the control: the race was on


def test_watches_and_lists_of_odd_directories(box):
    link = box.link()
    box.sh("mkdir /tmp/many; cd /tmp/many; seq 1 3000 | xargs touch; touch \"$(printf 'a\\nb')\" \"$(head -c 255 /dev/zero | tr '\\0' x)\"")
    names, cookie = set(), 0
    while True:
        cookie, entries = link.list("/tmp/many", cookie)
        names |= {e["name"] for e in entries}
        if not cookie:
            break
    counts["attacks tried"] += 1
    assert len(names) == 3002
    for n in range(1, 65):
        link.path("WATCH", f"/tmp/many/{n}", id=n)
    assert refused(link.path, "WATCH", "/tmp/many/65", id=65) == "limit"
    assert refused(link.path, "WATCH", "/tmp/many/1", id=1) in ("exists", "limit")


# The socket.

def alive(box):
    """The machine still serves, and others' connections with it."""
    return box.link().call("PING").type == "OK" and box.exec("true").returncode == 0


def is_closed(sock):
    sock.settimeout(5 * PATIENCE)
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    except socket.timeout:
        return False
    return True


HELLO = HEAD.pack(16, TYPES["HELLO"], 0, 0, 0) + struct.pack("<IIQ", VERSION, 0, 0)
EXEC = exec_payload(["true"])
BAD = {
    "bytes": os.urandom(4096),
    "zeroes": bytes(4096),
    "ones": b"\xff" * 4096,
    "a length of 4 GiB": HELLO + HEAD.pack(0xFFFFFFFF, TYPES["PING"], 0, 0, 1),
    "a length just over the limit": HELLO + HEAD.pack((1 << 20) * 64, TYPES["PING"], 0, 0, 1),
    "no hello": HEAD.pack(0, TYPES["PING"], 0, 0, 1),
    "two hellos": HELLO + HELLO,
    "another version": HEAD.pack(16, TYPES["HELLO"], 0, 0, 0) + struct.pack("<IIQ", 99, 0, 0),
    "an unknown type": HELLO + HEAD.pack(0, 999, 0, 0, 1),
    "type 0": HELLO + HEAD.pack(0, 0, 0, 0, 1),
    "an answer as a question": HELLO + HEAD.pack(0, TYPES["OK"], 0, 0, 1),
    "descriptors that never came": HELLO + HEAD.pack(0, TYPES["PING"], 3, 0, 1),
    "a short exec": HELLO + HEAD.pack(4, TYPES["EXEC"], 0, 1, 1) + b"abcd",
    "an exec with bytes left over": HELLO + HEAD.pack(len(EXEC) + 4, TYPES["EXEC"], 0, 1, 1) + EXEC + b"more",
    "an exec without arguments": HELLO + (lambda p: HEAD.pack(len(p), TYPES["EXEC"], 0, 1, 1) + p)(exec_payload([])),
    "an exec with id 0": HELLO + HEAD.pack(len(EXEC), TYPES["EXEC"], 0, 0, 1) + EXEC,
    "a path without an end": HELLO + HEAD.pack(20, TYPES["STAT"], 0, 0, 1) + struct.pack("<IIIII", 0, 0, 0, 0, 0xFFFF),
    "a path with a NUL": HELLO + (lambda p: HEAD.pack(len(p), TYPES["STAT"], 0, 0, 1) + p)(
        struct.pack("<IIII", 0, 0, 0, 0) + struct.pack("<I", 3) + b"/\0a\0"),
    "a read of 4 GiB": HELLO + (lambda p: HEAD.pack(len(p), TYPES["READ"], 0, 0, 1) + p)(
        struct.pack("<IIQI", 0, 0, 0, 0xFFFFFFFF) + s("/etc/hostname")),
    "credit for a stream that is none": HELLO + HEAD.pack(9, TYPES["CREDIT"], 0, 1, 0) + struct.pack("<BQ", 9, 1),
}


@pytest.mark.parametrize("what", BAD)
def test_a_malformed_frame_closes_its_connection_only(box, what):
    other = box.link()
    sock = box.connect()
    counts["attacks tried"] += 1
    try:
        sock.sendall(BAD[what])
        sock.shutdown(socket.SHUT_WR)
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert is_closed(sock)
    assert other.call("PING").type == "OK" and alive(box)


def test_only_the_spawner_may_say_some_things(box):
    link = box.link()
    for type_, payload in (("DEADLINE", struct.pack("<Q", 1)), ("SPARES", struct.pack("<BB", 0, 2)), ("LINGER", b""),
                           ("CLONE_ID", s("x") + s("") + struct.pack("<I", 0))):
        assert refused(link.call, type_, payload) == "denied", type_
    assert alive(box)


def test_frames_that_never_end(box):
    """Partial frames on every connection the guest will take; it keeps serving once they close."""
    socks = []
    counts["attacks tried"] += 1
    for _ in range(32):
        sock = box.connect()
        try:
            sock.sendall(HELLO + HEAD.pack(60000, TYPES["PING"], 0, 0, 1) + b"x" * 100)
        except (BrokenPipeError, ConnectionResetError):
            pass
        socks.append(sock)
    for sock in socks:
        sock.close()
    assert alive(box)


def test_a_flood_of_descriptors(box):
    counts["attacks tried"] += 1
    null = os.open("/dev/null", os.O_RDONLY)
    before = settled_descriptors(box)
    for _ in range(20):
        sock = box.connect()
        try:
            for _ in range(50):
                sock.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 200))])
        except (BrokenPipeError, ConnectionResetError, OSError):
            pass
        sock.close()
    os.close(null)
    assert alive(box)
    assert guest_descriptors(box) <= before + 1


def guest_pid(box):
    """pid 1 of the box, as the host sees it."""
    for line in (box.socket.parent / "box").read_text().splitlines():
        if line.startswith("pid="):
            return int(line[4:])
    return int((box.socket.parent / "pid").read_text())


def guest_descriptors(box):
    if ROOTLESS:
        pytest.skip("another user's descriptors cannot be counted")
    return len(os.listdir(f"/proc/{guest_pid(box)}/fd"))


def settled_descriptors(box):
    """Once it has the groups for commands that it wants: the spawner hands them over when it can."""
    assert box.exec("sleep", "0.5").returncode == 0  # it asks for them only while a command lasts
    last, since = guest_descriptors(box), clock()
    while clock() - since < 0.5:
        if (now := guest_descriptors(box)) != last:
            last, since = now, clock()
        time.sleep(0.02)
    return last


def test_random_frames_do_no_harm(box):
    """Frames with a sound head and any payload, from a fixed seed; some even ask for something."""
    rng = random.Random(4711)
    counts["attacks tried"] += 1
    types = [t for n, t in TYPES.items() if n not in ("SHUTDOWN", "HELLO")]
    for _ in range(300):
        sock = box.connect()
        payload = rng.randbytes(rng.choice((0, 1, 4, 16, 24, 64, 300)))
        try:
            sock.sendall(HELLO + HEAD.pack(len(payload), rng.choice(types), 0, rng.randrange(3), rng.randrange(3)) + payload)
        except (BrokenPipeError, ConnectionResetError):
            pass
        sock.close()
    assert alive(box)


def test_what_was_received_goes_no_further(box):
    """Descriptors that a client passed for one command are in no other and not in the guest after."""
    read, write = os.pipe()
    link = box.link()

    before = settled_descriptors(box)
    for n in range(1, 6):
        link.exec(n, ["true"], fds=[read, write, write], stdio=(2, 2, 2))
        link.exit(n)
    end = clock() + 5
    while guest_descriptors(box) > before + 1 and clock() < end:
        time.sleep(0.02)
    assert guest_descriptors(box) <= before + 1
    os.close(read), os.close(write)
    link.sock.close()


def test_the_control_channel_cannot_be_found_from_inside(box):
    """Only the socket of the command `carrel` is there, under its abstract name."""
    script = ("awk 'NR > 1 && $4 == 00010000 {print $8}' /proc/net/unix; find / -xdev -type s 2>/dev/null | wc -l; "
              "cat /proc/1/fd/* 2>/dev/null | wc -l")
    counts["attacks tried"] += 4
    assert box.sh(script).split() == ["@carrel", "0", "0"]


def test_the_socket_of_carrel_does_not_speak_the_protocol(box):
    """It takes one packet of words. A program that goes on as a host would is cut off, and learns nothing."""
    hello = bytes([16, 0, 0, 0, 1, 0, 0, 0]) + bytes(4) + bytes([1, 0, 0, 0]) + bytes([2, 0, 0, 0]) + bytes(12)
    script = ("import socket\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.connect('\\0carrel')\n"
              f"try:\n  s.send({hello!r})\n  s.send({hello!r})\n  print(s.recv(65536))\n"
              "except OSError:\n  print(b'')")
    counts["attacks tried"] += 1
    assert box.sh(f"python3 -c \"{script}\"").strip() == "b''"
    assert alive(box)
