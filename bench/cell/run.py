#!/usr/bin/env python3
"""Measure the cell engine beside native code, node's V8 and wabt, all in one interleaved run.

Needs gcc, clang, lld, meson; node and wabt where present. Prints Markdown; --out writes it, --json the raw data.
"""
import argparse
import json
import math
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys

import modules

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# name -> n, chosen for about 10 ms of native time on a small machine.
KERNELS = {
    "fib": 33, "sha256": 2000, "sieve": 15, "matmul": 40, "bulk": 100, "json": 150, "icall": 3000,
    "calls": 3000, "vm": 20000, "markdown": 5000, "nbody": 400, "sort": 12,
}
# The mean that the bar is about: bulk operations and the sort, a later addition, are left out.
IN_MEAN = [k for k in KERNELS if k not in ("bulk", "sort")]
WABT_KERNELS = ["fib", "sieve", "vm", "markdown"]

# Without contraction, because a module cannot express it and all results must be equal.
CFLAGS = ["-O2", "-std=gnu17", "-ffp-contract=off"]
WASM_FLAGS = ["--target=wasm32", "-nostdlib", "-mbulk-memory", "-msign-ext", "-mnontrapping-fptoint",
              "-Wl,--no-entry"]
NODE = ["node", "--single-threaded", "--no-wasm-lazy-compilation"]


def sh(*argv, **kw):
    return subprocess.run([str(a) for a in argv], check=True, stdout=subprocess.PIPE, text=True, **kw).stdout.strip()


def build_engine(build, fuel):
    if not (build / "build.ninja").exists():
        sh("meson", "setup", "--buildtype=release", f"-Dcell_fuel={str(fuel).lower()}", build, ROOT)
    sh("ninja", "-C", build, "bench/cell-bench")
    return build / "bench/cell-bench"


def build_kernels(work):
    for name in [*KERNELS, "touch"]:
        source = HERE / "kernels" / f"{name}.c"
        sh("clang", *CFLAGS, *WASM_FLAGS, "-o", work / f"{name}.wasm", source)
        if name != "touch":
            sh("gcc", *CFLAGS, "-I", HERE, "-o", work / name, source, HERE / "native.c", "-lm")


def build_big(work):
    """All kernels in one module, its code repeated to a megabyte."""
    objects = []
    for name in KERNELS:
        objects.append(work / f"{name}.o")
        sh("clang", *CFLAGS, *WASM_FLAGS[:-1], f"-Drun=run_{name}", f'-DKERNEL_NAME="run_{name}"', "-c", "-o", objects[-1],
           HERE / "kernels" / f"{name}.c")
    sh("wasm-ld", "--no-entry", "-o", work / "all.wasm", *objects)
    (work / "big.wasm").write_bytes(modules.repeated((work / "all.wasm").read_bytes(), 1 << 20))


def engines(work, cell, cell_no_fuel):
    table = {
        "native gcc -O2": lambda k, n: [work / k, n],
        "carrel": lambda k, n: [cell, "run", work / f"{k}.wasm", n],
        "carrel without fuel": lambda k, n: [cell_no_fuel, "run", work / f"{k}.wasm", n],
    }
    if shutil.which("node"):
        table["V8 TurboFan"] = lambda k, n: [*NODE, "--no-liftoff", HERE / "node.js", "run", work / f"{k}.wasm", n]
        table["V8 Liftoff"] = lambda k, n: [*NODE, "--liftoff-only", HERE / "node.js", "run", work / f"{k}.wasm", n]
    return table


def run_kernels(table, rounds, kernels):
    """Best CPU milliseconds by engine and kernel. A result that differs from native is an error."""
    best = {e: {} for e in table}
    fuel = {}
    for r in range(rounds):
        for k in kernels:
            want = None
            for e, command in table.items():
                result, ms, *rest = sh(*command(k, KERNELS[k])).split()
                want = want or result
                if result != want:
                    sys.exit(f"{e}: {k}({KERNELS[k]}) gave {result}, native gives {want}")
                best[e][k] = min(best[e].get(k, math.inf), float(ms))
                if e == "carrel":
                    fuel[k] = int(rest[0])
        print(f"round {r + 1} of {rounds}", file=sys.stderr)
    return best, fuel


def run_wabt(work, kernels):
    """Whole-process user time, once: it is two orders of magnitude slower."""
    times = {}
    for k in [k for k in WABT_KERNELS if k in kernels]:
        module = work / f"{k}-n.wasm"
        sh("clang", *CFLAGS, *WASM_FLAGS, f"-DKERNEL_N={KERNELS[k]}", "-o", module, HERE / "kernels" / f"{k}.c")
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        sh("wasm-interp", module, "--run-all-exports")
        times[k] = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before) * 1e3
    return times


def geomean(values):
    return math.exp(statistics.fmean(math.log(v) for v in values))


def ratios(best, native):
    return {k: ms / native[k] for k, ms in best.items()}


