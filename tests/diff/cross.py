#!/usr/bin/env python3
"""The engine on the other CPU architecture (cross gcc, qemu-user) must say what it says here, to the bit.

  cross.py --work DIR --sweep LOCAL_SWEEP --runner LOCAL_RUNNER SOURCE…   [-- arguments for diff.py]

Compares every numeric function (num_sweep), then random modules of both makers (diff.py cross). Exit 77 is a skip.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
OTHER = {"aarch64": "x86_64", "x86_64": "aarch64"}
FLAGS = ["-std=gnu17", "-D_GNU_SOURCE", "-ffp-contract=off", "-fno-math-errno"]
SWEPT = ("/num.c", "/simd.c")  # at -O2, as they are shipped; the rest at -O1, which compiles in a fifth of the time


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def build(cc, level, output, sources):
    if output.exists() and all(output.stat().st_mtime > s.stat().st_mtime for s in SOURCE.rglob("*.[chd]*")):
        return output
    subprocess.run([cc, *FLAGS, level, "-I", SOURCE, "-o", output, *sources, "-lm"], check=True)
    return output


def output_of(command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def compare_sweeps(local, other):
    here, there = output_of(local), output_of(other)
    different = [a.split()[0] for a, b in zip(here, there) if a != b]
    print(f"sweep: {len(here)} functions, {len(different)} differ {' '.join(different)}")
    return len(here) == len(there) and not different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--sweep", required=True)
    parser.add_argument("--runner", required=True)
    parser.add_argument("--seconds", default="8")
    parser.add_argument("--seeds", default="1000:1100")
    parser.add_argument("sources", nargs="+")
    args = parser.parse_args()
    other = OTHER.get(os.uname().machine) or skip(f"no other architecture is known for {os.uname().machine}")
    cc, qemu, sysroot = f"{other}-linux-gnu-gcc", f"qemu-{other}", f"/usr/{other}-linux-gnu"
    for tool in (cc, qemu):
        if not shutil.which(tool):
            skip(f"no {tool} here")
    if subprocess.run([cc, "-E", "-include", "stdlib.h", "-x", "c", os.devnull], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        skip(f"{cc} has no C library: libc6-dev-{'arm64' if other == 'aarch64' else 'amd64'}-cross")
    args.work.mkdir(exist_ok=True)
    emulate = [qemu, "-L", sysroot]
    swept = [s for s in args.sources if s.endswith(SWEPT)]
    sweep = build(cc, "-O2", args.work / f"num-sweep-{other}", [HERE / "num_sweep.c", *swept])
    if not compare_sweeps([args.sweep], [*emulate, sweep]):
        sys.exit(1)
    runner = build(cc, "-O1", args.work / f"diff-run-{other}", [HERE / "diff_run.c", *args.sources])
    bad = [subprocess.run([HERE / "diff.py", "--maker", maker, "--seeds", args.seeds, "--seconds", args.seconds, "cross",
                           args.runner, "--", *emulate, runner]).returncode for maker in ("ttf", "30")]
    sys.exit(77 if set(bad) == {77} else any(code not in (0, 77) for code in bad))


if __name__ == "__main__":
    main()
