#!/usr/bin/env python3
"""Random valid modules (wasm-opt -ttf), run by this engine and by others: what they say must be equal.

  diff.py v8    RUNNER          against node's V8: results, logs, traps, memory
  diff.py cut   RUNNER          against itself in random slices with capture, resume and fork: fuel and store hash too
  diff.py cross RUNNER OTHER…   against the same runner for another CPU (a command): fuel and store hash too

--seeds A:B picks the modules; the same seed is the same module. --seconds stops early. Exit 77 is a skip.
"""
import argparse
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
FEATURES = ["--enable-bulk-memory", "--enable-multivalue", "--enable-sign-ext",
            "--enable-nontrapping-float-to-int", "--enable-mutable-globals"]
BATCH = 25

# The specification's words for a trap -> the class that the other engine can tell apart.
CLASSES = {
    "out of bounds table access": "table", "undefined element": "table",
    "uninitialized element": "indirect call", "indirect call type mismatch": "indirect call",
    "invalid conversion to integer": "float range",
}


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


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
        # An overflow of a float conversion and of a division share our text but not V8's.
        if x != y and not (x == "trap integer overflow" and y == "trap float range"):
            return f"line {i}: here '{x}', there '{y}'"
    return None


def has_vector_floats(module):
    """NaN payloads in vector lanes are the engine's choice, and --denan does not reach them."""
    text = subprocess.run(["wasm-opt", *FEATURES, "--enable-simd", module, "--print"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True).stdout
    return re.search(r"f(32x4|64x2)\.(add|sub|mul|div|min|max|sqrt|ceil|floor|trunc|nearest|promote|demote)", text)


def other_side(args, modules, ours):
    if args.mode == "v8":
        return transcript(["node", HERE / "diff_v8.js", modules[0].parent], stdin=ours)
    if args.mode == "cut":
        return transcript([args.runner, "--cut", args.seed_of_cut, *modules])
    return transcript([*args.other, *modules])


def compare_batch(args, modules):
    ours = transcript([args.runner, *modules])
    mine, theirs = by_module(ours), by_module(other_side(args, modules, ours))
    bad = 0
    for module in modules:
        difference = first_difference(mine.get(module.name, []), theirs.get(module.name, []), args.mode != "v8")
        if difference is None and not mine.get(module.name):
            difference = "no transcript"
        if difference and not (args.mode == "v8" and has_vector_floats(module)):
            print(f"seed {module.stem}: {difference}")
            bad += 1
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["v8", "cut", "cross"])
    parser.add_argument("runner", type=pathlib.Path)
    parser.add_argument("other", nargs="*")
    parser.add_argument("--seeds", default="1:150")
    parser.add_argument("--seconds", type=float, default=15)
    args = parser.parse_args()
    for tool in ["wasm-opt"] + (["node"] if args.mode == "v8" else args.other[:1]):
        if not shutil.which(tool):
            skip(f"no {tool} here")
    first, last = map(int, args.seeds.split(":"))
    args.seed_of_cut = first
    deadline, done, bad = time.monotonic() + args.seconds, 0, 0
    with tempfile.TemporaryDirectory() as name:
        for start in range(first, last, BATCH):
            if time.monotonic() > deadline:
                break
            modules = [make_module(s, pathlib.Path(name)) for s in range(start, min(start + BATCH, last))]
            bad += compare_batch(args, modules)
            done += len(modules)
    print(f"{args.mode}: {done} modules, {bad} differ")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
