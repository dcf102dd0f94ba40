"""machine-drive as an object: requests by number, answers when they come."""
import os
import pathlib
import queue
import shutil
import subprocess
import threading

from carrel import BUILD
from kinds import KIND, kernel
from patience import PATIENCE


class Failed(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text


class Drive:
    def __init__(self, carrel, **popen):
        # Programs are found beside the running one.
        self.dir = pathlib.Path(carrel.dir, "drive")
        self.dir.mkdir(exist_ok=True)
        program = self.dir / "machine-drive"
        if not program.exists():
            shutil.copy(BUILD / "tests/machine/machine-drive", program)
            (self.dir / "libexec").symlink_to(BUILD / "libexec")
        self.process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=carrel.env,
                                        cwd=self.dir, text=True, bufsize=1, **popen)
        self.answers, self.events, self.next = {}, queue.Queue(), 0
        self.seen = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            number, _, rest = line.rstrip("\n").partition(" ")
            if number == "-":
                self.events.put(rest)
                continue
            with self.seen:
                self.answers[int(number)] = rest
                self.seen.notify_all()

    def ask(self, verb, *words):
        """The request's number, at once."""
        self.next += 1
        if KIND == "vm" and verb in ("create", "adopt"):
            words += (f"vm={kernel(BUILD)}",)
        words = [str(word).replace(" ", "\x1f") for word in (self.next, verb, *words)]
        self.process.stdin.write(" ".join(words) + "\n")
        return self.next

    def wait(self, number, seconds=30):
        with self.seen:
            assert self.seen.wait_for(lambda: number in self.answers, seconds * PATIENCE), f"no answer to request {number}"
            state, _, rest = self.answers.pop(number).partition(" ")
        if state == "error":
            raise Failed(*rest.split(" ", 1))
        return rest

    def __call__(self, verb, *words):
        return self.wait(self.ask(verb, *(words or ["-"])))

    def event(self, seconds=10):
        return self.events.get(timeout=seconds * PATIENCE)

    def fields(self, verb, *words):
        return dict(word.split("=", 1) for word in self(verb, *words).split() if "=" in word)

    def stats(self, machine):
        return {k: int(v) for k, v in self.fields("stats", machine).items()}

    def run(self, machine, xid, *argv, mode="pipe"):
        """Exit status and output."""
        told = self.fields("exec", machine, xid, mode, *argv)
        return int(told["status"]), bytes.fromhex(told["out"])

    def list(self):
        return self("list").split()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._close()

    def quit(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            assert self.process.wait(20 * PATIENCE) == 0
        self._close()

    def _close(self):
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass


def machine_id(number):
    """A machine's id from a number."""
    text = ""
    for _ in range(12):
        text += "abcdefghijklmnopqrstuvwxyz234567"[number % 32]
        number //= 32
    return "m-" + text


def fresh_id():
    return machine_id(int.from_bytes(os.urandom(8), "big"))
