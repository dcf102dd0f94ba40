#!/usr/bin/env python3
"""Random valid modules, run by this engine and by others: what they say must be equal.

  diff.py v8    RUNNER          against node's V8: results, logs, traps, memory
  diff.py cut   RUNNER          against itself in random slices with capture, resume and fork: fuel and store hash too
  diff.py cross RUNNER OTHER…   against the same runner for another CPU (a command): fuel and store hash too
  diff.py all   RUNNER OTHER…   all of these; without OTHER, not the last

--seeds A:B picks the modules; the same seed is the same module. --seconds stops early. Exit 77 is a skip.
Modules come from wasm-opt -ttf, or with --maker 30 from gen30.py: WebAssembly 3.0, for which V8 must be that of
node 24 or newer (node24.py), or with --maker chain from genchain.py: plain code in long chains. --jobs runs so many batches at once.
CARREL_SOAK=1 draws new seeds, prints them, and goes on for five minutes. CARREL_MODULES=N and CARREL_SEED=S run the
modules of gen30.py from S on, N of them, on all CPUs (make diff30).
"""
import argparse
import concurrent.futures
import itertools
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


def make_module_30(seed, directory):
    target = directory / f"{seed}.wasm"
    target.write_bytes(gen30.module(seed))
    return target


def make_module_chain(seed, directory):
    target = directory / f"{seed}.wasm"
    target.write_bytes(genchain.module(seed))
    return target


def make_module(seed, directory):
    """Every third module has SIMD; sizes vary."""
    rng = random.Random(seed)
    source, target = directory / f"{seed}.in", directory / f"{seed}.wasm"
    source.write_bytes(rng.randbytes(rng.choice([300, 1000, 3000, 8000])))
    simd = ["--enable-simd"] if seed % 3 == 0 else []
    subprocess.run(["wasm-opt", "-ttf", "--denan", *FEATURES, *simd, source, "-o", target],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    source.unlink()
    return target


def transcript(command, stdin=None):
    done = subprocess.run([str(c) for c in command], input=stdin, stdout=subprocess.PIPE, text=True, timeout=600)
    if done.returncode != 0:
        print(f"{command[0]}: exit status {done.returncode}")
    return done.stdout


def by_module(text):
    parts = {}
    for line in text.splitlines():
        if line.startswith("module "):
            lines = parts.setdefault(line[7:], [])
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
    text = subprocess.run(["wasm-opt", *FEATURES, "--enable-simd", module, "--print"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True).stdout
    return re.search(r"f(32x4|64x2)\.(add|sub|mul|div|min|max|sqrt|ceil|floor|trunc|nearest|promote|demote)", text)


def other_side(args, mode, modules, ours):
    if mode == "v8":
        return transcript([args.node, HERE / "diff_v8.js", modules[0].parent], stdin=ours)
    if mode == "cut":
        return transcript([args.runner, "--cut", modules[0].stem, *modules])
    return transcript([*args.other, *modules])


def compare_batch(args, modules):
    """What differs, as lines."""
    ours = transcript([args.runner, *modules])
    mine, found = by_module(ours), []
    for mode in args.modes:
        theirs = by_module(other_side(args, mode, modules, ours))
        for module in modules:
            difference = first_difference(mine.get(module.name, []), theirs.get(module.name, []), mode != "v8")
            if difference is None and not mine.get(module.name):
                difference = "no transcript"
            if difference and not (mode == "v8" and args.maker == "ttf" and has_vector_floats(module)):
                found.append(f"seed {module.stem}: {mode}: {difference}")
    return found


def run_batch(args, seeds):
    make = {"ttf": make_module, "30": make_module_30, "chain": make_module_chain}[args.maker]
    with tempfile.TemporaryDirectory() as name:
        return compare_batch(args, [make(s, pathlib.Path(name)) for s in seeds])


def run_batches(args, first, last):
    """Runs batches until the last seed or the deadline; returns how many modules ran, and how many differ."""
    deadline, done, bad = time.monotonic() + args.seconds, 0, 0
    size = BATCH[args.maker]
    batches = iter([range(start, min(start + size, last)) for start in range(first, last, size)])
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        waiting = {pool.submit(run_batch, args, b): len(b) for b in itertools.islice(batches, args.jobs)}
        while waiting:
            ended, _ = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ended:
                done += waiting.pop(future)
                bad += len(future.result())
                print(*future.result(), sep="\n", end="\n" if future.result() else "", flush=True)
                more = list(itertools.islice(batches, 1)) if time.monotonic() < deadline else []
                waiting.update({pool.submit(run_batch, args, b): len(b) for b in more})
            if args.progress:
                print(f"{done} modules", flush=True)
    return done, bad


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
    parser.add_argument("--maker", choices=["ttf", "30", "chain"], default="ttf")
    args = parser.parse_args()
    need_tools(args)
    first, last = draw_seeds(args)
    done, bad = run_batches(args, first, last)
    print(f"{args.mode}: {done} modules, {bad} differ")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
