"""A lent directory is the very one that its giver had open, and not what bears its name where the spawner looks."""
import subprocess

import pytest

from lab import PATH, ROOTLESS, counts

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
