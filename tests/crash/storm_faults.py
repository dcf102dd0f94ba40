#!/usr/bin/python3
"""storm_faults.py [--mode enospc|eio|24M|200M] [--operations N] [--seed S]: every verb, over a disk that is full or fails.

One client does verbs at random and keeps a ledger of what it was told. With enospc a quarter of the writes to the
database's log fail for want of room; with eio one in a hundred fails for good, and the daemon, which must leave with
status 1, is started again; with 24M and 200M the store lies on a filesystem of that size that is filled and emptied in
turn. Now and then the daemon is killed, and the ledger is compared with the API: nothing that was acknowledged may be
lost, nothing that was refused may be there. CARREL_BUILD names the build.
"""
import argparse
import errno
import http.client
import os
import pathlib
import random
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "daemon")]

from daemon import Refused  # noqa: E402
from faulty import Faulty  # noqa: E402
from patience import clock  # noqa: E402
from small_home import SmallHome  # noqa: E402
from watchdog import Stuck, Watchdog, report  # noqa: E402

EVERY = 40          # operations from one comparison to the next
FLAP = 12           # operations with room, and without
WINDOW_MS = 40      # in which all writes succeed, or none
MACHINES = 4
IMAGE_M = 400       # more than the host's image takes
REFUSED_S = 2
STUCK_S = 200       # longer nothing takes: a request is given up after 60 s, a daemon that ends after 30
LOST = (http.client.HTTPException, OSError)  # nobody answered: it may be done or not
UNKNOWN = "unknown"


class Either:
    """A value that is one of several, until somebody has looked: a request was not answered."""

    def __init__(self, *values):
        self.values = {v for one in values for v in (one.values if isinstance(one, Either) else [one])}

    def fits(self, value):
        return value in self.values


def fits(wanted, value):
    return wanted.fits(value) if isinstance(wanted, Either) else wanted == value


class Machine:
    def __init__(self, name):
        self.name, self.id = name, None
        self.text = ""     # of its file `now`
        self.state = "running"
        self.note = None   # in its metadata
        self.steps = {}    # name -> text
        self.rules = 0     # of its network: those that were acknowledged
        self.ports = set()
        self.execs = {}    # id -> status
        self.may_be_gone = False

    @property
    def url(self):
        return "/v1/machines/" + self.id


def small_home(size):
    """So many MiB are left beside the host's image, without which there is no machine."""
    d = SmallHome(size=size + IMAGE_M)
    try:
        d.delete("/v1/machines/" + d.machine())
        with open(d.home / "taken", "wb") as f:
            os.posix_fallocate(f.fileno(), 0, max(d.free() - (size << 20), 1))
    except BaseException:
        d.stop()
        raise
    return d


