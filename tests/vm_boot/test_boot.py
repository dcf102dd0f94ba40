"""The start of a vm, from the kernel to commands over the port."""
import itertools
import os
import struct
import subprocess

from booted import GUEST, LAB
from guestlink import PTY

ids = itertools.count(1)


def sh(vm, script, **kw):
    """Exit status and output of a shell inside."""
    end, out = vm.host.run(next(ids), ["/bin/sh", "-c", script], **kw)
    return end.status, out.decode()


def test_vm_runs_commands(vm):
    assert sh(vm, "echo out; id -u; cat; exit 7", stdin=b"in\n") == (7, "out\n0\nin\n")


def test_vm_reports_a_program_that_does_not_exist(vm):
    assert vm.host.run(next(ids), ["/bin/nothing"]).type == "EXEC_FAILED"


def test_vm_has_a_kernel_of_its_own(vm):
    assert sh(vm, "cat /proc/1/comm /proc/sys/kernel/hostname") == (0, "init\nm-1.test\n")
    assert sh(vm, "uname -r")[1].strip() == os.path.basename(vm.kernel).removeprefix("vmlinuz-")


def test_tree_of_the_host_is_the_root(vm):
    assert sh(vm, "echo inside >/tmp/f && chmod 640 /tmp/f && ln -s f /tmp/l && mkfifo /tmp/p")[0] == 0
    file = vm.tree / "tmp/f"
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("inside\n", 0o640)
    assert (vm.tree / "tmp/p").is_fifo() and os.readlink(vm.tree / "tmp/l") == "f"
    (vm.tree / "tmp/g").write_text("outside\n")
    assert sh(vm, "cat /tmp/g /tmp/l") == (0, "outside\ninside\n")


FILES = """
import errno, mmap, os
os.chdir("/tmp"); os.mkdir("deep"); os.mkdir("many")
with open("a", "wb") as f:
    f.write(b"x" * 700000); f.truncate(600000); os.link("a", "b"); os.rename("a", "deep/a"); os.unlink("b")
    os.unlink("deep/a"); f.seek(10); f.write(b"y"); f.flush()
    assert os.fstat(f.fileno()).st_size == 600000 and os.fstat(f.fileno()).st_nlink == 0
with open("map", "wb+") as f:
    f.truncate(8192); m = mmap.mmap(f.fileno(), 8192); m[5000:5003] = b"map"; m.flush(); m.close()
for i in range(300): open(f"many/{i}", "x").close()
assert sorted(map(int, os.listdir("many"))) == list(range(300))
os.setxattr("map", "user.k", b"v"); assert os.getxattr("map", "user.k") == b"v" and os.listxattr("map") == ["user.k"]
os.removexattr("map", "user.k")
os.utime("map", ns=(5, 1000000007)); assert os.stat("map").st_mtime_ns == 1000000007
open("sparse", "w").truncate(1 << 30); os.chmod("sparse", 0o4755); os.chown("sparse", 7, 8)
try: os.rmdir("many"); assert False
except OSError as e: assert e.errno == errno.ENOTEMPTY
os.mkdir("shared"); os.chown("shared", 0, 50); os.chmod("shared", 0o2775)
if os.fork() == 0:
    os.setgroups([50]); os.setgid(1000); os.setuid(1000)
    open("shared/f", "w").write("mine"); os.symlink("f", "shared/l")
    try: open("map"); open("map", "w"); os._exit(1)
    except PermissionError: os._exit(0)
assert os.wait()[1] == 0
"""


def test_files_behave_as_on_a_disk(vm):
    (vm.tree / "tmp/files.py").write_text(FILES)
    assert sh(vm, "python3 /tmp/files.py 2>&1") == (0, "")
    assert (vm.tree / "tmp/map").read_bytes()[4999:5004] == b"\0map\0"
    assert [(vm.tree / "tmp/shared" / n).lstat()[4:6] for n in "fl"] == [(1000, 50)] * 2
    st = (vm.tree / "tmp/sparse").stat()
    assert (st.st_mode & 0o7777, st.st_uid, st.st_gid, st.st_size, st.st_blocks) == (0o755, 7, 8, 1 << 30, 0)


