"""Bad input and bad luck of cell machines: nothing is lost, and the reason is said."""
import os
import pathlib
import signal
import threading

import pytest

import cells
from daemon import Refused

IMAGE = "bad"
NOSPC = 51  # of WASI
ENTRIES = int(os.environ.get("CARREL_ENTRIES", 100_000))  # of one directory

# Makes files "f0000000" and so on in /data/many. COUNT compares the number of entries of that directory with ENTRIES.
MANY = """(module
  (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory" (func $mkdir (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 2) (data (i32.const 0) "data/many/f0000000")
  (func $digits (param $n i32) (local $at i32) (local.set $at (i32.const 17))
    (loop $more (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.rem_u (local.get $n) (i32.const 10))))
      (local.set $n (i32.div_u (local.get $n) (i32.const 10))) (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (br_if $more (i32.gt_u (local.get $at) (i32.const 10)))))
  (func (export "_start") (local $n i32) (local $e i32)
    (drop (call $mkdir (i32.const 3) (i32.const 0) (i32.const 9)))
    (loop $more (call $digits (local.get $n))
      (local.set $e (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 18) (i32.const 1) (i64.const 64) (i64.const 0)
        (i32.const 0) (i32.const 64)))
      (if (local.get $e) (then (call $exit (local.get $e))))
      (drop (call $close (i32.load (i32.const 64))))
      (br_if $more (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const ENTRIES))))))""".replace("ENTRIES", str(ENTRIES))

COUNT = """(module
  (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir" (func $read (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 2) (data (i32.const 0) "data/many")
  (func (export "_start") (local $at i32) (local $end i32) (local $n i32) (local $cookie i64)
    (if (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 9) (i32.const 2) (i64.const 16384) (i64.const 0) (i32.const 0)
      (i32.const 32)) (then (call $exit (i32.const 1))))
    (block $done (loop $more
      (if (call $read (i32.load (i32.const 32)) (i32.const 1024) (i32.const 60000) (local.get $cookie) (i32.const 36))
        (then (call $exit (i32.const 2))))
      (br_if $done (i32.lt_u (i32.load (i32.const 36)) (i32.const 24)))
      (local.set $at (i32.const 1024)) (local.set $end (i32.add (i32.const 1024) (i32.load (i32.const 36))))
      (block $part (loop $entry
        (br_if $part (i32.gt_u (i32.add (local.get $at) (i32.const 24)) (local.get $end)))
        (br_if $part (i32.gt_u (i32.add (i32.add (local.get $at) (i32.const 24)) (i32.load offset=16 (local.get $at))) (local.get $end)))
        (local.set $cookie (i64.load (local.get $at))) (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (local.set $at (i32.add (i32.add (local.get $at) (i32.const 24)) (i32.load offset=16 (local.get $at)))) (br $entry)))
      (br $more)))
    (call $exit (i32.sub (local.get $n) (i32.const ENTRIES)))))""".replace("ENTRIES", str(ENTRIES))

# Writes "kept\n" to /data/before and then never ends or waits.
WRITES_AND_SPINS = cells.PROGRAMS["put"].replace('(call $exit (call $fd_write', '(drop (call $fd_write').replace(
    '(i32.const 24)))))', '(i32.const 24))) (loop $more (br $more))))')


@pytest.fixture
def cell(daemon):
    if IMAGE not in [i["name"] for i in daemon.get("/v1/images")["images"]]:
        daemon.request("POST", "/v1/images", cells.image(**{"bin_many.wasm": MANY.encode(), "bin_entries.wasm": COUNT.encode(),
                                                            "bin_spins.wasm": WRITES_AND_SPINS.encode()}), name=IMAGE)

    def make(**fields):
        return daemon.machine(**{"kind": "cell", "image": IMAGE, **fields})
    return make


