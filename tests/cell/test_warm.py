"""Warm images of Python: the same output as a cold start, and nothing shared that must not be.

The programs are those of test_guests.py.
"""
import json, os, shutil, subprocess

import pytest

from test_guests import CELL, program
from warm_scripts import SCRIPTS


class Start:
    """Runs scripts with a folder of programs that has a warm image, or none."""
    def __init__(self, folder):
        (folder / "programs").mkdir(parents=True)
        (folder / "programs/python.wasm").symlink_to(program("python"))
        self.folder, self.image = folder, folder / "programs/python.warm"

    def cell(self, *words, **options):
        env = {**os.environ, "CARREL_CELL_GUESTS": str(self.folder)}
        return subprocess.run([CELL, *map(str, words)], env=env, capture_output=True, timeout=300, **options)

    def started(self, *words):
        return json.loads(self.cell("run", *words, "--json").stdout)["start"]


@pytest.fixture(scope="module")
def cold(tmp_path_factory):
    return Start(tmp_path_factory.mktemp("cold"))


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    start = Start(tmp_path_factory.mktemp("warm"))
    made = start.cell("warm", "python")
    assert made.returncode == 0 and made.stdout.startswith(f"saved '{start.image}' after ".encode()), made.stderr
    return start


def outcome(start, tmp_path, source, words=(), env=(), stdin="", dir=False):
    """Runs a script, and returns all that can be seen of it but the fuel."""
    script, shared = tmp_path / "x.py", tmp_path / "shared"
    script.write_text(source, encoding="utf-8")
    shutil.rmtree(shared, ignore_errors=True)
    shared.mkdir()
    (shared / "helper.py").write_text("value = 5\n")
    options = [o for variable in env for o in ("--env", variable)] + (["--dir", f"{shared}:/"] if dir else [])
    ran = start.cell("run", script, *options, "--", *words, input=stdin.encode())
    errors = ran.stderr.decode().splitlines()
    assert errors[-1].startswith("fuel: ") or "fuel: " in errors[-1], errors
    made = {p.name: p.read_bytes() for p in shared.glob("[!_]*") if p.is_file()}
    return ran.returncode, ran.stdout, [*errors[:-1], errors[-1].split("fuel: ")[0]], made


@pytest.mark.parametrize("name", SCRIPTS)
def test_warm_start_gives_what_a_cold_start_gives(tmp_path, warm, cold, name):
    source, options = SCRIPTS[name] if isinstance(SCRIPTS[name], tuple) else (SCRIPTS[name], {})
    assert outcome(warm, tmp_path, source, **options) == outcome(cold, tmp_path, source, **options)


def test_there_are_fifty_scripts():
    assert len(SCRIPTS) >= 50


@pytest.fixture
def script(tmp_path):
    (tmp_path / "x.py").write_text("print(hash('a'))")
    return tmp_path / "x.py"


def test_image_is_used_and_saves_fuel(warm, cold, script):
    ran = json.loads(warm.cell("run", script, "--json").stdout)
    assert ran["start"] == "warm" and cold.started(script) == "cold"
    assert ran["fuel"] < 5_000_000


def test_runs_of_one_image_do_not_see_each_other(warm, tmp_path):
    (tmp_path / "x.py").write_text("import json, os; print(hasattr(json, 'mark'), 'A' in os.environ); json.mark = 1")
    for _ in range(2):
        assert warm.cell("run", tmp_path / "x.py", "--env", "A=1").stdout == b"False True\n"


def test_hash_secret_of_an_image_is_used_only_with_its_seed(warm, cold, script):
    assert warm.started(script, "--seed", 5) == "cold"
    of_seed = [warm.cell("run", script, "--seed", seed).stdout for seed in (0, 5, 6)]
    assert len(set(of_seed)) == 3
    assert of_seed == [cold.cell("run", script, "--seed", seed).stdout for seed in (0, 5, 6)]


def test_granted_random_bytes_are_never_those_of_an_image(warm, script):
    assert warm.started(script, "--grant", "random") == "cold"
    assert len({warm.cell("run", script, "--grant", "random").stdout for _ in range(2)}) == 2


@pytest.mark.parametrize("options", [
    ["--env", "PYTHONHASHSEED=3"], ["--env", "TZ=UTC"], ["--env", "LANG=C"], ["--env", "HOME=/"], ["--dir", ".:/data"]])
def test_options_that_matter_at_the_start_of_python_start_it_cold(warm, script, options):
    assert warm.started(script, *options) == "cold"


def test_fuel_limit_is_that_of_the_run(warm, tmp_path):
    (tmp_path / "x.py").write_text("while True: pass")
    ran = warm.cell("run", tmp_path / "x.py", "--fuel", 3_000_000, "--json")
    assert ran.returncode == 3 and 2_900_000 < json.loads(ran.stdout)["fuel"] <= 3_000_000


def test_image_that_does_not_fit_is_not_used(warm, tmp_path, script):
    other = Start(tmp_path / "other")
    good = warm.image.read_bytes()
    damaged = bytearray(good)
    damaged[len(good) // 2] ^= 1
    changes = [b"", good[:40], good[:64], good[:70], good[:-1], b"X" + good[1:], bytes(damaged), good[:64] + b"x" * 100]
    want = warm.cell("run", script).stdout
    for image in changes:
        other.image.write_bytes(image)
        assert other.started(script) == "cold"
        assert other.cell("run", script).stdout == want
    other.image.write_bytes(good)
    assert other.started(script) == "warm"


def test_dump_beside_the_image_is_used_unless_a_file_was_changed(tmp_path):
    """The version in the memory of the dump is changed, so that its use is seen."""
    start, script = Start(tmp_path / "own"), tmp_path / "x.py"
    (own := start.folder / "programs/python.wasm").unlink()
    shutil.copy(program("python"), own)
    script.write_text("import sys; print(sys.version[:6])")
    assert start.cell("warm", "python").returncode == 0
    dump = start.folder / "programs/python.dump"
    data = dump.read_bytes().replace(b"3.12.0 (", b"3.12.9 (")
    dump.write_bytes(data)

    def version():
        ran = json.loads(start.cell("run", script, "--json").stdout)
        assert ran["start"] == "warm", ran
        return ran["output"].strip()
    assert version() == "3.12.9" and dump.stat().st_mode & 0o777 == 0o600
    for mode in (0o620, 0o602):
        dump.chmod(mode)
        assert version() == "3.12.0", oct(mode)
    dump.chmod(0o644)
    assert version() == "3.12.9"
    for changed in (data[:-1], b"X" + data[1:]):
        dump.write_bytes(changed)
        assert version() == "3.12.0"
    dump.write_bytes(data)
    dump.rename(aside := tmp_path / "aside")
    dump.symlink_to(aside)
    assert version() == "3.12.0"
    aside.rename(dump)
    assert version() == "3.12.9"
    for file in (own, start.image):
        was = file.stat()
        file.write_bytes(file.read_bytes())
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
        assert version() == "3.12.0", file
        assert start.cell("warm", "python").returncode == 0
        dump.write_bytes(dump.read_bytes().replace(b"3.12.0 (", b"3.12.9 ("))
        assert version() == "3.12.9"


def test_programs_without_a_driver_are_refused(cold):
    ran = cold.cell("warm", "ruby")
    assert ran.returncode == 64 and b"'ruby' cannot be saved after its start: use python" in ran.stderr
