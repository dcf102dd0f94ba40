"""The modules of the public test suite of WASI preview 1, each as a test of its own.

CARREL_WASI_SUITE names the folder of the suite; without it, shared/wasi-suite in a folder above the
project is used. CARREL_CELL names the worker program, or CARREL_BUILD the build folder.
"""
import json, os, pathlib, shutil, subprocess

import pytest

CELL = os.environ.get("CARREL_CELL") or os.environ["CARREL_BUILD"] + "/libexec/carrel-cell"
ROOT = pathlib.Path(__file__).resolve().parents[2]


def find_suite():
    named = os.environ.get("CARREL_WASI_SUITE")
    places = [pathlib.Path(named)] if named else [p / "shared/wasi-suite" for p in ROOT.parents]
    return next((p for p in places if p.is_dir()), None)


def wants(module):
    path = module.with_suffix(".json")
    return json.loads(path.read_text()) if path.exists() else {}


SUITE = find_suite()
MODULES = sorted(m for m in SUITE.glob("*/*.wasm")) if SUITE else []
pytestmark = pytest.mark.skipif(not MODULES, reason="the WASI test suite is not on this host: set CARREL_WASI_SUITE")


def command(module, tmp_path):
    """Returns the command that runs a module as its description asks, on a copy of its directory."""
    want = wants(module)
    line = [CELL, "run", str(module)]
    if "root" in want:
        root = tmp_path / "root"
        shutil.copytree(module.parent / want["root"], root)
        for path in (root, *root.rglob("*")):  # the suite may be on a read-only filesystem
            path.chmod(path.stat().st_mode | 0o200)
        for left in root.rglob("*.cleanup"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        line += ["--dir", f"{root}:/"]
    for name, value in want.get("env", {}).items():
        line += ["--env", f"{name}={value}"]
    return [*line, "--", *want.get("args", [])]


@pytest.mark.parametrize("module", MODULES, ids=[f"{m.parent.name}-{m.stem}" for m in MODULES])
def test_module_of_the_wasi_suite(module, tmp_path):
    ran = subprocess.run(command(module, tmp_path), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    want = wants(module)
    assert ran.returncode == want.get("exit_code", 0), ran.stdout + ran.stderr
    if "stdout" in want:
        assert ran.stdout == want["stdout"]


def test_suite_is_whole():
    assert len(MODULES) == 72
