"""The recipes of examples/images, built and used (make test-images). Each downloads Debian packages, some also npm packages."""
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "daemon"))

from carrel import PROGRAM  # noqa: E402
from daemon import Daemon  # noqa: E402

RECIPES = TOP / "examples/images"

DRAW = "import pandas, matplotlib.pyplot as p; pandas.DataFrame({'a': [1, 2]}).plot(); p.savefig('/tmp/f.png'); print(open('/tmp/f.png', 'rb').read(4)[1:])"
PAGE = "<p id=x></p><script>x.textContent = 'made by ' + 6 * 7</script>"
OFFICE = r"""set -e
cd /tmp
office new a.docx; office add a.docx 'A heading' 'Heading 1'; office add a.docx 'Dear NAME,'; office replace a.docx NAME Ann
office convert a.docx pdf; office text a.pdf; office join b.pdf a.pdf a.pdf; office pages b.pdf 2 c.pdf
office new t.xlsx; echo '[["item", "n"], ["pen", 3]]' | office rows t.xlsx Sheet; office set t.xlsx B3 4; office get t.xlsx Sheet!A1:B3
office show t.xlsx; office convert t.xlsx csv; office show t.csv
office show missing.docx || true; office get t.xlsx None!A1 || true; office dance || true
"""
# What is run in a machine of the image, and what its output must contain.
USES = {
    "python": (["sh", "-c", "cd /tmp && python3 -m venv v && v/bin/python -c 'import sys; print(sys.prefix)'"], ["/tmp/v"]),
    "node": (["sh", "-c", "node -e 'console.log(process.version, [1, 2, 3].at(-1))'; npm --version"], ["v22.23.3 3", "9."]),
    "c": (["sh", "-c", "cd /tmp && echo 'int main(void) { return 7; }' >a.c && clang -g a.c -o a && gcc -g a.c -o b; ./a; ./b; echo $?; cmake --version; gdb --version"], ["7\n", "cmake version", "GNU gdb"]),
    "data": (["python3", "-c", DRAW], ["b'PNG'"]),
    "browser": (["sh", "-c", f"echo \"{PAGE}\" >/tmp/a.html; browser --dump-dom file:///tmp/a.html"], ["made by 42"]),
    "office": (["sh", "-c", OFFICE], ['{"replaced": 1}', "Dear Ann,", '"pages": 2', '"pages": 1', '"cells": [["item", "n"], ["pen", 3], [null, 4]]', '["pen", "3"]',
                                      '{"error": "missing.docx does not exist"}', "sheet 'None' does not exist: Sheet", "unknown command 'dance'"]),
    "desktop": (["sh", "-c", "Xtigervnc -version 2>&1; openbox --version; command -v xterm xev"], ["Xvnc TigerVNC", "Openbox 3", "/usr/bin/xterm"]),
    "claude": (["claude", "--version"], ["2.1.325"]),
    "codex": (["codex", "--version"], ["0.166.0"]),
    "opencode": (["opencode", "--version"], ["1.18.18"]),
    "gemini": (["gemini", "--version"], ["0.61.0"]),
}


@pytest.fixture(scope="module")
def daemon():
    d = Daemon()
    yield d
    d.stop()


def carrel(daemon, *words):
    env = {**os.environ, "CARREL_HOME": str(daemon.home), "CARREL_RUN": str(daemon.run_dir)}
    return subprocess.run([PROGRAM, *map(str, words)], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def recipe_of(name):
    path = RECIPES / name
    return path / "recipe" if path.is_dir() else path


def test_every_recipe_has_a_use_and_its_place_in_the_page():
    names = {p.name for p in RECIPES.iterdir()}
    page = (TOP / "docs/reference/ready-images.md").read_text()
    assert names == set(USES) and all(f"| `{name}` |" in page for name in names)


@pytest.mark.parametrize("name", USES)
def test_a_recipe_is_built_and_used(daemon, name):
    began = time.monotonic()
    # A mirror of npm may have a private address.
    more = ["--net", "npm,local"] if "\nnet npm\n" in recipe_of(name).read_text() else []
    done = carrel(daemon, "image", "build", recipe_of(name), "--name", name, "-q", *more)
    if "cannot reach" in done.stderr or "Could not resolve" in done.stderr:
        pytest.skip(f"no package server can be reached: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-3000:]
    seconds = time.monotonic() - began
    shown = json.loads(carrel(daemon, "image", "show", name, "--json").stdout)
    print(f"\n{name}: {shown['bytes'] / 1e6:.0f} MB, {seconds:.0f} s")
    words, wanted = USES[name]
    used = carrel(daemon, "run", "--image", name, "--mem", "2G", "--", *words)
    assert used.returncode == 0, used
    assert all(text in used.stdout for text in wanted), used
