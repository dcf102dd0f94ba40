"""The jail of cell workers, attacked by an engine that was taken over (taken.c).

Each attack first runs outside, where it must work. CARREL_BUILD names the build folder.
"""
import os, pathlib, stat, subprocess

import pytest

TAKEN, SPAWN, WEAK = (f"{os.environ['CARREL_BUILD']}/libexec/carrel-{name}" for name in ("cell-taken", "spawn", "spawn-weak"))
WORKED, FAILED, KILLED = 0, 1, 3

# Attacks on files: the system call is allowed, and must find nothing.
ON_FILES = ["read-absolute", "read-upwards", "read-through-link", "read-through-proc", "read-sibling", "list-root",
            "write-root"]
# Attacks with other system calls: they end the worker.
ON_CALLS = ["make-socket", "send-signal", "make-process", "run-program", "open-plainly", "change-mode", "make-device",
            "use-handle", "leave-root", "make-mount", "write-elsewhere"]


def attack(where, name, *dirs, weaken=""):
    env = {**os.environ, "CARREL_WEAKEN": weaken}
    ran = subprocess.run([TAKEN, where, name, *dirs], capture_output=True, text=True, timeout=60, env=env)
    assert ran.returncode != 4, ran.stderr
    return ran.returncode


@pytest.fixture
def place(tmp_path):
    (tmp_path / "granted").mkdir()
    (tmp_path / "sibling").mkdir()
    (tmp_path / "sibling/secret").write_text("secret")
    return tmp_path / "granted"


@pytest.fixture(autouse=True, scope="module")
def confinement(tmp_path_factory):
    """Skips only what the host lacks: filters, user namespaces of ordinary users, id maps of its filesystem."""
    place = tmp_path_factory.mktemp("probe")
    for where in ("none", SPAWN):
        ran = subprocess.run([TAKEN, where, "write-file", f"rw:{place}"], capture_output=True, text=True, timeout=60)
        lacks = ["cannot confine"] if where == "none" else ["does not allow this user", "does not support id maps"]
        if any(text in ran.stderr for text in lacks):
            pytest.skip(f"this host cannot confine a worker: {ran.stderr.strip()}")


@pytest.fixture(autouse=True)
def clean_root():
    yield
    if pathlib.Path("/made").is_dir():  # the control of write-root, which runs as root
        os.rmdir("/made")


@pytest.mark.parametrize("name", ON_FILES)
def test_worker_reaches_no_files_but_those_granted(place, name):
    if name == "write-root" and os.geteuid() != 0:
        pytest.skip("only root can make the control of this attack work")
    assert attack("outside", name, f"rw:{place}") == WORKED
    assert attack(SPAWN, name, f"rw:{place}") == FAILED


@pytest.mark.parametrize("name", ON_CALLS)
def test_other_system_calls_end_the_worker(place, name):
    if name == "make-device" and os.geteuid() != 0:
        pytest.skip("only root can make the control of this attack work")
    assert attack("outside", name, f"rw:{place}") == WORKED
    assert attack(SPAWN, name, f"rw:{place}") == KILLED


@pytest.mark.parametrize("name", [*ON_FILES, *ON_CALLS, "write-file"])
def test_worker_without_files_has_no_system_calls_of_files(place, name):
    assert attack("none", name, f"rw:{place}") == KILLED


def test_worker_writes_where_it_may(place):
    assert attack(SPAWN, "write-file", f"rw:{place}") == WORKED
    made = (place / "made").stat()
    assert (made.st_uid, made.st_gid) == (place.stat().st_uid, place.stat().st_gid)


def test_read_only_directory_is_read_only_for_the_kernel(place):
    assert attack(SPAWN, "write-file", f"ro:{place}") == FAILED
    assert not (place / "made").exists()
    assert attack(WEAK, "write-file", f"ro:{place}", weaken="cellro") == WORKED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_devices_in_a_directory_cannot_be_opened(place):
    os.mknod(place / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    os.chmod(place / "zero", 0o666)
    assert attack("outside", "open-device", f"rw:{place}") == WORKED
    assert attack(SPAWN, "open-device", f"rw:{place}") == FAILED


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has no ids to give")
def test_root_gives_the_worker_ids_of_its_own(place):
    """A file of another owner that only its owner may read cannot be read by a worker of root."""
    (place / "made").write_text("private")
    os.chown(place / "made", 12345, 12345)
    os.chmod(place / "made", 0o600)
    assert attack("outside", "write-file", f"rw:{place}") == WORKED
    assert attack(SPAWN, "write-file", f"rw:{place}") == FAILED


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user takes no ids")
def test_ids_are_given_back(place):
    """In a mount namespace with a /run of its own, so that machines of others do not count."""
    script = 'mount -t tmpfs none /run && "$@"; echo $? $(ls /run)'
    ran = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", TAKEN, SPAWN, "write-file", f"rw:{place}"],
                         capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == ["0"], ran
