"""A lent directory is the very one that its giver had open, and not what bears its name where the spawner looks."""
import os
import re
import subprocess

import pytest

from lab import PATH, ROOTLESS, counts

KERNEL = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
# In a mount namespace of its own the name leads to an empty directory of the giver's.
ELSEWHERE = 'mount -t tmpfs none "$1" && echo mine > "$1/own" && shift && exec "$@"'


@pytest.mark.skipif(ROOTLESS, reason="a mount namespace without a user namespace of its own takes root")
@pytest.mark.parametrize("mode", ["ro", "cow", "rw"])
def test_a_name_of_another_mount_namespace_gives_nothing(lab, host_dir, mode):
    """Who cannot open a directory could otherwise lend one of the same name, and get the host's."""
    place = host_dir / "place"
    place.mkdir(mode=0o700)
    (place / "secret").write_text("of the host\n")
    words = ["run", "--dir", f"{place}:{mode}", *(["--unreviewed"] if mode == "rw" else []), "--", "ls", str(place)]
    done = lab(*words)  # the control, which also starts the daemon out here: by its own name it is lent
    assert done.returncode == 0 and done.stdout == b"secret\n", done
    counts["attacks tried"] += 1
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", ELSEWHERE, "sh", place,
                           lab.program, *words], env={**lab.env, "PATH": PATH}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode != 0 and b"secret" not in done.stdout and b"grant directory" in done.stderr, done
    assert (place / "secret").read_text() == "of the host\n" and not (place / "own").exists()


# Run as the first and the second of two namespaces: what is at the place, there.
NEW_FILESYSTEM = 'mount -t tmpfs -o mode=700 none "$1" && echo "$2" > "$1/$2" && stat -c %i "$1"'
OTHER_DIRECTORY = 'mkdir -m 700 "$1-$2" && echo "$2" > "$1-$2/$2" && mount --bind "$1-$2" "$1" && stat -c %d "$1"'


@pytest.mark.skipif(ROOTLESS, reason="a mount namespace without a user namespace of its own takes root")
@pytest.mark.parametrize("place_it", [NEW_FILESYSTEM, OTHER_DIRECTORY], ids=["inode", "device"])
def test_neither_an_inode_number_nor_a_device_alone_is_enough(host_dir, make_lab, place_it):
    """The root of every tmpfs has the same number, and every directory of a filesystem the same device."""
    if place_it is NEW_FILESYSTEM and KERNEL < (6, 3):
        pytest.skip("this kernel cannot show a tmpfs through a map of ids")
    lab = make_lab()  # whose daemon lives in the first namespace
    place = host_dir / "place"
    place.mkdir(mode=0o700)
    words = [lab.program, "run", "--dir", f"{place}:ro", "--", "ls", place]

    def in_a_namespace_of_its_own(name):
        script = f'{{ {place_it}; }} >&2 && shift 2 && exec "$@"'
        return subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", place, name, *words],
                              env={**lab.env, "PATH": PATH}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)

    host = in_a_namespace_of_its_own("secret")  # the control, which starts the daemon
    assert host.returncode == 0 and host.stdout == b"secret\n", host
    counts["attacks tried"] += 1
    done = in_a_namespace_of_its_own("own")
    assert done.stderr.split()[0] == host.stderr.split()[0], "the two are not alike, so nothing was tried"
    assert done.returncode != 0 and b"secret" not in done.stdout and b"grant directory" in done.stderr, done
