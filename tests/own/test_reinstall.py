"""`carrel reinstall`: back to the image with what belongs to the owner, undone by a rewind, whole whatever dies."""
import contextlib
import http.client
import random
import signal
import subprocess
import threading
import time

import pytest

from carrel import PROGRAM, signal_all, spawner_pids
from daemon import Refused

FILL = ("mkdir -p ~/d /opt/x && echo user >~/f && echo deep >~/d/deep && echo opt >/opt/x/f && echo etc >/etc/of-root && "
        "echo root >/root/f && echo tool >/usr/local/bin/tool && chown -R 1000:1000 /home/user && rm -rf /var/tmp && mv /opt/x /home/user/moved")
LOOK = ("cat /home/user/f /home/user/d/deep /root/f /home/user/moved/f; "
        "ls /etc/of-root /usr/local/bin/tool /opt/x 2>/dev/null; ls -d /var/tmp; stat -c %u /home/user/f")
KEPT = "user\ndeep\nroot\nopt\n/var/tmp\n1000\n"


def reinstall(daemon, machine, keep_home=True):
    return daemon.post(f"/v1/machines/{machine}/reinstall", {"keep_home": keep_home})


def steps(daemon, machine):
    return daemon.get(f"/v1/machines/{machine}/steps")["steps"]


def filled(daemon, **fields):
    m = daemon.machine(**fields)
    daemon.exec(m, "HOME=/home/user; cd; " + FILL, user="root")
    return m


@pytest.fixture(scope="module")
def reinstalled(daemon):
    m = filled(daemon, name="re", metadata={"a": "b"}, env={"WORD": "kept"})
    daemon.post(f"/v1/machines/{m}/net/rules", {"target": "http://allowed.test"})
    rules = daemon.get(f"/v1/machines/{m}/net")["rules"]
    before = steps(daemon, m)
    running = daemon.background(m, "sleep 1000")
    view = reinstall(daemon, m)
    yield m, view, before, running, rules
    daemon.delete(f"/v1/machines/{m}")


def test_only_the_files_of_users_stay(daemon, reinstalled):
    m, view, before, running, rules = reinstalled
    assert (view["id"], view["name"], view["state"], view["metadata"]) == (m, "re", "running", {"a": "b"})
    assert daemon.exec(m, LOOK, user="root")["stdout"] == KEPT
    assert daemon.exec(m, "echo $WORD")["stdout"] == "kept\n"
    assert daemon.wait(m, running)["reason"] == "killed"
    assert [r["target"] for r in daemon.get(f"/v1/machines/{m}/net")["rules"]] == [r["target"] for r in rules]
    after = steps(daemon, m)
    assert [s["id"] for s in before] == [s["id"] for s in after][-len(before):]
    assert "before the reinstallation" in [s["what"] for s in after]
    events = subprocess.run([PROGRAM, "events", "--past", m], env=daemon.env, capture_output=True, text=True, timeout=60).stdout
    assert events.count("machine.reinstalled") == 1


def test_new_files_are_saved_above_them_and_a_rewind_undoes_everything(daemon, reinstalled):
    m = reinstalled[0]
    daemon.exec(m, "echo new >~/f; rm -r ~/d")
    daemon.restart(hard=True)
    assert daemon.exec(m, "cat ~/f; ls -d ~/d || true")["stdout"] == "new\n"
    before, = [s for s in steps(daemon, m) if s["what"] == "before the reinstallation"]
    daemon.post(f"/v1/machines/{m}/rewind", {"step": str(before["number"])})
    assert daemon.exec(m, "cat /home/user/f /home/user/d/deep /etc/of-root /usr/local/bin/tool; ls -d /var/tmp", user="root")["stdout"] == \
        "user\ndeep\netc\ntool\n"


