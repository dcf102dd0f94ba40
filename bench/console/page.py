#!/usr/bin/python3
"""page: the console in Debian's chromium: its first load, the echo of a terminal against `carrel sh`, much output, and
a list of 1,000 machines.

A long task is time in which the page answers nothing, as the browser reports it. Exits with 77 where there is no
browser, or no npm to build the page.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("", "daemon", "console")]
KB = 1000

# Before the page: collects its long tasks, and when a key was sent, when its echo came and when it was drawn.
WATCH = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const e of list.getEntries()) window.longest = Math.max(window.longest, e.duration);
}).observe({ type: "longtask", buffered: true });
window.echo = {};
addEventListener("keydown", () => { window.echo = { key: performance.now() }; }, true);
const once = (name) => { window.echo[name] ??= performance.now() - window.echo.key; };
const Socket = window.WebSocket;
window.WebSocket = class extends Socket {
  send(data) {
    super.send(data);
    once("sent");
  }
  constructor(...words) {
    super(...words);
    this.addEventListener("message", (e) => e.data instanceof ArrayBuffer && once("come"));
  }
};
new MutationObserver((changes) => {
  if (changes.some((c) => c.target.parentElement?.closest(".xterm-rows"))) once("drawn");
}).observe(document, { subtree: true, childList: true, characterData: true });
"""
SCREEN = "document.querySelector('.xterm-rows')?.innerText"


def open_page(browser, url):
    tab = browser.open("about:blank")
    tab.addInitScript({"content": WATCH})
    tab.goto(url)
    return tab


def load(browser, d, count):
    """Opens the page, with nothing in the cache, until the list is drawn and the page rests."""
    began = time.monotonic()
    tab = open_page(browser, d.link_url())
    tab.until(f"document.querySelector('[role=grid]')?.ariaRowCount === '{count + 1}'")
    took = (time.monotonic() - began) * 1e3
    tab.waitForTimeout(300)  # what the list itself asks for; rows ask for their samples from half a second on
    sent = tab.sent()
    longest = tab.evaluate("window.longest")
    return tab, {"kb": sent["bytes"] / KB, "requests": sent["requests"], "ms": took, "longest": longest}


def first_load(browser, d, count, rounds):
    runs = []
    for _ in range(rounds):
        tab, run = load(browser, d, count)
        runs.append(run)
        tab.done()
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


class Shell:
    """`carrel sh` on a terminal of this process."""

    def __init__(self, d, machine):
        from carrel import PROGRAM, Terminal
        self.env, self.program = d.env, PROGRAM
        self.terminal = Terminal(self, "sh", machine)
        self.terminal.type(b"PS1=; echo re''ady\n")
        self.terminal.expect(b"ready\r\n")

    def popen(self, *words, env=(), **more):
        return subprocess.Popen([self.program, *words], env={**self.env, **dict(env)}, **more)

    def echo(self):
        """Milliseconds until a letter that was typed came back."""
        while self.terminal._read(0):
            pass
        began = time.perf_counter()
        self.terminal.type(b"x")
        self.terminal._read(10)
        return (time.perf_counter() - began) * 1e3

    def end(self):
        self.terminal.type(b"\x15\x04")
        self.terminal.process.wait(30)


class Line:
    """A terminal by the same WebSocket as that of the page, without a browser: what the daemon adds."""

    def __init__(self, d, machine):
        from daemon import TcpClient
        from test_terminal import Socket
        target = d.open().with_ticket(f"/v1/machines/{machine}/pty?command=exec+bash+-l")
        self.socket = Socket(TcpClient(d.port), target)
        self.socket.type("PS1=; echo re''ady\n")
        self.socket.until("ready\r\n")

    def echo(self):
        began = time.perf_counter()
        self.socket.type("x")
        self.socket.receive()
        return (time.perf_counter() - began) * 1e3


def new_terminal(tab, d, machine):
    from console import show
    show(tab, machine, "terminals")
    tab.click("text=New terminal")
    tab.click(".xterm")
    tab.type("PS1=; echo re''ady\n")
    tab.until(f"{SCREEN}.includes('ready')")


def echoes(tab, shell, line, rounds):
    """In turn, so that all meet the same host. The first ones warm up."""
    times = {"carrel sh": [], "socket": [], "sent": [], "come": [], "drawn": []}
    for n in range(rounds + 5):
        if n % 50 == 49:  # the line stays short
            tab.key("Control+u")
            tab.waitForTimeout(100)
        own, socket = shell.echo(), line.echo()
        tab.key("x")
        tab.until("window.echo.drawn !== undefined && window.echo.come !== undefined")
        page = tab.evaluate("window.echo")
        if n >= 5:
            times["carrel sh"].append(own)
            times["socket"].append(socket)
            for part in ("sent", "come", "drawn"):
                times[part].append(page[part])
    tab.key("Control+u")
    line.socket.sock.close()
    shell.end()
    return {name: statistics.median(t) for name, t in times.items()}


