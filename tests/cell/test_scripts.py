"""`carrel cell run x.py`: the ending of a file chooses the interpreter, which gets a copy of the script.

The interpreters are small programs in text. test_guests.py runs the real ones.
"""
import json, os, signal, subprocess

import pytest

from test_wasi import CELL, ECHO, program

SHOW = program("""
    (drop (call $path_open (i32.const 3) (i32.const 0) (i32.const 300) (i32.const 4) (i32.const 0)
                           (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 100)))
    (i32.store (i32.const 104) (i32.const 1000)) (i32.store (i32.const 108) (i32.const 100))
    (drop (call $fd_read (i32.load (i32.const 100)) (i32.const 104) (i32.const 1) (i32.const 112)))
    (call $print (i32.const 1) (i32.const 1000) (i32.load (i32.const 112)))
    (call $proc_exit (call $path_open (i32.const 3) (i32.const 0) (i32.const 304) (i32.const 5) (i32.const 0)
                                      (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 100)))""",
    "path_open", "fd_read", "proc_exit", data='(data (i32.const 300) "x.pyother")')
WRITE = program("""(call $proc_exit (call $path_open (i32.const 3) (i32.const 0) (i32.const 300) (i32.const 3)
    (i32.const 1) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 100)))""",
    "path_open", "proc_exit", data='(data (i32.const 300) "new")')
NOENT, ROFS = 44, 69


@pytest.fixture
def cell(tmp_path):
    """Writes an interpreter of this name, and runs the worker with it."""
    for folder in ("guests/programs", "tmp", "work"):
        (tmp_path / folder).mkdir(parents=True)

    def run(interpreter, source, *words, start=subprocess.run, **options):
        (tmp_path / f"guests/programs/{interpreter}.wasm").write_text(source)
        env = {**os.environ, "CARREL_CELL_GUESTS": str(tmp_path / "guests"), "TMPDIR": str(tmp_path / "tmp")}
        if start is subprocess.run:
            options = {"capture_output": True, "text": True, "timeout": 60, **options}
        return start([CELL, *map(str, words)], cwd=tmp_path / "work", env=env, **options)
    return run


@pytest.mark.parametrize("script, interpreter, words", [
    ("x.py", "python", ["/script/x.py"]), ("x.js", "qjs", ["/script/x.js"]), ("x.rb", "ruby", ["/script/x.rb"]),
    ("x.php", "php", ["-q", "/script/x.php"])])
def test_ending_chooses_the_interpreter(tmp_path, cell, script, interpreter, words):
    (tmp_path / "work" / script).write_text("")
    ran = cell(interpreter, ECHO, "run", script, "--env", "A=1", "--", "one", "--json")
    assert ran.stdout.split("\0") == [interpreter, *words, "one", "--json", ""], ran.stderr
    assert ran.returncode == 7 and ran.stderr.startswith("A=1?fuel: ")
    assert not list((tmp_path / "tmp").iterdir())


def test_interpreter_reads_a_copy_of_the_script_and_not_its_directory(tmp_path, cell):
    (tmp_path / "work/x.py").write_text("print(42)\n")
    (tmp_path / "work/other").write_text("secret")
    ran = cell("python", SHOW, "run", "x.py")
    assert (ran.stdout, ran.returncode) == ("print(42)\n", NOENT), ran.stderr
    assert cell("python", WRITE, "run", "x.py").returncode == ROFS


def test_missing_interpreter_and_missing_script_are_told_apart(tmp_path, cell):
    (tmp_path / "work/x.js").write_text("")
    ran = cell("python", ECHO, "run", "x.js")
    assert ran.returncode == 2 and "programs/qjs.wasm': No such file or directory" in ran.stderr
    assert f"`scripts/cell-guests {tmp_path}/guests qjs`" in ran.stderr
    ran = cell("python", ECHO, "run", "x.py")
    assert ran.returncode == 2 and ran.stderr == "carrel: cannot open 'x.py': No such file or directory\n"


@pytest.mark.parametrize("options, text", [
    (["--invoke", "f"], "--invoke needs a module: 'x.py' is a script"),
    (["--dir", ".:/script"], "--dir names '/script', which is the directory of the script")])
def test_options_that_do_not_fit_a_script_are_refused(tmp_path, cell, options, text):
    (tmp_path / "work/x.py").write_text("")
    ran = cell("python", ECHO, "run", "x.py", *options)
    assert ran.returncode == 64 and text in ran.stderr
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_that_ends_the_run_deletes_the_copy(tmp_path, cell, number):
    (tmp_path / "work/x.py").write_text("")
    busy = program('(call $print (i32.const 1) (i32.const 300) (i32.const 1)) (loop $l (br $l))', data='(data (i32.const 300) "!")')
    worker = cell("python", busy, "run", "x.py", "--fuel", 10**12, start=subprocess.Popen, stdout=subprocess.PIPE,
                  preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))  # the caller of the tests may ignore it
    assert worker.stdout.read(1) == b"!" and list((tmp_path / "tmp").rglob("x.py"))
    worker.send_signal(number)
    assert worker.wait(60) == -number
    assert not list((tmp_path / "tmp").iterdir())


