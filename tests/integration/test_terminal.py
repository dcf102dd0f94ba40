"""A real terminal: keys, Ctrl-C, window size, raw mode and back."""
import contextlib
import os
import signal
import subprocess
import termios
import time

import pytest
from carrel import Terminal
from patience import PATIENCE


def test_a_terminal_when_the_caller_has_one(carrel):
    t = Terminal(carrel, "run", "--", "sh", "-c", "tty; test -t 0 && test -t 1 && test -t 2 && echo all")
    status, text = t.close()
    assert status == 0 and b"/dev/pts/" in text and b"all\r\n" in text


def test_none_when_told(carrel):
    t = Terminal(carrel, "run", "-T", "--", "sh", "-c", "test -t 0 || test -t 1 || test -t 2 || echo none")
    status, text = t.close()
    assert status == 0 and b"none" in text


def test_one_when_told_without_having_one(carrel):
    done = carrel.run("-t", "--", "sh", "-c", "test -t 0 && test -t 1 && echo yes; stty size", stdin=b"")
    assert done.returncode == 0 and done.stdout.startswith(b"yes\r\n")


def test_t_and_T_exclude_each_other(carrel):
    done = carrel.run("-t", "-T", "--", "true")
    assert (done.returncode, done.stderr.count(b"\n")) == (125, 1)


def test_pipes_mean_no_terminal(carrel):
    done = carrel.run("--", "sh", "-c", "test -t 0 || test -t 1 || echo none", stdin=b"")
    assert done.stdout == b"none\n"


def test_window_size_at_the_start_and_when_it_changes(carrel):
    # Short sleeps: a signal that comes just before pause() would be handled only after the next one.
    script = ("import os, signal, time\ndef show(*_): os.write(1, b'%d %d\\n' % os.get_terminal_size()[::-1])\n"
              "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
              "signal.signal(signal.SIGWINCH, show)\nshow()\nwhile True: time.sleep(0.02)")
    t = Terminal(carrel, "run", "--", "python3", "-c", script, rows=31, cols=97)
    t.expect(b"31 97")
    t.size(12, 34)
    t.process.send_signal(signal.SIGWINCH)
    t.expect(b"12 34")
    t.type(b"\x03")
    assert t.close()[0] == 130


def test_ctrl_c_interrupts_the_command_and_not_us(carrel):
    t = Terminal(carrel, "run", "--", "sh", "-c", "trap 'echo caught; exit 42' INT; echo ready; while :; do sleep 0.05; done")
    t.expect(b"ready")
    t.type(b"\x03")
    t.expect(b"caught")
    assert t.close()[0] == 42


def test_ctrl_c_ends_a_command_that_does_not_catch_it(carrel):
    t = Terminal(carrel, "run", "--", "sh", "-c", "echo ready; exec sleep 60")
    t.expect(b"ready")
    t.type(b"\x03")
    assert t.close()[0] == 130


def test_ctrl_d_is_the_end_of_input(carrel):
    t = Terminal(carrel, "run", "--", "sh", "-c", "echo ready; cat; echo done")
    t.expect(b"ready")
    t.type(b"line\n\x04")
    t.expect(b"done")
    assert t.close()[0] == 0


def test_keys_arrive_raw(carrel):
    """The outer terminal neither echoes nor translates: every byte reaches the inner one."""
    script = "stty raw -echo; echo ready; head -c 8 | od -An -tx1; stty sane"
    t = Terminal(carrel, "run", "--", "sh", "-c", script)
    t.expect(b"ready")
    t.type(b"\x01\x03\x0d\x11\x13\x1a\x1c\x7f")
    t.expect(b"01 03 0d 11 13 1a 1c 7f")
    assert t.close()[0] == 0


def test_the_terminal_is_as_before_afterwards(carrel):
    t = Terminal(carrel, "run", "--", "sh", "-c", "stty raw; exit 1")
    assert t.close()[0] == 1 and t.after == t.before


def test_the_terminal_is_as_before_when_the_command_is_not_there(carrel):
    t = Terminal(carrel, "run", "--", "no-such-command")
    status, text = t.close()
    assert status == 127 and t.after == t.before and b"No such file" in text


def test_the_terminal_is_as_before_when_we_are_told_to_end(carrel):
    t = Terminal(carrel, "run", "--", "sh", "-c", "echo ready; exec sleep 60")
    t.expect(b"ready")
    t.process.send_signal(signal.SIGTERM)
    assert t.close()[0] == 143 and t.after == t.before


def test_much_output_arrives_whole(carrel):
    t = Terminal(carrel, "run", "--", "sh", "-c", "stty -opost; seq 1 60000; echo end-of-it")
    seen = t.expect(b"end-of-it")
    assert seen.split() == [b"%d" % i for i in range(1, 60001)]
    assert t.close()[0] == 0


def test_much_input_arrives_whole(carrel):
    t = Terminal(carrel, "run", "--", "sh", "-c", "stty raw -echo; echo ready; head -c 300000 | cksum")
    t.expect(b"ready")
    os.set_blocking(t.fd, False)
    data = bytes(range(256)) * 1172
    sent = 0
    while sent < 300000:
        try:
            sent += os.write(t.fd, data[sent:min(sent + 4096, 300000)])
        except BlockingIOError:
            time.sleep(0.005)
    want = subprocess.run(["cksum"], input=data[:300000], stdout=subprocess.PIPE).stdout.strip()
    t.expect(want)
    assert t.close()[0] == 0


def test_the_term_variable_goes_along(carrel):
    t = Terminal(carrel, "run", "--", "sh", "-c", "echo term=$TERM", env={"TERM": "vt100"})
    assert b"term=vt100" in t.close()[1]


def test_job_control_of_a_shell_inside(carrel):
    t = Terminal(carrel, "run", "--", "bash", "--norc", "-i", env={"TERM": "dumb"})
    t.type(b"sleep 60\n")
    time.sleep(0.3 * PATIENCE)
    t.type(b"\x1a")
    t.expect(b"Stopped")
    t.type(b"kill %1; exit 7\n")
    t.expect(b"exit")
    t.type(b"exit 7\n")
    assert t.close()[0] == 7


def test_only_output_is_a_terminal(carrel):
    """`producer | carrel run -- cmd` on a terminal: a pipe in, the terminal stays outside."""
    master, slave = os.openpty()
    attrs = termios.tcgetattr(slave)
    done = carrel.run("--", "sh", "-c", "test -t 1 || echo plain; cat", stdin=b"piped\n", stdout=slave, stderr=slave)
    assert done.returncode == 0 and termios.tcgetattr(slave) == attrs
    os.close(slave)
    output = b""
    with contextlib.suppress(OSError):  # EIO: all was read
        while part := os.read(master, 4096):
            output += part
    assert output == b"plain\r\npiped\r\n"
    os.close(master)
