#!/usr/bin/env python3
"""Measure the cell engine beside native code, node's V8, wasm3 and wabt, all in one interleaved run.

Needs gcc, clang, lld, meson; node, wabt and SQLite's source where they can be had. WASM3 in the environment names a
folder with the source of wasm3. Prints Markdown; --out writes it, --json the raw data. --quick with --engine asks only
whether everything still measures.
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
import sqlite

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# name -> n, chosen for about 10 ms of native time on a small machine.
KERNELS = {
    "fib": 33, "sha256": 2000, "sieve": 15, "matmul": 40, "bulk": 100, "json": 150, "icall": 3000,
    "calls": 3000, "vm": 20000, "markdown": 5000, "nbody": 400, "sort": 12, "sqlite": 13,
}
OWN = [k for k in KERNELS if k != "sqlite"]
# The mean that the bar is about: bulk operations and what was added later are left out.
IN_MEAN = [k for k in KERNELS if k not in ("bulk", "sort", "sqlite")]
WABT_KERNELS = ["fib", "sieve", "vm", "markdown"]

# Without contraction, because a module cannot express it and all results must be equal.
CFLAGS = ["-O2", "-std=gnu17", "-ffp-contract=off"]
WASM_FLAGS = ["--target=wasm32", "-nostdlib", "-mbulk-memory", "-msign-ext", "-mnontrapping-fptoint",
              "-Wl,--no-entry"]
WASI_FLAGS = ["--target=wasm32-wasi", "-nostartfiles", *WASM_FLAGS[2:]]
NODE = ["node", "--single-threaded", "--no-wasm-lazy-compilation"]
SKIP = 77  # as meson reads it


class Counts:
    """How often each thing is done."""
    def __init__(self, quick):
        self.first, self.first_node = (200, 50) if quick else (20000, 3000)
        self.validate, self.fork, self.instances = (2, 2, 200) if quick else (30, 20, 10000)
        self.runs = 1 if quick else 3
        self.big = 1 << (16 if quick else 20)
        self.kernel = lambda k: 1 if quick else KERNELS[k]


def sh(*argv, **kw):
    return subprocess.run([str(a) for a in argv], check=True, stdout=subprocess.PIPE, text=True, **kw).stdout.strip()


def build_engine(build, fuel):
    if not (build / "build.ninja").exists():
        build.parent.mkdir(parents=True, exist_ok=True)
        sh("meson", "setup", "--buildtype=release", f"-Dcell_fuel={str(fuel).lower()}", build, ROOT)
    sh("ninja", "-C", build, "bench/cell-bench")
    return build / "bench/cell-bench"


def build_kernels(work):
    for name in [*OWN, "touch"]:
        source = HERE / "kernels" / f"{name}.c"
        sh("clang", *CFLAGS, *WASM_FLAGS, "-o", work / f"{name}.wasm", source)
        if name != "touch":
            sh("gcc", *CFLAGS, "-I", HERE, "-o", work / name, source, HERE / "native.c", "-lm")


def build_sqlite(work):
    """The kernel that needs a library and a libc. Compiling it takes a minute, so it is done once."""
    if (work / "sqlite.wasm").exists() and (work / "sqlite").exists():
        return
    source = sqlite.fetch(work / "sqlite-source")
    flags = [*CFLAGS, *sqlite.FLAGS, "-I", source, "-I", HERE]
    files = [HERE / "kernels/sqlite.c", source / "sqlite3.c"]
    sh("clang", *flags, *WASI_FLAGS, "-o", work / "sqlite.wasm", *files)
    sh("gcc", *flags, "-o", work / "sqlite", *files, HERE / "native.c", "-lm")


def build_wasm3(work):
    """wasm3 with the flags of its own release build; None, with a line that says why, if its source is not there."""
    source = pathlib.Path(os.environ.get("WASM3", "")) / "source"
    if not (source / "wasm3.h").exists():
        print("engine wasm3 is left out: set WASM3 to a checkout of github.com/wasm3/wasm3", file=sys.stderr)
        return None
    native = ["-march=native"] if os.uname().machine == "x86_64" else []
    sh("clang", "-O3", "-fomit-frame-pointer", "-fno-stack-check", "-fno-stack-protector", "-w", *native, "-I", source,
       "-o", work / "wasm3", HERE / "wasm3.c", *sorted(source.glob("m3_*.c")), "-lm")
    return work / "wasm3"


def build_big(work, size):
    """All kernels in one module, its code repeated to about so many bytes."""
    objects = []
    for name in OWN:
        objects.append(work / f"{name}.o")
        sh("clang", *CFLAGS, *WASM_FLAGS[:-1], f"-Drun=run_{name}", f'-DKERNEL_NAME="run_{name}"', "-c", "-o", objects[-1],
           HERE / "kernels" / f"{name}.c")
    sh("wasm-ld", "--no-entry", "-o", work / "all.wasm", *objects)
    (work / "big.wasm").write_bytes(modules.repeated((work / "all.wasm").read_bytes(), size))


def engines(work, cell, cell_no_fuel, wasm3):
    table = {
        "native gcc -O2": lambda k, n: [work / k, n],
        "carrel": lambda k, n: [cell, "run", work / f"{k}.wasm", n],
    }
    if cell_no_fuel:
        table["carrel without fuel"] = lambda k, n: [cell_no_fuel, "run", work / f"{k}.wasm", n]
    if wasm3:
        table["wasm3"] = lambda k, n: [wasm3, work / f"{k}.wasm", n]
    if shutil.which("node"):
        table["V8 TurboFan"] = lambda k, n: [*NODE, "--no-liftoff", HERE / "node.js", "run", work / f"{k}.wasm", n]
        table["V8 Liftoff"] = lambda k, n: [*NODE, "--liftoff-only", HERE / "node.js", "run", work / f"{k}.wasm", n]
    return table


def run_kernels(table, rounds, kernels, counts):
    """Best CPU milliseconds by engine and kernel. A result that differs from native is an error. wasm3 may refuse a
    kernel, as it does SQLite's large functions."""
    best = {e: {} for e in table}
    fuel = {}
    refused = set()
    for r in range(rounds):
        for k in kernels:
            want = None
            for e, command in table.items():
                if (e, k) in refused:
                    continue
                try:
                    result, ms, *rest = sh(*command(k, counts.kernel(k))).split()
                except subprocess.CalledProcessError:
                    if e != "wasm3":
                        raise
                    refused.add((e, k))
                    continue
                want = want or result
                if result != want:
                    sys.exit(f"{e}: {k}({counts.kernel(k)}) gave {result}, native gives {want}")
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


