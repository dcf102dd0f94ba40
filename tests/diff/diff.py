#!/usr/bin/env python3
"""Random valid modules, run by this engine and by others: what they say must be equal.

  diff.py v8    RUNNER          against node's V8: results, logs, traps, memory
  diff.py cut   RUNNER          against itself in random slices with capture, resume and fork: fuel and store hash too
  diff.py cross RUNNER OTHER…   against the same runner for another CPU (a command): fuel and store hash too
  diff.py all   RUNNER OTHER…   all of these; without OTHER, not the last

--seeds A:B picks the modules; the same seed is the same module. --seconds stops early. Exit 77 is a skip.
Modules come from wasm-opt -ttf, or with --maker 30 from gen30.py: WebAssembly 3.0, for which V8 must be that of
node 24 or newer (node24.py), or with --maker chain from genchain.py: plain code in long chains. --jobs runs so many batches at once.
--state FILE notes finished batches in FILE; the same command goes on from there after an interruption, as long as the
runner and these scripts are the same.
CARREL_SOAK=1 draws new seeds, prints them, and goes on for five minutes. CARREL_MODULES=N and CARREL_SEED=S run the
modules of gen30.py from S on, N of them, on all CPUs, with a state file beside the runner (make diff30).
"""
import argparse
import concurrent.futures
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import gen30
import genchain
import node24

HERE = pathlib.Path(__file__).resolve().parent
FEATURES = ["--enable-bulk-memory", "--enable-multivalue", "--enable-sign-ext",
            "--enable-nontrapping-float-to-int", "--enable-mutable-globals"]
BATCH = {"ttf": 25, "30": 200, "chain": 100}  # modules per process
PROGRESS_S = 5

