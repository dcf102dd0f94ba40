"""Network namespaces and cgroups of ended boxes are used again only if nothing of the earlier box is left in them."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
import time

import pytest
from lab import ROOTLESS, Lab, counts

pytestmark = pytest.mark.skipif(ROOTLESS, reason="without root no network namespace is used again")

# One run after the other: after so many, every namespace of an earlier box has been looked at.
ROUND = 24
RESTING = 16  # REUSE_MAX of the spawner


# In a new network namespace: prints whether a multicast group that was joined and left shows in a counter, perhaps late.
COUNTS = """
import pathlib, socket, struct, subprocess, time
def counters(): return [pathlib.Path("/proc/net", name).read_text() for name in ("snmp", "netstat", "snmp6")]
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
before = counters()
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("4s4si", bytes([224, 0, 0, 251]), bytes(4), 1))
s.close()
for _ in range(200):
    if counters() != before: break
    time.sleep(0.01)
print(counters() != before)
"""


def kernel_counts_packets():
    done = subprocess.run(["unshare", "--net", sys.executable, "-c", COUNTS], stdout=subprocess.PIPE, check=True)
    return done.stdout == b"True\n"


@pytest.fixture(scope="module")
def reusing():
    """A lab in which namespaces are being used again. Only a kernel that does not count packets excuses one that uses none."""
    if not kernel_counts_packets():
        pytest.skip("this kernel does not count all packets")
    lab = Lab()
    try:
        turn_over(lab)
        assert networks(lab)["reused"] > 0, "the spawner uses no network namespace again"
        yield lab
    finally:
        lab.stop()


def networks(lab):
    return lab.status()["networks"]


def turn_over(lab, look=None):
    """Runs boxes until each namespace of an earlier one was used again or destroyed; returns what `look` prints in them."""
    seen = []
    for _ in range(ROUND):
        done = lab.run("--", "sh", "-c", look or ":")
        assert done.returncode == 0, done
        seen.append(done.stdout.decode())
        time.sleep(0.02)
    return seen


def attack(lab, script, *options):
    done = lab.run(*options, "--", "python3", "-c", textwrap.dedent(script))
    assert done.returncode == 0, done
    counts["attacks tried"] += 1


# A flow label that stays for half a minute after its socket is closed.
LABEL = """
    import socket, struct
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    to = socket.inet_pton(socket.AF_INET6, "::1")
    s.setsockopt(41, 32, to + struct.pack("!I", 0x12345) + struct.pack("=BBHHHI", 0, 255, 1, 30, 30, 0))
