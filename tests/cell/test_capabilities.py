"""Functions of module carrel.1: what was allowed and nothing else, hostile pointers, calls, replay, suspension."""
import functools, json, os, pathlib, re, shlex, shutil, subprocess, sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import pages

ROOT = pathlib.Path(__file__).resolve().parents[2]
CELL = pathlib.Path(os.environ["CARREL_BUILD"]) / "libexec/carrel-cell"
TYPES = {"log": "(param i32 i32)", "args": "(result i32)", "result": "(param i32 i32) (result i32)", "time": "(result i64)",
         "random": "(param i32 i32)", "call": "(param i32 i32 i32 i32 i64) (result i32)",
         "answer": "(param i32 i32 i32) (result i32)", "kv.get": "(param i32 i32) (result i32)",
         "kv.put": "(param i32 i32 i32 i32) (result i32)", "kv.delete": "(param i32 i32) (result i32)",
         "kv.list": "(param i32 i32) (result i32)"}
PAGE = ROOT / "docs/reference/capabilities.md"


def module(body, *names, data="", pages=1):
    """A module that imports these functions; `body` is that of _start, with the local $n."""
    imports = "".join(f'(import "carrel.1" "{n}" (func ${n} {TYPES[n]}))' for n in names)
    return (f'(module {imports} (memory (export "memory") {pages}) (data (i32.const 0) "{data}")'
            f' (func (export "_start") (local $n i32) {body}))')


def cell(*args, cwd):
    return subprocess.run([CELL, *map(str, args)], capture_output=True, text=True, timeout=120, cwd=cwd)


@pytest.fixture
def run(tmp_path):
    """Runs the text of a module. Other programs are files that the test wrote."""
    def run(text, *args):
        (tmp_path / "it.wat").write_text(text)
        return cell("run", "it.wat", *args, cwd=tmp_path)
    return run


# The program calls `child` with the arguments 1 and fuel (0: all), and its result is the answer.
def calling(child, fuel=0, body=""):
    n = len(child)
    return module(f'(local.set $n (call $call (i32.const 0) (i32.const {n}) (i32.const {n}) (i32.const 1) (i64.const {fuel})))'
                  f'(drop (call $answer (i32.const 100) (i32.const 0) (i32.const 1000))) {body}'
                  '(if (i32.lt_s (local.get $n) (i32.const 0)) (then'
                  ' (call $log (i32.const 100) (call $answer (i32.const 100) (i32.const 0) (i32.const 1000)))'
                  ' (i32.store8 (i32.const 64) (i32.const 45))'
                  ' (i32.store8 (i32.const 65) (i32.sub (i32.const 48) (local.get $n)))'
                  ' (drop (call $result (i32.const 64) (i32.const 2))))'
                  '(else (drop (call $result (i32.const 100) (local.get $n)))))', "call", "answer", "result", "log", data=child + "1")


CALL = ["--allow", "call,result,log"]
DOUBLE = module('(drop (call $args)) (drop (call $answer (i32.const 8) (i32.const 0) (i32.const 1)))'
                '(i32.store8 (i32.const 9) (i32.load8_u (i32.const 8))) (drop (call $result (i32.const 8) (i32.const 2)))',
                "args", "answer", "result")
SPIN = '(module (func (export "_start") (loop $more (br $more))))'


# ---- grants ----

@pytest.mark.parametrize("name", [n for n in TYPES if n != "answer" and "." not in n])
def test_function_without_its_capability_is_refused_when_the_module_is_loaded(run, name):
    text = module("", "answer", name)
    others = ",".join(n for n in TYPES if n not in ("answer", name) and "." not in n)
    done = run(text, "--allow", others)
    assert done.returncode == 4 and f"the module imports carrel.1.{name}, which was not granted\n  grant it with --allow " in done.stderr
    command = re.search(r"grant it with (.*)", done.stderr)[1].split()
    assert run(text, *command).returncode == 0


def test_refusal_lists_all_capabilities_that_the_program_needs(run):
    done = run(module("", "args", "time", "result"), "--allow", "time,log")
    assert "grant it with --allow log,args,result,time\n" in done.stderr