def flood(tab, lines):
    """Prints many lines, and presses a button of the page meanwhile."""
    tab.requestGC()
    before = tab.evaluate("performance.memory.usedJSHeapSize")
    tab.evaluate("window.longest = 0")
    began = time.monotonic()
    tab.type(f"seq 1 {lines}; echo the-''end\n")
    presses, most = [], before
    while not tab.evaluate(f"{SCREEN}.includes('the-end')"):
        pressed = time.monotonic()
        tab.click("[aria-label=Keys]")
        tab.shown("dialog[open]")
        tab.key("Escape")
        tab.gone("dialog[open]")
        presses.append((time.monotonic() - pressed) * 1e3)
        most = max(most, tab.evaluate("performance.memory.usedJSHeapSize"))
    took = time.monotonic() - began
    tab.requestGC()
    after = tab.evaluate("performance.memory.usedJSHeapSize")
    return {"s": took, "longest": tab.evaluate("window.longest"), "press": max(presses, default=0),
            "most": (most - before) / 1e6, "kept": (after - before) / 1e6}


def scroll(tab, count):
    """To the last row and back, by the keyboard."""
    tab.evaluate("window.longest = 0")
    tab.focus("[data-row='0']")
    began = time.monotonic()
    tab.key("End")
    tab.until(f"document.activeElement?.dataset.row === '{count - 1}'")
    tab.key("Home")
    tab.until("document.activeElement?.dataset.row === '0'")
    return {"ms": (time.monotonic() - began) * 1e3, "longest": tab.evaluate("window.longest"), "rows": tab.count(".rows .row")}


def cell_machines(d, count):
    """Cell machines have no process while they are idle, so a thousand are cheap."""
    import cells
    from daemon import Refused
    d.request("POST", "/v1/images", cells.image(), name="programs")
    made = 0
    while made < count:
        try:
            d.machine(kind="cell", image="programs", name=f"cell-{made}")
            made += 1
        except Refused as e:  # too many are awake: each has a range of uids
            assert e.code == "limit", e
            time.sleep(0.2)


def bar(name, limit, measured, unit, quick):
    verdict = "not judged" if quick else "pass" if measured <= limit else "MISS"
    return f"| {name} | {limit:g} {unit} | {measured:.3g} {unit} | {verdict} |"


def measure(browser, d, quick):
    few, many, rounds, lines = (5, 20, 3, 10_000) if quick else (100, 1000, 200, 1_000_000)
    machine = d.machine(name="box")
    other = d.post(f"/v1/machines/{machine}/fork", {"count": few - 1})["machines"][0]["id"]  # the page shows all terminals of a machine
    first = first_load(browser, d, few, 1 if quick else 5)
    tab, _ = load(browser, d, few)
    shell = Shell(d, other)
    new_terminal(tab, d, machine)
    echo = echoes(tab, shell, Line(d, other), rounds)
    much = flood(tab, lines)
    tab.done()
    cell_machines(d, many - few)
    tab, big = load(browser, d, many)
    moved = scroll(tab, many)
    tab.done()
    rows = [
        f"| first load, {few} machines | {first['kb']:.0f} KB, {first['requests']:.0f} requests, {first['ms']:.0f} ms, longest task {first['longest']:.0f} ms |",
        f"| echo of a key, `carrel sh` | {echo['carrel sh']:.2f} ms |",
        f"| echo of a key, by a WebSocket without a browser | {echo['socket']:.2f} ms |",
        f"| echo of a key, in the page | {echo['come']:.2f} ms: sent after {echo['sent']:.2f}, drawn after {echo['drawn']:.2f} |",
        f"| `seq 1 {lines}` | {much['s']:.1f} s, longest task {much['longest']:.0f} ms, a dialog opened and closed in at most "
        f"{much['press']:.0f} ms, heap + {much['most']:.0f} MB at most and + {much['kept']:.0f} MB after it |",
        f"| list of {many} machines ({many - few} of them cells) | {big['kb']:.0f} KB, {big['requests']:.0f} requests, {big['ms']:.0f} ms, "
        f"longest task {big['longest']:.0f} ms |",
        f"| to its last row and back | {moved['ms']:.0f} ms, longest task {moved['longest']:.0f} ms, {moved['rows']} rows in the document |",
    ]
    bars = [
        bar("first load, compressed", 300, first["kb"], "KB", quick), bar("first load", 12, first["requests"], "requests", quick),
        bar("first load, longest task", 200, first["longest"], "ms", quick),
        bar("echo in the page / `carrel sh`, p50", 2, echo["come"] / echo["carrel sh"], "x", quick),
        bar("the same, only what page and daemon take", 2, (echo["sent"] + echo["socket"]) / echo["carrel sh"], "x", quick),
        bar("much output, longest task", 200, much["longest"], "ms", quick),
        bar("much output, heap kept", 64, much["kept"], "MB", quick),
        bar(f"list of {many} machines, longest task", 200, max(big["longest"], moved["longest"]), "ms", quick),
    ]
    return ["| measure | p50 |", "|---|---|", *rows, "", "| bar | limit | measured | verdict |", "|---|---|---|---|", *bars]


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--quick", action="store_true", help="a few machines and rounds: does it still measure?")
    ask.add_argument("--table", help="also write the tables to this file")
    o = ask.parse_args()
    os.environ.setdefault("CARREL_BUILD", str(ROOT / "build"))
    from browser import Browser, missing
    from console import ConsoleDaemon
    if why := missing():
        print("skipped:", why)
        return 77
    d, browser = ConsoleDaemon(conf="[daemon]\nmax_machines = 100000\n"), Browser()
    try:
        lines = measure(browser, d, o.quick)
    finally:
        browser.stop()
        d.clear()
        d.stop()
    print("\n".join(lines))
    if o.table:
        pathlib.Path(o.table).write_text("\n".join(lines) + "\n")
    return 0


sys.exit(main())
