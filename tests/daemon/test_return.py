"""A client survives its daemon: it comes back to its command, reads on, and returns its real status."""
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from carrel import PROGRAM, Carrel, alive
from patience import PATIENCE, clock


@pytest.fixture
def carrel():
    c = Carrel()
    yield c
    c.stop()


def daemon_pid(c):
    return int(pathlib.Path(c.run_dir, "carrel.pid").read_text())


def end_daemon(c, how):
    """Until it is gone: a signal has been sent long before it has an effect."""
    pid = daemon_pid(c)
    os.kill(pid, how)
    end = clock() + 30
    while alive(pid):
        assert clock() < end, "the daemon does not end"
        time.sleep(0.005)


def streams(p, data):
    """What it wrote, and its status."""
    out, err = p.communicate(data, timeout=60 * PATIENCE)
    return out, err, p.returncode


PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
TALK = "echo one; read x; echo two $x; echo three >&2; exit 7"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
def test_exec_returns_the_status_of_a_command_that_outlived_the_daemon(carrel, how):
    m = carrel.keep()
    with carrel.popen("exec", m, "--", "sh", "-c", TALK, **PIPES) as p:
        assert p.stdout.readline() == b"one\n"
        end_daemon(carrel, how)
        assert streams(p, b"more\n") == (b"two more\n", b"three\n", 7)


def test_fork_and_run_returns_the_status_of_a_command_that_outlived_the_daemon(carrel):
    m = carrel.keep()
    line = "touch /tmp/up; until [ -e /tmp/go ]; do sleep 0.05; done; exit 5"
    with carrel.popen("fork", "--json", "--run", line, m, **PIPES) as p:
        def fork():
            others = [x["id"] for x in json.loads(carrel("ls", "--json").stdout)["machines"] if x["id"] != m]
            return others and not carrel("exec", others[0], "--", "test", "-e", "/tmp/up").returncode and others[0]

        end = clock() + 60
        while not (made := fork()):
            assert clock() < end and p.poll() is None
        end_daemon(carrel, signal.SIGKILL)
        assert carrel("exec", made, "--", "touch", "/tmp/go").returncode == 0
        out, told, status = streams(p, b"")
        assert status == 0 and [(r["machine"], r["status"]) for r in json.loads(out)["forks"]] == [(made, 5)], (out, told)


def test_a_command_that_ended_while_no_daemon_ran_has_its_status(carrel, tmp_path):
    """Output to a file is relayed by the client, daemon or no daemon."""
    m = carrel.keep()
    with open(tmp_path / "out", "wb") as out, \
            carrel.popen("exec", m, "--", "sh", "-c", TALK, **{**PIPES, "stdout": out}) as p:
        end = clock() + 30
        while (tmp_path / "out").read_bytes() != b"one\n":
            assert clock() < end
            time.sleep(0.005)
        end_daemon(carrel, signal.SIGKILL)
        assert streams(p, b"\n") == (None, b"three\n", 7)
    assert (tmp_path / "out").read_bytes() == b"one\ntwo\n"


def test_the_result_as_json_is_whole(carrel):
    m = carrel.keep()
    with carrel.popen("exec", "--json", m, "--", "sh", "-c", "echo $$ >/tmp/up; read x; echo $x; exit 5",
                      **PIPES) as p:
        end = clock() + 30
        while carrel("exec", m, "--", "test", "-s", "/tmp/up").returncode:
            assert clock() < end
        end_daemon(carrel, signal.SIGKILL)
        out, _, status = streams(p, b"said\n")
    result = json.loads(out)
    assert (result["exit_status"], result["stdout"], status) == (5, "said\n", 5)


def test_run_keep_comes_back_too(carrel):
    with carrel.popen("run", "--keep", "--", "sh", "-c", TALK, **PIPES) as p:
        assert p.stdout.readline() == b"one\n"
        end_daemon(carrel, signal.SIGKILL)
        out, err, status = streams(p, b"more\n")
    assert (out, status) == (b"two more\n", 7) and b"kept as" in err
    assert len(carrel.machines()) == 1


def first_process(c, machine):
    return int(re.search(r"^pid=(\d+)", (c.run_dir / "boxes" / machine / "box").read_text(), re.M)[1])


@pytest.mark.parametrize("killed", ["daemon", "machine"])
def test_run_without_keep_says_what_keep_would_have_kept(carrel, killed):
    with carrel.popen("run", "--", "sh", "-c", TALK, **PIPES) as p:
        assert p.stdout.readline() == b"one\n"
        (machine,) = carrel.machines()
        if killed == "daemon":
            end_daemon(carrel, signal.SIGKILL)
        else:
            os.kill(first_process(carrel, machine), signal.SIGKILL)
        p.wait(60 * PATIENCE)
        told = p.stderr.read()
    assert p.returncode == 125 and machine.encode() in told and b"carrel run --keep" in told, told
    assert carrel.run("--", "true").returncode == 0  # and the next one works, by a daemon that is ended in order


