"""A daemon whose store lies on a small filesystem of its own, which a test can fill and empty."""
import os
import shutil
import subprocess

from daemon import Daemon, ROOTLESS, remove, stop_spawner

BLOCK = 4096


def why_not():
    """None where the host can mount an image file."""
    if ROOTLESS:
        return "mounting an image file needs root"
    if not os.path.exists("/dev/loop-control"):
        return "this kernel has no loop devices"
    if not shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin:/bin"):
        return "there is no mkfs.ext4"
    return None


class SmallHome(Daemon):
    """`size` in MiB, `reserve` in percent. An ext4 without a log, so that the whole of it is there for the store."""
    features = "^has_journal"

    def __init__(self, *options, size, reserve=0, conf=None):
        self.size = size
        self.reserve = reserve
        super().__init__(*options, conf=conf)

    @property
    def image(self):
        return self.dir / "disk"

    def furnish(self):
        image = self.image
        with open(image, "wb") as f:
            f.truncate(self.size << 20)
        subprocess.run(["mkfs.ext4", "-q", "-m", str(self.reserve), "-O", self.features, str(image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(self.home)], check=True)
        os.rmdir(self.home / "lost+found")
        self.home.chmod(0o700)

    def stop(self):
        """The mount is ours, and goes before anybody looks at what the daemon left."""
        self.clear()
        self.end()
        stop_spawner(self.run_dir)
        self.until(lambda: subprocess.run(["umount", str(self.home)], stderr=subprocess.DEVNULL).returncode == 0)
        left = self.host.left()
        remove(self.dir)
        assert not left, left

    def free(self):
        fs = os.statvfs(self.home)
        return fs.f_bavail * fs.f_frsize

    def fill(self, name="filler"):
        """Takes every block that is free; the name to remove it by."""
        fd = os.open(self.home / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            for size in (1 << 20, BLOCK, 1):
                piece = b"x" * size
                try:
                    while True:
                        os.write(fd, piece)
                except OSError:
                    pass
        finally:
            os.close(fd)
        return self.home / name
