"""The network of a vm, with another network namespace in the place of QEMU and its guest."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from vm_lab import VmNet, missing  # noqa: E402
import patience  # noqa: E402


time_limit = patience.time_limit(60)


@pytest.fixture
def make_net():
    if reason := missing():
        pytest.skip(reason)
    nets = []

    def make():
        nets.append(VmNet())
        return nets[-1]
    yield make
    for net in nets:
        net.stop()


@pytest.fixture
def net(make_net):
    return make_net()
