#!/usr/bin/python3
"""backup: what a backup of a machine stores and takes after 4 MB of its 8 GB changed, against a copy of the same files by rsync.

The 8 GB are a sparse file with real data in it, as a disk of a machine is, and small files beside it. Each round makes a machine,
backs it up, changes 4 MB, backs it up again, restores the second backup, and compares all files by hash.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_MB = 10
FILES = "/home/user/d"
FILL = """set -e; mkdir {at}; cd {at}; truncate -s {size}M disk
i=0; while [ $i -lt {parts} ]; do head -c {part}M /dev/urandom | dd of=disk bs=1M seek=$((i * {step})) conv=notrunc iflag=fullblock status=none; i=$((i + 1)); done
mkdir small; head -c {small}M /dev/urandom | split -a 4 -b 64K - small/f"""
CHANGE = """set -e; cd {at}; for at in 1 {step}; do head -c 1M /dev/urandom | dd of=disk bs=1M seek=$at conv=notrunc iflag=fullblock status=none; done
ls small | head -n 32 | while read f; do head -c 64K /dev/urandom >small/$f; done"""
HASH = "cd {at}; find . -type f | sort | xargs sha256sum | sha256sum"


def megabytes(n):
    return n / 1e6


def disk_of(*paths):
    return int(subprocess.run(["du", "-scB1", *paths], check=True, capture_output=True, text=True).stdout.split()[-2])


class Bench:
    def __init__(self, top, size, real):
        from daemon import Daemon
        self.top, self.daemon = top, Daemon()
        parts = 8
        self.fields = {"size": size, "parts": parts, "part": real // 2 // parts, "step": size // parts, "small": real // 2}
        self.times, self.stored = {}, {}

    def measure(self, name, act):
        began = time.monotonic()
        result = act()
        self.times.setdefault(name, []).append(time.monotonic() - began)
        return result

    def post(self, target, body=None):
        connection = self.daemon.connect()
        connection.timeout = 1800
        try:
            return self.daemon.request("POST", target, body or {}, connection=connection)
        finally:
            connection.close()

    def inside(self, machine, script):
        done = self.post(f"/v1/machines/{machine}/execs", {"command": script.format(at=FILES, **self.fields)})
        assert done["exec"]["status"] == 0, done
        return done["stdout"]

    def ours(self):
        d = self.daemon
        m = d.machine(limits={"disk": 4 << 30, "mem": 1 << 30})
        self.inside(m, FILL)
        self.measure("first backup", lambda: self.post(f"/v1/machines/{m}/backups"))
        self.inside(m, CHANGE)
        second = self.measure("backup after the change", lambda: self.post(f"/v1/machines/{m}/backups"))
        again = self.measure("restore", lambda: self.post(f"/v1/backups/{second['id']}/restore", {}))
        assert self.inside(m, HASH) == self.inside(again["id"], HASH), "the restored files are others"
        self.stored.setdefault("backup after the change", []).append(second["written_bytes"])
        for x in m, again["id"]:
            d.delete(f"/v1/machines/{x}")
        d.post(f"/v1/machines/{m}/backups/prune", {"keep": 1})
        d.delete(f"/v1/backups/{second['id']}")

    def rsync(self):
        tree, first, second = (self.top / n for n in ("tree", "first", "second"))

        def shell(script):
            subprocess.run(["sh", "-c", script.format(at=tree, **self.fields)], check=True)

        def copy(to, *more):
            subprocess.run(["rsync", "-aS", *more, f"{tree}/", f"{to}/"], check=True)
            os.sync()
        shell(FILL)
        self.measure("first rsync", lambda: copy(first))
        shell(CHANGE)
        self.measure("rsync after the change", lambda: copy(second, f"--link-dest={first}"))
        self.stored.setdefault("rsync after the change", []).append(disk_of(first, second) - disk_of(first))
        for path in tree, first, second:
            shutil.rmtree(path)


def lines_of(bench, o):
    stored = {name: statistics.median(n) for name, n in bench.stored.items()}
    out = [f"{o.size} MB, of which {o.real} MB are data and the rest holes; rounds: {o.rounds}", "",
           "| measure | min, s | p50, s | stored, MB |", "|---|---|---|---|"]
    out += [f"| {name} | {min(t):.2f} | {statistics.median(t):.2f} | {f'{megabytes(stored[name]):.1f}' if name in stored else ''} |" for name, t in bench.times.items()]
    got = megabytes(max(bench.stored["backup after the change"]))
    out += ["", "| bar, largest | limit | measured | verdict |", "|---|---|---|---|",
            f"| stored after 4 MB changed, MB | {LIMIT_MB} | {got:.1f} | {'pass' if got <= LIMIT_MB else 'MISS'} |"]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=8192, help="megabytes")
    parser.add_argument("--real", type=int, default=512, help="megabytes of them that are no holes")
    parser.add_argument("--table")
    o = parser.parse_args()
    os.environ.setdefault("CARREL_BUILD", str(ROOT / "build"))
    sys.path[:0] = [str(ROOT / "tests/daemon"), str(ROOT / "tests")]
    top = pathlib.Path(tempfile.mkdtemp(prefix="carrel-backup-", dir="/var/tmp"))
    bench = Bench(top, o.size, o.real)
    try:
        for _ in range(o.rounds):
            bench.ours()
            if shutil.which("rsync"):
                bench.rsync()
    finally:
        bench.daemon.stop()
        shutil.rmtree(top)
    text = "\n".join(lines_of(bench, o)) + "\n"
    print(text)
    if o.table:
        pathlib.Path(o.table).write_text(text)


if __name__ == "__main__":
    main()
