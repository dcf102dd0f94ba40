#!/usr/bin/env python3
"""Measure captures and hashes of a store of 24 MB: with 10 touched pages of 4 KiB, and with 16 MB touched.

The bar: a capture of the first takes at most 0.05 of the time of the second. The hash has the same bar.
"""
import argparse, pathlib, subprocess, sys, tempfile

import modules

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BAR = 0.05
PAGES, FEW, MANY = 384, 10, 4096


def module():
    """run(n): store n + 1 at the start of unit n * 1021 % 6144, so that few touches lie far apart."""
    code = bytes.fromhex("2000") + b"\x41" + sleb(1021) + b"\x6c\x41" + sleb(PAGES * 16) + b"\x70\x41" + sleb(4096)
    code += bytes.fromhex("6c 2000 4101 6a 360200 2000")
    return (modules.HEADER
            + modules.section(1, modules.vector([bytes.fromhex("60017f017f")]))
            + modules.section(3, modules.vector([b"\x00"]))
            + modules.section(5, modules.vector([b"\x00" + modules.leb(PAGES)]))
            + modules.section(7, modules.vector([b"\x03run\x00\x00"]))
            + modules.section(10, modules.vector([modules.body(code)])))


def sleb(n):
    """A positive number as signed LEB128."""
    out = bytearray()
    while n >= 0x40:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out + bytes([n]))


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--engine", default=ROOT / "build/bench/cell-bench", help="the cell-bench program to measure")
    ask.add_argument("--rounds", default=31, type=int)
    opt = ask.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "touch.wasm"
        file.write_bytes(module())
        few, many = (list(map(float, subprocess.run([opt.engine, "capture", file, str(n), str(opt.rounds)], check=True,
                                                    stdout=subprocess.PIPE, text=True).stdout.split())) for n in (FEW, MANY))
    print("| a store of 24 MB | capture, us | hash, us | became resident, KiB |\n|---|---|---|---|")
    for name, row in ((f"{FEW} pages touched", few), ("16 MB touched", many)):
        print(f"| {name} | {row[0]:.0f} | {row[1]:.0f} | {row[2] / 1024:.0f} |")
    ratios = few[0] / many[0], few[1] / many[1]
    print(f"\ncapture {ratios[0]:.4f}, hash {ratios[1]:.4f} of the second; the bar is {BAR}")
    return 0 if max(ratios) <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
