"""The command `carrel console` of the owner, which carries out what a page orders."""
import contextlib
import subprocess

from carrel import PROGRAM


@contextlib.contextmanager
def console_process(daemon, home):
    """Runs it; the values are its process and the link that it printed."""
    p = subprocess.Popen([PROGRAM, "console", "--print"], env={**daemon.env, "HOME": str(home)}, cwd=home, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield p, p.stdout.readline().strip()
    finally:
        p.terminate()
        p.wait(30)
        p.stdout.close()


@contextlib.contextmanager
def console_command(daemon, home):
    """Runs it; the value is the link that it printed."""
    with console_process(daemon, home) as (_, link):
        yield link


def carrel(daemon, home, *words):
    done = subprocess.run([PROGRAM, *map(str, words)], env={**daemon.env, "HOME": str(home)}, cwd=home, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
