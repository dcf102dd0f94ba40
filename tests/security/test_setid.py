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
    for path in "/dev/shm/p", "/mnt/cow/p":
        counts["attacks tried"] += 1
        set_up(machine, path, power)
        assert gains(machine, path) == 0, path
    # In a writable directory only `user` creates files: the program would lead to `user`.
    for path, reached in ("/tmp/id", "1000\n"), ("/mnt/rw/id", "1\n"):
        counts["attacks tried"] += reached == "1\n"
        machine.sh(f"cp /usr/bin/id {path}; chmod 4755 {path}", user="user")
        assert machine.sh(f"{path} -u", user="daemon") == reached, path


def test_root_by_set_id_has_the_capabilities_of_root(lab):
    machine = lab.keep().install()
    set_up(machine, "/tmp/p", "setuid")
    done = machine.exec("/tmp/p", "--rise", "/bin/cat", "/proc/self/status", user="user")
    sets = {name: int(value, 16) for name, value in re.findall(r"^Cap(\w+):\s*(\w+)$", done.stdout.decode(), re.M)}
    assert sets == {"Inh": 0, "Prm": KEPT, "Eff": KEPT, "Bnd": KEPT, "Amb": 0}, done
    assert re.search(r"^Seccomp:\s*2$", done.stdout.decode(), re.M)


LEAVE = """
import os, shutil
def attempt(what, *args):
    try: what(*args)
    except OSError as e: print(what.__name__, os.strerror(e.errno))
for number, ids in enumerate([(0, 0), (1, 1), (0, 1000), (1000, 0), (1234, 1234), (54321, 54321)]):
    path = f"/mnt/rw/left{number}"
    attempt(os.chown, "/mnt/rw/mine", *ids)
    os.setegid(ids[1])
    os.seteuid(ids[0])
    attempt(shutil.copy, "/usr/local/bin/attack", path)
    attempt(os.chmod, path, 0o6755)
    os.seteuid(0)
    os.setegid(0)
for path in "/mnt/rw/mine", "/mnt/rw/roots", "/mnt/rw/others":
    attempt(os.chmod, path, 0o6755)
"""


@pytest.mark.skipif(ROOTLESS, reason="rootless the host's root owns nothing that could be lent")
@pytest.mark.parametrize("owner", [1234, 1000, 0])
def test_what_is_written_to_the_host_belongs_to_the_owner_of_the_directory(lab, host_dir, owner):
    """Root of a box would otherwise leave a program there that runs as the host's root, or as any user."""
    rw = host_dir / "rw"
    rw.mkdir(mode=0o777)
    rw.chmod(0o777)
    for name, uid in ("mine", owner), ("roots", 0 if owner else 77), ("others", 4321):
        (rw / name).write_text("#!/bin/sh\n")
        (rw / name).chmod(0o755)
        os.chown(rw / name, uid, uid)
    os.chown(rw, owner, owner)
    machine = lab.keep("--unreviewed", "--dir", f"{rw}:/mnt/rw:rw").install()
    counts["attacks tried"] += 15
    machine.exec("python3", "-c", LEAVE, user="root")
    machine.sh("cp /usr/local/bin/attack /mnt/rw/control; chmod 4755 /mnt/rw/control", user="user")
    left = {p.name: (p.stat().st_uid, p.stat().st_gid, bool(p.stat().st_mode & 0o6000)) for p in rw.iterdir()}
    assert left.pop("control") == (owner, owner, True), "the control: `user` writes as the owner"
    assert left.pop("roots") == ((0, 0, False) if owner else (77, 77, False))
    assert left.pop("others") == (4321, 4321, False)
    assert {ids[:2] for ids in left.values()} == {(owner, owner)}, left


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
