"""Interpreters of cell machines start from a warm image beside the program, if it fits."""
import os
import pathlib
import subprocess

import pytest

import cells
from carrel import BUILD
from test_cells import run

CELL = BUILD / "libexec/carrel-cell"
GUESTS = pathlib.Path(os.environ.get("CARREL_CELL_GUESTS") or BUILD.parent / "build-guests")

# Writes "began", as an interpreter that starts, then what it reads from its input.
READER = cells.program({**cells.SAY, "fd_read": 4},
                       '(call $say (i32.const 100) (i32.const 6)) (i32.store (i32.const 0) (i32.const 1024))'
                       '(i32.store (i32.const 4) (i32.const 4096))'
                       '(drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))'
                       '(call $say (i32.const 1024) (i32.load (i32.const 8)))', '(data (i32.const 100) "began\\n")')


def warm(folder, program, *options, name="python"):
    """Saves a program as this interpreter after its start, and returns the image."""
    (folder / "programs").mkdir()
    (folder / f"programs/{name}.wasm").write_bytes(program)
    made = subprocess.run([CELL, "warm", name, *options, "--for-machine", folder / "image"], capture_output=True,
                          env={**os.environ, "CARREL_CELL_GUESTS": str(folder)})
    assert made.returncode == 0, made.stderr
    return (folder / "image").read_bytes()


def put(daemon, machine, program="python", **files):
    for name, data in files.items():
        daemon.put(f"/v1/machines/{machine}/files", data, path=f"/bin/{program}.{name}")


@pytest.fixture
def machine(daemon):
    if "programs" not in [i["name"] for i in daemon.get("/v1/images")["images"]]:
        daemon.request("POST", "/v1/images", cells.image(), name="programs")
    return daemon.machine(kind="cell", image="programs")


def request(*texts):
    """The first input of an image: the number of arguments, arguments and variables."""
    data = b"".join(t.encode() + b"\0" for t in texts)
    return (b"%08x" % len(data) + data).decode()


def test_image_beside_the_program_is_continued_with_a_request(daemon, machine, tmp_path):
    image = warm(tmp_path, READER.encode())
    put(daemon, machine, wasm=READER.encode())
    cold = ("x.py", "one")
    assert run(daemon, machine, "python", *cold, stdin="own") == (0, "began\nown", "")
    put(daemon, machine, warm=image)
    assert run(daemon, machine, "python", *cold, stdin="own", env={"A": "1"}) == (0, request("2", "x.py", "one", "A=1"), "")
    assert run(daemon, machine, "/bin/python.wasm", "-c", "print()")[1] == request("2", "-c", "print()")
    for words in ([], ["-"], ["-c"], ["-m", "x"], ["-x", "y.py"], ["package"]):
        assert run(daemon, machine, "python", *words, stdin="own")[1] == "began\nown", words
    for env in ({"PYTHONPATH": "/x"}, {"HOME": "/"}):
        assert run(daemon, machine, "python", *cold, stdin="own", env=env)[1] == "began\nown", env


def test_image_that_does_not_fit_is_not_used(daemon, machine, tmp_path):
    """It is a file of the machine, so it may have any content."""
    (tmp_path / "other").mkdir()
    put(daemon, machine, wasm=READER.encode())
    good = warm(tmp_path, READER.encode())
    bad = [b"", good[:64], good[:-1], good + b"x", warm(tmp_path / "other", READER.encode(), "--seed", "5"),
           *(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1:] for at in range(0, len(good), 211))]
    for image in bad:
        put(daemon, machine, warm=image)
        assert run(daemon, machine, "python", "x.py", stdin="own") == (0, "began\nown", ""), image
    put(daemon, machine, wasm=READER.replace("began", "other").encode(), warm=good)
    assert run(daemon, machine, "python", "x.py", stdin="own")[1] == "other\nown"
    daemon.delete(f"/v1/machines/{machine}/files", path="/bin/python.warm")
    daemon.post(f"/v1/machines/{machine}/files/mkdir", {"path": "/bin/python.warm"})
    assert run(daemon, machine, "python", "x.py", stdin="own")[1] == "other\nown"


