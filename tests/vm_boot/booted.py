"""A vm without the daemon: QEMU and the server of the files on a small tree, and the guest's port."""
import os
import pathlib
import platform
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "integration"), str(TESTS)]
from guestlink import Closed, Link, Port  # noqa: E402
from patience import PATIENCE, clock  # noqa: E402
import vm_kernel  # noqa: E402

BUILD = pathlib.Path(os.environ.get("CARREL_BUILD") or TESTS.parent / "build")
GUEST = BUILD / "libexec/carrel-guest"
LAB = BUILD / "tests/vm_boot/vm-boot-lab"
SPAWNER = BUILD / "libexec/carrel-spawn"
BOOT_SECONDS = 60
MACHINES = {
    "x86_64": ("qemu-system-x86_64", "microvm"),
    "aarch64": ("qemu-system-aarch64", "virt,gic-version=3"),
}
PROGRAM, MACHINE = MACHINES.get(platform.machine(), (None, None))


def prepare(state):
    """What vm_boot_prepare() says: kernel, initramfs, command line."""
    done = subprocess.run([LAB, state, GUEST, vm_kernel.find(BUILD)], capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip())
    return done.stdout.splitlines()


def missing():
    """A reason why no vm can be booted here, or None."""
    if os.geteuid() != 0:
        return "the files of a vm are served by root"
    if not PROGRAM or not shutil.which(PROGRAM):
        return f"no QEMU for {platform.machine()}"
    with tempfile.TemporaryDirectory() as state:
        try:
            prepare(state)
        except OSError as e:
            return str(e)
    return None


def wait_until(check, what, seconds=BOOT_SECONDS):
    end = clock() + seconds
    while clock() < end:
        if got := check():
            return got
        time.sleep(0.02)
    raise TimeoutError(what)


class Vm:
    """`words` are what the guest is told. /usr of the tree is that of the host."""

    def __init__(self, words="", net=False, files={}):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="carrel-vm-"))
        self.tree, self.net, self.started = self.dir / "tree", net, []
        for name in ("dev", "etc", "proc", "run/carrel", "sys", "tmp", "sbin", "usr"):
            (self.tree / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):
            (self.tree / name).symlink_to("usr/" + name)
        (self.tree / "etc/resolv.conf").write_text("nameserver 127.0.0.1\n")
        (self.tree / "run/carrel/note").write_text("from the host\n")
        for path, (text, mode) in files.items():
            (self.tree / path).write_text(text)
            (self.tree / path).chmod(mode)
        # Both ends stay open until the vm ends.
        self.wake, self.wakes = socket.socketpair()
        self.wakes.sendall(struct.pack("<QQ32s", int(time.time()), 0, os.urandom(32)) +
                           f"{words or 'carrel.hostname=m-test'}\n".encode())
        self.console, self.port = self.dir / "console", self.dir / "port"
        self.kernel, self.initrd, self.line = prepare(self.dir)
        self.serve()
        self.boot()

    def serve(self):
        """The server of the files ends with its QEMU."""
        self.files, server = socket.socketpair()
        self.run(["unshare", "--mount", "sh", "-c",
                  'mount --rbind -o ro /usr "$1/usr" && exec "$0" --serve-files "$1" "$2"',
                  SPAWNER, self.tree, str(server.fileno())], server)
        server.close()

    def run(self, command, *sockets):
        log = open(self.dir / "log", "ab")
        self.started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             pass_fds=[s.fileno() for s in sockets]))
        return self.started[-1]

    def boot(self):
        network = ["-netdev", "hubport,id=net,hubid=0", "-device", "virtio-net-device,netdev=net"] if self.net else []
        self.qemu = self.run([
            PROGRAM, "-machine", f"{MACHINE},accel=tcg", "-cpu", "max", "-m", "256M",
            "-global", "virtio-mmio.force-legacy=off", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", self.kernel, "-initrd", self.initrd, "-append", self.line,
            "-chardev", f"file,id=console,path={self.console}", "-serial", "chardev:console",
            "-chardev", f"socket,id=port,path={self.port},server=on,wait=off",
            "-device", "virtio-serial-device", "-device", "virtserialport,chardev=port,name=carrel.0",
            "-chardev", f"socket,id=files,fd={self.files.fileno()}",
            "-chardev", f"socket,id=wake,fd={self.wake.fileno()}",
            "-device", "virtserialport,chardev=wake,name=carrel.wake",
            "-device", "virtserialport,chardev=files,name=carrel.files", *network], self.files, self.wake)
        self.files.close()

    def link(self):
        """The next host of the guest. QEMU keeps its bytes until the guest has opened the port."""
        sock = socket.socket(socket.AF_UNIX)
        wait_until(lambda: sock.connect_ex(str(self.port)) == 0 or self.qemu.poll() is not None, "QEMU")
        link = Link(sock, hello=False, port=Port())
        sock.settimeout(BOOT_SECONDS * PATIENCE)
        try:
            link.greet()
        except (OSError, Closed) as e:
            raise RuntimeError(f"the guest does not answer: {self.text()}") from e
        return link

    def text(self):
        return "".join(p.read_text(errors="replace") for p in (self.dir / "log", self.console) if p.exists())

    def ended(self):
        self.qemu.wait(BOOT_SECONDS * PATIENCE)
        return self.console.read_text(errors="replace")

    def stop(self):
        for process in reversed(self.started):
            process.kill()
            process.wait()
        self.wake.close()
        self.wakes.close()
        shutil.rmtree(self.dir)
