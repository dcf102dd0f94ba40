"""The command line of cells: results, errors and exit codes, as a table and as stories.

CARREL_CELL names the worker program. Every test uses the real one.
"""
import functools, hashlib, itertools, json, os, pathlib, re, subprocess, sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import pages

CELL = os.environ["CARREL_CELL"]
ROOT = pathlib.Path(__file__).resolve().parents[2]

ADD = """(module
  (func (export "add") (param $a i32) (param $b i32) (result i32)
    (i32.add (local.get $a) (local.get $b)))
  (func (export "div") (param i32 i32) (result i32)
    (i32.div_s (local.get 0) (local.get 1)))
  (func (export "spin") (loop $l (br $l)))
  (func (export "floats") (param f32 f64) (result f64 f32)
    (f64.neg (local.get 1)) (f32.sqrt (local.get 0))))
"""
HELLO = """(module
  (import "carrel" "args_size" (func $size (result i32)))
  (import "carrel" "args_read" (func $read (param i32 i32 i32) (result i32)))
  (import "carrel" "result" (func $result (param i32 i32)))
  (import "carrel" "log" (func $log (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "hello, ")
  (func (export "_start")
    (call $log (i32.const 0) (i32.const 5))
    (drop (call $read (i32.const 7) (i32.const 0) (call $size)))
    (call $result (i32.const 0) (i32.add (i32.const 7) (call $size)))))
"""
HELLO_GRANTS = ["--grant", "args_size", "--grant", "carrel.args_read", "--grant", "result",
                "--grant", "log"]
DICE = """(module
  (import "carrel" "random" (func $random (param i32 i32)))
  (import "carrel" "clock" (func $clock (result i64)))
  (memory (export "memory") 1)
  (func (export "roll") (param $n i32) (result i64)
    (local $sum i64)
    (loop $again
      (call $random (i32.const 64) (i32.const 8))
      (local.set $sum (i64.add (local.get $sum) (i64.xor (call $clock) (i64.load (i32.const 64)))))
      (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
    (local.get $sum)))
"""
COUNT = """(module
  (memory 1)
  (func (export "count") (param $n i32) (result i32)
    (local $i i32)
    (loop $l
      (i32.store (i32.const 8) (i32.add (i32.load (i32.const 8)) (local.get $i)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $l (i32.lt_u (local.get $i) (local.get $n))))
    (i32.load (i32.const 8))))
"""


def cell(*args, cwd=None):
    return subprocess.run([CELL, *map(str, args)], capture_output=True, text=True, timeout=60,
                          cwd=cwd)


@pytest.fixture(autouse=True, scope="session")
def confinement(tmp_path_factory):
    source = tmp_path_factory.mktemp("probe") / "empty.wat"
    source.write_text("")
    if "cannot confine a worker" in cell("run", source).stderr:
        pytest.skip("this host cannot confine a worker: no seccomp filter")


@pytest.fixture
def files(tmp_path):
    texts = {"add.wat": ADD, "hello.wat": HELLO, "dice.wat": DICE, "count.wat": COUNT,
             "http.wat": '(import "env" "http_get" (func))', "not.wasm": "\0asm\1\0\0\0\7",
             "types.wat": '(import "carrel" "log" (func (param i32))) (import "carrel" "clock" (func (result i64)))',
             "entry.wat": '(func (export "main") (param i32 i32)) (memory (export "m") 1)',
             "start.wat": "(func $f unreachable) (start $f)",
             "tables.wat": "(table 10000000 funcref) " * 4,
             "list.wat": "(type $l (struct (field (ref null $l)))) (func (export \"grow\")"
                         " (local (ref null $l)) (loop (local.set 0 (struct.new $l (local.get 0)))"
                         " (br 0)))",
             "big.wat": "(memory 5000)", "deep.wat": '(func $f (export "f") (call $f))',
             "pass.wast": "(module) (assert_return (invoke \"f\"))", "empty.wat": ""}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tmp_path