def test_a_signal_to_all_processes_leaves_the_files(vm):
    assert sh(vm, "kill -9 -1; ls /usr/bin/env; echo on >/tmp/on; cat /tmp/on")[1].endswith("on\n")


def test_files_pass_the_port(vm):
    data = os.urandom(300000)
    (vm.tree / "tmp/data").write_bytes(data)
    assert vm.host.run(next(ids), ["/bin/cat", "/tmp/data"])[1] == data


def test_run_is_in_memory_and_keeps_the_directory_of_the_machine(vm):
    assert sh(vm, "cat /run/carrel/note; echo x >/run/x; stat -f -c %T /run") == (0, "from the host\ntmpfs\n")
    assert not (vm.tree / "run/x").exists()


def test_devices_of_a_computer_are_there(vm):
    devices = "null zero full random urandom tty ptmx pts/ptmx fd/0 stdin shm kmsg"
    status, out = sh(vm, f"for d in {devices}; do [ -e /dev/$d ] || echo $d; done; stat -c %a /dev/shm /dev/null")
    assert (status, out) == (0, "1777\n666\n")


def test_terminal_works(vm):
    end, out = vm.host.run(next(ids), ["/bin/sh", "-c", "test -t 0 && stty size"], stdio=(PTY, PTY, PTY),
                           rows=33, cols=77)
    assert (end.status, out) == (0, b"33 77\r\n")


def test_network_device_has_the_addresses_of_every_vm(vm):
    status, out = sh(vm, "cat /sys/class/net/eth0/mtu /proc/net/route; cat /etc/resolv.conf; cat /proc/net/fib_trie")
    assert status == 0 and out.startswith("1500\n")
    assert "eth0\t00000000\t010012C6\t" in out
    assert "nameserver 198.18.0.1" in out and "198.18.0.2" in out and "127.0.0.1" in out
    assert (vm.tree / "etc/resolv.conf").read_text() == "nameserver 127.0.0.1\n"


def test_initramfs_is_out_of_sight(vm):
    assert sh(vm, "ls -d /modules /init /carrel 2>/dev/null; ls /proc/1/root/modules 2>/dev/null; true") == (0, "")


def test_kill_ends_processes_that_left_their_session(vm):
    id = next(ids)
    vm.host.exec(id, ["/bin/sh", "-c", "setsid -f sh -c 'exec 2>&-; echo $$; exec sleep 1000'; wait; sleep 1000"])
    pid = vm.host.next(lambda f: f.type == "STDOUT" and f.id == id).payload[8:].decode().strip()
    assert sh(vm, f"test -d /proc/{pid}")[0] == 0
    vm.host.call("KILL", id=id)
    vm.host.exit(id)
    assert sh(vm, f"grep -s State /proc/{pid}/status")[1] in ("", "State:\tZ (zombie)\n")


def test_many_commands_run_at_once(vm):
    several = [next(ids) for _ in range(8)]
    for id in several:
        vm.host.exec(id, ["/bin/sleep", "1000"])
    for id in several:
        vm.host.call("KILL", id=id)
        assert vm.host.exit(id).status == 9
    assert sh(vm, "echo more") == (0, "more\n")


def test_next_host_finds_a_command_that_runs(vm):
    id = next(ids)
    vm.host.exec(id, ["/bin/sh", "-c", "read x; echo got $x"])
    vm.host.sock.close()
    vm.host = vm.link()
    vm.host.call("ATTACH", struct.pack("<QQ", 0, 0), id)
    vm.host.stdin(id, 0, b"it\n")
    assert vm.host.next(lambda f: f.type == "STDOUT" and f.id == id).payload[8:] == b"got it\n"
    assert vm.host.exit(id).status == 0


