#!/usr/bin/python3
"""gate boxes: 1,000 tunnels at once from 100 real boxes, and what they take of the daemon's memory.

The program beside it measures the gate alone, in namespaces of its own; here everything is as in life: a daemon, boxes, a
client in each. Counted is all that the daemon's own memory grows by, journal and tables included.
"""
import argparse
import os
import pathlib
import socketserver
import subprocess
import sys
import tempfile
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "daemon")]
EACH, BAR_KIB = 10, 16


class Server(socketserver.ThreadingTCPServer):
    """Gives a word back and holds the connection."""
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self):
        self.held = held = []

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                self.request.sendall(self.request.recv(16))
                held.append(1)
                self.request.recv(1)
        super().__init__(("127.0.0.1", 0), Handler)
        self.handle_error = lambda *_: None  # they are reset at the end
        threading.Thread(target=self.serve_forever, daemon=True).start()


# Waits for a line, so that all of them begin when all are there.
CLIENT = """
import socket, sys, time
while not __import__("os").path.exists("/home/user/go"): time.sleep(0.05)
kept = []
for n in range({each}):
    s = socket.create_connection(("many.test", {port}), 120); s.settimeout(120); s.sendall(b"word %d" % n)
    if s.recv(16) != b"word %d" % n: sys.exit(1)
    kept.append(s)
time.sleep(600)
"""


def measure(daemon, server, count):
    port = server.server_address[1]
    boxes = [daemon.machine(net=[{"target": f"tcp://many.test:{port}", "local": True}]) for _ in range(count)]
    runs = [daemon.background(b, ["python3", "-c", CLIENT.format(each=EACH, port=port)]) for b in boxes]
    for b in boxes:
        daemon.request("PUT", f"/v1/machines/{b}/files", b"", path="/home/user/ready")
    time.sleep(1)
    before = daemon.memory_kb()
    began = time.monotonic()
    for b in boxes:
        daemon.request("PUT", f"/v1/machines/{b}/files", b"", path="/home/user/go")
    wanted = count * EACH
    while len(server.held) < wanted and time.monotonic() - began < 300:
        time.sleep(0.05)
    took, each = time.monotonic() - began, (daemon.memory_kb() - before) / wanted
    ended = sum(daemon.get(f"/v1/machines/{b}/execs/{x}")["state"] != "running" for b, x in zip(boxes, runs))
    return wanted - len(server.held) + ended, each, took


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="five boxes: does it still measure?")
    parser.add_argument("--table")
    o = parser.parse_args()
    os.environ.setdefault("CARREL_BUILD", str(pathlib.Path(__file__).resolve().parents[2] / "build"))
    from daemon import Daemon
    hosts = pathlib.Path(tempfile.mkdtemp(prefix="cg-", dir="/tmp")) / "hosts"
    hosts.write_text("127.0.0.1 many.test\n")
    server, daemon = Server(), Daemon(conf=f"[gate]\nhosts = {hosts}\n")
    count = 5 if o.quick else 100
    try:
        bad, each, took = measure(daemon, server, count)
    finally:
        daemon.stop()
        server.shutdown()
        subprocess.run(["rm", "-r", str(hosts.parent)], check=True)
    lines = [f"| {count * EACH} tunnels from {count} boxes | bar | measured | |", "|---|---|---|---|",
             f"| errors | 0 | {bad} | {'pass' if not bad else 'FAIL'} |",
             f"| the daemon's memory for each tunnel | {BAR_KIB} KiB | {each:.1f} KiB | {'pass' if each <= BAR_KIB or o.quick else 'FAIL'} |",
             f"| until all of them were open | | {took:.1f} s | |"]
    print("\n".join(lines))
    if o.table:
        pathlib.Path(o.table).write_text("\n".join(lines) + "\n")
    return bad or (each > BAR_KIB and not o.quick)


sys.exit(1 if main() else 0)
