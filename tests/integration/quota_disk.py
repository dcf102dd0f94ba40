"""A filesystem with project quota, a store on it, and what to ask of both."""
import ctypes
import errno
import fcntl
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import time

import pytest
from carrel import Carrel
from host_state import HostState
from patience import clock

MAKE = {
    "ext4": ["mke2fs", "-q", "-F", "-t", "ext4", "-N", "65536", "-O", "quota,project", "-E", "quotatype=prjquota"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}
SMALL = ["--mem", "100M", "--disk", "64M"]  # too much for tmpfs, which may have half of the memory
FULL = {"ext4": errno.EDQUOT, "xfs": errno.ENOSPC}
FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR = 0x801c581f, 0x401c5820
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS = 0x80086601, 0x40086602
Q_GETNEXTQUOTA, PRJQUOTA, SYS_QUOTACTL_FD = 0x800009, 2, 443
FILL = ("import os\ndef fill(path, megabytes):\n  n = 0\n  try:\n    with open(path, 'ab', 0) as f:\n"
        "      while n < megabytes: n += f.write(bytes(1 << 20)) >> 20\n"
        "  except OSError as e: return n, e.errno\n  return n, 0\n")


class Disk:
    """A filesystem with project quota in a file, mounted."""

    def __init__(self, kind):
        self.kind = kind
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cq-", dir="/tmp"))
        self.mount, image = self.dir / "mnt", self.dir / "image"
        self.mount.mkdir()
        image.touch()
        os.truncate(image, 640 << 20)
        try:
            self.make(image)
        except BaseException:
            shutil.rmtree(self.dir)
            raise

    def make(self, image):
        program = shutil.which(MAKE[self.kind][0], path="/usr/sbin:/sbin:/usr/bin:/bin")
        if not program:
            pytest.skip(f"no {MAKE[self.kind][0]}")
        subprocess.run([program, *MAKE[self.kind][1:], image], check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run(["mount", "-t", self.kind, "-o", "loop,prjquota,discard", image, self.mount],
                              stderr=subprocess.PIPE, text=True)
        if done.returncode:
            pytest.skip(f"this kernel mounts no {self.kind} with project quota: {done.stderr.splitlines()[0]}")

    def projects(self):
        """{project: (bytes limit, bytes, inodes limit, inodes)} of all that has any, but for project 0."""
        libc, found, project = ctypes.CDLL(None, use_errno=True), {}, 1
        fd = os.open(self.mount, os.O_RDONLY)
        try:
            while True:
                block = ctypes.create_string_buffer(72)
                if libc.syscall(SYS_QUOTACTL_FD, fd, Q_GETNEXTQUOTA << 8 | PRJQUOTA, project, block) < 0:
                    assert ctypes.get_errno() == errno.ENOENT, ctypes.get_errno()
                    return found
                hard, _, space, inodes_hard, _, inodes, _, _, _, at = struct.unpack("8Q2I", block)
                if hard or space or inodes_hard or inodes:
                    found[at] = hard * 1024, space, inodes_hard, inodes
                project = at + 1
        finally:
            os.close(fd)

    def remount(self, options):
        self.unmount()
        subprocess.run(["mount", "-o", options, self.dir / "image", self.mount], check=True)

    def unmount(self):
        """Loop devices of images that lie on it are let go of a moment after who had them."""
        assert settled(lambda: subprocess.run(["umount", self.mount], capture_output=True).returncode, 0) == 0

    def close(self):
        self.unmount()
        shutil.rmtree(self.dir)


def on_disk(disk):
    """A run directory of its own with the store on the disk."""
    c = Carrel()
    c.home = disk.mount / "home"
    c.env["CARREL_HOME"] = str(c.home)
    c.host = HostState(c.run_dir, c.home)
    return c


def stop(c, disk):
    """Ends it; nothing may be left of it on the disk, neither files nor limits."""
    c("doctor")  # machines and rubbish are known to a spawner that runs; this one may have left
    c.clear()
    assert settled(lambda: list((c.home / "uppers").glob("*/trash/*")), [], 60) == []
    c.stop()
    assert settled(disk.projects, {}) == {}
    assert settled(lambda: os.path.isdir(c.home / "uppers"), False) is False


def settled(look, wanted, seconds=10):
    end = clock() + seconds
    while (seen := look()) != wanted and clock() < end:
        time.sleep(0.02)
    return seen


def uppers(c):
    """The names of all uppers of this run directory, dead ones aside."""
    found = list((c.home / "uppers").glob("*/*"))
    return {p.name for p in found if p.name != "trash"}


def upper_of(c, machine):
    return re.search(r"^upper=(\d+)$", (c.run_dir / "boxes" / machine / "box").read_text(), re.M)[1]


def pid_of(c, machine):
    return int(re.search(r"^pid=(\d+)$", (c.run_dir / "boxes" / machine / "box").read_text(), re.M)[1])


def python(c, code, *options, limits=SMALL):
    """Runs it in a new machine as root; the words it prints."""
    done = c.run(*limits, "-u", "root", *options, "--", "python3", "-c", FILL + code)
    assert done.returncode == 0, done
    return done.stdout.decode().split()


def python_in(c, machine, code):
    done = c("exec", "-u", "root", machine, "--", "python3", "-c", FILL + code)
    assert done.returncode == 0, done
    return done.stdout.decode().split()


def way(c):
    """How the spawner limits what does not fit tmpfs."""
    c.run("--", "true")
    return c.status()["disk"]


def leave(path, get, put, size, bit, then):
    """Sets an attribute of what lies in the image, then writes there: prints errno, megabytes, errno."""
    return (f"import fcntl, struct\nfd = os.open('{path}', os.O_RDONLY)\n"
            f"a = bytearray(fcntl.ioctl(fd, {get}, bytes({size})))\n"
            f"a[0:4] = struct.pack('I', struct.unpack_from('I', a)[0] | {bit})\n"
            f"try: fcntl.ioctl(fd, {put}, bytes(a)); print(0)\n"
            f"except OSError as e: print(e.errno)\n"
            f"print(*fill('{then}', 100))")


# Overlay copies it up and then sets, as the host's root, what was read from the image: project 0 on the
# file, or no inheritance on the directory.
LEAVE = {"file": leave("/etc/hosts", FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR, 28, 0x80, "/etc/hosts"),
         "directory": leave("/opt", FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, 8, 0x40, "/opt/f")}


def set_project(fd, project):
    attributes = bytearray(fcntl.ioctl(fd, FS_IOC_FSGETXATTR, bytes(28)))
    struct.pack_into("I", attributes, 12, project)
    fcntl.ioctl(fd, FS_IOC_FSSETXATTR, bytes(attributes))
