#!/usr/bin/python3
"""sandboxes: E2B's SDK from npm against our REST, and a crowd of sandboxes.

A round creates a sandbox and runs its first command, by the SDK and by REST, in the same node process and in turn. The
crowd creates, uses and kills 100 sandboxes, 10 at a time. Exits with 77 where npm cannot fetch the package.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("", "daemon", "e2b")]
PROGRAM = pathlib.Path(__file__).with_suffix(".mjs")
BAR = 1.5


def run(where, node, env, *words):
    done = subprocess.run([node, PROGRAM.name, *map(str, words)], cwd=where, env=env, capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure(d, where, node, quick):
    from e2b_client import E2b
    client = E2b.of(d)
    url = client.url.geturl()
    env = {**os.environ, "E2B_API_KEY": client.key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url,
           "CARREL_TOKEN": d.post("/v1/tokens", {"scopes": ["admin", "run", "read"]})["secret"]}
    _, *rounds, crowd = run(where, node, env, *((3, 4, 2) if quick else (60, 100, 10)))  # the first one warms up
    sdk, rest = (statistics.median(r[way] for r in rounds) for way in ("sdk", "rest"))
    d.clear()  # fails if a machine is left
    return sdk, rest, crowd


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--quick", action="store_true", help="a few rounds: does it still measure?")
    ask.add_argument("--table", help="also write the table to this file")
    o = ask.parse_args()
    os.environ.setdefault("CARREL_BUILD", str(ROOT / "build"))
    import npm_project
    from daemon import Daemon
    try:
        where, node = npm_project.project(PROGRAM)
    except npm_project.Missing as why:
        print("skipped:", why)
        return 77
    d = Daemon()
    try:
        sdk, rest, crowd = measure(d, where, node, o.quick)
    finally:
        d.stop()  # fails if a process, a control group, a mount or a directory is left
    errors = len(crowd["errors"]) + crowd["left"]
    verdict = "not judged" if o.quick else "pass" if sdk <= BAR * rest else "MISS"
    lines = ["| create and first command | p50 |", "|---|---|",
             f"| E2B's SDK | {sdk:.1f} ms |", f"| our REST | {rest:.1f} ms |", "",
             "| bar | limit | measured | verdict |", "|---|---|---|---|",
             f"| SDK / REST | {BAR} x | {sdk / rest:.2f} x | {verdict} |",
             f"| errors of the crowd, and sandboxes left | 0 | {errors} in {crowd['ms'] / 1000:.1f} s | {'MISS' if errors else 'pass'} |"]
    print("\n".join(lines), *crowd["errors"][:5], sep="\n")
    if o.table:
        pathlib.Path(o.table).write_text("\n".join(lines) + "\n")
    return 1 if errors else 0


sys.exit(main())
