"""One client of the storm: it uses the daemon, keeps a ledger of what was acknowledged, and notices every lie.

A request whose connection breaks is asked again, with the same key or content, until somebody answers. What then
comes back must agree with the ledger; what was never acknowledged may be there or not, but never half.
"""
import hashlib
import http.client
import json
import os
import random
import threading
import time
import urllib.parse

from daemon import Refused, UnixConnection
from patience import PATIENCE

STUCK_S = 90 * PATIENCE  # without an answer, although the daemon is started again at once
MACHINES = 3             # that one client keeps at a time
FILES = 4                # names it writes to in each


def exit_code(key):
    """What a command with this key must end with: nobody else can know it."""
    return hashlib.sha256(key.encode()).digest()[0]


class Lie(Exception):
    """The daemon said something that its own acknowledgements contradict."""


class Machine:
    """What the ledger holds of one acknowledged machine."""

    def __init__(self, machine_id):
        self.id = machine_id
        self.files = {}   # path -> content that was acknowledged
        self.execs = {}   # key -> id of the command, of those that were acknowledged
        self.is_gone = False


class Client(threading.Thread):
    def __init__(self, number, seed, socket_path, boxes):
        super().__init__(name=f"client {number}", daemon=True)
        self.number, self.socket_path, self.boxes = number, socket_path, boxes
        self.rng = random.Random(f"{seed}/{number}")
        self.count = 0
        self.machines = {}   # id -> Machine, the gone ones too
        self.inside = None   # the verb under way, for the histogram
        self.tally = {}      # (verb, how it went) -> times
        self.lies = []
        self.go, self.parked, self.over = threading.Event(), threading.Event(), threading.Event()
        self.connection = None

    # ---- asking ----

    def note(self, verb, how):
        self.tally[verb, how] = self.tally.get((verb, how), 0) + 1

    def drop_connection(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def once(self, method, target, body, headers):
        """One try on the kept connection: status, JSON or bytes. Raises OSError or HTTPException when it breaks."""
        if not self.connection:
            self.connection = UnixConnection(self.socket_path, timeout=STUCK_S)
        self.connection.request(method, target, body=body, headers=headers)
        answer = self.connection.getresponse()
        content = answer.read()
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        return answer.status, json.loads(content) if is_json and content else content

    def ask(self, verb, method, target, body=None, **query):
        """The answer, however often the connection breaks, and whether it did. Refusals are raised, with .broke too."""
        if query:
            target += "?" + urllib.parse.urlencode(query)
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        end = time.monotonic() + STUCK_S
        broke = False
        while True:
            self.inside = verb
            try:
                status, answer = self.once(method, target, data, {})
                break
            except TimeoutError:
                raise Lie(f"{verb}: {method} {target} was not answered in {STUCK_S:.0f} s") from None
            except (OSError, http.client.HTTPException):
                broke = True
                self.drop_connection()
            finally:
                self.inside = None
            self.note(verb, "broke")
            if time.monotonic() > end:
                raise Lie(f"{verb}: nobody answers {method} {target} for {STUCK_S:.0f} s")
            time.sleep(0.01)
        if status >= 300:
            refused = Refused(status, answer)
            refused.broke = broke
            self.note(verb, f"refused {refused.code}")
            raise refused
        return answer, broke

    def new_key(self):
        self.count += 1
        return f"{self.number}-{self.count}-{self.rng.randrange(1 << 32):08x}"

    # ---- verbs ----

    def create(self):
        key = self.new_key()
        end = time.monotonic() + STUCK_S
        while True:
            try:
                m, broke = self.ask("create", "POST", "/v1/machines", {"key": key, "metadata": {"client": str(self.number)}})
            except Refused as e:
                if e.code not in ("busy", "unknown", "internal", "gone"):
                    raise
                if e.code != "busy":
                    return  # it was not acknowledged; that nothing is left of it the next check shows
                if time.monotonic() > end:
                    raise Lie(f"create: key {key} is busy for ever") from e
                time.sleep(0.02)
                continue
            break
        if m["state"] != "running":
            if not broke or m["state"] not in ("ending", "ended"):
                raise Lie(f"create: the answer is {m}")
            self.note("create", "cut short")  # the daemon died while it was made, and says so
            return
        self.note("create", "done")
        self.machines[m["id"]] = Machine(m["id"])

    def command(self, key):
        pause = f"sleep 0.{self.rng.randrange(4)}; " if self.rng.random() < 0.3 else ""
        return f"echo {key} >> ~/ran; {pause}echo {key}; exit {exit_code(key)}"

    def take_outcome(self, verb, m, key, x, acknowledged):
        """Checks the end of a command; what never began must not have run."""
        if x["state"] == "exited" and x["status"] == exit_code(key):
            m.execs[key] = x["id"]
            self.note(verb, "done")
        elif x["state"] == "failed" and not acknowledged and self.ran(m).count(key) == 0:
            self.note(verb, "never began")
        else:
            raise Lie(f"{verb}: key {key} must exit with {exit_code(key)} and is {x}, it ran {self.ran(m).count(key)} times")

    def exec(self, m):
        """A command, its result in the same answer."""
        key = self.new_key()
        answer, _ = self.ask("exec", "POST", f"/v1/machines/{m.id}/execs", {"key": key, "command": self.command(key)})
        self.take_outcome("exec", m, key, answer["exec"], False)
        if answer["exec"]["state"] == "exited" and answer.get("stdout") != key + "\n":
            raise Lie(f"exec: key {key} printed {answer}")

    def background(self, m):
        """A command in the background, acknowledged at once and waited for later."""
        key = self.new_key()
        x, broke = self.ask("start", "POST", f"/v1/machines/{m.id}/execs",
                            {"key": key, "command": self.command(key), "background": True})
        if x["state"] == "failed":
            self.take_outcome("start", m, key, x, False)
            return
        m.execs[key] = x["id"]
        path = f"/v1/machines/{m.id}/execs/{x['id']}"
        out, _ = self.ask("follow", "GET", path + "/output", follow=1)
        end = time.monotonic() + STUCK_S
        while x["state"] in ("starting", "running"):
            x, _ = self.ask("look", "GET", path)
            if time.monotonic() > end:
                raise Lie(f"start: key {key} does not end: {x}")
            time.sleep(0.005)
        self.take_outcome("start", m, key, x, True)
        if out != f"{key}\n".encode():
            raise Lie(f"start: key {key} printed {out!r}")

    def path(self):
        return f"/home/user/file{self.rng.randrange(FILES)}"

    def read(self, m, path):
        try:
            return self.ask("read", "GET", f"/v1/machines/{m.id}/files", path=path)[0]
        except Refused as e:
            if e.code != "not_found":
                raise
            return None

    def write(self, m):
        path, before = self.path(), None
        content = self.new_key().encode() + self.rng.randbytes(self.rng.choice([0, 100, 5000, 200_000]))
        before = m.files.get(path)
        _, broke = self.ask("write", "PUT", f"/v1/machines/{m.id}/files", content, path=path)
        m.files[path] = content
        self.note("write", "done")
        if broke and self.read(m, path) != content:
            raise Lie(f"write: {path} of {m.id} is not what was acknowledged after a break (before: {len(before or b'')} bytes)")

    def read_again(self, m):
        path = self.path()
        found, wanted = self.read(m, path), m.files.get(path)
        if found != wanted:
            raise Lie(f"read: {path} of {m.id} has {len(found or b'')} bytes and not the {len(wanted or b'')} that were acknowledged")
        self.note("read", "done")

    def ran(self, m):
        """The keys of every command that ran in it, in order."""
        return (self.read(m, "/home/user/ran") or b"").decode().split()

    def ask_until_known(self, verb, m):
        """A spawner that is killed again and again leaves an outcome unknown; whoever is told so asks again."""
        end, unknown = time.monotonic() + STUCK_S, False
        while True:
            try:
                return self.ask(verb, "POST", f"/v1/machines/{m.id}/{verb}", {})
            except Refused as e:
                if e.code == "busy" and (e.broke or unknown):
                    return None
                if e.code != "unknown" or time.monotonic() > end:
                    raise
                unknown = True
                time.sleep(0.05)

    def pause(self, m):
        for verb, state in ("pause", "paused"), ("resume", "running"):
            self.ask_until_known(verb, m)
            shown, _ = self.ask("look", "GET", f"/v1/machines/{m.id}")
            if shown["state"] != state:
                raise Lie(f"{verb}: acknowledged, and then it is {shown['state']}")
            self.note(verb, "done")

    def destroy(self, m):
        try:
            self.ask("destroy", "DELETE", f"/v1/machines/{m.id}")
        except Refused as e:
            if e.code not in ("gone", "busy") or not e.broke:
                raise
        end = time.monotonic() + STUCK_S
        while (shown := self.ask("look", "GET", f"/v1/machines/{m.id}")[0])["state"] != "ended":
            if time.monotonic() > end:
                raise Lie(f"destroy: {m.id} does not end: {shown}")
            time.sleep(0.01)
        m.is_gone = True
        if shown["reason"] != "destroyed":
            raise Lie(f"destroy: its reason is {shown['reason']}")
        if os.path.exists(f"{self.boxes}/{m.id}"):
            raise Lie(f"destroy: acknowledged, and {self.boxes}/{m.id} is there")
        self.note("destroy", "done")

    # ---- its life ----

    def living(self):
        return [m for m in self.machines.values() if not m.is_gone]

    def step(self):
        living = self.living()
        if len(living) < MACHINES and (not living or self.rng.random() < 0.5):
            self.create()
            return
        m = self.rng.choice(living)
        verbs = [(self.exec, 8), (self.background, 4), (self.write, 5), (self.read_again, 3), (self.pause, 2), (self.destroy, 3)]
        self.rng.choices([v for v, _ in verbs], [w for _, w in verbs])[0](m)

    def run(self):
        while not self.over.is_set():
            self.parked.set()
            if not self.go.wait(0.1):
                continue
            self.parked.clear()
            if not self.go.is_set():  # park() came in between and has seen this client as parked
                continue
            try:
                self.step()
            except Lie as e:
                self.lies.append(str(e))
                self.over.set()
            except Exception as e:  # a refusal nobody expects, or an answer that cannot be understood
                self.lies.append(f"{type(e).__name__}: {e}")
                self.over.set()
        self.parked.set()

    # ---- comparing ----

    def compare(self, m):
        """The whole ledger of a living machine against what the API says now."""
        shown, _ = self.ask("look", "GET", f"/v1/machines/{m.id}")
        if shown["state"] != "running":
            raise Lie(f"{m.id} was acknowledged and is {shown}")
        ran = self.ran(m)
        if len(ran) != len(set(ran)):
            raise Lie(f"{m.id}: a command ran twice: {[k for k in ran if ran.count(k) > 1]}")
        if set(m.execs) != set(ran):
            raise Lie(f"{m.id}: acknowledged but did not run: {set(m.execs) - set(ran)}; ran but nobody knows: {set(ran) - set(m.execs)}")
        for path, content in m.files.items():
            if self.read(m, path) != content:
                raise Lie(f"{m.id}: {path} is not what was acknowledged")
        for key, x in list(m.execs.items())[-20:]:
            out, _ = self.ask("look", "GET", f"/v1/machines/{m.id}/execs/{x}/output")
            if out != f"{key}\n".encode():
                raise Lie(f"{m.id}: output of {x} is {out!r}")
