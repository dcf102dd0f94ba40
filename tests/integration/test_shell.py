"""carrel sh: a shell on a real terminal, left behind and come back to; and without a terminal."""
import json
import os
import pty
import re
import signal
import subprocess
import time

import pytest

from carrel import Terminal, alive


@pytest.fixture
def machine(carrel):
    m = carrel.keep()
    yield m
    carrel("rm", m)


def shell(carrel, *words, **kw):
    """With a prompt to wait for."""
    t = Terminal(carrel, "sh", *words, **kw)
    t.type(b"PS1='ready''> '\n")
    t.expect(b"ready> ")
    return t


def test_a_shell_with_a_terminal_and_its_size(carrel, machine):
    t = shell(carrel, machine, rows=31, cols=97)
    t.type(b"tty; stty size; id -un\n")
    t.expect(b"/dev/pts/")
    t.expect(b"31 97")
    t.expect(b"user")
    t.size(12, 34)
    t.process.send_signal(signal.SIGWINCH)
    t.type(b"until stty size | grep -x '12 34'; do sleep 0.1; done; echo is:$(stty size)\n")
    t.expect(b"is:12 34")
    t.type(b"exit 7\n")
    status, _ = t.close()
    assert status == 7 and t.after == t.before


def test_options_of_a_shell(carrel, machine):
    t = shell(carrel, "-u", "root", "--cwd", "/tmp", "-e", "A=b c", machine)
    t.type(b"echo \"$(id -u):$PWD:$A:\"; exit\n")
    t.expect(b"0:/tmp:b c:\r\n")
    assert t.close()[0] == 0


@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGTERM])
def test_a_shell_goes_on_when_its_terminal_is_gone(carrel, machine, how):
    t = shell(carrel, machine)
    t.type(b"kept=value; echo was-here\n")
    t.expect(b"was-here\r\n")
    t.process.send_signal(how)
    status, text = t.close()
    words = re.search(rb"the shell continues; to return to it: carrel sh (\S+) (x-\w+)", text)
    assert status == 0 and t.after == t.before and words, text
    back = Terminal(carrel, "sh", words[1].decode(), words[2].decode())
    back.expect(b"was-here\r\n")  # what it showed last
    back.type(b"echo $kept; exit 3\n")
    back.expect(b"value\r\n")
    assert back.close()[0] == 3


def states(carrel, machine):
    return [x["state"] for x in json.loads(carrel("logs", "--json", machine).stdout)["execs"] if x["terminal"]]


def come_back(carrel, machine):
    x = next(x for x in json.loads(carrel("logs", "--json", machine).stdout)["execs"] if x["terminal"])
    t = Terminal(carrel, "sh", machine, x["id"])
    t.expect(b"was-here\r\n")
    t.type(b"echo $kept; exit 3\n")
    t.expect(b"value\r\n")
    assert t.close()[0] == 3


def test_shell_continues_when_its_terminal_is_closed(carrel, machine):
    """Without a signal: the client leads no session, so it reads the end of its terminal."""
    ours, theirs = pty.openpty()
    with carrel.popen("sh", machine, stdin=theirs, stdout=theirs, stderr=theirs) as p:
        os.close(theirs)
        os.write(ours, b"kept=value; echo was-'here'\n")
        shown = b""
        while b"was-here\r\n" not in shown:
            shown += os.read(ours, 4096)
        os.close(ours)
        assert p.wait() == 0
    assert states(carrel, machine) == ["running"]
    come_back(carrel, machine)


def test_shell_continues_when_its_terminal_closes_while_it_prints(carrel, machine):
    ours, theirs = pty.openpty()
    with carrel.popen("sh", machine, stdin=theirs, stdout=theirs, stderr=theirs) as p:
        os.close(theirs)
        os.write(ours, b"while :; do echo more; sleep 0.01; done\n")
        shown = b""
        while shown.count(b"more\r\n") < 5:
            shown += os.read(ours, 4096)
        os.close(ours)
        assert p.wait() == 0
    assert states(carrel, machine) == ["running"]


def test_key_leaves_the_shell_running(carrel, machine):
    t = Terminal(carrel, "sh", machine)
    t.expect(b"carrel: to leave the shell running, press Ctrl-] three times within a second\r\n")
    t.type(b"kept=value; echo was-'here'\n")
    t.expect(b"was-here\r\n")
    t.type(b"\x1d\x1d\x1d")
    status, text = t.close()
    assert status == 0 and t.after == t.before and b"the shell continues; to return to it: carrel sh " in text, text
    assert states(carrel, machine) == ["running"]
    come_back(carrel, machine)


def test_key_leaves_the_shell_only_if_pressed_three_times_in_a_row(carrel, machine):
    t = Terminal(carrel, "sh", machine)
    t.type(b"stty raw -echo; echo up; head -c 7 | od -An -tx1; stty sane; exit 6\n")
    t.expect(b"up\n")
    t.type(b"\x1d\x1dx\x1d\x1d")
    time.sleep(1.1)  # the next two keys begin a new row
    t.type(b"\x1d\x1d")
    t.expect(b"1d 1d 78 1d 1d 1d 1d")
    assert t.close()[0] == 6