def numbers(*argv):
    return [float(x) for x in sh(*argv).split()]


def in_turn(runs, commands):
    """Medians of what each command prints, over so many runs in turn."""
    lines = {name: [] for name in commands}
    for _ in range(runs):
        for name, argv in commands.items():
            lines[name].append(numbers(*argv))
    return {name: [statistics.median(column) for column in zip(*rows)] for name, rows in lines.items()}


def measure_rest(work, cell, has_node, counts):
    """By measure and engine: a list of numbers, as cell.c and node.js print them."""
    data, offset = modules.tiny()
    (work / "tiny.wasm").write_bytes(data)
    (work / "writes.wasm").write_bytes(modules.tiny(writes=True)[0])
    measures = {
        "first": (["tiny.wasm", offset, counts.first], ["tiny.wasm", offset, counts.first_node], []),
        "validate": (["big.wasm", counts.validate],) * 2 + (["--single-threaded"],),
        "instances": (["tiny.wasm", counts.instances],) * 2 + (["--expose-gc"],),
        "instances that write": (["writes.wasm", counts.instances],) * 2 + (["--expose-gc"],),
    }
    rest = {}
    for name, (own, nodes, flags) in measures.items():
        mode = name.split()[0]
        commands = {"carrel": [cell, mode, work / own[0], *own[1:]]}
        if has_node:
            commands["node"] = ["node", *flags, HERE / "node.js", mode, work / nodes[0], *nodes[1:]]
        rest[name] = in_turn(counts.runs, commands)
    rest["fork"] = {"carrel": numbers(cell, "fork", work / "touch.wasm", counts.fork)}
    return rest


def kernel_table(best, mean_kernels):
    native = best["native gcc -O2"]
    lines = ["|engine|" + "|".join(native) + f"|geomean of {len(mean_kernels)}|", "|---" * (len(native) + 2) + "|"]
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


def bar(name, value, limit=None, at_most=True):
    if limit is None:
        return f"|{name}|{value:.3g}|||"
    met = value <= limit if at_most else value >= limit
    return f"|{name}|{value:.3g}|{'≤' if at_most else '≥'} {limit:g}|{'yes' if met else '**no**'}|"


def against_node(what, unit, own, node, limit, **kw):
    return bar(f"{what}: {own:.3g} {unit}, node {node:.3g} {unit}, ratio", own / node, limit, **kw)


def memory_bars(name, both, limit):
    """Resident pages alone, and with the page tables that map them."""
    own, node = ([pages / 1024, (pages + tables) / 1024] for pages, tables in (both["carrel"], both["node"]))
    return [against_node(f"{name}, resident", "KiB", own[0], node[0], limit),
            against_node(f"{name}, resident and page tables", "KiB", own[1], node[1], limit)]