def test_a_request_that_the_daemon_did_not_answer_is_carried_out_once(carrel):
    """The daemon stands still when the request comes, and is then killed: nobody knows whether it was read."""
    m = carrel.keep()
    pid = daemon_pid(carrel)
    os.kill(pid, signal.SIGSTOP)
    with carrel.popen("exec", m, "--", "sh", "-c", "echo x >>/tmp/ran; cat /tmp/ran; exit 3", **PIPES) as p:
        try:
            # It has connected once its socket is there; if it is slower, it finds no daemon: no less a case.
            end = clock() + 1
            while clock() < end and not has_socket(p.pid):
                time.sleep(0.002)
        finally:
            end_daemon(carrel, signal.SIGKILL)
        assert streams(p, b"") == (b"x\n", b"", 3)


def has_socket(pid):
    """Its descriptors come and go while we look."""
    with contextlib.suppress(OSError):
        return any(os.readlink(f"/proc/{pid}/fd/{n}").startswith("socket") for n in os.listdir(f"/proc/{pid}/fd"))
    return False


def test_forks_that_the_daemon_did_not_answer_are_those_that_the_client_gets(carrel):
    """Killed after some were made: the request comes again, and no machine is left that nobody knows."""
    m = carrel.keep()
    with carrel.popen("fork", "-n", "4", m, **PIPES) as p:
        while p.poll() is None and len(list(carrel.run_dir.glob("boxes/m-*"))) < 3:
            time.sleep(0.001)
        end_daemon(carrel, signal.SIGKILL)
        out, err, status = streams(p, b"")
    assert status == 0, err
    wanted = sorted([m, *out.decode().split()])
    assert len(wanted) == 5
    end = clock() + 30 * PATIENCE  # what a killed daemon had not made whole is ended by the next
    while sorted(carrel.machines()) != wanted:
        assert clock() < end, (carrel.machines(), wanted)
        time.sleep(0.05)


def test_a_machine_is_made_once_though_the_daemon_did_not_answer(carrel):
    carrel.keep()
    pid = daemon_pid(carrel)
    os.kill(pid, signal.SIGSTOP)
    with carrel.popen("new", **PIPES) as p:
        end_daemon(carrel, signal.SIGKILL)
        out, err, status = streams(p, b"")
    assert status == 0, err
    assert len(carrel.machines()) == 2 and out.decode().strip() in carrel.machines()


