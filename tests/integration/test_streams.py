"""stdin, stdout and stderr are those of the command, byte for byte and back-pressured."""
import hashlib
import os
import signal
import socket
import subprocess
import threading
import time

import pytest
from patience import PATIENCE, clock

EVERY_BYTE = bytes(range(256)) * 37
MIB = 1 << 20


def test_bytes_pass_through_pipes_unchanged(carrel):
    done = carrel.run("--", "cat", stdin=EVERY_BYTE)
    assert (done.returncode, done.stdout, done.stderr) == (0, EVERY_BYTE, b"")


def test_stdout_and_stderr_stay_apart(carrel):
    done = carrel.run("--", "sh", "-c", "printf out; printf err >&2")
    assert (done.stdout, done.stderr) == (b"out", b"err")


def test_stderr_into_stdout_keeps_the_order(carrel):
    script = "for i in 1 2 3 4 5; do echo out$i; echo err$i >&2; done"
    done = carrel.run("--", "sh", "-c", script, stderr=subprocess.STDOUT)
    assert done.stdout.decode().split() == [f"{w}{i}" for i in range(1, 6) for w in ("out", "err")]


def test_sixty_four_mebibytes_through_pipes(carrel):
    block = hashlib.sha512(b"carrel").digest() * (MIB // 64)
    process = carrel.popen("run", "--", "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def feed():
        for _ in range(64):
            process.stdin.write(block)
        process.stdin.close()

    feeder = threading.Thread(target=feed)
    feeder.start()
    got, count = hashlib.sha256(), 0
    while data := process.stdout.read(MIB):
        got.update(data)
        count += len(data)
    feeder.join()
    want = hashlib.sha256()
    for _ in range(64):
        want.update(block)
    assert process.wait() == 0 and count == 64 * MIB and got.digest() == want.digest()
    process.stdout.close()


def test_sixty_four_mebibytes_into_a_file(carrel, tmp_path):
    with open(tmp_path / "out", "wb") as out:
        done = carrel.run("--", "sh", "-c", "head -c 67108864 /dev/zero | tr '\\0' x", stdout=out)
    assert done.returncode == 0
    data = (tmp_path / "out").read_bytes()
    assert len(data) == 64 * MIB and data.count(b"x") == len(data)


def test_a_file_as_stdin(carrel, tmp_path):
    (tmp_path / "in").write_bytes(EVERY_BYTE * 100)
    with open(tmp_path / "in", "rb") as source:
        source.seek(3)
        done = carrel.run("--", "cat", stdin=source)
    assert done.stdout == (EVERY_BYTE * 100)[3:]


def test_appending_to_a_file(carrel, tmp_path):
    (tmp_path / "out").write_bytes(b"before ")
    with open(tmp_path / "out", "ab") as out:
        carrel.run("--", "echo", "after", stdout=out)
    assert (tmp_path / "out").read_bytes() == b"before after\n"


def test_a_slow_reader_holds_the_command_back(carrel, tmp_path):
    """Nothing in between swallows output: a reader that stops stops the writer soon after."""
    script = "i=0; while :; do printf '%04095d\\n' $i; i=$((i+1)); echo $i >&2; done"
    counts = open(tmp_path / "counts", "wb")
    process = carrel.popen("run", "--", "sh", "-c", script, stdout=subprocess.PIPE, stderr=counts)
    process.stdout.read(4096)

    def lines():
        return (tmp_path / "counts").read_bytes().count(b"\n")

    last, deadline = -1, clock() + 20
    while lines() != last:
        assert clock() < deadline
        last = lines()
        time.sleep(0.4 * PATIENCE)
    assert 1 <= last <= 64  # one pipe of 64 KiB holds 16
    process.stdout.close()
    assert process.wait(20 * PATIENCE) == 128 + signal.SIGPIPE
    counts.close()


def test_a_writer_waits_for_a_slow_command(carrel):
    process = carrel.popen("run", "--", "sleep", "3", stdin=subprocess.PIPE)
    fd = process.stdin.fileno()
    os.set_blocking(fd, False)
    written = 0
    end = time.monotonic() + 1
    while time.monotonic() < end:
        try:
            written += os.write(fd, b"x" * 4096)
        except BlockingIOError:
            time.sleep(0.02)
        except BrokenPipeError:
            break
    assert written <= 512 * 1024
    process.kill()
    process.wait()
    process.stdin.close()


def test_a_command_that_does_not_read_its_stdin(carrel):
    process = carrel.popen("run", "--", "true", stdin=subprocess.PIPE)
    assert process.wait(20 * PATIENCE) == 0
    with pytest.raises(BrokenPipeError):
        for _ in range(100):
            process.stdin.write(b"x" * 65536)
            process.stdin.flush()
    try:
        process.stdin.close()
    except BrokenPipeError:
        pass


def test_stdin_closed_early_ends_the_writer(carrel):
    shell = f"yes | '{carrel_program()}' run -- head -c 2; echo ${{PIPESTATUS[*]}}"
    done = subprocess.run(["bash", "-c", shell], env=carrel.env, stdout=subprocess.PIPE, timeout=30 * PATIENCE)
    assert done.stdout == b"y\n141 0\n"


def test_stdout_closed_early_is_sigpipe(carrel):
    shell = f"'{carrel_program()}' run -- yes | head -c 2; echo ${{PIPESTATUS[*]}}"
    done = subprocess.run(["bash", "-c", shell], env=carrel.env, stdout=subprocess.PIPE, timeout=30 * PATIENCE)
    assert done.stdout == b"y\n141 0\n"


def carrel_program():
    from carrel import PROGRAM
    return PROGRAM


def test_dev_null_everywhere(carrel):
    done = carrel.run("--", "sh", "-c", "cat; echo out; echo err >&2; exit 4", stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL)
    assert done.returncode == 4


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_streams_stay_closed_to_everything_else(carrel, closed):
    """A stream that is closed must not become whatever carrel opens first."""
    shell = f"'{carrel_program()}' run -- sh -c 'cat; echo o; echo e >&2; exit 9' {closed}"
    done = subprocess.run(["bash", "-c", shell], env=carrel.env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20 * PATIENCE)
    assert done.returncode == 9, done
    assert done.stdout == (b"" if " >&-" in " " + closed else b"o\n")
    assert done.stderr == (b"" if "2>&-" in closed else b"e\n")


def test_sockets_as_streams(carrel):
    ours, theirs = socket.socketpair()
    process = carrel.popen("run", "--", "tr", "a-z", "A-Z", stdin=theirs, stdout=theirs)
    theirs.close()
    ours.sendall(b"shout " * 50000)
    ours.shutdown(socket.SHUT_WR)
    got = b""
    while data := ours.recv(65536):
        got += data
    ours.close()
    assert process.wait(20 * PATIENCE) == 0 and got == b"SHOUT " * 50000


def test_output_that_cannot_be_written_is_an_error(carrel):
    with open("/dev/full", "wb") as full:
        done = carrel.run("--", "echo", "lost", stdout=full)
    assert done.returncode == 125
    assert b"No space left on device" in done.stderr and done.stderr.count(b"\n") == 1


def test_background_children_do_not_outlive_the_run(carrel):
    started = clock()
    done = carrel.run("--", "sh", "-c", "sleep 300 & echo started")
    assert done.stdout == b"started\n" and clock() - started < 10


def test_eof_reaches_the_command_when_the_writer_ends(carrel):
    process = carrel.popen("run", "--", "sh", "-c", "cat >/dev/null; echo end", stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE)
    process.stdin.write(b"some")
    process.stdin.close()
    assert process.stdout.read() == b"end\n" and process.wait(20 * PATIENCE) == 0
    process.stdout.close()


def test_many_runs_beside_each_other(carrel):
    count = 200 if PATIENCE < 10 else 40

    def one(i):
        done = carrel.run("--", "sh", "-c", f"read x; echo $x-{i}; exit {i % 256}", stdin=b"in%d\n" % i)
        results[i] = (done.returncode, done.stdout)

    results = {}
    for start in range(0, count, 8):
        threads = [threading.Thread(target=one, args=(i,)) for i in range(start, start + 8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert results == {i: (i % 256, b"in%d-%d\n" % (i, i)) for i in range(count)}
