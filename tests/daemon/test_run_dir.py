"""One daemon per run directory, whoever names which store; and descriptors that it may run out of."""
import os
import resource
import signal
import subprocess

import pytest

from daemon import BUILD, DAEMON, signal_all

CARREL = str(BUILD / "carrel")
MANY = 1200  # more than 145 machines hold


def other_home(d):
    home = d.dir / "other"
    home.mkdir(mode=0o700)
    return {**d.env, "CARREL_HOME": str(home)}


def test_a_second_daemon_with_another_store_changes_nothing(fresh):
    d = fresh()
    m = d.machine()
    pid = (d.run_dir / "carrel.pid").read_text()
    second = subprocess.run([DAEMON, "--conf", str(d.conf)], env=other_home(d), capture_output=True, timeout=60)
    assert second.returncode == 1 and b"another daemon" in second.stderr, second
    assert str(d.home).encode() in second.stderr
    assert (d.run_dir / "carrel.pid").read_text() == pid
    assert d.exec(m, "echo lives")["stdout"] == "lives\n"


def test_a_client_that_names_another_store_is_told(fresh):
    d = fresh()
    m = d.machine()
    told = subprocess.run([CARREL, "ls"], env=other_home(d), capture_output=True, text=True, timeout=60)
    assert told.returncode == 125 and "uses store" in told.stderr and "CARREL_RUN" in told.stderr, told
    for env in d.env, {k: v for k, v in d.env.items() if k != "CARREL_HOME"}:
        ours = subprocess.run([CARREL, "ls"], env=env, capture_output=True, text=True, timeout=60)
        assert ours.returncode == 0 and m in ours.stdout, ours


def test_a_dead_spawner_is_replaced_by_a_daemon_with_many_descriptors(fresh):
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2 * MANY:
        pytest.skip("too few descriptors on this host")
    d = fresh()
    m = d.machine()
    d.kill()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        d.lent_fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(MANY)]
        d.start()
    finally:
        for fd in d.lent_fds:
            os.close(fd)
        d.lent_fds = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir(f"/proc/{d.process.pid}/fd")) > MANY
    signal_all(d.host.spawners(), signal.SIGKILL)
    other = d.machine()
    assert d.exec(other, "echo made")["stdout"] == "made\n"
    assert d.exec(m, "echo kept")["stdout"] == "kept\n"
