"""Vms: a machine with a kernel of its own keeps every promise that docs/reference/vm.md makes."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess

import pytest

from carrel import PROGRAM
from daemon import Refused
from qemu import delete_what_is_left, qemu_of


def test_commands_run_below_a_kernel_of_their_own(daemon, vm):
    x = daemon.exec(vm, "uname -r; hostname; echo out; echo err >&2; exit 3")
    kernel, name, out = x["stdout"].splitlines()
    assert kernel != os.uname().release and (name, out) == ("shared", "out")
    assert (x["stderr"], x["exec"]["status"]) == ("err\n", 3)
    assert daemon.get(f"/v1/machines/{vm}")["kind"] == "vm"


def test_carrel_run_makes_a_vm(daemon, vm):
    done = subprocess.run([PROGRAM, "run", "--kind", "vm", "--", "uname", "-r"], env=daemon.env, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.stdout.decode() == daemon.exec(vm, "uname -r")["stdout"] != os.uname().release + "\n", done
    done = subprocess.run([PROGRAM, "run", "--kind", "boat", "--", "true"], env=daemon.env, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 125 and b"--kind boat: must be box or vm" in done.stderr, done


def test_output_is_complete_when_a_command_ends(daemon, vm):
    for size in (1, 70000, 1000000):
        x = daemon.exec(vm, f"head -c {size} /dev/zero | tr '\\0' x; echo end >&2")
        assert (len(x["stdout"]), x["stderr"]) == (size, "end\n")


def test_a_program_that_is_not_there_is_named(daemon, vm):
    assert daemon.exec(vm, ["/no/such"])["exec"]["status"] == 127


def test_files_are_written_and_read(daemon, vm):
    daemon.request("PUT", f"/v1/machines/{vm}/files", b"kept\n", path="/home/user/written")
    assert daemon.exec(vm, "cat ~/written; echo back >~/read")["stdout"] == "kept\n"
    assert daemon.request("GET", f"/v1/machines/{vm}/files", path="/home/user/read", raw=True) == b"back\n"


def test_programs_know_their_machine(daemon, vm):
    x = daemon.exec(vm, "carrel me | head -1; python3 -c 'import json; print(json.load(open(\"/run/carrel/machine.json\"))[\"id\"])'; "
                        "touch /run/carrel/x || echo read-only", user="root")
    lines = x["stdout"].splitlines()
    assert lines[0].startswith(f"Machine {vm} (a vm,") and lines[1:] == [vm, "read-only"], x
    assert daemon.exec(vm, "carrel status")["exec"]["status"] == 0


def test_the_gate_decides_about_connections(daemon, vm):
    ask = "curl -s -m 20 http://%s/ || echo failed"
    assert "no rule allows" in daemon.exec(vm, ask % "refused.test")["stdout"]
    assert "failed" in daemon.exec(vm, "curl -s -m 20 -g 'http://[2001:db8::1]/' || echo failed")["stdout"]


def test_a_rewind_brings_files_back_and_boots_again(daemon, vm):
    at = f"/v1/machines/{vm}"
    daemon.exec(vm, "echo one >~/f")
    step = daemon.post(f"{at}/steps", {"name": "one"})
    daemon.exec(vm, "echo two >~/f; echo new >~/g")
    changes = daemon.get(f"{at}/diff", path="/home/user")["changes"]
    assert "home/user/g" in [c["path"] for c in changes]
    before = daemon.exec(vm, "cat /proc/sys/kernel/random/boot_id")["stdout"]
    daemon.post(f"{at}/rewind", {"step": str(step["number"])})
    x = daemon.exec(vm, "cat ~/f; ls ~/g 2>/dev/null; cat /proc/sys/kernel/random/boot_id")["stdout"].splitlines()
    assert x[0] == "one" and len(x) == 2 and x[1] != before.strip()
    assert "no rule allows" in daemon.exec(vm, "curl -s -m 20 http://refused.test/")["stdout"]


def test_a_fork_boots_with_the_same_files(daemon, vm):
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    mine = daemon.exec(vm, f"echo shared >~/forked; {boot_id}")["stdout"]
    fork = daemon.post(f"/v1/machines/{vm}/fork", {})["machines"][0]["id"]
    assert daemon.exec(fork, "cat ~/forked; echo other >~/forked")["stdout"] == "shared\n"
    assert daemon.exec(fork, boot_id)["stdout"] != mine
    daemon.delete(f"/v1/machines/{fork}")
    assert daemon.exec(vm, "cat ~/forked")["stdout"] == "shared\n"


def test_a_vm_and_its_command_outlive_the_daemon(daemon, vm):
    x = daemon.background(vm, "echo before; while [ ! -e ~/go ]; do sleep 0.2; done; echo after")
    daemon.restart(hard=True)
    daemon.until(lambda: daemon.get(f"/v1/machines/{vm}")["state"] == "running")
    assert daemon.exec(vm, "touch ~/go; echo there")["stdout"] == "there\n"
    assert daemon.wait(vm, x)["status"] == 0
    assert "no rule allows" in daemon.exec(vm, "curl -s -m 20 http://refused.test/")["stdout"]


def test_a_paused_vm_stands_still(daemon, vm):
    at = f"/v1/machines/{vm}"
    x = daemon.background(vm, "while [ ! -e ~/stop ]; do date +%s%N >~/clock; sleep 0.05; done")
    daemon.post(f"{at}/pause")
    assert daemon.get(at)["state"] == "paused"
    daemon.post(f"{at}/resume")
    assert daemon.exec(vm, "touch ~/stop; echo on")["stdout"] == "on\n"
    daemon.wait(vm, x)


@pytest.mark.parametrize("fields", [{"limits": {"pids": 50}}, {"limits": {"mem": 64 << 20}}, {"allow": "log"}])
def test_what_a_vm_cannot_do_is_refused(daemon, kernel, fields):
    with pytest.raises(Refused) as refused:
        daemon.post("/v1/machines", {"kind": "vm", **fields})
    assert refused.value.code in ("unsupported", "invalid")


def test_memory_of_a_running_vm_is_not_changed(daemon, vm):
    with pytest.raises(Refused) as refused:
        daemon.patch(f"/v1/machines/{vm}", {"limits": {"mem": 1 << 30}})
    assert refused.value.code == "unsupported"


def test_doctor_names_the_kernel_of_the_settings(daemon, kernel):
    if not kernel:
        pytest.skip("this host has a kernel in /boot, and the settings name none")
    done = subprocess.run([PROGRAM, "doctor", "--json"], env=daemon.env, capture_output=True, text=True, timeout=60)
    row, = [c for c in json.loads(done.stdout)["checks"] if c["name"] == "vm"]
    assert (row["verdict"], row["found"]) == ("ok", kernel)


def test_a_revoked_directory_is_gone_and_the_vm_boots_again(daemon, kernel, tmp_path):
    for name in ("taken", "stays"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(f"{name}\n")
    fds = [os.open(tmp_path / name, os.O_RDONLY | os.O_DIRECTORY) for name in ("taken", "stays")]
    dirs = [{"path": str(tmp_path / name), "at": f"/home/user/{name}", "mode": "ro"} for name in ("taken", "stays")]
    m = daemon.send(fds, "/v1/machines", {"kind": "vm", "dirs": dirs})["id"]
    for fd in fds:
        os.close(fd)
    x = daemon.background(m, "exec 3<~/taken/file; sleep 1000")
    before = daemon.exec(m, "cat ~/taken/file ~/stays/file; echo mine >~/f; cat /proc/sys/kernel/random/boot_id")["stdout"].splitlines()
    assert before[:2] == ["taken", "stays"]
    grant, = [g["id"] for g in daemon.grants(m, "dir") if g["at"] == "/home/user/taken"]
    daemon.delete(f"/v1/machines/{m}/grants/{grant}")
    assert daemon.wait(m, x)["reason"] == "killed"
    after = daemon.exec(m, "cat ~/stays/file ~/f; ls ~/taken; cat /proc/sys/kernel/random/boot_id")["stdout"].splitlines()
    assert after[:2] == ["stays", "mine"] and len(after) == 3 and after[2] != before[2]
    assert "no rule allows" in daemon.exec(m, "curl -s -m 20 http://refused.test/")["stdout"]
    daemon.delete(f"/v1/machines/{m}")


def test_a_vm_that_is_reset_without_a_word_of_its_kernel_has_ended(daemon, kernel):
    m = daemon.machine(kind="vm", name="reset")
    with contextlib.suppress(Refused):  # it may end before the answer
        daemon.background(m, "sync; echo 1 >/proc/sys/kernel/sysrq; echo b >/proc/sysrq-trigger", user="root")
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] in ("stopped", "ended"))
    daemon.until(lambda: not qemu_of("reset"))


def test_a_vm_whose_qemu_dies_has_ended_and_leaves_nothing(daemon, kernel):
    m = daemon.machine(kind="vm", name="doomed")
    qemu, = qemu_of("doomed")
    status = pathlib.Path(f"/proc/{qemu}/status").read_text()
    assert "NoNewPrivs:\t1" in status and "CapEff:\t0000000000000000" in status and "Seccomp:\t2" in status
    os.kill(qemu, signal.SIGKILL)
    daemon.until(lambda: daemon.get(f"/v1/machines/{m}")["state"] not in ("running", "creating"))
    daemon.until(lambda: not qemu_of("doomed"))
    delete_what_is_left(daemon, m)