# The specification's words for a trap -> the class that the other engine can tell apart.
CLASSES = {
    "out of bounds table access": "table", "undefined element": "table",
    "uninitialized element": "indirect call", "indirect call type mismatch": "indirect call",
    "invalid conversion to integer": "float range",
    **{f"null {what} reference": "null reference" for what in ("structure", "array", "i31", "function", "exception")},
}
# Both engines trap, for another reason. An overflow of a float conversion and of a division share our text but not V8's.
# The specification does not order the reasons of one instruction: if array.copy has a null reference and an index out of
# bounds, V8 names the index and we the null; if array.init_data leaves both the array and the segment, V8 names the segment.
SAME_TRAPS = {("trap integer overflow", "trap float range"), ("trap null reference", "trap out of bounds array access"),
              ("trap out of bounds array access", "trap out of bounds memory access")}


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def make_ttf(seed):
    """Every third module has SIMD; sizes vary."""
    rng = random.Random(seed)
    simd = ["--enable-simd"] if seed % 3 == 0 else []
    with tempfile.TemporaryDirectory() as name:
        source, target = pathlib.Path(name, "in"), pathlib.Path(name, "out")
        source.write_bytes(rng.randbytes(rng.choice([300, 1000, 3000, 8000])))
        subprocess.run(["wasm-opt", "-ttf", "--denan", *FEATURES, *simd, source, "-o", target],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return target.read_bytes()


MAKERS = {"ttf": make_ttf, "30": gen30.module, "chain": genchain.module}


def transcript(command, records):
    """Runs a command over records on its standard input: the lines that it printed, by seed."""
    done = subprocess.run([str(c) for c in command], input=b"".join(records), stdout=subprocess.PIPE, timeout=600)
    if done.returncode != 0:
        print(f"{command[0]}: exit status {done.returncode}")
    return by_module(done.stdout.decode())


def by_module(text):
    parts = {}
    for line in text.splitlines():
        if line.startswith("module "):
            lines = parts.setdefault(int(line[7:]), [])
        elif line:
            lines.append(line)
    return parts


def common(lines, keep_numbers):
    """What both sides must agree on. After an exhausted stack nothing is comparable."""
    out = []
    for line in lines:
        if line.startswith("=") and not keep_numbers:
            continue
        if line in ("log ref", "log null"):
            continue  # a v128: the trap that follows says so
        if line.startswith("trap "):
            text = line[5:]
            if text == "call stack exhausted" and not keep_numbers:
                break
            line = "trap " + (text if keep_numbers else CLASSES.get(text, text))
        out.append(line)
    return out


def first_difference(ours, theirs, keep_numbers):
    a, b = common(ours, keep_numbers), common(theirs, keep_numbers)
    for i in range(max(len(a), len(b))):
        x, y = (a[i] if i < len(a) else "(end)"), (b[i] if i < len(b) else "(end)")
        if x != y and (keep_numbers or (x, y) not in SAME_TRAPS):
            return f"line {i}: here '{x}', there '{y}'"
    return None


def has_vector_floats(module):
    """NaN payloads in vector lanes are the engine's choice, and --denan does not reach them."""
    with tempfile.NamedTemporaryFile(suffix=".wasm") as f:
        f.write(module)
        f.flush()
        text = subprocess.run(["wasm-opt", *FEATURES, "--enable-simd", f.name, "--print"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True).stdout
    return re.search(r"f(32x4|64x2)\.(add|sub|mul|div|min|max|sqrt|ceil|floor|trunc|nearest|promote|demote)", text)


def own_side(command, modules):
    return transcript(command, [b"%d %d\n%s" % (seed, len(module), module) for seed, module in modules.items()])


def v8_side(args, modules, mine):
    """V8 replays the calls of our transcript."""
    texts = {seed: "\n".join(mine.get(seed, [])).encode() for seed in modules}
    return transcript([args.node, HERE / "diff_v8.js"], [b"%d %d %d\n%s%s" % (seed, len(module), len(texts[seed]), module, texts[seed])
                                                       for seed, module in modules.items()])


def other_side(args, mode, modules, mine):
    if mode == "v8":
        return v8_side(args, modules, mine)
    return own_side([args.runner, "--cut"] if mode == "cut" else args.other, modules)


def run_batch(args, seeds):
    """What differs, as lines."""
    modules = {seed: MAKERS[args.maker](seed) for seed in seeds}
    mine, found = own_side([args.runner], modules), []
    for mode in args.modes:
        theirs = other_side(args, mode, modules, mine)
        for seed, module in modules.items():
            difference = first_difference(mine.get(seed, []), theirs.get(seed, []), mode != "v8")
            if difference is None and not mine.get(seed):
                difference = "no transcript"
            if difference and not (mode == "v8" and args.maker == "ttf" and has_vector_floats(module)):
                found.append(f"seed {seed}: {mode}: {difference}")
    return found


class State:
    """The finished batches of an interrupted run, in a file: a line that says what runs, then a line per batch."""
    def __init__(self, args, first, last):
        self.path, self.found = args.state, {}
        if not self.path:
            return
        files = [args.runner, *sorted(HERE.glob("*.py")), *sorted(HERE.glob("*.js"))]
        digest = hashlib.sha256(b"".join(hashlib.sha256(f.read_bytes()).digest() for f in files)).hexdigest()
        head = json.dumps([args.mode, args.maker, first, last, BATCH[args.maker], args.other, digest])
        lines = self.path.read_text().split("\n") if self.path.exists() else []
        if lines[:1] == [head]:
            # The last line is not complete if the run ended while it was written.
            self.found = dict(json.loads(line) for line in lines[1:-1])
        self.path.write_text("\n".join([head, *(json.dumps(row) for row in self.found.items())]) + "\n")

    def add(self, start, found):
        if self.path:
            with self.path.open("a") as f:
                f.write(json.dumps([start, found]) + "\n")

    def end(self):
        if self.path:
            self.path.unlink()


class Tally:
    """How many modules ran and differ, and the lines that say so."""
    def __init__(self, total, show):
        self.total, self.show, self.done, self.bad = total, show, 0, 0
        self.began = self.shown = time.monotonic()
        self.before = 0  # modules of the run that this one goes on with

    def add(self, count, found):
        self.done += count
        self.bad += len(found)
        for line in found:
            print(line, flush=True)
        now = time.monotonic()
        if self.show and now - self.shown >= PROGRESS_S:
            self.shown = now
            rate = (self.done - self.before) / (now - self.began)
            print(f"{self.done} of {self.total} modules, {rate:.0f} per second, {self.bad} differ", flush=True)

    def resume(self, count, found):
        self.add(count, found)
        self.before = self.done


def run_batches(args, first, last):
    """Runs batches until the last seed or the deadline; returns how many modules ran, and how many differ."""
    deadline, size = time.monotonic() + args.seconds, BATCH[args.maker]
    state, tally = State(args, first, last), Tally(last - first, args.progress)
    ranges = [range(start, min(start + size, last)) for start in range(first, last, size)]
    for b in ranges:
        if b.start in state.found:
            tally.resume(len(b), state.found[b.start])
    if tally.before:
        print(f"{tally.before} modules ran before", flush=True)
    batches = iter([b for b in ranges if b.start not in state.found])
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        waiting = {pool.submit(run_batch, args, b): b for b in itertools.islice(batches, args.jobs)}
        while waiting:
            ended, _ = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ended:
                b = waiting.pop(future)
                state.add(b.start, future.result())
                tally.add(len(b), future.result())
                more = list(itertools.islice(batches, 1)) if time.monotonic() < deadline else []
                waiting.update({pool.submit(run_batch, args, b): b for b in more})
    state.end()
    return tally.done, tally.bad


def need_tools(args):
    args.modes = {"all": ["v8", "cut"] + ["cross"] * bool(args.other)}.get(args.mode, [args.mode])
    args.node = (node24.find() if args.maker == "30" else shutil.which("node")) if "v8" in args.modes else None
    if "v8" in args.modes and not args.node:
        skip("no node here" if args.maker != "30" else "no node 24 or newer here, and npm's registry does not answer")
    for tool in {"ttf": ["wasm-opt"], "30": [], "chain": []}[args.maker] + args.other[:1]:
        if not shutil.which(tool):
            skip(f"no {tool} here")


def draw_seeds(args):
    first, last = map(int, args.seeds.split(":"))
    if os.environ.get("CARREL_SOAK"):
        first = random.SystemRandom().randrange(10**6, 10**9)
        last, args.seconds = first + 10**6, 300
        print(f"seeds from {first}")
    if os.environ.get("CARREL_MODULES") and args.maker == "30":
        first = int(os.environ.get("CARREL_SEED") or first)
        last = first + int(os.environ["CARREL_MODULES"])
        args.seconds, args.jobs, args.progress = float("inf"), len(os.sched_getaffinity(0)), True
        args.state = args.runner.resolve().parent / f"diff30-{args.mode}.state"
    return first, last


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["v8", "cut", "cross", "all"])
    parser.add_argument("runner", type=pathlib.Path)
    parser.add_argument("other", nargs="*")
    parser.add_argument("--seeds", default="1:150")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--state", type=pathlib.Path)
    parser.add_argument("--maker", choices=["ttf", "30", "chain"], default="ttf")
    args = parser.parse_args()
    need_tools(args)
    first, last = draw_seeds(args)
    done, bad = run_batches(args, first, last)
    print(f"{args.mode}: {done} modules, {bad} differ")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
