"""What a box finds in /proc in the place of the host's: a boot id and a /proc/stat of its own."""
import re

from lab import counts, read

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def test_every_start_has_its_own_boot_id(lab):
    counts["attacks tried"] += 1
    machines = [lab.keep(), lab.keep()]
    ids = [m.sh(f"cat {BOOT_ID}").strip() for m in machines]
    assert len({*ids, read(BOOT_ID).strip()}) == 3  # the control: the host has one, and it is another
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", i) for i in ids), ids
    assert machines[0].exec("sh", "-c", f"echo x > {BOOT_ID}").returncode != 0
    assert machines[0].exec("sh", "-c", "echo x > /run/carrel/boot_id").returncode != 0
    # A step changes the root below the box; it is the same start.
    assert lab("snap", machines[0].id).returncode == 0
    machines[0].sh("touch /home/user/after")
    assert lab("snap", machines[0].id).returncode == 0
    assert machines[0].sh(f"cat {BOOT_ID}").strip() == ids[0]
    assert machines[0].exec("cat", "/proc/interrupts").returncode != 0


def test_the_stat_of_a_box_counts_processors_and_nothing_else(lab):
    counts["attacks tried"] += 1
    text = lab.keep().sh("cat /proc/stat")
    host = read("/proc/stat")
    processors = re.compile(r"^cpu[0-9]+ ", re.M)
    assert processors.findall(text) == processors.findall(host)
    assert re.search(r"^btime ([0-9]+)$", text, re.M)
    numbers = {line.split()[0]: [int(n) for n in line.split()[1:]] for line in text.splitlines()}
    assert numbers["intr"] == [0] and numbers["ctxt"] == [0] and not any(numbers["softirq"])
    assert int(re.search(r"^intr ([0-9]+)", host, re.M)[1]) > 0  # the control: the host counts them
