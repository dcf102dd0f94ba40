"""Directories of the host that are granted rw: grants inside them, and what the warning about them says."""
import os
import stat
import struct
import subprocess

import pytest

from lab import ROOTLESS, counts

pytestmark = pytest.mark.skipif(ROOTLESS, reason="rootless one user owns all: no other owner to try")
STRANGER = 54321  # a user of the host without an account
IDS = "import os; print(os.geteuid(), os.getegid())"


def writable(host_dir, uid, gid):
    host_dir.chmod(0o755)
    rw = host_dir / "rw"
    rw.mkdir()
    rw.chmod(0o755)
    os.chown(rw, uid, gid)
    return rw


def as_stranger(program, code):
    return subprocess.run([program, "-c", code], user=STRANGER, group=STRANGER, extra_groups=[], cwd="/", stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE).stdout


@pytest.mark.parametrize("owner", [1234, 0])
def test_a_grant_inside_a_writable_grant_creates_its_place(lab, host_dir, owner):
    """Root of the box has no id on the disk there, so the place belongs to the owner."""
    rw, other = writable(host_dir, owner, owner), host_dir / "other"
    other.mkdir()
    (other / "e").write_text("e\n")
    done = lab.run("-q", "--unreviewed", "--dir", f"{rw}:/mnt/rw:rw", "--dir", f"{other}:/mnt/rw/new/deep:cow", "--",
                   "cat", "/mnt/rw/new/deep/e")
    assert done.stdout == b"e\n", done
    assert {(p.stat().st_uid, p.stat().st_gid) for p in (rw / "new", rw / "new/deep")} == {(owner, owner)}


@pytest.mark.parametrize("gid", [0, 42])
def test_the_warning_names_the_rights_that_set_id_programs_get(lab, host_dir, gid):
    rw = writable(host_dir, 1234, gid)
    counts["with a control that got through"] += 1
    done = lab.run("--unreviewed", "--dir", f"{rw}:/mnt/rw:rw", "--", "sh", "-c", "cp /usr/bin/python3 /mnt/rw/p; chmod 6755 /mnt/rw/p")
    assert done.returncode == 0 and (rw / "p").stat().st_mode & stat.S_ISGID, done
    if not os.statvfs(rw).f_flag & os.ST_NOSUID:
        assert as_stranger(rw / "p", IDS) == b"1234 %d\n" % gid
    assert b"rights of user 1234 and group %d," % gid in done.stderr, done.stderr


@pytest.mark.parametrize("owner", [0, 1234])
def test_file_capabilities_reach_the_host_only_as_rights_of_the_owner(lab, host_dir, owner):
    """Root of the box names `user` as the root of a capability. The id map makes that the owner of the directory."""
    rw = writable(host_dir, owner, owner)
    done = lab("new", "--steps", "manual", "--unreviewed", "--dir", f"{rw}:/mnt/rw:rw")
    name = done.stdout.decode().strip()
    assert lab("exec", name, "--", "cp", "/usr/bin/python3", "/mnt/rw/p").returncode == 0
    attribute = struct.pack("<6I", 0x03000001, 1 << 2, 0, 0, 0, 1000)  # CAP_DAC_READ_SEARCH
    counts["attacks tried"] += 1
    lab("exec", "-u", "root", name, "--", "python3", "-c", f"import os; os.setxattr('/mnt/rw/p', 'security.capability', {attribute!r})")
    secret = host_dir / "secret"
    secret.write_text("secret\n")
    secret.chmod(0o600)
    gained = b"secret" in as_stranger(rw / "p", f"print(open({str(secret)!r}).read())")
    assert not gained or owner == 0 and b"rights of user 0 " in done.stderr, done
    assert lab("rm", name).returncode == 0
