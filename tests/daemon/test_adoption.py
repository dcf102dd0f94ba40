"""The daemon may die at any instant: machines and commands go on, and the next daemon finds them."""
import os
import signal
import time

import pytest

from daemon import Refused


def kill_spawner(d):
    for pid in d.host.spawners():
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("hard", [True, False], ids=["killed", "ended"])
def test_a_command_outlives_the_daemon(fresh, hard):
    d = fresh()
    m = d.machine(name="lives", metadata={"a": "b"})
    x = d.background(m, "for i in $(seq 1 20); do echo $i; sleep 0.1; done; exit 7")
    before = d.get(f"/v1/machines/{m}")
    d.restart(hard)
    assert d.get("/v1/machines/lives") == {**before, "commands": 1}
    assert d.get(f"/v1/machines/{m}/execs/{x}/output", follow=1) == b"".join(b"%d\n" % i for i in range(1, 21))
    assert d.wait(m, x)["status"] == 7


def test_what_ended_meanwhile_is_known(fresh):
    d = fresh()
    m = d.machine()
    x = d.background(m, "echo said; sleep 0.3; exit 9")
    d.kill()
    time.sleep(1)
    d.start()
    assert d.wait(m, x)["status"] == 9
    assert d.get(f"/v1/machines/{m}/execs/{x}/output") == b"said\n"


def test_finished_commands_stay_readable(fresh):
    d = fresh()
    m = d.machine()
    x = d.exec(m, "echo kept; exit 2")["exec"]["id"]
    d.restart()
    assert d.get(f"/v1/machines/{m}/execs/{x}")["status"] == 2
    assert d.get(f"/v1/machines/{m}/execs/{x}/output") == b"kept\n"


def test_stdin_goes_on_at_its_offset(fresh):
    d = fresh()
    m = d.machine()
    x = d.background(m, "cat", stdin_open=True)
    d.request("POST", f"/v1/machines/{m}/execs/{x}/stdin", b"one\n")
    d.until(lambda: d.get(f"/v1/machines/{m}/execs/{x}")["stdout_bytes"] == 4)
    d.restart()
    d.request("POST", f"/v1/machines/{m}/execs/{x}/stdin?offset=0&eof=1", b"one\ntwo\n")
    assert d.wait(m, x)["status"] == 0
    assert d.get(f"/v1/machines/{m}/execs/{x}/output") == b"one\ntwo\n"


def test_pause_lasts_over_a_restart(fresh):
    d = fresh()
    m = d.machine()
    x = d.background(m, "while :; do echo x; sleep 0.05; done")
    d.post(f"/v1/machines/{m}/pause")
    d.restart()
    assert d.get(f"/v1/machines/{m}")["state"] == "paused"
    n = d.get(f"/v1/machines/{m}/execs/{x}")["stdout_bytes"]
    time.sleep(0.3)
    assert d.get(f"/v1/machines/{m}/execs/{x}")["stdout_bytes"] == n
    d.post(f"/v1/machines/{m}/resume")
    d.until(lambda: d.get(f"/v1/machines/{m}/execs/{x}")["stdout_bytes"] > n)


def test_the_spawner_may_die_too(fresh):
    d = fresh()
    m = d.machine()
    x = d.background(m, "sleep 1; exit 3")
    kill_spawner(d)
    assert d.exec(m, "echo still here")["stdout"] == "still here\n"
    other = d.machine()
    assert d.exec(other, "echo new")["stdout"] == "new\n"
    d.restart()
    assert d.wait(m, x)["status"] == 3
    assert {row["id"] for row in d.machines()} == {m, other}


def test_a_machine_that_vanished_is_ended_with_its_reason(fresh):
    d = fresh()
    m = d.machine()
    x = d.background(m, "sleep 1000")
    d.kill()
    kill_spawner(d)
    for pid in d.host.guests():
        os.kill(pid, signal.SIGKILL)
    d.start()
    ended = d.until(lambda: (s := d.get(f"/v1/machines/{m}"))["state"] == "ended" and s)
    assert "no daemon" in ended["reason"]
    assert d.get(f"/v1/machines/{m}/execs/{x}")["state"] == "unknown"
    assert d.get(f"/v1/machines/{m}/execs/{x}")["status"] == -1


def test_a_box_that_nobody_knows_is_removed(fresh):
    d = fresh()
    m = d.machine()
    d.kill()
    for name in os.listdir(d.home):
        if name.startswith("carrel.db"):
            os.unlink(d.home / name)
    d.start()
    assert d.machines() == []
    assert d.host.left_of_boxes() == []
    with pytest.raises(Refused) as e:
        d.get(f"/v1/machines/{m}")
    assert e.value.code == "not_found"


def test_two_daemons_never_share_a_store(fresh):
    d = fresh()
    import subprocess
    from daemon import DAEMON
    second = subprocess.run([DAEMON, "--conf", str(d.conf)], env=d.env, capture_output=True, timeout=30)
    assert second.returncode == 1 and b"another daemon" in second.stderr, second
    assert d.get("/healthz") == b"ok\n"
