"""Files of /proc in a machine show its limits and its use, not those of the host."""
import json
import os
import pathlib
import re
import time

import pytest

from patience import clock

CPUS = len(os.sched_getaffinity(0))
few = pytest.mark.skipif(CPUS < 2, reason="this host has a single CPU")
MIB = 1 << 20


def meminfo(daemon, box):
    """The rows of /proc/meminfo, in bytes."""
    text = daemon.exec(box, "cat /proc/meminfo")["stdout"]
    return {name: int(kb) * 1024 for name, kb in re.findall(r"^(\S+): +(\d+) kB$", text, re.M)}


def limited(daemon, **limits):
    return daemon.machine(limits={"mem": "512M", "disk": "64M", **limits})


def guest_switches(daemon, box):
    """How often the threads of pid 1 ran, as the host counts it."""
    record = (daemon.run_dir / "boxes" / box / "box").read_text()
    tasks = pathlib.Path(f"/proc/{re.search(r'^pid=(.*)$', record, re.M)[1]}/task").iterdir()
    return sum(int(n) for t in tasks for n in re.findall(r"ctxt_switches:\s+(\d+)", (t / "status").read_text()))


def test_meminfo_shows_the_memory_limit_and_follows_it(daemon):
    box = limited(daemon)
    rows = meminfo(daemon, box)
    assert rows["MemTotal"] == 512 * MIB
    assert 0 < rows["MemFree"] <= rows["MemAvailable"] <= rows["MemTotal"]
    assert rows["SwapTotal"] == rows["SwapFree"] == 0
    assert "Mem: 512 " in " ".join(daemon.exec(box, "free -m")["stdout"].split())
    daemon.patch(f"/v1/machines/{box}", {"limits": {"mem": "768M"}})
    daemon.until(lambda: meminfo(daemon, box)["MemTotal"] == 768 * MIB)


def test_meminfo_is_the_hosts_where_memory_is_not_limited(daemon):
    box = daemon.machine()
    enforced = json.loads(daemon.exec(box, "cat /run/carrel/machine.json")["stdout"])["enforced"]
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    want = min(total, 2 << 30) if "memory" in enforced else total
    assert meminfo(daemon, box)["MemTotal"] == want


def test_meminfo_shows_what_the_machine_uses(daemon):
    box = limited(daemon)
    before = meminfo(daemon, box)
    code = "import time\nb = bytearray(200 << 20)\nopen('/tmp/has', 'w')\nwhile True: time.sleep(1)"
    held = daemon.background(box, ["python3", "-c", code])
    daemon.until(lambda: daemon.exec(box, "test -e /tmp/has")["exec"]["status"] == 0)
    daemon.until(lambda: meminfo(daemon, box)["MemAvailable"] < before["MemAvailable"] - 190 * MIB)
    assert meminfo(daemon, box)["AnonPages"] > 190 * MIB
    daemon.delete(f"/v1/machines/{box}/execs/{held}")
    daemon.until(lambda: meminfo(daemon, box)["MemAvailable"] > before["MemAvailable"] - 60 * MIB)


def processors(daemon, box):
    """What /proc/stat and /proc/cpuinfo list."""
    text = daemon.exec(box, "grep -o '^cpu[0-9][0-9]*' /proc/stat; echo; sed -n 's/^processor[^0-9]*//p' /proc/cpuinfo")["stdout"]
    return [part.split() for part in text.split("\n\n")]