def test_script_is_suspended_and_resumed_with_its_name(tmp_path, cell):
    (tmp_path / "work/x.py").write_text("print(42)\n")
    assert cell("python", SHOW, "run", "x.py", "--suspend-at", 2100, "--out", "state").returncode == 0
    ran = cell("python", SHOW, "run", "x.py", "--resume", "state")
    assert (ran.stdout, ran.returncode) == ("print(42)\n", NOENT), ran.stderr


# Draws random bytes and stops at its input, as Python does. Prints both.
DRAWER = program("""
    (drop (call $random_get (i32.const 1000) (i32.const 8)))
    (i32.store (i32.const 104) (i32.const 1008)) (i32.store (i32.const 108) (i32.const 200))
    (drop (call $fd_read (i32.const 0) (i32.const 104) (i32.const 1) (i32.const 112)))
    (call $print (i32.const 1) (i32.const 1000) (i32.add (i32.const 8) (i32.load (i32.const 112))))""",
    "random_get", "fd_read")


@pytest.fixture
def warm(tmp_path, cell):
    """Saves DRAWER after its start as the interpreter of .py, and returns a function that runs x.py."""
    (tmp_path / "work/x.py").write_text("")
    assert cell("python", DRAWER, "warm", "python").returncode == 0

    def run(*options):
        got = cell("python", DRAWER, "run", "x.py", *options, text=False, input=b"own input").stdout
        report = json.loads(cell("python", DRAWER, "run", "x.py", "--json", *options).stdout)
        return report["start"], got[:8], got[8:]
    return run


def test_warm_image_gets_arguments_and_variables_before_its_input(warm):
    texts = b"2\0/script/x.py\0a b\0A=1\0"
    assert warm("--env", "A=1", "--", "a b")[::2] == ("warm", b"%08x" % len(texts) + texts)


def test_warm_image_serves_only_runs_with_its_random_bytes(warm):
    start, drawn, _ = warm()
    assert (start, drawn) == ("warm", warm()[1])
    other = warm("--seed", 1)
    assert other[0] == "cold" and other[2] == b"own input" and other[1] != drawn
    granted = [warm("--grant", "random") for _ in range(2)]
    assert [g[0] for g in granted] == ["cold", "cold"] and len({drawn, *(g[1] for g in granted)}) == 3


def test_warm_image_of_another_program_is_not_used(tmp_path, cell, warm):
    changed = DRAWER.replace("(i32.const 200)", "(i32.const 201)")
    ran = cell("python", changed, "run", "x.py", "--json")
    assert json.loads(ran.stdout)["start"] == "cold", ran.stderr
    image = tmp_path / "guests/programs/python.warm"
    good = image.read_bytes()
    for at in range(0, len(good), 97):
        image.write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1:])
        assert json.loads(cell("python", DRAWER, "run", "x.py", "--json").stdout)["start"] == "cold", at


def test_program_without_a_driver_is_saved_before_it_knows_its_run(tmp_path, cell):
    """PHP and QuickJS: an image fits runs with other arguments, variables, seeds, directories and granted random bytes."""
    (tmp_path / "work/x.php").write_text("")
    assert cell("php", ECHO, "warm", "php").returncode == 0
    for words in (["one", "--json"], ["two"]):
        ran = cell("php", ECHO, "run", "x.php", "--env", f"A={words[0]}", "--dir", ".:/data", "--", *words)
        assert ran.stdout.split("\0") == ["php", "-q", "/script/x.php", *words, ""] and ran.stderr.startswith(f"A={words[0]}?fuel: ")
        assert json.loads(cell("php", ECHO, "run", "x.php", "--json").stdout)["start"] == "warm"
    assert cell("php", DRAWER, "warm", "php").returncode == 0

    def drawn(*options):
        assert json.loads(cell("php", DRAWER, "run", "x.php", "--json", *options).stdout)["start"] == "warm"
        return cell("php", DRAWER, "run", "x.php", *options, text=False, input=b"own").stdout
    of_seed = [drawn("--seed", seed) for seed in (0, 0, 5)]
    assert of_seed[0] == of_seed[1] and of_seed[0][8:] == b"own"
    (tmp_path / "guests/programs/php.warm").unlink()
    assert cell("php", DRAWER, "run", "x.php", "--seed", 5, text=False, input=b"own").stdout == of_seed[2]
    assert cell("php", DRAWER, "warm", "php").returncode == 0
    assert len({of_seed[0], of_seed[2], *(drawn("--grant", "random") for _ in range(2))}) == 4


def test_program_that_makes_no_call_cannot_be_saved(cell):
    ran = cell("qjs", '(module (func (export "_start")))', "warm", "qjs")
    assert ran.returncode == 1 and "it ended before it called WASI" in ran.stderr