def test_grants_of_the_older_module_allow_nothing_of_the_new_one(run):
    assert run(module("", "log"), "--grant", "log").returncode == 4
    old = '(module (import "carrel" "log" (func (param i32 i32))) (func (export "_start")))'
    assert run(old, "--allow", "log").returncode == 4 and run(old, "--grant", "log").returncode == 0


@pytest.mark.parametrize("words, said", [
    (["--allow", "log,fly"], "--allow: capability 'fly' does not exist\n  capabilities are log,args,result,time,random,call,kv"),
    (["--allow", "kv"], "--allow kv needs --kv DIR"),
    (["--program", "x"], "--program x: must be NAME=FILE"), (["--program", "x=nowhere"], "cannot open 'nowhere'"),
    (["--allow", "args", "--args", "{'a'}"], "--args is not JSON")])
def test_wrong_options_are_named(run, words, said):
    done = run(module("", "args") if "args" in words else module(""), *words)
    assert done.returncode in (2, 64) and said in done.stderr, done


def test_import_of_another_name_or_type_is_refused(run):
    done = run('(module (import "carrel.1" "fly" (func)))', "--allow", "log")
    assert done.returncode == 4 and "this host function does not exist" in done.stderr
    done = run('(module (import "carrel.1" "log" (func (param i64))))', "--allow", "log")
    assert done.returncode == 2 and "incompatible import type" in done.stderr
    assert run('(module (import "carrel.1" "log" (memory 1)))', "--allow", "log").returncode in (2, 4)


# ---- the functions ----

def test_log_result_time_and_random(run):
    text = module('(call $log (i32.const 0) (i32.const 5)) (call $random (i32.const 8) (i32.const 16))'
                  '(if (i64.eqz (i64.or (i64.load (i32.const 8)) (i64.load (i32.const 16)))) (then unreachable))'
                  '(if (i64.lt_u (call $time) (i64.const 1600000000000000000)) (then unreachable))'
                  '(drop (call $result (i32.const 0) (i32.const 2))) (drop (call $result (i32.const 5) (i32.const 2)))',
                  "log", "random", "time", "result", data="42\\1b[m[]")
    done = run(text, "--allow", "log,random,time,result")
    assert (done.returncode, done.stderr) == (0, "42?[m\n") and done.stdout.startswith("[]\nfuel: ")
    shown = json.loads(run(text, "--allow", "log,random,time,result", "--json").stdout)
    assert shown["result"] == "[]" and shown["output"] == ""


@pytest.mark.parametrize("json_text, is_json", [
    ("null", True), ('{\\22a\\22:[1,-2.5e3]}', True), ("", False), ("{", False), ("1 2", False), ("nul", False), ("\\22\\ff\\22", False),
    ("[" * 1000, False)])
def test_result_takes_only_json(run, json_text, is_json):
    n = len(re.sub(r"\\..", "x", json_text))
    done = run(module(f'(if (i32.ne (call $result (i32.const 0) (i32.const {n})) (i32.const {0 if is_json else -1})) (then unreachable))',
                      "result", data=json_text), "--allow", "result", "--json")
    assert done.returncode == 0 and ("result" in json.loads(done.stdout)) == is_json


def test_arguments_are_read_in_pieces(run):
    body = ('(local.set $n (call $args)) (drop (call $answer (i32.const 0) (i32.const 0) (i32.const 3)))'
            '(drop (call $answer (i32.const 3) (i32.const 3) (i32.const 60000)))'
            '(if (call $answer (i32.const 0) (local.get $n) (i32.const 9)) (then unreachable))'
            '(if (call $answer (i32.const 0) (i32.const -1) (i32.const 9)) (then unreachable))'
            '(drop (call $result (i32.const 0) (local.get $n)))')
    text = module(body, "args", "answer", "result")
    assert run(text, "--allow", "args,result", "--args", '{"a": "é"}').stdout.startswith('{"a": "é"}\n')
    words = ['two "words"', "é"]
    assert json.loads(run(text, "--allow", "args,result", "--", *words).stdout.splitlines()[0]) == words


