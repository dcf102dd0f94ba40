"""Programs of WASI preview 1: arguments, streams, clocks, random bytes, exit codes, replay, resume.

CARREL_CELL names the worker program, or CARREL_BUILD the build folder. Every test uses the real one.
"""
import json, os, subprocess

import pytest

CELL = os.environ.get("CARREL_CELL") or os.environ["CARREL_BUILD"] + "/libexec/carrel-cell"

# Every function, with the letters of its parameters: i is i32, l is i64.
FUNCTIONS = {
    "args_get": "ii", "args_sizes_get": "ii", "environ_get": "ii", "environ_sizes_get": "ii",
    "clock_res_get": "ii", "clock_time_get": "ili", "fd_advise": "illi", "fd_allocate": "ill",
    "fd_close": "i", "fd_datasync": "i", "fd_fdstat_get": "ii", "fd_fdstat_set_flags": "ii",
    "fd_fdstat_set_rights": "ill", "fd_filestat_get": "ii", "fd_filestat_set_size": "il",
    "fd_filestat_set_times": "illi", "fd_pread": "iiili", "fd_prestat_get": "ii",
    "fd_prestat_dir_name": "iii", "fd_pwrite": "iiili", "fd_read": "iiii", "fd_readdir": "iiili",
    "fd_renumber": "ii", "fd_seek": "ilii", "fd_sync": "i", "fd_tell": "ii", "fd_write": "iiii",
    "path_create_directory": "iii", "path_filestat_get": "iiiii",
    "path_filestat_set_times": "iiiilli", "path_link": "iiiiiii", "path_open": "iiiiillii",
    "path_readlink": "iiiiii", "path_remove_directory": "iii", "path_rename": "iiiiii",
    "path_symlink": "iiiii", "path_unlink_file": "iii", "poll_oneoff": "iiii", "proc_exit": "i",
    "proc_raise": "i", "sched_yield": "", "random_get": "ii", "sock_accept": "iii",
    "sock_recv": "iiiiii", "sock_send": "iiiii", "sock_shutdown": "ii",
}
# Functions that WasmEdge has besides them. sock_accept has one parameter less than the standard one.
WASMEDGE = {"sock_open": "iii", "sock_bind": "iii", "sock_connect": "iii", "sock_listen": "ii", "sock_accept": "ii",
            "sock_setsockopt": "iiiii", "sock_getlocaladdr": "iiii", "sock_getpeeraddr": "iiii",
            "sock_getaddrinfo": "iiiiiiii"}
TYPES = {"i": "i32", "l": "i64"}
BADF, FAULT, INVAL, NOTSOCK, NOTSUP = 8, 21, 28, 57, 58


def import_line(name, module="wasi_snapshot_preview1"):
    params = " ".join(TYPES[c] for c in FUNCTIONS[name])
    result = "" if name == "proc_exit" else "(result i32)"
    return f'(import "{module}" "{name}" (func ${name} (param {params}) {result}))'


def program(body, *names, module="wasi_snapshot_preview1", data="", func='(export "_start")', pages=2):
    """A program that imports these functions; $print writes n bytes from an address to a descriptor."""
    names = dict.fromkeys((*names, "fd_write"))
    return "\n".join([*(import_line(n, module) for n in names), f'(memory (export "memory") {pages})', data,
                      """(func $print (param $fd i32) (param $at i32) (param $n i32)
                           (i32.store (i32.const 60000) (local.get $at))
                           (i32.store (i32.const 60004) (local.get $n))
                           (drop (call $fd_write (local.get $fd) (i32.const 60000) (i32.const 1) (i32.const 60008))))""",
                      f"(func {func} {body})"])


def run(tmp_path, source, *options, stdin="", name="program.wat"):
    (tmp_path / name).write_text(source)
    return subprocess.run([CELL, "run", name, *map(str, options)], input=stdin, capture_output=True,
                          text=True, timeout=60, cwd=tmp_path)


ECHO = program("""
    (drop (call $args_get (i32.const 100) (i32.const 1000)))
    (drop (call $args_sizes_get (i32.const 0) (i32.const 4)))
    (call $print (i32.const 1) (i32.const 1000) (i32.load (i32.const 4)))
    (drop (call $environ_sizes_get (i32.const 0) (i32.const 4)))
    (drop (call $environ_get (i32.const 100) (i32.const 1000)))
    (call $print (i32.const 2) (i32.const 1000) (i32.load (i32.const 4)))
    (call $proc_exit (i32.const 7))""",
    "args_get", "args_sizes_get", "environ_get", "environ_sizes_get", "proc_exit")


