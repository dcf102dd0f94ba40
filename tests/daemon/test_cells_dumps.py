"""Interpreters of an image are dumped once, and mapped by later commands if the machine has not changed them."""
import subprocess

import pytest

import cells
from test_cells import run
from test_cells_warm import CELL, GUESTS, request, warm

# As READER of test_cells_warm.py, with a larger memory; at the end it prints the text "plain" from its memory.
TEXT = cells.program({**cells.SAY, "fd_read": 4},
                     '(call $say (i32.const 100) (i32.const 6)) (i32.store (i32.const 0) (i32.const 1024))'
                     '(i32.store (i32.const 4) (i32.const 4096))'
                     '(drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))'
                     '(call $say (i32.const 1024) (i32.load (i32.const 8)))'
                     '(drop (memory.grow (i32.const 3))) (call $say (i32.const 200) (i32.const 6))',
                     '(data (i32.const 100) "began\\n") (data (i32.const 200) "plain\\n")').replace(
                         '(memory (export "memory") 4)', '(memory (export "memory") 40)')


def stamp(name):
    """Gives a file of /bin the time of modification that it has in the image, 1970."""
    return (f'(module (import {cells.WASI} "path_filestat_set_times" (func $set (param i32 i32 i32 i32 i64 i64 i32) (result i32)))'
            f' (import {cells.WASI} "proc_exit" (func $exit (param i32))) (memory (export "memory") 1) (data (i32.const 0) "bin/{name}")'
            f' (func (export "_start") (call $exit (call $set (i32.const 3) (i32.const 0) (i32.const 0) (i32.const {len("bin/" + name)})'
            f' (i64.const 0) (i64.const 0) (i32.const 4)))))').encode()


def binary(folder, text, *options):
    """A program in the binary format: the log of a recorded run has it."""
    (folder / "x.wat").write_text(text)
    subprocess.run([CELL, "run", folder / "x.wat", "--record", folder / "log", *options], input=b"", check=True, capture_output=True)
    log = (folder / "log").read_bytes()
    at = log.index(b"\0asm")
    sizes = [int.from_bytes(log[at - n:at], "little") for n in (4, 8)]
    return log[at:at + next(n for n in sizes if 0 < n < len(log))]


class Cells:
    """An image with a program as python, its warm image, and machines of it."""
    def __init__(self, daemon, folder, name, text=TEXT, program=None):
        folder.mkdir()
        self.daemon, self.program = daemon, program or binary(folder, text)
        self.warm, self.name = warm(folder, self.program), name
        self.image = daemon.request("POST", "/v1/images", cells.image(**{"bin_python.wasm": self.program, "bin_python.warm": self.warm}),
                                    name=name)["id"]

    def machine(self):
        """Once the image is stored in its last form: until then its files have other times."""
        form = self.daemon.get("/v1/status")["box"]["images"]
        self.daemon.until(lambda: form != "erofs" or self.daemon.get(f"/v1/images/{self.name}")["stored"] == form)
        return self.daemon.machine(kind="cell", image=self.name)

    def files(self):
        return [p for p in (self.daemon.home / "dumps").glob(f"{self.image}.*")]

    def dump(self, machine):
        """Waits until the dump exists, and returns its file."""
        self.end(machine)
        self.daemon.until(self.files)
        return self.files()[0]

    def mark(self, machine):
        """Changes a text in the memory of the dump, so that its use is seen."""
        file = self.dump(machine)
        data = file.read_bytes()
        at = data.rindex(b"plain\n")
        with open(file, "r+b") as f:
            f.seek(at)
            f.write(b"dumped")
        return file

    def end(self, machine):
        """What a warm command prints after its request: "plain", or "dumped" if it used the marked dump."""
        status, out, err = run(self.daemon, machine, "python", "x.py", "one")
        assert status == 0 and err == "" and out.startswith(request("2", "x.py", "one")), (status, out, err)
        return out[len(request("2", "x.py", "one")):].strip()


@pytest.fixture
def made(daemon, tmp_path):
    c = Cells(daemon, tmp_path / "image", "interpreters")
    yield c
    daemon.delete("/v1/images/interpreters")


def put(made, machine, **files):
    for name, data in files.items():
        made.daemon.put(f"/v1/machines/{machine}/files", data, path=f"/bin/python.{name}")


def test_dump_is_made_once_and_used_by_machines_of_the_image(daemon, made):
    first, second = made.machine(), made.machine()
    fuel = daemon.exec(first, ["python", "x.py", "one"])["exec"]["usage"]["fuel"]
    file = made.mark(first)
    assert [made.end(first), made.end(second)] == ["dumped", "dumped"] and made.files() == [file]
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    assert daemon.exec(second, ["python", "x.py", "one"])["exec"]["usage"]["fuel"] == fuel
    assert run(daemon, first, "python", "package", stdin="own")[1] == "began\nownplain\n"
    assert run(daemon, first, "python", "x.py", stdin="own", env={"HOME": "/"})[1] == "began\nownplain\n"