class FaultStorm:
    def __init__(self, mode, operations, seed, say=print):
        self.mode, self.operations, self.seed, self.say = mode, operations, seed, say
        self.rng = random.Random(f"{seed}/{mode}")
        self.daemon = small_home(int(mode[:-1])) if mode.endswith("M") else Faulty()
        self.filler = None
        self.machines = []
        self.unsure = []     # names of machines that may be there
        self.secrets, self.tokens = {}, {}
        self.count = self.restarts = 0
        self.slowest = 0.0   # refusal, in seconds
        self.tally = {}
        self.faults = []
        self.dog = None

    # ---- the disk ----

    def spoil(self):
        if self.mode == "enospc":
            self.daemon.fail(errno.ENOSPC, 25, WINDOW_MS)
        elif self.mode == "eio":
            self.daemon.fail(errno.EIO, 1)
        elif self.filler is None:
            self.filler = self.daemon.fill()

    def heal(self):
        if self.mode in ("enospc", "eio"):
            self.daemon.heal()
        elif self.filler is not None:
            self.filler.unlink()
            self.filler = None
        self.lives()

    def flap(self):
        """A small disk has room and none in turn. The daemon looks now and then: it has seen that there is room."""
        if self.mode.endswith("M") and self.count // FLAP % 2:
            self.heal()
            self.daemon.until(self.has_room, 60)
        else:
            self.spoil()

    def lives(self):
        """One that left because its disk failed says so by its status, and is started again."""
        d = self.daemon
        while d.process.poll() is not None:
            if d.process.returncode != 1 or self.mode != "eio":
                self.fault(f"the daemon ended with {d.process.returncode}: {d.log()[-600:]}")
            self.restarts += 1
            with d.launch(d.preload() if self.mode == "eio" else ()) as ready:
                if ready.read() != b"r":  # the disk failed while it started
                    d.process.wait(30)

    # ---- one verb ----

    def fault(self, text):
        self.faults.append(f"operation {self.count}: {text}")
        self.say("FAULT: " + self.faults[-1])

    def ask(self, verb, call, *args, **options):
        """The answer; None: refused; UNKNOWN: it may be done."""
        self.dog.beat()
        begun = clock()
        try:
            told, how = call(*args, **options), "done"
        except Refused as e:
            if e.code == "unknown":
                told, how = UNKNOWN, "unknown"
            else:
                told, how = None, e.code
                self.slowest = max(self.slowest, clock() - begun)
                if e.code not in ("limit", "busy"):
                    self.fault(f"{verb} is refused as {e.code}: {e.error}")
        except LOST as e:
            told, how = UNKNOWN, "lost"
            self.daemon_gone(e)
        self.tally[verb, how] = self.tally.get((verb, how), 0) + 1
        return told

    def daemon_gone(self, why):
        if self.mode != "eio":
            self.fault(f"no answer: {why!r}")
        try:
            self.daemon.process.wait(30)
        except subprocess.TimeoutExpired:
            self.fault("a daemon that does not answer lives on")
            for line in report(self.daemon):
                self.say(line)
        self.lives()

    def sh(self, m, command, **fields):
        return self.daemon.post(m.url + "/execs", {"command": command, **fields})

    # ---- the verbs ----

    def create(self):
        if len(self.machines) + len(self.unsure) >= MACHINES:
            return self.destroy()
        m = Machine(f"n{self.count}")
        told = self.ask("create", self.daemon.post, "/v1/machines", {"name": m.name, "steps": "manual"})
        if told == UNKNOWN:
            self.unsure.append(m.name)
        elif told:
            m.id = told["id"]
            self.machines.append(m)

    def pick(self, state="running"):
        fit = [m for m in self.machines if m.state == state and not m.may_be_gone]
        return self.rng.choice(fit) if fit else None

    def destroy(self):
        sure = [m for m in self.machines if not m.may_be_gone]
        m = self.rng.choice(sure) if sure else None
        if m is None:
            return
        told = self.ask("destroy", self.daemon.delete, m.url)
        if told == UNKNOWN:
            m.may_be_gone = True
        elif told:
            self.machines.remove(m)

    def run(self):
        m = self.pick()
        if m is None:
            return
        text, status = f"t{self.count}", self.count % 100
        told = self.ask("exec", self.sh, m, f"echo {text} >now; echo {text}; exit {status}")
        if told == UNKNOWN:
            m.text = Either(m.text, text)
        elif told:
            m.text = text
            m.execs[told["exec"]["id"]] = status
            if told["exec"]["status"] != status or told["stdout"] != text + "\n":
                self.fault(f"a command exited with {told}")

    def write(self):
        m = self.pick()
        if m is None:
            return
        text = f"w{self.count}"
        told = self.ask("write", self.daemon.put, m.url + "/files", text.encode(), path="/home/user/now")
        if told == UNKNOWN:
            m.text = Either(m.text, text)
        elif told is not None:
            m.text = text

    def read(self):
        m = self.pick()
        if m is not None and not isinstance(m.text, Either) and m.text:
            told = self.ask("read", self.daemon.request, "GET", m.url + "/files", raw=True, path="/home/user/now")
            if told not in (None, UNKNOWN) and told.decode().strip() != m.text:
                self.fault(f"{m.name} has {told}, not {m.text}")

    def snap(self):
        m = self.pick()
        if m is None or isinstance(m.text, Either):
            return
        name = f"s{self.count}"
        told = self.ask("snap", self.daemon.post, m.url + "/steps", {"name": name})
        if told == UNKNOWN:
            m.steps[name] = Either(m.text, None)
        elif told:
            m.steps[name] = m.text

    def rewind(self):
        m = self.pick()
        sure = [s for s, text in m.steps.items() if not isinstance(text, Either)] if m else []
        if not sure:
            return
        name = self.rng.choice(sure)
        told = self.ask("rewind", self.daemon.post, m.url + "/rewind", {"step": name})
        if told == UNKNOWN:
            m.text = Either(m.text, m.steps[name])
        elif told:
            m.text = m.steps[name]

    def fork(self):
        m = self.pick()
        if m is None or len(self.machines) + len(self.unsure) >= MACHINES or isinstance(m.text, Either):
            return
        told = self.ask("fork", self.daemon.post, m.url + "/fork", {})
        if told == UNKNOWN:
            self.unsure.append(None)
        elif told:
            child = Machine(f"f{self.count}")
            child.id, child.text, child.note = told["machines"][0]["id"], m.text, m.note
            child.rules = m.rules
            self.machines.append(child)

    def change_state(self, verb, before, after):
        m = self.pick(before)
        if m is None:
            return
        told = self.ask(verb, self.daemon.post, f"{m.url}/{verb}")
        if told == UNKNOWN:
            m.state = Either(before, after)
        elif told:
            m.state = after

    def pause(self):
        self.change_state("pause", "running", "paused")

    def stop(self):
        self.change_state("stop", "running", "stopped")

    def resume(self):
        self.change_state("resume", self.rng.choice(["paused", "stopped"]), "running")

    def update(self):
        m = self.pick()
        if m is None:
            return
        note = f"u{self.count}"
        told = self.ask("update", self.daemon.patch, m.url, {"metadata": {"note": note}})
        if told == UNKNOWN:
            m.note = Either(m.note, note)
        elif told:
            m.note = note

    def rule(self):
        m = self.pick()
        if m is None or isinstance(m.rules, Either):
            return
        told = self.ask("rule", self.daemon.post, m.url + "/net/rules", {"action": "allow", "target": f"http://h{self.count}.example"})
        if told == UNKNOWN:
            m.rules = Either(m.rules, m.rules + 1)
        elif told:
            m.rules += 1

    def expose(self):
        m = self.pick()
        if m is None or len(m.ports) > 8:
            return
        port = 2000 + self.count
        told = self.ask("expose", self.daemon.post, m.url + "/exposures", {"port": port})
        if told == UNKNOWN:
            m.ports.add((port, UNKNOWN))
        elif told:
            m.ports.add((port, True))

    def secret(self):
        name = f"S{self.count}"
        told = self.ask("secret", self.daemon.put, f"/v1/secrets/{name}", {"value": "v" * 20})
        if told is not None:
            self.secrets[name] = UNKNOWN if told == UNKNOWN else True

    def token(self):
        told = self.ask("token", self.daemon.post, "/v1/tokens", {"note": f"t{self.count}"})
        if told and told != UNKNOWN:
            self.tokens[told["id"]] = True

    VERBS = {create: 10, destroy: 4, run: 22, write: 8, read: 6, snap: 10, rewind: 8, fork: 5, pause: 3, stop: 3, resume: 10,
             update: 4, rule: 3, expose: 3, secret: 1, token: 1}

    # ---- comparing ----

    def settle(self):
        """Faults are over: what waited for room is written, and the ledger becomes certain."""
        self.heal()
        d = self.daemon
        d.until(lambda: self.has_room(), 60)
        for m in [m for m in self.machines if m.may_be_gone]:
            d.until(lambda m=m: self.is_settled(m), 60)
        for m in self.machines:
            if not m.may_be_gone:  # one that is refused waits for what is not written yet
                self.sure(d.patch, m.url, {})
        shown = {m["id"]: m for m in d.machines(all=1, limit=500)}
        self.machines = [m for m in self.machines if not m.may_be_gone or m.id in shown]
        for m in self.machines:
            m.may_be_gone = False
        known = {m.id for m in self.machines}
        d.until(lambda: all(m["state"] not in ("creating", "ending") for m in d.machines(all=1, limit=500)), 60)
        for m in d.machines(all=1, limit=500):
            if m["id"] not in known:
                self.claim(m)
        self.unsure.clear()

    def has_room(self):
        """A machine that nobody wants can be asked for something that is written."""
        try:
            self.daemon.put("/v1/secrets/ROOM", {"value": "room" * 8})
            return True
        except Refused as e:
            assert e.code == "limit", e
            return False

    def sure(self, call, *args, **options):
        """There is room: what waited for it is written within a moment, and then this is done."""
        def answer():
            nonlocal why
            try:
                return [call(*args, **options)]
            except Refused as e:
                assert e.code in ("limit", "busy", "unknown"), e
                why = e
                return None

        why = None
        self.dog.beat()
        try:
            return self.daemon.until(answer, 60)[0]
        except AssertionError:
            raise AssertionError(f"{args} is refused for ever: {why!r}; {self.daemon.machines(all=1)}; {self.daemon.log()[-3000:]}") from None

    def is_settled(self, m):
        m.may_be_gone = True
        return all(x["id"] != m.id or x["state"] not in ("ending", "creating") for x in self.daemon.machines(all=1, limit=500))

    def claim(self, shown):
        """One that nobody was told of: only one whose request was not answered may be there."""
        named = shown.get("name") in self.unsure
        forked = None in self.unsure and not shown.get("name")
        if not named and not forked:
            self.fault(f"machine {shown['id']} is there, and its request was refused")
        self.sure(self.daemon.delete, "/v1/machines/" + shown["id"])

    def compare(self):
        d = self.daemon
        self.settle()
        if self.rng.random() < 0.5:
            d.kill()
            self.restarts += 1
            d.start()
        shown = {m["id"]: m for m in d.machines(all=1, limit=500)}
        for m in self.machines:
            if m.id not in shown:
                self.fault(f"machine {m.id} is lost")
            else:
                self.compare_machine(m, shown[m.id])
        self.machines = [m for m in self.machines if m.id in shown]
        self.compare_names("secrets", {s["name"] for s in d.get("/v1/secrets")["secrets"]}, self.secrets)
        self.compare_names("tokens", {t["id"] for t in d.get("/v1/tokens")["tokens"]}, self.tokens)
        if not d.get("/v1/store/check")["whole"]:
            self.fault(f"the store is not whole: {d.get('/v1/store/check')}")
        if not d.get("/v1/audit/verify")["whole"]:
            self.fault("the journal is not whole")

    def compare_names(self, what, there, told):
        for name, sure in list(told.items()):
            if sure is True and name not in there:
                self.fault(f"{what}: {name} is lost")
            told[name] = True if name in there else None
        for name in [n for n, sure in told.items() if sure is None]:
            del told[name]

    def compare_machine(self, m, shown):
        d = self.daemon
        if not fits(m.state, shown["state"]):
            self.fault(f"{m.id} is {shown['state']}")
        m.state = shown["state"]
        note = shown.get("metadata", {}).get("note")
        if not fits(m.note, note):
            self.fault(f"{m.id} has the note {note}")
        m.note = note
        for x, status in m.execs.items():
            told = d.get(f"{m.url}/execs/{x}")
            if told["state"] != "exited" or told["status"] != status:
                self.fault(f"{x} is {told['state']} with {told.get('status')}, not {status}")
        rules = len([r for r in d.get(m.url + "/net")["rules"] if "example" in str(r)])
        if not fits(m.rules, rules):
            self.fault(f"{m.id} has {rules} rules, not {m.rules}")
        m.rules = rules
        self.compare_ports(m)
        self.compare_files(m)

    def compare_ports(self, m):
        there = {e["port"] for e in self.daemon.get(m.url + "/exposures")["exposures"]}
        for port, sure in m.ports:
            if sure is True and port not in there:
                self.fault(f"{m.id} does not show port {port}")
        if there - {port for port, _ in m.ports}:
            self.fault(f"{m.id} shows {there}")
        m.ports = {(port, True) for port in there}

    def compare_files(self, m):
        d = self.daemon
        if m.state != "running":
            self.sure(d.post, m.url + "/resume")
            m.state = "running"
        text = self.sure(self.sh, m, "cat now 2>/dev/null")["stdout"].strip()
        if not fits(m.text, text):
            self.fault(f"{m.id} has {text!r}, not {m.text if not isinstance(m.text, Either) else m.text.values}")
        m.text = text
        names = {s.get("name") for s in d.get(m.url + "/steps", limit=500)["steps"]} - {None}
        for name, kept in list(m.steps.items()):
            if name not in names and not isinstance(kept, Either):
                self.fault(f"{m.id} has lost step {name}")
            if name not in names:
                del m.steps[name]
            elif isinstance(kept, Either):
                m.steps[name] = next(v for v in kept.values if v is not None)
        for name in names - set(m.steps):
            self.fault(f"{m.id} has step {name}, which was refused")
        if m.steps:
            name = self.rng.choice(sorted(m.steps))
            self.sure(d.post, m.url + "/rewind", {"step": name})
            text = self.sure(self.sh, m, "cat now 2>/dev/null")["stdout"].strip()
            if text != m.steps[name]:
                self.fault(f"{m.id} has {text!r} at {name}, not {m.steps[name]!r}")
            m.text = text

    # ---- the whole of it ----

    def asked(self):
        return sum(self.tally.values())

    def storm(self):
        verbs, weights = list(self.VERBS), list(self.VERBS.values())
        compared = said = 0
        while self.asked() < self.operations and not self.faults:
            if self.count % FLAP == 0:
                self.flap()
            self.count += 1
            self.rng.choices(verbs, weights)[0](self)
            if self.asked() >= min(compared + EVERY, self.operations):
                compared = self.asked()
                self.compare()
                if compared >= said + 10 * EVERY:
                    said = compared
                    self.say(self.summary())
                self.spoil()
        self.heal()

    def summary(self):
        done = sum(n for (_, how), n in self.tally.items() if how == "done")
        refused = sum(n for (_, how), n in self.tally.items() if how in ("limit", "busy"))
        unsure = sum(n for (_, how), n in self.tally.items() if how in ("unknown", "lost"))
        return (f"{self.mode}: {self.asked()} operations, {done} acknowledged, {refused} refused (slowest {self.slowest:.1f} s), "
                f"{unsure} not certain, {self.restarts} restarts, {len(self.faults)} faults")

    def clear(self):
        if self.faults:
            self.say(self.daemon.log()[-4000:])
        self.heal()
        self.daemon.stop()


def run(mode, operations, seed, say=print):
    storm = FaultStorm(mode, operations, seed, say)
    say(f"storm: {mode}, seed {seed}, {operations} operations, {storm.daemon.dir}")
    for part in storm.storm, storm.clear:
        try:
            with Watchdog(storm.daemon, STUCK_S, say) as storm.dog:
                part()
        except (Stuck, AssertionError, Refused, *LOST) as e:
            storm.fault(f"{type(e).__name__}: {e}")
            say(storm.daemon.log()[-4000:])
    for (verb, how), n in sorted(storm.tally.items()):
        say(f"{verb:<10}{how:<10}{n:>7}")
    say(storm.summary())
    return storm


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=["enospc", "eio", "24M", "200M"], default="enospc")
    parser.add_argument("--operations", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 32)
    storm = run(args.mode, args.operations, seed, lambda text: print(text, flush=True))
    slow = storm.slowest > REFUSED_S
    if slow:
        print(f"a refusal took {storm.slowest:.1f} s")
    print(f"storm: {'FAIL' if storm.faults or slow else 'PASS'}, seed {seed}")
    return 1 if storm.faults or slow else 0


if __name__ == "__main__":
    sys.exit(main())