HUGE = -1  # 2^32 - 1
@pytest.mark.parametrize("name, call", [
    ("log", "(call $log (i32.const {p}) (i32.const {n}))"), ("result", "(drop (call $result (i32.const {p}) (i32.const {n})))"),
    ("random", "(call $random (i32.const {p}) (i32.const {n}))"),
    ("answer", "(drop (call $args)) (drop (call $answer (i32.const {p}) (i32.const 0) (i32.const {n})))"),
    ("call", "(drop (call $call (i32.const {p}) (i32.const {n}) (i32.const 0) (i32.const 1) (i64.const 0)))"),
    ("call", "(drop (call $call (i32.const 0) (i32.const 1) (i32.const {p}) (i32.const {n}) (i64.const 0)))")])
def test_pointers_out_of_bounds_trap(run, name, call):
    args = ["--allow", "log,result,random,args,call", "--args", json.dumps("x" * 70000)]
    names = {name, "args", "answer"}
    inside = run(module(call.format(p=65500, n=36), *names), *args)
    assert inside.returncode == 0, inside  # the control: the last bytes of the memory
    for p, n in [(65500, 37), (65536, 1), (HUGE, 1), (0, HUGE), (HUGE, HUGE), (65536, HUGE), (1, 65536)]:
        done = run(module(call.format(p=p, n=n), *names), *args)
        assert done.returncode == 1 and ("out of bounds" in done.stderr or "at most 1 MiB" in done.stderr), (p, n, done)
    without = module(call.format(p=0, n=1), *names).replace('(export "memory") ', "")
    assert run(without, *args).returncode == (0 if name == "none" else 1)


# ---- call ----

def test_call_gives_the_result_of_the_other_program(run, tmp_path):
    (tmp_path / "d.wat").write_text(DOUBLE)
    done = run(calling("double"), "--allow", "call,result,log,args", "--program", "double=d.wat")
    assert done.returncode == 0 and done.stdout.startswith("11\n"), done
    (tmp_path / "d.wat").write_text(module(""))
    assert run(calling("double"), *CALL, "--program", "double=d.wat").stdout.startswith("null\n")


@pytest.mark.parametrize("child, code, why", [
    (None, 2, "does not exist"), ("(module (func (export \"_start\") unreachable))", 5, "the program trapped: unreachable"),
    (module("", "time"), 3, "imports carrel.1.time, which was not granted"), ("(module (func (export \"x\")))", 1, "no entry point"),
    ("(modul)", 1, "not valid"), ("\0asm", 1, "not a valid module"), (SPIN, 4, "used all its fuel"), (module("", pages=60000), 4, "larger than this engine allows"),
    ('(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32))) (memory (export "memory") 1)'
     ' (func (export "_start") (call $exit (i32.const 7))))', 5, "exited with code 7")])
def test_call_that_fails_gives_a_code_and_the_caller_goes_on(run, tmp_path, child, code, why):
    extra = []
    if child is not None:
        (tmp_path / "c.wat").write_text(child)
        extra = ["--program", "child=c.wat"]
    done = run(calling("child", fuel=2_000_000), *CALL, *extra)
    assert done.returncode == 0 and done.stdout.startswith(f"-{code}\n"), done
    assert why in done.stderr, done


@pytest.mark.parametrize("name", ["../x", "/bin/x", ".", "", "a b", "x\\00y", "x" * 65, "..", "\\ff"])
def test_call_refuses_hostile_names(run, name):
    n = len(re.sub(r"\\..", "x", name))
    text = module(f'(if (i32.ne (call $call (i32.const 0) (i32.const {n}) (i32.const 100) (i32.const 1) (i64.const 0))'
                  ' (i32.const -1)) (then unreachable))', "call", data=name + "\\00" * (100 - n) + "1")
    assert run(text, "--allow", "call").returncode == 0


def test_fuel_of_a_called_program_is_that_of_its_caller(run, tmp_path):
    (tmp_path / "s.wat").write_text(SPIN)
    spin = ["--program", "child=s.wat"]
    fuel = lambda done: json.loads(done.stdout)["fuel"]
    alone = fuel(run(calling("child", fuel=1000), *CALL, "--json", *spin))
    with_more = fuel(run(calling("child", fuel=51_000), *CALL, "--json", *spin))
    assert with_more - alone == 50_000
    done = run(calling("child"), *CALL, "--json", "--fuel", 30_000, *spin)
    assert done.returncode == 3 and fuel(done) <= 30_000
    asks_too_much = run(calling("child", fuel=2 ** 62), *CALL, "--json", "--fuel", 30_000, *spin)
    assert asks_too_much.returncode == 3 and fuel(asks_too_much) <= 30_000


