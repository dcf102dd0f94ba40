"""KIND=vm makes every machine of a suite a vm whose test does not name a kind: see make test-kind-vm.

What a vm cannot do is in vm_skips.txt, one test or file per line, with the reason.
"""
import fnmatch
import os
import pathlib
import shutil

import pytest

import vm_kernel

KIND = os.environ.get("KIND", "")
# Addresses of the gate's proxy, and on which a server in a machine can be exposed.
PROXY = "198.18.0.1" if KIND == "vm" else "127.0.0.1"
ANY = "0.0.0.0" if KIND == "vm" else "127.0.0.1"
SKIPS = pathlib.Path(__file__).with_name("vm_skips.txt")


def with_kind(fields):
    """The body of a request for a new machine."""
    return {"kind": KIND, **fields} if KIND else fields


def words_with_kind(words):
    """The words of a command that may make a machine."""
    words = [str(word) for word in words]
    if not KIND or not words or words[0] not in ("new", "run") or "--kind" in words:
        return words
    return [words[0], "--kind", KIND, *words[1:]]


def kernel(build):
    """The path of the kernel of vms; "" if Carrel finds one in /boot."""
    return vm_kernel.find(build)


def with_kernel(conf, build):
    """carrel.conf of a daemon that has vms."""
    return f"[vm]\nkernel = {path}\n{conf}" if KIND == "vm" and "[vm]" not in conf and (path := kernel(build)) else conf


def read_skips(text):
    """(pattern of test names, reason) of each line that is not a comment."""
    lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    return [(pattern, reason) for pattern, reason in lines]


class Skips:
    """A plugin of pytest: skips tests by the table."""

    def __init__(self):
        if KIND != "vm":
            raise SystemExit(f"KIND={KIND}: must be vm")
        if os.geteuid() != 0 or not shutil.which(f"qemu-system-{os.uname().machine}"):
            raise SystemExit("KIND=vm needs root and QEMU")
        self.rows = read_skips(SKIPS.read_text())

    def pytest_collection_modifyitems(self, items):
        for item in items:
            name = item.nodeid.partition("tests/")[2] or item.nodeid
            for pattern, reason in self.rows:
                if fnmatch.fnmatchcase(name, pattern):
                    item.add_marker(pytest.mark.skip(reason=reason))
                    break
