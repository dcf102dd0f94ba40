"""Paused and stopped machines wake for exec, sh and cp; whose requests wake them depends on who put them to rest."""
import io
import json
import subprocess
import tarfile
import threading

import pytest

from carrel import PROGRAM
from daemon import ROOTLESS, Daemon, Refused

FILE = "/home/user/kept"
RESTS = ["idle-pause", "idle-stop", "owner-pause", "owner-stop"]


@pytest.fixture(scope="module")
def server():
    d = Daemon("--listen", "127.0.0.1:0")
    yield d
    d.stop()


@pytest.fixture
def ann(server):
    """An owner beside the daemon's own user, who is an administrator."""
    yield server.tcp(owner="ann")
    server.clear()


def state(client, machine):
    return client.get(f"/v1/machines/{machine}")["state"]


def put_to_rest(client, rest, **fields):
    """A machine with a file, which idleness or the client has put to rest."""
    cause, verb = rest.split("-")
    m = client.machine(**fields)
    client.request("PUT", f"/v1/machines/{m}/files?path={FILE}", b"kept\n")
    if cause == "owner":
        client.post(f"/v1/machines/{m}/{verb}")
    else:
        client.patch(f"/v1/machines/{m}", {"idle": 0.3, "idle_action": verb})
        client.until(lambda: state(client, m) != "running")
        client.patch(f"/v1/machines/{m}", {"idle": 0})  # so that it stays awake
    found = client.get(f"/v1/machines/{m}")
    if ROOTLESS and rest == "idle-pause" and found["state"] == "stopped":
        pytest.skip("rootless, no delegated cgroup: an idle machine is stopped, it cannot be paused")
    assert (found["state"], found["state_by"]) == ({"pause": "paused", "stop": "stopped"}[verb], cause)
    return m


def cli(daemon, *words, stdin=b""):
    done = subprocess.run([PROGRAM, *map(str, words)], env=daemon.env, input=stdin, capture_output=True, timeout=60)
    assert done.returncode == 0, done
    return done.stdout


def terminal(daemon, machine):
    """The shell of `carrel sh` in a terminal."""
    x = daemon.post(f"/v1/machines/{machine}/execs", {"command": f"cat {FILE}", "terminal": True, "background": True})["id"]
    assert daemon.wait(machine, x)["status"] == 0


def copy_in(daemon, machine, tmp_path):
    (tmp_path / "new").write_text("new\n")
    cli(daemon, "cp", tmp_path / "new", f"{machine}:/home/user/new")
    assert daemon.get(f"/v1/machines/{machine}/files", path="/home/user/new") == b"new\n"


def copy_out(daemon, machine, tmp_path):
    """A directory: the machine has to pack it."""
    cli(daemon, "cp", f"{machine}:/home/user", tmp_path / "home")
    assert (tmp_path / "home/kept").read_text() == "kept\n"


def unpack(daemon, machine):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as t:
        t.addfile(tarfile.TarInfo("there"))
    daemon.request("PUT", f"/v1/machines/{machine}/files/tar?path=/home/user", data.getvalue())
    assert daemon.get(f"/v1/machines/{machine}/files", path="/home/user/there") == b""


