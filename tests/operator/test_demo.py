"""`make demo` tells the whole story, and checks every step that it shows."""
import subprocess

from carrel import BUILD, TOP


def test_the_mission(daemon):
    done = subprocess.run([TOP / "scripts/mission", BUILD], env=daemon.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=150)
    assert done.returncode == 0 and "To look further" in done.stdout and "FAILED:" not in done.stdout, done.stdout
    assert "rewind      before-the-fix" in done.stdout and "whole: every hash" in done.stdout
