#!/usr/bin/python3
"""review: `carrel diff` of one changed byte against `git status`, and `carrel cp` against tar, over the same 40,000 files.

In each round every measure runs once, in a new order. A directory that a copy fills is new and stays until the end: on
some filesystems the next files are slow to create after many were deleted.
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
PER_DIRECTORY = 100
GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
       **{f"GIT_{who}_{what}": "b@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}}
BARS = (("diff", "git status", 1.0), ("diff of a repository", "git status", 1.0), ("diff of a dirty clone", "git status", 1.0),
        ("diff of a fork", "git status", 1.0), ("cp out", "tar | tar", 1.5), ("cp in", "tar | tar", 1.5))


def make_tree(top, count):
    """Two commits: the second has the files of one directory. Then the index is fresh."""
    for n in range(count):
        path = top / f"d{n // PER_DIRECTORY}" / f"f{n % PER_DIRECTORY}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"file {n}\n" * 8)
    env = {**os.environ, **GIT}
    for words in (("init", "-q"), ("add", "-A", "--", ":!d0"), ("commit", "-qm", "most"), ("add", "-A"), ("commit", "-qm", "rest")):
        subprocess.run(["git", "-C", top, *words], env=env, check=True)
    time.sleep(1.1)  # files that are as new as the index are read again
    subprocess.run(["git", "-C", top, "status"], env=env, check=True, stdout=subprocess.DEVNULL)


class Bench:
    def __init__(self, top, count):
        from carrel import Carrel, PROGRAM
        self.top, self.tree, self.copies, self.program = top, top / "tree", 0, PROGRAM
        self.host = Carrel()
        self.env = {**self.host.env, **GIT}
        make_tree(self.tree, count)
        change = "printf X | dd of=/home/user/tree/d3/f3 conv=notrunc bs=1 2>/dev/null"
        for name, grant, suffix in (("dir", "--dir", ""), ("repo", "--repo", ""), ("dirty", "--repo", ":dirty"), ("copy", "--dir", "")):
            loose = self.tree / "loose"
            if suffix:
                loose.write_text("untracked\n")
            self.carrel("new", "--name", name, "--disk", "8G", grant, f"{self.tree}:/home/user/tree{suffix}")
            loose.unlink(missing_ok=True)
            self.carrel("exec", name, "--", "sh", "-c", change)
        self.fork = self.carrel("fork", "-q", "repo").strip()
        self.carrel("exec", self.fork, "--", "sh", "-c", change.replace("f3", "f4"))

    def run(self, *words, **kw):
        return subprocess.run([str(w) for w in words], env=self.env, check=True, capture_output=True, **kw)

    def carrel(self, *words):
        return self.run(self.program, *words).stdout.decode()

    def fresh(self):
        self.copies += 1
        to = self.top / f"copy{self.copies}"
        to.mkdir()
        return to

    def git_status(self):
        self.run("git", "-C", self.tree, "status")

    def diff(self, name):
        shown = self.carrel("diff", name)
        if "d3/f3" not in shown:
            sys.exit(f"carrel diff {name} shows no change:\n{shown}")

    def tar(self):
        self.run("sh", "-c", f"tar c -C {self.tree} . | tar x -C {self.fresh()}")

    def copy_out(self):
        self.carrel("cp", "-q", "copy:/home/user/tree", self.fresh() / "tree")

    def copy_in(self):
        self.copies += 1
        self.carrel("cp", "-q", self.tree, f"copy:/home/user/copy{self.copies}")

    def measures(self, only):
        """A machine that copies went into has them among its own changes, so it is not the one that is reviewed."""
        review = {"git status": self.git_status, "diff": lambda: self.diff("dir"), "diff of a repository": lambda: self.diff("repo"),
                  "diff of a dirty clone": lambda: self.diff("dirty"), "diff of a fork": lambda: self.diff(self.fork)}
        copies = {"tar | tar": self.tar, "cp out": self.copy_out, "cp in": self.copy_in}
        return {**({} if only == "copies" else review), **({} if only == "review" else copies)}


def lines_of(times, count, quick):
    medians = {name: statistics.median(t) for name, t in times.items()}
    out = [f"{count} files, rounds: {len(next(iter(times.values())))}", "", "| measure, ms | min | p50 |", "|---|---|---|"]
    out += [f"| {name} | {min(t) * 1000:.0f} | {medians[name] * 1000:.0f} |" for name, t in times.items()]
    out += ["", "| bar, p50 | limit | measured | verdict |", "|---|---|---|---|"]
    for ours, theirs, bar in BARS:
        if ours not in medians:
            continue
        ratio = medians[ours] / medians[theirs]
        verdict = "not judged" if quick else "pass" if ratio <= bar else "MISS"
        out.append(f"| {ours} / {theirs} | {bar:.2f} x | {ratio:.2f} x | {verdict} |")
    return [line.replace("tar | tar", "tar \\| tar") for line in out]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="400 files, one round: does it still measure?")
    parser.add_argument("--only", choices=["review", "copies"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--table")
    o = parser.parse_args()
    os.environ.setdefault("CARREL_BUILD", str(ROOT / "build"))
    sys.path.insert(0, str(ROOT / "tests"))
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)  # all that is compared, the daemon too
    except PermissionError:
        pass
    count, rounds = (400, 0) if o.quick else (40000, o.rounds)
    top = pathlib.Path(tempfile.mkdtemp(prefix="carrel-review-"))
    bench = None
    try:
        bench = Bench(top, count)
        measures = bench.measures(o.only)
        times = {name: [] for name in measures}
        for n in range(rounds + 1):  # the first one warms caches
            for name in random.sample(list(measures), len(measures)):
                began = time.monotonic()
                measures[name]()
                if n or o.quick:
                    times[name].append(time.monotonic() - began)
    finally:
        if bench:
            bench.host.stop()
        shutil.rmtree(top, ignore_errors=True)
    lines = lines_of(times, count, o.quick)
    print("\n".join(lines))
    if o.table:
        pathlib.Path(o.table).write_text("\n".join(lines) + "\n")


main()