USES = {
    "exec": lambda d, m, tmp: cli(d, "exec", m, "--", "cat", FILE) == b"kept\n" or pytest.fail("no output"),
    "sh": lambda d, m, tmp: cli(d, "sh", m, stdin=f"cat {FILE}\n".encode()) == b"kept\n" or pytest.fail("no output"),
    "cp-in": copy_in,
    "cp-out": copy_out,
    "api-exec": lambda d, m, tmp: d.exec(m, f"cat {FILE}")["stdout"] == "kept\n" or pytest.fail("no output"),
    "api-terminal": lambda d, m, tmp: terminal(d, m),
    "api-put": lambda d, m, tmp: d.request("PUT", f"/v1/machines/{m}/files?path=/home/user/f", b"x"),
    "api-tar": lambda d, m, tmp: unpack(d, m),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("rest", RESTS)
def test_a_machine_wakes_for_its_owner(daemon, tmp_path, rest, use):
    m = put_to_rest(daemon, rest)
    USES[use](daemon, m, tmp_path)
    assert state(daemon, m) == "running" and "state_by" not in daemon.get(f"/v1/machines/{m}")


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("rest", ["idle-pause", "idle-stop"])
def test_an_idle_machine_wakes_for_everybody_who_may_run_in_it(server, ann, tmp_path, rest, use):
    m = put_to_rest(ann, rest)
    USES[use](server, m, tmp_path)
    assert state(ann, m) == "running"


@pytest.mark.parametrize("use", ["exec", "put", "tar"])
@pytest.mark.parametrize("rest,word", [("owner-pause", "paused"), ("owner-stop", "stopped")])
def test_what_its_owner_put_to_rest_does_not_wake_for_somebody_else(server, ann, rest, word, use):
    m = put_to_rest(ann, rest)
    with pytest.raises(Refused) as e:
        {"exec": lambda: server.exec(m, "true"),
         "put": lambda: server.request("PUT", f"/v1/machines/{m}/files?path=/home/user/f", b"x"),
         "tar": lambda: server.get(f"/v1/machines/{m}/files/tar", path="/home/user")}[use]()
    assert (e.value.status, e.value.code) == (403, "denied")
    assert e.value.error["message"] == f"machine '{m}' was {word} by its owner 'ann', so it wakes only for that owner"
    assert e.value.error["remedy"] == f"resume it first: carrel resume {m}"
    assert state(ann, m) == word
    assert ann.exec(m, "echo awake")["stdout"] == "awake\n"


def test_the_command_line_says_who_paused_a_machine(server, ann):
    m = put_to_rest(ann, "owner-pause")
    for words in (["exec", m, "--", "true"], ["sh", m], ["cp", PROGRAM, f"{m}:/tmp/f"]):
        done = subprocess.run([PROGRAM, *words], env=server.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        assert done.returncode == 125 and b"paused by its owner 'ann'" in done.stderr and b"carrel resume" in done.stderr, done
    assert state(ann, m) == "paused"


def test_what_an_administrator_paused_does_not_wake_for_its_owner(server, ann):
    m = ann.machine()
    server.post(f"/v1/machines/{m}/pause")
    assert ann.get(f"/v1/machines/{m}")["state_by"] == "admin"
    with pytest.raises(Refused) as e:
        ann.exec(m, "true")
    assert e.value.code == "denied" and "paused by an administrator" in e.value.error["message"]
    ann.post(f"/v1/machines/{m}/resume")
    assert ann.exec(m, "echo awake")["stdout"] == "awake\n"


def test_a_pause_by_its_owner_counts_although_it_was_paused_by_idleness(server, ann):
    m = put_to_rest(ann, "idle-pause")
    ann.post(f"/v1/machines/{m}/pause")
    with pytest.raises(Refused) as e:
        server.exec(m, "true")
    assert e.value.code == "denied"


def test_a_token_that_only_reads_wakes_nothing(server, ann):
    m = put_to_rest(ann, "idle-stop")
    reader = server.tcp(owner="ann", scopes=["read"])
    with pytest.raises(Refused):
        reader.exec(m, "true")
    assert reader.get(f"/v1/machines/{m}/files", path=FILE) == b"kept\n", "the files are there without waking"
    assert state(ann, m) == "stopped"


def test_who_put_a_machine_to_rest_outlives_the_daemon(fresh):
    d = fresh("--listen", "127.0.0.1:0")
    ann = d.tcp(owner="ann")
    idle, own = put_to_rest(ann, "idle-pause"), put_to_rest(ann, "owner-pause")
    d.restart()
    assert d.exec(idle, "echo awake")["stdout"] == "awake\n"
    with pytest.raises(Refused) as e:
        d.exec(own, "true")
    assert "by its owner 'ann'" in e.value.error["message"]


def test_processes_of_a_paused_machine_go_on_when_it_wakes(daemon):
    m = daemon.machine()
    x = daemon.background(m, "while [ ! -e end ]; do sleep 0.02; done; echo seen")
    daemon.post(f"/v1/machines/{m}/pause")
    daemon.exec(m, "touch end")
    assert daemon.wait(m, x)["status"] == 0


def test_requests_at_once_wake_a_machine_once(daemon):
    m = put_to_rest(daemon, "owner-pause")
    found = []
    threads = [threading.Thread(target=lambda i=i: found.append(daemon.exec(m, f"echo {i}")["stdout"])) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == [f"{i}\n" for i in range(8)]


@pytest.mark.parametrize("verb", ["pause", "stop"])
def test_commands_that_meet_an_idle_timeout_run(daemon, verb):
    """The machine goes to rest again and again, while or just before commands come."""
    m = daemon.machine(idle=0.2, idle_action=verb)
    for i in range(40):
        assert daemon.exec(m, f"echo {i}; sleep 0.0{i % 10}")["stdout"] == f"{i}\n"
        if i % 4 == 0:
            daemon.until(lambda: state(daemon, m) != "running")


def test_a_wake_is_in_the_journal(daemon):
    m = put_to_rest(daemon, "idle-pause")
    daemon.exec(m, "true")
    out = subprocess.run([PROGRAM, "audit", "--json", "--machine", m], env=daemon.env, capture_output=True, timeout=60).stdout
    verbs = [json.loads(line)["verb"] for line in out.splitlines()]
    assert verbs.count("machine.resume") == 2, "the intent and the result"
