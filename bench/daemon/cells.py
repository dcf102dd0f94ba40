#!/usr/bin/python3
"""cells: what idle cell machines cost, and what it costs to wake one.

Makes cell machines in steps, lets each of them write one file of 4 KiB, and waits until all sleep. A row has the
processes of machines, the memory of the daemon and the spawner, and the disk space of the store, then the median time of
a command in a machine that sleeps and in one that is awake.
"""
import argparse
import atexit
import concurrent.futures
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/daemon")]
WAKES = 15


def processes(d):
    """The guests of boxes that belong to machines."""
    return len(list(d.run_dir.glob("boxes/m-*")))


def process_kb(pid):
    """The memory of a process, without what it shares; 0 if it has ended: the spawner makes and ends some all the time."""
    try:
        found = re.search(r"Pss:\s+(\d+)", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(found[1]) if found else 0


def resident_kb(pids):
    return sum(map(process_kb, pids))


def disk_kb(d):
    """The disk space of the store, without images, and without the database's log that is copied from time to time.
    du says 1 if a file goes while it looks."""
    return int(subprocess.run(["du", "-sk", "--exclude=images", "--exclude=*.db-wal", d.home], capture_output=True).stdout.split()[0])


def measure(d):
    from carrel import spawner_pids
    return processes(d), resident_kb([d.process.pid]), resident_kb(spawner_pids(d.run_dir)), disk_kb(d)


def asleep(d):
    """Waits until no machine has a process, and returns the seconds."""
    start = time.monotonic()
    while processes(d):
        time.sleep(0.05)
    return time.monotonic() - start


def command(d, machine):
    start = time.perf_counter()
    done = d.exec(machine, ["hello"])["exec"]
    assert done["status"] == 3, done
    return (time.perf_counter() - start) * 1e3


def make(d):
    """Waits while too many machines are awake: each has a range of uids."""
    from daemon import Refused
    while True:
        try:
            machine = d.machine(kind="cell", image="programs")
            break
        except Refused as e:
            assert e.code == "limit", e
            time.sleep(0.2)
    d.put(f"/v1/machines/{machine}/files", os.urandom(4096), path="/data/own")
    return machine


def stop(d):
    """Thousands of machines take longer to delete than the tests wait."""
    while left := d.machines(all=1):
        for m in left:
            d.delete(f"/v1/machines/{m['id']}")
    d.stop()


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--machines", default=1000, type=int, help="machines to make (default 1000)")
    ask.add_argument("--steps", default=4, type=int, help="rows of the table (default 4)")
    ask.add_argument("--callers", default=1, type=int, help="requests at once that make machines (default 1)")
    ask.add_argument("--quick", action="store_true", help="make 8 machines")
    ask.add_argument("--table", help="also write the table to this file")
    opt = ask.parse_args()
    import cells
    from daemon import Daemon
    count, rows = (8, 2) if opt.quick else (opt.machines, opt.steps)
    d = Daemon(conf="[daemon]\nmax_machines = 100000\n")
    atexit.register(stop, d)  # also after a failure
    d.request("POST", "/v1/images", cells.image(), name="programs")
    lines = ["|machines|processes|daemon, MiB|spawner, MiB|store, KiB per machine|made, ms each|asleep after the last, s|",
             "|---|---|---|---|---|---|---|"]
    machines, begun = [], measure(d)
    for row in range(1, rows + 1):
        start = time.monotonic()
        new = count * row // rows - len(machines)
        with concurrent.futures.ThreadPoolExecutor(opt.callers) as pool:
            machines += pool.map(lambda _: make(d), range(new))
        made = (time.monotonic() - start) * 1e3 / new
        waited = asleep(d)
        number, daemon, spawner, disk = measure(d)
        print(f"load {os.getloadavg()[0]:.0f}", file=sys.stderr)
        lines.append(f"|{len(machines)}|{number}|{daemon / 1024:.1f}|{spawner / 1024:.1f}|"
                     f"{(disk - begun[3]) / len(machines):.1f}|{made:.1f}|{waited:.1f}|")
        print(lines[-1], file=sys.stderr, flush=True)
    wake, warm = [], []
    for m in machines[::max(1, len(machines) // WAKES)]:
        wake.append(command(d, m))
        warm.append(command(d, m))
    lines += ["", f"first command in a machine that sleeps: {statistics.median(wake):.1f} ms; the next: {statistics.median(warm):.1f} ms"]
    print("\n".join(lines))
    if opt.table:
        pathlib.Path(opt.table).write_text("\n".join(lines) + "\n")


main()
