"""`pause` of a cell machine stores its running programs: no process is left, and they go on later as if nothing had happened."""
import contextlib
import fcntl
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import threading

import pytest

import cells
from carrel import BUILD
from daemon import Daemon, Refused
from small_home import SmallHome, why_not
from test_asleep import boxes
from test_cells_bad import workers
from test_durable import restart_host

IMAGE = "programs"
TICKS = "".join(chr(97 + n % 26) + "\n" for n in range(120))


@pytest.fixture(scope="module")
def host():
    d = Daemon()
    d.request("POST", "/v1/images", cells.image(), name=IMAGE)
    yield d
    d.stop()


@pytest.fixture(scope="module")
def whole(host):
    """Fuel of the program `ticks` if nobody pauses it."""
    r = host.exec(new(host), ["ticks"])
    assert (r["exec"]["status"], r["stdout"]) == (7, TICKS)
    return r["exec"]["usage"]["fuel"]


def new(d, **fields):
    return d.machine(**{"kind": "cell", "image": IMAGE, **fields})


def start(d, m, *argv, lines=3, **fields):
    """Starts a command in the background, and waits until it has printed some lines."""
    x = d.post(f"/v1/machines/{m}/execs", {"argv": list(argv) or ["ticks"], "background": True, **fields})["id"]
    d.until(lambda: output(d, m, x).count("\n") >= lines)
    return x


def output(d, m, x, stream="stdout"):
    return d.get(f"/v1/machines/{m}/execs/{x}/output", stream=stream).decode()


def pause(d, m):
    return d.post(f"/v1/machines/{m}/pause")["state"]


def resume(d, m):
    return d.post(f"/v1/machines/{m}/resume")["state"]


def files(d):
    return sorted(p.name for p in pathlib.Path(d.home).glob("stored/*/*"))


def stored(d, m):
    return (d.home / "stored" / m).exists()


def processes(d, m):
    """Processes of the machine that the host has."""
    return [p for p in (d.run_dir / "boxes").glob(m)]


def ended(d, m, x, fuel):
    r = d.wait(m, x)
    assert (r["status"], r["usage"].get("fuel"), output(d, m, x)) == (7, fuel, TICKS), json.dumps(r) + d.last_lines()
    assert output(d, m, x, "stderr") == ""


def test_paused_cell_has_no_process_and_its_program_goes_on(host, whole):
    m = new(host)
    x = start(host, m)
    assert pause(host, m) == "paused"
    assert m not in boxes(host) and files(host) == [x]
    before = output(host, m, x)
    assert 6 <= len(before) < len(TICKS) and TICKS.startswith(before)
    shown = host.get(f"/v1/machines/{m}/execs/{x}")
    assert shown["state"] == "running" and host.get(f"/v1/machines/{m}")["state"] == "paused"
    assert output(host, m, x) == before, "nothing goes on"
    assert resume(host, m) == "running"
    ended(host, m, x, whole)
    assert files(host) == []
    host.delete(f"/v1/machines/{m}")


def test_many_pauses_of_many_programs(host, whole):
    m = new(host)
    xs = [start(host, m, lines=1) for _ in range(4)]
    for n in range(4):
        assert pause(host, m) == "paused", host.last_lines()  # a busy host may still use its box
        assert pause(host, m) == "paused", "a second pause changes nothing"
        assert files(host) == sorted(x for x in xs if not over(host, m, x)), host.last_lines()
        assert resume(host, m) == "running"
        assert resume(host, m) == "running"
    for x in xs:
        ended(host, m, x, whole)
    host.delete(f"/v1/machines/{m}")


def over(d, m, x):
    return d.get(f"/v1/machines/{m}/execs/{x}")["state"] != "running"


def test_another_daemon_resumes_it(host, whole):
    m = new(host)
    x = start(host, m)
    pause(host, m)
    before = output(host, m, x)
    for kill in (False, True):
        host.restart(hard=kill)
        assert host.get(f"/v1/machines/{m}")["state"] == "paused" and m not in boxes(host)
        assert output(host, m, x) == before and not over(host, m, x)
    resume(host, m)
    ended(host, m, x, whole)
    host.delete(f"/v1/machines/{m}")


