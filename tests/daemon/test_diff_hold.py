"""Layers stay while a comparison reads them, also if their steps are deleted meanwhile."""
import os
import shutil
import threading
import time

import pytest
from carrel import BUILD
from daemon import Daemon, Refused
from test_steps import Box


class Held(Daemon):
    """The first carrel-compare waits before it reads anything, while the file `hold` exists. Others do not wait."""

    def __init__(self, where, **options):
        libexec = where / "libexec"
        shutil.copytree(BUILD / "libexec", libexec, ignore=lambda at, names: [n for n in names if not n.startswith("carrel-")])
        self.program, self.hold, self.began = libexec / "carrel-daemon", where / "hold", where / "began"
        os.rename(libexec / "carrel-compare", libexec / "compare")
        (libexec / "carrel-compare").write_text(
            f"#!/bin/sh\nif [ -e {self.hold} ] && mkdir {self.began}; then while [ -e {self.hold} ]; do sleep 0.02; done; fi\n"
            f"exec {libexec}/compare\n")
        (libexec / "carrel-compare").chmod(0o755)
        super().__init__(**options)

    def begin(self, path, **query):
        """Sends a request whose comparison waits; join() returns its answer or error."""
        self.hold.touch()
        self.waits = threading.Thread(target=self.ask, args=(path, query))
        self.waits.start()
        self.until(lambda: self.began.exists() or not self.waits.is_alive())
        assert self.began.exists(), self.came

    def ask(self, path, query):
        """Asks again while files of steps are counted: the daemon runs two workers at once."""
        while True:
            try:
                self.came = self.get(path, **query)
            except Refused as e:
                self.came = e
                if e.code == "busy":
                    time.sleep(0.05)
                    continue
            return

    def join(self):
        self.hold.unlink()
        self.waits.join()
        self.began.rmdir()
        return self.came


@pytest.fixture
def held(tmp_path):
    d = Held(tmp_path, conf="[steps]\nkeep = 6\n")  # a busy host may take a step more than those below
    yield d
    d.hold.unlink(missing_ok=True)
    d.stop()


def lose_steps(b, *steps):
    """Deletes these steps and the layers that nothing reads."""
    for i in range(8):
        b.sh(f"echo {i} >n")
    b.d.until(lambda: not {s["id"] for s in steps} & {s["id"] for s in b.steps()})


def disk_bytes(b):
    """After a change, because the use of a disk is counted when steps may have to be deleted."""
    b.sh("echo >>n")
    return b.d.get(b.url)["disk_bytes"]


def two_lost_steps(b):
    """Two steps that nothing but their rows refers to. Layers of the second one show when layers are deleted."""
    b.snap("then")
    found = []
    for size in (3, 6):
        b.sh(f"head -c {size}000000 /dev/urandom >f")
        found.append(b.steps()[-1])
        b.rewind("then")
    return found


def test_layers_stay_while_a_diff_reads_them(held):
    b = Box(held)
    first, second = two_lost_steps(b)
    held.begin(b.url + "/diff", **{"from": "then", "to": first["id"]})
    lose_steps(b, first, second)
    held.until(lambda: disk_bytes(b) < 5_000_000)
    came = held.join()
    assert [(c["path"], c["change"], c["after"]["size"]) for c in came["changes"][:9]] == [("home/user/f", "added", 3_000_000)]
    held.until(lambda: disk_bytes(b) < 1_000_000)


def test_diff_of_a_machine_that_ends_meanwhile_is_refused(held):
    b = Box(held)
    b.sh("echo 1 >f")
    held.begin(b.url + "/diff")
    held.delete(b.url)
    came = held.join()
    assert isinstance(came, Refused) and came.code == "gone", came