@pytest.mark.skipif(not (GUESTS / "programs/python.wasm").exists(), reason="python.wasm does not exist: run make cell-guests")
def test_python_gives_the_same_after_a_cold_and_a_warm_start(daemon, machine, tmp_path):
    program = (GUESTS / "programs/python.wasm").read_bytes()
    image = warm(tmp_path, program)
    put(daemon, machine, wasm=program)
    script = (b"import sys, helper\nprint(sys.argv, __file__, sys.path[0], helper.value, input(), hash('a'))\n"
              b"open('/data/made', 'w').write('made')\nsys.exit(3)\n")
    for name, data in (("x.py", script), ("helper.py", b"value = 5\n"), ("fails.py", b"def f():\n    1 / 0\nf()\n")):
        daemon.put(f"/v1/machines/{machine}/files", data, path=f"/data/{name}")
    calls = [["/data/x.py", "a", "b c"], ["data/x.py"], ["/data/fails.py"], ["/data/none.py"],
             ["-c", "import sys; print(sys.argv, sys.path[0], __name__, '__file__' in globals())", "x"],
             ["-c", "1 / 0"], ["-c", "print(6 * 7)"]]

    def outcomes():
        ran = [daemon.exec(machine, ["python", *words], stdin="given\n") for words in calls]
        return [(r["exec"]["status"], r["stdout"], r["stderr"]) for r in ran], [r["exec"]["usage"]["fuel"] for r in ran]
    cold, much = outcomes()
    put(daemon, machine, warm=image)
    hot, little = outcomes()
    assert hot == cold and cold[-1] == (0, "42\n", ""), (hot, cold)
    assert max(little) < min(much) / 20, (little, much)
    assert daemon.get(f"/v1/machines/{machine}/files", path="/data/made") == b"made"


# interpreter: script, and words of commands
OTHERS = {
    "ruby": (b"puts ARGV.inspect, __FILE__, $0, STDIN.gets, 'a'.hash\nFile.write('/data/made', 'made')\nexit 3\n",
             [["/data/x", "a", "b c"], ["data/x"], ["/data/none.rb"], ["-e", "p ARGV, __FILE__, $0, 6 * 7", "x"], ["-e", "def f = nil.x\nf"],
              ["-e", "puts 1; return; puts 2"], ["-e", "x = 5; p binding.local_variables, TOPLEVEL_BINDING.local_variables"],
              ["-e", "p gets", "-e", "p 2"], ["-e", "puts 'a'", "--", "-x"], ["-ne", "print $_.upcase"], ["--version"]]),
    "php": (b"<?php echo json_encode($argv), __FILE__, mt_rand(); file_put_contents('/data/made', 'made'); exit(3);",
            [["-q", "/data/x", "a", "b c"], ["-q", "data/x"], ["-q", "/data/none.php"], ["-v"], []]),
    "qjs": (b"print(JSON.stringify(args), Math.random()); throw new Error('x')", [["/data/x", "a", "b c"], ["/data/none.js"], []]),
}
ENDINGS = {"ruby": ".rb", "php": ".php", "qjs": ".js"}


@pytest.mark.parametrize("name", OTHERS)
def test_interpreter_gives_the_same_after_a_cold_and_a_warm_start(daemon, machine, tmp_path, name):
    path = GUESTS / f"programs/{name}.wasm"
    if not path.exists():
        pytest.skip(f"{name}.wasm does not exist: run make cell-guests")
    program, (script, calls) = path.read_bytes(), OTHERS[name]
    image = warm(tmp_path, program, name=name)
    put(daemon, machine, name, wasm=program)
    daemon.put(f"/v1/machines/{machine}/files", script, path=f"/data/x{ENDINGS[name]}")

    def outcomes():
        words = [[w + ENDINGS[name] if w.endswith("data/x") else w for w in call] for call in calls]
        ran = [daemon.exec(machine, [name, *w], stdin="given\n") for w in words]
        return [(r["exec"]["status"], r["stdout"], r["stderr"]) for r in ran], [r["exec"]["usage"]["fuel"] for r in ran]
    cold, much = outcomes()
    put(daemon, machine, name, warm=image)
    hot, little = outcomes()
    assert hot == cold
    assert little[0] < (much[0] / 20 if name == "ruby" else much[0]), (little, much)