def test_restart_of_the_host_loses_nothing(whole):
    d = Daemon()
    d.request("POST", "/v1/images", cells.image(), name=IMAGE)
    m = new(d)
    x = start(d, m)
    pause(d, m)
    restart_host(d)
    assert d.get(f"/v1/machines/{m}")["state"] == "paused"
    resume(d, m)
    ended(d, m, x, whole)
    d.stop()


def test_files_of_a_paused_cell_are_reached_and_its_program_stays_stored(host, whole):
    m = new(host)
    host.put(f"/v1/machines/{m}/files", b"mine\n", path="/data/mine")
    x = start(host, m)
    pause(host, m)
    before = output(host, m, x)
    assert host.get(f"/v1/machines/{m}/files", path="/data/mine") == b"mine\n"
    assert host.get(f"/v1/machines/{m}")["state"] == "paused" and m in boxes(host)
    fork = host.post(f"/v1/machines/{m}/fork")["machines"][0]["id"]
    assert host.get(f"/v1/machines/{fork}/execs")["execs"] == []
    assert host.get(f"/v1/machines/{fork}/files", path="/data/mine") == b"mine\n"
    with pytest.raises(Refused) as why:
        host.post(f"/v1/machines/{m}/rewind", {"step": "1"})
    assert why.value.code in ("busy", "not_found")
    assert output(host, m, x) == before and files(host) == [x]
    resume(host, m)
    ended(host, m, x, whole)
    host.delete(f"/v1/machines/{fork}")
    host.delete(f"/v1/machines/{m}")


def test_exec_of_a_paused_cell_resumes_it(host, whole):
    m = new(host)
    x = start(host, m)
    pause(host, m)
    assert host.exec(m, ["hello"])["exec"]["status"] == 3
    ended(host, m, x, whole)
    host.delete(f"/v1/machines/{m}")


@pytest.mark.parametrize("verb", ["delete", "stop"])
def test_stored_command_ends_with_its_machine(host, verb):
    m = new(host)
    x = start(host, m)
    pause(host, m)
    if verb == "delete":
        host.delete(f"/v1/machines/{m}")
        assert host.get(f"/v1/machines/{m}/execs/{x}")["state"] == "unknown"
    else:
        assert host.post(f"/v1/machines/{m}/stop")["state"] == "stopped"
        assert host.wait(m, x)["signal"] == signal.SIGKILL
        assert resume(host, m) == "running"
        assert host.exec(m, ["hello"])["exec"]["status"] == 3
        host.delete(f"/v1/machines/{m}")
    assert files(host) == []


def test_kill_of_a_stored_command_is_saved_before_its_answer(host):
    m = new(host)
    x, y = (start(host, m, "cat", lines=0, stdin_open=True) for _ in range(2))
    pause(host, m)
    host.delete(f"/v1/machines/{m}/execs/{x}")
    host.post(f"/v1/machines/{m}/execs/{y}/signal", {"signal": "TERM"})
    host.restart(hard=True)
    assert host.get(f"/v1/machines/{m}/execs/{x}")["reason"] == "killed"
    assert host.get(f"/v1/machines/{m}/execs/{y}")["signal"] == signal.SIGTERM
    assert files(host) == [] and m not in boxes(host)
    assert resume(host, m) == "running"
    host.delete(f"/v1/machines/{m}")


def test_command_with_input_goes_on_where_it_was(host):
    m = new(host)
    x = start(host, m, "cat", lines=0, stdin_open=True)
    url = f"/v1/machines/{m}/execs/{x}/stdin"
    host.request("POST", url, b"one\n", offset=0)
    host.until(lambda: output(host, m, x) == "one\n")
    for restarts in (False, True):
        pause(host, m)
        assert m not in boxes(host), host.last_lines()
        with pytest.raises(Refused) as why:
            host.request("POST", url, b"two\n", offset=4)
        assert why.value.code == "busy"
        if restarts:
            host.restart()
        resume(host, m)
    host.until(lambda: host.request("POST", url, b"two\n", offset=4) is not None)
    host.until(lambda: output(host, m, x) == "one\ntwo\n")
    host.request("POST", url, b"", offset=8, eof=1)
    r = host.wait(m, x)
    assert (r["status"], output(host, m, x)) == (0, "one\ntwo\n")
    host.delete(f"/v1/machines/{m}")


def caller(host, m, program, stderr):
    return subprocess.Popen([str(BUILD / "carrel"), "exec", m, "--", program], env=host.env, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=stderr, bufsize=0)


