"""The disk limit is hard, in bytes and in inodes, on tmpfs and on an image file."""
import json

import pytest
from carrel import ROOTLESS

# Half of the memory limit is the most that may lie on tmpfs, which counts as memory.
KINDS = {"tmpfs": ["--mem", "400M", "--disk", "64M"], "image": ["--mem", "64M", "--disk", "64M"]}


@pytest.fixture(params=KINDS)
def small(request, carrel, limits):
    if request.param == "image" and ROOTLESS:
        pytest.skip("rootless: a disk limit on disk is unsupported, and says so")
    if ROOTLESS:
        limits("disk")
        return ["--disk", "64M"]
    return KINDS[request.param]


def test_bytes(carrel, small):
    script = "dd if=/dev/zero of=/tmp/big bs=1M count=100; stat -c %s /tmp/big; rm /tmp/big; echo again > /tmp/big && cat /tmp/big"
    done = carrel.run(*small, "--", "sh", "-c", script)
    size, again = done.stdout.split()
    assert b"No space left on device" in done.stderr and again == b"again"
    assert 40 << 20 < int(size) <= 64 << 20


def test_inodes(carrel, small):
    script = ("import os\nn = 0\ntry:\n  while n < 100000:\n    open(f'/tmp/f{n}', 'w').close(); n += 1\n"
              "except OSError as e: print(e.errno)\nprint(n)")
    errno, count = carrel.run(*small, "--", "python3", "-c", script).stdout.split()
    assert int(errno) == 28 and 10000 < int(count) <= 64 * 1024 // 4


def test_the_limit_is_one_for_the_whole_machine(carrel, small):
    script = "for d in /tmp /var/tmp /home/user /usr/local /etc /opt; do head -c 20000000 /dev/zero > $d/f || echo full $d; done; df -k / | tail -1"
    done = carrel.run(*small, "-u", "root", "--", "sh", "-c", script)
    assert done.stdout.count(b"full") >= 3, done


def test_overwriting_the_image_counts(carrel, small):
    """All of /usr does not fit in 64 MB, whether it is copied up or replaced."""
    change = "touch {} +" if not ROOTLESS else "sh -c 'for f; do cp $f $f.new && mv $f.new $f || exit; done' sh {} +"
    done = carrel.run(*small, "-u", "root", "--", "sh", "-c",
                      f"find /usr/lib -type f -size +100k -size -20M -exec {change} 2>&1 | grep -c 'No space left'")
    assert int(done.stdout) > 0


def test_deleting_gives_room_back(carrel, small):
    script = "for i in 1 2 3 4 5 6; do head -c 30000000 /dev/zero > /tmp/f || exit 1; rm /tmp/f; done; echo ok"
    assert carrel.sh(script, *small) == "ok\n"


def test_a_full_disk_does_not_stop_the_machine(carrel, small):
    script = "head -c 200000000 /dev/zero > /tmp/f 2>/dev/null; ls / | wc -l; rm /tmp/f; echo fine"
    assert carrel.sh(script, *small).split()[-1] == "fine"


@pytest.mark.skipif(not ROOTLESS, reason="root has a disk limit on disk")
def test_a_disk_limit_on_disk_is_unsupported_and_says_so(carrel):
    done = carrel.run("--disk", "40T", "--", "true")
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1
    assert (b"cannot enforce" if "disk" in carrel.status()["unenforced"] else b"requires root") in done.stderr


@pytest.mark.skipif(ROOTLESS, reason="rootless: a disk limit on disk is unsupported, and says so")
def test_an_image_can_be_larger_than_memory(carrel, limits):
    limits("memory")
    script = "head -c 300000000 /dev/zero > /tmp/f && stat -c %s /tmp/f"
    assert carrel.sh(script, "--mem", "100M", "--disk", "1G") == "300000000\n"


@pytest.mark.skipif(ROOTLESS, reason="rootless: a disk limit on disk is unsupported, and says so")
def test_many_images_at_once_and_none_left(carrel):
    ids = [carrel.keep("--mem", "64M", "--disk", "100M") for _ in range(6)]
    for m in ids:
        assert carrel("exec", m, "--", "sh", "-c", "echo x > /tmp/x && cat /tmp/x").stdout == b"x\n"
    assert carrel("rm", *ids).returncode == 0


IMAGE = pytest.mark.skipif(ROOTLESS, reason="rootless: a disk limit on disk is unsupported, and says so")


@IMAGE
def test_an_image_uses_the_inodes_of_deleted_files_again(carrel):
    """Without a journal ext4 searches past all inodes deleted in the last minutes, but not those of this second."""
    script = ("import os, time\nseen = set()\nfor i in range(4):\n"
              "  for n in range(300): seen.add(os.fstat(os.open(f'/tmp/f{n}', os.O_CREAT)).st_ino)\n"
              "  os.closerange(3, 1000)\n  for n in range(300): os.unlink(f'/tmp/f{n}')\n  time.sleep(1.1)\nprint(len(seen))")
    assert int(carrel.run("--mem", "64M", "--disk", "100M", "--", "python3", "-c", script).stdout) < 600


@IMAGE
@pytest.mark.parametrize("size", [64, 125, 128, 200, 256, 4096])
def test_the_journal_of_an_image_takes_nothing_of_the_limit(carrel, size):
    """ext4 keeps a sixteenth for its inodes. The rest, but for a few blocks, is for the files of the machine."""
    script = "import os; f = os.statvfs('/tmp'); print(f.f_blocks * f.f_frsize, f.f_bfree * f.f_frsize, f.f_files)"
    room, free, files = map(int, carrel.run("--mem", "64M", "--disk", f"{size}M", "--", "python3", "-c", script).stdout.split())
    limit = size << 20
    assert limit * 15 // 16 - (1 << 20) < room <= limit
    assert room - free < 1 << 20, "and the journal is not counted as used either"
    assert limit // 4096 <= files < limit // 4096 + 1024


def test_shared_memory_is_limited_too(carrel, limits):
    limits("memory")
    done = carrel.run("--mem", "64M", "--", "dd", "if=/dev/zero", "of=/dev/shm/f", "bs=1M", "count=100")
    assert done.returncode != 0
    inside = json.loads(carrel.run("--json", "--mem", "64M", "--", "df", "-k", "/dev/shm").stdout)["stdout"]
    assert int(inside.split("\n")[1].split()[1]) == 32 * 1024