def test_machine_that_changed_its_files_does_not_use_the_dump(daemon, made, tmp_path):
    """Also if the content is as before: a worker does not read the files, it compares their times."""
    machines = [made.machine() for _ in range(4)]
    made.mark(machines[0])
    assert {made.end(m) for m in machines} == {"dumped"}
    put(made, machines[1], wasm=made.program)
    put(made, machines[2], warm=made.warm)
    put(made, machines[3], wasm=binary(tmp_path, TEXT.replace("began", "other")))
    assert [made.end(m) for m in machines[:3]] == ["dumped", "plain", "plain"]
    for m, name in ((machines[1], "python.wasm"), (machines[2], "python.warm")):
        daemon.put(f"/v1/machines/{m}/files", stamp(name), path="/bin/stamp.wasm")
        assert run(daemon, m, "stamp") == (0, "", "")
    assert [made.end(m) for m in machines[:3]] == ["dumped", "plain", "plain"]
    assert run(daemon, machines[3], "python", "x.py", stdin="own")[1] == "other\nownplain\n"
    put(made, machines[2], warm=made.warm[:-1])
    assert run(daemon, machines[2], "python", "x.py", stdin="own")[1] == "began\nownplain\n"


@pytest.mark.parametrize("damage", ["cut", "longer", "empty", "magic", "build", "address", "time"])
def test_dump_that_does_not_fit_is_not_used(made, damage):
    machine = made.machine()
    file = made.mark(machine)
    data = file.read_bytes()
    assert made.end(machine) == "dumped"
    places = {"magic": 0, "build": 10, "address": 32, "time": 112}
    if damage in places:
        changed = bytearray(data)
        changed[places[damage]] ^= 1
    else:
        changed = {"cut": data[:-1], "longer": data + b"x", "empty": b""}[damage]
    file.write_bytes(changed)
    assert made.end(machine) == "plain"
    file.write_bytes(data)
    assert made.end(machine) == "dumped"


def test_another_image_has_another_dump(daemon, made, tmp_path):
    other = Cells(daemon, tmp_path / "second", "others", TEXT.replace("plain", "other"))
    one, two = made.machine(), other.machine()
    made.mark(one)
    assert other.dump(two) != made.dump(one)
    assert [made.end(one), other.end(two)] == ["dumped", "other"]


def test_dump_is_deleted_with_its_image(daemon, tmp_path):
    c = Cells(daemon, tmp_path / "image", "short")
    machine = c.machine()
    file = c.dump(machine)
    daemon.delete(f"/v1/machines/{machine}")
    daemon.delete("/v1/images/short")
    daemon.until(lambda: not file.exists())


@pytest.mark.skipif(not (GUESTS / "programs/python.wasm").exists(), reason="python.wasm does not exist: run make cell-guests")
def test_python_gives_the_same_with_a_dump_and_the_same_fuel(daemon, tmp_path):
    c = Cells(daemon, tmp_path / "image", "pythons", program=(GUESTS / "programs/python.wasm").read_bytes())
    own, shared = c.machine(), c.machine()
    daemon.put(f"/v1/machines/{own}/files", c.warm, path="/bin/python.warm")
    daemon.exec(shared, ["python", "-c", "pass"])
    daemon.until(c.files)
    script = b"import sys, random\nprint(sys.argv, input(), hash('a'), random.random())\nopen('/data/made', 'a').write('x')\nsys.exit(3)\n"
    for m in (own, shared):
        daemon.put(f"/v1/machines/{m}/files", script, path="/data/x.py")
    calls = [["/data/x.py", "a"], ["/data/x.py", "a"], ["/data/none.py", "b"], ["-c", "1 / 0"], ["-c", "print(len(bytearray(300 << 20)))"],
             ["-c", "import sqlite3, os; print(os.urandom(4), sqlite3.connect(':memory:').execute('select 6 * 7').fetchall())"]]

    def outcomes(m):
        ran = [daemon.exec(m, ["python", *words], stdin="given\n", env={"A": "1"}) for words in calls]
        # an import looks at directories, whose times matter for the fuel
        fuel = [r["exec"]["usage"]["fuel"] for words, r in zip(calls, ran) if words[1].startswith("print")]
        return [(r["exec"]["status"], r["stdout"], r["stderr"]) for r in ran], fuel
    dumped, (fuel,) = outcomes(shared)
    assert (dumped, [fuel]) == outcomes(own)
    assert daemon.get(f"/v1/machines/{shared}/files", path="/data/made") == b"xx"


@pytest.mark.parametrize("name, words", [("ruby", ["-e", "puts 6 * 7, 'a'.hash"]), ("php", ["-q", "/x.php"]), ("qjs", ["/x.js"])])
def test_other_interpreters_give_the_same_with_a_dump(daemon, tmp_path, name, words):
    path = GUESTS / f"programs/{name}.wasm"
    if not path.exists():
        pytest.skip(f"{name}.wasm does not exist: run make cell-guests")
    image = daemon.request("POST", "/v1/images", cells.image(**{f"bin_{name}.wasm": path.read_bytes(), f"bin_{name}.warm": warm(
        tmp_path, path.read_bytes(), name=name), "x.php": b"<?php echo 6 * 7, random_int(0, 1 << 30);", "x.js": b"print(6 * 7)"}), name=name)["id"]
    form = daemon.get("/v1/status")["box"]["images"]
    daemon.until(lambda: form != "erofs" or daemon.get(f"/v1/images/{name}")["stored"] == form)
    machine = daemon.machine(kind="cell", image=name)
    first = run(daemon, machine, name, *words)
    daemon.until(lambda: list((daemon.home / "dumps").glob(f"{image}.{name}.*")))
    assert run(daemon, machine, name, *words) == first and first[0] == 0 and first[1].startswith("42") and first[2] == "", first
