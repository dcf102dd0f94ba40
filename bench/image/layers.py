#!/usr/bin/python3
"""Image layers: an image of a machine with one changed file, a build of two trivial steps, the same build again, and an
import of a second image with the same base.

The peer is `cp -a` of the tree that the image was imported from. Each round runs all of them, so that they share the
state of the disk. Bytes are the growth of the directory of images, per step of a build that writes 4 MiB, and the size of the
layers that the second import added, whose own layer has 4 MiB.
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

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "daemon"), str(TESTS / "image")]
FILES, BYTES, CHANGED = 9000, 156 << 20, 4 << 20


def make_tree(where, files, size):
    """A shell with its tools, and files of uneven sizes that add up to `size`."""
    from trees import small_tree
    small_tree(where)
    rng, top = random.Random(1), where / "tree"
    for i in range(files):
        path = top / f"data/{i % 60}/{i % 7}/{i}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(int(size / files * rng.uniform(0.1, 1.9))))
    (top / "changes").write_bytes(rng.randbytes(CHANGED))
    subprocess.run(["tar", "-C", top, "--owner=0", "--group=0", "-cf", where / "tree.tar", "."], check=True)
    return top


def timed(fn, *args):
    began = time.monotonic()
    fn(*args)
    return time.monotonic() - began


class Bench:
    def __init__(self, daemon, where, program):
        self.daemon, self.where, self.program = daemon, where, program
        self.env = {"PATH": os.environ["PATH"], "CARREL_HOME": str(daemon.home), "CARREL_RUN": str(daemon.run_dir)}

    def cli(self, *words):
        subprocess.run([self.program, *map(str, words)], env=self.env, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    def copy(self):
        subprocess.run(["cp", "-a", self.where / "tree", self.where / "copy"], check=True)

    def build(self, text):
        recipe = self.where / "recipe"
        recipe.write_text(text)
        self.cli("image", "build", recipe, "--name", "built", "-q")

    def held(self):
        """Bytes of all images on the disk."""
        return sum(p.lstat().st_blocks * 512 for p in (self.daemon.home / "images").rglob("*"))

    def round(self, i):
        two = f"base tree\nrun echo {i} >/one\nrun echo {i} >/two\n"
        self.cli("exec", "-u", "root", "m", "--", "sh", "-c", f"echo {i} >/changed")
        took = {"cp": timed(self.copy), "snap": timed(self.cli, "snap", "m", "--image", f"snap{i}"),
                "build": timed(self.build, two), "again": timed(self.build, two)}
        shutil.rmtree(self.where / "copy")
        return took

    def bytes_of_a_step(self):
        before = self.held()
        self.build("base tree\nrun cp /changes /more1\nrun cp /changes /more2\n")
        return (self.held() - before) / 2

    def stored(self):
        return {p for p in (self.daemon.home / "images").iterdir() if p.name.startswith("i-")}

    def second_import(self):
        """Bytes of an import that shares its base with another one."""
        from trees import archive, entry, layout
        base, rng = (self.where / "tree.tar").read_bytes(), random.Random(2)
        for name in ("first", "second"):
            (self.where / name).write_bytes(layout([base, archive(entry("own", rng.randbytes(CHANGED)))]))
        self.cli("image", "import", self.where / "first", "--name", "first")
        before = self.stored()
        self.cli("image", "import", self.where / "second", "--name", "second")
        new = [p for top in self.stored() - before for p in (top, *top.rglob("*"))]
        return sum(p.lstat().st_blocks * 512 for p in new)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small tree and one round: does it still measure?")
    parser.add_argument("--table")
    o = parser.parse_args()
    os.environ.setdefault("CARREL_BUILD", str(pathlib.Path(__file__).resolve().parents[2] / "build"))
    from carrel import PROGRAM
    from daemon import Daemon
    where = pathlib.Path(tempfile.mkdtemp(prefix="ci-", dir="/tmp"))
    make_tree(where, *((300, 8 << 20) if o.quick else (FILES, BYTES)))
    daemon = Daemon()
    try:
        b = Bench(daemon, where, PROGRAM)
        b.cli("image", "import", where / "tree.tar", "--name", "tree")
        b.cli("new", "--image", "tree", "--name", "m")
        rounds = [b.round(i) for i in range(1 if o.quick else 7)]
        step = b.bytes_of_a_step()
        second = b.second_import()
    finally:
        daemon.stop()
        shutil.rmtree(where)
    mid = {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
    rows = [("image of a machine, one file changed / cp -a", 0.05, mid["snap"] / mid["cp"], "x"),
            ("build of two trivial steps / cp -a", 0.25, mid["build"] / mid["cp"], "x"),
            ("the same build again / cp -a", 0.02, mid["again"] / mid["cp"], "x"),
            ("written by a step that changes 4 MiB", 2 * CHANGED / 2**20 + 1, step / 2**20, "MiB"),
            ("stored by an import that shares its base, 4 MiB differ", 2 * CHANGED / 2**20 + 1, second / 2**20, "MiB")]
    lines = [f"| {len(rounds)} rounds, cp -a {mid['cp'] * 1000:.0f} ms | bar | measured | |", "|---|---|---|---|"]
    lines += [f"| {what} | {bar:g} {unit} | {got:.3f} {unit} | {'pass' if got <= bar else 'MISS'} |" for what, bar, got, unit in rows]
    print("\n".join(lines))
    if o.table:
        pathlib.Path(o.table).write_text("\n".join(lines) + "\n")
    return 0


sys.exit(main())