# What is typed, the exit code, and what must be in the output or the errors.
TABLE = [
    ("run add.wat --invoke add 40 2", 0, r"^42\nfuel: 3\n$"),
    ("run add.wat --invoke add -- 1 2", 64, "use either --invoke NAME ARGS or -- WORDS"),
    ("run add.wat --invoke add 0x10 -1", 0, r"^15\n"),
    ("run add.wat --invoke floats 2.25 inf", 0, r"^-inf\n1.5\n"),
    ("run empty.wat", 0, r"^fuel: 0\n"),
    ("run add.wat --invoke div 1 0", 1, r"trap: integer divide by zero\n  at \$div \(add.wat:5:6\)"),
    ("run start.wat", 1, r"trap: unreachable"),
    ("run deep.wat --invoke f", 1, r"trap: call stack exhausted"),
    ("run not.wasm", 2, r"not.wasm is not a valid module: byte 0x"),
    ("run add.wat --invoke add 1", 2, "add takes 2 arguments, 1 was given"),
    ("run add.wat --invoke add 1 x", 2, "argument 2: 'x' is not an i32"),
    ("run add.wat --invoke add 1 4294967296", 2, "argument 2: '4294967296' is out of range for the type i32"),
    ("run add.wat --invoke nothing", 2, "exports no function 'nothing'"),
    ("run add.wat", 2, r'module add.wat has no entry point: it needs an exported function "_start" or "main" '
     r"without parameters, or --invoke\n  choose a function with --invoke NAME ARG...: "
     r"add \(func \(param i32 i32\) \(result i32\)\), div \(func \(param i32 i32\) \(result i32\)\), spin \(func\), ...\n"),
    ("run entry.wat", 2, r"--invoke NAME ARG...: main \(func \(param i32 i32\)\)\n"),
    ("fuel entry.wat", 2, "module entry.wat has no entry point"),
    ("check http.wat", 0, r"^warning: import env.http_get: no host has it; hosts have WASI preview 1, carrel.1 and carrel.\{args_size,"),
    ("check types.wat", 0, r"^warning: import carrel.log: the host function has the type \(func \(param i32 i32\)\)\n$"),
    ("check http.wat --json", 0, r'"warnings":\["import env.http_get: no host has it;'),
    ("check hello.wat --json", 0, r'"warnings":\[\]'),
    ("run missing.wat", 2, "cannot open 'missing.wat': No such file"),
    ("run add.wat --invoke spin --fuel 1000", 3, "out of fuel: 1000 spent, the next instruction needs 1"),
    ("run http.wat", 4, "the module imports env.http_get, which was not granted"),
    ("run hello.wat", 4, "imports carrel.args_size, which was not granted\n  grant it with --grant args_size"),
    ("run big.wat --memory 100", 5, "--memory is 100 pages"),
    ("run tables.wat", 5, "--memory is 4096 pages"),
    ("run tables.wat --memory 8192", 0, "fuel: 5000000"),
    ("run list.wat --memory 1 --invoke grow", 1, "raise --memory"),
    ("run add.wat --resume add.wat", 6, "resume 'add.wat'"),
    ("replay add.wat", 6, "the file is not a log that `carrel cell run --record` wrote"),
    ("run", 64, "run needs a file"),
    ("run a b", 64, "takes one file"),
    ("run add.wat --fuel many", 64, "--fuel: 'many' is not a number"),
    ("run add.wat --fuel", 64, "--fuel needs a value"),
    ("run add.wat --frob", 64, "unknown option --frob"),
    ("run add.wat --spec 4.0", 64, "not 1.0, 2.0 or 3.0"),
    ("run add.wat --suspend-at 5", 64, "--suspend-at needs --out"),
    ("run add.wat --grant http", 64, "host function carrel.http does not exist"),
    ("check add.wat --fuel 5", 64, "unknown option --fuel"),
    ("frob", 64, "unknown command 'frob'"),
    ("", 64, "a command is missing"),
    ("wast pass.wast", 1, r"pass.wast 0/1 FAILED\n0/1\n$"),
    ("wast missing.wast", 1, "cannot open 'missing.wast'"),
    ("--help", 0, "carrel cell run FILE"),
    ("run --help", 0, "--suspend-at"),
]


