"""A machine with a cpu limit shows as many CPUs as it may use."""
import os
import time

import pytest

CPUS = len(os.sched_getaffinity(0))
few = pytest.mark.skipif(CPUS < 2, reason="this host has a single CPU")


def nproc(daemon, box):
    return int(daemon.exec(box, "nproc")["stdout"])


@few
@pytest.mark.parametrize("cpus, want", [(None, CPUS), (0.5, 1), (1, 1), (1.01, 2), (1024, CPUS)])
def test_nproc_follows_the_cpu_limit(daemon, cpus, want):
    box = daemon.machine(limits={"cpus": cpus} if cpus else {})
    assert nproc(daemon, box) == min(want, CPUS)


@few
def test_a_changed_limit_reaches_running_processes_and_threads(daemon):
    box = daemon.machine(limits={"cpus": 1})
    code = ("import os, threading, time\n"
            "def watch(name):\n"
            "    while not os.path.exists('/tmp/end'):\n"
            "        open('/tmp/new-' + name, 'w').write(str(len(os.sched_getaffinity(0))))\n"
            "        os.rename('/tmp/new-' + name, '/tmp/' + name)\n"
            "        time.sleep(0.02)\n"
            "threading.Thread(target=watch, args=('thread',)).start()\n"
            "watch('main')\n")
    daemon.exec(box, ["python3", "-c", code], background=True)

    def wait_for(want):
        """Until both have said it; the suite's time limit ends a wait in vain."""
        while daemon.exec(box, "cat /tmp/main /tmp/thread 2>/dev/null")["stdout"] != want:
            time.sleep(0.02)

    wait_for("11")
    daemon.patch(f"/v1/machines/{box}", {"limits": {"cpus": 2}})
    wait_for("22")
    assert nproc(daemon, box) == 2
    daemon.patch(f"/v1/machines/{box}", {"limits": {"cpus": 0.5}})
    wait_for("11")
    assert nproc(daemon, box) == 1
    daemon.exec(box, "touch /tmp/end")
