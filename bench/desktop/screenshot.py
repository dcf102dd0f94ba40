#!/usr/bin/python3
"""screenshot: a screenshot by the tool of an MCP client against scrot in the same machine, a box or a vm.

Both make a PNG image of a screen of 1280x800 pixels. scrot is timed in the machine, without the way of its file to the
client. Exits with 77 where a program is missing.
"""
import argparse
import base64
import os
import pathlib
import shutil
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("", "daemon", "mcp")]
PROGRAMS = ("Xtigervnc", "openbox", "xmessage", "scrot")
BARS = {"box": 2, "vm": 0.3}

# In the machine: what one run of scrot takes, in milliseconds.
SCROT = """python3 -c '
import os, subprocess, time
start = time.monotonic()
subprocess.run(["scrot", "-o", "-p", "/tmp/scrot.png"], check=True, env={**os.environ, "DISPLAY": ":0"})
print((time.monotonic() - start) * 1e3)
'"""
# Windows with text and colours, so that the image is not one of nothing.
FILL = "for i in 1 2 3 4; do DISPLAY=:0 xmessage -geometry 500x300+$((i * 120))+$((i * 90)) -file /etc/services & done; wait"


def shot(client):
    result = client.result("screenshot", seconds=300)
    assert not result.get("isError"), result
    return base64.b64decode(next(c for c in result["content"] if c["type"] == "image")["data"])


def daemon_for(kind):
    """A daemon, or why the host cannot have one."""
    from daemon import Daemon
    import vm_kernel
    if kind == "box":
        return Daemon(), None
    if os.geteuid() != 0 or not shutil.which(f"qemu-system-{os.uname().machine}"):
        return None, "vms need a daemon that runs as root, and QEMU"
    try:
        kernel = vm_kernel.find(os.environ["CARREL_BUILD"])
    except OSError as e:
        return None, str(e)
    return Daemon(conf=f"[vm]\nkernel = {kernel}\n" if kernel else ""), None


def measure(d, machine, rounds):
    from mcp_client import Lines
    from screens import pixels
    client = Lines(d, "--machine", machine)
    client.greet()
    for i in range(3):  # a busy vm needs longer for its start than one call waits
        if not client.result("screenshot", seconds=300).get("isError"):
            break
    blank = len(shot(client))
    d.background(machine, FILL)
    sizes = [0, blank]
    while sizes[-1] < 2 * blank or sizes[-1] != sizes[-2]:  # the windows are drawn
        time.sleep(3)
        sizes.append(len(shot(client)))
        assert len(sizes) < 100, sizes
    tool, scrot, size = [], [], 0
    for i in range(rounds + 1):  # the first one warms up
        start = time.monotonic()
        picture = shot(client)
        took = (time.monotonic() - start) * 1e3
        inside = float(d.exec(machine, SCROT)["stdout"])
        if i:
            tool.append(took)
            scrot.append(inside)
        else:
            size = len(picture)
            assert pixels(picture)[:2] == (1280, 800)
    client.close()
    return statistics.median(tool), statistics.median(scrot), size


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--quick", action="store_true", help="three rounds: does it still measure?")
    ask.add_argument("--kind", choices=BARS, default="box", help="the kind of the machine")
    ask.add_argument("--table", help="also write the table to this file")
    o = ask.parse_args()
    os.environ.setdefault("CARREL_BUILD", str(ROOT / "build"))
    if lacking := [p for p in PROGRAMS if not shutil.which(p)]:
        print("skipped: not installed:", ", ".join(lacking))
        return 77
    d, why = daemon_for(o.kind)
    if not d:
        print("skipped:", why)
        return 77
    try:
        tool, scrot, size = measure(d, d.machine(kind=o.kind), 3 if o.quick else 30 if o.kind == "box" else 10)
    finally:
        d.clear()
        d.stop()
    verdict = "not judged" if o.quick else "pass" if tool <= BARS[o.kind] * scrot else "MISS"
    lines = ["| measure | p50 |", "|---|---|",
             f"| screenshot by an MCP client, {size / 1000:.0f} KB | {tool:.1f} ms |",
             f"| scrot in the {o.kind} | {scrot:.1f} ms |", "",
             "| bar | limit | measured | verdict |", "|---|---|---|---|",
             f"| screenshot / scrot | {BARS[o.kind]} x | {tool / scrot:.2f} x | {verdict} |"]
    print("\n".join(lines))
    if o.table:
        pathlib.Path(o.table).write_text("\n".join(lines) + "\n")
    return 0


sys.exit(main())
