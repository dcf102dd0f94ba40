#!/usr/bin/python3
"""storm.py [--kills N] [--seed S]: kill -9 of daemon and spawner at random instants, under load.

Eight clients create machines, run commands in them (whose exit code only their key tells), write files, pause and
destroy. Every few kills they are stopped, and what they were told is compared with the API, the kernel, the store and
the journal. Nothing acknowledged may be lost, nothing that nobody knows may be there. The histogram shows what was under
way when the kills fell. CARREL_BUILD names the build.
"""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "daemon")]

from carrel import PROGRAM  # noqa: E402
from daemon import Daemon  # noqa: E402
from host_state import CGROUP, pids, read  # noqa: E402
from patience import PATIENCE, clock  # noqa: E402
from storm_client import Client, exit_code  # noqa: E402
from watchdog import Stuck, Watchdog  # noqa: E402

CLIENTS = 8
EVERY = 25           # kills from one comparison to the next
STUCK_S = 400        # clients that are parked may take half of that
LONGEST_S = 0.4      # from a daemon that is ready to the next kill
VERBS = ["create", "exec", "start", "follow", "write", "read", "pause", "resume", "destroy"]
POOL_MAX = 24        # berths and ready boxes that a spawner may keep: they have cgroups, and are nobody's
STATES = {"ended": 6, "exited": 3}  # as the store numbers them


def parent(pid):
    return int((re.search(r"^PPid:\s+(\d+)", read(f"/proc/{pid}/status"), re.M) or [0, 0])[1])


def record(run_dir, name):
    """What the spawner has written down of a box."""
    return dict(re.findall(r"^(\w+)=(.*)$", read(pathlib.Path(run_dir, "boxes", name, "box")), re.M))