@few
@pytest.mark.parametrize("cpus", [None, 0.5, 1, 2])
def test_stat_and_cpuinfo_list_as_many_processors_as_nproc(daemon, cpus):
    box = daemon.machine(limits={"cpus": cpus} if cpus else {})
    n = int(daemon.exec(box, "nproc")["stdout"])
    assert n == (min(CPUS, -int(-cpus // 1)) if cpus else CPUS)
    want = [[f"cpu{i}" for i in range(n)], [str(i) for i in range(n)]]
    assert processors(daemon, box) == want


@few
def test_processors_follow_a_changed_limit(daemon):
    box = daemon.machine(limits={"cpus": 1})
    assert processors(daemon, box) == [["cpu0"], ["0"]]
    daemon.patch(f"/v1/machines/{box}", {"limits": {"cpus": 2}})
    daemon.until(lambda: processors(daemon, box) == [["cpu0", "cpu1"], ["0", "1"]])


def cpu_ticks(daemon, box):
    words = daemon.exec(box, "head -1 /proc/stat")["stdout"].split()
    return dict(zip(("user", "nice", "system", "idle"), map(int, words[1:5])))


def test_stat_counts_the_cpu_time_of_the_machine_alone(daemon):
    box, other = daemon.machine(), daemon.machine()
    before = cpu_ticks(daemon, box)
    assert sum(before.values()) < 3600 * 100 * CPUS  # of the machine's life, not of the host's
    used = "import time\nwhile time.process_time() < 1.5: pass"
    daemon.exec(other, ["python3", "-c", used])
    idle = cpu_ticks(daemon, box)
    assert idle["user"] - before["user"] < 75
    assert idle["idle"] - before["idle"] > 75  # the control: that time passed here too
    daemon.exec(box, ["python3", "-c", used])
    daemon.until(lambda: cpu_ticks(daemon, box)["user"] - idle["user"] > 100)


def load(daemon, box):
    text = daemon.exec(box, "cat /proc/loadavg")["stdout"]
    match = re.fullmatch(r"(\d+\.\d\d) (\d+\.\d\d) (\d+\.\d\d) (\d+)/(\d+) (\d+) *\n", text)
    assert match, text
    return [float(n) for n in match.groups()]


def test_loadavg_is_that_of_the_machines_processes(daemon):
    box, other = daemon.machine(), daemon.machine()
    for machine in (box, other):
        assert load(daemon, machine)[1:3] == [0, 0]
    daemon.background(other, "while :; do :; done")
    daemon.until(lambda: load(daemon, other)[0] > 0.05)
    mine = load(daemon, box)
    assert mine[1] == 0 and mine[4] < 20 and mine[5] < 1000, mine


def start_of(pid):
    """When a process of the host started, in seconds since the host did."""
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return int(text.rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")


def host_uptime():
    return float(pathlib.Path("/proc/uptime").read_text().split()[0])


@pytest.mark.skipif(not os.path.exists("/proc/self/timens_offsets"), reason="this kernel has no time namespaces")
def test_uptime_counts_from_the_start_of_pid_1(fresh):
    daemon = fresh()
    box = daemon.machine()
    said = daemon.exec(box, "cat /proc/uptime; ps -eo etimes=; cat /proc/uptime; grep btime /proc/stat; date +%s")["stdout"]
    before, *ages, after, btime, now = said.splitlines()
    first, last = (float(line.split()[0]) for line in (before, after))
    assert 0 <= first <= last <= host_uptime() - start_of(daemon.process.pid)
    assert len(ages) > 1 and all(0 <= int(age) <= last for age in ages), said
    assert abs(int(now) - int(btime.split()[1]) - last) < 3, said
    assert host_uptime() > last + 1  # the control


def test_uptime_has_the_idle_time_of_the_machine(daemon):
    box = daemon.machine(limits={"cpus": 1})
    idle_and_cpus = lambda: [float(word) for word in daemon.exec(box, "cut -d' ' -f2 /proc/uptime; nproc; cut -d' ' -f1 /proc/uptime")["stdout"].split()]
    before, cpus, up = idle_and_cpus()
    assert 0 <= before <= cpus * up
    time.sleep(0.5)
    after, cpus, up = idle_and_cpus()
    assert before < after <= cpus * up
    host = float(pathlib.Path("/proc/uptime").read_text().split()[1])
    assert host > cpus * up  # the control


HELD = """
exec 3</proc/uptime
for i in 1 2 3 4 5 6 7 8 9 10; do
    read a rest </proc/uptime
    ps -eo etimes=
    sleep 0.1
    read b rest </proc/uptime
    echo up $a $b
done
"""


@pytest.mark.parametrize("held", [True, False], ids=["held open", "closed"])
def test_uptime_is_never_behind_the_start_of_a_process(daemon, held):
    """ps subtracts start times from it, and prints ages of centuries if it is behind."""
    box = daemon.machine()
    lines = daemon.exec(box, HELD if held else HELD.replace("exec 3<", ": "))["stdout"].splitlines()
    pairs = [tuple(map(float, line.split()[1:])) for line in lines if line.startswith("up ")]
    assert len(pairs) == 10 and pairs == sorted(pairs) and all(a <= b for a, b in pairs), pairs
    assert held or all(a < b for a, b in pairs), "scripts measure time by it"
    assert all(0 <= int(line) <= pairs[-1][1] for line in lines if not line.startswith("up ")), lines


IMPATIENT = """
import errno, os, sys, time
for name in 'stat', 'cpuinfo', 'loadavg', 'uptime':
    time.sleep(1.5)
    refused = 0
    while True:
        try:
            fd = os.open('/proc/' + name, os.O_RDONLY | os.O_NONBLOCK)
            break
        except OSError as e:
            assert e.errno == errno.EAGAIN and refused < 1000, (name, e)
            refused += 1
            time.sleep(0.005)
    text = os.read(fd, 4096)
    os.close(fd)
    print(name, bool(text), refused > 0)
"""


def test_an_open_that_does_not_wait_works_when_it_is_tried_again(daemon):
    """docs/reference/box.md says so. The first open is refused: the lease is held."""
    box = daemon.machine()
    said = daemon.exec(box, ["python3", "-c", IMPATIENT])["stdout"].splitlines()
    assert said == [f"{name} True True" for name in ("stat", "cpuinfo", "loadavg", "uptime")], said


READER = """
import os, sys, time
files = [open('/proc/' + name) for name in ('meminfo', 'stat', 'loadavg')]
def rows():
    texts = []
    for f in files:
        f.seek(0)
        texts.append(f.read())
    return texts
first = rows()
ballast = bytearray(64 << 20)
end = time.monotonic() + float(sys.argv[1])
changed = [False] * 3
while not all(changed[:2]) and time.monotonic() < end:
    changed = [a or b != c for a, b, c in zip(changed, rows(), first)]
    sum(range(10000))
print(changed[:2])
"""


def test_a_file_that_stays_open_is_kept_up_to_date(daemon):
    box = limited(daemon)
    assert daemon.exec(box, ["python3", "-c", READER, "60"])["stdout"] == "[True, True]\n"


def test_numbers_are_right_after_rewind_and_in_a_fork(daemon):
    box = limited(daemon, cpus=1)
    daemon.exec(box, "touch /home/user/a")
    daemon.post(f"/v1/machines/{box}/steps", {"name": "before"})
    daemon.exec(box, "touch /home/user/b")
    daemon.post(f"/v1/machines/{box}/rewind", {"step": "before"})
    fork = daemon.post(f"/v1/machines/{box}/fork", {})["machines"][0]["id"]
    for machine in (box, fork):
        assert meminfo(daemon, machine)["MemTotal"] == 512 * MIB
        assert processors(daemon, machine) == [["cpu0"], ["0"]]


def test_pid_1_sleeps_while_nobody_reads(daemon):
    box = daemon.machine()
    daemon.exec(box, "cat /proc/meminfo /proc/stat /proc/cpuinfo /proc/loadavg /proc/uptime")
    daemon.background(box, "sleep 600")

    def rests():
        before, until = guest_switches(daemon, box), clock() + 3
        while clock() < until:
            time.sleep(0.1)
        return guest_switches(daemon, box) == before

    daemon.until(rests)
    # The control: what is open is written again and again.
    daemon.background(box, "exec 3</proc/stat; sleep 600")
    before = guest_switches(daemon, box)
    daemon.until(lambda: guest_switches(daemon, box) > before + 3)
