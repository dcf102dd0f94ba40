#!/usr/bin/python3
"""screenshot: a screenshot by the tool of an MCP client against scrot in the same box.

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
BAR = 2

# In the machine: what one run of scrot takes, in milliseconds.
SCROT = """python3 -c '
import os, subprocess, time
start = time.monotonic()
subprocess.run(["scrot", "-o", "-p", "/tmp/scrot.png"], check=True, env={**os.environ, "DISPLAY": ":0"})
print((time.monotonic() - start) * 1e3)
'"""
# Windows with text and colours, so that the image is not one of nothing.
FILL = "for i in 1 2 3 4; do DISPLAY=:0 xmessage -geometry 500x300+$((i * 120))+$((i * 90)) -file /etc/services & done; wait"


def measure(d, machine, rounds):
    from mcp_client import Lines
    from screens import pixels
    client = Lines(d, "--machine", machine)
    client.greet()
    d.post(f"/v1/machines/{machine}/desktop")
    d.background(machine, FILL)
    time.sleep(5)  # the windows are drawn
    tool, scrot, size = [], [], 0
    for i in range(rounds + 1):  # the first one warms up
        start = time.monotonic()
        result = client.result("screenshot")
        took = (time.monotonic() - start) * 1e3
        inside = float(d.exec(machine, SCROT)["stdout"])
        assert not result.get("isError"), result
        picture = base64.b64decode(next(c for c in result["content"] if c["type"] == "image")["data"])
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
    ask.add_argument("--table", help="also write the table to this file")
    o = ask.parse_args()
    os.environ.setdefault("CARREL_BUILD", str(ROOT / "build"))
    from daemon import Daemon
    if lacking := [p for p in PROGRAMS if not shutil.which(p)]:
        print("skipped: not installed:", ", ".join(lacking))
        return 77
    d = Daemon()
    try:
        tool, scrot, size = measure(d, d.machine(), 3 if o.quick else 30)
    finally:
        d.clear()
        d.stop()
    verdict = "not judged" if o.quick else "pass" if tool <= BAR * scrot else "MISS"
    lines = ["| measure | p50 |", "|---|---|",
             f"| screenshot by an MCP client, {size / 1000:.0f} KB | {tool:.1f} ms |",
             f"| scrot in the box | {scrot:.1f} ms |", "",
             "| bar | limit | measured | verdict |", "|---|---|---|---|",
             f"| screenshot / scrot | {BAR} x | {tool / scrot:.2f} x | {verdict} |"]
    print("\n".join(lines))
    if o.table:
        pathlib.Path(o.table).write_text("\n".join(lines) + "\n")
    return 0


sys.exit(main())
