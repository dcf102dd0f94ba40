#!/usr/bin/env python3
"""Measure print(42) in Python, Ruby, PHP and QuickJS: native, in a cell after a cold start, and from a warm image; then in cell machines.

The programs are those of `make cell-guests` (CARREL_CELL_GUESTS). The native programs are those of the
host; rows of those that it does not have are left out. Each row is the processor time and the elapsed time of whole commands, in turn with the others. In machines the
elapsed time is that of a request to the API, and the daemon and the machine are awake.
"""
import argparse, os, pathlib, resource, shutil, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GUESTS = pathlib.Path(os.environ.get("CARREL_CELL_GUESTS") or ROOT / "build-guests")


def measure(line, env):
    """Returns the processor time and the elapsed time of a command in ms."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    out = subprocess.run(line, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
    elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert out == b"42\n", out
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3, elapsed * 1e3


# program: script, its name, words before it, native command
LANGUAGES = {
    "python": ("print(42)\n", "x.py", [], ["python3"]),
    "ruby": ("puts 42\n", "x.rb", [], ["ruby"]),
    "php": ("<?php echo 42, \"\\n\";\n", "x.php", ["-q"], ["php", "-n"]),
    "qjs": ("console.log(42)\n", "x.js", [], ["qjs"]),
}


def in_machines(folder, build, cell, names, rounds):
    """Returns times of commands in cell machines: of an image without a warm image, with one that the machine changed, and with
    one of which the daemon made a dump."""
    os.environ["CARREL_BUILD"] = str(build)
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/daemon")]
    import cells
    from daemon import Daemon
    d, times, machines = Daemon(), {}, {}
    for name in names:
        text, script, before, _ = LANGUAGES[name]
        image = pathlib.Path(folder) / f"{name}.image"
        subprocess.run([cell, "warm", name, "--for-machine", image], env={**os.environ, "CARREL_CELL_GUESTS": str(GUESTS)},
                       check=True, capture_output=True)
        files = {f"bin_{name}.wasm": (GUESTS / f"programs/{name}.wasm").read_bytes(), script: text.encode()}
        warm = image.read_bytes()
        d.request("POST", "/v1/images", cells.image(**files), name=f"{name}-cold")
        made = d.request("POST", "/v1/images", cells.image(**files, **{f"bin_{name}.warm": warm}), name=f"{name}-warm")["id"]
        if d.get("/v1/status")["box"]["images"] == "erofs":
            d.until(lambda: d.get(f"/v1/images/{name}-warm")["stored"] == "erofs")
        for start, kind in (("cold start", "cold"), ("warm start, no dump", "warm"), ("warm start", "warm")):
            machines[name, start] = d.machine(kind="cell", image=f"{name}-{kind}")
        d.put(f"/v1/machines/{machines[name, 'warm start, no dump']}/files", warm, path=f"/bin/{name}.warm")
        d.exec(machines[name, "warm start"], [name, *before, f"/{script}"])
        d.until(lambda: list((d.home / "dumps").glob(f"{made}.*")))
    for _ in range(rounds):
        for (name, start), m in machines.items():
            begun = time.perf_counter()
            assert d.exec(m, [name, *LANGUAGES[name][2], f"/{LANGUAGES[name][1]}"])["stdout"] == "42\n"
            times.setdefault((name, start), []).append((time.perf_counter() - begun) * 1e3)
    d.stop()
    return times


def rows_of(folder, name, cell):
    """Returns commands that print 42 in a language, each with its environment."""
    text, script, _, native = LANGUAGES[name]
    (path := pathlib.Path(folder) / script).write_text(text)
    rows = {}
    if shutil.which(native[0], path="/usr/bin:/usr/local/bin"):
        rows[name, "native"] = ([*native, str(path)], dict(os.environ))
    for start in ("cold", "warm"):
        (programs := pathlib.Path(folder) / name / start / "programs").mkdir(parents=True)
        (programs / f"{name}.wasm").symlink_to((GUESTS / f"programs/{name}.wasm").resolve())
        env = {**os.environ, "CARREL_CELL_GUESTS": str(programs.parent)}
        if start == "warm":
            subprocess.run([cell, "warm", name], env=env, check=True, capture_output=True)
        rows[name, f"cell, {start} start"] = ([str(cell), "run", str(path)], env)
    return rows


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--cell", default=ROOT / "build/libexec/carrel-cell", help="the worker program to measure")
    ask.add_argument("--rounds", default=21, type=int)
    ask.add_argument("--build", default=ROOT / "build", help="the build with the daemon to measure")
    opt = ask.parse_args()
    names = [name for name in LANGUAGES if (GUESTS / f"programs/{name}.wasm").exists()]
    if not names:
        print(f"skipped: {GUESTS}/programs has no interpreters: run make cell-guests")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        rows = {key: row for name in names for key, row in rows_of(folder, name, opt.cell).items()}
        times = {key: [] for key in rows}
        for _ in range(opt.rounds):
            for key, (line, env) in rows.items():
                times[key].append(measure(line, env))
        machines = in_machines(folder, opt.build, opt.cell, names, opt.rounds)
    print(f"load {os.getloadavg()[0]:.1f}\n\n|print 42|start|processor time, ms|elapsed, ms|\n|---|---|---|---|")
    for (name, start), list_ in times.items():
        cpu, elapsed = (statistics.median(t[i] for t in list_) for i in (0, 1))
        print(f"|{name}|{start}|{cpu:.1f}|{elapsed:.1f}|")
    print("\n|print 42 over the API|start|elapsed, ms|\n|---|---|---|")
    for (name, start), list_ in machines.items():
        print(f"|{name}|{start}|{statistics.median(list_):.1f}|")


main()