class Storm:
    def __init__(self, seed, kills, say=print):
        self.seed, self.kills, self.say = seed, kills, say
        self.rng = random.Random(f"{seed}/killer")
        self.daemon = Daemon()
        self.clients = [Client(i, seed, self.daemon.socket, f"{self.daemon.run_dir}/boxes") for i in range(CLIENTS)]
        self.histogram = {}  # (target, verb) -> kills that fell inside
        self.fell = {}       # target -> kills
        self.starts = 0      # kills of a daemon that was not ready yet
        self.faults = []
        self.dog = Watchdog(self.daemon, STUCK_S, say)
        self.settle_s = 20   # what was never acknowledged may take so long to end

    # ---- killing ----

    def spawner(self):
        """The spawner itself: its children bear the same name."""
        found = self.daemon.host.spawners()
        return [p for p in found if parent(p) not in found]

    def kill(self, target):
        doomed = self.spawner() if target != "daemon" else []
        inside = [c.inside for c in self.clients if c.inside]
        for pid in doomed:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if target != "spawner":
            self.daemon.kill()
        self.fell[target] = self.fell.get(target, 0) + 1
        for verb in inside:
            self.histogram[target, verb] = self.histogram.get((target, verb), 0) + 1

    def begin(self):
        """Starts a daemon; some are killed while they still look for what they shall adopt."""
        while self.rng.random() < 0.2:
            with self.daemon.launch():
                time.sleep(self.rng.random() * 0.15)
                self.daemon.kill()
            self.starts += 1
        self.daemon.start()

    def one_kill(self):
        time.sleep(self.rng.random() * LONGEST_S * PATIENCE)
        target = self.rng.choice(["daemon", "daemon", "spawner", "both"])
        self.kill(target)
        if target != "spawner":
            self.begin()

    # ---- comparing ----

    def fault(self, text):
        self.faults.append(text)
        self.say(f"FAULT: {text}")

    def park(self):
        for c in self.clients:
            c.go.clear()
        end = clock() + 200
        for c in self.clients:
            while not (c.parked.is_set() and not c.inside) and c.is_alive():
                if clock() > end:
                    self.fault(f"{c.name} is stuck in {c.inside}")
                    return
                time.sleep(0.01)

    def living(self):
        return {m.id for c in self.clients for m in c.living()}

    def check_api(self):
        wanted, end = self.living(), clock() + self.settle_s
        while (shown := {m["id"] for m in self.daemon.machines(limit=1000, all=1)}) != wanted and clock() < end:
            time.sleep(0.05)
        if shown != wanted:
            self.fault(f"machines lost: {sorted(wanted - shown)}, nobody's: {sorted(shown - wanted)}")
        for c in self.clients:
            for m in c.living():
                try:
                    c.compare(m)
                except Exception as e:
                    self.fault(f"{c.name}: {e}")

    def strangers(self):
        """What the kernel has and no acknowledged machine, pool or spawner accounts for."""
        host, wanted = self.daemon.host, self.living()
        boxes = pathlib.Path(self.daemon.run_dir, "boxes")
        found = {d.name for d in boxes.iterdir()}
        made = {d for d in found if not d.startswith("r-")}
        left = [f"directory {d}" for d in made - wanted] + [f"no directory of {d}" for d in wanted - made]
        records = [record(self.daemon.run_dir, d) for d in found]
        spaces = {self.space(r["pid"]) for r in records if "pid" in r}
        spawners = set(host.spawners())
        for p in pids():
            if p not in spawners and p != self.daemon.process.pid and host.is_ours(p) and self.space(p) not in spaces:
                left.append(f"process {p}: {read(f'/proc/{p}/cmdline')!r}")
        left += [f"mount {m}" for m in host._left() if m.startswith(("mount ", "loop device"))]
        groups = {d.name for top in host.cgroups() for d in pathlib.Path(top.split(" ", 1)[1]).iterdir() if d.name.isdigit()}
        spare = groups - {r.get("cgroup") for r in records}
        if len(spare) > POOL_MAX:
            left.append(f"{len(spare)} cgroups of no box")
        return left

    @staticmethod
    def space(pid):
        try:
            return os.readlink(f"/proc/{pid}/ns/pid_for_children")
        except OSError:
            return None

    def check_kernel(self):
        end = clock() + self.settle_s
        while (left := self.strangers()) and clock() < end:
            time.sleep(0.1)
        for line in left:
            self.fault(f"kernel: {line}")

    def check_store(self):
        db = sqlite3.connect(f"file:{self.daemon.home}/carrel.db?mode=ro", uri=True)
        machines = dict(db.execute("SELECT id, state FROM machines"))
        execs = {row[0]: row[1:] for row in db.execute("SELECT id, state, exit_code, signal FROM execs")}
        whole = db.execute("PRAGMA integrity_check").fetchone()[0]
        db.close()
        if whole != "ok":
            self.fault(f"store: {whole}")
        for m in (m for c in self.clients for m in c.machines.values()):
            if (machines.get(m.id) == STATES["ended"]) != m.is_gone:
                self.fault(f"store: {m.id} has state {machines.get(m.id)}, acknowledged as {'gone' if m.is_gone else 'living'}")
            for key, x in m.execs.items():
                if execs.get(x) != (STATES["exited"], exit_code(key), 0):
                    self.fault(f"store: {x} must have exited with {exit_code(key)} and is {execs.get(x)}")

    def check_journal(self):
        done = subprocess.run([PROGRAM, "audit", "verify", "--json"], env=self.daemon.env, capture_output=True, timeout=120 * PATIENCE)
        if done.returncode or not json.loads(done.stdout)["whole"]:
            self.fault(f"journal: {done}")
        intents = set()
        for segment in sorted(pathlib.Path(self.daemon.home, "journal").glob("*.log")):
            for line in segment.read_text(errors="replace").splitlines():
                record = json.loads(line)
                if record["kind"] == "intent":
                    intents.add(record.get("exec") or (record["verb"], record.get("machine")))
        for m in (m for c in self.clients for m in c.machines.values()):
            wanted = [("machine.create", m.id), *m.execs.values(), *([("machine.destroy", m.id)] if m.is_gone else [])]
            for intent in wanted:
                if intent not in intents:
                    self.fault(f"journal: acknowledged and not announced: {intent} of {m.id}")

    def check(self):
        self.park()
        if not self.faults:
            for look in self.check_api, self.check_kernel, self.check_store, self.check_journal:
                self.dog.beat()
                look()
        for c in self.clients:
            for lie in c.lies:
                self.fault(f"{c.name}: {lie}")

    # ---- the whole of it ----

    def storm(self):
        for c in self.clients:
            c.start()
            c.go.set()
        began = time.monotonic()
        for n in range(1, self.kills + 1):
            self.dog.beat()
            self.one_kill()
            if n % EVERY == 0 or n == self.kills:
                self.check()
                self.say(f"{n} kills, {time.monotonic() - began:.0f} s: {self.told('done')} acknowledged, "
                         f"{len(self.living())} machines live, {len(self.faults)} faults")
                if self.faults:
                    break
                for c in self.clients:
                    c.go.set()
        self.park()

    def told(self, how):
        return sum(n for c in self.clients for (_, h), n in c.tally.items() if h == how)

    def clear(self):
        """Everything goes through the API, and then nothing may be left."""
        for c in self.clients:
            c.over.set()
            c.join(STUCK_JOIN_S)
        self.daemon.stop()

    def print_tables(self):
        self.say(f"\n{'inside':<10}" + "".join(f"{t:>10}" for t in sorted(self.fell)))
        for verb in VERBS:
            self.say(f"{verb:<10}" + "".join(f"{self.histogram.get((t, verb), 0):>10}" for t in sorted(self.fell)))
        self.say(f"{'kills':<10}" + "".join(f"{n:>10}" for _, n in sorted(self.fell.items())))
        self.say(f"and {self.starts} daemons killed while they started\n")
        tally = {}
        for c in self.clients:
            for what, n in c.tally.items():
                tally[what] = tally.get(what, 0) + n
        for (verb, how), n in sorted(tally.items()):
            self.say(f"{verb:<10}{how:<20}{n:>8}")

    def missed(self):
        """Verbs that no kill fell into."""
        return [v for v in VERBS if not any(self.histogram.get((t, v)) for t in self.fell)]


STUCK_JOIN_S = 100 * PATIENCE


def run(seed, kills, say=print):
    """The faults found, and the verbs that no kill fell into."""
    storm = Storm(seed, kills, say)
    say(f"storm: seed {seed}, {kills} kills, {CLIENTS} clients, {storm.daemon.dir}")
    try:
        with storm.dog:
            storm.storm()
        storm.print_tables()
        if storm.faults:
            say(storm.daemon.log()[-4000:])
    except Stuck as e:
        storm.fault(str(e))
    finally:
        storm.clear()
    return storm.faults, storm.missed()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 32)
    faults, missed = run(seed, args.kills, lambda text: print(text, flush=True))
    if missed:
        print(f"no kill fell into: {', '.join(missed)}")
    print(f"storm: {'PASS' if not faults else 'FAIL'}, seed {seed}, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