"""

LEAVES = {
    "a packet to itself": """
        import socket
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"x", ("127.0.0.1", 9))
    """,
    "a packet that is refused": """
        import socket
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try: s.sendto(b"x", ("203.0.113.1", 9))
        except OSError: pass
    """,
    "a packet by IPv6": """
        import socket
        s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.sendto(b"x", ("::1", 9))
    """,
    "a connection in time-wait": """
        import socket
        s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); c = socket.create_connection(s.getsockname())
        a = s.accept()[0]; c.close(); a.close()
    """,
    "a connection that was never accepted": """
        import socket
        s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); c = socket.create_connection(s.getsockname())
        c.sendall(b"x")
    """,
    "a connection outside": """
        import socket
        s = socket.socket()
        try: s.connect(("203.0.113.1", 443))
        except OSError: pass
    """,
    "a multicast group left at once": """
        import socket, struct
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("4s4si", bytes([224, 0, 0, 9]), bytes(4), 1))
    """,
    "a multicast group of IPv6": """
        import socket, struct
        s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        s.setsockopt(41, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, "ff02::9") + struct.pack("i", 1))
    """,
    "a key of TCP Fast Open": """
        import socket
        socket.socket().setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5)
    """,
    "a flow label": LABEL,
}


def test_a_network_that_was_not_touched_is_used_again(reusing):
    before = networks(reusing)
    turn_over(reusing)
    after = networks(reusing)
    assert after["reused"] > before["reused"] + ROUND // 2, after
    assert after["used_up"] == before["used_up"], after


def test_sockets_without_a_trace_do_not_keep_a_network_from_use(reusing):
    """The control of the attacks: not the socket, but what it leaves behind is noticed."""
    before = networks(reusing)
    attack(reusing, "import socket; socket.socket(); socket.socket(socket.AF_UNIX).bind('\\0mine')")
    turn_over(reusing)
    assert networks(reusing)["used_up"] == before["used_up"]


@pytest.mark.parametrize("what", LEAVES)
def test_a_network_is_destroyed_after(reusing, what):
    before = networks(reusing)
    attack(reusing, LEAVES[what])
    turn_over(reusing)
    after = networks(reusing)
    assert after["used_up"] == before["used_up"] + 1, (before, after)
    assert after["reused"] > before["reused"], after


STATE = "cat /proc/net/snmp /proc/net/snmp6 /proc/net/netstat /proc/net/ip6_flowlabel /proc/net/fib_trie /proc/net/dev"


def test_a_later_box_sees_nothing_of_an_earlier_one(reusing):
    for script in LEAVES.values():
        attack(reusing, script)
    seen = set(turn_over(reusing, STATE))
    assert len(seen) == 1, "boxes differ"
    assert "12345" not in seen.pop()


def test_without_the_test_a_later_box_sees_an_earlier_one(reusing, make_lab):
    """The control: a flow label of one box is there in another one."""
    lab = make_lab(weak="residue")
    turn_over(lab)
    attack(lab, LABEL)
    assert any("12345" in text for text in turn_over(lab, "cat /proc/net/ip6_flowlabel"))


SYSCTL = """
    import os
    for dir, _, names in os.walk("/proc/sys/net"):
        for name in names:
            try: fd = os.open(os.path.join(dir, name), os.O_WRONLY)
            except OSError: continue
            print("opened", dir, name)
    import socket, struct
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    def ask(kind, body):
        s.send(struct.pack("=IHHII", 16 + len(body), kind, 0x605, 1, 0) + body)
        return struct.unpack("=i", s.recv(4096)[16:20])[0]
    print(ask(20, struct.pack("=BBBBI", 2, 32, 0, 0, 1) + struct.pack("=HH4s", 8, 2, bytes([10, 0, 0, 1]))))
    print(ask(24, struct.pack("=BBBBBBBBI", 2, 32, 0, 0, 254, 4, 253, 1, 0) + struct.pack("=HH4sHHI", 8, 1, bytes([10, 0, 0, 2]), 8, 4, 1)))
    print(ask(16, struct.pack("=BxHiII", 0, 0, 1, 0, 1)))
"""


def test_a_box_cannot_change_settings_addresses_routes_or_devices(reusing):
    machine = reusing.keep()
    done = machine.exec("python3", "-c", textwrap.dedent(SYSCTL), user="root")
    counts["attacks tried"] += 4
    assert done.stdout.decode().split() == ["-1", "-1", "-1"], done
    machine.rm()


HOLD = """
import os, socket, sys
fd = os.open(f"/proc/{sys.argv[1]}/ns/net", os.O_RDONLY)
ctypes = __import__("ctypes"); assert ctypes.CDLL(None).setns(fd, 0x40000000) == 0
s = socket.socket(socket.AF_UNIX)
print("ready", flush=True); sys.stdin.read()
"""


def test_a_network_is_destroyed_if_a_socket_outlives_the_box(reusing):
    machine = reusing.keep()
    record = (reusing.run_dir / "boxes" / machine.id / "box").read_text()
    pid = re.search(r"^pid=(\d+)$", record, re.M).group(1)
    holder = subprocess.Popen([sys.executable, "-c", HOLD, pid], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"ready\n"
    before = networks(reusing)
    machine.rm()
    turn_over(reusing)
    holder.communicate()
    counts["attacks tried"] += 1
    assert networks(reusing)["used_up"] == before["used_up"] + 1


@pytest.mark.parametrize("kind", ["networks", "cgroups"])
def test_nothing_is_used_again_after_a_granted_directory(reusing, host_dir, kind):
    """A box with a directory may have passed descriptors of /proc/net or of cgroups through a socket in it."""
    if kind == "cgroups":
        cgroups(reusing)

    def rises_by(count, *options):
        before = reusing.status()[kind]["reused"]
        for _ in range(count):
            done = reusing.run(*options, "--", "true")
            assert done.returncode == 0, done
            time.sleep(0.02)
        return reusing.status()[kind]["reused"] - before
    ran = rose = 0
    while rose <= RESTING:  # the control; what rests can be used again only after a while
        assert ran < 40 * RESTING, (ran, rose)
        rose += rises_by(2 * RESTING)
        ran += 2 * RESTING
    assert rises_by(ran, "--dir", f"{host_dir}:/lent") <= RESTING


# ---- cgroups ----

def cpu_groups_count_time():
    """True if the cpu groups of v1 are also those of cpuacct, which cannot be as new again."""
    controllers = [line.split(":")[1].split(",") for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()]
    return any("cpu" in names and "cpuacct" in names for names in controllers)


def cgroups(lab):
    status = lab.status()
    if status["cgroup"] != "v1" or cpu_groups_count_time():
        pytest.skip("cgroups of this host cannot be used again")
    for _ in range(20):  # the kernel gives back late what a group was charged
        if status["cgroups"]["reused"]:
            return status["cgroups"]
        turn_over(lab)
        status = lab.status()
    pytest.fail("the spawner uses no cgroup again")


def cold_file():
    """A large file of the host that is not in memory: who reads it first is charged for it."""
    best = max((f for f in pathlib.Path("/usr/lib").rglob("*.a") if f.is_file()), key=lambda f: f.stat().st_size, default=None)
    if not best or best.stat().st_size < 1 << 20:
        pytest.skip("the host has no large file that nobody uses")
    fd = os.open(best, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    return best


FORKS = """
    import os, signal, time
    try:
        while True:
            if os.fork() == 0: time.sleep(100)
    except OSError: pass