def wasm3_bars(own, wasm3, mean_kernels):
    ratio = ratios({k: own[k] for k in wasm3}, wasm3)
    worst = max(ratio, key=ratio.get)
    return [bar("interpreter with fuel, × wasm3 (geomean)", geomean([ratio[k] for k in mean_kernels])),
            bar(f"slowest kernel against wasm3: {worst}, × wasm3", ratio[worst], 1.1)]


def node_bars(rest):
    first, validate = rest["first"], rest["validate"]
    return [against_node("bytes → first instruction", "µs", first["carrel"][0], first["node"][0], 0.02),
            against_node("validate 1 MB, median round", "MB/s", validate["carrel"][0], validate["node"][0], 0.8, at_most=False),
            against_node("validate 1 MB, best round", "MB/s", validate["carrel"][1], validate["node"][1], None),
            *memory_bars("a tiny instance", rest["instances"], 0.5),
            *memory_bars("one that wrote to its memory's second half", rest["instances that write"], None)]


def bar_table(best, rest, mean_kernels):
    mean = lambda e: geomean(list(ratios({k: best[e][k] for k in mean_kernels}, best["native gcc -O2"]).values()))
    fork2, first, further = rest["fork"]["carrel"]
    lines = ["|measure|value|bar|met|", "|---|---|---|---|",
             bar("interpreter with fuel, × native (geomean)", mean("carrel"), 6.5)]
    if "wasm3" in best:
        lines += wasm3_bars(best["carrel"], best["wasm3"], mean_kernels)
    if "carrel without fuel" in best:
        lines.append(bar("share of fuel, %", 100 * (mean("carrel") / mean("carrel without fuel") - 1), 8))
    if "node" in rest["first"]:
        lines += node_bars(rest)
    lines += [bar(f"first fork, 16 MB touched: {first:.0f} µs, fork(2) {fork2:.0f} µs, ratio", first / fork2, 1.5),
              bar(f"further fork: {further:.1f} µs, ratio", further / fork2, 0.1)]
    return lines


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kernels", nargs="*", default=list(KERNELS), choices=list(KERNELS))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-bench")
    parser.add_argument("--kernels-only", action="store_true")
    parser.add_argument("--build-only", action="store_true", help="fetch and compile, measure nothing")
    parser.add_argument("--quick", action="store_true", help="smallest sizes, SQLite not fetched")
    parser.add_argument("--engine", type=pathlib.Path, help="a cell-bench that is built already")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def build(args, work, counts):
    """Engines with and without fuel, and wasm3; what cannot be had is left out, with a line that says why."""
    engine = args.engine or build_engine(args.build / "fuel", True)
    engine_no_fuel = None if args.engine else build_engine(args.build / "no-fuel", False)
    build_kernels(work)
    build_big(work, counts.big)
    try:
        if args.quick:
            raise sqlite.Unavailable("not fetched by --quick")
        if "sqlite" in args.kernels:
            build_sqlite(work)
    except sqlite.Unavailable as e:
        args.kernels = [k for k in args.kernels if k != "sqlite"]
        print(f"kernel sqlite is left out: {e}", file=sys.stderr)
    return engine, engine_no_fuel, build_wasm3(work)


def measure(args, work, cell, cell_no_fuel, wasm3, counts):
    mean_kernels = [k for k in args.kernels if k in IN_MEAN]
    best, fuel = run_kernels(engines(work, cell, cell_no_fuel, wasm3), args.rounds, args.kernels, counts)
    if shutil.which("wasm-interp") and not args.kernels_only and not args.quick:
        best["wabt wasm-interp"] = run_wabt(work, args.kernels)
    lines = [f"{os.uname().machine}, {os.cpu_count()} cores; CPU time, best of {args.rounds} interleaved rounds; "
             "ratio to native unless a unit is given.", "", *kernel_table(best, mean_kernels)]
    rest = None
    if not args.kernels_only:
        rest = measure_rest(work, cell, bool(shutil.which("node")), counts)
        lines += ["", *bar_table(best, rest, mean_kernels)]
    return "\n".join(lines) + "\n", {"ms": best, "fuel": fuel, "rest": rest}


def main():
    args = options()
    if not shutil.which("clang") or not shutil.which("wasm-ld"):
        print("skipped: needs clang and lld to make modules of the kernels")
        sys.exit(SKIP)
    work = args.build.resolve() / "work"
    work.mkdir(parents=True, exist_ok=True)
    counts = Counts(args.quick)
    cells = build(args, work, counts)
    if args.build_only:
        return
    text, raw = measure(args, work, *cells, counts)
    print(text)
    if args.out:
        args.out.write_text(text)
    if args.json:
        args.json.write_text(json.dumps(raw, indent=1))


if __name__ == "__main__":
    main()
