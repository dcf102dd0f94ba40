"""A paused vm: its memory is in a file, and nothing of it is left on the host, until it is resumed."""
import contextlib
import os
import pathlib
import struct
import threading

import pytest

from carrel import spawner_pids
from daemon import Refused
import qemu
import test_memory
from test_memory import boot_id, counting, siphash, small_disk, worker  # noqa: F401

LINES = "n=0; while [ $n -lt 60 ]; do n=$((n+1)); echo line $n; sleep 0.1; done; exit 7"
OUTPUT = "".join(f"line {n}\n" for n in range(1, 61)).encode()
OTHERS = set()


def at(m):
    return f"/v1/machines/{m}"


@pytest.fixture(scope="module", autouse=True)
def others(daemon, vm):
    """Steps of other tests with this machine have memory, too."""
    OTHERS.update(test_memory.files_of(daemon, vm))


def files_of(daemon, m):
    return [path for path in test_memory.files_of(daemon, m) if path not in OTHERS]


def qemus(daemon):
    return qemu.qemu_of_daemon(daemon, "shared")


def count(daemon, m):
    """The program empties its file before it writes: such an answer does not count."""
    return daemon.until(lambda: test_memory.count(daemon, m))


def is_on_disk(daemon, m):
    shown = daemon.get(at(m))
    return (shown["state"], shown.get("paused_in")) == ("paused", "disk")


def assert_on_disk(daemon, m):
    """Nothing is left on the host but the file with its memory, which is returned."""
    assert is_on_disk(daemon, m), daemon.get(at(m))
    assert qemus(daemon) == []
    assert m not in os.listdir(pathlib.Path(daemon.run_dir, "boxes"))
    saved, = files_of(daemon, m)
    return saved


def pause(daemon, m):
    assert "paused_why" not in daemon.post(f"{at(m)}/pause")
    return assert_on_disk(daemon, m)


def assert_goes_on(daemon, m, before):
    assert len(qemus(daemon)) == 1
    now = count(daemon, m)
    assert now >= before
    daemon.until(lambda: count(daemon, m) > now)
    return now


def resume(daemon, m, before):
    shown = daemon.post(f"{at(m)}/resume")
    assert shown["state"] == "running" and shown["start"] == "memory" and "paused_in" not in shown
    assert files_of(daemon, m) == []
    return assert_goes_on(daemon, m, before)


@pytest.mark.parametrize("by", ["this daemon", "the next daemon"])
def test_what_runs_goes_on_after_a_pause(daemon, vm, counting, by):  # noqa: F811
    x = daemon.background(vm, LINES)
    here, before = boot_id(daemon, vm), count(daemon, vm)
    pause(daemon, vm)
    if by == "the next daemon":
        daemon.restart()
        assert_on_disk(daemon, vm)
    resume(daemon, vm, before)
    assert boot_id(daemon, vm) == here
    ended = daemon.wait(vm, x)
    assert ended["status"] == 7, ended
    assert daemon.get(f"{at(vm)}/execs/{x}/output") == OUTPUT
    assert "no rule allows" in daemon.exec(vm, "curl -s -m 20 http://refused.test/")["stdout"]


def test_a_command_wakes_a_vm_that_is_on_disk(daemon, vm, counting):  # noqa: F811
    before = count(daemon, vm)
    pause(daemon, vm)
    assert count(daemon, vm) >= before


def layers(daemon):
    return {p for p in pathlib.Path(daemon.home, "saved").glob("*/*")}


@contextlib.contextmanager
def request(daemon, path):
    """Is under way, whatever comes of it."""
    def ask():
        with contextlib.suppress(Refused, OSError):
            daemon.post(path)

    asking = threading.Thread(target=ask)
    asking.start()
    yield asking
    asking.join()


def kill_at(daemon, path, moment):
    """Kills the daemon at a moment of a request. True: it came before the request was over."""
    with request(daemon, path) as asking:
        while asking.is_alive() and not moment():
            pass
        early = asking.is_alive()
        daemon.kill()
    daemon.start()
    return early


def assert_nothing_lost(daemon, m, before):
    """It is paused or runs, never both, and its memory is not older than before."""
    if is_on_disk(daemon, m):
        resume(daemon, m, before)
    else:
        assert daemon.get(at(m))["state"] == "running"
        assert_goes_on(daemon, m, before)
        assert files_of(daemon, m) == []


