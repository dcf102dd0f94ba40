"""A kernel of the host under QEMU, with the guest as its /init."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from booted import Vm, missing  # noqa: E402
import patience  # noqa: E402


time_limit = patience.time_limit(200)
REASON = missing()


@pytest.fixture
def boot():
    """Starts a vm that ends with the test."""
    if REASON:
        pytest.skip(REASON)
    started = []

    def start(*args, **kw):
        started.append(Vm(*args, **kw))
        return started[-1]
    yield start
    for vm in started:
        vm.stop()


@pytest.fixture(scope="module")
def vm():
    """One vm for the tests that leave it as it was."""
    if REASON:
        pytest.skip(REASON)
    vm = Vm("carrel.hostname=m-1.test carrel.net=1", net=True)
    try:
        vm.host = vm.link()
        yield vm
    finally:
        vm.stop()
