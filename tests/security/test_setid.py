"""Set-id programs work in the root of a box and lead to its own users; everywhere else they do nothing, and nobody on the host can run them."""
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile

import pytest

from lab import ATTACK, PLACE, ROOTLESS, counts, read

STRANGER = 54321  # a user of the host without an account
KEPT = 0x800405fb  # CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT SETFCAP


def set_up(machine, path, power):
    """Root of the box gives a copy of the attacker power, by its mode or by an attribute."""
    script = {"setuid": f"cp /usr/local/bin/attack {path}; chmod 4755 {path}",
              "capability": f"cp /usr/local/bin/attack {path}; chmod 755 {path}; python3 -c 'import os, struct; os.setxattr(\"{path}\", "
                            f"\"security.capability\", struct.pack(\"<5I\", 0x02000001, 2, 0, 0, 0))'"}
    machine.sh(script[power])


def gains(machine, path):
    """42: more power than `user` has; 0: none."""
    return machine.exec(path, "--bomb", "power", user="user").returncode


@pytest.mark.parametrize("power", ["setuid", "capability"])
def test_set_id_works_in_the_root_and_nowhere_else(lab, host_dir, power):
    cow, rw = host_dir / "cow", host_dir / "rw"
    for place in cow, rw:
        place.mkdir(mode=0o777)
        place.chmod(0o777)
    machine = lab.keep("--unreviewed", "--dir", f"{cow}:/mnt/cow:cow", "--dir", f"{rw}:/mnt/rw:rw").install()
    for path in "/tmp/p", "/usr/local/bin/p", "/home/user/p":  # the control
        set_up(machine, path, power)
        assert gains(machine, path) == 42, path
    for path in "/dev/shm/p", "/mnt/cow/p", "/mnt/rw/p":
        if power == "capability" and path == "/mnt/rw/p":
            continue  # a mapped mount stores no attribute for root of a box
        counts["attacks tried"] += 1
        set_up(machine, path, power)
        assert gains(machine, path) == 0, path


def test_root_by_set_id_has_the_capabilities_of_root(lab):
    machine = lab.keep().install()
    set_up(machine, "/tmp/p", "setuid")
    done = machine.exec("/tmp/p", "--rise", "/bin/cat", "/proc/self/status", user="user")
    sets = {name: int(value, 16) for name, value in re.findall(r"^Cap(\w+):\s*(\w+)$", done.stdout.decode(), re.M)}
    assert sets == {"Inh": 0, "Prm": KEPT, "Eff": KEPT, "Bnd": KEPT, "Amb": 0}, done
    assert re.search(r"^Seccomp:\s*2$", done.stdout.decode(), re.M)


def runs_as_root(path):
    """An ordinary user of the host runs the program at this path: does it get power?"""
    try:
        return subprocess.run([path, "--bomb", "power"], user=STRANGER, group=STRANGER, extra_groups=[], cwd="/").returncode == 42
    except OSError:
        return False


def processes_beside(guest):
    """All processes of the box, by its pid namespace."""
    def namespace(pid):
        try:
            return os.readlink(f"/proc/{pid}/ns/pid")
        except OSError:
            return None
    return [pid for pid in os.listdir("/proc") if pid.isdigit() and namespace(pid) == namespace(guest)]


@pytest.mark.skipif(ROOTLESS, reason="only root can try it as another user")
def test_no_user_of_the_host_reaches_a_setuid_program(lab):
    machine = lab.keep().install()
    set_up(machine, "/tmp/suid-of-a-box", "setuid")
    sleeper = machine.popen("sh", "-c", "cd /tmp; echo up; exec sleep 1000", user="user", stdout=subprocess.PIPE)
    assert sleeper.stdout.readline() == b"up\n"
    guest = int(re.search(r"^pid=(\d+)$", read(machine.socket.parent / "box"), re.M)[1])
    inside = processes_beside(guest)
    assert len(inside) > 1
    paths = [f"/proc/{pid}/{way}" for pid in inside for way in ("root/tmp/suid-of-a-box", "cwd/suid-of-a-box")]
    paths += [str(p) for top in (lab.home, lab.run_dir) for p in top.rglob("suid-of-a-box")]
    # The control: root does see it there, with the bit, and on a public path of the host it would give power.
    seen = [p for p in paths if os.path.exists(p)]
    assert seen and all(os.stat(p).st_mode & stat.S_ISUID for p in seen)
    public = pathlib.Path(tempfile.mkdtemp(prefix="cp-", dir=PLACE))
    try:
        public.chmod(0o755)
        shutil.copy(ATTACK, public / "attack")
        (public / "attack").chmod(0o4755)
        assert runs_as_root(public / "attack") or os.statvfs(public).f_flag & os.ST_NOSUID
    finally:
        shutil.rmtree(public)
    counts["attacks tried"] += len(seen)
    assert [p for p in seen if runs_as_root(p)] == []
    sleeper.kill()
    sleeper.wait()
    sleeper.stdout.close()
