#!/usr/bin/python3
"""vm: what a move of a box to a vm takes, against making a disk image of its files and booting a new vm; and a command in a vm.

In each round every measure runs once, in a new order. The box has 500 MB of files, which a move does not copy.
"""
import argparse
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEGABYTES = 500
FILE_KB = 64
BARS = (("move to first exec", "disk image and cold boot", 1.3),)


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


class Bench:
    def __init__(self, top, megabytes):
        from daemon import Daemon
        import vm_kernel
        self.top, self.tree, self.megabytes, self.count = top, top / "tree", megabytes, 0
        try:
            kernel = vm_kernel.find(os.environ["CARREL_BUILD"])
        except OSError as e:
            skip(str(e))
        self.daemon = Daemon(conf=f"[vm]\nkernel = {kernel}\n" if kernel else "")
        self.tree.mkdir()
        for n in range(megabytes * 1024 // FILE_KB):
            (self.tree / f"f{n}").write_bytes(os.urandom(FILE_KB << 10))

    def name(self):
        self.count += 1
        return f"m{self.count}"

    def box(self):
        """A box with the files of the tree."""
        m = self.daemon.machine(name=self.name(), limits={"disk": 2 << 30})
        with subprocess.Popen(["tar", "c", "-C", self.tree, "."], stdout=subprocess.PIPE) as tar:
            self.daemon.request("PUT", f"/v1/machines/{m}/files/tar", tar.stdout.read(), path="/home/user")
        return m

    def timed(self, act):
        began = time.monotonic()
        act()
        return time.monotonic() - began

    def first_exec(self, m):
        assert self.daemon.exec(m, ["true"])["exec"]["status"] == 0

    def move(self):
        m = self.box()

        def act():
            self.daemon.post(f"/v1/machines/{m}/move", {"kind": "vm"})
            self.first_exec(m)

        took = self.timed(act)
        self.daemon.delete(f"/v1/machines/{m}")
        return took

    def image_and_boot(self):
        image, made = self.top / "image", []

        def act():
            subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", self.tree, image, f"{self.megabytes * 2}M"], check=True, capture_output=True)
            made.append(self.daemon.machine(kind="vm", name=self.name()))
            self.first_exec(made[0])

        took = self.timed(act)
        image.unlink()
        self.daemon.delete(f"/v1/machines/{made[0]}")
        return took

    def cold_boot(self):
        made = []

        def act():
            made.append(self.daemon.machine(kind="vm", name=self.name()))
            self.first_exec(made[0])

        took = self.timed(act)
        self.daemon.delete(f"/v1/machines/{made[0]}")
        return took


def lines_of(times, megabytes):
    medians = {name: statistics.median(t) for name, t in times.items()}
    out = [f"{megabytes} MB, rounds: {len(next(iter(times.values())))}", "", "| measure, s | min | p50 |", "|---|---|---|"]
    out += [f"| {name} | {min(t):.2f} | {medians[name]:.2f} |" for name, t in times.items()]
    out += ["", "| bar, p50 | limit | measured | verdict |", "|---|---|---|---|"]
    for ours, theirs, bar in BARS:
        ratio = medians[ours] / medians[theirs]
        verdict = "pass" if ratio <= bar else "MISS"
        out.append(f"| {ours} / {theirs} | {bar:.2f} x | {ratio:.2f} x | {verdict} |")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--table")
    o = parser.parse_args()
    os.environ.setdefault("CARREL_BUILD", str(ROOT / "build"))
    sys.path[:0] = [str(ROOT / "tests/daemon"), str(ROOT / "tests")]
    if os.geteuid() != 0 or not shutil.which(f"qemu-system-{os.uname().machine}"):
        skip("vms need a daemon that runs as root, and QEMU")
    megabytes = MEGABYTES
    top = pathlib.Path(tempfile.mkdtemp(prefix="carrel-vm-", dir="/var/tmp"))
    bench = None
    try:
        bench = Bench(top, megabytes)
        measures = {"cold boot to first exec": bench.cold_boot, "disk image and cold boot": bench.image_and_boot, "move to first exec": bench.move}
        times = {name: [] for name in measures}
        for n in range(o.rounds + 1):  # the first one warms caches
            for name in random.sample(list(measures), len(measures)):
                took = measures[name]()
                if n:
                    times[name].append(took)
    finally:
        if bench:
            bench.daemon.stop()
        shutil.rmtree(top, ignore_errors=True)
    lines = lines_of(times, megabytes)
    print("\n".join(lines))
    if o.table:
        pathlib.Path(o.table).write_text("\n".join(lines) + "\n")


main()