def test_panic_inside_ends_qemu(boot):
    vm = boot()
    vm.link().exec(1, ["/bin/sh", "-c", "echo c >/proc/sysrq-trigger"])
    assert "Kernel panic" in vm.ended()


INIT = """#!/bin/sh
echo $$ >/run/own-init
while :; do sleep 1000; done
"""


def test_system_init_is_pid_1_and_the_guest_does_not_wait_for_it(boot):
    vm = boot("carrel.hostname=m carrel.init=system", files={"sbin/init": (INIT, 0o755)})
    vm.host = vm.link()
    assert sh(vm, "tr '\\0' ' ' </proc/1/cmdline") == (0, "/bin/sh /sbin/init ")
    assert sh(vm, "until [ -s /run/own-init ]; do sleep 0.1; done; cat /run/own-init") == (0, "1\n")
    # An orphan of a command belongs to the guest, which reaps it.
    orphan = "(sh -c 'until [ -e /tmp/go ]; do sleep 0.1; done; cut -d\" \" -f4 /proc/$$/stat >/tmp/parent' &)"
    assert sh(vm, orphan + "; touch /tmp/go; until [ -s /tmp/parent ]; do sleep 0.1; done; cat /tmp/parent")[1] != "1\n"
    vm.host.send("SHUTDOWN")
    assert "panic" not in vm.ended()


def test_shutdown_ends_a_vm_without_a_system_and_keeps_files(boot):
    vm = boot("carrel.hostname=m carrel.init=system")
    vm.host = vm.link()
    assert "there is no /sbin/init" in vm.console.read_text()
    assert sh(vm, "echo kept >/etc/kept")[0] == 0
    vm.host.send("SHUTDOWN")
    assert "panic" not in vm.ended()
    assert (vm.tree / "etc/kept").read_text() == "kept\n"


def test_wrong_words_end_the_vm_with_the_reason(boot):
    assert "wrong words from the host" in boot("carrel.hostname=m carrel.what=1").ended()


def test_missing_kernel_is_an_error_with_a_remedy(tmp_path):
    def error(kernel):
        done = subprocess.run([LAB, tmp_path, GUEST, kernel], capture_output=True, text=True)
        assert done.returncode == 1
        return done.stderr
    assert "not an absolute path" in error("vmlinuz-1")
    assert "cannot read the kernel" in error(f"{tmp_path}/vmlinuz-1")
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz-1").write_text("")
    assert "modules.dep" in error(f"{tmp_path}/boot/vmlinuz-1")
    modules = tmp_path / "lib/modules/1"
    modules.mkdir(parents=True)
    (modules / "modules.dep").write_text("kernel/a/virtio_mmio.ko: kernel/a/b.ko\n")
    (modules / "modules.builtin").write_text("kernel/virtio_console.ko\n")
    assert "has no module 'fuse'" in error(f"{tmp_path}/boot/vmlinuz-1")


def test_initramfs_is_made_once_for_a_guest_and_replaced_for_another(tmp_path):
    root = tmp_path / "host"
    modules = root / "lib/modules/1"
    for path in (root / "boot", modules / "kernel", tmp_path / "state"):
        path.mkdir(parents=True)
    (root / "boot/vmlinuz-1").write_text("")
    (modules / "modules.dep").write_text("".join(
        f"kernel/{name}.ko: kernel/first.ko\n" for name in ("virtio_mmio", "virtio-console", "fuse")))
    (modules / "modules.builtin").write_text("kernel/virtio_net.ko\n")
    for name in ("first", "virtio_mmio", "virtio-console", "fuse"):
        (modules / f"kernel/{name}.ko").write_text(name)

    def prepare(guest):
        (tmp_path / "guest").write_text(guest)
        done = subprocess.run([LAB, tmp_path / "state", tmp_path / "guest", root / "boot/vmlinuz-1"],
                              capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[1]
    first = prepare("one")
    made = os.stat(first)
    assert prepare("one") == first and os.stat(first).st_ino == made.st_ino
    assert prepare("two") != first
    assert len(list((tmp_path / "state/vm").iterdir())) == 1