def measure_rest(work, cell, has_node):
    data, offset = modules.tiny()
    (work / "tiny.wasm").write_bytes(data)
    node = lambda *a: float(sh("node", *a)) if has_node else None
    rest = {}
    rest["first_us"] = float(sh(cell, "first", work / "tiny.wasm", offset, 20000))
    rest["first_node_us"] = node(HERE / "node.js", "first", work / "tiny.wasm", offset, 3000)
    rest["validate_mb_s"] = float(sh(cell, "validate", work / "big.wasm", 30))
    rest["validate_node_mb_s"] = node("--single-threaded", HERE / "node.js", "validate", work / "big.wasm", 30)
    rest["fork_us"] = [float(x) for x in sh(cell, "fork", work / "touch.wasm", 20).split()]
    rest["instance_bytes"] = float(sh(cell, "instances", work / "tiny.wasm", 2000))
    rest["instance_node_bytes"] = node("--expose-gc", HERE / "node.js", "instances", work / "tiny.wasm", 2000)
    return rest


def kernel_table(best, mean_kernels):
    native = best["native gcc -O2"]
    lines = ["|engine|" + "|".join(native) + "|geomean without bulk and sort|", "|---" * (len(native) + 2) + "|"]
    lines.append("|native gcc -O2 (ms)|" + "|".join(f"{ms:.1f}" for ms in native.values()) + "|1|")
    for e, times in best.items():
        if e == "native gcc -O2":
            continue
        r = ratios(times, native)
        mean = [r[k] for k in mean_kernels if k in r]
        star = "" if len(mean) == len(mean_kernels) else f" (of {len(mean)})"
        lines.append(f"|{e}|" + "|".join(f"{r[k]:.2f}" if k in r else "-" for k in native) +
                     f"|{geomean(mean):.2f}{star}|" if mean else f"|{e}|")
    return lines


def bar(name, value, limit, at_most=True):
    met = value <= limit if at_most else value >= limit
    return f"|{name}|{value:.3g}|{'≤' if at_most else '≥'} {limit:g}|{'yes' if met else '**no**'}|"


def bar_table(best, rest, mean_kernels):
    mean = lambda e: geomean(list(ratios({k: best[e][k] for k in mean_kernels}, best["native gcc -O2"]).values()))
    fork2, first, further = rest["fork_us"]
    lines = ["|measure|value|bar|met|", "|---|---|---|---|",
             bar("interpreter with fuel, × native (geomean)", mean("carrel"), 15),
             bar("share of fuel, %", 100 * (mean("carrel") / mean("carrel without fuel") - 1), 8)]
    if rest["first_node_us"]:
        lines += [bar(f"bytes → first instruction: {rest['first_us']:.1f} µs, node {rest['first_node_us']:.1f} µs, ratio",
                      rest["first_us"] / rest["first_node_us"], 0.1),
                  bar(f"validate 1 MB: {rest['validate_mb_s']:.0f} MB/s, node {rest['validate_node_mb_s']:.0f} MB/s, ratio",
                      rest["validate_mb_s"] / rest["validate_node_mb_s"], 0.8, at_most=False),
                  bar(f"memory of a tiny instance: {rest['instance_bytes'] / 1024:.1f} KiB, "
                      f"node {rest['instance_node_bytes'] / 1024:.1f} KiB, ratio",
                      rest["instance_bytes"] / rest["instance_node_bytes"], 0.5)]
    lines += [bar(f"first fork, 16 MB touched: {first:.0f} µs, fork(2) {fork2:.0f} µs, ratio", first / fork2, 1.5),
              bar(f"further fork: {further:.1f} µs, ratio", further / fork2, 0.1)]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kernels", nargs="*", default=list(KERNELS), choices=list(KERNELS))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-bench")
    parser.add_argument("--kernels-only", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    mean_kernels = [k for k in args.kernels if k in IN_MEAN]

    work = args.build / "work"
    work.mkdir(parents=True, exist_ok=True)
    cell = build_engine(args.build / "fuel", True)
    cell_no_fuel = build_engine(args.build / "no-fuel", False)
    build_kernels(work)
    build_big(work)
    best, fuel = run_kernels(engines(work, cell, cell_no_fuel), args.rounds, args.kernels)
    if shutil.which("wasm-interp") and not args.kernels_only:
        best["wabt wasm-interp"] = run_wabt(work, args.kernels)
    lines = [f"{os.uname().machine}, {os.cpu_count()} cores; CPU time, best of {args.rounds} interleaved rounds; "
             "ratio to native unless a unit is given.", "", *kernel_table(best, mean_kernels)]
    rest = None
    if not args.kernels_only:
        rest = measure_rest(work, cell, bool(shutil.which("node")))
        lines += ["", *bar_table(best, rest, mean_kernels)]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        args.out.write_text(text)
    if args.json:
        args.json.write_text(json.dumps({"ms": best, "fuel": fuel, "rest": rest}, indent=1))


if __name__ == "__main__":
    main()
