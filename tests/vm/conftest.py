"""One daemon, and one vm that the tests share: QEMU without KVM needs seconds to boot it."""
import os
import pathlib
import shutil
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "daemon"), str(TESTS)]

from daemon import BUILD, ROOTLESS, Daemon  # noqa: E402
import patience  # noqa: E402
import vm_kernel  # noqa: E402


time_limit = patience.time_limit(400)
QEMU = {"x86_64": "qemu-system-x86_64", "aarch64": "qemu-system-aarch64"}.get(os.uname().machine, "qemu")


@pytest.fixture(scope="session")
def kernel():
    if ROOTLESS:
        pytest.skip("a vm needs a daemon that runs as root")
    if not shutil.which(QEMU):
        pytest.skip(f"{QEMU} is not installed")
    try:
        return vm_kernel.find(BUILD)
    except OSError as e:
        pytest.skip(str(e))


@pytest.fixture(scope="session")
def daemon(kernel):
    d = Daemon(conf=f"[vm]\nkernel = {kernel}\n" if kernel else "")
    yield d
    d.clear()
    left = d.host.left_of_boxes()
    d.stop()
    assert left == []


@pytest.fixture(scope="session")
def vm(daemon):
    """Tests leave it running, and look only at their own files."""
    return daemon.machine(kind="vm", name="shared")