class Door:
    """An address that stays while the daemon behind it comes and goes: each connection is passed on, or closed."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.trap = None  # bytes, and what happens when a client sends them: they do not arrive
        self.answer_trap = None  # the same of answers: what comes before them arrives
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.daemon.port))
            except OSError:
                near.close()
                continue
            for a, b, asks in ((near, far, True), (far, near, False)):
                threading.Thread(target=self.copy, args=(a, b, asks), daemon=True).start()

    def copy(self, a, b, asks):
        seen = b""
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                seen = seen[-100:] + data
                if asks and self.trap and self.trap[0] in seen:
                    happens, self.trap = self.trap[1], None
                    happens()
                    break
                if not asks and self.answer_trap and self.answer_trap[0] in data:
                    (mark, happens), self.answer_trap = self.answer_trap, None
                    b.sendall(data[:data.index(mark)])
                    happens()
                    break
                b.sendall(data)
        for s in (a, b):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def elsewhere(fresh):
    """A daemon behind a door, a machine, and the command line of somebody who knows the door."""
    d = fresh("--listen", "127.0.0.1:0")
    door = Door(d)
    token = d.post("/v1/tokens", {"owner": "far", "scopes": ["read", "run"]})["secret"]
    env = {**d.env, "CARREL_RUN": str(d.dir / "none"), "CARREL_URL": door.url, "CARREL_TOKEN": token,
           "CARREL_WAIT": "300"}

    def popen(*args, env=env, **more):
        return subprocess.Popen([PROGRAM, *args], env={**env, **more}, **PIPES)

    with popen("new") as p:
        m = p.communicate(timeout=60 * PATIENCE)[0].decode().strip()
    yield d, m, popen
    door.close()


@pytest.fixture
def outbox(fresh, tmp_path):
    """Something to ship, through a door; what ship() gives is its status and what it said."""
    d = fresh("--listen", "127.0.0.1:0")
    door = Door(d)
    token = d.post("/v1/tokens", {"scopes": ["read", "run", "admin"]})["secret"]
    m = d.machine()
    d.exec(m, "mkdir -p /outbox && echo made >/outbox/f", user="root")
    frozen = d.post(f"/v1/machines/{m}/changesets", {})["id"]
    env = {**d.env, "CARREL_RUN": str(d.dir / "none"), "CARREL_URL": door.url, "CARREL_TOKEN": token,
           "CARREL_WAIT": "300"}

    def ship(what=frozen, **more):
        return subprocess.run([PROGRAM, "ship", "-y", what, tmp_path], env={**env, **more}, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * PATIENCE)

    yield d, door, ship, tmp_path / "f"
    door.close()


def shipped(d):
    notes = d.request("GET", "/v1/audit?verb=review.ship", raw=True).decode().splitlines()
    return [n for n in map(json.loads, notes) if n["kind"] == "result"]


def test_what_was_shipped_when_the_daemon_died_is_written_down_by_the_next(outbox):
    d, door, ship, made = outbox

    def dies():
        d.kill()
        d.start()

    door.trap = (b'"action":"shipped"', dies)
    done = ship()
    assert done.returncode == 0 and "1 file shipped" in done.stdout, done
    assert made.read_text() == "made\n" and len(shipped(d)) == 1


def test_what_was_shipped_without_a_daemon_says_so(outbox):
    d, door, ship, made = outbox
    door.trap = (b'"action":"shipped"', d.kill)
    done = ship(CARREL_WAIT="0")
    assert done.returncode == 125 and made.read_text() == "made\n", done
    assert "1 file was shipped" in done.stderr and "carrel ship -y" in done.stderr, done.stderr
    d.start()
    assert shipped(d) == []
    assert ship().returncode == 0 and len(shipped(d)) == 1


ASKED = {"grants": b"/grants HTTP", "freeze": b"/changesets HTTP", "base": b"/base HTTP", "archive": b"/archive HTTP",
         "steps": b"/steps?", "intent": b'"action":"ship"'}


@pytest.mark.parametrize("asked", ASKED)
def test_ship_asks_the_next_daemon_what_the_dead_one_did_not_answer(outbox, asked):
    d, door, ship, made = outbox
    machine = d.machines()[0]["id"]

    def dies():
        d.kill()
        d.start()

    door.trap = (ASKED[asked], dies)
    done = ship(machine)
    assert door.trap is None, "nothing was asked that is trapped"
    assert done.returncode == 0 and "1 file shipped" in done.stdout, done
    assert made.read_text() == "made\n" and len(shipped(d)) == 1


def test_ship_reads_anew_what_the_dead_daemon_had_told_half(outbox):
    d, door, ship, made = outbox

    def dies():
        d.kill()
        d.start()

    door.answer_trap = (b"made\n", dies)  # in the middle of the archive
    done = ship()
    assert door.answer_trap is None, "no answer had it"
    assert done.returncode == 0 and made.read_text() == "made\n", done


def test_ship_without_a_daemon_says_that_nothing_was_shipped(outbox):
    d, door, ship, made = outbox
    machine = d.machines()[0]["id"]
    door.trap = (b"/changesets HTTP", d.kill)
    done = ship(machine, CARREL_WAIT="0")
    assert done.returncode == 125 and not made.exists(), done
    assert "nothing was shipped" in done.stderr and "carrel serve" in done.stderr, done.stderr
    d.start()
    assert shipped(d) == []
    assert ship(machine).returncode == 0 and made.read_text() == "made\n"


def test_output_and_input_go_on_at_their_offsets(elsewhere):
    """No pipe can be handed over: every byte passes through the daemon that dies, and through the next."""
    d, m, popen = elsewhere
    with popen("exec", m, "--", "sh", "-c", "printf 'one\\377\\n'; cat; echo err >&2; exit 9") as p:
        assert p.stdout.readline() == b"one\xff\n"
        p.stdin.write(b"before\n")
        p.stdin.flush()
        assert p.stdout.readline() == b"before\n"
        d.kill()
        p.stdin.write(b"between\n")
        p.stdin.flush()
        d.start()
        assert p.stdout.readline() == b"between\n"
        assert streams(p, b"after\n") == (b"after\n", b"err\n", 9)


def test_a_daemon_that_does_not_come_back_is_waited_for_no_longer(elsewhere):
    """One that is elsewhere is not ours to start."""
    d, m, popen = elsewhere
    with popen("exec", m, "--", "sh", "-c", "echo up; exec sleep 1000", CARREL_WAIT="1") as p:
        assert p.stdout.readline() == b"up\n"
        d.kill()
        _, err, status = streams(p, b"")
    assert status == 125
    assert b"the daemon did not come back within 1 s" in err and b"carrel logs " + m.encode() in err, err
    d.start()
    assert [x["state"] for x in d.get(f"/v1/machines/{m}/execs")["execs"]] == ["running"]