def test_arguments_variables_and_exit_code_reach_the_program(tmp_path):
    ran = run(tmp_path, ECHO, "--env", "A=1", "--env", "B=x=y", "--", "first", "--json", "")
    assert ran.stdout == "program.wat\0first\0--json\0\0"
    assert ran.stderr.startswith("A=1?B=x=y?fuel: ")
    assert ran.returncode == 7


def test_json_reports_output_and_exit_code(tmp_path):
    ran = run(tmp_path, ECHO, "--json")
    got = json.loads(ran.stdout)
    assert (got["outcome"], got["output"], got["exit_code"]) == ("done", "program.wat\0", 7)
    assert ran.returncode == 7


@pytest.mark.parametrize("code, shown", [(0, 0), (254, 254), (256, 255), (-1, 255)])
def test_exit_codes_above_255_become_255(tmp_path, code, shown):
    assert run(tmp_path, program(f"(call $proc_exit (i32.const {code}))", "proc_exit")).returncode == shown


def test_raised_signal_ends_the_program_like_on_linux(tmp_path):
    body = "(drop (call $proc_raise (i32.const {}))) (call $proc_exit (i32.const 3))"
    assert run(tmp_path, program(body.format(6), "proc_raise", "proc_exit")).returncode == 134
    assert run(tmp_path, program(body.format(0), "proc_raise", "proc_exit")).returncode == 3


CAT = program("""
    (local $n i32)
    (i32.store (i32.const 0) (i32.const 1000)) (i32.store (i32.const 4) (i32.const 5))
    (loop $again
      (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16)))
      (local.set $n (i32.load (i32.const 16)))
      (call $print (i32.const 1) (i32.const 1000) (local.get $n))
      (br_if $again (local.get $n)))""", "fd_read")


def test_program_reads_standard_input_to_its_end(tmp_path):
    assert run(tmp_path, CAT, stdin="a line\nand one more\n").stdout == "a line\nand one more\n"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_exists_in_both_modules_and_refuses_pointers_outside_memory(tmp_path, name):
    for module in ("wasi_snapshot_preview1", "wasi_unstable"):
        zeros = " ".join(f"({TYPES[c]}.const {-1 if c == 'i' else 0})" for c in FUNCTIONS[name])
        source = program(f"(call ${name} {zeros})", name, module=module,
                         func='(export "f")' + ("" if name == "proc_exit" else " (result i32)"))
        ran = run(tmp_path, source, "--invoke", "f")
        if name == "proc_exit":
            assert ran.returncode == 255
            continue
        assert ran.returncode == 0, ran.stderr
        expected = {"sched_yield": "0", "clock_res_get": str(INVAL), "clock_time_get": str(INVAL),
                    "proc_raise": str(INVAL)}
        faults = {"args_get", "args_sizes_get", "environ_sizes_get", "poll_oneoff", "random_get", "path_symlink"}
        want = expected.get(name, str(FAULT if name in faults else BADF))
        if name == "environ_get":
            want = "0"  # there are no variables to write
        assert ran.stdout == f"{want}\n"


