"""Saved memory of vms: what runs goes on in a fork and after a rewind, also if something is killed meanwhile."""
import contextlib
import copy
import os
import pathlib
import signal
import struct
import subprocess
import threading
import time

import pytest

from carrel import comm, parent_of, spawner_pids
from daemon import Refused
from qemu import qemu_of

COUNT = "exec 5>>~/held; n=0; while sleep 0.1; do n=$((n+1)); echo $n >/run/count; echo $n >&5; done"
TOKEN = "head -c 8 /dev/urandom | od -An -tx1"


@pytest.fixture(scope="module")
def counting(daemon, vm):
    """A program in the vm that counts in its memory, and into a file that it has open."""
    x = daemon.background(vm, COUNT, user="root")
    daemon.until(lambda: count(daemon, vm) > 3)
    yield x
    daemon.exec(vm, "pkill -f 'sleep 0.1'; rm -f ~/held", user="root")


def count(daemon, m):
    return int(daemon.exec(m, "cat /run/count 2>/dev/null || echo 0", user="root")["stdout"] or 0)


def held(daemon, m):
    return int(daemon.exec(m, "tail -1 /root/held", user="root")["stdout"] or 0)


def boot_id(daemon, m):
    return daemon.exec(m, "cat /proc/sys/kernel/random/boot_id")["stdout"]


def test_programs_go_on_in_a_fork_with_memory(daemon, vm, counting):
    before, here, asked = count(daemon, vm), boot_id(daemon, vm), time.time()
    fork = daemon.post(f"/v1/machines/{vm}/fork", {"memory": True})["machines"][0]["id"]
    assert daemon.get(f"/v1/machines/{fork}")["start"] == "memory"
    first = count(daemon, fork)
    assert first >= before
    daemon.until(lambda: count(daemon, fork) > first)
    assert held(daemon, fork) >= first  # the file that was open is open in the fork, too
    assert boot_id(daemon, fork) == here
    # It is a machine of its own.
    mine, other = (daemon.exec(m, f"hostname; {TOKEN}")["stdout"].splitlines() for m in (vm, fork))
    assert mine[0] == "shared" and other[0] == fork and mine[1] != other[1]
    # The clock was set; that of a vm without KVM may go slowly on a busy host.
    assert asked - 2 < int(daemon.exec(fork, "date +%s")["stdout"]) < time.time() + 2
    daemon.put(f"/v1/machines/{fork}/files", b"only\n", path="/home/user/only")
    assert daemon.exec(vm, "ls ~/only 2>&1 | grep -c 'No such'")["stdout"] == "1\n"
    assert "no rule allows" in daemon.exec(fork, "curl -s -m 20 http://refused.test/")["stdout"]
    daemon.delete(f"/v1/machines/{fork}")
    later = count(daemon, vm)
    daemon.until(lambda: count(daemon, vm) > later)
    assert not os.listdir(f"{daemon.dir}/home/memory")


def test_a_rewind_to_a_step_with_memory_resumes_its_programs(daemon, vm, counting):
    at = f"/v1/machines/{vm}"
    step = daemon.post(f"{at}/steps", {"name": "running", "memory": True})
    assert step["memory"] and step["restorable"]
    here = boot_id(daemon, vm)
    daemon.exec(vm, "echo late | tee /run/late >~/late", user="root")
    daemon.post(f"{at}/rewind", {"step": "running"})
    assert daemon.get(at)["start"] == "memory"
    assert boot_id(daemon, vm) == here
    assert daemon.wait(vm, counting)["reason"] == "killed"  # of the command that the rewind ended
    now = count(daemon, vm)
    assert now > 3  # it has not begun again
    daemon.until(lambda: count(daemon, vm) > now)
    gone = daemon.exec(vm, "ls ~/late /run/late 2>&1 | grep -c 'No such'", user="root")["stdout"]
    assert gone == "2\n"  # neither in the files nor in the memory
    assert "no rule allows" in daemon.exec(vm, "curl -s -m 20 http://refused.test/")["stdout"]


