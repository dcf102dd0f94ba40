"""Warm images of interpreters: the same output as a cold start, and nothing shared that must not be.

The programs are those of test_guests.py.
"""
import functools, json, os, shutil, subprocess

import pytest

from test_guests import CELL, program
from warm_scripts import LANGUAGES


class Start:
    """Runs scripts with a folder of programs that has a warm image, or none."""
    def __init__(self, folder, name="python"):
        (folder / "programs").mkdir(parents=True)
        (folder / f"programs/{name}.wasm").symlink_to(program(name))
        self.folder, self.name, self.image = folder, name, folder / f"programs/{name}.warm"

    def cell(self, *words, **options):
        env = {**os.environ, "CARREL_CELL_GUESTS": str(self.folder)}
        return subprocess.run([CELL, *map(str, words)], env=env, capture_output=True, timeout=300, **options)

    def started(self, *words):
        return json.loads(self.cell("run", *words, "--json").stdout)["start"]

    def warm(self):
        made = self.cell("warm", self.name)
        assert made.returncode == 0 and made.stdout.startswith(f"saved '{self.image}' after ".encode()), made.stderr
        return self


@pytest.fixture(scope="module")
def colds(tmp_path_factory):
    """Returns a function: the cold start of an interpreter."""
    return functools.cache(lambda name: Start(tmp_path_factory.mktemp("cold"), name))


@pytest.fixture(scope="module")
def warms(tmp_path_factory):
    return functools.cache(lambda name: Start(tmp_path_factory.mktemp("warm"), name).warm())


@pytest.fixture
def cold(colds):
    return colds("python")


@pytest.fixture
def warm(warms):
    return warms("python")


def outcome(start, tmp_path, source, words=(), env=(), stdin="", dir=False):
    """Runs a script, and returns all that can be seen of it but the fuel."""
    script, shared = tmp_path / f"x{LANGUAGES[start.name][0]}", tmp_path / "shared"
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


@pytest.mark.parametrize("language, name", [(language, name) for language, (_, scripts) in LANGUAGES.items() for name in scripts])
def test_warm_start_gives_what_a_cold_start_gives(tmp_path, warms, colds, language, name):
    found = LANGUAGES[language][1][name]
    source, options = found if isinstance(found, tuple) else (found, {})
    assert outcome(warms(language), tmp_path, source, **options) == outcome(colds(language), tmp_path, source, **options)


def test_there_are_fifty_scripts():
    assert len(LANGUAGES["python"][1]) >= 50 and sum(len(scripts) for _, scripts in LANGUAGES.values()) >= 190


# What each language draws from its seed: hashes and random numbers. rand of Ruby has the time in its seed, which is left out.
DRAWS = {
    "python": "import random, os; print(hash('a'), random.random(), os.urandom(8))",
    "ruby": "p 'a'.hash, Random.urandom(8)",
    "php": "<?php echo mt_rand(), random_int(0, 1 << 30), bin2hex(random_bytes(8));",
    "qjs": "print(Math.random())",
}


@pytest.mark.parametrize("language", DRAWS)
def test_starts_never_share_hash_secrets_or_random_numbers(tmp_path, warms, colds, language):
    """Neither those of other seeds nor granted random bytes come from an image; QuickJS takes the time in their place."""
    warm, cold, script = warms(language), colds(language), tmp_path / f"x{LANGUAGES[language][0]}"
    script.write_text(DRAWS[language])
    assert warm.started(script) == "warm"
    grant = "clock" if language == "qjs" else "random"
    of_seed = [warm.cell("run", script, "--seed", seed).stdout for seed in (0, 5, 6)]
    granted = [warm.cell("run", script, "--grant", grant).stdout for _ in range(3)]
    if language != "qjs":
        assert len(set(of_seed)) == 3
        assert of_seed[1:] == [cold.cell("run", script, "--seed", seed).stdout for seed in (5, 6)]
    assert len({of_seed[0], *granted}) == 4


@pytest.mark.parametrize("language, name", [("ruby", "error"), ("php", "random"), ("qjs", "random")])
def test_image_without_a_dump_gives_the_same(tmp_path, warms, colds, language, name):
    start = Start(tmp_path / "own", language)
    start.image.write_bytes(warms(language).image.read_bytes())
    script = tmp_path / f"x{LANGUAGES[language][0]}"
    script.write_text(source := LANGUAGES[language][1][name])
    assert start.started(script) == "warm" and not list(start.folder.glob("programs/*.dump"))
    assert outcome(start, tmp_path, source) == outcome(colds(language), tmp_path, source)


@pytest.mark.parametrize("language", ["php", "qjs"])
@pytest.mark.parametrize("options", [
    ["--seed", "5"], ["--env", "HOME=/", "--env", "TZ=UTC"], ["--dir", ".:/data"], ["--grant", "random", "--grant", "clock"]])
def test_image_of_a_program_without_a_driver_fits_every_run(tmp_path, warms, language, options):
    script = tmp_path / f"x{LANGUAGES[language][0]}"
    script.write_text("")
    assert warms(language).started(script, *options) == "warm"


def test_report_of_an_error_hides_only_the_frames_of_the_driver(tmp_path, warms, colds):
    """A script whose own frames look like those of Ruby's driver keeps them."""
    source = "eval(\"raise 'x'\", nil, '-e', 1) rescue raise $!.class, $!.message, [*$!.backtrace.first(2), \"-e:1:in `<main>'\", 'other:1']"
    assert outcome(warms("ruby"), tmp_path, source) == outcome(colds("ruby"), tmp_path, source)


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


def test_programs_that_are_not_interpreters_are_refused(cold):
    ran = cold.cell("warm", "sqlite3")
    assert ran.returncode == 64 and b"'sqlite3' cannot be saved after its start: use python, ruby, php or qjs" in ran.stderr
