#!/usr/bin/env python3
"""Measure print(42) in Python: native, in a cell after a cold start, and from a warm image; then in cell machines.

The programs are those of `make cell-guests` (CARREL_CELL_GUESTS). The native program is python3 of the
host. Each row is the processor time and the elapsed time of whole commands, in turn with the others. In machines the
elapsed time is that of a request to the API, and the daemon and the machine are awake.
"""
import argparse, os, pathlib, resource, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GUESTS = pathlib.Path(os.environ.get("CARREL_CELL_GUESTS") or ROOT / "build-guests")


def measure(line, env):
    """Returns the processor time and the elapsed time of a command in ms."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    out = subprocess.run(line, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
    elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert out == b"42\n", out
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3, elapsed * 1e3


def in_machines(folder, build, cell, rounds):
    """Returns times of commands in cell machines: of an image without a warm image, with one that the machine changed, and with
    one of which the daemon made a dump."""
    os.environ["CARREL_BUILD"] = str(build)
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/daemon")]
    import cells
    from daemon import Daemon
    image = pathlib.Path(folder) / "image"
    subprocess.run([cell, "warm", "python", "--for-machine", image], env={**os.environ, "CARREL_CELL_GUESTS": str(GUESTS)},
                   check=True, capture_output=True)
    d = Daemon()
    python, warm = (GUESTS / "programs/python.wasm").read_bytes(), image.read_bytes()
    d.request("POST", "/v1/images", cells.image(**{"bin_python.wasm": python}), name="cold")
    d.request("POST", "/v1/images", cells.image(**{"bin_python.wasm": python, "bin_python.warm": warm}), name="warm")
    if d.get("/v1/status")["box"]["images"] == "erofs":
        d.until(lambda: d.get("/v1/images/warm")["stored"] == "erofs")
    machines = {"cold start": d.machine(kind="cell", image="cold"), "warm start, no dump": d.machine(kind="cell", image="warm"),
                "warm start": d.machine(kind="cell", image="warm")}
    d.put(f"/v1/machines/{machines['warm start, no dump']}/files", warm, path="/bin/python.warm")
    d.exec(machines["warm start"], ["python", "-c", "print(42)"])
    d.until(lambda: [p for p in (d.home / "dumps").iterdir() if p.name.startswith("i-")])
    times = {start: [] for start in machines}
    for _ in range(rounds):
        for start, m in machines.items():
            begun = time.perf_counter()
            assert d.exec(m, ["python", "-c", "print(42)"])["stdout"] == "42\n"
            times[start].append((time.perf_counter() - begun) * 1e3)
    d.stop()
    return times


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--cell", default=ROOT / "build/libexec/carrel-cell", help="the worker program to measure")
    ask.add_argument("--rounds", default=21, type=int)
    ask.add_argument("--build", default=ROOT / "build", help="the build with the daemon to measure")
    opt = ask.parse_args()
    if not (GUESTS / "programs/python.wasm").exists():
        print(f"skipped: {GUESTS}/programs/python.wasm does not exist: run make cell-guests")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "x.py"
        script.write_text("print(42)\n")
        rows = {"native python3": (["/usr/bin/python3", str(script)], dict(os.environ))}
        for start in ("cold", "warm"):
            (programs := pathlib.Path(folder) / start / "programs").mkdir(parents=True)
            (programs / "python.wasm").symlink_to((GUESTS / "programs/python.wasm").resolve())
            env = {**os.environ, "CARREL_CELL_GUESTS": str(programs.parent)}
            if start == "warm":
                subprocess.run([opt.cell, "warm", "python"], env=env, check=True, capture_output=True)
            rows[f"cell, {start} start"] = ([str(opt.cell), "run", str(script)], env)
        times = {name: [] for name in rows}
        for _ in range(opt.rounds):
            for name, (line, env) in rows.items():
                times[name].append(measure(line, env))
        machines = in_machines(folder, opt.build, opt.cell, opt.rounds)
    print("|print(42)|processor time, ms|elapsed, ms|times native|\n|---|---|---|---|")
    native = statistics.median(t[0] for t in times["native python3"])
    for name, list_ in times.items():
        cpu, elapsed = (statistics.median(t[i] for t in list_) for i in (0, 1))
        print(f"|{name}|{cpu:.1f}|{elapsed:.1f}|{cpu / native:.1f}|")
    native = statistics.median(t[1] for t in times["native python3"])
    print("\n|print(42) over the API|elapsed, ms|times native|\n|---|---|---|")
    for start, list_ in machines.items():
        print(f"|cell machine, {start}|{statistics.median(list_):.1f}|{statistics.median(list_) / native:.1f}|")


main()