def test_a_fork_of_a_step_with_memory_and_a_damaged_file(daemon, vm, counting):
    folder = pathlib.Path(daemon.dir, "home/memory")
    fork = daemon.post(f"/v1/machines/{vm}/fork", {"memory": True, "step": "running"})["machines"][0]["id"]
    assert daemon.get(f"/v1/machines/{fork}")["start"] == "memory"
    first = count(daemon, fork)
    daemon.until(lambda: count(daemon, fork) > first)
    daemon.delete(f"/v1/machines/{fork}")
    saved, = folder.iterdir()
    assert saved.stat().st_mode & 0o777 == 0o600
    with open(saved, "r+b") as file:
        file.seek(saved.stat().st_size // 2)
        file.write(b"damage")
    fork = daemon.post(f"/v1/machines/{vm}/fork", {"memory": True, "step": "running"})["machines"][0]["id"]
    assert_booted(daemon, fork, "is damaged")
    write_refused_stream(saved)
    fork = daemon.post(f"/v1/machines/{vm}/fork", {"memory": True, "step": "running"})["machines"][0]["id"]
    assert_booted(daemon, fork, "ended while it started")


def template_bytes(name):
    """What the memory of the template takes of which this vm is a clone; without it: 0."""
    ram = pathlib.Path(f"/proc/{qemu_of(name)[0]}/fd/8")
    return ram.stat().st_blocks * 512 if "carrel-template" in os.readlink(ram) else 0


def test_a_clone_is_rewound_into_its_memory(daemon, vm):
    m = counting_vm(daemon, name="copied")
    at = f"/v1/machines/{m}"
    assert daemon.get(at)["start"] == "clone"
    here, before = boot_id(daemon, m), template_bytes("copied")
    # What was free in the template is memory of the clone alone, also once QEMU has read all of it.
    daemon.exec(m, "head -c 40M /dev/urandom >/run/much", user="root")
    daemon.post(f"{at}/steps", {"name": "running", "memory": True})
    assert 0 < before <= template_bytes("copied") < before + (16 << 20)
    now = count(daemon, m)
    daemon.post(f"{at}/rewind", {"step": "running"})
    assert daemon.get(at)["start"] == "memory"
    assert boot_id(daemon, m) == here
    daemon.until(lambda: count(daemon, m) > now)
    daemon.delete(at)


def assert_booted(daemon, m, why):
    """It did not go on, and says so."""
    shown = daemon.get(f"/v1/machines/{m}")
    assert shown["start"] in ("boot", "clone") and "cannot go on in its saved memory" in shown["warnings"]
    said = [line for line in daemon.log().splitlines() if "boot a vm without its memory" in line]
    assert why in said[-1] and count(daemon, m) == 0
    daemon.delete(f"/v1/machines/{m}")


def siphash(key, data):
    """SipHash-2-4, as src/base/siphash.h."""
    low, high = key
    v = [low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D, low ^ 0x6C7967656E657261, high ^ 0x7465646279746573]

    def turn(x, bits):
        return (x << bits | x >> (64 - bits)) & (1 << 64) - 1

    def mix(rounds):
        for _ in range(rounds):
            for a, b, left, right in (0, 1, 13, 32), (2, 3, 16, 0), (0, 3, 21, 0), (2, 1, 17, 32):
                v[a] = (v[a] + v[b]) & (1 << 64) - 1
                v[b] = turn(v[b], left) ^ v[a]
                v[a] = turn(v[a], right)

    for word, in struct.iter_unpack("<Q", data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])):
        v[3] ^= word
        mix(2)
        v[0] ^= word
    v[2] ^= 0xFF
    mix(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def write_refused_stream(path):
    """A file that is whole, but holds what QEMU does not load: src/base/wire/vm_memory.h."""
    fields = "<16s32sQQQIIQQ"
    whole = path.read_bytes()
    magic, key, mem, _, table, lost, stopped, _, _ = struct.unpack_from(fields, whole)
    content = b"no stream".ljust(4096, b"-") + whole[-table:]
    total = siphash((0, 1), content)
    head = struct.pack(fields, magic, key, mem, 4096, table, lost, stopped, total, 0)
    head = head[:-8] + struct.pack("<Q", siphash((total, 1), head))
    path.write_bytes(head.ljust(4096, b"\0") + content)


def worker(spawners):
    """The process of one of these spawners that saves memory now."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        if comm(entry.name) == "carrel-memory" and parent_of(entry.name) in spawners:
            return int(entry.name)
    return None


@contextlib.contextmanager
def saving(daemon, at, spawners):
    """A request to save is under way, and its process stands still meanwhile."""
    answer = []

    def save():
        with contextlib.suppress(Refused, OSError):
            answer.append(daemon.post(f"{at}/steps", {"memory": True}))

    saver = threading.Thread(target=save)
    saver.start()
    process = daemon.until(lambda: worker(spawners) or answer)
    assert process != answer, "the memory was saved before its process was seen"
    os.kill(process, signal.SIGSTOP)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)
        saver.join()


@pytest.mark.parametrize("killed", ["worker", "spawner", "daemon"])
def test_a_vm_goes_on_if_what_saves_its_memory_is_killed(daemon, vm, counting, killed):
    at = f"/v1/machines/{vm}"
    spawners = spawner_pids(daemon.run_dir)[:1]
    with saving(daemon, at, spawners) as process:
        if killed == "daemon":
            daemon.restart(hard=True)
        else:
            os.kill(process if killed == "worker" else spawners[0], signal.SIGKILL)
    daemon.until(lambda: daemon.get(at)["state"] == "running")
    now = count(daemon, vm)
    daemon.until(lambda: count(daemon, vm) > now)
    daemon.until(lambda: comm(process) != "carrel-memory")  # not even a zombie
    # What was left is in nobody's way: this file is whole, and a vm goes on in it.
    step = daemon.post(f"{at}/steps", {"memory": True})
    assert step["memory"]
    if killed == "daemon":
        fork, = daemon.post(f"{at}/fork", {"memory": True, "step": str(step["number"])})["machines"]
        assert daemon.get(f"/v1/machines/{fork['id']}")["start"] == "memory"
        daemon.delete(f"/v1/machines/{fork['id']}")


def test_memory_is_saved_of_running_vms_only(daemon, vm):
    box = daemon.machine(name="nomem")
    with pytest.raises(Refused) as refused:
        daemon.post(f"/v1/machines/{box}/steps", {"memory": True})
    assert refused.value.code == "unsupported"
    daemon.delete(f"/v1/machines/{box}")


@contextlib.contextmanager
def small_disk(path):
    """A disk with so little space that a part of a file with memory fits, but the rest must stay free."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=264m", "tmpfs", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


def assert_too_large(daemon, m, *words):
    """The memory is not saved, nothing is left of it, and the vm runs on."""
    now = count(daemon, m)
    with pytest.raises(Refused) as refused:
        daemon.post(f"/v1/machines/{m}/steps", {"memory": True})
    assert refused.value.code == "limit" and all(w in str(refused.value) for w in words), refused.value
    assert files_of(daemon, m) == []
    daemon.until(lambda: count(daemon, m) > now)


def files_of(daemon, m):
    return list(pathlib.Path(daemon.dir, "home/memory").glob(m + "*"))


def with_token(daemon, **fields):
    """The same daemon for a client with a token of its own."""
    client = copy.copy(daemon)
    secret = daemon.post("/v1/tokens", fields)["secret"]
    client.headers = {"Authorization": "Bearer " + secret}
    return client


def counting_vm(client, **fields):
    m = client.machine(kind="vm", **fields)
    client.background(m, COUNT, user="root")
    client.until(lambda: count(client, m) > 3)
    return m


def test_saved_memory_counts_for_the_disk_quota(daemon):
    client = with_token(daemon, owner="saver", disk="1G")
    m = counting_vm(client, limits={"disk": "1000M"})
    assert_too_large(client, m, "a disk quota leaves too little")
    daemon.delete(f"/v1/machines/{m}")
    # The control: where the quota leaves enough, it is saved, and counts.
    m = counting_vm(client, limits={"disk": "400M"})
    assert client.post(f"/v1/machines/{m}/steps", {"memory": True})["memory"]
    saved, = files_of(daemon, m)
    with pytest.raises(Refused) as refused:
        client.machine(limits={"disk": "620M"})
    assert refused.value.code == "limit" and "disk quota of this token is 1G" in str(refused.value)
    saved.unlink()
    daemon.delete(f"/v1/machines/{client.machine(limits={'disk': '620M'})}")
    daemon.delete(f"/v1/machines/{m}")


def test_saved_memory_is_refused_if_a_disk_is_too_small(daemon, vm, counting):
    small = counting_vm(daemon, limits={"disk": "64M"})
    assert_too_large(daemon, small, "the disk limit of the machine")
    daemon.delete(f"/v1/machines/{small}")
    with small_disk(pathlib.Path(daemon.dir, "home/memory")):
        assert_too_large(daemon, vm, "256M would stay free")
