"""A kernel for vms: the one that CARREL_VM_KERNEL names, one of the host, or Debian's, unpacked in the build folder.

It is not installed: a package of a kernel brings an init system, and may change what the host boots."""
import fcntl
import os
import pathlib
import platform
import shutil
import subprocess

PACKAGE = "linux-image-cloud-" + {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "unknown")


def run(*command, cwd=None):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stderr.strip() or 'failed'}"[-300:])
    return done.stdout


def unpack(folder):
    """Debian's cloud kernel and its modules."""
    names = [line.split()[1] for line in run("apt-cache", "depends", PACKAGE).splitlines()
             if line.split()[0] == "Depends:" and line.split()[1].startswith("linux-image-")]
    if not names:
        raise OSError(f"there is no package {PACKAGE}")
    run("apt-get", "-q", "download", names[0], cwd=folder)
    package, = folder.glob("*.deb")
    run("dpkg", "-x", package, folder / "root")
    package.unlink()
    version = names[0].removeprefix("linux-image-")
    run(shutil.which("depmod", path="/usr/sbin:/sbin") or "depmod", "-b", folder / "root", version)
    # The path is there only when all is done.
    (folder / "root/boot").rename(folder / "root/ready")


def find(build):
    """The path of a kernel, or "" if Carrel finds one in /boot. OSError says why there is none."""
    if path := os.environ.get("CARREL_VM_KERNEL"):
        return path
    if platform.machine() != "x86_64":
        raise OSError("vms have run on x86-64 only; CARREL_VM_KERNEL names a kernel to try them here")
    if any(pathlib.Path("/lib/modules", p.name.removeprefix("vmlinuz-"), "modules.dep").exists()
           for p in pathlib.Path("/boot").glob("vmlinuz-*")):
        return ""
    folder = pathlib.Path(build, "vm-kernel")
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "root/ready").exists():
            shutil.rmtree(folder / "root", ignore_errors=True)
            for left in folder.glob("*.deb"):
                left.unlink()
            try:
                unpack(folder)
            except (OSError, subprocess.SubprocessError) as e:
                raise OSError(f"no kernel in /boot, and Debian's cannot be fetched: {e}") from e
    kernel, = (folder / "root/ready").glob("vmlinuz-*")
    return str(kernel)