@pytest.mark.parametrize("line, code, pattern", TABLE, ids=[row[0] or "nothing" for row in TABLE])
def test_table(files, line, code, pattern):
    done = cell(*line.split(), cwd=files)
    assert done.returncode == code, done
    assert re.search(pattern, done.stdout) or re.search(pattern, done.stderr), done


def test_errors_in_json_have_one_shape(files):
    done = cell("run", "http.wat", "--json", cwd=files)
    assert done.returncode == 4
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "denied" and "env.http_get" in error["message"] and error["remedy"]


def test_usage_errors_in_json(files):
    done = cell("run", "--json", "--frob", cwd=files)
    assert done.returncode == 64 and json.loads(done.stdout)["error"]["code"] == "invalid"


def test_text_errors_say_where_and_what_to_do(tmp_path):
    source = tmp_path / "bad.wat"
    source.write_text("(module\n  (func (result i32)\n    (i32.add (i32.const 1) (i64.const 2)))\n"
                      "  (func (get_local 0)))\n")
    done = cell("check", source)
    assert done.returncode == 2
    assert f"{source}:4:10: error: unknown operator `get_local`" in done.stderr
    assert "hint: use local.get" in done.stderr
    source.write_text(source.read_text().replace("get_local 0", "nop"))
    done = cell("check", source)
    assert f"{source}:3:6: error: type mismatch" in done.stderr
    assert "    3 |     (i32.add (i32.const 1) (i64.const 2)))\n      |      ^^^^^^^\n" in done.stderr
    assert "`i32.add` takes (i32 i32), (i32 i64) given\n" in done.stderr
    assert "hint: convert with `i32.wrap_i64`" in done.stderr
    told = json.loads(cell("check", source, "--json").stdout)
    assert told["diagnostics"][0]["line"] == 3 and told["diagnostics"][0]["column"] == 6


def test_check_lists_what_is_asked_and_offered(files):
    done = cell("check", "hello.wat", cwd=files)
    assert done.returncode == 0
    assert "asks for:\n  carrel.args_size (func (result i32))\n" in done.stdout
    assert "offers:\n  memory (memory 1)\n  _start (func)\n" in done.stdout
    told = json.loads(cell("check", "hello.wat", "--json", cwd=files).stdout)
    assert [i["name"] for i in told["imports"]] == ["args_size", "args_read", "result", "log"]
    assert re.fullmatch("[0-9a-f]{64}", told["hash"])


def test_a_program_reads_its_arguments_and_answers(files):
    done = cell("run", "hello.wat", "--args", "world", *HELLO_GRANTS, cwd=files)
    assert (done.returncode, done.stderr) == (0, "hello\n")
    assert done.stdout.startswith("hello, world")
    told = json.loads(cell("run", "hello.wat", "--json", "--args", "world", *HELLO_GRANTS,
                           cwd=files).stdout)
    assert told["output"] == "hello, world" and told["outcome"] == "done"


def test_terminal_control_characters_do_not_pass(tmp_path):
    source = tmp_path / "evil.wat"
    source.write_text('(import "carrel" "log" (func $l (param i32 i32))) (memory (export "memory") 1)'
                      '(data (i32.const 0) "\\1b[2J") (func (export "_start") '
                      "(call $l (i32.const 0) (i32.const 4)))")
    assert cell("run", source, "--grant", "log").stderr == "?[2J\n"