def leave(t):
    t.type(b"\x1d\x1d\x1d")
    status, text = t.close()
    assert status == 0, text
    return text


def test_return_to_a_shell_by_name(carrel, machine):
    t = shell(carrel, machine, "--name", "work")
    t.type(b"kept=value; echo was-'here'\n")
    t.expect(b"was-here\r\n")
    assert f"to return to it: carrel sh {machine} work\r\n".encode() in leave(t)
    for words in (machine, "work"), ("--name", "work", machine):
        t = Terminal(carrel, "sh", *words)
        t.expect(b"was-here\r\n")
        t.type(b"echo and-$kept\n")
        t.expect(b"and-value\r\n")
        leave(t)
    assert states(carrel, machine) == ["running"]
    t = shell(carrel, "-q", "--name", "work", machine)
    t.type(b"exit 5\n")
    assert t.close()[0] == 5
    t = shell(carrel, machine, "--name", "work")  # the name is free again
    t.type(b"echo new-$kept-; exit\n")
    t.expect(b"new--\r\n")
    assert t.close()[0] == 0


def test_list_of_open_shells(carrel, machine):
    assert carrel("sh", "--ls", machine).stdout.splitlines() == [b"NAME            EXEC            AGE   USER      COMMAND"]
    one, two = shell(carrel, machine, "--name", "work"), shell(carrel, "-u", "root", machine)
    with carrel.popen("exec", machine, "--", "sleep", "60") as plain:  # no terminal: cannot be returned to
        rows = [line.split() for line in carrel("sh", machine, "--ls").stdout.decode().splitlines()[1:]]
        assert [(r[0], r[3], r[4]) for r in rows] == [("-", "root", "shell"), ("work", "user", "shell")]
        listed = json.loads(carrel("sh", "--ls", "--json", machine).stdout)["shells"]
        assert [x.get("name") for x in listed] == [None, "work"]
        ids = carrel("sh", "--ls", "-q", machine).stdout.decode().split()
        assert ids == [x["id"] for x in listed] == [r[1] for r in rows]
        plain.send_signal(signal.SIGTERM)
    leave(one)
    two.type(b"exit\n")
    assert two.close()[0] == 0
    assert carrel("sh", "--ls", "-q", machine).stdout.decode().split() == ids[1:]


def test_list_has_an_old_shell_after_many_commands(carrel, machine):
    t = shell(carrel, machine, "--name", "work")
    for _ in range(110):  # more than one page of `carrel logs`
        assert carrel("exec", machine, "--", "true").returncode == 0
    assert carrel("sh", "--ls", machine).stdout.count(b"work") == 1
    leave(t)


def test_end_of_piped_input_ends_a_shell_with_a_terminal(carrel, machine):
    """The control: only the end of a terminal detaches."""
    with carrel.popen("sh", "-t", machine, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        p.stdin.write(b"PS1='ready''> '\n")
        p.stdin.flush()
        shown = b""
        while b"ready> " not in shown:
            shown += os.read(p.stdout.fileno(), 4096)
        p.stdin.close()
        assert p.wait() == 0 and b"Ctrl-]" not in p.stderr.read()
    assert states(carrel, machine) == ["exited"]


def test_a_shell_outlives_the_daemon_under_it(carrel, machine):
    t = shell(carrel, machine)
    pid = int((carrel.run_dir / "carrel.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    while alive(pid):  # what is on its way to one that dies is lost
        time.sleep(0.01)
    t.type(b"echo still-$((40 + 2))\n")
    t.expect(b"still-42\r\n")
    t.type(b"exit 4\n")
    assert t.close()[0] == 4


def test_a_shell_without_a_terminal(carrel, machine):
    done = carrel("sh", machine, stdin=b"echo one; test -t 0 || echo plain; exit 5\n")
    assert (done.returncode, done.stdout) == (5, b"one\nplain\n"), done


@pytest.mark.parametrize("words, says", [
    (["sh"], "no machine given"), (["sh", "m-aaaaaaaaaaaa"], "machine 'm-aaaaaaaaaaaa' does not exist"), (["sh", "--no-such", "x"], "--no-such"),
    (["sh", "a", "b", "c"], "unexpected argument"),
    (["sh", "--ls"], "no machine given"), (["sh", "--ls", "a", "b"], "--ls takes only a machine"),
    (["sh", "--name", "a", "b", "c"], "--name and EXEC exclude each other"), (["sh", "--json", "a"], "--json requires --ls"),
])
def test_bad_words(carrel, words, says):
    done = carrel(*words)
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1 and says.encode() in done.stderr, done


def test_what_is_not_there_to_come_back_to(carrel, machine):
    carrel("exec", machine, "--", "true")
    done = carrel("sh", machine, "x-aaaaaaaaaaaa")
    assert done.returncode == 125 and b"does not exist" in done.stderr, done
    done = carrel("sh", machine, "work")
    assert done.returncode == 125 and b"has no open shell 'work'" in done.stderr, done
    done = carrel("sh", machine, "--name", "work")
    assert done.returncode == 125 and b"--name requires a terminal" in done.stderr, done
