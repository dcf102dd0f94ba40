"""Client and spawner under valgrind: no invalid access, no use of what was never set, nothing lost."""
import shutil
import subprocess
import time

import pytest
from carrel import BUILD, GUEST, ROOTLESS, stop_daemon
from patience import PATIENCE, clock

VALGRIND = ["valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite", "--track-fds=no",
            "--vgdb=no", "--child-silent-after-fork=yes"]

pytestmark = [
    pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not there: apt-get install valgrind"),
    pytest.mark.skipif(b"__asan_init" in (BUILD / "tests/carrel-dynamic").read_bytes(), reason="sanitizers and valgrind exclude each other"),
]


@pytest.fixture
def program(tmp_path):
    """The client that valgrind can look into, with its libexec beside it."""
    shutil.copy(BUILD / "tests/carrel-dynamic", tmp_path / "carrel")
    (tmp_path / "libexec").symlink_to(BUILD / "libexec")
    return tmp_path / "carrel"


def test_the_client(carrel, program, tmp_path):
    (tmp_path / "file").write_text("x")
    log = tmp_path / "log"
    for words, status in (["run", "--", "sh", "-c", "cat; echo err >&2; exit 3"], 3), (["run", "--json", "--", "id"], 0), \
            (["run", "-q", "--dir", tmp_path, "--", "sh", "-c", f"rm {tmp_path}/file; echo y > {tmp_path}/new"], 0), \
            (["run", "--mem", "lots", "--", "true"], 125), (["ls", "--json"], 0), (["top", "--json"], 0), (["completion", "words", "exec", ""], 0), (["doctor"], 0), (["run", "-t", "--", "tty"], 0), \
            (["help"], 0), (["exec", "m-aaaaaaaaaaaa", "--", "true"], 125):
        done = subprocess.run([*VALGRIND, f"--log-file={log}", program, *map(str, words)], env=carrel.env, input=b"in",
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100 * PATIENCE)
        assert done.returncode == status, (words, done, log.read_text())
        assert log.read_text() == ""


def test_the_spawner(fresh):
    """Its first process only: a box is a fork of it that runs another program."""
    if ROOTLESS:
        pytest.skip("without root the spawner is the second process of two, and valgrind looks at the first")
    fresh.run_dir.mkdir(mode=0o700)
    fresh.home.mkdir(mode=0o700, exist_ok=True)
    log = fresh.dir / "log"
    process = subprocess.Popen([*VALGRIND, f"--log-file={log}", BUILD / "tests/carrel-spawn-dynamic", "--run", fresh.run_dir, "--home", fresh.home, "--guest", GUEST],
                               stderr=subprocess.PIPE)
    try:
        end = clock() + 90
        while not (fresh.run_dir / "spawn.sock").exists():
            if process.poll() is not None:
                text = log.read_text() + process.stderr.read().decode()
                assert "Invalid" not in text and "uninitialised" not in text, text
                pytest.skip("this valgrind does not know the system calls of a spawner: " + text.strip().splitlines()[-1])
            assert clock() < end
            time.sleep(0.05)
        for i in range(3):
            done = fresh.run("-q", "--", "echo", str(i))
            if "Valgrind has to exit now" in log.read_text():
                pytest.skip("this valgrind does not know the system calls of a spawner: " +
                            next(line for line in log.read_text().splitlines() if "does not support" in line or "Unsupported" in line))
            assert done.stdout == b"%d\n" % i, (done, log.read_text())
        machine = fresh.keep(*([] if "disk" in fresh.status()["unenforced"] else ["--disk", "20M"]))
        assert fresh("exec", machine, "--", "true").returncode == 0
        assert fresh("rm", machine).returncode == 0
        stop_daemon(fresh.run_dir)  # it would start another one
        process.terminate()
        assert process.wait(30 * PATIENCE) == 0, log.read_text()
        assert log.read_text() == ""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
