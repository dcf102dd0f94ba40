"""Templates: the first vm of a kind boots, and later ones are clones of what it was before it was told who it is."""
import collections
import contextlib
import datetime
import os
import pathlib
import signal
import threading

import pytest

from qemu import qemu_of

WHAT = "hostname; date +%s; cat /proc/sys/kernel/random/boot_id; head -c 16 /dev/urandom | od -An -tx1; cat /proc/cmdline"


def is_clone(name):
    qemu, = qemu_of(name)
    return b"-incoming" in pathlib.Path(f"/proc/{qemu}/cmdline").read_bytes().split(b"\0")


@pytest.fixture(scope="module")
def clones(daemon, vm):
    """Two clones; a template is there as soon as a vm of its kind runs."""
    machines = [daemon.machine(kind="vm", name=f"clone{i}") for i in range(2)]
    yield machines
    for m in machines:
        daemon.delete(f"/v1/machines/{m}")


def test_a_vm_of_a_known_kind_is_a_clone(daemon, clones):
    assert is_clone("clone0") and is_clone("clone1")


def test_a_clone_has_nothing_of_another_vm(daemon, vm, clones):
    told = [daemon.exec(m, WHAT)["stdout"].splitlines() for m in [vm, *clones]]
    names, clocks, boot_ids, randoms, lines = zip(*told)
    assert names == ("shared", "clone0", "clone1")
    assert len(set(boot_ids)) == 3 and len(set(randoms)) == 3
    assert not any(name in line for name in names for line in lines)
    # A clock that stood when the template was made would be far behind, were it made long ago.
    now = datetime.datetime.now().timestamp()
    assert all(abs(now - int(c)) < 600 for c in clocks)


def test_clones_share_the_memory_that_they_do_not_write(daemon, clones):
    qemu, = qemu_of("clone1")
    sums, is_template = collections.Counter(), False
    for line in pathlib.Path(f"/proc/{qemu}/smaps").read_text().splitlines():
        field, value = line.split()[:2]
        if not field.endswith(":"):  # the next mapping; holes of the template are others
            is_template = "/memfd:carrel-template" in line
        elif is_template and value.isdigit():
            sums[field] += int(value)
    shared = sums["Shared_Clean:"] + sums["Shared_Dirty:"]
    assert 0 < shared < sums["Rss:"]


def test_files_and_commands_of_a_clone_are_its_own(daemon, clones):
    first, second = clones
    daemon.exec(first, "echo first >~/who; mkdir /tmp/only")
    assert daemon.exec(second, "ls ~/who /tmp/only 2>&1 | grep -c 'No such'")["stdout"] == "2\n"
    assert daemon.exec(first, "cat ~/who")["stdout"] == "first\n"
    assert "no rule allows" in daemon.exec(first, "curl -s -m 20 http://refused.test/")["stdout"]


def makers():
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if entry.read_text() == "carrel-template\n":
                found.append(int(entry.parent.name))
    return found


def test_another_kind_of_vm_boots_even_if_the_maker_of_its_template_is_killed(daemon):
    made = []
    request = {"kind": "vm", "name": "bigger", "limits": {"mem": 768 << 20}}
    creator = threading.Thread(target=lambda: made.append(daemon.post("/v1/machines", request)["id"]))
    before = set(makers())  # those of other suites
    creator.start()
    daemon.until(lambda: qemu_of("bigger") and set(makers()) - before)
    maker, = set(makers()) - before
    os.kill(maker, signal.SIGKILL)
    creator.join()
    assert not is_clone("bigger")
    assert daemon.exec(made[0], "hostname")["stdout"] == "bigger\n"
    daemon.delete(f"/v1/machines/{made[0]}")
