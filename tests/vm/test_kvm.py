"""KVM: what is known about it decides how a vm starts, and a vm that does not start with it boots without it."""
import os
import pathlib
import stat
import subprocess
import threading

import pytest

from daemon import BUILD, DAEMON, Daemon
from qemu import qemu_of_daemon

QEMUS = {"x86_64": "/usr/bin/qemu-system-x86_64", "aarch64": "/usr/bin/qemu-system-aarch64"}


def known(daemon):
    """The lines of the daemon's file: what they hold for, the answer, the reason."""
    return (daemon.home / "vm/kvm").read_text().splitlines()


def claim(daemon, answer, reason):
    """Says so as the daemon does, for this start of the host and this QEMU."""
    st = os.stat(QEMUS[os.uname().machine])
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    ns = st.st_mtime_ns
    path = daemon.home / "vm/kvm"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_text(f"{boot} {st.st_ino} {st.st_size} {ns // 10**9}.{ns % 10**9:09}\n{answer}\n{reason}\n")


def accel_of(daemon, name):
    """None: its QEMU does not run."""
    for qemu in qemu_of_daemon(daemon, name):
        words = pathlib.Path(f"/proc/{qemu}/cmdline").read_bytes().decode().split("\0")
        return words[words.index("-accel") + 1].split(",")[0]


def doctor(daemon):
    """The row about KVM."""
    said = subprocess.run([BUILD / "carrel", "doctor"], env=daemon.env, capture_output=True, text=True, check=False).stdout
    lines = said.splitlines()
    at = next(i for i, line in enumerate(lines) if " kvm " in f" {line} ")
    return " ".join(" ".join(lines[at:at + 3]).split())


def sees_device(daemon, name):
    """Whether the jail of a vm has the device: QEMU's, and so that of the other two programs."""
    qemu, = qemu_of_daemon(daemon, name)
    return pathlib.Path(f"/proc/{qemu}/root/dev/null").exists(), pathlib.Path(f"/proc/{qemu}/root/dev/kvm").exists()


def has_device():
    try:
        st = os.stat("/dev/kvm")
    except OSError:
        return False
    return stat.S_ISCHR(st.st_mode) and st.st_rdev == os.makedev(10, 232)


def mitigates(daemon, m):
    return "mitigations=off" not in daemon.exec(m, "cat /proc/cmdline")["stdout"].split()


def test_the_answer_of_the_probe_decides_how_vms_start(daemon, vm):
    accel = daemon.get(f"/v1/machines/{vm}")["accel"]
    answer, reason = known(daemon)[1:]
    assert accel == accel_of(daemon, "shared") == ("kvm" if answer == "yes" else "tcg")
    assert sees_device(daemon, "shared") == (True, accel == "kvm")
    assert mitigates(daemon, vm) == (accel == "kvm")
    assert reason in doctor(daemon)


@pytest.fixture
def deceived(daemon, vm):
    """The daemon, whose file says that KVM works; its template without KVM is there."""
    before = (daemon.home / "vm/kvm").read_text()
    if before.splitlines()[1] == "yes":
        pytest.skip("KVM works on this host")
    if not has_device():
        pytest.skip("no /dev/kvm on this host")
    claim(daemon, "yes", "said by the test")
    yield daemon
    (daemon.home / "vm/kvm").write_text(before)


def test_a_vm_that_does_not_start_with_kvm_boots_without_it(deceived):
    assert "said by the test -> vms use it" in doctor(deceived)
    made = []
    creator = threading.Thread(target=lambda: made.append(deceived.machine(kind="vm", name="deceived")))
    creator.start()
    deceived.until(lambda: accel_of(deceived, "deceived") == "kvm")
    assert sees_device(deceived, "deceived") == (True, True)
    assert b"mitigations=off" not in pathlib.Path(f"/proc/{qemu_of_daemon(deceived, 'deceived')[0]}/cmdline").read_bytes()
    creator.join()
    assert deceived.exec(made[0], "hostname")["stdout"] == "deceived\n"
    assert deceived.get(f"/v1/machines/{made[0]}")["accel"] == accel_of(deceived, "deceived") == "tcg"
    assert sees_device(deceived, "deceived") == (True, False)
    deceived.until(lambda: known(deceived)[1] == "no")
    reason = known(deceived)[2]
    print("KVM here:", reason)
    assert "did not respond within 10 s" in reason or "ended while it started" in reason
    assert reason in doctor(deceived)
    deceived.delete(f"/v1/machines/{made[0]}")


class WithoutDevice(Daemon):
    """Its spawner sees another device as /dev/kvm, or none."""
    program = ["unshare", "--mount", "sh", "-ec", "[ ! -e /dev/kvm ] || mount --bind /dev/null /dev/kvm; exec \"$@\"", "sh", DAEMON]


def test_a_spawner_that_cannot_give_kvm_to_qemu_is_remembered(kernel):
    d = WithoutDevice(conf=f"[vm]\nkernel = {kernel}\n" if kernel else "")
    claim(d, "yes", "said by the test")
    m = d.machine(kind="vm", name="refused")
    assert d.get(f"/v1/machines/{m}")["accel"] == accel_of(d, "refused") == "tcg"
    assert sees_device(d, "refused") == (True, False)
    d.until(lambda: known(d)[1] == "no")
    assert "carrel-spawn has no /dev/kvm" in known(d)[2]
    d.stop()