"""

LIMITS = {"memory": ("--mem", "3G"), "processes": ("--pids", "900"), "cpu": ("--cpus", "0.9")}


def test_cgroups_without_residue_are_used_again(reusing):
    before = cgroups(reusing)
    for _ in range(20):  # the kernel gives back what a group was charged when it likes, and only then the group is used again
        turn_over(reusing, "head -c 50000000 /dev/zero | tail -c 1 >/dev/null; dd if=/dev/zero of=/tmp/f bs=1M count=50 2>/dev/null")
        after = cgroups(reusing)
        if after["reused"] > before["reused"] + ROUND // 2:
            return
    pytest.fail(f"hardly any group was used again: {before} {after}")


@pytest.mark.parametrize("what", LIMITS)
def test_cgroups_are_removed_after_another_limit(reusing, what):
    before = cgroups(reusing)
    attack(reusing, "pass", *LIMITS[what])
    turn_over(reusing)
    assert cgroups(reusing)["used_up"] > before["used_up"]


def test_cgroups_are_removed_after_forks_were_refused(reusing):
    before = cgroups(reusing)
    attack(reusing, FORKS)
    turn_over(reusing)
    assert cgroups(reusing)["used_up"] > before["used_up"]


def test_cgroups_are_removed_if_memory_stays_charged(reusing):
    """Pages of a host's file stay in memory after the box that read it first."""
    before = cgroups(reusing)
    attack(reusing, f"open({str(cold_file())!r}, 'rb').read()")
    turn_over(reusing)
    assert cgroups(reusing)["used_up"] > before["used_up"]


def peaks(lab, count):
    """The highest use of memory that new machines show, and what they count of limits."""
    seen = []
    for _ in range(count):
        machine = lab.keep()
        seen.append(json.loads(lab("stats", machine.id, "--json").stdout))
        machine.rm()
        time.sleep(0.02)
    return max(s["mem_peak_bytes"] for s in seen), sum(s["pids_refused"] + s["oom_kills"] for s in seen)


GREEDY = "x = bytearray(300_000_000)"


def test_a_later_box_does_not_show_the_memory_of_an_earlier_one(reusing):
    before = cgroups(reusing)
    for script in (GREEDY, FORKS):
        attack(reusing, script)
    peak, hits = peaks(reusing, ROUND)
    assert peak < 100_000_000 and hits == 0, (peak, hits)
    assert cgroups(reusing)["reused"] > before["reused"]


def test_without_the_test_a_later_box_shows_the_memory_of_an_earlier_one(reusing, make_lab):
    """The control: the weak spawner neither resets nor compares."""
    cgroups(reusing)
    lab = make_lab(weak="cgroup residue")
    turn_over(lab)
    for _ in range(4):
        attack(lab, GREEDY)
    assert peaks(lab, ROUND)[0] > 250_000_000


def group_of(lab, machine):
    return re.search(r"^cgroup=(\d+)$", (lab.run_dir / "boxes" / machine.id / "box").read_text(), re.M).group(1)


def test_cgroups_are_not_used_again_while_a_record_names_them(reusing):
    """The next spawner would end the box that has them, as the dead one of the record."""
    cgroups(reusing)
    dead = reusing.keep()
    number, place = group_of(reusing, dead), reusing.run_dir / "boxes" / dead.id
    if subprocess.run(["chattr", "+i", place / "box"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("the filesystem cannot keep a file from being removed")
    try:
        dead.rm()
        for _ in range(2 * ROUND):
            machine = reusing.keep()
            assert group_of(reusing, machine) != number
            machine.rm()
    finally:
        subprocess.run(["chattr", "-i", place / "box"], check=True)
        shutil.rmtree(place)