def read_all(p):
    """A thread that reads as the program prints, as callers do, and the list that gets the lines."""
    lines = []
    t = threading.Thread(target=lambda: lines.extend(iter(p.stdout.readline, b"")))
    t.start()
    return t, lines


def test_carrel_exec_waits_for_a_paused_cell(host, whole):
    """The caller has pipes of its own, which the resumed program writes to."""
    m = new(host)
    p = caller(host, m, "ticks", subprocess.PIPE)
    t, lines = read_all(p)
    host.until(lambda: len(lines) >= 3)
    assert pause(host, m) == "paused" and m not in boxes(host), host.last_lines()
    assert p.poll() is None
    resume(host, m)
    t.join()
    assert (b"".join(lines).decode(), p.stderr.read(), p.wait()) == (TICKS, b"", 7)
    host.delete(f"/v1/machines/{m}")


def test_carrel_exec_with_one_pipe_for_both_streams(host, whole):
    """The log of stderr has ended before the command begins."""
    m = new(host)
    p = caller(host, m, "ticks", subprocess.STDOUT)
    t, lines = read_all(p)
    host.until(lambda: len(lines) >= 3)
    for _ in range(2):
        assert pause(host, m) == "paused" and stored(host, m), host.last_lines()
        resume(host, m)
    t.join()
    assert (b"".join(lines).decode(), p.wait()) == (TICKS, 7)
    x = host.get(f"/v1/machines/{m}/execs")["execs"][0]["id"]
    ended(host, m, x, whole)
    host.delete(f"/v1/machines/{m}")


def test_program_whose_caller_does_not_read_stays_in_memory(host):
    """The caller's pipe has no room for all that was printed before the pause, which is answered all the same."""
    m = new(host)
    p = caller(host, m, "thirty", subprocess.STDOUT)
    fcntl.fcntl(p.stdout, fcntl.F_SETPIPE_SZ, 4096)
    assert p.stdout.readline() == b"a\n"
    x = host.get(f"/v1/machines/{m}/execs")["execs"][0]["id"]
    seen = [0, 0]
    while seen[-1] != seen[-2] or seen[-1] < 3:  # until the pipe is full
        threading.Event().wait(0.2)
        seen.append(output(host, m, x).count("\n"))
    assert pause(host, m) == "paused" and m in boxes(host) and not stored(host, m)
    resume(host, m)
    assert b"".join(p.stdout.readline() for _ in range(29)) == b"a\n" * 29
    assert pause(host, m) == "paused" and m not in boxes(host) and stored(host, m), "its control: all is read"
    resume(host, m)
    host.delete(f"/v1/machines/{m}/execs/{x}")
    assert p.stdout.read() == b"" and p.wait() == 137
    host.delete(f"/v1/machines/{m}")


def test_timeout_counts_only_the_time_that_a_command_runs(host, whole):
    """Also if another daemon stores it again. The hour of its pause is written into the database."""
    m = new(host)
    x = start(host, m, "cat", lines=0, stdin_open=True, timeout=600)
    pause(host, m)
    resume(host, m)
    host.until(lambda: not stored(host, m))
    host.kill()
    with contextlib.closing(sqlite3.connect(host.home / "carrel.db")) as db, db:
        changed = db.execute("UPDATE execs SET created_ms = created_ms - 3600000, started_ms = started_ms - 3600000 WHERE id = ?", (x,))
        assert changed.rowcount == 1
    host.start()
    assert host.exec(m, ["hello"])["exec"]["status"] == 3, "the new daemon reaches the machine"
    assert pause(host, m) == "paused" and stored(host, m), host.last_lines()
    resume(host, m)
    host.until(lambda: host.request("POST", f"/v1/machines/{m}/execs/{x}/stdin", b"", offset=0, eof=1) is not None)
    assert host.wait(m, x)["status"] == 0
    host.delete(f"/v1/machines/{m}")


def is_written(path):
    """True once a worker has written the whole file of its program."""
    with contextlib.suppress(OSError), open(path, "rb") as f:
        f.seek(-8, os.SEEK_END)
        return f.read() == b"CRLPAUSD"
    return False


def worker_of(mark):
    """A pidfd of the process that the guest has started for the command with this word."""
    pid = workers(mark)[0]
    return os.pidfd_open(pid)