@pytest.mark.parametrize("name", WASMEDGE)
def test_sockets_of_wasmedge_are_not_supported(tmp_path, name):
    params, zeros = " ".join(["i32"] * len(WASMEDGE[name])), "(i32.const 0) " * len(WASMEDGE[name])
    source = f"""(import "wasi_snapshot_preview1" "{name}" (func $f (param {params}) (result i32)))
                 (memory (export "memory") 1) (func (export "f") (result i32) (call $f {zeros}))"""
    ran = run(tmp_path, source, "--invoke", "f", "--record", "log")
    assert (ran.returncode, ran.stdout) == (0, f"{NOTSUP}\n"), ran.stderr
    again = subprocess.run([CELL, "replay", "log"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    check = subprocess.run([CELL, "check", "program.wat"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert "warning" not in check.stdout + check.stderr


def test_buffers_that_cross_the_end_of_memory_are_refused(tmp_path):
    end = 2 * 65536
    calls = {"random_get": f"(i32.const {end - 2}) (i32.const 3)", "args_sizes_get": f"(i32.const 0) (i32.const {end - 3})",
             "fd_write": f"(i32.const 1) (i32.const {end - 4}) (i32.const 1) (i32.const 0)",
             "poll_oneoff": f"(i32.const {end - 47}) (i32.const 0) (i32.const 1) (i32.const 0)",
             "clock_time_get": f"(i32.const 0) (i64.const 0) (i32.const {end - 7})"}
    for name, args in calls.items():
        ran = run(tmp_path, program(f"(call ${name} {args})", name, func='(export "f") (result i32)'), "--invoke", "f")
        assert ran.stdout == f"{FAULT}\n", name
    vector = f"(i32.store (i32.const 0) (i32.const {end - 9})) (i32.store (i32.const 4) (i32.const 10))"
    body = f"{vector} (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16))"
    assert run(tmp_path, program(body, func='(export "f") (result i32)'), "--invoke", "f").stdout == f"{FAULT}\n"


def test_unknown_function_of_wasi_is_refused(tmp_path):
    ran = run(tmp_path, '(import "wasi_snapshot_preview1" "fd_dup" (func (param i32)))')
    assert ran.returncode == 4 and "fd_dup" in ran.stderr


CLOCK = program("""
    (drop (call $clock_time_get (i32.const 0) (i64.const 0) (i32.const 0)))
    (drop (call $random_get (i32.const 8) (i32.const 40)))
    (drop (call $clock_time_get (i32.const 1) (i64.const 0) (i32.const 48)))
    (call $print (i32.const 1) (i32.const 0) (i32.const 56))""", "clock_time_get", "random_get")


def clock_and_random(tmp_path, *options):
    (tmp_path / "clock.wat").write_text(CLOCK)
    ran = subprocess.run([CELL, "run", "clock.wat", *options], capture_output=True, timeout=60, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    return int.from_bytes(ran.stdout[:8], "little"), ran.stdout[8:48], int.from_bytes(ran.stdout[48:], "little")


def test_clocks_are_virtual_and_random_bytes_seeded_unless_granted(tmp_path):
    year_2000, year_2025 = 946684800 * 10**9, 1735689600 * 10**9
    first = clock_and_random(tmp_path)
    assert first == clock_and_random(tmp_path) == clock_and_random(tmp_path, "--seed", "0")
    assert year_2000 < first[0] < year_2000 + 10**9 and 0 < first[2] < 10**9
    assert clock_and_random(tmp_path, "--seed", "1")[1] != first[1]
    real = clock_and_random(tmp_path, "--grant", "clock", "--grant", "random")
    assert real[0] > year_2025 and real[1] != first[1]
    assert real[1] != clock_and_random(tmp_path, "--grant", "random")[1]


# Waits for a day on the clock with this id, prints the event and how long that took.
SLEEP = """
    (drop (call $clock_time_get (i32.const 1) (i64.const 0) (i32.const 0)))
    (i64.store (i32.const 100) (i64.const 77))
    (i32.store (i32.const {id}) (i32.const 1))
    (i64.store (i32.const {timeout}) (i64.const 86400000000000))
    (drop (call $poll_oneoff (i32.const 100) (i32.const 200) (i32.const 1) (i32.const 300)))
    (drop (call $clock_time_get (i32.const 1) (i64.const 0) (i32.const 8)))
    (i64.store (i32.const 0) (i64.sub (i64.load (i32.const 8)) (i64.load (i32.const 0))))
    (i64.store (i32.const 8) (i64.load (i32.const 200)))
    (call $print (i32.const 1) (i32.const 0) (i32.const 16))"""


@pytest.mark.parametrize("module, id, timeout", [("wasi_snapshot_preview1", 116, 124), ("wasi_unstable", 124, 132)])
def test_waiting_moves_the_virtual_clock(tmp_path, module, id, timeout):
    (tmp_path / "sleep.wat").write_text(program(SLEEP.format(id=id, timeout=timeout), "clock_time_get", "poll_oneoff",
                                                module=module))
    ran = subprocess.run([CELL, "run", "sleep.wat"], capture_output=True, timeout=60, cwd=tmp_path)
    assert 86400 * 10**9 <= int.from_bytes(ran.stdout[:8], "little") < 86401 * 10**9
    assert int.from_bytes(ran.stdout[8:16], "little") == 77


def test_data_of_a_call_costs_fuel(tmp_path):
    def fuel(n):
        ran = run(tmp_path, program(f"(call $print (i32.const 2) (i32.const 0) (i32.const {n}))"))
        return int(ran.stderr.rsplit("fuel: ", 1)[1])
    assert fuel(48000) - fuel(0) == 6000


def test_a_call_that_cannot_be_paid_is_made_after_a_resume(tmp_path):
    source = program("(call $print (i32.const 1) (i32.const 0) (i32.const 50000))")
    ran = run(tmp_path, source, "--fuel", 5000, "--out", "state")
    assert ran.returncode == 3 and ran.stdout == ""
    ran = run(tmp_path, source, "--resume", "state", "--fuel", 10000)
    assert ran.returncode == 0 and len(ran.stdout) == 50000


def test_recorded_run_replays_with_input_clock_and_random_bytes(tmp_path):
    source = program("""
        (i32.store (i32.const 0) (i32.const 1000)) (i32.store (i32.const 4) (i32.const 5))
        (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16)))
        (drop (call $random_get (i32.const 1005) (i32.const 20)))
        (drop (call $clock_time_get (i32.const 0) (i64.const 0) (i32.const 1032)))
        (call $print (i32.const 1) (i32.const 1000) (i32.const 5))
        (call $proc_exit (i32.and (i32.load8_u (i32.const 1005)) (i32.const 63)))""",
                     "fd_read", "random_get", "clock_time_get", "proc_exit")
    ran = run(tmp_path, source, "--grant", "clock", "--grant", "random", "--record", "log", stdin="hello")
    assert ran.stdout == "hello"
    again = subprocess.run([CELL, "replay", "log"], input="other", capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert again.returncode == 0 and "same: results, fuel and memory hash" in again.stderr, again.stderr


def test_replay_notices_output_that_differs(tmp_path):
    source = program("(call $print (i32.const 1) (i32.const 0) (i32.const 4))", data='(data (i32.const 0) "aaaa")')
    assert run(tmp_path, source, "--record", "log").stdout == "aaaa"
    log = (tmp_path / "log").read_bytes().replace(b"aaaa", b"aaab", 1)[:-8]
    digest = 0xcbf29ce484222325
    for byte in log:
        digest = ((digest ^ byte) * 0x100000001b3) & (2**64 - 1)
    (tmp_path / "log").write_bytes(log + digest.to_bytes(8, "little"))
    ran = subprocess.run([CELL, "replay", "log"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert ran.returncode == 6 and "wasi_snapshot_preview1.fd_write): the bytes handed over differ" in ran.stderr


def test_arguments_clock_and_random_bytes_go_on_after_a_resume(tmp_path):
    spin = "(local $i i32) (loop $l (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 10000))))"
    part = """(drop (call $random_get (i32.const 0) (i32.const 8)))
              (drop (call $clock_time_get (i32.const 1) (i64.const 0) (i32.const 8)))
              (drop (call $args_get (i32.const 100) (i32.const 16)))
              (call $print (i32.const 1) (i32.const 0) (i32.const 32))"""
    source = program(spin.split("(loop", 1)[0] + part + "(loop" + spin.split("(loop", 1)[1] + part,
                     "random_get", "clock_time_get", "args_get")
    (tmp_path / "p.wat").write_text(source)
    def cell(*args):
        return subprocess.run([CELL, "run", "p.wat", *map(str, args)], capture_output=True, timeout=60, cwd=tmp_path)
    whole = cell("--", "word").stdout
    first = cell("--suspend-at", 20000, "--out", "state", "--", "word").stdout
    # Resumed twice: the second run does not depend on the first.
    assert [first + cell("--resume", "state").stdout for _ in range(2)] == [whole] * 2


def test_damaged_state_of_wasi_is_refused(tmp_path):
    source = program("(loop $l (br $l))")
    assert run(tmp_path, source, "--fuel", 100, "--out", "state").returncode == 3
    state = bytearray((tmp_path / "state").read_bytes())
    for change in (state[12:], state[:30], state[:8] + b"\xff" * 4 + state[12:], state[:12] + b"\t" + state[13:]):
        (tmp_path / "bad").write_bytes(change)
        ran = run(tmp_path, source, "--resume", "bad", "--fuel", 10)
        assert ran.returncode == 6, ran.stderr


@pytest.mark.parametrize("options, text", [
    (["--env", "A"], "--env A: must be NAME=VALUE"), (["--invoke", "f", "--", "a"], "either --invoke NAME ARGS or -- WORDS"),
    (["--resume", "x", "--", "a"], "leave out --invoke, --args, --env and words after --")])
def test_options_that_contradict_each_other_are_refused(tmp_path, options, text):
    ran = run(tmp_path, CAT, *options)
    assert ran.returncode == 64 and text in ran.stderr


def test_library_is_initialized_before_its_function_is_called(tmp_path):
    source = program("(global.set $ready (i32.const 42))", func='(export "_initialize")',
                     data='(global $ready (mut i32) (i32.const 0)) (func (export "ready") (result i32) (global.get $ready))')
    assert run(tmp_path, source, "--invoke", "ready").stdout == "42\n"
