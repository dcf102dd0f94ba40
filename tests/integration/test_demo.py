"""`make demo` checks every step that it shows."""
import pathlib
import subprocess

import pytest
from carrel import PROGRAM, ROOTLESS
from patience import PATIENCE


@pytest.mark.skipif(ROOTLESS, reason="a host may enforce no memory limit without root, and the demo shows one")
def test_the_demo_shows_what_it_promises(carrel):
    demo = pathlib.Path(__file__).resolve().parents[2] / "scripts/demo"
    done = subprocess.run([demo, pathlib.Path(PROGRAM).parent], env=carrel.env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120 * PATIENCE)
    assert done.returncode == 0 and b"All as promised" in done.stdout, done.stdout.decode()