def workers(mark):
    """The processes of the command with this word: the parent, then the child that runs the program."""
    found = {}
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (p / "cmdline").read_bytes().split(b"\0") and b"carrel-cell" in (p / "cmdline").read_bytes():
                found[int(p.name)] = int((p / "stat").read_text().rsplit(") ", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            pass
    return sorted(found, key=lambda pid: found[pid] in found)


def test_program_reads_a_directory_with_very_many_entries(daemon, cell):
    m = cell(limits={"disk": 32 << 30})
    for program, status in (("many", 0), ("entries", 2)):  # "." and ".." are entries too
        x = daemon.wait(m, daemon.background(m, [program]), 200)
        assert x["status"] == status, x
    assert daemon.exec(m, ["hello"])["exec"]["status"] == 3


def test_full_disk_ends_a_directory_of_very_many_entries(daemon, cell):
    m = cell(limits={"disk": 16 << 20})
    assert daemon.exec(m, ["many"], timeout=100)["exec"]["status"] == NOSPC
    assert daemon.exec(m, ["entries"])["exec"]["status"] != 2
    assert daemon.exec(m, ["hello"])["exec"]["status"] == 3


@pytest.mark.parametrize("which", [0, 1], ids=["parent", "child"])
def test_killed_worker_is_reported_with_its_fuel_and_loses_no_file(daemon, cell, which):
    m = cell()
    path = f"data/before-{which}-{os.getpid()}"
    x = daemon.background(m, ["spins", path])
    daemon.until(lambda: len(workers(path)) == 2)

    def written():
        try:
            return daemon.get(f"/v1/machines/{m}/files", path="/" + path) == b"kept\n"
        except Refused:
            return False
    daemon.until(written)
    before = daemon.get(f"/v1/machines/{m}")["state"]
    os.kill(workers(path)[which], signal.SIGKILL)
    done = daemon.wait(m, x)
    if which == 0:
        assert (done["reason"], done["signal"]) == ("signal", 9), done
    else:
        said = daemon.request("GET", f"/v1/machines/{m}/execs/{x}/output", raw=True, stream="stderr")
        assert done["status"] == 125 and b"was killed by signal 9" in said, (done, said)
    assert done["usage"]["fuel"] > 0
    daemon.until(lambda: not workers(path))
    assert before == daemon.get(f"/v1/machines/{m}")["state"] == "running"
    assert daemon.get(f"/v1/machines/{m}/files", path="/" + path) == b"kept\n"
    assert daemon.exec(m, ["hello"])["exec"]["status"] == 3


def test_programs_that_never_yield_do_not_hold_up_other_requests(daemon, cell):
    m = cell(limits={"cpus": 1})
    running = [daemon.background(m, ["spin"]) for _ in range(4)]
    assert daemon.exec(m, ["hello"])["exec"]["status"] == 3
    daemon.put(f"/v1/machines/{m}/files", b"x", path="/data/x")
    assert daemon.post(f"/v1/machines/{m}/steps", {"name": "while"})["name"] == "while"
    assert daemon.post(f"/v1/machines/{m}/pause")["state"] == "paused"
    assert daemon.post(f"/v1/machines/{m}/resume")["state"] == "running"
    daemon.post(f"/v1/machines/{m}/stop")
    assert {daemon.wait(m, x)["state"] for x in running} <= {"exited", "unknown"}
    assert daemon.exec(m, ["look", "data/x"])["exec"]["status"] == 0


def test_many_cells_run_commands_at_once(daemon, cell):
    machines = [cell() for _ in range(40)]
    got = {}

    def run(m):
        got[m] = [daemon.exec(m, ["put", "data/own"])["exec"]["status"], daemon.exec(m, ["hello"])["stdout"]]
    threads = [threading.Thread(target=run, args=(m,)) for m in machines]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert list(got.values()) == [[0, "hello\n"]] * len(machines) and len(got) == len(machines)


def test_damaged_programs_are_refused_and_the_machine_goes_on(daemon, cell):
    m = cell()
    whole = cells.PROGRAMS["hello"].encode()
    for content in (b"", b"\0asm", b"\0asm\1\0\0\0\x01\xff\xff\xff\xff\x0f", whole[:-3], b"(" * 100_000, bytes(1 << 20)):
        daemon.put(f"/v1/machines/{m}/files", content, path="/bin/bad.wasm")
        x = daemon.exec(m, ["bad"])
        assert x["exec"]["status"] in (126, 0) and (x["exec"]["status"] == 0 or x["stderr"]), (content[:20], x)
    assert daemon.exec(m, ["hello"])["exec"]["status"] == 3
