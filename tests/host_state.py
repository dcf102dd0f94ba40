"""What of Carrel is on this host: processes, mounts, cgroups, loop devices, directories.

A test takes HostState(run, home).left() afterwards and expects []. Only what belongs to that run
directory is looked at, because other people and other tests use the same host; where the host is
ours alone, make test-vm compares all of it.
"""
import os
import pathlib
import pwd
import re
import time
import weakref

from patience import clock

CGROUP = pathlib.Path("/sys/fs/cgroup")


def read(path):
    try:
        return pathlib.Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""


def pids():
    return [int(p) for p in os.listdir("/proc") if p.isdigit()]


def name_hash(text):
    """The spawner's cgroup is named after its run directory (FNV-1a)."""
    h = 2166136261
    for byte in str(text).encode():
        h = (h ^ byte) * 16777619 & 0xFFFFFFFF
    return f"{h:08x}"


def loops():
    return {p.parts[3]: read(p).strip() for p in pathlib.Path("/sys/block").glob("loop*/loop/backing_file")}


def mounts():
    return [" ".join(line.split()[4:5] + line.split(" - ")[1].split()[:2])
            for line in read("/proc/self/mountinfo").splitlines()]


def sub_ids():
    """The subordinate ids of a rootless user: nobody else's processes have them."""
    name = pwd.getpwuid(os.geteuid()).pw_name
    rows = [row.split(":") for row in pathlib.Path("/etc/subuid").read_text().split()]
    return [(int(first), int(count)) for who, first, count in rows if who in (name, str(os.geteuid()))]


class HostState:
    known = weakref.WeakSet()  # rootless, the boxes of all run directories have the same ids

    def __init__(self, run, home, uids=()):
        """uids: ranges (first, count) that only boxes of this run directory use, if there are such."""
        self.run, self.home, self.uids = str(run), str(home), list(uids)
        self.group = "carrel." + name_hash(self.run)
        self.mine = os.getpid()
        self.known.add(self)

    def is_ours(self, pid):
        if pid == self.mine:
            return False
        status = read(f"/proc/{pid}/status")
        uid = int((re.search(r"^Uid:\s+(\d+)", status, re.M) or [0, -1])[1])
        words = read(f"/proc/{pid}/cmdline").split("\0")
        return (self.group in read(f"/proc/{pid}/cgroup")
                or words[0] in ("carrel-spawn", "carrel") and self.run in words
                or any(first <= uid < first + count for first, count in self.uids))

    def processes(self):
        others = {p for state in self.known if state is not self for p in state.ready().values()}
        return [f"process {p}: {read(f'/proc/{p}/cmdline').replace(chr(0), ' ').strip() or read(f'/proc/{p}/comm').strip()}"
                for p in pids() if p not in others and self.is_ours(p)]

    def guests(self):
        return [p for p in pids() if self.is_ours(p) and read(f"/proc/{p}/cmdline").startswith("carrel-guest")]

    def spawners(self):
        return [p for p in pids() if read(f"/proc/{p}/cmdline").split("\0")[0] == "carrel-spawn"
                and self.run in read(f"/proc/{p}/cmdline").split("\0")]

    def cgroups(self):
        return [f"cgroup {d}" for d, dirs, _ in os.walk(CGROUP) if d.rsplit("/", 1)[-1] == self.group]

    def ready(self):
        """Boxes that wait for somebody to ask for one: their directories, and the pid of their guest."""
        return {d: int((re.search(r"^pid=(\d+)", read(d / "box"), re.M) or [0, 0])[1])
                for d in pathlib.Path(self.run, "boxes").glob("r-*")}

    def boxes(self):
        """With a spawner alive: what a box leaves, not what the pools hold."""
        ready = self.ready()
        pooled = {*self.spawners(), *(ready.values() if self.spawners() else ())}
        left = [p for p in self.processes() if int(p.split()[1].rstrip(":")) not in pooled]
        boxes = pathlib.Path(self.run, "boxes")
        return left + [f"directory {b}" for b in (boxes.iterdir() if boxes.exists() else ()) if b not in ready]

    def _left(self):
        left = self.processes() + self.cgroups()
        left += [f"mount {m}" for m in mounts() if self.run in m or self.home in m]
        left += [f"loop device {n}: {f}" for n, f in loops().items() if f.startswith((self.home, self.run))]
        state = {"images", "builds", "drafts", "carrel.db", "carrel.lock", "journal", "log", "secrets.key", "runs", "changesets", "saved", "baselines", "databases", "disks", "dumps", "ballast", "packages", "volumes", "backups", "vm", "memory", "authority-boxes.example.com.pem"}  # what shall outlast machines
        for place, known in (self.run, {"spawn.lock", "daemon.lock", "spawn.log", "carrel.log", "workshop", "console.json", "authority.pem"}), (self.home, state):
            if os.path.isdir(place):
                left += [f"{place}/{n}" for n in sorted(set(os.listdir(place)) - known)]
        for place in pathlib.Path(self.run, "workshop"), pathlib.Path(self.home, "baselines"), pathlib.Path(self.home, "databases"):
            left += [f"in {place.name}: {p}" for p in (place.iterdir() if place.exists() else ())]
        return left

    def left(self, seconds=10):
        """Everything still there, once it has had time to go: removal is in the background."""
        return self._settle(self._left, seconds)

    def left_of_boxes(self, seconds=10):
        return self._settle(self.boxes, seconds)

    def _settle(self, look, seconds):
        end, looks = clock() + seconds, 0
        while (left := look()) and (clock() < end or looks < 10 * seconds):  # a host that stands still gives no time
            time.sleep(0.02)
            looks += 1
        if left:
            print(*self._evidence(), sep="\n")
        return left

    def _evidence(self):
        """Why it may still be there: where those are who remove it, and what they said last."""
        found = []
        for pid in pids():
            name = read(f"/proc/{pid}/comm").strip()
            if not name.startswith("carrel") or self.run not in read(f"/proc/{pid}/cmdline").split("\0"):
                continue
            for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
                stack = " < ".join(line.split()[-1] for line in read(task / "stack").splitlines()[:8])
                found.append(f"{name} {pid}/{task.name} {read(task / 'wchan')}: {stack}")
        for log in "spawn.log", "carrel.log":
            found += [f"{log}: {line}" for line in read(pathlib.Path(self.run, log)).splitlines()[-6:]]
        return found