def test_host_calls_check_their_pointers(tmp_path):
    source = tmp_path / "wild.wat"
    source.write_text('(import "carrel" "result" (func $r (param i32 i32))) (memory (export "memory") 1)'
                      '(func (export "_start") (call $r (i32.const -8) (i32.const 100)))')
    done = cell("run", source, "--grant", "result")
    assert done.returncode == 1 and "out of bounds memory access" in done.stderr


def test_no_bytes_of_an_empty_memory_can_be_handed_over(tmp_path):
    (tmp_path / "empty.wat").write_text('''(module
      (import "carrel" "args_read" (func $read (param i32 i32 i32) (result i32)))
      (import "carrel" "result" (func $result (param i32 i32)))
      (import "carrel" "random" (func $random (param i32 i32)))
      (memory (export "memory") 0)
      (func (export "run") (result i32)
        (call $random (i32.const 0) (i32.const 0))
        (call $result (i32.const 0) (i32.const 0))
        (call $read (i32.const 0) (i32.const 0) (i32.const 0)))
      (func (export "past") (call $result (i32.const 0) (i32.const 1))))''')
    grants = ["--grant", "args_read", "--grant", "result", "--grant", "random"]
    done = cell("run", "empty.wat", "--invoke", "run", *grants, "--args", "x", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert cell("run", "empty.wat", "--invoke", "past", *grants, cwd=tmp_path).returncode == 1


# After either word of a pair, FNV-1a of 32 bits is in one state: every way through collides.
PAIRS = """h8pE TOtB 2kYF zEqT hOah t4Ga R8BK v7nP 1EWl Cztx gZiQ 1eVe H9Yo 4J3f
           m5TK IL8R 0wgB xukp WTrd 97Yx HOB2 T8n9 l3Zm HL6f 8Ruq J3Te fijf 0FUR""".split()


def fnv32(name):
    return functools.reduce(lambda h, byte: (h ^ byte) * 16777619 & 0xffffffff, name.encode(),
                            2166136261)


def cpu_to_check(path, names):
    path.write_text("(module (func)" + "".join(f'(export "{n}" (func 0))' for n in names) + ")")
    before = os.times()
    done = cell("check", path)
    after = os.times()
    assert done.returncode == 0, done.stderr
    return (after.children_user + after.children_system
            - before.children_user - before.children_system)


def test_names_that_were_made_to_collide_cost_what_others_do(tmp_path):
    made = list(map("".join, itertools.product(*zip(PAIRS[::2], PAIRS[1::2]))))
    plain = [f"{i:0{len(made[0])}d}" for i in range(len(made))]
    assert len(set(made)) == 1 << 14 and len(set(map(fnv32, made))) == 1
    usual = max(cpu_to_check(tmp_path / "plain.wat", plain), 0.02)
    assert cpu_to_check(tmp_path / "made.wat", made) < 5 * usual


def test_the_profile_adds_up(files):
    told = json.loads(cell("fuel", "count.wat", "--json", "--invoke", "count", 100, cwd=files).stdout)
    run = json.loads(cell("run", "count.wat", "--json", "--invoke", "count", 100, cwd=files).stdout)
    assert told["making"] == 1024, "one page of memory"
    running = told["fuel"] - told["making"]
    assert told["fuel"] == run["fuel"]
    assert running == sum(f["fuel"] for f in told["functions"])
    assert running == sum(line["fuel"] for line in told["lines"])
    assert told["lines"][0]["line"] in (6, 7, 8)


def test_a_profile_of_many_functions_stays_within_the_filter(tmp_path):
    """Sorting more than a kilobyte must not ask the system for anything."""
    count = 400
    text = "".join(f"(func $f{i} (drop (i32.const {i})))\n" for i in range(count))
    text += '(func (export "all")\n' + "".join(f"(call $f{i})\n" for i in range(count)) + ")"
    (tmp_path / "many.wat").write_text(text)
    done = cell("fuel", "many.wat", "--json", "--invoke", "all", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["fuel"] == 2 * count == sum(f["fuel"] for f in told["functions"])
    ranked = [f["fuel"] for f in told["functions"]]
    assert ranked == sorted(ranked, reverse=True)


def test_suspend_and_resume_end_as_one_run(files):
    whole = json.loads(cell("run", "count.wat", "--json", "--invoke", "count", 50, cwd=files).stdout)
    for stop in (1, 7, 100, whole["fuel"] - 1):
        first = cell("run", "count.wat", "--invoke", "count", 50, "--suspend-at", stop, "--out",
                     "state", cwd=files)
        assert first.returncode == 0 and "suspended" in first.stderr, first
        rest = json.loads(cell("run", "count.wat", "--json", "--resume", "state", cwd=files).stdout)
        assert rest == whole


BEGINS = """(module (global $n (mut i32) (i32.const 0))
  (func $first (local $i i32) (loop $more (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br_if $more (i32.lt_u (local.get $i) (i32.const 20)))) (global.set $n (local.get $i)))
  (start $first)
  (func (export "_start") (if (i32.ne (global.get $n) (i32.const 20)) (then unreachable)) (global.set $n (i32.const 40)))
  (func (export "sum") (param i32 i64) (result i64)
    (i64.add (i64.extend_i32_u (i32.add (global.get $n) (local.get 0))) (local.get 1))))"""
LIBRARY = """(module (import "wasi_snapshot_preview1" "sched_yield" (func (result i32))) (memory (export "memory") 1)
  (global $n (mut i32) (i32.const 0)) (func $once (global.set $n (i32.add (global.get $n) (i32.const 1)))) (start $once)
  (func (export "_initialize") (global.set $n (i32.add (global.get $n) (i32.const 10))) nop nop nop)
  (func (export "get") (result i32) (global.get $n)))"""


@pytest.mark.parametrize("text,call", [(BEGINS, ()), (BEGINS, ("--invoke", "sum", "-1", "5")), (LIBRARY, ("--invoke", "get"))],
                         ids=["_start", "invoke", "library"])
def test_program_suspended_before_its_function_calls_it_after_resume(files, text, call):
    (files / "begins.wat").write_text(text)
    whole = json.loads(cell("run", "begins.wat", "--json", *call, cwd=files).stdout)
    assert whole["outcome"] == "done"
    for stop in range(1, whole["fuel"]):
        options = ("--json", *call)
        for at in (stop, stop + 1):  # the second run is suspended too
            cell("run", "begins.wat", *options, "--suspend-at", at, "--out", "state", cwd=files)
            options = ("--json", "--resume", "state")
        if stop + 1 < whole["fuel"]:
            rest = json.loads(cell("run", "begins.wat", *options, cwd=files).stdout)
            assert rest == whole, (stop, rest)


def test_state_with_a_damaged_call_is_refused(files):
    (files / "begins.wat").write_text(BEGINS)
    cell("run", "begins.wat", "--invoke", "sum", "-1", "5", "--suspend-at", 3, "--out", "state", cwd=files)
    state = (files / "state").read_bytes()
    assert state.startswith(b"CRLNEXT\0\1") and b"sum\0-1\0005\0" in state
    for damaged in (state[:12], state[:8] + b"\0" + state[9:], state[:8] + b"\7" + state[9:], state[:9] + b"\0\0\0\0" + state[13:],
                    state[:9] + b"\xff\xff\xff\xff" + state[13:], state.replace(b"sum\0", b"sun\0"), state.replace(b"-1\0", b"-x\0")):
        (files / "state").write_bytes(damaged)
        done = cell("run", "begins.wat", "--resume", "state", cwd=files)
        assert done.returncode in (2, 6), (damaged[:40], done)


def test_out_of_fuel_is_a_suspension(files):
    whole = json.loads(cell("run", "count.wat", "--json", "--invoke", "count", 50, cwd=files).stdout)
    first = cell("run", "count.wat", "--invoke", "count", 50, "--fuel", 1123, "--out", "state", cwd=files)
    assert first.returncode == 3
    again = cell("run", "count.wat", "--resume", "state", "--fuel", "1", "--out", "state", cwd=files)
    assert again.returncode == 3 and "1124 spent" in again.stderr
    rest = json.loads(cell("run", "count.wat", "--json", "--resume", "state", "--fuel", 10000,
                           cwd=files).stdout)
    assert rest == whole


def test_a_state_of_another_module_or_damaged_is_refused(files):
    cell("run", "count.wat", "--invoke", "count", 50, "--suspend-at", 20, "--out", "state", cwd=files)
    assert cell("run", "add.wat", "--resume", "state", cwd=files).returncode == 6
    state = files / "state"
    state.write_bytes(state.read_bytes()[:-3])
    assert cell("run", "count.wat", "--resume", "state", cwd=files).returncode == 6


def test_a_state_cannot_bring_host_functions_that_were_not_granted(files):
    """`result` has the type and cost of `random`; it was not granted."""
    grants = ("--grant", "random", "--grant", "clock")
    first = cell("run", "dice.wat", *grants, "--out", "state", "--suspend-at", 1030, "--invoke",
                 "roll", 3, cwd=files)
    assert first.returncode == 0, first.stderr
    bytes_ = (files / "state").read_bytes()[:-32]
    assert cell("run", "dice.wat", *grants, "--resume", "state", cwd=files).returncode == 0
    forged = bytes_.replace(b"\x06carrel\x06random", b"\x06carrel\x06result")
    assert forged != bytes_
    (files / "forged").write_bytes(forged + hashlib.sha256(forged).digest())
    done = cell("run", "dice.wat", *grants, "--resume", "forged", cwd=files)
    assert done.returncode == 6 and "not granted" in done.stderr, done.stderr


def test_a_recorded_run_replays_to_the_same(files):
    grants = ["--grant", "random", "--grant", "clock"]
    run = cell("run", "dice.wat", *grants, "--record", "log", "--json", "--invoke", "roll", 5, cwd=files)
    assert run.returncode == 0
    for _ in range(2):
        again = cell("replay", "log", "--json", cwd=files)
        assert again.returncode == 0 and json.loads(again.stdout) == json.loads(run.stdout)
    assert "same: results, fuel and memory hash" in cell("replay", "log", cwd=files).stderr


def fnv(data):
    h = 0xcbf29ce484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001b3 % 2**64
    return h.to_bytes(8, "little")


def test_replay_names_the_first_difference(files):
    cell("run", "dice.wat", "--grant", "random", "--grant", "clock", "--record", "log", "--invoke",
         "roll", 2, cwd=files)
    log = (files / "log").read_bytes()
    # Someone changed the random bytes of the first answer, and the checksum with it.
    call = log.index(b"random", log.index(b"clock\n"))
    given = call + 6 + 4 + 2 * 12 + 8 + 4 + 4
    changed = log[:given] + bytes([log[given] ^ 1]) + log[given + 1:-8]
    (files / "changed").write_bytes(changed + fnv(changed))
    done = cell("replay", "changed", cwd=files)
    assert done.returncode == 6 and "first difference: the results" in done.stderr, done
    (files / "cut").write_bytes(log[:-20])
    assert cell("replay", "cut", cwd=files).returncode == 6


def test_the_examples_in_the_documentation_are_true(tmp_path):
    page = ROOT / "docs/reference/cells.md"
    sources = [b.text for b in pages.blocks(page, "wat")]
    blocks = [b for b in pages.blocks(page, "console") if b.text.startswith("$ carrel ")]
    assert sources and len(blocks) >= 5
    for text in sources:
        (tmp_path / re.match(r";; (\S+)\n", text)[1]).write_text(text)
    for t in (t for b in blocks for t in pages.typed(b)):
        words = t.command.split()
        args = words[2:] if words[1] == "cell" else words[1:]
        done = subprocess.run([CELL, *args], cwd=tmp_path, text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.stdout == t.shown, t.command