def test_a_pause_that_is_killed_loses_nothing(daemon, vm, counting):  # noqa: F811
    spawners, before = spawner_pids(daemon.run_dir)[:1], layers(daemon)
    early = 0
    for moment in (lambda: worker(spawners),
                   lambda: any(f.stat().st_size > 1 << 24 for f in files_of(daemon, vm)),
                   lambda: layers(daemon) != before,
                   lambda: not qemus(daemon)):
        now = count(daemon, vm)
        early += kill_at(daemon, f"{at(vm)}/pause", moment)
        assert_nothing_lost(daemon, vm, now)
        before = layers(daemon)
    assert early


def test_a_resume_that_is_killed_loses_nothing(daemon, vm, counting):  # noqa: F811
    for moment in (lambda: True, lambda: qemus(daemon), lambda: False):
        now = count(daemon, vm)
        pause(daemon, vm)
        kill_at(daemon, f"{at(vm)}/resume", moment)
        assert_nothing_lost(daemon, vm, now)


def assert_in_memory(daemon, m, why):
    before = count(daemon, m)
    shown = daemon.post(f"{at(m)}/pause")
    assert shown["paused_in"] == "memory" and why in shown["paused_why"], shown
    assert len(qemus(daemon)) == 1
    assert files_of(daemon, m) == []
    assert daemon.post(f"{at(m)}/resume")["state"] == "running"
    assert_goes_on(daemon, m, before)


def test_a_vm_stays_in_memory_if_the_disk_is_full(daemon, vm, counting):  # noqa: F811
    with small_disk(pathlib.Path(daemon.home, "memory")):
        assert_in_memory(daemon, vm, "256M would stay free")


def other_key(whole):
    """The memory of a vm with another QEMU: src/base/wire/vm_memory.h."""
    fields = "<16s32sQQQIIQQ"
    head = list(struct.unpack_from(fields, whole))
    head[1], head[-1] = bytes(32), 0
    head[-1] = siphash((head[-2], 1), struct.pack(fields, *head))
    return struct.pack(fields, *head)


def test_a_vm_whose_memory_cannot_be_used_stays_paused(daemon, vm, counting):  # noqa: F811
    before = count(daemon, vm)
    saved = pause(daemon, vm)
    whole = saved.read_bytes()
    for head, why in (b"damage", "is damaged"), (other_key(whole), "QEMU, KVM, the memory"):
        with open(saved, "r+b") as file:
            file.write(head)
        with pytest.raises(Refused) as refused:
            daemon.post(f"{at(vm)}/resume")
        assert why in str(refused.value) and f"carrel stop {vm}" in str(refused.value)
        assert_on_disk(daemon, vm)
        with open(saved, "r+b") as file:
            file.write(whole[:4096])
    resume(daemon, vm, before)


def test_a_paused_vm_goes_on_though_vms_boot_another_guest_now(daemon, vm, counting):  # noqa: F811
    """As after an upgrade: the guest that it runs is in its memory, and the one to boot is not read."""
    here, before = boot_id(daemon, vm), count(daemon, vm)
    pause(daemon, vm)
    initrd, = pathlib.Path(daemon.home, "vm").glob("initrd-*")
    kept = initrd.read_bytes()
    initrd.unlink()
    initrd.write_bytes(b"not an initramfs")
    os.utime(initrd, (0, 0))
    try:
        resume(daemon, vm, before)
        assert initrd.read_bytes() == b"not an initramfs", "it is what a vm would boot with"
    finally:
        initrd.write_bytes(kept)
    assert boot_id(daemon, vm) == here


def test_a_stop_gives_up_what_ran(daemon, vm, counting):  # noqa: F811
    here = boot_id(daemon, vm)
    pause(daemon, vm)
    assert daemon.post(f"{at(vm)}/stop")["state"] == "stopped"
    assert files_of(daemon, vm) == []
    ended = daemon.wait(vm, counting)
    assert ended["state"] == "unknown" and "was stopped" in ended["reason"], ended
    daemon.post(f"{at(vm)}/resume")
    assert boot_id(daemon, vm) != here