def test_without_keep_home_nothing_stays(daemon):
    m = filled(daemon)
    done = subprocess.run([PROGRAM, "reinstall", m], env=daemon.env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{m} running\n"), done
    assert daemon.exec(m, "ls /home/user/f /root/f /etc/of-root 2>&1 | grep -c 'No such'; ls -d /var/tmp", user="root")["stdout"] == "3\n/var/tmp\n"
    daemon.delete(f"/v1/machines/{m}")


def test_a_machine_is_reinstalled_again_and_again_and_when_it_is_new_or_rests(daemon):
    m = daemon.machine()
    for i in range(3):
        reinstall(daemon, m)
        daemon.exec(m, f"echo {i} >>~/f; echo x >/etc/x || true")
    daemon.post(f"/v1/machines/{m}/stop")
    assert reinstall(daemon, m)["state"] == "running"
    assert daemon.exec(m, "cat ~/f")["stdout"] == "0\n1\n2\n"
    daemon.delete(f"/v1/machines/{m}")


def test_a_machine_that_came_back_from_the_store_keeps_its_users_files(daemon):
    m = filled(daemon)
    daemon.post(f"/v1/machines/{m}/hibernate", {"files_only": True})
    daemon.post(f"/v1/machines/{m}/resume")
    daemon.exec(m, "echo more >>~/f; echo x >/etc/of-root", user="root")
    reinstall(daemon, m)
    assert daemon.exec(m, LOOK, user="root")["stdout"] == KEPT.replace("root\n", "root\nmore\n")
    daemon.delete(f"/v1/machines/{m}")


def test_a_fork_has_files_that_are_not_its_own(daemon):
    m = filled(daemon)
    fork = daemon.post(f"/v1/machines/{m}/fork", {})["machines"][0]["id"]
    with pytest.raises(Refused) as e:
        reinstall(daemon, fork)
    assert e.value.code == "unsupported" and "forked from" in str(e.value.error)
    assert daemon.exec(fork, "cat /etc/of-root")["stdout"] == "etc\n"
    assert reinstall(daemon, fork, keep_home=False)["id"] == fork
    assert daemon.exec(fork, "ls /etc/of-root /home/user/f 2>/dev/null; echo $?")["stdout"] == "2\n"
    for machine in (m, fork):
        daemon.delete(f"/v1/machines/{machine}")


@pytest.mark.parametrize("what", ["daemon", "spawner"])
def test_whatever_dies_on_the_way_leaves_all_files_or_a_new_machine(daemon, what):
    """Both states are whole, the step before is there, and the machine can be reinstalled."""
    rng = random.Random(what)
    m = filled(daemon)
    daemon.exec(m, "mkdir many; cd many; for i in $(seq 2000); do echo $i >$i; done")
    for wait in [rng.uniform(0, 0.25) for _ in range(6)]:
        daemon.exec(m, "echo etc >/etc/of-root; echo tool >/usr/local/bin/tool", user="root")
        def ask():
            with contextlib.suppress(OSError, http.client.HTTPException, Refused):
                reinstall(daemon, m)
        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(wait)
        if what == "daemon":
            daemon.kill()
            daemon.start()
        else:
            signal_all(spawner_pids(daemon.run_dir), signal.SIGKILL)
        asking.join()
        found = daemon.until(lambda: look(daemon, m))
        assert found.replace("/var/tmp\n", "").replace("/etc/of-root\n/usr/local/bin/tool\n", "") == KEPT.replace("/var/tmp\n", ""), found
        assert daemon.exec(m, "ls ~/many | wc -l")["stdout"] == "2000\n"
    reinstall(daemon, m)
    assert daemon.exec(m, LOOK, user="root")["stdout"] == KEPT
    daemon.delete(f"/v1/machines/{m}")


def look(daemon, machine):
    with contextlib.suppress(Refused):
        if daemon.get(f"/v1/machines/{machine}")["state"] == "stopped":
            daemon.post(f"/v1/machines/{machine}/resume")
        return daemon.exec(machine, LOOK, user="root")["stdout"]
    return None
