"""Debuggers and what needs the same calls: processes of one machine may look into each other."""
import pathlib
import shutil

import pytest

YAMA = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
ONLY_CHILDREN = YAMA.exists() and YAMA.read_text().strip() != "0"

LEAK = r"""#include <stdlib.h>
#include <stdio.h>
int main(void) { char *volatile p = malloc(40); p[0] = 'x'; p = NULL; puts("ran"); fflush(stdout); return 0; }
"""
OVERRUN = r"""#include <stdlib.h>
#include <stdio.h>
int main(int argc, char **argv) { (void)argv; char *p = malloc(4); puts("ran"); fflush(stdout); p[argc + 3] = 'x'; free(p); return 0; }
"""
SUM = r"""#include <stdio.h>
int sum(int a, int b) { return a + b; }
int main(void) { printf("%d\n", sum(40, 2)); return 0; }
"""
# Asks its parent, the guest, to trace it; each signal then stops a process until its tracer lets it go on.
TRACE_ME = r"""#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
static volatile int got;
static void on(int n) { got = n; }
int main(void) {
    signal(SIGUSR1, on);
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0) return 1;
    raise(SIGUSR1);
    printf("went on, %s\n", got == SIGUSR1 ? "got the signal" : "lost the signal");
    return 7;
}
"""


def needs(*programs):
    return pytest.mark.skipif(not all(map(shutil.which, programs)), reason=f"needs {' and '.join(programs)}")


def build_and_run(carrel, source, *how, options=(), compiler="cc -g", user="user"):
    """The program is built inside and run by the words `how`, as a user would."""
    script = f'cat > p.c && {compiler} -o p p.c && exec "$@"'
    return carrel.run(*options, "-u", user, "--", "sh", "-c", script, "sh", *how, stdin=source.encode())


@needs("cc")
def test_a_leak_is_reported(carrel):
    done = build_and_run(carrel, LEAK, "./p", compiler="cc -g -fsanitize=address")
    assert done.stdout == b"ran\n" and done.returncode == 1, done
    assert b"LeakSanitizer: detected memory leaks" in done.stderr and b"40 byte(s) in 1" in done.stderr, done


@needs("cc")
def test_an_overrun_is_reported(carrel):
    done = build_and_run(carrel, OVERRUN, "./p", compiler="cc -g -fsanitize=address")
    assert done.returncode == 1 and done.stdout == b"ran\n" and b"heap-buffer-overflow" in done.stderr, done


@needs("cc", "gdb")
@pytest.mark.parametrize("user", ["user", "root"])
def test_gdb_runs_a_program(carrel, user):
    done = build_and_run(carrel, SUM, "gdb", "-nx", "-batch", "-ex", "break sum", "-ex", "run", "-ex", "print a+b", "-ex", "continue", "./p",
                         user=user)
    assert done.returncode == 0 and b"$1 = 42" in done.stdout and b"exited normally" in done.stdout, done
    assert b"warning: Error disabling address space randomization" not in done.stderr, done


@needs("gdb")
@pytest.mark.skipif(ONLY_CHILDREN, reason="this host lets programs trace only their children (kernel.yama.ptrace_scope)")
def test_gdb_attaches_to_a_running_program(carrel):
    done = carrel.run("--", "sh", "-c", "sleep 1000 & gdb -nx -batch -p $! -ex 'print $_exitcode' -ex kill 2>&1")
    assert done.returncode == 0 and b"ptrace" not in done.stdout and b"[Inferior 1 (process" in done.stdout, done


@needs("strace")
@pytest.mark.parametrize("user", ["user", "root"])
def test_strace_shows_calls(carrel, user):
    done = carrel.run("-u", user, "--", "strace", "-f", "-e", "trace=execve,exit_group", "sh", "-c", "/bin/true; exit 3")
    assert done.returncode == 3 and b'execve("/bin/true"' in done.stderr and b"exit_group(3)" in done.stderr, done


@needs("cc")
def test_a_program_that_asks_to_be_traced_goes_on(carrel):
    done = build_and_run(carrel, TRACE_ME, "./p")
    assert done.returncode == 7 and done.stdout == b"went on, got the signal\n", done


def test_no_core_is_dumped_where_the_limit_is_zero(carrel):
    done = carrel.run("--", "sh", "-c", "cd; ulimit -c; ulimit -Hc; sh -c 'kill -SEGV $$'; echo $?; ls -A | grep -c core")
    assert done.stdout.split() == [b"0", b"0", b"139", b"0"], done


@needs("ss")
def test_ss_shows_the_sockets_of_the_machine(carrel):
    listen = "import socket, subprocess\ns = socket.create_server(('127.0.0.1', 4711))\nu = socket.socket(socket.AF_UNIX); u.bind('/tmp/own'); u.listen()\n"
    done = carrel.run("--", "python3", "-c", listen + "raise SystemExit(subprocess.call(['ss', '-tulnxp']))")
    assert done.returncode == 0 and done.stderr == b"", done
    lines = [line.split() for line in done.stdout.decode().splitlines()[1:]]
    local = {line[4] for line in lines}
    assert "127.0.0.1:4711" in local and "/tmp/own" in local
    # Besides these only the gate's own listeners, which are in this namespace too.
    assert local - {"127.0.0.1:4711", "/tmp/own"} <= {"127.0.0.1:3128", "127.0.0.1:3129", "127.0.0.1:53", "@carrel"}, local