def test_programs_that_call_themselves_end_at_a_depth(run, tmp_path):
    text = calling("self")
    (tmp_path / "self.wat").write_text(text)
    done = run(text, *CALL, "--program", "self=self.wat", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["result"] == "-4", done
    assert done.stderr.count("more than 8 deep") == 1, done
    assert report["fuel"] < 200_000


def test_memory_of_called_programs_is_part_of_the_limit(run, tmp_path):
    (tmp_path / "large.wat").write_text(module("", pages=60))
    small, large = (run(calling("child").replace('"memory") 1', f'"memory") {n}'), *CALL, "--memory", 100, "--program",
                        "child=large.wat").stdout.split("\n")[0] for n in (10, 90))
    assert (small, large) == ("null", "-4")


def test_capabilities_are_not_widened_by_a_call(run, tmp_path):
    (tmp_path / "c.wat").write_text(module("(drop (call $time))", "time"))
    assert run(calling("child"), *CALL, "--program", "child=c.wat").stdout.startswith("-3\n")
    assert run(calling("child"), "--allow", "call,result,log,time", "--program", "child=c.wat").stdout.startswith("null\n")


# ---- keys and values ----

def quoted(data):
    return "".join(f"\\{b:02x}" for b in data)


def kv(op, key=b"", value=b"", at=1024):
    """The program prints the code as its first line, and then the answer."""
    put = f"(i32.const {at + 2048}) (i32.const {len(value)})" if op == "put" else ""
    text = module(f'(local.set $n (call $kv.{op} (i32.const {at}) (i32.const {len(key)}) {put}))'
                  '(call $log (i32.const 100000) (call $answer (i32.const 100000) (i32.const 0) (i32.const 1100000)))'
                  '(i32.store8 (i32.const 0) (select (i32.const 45) (i32.const 32) (i32.lt_s (local.get $n) (i32.const 0))))'
                  '(i32.store8 (i32.const 1) (i32.add (i32.const 48) (select (i32.sub (i32.const 0) (local.get $n)) (i32.const 0)'
                  ' (i32.lt_s (local.get $n) (i32.const 0))))) (drop (call $result (i32.const 0) (i32.const 2)))',
                  "kv." + op, "answer", "log", "result", pages=40)
    return text.replace("(func (export", f'(data (i32.const {at}) "{quoted(key)}") (data (i32.const {at + 2048}) "{quoted(value)}") (func (export')


@pytest.fixture
def store(run, tmp_path):
    """Runs one operation: its code, and the answer."""
    (tmp_path / "kv").mkdir()

    def operate(op, key=b"", value=b"", *args):
        done = run(kv(op, key, value), "--allow", "kv,log,result", "--kv", "kv", "--fuel", 10_000_000, *args)
        if "cannot make" in done.stderr and "--cell-root" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done
        return int(done.stdout.split("\n")[0]), done.stderr[:-1]
    operate.folder = tmp_path / "kv"
    return operate


def test_kv_put_get_list_and_delete(store):
    assert store("list") == (0, "[]") and store("get", b"a") == (-2, "the key does not exist")
    assert store("put", b"a", b"one") == (0, "") and store("put", "é/\0\"".encode(), b"") == (0, "")
    assert store("get", b"a") == (0, "one") and store("get", "é/\0\"".encode()) == (0, "")
    assert store("put", b"a", b"two") == (0, "") and store("get", b"a") == (0, "two")
    assert store("put", b"../../escape", b"x") == (0, "")
    assert json.loads(store("list")[1]) == sorted(["../../escape", "a", "é/\0\""], key=str.encode)
    assert store("list", b"../") == (0, '["../../escape"]') and store("list", b"zz") == (0, "[]")
    assert store("delete", b"a") == (0, "") and store("delete", b"a")[0] == store("get", b"a")[0] == -2
    assert len(list(store.folder.iterdir())) == 2 and not (store.folder.parent.parent / "escape").exists()


@pytest.mark.parametrize("key", [b"", b"x" * 257, b"\xff", b"\xed\xa0\x80"])
def test_kv_refuses_hostile_keys(store, key):
    for op in ("get", "put", "delete"):
        assert store(op, key) == (-1, "a key has 1 to 256 bytes of UTF-8")
    assert store("put", b"x" * 256)[0] == 0


def test_kv_values_have_a_limit_and_all_together_a_quota(store):
    largest = (1 << 20) - 100
    text = kv("put", b"k").replace("(i32.const 3072) (i32.const 0)", f"(i32.const 3072) (i32.const {largest})")
    for i in range(16):
        (store.folder.parent / "it.wat").write_text(text.replace(quoted(b"k"), quoted(b"%c" % (65 + i))))
        done = cell("run", "it.wat", "--allow", "kv,log,result", "--kv", "kv", cwd=store.folder.parent)
        assert done.stdout.startswith(" 0\n"), (i, done)
    done = store("put", b"one more", b"x" * 2000)
    assert done == (-4, "all keys and values may have 16 MiB together")
    assert store("put", b"A", b"shorter")[0] == 0 and store("put", b"one more", b"x" * 2000)[0] == 0


def fuel_of(run, text, *args):
    done = run(text, "--json", *args)
    assert done.returncode == 0, done
    return json.loads(done.stdout)["fuel"]


def test_kv_get_costs_fuel_for_the_value(run, store):
    """The program does not look at the value, which is read and checked all the same."""
    size, costs = 64000, {}
    for key, value in ((b"s", b"x"), (b"l", b"x" * size)):
        assert store("put", key, value)[0] == 0
        text = module('(drop (call $kv.get (i32.const 0) (i32.const 1)))', "kv.get", data=key.decode())
        costs[key] = fuel_of(run, text, "--allow", "kv", "--kv", "kv")
    assert costs[b"l"] - costs[b"s"] == size // 8, costs


@pytest.mark.parametrize("name, rest", [("call", "(i32.const 0) (i32.const 1) (i64.const 0)"), ("kv.put", "(i32.const 0) (i32.const 0)")])
def test_long_names_cost_fuel(run, store, name, rest):
    """Only the arguments and the value are counted by their parameters."""
    costs = [fuel_of(run, module(f'(drop (call ${name} (i32.const 0) (i32.const {n}) {rest}))', name, pages=20, data="1"),
                     "--allow", "call,kv", "--kv", "kv") for n in (400, 1 << 20)]
    assert costs[1] - costs[0] == ((1 << 20) - 400) // 8, costs


def test_kv_has_a_limit_of_keys(store):
    assert store("put", b"a", b"1")[0] == 0
    for i in range(1023):
        (store.folder / f"{i:064x}").write_bytes(b"")
    assert store("put", b"b", b"1") == (-4, "there are 1024 keys already")
    assert store("put", b"a", b"2")[0] == 0 and store("get", b"a") == (0, "2")
    assert store("list") == (0, '["a"]')  # files that are not of a key are left out


def test_kv_trusts_no_file_in_its_directory(store):
    assert store("put", b"a", b"value")[0] == store("put", b"b", b"value")[0] == 0
    (store.folder.parent / "secret").write_bytes(b"outside")
    a, b = sorted(store.folder.iterdir(), key=lambda p: b"a" not in p.read_bytes()[20:21])
    whole = a.read_bytes()
    for damaged in (b"", whole[:-1], whole + b"x", whole[:-1] + b"X", whole.replace(b"CKV1", b"CKV2"), b.read_bytes(),
                    whole[:4] + b"\xff" * 8 + whole[12:]):
        a.write_bytes(damaged)
        assert store("get", b"a") == (-5, "the file of the key is damaged"), damaged
    a.unlink()
    for make in (lambda: a.symlink_to("../secret"), lambda: a.mkdir(), lambda: os.mkfifo(a)):
        make()
        assert store("get", b"a")[0] == -5 and json.loads(store("list")[1]) == ["b"]
        a.rmdir() if a.is_dir() and not a.is_symlink() else a.unlink()
    assert store("put", b"a", b"new")[0] == 0 and store("get", b"a") == (0, "new")
    assert (store.folder.parent / "secret").read_bytes() == b"outside"


def test_kv_removes_parts_of_commands_that_were_killed(store):
    old, new = store.folder / "p0123456789abcdef", store.folder / "pfedcba9876543210"
    old.write_bytes(b"half"), new.write_bytes(b"half")
    os.utime(old, (1_600_000_000, 1_600_000_000))
    assert store("put", b"a", b"1")[0] == 0
    assert not old.exists() and new.exists()


def test_kv_is_not_read_or_written_by_a_replay(store, tmp_path):
    assert store("put", b"a", b"recorded", "--record", "put.log")[0] == 0
    assert store("get", b"a", b"", "--record", "get.log") == (0, "recorded")
    assert store("list", b"", b"", "--record", "list.log") == (0, '["a"]')
    assert store("delete", b"a")[0] == 0
    for name in ("put", "get", "list"):
        done = cell("replay", f"{name}.log", "--json", cwd=tmp_path)
        assert done.returncode == 0, done
    assert not list(store.folder.iterdir())


def test_wasi_program_does_not_see_the_directory_of_keys(run, tmp_path):
    (tmp_path / "kv").mkdir()
    text = ('(module (import "wasi_snapshot_preview1" "fd_prestat_get" (func $get (param i32 i32) (result i32)))'
            ' (import "carrel.1" "kv.list" (func (param i32 i32) (result i32))) (memory (export "memory") 1)'
            ' (func (export "main") (result i32) (call $get (i32.const 3) (i32.const 0))))')
    assert run(text, "--allow", "kv", "--kv", "kv").stdout.startswith("8\n")  # badf
    assert run(text, "--allow", "kv", "--kv", "kv", "--dir", "kv").stdout.startswith("0\n")


# ---- record, replay, suspend ----

WORLD = module('(call $random (i32.const 8) (i32.const 8)) (i64.store (i32.const 16) (call $time)) (drop (call $args))'
               '(drop (call $answer (i32.const 24) (i32.const 0) (i32.const 50)))'
               '(drop (call $call (i32.const 0) (i32.const 1) (i32.const 1) (i32.const 1) (i64.const 0)))'
               '(drop (call $answer (i32.const 200) (i32.const 0) (i32.const 50))) (call $log (i32.const 0) (i32.const 2))'
               '(drop (call $result (i32.const 1) (i32.const 1)))',
               "random", "time", "args", "answer", "call", "log", "result", data="d1")
ALL = ["--allow", "random,time,args,call,log,result"]


def test_replay_is_exact_and_runs_no_other_program(run, tmp_path):
    (tmp_path / "d.wat").write_text(DOUBLE)
    first = run(WORLD, *ALL, "--program", "d=d.wat", "--args", "[7]", "--record", "log", "--json")
    assert first.returncode == 0, first
    (tmp_path / "d.wat").unlink()
    again = cell("replay", "log", "--json", cwd=tmp_path)
    assert again.returncode == 0, again
    for member in ("fuel", "memory_hash", "result"):
        assert json.loads(again.stdout)[member] == json.loads(first.stdout)[member]
    assert again.stderr == ""  # log lines are not written again


def fnv(data):
    return functools.reduce(lambda h, b: (h ^ b) * 0x100000001b3 % 2**64, data, 0xcbf29ce484222325).to_bytes(8, "little")


def test_replay_of_a_changed_log_is_refused(run, tmp_path):
    (tmp_path / "d.wat").write_text(DOUBLE)
    assert run(WORLD, *ALL, "--program", "d=d.wat", "--record", "log").returncode == 0
    log = (tmp_path / "log").read_bytes()
    names = [m.start() for m in re.finditer(rb"carrel\.1\.call", log)]
    assert len(names) == 1
    given = names[0] + 13 + 4 + 5 * 12 + 8 + 4 + 12 + 4  # name, arguments, digest, result; then the fuel and the answer
    assert log[given + 8:given + 10] == b"11"
    for at, what in [(given, "fuel"), (given + 7, "more fuel than is left"), (given + 8, "memory hash")]:
        changed = log[:at] + bytes([log[at] ^ 2]) + log[at + 1:-8]
        (tmp_path / "changed").write_bytes(changed + fnv(changed))
        done = cell("replay", "changed", cwd=tmp_path)
        assert done.returncode == 6 and what in done.stderr, (what, done)
    without = log.replace(b"allow:time\n", b"")  # the length of the list is wrong now
    (tmp_path / "changed").write_bytes(without[:-8] + fnv(without[:-8]))
    assert cell("replay", "changed", cwd=tmp_path).returncode == 6


def test_suspended_program_keeps_its_answer_arguments_and_result(run, tmp_path):
    text = module('(drop (call $result (i32.const 0) (i32.const 2))) (local.set $n (call $args))'
                  '(drop (call $answer (i32.const 8) (i32.const 0) (i32.const 50)))'
                  '(if (i32.ne (call $args) (local.get $n)) (then unreachable))'
                  '(drop (call $answer (i32.const 80) (i32.const 0) (i32.const 50)))', "args", "answer", "result", data="42")
    options = ["--allow", "args,result", "--json"]
    whole = json.loads(run(text, *options, "--args", '"given"').stdout)
    for at in range(1100, whole["fuel"], 150):
        first = run(text, *options, "--args", '"given"', "--suspend-at", at, "--out", "state")
        assert json.loads(first.stdout)["outcome"] == "suspended"
        done = run(text, *options, "--resume", "state")
        assert done.returncode == 0, (at, done)
        got = json.loads(done.stdout)
        assert all(got[m] == whole[m] for m in ("fuel", "memory_hash", "result")), (at, got, whole)
        assert run(text, "--resume", "state", "--allow", "result").returncode == 4
    state = (tmp_path / "state").read_bytes()
    for n in (0, 7, 12, 20, 30):
        (tmp_path / "cut").write_bytes(state[:n])
        assert run(text, *options, "--resume", "cut").returncode == 6
    (tmp_path / "long").write_bytes(state[:8] + b"\xff" * 12 + state[20:])
    assert run(text, *options, "--resume", "long").returncode == 6


# ---- the documentation ----

def sources(language, pattern):
    return {re.match(pattern, b.text)[1]: b.text for b in pages.blocks(PAGE, language)}


def test_examples_in_text_are_true(tmp_path):
    for name, text in sources("wat", r";; (\S+)\n").items():
        (tmp_path / name).write_text(text)
    commands = [t for b in pages.blocks(PAGE, "console") for t in pages.typed(b)]
    assert len(commands) >= 4
    for t in commands:
        done = subprocess.run([CELL, *shlex.split(t.command)[2:]], cwd=tmp_path, text=True, timeout=60, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        assert re.fullmatch(re.escape(t.shown).replace("…", ".*"), done.stdout), (t.command, done.stdout)


def run_lines(start, folder):
    """Runs the lines of the shell block that begins so; the comment is the first line of the output."""
    block, = [b.text for b in pages.blocks(PAGE, "sh") if b.text.startswith(start)]
    for line in block.splitlines():
        words, _, shown = line.partition("#")
        words = shlex.split(words)
        done = subprocess.run([CELL, *words[2:]] if words[0] == "carrel" else words, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, (words, done)
        if shown:
            assert done.stdout.splitlines()[0] == shown.strip()


def test_example_in_c_is_true(tmp_path):
    if not shutil.which("clang") or not shutil.which("wasm-ld"):
        pytest.skip("clang and wasm-ld (package lld) are not installed")
    for name, text in sources("c", r"/\* (\S+) \*/\n").items():
        (tmp_path / name).write_text(text)
    run_lines("clang ", tmp_path)


def test_example_in_assemblyscript_is_true(tmp_path, monkeypatch):
    folder = pathlib.Path(os.environ.get("CARREL_ASC") or ROOT / "build/asc") / "node_modules/.bin"
    if not (folder / "asc").exists():
        pytest.skip("the AssemblyScript compiler is not installed: run make asc")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for name, text in sources("ts", r"// (\S+)\n").items():
        (tmp_path / name).write_text(text)
    run_lines("asc ", tmp_path)