@pytest.mark.parametrize("how", ["worker", "request"])
def test_command_that_is_killed_while_it_is_stored(host, whole, how):
    """It ends, or it is stored and goes on. A kill that was answered is never undone."""
    m = new(host)
    for n in range(12):
        mark = f"mark-{how}-{n}"
        x = start(host, m, "ticks", mark, lines=1)
        fd = worker_of(mark)
        t = threading.Thread(target=pause, args=(host, m))
        t.start()
        host.until(lambda: is_written(host.home / "stored" / m / x) or not t.is_alive())
        threading.Event().wait(0.001 * n)
        if how == "worker":
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        else:
            host.delete(f"/v1/machines/{m}/execs/{x}")
        os.close(fd)
        t.join()
        resume(host, m)
        r = host.wait(m, x)
        if how == "worker" and r.get("signal") != signal.SIGKILL:
            ended(host, m, x, whole)
        else:
            assert r["signal"] == signal.SIGKILL and TICKS.startswith(output(host, m, x)), json.dumps(r) + host.last_lines()
            assert how == "worker" or r["reason"] == "killed"
    assert not stored(host, m)
    host.delete(f"/v1/machines/{m}")


def test_program_that_would_not_fit_on_the_disk_stays_in_memory(host, whole):
    """64 MiB of memory, and a disk of 32 MiB."""
    text = cells.program({"fd_write": 4}, '(local $i i32) (drop (memory.grow (i32.const 1000)))'
                         '(loop $fill (i32.store (i32.mul (local.get $i) (i32.const 4096)) (i32.const 7))'
                         ' (br_if $fill (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 16000))))'
                         '(call $say (i32.const 100) (i32.const 1)) (loop $more (br $more))', '(data (i32.const 100) "\\n")')
    m = new(host, limits={"disk": 32 << 20, "mem": 256 << 20})
    host.put(f"/v1/machines/{m}/files", text.encode(), path="/bin/large.wasm")
    x = start(host, m, "large", lines=1)
    assert pause(host, m) == "paused" and m in boxes(host)
    assert files(host) == []
    fuel = host.get(f"/v1/machines/{m}/execs/{x}")
    assert fuel["state"] == "running"
    resume(host, m)
    host.delete(f"/v1/machines/{m}/execs/{x}")
    assert host.wait(m, x)["reason"] == "killed"
    host.delete(f"/v1/machines/{m}")


def test_files_that_no_command_needs_are_removed(host):
    """A daemon that is killed while programs store themselves leaves files behind."""
    m = new(host)
    x = start(host, m)
    folder = host.home / "stored" / m
    folder.mkdir(parents=True)
    (folder / x).write_bytes(b"half")
    other = host.home / "stored" / "m-zzzzzzzzzzzz"
    other.mkdir()
    (other / "x-zzzzzzzzzzzz").write_bytes(b"old")
    host.restart()
    host.until(lambda: not (host.home / "stored").exists())
    assert host.wait(m, x)["status"] == 7
    host.delete(f"/v1/machines/{m}")


def test_daemon_that_is_killed_during_a_pause_loses_nothing(host, whole):
    """At whatever moment: the program goes on, or is stored, and never runs twice."""
    m = new(host)
    for n in range(6):
        x = start(host, m, lines=1)
        t = threading.Thread(target=lambda: pytest.raises(Exception, pause, host, m))
        t.start()
        threading.Event().wait(0.01 * n)
        host.restart(hard=True)
        t.join()
        resume(host, m)
        ended(host, m, x, whole)
    host.delete(f"/v1/machines/{m}")
    assert files(host) == []


@pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
def test_full_disk_loses_no_program(whole):
    """The program is frozen in memory, or the pause is refused; then it goes on."""
    d = SmallHome(size=64)
    try:
        d.request("POST", "/v1/images", cells.image(), name=IMAGE)
        m = new(d, steps="manual")
        x = start(d, m)
        filler = d.fill()
        with contextlib.suppress(Refused):
            assert pause(d, m) == "paused" and m in boxes(d)
        assert not over(d, m, x)
        filler.unlink()
        d.until(lambda: went_on(d, m))
        ended(d, m, x, whole)
        assert files(d) == []
    finally:
        d.stop()


def went_on(d, m):
    """False while the daemon does not know yet that the disk has room again."""
    with contextlib.suppress(Refused):
        return resume(d, m) == "running"
    return False
